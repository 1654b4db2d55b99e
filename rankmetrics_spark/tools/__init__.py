"""Tools around the product: the demo log, and the self-test against golden values."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
