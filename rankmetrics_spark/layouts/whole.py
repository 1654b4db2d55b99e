"""Layout ``whole``: every row of a list as parallel arrays of numbers, for an engine that reads a log once per branch.

Nothing is looked at again: where a rank may repeat, every row of the list is there. Other lists are read as the layouts
``masks`` and ``relevant`` read them, so the values and the counts are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.layouts.lists import Arrays, Assembled, Entries, Reading, flat, ints, no_pool, numbers
from rankmetrics_spark.layouts.order import by_position, without_repeats
from rankmetrics_spark.layouts.repeats import COUNT_ROWS, LONGEST, MASK_RANKS, Packing, item_hash
from rankmetrics_spark.metrics import Batch, Ints, order_within
from rankmetrics_spark.schemas import HASH, N_ROWS, POSITION, RELEVANCE, Columns

RANKS, GRADES, HASHES = "_ranks_of_rows", "_grades_of_rows", "_hashes_of_rows"
_LOW = 2**32 - 1
_RANK_BITS = np.left_shift(1, np.maximum(np.arange(MASK_RANKS + 1, dtype=np.int64) - 1, 0))
"""The bit of each rank; ranks above the last one share its bit."""


@dataclass(frozen=True)
class Whole:
    """Every row as numbers; see the module.

    Attributes:
        small: Grades are whole numbers of 32 bits, so that rank and grade share one number.
        hashed: Whether the hashes of the items travel.
    """

    small: bool
    hashed: bool
    name: ClassVar[str] = "whole"
    arrays: ClassVar[bool] = True
    all_rows_seen: ClassVar[str | None] = None
    """Python says it."""

    @property
    def payload(self) -> tuple[str, ...]:
        """The arrays, of equal lengths: a sound row has a rank, a grade and an item."""
        return (RANKS, *([] if self.small else [GRADES]), *([HASHES] if self.hashed else []))

    def pack(self, columns: Columns, repeats: bool) -> Packing:
        """SQL from the sound rows of a list to its arrays."""
        shared = f"shiftleft({POSITION}, 32) | ({RELEVANCE} & {_LOW}L)"
        # An array has no place for a null.
        grade = f"coalesce(double({RELEVANCE}), double('NaN'))"
        arrays = {
            RANKS: f"collect_list({shared if self.small else POSITION})",
            GRADES: f"collect_list({grade})",
            HASHES: f"collect_list({HASH})",
        }
        return Packing(item_hash(self.hashed), COUNT_ROWS | {name: arrays[name] for name in self.payload})

    def unpack(self, columns: Arrays, reading: Reading) -> Assembled:
        """The lists of a batch: ``_rows`` and the arrays."""
        rows = ints(columns[N_ROWS])
        index, packed = flat(columns[RANKS])
        ranks = ints(packed)
        grades: npt.NDArray[Any]
        if self.small:
            halves = ranks.view("<i4")
            grades, ranks = halves[0::2], halves[1::2]
        else:
            grades = numbers(flat(columns[GRADES])[1], np.float64)
        all_seen = rank_may_repeat(ranks, rows)
        keep = grades > 0
        if all_seen.any():
            keep |= all_seen[index]
        at = np.flatnonzero(keep)
        hashes = ints(flat(columns[HASHES])[1])[at] if self.hashed else np.zeros(len(at), np.int64)
        entries = Entries(index[at], hashes, grades[at].astype(np.float64), ranks[at].astype(np.int64))
        return _assembled(entries, rows, reading, all_seen)


def _assembled(entries: Entries, rows: Ints, reading: Reading, all_seen: npt.NDArray[np.bool_]) -> Assembled:
    kept, dropped = without_repeats(entries, len(rows), reading)
    ranked = by_position(kept)
    ranks = np.asarray(ranked.position, np.int64)
    batch = Batch(len(rows), ranked.list, ranks, ranked.grade, rows - dropped, *no_pool())
    none = np.zeros(len(rows), np.int64)
    return Assembled(batch, dropped, none, ranked.hash if reading.repeats else None, all_seen)


def rank_may_repeat(ranks: npt.NDArray[np.signedinteger[Any]], rows: Ints) -> npt.NDArray[np.bool_]:
    """(n,) whether neither each rank of a list is up to 63 and there once, nor the ranks are 1..L.

    The same condition as ``repeats.RANK_MAY_REPEAT_SQL``.

    Args:
        ranks: (e,) rank of each row, from 1 on, list by list.
        rows: (n,) number of rows of each list.

    >>> rank_may_repeat(np.array([2, 1, 3, 3, 64]), np.array([2, 2, 1])).tolist()
    [False, True, True]
    """
    found = np.zeros(len(rows), bool)
    lists = np.flatnonzero(rows)
    if not len(lists):
        return found
    counts, starts = rows[lists], (np.cumsum(rows) - rows)[lists]
    top = np.maximum.reduceat(ranks, starts)
    bits = np.bitwise_or.reduceat(_RANK_BITS.take(ranks, mode="clip"), starts)
    distinct = (top <= MASK_RANKS) & (_bit_count(bits) == counts)
    found[lists] = ~distinct
    unsure = ~distinct & (top == counts) & (counts <= LONGEST)
    if unsure.any():
        found[lists[unsure]] = ~_are_1_to_n(np.repeat(np.arange(len(rows)), rows), ranks, lists[unsure], len(rows))
    return found


def _bit_count(bits: Ints) -> Ints:
    octets = np.ascontiguousarray(bits).view(np.uint8).reshape(-1, 8)
    return np.asarray(np.unpackbits(octets, axis=1).sum(axis=1, dtype=np.int64))


def _are_1_to_n(index: Ints, ranks: npt.NDArray[np.signedinteger[Any]], lists: Ints, size: int) -> npt.NDArray[Any]:
    """(lists,) whether the ranks of each of these lists are 1..n."""
    chosen = np.zeros(size, bool)
    chosen[lists] = True
    at = np.flatnonzero(chosen[index])
    of, sorted_ranks = index[at], ranks[at][order_within(index[at], ranks[at].astype(np.float64))]
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    place = np.arange(len(of)) - np.repeat(starts, np.diff(starts, append=len(of))) + 1
    return np.asarray(np.logical_and.reduceat(sorted_ranks == place, starts))
