"""``read``: a table that runs have written, as the pointers of ``published`` name it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark.engines import engine_of
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.pointers import Pointer
from rankmetrics_spark.schemas import PARTITION, quoted
from rankmetrics_spark.sinks import linked
from rankmetrics_spark.sinks.lakehouse import CatalogSchema, DeltaFolder
from rankmetrics_spark.sinks.reaching import of_disk
from rankmetrics_spark.sinks.reading import literal, live, live_files, pointers_of, settled, with_schema


def read(spark: SparkSession, path: str, format: str = "parquet") -> DataFrame:
    """A written table, with the columns of all its files; a metric that only some dates have is null on the others.

    It follows the pointers of ``published``: while a run publishes, and after it was killed, each date has its earlier
    rows or the new ones, in all tables. The partition columns are strings, exactly as they were written: "007" stays
    "007".

    Args:
        spark: The session.
        path: Folder of the table, such as ``out/user_metrics``, or a table of a catalog: ``lake.ranking.user_metrics``.
        format: ``delta`` or ``iceberg`` for a table of a catalog; the pointers of a folder name its format.

    Raises:
        AnalysisException: There is no such folder.
        InputError: There is no such table in the catalog, or runs keep publishing to the folder.
    """
    path = path.rstrip("/")
    if format != "parquet" and "/" not in path:
        return _of_catalog(spark, path, format)
    root, _, table = path.rpartition("/")
    known = pointers_of(spark, root or ".")
    if format == "delta" or any(pointer.format == "delta" for pointer in known.values()):
        found = DeltaFolder(spark, root or ".", "").existing(table)
        if found is not None:
            return found
    return settled(spark, root or ".", lambda known: _rows(spark, path, known), known)


def _rows(spark: SparkSession, path: str, known: Mapping[str, Pointer]) -> DataFrame:
    try:
        return _listed(spark, path, known)
    except AnalysisException:
        columns = columns_of(known, path.rpartition("/")[2])
        if not columns:
            raise
        # What was published has no row in this table, such as a quarantine without faulty rows.
        return spark.createDataFrame([], columns)


def _listed(spark: SparkSession, path: str, known: Mapping[str, Pointer]) -> DataFrame:
    """The rows that the pointers name; the files are listed here."""
    if engine_of(spark) == "sail":
        return _on_sail(spark, path, known)
    schema = spark.read.option("mergeSchema", "true").parquet(literal(path)).schema
    return live(with_schema(spark, path, schema), known, path)


def _on_sail(spark: SparkSession, path: str, known: Mapping[str, Pointer]) -> DataFrame:
    disk = of_disk(path)
    if disk is None or not disk.is_folder(""):
        columns = columns_of(known, path.rpartition("/")[2])
        if not columns:
            raise AnalysisException(f"there is no folder '{path}'")
        return spark.createDataFrame([], columns)
    found = linked.rows_of(spark, disk, live_files(disk, known))
    if found is None:
        raise AnalysisException(f"'{path}' holds no rows that were published")
    return found


def columns_of(known: Mapping[str, Pointer], table: str) -> str:
    """The columns of a table as SQL, from the newest pointer that knows them; empty if none does."""
    for _, pointer in sorted(known.items(), reverse=True):
        for entry in pointer.entries:
            if columns := entry.tables.get(table, {}).get("columns"):
                keys = dict.fromkeys(PARTITION, "string")
                return ", ".join(f"{quoted(name)} {kind}" for name, kind in (columns | keys).items())
    return ""


def _of_catalog(spark: SparkSession, name: str, format: str) -> DataFrame:
    schema, _, table = name.rpartition(".")
    found = CatalogSchema(spark, schema, "", format).existing(table)
    if found is None:
        raise InputError(f"cannot read {format} from '{name}': there is no such table")
    return found
