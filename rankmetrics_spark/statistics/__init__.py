"""Statistics as plain arithmetic on arrays: NumPy and SciPy, no Spark."""

from rankmetrics_spark.statistics.moments import Moments, t_interval

__all__ = ["Moments", "t_interval"]
