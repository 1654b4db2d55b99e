"""Which ranking experiment is better, and how sure is that: MAP, NDCG and their relatives on Spark."""

from rankmetrics_spark.doors import LOADED_AHEAD, door

__version__ = "0.3.0"

# The Spark layer is loaded on first use, so that the pure layer imports without pyspark.
__getattr__, __dir__, __all__ = door(__name__)

# The Python steps of the first query.
LOADED_AHEAD[:] = ["pyspark.worker", f"{__name__}.road.tables"]
