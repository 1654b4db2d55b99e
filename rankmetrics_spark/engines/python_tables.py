"""Tables of Python as DataFrames of a session: pandas, polars, PyArrow, whatever exports Arrow data, lists of dicts."""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from uuid import uuid4

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pyspark import __version__ as client_version
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark.engines import choice, sessions, tables
from rankmetrics_spark.errors import ConfigError, first_sentence

if TYPE_CHECKING:
    import polars as pl

    AnyTable: TypeAlias = DataFrame | pd.DataFrame | pl.DataFrame | pl.LazyFrame | pa.Table | list[Mapping[str, Any]]
else:
    AnyTable = DataFrame | pd.DataFrame | pa.Table | list[Mapping[str, Any]]

Library: TypeAlias = Literal["pandas", "polars"]

if TYPE_CHECKING:

    class ResultTable(DataFrame):
        """A DataFrame of Spark that a call returns, which also becomes a table of Python.

        Its own actions, such as ``collect`` and ``show``, raise the errors that its call promises, and so do rows that
        are selected of it (``where``, ``select``, ``join``, ...). Its groups and ``write`` raise those of the engine.
        """

        def to_pandas(self) -> pd.DataFrame:
            """Its rows as a DataFrame of pandas: collects all of them."""

        def to_polars(self) -> pl.DataFrame:
            """Its rows as a DataFrame of polars: collects all of them."""
else:
    ResultTable = DataFrame

#: The laptop engine gets a larger table as a file: each query would send it again, and 128 MiB is the most it takes.
_MANY_BYTES = 2**20
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
_WIDER |= {pa.float16(): pa.float32(), pa.date64(): pa.date32()}
#: Of a decimal, for every engine.
_MOST_DIGITS = 38
_TYPES = "text, booleans, integers below 2^63, floats, decimals, dates and times of a day"


def spark_table(value: Any, name: str, beside: Any = None, needed: Container[str] | None = None) -> DataFrame:
    """Return a DataFrame of Spark as it is, and a table of Python as a DataFrame of the session that is there.

    A missing value of pandas is null. A named index is a column; an index without a name is left out.

    Args:
        value: The table.
        name: What the user calls it, for errors.
        beside: Another table of the same call; if it is a DataFrame of Spark, its session is the one.
        needed: Columns that may be read, in lower case: any other that no engine takes is left out. None: all.

    Raises:
        ConfigError: The value is no table, or a column has values of several types or of a type that no engine has.
        RankmetricsError: No session is running, and the laptop engine cannot start.
    """
    if _is_spark_table(value):
        return value  # type: ignore[no-any-return]
    if _module_of(value).startswith("pyspark.pandas") and hasattr(value, "to_spark"):
        return value.to_spark()  # type: ignore[no-any-return]
    table = _arrow(value, name, needed)
    return arrow_in(beside.sparkSession if _is_spark_table(beside) else choice.session_in_use(), table)


