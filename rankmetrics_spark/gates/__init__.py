"""Quality gates of a log and limits on metrics: what was counted, what it means, and what a run refuses."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
