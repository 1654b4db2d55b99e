"""Valid impressions -> one row per ranked list: the only shuffle of raw rows.

Three forms of the same thing, each giving the same values to the last bit:

* ``masks``: ranks up to 63 and small whole grades become bits of a few 64-bit integers. Nothing is collected, so the
  aggregation runs in generated code with a fixed-width buffer.
* ``relevant``: only relevant rows are collected; a row that is not relevant leaves nothing but its count.
* ``rows``: every row is collected: ranking by score, looking relevance up in judgements, metrics that need every item.

The first two see each list through cheap aggregates and *flag* a list that they cannot vouch for (a repeated rank, a
relevant item that may be repeated, a rank or grade that does not fit); flagged lists are collected ``again``: their
relevant rows, and every row where even the ranks are *doubtful*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from rankmetrics_spark.schemas import (
    DOUBTFUL,
    ENTRIES,
    FLAGGED,
    HASH,
    ITEM,
    N_ROWS,
    POSITION,
    REJECTED,
    RELEVANCE,
    SCORE,
    Columns,
    quoted,
)

MASK_RANKS = 63
PLANES = 3
"""Bit planes of the masks form: grades up to 2**PLANES - 1 fit."""

_WORDS = 20
"""Words of the test for repeated relevant items: each item sets one bit in each word, so without a repeat some word
is likely to hold as many bits as there are items. A repeat lowers every word; it can never go unseen. Where 4 of 50
items are relevant one list in 1.5 million is looked at again in vain (with ten words one in 30,000), where 1 is none
to speak of."""
_WORDS_OF_A_HASH = 10


@dataclass(frozen=True)
class _Plan:
    """How a form sees a list: SQL by the name of its column.

    Attributes:
        kept: Aggregates that Python reads.
        seen: Aggregates that only ``doubts`` read.
        doubts: Conditions on the aggregates.
    """

    kept: dict[str, str]
    seen: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)


def lists(rows: DataFrame, columns: Columns, form: str, items_matter: bool) -> DataFrame:
    """Group validated rows by list in the given form; faulty rows form groups of their own (``rejected`` not null)."""
    plan = _FORMS[form](columns, items_matter)
    # Segments are the smallest value of the list's rows.
    kept = plan.kept | {quoted(name): f"min({quoted(name)})" for name in columns.segments}
    hashed = rows.selectExpr("*", f"{_item_hash(form, columns, items_matter)} AS {HASH}")
    everything = ", ".join(f"{sql} AS {name}" for name, sql in (kept | plan.seen).items())
    keys = (*map(quoted, columns.keys), REJECTED)
    grouped = hashed.groupBy(*keys).agg(F.expr(f"struct({everything}) AS told"))
    found = grouped.selectExpr(*keys, "told.*")
    # Null for faulty rows, which are neither flagged nor not.
    doubts = (f"CASE WHEN {REJECTED} IS NULL THEN coalesce({sql}, true) END AS {x}" for x, sql in plan.doubts.items())
    return found.selectExpr(*keys, *kept, *doubts)


def together(table: DataFrame) -> DataFrame:
    """The same table behind a projection that keeps Spark from pruning columns below it.

    Two branches of one query that read different columns of an aggregate would otherwise get two different
    aggregates, and the input would be read twice; with the same columns Spark shares the exchange.
    """
    return table.select(F.expr("inline(array(struct(*)))"))


def only(rows: DataFrame, keys: DataFrame, columns: Columns) -> DataFrame:
    """The valid rows of the lists in ``keys``, a row per list, with what else it says of them.

    Broadcast, so that adaptive execution sees an empty ``keys`` before it starts the scan, and never starts it.
    """
    return rows.where(F.col(REJECTED).isNull()).join(F.broadcast(keys), list(columns.keys))


def repeated(rows: DataFrame, columns: Columns, rank_by: str, keep: str) -> DataFrame:
    """Every valid row that loses its place to another of its list: a repeated item, then a repeated rank.

    Of several rows with one item the one with the highest grade stays, then the one with the best rank (``keep`` =
    "best_rank" turns these two about, "count" lets all stay); of several rows at one rank, the highest grade, then the
    smallest item hash.
    """
    grade = F.col(RELEVANCE).desc_nulls_last() if columns.relevance else F.lit(0)
    best = F.col(POSITION) if rank_by == POSITION else F.col(SCORE).desc()
    order = [best, grade] if keep == "best_rank" else [grade, best]
    keys = [*map(quoted, columns.keys)]
    first = Window.partitionBy(*keys, ITEM).orderBy(*order) if columns.item and keep != "count" else None
    found = rows.withColumn("again", F.row_number().over(first) > 1 if first else F.lit(False))
    if rank_by != POSITION:
        return found.where("again").withColumn("reason", F.lit("duplicate_item")).drop("again")
    item = F.xxhash64(ITEM) if columns.item else F.lit(0)
    place = Window.partitionBy(*keys, "again", POSITION).orderBy(grade, item)
    reason = F.when(F.col("again"), "duplicate_item").when(F.row_number().over(place) > 1, "repeated_position")
    return found.withColumn("reason", reason).where(F.col("reason").isNotNull()).drop("again")


def _item_hash(form: str, columns: Columns, items_matter: bool) -> str:
    if not columns.item or not (items_matter or not columns.relevance):
        return "0L"
    # Text is dear to hash.
    return f"xxhash64({ITEM})" if form == "rows" else f"CASE WHEN {_kept(form)} THEN xxhash64({ITEM}) END"


def _kept(form: str) -> str:
    """Which rows a form looks at one by one."""
    return f"{DOUBTFUL} OR {RELEVANCE} > 0" if form == "again" else f"{RELEVANCE} > 0"


# SQL text, because one text costs the driver one call and an expression tree dozens.
_BIT = f"CASE WHEN {POSITION} BETWEEN 1 AND {MASK_RANKS} THEN shiftleft(1L, int({POSITION}) - 1) END"
_COUNT = {N_ROWS: "count(1)"}
_SEEN = {
    "top": f"max({POSITION})",
    "shown": f"bit_or({_BIT})",
    # A faulty rank can be large enough for the sum of two to overflow.
    "ranks": f"sum(CASE WHEN {REJECTED} IS NULL THEN {POSITION} END)",
    "mixed": f"bit_xor({POSITION})",
    "squares": f"sum(double({POSITION}) * {POSITION})",
}
_MIXED = f"CASE {N_ROWS} % 4 WHEN 0 THEN {N_ROWS} WHEN 1 THEN 1 WHEN 2 THEN {N_ROWS} + 1 ELSE 0 END"
# A list that is exactly 1..n has this sum, xor and sum of squares; the last is exact in a double up to 200,000.
_COMPLETE = (
    f"top = {N_ROWS} AND ranks = {N_ROWS} * ({N_ROWS} + 1) / 2 AND mixed = {_MIXED} "
    f"AND ({N_ROWS} > 200000 OR squares = double({N_ROWS}) * ({N_ROWS} + 1) * (2 * {N_ROWS} + 1) / 6)"
)
_IN_MASK = f"top <= {MASK_RANKS} AND bit_count(shown) = {N_ROWS}"
_DOUBTFUL = f"NOT (({_IN_MASK}) OR ({_COMPLETE}))"
"""Whether a rank may be there twice."""


# Spares Spark from touching the buffers of these aggregates for all other rows.
_IF_RELEVANT = f"FILTER (WHERE {_kept('masks')})"


def _bit(word: int) -> str:
    """The bit that an item sets in a word: six bits of its hash, or of the hash of that."""
    hashed = HASH if word < _WORDS_OF_A_HASH else f"xxhash64({HASH})"
    return f"shiftleft(1L, int(shiftright({hashed}, {6 * (word % _WORDS_OF_A_HASH)}) & 63))"


def _masks(columns: Columns, items_matter: bool) -> _Plan:
    planes = {
        f"plane_{b}": f"bit_or(CASE WHEN {RELEVANCE} & {1 << b} != 0 THEN {_BIT} END) {_IF_RELEVANT}"
        for b in range(PLANES)
    }
    seen = _SEEN | {"steepest": f"max({RELEVANCE})"}
    sound = f"{_IN_MASK} AND coalesce(steepest, 0) < {2**PLANES}"
    if columns.item and items_matter:
        words = {f"word_{j}": f"bit_or({_bit(j)}) {_IF_RELEVANT}" for j in range(_WORDS)}
        seen |= {"hits": f"count({HASH})"} | words
        bits = f"greatest({', '.join(f'bit_count({word})' for word in words)})"
        sound += f" AND (hits = 0 OR {bits} = hits)"
    return _Plan(_COUNT | planes, seen, {FLAGGED: f"NOT ({sound})", DOUBTFUL: _DOUBTFUL})


def _relevant(columns: Columns, items_matter: bool) -> _Plan:
    entries = _entries(columns, items_matter, "relevant")
    return _Plan(_COUNT | entries, _SEEN, {FLAGGED: _DOUBTFUL, DOUBTFUL: _DOUBTFUL})


def _again(columns: Columns, items_matter: bool) -> _Plan:
    return _Plan(_COUNT | _entries(columns, items_matter, "again") | {DOUBTFUL: f"max({DOUBTFUL})"})


def _entries(columns: Columns, items_matter: bool, form: str) -> dict[str, str]:
    names = [POSITION, HASH] if columns.item and items_matter else [POSITION]
    entry = f"struct({', '.join(names)}, double({RELEVANCE}) AS {RELEVANCE})"
    return {ENTRIES: f"collect_list({entry}) FILTER (WHERE {REJECTED} IS NULL AND ({_kept(form)}))"}


def _rows(columns: Columns, items_matter: bool) -> _Plan:
    has = [name for name in (POSITION, SCORE) if getattr(columns, name)]
    text = [ITEM] if columns.score and columns.item else []
    relevance = [f"double({RELEVANCE}) AS {RELEVANCE}"] if columns.relevance else []
    entry = f"struct({', '.join([*has, HASH, *text, *relevance])})"
    return _Plan(_COUNT | {ENTRIES: f"collect_list({entry}) FILTER (WHERE {REJECTED} IS NULL)"})


_FORMS: dict[str, Callable[[Columns, bool], _Plan]] = {
    "masks": _masks,
    "relevant": _relevant,
    "rows": _rows,
    "again": _again,
}
FORMS = ("masks", "relevant", "rows")
