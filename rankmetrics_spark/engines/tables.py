"""Columns of tables under the names that users write, and Python steps over whole Arrow batches, for both engines.

``Step`` is for tables with array columns: a pandas UDF would turn each array into a Python object first. Two steps can
share one round trip to Python. ``struct_udf`` is for plain numbers; the other columns then stay in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions as F, types as T
from pyspark.sql.pandas.functions import pandas_udf

from rankmetrics_spark import layouts as lay, words
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.schemas import USER, quoted
from rankmetrics_spark.statistics import LARGEST_SUMMAND

#: Column -> (n,) array for the n rows of a batch; NaN becomes null.
Computed: TypeAlias = Mapping[str, npt.NDArray[Any]]
Batches: TypeAlias = Iterable[pa.RecordBatch]
Body: TypeAlias = Callable[[lay.Arrays], Iterable[Computed]]
#: Column -> its type in SQL, one of those of ``_ARROW``.
Kinds: TypeAlias = Mapping[str, str]
_ARROW = {"string": pa.string(), "long": pa.int64(), "bigint": pa.int64(), "double": pa.float64()}
_ARROW["boolean"] = pa.bool_()
_ARROW |= {f"array<{name}>": pa.list_(kind) for name, kind in _ARROW.items()}


@dataclass(frozen=True)
class Step:
    """A Python function over the batches of a table.

    Attributes:
        body: Batches to batches. Column names must have no dot: ``mapInArrow`` fails with one.
        schema: The columns of the result.
    """

    body: Callable[[Batches], Iterator[pa.RecordBatch]]
    schema: T.StructType

    def of(self, table: DataFrame) -> DataFrame:
        """Apply the step to a table; all columns go to Python."""
        return table.mapInArrow(self.body, self.schema)

    def then(self, following: Step) -> Step:
        """Combine two steps in one round trip to Python."""
        first, second = self.body, following.body
        return Step(lambda batches: second(first(batches)), following.schema)


def in_one_step(table: DataFrame, body: Callable[[Batches], Iterator[pa.RecordBatch]], kinds: Kinds) -> DataFrame:
    """Apply a Python function to all rows of a small table, such as sums by key, in one partition."""
    # At once, so that its texts are made where the words of ``bound`` hold.
    return table.repartition(1).mapInArrow(words.bound(lambda batches: iter([*body(batches)])), schema_text(kinds))


def with_unit(users: DataFrame, unit: str) -> DataFrame:
    """A table of users that knows what one of them stands for, as long as it has this column; see ``unit_of``."""
    return users if unit == "user" or USER not in users.columns else users.withMetadata(USER, {"unit": unit})


def unit_of(*tables: Any) -> str:
    """What one user of these tables stands for; what holds now where none of them knows it."""
    columns = (each for table in tables for each in getattr(getattr(table, "schema", None), "fields", ()))
    return next((each.metadata["unit"] for each in columns if "unit" in (each.metadata or ())), words.unit_now())


#: For functions whose texts are about what one user of their table stands for.
told_as_read = words.about(lambda *tables, **more: unit_of(*tables[:1], *more.values()))


def beside(rows: DataFrame, others: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Each row with the columns of the other row that has its keys, in place of its own columns of the same names."""
    values = [name for name in others.columns if name not in keys]
    renamed = others.select(*(F.col(quoted(name)).alias(f"_{name}") for name in others.columns))
    joined = rows.join(renamed, [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in keys], "left")
    sources = {name: f"_{name}" if name in values else name for name in (*rows.columns, *values)}
    return joined.select(*(F.col(quoted(source)).alias(name) for name, source in sources.items()))


def schema_text(kinds: Kinds) -> str:
    """The schema of a table, as SQL.

    >>> schema_text({"metric": "string", "mean": "double"})
    'metric string, mean double'
    """
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())


