"""Statistics as plain arithmetic on arrays: NumPy and SciPy, no Spark; SciPy is loaded on first use."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
