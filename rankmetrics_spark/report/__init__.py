"""What people read: tables and sentences of a terminal, of a page, and of a notebook."""

from rankmetrics_spark.doors import door

__getattr__, __dir__, __all__ = door(__name__)
