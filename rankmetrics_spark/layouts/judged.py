"""Judged items of a list: which grade they give the shown items, and what is judged but was not shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankmetrics_spark.layouts.lists import Arrays, Assembled, Entries, flat, ints, numbers
from rankmetrics_spark.metrics import Batch, Convention, Floats, Ints, Lists
from rankmetrics_spark.schemas import POOL_GRADE, POOL_HASH


def with_judgements(lists: Assembled, columns: Arrays, convention: Convention) -> Batch:
    """The batch with its judged items; without judgements, those are the shown items with a grade.

    With ``duplicates: count`` a judged item that was shown c times is c items, in the list and among the judged ones,
    so that no metric can exceed 1.

    Args:
        lists: From a layout's ``unpack``.
        columns: ``_pool_grade`` and, where repeats count, ``_pool_hash``: an array per list.
        convention: Whether repeats count.
    """
    batch = lists.batch
    if POOL_GRADE not in columns:
        known = ~np.isnan(batch.grade)
        return replace(batch, pool_list=batch.list[known], pool_grade=batch.grade[known])
    pool_list, values = flat(columns[POOL_GRADE])
    grades = numbers(values, np.float64)
    if convention.duplicates == "count" and POOL_HASH in columns and lists.hash is not None and len(grades):
        times = np.maximum(_times_shown(pool_list, ints(flat(columns[POOL_HASH])[1]), batch.list, lists.hash), 1)
        pool_list, grades = np.repeat(pool_list, times), np.repeat(grades, times)
    return replace(batch, pool_list=pool_list, pool_grade=grades)


def looked_up(entries: Entries, columns: Arrays) -> Floats:
    """(e,) grade of each entry from the judgements (``_pool_hash``, ``_pool_grade`` per list); NaN = not judged."""
    index, judged_hash = flat(columns[POOL_HASH])
    grades = numbers(flat(columns[POOL_GRADE])[1], np.float64)
    if not len(grades):
        return np.full(len(entries.hash), np.nan)
    judged, wanted = _pair_codes(index, ints(judged_hash), entries.list, entries.hash)
    order = np.argsort(judged, kind="stable")
    at = np.minimum(np.searchsorted(judged[order], wanted), len(judged) - 1)
    return np.where(judged[order][at] == wanted, grades[order][at], np.nan)


def n_unknown(batch: Batch, convention: Convention) -> Ints:
    """(n,) relevant items shown beyond the m that the judgements hold: the list and the judgements contradict.

    >>> from rankmetrics_spark.metrics import one_list
    >>> n_unknown(one_list([1, 1, 0], pool=[1]).batch, Convention()).tolist()
    [1]
    """
    lists = Lists(batch, convention)
    hits = np.bincount(lists.found.list, lists.relevant, minlength=batch.size).astype(np.int64)
    return np.asarray(np.maximum(hits - lists.m, 0))


def n_graded(batch: Batch) -> Ints:
    """(n,) shown and judged items with a grade above 0 that is not 1: clicks have none.

    >>> from rankmetrics_spark.metrics import one_list
    >>> n_graded(one_list([1, 3, 0], pool=[1, 0.5]).batch).tolist()
    [2]
    """
    found = np.zeros(batch.size, np.int64)
    for group, grade in ((batch.list, batch.grade), (batch.pool_list, batch.pool_grade)):
        found += np.bincount(group[(grade > 0) & (grade != 1)], minlength=batch.size)
    return found


def _times_shown(pool_list: Ints, pool_hash: Ints, list: Ints, hash: Ints) -> Ints:
    """(p,) how often each judged item of a list was shown in it."""
    if not len(hash):
        return np.zeros(len(pool_list), np.int64)
    judged, shown = _pair_codes(pool_list, pool_hash, list, hash)
    keys, counts = np.unique(shown, return_counts=True)
    at = np.minimum(np.searchsorted(keys, judged), len(keys) - 1)
    return np.asarray(np.where(keys[at] == judged, counts[at], 0), np.int64)


def _pair_codes(list_a: Ints, hash_a: Ints, list_b: Ints, hash_b: Ints) -> tuple[Ints, Ints]:
    """One whole number per (list, hash) pair, the same for equal pairs of both sides."""
    codes = np.unique(np.concatenate([hash_a, hash_b]), return_inverse=True)[1].astype(np.int64)
    span = int(codes.max(initial=0)) + 1
    return list_a * span + codes[: len(hash_a)], list_b * span + codes[len(hash_a) :]
