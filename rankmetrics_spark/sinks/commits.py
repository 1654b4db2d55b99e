"""Commits to Delta and Iceberg tables: repeat after a conflict, explain errors that a user can fix."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.errors import OutputError, first_sentence
from rankmetrics_spark.schemas import DATE, EXPERIMENT, PARTITION, quoted
from rankmetrics_spark.sinks.partitions import Partitions

ATTEMPTS = 5
"""How often a commit is tried when other runs commit to the same table; each time, one of those has succeeded."""

# Delta and Iceberg errors have no Python classes. On classic sessions all of them are one class of py4j, so only their
# text tells them apart.
_CONFLICT = re.compile(
    r"Concurrent\w*Exception|(Metadata|Protocol)ChangedException|CommitFailedException|ValidationException: Found |"
    r"[_ ]already[_ ]exists",
    re.IGNORECASE,
)
# Another run is about to create the Delta table in this folder, or the folder holds something else.
_BEING_CREATED = re.compile(r"is not empty and also\s+not a Delta table", re.IGNORECASE)
PAUSE = 0.5
"""Seconds before a table is looked at again that another run may be creating."""
_MISSING = re.compile(r"\[(TABLE_OR_VIEW|PATH|SCHEMA|DELTA_TABLE)_NOT_FOUND\]|\[DELTA_PATH_DOES_NOT_EXIST\]")
_NOT_SET_UP = re.compile(r"\[(DATA_SOURCE_NOT_FOUND|DELTA_CONFIGURE_SPARK_SESSION\w*|REQUIRES_SINGLE_PART_NAMESPACE|"
                         r"UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY|CANNOT_CREATE_DATA_SOURCE_TABLE\S*)\]")  # fmt: skip
_SHARED_FILE = "Cannot delete file where some, but not all, rows match"


def is_missing(error: Exception) -> bool:
    """Whether the table or its schema does not exist."""
    return bool(_MISSING.search(str(error)))


def is_not_set_up(error: Exception) -> bool:
    """Whether the session was started without the jar or the catalog settings of the format."""
    return bool(_NOT_SET_UP.search(str(error)))


def shares_file(error: Exception) -> bool:
    """Whether Iceberg refuses to overwrite rows because their file also holds rows that stay."""
    return _SHARED_FILE in str(error)


def commit(table_format: str, name: str, work: Callable[[], None]) -> None:
    """Do work that commits to a table; repeat it when another commit came first.

    Args:
        table_format: ``delta`` or ``iceberg``, for messages.
        name: SQL name of the table, for messages.
        work: Reads the state of the table, if it needs it, and commits once.

    Raises:
        OutputError: The table cannot be written, or other runs commit to it during every attempt.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return work()
        except Exception as error:  # classic sessions raise a class of py4j
            being_created = _BEING_CREATED.search(str(error)) and attempt < ATTEMPTS
            if being_created:
                time.sleep(PAUSE)
            elif not _CONFLICT.search(str(error)):
                explain(table_format, name, error)
                raise
    raise OutputError(
        f"cannot write the {table_format} table {name}: other runs changed it during each of {ATTEMPTS} attempts; "
        "run this again when they have ended"
    )


def explain(table_format: str, name: str, error: Exception) -> None:
    """Raise an error of one sentence if a user can fix the cause; otherwise return.

    Raises:
        OutputError: The session is not set up for the format, or Spark or the catalog refuses the request.
    """
    if is_not_set_up(error):
        cause = f"this session was started without the jar or the catalog settings of {table_format}"
    elif isinstance(error, AnalysisException):
        cause = first_sentence(error)
    else:
        return
    raise OutputError(f"cannot write the {table_format} table {name}: {cause}") from error


_IS_NEW = "__new"


def replace_rows(old: DataFrame | None, name: str, format: str, rows: DataFrame, partitions: Partitions) -> None:
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
