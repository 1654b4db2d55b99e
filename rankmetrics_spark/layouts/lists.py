"""The rows of an Arrow batch as flat arrays, and the ranked lists that a layout makes of them.

This runs inside the Python workers, without a loop over lists.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankmetrics_spark import metrics as mx, schemas as sch

#: Columns of an Arrow batch, a row per list: name to an (n,) array; ``_entries`` holds an array of structs per list.
Arrays: TypeAlias = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Reading:
    """How the rows of a list are read.

    Attributes:
        convention: Which of repeated rows stays, and how tied scores are ordered.
        repeats: Whether repeated items are looked for.
        by_position: Whether ranks are given; otherwise lists are ranked by score.
        only_relevant: Whether rows without a gain may be left out once the order is known.
        hashed_to: Rank down to which the items of a list are hashed; 0 = none.
    """

    convention: mx.Convention
    repeats: bool = True
    by_position: bool = True
    only_relevant: bool = False
    hashed_to: int = 0


@dataclass(frozen=True)
class RankedLists:
    """The ranked lists of a batch, with counts of repeats and ties.

    Attributes:
        batch: The ranked lists, without judged items.
        n_repeated: (n,) rows set aside because they repeat an item or a rank.
        n_tied: (n,) rows that share their score with another of the list; 0 where ranks are given.
        hash: (e,) hash of the item of each entry, or None where items are not compared.
        all_rows_seen: (n,) whether the layout has read every row of the list, where Python finds that out.
        intents: The intents of the entries, if a metric reads them.
        list_hash: (n,) hash of the items of the list, where it is asked for.
        ranked_by: (e,) sort key of the scores, where every row has one.
    """

    batch: mx.Batch
    n_repeated: mx.Ints
    n_tied: mx.Ints
    hash: mx.Ints | None = None
    all_rows_seen: mx.Bools | None = None
    intents: "EntryIntents | None" = None
    list_hash: mx.Ints | None = None
    ranked_by: mx.Floats | None = None


@dataclass(frozen=True)
class EntryIntents:
    """The intents of ranked entries, flat: one element per (entry, intent); an entry may have one twice.

    Attributes:
        entry: (c,) index of the entry, non-decreasing.
        hash: (c,) hash of the intent.
        grade: (c,) the grade that the entry has for this intent; NaN = unjudged.
        order: (e,) sorts the entries by list, and within a list by item id, the highest one first.
    """

    entry: mx.Ints
    hash: mx.Ints
    grade: mx.Floats
    order: mx.Ints


@dataclass(frozen=True)
class Packing:
    """How the rows of a list become one row, as SQL text: it costs the driver one call, an expression tree dozens.

    Attributes:
        item_hash: Expression for the column ``_hash`` that the aggregates read, per row.
        aggregates: Column -> aggregate that Python reads.
        evidence: Column -> aggregate that only ``flags`` read.
        flags: Column -> condition on the aggregates; ``_flagged`` marks a list that must be computed from its rows.
        entry: Field -> its SQL over a row, of the rows that travel one by one.
        condition: Of these rows; empty for all.
    """

    item_hash: str
    aggregates: Mapping[str, str]
    evidence: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    entry: Mapping[str, str] = field(default_factory=dict)
    condition: str = ""

    @classmethod
    def of_entries(cls, item_hash: str, entry: Mapping[str, str], condition: str = "", **more: Any) -> "Packing":
        """Rows that travel one by one, and their number, with ``more`` aggregates, evidence or flags."""
        row = ", ".join(sql if sql == name else f"{sql} AS {name}" for name, sql in entry.items())
        chosen = f" AND ({condition})" if condition else ""
        entries = f"collect_list(struct({row})) FILTER (WHERE {sch.REJECTED} IS NULL{chosen})"
        aggregates = {sch.N_ROWS: "count(1)", sch.ENTRIES: entries, **more.pop("aggregates", {})}
        return cls(item_hash, aggregates, entry=entry, condition=condition, **more)


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

    def pack(self, columns: sch.Columns, repeats: bool) -> Packing:
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
        row: (e,) index of the row in ``text`` and ``intents``; few rows need the text of their item.
        text: Item ids of all rows of the batch, as they came.
        intents: Hashes of the intents of all rows of the batch, an array for each row.
    """

    list: mx.Ints
    hash: mx.Ints
    grade: mx.Floats
    position: mx.Ints | mx.Floats | None = None
    score: mx.Floats | None = None
    exact: mx.Ints | None = None
    row: mx.Ints | None = None
    text: pa.Array | None = None
    intents: pa.Array | None = None

    @property
    def ranked_by(self) -> mx.Floats:
        """(e,) the sort key of the scores."""
        assert self.score is not None
        return self.score if self.exact is None else self.exact.astype(np.float64)

    def take(self, index: mx.Array) -> "Entries":
        """The entries of an index or a mask."""
        values: dict[str, Any] = dict(vars(self))
        of_batch = {name: values.pop(name) for name in ("text", "intents")}
        return Entries(**{name: value[index] for name, value in values.items() if value is not None}, **of_batch)

    def own_intents(self) -> tuple[mx.Ints, mx.Ints]:
        """Entry and hash, of each intent in the entries' own column."""
        if self.intents is None or self.row is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        at, values = flat(self.intents.take(pa.array(self.row)))
        return at, ints(values)

    def tie_breakers(self) -> Sequence[mx.Ints]:
        """Sort keys that tell rows apart which are equal in grade, rank and item, if their intents differ."""
        if self.intents is None:
            return []
        at, hashes = self.own_intents()
        digest = np.zeros(len(self.list), np.int64)
        # Sums wrap around, and have no order.
        np.add.at(digest, at, hashes)
        return [digest]


