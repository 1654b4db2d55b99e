"""The road that a row takes: checked, ranked, scored, aggregated. Tables of Spark alone, made lazily."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
