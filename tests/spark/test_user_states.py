"""``sink.user_states``: over any history, runs say to the bit what they say where every day is read."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import read
from rankmetrics_spark.cli import compare
from rankmetrics_spark.cli.earlier import CompareRequest, comparison_of
from rankmetrics_spark.config import Sink
from rankmetrics_spark.errors import DifferenceError
from rankmetrics_spark.job import forget, recompute, verify
from tests.helpers.days import PERIOD, Log, a_log
from tests.helpers.logs import exact
from tests.spark.test_forget import holding, ids_file
from tests.tables_page import tables

DAYS = tuple(f"2026-11-{day:02}" for day in range(8, 14))
#: What happens after each day of the first history: a run of a part of the experiments is of the newest day.
STEPS = ("nobody", "again", "some", "recompute", "forget", "nobody")
TABLES = ("user_metrics", "experiment_metrics", "comparisons", "checks")


class Histories:
    """One history in two outputs: one has states of users."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.spark, self.rng, self.used, self.seed = spark, random.Random(seed), 0, seed
        self.folders = folder / "with", folder / "without"
        # One experiment starts later.
        self.rows = [row for row in a_log(DAYS, 12, seed) if row[1] != "c" or row[0] > DAYS[0]]

    def logs(self) -> list[Log]:
        return [Log(self.spark, folder, self.rows) for folder in self.folders]

    def run(self, day: str, arms: str = "abc", metrics: tuple[str, ...] = ("ap@5", "ndcg@5")) -> None:
        """Run a day in both, with some of its experiments."""
        source = {"segments": ["country"], "where": f"day = '{{date}}' AND experiment_id IN {(*arms, '')}"}
        for log, states in zip(self.logs(), (1 if self.seed == 1 else self.rng.choice([1, 2]), None), strict=True):
            sink = {"path": str(log.out), "user_states": states, "lists": True}
            record = log.run(day, PERIOD, source=source, metrics=[*metrics], sink=sink).record
            assert "state" not in record["period"] or states
            self.used += "state" in record["period"]

    def step(self, day: str) -> str:
        """Something that happens between two days."""
        what = STEPS[DAYS.index(day)] if self.seed == 1 else self.rng.choice(STEPS)
        earlier = self.rng.choice(DAYS[: DAYS.index(day)][-(what == "some") :] or DAYS[:1])
        if what in ("again", "some"):
            gone = {f"u{self.rng.randrange(12)}" for _ in range(3)}
            self.rows = [row for row in self.rows if row[0] != earlier or row[2] not in gone]
            self.run(earlier)
            if what == "some":
                # The state of the third experiment of this day is one with the run that was replaced.
                self.run(day, "ab")
        elif what == "recompute":
            for log in self.logs():
                recompute(self.spark, Sink(path=str(log.out)), dates=(earlier, earlier), settings=["percentiles=[50]"])
        elif what == "forget":
            user = self.rng.choice([row[2] for row in self.rows])
            self.rows = [row for row in self.rows if row[2] != user]
            for log in self.logs():
                forget(self.spark, str(log.out), ids_file(log.folder, user, user))
                assert not holding(log.out, user)
        return what

    def tables(self, folder: Path) -> dict[str, Any]:
        """Every row of the tables, and what ``compare`` says of the period."""
        out = str(folder / "out")
        asked = ["--input", out, "--baseline", "a", "--segment", "country", "--from", DAYS[0]]
        request = CompareRequest(**compare.make_context("compare", asked).params)
        rows = {table: exact(read(self.spark, f"{out}/{table}").collect(), ["run_id"]) for table in TABLES}
        return rows | {"compare": comparison_of(self.spark, request).rows}


# In the history of 5, no run reads a state.
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 4, *range(6, 12)))])
def test_runs_that_read_states_have_the_bits_of_runs_that_read_every_day(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    histories = Histories(spark, tmp_path, seed)
    for day in DAYS:
        histories.run(day, metrics=("ap@5", "ndcg@5", "rr")[: 2 + (day > DAYS[3])])
        what = histories.step(day)
        if day not in DAYS[3::2]:
            continue
        with_states, without = map(histories.tables, histories.folders)
        for table, rows in with_states.items():
            assert repr(rows) == repr(without[table]), (seed, day, what, table)
    assert histories.used, "no run has read a state"
    out = histories.folders[0] / "out"
    verified = []
    for day in DAYS:
        try:
            verified += verify(spark, Sink(path=str(out)), day, source="user_metrics").rows
        except DifferenceError as error:  # of a run that has read a day before it was published again
            assert "have changed since" in str(error)
    assert "user_states" in {row["table"] for row in verified}
    of_page = {name for each in tables()["user_states"] if each != "<trigger>"
               for name in ([each.replace("<metric>", metric) for metric in ("ap_at_5", "ndcg_at_5", "rr")]
                            if "<metric>" in each else [each.replace("<segment>", "country")])}  # fmt: skip
    limbs = {f"_{i}{metric}" for metric in ("ap_at_5", "ndcg_at_5", "rr") for i in (1, 2, 3)}
    assert {*read(spark, f"{out}/user_states").columns} == of_page | limbs
