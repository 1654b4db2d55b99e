"""Where results go: tables in a folder or in a catalog, published whole; how they are read, pruned and counted."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
