"""Columns of tables under the names that users write, and Python steps over whole Arrow batches, alike on each engine.

``Step`` is for tables in which arrays travel: a pandas UDF would make an object of each array before it could be laid
flat again. Two steps can share one way to Python and back. ``struct_udf`` is for plain numbers; the other columns then
stay in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import pandas_udf

from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.layouts import Arrays
from rankmetrics_spark.schemas import quoted

Computed: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Column -> (n,) array for the n rows of a batch; NaN becomes null."""
Batches: TypeAlias = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Step:
    """What Python does with the batches of a table.

    Attributes:
        body: Batches to batches. Names of columns must have no dot: ``mapInArrow`` fails at them.
        schema: The columns of the result.
    """

    body: Callable[[Batches], Iterator[pa.RecordBatch]]
    schema: T.StructType

    def of(self, table: DataFrame) -> DataFrame:
        """The step over a table; all of the table's columns go to Python."""
        return table.mapInArrow(self.body, self.schema)

    def then(self, following: Step) -> Step:
        """Both steps on one way to Python and back."""
        return Step(partial(_both, first=self.body, second=following.body), following.schema)


def _both(batches: Batches, first: Callable[..., Any], second: Callable[..., Any]) -> Iterator[pa.RecordBatch]:
    yield from second(first(batches))


def computing(body: Callable[[Arrays], Iterable[Computed]], kept: T.StructType, computed: T.StructType) -> Step:
    """A step that keeps some columns as they are, beside those that ``body`` computes from whole batches."""
    return Step(partial(_beside, body=body, kept=kept.fieldNames()), T.StructType([*kept.fields, *computed.fields]))


