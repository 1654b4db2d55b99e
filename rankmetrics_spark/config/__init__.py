"""What a run is asked to do: frozen dataclasses from YAML or a mapping, with each field checked once. No pyspark."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
