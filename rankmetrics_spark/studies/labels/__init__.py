"""Items that nobody has judged: what their labels could change."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
