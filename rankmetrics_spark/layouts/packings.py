"""The ways in which a list travels.

* ``Masks``: the relevant rows as bits of a few 64-bit integers. Bit r - 1 of plane b is bit b of the grade at rank r.
  Ranks up to 63 and whole grades up to 7 fit; nothing is collected, so the aggregation keeps a buffer of fixed width.
* ``Relevant``: the relevant rows as an array of structs, and a count of the other rows. With ``recheck`` it computes
  the lists that a layout has flagged: it also reads every row of a list in which a rank may repeat.
* ``Rows``: every row as an array of structs. For ranking by score, relevance that is looked up in the judgements, and
  metrics and conventions that read every row.
* ``Numbers``: parallel arrays of numbers, for an engine that reads a log once per branch. With ``whole`` it flags no
  list: if a rank may repeat, Python reads every row. Without, it holds the relevant rows only, which takes half the
  time. The values and the counts are those of the other layouts.

``Masks`` and ``Relevant`` search for repeats in a few fixed-width aggregates, so that the aggregation stays in
generated code. The search may be wrong in one direction only: a list without a repeat may be flagged, and is then
checked row by row.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from rankmetrics_spark import metrics as mx, schemas as sch
from rankmetrics_spark.layouts import lists as li, scores

COUNT_ROWS = {sch.N_ROWS: "count(1)"}
NO_HASH = "0L"
#: Condition of a row that carries relevance or gain.
RELEVANT = f"{sch.RELEVANCE} > 0"
#: Ranks that have a bit of their own in a 64-bit integer.
MASK_RANKS = 63
#: The bit of a row's rank; null for a rank that has none.
RANK_BIT = f"CASE WHEN {sch.POSITION} BETWEEN 1 AND {MASK_RANKS} THEN shiftleft(1L, int({sch.POSITION}) - 1) END"


def item_hash(needed: bool, condition: str = "") -> str:
    """SQL for the hash of the item id; hashing strings is expensive, so only for the rows where it is read.

    >>> item_hash(True, "relevance > 0"), item_hash(False)
    ('CASE WHEN relevance > 0 THEN xxhash64(item_id) END', '0L')
    """
    if not needed:
        return NO_HASH
    return f"CASE WHEN {condition} THEN xxhash64({sch.ITEM}) END" if condition else f"xxhash64({sch.ITEM})"


def entry(*columns: str) -> str:
    """SQL for one row of a list as a struct."""
    return f"struct({', '.join(columns)})"


# ---- items

#: Sets of 128 bits, in two 64-bit words each, of the search for repeated relevant items.
SETS = 12
_SETS_OF_A_HASH = 9
_N_RELEVANT_ROWS = "_relevant_rows"


def item_words(relevant: str) -> dict[str, str]:
    """Aggregates of the search: each relevant row sets one bit in each of ``SETS`` sets, chosen by its item's hash.

    ``relevant`` is the condition of a relevant row; the FILTER keeps Spark from touching the buffers for others.
    """
    words = {
        f"_word_{j}_{half}": f"bit_or(shiftleft(1L, int({_piece(j, 0, 63)})))"
        f" FILTER (WHERE {relevant} AND {_piece(j, 6, 1)} = {half})"
        for j in range(SETS)
        for half in (0, 1)
    }
    return {_N_RELEVANT_ROWS: f"count({sch.HASH})"} | words


def no_item_repeats() -> str:
    """Condition: some set has as many bits as there are relevant rows, so all their items differ.

    A repeat takes a bit from every set, so it is never missed. Without a repeat, a list of n relevant items is flagged
    if no set tells them all apart: one does with probability 128/128 * 127/128 * ... (the birthday problem), and sets
    are independent. Averaged over lists of 50 items of which 8 % are relevant, that is one list in 22 million.
    """
    sizes = (" + ".join(f"coalesce(bit_count(_word_{j}_{half}), 0)" for half in (0, 1)) for j in range(SETS))
    return f"({_N_RELEVANT_ROWS} = 0 OR greatest({', '.join(sizes)}) = {_N_RELEVANT_ROWS})"


def _piece(index: int, shift: int, mask: int) -> str:
    """Of the seven bits of its hash, or of the hash of that hash, that choose an item's place in a set, some."""
    hash_sql = sch.HASH if index < _SETS_OF_A_HASH else f"xxhash64({sch.HASH})"
    return f"(shiftright({hash_sql}, {7 * (index % _SETS_OF_A_HASH) + shift}) & {mask})"