def rows_of(columns: Mapping[str, Any], kinds: Kinds) -> Iterator[pa.RecordBatch]:
    """One batch with a column for each of ``kinds``: null where ``columns`` has none; no batch without columns."""
    if columns:
        n = len(next(iter(columns.values())))
        arrays = []
        for name, kind in kinds.items():
            arrow = _ARROW[kind]
            values = columns.get(name, pa.nulls(n, arrow))
            # PyArrow makes no array from another one before 12.
            is_array = isinstance(values, pa.Array)
            arrays.append(values.cast(arrow) if is_array else pa.array(values, arrow, from_pandas=True))
        yield pa.RecordBatch.from_arrays(arrays, [*kinds])


def in_slices(batches: Batches, sizes: str, most: int) -> Iterator[pa.RecordBatch]:
    """Cut batches between two rows, so that a slice holds about ``most`` by the column ``sizes``, or one larger row."""
    for batch in batches:
        piece = np.cumsum(batch.column(sizes).to_numpy()) // most
        starts = [0, *(np.flatnonzero(np.diff(piece)) + 1), batch.num_rows]
        yield from (batch.slice(start, end - start) for start, end in pairwise(starts))


def computing(body: Body, kept: T.StructType, computed: T.StructType) -> Step:
    """Return a step that keeps some columns and adds those that ``body`` computes from whole batches."""
    return Step(partial(_run_beside, body=body, kept=kept.fieldNames()), T.StructType([*kept.fields, *computed.fields]))


