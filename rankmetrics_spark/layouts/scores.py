"""One batch of packed lists -> the values of each metric under each convention. This runs inside the Python workers.

The judgements give shown items their grade, and add the judged items that were not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.layouts.lists import Arrays, Entries, Layout, RankedLists, Reading, flat, ints, numbers
from rankmetrics_spark.metrics import Batch, Convention, Floats, Ints, Lists, Metric, compute, m_relevant
from rankmetrics_spark.schemas import (
    ALL_ROWS_SEEN,
    CONVENTION_INDEX,
    N_GRADED,
    N_KNOWN,
    N_RELEVANT,
    N_REPEATED,
    N_SHOWN,
    N_TIED,
    N_UNKNOWN,
    POOL_GRADE,
    POOL_HASH,
)


def with_judgements(lists: RankedLists, columns: Arrays, convention: Convention) -> Batch:
    """The batch with its judged items; without judgements, those are the shown items with a grade.

    With ``duplicates: count`` a judged item that was shown c times is c items, in the list and among the judged ones,
    so that no metric can exceed 1.
    """
    batch = lists.batch
    if POOL_GRADE not in columns:
        is_judged = ~np.isnan(batch.grade)
        return replace(batch, pool_list=batch.list[is_judged], pool_grade=batch.grade[is_judged])
    pool_list, values = flat(columns[POOL_GRADE])
    grades = numbers(values, np.float64)
    if convention.duplicates == "count" and POOL_HASH in columns and lists.hash is not None and len(grades):
        times = np.maximum(_n_shown(pool_list, ints(flat(columns[POOL_HASH])[1]), batch.list, lists.hash), 1)
        pool_list, grades = np.repeat(pool_list, times), np.repeat(grades, times)
    return replace(batch, pool_list=pool_list, pool_grade=grades)


def judged_grades(entries: Entries, columns: Arrays) -> Floats:
    """(e,) grade of each entry from the judgements (``_pool_hash``, ``_pool_grade`` per list); NaN = not judged."""
    index, judged_hash = flat(columns[POOL_HASH])
    grades = numbers(flat(columns[POOL_GRADE])[1], np.float64)
    if not len(grades):
        return np.full(len(entries.hash), np.nan)
    judged_codes, shown_codes = _pair_codes(index, ints(judged_hash), entries.list, entries.hash)
    order = np.argsort(judged_codes, kind="stable")
    at = np.minimum(np.searchsorted(judged_codes[order], shown_codes), len(judged_codes) - 1)
    return np.where(judged_codes[order][at] == shown_codes, grades[order][at], np.nan)


def n_unknown(batch: Batch, convention: Convention) -> Ints:
    """(n,) relevant items shown beyond the m of the judgements: the list and the judgements contradict each other.

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
    counts = np.zeros(batch.size, np.int64)
    for group, grade in ((batch.list, batch.grade), (batch.pool_list, batch.pool_grade)):
        counts += np.bincount(group[(grade > 0) & (grade != 1)], minlength=batch.size)
    return counts


def _n_shown(pool_list: Ints, pool_hash: Ints, list: Ints, hash: Ints) -> Ints:
    """(p,) how often each judged item of a list was shown in it."""
    if not len(hash):
        return np.zeros(len(pool_list), np.int64)
    judged_codes, shown_codes = _pair_codes(pool_list, pool_hash, list, hash)
    keys, counts = np.unique(shown_codes, return_counts=True)
    at = np.minimum(np.searchsorted(keys, judged_codes), len(keys) - 1)
    return np.asarray(np.where(keys[at] == judged_codes, counts[at], 0), np.int64)


def _pair_codes(list_a: Ints, hash_a: Ints, list_b: Ints, hash_b: Ints) -> tuple[Ints, Ints]:
    """One whole number per (list, hash) pair, the same for equal pairs of both sides."""
    codes = np.unique(np.concatenate([hash_a, hash_b]), return_inverse=True)[1].astype(np.int64)
    span = int(codes.max(initial=0)) + 1
    return list_a * span + codes[: len(hash_a)], list_b * span + codes[len(hash_a) :]


COUNTS = (N_SHOWN, N_RELEVANT, N_REPEATED, N_TIED, N_UNKNOWN, N_KNOWN, N_GRADED)


@dataclass(frozen=True)
class Scoring:
    """What is computed for each list.

    Attributes:
        metrics: The metrics, each with its cut-off.
        conventions: Each reads the same rows its own way; the scored lists have a row for each.
        by_position: Whether ranks are given; otherwise lists are ranked by score.
        repeats: Whether repeated items are looked for.
        judged: Whether judgements are given.
    """

    metrics: tuple[Metric, ...]
    conventions: tuple[Convention, ...]
    by_position: bool = True
    repeats: bool = True
    judged: bool = False

    def reading(self, rule: Convention) -> Reading:
        """How the rows are read under one of the conventions."""
        only_relevant = (
            all(metric.needs == "relevant" for metric in self.metrics) and not self.judged and not rule.averages_ties
        )
        return Reading(rule, self.repeats, self.by_position, only_relevant)


def score_batch(columns: Arrays, layout: Layout, scoring: Scoring) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
    """Score n lists under each convention."""
    lists_by_order: dict[tuple[object, ...], RankedLists] = {}
    for index, rule in enumerate(scoring.conventions):
        order = (rule.ties, rule.score_precision, rule.duplicates, rule.averages_ties)
        if order not in lists_by_order:
            lists_by_order[order] = layout.unpack(columns, scoring.reading(rule))
        values = _score(lists_by_order[order], columns, rule, scoring)
        yield {CONVENTION_INDEX: np.full(lists_by_order[order].batch.size, index, np.int32), **values}


def _score(lists: RankedLists, columns: Arrays, rule: Convention, scoring: Scoring) -> dict[str, npt.NDArray[Any]]:
    batch = with_judgements(lists, columns, rule)
    n_beyond = n_unknown(batch, rule) if scoring.judged else np.zeros(batch.size)
    n_known = np.bincount(batch.list, ~np.isnan(batch.grade), minlength=batch.size) if scoring.judged else n_beyond
    flags = {} if lists.all_rows_seen is None else {ALL_ROWS_SEEN: lists.all_rows_seen}
    counts = (batch.shown, m_relevant(batch, rule), lists.n_repeated, lists.n_tied, n_beyond, n_known, n_graded(batch))
    count_columns = {name: np.asarray(count, np.int64) for name, count in zip(COUNTS, counts, strict=True)}
    values = compute(batch, scoring.metrics, rule).T
    return flags | count_columns | dict(zip((metric.column for metric in scoring.metrics), values, strict=True))