# ---- ranks

RANK_AGGREGATES = {
    sch.TOP: f"max({sch.POSITION})",
    "_ranks": f"bit_or({RANK_BIT})",
    "_fingerprint": f"bit_xor(xxhash64({sch.POSITION}))",
}
#: Longer lists are always flagged, because their fingerprint takes a loop over 1..n.
LONGEST = 100_000
DISTINCT_MASK_RANKS = f"{sch.TOP} <= {MASK_RANKS} AND bit_count(_ranks) = {sch.N_ROWS}"
# If the hashes of n ranks up to n have the same exclusive or as those of 1..n, the ranks are 1..n: every rank must
# occur an odd number of times. Another list passes only if 64-bit hashes collide, which is one list in 2**64.
_IS_1_TO_N = (
    f"{sch.TOP} = {sch.N_ROWS} AND {sch.N_ROWS} <= {LONGEST} AND "
    f"_fingerprint = aggregate(sequence(1L, {sch.N_ROWS}), 0L, (hash, rank) -> hash ^ xxhash64(rank))"
)
#: Condition on ``RANK_AGGREGATES``: the ranks are neither distinct ranks up to ``MASK_RANKS`` nor 1..n.
RANK_MAY_REPEAT_SQL = f"NOT (({DISTINCT_MASK_RANKS}) OR ({_IS_1_TO_N}))"


# ---- layouts

PLANES = 3
LARGEST_MASKED_GRADE = 2**PLANES - 1
PLANE_COLUMNS = tuple(f"_plane_{b}" for b in range(PLANES))
#: Aggregates: the ranks whose grade has bit b. The FILTER keeps Spark from touching the buffers for other rows.
_PLANES = {
    plane: f"bit_or(CASE WHEN {sch.RELEVANCE} & {1 << b} != 0 THEN {RANK_BIT} END) FILTER (WHERE {RELEVANT})"
    for b, plane in enumerate(PLANE_COLUMNS)
}


@dataclass(frozen=True)
class Masks:
    """Relevant rows as bits of integers; see the module for what fits.

    Attributes:
        payload: Without nulls: pandas would turn a column with a null into doubles and lose bits above 2**53.
    """

    name: ClassVar[str] = "masks"
    all_rows_seen: ClassVar[str] = "false"
    arrays: ClassVar[bool] = False
    payload: ClassVar[tuple[str, ...]] = tuple(f"coalesce({plane}, 0L) AS {plane}" for plane in PLANE_COLUMNS)

    def pack(self, columns: sch.Columns, repeats: bool) -> li.Packing:
        """SQL from the rows of a list to its planes; flags lists that do not fit, or in which an item may repeat."""
        evidence = RANK_AGGREGATES | {"_steepest": f"max({sch.RELEVANCE})"}
        sound = f"{DISTINCT_MASK_RANKS} AND coalesce(_steepest, 0) <= {LARGEST_MASKED_GRADE}"
        if columns.item and repeats:
            evidence |= item_words(RELEVANT)
            sound += f" AND {no_item_repeats()}"
        flags = {sch.FLAGGED: f"NOT ({sound})", sch.RANK_MAY_REPEAT: RANK_MAY_REPEAT_SQL}
        return li.Packing(item_hash(columns.item and repeats, RELEVANT), COUNT_ROWS | _PLANES, evidence, flags)

    def unpack(self, columns: li.Arrays, reading: li.Reading) -> li.RankedLists:
        """The lists of a batch: columns ``_rows`` and one (n,) array of integers per plane."""
        sizes = li.ints(columns[sch.N_ROWS])
        planes = np.stack([li.ints(columns[plane]) for plane in PLANE_COLUMNS])
        bits = np.unpackbits(np.bitwise_or.reduce(planes, axis=0).astype("<i8").view(np.uint8), bitorder="little")
        row, column = np.divmod(np.flatnonzero(bits.view(np.bool_)), 64)
        grade = sum((planes[b][row] >> column & 1) << b for b in range(PLANES))
        batch = mx.Batch(len(sizes), row, column + 1, np.asarray(grade, float), sizes, *li.no_pool())
        none = np.zeros(len(sizes), np.int64)
        return li.RankedLists(batch, none, none)


