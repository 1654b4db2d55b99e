"""Columns of one Arrow batch -> a ``Batch``: flatten, drop repeats, put in order. No pyspark, no loop over users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rankmetrics_spark.batch import Batch, Floats, Ints, place
from rankmetrics_spark.conventions import Convention

Series = Mapping[str, "pd.Series[Any]"]


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
    """Shown rows of a batch, flat: list index, item hash, grade (NaN = unjudged), and what they are ranked by."""

    list: Ints
    hash: Ints
    grade: Floats
    position: Ints | None = None
    score: Floats | None = None
    item: npt.NDArray[np.object_] | None = None

    def take(self, which: npt.NDArray[Any]) -> Entries:
        """The entries chosen by an index or mask."""
        values: dict[str, Any] = {name: None if value is None else value[which] for name, value in vars(self).items()}
        return Entries(**values)


def from_masks(columns: Series, n_planes: int) -> Assembled:
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


def from_relevant(columns: Series, convention: Convention, items_matter: bool) -> Assembled:
    """Relevant rows only, with ranks given: columns ``n_rows``, and per list ``position``, ``hash``, ``relevance``."""
    rows = _ints(columns["n_rows"])
    kept, dropped = _deduplicated(_entries(columns), len(rows), convention, items_matter, True)
    ranked, _ = _by_position(kept)
    assert ranked.position is not None
    batch = Batch(len(rows), ranked.list, ranked.position, ranked.grade, rows - dropped, *_no_pool())
    return Assembled(batch, dropped, np.zeros(len(rows), np.int64), ranked.hash if items_matter else None)


def from_rows(columns: Series, convention: Convention, items_matter: bool, by_position: bool) -> Assembled:
    """Every row of each list; relevance is looked up in the judgements where the rows carry none."""
    size = len(columns["hash"])
    entries = _entries(columns)
    if entries.score is not None and convention.score_precision == 32:
        entries = replace(entries, score=entries.score.astype(np.float32).astype(float))
    if "relevance" not in columns:
        entries = replace(entries, grade=_looked_up(entries, columns, size))
    kept, dropped = _deduplicated(entries, size, convention, items_matter, by_position)
    ranked, tied = _by_position(kept) if by_position else _by_score(kept, convention)
    rank = ranked.position if by_position and ranked.position is not None else place(ranked.list, size)
    shown = np.bincount(ranked.list, minlength=size)
    batch = Batch(size, ranked.list, rank, ranked.grade, shown, *_no_pool(), score=ranked.score)
    n_tied = np.bincount(ranked.list, tied, minlength=size).astype(np.int64)
    return Assembled(_with_ties(batch, tied, convention), dropped, n_tied, ranked.hash if items_matter else None)


def with_pool(batch: Batch, grades: pd.Series[Any] | None) -> Batch:
    """Add the judged items: per list an array of grades, highest first; without judgements, what was shown."""
    if grades is None:
        order = np.lexsort((-batch.grade, batch.list))
        order = order[~np.isnan(batch.grade[order])]
        return replace(batch, pool_list=batch.list[order], pool_grade=batch.grade[order])
    index, values = _flat(grades)
    return replace(batch, pool_list=index, pool_grade=values.astype(float))


def _entries(columns: Series) -> Entries:
    index, first = _flat(columns["hash" if "hash" in columns else "position"])
    known = ("hash", "position", "score", "item_id", "relevance")
    flat = {name: _flat(columns[name])[1] for name in known if name in columns}
    grade, hashes = flat.get("relevance", np.full(len(first), np.nan)), flat.get("hash", np.zeros(len(first)))
    position, score = flat.get("position"), flat.get("score")
    return Entries(
        index,
        hashes.astype(np.int64),
        grade.astype(float),
        None if position is None else position.astype(np.int64),
        None if score is None else score.astype(float),
        flat.get("item_id"),
    )


def _flat(series: pd.Series[Any]) -> tuple[Ints, npt.NDArray[Any]]:
    """A column of arrays as (list index, values); a null array counts as empty."""
    arrays: list[Any] = series.tolist()
    lengths = np.fromiter((0 if a is None else len(a) for a in arrays), np.int64, len(arrays))
    full = [a for a, length in zip(arrays, lengths, strict=True) if length]
    values = np.concatenate(full) if full else np.empty(0)
    return np.repeat(np.arange(len(arrays)), lengths), values


def _ints(series: pd.Series[Any]) -> Ints:
    return np.asarray(series, dtype=np.int64)


def _no_pool() -> tuple[Ints, Floats]:
    return np.empty(0, np.int64), np.empty(0)


def _looked_up(entries: Entries, columns: Series, size: int) -> Floats:
    """Grade of each entry from the judgements (``pool_hash``, ``pool_grade`` per list), NaN where it has none."""
    index, hashes = _flat(columns["pool_hash"])
    grades = _flat(columns["pool_grade"])[1].astype(float)
    if not len(hashes):
        return np.full(len(entries.hash), np.nan)
    key = np.concatenate([hashes.astype(np.int64), entries.hash])
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
    best = np.asarray(entries.position if by_position or entries.score is None else -entries.score, float)
    grade = _worst_last(entries)
    inner, outer = (grade, best) if convention.duplicates == "best_rank" else (best, grade)
    keep = np.ones(len(best), bool)
    if items_matter and convention.duplicates != "count" and _may_repeat(entries.list, entries.hash):
        keep = _firsts(entries.list, entries.hash, (inner, outer))
    kept = entries.take(keep) if not keep.all() else entries
    if by_position and _may_repeat(kept.list, np.asarray(kept.position)):
        kept = kept.take(_firsts(kept.list, np.asarray(kept.position), (kept.hash, _worst_last(kept))))
    lost = np.bincount(entries.list, minlength=size) - np.bincount(kept.list, minlength=size)
    return kept, lost


def _worst_last(entries: Entries) -> Floats:
    """Sort key: highest grade first, unjudged last."""
    return np.where(np.isnan(entries.grade), np.inf, -entries.grade)


def _may_repeat(index: Ints, key: Ints) -> bool:
    """Whether a (list, key) pair may occur twice: a cheap look before the exact one; never misses a repeat."""
    mixed = np.sort(key.astype(np.uint64) + index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return bool((mixed[1:] == mixed[:-1]).any())


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
    ranked = entries.take(np.lexsort((entries.position, entries.list)))
    return ranked, np.zeros(len(ranked.list), bool)


def _by_score(entries: Entries, convention: Convention) -> tuple[Entries, npt.NDArray[np.bool_]]:
    """Score descending, equal scores by the convention's rule; which entries are tied."""
    assert entries.score is not None
    order = np.lexsort((-entries.score, entries.list))
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
    key = _TIE_KEYS[convention.ties](ranked.take(where))
    settled = np.arange(len(order))
    settled[where] = where[np.lexsort((key, group[where]))]
    return ranked.take(settled), tied


def _item_order(entries: Entries) -> npt.NDArray[Any]:
    """Order of the item ids as UTF-8 text, which is how trec_eval and Spark compare them."""
    if entries.item is None:
        return entries.hash
    # Python compares by code point, and UTF-8 keeps that order.
    return np.unique(entries.item.astype(str), return_inverse=True)[1]


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
