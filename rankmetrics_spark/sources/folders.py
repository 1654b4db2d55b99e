"""Columns that folders hold, such as ``experiment_id=1.10``: an id is the text of its folder, on every engine.

Spark makes a number of each folder that looks like one, so that 1.1 and 1.10 become one experiment, and 007 the user 7.
Sail makes a text of every folder, also of the one that stands for null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark.config import Input
from rankmetrics_spark.engines import engine_of
from rankmetrics_spark.schemas import NULL_PARTITION, quoted
from rankmetrics_spark.sources.local_files import folder_values

if TYPE_CHECKING:
    from pyspark.sql.readwriter import DataFrameReader

Load: TypeAlias = "Callable[[DataFrameReader], DataFrame]"
"""What reads the files of an input, with a reader that may know their schema."""
_NO_COLUMN = T.StructType([T.StructField("_no_column", T.StringType())])
_KINDS = {
    "int": r"[+-]?[0-9]{1,9}",
    "bigint": r"[+-]?[0-9]{1,18}",
    "double": r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?",
}
"""Type that Spark gives to folders -> what all of their values look like; the first that fits. Dates are another."""


def load(spark: SparkSession, section: Input, files: Load, own: T.StructType | None = None) -> DataFrame:
    """The rows of files, and the columns of their folders: ids as texts, others in the types that Spark infers.

    Args:
        spark: The session to read with.
        section: The input.
        files: What reads its files.
        own: The columns of the files to read; None = all of them.
    """
    if engine_of(spark) == "sail":
        return typed_on_sail(_columns(files(spark.read), own, section), section)
    rows = files(spark.read.schema(own) if own else spark.read)
    texts = {field.name for field in rows.schema.fields if not isinstance(field.dataType, T.StringType)}
    texts &= set(section.ids())
    # Lists the folders again, but opens no file: none has the one column of this schema.
    texts &= set(files(spark.read.schema(_NO_COLUMN)).columns) if texts else set()
    return files(spark.read.schema(_with_texts(rows.schema, texts))) if texts else rows


def _columns(rows: DataFrame, own: T.StructType | None, section: Input) -> DataFrame:
    """These columns in their types, and those of the folders; Sail reads what it is not asked for by its schema."""
    if own is None:
        rows.schema  # noqa: B018
        return rows
    folders = (F.col(quoted(name)) for name in folder_values(section.path or ()) if name not in own.names)
    return rows.select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in own.fields), *folders)


def _with_texts(schema: T.StructType, names: Iterable[str]) -> T.StructType:
    """The schema with these columns as texts."""
    return T.StructType(
        [T.StructField(field.name, T.StringType()) if field.name in names else field for field in schema.fields]
    )


def typed_on_sail(rows: DataFrame, section: Input) -> DataFrame:
    """The rows with null where a folder says so, and folders that hold no ids in the types that Spark infers.

    Args:
        rows: What Sail has read; it gives every folder as a text.
        section: The input.
    """
    columns = {}
    for name, values in folder_values(section.path or ()).items():
        if name in rows.columns:
            text = F.when(F.col(quoted(name)) != NULL_PARTITION, F.col(quoted(name)))
            columns[name] = text if name in section.ids() else text.cast(_kind(values - {NULL_PARTITION}))
    return rows.withColumns(columns) if columns else rows


def _kind(values: set[str]) -> str:
    """The type that Spark infers for folders with these values.

    >>> _kind({"9", "10"}), _kind({"1.1", "7"}), _kind({"2026-11-20"}), _kind({"de", "7"}), _kind(set())
    ('int', 'double', 'date', 'string', 'string')
    """
    kinds = (kind for kind, pattern in _KINDS.items() if all(re.fullmatch(pattern, value) for value in values))
    if not values:
        return "string"
    return next(kinds, "date" if all(map(_is_date, values)) else "string")


def _is_date(value: str) -> bool:
    try:
        return date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False
