"""Spark's RankingEvaluator, which runs one Spark action per number."""

from pyspark.ml.evaluation import RankingEvaluator
from pyspark.sql import DataFrame, SparkSession, functions as F

from tests.benchmarks.peers.common import CUTOFFS, EVERYTHING

NAMES = {"ap": "meanAveragePrecisionAtK", "ndcg": "ndcgAtK", "p": "precisionAtK", "r": "recallAtK"}
_lists: dict[str, DataFrame] = {}


def prepare(path: str) -> None:
    """Build the lists of a log for ``means_of_all``."""
    _lists[path] = _built(path)


def _built(path: str) -> DataFrame:
    """The cached lists of a log."""
    item = F.xxhash64("item").cast("double")
    ranked = F.sort_array(F.collect_list(F.struct("position", item.alias("item"))))["item"]
    relevant = F.collect_list(F.when(F.col("relevance") > 0, item))
    rows = SparkSession.active().read.parquet(path)
    lists = rows.groupBy("experiment", "user").agg(ranked.alias("prediction"), relevant.alias("label"))
    lists = lists.select("experiment", "prediction", "label").cache()
    lists.count()
    return lists


def release(path: str) -> None:
    _lists.pop(path).unpersist()


def means_of_all(path: str) -> dict:
    """12 numbers over all experiments, from lists that ``prepare`` has cached."""
    return _means(_lists[path], EVERYTHING)


def run(path: str) -> dict:
    """48 numbers from the log, 12 per experiment: the same work as ours, without counts and intervals."""
    lists = _built(path)
    try:
        names = [row["experiment"] for row in lists.select("experiment").distinct().collect()]
        result = (_means(lists.where(F.col("experiment") == name), name) for name in names)
        return {key: value for part in result for key, value in part.items()}
    finally:
        lists.unpersist()


def _means(lists: DataFrame, experiment: str) -> dict:
    return {
        (experiment, f"{metric}@{k}"): RankingEvaluator(metricName=name, k=k).evaluate(lists)
        for metric, name in NAMES.items()
        for k in CUTOFFS
    }
