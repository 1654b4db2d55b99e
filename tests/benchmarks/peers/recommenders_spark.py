"""SparkRankingEvaluation of recommenders over all experiments: one evaluator per cut-off, one action per number."""

from recommenders.evaluation.spark_evaluation import SparkRankingEvaluation

from tests.benchmarks.peers.common import CUTOFFS, EVERYTHING
from tests.benchmarks.peers.old_spark import jobs, rankings, truth

__all__ = ["jobs", "run"]
POPULATION = "relevant"
"""Users without a relevant item are left out."""


def run(path: str) -> dict:
    names = {"col_user": "user", "col_item": "item", "col_rating": "rating", "col_prediction": "rating"}
    values = {}
    for k in CUTOFFS:
        result = SparkRankingEvaluation(truth(path), rankings(path), k=k, **names)
        values[EVERYTHING, f"ap@{k}"] = result.map_at_k()
        values[EVERYTHING, f"ndcg@{k}"] = result.ndcg_at_k()
        values[EVERYTHING, f"p@{k}"] = result.precision_at_k()
        values[EVERYTHING, f"r@{k}"] = result.recall_at_k()
    return values