def _run_beside(batches: Batches, body: Body, kept: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for results in body(columns):
                made = (
                    values if isinstance(values, pa.Array) else pa.array(np.ascontiguousarray(values), from_pandas=True)
                    for values in results.values()
                )
                yield pa.RecordBatch.from_arrays([*(columns[name] for name in kept), *made], [*kept, *results])


def struct_udf(body: Callable[[lay.Arrays], Computed], inputs: Sequence[str], computed: T.StructType) -> Any:
    """Return a pandas UDF with a struct as result; call it with one column per name in ``inputs``."""
    names = tuple(inputs)

    def compute(*columns: pd.Series) -> pd.DataFrame:
        arrays = {name: pa.array(column) for name, column in zip(names, columns, strict=True)}
        return pd.DataFrame(dict(body(arrays)))

    return pandas_udf(compute, computed)  # type: ignore[call-overload]


def with_fields(table: DataFrame, names: Iterable[str]) -> DataFrame:
    """Add a column for each name that is the path of a struct field, such as ``user.id``; of an array, its fields.

    If a column is named ``user.id``, it stays as it is.
    """
    dotted = [name for name in dict.fromkeys(names) if "." in name and name not in table.columns]
    paths = {name: steps for name in dotted if (steps := steps_to(table.schema, name))}
    return table.select("*", *(_field(steps).alias(name) for name, steps in paths.items())) if paths else table


def with_typed_nulls(table: DataFrame, schema: T.StructType) -> DataFrame:
    """Give the columns of nulls of a table, which pandas writes without a type, that which Spark reads: Sail has none.

    Args:
        table: The table.
        schema: Its schema; to ask for it once more costs time.
    """
    nulls = [field.name for field in schema.fields if isinstance(field.dataType, T.NullType)]
    return table.withColumns({name: F.col(quoted(name)).cast("int") for name in nulls}) if nulls else table


def steps_to(schema: T.StructType, name: str) -> list[str]:
    """Return the names of the nested fields that lead to ``name``, outermost first; empty if there is no such field."""
    for field in schema.fields:
        if field.name == name:
            return [name]
        kind = field.dataType.elementType if isinstance(field.dataType, T.ArrayType) else field.dataType
        if name.startswith(f"{field.name}.") and isinstance(kind, T.StructType):
            inner = steps_to(kind, name[len(field.name) + 1 :])
            if inner:
                return [field.name, *inner]
    return []


def field_of(steps: Sequence[str]) -> str:
    """SQL: the field of a struct that these names lead to; null where a struct is, which has values then on Sail."""
    parents = (f"{'.'.join(steps[:depth])} IS NOT NULL" for depth in range(1, len(steps)))
    return f"CASE WHEN {' AND '.join(parents)} THEN {'.'.join(steps)} END"


def _field(steps: Sequence[str]) -> Column:
    return F.expr(field_of([*map(quoted, steps)]))


def text_fields(names: Iterable[str]) -> list[T.StructField]:
    """Return struct fields that contain these paths as text.

    >>> [field.simpleString() for field in text_fields(["user.id", "user.geo.city"])]
    ['user:struct<geo:struct<city:string>,id:string>']
    """
    return list(_text_fields(sorted({tuple(name.split(".")) for name in names})))


def _text_fields(paths: Iterable[tuple[str, ...]]) -> Iterator[T.StructField]:
    for first, group in groupby(paths, key=lambda path: path[0]):
        inner = [path[1:] for path in group if len(path) > 1]
        yield T.StructField(first, T.StructType([*_text_fields(inner)]) if inner else T.StringType())


def own_or_field(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """Fill nulls of these columns from the struct field with the same path, if both exist."""
    columns = {}
    for name in set(names) & set(rows.columns):
        others = T.StructType([field for field in rows.schema.fields if field.name != name])
        if steps := steps_to(others, name):
            columns[name] = F.coalesce(F.col(quoted(name)), _field(steps))
    return rows.withColumns(columns) if columns else rows


def check_unambiguous(table: DataFrame, source: str, what: str) -> None:
    """Refuse ambiguous columns: equal names, or names that differ only in case."""
    matches = [name for name in table.columns if name.lower() == source.lower()]
    setting = "spark.sql.caseSensitive"
    is_case_sensitive = len(matches) > 1 and table.sparkSession.conf.get(setting, "false") == "true"
    if len(matches) < 2 or (matches.count(source) == 1 and is_case_sensitive):
        return
    difference = "have the same name" if len(set(matches)) == 1 else "differ only in upper and lower case"
    raise InputError.of("ambiguous_columns", what=what, difference=difference, columns=", ".join(map(repr, matches)))


REAL = (T.FloatType, T.DoubleType)
TIMES: tuple[type[T.DataType], ...] = (T.TimestampType, T.TimestampNTZType)


def as_text(name: str, kind: T.DataType, engine: str) -> str:
    """Return SQL that converts a column to text as Spark does; an instant to that of UTC, whatever the session's zone.

    The text of another zone is the same for two instants if clocks are set back between them.

    >>> as_text("user_id", T.DoubleType(), "spark")
    'string(user_id)'
    """
    if isinstance(kind, T.TimestampType):
        # Arithmetic of times without a zone asks for no zone, and is exact.
        name = f"timestamp_ntz'1970-01-01 00:00:00' + interval '0.000001' second * unix_micros({name})"
    if engine == "sail" and isinstance(kind, REAL):
        return _real(name)
    if engine == "sail" and isinstance(kind, TIMES):
        plain = f"replace(replace(string({name}), 'T', ' '), 'Z', '')"
        return f"CASE WHEN contains({plain}, '.') THEN regexp_replace({plain}, '[.]?0+$', '') ELSE {plain} END"
    if isinstance(kind, T.BinaryType):  # 16 bytes as a UUID is written
        digits = f"lower(hex({name}))"
        parts = ", ".join(f"substring({digits}, {at}, {n})" for at, n in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12)))
        return f"CASE WHEN length({digits}) = 32 THEN concat_ws('-', {parts}) ELSE {digits} END"
    return f"string({name})"


_NUMBER = "^[ \t\r\n]*([+-]?(?:(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)|nan)[ \t\r\n]*$"


def as_number(name: str) -> str:
    """Return SQL that parses a decimal number, inf or nan in any case; other texts become null.

    Engines accept more, and differ in what: ``0x1p3``, ``1d``, ``+nan``.
    """
    # Java's $ also matches before these line ends.
    plain = f"translate(lower({name}), '\u0085\u2028\u2029', '???')"
    return f"try_cast(regexp_extract({plain}, '{_NUMBER}', 1) as double)"