def arrow_in(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table of Arrow as a DataFrame of a session."""
    if sessions.is_laptop(spark) and table.nbytes > _MANY_BYTES:
        file = sessions.temporary_folder("tables") / f"{uuid4().hex}.parquet"
        pyarrow.parquet.write_table(table, file)
        return spark.read.parquet(sessions.sail_path(str(file)))
    from pyspark.sql.pandas.types import from_arrow_schema

    # Without a schema, times without a zone are instants of the session's zone, which fails where clocks are set back.
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    if client_version.startswith("3.") or not table.num_rows:
        return spark.createDataFrame([*zip(*(column.to_pylist() for column in table.columns), strict=True)], schema)
    return spark.createDataFrame(table, schema)


def table_of(
    value: Any, name: str, columns: Iterable[str | None], defaults: Iterable[str] = (), beside: Any = None
) -> DataFrame:
    """Return a table as ``spark_table`` does, with a column for each field of a struct that is asked for.

    Args:
        value: The table.
        name: What the user calls it, for errors.
        columns: The columns that the user names; None is none.
        defaults: Columns that are read where the user names none.
        beside: Another table of the same call; if it is a DataFrame of Spark, its session is the one.
    """
    names = [*filter(None, columns)]
    table = tables.with_fields(spark_table(value, name, beside, column_names(*names, *defaults)), names)
    return tables.with_typed_nulls(table, table.schema)


def column_names(*names: str | None) -> frozenset[str]:
    """The columns that these names may mean, in lower case: of a field of a struct, the struct.

    >>> sorted(column_names("user.Id", "slot", None))
    ['slot', 'user', 'user.id']
    """
    lower = [name.lower() for name in names if name]
    return frozenset([*lower, *(name.partition(".")[0] for name in lower)])


def python_table(table: DataFrame, library: Library) -> Any:
    """Collect a table, whatever its size, as a DataFrame of pandas or polars."""
    with sessions.own_errors():
        rows: Any = table.toPandas() if client_version.startswith("3.") else table.toArrow()
    if client_version.startswith("3."):
        return rows if library == "pandas" else _polars().from_pandas(rows)
    return rows.to_pandas(date_as_object=True) if library == "pandas" else _polars().from_arrow(rows)


def result_table(table: DataFrame, html: Callable[[], str] | None = None) -> ResultTable:
    """The same DataFrame with ``to_pandas()``, ``to_polars()`` and actions that raise the errors of this package.

    A notebook shows it as ``html``, if that is given. Rows that are selected of it have these too.
    """
    result: Any = table
    if not hasattr(type(result), "to_polars"):
        result.__class__ = _result_class(cast("Hashable", type(result)))
    if html is not None:
        result._repr_html_ = html
    return result  # type: ignore[no-any-return]


_ACTIONS = {
    *("collect", "count", "first", "foreach", "foreachPartition", "head", "isEmpty", "show", "tail", "take"),
    *("checkpoint", "localCheckpoint", "toArrow", "toLocalIterator", "toPandas"),
}


_STEPS = {*("where", "filter", "select", "selectExpr", "sort", "orderBy"), *("limit", "join", "withColumn", "drop")}


@cache
def _result_class(kind: Any) -> type:
    """The class of a DataFrame of a session, classic or of Connect, as ``ResultTable`` describes it."""

    def to_pandas(self: Any) -> Any:
        """Its rows as a DataFrame of pandas: collects all of them."""
        return python_table(self, "pandas")

    def to_polars(self: Any) -> Any:
        """Its rows as a DataFrame of polars: collects all of them."""
        return python_table(self, "polars")

    def names(self: Any) -> list[str]:
        """What Tab shows: a DataFrame of Connect leaves out what its own class does not have."""
        return [*kind.__dir__(self), "to_pandas", "to_polars"]

    def column(self: Any, name: str) -> Any:
        """The column of this name; a notebook that is given one for each of its hooks shows nothing."""
        if name.startswith(("_ipython", "_repr")):
            raise AttributeError(name)
        return kind.__getattr__(self, name)

    methods = {"to_pandas": to_pandas, "to_polars": to_polars, "__dir__": names, "__module__": kind.__module__}
    methods |= {"__getattr__": column, "__doc__": kind.__doc__}
    actions = {name: _with_own_errors(getattr(kind, name)) for name in _ACTIONS if hasattr(kind, name)}
    steps = {name: _with_own_errors(getattr(kind, name), result_table) for name in _STEPS if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {**actions, **steps, **methods})


def _with_own_errors(action: Callable[..., Any], then: Callable[[Any], Any] = lambda each: each) -> Callable[..., Any]:
    @wraps(action)
    def run(*arguments: Any, **options: Any) -> Any:
        with sessions.own_errors():
            result = action(*arguments, **options)
        return _each(result) if isinstance(result, Iterator) else then(result)

    return run


def _each(rows: Iterator[Any]) -> Iterator[Any]:
    with sessions.own_errors():
        yield from rows


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


@dataclass(frozen=True)
class _Column:
    """A column of a table of Python: how to convert it, and its values for an error."""

    name: str
    arrow: Callable[[], Any]
    values: Callable[[], Iterable[object]] = tuple


def _arrow(value: Any, name: str, needed: Container[str] | None) -> pa.Table:
    """The value as an Arrow table, in types that every engine has; each column is converted on its own."""
    columns = _columns(value, name)
    if not columns:
        raise ConfigError(f"{name} is a table without columns; allowed: one column per role")
    twice = [column for column, times in Counter(column.name for column in columns).items() if times > 1]
    if twice:
        raise ConfigError(f"{name} has several columns named '{twice[0]}'; allowed: each name once")
    table: dict[str, pa.ChunkedArray] = {}
    for column in columns:
        try:
            given = column.arrow()
            chunks = given if isinstance(given, pa.ChunkedArray) else pa.chunked_array([given])
            if str(chunks.type) == "extension<arrow.uuid>":
                texts = [None if value is None else str(value) for value in chunks.to_pylist()]
                chunks = pa.chunked_array([texts], pa.string())
            if pa.types.is_timestamp(chunks.type) and chunks.type.unit == "ns":
                chunks = _of_nanoseconds(chunks)
            # Finer durations than microseconds are cut; any other value that changed would be an error.
            table[column.name] = chunks.cast(_plain_type(chunks.type), safe=not pa.types.is_duration(chunks.type))
        except Exception as error:  # three libraries, each with errors of its own
            if needed is not None and column.name.lower() not in needed:
                continue
            kinds = sorted({type(value).__name__ for value in column.values() if value is not None and value == value})
            problem = f"values that no engine takes: {first_sentence(error)}; allowed: {_TYPES}"
            if len(kinds) > 1:
                problem = f"values of several types ({', '.join(kinds)}); allowed: one type per column, and nulls"
            raise ConfigError(f"{name}: column '{column.name}' has {problem}") from error
    if not table:
        raise ConfigError(f"{name} has no column that an engine takes; allowed: {_TYPES}")
    made = pa.table(table)
    without_type = [field.name for field in made.schema if pa.types.is_null(field.type)]
    if without_type and not made.num_rows:
        raise ConfigError.of("column_without_type", name=name, column=without_type[0])
    # Numbers serve in every role: of a column without a value, each row is left out as null.
    kinds_of = ((field.name, field.type) for field in made.schema)
    typed = pa.schema([(name, pa.float64() if pa.types.is_null(kind) else kind) for name, kind in kinds_of])
    # Filtered data sets of PyArrow have empty chunks, and Sail fails on one that comes before rows.
    return pa.Table.from_batches([batch for batch in made.cast(typed).to_batches() if batch.num_rows], typed)


def _columns(value: Any, name: str) -> list[_Column]:
    """The columns of a table; a named index of pandas is one too."""
    module = _module_of(value)
    if module.startswith("pandas.") and hasattr(value, "columns"):
        levels = [level for level in value.index.names if level is not None and level not in value.columns]
        frame = value.reset_index(level=levels) if levels else value
        series = zip(frame.columns, (frame.iloc[:, at] for at in range(frame.shape[1])), strict=True)
        return [_Column(str(column), partial(_of_pandas, each), each.tolist) for column, each in series]
    if module.startswith("polars.") and hasattr(value, "lazy"):
        frame = value.collect() if hasattr(value, "collect") else value
        return [_Column(each.name, each.to_arrow, each.to_list) for each in frame.get_columns()]
    if isinstance(value, (list, tuple)) and value and all(isinstance(row, Mapping) for row in value):
        cells = {key: [row.get(key) for row in value] for key in dict.fromkeys(key for row in value for key in row)}
        return [_Column(str(key), partial(pa.array, of_key), of_key.copy) for key, of_key in cells.items()]
    if isinstance(value, (pa.Table, pa.RecordBatch)):
        return [_Column(key, partial(value.column, at)) for at, key in enumerate(value.schema.names)]
    if hasattr(value, "__arrow_c_stream__") and not module.startswith(("pandas.", "polars.")):
        return _columns(pa.table(value), name)
    kind = f"{_module_of(value)}.{type(value).__qualname__}".removeprefix("builtins.")
    advice = ""
    if isinstance(value, (str, Path)):
        advice = ", such as spark.read.parquet(path) or pandas.read_csv(path)"
    elif isinstance(value, (list, tuple)):
        kind += " without dicts" if value else " without rows"
    raise ConfigError.of("no_table", name=name, kind=kind, advice=advice)


def _of_pandas(column: pd.Series) -> Any:
    # PyArrow takes no sparse column; all of them at once would be as large as a dense table.
    return pa.array(np.asarray(column) if isinstance(column.dtype, pd.SparseDtype) else column, from_pandas=True)


def _of_nanoseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The times in microseconds, if these hold them; else their texts, since two times would become one.

    >>> _of_nanoseconds(pa.chunked_array([pa.array([1, 500_000_000], pa.timestamp("ns", "UTC"))])).to_pylist()
    ['1970-01-01 00:00:00.000000001', '1970-01-01 00:00:00.5']
    """
    try:
        return times.cast(pa.timestamp("us", times.type.tz))
    except pa.ArrowInvalid:
        # Without a zone, an instant has the digits of UTC. As Spark writes times, without zeros at the end.
        return pc.replace_substring_regex(times.cast(pa.timestamp("ns")).cast(pa.string()), r"\.?0+$", "")


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_time(kind) or "run_end_encoded" in str(kind):
        raise TypeError(f"they have the type {kind}")
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or str(kind) == "string_view":
        return pa.string()
    if pa.types.is_large_binary(kind) or str(kind) == "binary_view":
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    if pa.types.is_decimal256(kind):
        return pa.decimal128(_MOST_DIGITS, kind.scale)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.duration("us") if pa.types.is_duration(kind) else _WIDER.get(kind, kind)