def entries_of(columns: Arrays) -> Entries:
    """The rows of a batch from its column ``_entries``."""
    index, values = flat(columns[sch.ENTRIES])
    fields = {name: values.field(name) for name in field_names(columns)}
    position, score = fields.get(sch.POSITION), fields.get(sch.SCORE)
    is_rank = position is not None and not pa.types.is_floating(position.type)
    return Entries(
        index,
        ints(fields[sch.HASH]) if sch.HASH in fields else np.zeros(len(index), np.int64),
        numbers(fields[sch.RELEVANCE], np.float64) if sch.RELEVANCE in fields else np.full(len(index), np.nan),
        None if position is None else numbers(position, np.int64 if is_rank else np.float64),
        None if score is None else numbers(score.cast(pa.float64(), safe=False), np.float64),
        None if score is None else _exact_order(score),
        np.arange(len(index)) if sch.ITEM in fields or sch.INTENTS in fields else None,
        fields.get(sch.ITEM),
        fields.get(sch.INTENTS),
    )


def _exact_order(scores: pa.Array) -> mx.Ints | None:
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
    return {field.name for field in columns[sch.ENTRIES].type.value_type}


def flat(lists: pa.Array) -> tuple[mx.Ints, pa.Array]:
    """An array of arrays as (list index, values); a null array counts as empty."""
    lengths = numbers(pc.list_value_length(lists).fill_null(0), np.int64)
    return np.repeat(np.arange(len(lists)), lengths), lists.flatten()


def stored_arrays(lists: RankedLists, only_relevant: bool, names: Collection[str]) -> dict[str, pa.Array]:
    """These arrays of each list as it was scored, whatever its layout; see ``packings.Stored``."""
    batch = lists.batch
    at = np.flatnonzero(batch.grade > 0) if only_relevant else np.arange(len(batch.grade))
    ends = pa.array(np.searchsorted(batch.list[at], np.arange(batch.size + 1)).astype(np.int32))
    values: dict[str, mx.Array] = {sch.RANKS: batch.rank.astype(np.int32), sch.GRADES: batch.grade}
    if lists.hash is not None:
        values[sch.ITEM_HASHES] = lists.hash
    if batch.score is not None and lists.ranked_by is not None:
        starts = mx.pair_starts(batch.list, lists.ranked_by)
        above = np.arange(len(starts)) - np.flatnonzero(starts)[np.cumsum(starts) - 1]
        values |= {sch.SCORES: batch.score, sch.TIED_ABOVE: above.astype(np.int32)}
    if lists.intents is not None:
        of_list = np.cumsum(np.bincount(batch.list, minlength=batch.size))[batch.list]
        values[sch.ITEM_PLACES] = (of_list - lists.intents.order).astype(np.int32)
    arrays = {name: pa.array(each[at], from_pandas=True) for name, each in values.items()}
    if lists.intents is not None:
        starts = np.searchsorted(lists.intents.entry, np.arange(len(batch.list) + 1)).astype(np.int32)
        arrays[sch.INTENTS] = pa.ListArray.from_arrays(pa.array(starts), pa.array(lists.intents.hash))
    return {name: pa.ListArray.from_arrays(ends, arrays[name]) for name in names}


def numbers(array: pa.Array, kind: type[Any]) -> mx.Array:
    """An Arrow array as NumPy; null becomes NaN."""
    return np.asarray(array.to_numpy(zero_copy_only=False)).astype(kind, copy=False)


def ints(array: pa.Array) -> mx.Ints:
    """An Arrow array of whole numbers as NumPy."""
    return numbers(array, np.int64)


