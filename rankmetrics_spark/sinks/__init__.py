"""Where a run writes its tables: folders of Parquet, Delta tables, Iceberg tables.

A sink receives finished tables. It knows nothing about how they were computed.
"""

from __future__ import annotations

from rankmetrics_spark.pointers import Entry
from rankmetrics_spark.sinks.files import Files, of_disk
from rankmetrics_spark.sinks.parquet import ParquetFolder
from rankmetrics_spark.sinks.partitions import MOST_ROWS, Partitions, Split, StagedFile, Store, Written, as_json
from rankmetrics_spark.sinks.pruning import DatePruned, files_of, in_words, prune
from rankmetrics_spark.sinks.reading import dated, live_files, pointers_of, settled
from rankmetrics_spark.sinks.store import (
    check_row_counts,
    partitions_for,
    previous_quality,
    publish,
    read,
    records_in,
    refuse_names,
    refuse_other_convention,
    refuse_other_date,
    run_records,
    store_of,
    unreadable_pointers,
)
from rankmetrics_spark.sinks.swapping import experiment_of

__all__ = [
    "MOST_ROWS",
    "DatePruned",
    "Entry",
    "Files",
    "ParquetFolder",
    "Partitions",
    "Split",
    "StagedFile",
    "Store",
    "Written",
    "as_json",
    "check_row_counts",
    "dated",
    "experiment_of",
    "files_of",
    "in_words",
    "live_files",
    "of_disk",
    "partitions_for",
    "pointers_of",
    "previous_quality",
    "prune",
    "publish",
    "read",
    "records_in",
    "refuse_names",
    "refuse_other_convention",
    "refuse_other_date",
    "run_records",
    "settled",
    "store_of",
    "unreadable_pointers",
]
