"""Where a run writes its tables: folders of Parquet, Delta tables, Iceberg tables.

A sink receives finished tables. It knows nothing about how they were computed.
"""

from __future__ import annotations

from rankmetrics_spark.sinks.parquet import ParquetFolder, read
from rankmetrics_spark.sinks.partitions import Partitions, Store
from rankmetrics_spark.sinks.publish import (
    partitions_for,
    refuse_names,
    refuse_other_convention,
    refuse_other_date,
    store_of,
)
from rankmetrics_spark.sinks.records import previous_quality

__all__ = [
    "ParquetFolder",
    "Partitions",
    "Store",
    "partitions_for",
    "previous_quality",
    "read",
    "refuse_names",
    "refuse_other_convention",
    "refuse_other_date",
    "store_of",
]
