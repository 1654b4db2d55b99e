"""Which ranking experiment is better, and how sure is that: MAP, NDCG and their relatives on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "Convention",
    "Options",
    "Result",
    "ap_at",
    "compare",
    "compare_conventions",
    "evaluate",
    "laptop_session",
    "metric",
    "metric_udf",
    "ndcg_at",
    "off_policy",
    "parse",
    "read",
    "register_udfs",
    "run",
]

if TYPE_CHECKING:
    from rankmetrics_spark.comparison import compare
    from rankmetrics_spark.config import Options
    from rankmetrics_spark.conventions import compare_conventions
    from rankmetrics_spark.engines import laptop_session
    from rankmetrics_spark.job import run
    from rankmetrics_spark.metrics import Convention, metric, parse
    from rankmetrics_spark.pipeline import Result, evaluate
    from rankmetrics_spark.sinks import read
    from rankmetrics_spark.udfs import ap_at, metric_udf, ndcg_at, register_udfs
    from rankmetrics_spark.weighting import off_policy

_HOMES = {
    "evaluate": "pipeline",
    "Result": "pipeline",
    "Options": "config.options",
    "run": "job",
    "laptop_session": "engines.sail",
    "read": "sinks",
    "metric": "metrics",
    "parse": "metrics",
    "Convention": "metrics",
    "compare": "comparison",
    "compare_conventions": "conventions",
    "off_policy": "weighting",
    "ap_at": "udfs",
    "ndcg_at": "udfs",
    "metric_udf": "udfs",
    "register_udfs": "udfs",
}


def __getattr__(name: str) -> Any:
    """Load the Spark layer on first use, so that the pure layer imports without pyspark."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rankmetrics_spark' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"rankmetrics_spark.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
