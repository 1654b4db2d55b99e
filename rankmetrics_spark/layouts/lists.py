"""The rows of an Arrow batch as flat arrays, the ranked lists that a layout makes of them, and their scores.

This runs inside the Python workers, without a loop over lists. The judgements give shown items their grade, and add the
judged items that were not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rankmetrics_spark.metrics import (
    Batch,
    Convention,
    Floats,
    Ints,
    Lists,
    Metric,
    compute,
    has_repeat,
    m_relevant,
    mixed_codes,
    order_within,
    pair_codes,
)
from rankmetrics_spark.schemas import (
    ALL_ROWS_SEEN,
    CONVENTION_INDEX,
    ENTRIES,
    HASH,
    ITEM,
    N_GRADED,
    N_KNOWN,
    N_RELEVANT,
    N_REPEATED,
    N_SHOWN,
    N_TIED,
    N_UNKNOWN,
    POOL_GRADE,
    POOL_HASH,
    POSITION,
    RELEVANCE,
    SCORE,
    Columns,
)

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
class RankedLists:
    """The ranked lists of a batch, with counts of repeats and ties.

    Attributes:
        batch: The ranked lists, without judged items.
        n_repeated: (n,) rows set aside because they repeat an item or a rank.
        n_tied: (n,) rows that share their score with another of the list; 0 where ranks are given.
        hash: (e,) hash of the item of each entry, or None where items are not compared.
        all_rows_seen: (n,) whether the layout has read every row of the list, where Python finds that out.
    """

    batch: Batch
    n_repeated: Ints
    n_tied: Ints
    hash: Ints | None = None
    all_rows_seen: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Packing:
    """How the rows of a list become one row, as SQL text: it costs the driver one call, an expression tree dozens.

    Attributes:
        item_hash: Expression for the column ``_hash`` that the aggregates read, per row.
        aggregates: Column -> aggregate that Python reads.
        evidence: Column -> aggregate that only ``flags`` read.
        flags: Column -> condition on the aggregates; ``_flagged`` marks a list that must be computed from its rows.
    """

    item_hash: str
    aggregates: Mapping[str, str]
    evidence: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)


class Layout(Protocol):
    """One way in which a list travels; ``packings`` has them all."""

    @property
    def name(self) -> str:
        """The value of the option ``layout``."""

    @property
    def arrays(self) -> bool:
        """Whether arrays travel, and not only numbers."""

    @property
    def payload(self) -> tuple[str, ...]:
        """What ``unpack`` reads besides ``_rows``, as SQL."""

    @property
    def all_rows_seen(self) -> str | None:
        """SQL: whether the layout has read every row of a list one by one; None where ``unpack`` returns it."""

    def pack(self, columns: Columns, repeats: bool) -> Packing:
        """SQL from the rows of a list to one row; ``repeats`` says whether repeated items are looked for."""

    def unpack(self, columns: Arrays, reading: Reading) -> RankedLists:
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
        """(e,) the sort key of the scores."""
        assert self.score is not None
        return self.score if self.exact is None else self.exact.astype(np.float64)

    def take(self, index: npt.NDArray[Any]) -> Entries:
        """The entries of an index or a mask."""
        values: dict[str, Any] = dict(vars(self))
        parts = {name: value[index] for name, value in values.items() if name != "text" and value is not None}
        return Entries(**parts, text=self.text)


def entries_of(columns: Arrays) -> Entries:
    """The rows of a batch from its column ``_entries``."""
    index, values = flat(columns[ENTRIES])
    fields = {name: values.field(name) for name in field_names(columns)}
    position, score = fields.get(POSITION), fields.get(SCORE)
    is_rank = position is not None and not pa.types.is_floating(position.type)
    return Entries(
        index,
        ints(fields[HASH]) if HASH in fields else np.zeros(len(index), np.int64),
        numbers(fields[RELEVANCE], np.float64) if RELEVANCE in fields else np.full(len(index), np.nan),
        None if position is None else numbers(position, np.int64 if is_rank else np.float64),
        None if score is None else numbers(score.cast(pa.float64(), safe=False), np.float64),
        None if score is None else _exact_order(score),
        np.arange(len(index)) if ITEM in fields else None,
        fields.get(ITEM),
    )


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
    starts = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    codes = np.empty(len(order), np.int64)
    codes[order] = np.concatenate([[0], np.cumsum(starts)])[: len(order)]
    return codes


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


def without_repeats(entries: Entries, size: int, reading: Reading) -> tuple[Entries, Ints]:
    """Keep one row per item and, with ranks given, one per rank.

    Of several rows of an item the highest grade stays, then the best rank; ``duplicates: best_rank`` swaps the two
    criteria, ``count`` keeps every row. By score, the rank that breaks ties decides between rows equal in both.
    Of several rows at one rank the highest grade stays, then the smallest hash.
    """
    rule, rows = reading.convention, entries
    if reading.repeats and rule.duplicates != "count" and has_repeat(entries.list, entries.hash):
        ranked_by = entries.position if reading.by_position or entries.score is None else -entries.ranked_by
        order = [np.asarray(ranked_by, float), _highest_grade_first(entries)]
        if rule.duplicates == "best_rank":
            order.reverse()
        # The rank of the row that stays is read under ``ties: position``, so it may not be that of the first row.
        breaks_ties = [] if reading.by_position or entries.position is None else [entries.position]
        rows = entries.take(_firsts(entries.list, entries.hash, [*breaks_ties, *order]))
    if reading.by_position and has_repeat(rows.list, np.asarray(rows.position)):
        rows = rows.take(_firsts(rows.list, np.asarray(rows.position), (rows.hash, _highest_grade_first(rows))))
    if rows is entries:
        return entries, np.zeros(size, np.int64)
    return rows, np.bincount(entries.list, minlength=size) - np.bincount(rows.list, minlength=size)


def by_position(entries: Entries) -> Entries:
    """The rows of each list in the order of their ranks."""
    assert entries.position is not None
    return entries.take(order_within(entries.list, entries.position.astype(float)))


def by_score(entries: Entries, convention: Convention) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Indices of the rows of each list by descending score, equal scores by the rule; a mask of the tied ones."""
    scores = entries.ranked_by
    order = order_within(entries.list, -scores)
    # Rows move within their list only, so row i is still of list[i].
    key = scores[order]
    equals, tied = key[1:] == key[:-1], np.zeros(len(order), bool)
    if equals.any():
        equals &= entries.list[1:] == entries.list[:-1]
        tied[1:] |= equals
        tied[:-1] |= equals
    if not tied.any():
        return order, tied
    group = np.cumsum(np.concatenate([[True], ~equals])[: len(order)])
    at = np.flatnonzero(tied)
    rows = entries.take(order[at])
    # If the rule does not order two rows, as for a repeated item, the grade does; never the order of the input.
    tie_order = np.lexsort((_highest_grade_first(rows), _TIE_KEYS[convention.ties](rows), group[at]))
    order[at] = order[at][tie_order]
    return order, tied


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
    # The lists of a batch share most of their items, so fewer texts are sorted than there are rows.
    items = entries.text.take(pa.array(entries.row)).dictionary_encode()
    place = np.empty(len(items.dictionary), np.int64)
    place[pc.array_sort_indices(items.dictionary).to_numpy()] = np.arange(len(place))
    return np.asarray(place[items.indices.to_numpy()])


