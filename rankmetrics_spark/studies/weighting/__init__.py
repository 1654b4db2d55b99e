"""Clicks under position bias or another policy: propensities, weighted metrics, grades from clicks."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
