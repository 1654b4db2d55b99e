"""RePlay's metrics on Spark DataFrames, over all experiments."""

from replay.metrics import MAP, NDCG, OfflineMetrics, Precision, Recall

from tests.benchmarks.peers.common import CUTOFFS, EVERYTHING
from tests.benchmarks.peers.old_spark import jobs, rankings, session, truth

__all__ = ["jobs", "run"]
POPULATION = "relevant"
"""Users without a relevant item are left out."""

NAMES = {"ap": MAP, "ndcg": NDCG, "p": Precision, "r": Recall}


def run(path: str) -> dict:
    session()
    metrics = [kind(list(CUTOFFS)) for kind in NAMES.values()]
    evaluator = OfflineMetrics(metrics, query_column="user", item_column="item", rating_column="rating")
    result = evaluator(rankings(path).drop("relevance"), truth(path))
    return {
        (EVERYTHING, f"{metric}@{k}"): result[f"{kind.__name__}@{k}"] for metric, kind in NAMES.items() for k in CUTOFFS
    }