def _real(name: str) -> str:
    """Return SQL that formats doubles as Java does: with an exponent below 0.001 and from 10,000,000 on.

    1.5e-7 -> 1.5E-7, 100000000.0 -> 1.0E8, 0.00012 -> 1.2E-4.
    """
    size, text = f"abs({name})", f"string(abs({name}))"
    mantissa = f"split({text}, 'e')[0], CASE WHEN contains({text}, '.') THEN '' ELSE '.0' END"
    exponent = f"concat({mantissa}, 'E', split({text}, 'e')[1])"
    large = _digits(f"replace({text}, '.', '')", f"length(split({text}, '[.]')[0]) - 1")
    fraction = f"split({text}, '[.]')[1]"
    digits = f"regexp_replace({fraction}, '^0+', '')"
    small = _digits(digits, f"length({digits}) - length({fraction}) - 1")
    scientific = f"CASE WHEN contains({text}, 'e') THEN {exponent} WHEN {text} LIKE '0.%' THEN {small} ELSE {large} END"
    infinite = f"CASE WHEN {name} > 0 THEN 'Infinity' ELSE '-Infinity' END"
    return (
        f"CASE WHEN {name} IS NULL THEN NULL WHEN isnan({name}) THEN 'NaN' WHEN {size} = double('inf') THEN {infinite} "
        f"WHEN {name} = 0 OR ({size} >= 0.001D AND {size} < 10000000D) THEN string({name}) "
        f"ELSE concat(CASE WHEN {name} < 0 THEN '-' ELSE '' END, {scientific}) END"
    )


def _digits(digits: str, exponent: str) -> str:
    """Return SQL: the first digit, a point, the other digits without trailing zeros, and the exponent."""
    others = f"regexp_replace(substring({digits}, 2), '0+$', '')"
    fraction = f"CASE WHEN {others} = '' THEN '0' ELSE {others} END"
    return f"concat(substring({digits}, 1, 1), '.', {fraction}, 'E', {exponent})"


# ---- exact sums by key, which every wing writes and reads in the same way; weighted means in SQL
#
# All sums are whole numbers (limbs: see ``statistics.exact_sums``), so they add up to the same bits in any order, in
# any batch and on any number of machines: in Python, in SQL, or in both.

#: The column of the sums: an array of whole numbers for each key.
SUMS = "sums"


