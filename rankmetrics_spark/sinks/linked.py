"""Reading a table on Sail, which cannot say which file a row is from: a folder of links to the files that count.

Sail reads the partition values of whole folders only, so the links stand in folders of the same names.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.engines import sail_path
from rankmetrics_spark.schemas import EXPERIMENT, PARTITION
from rankmetrics_spark.sinks.files import Files
from rankmetrics_spark.sinks.partitions import NULL_PARTITION


@cache
def _links() -> Path:
    """A folder for the links of this process, removed when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="rankmetrics-links-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def rows_of(
    spark: SparkSession, table: Files, paths: Sequence[str], schema: T.StructType | None = None
) -> DataFrame | None:
    """The rows of some files of a table with their partition columns as strings; None if there are no files.

    Args:
        spark: A session on Sail.
        table: The table.
        paths: The files, as paths below its folder.
        schema: The columns that are read; by default those of all files.
    """
    if not paths:
        return None
    folder = tempfile.mkdtemp(dir=_links())
    for path in paths:
        link = Path(folder, path)
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(table.at(path), link)
    reader = spark.read
    if schema is not None:
        keys = [T.StructField(name, T.StringType()) for name in PARTITION]
        reader = reader.schema(T.StructType([f for f in schema.fields if f.name not in PARTITION] + keys))
    found = reader.parquet(sail_path(folder))
    # Sail reads the folder of a null value as a text.
    experiment = F.when(F.col(EXPERIMENT) != NULL_PARTITION, F.col(EXPERIMENT))
    return found.withColumn(EXPERIMENT, experiment)


def partition_files(table: Files) -> list[str]:
    """Every file of a table, as a path below its folder."""
    found = (entry.path for entry in table.entries("", recursive=True) if entry.is_file)
    return sorted(os.path.relpath(path, table.root) for path in found if path.endswith(".parquet"))
