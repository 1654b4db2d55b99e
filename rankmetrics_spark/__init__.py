"""Which ranking experiment is better, and how sure is that: MAP, NDCG and their relatives on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Convention", "Options", "Result", "SideBySide", "evaluate", "metric", "parse", "run"]

if TYPE_CHECKING:
    from rankmetrics_spark.conventions import Convention
    from rankmetrics_spark.job import run
    from rankmetrics_spark.metrics import metric, parse
    from rankmetrics_spark.options import Options
    from rankmetrics_spark.pipeline import Result, evaluate
    from rankmetrics_spark.side_by_side import SideBySide

_HOMES = {
    "evaluate": "pipeline",
    "Result": "pipeline",
    "Options": "options",
    "run": "job",
    "metric": "metrics",
    "parse": "metrics",
    "Convention": "conventions",
    "SideBySide": "side_by_side",
}


def __getattr__(name: str) -> Any:
    """Load the Spark layer on first use, so that the pure layer imports without pyspark."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rankmetrics_spark' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"rankmetrics_spark.{_HOMES[name]}"), name)
