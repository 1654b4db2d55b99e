"""Where a run writes its tables: folders of Parquet, Delta tables, Iceberg tables.

A sink receives finished tables. It knows nothing about how they were computed.
"""

from __future__ import annotations

from rankmetrics_spark.sinks.parquet import ParquetFolder, read
from rankmetrics_spark.sinks.partitions import Partitions, Store
from rankmetrics_spark.sinks.publish import partitions_for, refuse_names, refuse_other_convention, store_of

__all__ = [
    "ParquetFolder",
    "Partitions",
    "Store",
    "partitions_for",
    "read",
    "refuse_names",
    "refuse_other_convention",
    "store_of",
]
