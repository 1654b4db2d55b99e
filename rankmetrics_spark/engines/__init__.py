"""Which engine computes, the sessions of Spark and Sail, and what differs between them."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
