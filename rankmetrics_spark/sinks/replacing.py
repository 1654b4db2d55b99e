"""One commit to a Delta or Iceberg table: some partitions become these rows, everything else stays."""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION, quoted
from rankmetrics_spark.sinks.commits import shares_file
from rankmetrics_spark.sinks.partitions import Partitions

_IS_NEW = "__new"


def replace(old: DataFrame | None, name: str, format: str, rows: DataFrame, partitions: Partitions) -> None:
    """One attempt to replace the partitions.

    Args:
        old: The table as it is; None if it does not exist, and is to be created.
        name: Its SQL name.
        format: ``delta`` or ``iceberg``.
        rows: What the partitions are going to hold.
        partitions: What is replaced.
    """
    if old is None:
        if not partitions.filled:
            return
        old = created(name, format, rows, PARTITION)
    rows = _aligned(name, rows, old.schema)
    if not partitions.filled:
        if old.where(partitions.condition()).isEmpty():
            return
        rows = rows.sparkSession.createDataFrame([], rows.schema)
    try:
        rows.writeTo(name).overwrite(partitions.condition())
    except Exception as error:
        if not shares_file(error):
            raise
        _merge(name, rows, partitions)


def created(name: str, format: str, rows: DataFrame, partition: tuple[str, ...] = ()) -> DataFrame:
    """A new table without rows. Partitioning is set only here: afterwards, the table's owner may change it."""
    writer = rows.limit(0).writeTo(name).using(format)
    if partition:
        writer = writer.partitionedBy(*map(F.col, partition))
    writer.create()
    return rows.sparkSession.table(name)


def _aligned(name: str, rows: DataFrame, schema: T.StructType) -> DataFrame:
    """Add new columns of ``rows`` to the table; return the rows with every column of the table, null if new."""
    old, given = _lower(schema.names), _lower(rows.columns)
    added = [field for field in rows.schema.fields if field.name.lower() not in old]
    if added:
        columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in added)
        rows.sparkSession.sql(f"ALTER TABLE {name} ADD COLUMNS ({columns})")
    missing = [field for field in schema.fields if field.name.lower() not in given]
    return rows.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in missing))


def _merge(name: str, rows: DataFrame, partitions: Partitions) -> None:
    """Replace in one commit where a file also holds rows of other partitions; Iceberg's overwrite refuses that.

    This happens when the owner does not partition the table by experiment and date. It is slower: such files are
    rewritten.
    """
    spark = rows.sparkSession
    keys = [(experiment, partitions.date) for experiment in partitions.experiments]
    old = spark.createDataFrame(keys, "old string, day string").toDF(*PARTITION)
    columns = ", ".join(map(quoted, rows.columns))
    view = f"rankmetrics_{uuid.uuid4().hex}"
    changes = rows.withColumn(_IS_NEW, F.lit(True)).unionByName(
        old.withColumn(_IS_NEW, F.lit(False)), allowMissingColumns=True
    )
    changes.createOrReplaceTempView(view)
    try:
        spark.sql(f"""
            MERGE INTO {name} AS t USING {view} AS s
            ON NOT s.{_IS_NEW} AND t.{DATE} = '{partitions.date}' AND t.{EXPERIMENT} <=> s.{EXPERIMENT}
            WHEN MATCHED THEN DELETE
            WHEN NOT MATCHED AND s.{_IS_NEW} THEN INSERT ({columns})
            VALUES ({", ".join(f"s.{quoted(column)}" for column in rows.columns)})
        """)
    finally:
        spark.catalog.dropTempView(view)


def _lower(names: list[str]) -> set[str]:
    """Column names without case: upper and lower case are the same to Spark."""
    return {name.lower() for name in names}
