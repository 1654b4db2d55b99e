"""Spark's own RankingEvaluator against the preset that is named after it."""

import random

import pytest
from pyspark.ml.evaluation import RankingEvaluator
from pyspark.sql import SparkSession

from tests.helpers.frames import Case, values

METRICS = {
    "meanAveragePrecision": "ap",
    "meanAveragePrecisionAtK": "ap@{k}",
    "precisionAtK": "p@{k}",
    "ndcgAtK": "ndcg@{k}",
    "recallAtK": "r@{k}",
}


def some_lists(n: int) -> list[Case]:
    """Lists of 0 to 12 items, some of them relevant; some users have no relevant item."""
    rng = random.Random(5)
    items = [str(i) for i in range(20)]
    shown = [rng.sample(items, rng.randint(0, 12)) for _ in range(n)]
    truth = [rng.sample(items, rng.choice([0, 1, 2, 5, 9])) for _ in range(n)]
    return [Case(s, [0.0] * len(s), dict.fromkeys(t, 1)) for s, t in zip(shown, truth, strict=True)]


@pytest.mark.parametrize("k", [3, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 10))])
@pytest.mark.needs_spark("the peer is a part of Spark")
def test_the_preset_spark_mllib_gives_the_values_of_the_ranking_evaluator(spark: SparkSession, k: int) -> None:
    cases = some_lists(2000)
    rows = [([float(i) for i in one.items], [float(i) for i in one.judged]) for one in cases]
    table = spark.createDataFrame(rows, "prediction array<double>, label array<double>").repartition(2).cache()
    ours = values(cases, [name.format(k=k) for name in METRICS.values()], "spark_mllib", by_position=True)
    for column, theirs in enumerate(METRICS):
        evaluator = RankingEvaluator(metricName=theirs, k=k)
        mean = sum(row[column] for row in ours) / len(ours)
        assert mean == pytest.approx(evaluator.evaluate(table), abs=1e-12, rel=0), theirs
    table.unpersist()
