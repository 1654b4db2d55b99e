"""Exact sums by key, as tables that every wing writes and reads in the same way; and weighted means in SQL.

All sums are whole numbers (limbs: see ``statistics.exact_sums``), so they add up to the same bits in any order, in any
batch and on any number of machines: in Python, in SQL, or in both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark.schemas import quoted
from rankmetrics_spark.statistics import LARGEST_SUMMAND

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
