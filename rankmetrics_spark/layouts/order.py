"""Rows of a batch in rank order: which of repeated rows stays, and how tied scores are settled. No loop over lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rankmetrics_spark.layouts.lists import Entries, Reading
from rankmetrics_spark.metrics import Batch, Convention, Floats, Ints, has_repeat, order_within


def without_repeats(entries: Entries, size: int, reading: Reading) -> tuple[Entries, Ints]:
    """Keep one row per item and, with ranks given, one per rank.

    Of several rows of an item the highest grade stays, then the best rank; ``duplicates: best_rank`` swaps the two
    criteria, ``count`` keeps every row. By score, the rank that breaks ties decides between rows equal in both.
    Of several rows at one rank the highest grade stays, then the smallest hash.

    Returns:
        The rows that stay, and (size,) how many rows each list lost.
    """
    rule, kept = reading.convention, entries
    if reading.repeats and rule.duplicates != "count" and has_repeat(entries.list, entries.hash):
        ranked_by = entries.position if reading.by_position or entries.score is None else -entries.ranked_by
        order = [np.asarray(ranked_by, float), _highest_grade_first(entries)]
        if rule.duplicates == "best_rank":
            order.reverse()
        # The rank of the row that stays is read under ``ties: position``, so it may not be that of the first row.
        breaks_ties = [] if reading.by_position or entries.position is None else [entries.position]
        kept = entries.take(_firsts(entries.list, entries.hash, [*breaks_ties, *order]))
    if reading.by_position and has_repeat(kept.list, np.asarray(kept.position)):
        kept = kept.take(_firsts(kept.list, np.asarray(kept.position), (kept.hash, _highest_grade_first(kept))))
    if kept is entries:
        return entries, np.zeros(size, np.int64)
    lost = np.bincount(entries.list, minlength=size) - np.bincount(kept.list, minlength=size)
    return kept, lost


def by_position(entries: Entries) -> Entries:
    """The rows of each list in the order of their ranks."""
    assert entries.position is not None
    return entries.take(order_within(entries.list, entries.position.astype(float)))


def by_score(entries: Entries, convention: Convention) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The indices of the rows of each list by descending score, equal scores by the rule; which of these are tied."""
    scores = entries.ranked_by
    order = order_within(entries.list, -scores)
    # The order changes nothing within lists but the places, so row i is still of list[i].
    key = scores[order]
    same, tied = key[1:] == key[:-1], np.zeros(len(order), bool)
    if same.any():
        same &= entries.list[1:] == entries.list[:-1]
        tied[1:] |= same
        tied[:-1] |= same
    if not tied.any():
        return order, tied
    group = np.cumsum(np.concatenate([[True], ~same])[: len(order)])
    where = np.flatnonzero(tied)
    rows = entries.take(order[where])
    # Where the rule leaves the order open, as for a repeated item, the grade decides and not the order of the input.
    settled = np.lexsort((_highest_grade_first(rows), _TIE_KEYS[convention.ties](rows), group[where]))
    order[where] = order[where][settled]
    return order, tied


def with_tie_groups(batch: Batch, ranked: Entries, convention: Convention) -> Batch:
    """Add the first and last rank of each entry's group of equal scores, if the convention averages over ties."""
    if not convention.averages_ties or ranked.score is None:
        return batch
    new, key = np.ones(len(batch.list), bool), ranked.ranked_by
    new[1:] = (batch.list[1:] != batch.list[:-1]) | (key[1:] != key[:-1])
    group = np.cumsum(new) - 1
    first = batch.rank[new]
    size = np.bincount(group) if len(group) else np.empty(0, np.int64)
    return replace(batch, tie_first=first[group], tie_last=(first + size - 1)[group])


def _highest_grade_first(entries: Entries) -> Floats:
    """Sort key: highest grade first, unjudged last."""
    return np.where(np.isnan(entries.grade), np.inf, -entries.grade)


def _firsts(index: Ints, key: Ints, order: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
    """Mask of the first row of each (list, key) by ``order`` (last array first, as in lexsort)."""
    by = np.lexsort((*order, key, index))
    first = np.ones(len(by), bool)
    first[1:] = (index[by][1:] != index[by][:-1]) | (key[by][1:] != key[by][:-1])
    mask = np.empty(len(by), bool)
    mask[by] = first
    return mask


def _item_order(entries: Entries) -> npt.NDArray[Any]:
    """Order of the item ids as UTF-8 text, which is how trec_eval and Spark compare them."""
    if entries.text is None or entries.row is None:
        return entries.hash
    items = entries.text.take(pa.array(entries.row)).to_numpy(zero_copy_only=False)
    # Python compares by code point, and UTF-8 keeps that order.
    return np.unique(items.astype(str), return_inverse=True)[1]


def _position_order(entries: Entries) -> npt.NDArray[Any]:
    """Order by rank, missing ranks last; where that leaves it open, the item ids decide, descending.

    Rows of one item at one rank are equal.
    """
    item = np.unique(-_item_order(entries), return_inverse=True)[1].astype(np.int64)
    if entries.position is None:
        return item
    rank = np.unique(entries.position, return_inverse=True)[1].astype(np.int64)
    return np.asarray(rank * (item.max(initial=0) + 1) + item)


_TIE_KEYS: dict[str, Callable[[Entries], npt.NDArray[Any]]] = {
    "item_desc": lambda entries: -_item_order(entries),
    "item_asc": _item_order,
    "position": _position_order,
    "expected": lambda entries: -_item_order(entries),
    "best": _highest_grade_first,
    "worst": lambda entries: -_highest_grade_first(entries),
}
