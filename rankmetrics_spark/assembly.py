"""Columns of one Arrow batch -> a ``Batch``: flatten, drop repeats, put in order. No pyspark, no loop over users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rankmetrics_spark.batch import Arrays, Batch, Floats, Ints, has_repeat, order_within, place
from rankmetrics_spark.conventions import Convention


@dataclass(frozen=True)
class Assembled:
    """A batch with what was noticed on the way.

    Attributes:
        batch: The ranked lists.
        dropped: (n,) rows that lost their place to another (repeated item or rank).
        tied: (n,) rows that share their score with another of the list; 0 where ranks were given.
        hash: (e,) hash of the item of each entry, or None where items are not told apart.
    """

    batch: Batch
    dropped: Ints
    tied: Ints
    hash: Ints | None = None


@dataclass(frozen=True)
class Entries:
    """Shown rows of a batch, flat: list index, item hash, grade (NaN = unjudged), and what they are ranked by.

    ``text`` has the item ids of all rows as they came, ``row`` the place of each entry there: few need their text.
    """

    list: Ints
    hash: Ints
    grade: Floats
    position: Ints | None = None
    score: Floats | None = None
    row: Ints | None = None
    text: pa.Array | None = None

    def take(self, which: npt.NDArray[Any]) -> Entries:
        """The entries chosen by an index or mask."""
        values: dict[str, Any] = dict(vars(self))
        parts = {name: value[which] for name, value in values.items() if name != "text" and value is not None}
        return Entries(**parts, text=self.text)


def from_masks(columns: Arrays, n_planes: int) -> Assembled:
    """Unpack bit planes of relevant ranks: columns ``n_rows`` and ``plane_b``, (n,); bit r - 1 stands for rank r."""
    shown = _ints(columns["n_rows"])
    planes = np.stack([_ints(columns[f"plane_{b}"]) for b in range(n_planes)])
    any_bit = np.bitwise_or.reduce(planes, axis=0)
    bits = np.unpackbits(any_bit.astype("<i8").view(np.uint8), bitorder="little")
    row, column = np.divmod(np.flatnonzero(bits.view(np.bool_)), 64)
    grade = sum((planes[b][row] >> column & 1) << b for b in range(n_planes))
    batch = Batch(len(shown), row, column + 1, np.asarray(grade, float), shown, *_no_pool())
    none = np.zeros(len(shown), np.int64)
    return Assembled(batch, none, none)


def from_relevant(columns: Arrays, convention: Convention, items_matter: bool) -> Assembled:
    """Relevant rows, or all of a list, with ranks: ``n_rows``; ``entries`` of ``position``, ``hash``, ``relevance``."""
    rows = _ints(columns["n_rows"])
    kept, dropped = _deduplicated(_entries(columns), len(rows), convention, items_matter, True)
    ranked, _ = _by_position(kept)
    assert ranked.position is not None
    batch = Batch(len(rows), ranked.list, ranked.position, ranked.grade, rows - dropped, *_no_pool())
    return Assembled(batch, dropped, np.zeros(len(rows), np.int64), ranked.hash if items_matter else None)


def from_rows(columns: Arrays, convention: Convention, items_matter: bool, by_position: bool) -> Assembled:
    """Every row of each list; relevance is looked up in the judgements where the rows carry none."""
    size = len(columns["entries"])
    entries = _entries(columns)
    if entries.score is not None and convention.score_precision == 32:
        entries = replace(entries, score=entries.score.astype(np.float32).astype(float))
    if "relevance" not in _fields(columns):
        entries = replace(entries, grade=_looked_up(entries, columns, size))
    kept, dropped = _deduplicated(entries, size, convention, items_matter, by_position)
    ranked, tied = _by_position(kept) if by_position else _by_score(kept, convention)
    rank = ranked.position if by_position and ranked.position is not None else place(ranked.list, size)
    shown = np.bincount(ranked.list, minlength=size)
    batch = Batch(size, ranked.list, rank, ranked.grade, shown, *_no_pool(), score=ranked.score)
    n_tied = np.bincount(ranked.list, tied, minlength=size).astype(np.int64)
    return Assembled(_with_ties(batch, tied, convention), dropped, n_tied, ranked.hash if items_matter else None)


def with_pool(batch: Batch, grades: pa.Array | None) -> Batch:
    """Add the judged items: per list an array of grades; without judgements, what was shown."""
    if grades is None:
        known = ~np.isnan(batch.grade)
        return replace(batch, pool_list=batch.list[known], pool_grade=batch.grade[known])
    index, values = flat(grades)
    return replace(batch, pool_list=index, pool_grade=_numbers(values, np.float64))


def flat(lists: pa.Array) -> tuple[Ints, pa.Array]:
    """An array of arrays as (list index, values); a null array counts as empty."""
    lengths = _numbers(pc.list_value_length(lists).fill_null(0), np.int64)
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()


def _entries(columns: Arrays) -> Entries:
    index, values = flat(columns["entries"])
    names = _fields(columns)

    def given(name: str, kind: type[Any]) -> npt.NDArray[Any] | None:
        return _numbers(values.field(name), kind) if name in names else None

    hashes, grade = given("hash", np.int64), given("relevance", np.float64)
    return Entries(
        index,
        np.zeros(len(index), np.int64) if hashes is None else hashes,
        np.full(len(index), np.nan) if grade is None else grade,
        given("position", np.int64),
        given("score", np.float64),
        np.arange(len(index)) if "item_id" in names else None,
        values.field("item_id") if "item_id" in names else None,
    )


def _fields(columns: Arrays) -> set[str]:
    return {field.name for field in columns["entries"].type.value_type}


def _numbers(array: pa.Array, kind: type[Any]) -> npt.NDArray[Any]:
    """Null becomes NaN."""
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(kind, copy=False)


def _ints(array: pa.Array) -> Ints:
    return _numbers(array, np.int64)


def _no_pool() -> tuple[Ints, Floats]:
    return np.empty(0, np.int64), np.empty(0)


def _looked_up(entries: Entries, columns: Arrays, size: int) -> Floats:
    """Grade of each entry from the judgements (``pool_hash``, ``pool_grade`` per list), NaN where it has none."""
    index, judged_hash = flat(columns["pool_hash"])
    hashes, grades = _ints(judged_hash), _numbers(flat(columns["pool_grade"])[1], np.float64)
    if not len(hashes):
        return np.full(len(entries.hash), np.nan)
    key = np.concatenate([hashes, entries.hash])
    code = np.unique(key, return_inverse=True)[1].astype(np.int64)
    judged = index * (code.max() + 1) + code[: len(hashes)]
    wanted = entries.list * (code.max() + 1) + code[len(hashes) :]
    order = np.argsort(judged, kind="stable")
    at = np.minimum(np.searchsorted(judged[order], wanted), len(judged) - 1)
    return np.where(judged[order][at] == wanted, grades[order][at], np.nan)


def _deduplicated(
    entries: Entries, size: int, convention: Convention, items_matter: bool, by_position: bool
) -> tuple[Entries, Ints]:
    """Keep one row per item and, with ranks given, one per rank; how many rows each list lost."""
    kept = entries
    if items_matter and convention.duplicates != "count" and has_repeat(entries.list, entries.hash):
        best = np.asarray(entries.position if by_position or entries.score is None else -entries.score, float)
        order = (best, _worst_last(entries))
        kept = entries.take(
            _firsts(entries.list, entries.hash, order[::-1] if convention.duplicates == "best_rank" else order)
        )
    if by_position and has_repeat(kept.list, np.asarray(kept.position)):
        kept = kept.take(_firsts(kept.list, np.asarray(kept.position), (kept.hash, _worst_last(kept))))
    lost = np.bincount(entries.list, minlength=size) - np.bincount(kept.list, minlength=size)
    return kept, lost


def _worst_last(entries: Entries) -> Floats:
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


def _by_position(entries: Entries) -> tuple[Entries, npt.NDArray[np.bool_]]:
    assert entries.position is not None
    ranked = entries.take(order_within(entries.list, entries.position.astype(float)))
    return ranked, np.zeros(len(ranked.list), bool)


def _by_score(entries: Entries, convention: Convention) -> tuple[Entries, npt.NDArray[np.bool_]]:
    """Score descending, equal scores by the convention's rule; which entries are tied."""
    assert entries.score is not None
    order = order_within(entries.list, -entries.score)
    ranked = entries.take(order)
    assert ranked.score is not None
    same = (ranked.list[1:] == ranked.list[:-1]) & (ranked.score[1:] == ranked.score[:-1])
    tied = np.zeros(len(order), bool)
    tied[1:] |= same
    tied[:-1] |= same
    if not tied.any():
        return ranked, tied
    group = np.cumsum(np.concatenate([[True], ~same])[: len(order)])
    where = np.flatnonzero(tied)
    rows = ranked.take(where)
    settled = np.arange(len(order))
    # What the rule leaves open, such as a repeated item, the grade decides, and not the order in which rows came.
    settled[where] = where[np.lexsort((_worst_last(rows), _TIE_KEYS[convention.ties](rows), group[where]))]
    return ranked.take(settled), tied


