"""Which ranking experiment is better, and how sure is that: MAP, NDCG and their relatives on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import LOADED_AHEAD, lazy

__version__ = "0.2.0"
__all__ = [
    "Convention",
    "Options",
    "Result",
    "ap_at",
    "changed",
    "coec_judgements",
    "compare",
    "compare_conventions",
    "effect_over_time",
    "evaluate",
    "exposure",
    "interleaving",
    "laptop_session",
    "metric",
    "metric_udf",
    "ndcg_at",
    "off_policy",
    "parse",
    "plan",
    "propensities",
    "read",
    "register_udfs",
    "run",
    "unjudged",
]

if TYPE_CHECKING:
    from rankmetrics_spark.comparison import effect_over_time, plan
    from rankmetrics_spark.config import Options
    from rankmetrics_spark.conventions import compare_conventions
    from rankmetrics_spark.engines import laptop_session
    from rankmetrics_spark.job import run
    from rankmetrics_spark.metrics import Convention, metric, parse
    from rankmetrics_spark.pipeline import Result, compare, evaluate, read
    from rankmetrics_spark.studies import (
        changed,
        coec_judgements,
        exposure,
        interleaving,
        off_policy,
        propensities,
        unjudged,
    )
    from rankmetrics_spark.udfs import ap_at, metric_udf, ndcg_at, register_udfs

# The Spark layer is loaded on first use, so that the pure layer imports without pyspark.
__getattr__ = lazy(
    __name__,
    {
        "comparison": "effect_over_time plan",
        "config": "Options",
        "conventions": "compare_conventions",
        "engines": "laptop_session",
        "job": "run",
        "metrics": "Convention metric parse",
        "pipeline": "Result compare evaluate read",
        "studies": "changed coec_judgements exposure interleaving off_policy propensities unjudged",
        "udfs": "ap_at metric_udf ndcg_at register_udfs",
    },
)

# The Python steps of the first query.
LOADED_AHEAD[:] = ["pyspark.worker", f"{__name__}.road"]


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
