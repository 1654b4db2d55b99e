"""Where a run writes its tables: folders of Parquet, Delta tables, Iceberg tables.

A sink receives finished tables. It knows nothing about how they were computed.
"""

from __future__ import annotations

from rankmetrics_spark.pointers import Entry
from rankmetrics_spark.sinks.parquet import ParquetFolder
from rankmetrics_spark.sinks.partitions import Partitions, Store, Written
from rankmetrics_spark.sinks.publish import (
    compare_books,
    partitions_for,
    previous_quality,
    publish,
    read,
    refuse_names,
    refuse_other_convention,
    refuse_other_date,
    run_records,
    store_of,
)

__all__ = [
    "Entry",
    "ParquetFolder",
    "Partitions",
    "Store",
    "Written",
    "compare_books",
    "partitions_for",
    "previous_quality",
    "publish",
    "read",
    "refuse_names",
    "refuse_other_convention",
    "refuse_other_date",
    "run_records",
    "store_of",
]
