"""Spark's own RankingEvaluator: one action per number. Means over all experiments; 12 numbers, not 48."""

from pyspark.ml.evaluation import RankingEvaluator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.benchmarks.peers.common import CUTOFFS, EVERYTHING

NAMES = {"ap": "meanAveragePrecisionAtK", "ndcg": "ndcgAtK", "p": "precisionAtK", "r": "recallAtK"}
_lists: dict[str, DataFrame] = {}


def prepare(path: str) -> None:
    """Build the lists and cache them: none of this is timed."""
    item = F.xxhash64("item").cast("double")
    ranked = F.sort_array(F.collect_list(F.struct("position", item.alias("item"))))["item"]
    relevant = F.collect_list(F.when(F.col("relevance") > 0, item))
    rows = SparkSession.active().read.parquet(path)
    lists = rows.groupBy("experiment", "user").agg(ranked.alias("prediction"), relevant.alias("label"))
    _lists[path] = lists.select("prediction", "label").cache()
    _lists[path].count()


def release(path: str) -> None:
    _lists.pop(path).unpersist()


def run(path: str) -> dict:
    return {
        (EVERYTHING, f"{metric}@{k}"): RankingEvaluator(metricName=name, k=k).evaluate(_lists[path])
        for metric, name in NAMES.items()
        for k in CUTOFFS
    }
