"""Statistics as plain arithmetic on arrays: NumPy and SciPy, no Spark."""

from rankmetrics_spark.statistics.intervals import t_interval
from rankmetrics_spark.statistics.moments import Moments

__all__ = ["Moments", "t_interval"]