_GRADE = {sch.RELEVANCE: f"double({sch.RELEVANCE})"}

#: SQL: the entries of a list without rows.
NO_ENTRIES = f"cast(array() AS array<struct<{sch.POSITION}: bigint, {sch.HASH}: bigint, {sch.RELEVANCE}: double>>)"


@dataclass(frozen=True)
class Relevant:
    """Relevant rows one by one; see the module.

    Attributes:
        recheck: Compute flagged lists; their rows have a column ``_rank_may_repeat``.
    """

    recheck: bool = False
    name: ClassVar[str] = "relevant"
    arrays: ClassVar[bool] = True
    payload: ClassVar[tuple[str, ...]] = (sch.ENTRIES,)

    @property
    def all_rows_seen(self) -> str:
        """SQL: whether every row of a list is among the entries."""
        return sch.RANK_MAY_REPEAT if self.recheck else "false"

    def pack(self, columns: sch.Columns, repeats: bool) -> li.Packing:
        """SQL from the rows of a list to its entries; flags lists in which a rank may repeat."""
        condition = f"{sch.RANK_MAY_REPEAT} OR {RELEVANT}" if self.recheck else RELEVANT
        with_item = columns.item and repeats
        row = {sch.POSITION: sch.POSITION, **({sch.HASH: sch.HASH} if with_item else {}), **_GRADE}
        hash_sql = item_hash(with_item, condition)
        if self.recheck:
            aggregates = {sch.RANK_MAY_REPEAT: f"max({sch.RANK_MAY_REPEAT})"}
            return li.Packing.of_entries(hash_sql, row, condition, aggregates=aggregates)
        flags = dict.fromkeys((sch.FLAGGED, sch.RANK_MAY_REPEAT), RANK_MAY_REPEAT_SQL)
        return li.Packing.of_entries(hash_sql, row, condition, evidence=RANK_AGGREGATES, flags=flags)

    def unpack(self, columns: li.Arrays, reading: li.Reading) -> li.RankedLists:
        """The lists of a batch: ``_rows``, and ``_entries`` of ``position``, ``relevance`` and perhaps ``_hash``."""
        return _ranked_lists(li.entries_of(columns), li.ints(columns[sch.N_ROWS]), reading)


def _ranked_lists(
    entries: li.Entries, sizes: mx.Ints, reading: li.Reading, all_rows_seen: mx.Bools | None = None
) -> li.RankedLists:
    """Lists of these sizes with given ranks, from some of their rows."""
    rows, n_repeated = li.without_repeats(entries, len(sizes), reading)
    rows = li.by_position(rows)
    rank = np.asarray(rows.position, np.int64)
    batch = mx.Batch(len(sizes), rows.list, rank, rows.grade, sizes - n_repeated, *li.no_pool())
    n_tied = np.zeros(len(sizes), np.int64)
    return li.RankedLists(batch, n_repeated, n_tied, rows.hash if reading.repeats else None, all_rows_seen)


def with_tie_groups(batch: mx.Batch, ranked: li.Entries, convention: mx.Convention) -> mx.Batch:
    """Add the first and last rank of each entry's group of equal scores, if the convention averages over ties."""
    if not convention.averages_ties or ranked.score is None:
        return batch
    starts = mx.pair_starts(batch.list, ranked.ranked_by)
    group = np.cumsum(starts) - 1
    first_rank = batch.rank[starts]
    size = np.bincount(group) if len(group) else np.empty(0, np.int64)
    return replace(batch, tie_first=first_rank[group], tie_last=(first_rank + size - 1)[group])


