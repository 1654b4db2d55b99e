"""Columns of Parquet files whose types an engine cannot read, such as those that pandas writes.

Both engines refuse such a file as a whole, whether the column is used or not. So it is read without the column.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from rankmetrics_spark.config import Input
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.sources.local_files import files_of

_REFUSED = re.compile(r"Parquet type|PARQUET_TYPE_|to Spark data type", re.IGNORECASE)
_UNSIGNED = {"uint8": T.ShortType(), "uint16": T.IntegerType(), "uint32": T.LongType(), "uint64": T.DecimalType(20, 0)}


def readable_columns(section: Input, engine: str, error: Exception) -> T.StructType | None:
    """The columns of the files that the engine can read; None if the error is about something else.

    Args:
        section: The input.
        engine: ``spark`` or ``sail``.
        error: What the engine raised when it looked at the files.

    Raises:
        InputError: A column that is needed has a type that the engine cannot read.
    """
    own = _own_columns(section) if _REFUSED.search(str(error)) else None
    if own is None:
        return None
    for name in section.wanted():
        if sentence := unreadable_column(section, engine, name):
            raise InputError(sentence) from error
    kinds = {field.name: _readable(field.type, engine) for field in own}
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items() if kind is not None])


def unreadable_column(section: Input, engine: str, name: str) -> str | None:
    """The sentence for a column of a type that the engine cannot read; None for any other name.

    Args:
        section: The input.
        engine: ``spark`` or ``sail``.
        name: The column.
    """
    own = _own_columns(section) if section.format == "parquet" else None
    if own is None or name not in own.names or _readable(kind := own.field(name).type, engine) is not None:
        return None
    advice = "floats of 32 or 64 bits" if pa.types.is_float16(kind) else "another type"
    if pa.types.is_timestamp(kind):
        advice = "microseconds, as df.to_parquet(..., coerce_timestamps='us') writes them"
    return (
        f"column '{name}' has type {kind}, which the engine {engine} cannot read from Parquet; allowed: {advice}, or a "
        "run that does not use it"
    )


def _own_columns(section: Input) -> pa.Schema | None:
    """The columns of the first file, if that is on this machine."""
    files = (file for path in section.path or () for file in files_of(path))
    if (file := next(files, None)) is None:
        return None
    try:
        return pq.read_schema(file)
    except (OSError, pa.ArrowException):
        return None


def _readable(kind: pa.DataType, engine: str) -> T.DataType | None:
    """The type that the engine reads a column in; None if it cannot."""
    if pa.types.is_dictionary(kind):
        return _readable(kind.value_type, engine)
    if pa.types.is_float16(kind):
        return T.FloatType() if engine == "sail" else None
    if pa.types.is_timestamp(kind) and kind.unit == "ns" and engine == "spark":
        return None
    if pa.types.is_duration(kind):
        return T.LongType() if engine == "spark" else None
    if str(kind) in _UNSIGNED:
        return _UNSIGNED[str(kind)]
    try:
        return from_arrow_type(kind, True)
    except Exception:  # each version of Spark has another class
        return None
