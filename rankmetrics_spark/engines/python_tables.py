"""Tables of Python as DataFrames of a session: pandas, polars, PyArrow, whatever exports Arrow data, lists of dicts."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from pyspark import __version__ as client_version
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark.engines.choice import session_in_use
from rankmetrics_spark.engines.which import is_laptop, sail_path
from rankmetrics_spark.errors import ConfigError, first_sentence

if TYPE_CHECKING:
    import polars as pl

    AnyTable: TypeAlias = DataFrame | pd.DataFrame | pl.DataFrame | pl.LazyFrame | pa.Table | list[Mapping[str, Any]]
else:
    AnyTable = DataFrame | pd.DataFrame | pa.Table | list[Mapping[str, Any]]

Library: TypeAlias = Literal["pandas", "polars"]
_MANY_BYTES = 2**20
"""The laptop engine gets a larger table as a file: each query would send it again, and 128 MiB is the most it takes."""
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
_WIDER |= {pa.float16(): pa.float32(), pa.null(): pa.string()}


def spark_table(value: Any, name: str, beside: Any = None) -> DataFrame:
    """Return a DataFrame of Spark as it is, and a table of Python as a DataFrame of the session that is there.

    A missing value of pandas is null. The index of a pandas DataFrame is left out.

    Args:
        value: The table.
        name: What the user calls it, for errors.
        beside: Another table of the same call; if it is a DataFrame of Spark, its session is the one.

    Raises:
        ConfigError: The value is no table, or a column has values of several types.
        RankmetricsError: No session is running, and the laptop engine cannot start.
    """
    if _is_spark_table(value):
        return value  # type: ignore[no-any-return]
    if _module_of(value).startswith("pyspark.pandas") and hasattr(value, "to_spark"):
        return value.to_spark()  # type: ignore[no-any-return]
    table = _plain(_arrow(value, name), name)
    return _dataframe(beside.sparkSession if _is_spark_table(beside) else session_in_use(), table)


def python_table(table: DataFrame, library: Library) -> Any:
    """Collect a table, whatever its size, as a DataFrame of pandas or polars."""
    if client_version.startswith("3."):
        frame = table.toPandas()
        return frame if library == "pandas" else _polars().from_pandas(frame)
    rows = table.toArrow()
    return rows.to_pandas(date_as_object=True) if library == "pandas" else _polars().from_arrow(rows)


def with_display(table: DataFrame, html: Callable[[], str]) -> DataFrame:
    """The same table, which a notebook shows as ``html``; with ``to_pandas`` and ``to_polars`` like a result.

    A table that is made of it shows itself as its engine does.
    """
    own: Any = table
    own._repr_html_ = html
    own.to_pandas, own.to_polars = (partial(python_table, table, library) for library in ("pandas", "polars"))
    return table


def _is_spark_table(value: object) -> Any:
    kinds = type(value).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql") for kind in kinds)


def _module_of(value: object) -> str:
    return type(value).__module__


def _polars() -> Any:
    try:
        import polars
    except ImportError as error:
        raise ConfigError("to_polars needs polars, which is not installed; allowed: pip install polars") from error
    return polars


def _arrow(value: Any, name: str) -> pa.Table:
    """The value as an Arrow table."""
    try:
        if _module_of(value).startswith("pandas.") and hasattr(value, "columns"):
            _check_names(value.columns, name)
            return pa.Table.from_pandas(value, preserve_index=False)
        if _module_of(value).startswith("polars.") and hasattr(value, "columns"):
            frame = value.collect() if hasattr(value, "collect") else value
            return frame.to_arrow()
        if isinstance(value, pa.Table):
            return value
        if isinstance(value, pa.RecordBatch):
            return pa.Table.from_batches([value])
        if hasattr(value, "__arrow_c_stream__"):
            return pa.table(value)
        if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
            return pa.table(
                {key: [row.get(key) for row in value] for key in dict.fromkeys(k for r in value for k in r)}
            )
    except (pa.ArrowException, OverflowError) as error:
        raise ConfigError(
            f"{name} has a column of values that have no common type: {first_sentence(error)}; allowed: one type per "
            "column, and nulls"
        ) from error
    raise ConfigError(_refusal(value, name))


def _refusal(value: object, name: str) -> str:
    kind = f"{_module_of(value)}.{type(value).__qualname__}".removeprefix("builtins.")
    advice = ""
    if isinstance(value, (str, Path)):
        advice = ", such as spark.read.parquet(path) or pandas.read_csv(path)"
    elif isinstance(value, list):
        kind = "list without dicts" if value else "list without rows"
    tables = "a DataFrame of Spark, pandas or polars, a table of PyArrow, a list of dicts"
    return f"{name} is a {kind}; allowed: {tables}{advice}"


def _plain(table: pa.Table, name: str) -> pa.Table:
    """The same values in types that every engine has."""
    _check_names(table.column_names, name)
    try:
        # Finer times than microseconds are cut; any other value that changed would be an error.
        columns = {
            str(field.name): column.cast(_plain_type(field.type), safe=not pa.types.is_timestamp(field.type))
            for field, column in zip(table.schema, table.columns, strict=True)
        }
    except pa.ArrowException as error:
        raise ConfigError(
            f"{name} has a column that no engine takes: {first_sentence(error)}; allowed: text, booleans, signed "
            "integers, floats, dates and times"
        ) from error
    return pa.table(columns)


def _check_names(columns: Iterable[object], name: str) -> None:
    count = Counter(map(str, columns))
    if not count:
        raise ConfigError(f"{name} is a table without columns; allowed: one column per role")
    twice = [column for column, times in count.items() if times > 1]
    if twice:
        raise ConfigError(f"{name} has several columns named '{twice[0]}'; allowed: each name once")


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        return pa.string()
    if pa.types.is_large_binary(kind) or str(kind) == "binary_view":
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return _WIDER.get(kind, kind)


def _dataframe(spark: SparkSession, table: pa.Table) -> DataFrame:
    if is_laptop(spark) and table.nbytes > _MANY_BYTES:
        file = _folder() / f"{uuid4().hex}.parquet"
        pyarrow.parquet.write_table(table, file)
        return spark.read.parquet(sail_path(str(file)))
    if client_version.startswith("3."):
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return spark.createDataFrame(rows, from_arrow_schema(table.schema))
    return spark.createDataFrame(table)


@cache
def _folder() -> Path:
    """A folder that only this account reads; it is deleted when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rankmetrics-tables-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