@dataclass(frozen=True)
class Rows:
    """Every row of a list; see the module for who needs them."""

    name: ClassVar[str] = "rows"
    all_rows_seen: ClassVar[str] = "true"
    arrays: ClassVar[bool] = True
    payload: ClassVar[tuple[str, ...]] = (sch.ENTRIES,)

    def pack(self, columns: sch.Columns, repeats: bool) -> li.Packing:
        """SQL from the rows of a list to its entries; it flags no list."""
        names = [name for name in (sch.POSITION, sch.SCORE) if getattr(columns, name)]
        # Tied scores are ordered by the item id itself, and so are items that add as many intents to a list.
        names += [sch.HASH, *[sch.ITEM] * ((columns.score or columns.item_text) and columns.item)]
        row = {name: name for name in names} | (_GRADE if columns.relevance else {})
        row |= {sch.INTENTS: sch.INTENTS} if columns.intents == "shown" else {}
        looked_up = not columns.relevance or columns.intents == "judged"
        is_hashed = columns.item and (repeats or looked_up or columns.list_hash is not None)
        return li.Packing.of_entries(item_hash(is_hashed), row)

    def unpack(self, columns: li.Arrays, reading: li.Reading) -> li.RankedLists:
        """The lists of a batch: ``_entries``, and the judged items where the entries have no ``relevance``."""
        size = len(columns[sch.ENTRIES])
        entries = li.entries_of(columns)
        if entries.score is not None and reading.convention.score_precision == 32:
            entries = replace(entries, score=entries.score.astype(np.float32).astype(float), exact=None)
        if sch.RELEVANCE not in li.field_names(columns):
            entries = replace(entries, grade=scores.judged_grades(entries, columns))
        rows, n_repeated = li.without_repeats(entries, size, reading)
        sizes = np.bincount(rows.list, minlength=size)
        if reading.by_position:
            ranked, n_tied = li.by_position(rows), np.zeros(size, np.int64)
            rank = np.asarray(ranked.position, np.int64)
        else:
            order, is_tied = li.by_score(rows, reading.convention)
            n_tied = np.bincount(rows.list[is_tied], minlength=size)
            at = np.flatnonzero(rows.grade[order] > 0) if reading.only_relevant else np.arange(len(order))
            ranked = rows.take(order[at])
            rank = at - (np.cumsum(sizes) - sizes)[ranked.list] + 1
        batch = mx.Batch(size, ranked.list, rank, ranked.grade, sizes, *li.no_pool(), score=ranked.score)
        batch = with_tie_groups(batch, ranked, reading.convention)
        hashes = ranked.hash if reading.repeats else None
        list_hash = scores.hashed_lists(entries, size, reading) if reading.hashed_to else None
        intents = scores.entry_intents(ranked, columns)
        ranked_by = None if ranked.score is None else ranked.ranked_by
        return li.RankedLists(batch, n_repeated, n_tied, hashes, None, intents, list_hash, ranked_by)


RANKS, GRADES, HASHES = "_ranks_of_rows", "_grades_of_rows", "_hashes_of_rows"
_LOW = 2**32 - 1
#: The bit of each rank; ranks above the last one share its bit.
_RANK_BITS = np.left_shift(1, np.maximum(np.arange(MASK_RANKS + 1, dtype=np.int64) - 1, 0))