def _beside(
    batches: Batches, body: Callable[[Arrays], Iterable[Computed]], kept: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for found in body(columns):
                arrays = [*(columns[name] for name in kept), *map(_column, found.values())]
                yield pa.RecordBatch.from_arrays(arrays, [*kept, *found])


def _column(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(np.ascontiguousarray(values), from_pandas=True)


def struct_udf(body: Callable[[Arrays], Computed], inputs: Sequence[str], computed: T.StructType) -> Any:
    """A pandas UDF that gives a struct; call it with one column per name in ``inputs``."""
    names = tuple(inputs)

    def compute(*columns: pd.Series) -> pd.DataFrame:
        arrays = {name: pa.array(column) for name, column in zip(names, columns, strict=True)}
        return pd.DataFrame(dict(body(arrays)))

    return pandas_udf(compute, computed)  # type: ignore[call-overload]


def spark_table(value: Any, name: str) -> DataFrame:
    """The value itself, if it is a table of Spark: of a classic session or of Spark Connect."""
    kinds = type(value).__mro__
    if any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql") for kind in kinds):
        return value  # type: ignore[no-any-return]
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    advice = ""
    if kind.endswith("DataFrame"):
        ours = kind.startswith("pyspark.pandas")
        advice = f", such as {name}.to_spark()" if ours else f", such as spark.createDataFrame({name})"
    elif isinstance(value, str):
        advice = ", such as spark.read.parquet(path) or spark.table(name)"
    raise ConfigError(f"{name} is a {kind}; allowed: a DataFrame of Spark{advice}")


def with_fields(table: DataFrame, names: Iterable[str]) -> DataFrame:
    """The table with a column for each name that is the path of a struct field, such as ``user.id``.

    A column whose own name is ``user.id`` stays what it is.
    """
    dotted = [name for name in dict.fromkeys(names) if "." in name and name not in table.columns]
    found = {name: steps for name in dotted if (steps := _steps(table.schema, name))}
    return table.select("*", *(_field(steps).alias(name) for name, steps in found.items())) if found else table


def _steps(schema: T.StructType, name: str) -> list[str]:
    """The names of the fields that lead to ``name``, from the outside in; empty if there is no such field."""
    for field in schema.fields:
        if field.name == name:
            return [name]
        if name.startswith(f"{field.name}.") and isinstance(field.dataType, T.StructType):
            inner = _steps(field.dataType, name[len(field.name) + 1 :])
            if inner:
                return [field.name, *inner]
    return []


def _field(steps: Sequence[str]) -> Column:
    return F.col(".".join(map(quoted, steps)))


def text_fields(names: Iterable[str]) -> list[T.StructField]:
    """Structs of texts that hold the fields with these paths.

    >>> [field.simpleString() for field in text_fields(["user.id", "user.geo.city"])]
    ['user:struct<geo:struct<city:string>,id:string>']
    """
    return list(_text_fields(sorted({tuple(name.split(".")) for name in names})))


def _text_fields(paths: Iterable[tuple[str, ...]]) -> Iterator[T.StructField]:
    for first, group in groupby(paths, key=lambda path: path[0]):
        inner = [path[1:] for path in group if len(path) > 1]
        yield T.StructField(first, T.StructType([*_text_fields(inner)]) if inner else T.StringType())


def own_or_field(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """Each column of these names, and where it is null, the struct field with this path; only where both are there."""
    both = {}
    for name in set(names) & set(rows.columns):
        others = T.StructType([field for field in rows.schema.fields if field.name != name])
        if steps := _steps(others, name):
            both[name] = F.coalesce(F.col(quoted(name)), _field(steps))
    return rows.withColumns(both) if both else rows


def check_unambiguous(table: DataFrame, source: str, what: str) -> None:
    """Refuse a column that Spark cannot tell from another one: equal names, or names that differ only in case."""
    alike = [name for name in table.columns if name.lower() == source.lower()]
    if len(alike) < 2 or (alike.count(source) == 1 and _tells_case(table)):
        return
    how = "have the same name" if len(set(alike)) == 1 else "differ only in upper and lower case"
    raise InputError(
        f"the {what} have columns that {how}: {', '.join(map(repr, alike))}; allowed: one column of that name, "
        "whatever its case"
    )


def _tells_case(table: DataFrame) -> bool:
    return table.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"


REAL = (T.FloatType, T.DoubleType)
_TIMES = (T.TimestampType, T.TimestampNTZType)


def as_text(name: str, kind: T.DataType, engine: str) -> str:
    """SQL: the text that Spark makes of a column.

    >>> as_text("user_id", T.DoubleType(), "spark")
    'string(user_id)'
    """
    if engine == "sail" and isinstance(kind, REAL):
        return _real(name)
    if engine == "sail" and isinstance(kind, _TIMES):
        return _time(name)
    return f"string({name})"


_NUMBER = "^[ \t\r\n]*([+-]?(?:(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)|nan)[ \t\r\n]*$"


def as_number(name: str) -> str:
    """SQL: the double that a text writes in decimal digits, or as inf or nan in any case; null for any other text.

    Engines read more than that, each something else: ``0x1p3``, ``1d``, ``+nan``.
    """
    # Java's $ also stands before these line ends.
    plain = f"translate(lower({name}), '\u0085\u2028\u2029', '???')"
    return f"try_cast(regexp_extract({plain}, '{_NUMBER}', 1) as double)"


def _time(name: str) -> str:
    """Without the T, the zone and the zeros at the end of a fraction."""
    plain = f"replace(replace(string({name}), 'T', ' '), 'Z', '')"
    return f"CASE WHEN contains({plain}, '.') THEN regexp_replace({plain}, '[.]?0+$', '') ELSE {plain} END"


def _real(name: str) -> str:
    """As Java writes doubles: plain from 0.001 to 10,000,000, otherwise with an exponent."""
    size = f"abs({name})"
    infinite = f"CASE WHEN {name} > 0 THEN 'Infinity' ELSE '-Infinity' END"
    return (
        f"CASE WHEN {name} IS NULL THEN NULL WHEN isnan({name}) THEN 'NaN' WHEN {size} = double('inf') THEN {infinite} "
        f"WHEN {name} = 0 OR ({size} >= 0.001D AND {size} < 10000000D) THEN string({name}) "
        f"ELSE concat(CASE WHEN {name} < 0 THEN '-' ELSE '' END, {_scientific(f'string({size})')}) END"
    )


def _scientific(text: str) -> str:
    """1.5e-7 -> 1.5E-7, 100000000.0 -> 1.0E8, 0.00012 -> 1.2E-4."""
    mantissa = f"split({text}, 'e')[0], CASE WHEN contains({text}, '.') THEN '' ELSE '.0' END"
    with_exponent = f"concat({mantissa}, 'E', split({text}, 'e')[1])"
    large = _digits(f"replace({text}, '.', '')", f"length(split({text}, '[.]')[0]) - 1")
    fraction = f"split({text}, '[.]')[1]"
    digits = f"regexp_replace({fraction}, '^0+', '')"
    small = _digits(digits, f"length({digits}) - length({fraction}) - 1")
    return f"CASE WHEN contains({text}, 'e') THEN {with_exponent} WHEN {text} LIKE '0.%' THEN {small} ELSE {large} END"


def _digits(digits: str, exponent: str) -> str:
    """One digit, a point, the others without zeros at the end, and the exponent."""
    others = f"regexp_replace(substring({digits}, 2), '0+$', '')"
    behind = f"CASE WHEN {others} = '' THEN '0' ELSE {others} END"
    return f"concat(substring({digits}, 1, 1), '.', {behind}, 'E', {exponent})"