def _item_order(entries: Entries) -> npt.NDArray[Any]:
    """Order of the item ids as UTF-8 text, which is how trec_eval and Spark compare them."""
    if entries.text is None or entries.row is None:
        return entries.hash
    items = entries.text.take(pa.array(entries.row)).to_numpy(zero_copy_only=False)
    # Python compares by code point, and UTF-8 keeps that order.
    return np.unique(items.astype(str), return_inverse=True)[1]


def _position_order(entries: Entries) -> npt.NDArray[Any]:
    return -_item_order(entries) if entries.position is None else entries.position


_TIE_KEYS: dict[str, Callable[[Entries], npt.NDArray[Any]]] = {
    "item_desc": lambda entries: -_item_order(entries),
    "item_asc": _item_order,
    "position": _position_order,
    "expected": lambda entries: -_item_order(entries),
    "best": _worst_last,
    "worst": lambda entries: -_worst_last(entries),
}


def _with_ties(batch: Batch, tied: npt.NDArray[np.bool_], convention: Convention) -> Batch:
    """First and last rank of each entry's group of equal scores, for conventions that average over ties."""
    if not convention.averages_ties or batch.score is None:
        return batch
    new = np.ones(len(tied), bool)
    new[1:] = (batch.list[1:] != batch.list[:-1]) | (batch.score[1:] != batch.score[:-1])
    group = np.cumsum(new) - 1
    first = batch.rank[new]
    size = np.bincount(group) if len(group) else np.empty(0, np.int64)
    return replace(batch, tie_first=first[group], tie_last=(first + size - 1)[group])