def _position_order(entries: Entries) -> npt.NDArray[Any]:
    """Order by rank, missing ranks last; equal ranks by descending item id.

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


# ---- scores


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
        judged_hash = ints(flat(columns[POOL_HASH])[1])
        judged_codes, shown_codes = pair_codes(pool_list, judged_hash, batch.list, lists.hash)
        times = np.ones(len(grades), np.int64)
        if len(shown_codes):
            keys, counts = np.unique(shown_codes, return_counts=True)
            at = np.minimum(np.searchsorted(keys, judged_codes), len(keys) - 1)
            times = np.where(keys[at] == judged_codes, counts[at], 1)
        pool_list, grades = np.repeat(pool_list, times), np.repeat(grades, times)
    return replace(batch, pool_list=pool_list, pool_grade=grades)


def judged_grades(entries: Entries, columns: Arrays) -> Floats:
    """(e,) grade of each entry from the judgements (``_pool_hash``, ``_pool_grade`` per list); NaN = not judged."""
    index, hashes = flat(columns[POOL_HASH])
    grades, judged_hash = numbers(flat(columns[POOL_GRADE])[1], np.float64), ints(hashes)
    if not len(grades):
        return np.full(len(entries.hash), np.nan)
    judged_codes, shown_codes = mixed_codes(index, judged_hash), mixed_codes(entries.list, entries.hash)
    if len(pc.unique(pa.array(judged_codes))) < len(judged_codes):
        judged_codes, shown_codes = pair_codes(index, judged_hash, entries.list, entries.hash)
    at = ints(pc.index_in(pa.array(shown_codes), value_set=pa.array(judged_codes)).fill_null(0))
    is_judged = (judged_hash[at] == entries.hash) & (index[at] == entries.list)
    return np.where(is_judged, grades[at], np.nan)


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

    @property
    def every_grade(self) -> bool:
        """Whether an item that is judged and not relevant differs from an unjudged one."""
        removes = any(rule.unjudged == "removed" for rule in self.conventions)
        return removes or any(metric.needs == "judged" for metric in self.metrics)

    def reading(self, rule: Convention) -> Reading:
        """How the rows are read under one of the conventions."""
        relevant = all(metric.needs == "relevant" for metric in self.metrics)
        return Reading(rule, self.repeats, self.by_position, relevant and not self.judged and not rule.averages_ties)


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