@dataclass(frozen=True)
class Numbers:
    """Rows as numbers; see the module.

    Attributes:
        small: Grades are whole numbers of 32 bits, so that rank and grade share one number. Otherwise, a rank below 0
            marks a row with a grade of its own: the others have 0, or none if judged.
        hashed: Whether the hashes of the items travel.
        whole: Every row travels, and not only the relevant ones.
        judged: Whether a row without a grade differs from one that is not relevant.
    """

    small: bool
    hashed: bool
    whole: bool = True
    judged: bool = False
    arrays: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """How the run record calls it."""
        return "whole" if self.whole else "relevant"

    @property
    def all_rows_seen(self) -> str | None:
        """Python returns it if every row travels."""
        return None if self.whole else "false"

    @property
    def payload(self) -> tuple[str, ...]:
        """The arrays, of equal lengths: a sound row has a rank, a grade and an item."""
        return (RANKS, *([] if self.small else [GRADES]), *([HASHES] if self.hashed else []))

    def pack(self, columns: sch.Columns, repeats: bool) -> li.Packing:
        """SQL from the sound rows of a list to its arrays; flags lists whose ranks may repeat, unless whole."""
        condition = "" if self.whole else RELEVANT
        own_grade = condition or f"{sch.RELEVANCE} {'IS NOT NULL' if self.judged else '<> 0'}"
        grade = f"CASE WHEN {own_grade} THEN double({sch.RELEVANCE}) END"
        if self.small:
            rank = f"shiftleft({sch.POSITION}, 32) | ({sch.RELEVANCE} & {_LOW}L)"
        else:
            rank = f"int(CASE WHEN {own_grade} THEN -{sch.POSITION} ELSE {sch.POSITION} END)"
        rank = f"CASE WHEN {condition} THEN {rank} END" if condition else rank
        arrays = {name: f"collect_list({sql})" for name, sql in ((RANKS, rank), (GRADES, grade), (HASHES, sch.HASH))}
        collected = COUNT_ROWS | {name: arrays[name] for name in self.payload}
        packing = li.Packing(item_hash(self.hashed, condition), collected)
        if self.whole:
            return packing
        evidence = {name: RANK_AGGREGATES[name] for name in (sch.TOP, "_ranks")}
        return replace(packing, evidence=evidence, flags={sch.FLAGGED: f"NOT ({DISTINCT_MASK_RANKS})"})

    def unpack(self, columns: li.Arrays, reading: li.Reading) -> li.RankedLists:
        """The lists of a batch: ``_rows`` and the arrays."""
        sizes = li.ints(columns[sch.N_ROWS])
        grades: mx.Array
        if self.small:
            halves = li.ints(columns[RANKS].flatten()).view("<i4")
            grades, ranks = halves[0::2], halves[1::2]
        else:
            signed = li.numbers(columns[RANKS].flatten(), np.int32)
            grades, ranks = np.full(len(signed), np.nan if self.judged else 0.0), np.abs(signed)
            grades[signed < 0] = li.numbers(columns[GRADES].flatten(), np.float64)
        if self.whole:
            lengths, may_repeat = sizes, rank_may_repeat(ranks, sizes)
            mask = grades > 0
            if may_repeat.any():
                mask |= np.repeat(may_repeat, sizes)
            at = np.flatnonzero(mask)
        else:
            lengths, may_repeat = li.ints(pc.list_value_length(columns[RANKS])), None
            at = np.arange(len(ranks))
        hashes = li.ints(columns[HASHES].flatten())[at] if self.hashed else np.zeros(len(at), np.int64)
        index = np.searchsorted(np.cumsum(lengths), at, "right")
        entries = li.Entries(index, hashes, grades[at].astype(np.float64), ranks[at].astype(np.int64))
        return _ranked_lists(entries, sizes, reading, may_repeat)