@dataclass(frozen=True)
class SumTable:
    """How a table of sums by key looks.

    Attributes:
        key: Names of the columns that are the key: texts.
        more: What else a row may hold.
    """

    key: tuple[str, ...]
    more: tuple[T.StructField, ...] = ()

    @property
    def schema(self) -> T.StructType:
        """The key, the sums, and what else there is."""
        keys = [T.StructField(name, T.StringType()) for name in self.key]
        return T.StructType([*keys, T.StructField(SUMS, T.ArrayType(T.LongType())), *self.more])

    def batch(self, keys: Sequence[Sequence[Any]], sums: Any, *more: pa.Array) -> pa.RecordBatch:
        """Rows of sums.

        Args:
            keys: The n values of each column of the key.
            sums: n arrays of whole numbers, which may have different lengths; empty for rows without sums.
            more: The other columns.
        """
        texts = [pa.array(values, pa.string()) for values in keys]
        return pa.RecordBatch.from_arrays([*texts, lists_of(sums, len(texts[0])), *more], self.schema.fieldNames())

    def keys(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """The key of each row."""
        return zip(*(batch.column(place).to_pylist() for place in range(len(self.key))), strict=True)

    def totals(self, batches: Iterable[pa.RecordBatch]) -> dict[tuple[Any, ...], npt.NDArray[Any]]:
        """Key -> its sums over all batches, as Python integers of any size; a row without sums adds no key."""
        totals: dict[tuple[Any, ...], npt.NDArray[Any]] = {}
        for batch in batches:
            for key, sums in zip(self.keys(batch), batch.column(len(self.key)), strict=True):
                if sums.is_valid:
                    totals[key] = totals.get(key, 0) + np.array(sums.as_py(), object)
        return totals

    def added(self, rows: DataFrame, width: int) -> DataFrame:
        """Add up the rows of each key, whose sums all have this length, in SQL."""
        sums = ", ".join(f"sum({SUMS}[{place}])" for place in range(width))
        return rows.groupBy(*self.key).agg(F.expr(f"array({sums}) AS {SUMS}"))


def lists_of(arrays: Any, n: int) -> pa.Array:
    """One list per array of whole numbers, without a loop over the numbers; n nulls if there are no arrays.

    >>> lists_of([np.array([1, 2]), np.array([3])], 2).to_pylist(), lists_of([], 1).to_pylist()
    ([[1, 2], [3]], [None])
    """
    if not len(arrays):
        return pa.nulls(n, pa.list_(pa.int64()))
    ends = np.cumsum([0, *map(len, arrays)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(np.concatenate(arrays)))


def matrix_of(lists: pa.Array) -> npt.NDArray[np.int64]:
    """(g, c) sums, from g lists of the same length c."""
    return np.asarray(lists.flatten().to_numpy().reshape(len(lists), -1), np.int64)


def coded(column: pa.Array) -> tuple[list[str | None], npt.NDArray[np.int64]]:
    """The distinct texts of a column, null among them, and, per row, the index of its text."""
    codes = column.cast(pa.string()).dictionary_encode(null_encoding="encode")
    return codes.dictionary.to_pylist(), codes.indices.to_numpy().astype(np.int64)


# ---- means of groups that grow with users, in SQL alone

#: From one limb to the next: they count multiples of 2**30, 1, 2**-30 and 2**-60.
_STEP = 2**30
#: Added to the weight of a group by a value that cannot be summed: infinite, or above ``LARGEST_SUMMAND``.
_BEYOND = 2**40


def weight_of(column: str) -> str:
    """The column that ``group_means`` adds with the weight of the values of a column.

    >>> weight_of("ap_at_10")
    '_weight_ap_at_10'
    """
    return f"_weight_{column}"


def group_means(
    rows: DataFrame, keys: Sequence[str], weights: Mapping[str, str], aggregates: Sequence[str] = ()
) -> DataFrame:
    """Group rows, and return the exact weighted mean of each column of values.

    Args:
        rows: One row per value; null and NaN are no value.
        keys: The columns to group by.
        weights: Column of values -> SQL of the weight of a row: a whole number, 0 or more. The weights of a group may
            add up to 2**33.
        aggregates: What else to compute per group, as SQL with an alias.

    Returns:
        One row per group: the keys, the aggregates, each mean under the name of its column, and its weight: that of
        the rows with a value. A mean is null where the weight is 0, and infinite where a value is infinite or above
        ``LARGEST_SUMMAND``.
    """
    return means_of(group_sums(rows, keys, weights, aggregates), weights)


def mean_of_one(name: str) -> str:
    """SQL: the mean that ``group_means`` has of one value of weight 1.

    It lacks what is below 2**-60, which larger values than 2**-8 do not have.
    """
    value, unit, largest = quoted(name), f"{2.0**-8!r}D", f"{LARGEST_SUMMAND:.0f}D"
    # A double between 2**-8 and 2**-7 has no part below 2**-60, so adding 2**-8 rounds as ``_limbs`` does.
    rounded = f"IF({value} < 0, {value} - {unit} + {unit}, {value} + {unit} - {unit})"
    infinite = f"WHEN {value} IS NOT NULL AND NOT isnan({value}) THEN double('inf')"
    other = f"CASE WHEN abs({value}) < {unit} THEN {rounded} WHEN abs({value}) <= {largest} THEN {value} {infinite} END"
    # Most values first: Sail takes half as long.
    return f"IF({value} >= {unit} AND {value} <= {largest} OR {value} = 0, {value} + 0D, {other})"


def group_sums(
    rows: DataFrame,
    keys: Sequence[str],
    weights: Mapping[str, str],
    aggregates: Sequence[str] = (),
    more: DataFrame | None = None,
) -> DataFrame:
    """The sums that ``means_of`` makes the means of; whole numbers, which add up to the same bits in any order.

    Args:
        rows: As ``group_means`` has them, as are the next three.
        keys: The columns to group by.
        weights: Column of values -> SQL of the weight of a row.
        aggregates: What else to compute per group.
        more: Rows that this has returned for others, to be added. Each aggregate then has the name of what it is of.
    """
    values = [sql for name, weight in weights.items() for sql in _value(name, weight)]
    others = [quoted(name) for name in rows.columns if name not in weights or name in keys]
    limbs = {quoted(f"_{i}{name}"): limb for name in weights for i, limb in enumerate(_limbs(name))}
    totals = [quoted(weight_of(name)) for name in weights]
    parts = rows.selectExpr(*others, *values)
    if more is not None:
        kept = [name for name in others if name in {*map(quoted, more.columns)}]
        parts = parts.selectExpr(*kept, *(f"{limb} AS {name}" for name, limb in limbs.items()), *totals)
        parts, limbs = parts.unionByName(more.select(*map(quoted, parts.columns))), {name: name for name in limbs}
    sums = [f"sum({sql}) AS {name}" for name, sql in (limbs | dict(zip(totals, totals, strict=True))).items()]
    return parts.groupBy(*map(quoted, keys)).agg(*map(F.expr, (*aggregates, *sums)))


def means_of(summed: DataFrame, columns: Iterable[str]) -> DataFrame:
    """The means of these columns of values, from their ``group_sums``: see ``group_means``."""
    columns = [*columns]
    computed = {*(f"_{i}{name}" for name in columns for i in range(4)), *map(weight_of, columns)}
    kept = [quoted(name) for name in summed.columns if name not in computed]
    totals = [f"{weight} % {_BEYOND} AS {weight}" for weight in map(quoted, map(weight_of, columns))]
    return summed.selectExpr(*kept, *(f"{_mean(name)} AS {quoted(name)}" for name in columns), *totals)


def _value(name: str, weight: str) -> list[str]:
    """The value where it can be summed, else 0; the weight of its row; its own weight, 0 where there is no value."""
    value, largest = quoted(name), f"{LARGEST_SUMMAND:.0f}D"
    beyond = f"CASE WHEN abs({value}) > {largest} AND ({weight}) > 0 THEN {_BEYOND} ELSE 0 END"
    counted = f"CASE WHEN {value} IS NULL OR isnan({value}) THEN 0 ELSE bigint({weight}) + {beyond} END"
    return [
        f"CASE WHEN abs({value}) <= {largest} THEN {value} ELSE 0D END AS {quoted(f'_value{name}')}",
        f"bigint({weight}) AS {quoted(f'_times{name}')}",
        f"{counted} AS {quoted(weight_of(name))}",
    ]


def _limbs(name: str) -> list[str]:
    """The weighted limbs of a value, as ``limbs_of`` splits it: each cut off towards zero, the last one rounded."""
    value, weight = quoted(f"_value{name}"), quoted(f"_times{name}")
    fraction = f"({value} - bigint({value})) * {_STEP}D"
    # A double of this size has no fraction, so adding it rounds, halves to even numbers, as NumPy does; Sail's ``rint``
    # rounds halves away from zero.
    large = f"{3 * 2**51}D"
    # Without the remainder of a division: it takes as long as all the rest.
    limbs = (
        f"bigint({value} / {_STEP}D)",
        f"bigint({value}) - bigint({value} / {_STEP}D) * {_STEP}",
        f"bigint({fraction})",
        f"bigint(({fraction} - bigint({fraction})) * {_STEP}D + {large} - {large})",
    )
    return [f"{weight} * ({limb})" for limb in limbs]


def _mean(name: str) -> str:
    """The limbs put together from the largest to the smallest, as ``exact_mean`` does it."""
    first, second, third, fourth = (quoted(f"_{i}{name}") for i in range(4))
    total = f"{first} * {_STEP}D + {second} + {third} / {_STEP}D + {fourth} / {_STEP**2}D"
    weight = quoted(weight_of(name))
    return f"CASE WHEN {weight} >= {_BEYOND} THEN double('inf') WHEN {weight} > 0 THEN ({total}) / {weight} END"
