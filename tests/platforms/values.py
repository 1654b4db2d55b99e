"""Evaluates seeded logs and writes all values as JSON, to compare them between environments."""

import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import evaluate
from rankmetrics_spark.metrics import REGISTRY
from tests.helpers.logs import impressions, judgements, random_log

LIBRARIES = ("pyspark", "numpy", "pandas", "pyarrow", "scipy")
OF_SCORES = [name for name, known in REGISTRY.items() if known.needs == "scores"]
OF_INTENTS = [name for name, known in REGISTRY.items() if known.needs in ("intents", "shown_intents")]
UNCUT = [name for name, known in REGISTRY.items() if "k" not in known.parameters and name not in OF_SCORES]
OF_RANKS = [name for name in REGISTRY if name not in (*OF_SCORES, *OF_INTENTS)]
SCORED = "experiment string, user string, visit int, item string, position int, score double, relevance double, "
SCORED += "country string"
Rows = list[tuple[Any, ...]]


def named(names: Iterable[str], cut: int) -> list[str]:
    """Each metric with the cut-off if it takes one, and also without if the cut-off is optional."""
    either = {f"{name}@{cut}" for name in names if name not in ("rbp", *UNCUT, *OF_SCORES)}
    alone = {"ap", "ndcg", "rr", "rbp", *UNCUT, "softmax_loss(t=0.3)", "softmax_entropy"}
    return sorted(either | {metric for metric in alone if metric.split("(")[0] in names})


def scored_log(seed: int) -> tuple[Rows, Rows]:
    """Impressions with tied scores and real-valued grades, and judgements, some for items that were never shown."""
    rng = random.Random(seed)
    shown: Rows = []
    judged: Rows = []
    for user in (f"user {number}" for number in range(50)):
        grades = {f"item {n}": round(rng.choice([0.0, 0.0, 0.0, rng.uniform(-1, 4), 2.0]), 3) for n in range(30)}
        judged += [(user, item, grade) for item, grade in grades.items() if rng.random() < 0.7]
        for experiment in ("a", "b"):
            for visit in range(rng.choice([1, 1, 3])):
                items = rng.sample(sorted(grades), rng.choice([1, 4, 25]))
                for position, item in enumerate(items, start=1):
                    score = rng.choice([rng.gauss(0, 1), round(rng.gauss(0, 1), 1), 0.0])
                    country = rng.choice(["AT", "DE", None])
                    shown.append((experiment, user, visit, item, position, score, grades[item], country))
    return shown, judged


def results(spark: SparkSession) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The name and the rows of each table."""
    faulty = [("a", "user 1", None, 1, 1), ("a", None, "item 1", 1, 1), ("b", "user 2", "item 1", 0, 1)]
    clicks = impressions(spark, [*random_log(seed=1, users=60), *faulty])
    result = evaluate(clicks, named(OF_RANKS, 10))
    yield from tables("clicks by position", result.user_metrics, result.experiment_metrics, result.quarantine)

    shown, judged = scored_log(seed=2)
    rows, truth = spark.createDataFrame(shown, SCORED), judgements(spark, judged)
    real: Mapping[str, Any] = {"preset": "standard", "gain": "exponential", "relevant_from": 0.5}
    result = evaluate(rows, named(OF_RANKS, 5), convention=real, list=["visit"], segments=["country"], confidence=0.99)
    yield from tables("real grades", result.user_metrics, result.experiment_metrics)

    rule = {"preset": "trec_eval", "ap_ties": "expected", "ndcg_ties": "expected"}
    once = rows.where("visit = 0")
    result = evaluate(once, named([*OF_RANKS, *OF_SCORES], 7), truth, rank_by="score", convention=rule)
    yield from tables("by score", result.user_metrics, result.experiment_metrics)

    # Items of no, one or two intents: by their number.
    digits = "filter(split(substring(item, 6), ''), digit -> digit NOT IN ('', '0', '1'))"
    intents = {"columns": {"intents": "digits"}, "judgement_columns": {"intents": "digits"}}
    known = once.withColumn("digits", F.expr(digits))
    judged_known = truth.withColumn("digits", F.expr(digits.replace("item", "item_id")))
    for name, judgements_of in (("own", None), ("judged", judged_known)):
        result = evaluate(known.na.fill(0.0), named(OF_INTENTS, 5), judgements_of, rank_by="score", **intents)
        yield from tables(f"intents, {name}", result.user_metrics, result.experiment_metrics)


def tables(name: str, *result: DataFrame) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for kind, table in zip(("users", "experiments", "quarantine"), result, strict=False):
        yield f"{name}: {kind}", [row.asDict() for row in table.collect()]


def written(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows in the same order everywhere: the first columns of every table are its keys."""
    return sorted((dict(row) for row in rows), key=repr)


def everything(spark: SparkSession) -> dict[str, Any]:
    """All tables, and the library versions that computed them."""
    values = {name: written(rows) for name, rows in results(spark)}
    return {"versions": {name: version(name) for name in LIBRARIES}, "values": values}


def test_write(spark: SparkSession) -> None:
    """Pytest collects this only when the file is named. It uses the session of the suite that runs with it."""
    Path(os.environ["VALUES"]).write_text(json.dumps(everything(spark)))
