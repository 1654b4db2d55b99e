"""A log of several days, the runs of each day over the period so far, and what one run over all rows says."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, evaluate, job, run, sinks
from tests.helpers.logs import bits

DAYS = ("2026-11-08", "2026-11-09", "2026-11-10", "2026-11-11")
SCHEMA = "day string, experiment_id string, user_id string, item_id string, position int, relevance int, country string"
METRICS = ("ap@5", "ndcg@5")
PERIOD = {"period": {"from": DAYS[0]}}


def a_log(days: tuple[str, ...] = DAYS, users: int = 30, seed: int = 3) -> list[tuple[Any, ...]]:
    """Users who come on some of the days, one list a day; users of b find a little more. Most return."""
    rng, rows = random.Random(seed), []
    for number in range(users):
        country = rng.choice(["de", "fr"])
        for experiment in "abc":
            for day in days:
                if rng.random() < 0.7:
                    for rank in range(1, rng.randint(3, 6)):
                        clicked = int(rng.random() < (0.5 if experiment == "b" else 0.3))
                        rows.append((day, experiment, f"u{number}", f"i{rank}", rank, clicked, country))
    return rows


class Log:
    """A log of several days on disk, an output, and the runs of a test."""

    def __init__(self, spark: SparkSession, folder: Path, rows: list[tuple[Any, ...]]) -> None:
        self.spark, self.folder, self.out = spark, folder, folder / "out"
        spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("overwrite").parquet(str(folder / "log"))

    def config(self, day: str, comparison: dict[str, Any], **more: Any) -> Any:
        source = {"path": str(self.folder / "log"), "where": "day = '{date}'", **more.pop("source", {})}
        document = {"source": source, "metrics": list(METRICS), "evaluation_date": day, "sink": {"path": str(self.out)}}
        return cfg.from_mapping(document | {"comparison": {"baseline": "a", **comparison}} | more)

    def run(
        self,
        day: str,
        comparison: dict[str, Any] | None = None,
        progress: Callable[[str], None] = lambda text: None,
        **more: Any,
    ) -> job.Outcome:
        return run(self.spark, self.config(day, PERIOD if comparison is None else comparison, **more), progress)

    def rows(self, day: str) -> dict[tuple[str, ...], dict[str, Any]]:
        """Published comparisons of a day by candidate, segment and metric."""
        table = sinks.read(self.spark, str(self.out / "comparisons")).where(f"evaluation_date = '{day}'").collect()
        return by_key([row.asDict() for row in table])

    def compared(self, day: str) -> Any:
        """What the pointer of a day says that its newest run has compared."""
        return json.loads((self.out / "published" / f"{day}.json").read_text())["runs"][0]["compared"]


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    return {(row["experiment_id"], row["segment"], row["metric"]): row for row in rows}


OF_PERIOD = ("look", "period_from", "period_to", "n_days")
NOT_OF_THE_TEST = {"evaluation_date", "run_id", "note", *OF_PERIOD}


def numbers(rows: dict[tuple[str, ...], dict[str, Any]]) -> dict[tuple[str, ...], Any]:
    """Every number of the rows to the bit."""
    return {key: {n: bits(v) for n, v in row.items() if n not in NOT_OF_THE_TEST} for key, row in rows.items()}


def all_at_once(spark: SparkSession, rows: list[tuple[Any, ...]], **more: Any) -> dict[tuple[str, ...], Any]:
    """The comparisons of one evaluation of all rows, the lists of a user told apart by day."""
    result = evaluate(spark.createDataFrame(rows, SCHEMA), metrics=METRICS, list="day", baseline="a", **more)
    return numbers(by_key([row.asDict() for row in result.comparisons.collect()]))