def without_repeats(entries: Entries, size: int, reading: Reading) -> tuple[Entries, mx.Ints]:
    """Keep one row per item and, with ranks given, one per rank.

    Of several rows of an item the highest grade stays, then the best rank; ``duplicates: best_rank`` swaps the two
    criteria, ``count`` keeps every row. By score, the rank that breaks ties decides between rows equal in both.
    Of several rows at one rank the highest grade stays, then the smallest hash.
    """
    rule, rows = reading.convention, entries
    if reading.repeats and rule.duplicates != "count" and mx.has_repeat(entries.list, entries.hash):
        ranked_by = entries.position if reading.by_position or entries.score is None else -entries.ranked_by
        order = [np.asarray(ranked_by, float), _highest_grade_first(entries)]
        if rule.duplicates == "best_rank":
            order.reverse()
        # The rank of the row that stays is read under ``ties: position``, so it may not be that of the first row.
        breaks_ties = [] if reading.by_position or entries.position is None else [entries.position]
        rows = entries.take(_firsts(entries.list, entries.hash, [*entries.tie_breakers(), *breaks_ties, *order]))
    if reading.by_position and mx.has_repeat(rows.list, np.asarray(rows.position)):
        keys = (*rows.tie_breakers(), rows.hash, _highest_grade_first(rows))
        rows = rows.take(_firsts(rows.list, np.asarray(rows.position), keys))
    if rows is entries:
        return entries, np.zeros(size, np.int64)
    return rows, np.bincount(entries.list, minlength=size) - np.bincount(rows.list, minlength=size)


def by_position(entries: Entries) -> Entries:
    """The rows of each list in the order of their ranks."""
    assert entries.position is not None
    return entries.take(mx.order_within(entries.list, entries.position.astype(float)))


def by_score(entries: Entries, convention: mx.Convention) -> tuple[mx.Ints, mx.Bools]:
    """Indices of the rows of each list by descending score, equal scores by the rule; a mask of the tied ones."""
    scores = entries.ranked_by
    order = mx.order_within(entries.list, -scores)
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
    rows, group = entries.take(order[at]), group[at]
    tie_key = _TIE_KEYS[convention.ties](rows)
    smallest, largest = (int(tie_key.min()), int(tie_key.max())) if tie_key.dtype.kind == "i" else (0, _LARGEST)
    width = largest - smallest + 1
    if width * (int(group[-1]) + 1) < _LARGEST:
        # One whole number per group and key is sorted faster than two columns.
        codes = group * width + (tie_key - smallest)
        by = np.argsort(codes)
        if (np.diff(codes[by]) > 0).all():
            order[at] = order[at][by]
            return order, tied
    # If the rule does not order two rows, as for a repeated item, the grade does; never the order of the input.
    others = [] if rows.intents is None else [*rows.tie_breakers(), -item_order(rows)]
    order[at] = order[at][np.lexsort((*others, _highest_grade_first(rows), tie_key, group))]
    return order, tied


_LARGEST = 2**62


def _highest_grade_first(entries: Entries) -> mx.Floats:
    """Sort key: highest grade first, unjudged last."""
    return np.where(np.isnan(entries.grade), np.inf, -entries.grade)


def _firsts(index: mx.Ints, key: mx.Ints, order: Sequence[mx.Array]) -> mx.Bools:
    """Mask of the first row of each (list, key) by ``order`` (last array first, as in lexsort)."""
    by = np.lexsort((*order, key, index))
    mask = np.empty(len(by), bool)
    mask[by] = mx.pair_starts(index[by], key[by])
    return mask


def item_order(entries: Entries) -> mx.Array:
    """Order of the item ids as UTF-8 text, which is how trec_eval and Spark compare them."""
    if entries.text is None or entries.row is None:
        return entries.hash
    # The lists of a batch share most of their items, so fewer texts are sorted than there are rows.
    items = entries.text.take(pa.array(entries.row)).dictionary_encode()
    place = np.empty(len(items.dictionary), np.int64)
    place[pc.array_sort_indices(items.dictionary).to_numpy()] = np.arange(len(place))
    return np.asarray(place[items.indices.to_numpy()])


def _position_order(entries: Entries) -> mx.Array:
    """Order by rank, missing ranks last; equal ranks by descending item id.

    Rows of one item at one rank are equal.
    """
    item = np.unique(-item_order(entries), return_inverse=True)[1].astype(np.int64)
    if entries.position is None:
        return item
    rank = np.unique(entries.position, return_inverse=True)[1].astype(np.int64)
    return np.asarray(rank * (item.max(initial=0) + 1) + item)


_TIE_KEYS: dict[str, Callable[[Entries], mx.Array]] = {
    "item_desc": lambda entries: -item_order(entries),
    "item_asc": item_order,
    "position": _position_order,
    "expected": lambda entries: -item_order(entries),
    "best": _highest_grade_first,
    "worst": lambda entries: -_highest_grade_first(entries),
}


def no_pool() -> tuple[mx.Ints, mx.Floats]:
    """The judged items of a batch that has none yet."""
    return np.empty(0, np.int64), np.empty(0)
