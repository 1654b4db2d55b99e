"""Per-user metrics -> experiment against experiment.

The users' rows meet by user, Python adds up exact sums for every experiment and every pair, and one task makes the few
rows of the result. The number of Spark jobs depends neither on the number of experiments nor on the metrics.
"""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
