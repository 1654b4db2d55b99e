"""Columns of one Arrow batch as flat arrays, and the ranked lists that a layout makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rankmetrics_spark.layouts.repeats import Packing
from rankmetrics_spark.metrics import Batch, Convention, Floats, Ints
from rankmetrics_spark.schemas import ENTRIES, HASH, ITEM, POSITION, RELEVANCE, SCORE, Columns

Arrays: TypeAlias = Mapping[str, pa.Array]
"""Columns of an Arrow batch, a row per list: name to an (n,) array; ``_entries`` holds an array of structs per list."""


@dataclass(frozen=True)
class Reading:
    """How the rows of a list are read.

    Attributes:
        convention: Which of repeated rows stays, and how tied scores are ordered.
        repeats: Whether repeated items are looked for.
        by_position: Whether ranks are given; otherwise lists are ranked by score.
        only_relevant: Whether rows without a gain may be left out once the order is known.
    """

    convention: Convention
    repeats: bool = True
    by_position: bool = True
    only_relevant: bool = False


@dataclass(frozen=True)
class Assembled:
    """The ranked lists of a batch, and what was noticed while they were put in order.

    Attributes:
        batch: The ranked lists, without judged items.
        dropped: (n,) rows set aside because they repeat an item or a rank.
        tied: (n,) rows that share their score with another of the list; 0 where ranks were given.
        hash: (e,) hash of the item of each entry, or None where items are not told apart.
        all_rows_seen: (n,) whether every row of the list was looked at, where the layout finds that out here.
    """

    batch: Batch
    dropped: Ints
    tied: Ints
    hash: Ints | None = None
    all_rows_seen: npt.NDArray[np.bool_] | None = None


class Layout(Protocol):
    """One way in which a list travels; see the modules ``masks``, ``relevant`` and ``rows``."""

    @property
    def name(self) -> str:
        """What options call it."""

    @property
    def arrays(self) -> bool:
        """Whether arrays travel, and not only numbers."""

    @property
    def payload(self) -> tuple[str, ...]:
        """What ``unpack`` reads besides ``_rows``, as SQL."""

    @property
    def all_rows_seen(self) -> str | None:
        """SQL: whether every row of a list was looked at one by one; None where ``unpack`` says it."""

    def pack(self, columns: Columns, repeats: bool) -> Packing:
        """SQL from the rows of a list to one row; ``repeats`` says whether repeated items are looked for."""

    def unpack(self, columns: Arrays, reading: Reading) -> Assembled:
        """The ranked lists of a batch of packed rows."""


@dataclass(frozen=True)
class Entries:
    """Rows of a batch, flat.

    Attributes:
        list: (e,) list index.
        hash: (e,) hash of the item.
        grade: (e,) relevance grade; NaN = unjudged.
        position: (e,) rank, where there is one: whole numbers, or doubles where it only breaks ties (NaN = no rank).
        score: (e,) score, where there is one.
        exact: (e,) whole numbers in the order of the scores, where different scores can be the same double.
        row: (e,) index of the row in ``text``; few rows need the text of their item.
        text: Item ids of all rows of the batch, as they came.
    """

    list: Ints
    hash: Ints
    grade: Floats
    position: Ints | Floats | None = None
    score: Floats | None = None
    exact: Ints | None = None
    row: Ints | None = None
    text: pa.Array | None = None

    @property
    def ranked_by(self) -> Floats:
        """(e,) what tells better scores from worse ones."""
        assert self.score is not None
        return self.score if self.exact is None else self.exact.astype(np.float64)

    def take(self, which: npt.NDArray[Any]) -> Entries:
        """The entries chosen by an index or a mask."""
        values: dict[str, Any] = dict(vars(self))
        parts = {name: value[which] for name, value in values.items() if name != "text" and value is not None}
        return Entries(**parts, text=self.text)


def entries_of(columns: Arrays) -> Entries:
    """The rows of a batch from its column ``_entries``."""
    index, values = flat(columns[ENTRIES])
    names = field_names(columns)

    def given(name: str, kind: type[Any]) -> npt.NDArray[Any] | None:
        return numbers(values.field(name), kind) if name in names else None

    hashes, grade = given(HASH, np.int64), given(RELEVANCE, np.float64)
    return Entries(
        index,
        np.zeros(len(index), np.int64) if hashes is None else hashes,
        np.full(len(index), np.nan) if grade is None else grade,
        _positions(values) if POSITION in names else None,
        None if SCORE not in names else numbers(values.field(SCORE).cast(pa.float64(), safe=False), np.float64),
        None if SCORE not in names else _exact_order(values.field(SCORE)),
        np.arange(len(index)) if ITEM in names else None,
        values.field(ITEM) if ITEM in names else None,
    )


def _positions(values: pa.Array) -> Ints | Floats:
    column = values.field(POSITION)
    return numbers(column, np.float64 if pa.types.is_floating(column.type) else np.int64)


def _exact_order(scores: pa.Array) -> Ints | None:
    """Whole numbers in the order of integers or decimals, equal where they are equal; None for doubles.

    >>> _exact_order(pa.array([2**53 + 1, 2**53, 2**53 + 1])).tolist()
    [1, 0, 1]
    """
    if pa.types.is_floating(scores.type):
        return None
    if not pa.types.is_decimal(scores.type):
        return np.unique(ints(scores), return_inverse=True)[1].astype(np.int64)
    # A decimal is a whole number of 128 bits: the lower half has no sign.
    halves = np.frombuffer(scores.buffers()[1], "<u8").reshape(-1, 2)[scores.offset : scores.offset + len(scores)]
    low, high = halves[:, 0], halves[:, 1].astype(np.int64)
    order = np.lexsort((low, high))
    new = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    found = np.empty(len(order), np.int64)
    found[order] = np.concatenate([[0], np.cumsum(new)])[: len(order)]
    return found


def field_names(columns: Arrays) -> set[str]:
    """Fields of the structs in ``_entries``."""
    return {field.name for field in columns[ENTRIES].type.value_type}


def flat(lists: pa.Array) -> tuple[Ints, pa.Array]:
    """An array of arrays as (list index, values); a null array counts as empty."""
    lengths = numbers(pc.list_value_length(lists).fill_null(0), np.int64)
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()


def numbers(array: pa.Array, kind: type[Any]) -> npt.NDArray[Any]:
    """An Arrow array as NumPy; null becomes NaN."""
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(kind, copy=False)


def ints(array: pa.Array) -> Ints:
    """An Arrow array of whole numbers as NumPy."""
    return numbers(array, np.int64)


def no_pool() -> tuple[Ints, Floats]:
    """The judged items of a batch that has none yet."""
    return np.empty(0, np.int64), np.empty(0)