@dataclass(frozen=True)
class Stored:
    """Lists as an earlier run has scored and stored them: without repeats, and with the ranks that their order gave.

    Attributes:
        stored: Its arrays; see ``Scoring.stored_arrays``.
        list_hash: The column with the hash of the items of a list, if there is one.
        looks_up: Whether their grades are looked up in the judgements once more.
    """

    stored: tuple[str, ...] = ()
    list_hash: str = ""
    looks_up: bool = False
    name: ClassVar[str] = "stored"
    all_rows_seen: ClassVar[str] = "false"
    arrays: ClassVar[bool] = True

    @property
    def payload(self) -> tuple[str, ...]:
        """The counts and arrays of a stored list."""
        return (sch.N_SHOWN, sch.N_REPEATED, sch.N_TIED, *self.stored, *filter(None, [self.list_hash]))

    def pack(self, columns: sch.Columns, repeats: bool) -> li.Packing:
        """Nothing: the rows are not read again."""
        return li.Packing(NO_HASH, COUNT_ROWS)

    def unpack(self, columns: li.Arrays, reading: li.Reading) -> li.RankedLists:
        """The lists of a batch, as they were."""
        sizes, n_repeated, n_tied = (li.ints(columns[name]) for name in self.payload[:3])
        index, ranks = li.flat(columns[sch.RANKS])
        grades = li.numbers(columns[sch.GRADES].flatten(), np.float64)
        of = {name: columns[name].flatten() for name in self.stored}
        hashes = li.ints(of[sch.ITEM_HASHES]) if sch.ITEM_HASHES in of else None
        items = np.zeros(len(index), np.int64) if hashes is None else hashes
        if hashes is not None and self.looks_up:
            grades = scores.judged_grades(li.Entries(index, hashes, grades), columns)
        score = exact = None
        if sch.SCORES in of:
            score = li.numbers(of[sch.SCORES], np.float64)
            exact = np.cumsum(li.ints(of[sch.TIED_ABOVE]) == 0)
        # Places stand for the texts of items: they have the same order.
        places, own, row = of.get(sch.ITEM_PLACES), of.get(sch.INTENTS), np.arange(len(index))
        entries = li.Entries(index, items, grades, None, score, exact, row, places, own)
        batch = mx.Batch(len(sizes), index, li.ints(ranks), grades, sizes, *li.no_pool(), score=score)
        batch = with_tie_groups(batch, entries, reading.convention)
        list_hash = li.ints(columns[self.list_hash]) if self.list_hash else None
        ranked_by = None if score is None else entries.ranked_by
        intents = None if places is None else scores.entry_intents(entries, columns)
        return li.RankedLists(batch, n_repeated, n_tied, hashes, None, intents, list_hash, ranked_by)


def rank_may_repeat(ranks: npt.NDArray[np.signedinteger[Any]], rows: mx.Ints) -> mx.Bools:
    """(n,) whether a rank of a list may repeat: its ranks are neither distinct ranks up to 63 nor 1..L.

    The same condition as ``RANK_MAY_REPEAT_SQL``.

    >>> rank_may_repeat(np.array([2, 1, 3, 3, 64]), np.array([2, 2, 1])).tolist()
    [False, True, True]
    """
    mask = np.zeros(len(rows), bool)
    lists = np.flatnonzero(rows)
    if not len(lists):
        return mask
    counts, starts = rows[lists], (np.cumsum(rows) - rows)[lists]
    gaps = ranks[1:] - ranks[:-1] != 1
    gaps[starts[1:] - 1] = False
    if not gaps.any() and (ranks[starts] == 1).all():
        # Most logs are written list by list, from the top.
        return mask
    top = np.maximum.reduceat(ranks, starts)
    bits = np.bitwise_or.reduceat(_RANK_BITS.take(ranks, mode="clip"), starts)
    octets = np.ascontiguousarray(bits).view(np.uint8).reshape(-1, 8)
    distinct = (top <= MASK_RANKS) & (np.unpackbits(octets, axis=1).sum(axis=1, dtype=np.int64) == counts)
    mask[lists] = ~distinct
    unsure = ~distinct & (top == counts) & (counts <= LONGEST)
    if unsure.any():
        # Of these lists, whether the sorted ranks are 1..n.
        is_unsure = np.zeros(len(rows), bool)
        is_unsure[lists[unsure]] = True
        at = np.flatnonzero(np.repeat(is_unsure, rows))
        of = np.repeat(np.arange(len(rows)), rows)[at]
        fits = ranks[at][mx.order_within(of, ranks[at].astype(np.float64))] == mx.place(of, len(rows))
        mask[lists[unsure]] = ~np.logical_and.reduceat(fits, np.flatnonzero(np.diff(of, prepend=-1)))
    return mask


#: The layouts that ``layout`` of ``evaluate`` may name.
LAYOUTS: dict[str, li.Layout] = {layout.name: layout for layout in (Masks(), Relevant(), Rows())}


def recheck_of(layout: li.Layout) -> li.Layout:
    """The layout that computes the lists that a layout flags, from their rows."""
    return replace(layout, whole=True) if isinstance(layout, Numbers) else Relevant(recheck=True)
