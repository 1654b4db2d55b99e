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

Aggregates = dict[str, str]
Doubts = dict[str, str]
"""Column name to SQL."""

MASK_RANKS = 63
PLANES = 3
"""Bit planes of the masks form: grades up to 2**PLANES - 1 fit."""

_WORDS = 10
"""Words of the test for repeated relevant items: each item sets one bit in each word, so without a repeat some word
is likely to hold as many bits as there are items. A repeat lowers every word; it can never go unseen. Six bits a word
are what one hash has for ten. One list in 25,000 is looked at again in vain where 4 of 50 items are relevant, none to
speak of where 1 is; twice as many words make each row dearer and spare a large log nothing."""


def lists(rows: DataFrame, columns: Columns, form: str, items_matter: bool) -> DataFrame:
    """Group validated rows by list in the given form; faulty rows form groups of their own (``rejected`` not null)."""
    aggregates, doubts = _FORMS[form](columns, items_matter)
    # Segments are the smallest value of the list's rows.
    aggregates |= {quoted(name): f"min({quoted(name)})" for name in columns.segments}
    hashed = rows.selectExpr("*", f"{_item_hash(form, columns, items_matter)} AS {HASH}")
    everything = ", ".join(f"{sql} AS {name}" for name, sql in aggregates.items())
    grouped = hashed.groupBy(*map(quoted, columns.keys), REJECTED).agg(F.expr(f"struct({everything}) AS told"))
    keys = (*map(quoted, columns.keys), REJECTED)
    found = grouped.selectExpr(*keys, *(f"told.{name}" for name in aggregates))
    # Null for faulty rows, which are neither flagged nor not.
    told = (f"CASE WHEN {REJECTED} IS NULL THEN coalesce({sql}, true) END AS {name}" for name, sql in doubts.items())
    return found.selectExpr("*", *told) if doubts else found


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
_SEEN = {
    N_ROWS: "count(1)",
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


def _masks(columns: Columns, items_matter: bool) -> tuple[Aggregates, Doubts]:
    planes = {
        f"plane_{b}": f"bit_or(CASE WHEN {RELEVANCE} > 0 AND {RELEVANCE} & {1 << b} != 0 THEN {_BIT} END)"
        for b in range(PLANES)
    }
    seen = _SEEN | planes | {"steepest": f"max({RELEVANCE})"}
    sound = f"{_IN_MASK} AND coalesce(steepest, 0) < {2**PLANES}"
    if columns.item and items_matter:
        words = {f"word_{j}": f"bit_or(shiftleft(1L, int(shiftright({HASH}, {6 * j}) & 63)))" for j in range(_WORDS)}
        seen |= {"hits": f"count({HASH})"} | words
        bits = f"greatest({', '.join(f'bit_count({word})' for word in words)})"
        sound += f" AND (hits = 0 OR {bits} = hits)"
    return seen, {FLAGGED: f"NOT ({sound})", DOUBTFUL: _DOUBTFUL}


def _relevant(columns: Columns, items_matter: bool) -> tuple[Aggregates, Doubts]:
    aggregates, _ = _again(columns, items_matter, "relevant")
    return _SEEN | aggregates, {FLAGGED: _DOUBTFUL, DOUBTFUL: _DOUBTFUL}


def _again(columns: Columns, items_matter: bool, form: str = "again") -> tuple[Aggregates, Doubts]:
    names = [POSITION, HASH] if columns.item and items_matter else [POSITION]
    entry = f"struct({', '.join(names)}, double({RELEVANCE}) AS {RELEVANCE})"
    entries = f"collect_list(CASE WHEN {REJECTED} IS NULL AND ({_kept(form)}) THEN {entry} END)"
    return {N_ROWS: "count(1)", ENTRIES: entries} | ({DOUBTFUL: f"max({DOUBTFUL})"} if form == "again" else {}), {}


def _rows(columns: Columns, items_matter: bool) -> tuple[Aggregates, Doubts]:
    has = [name for name in (POSITION, SCORE) if getattr(columns, name)]
    text = [ITEM] if columns.score and columns.item else []
    relevance = [f"double({RELEVANCE}) AS {RELEVANCE}"] if columns.relevance else []
    entry = f"struct({', '.join([*has, HASH, *text, *relevance])})"
    collected = f"collect_list(CASE WHEN {REJECTED} IS NULL THEN {entry} END)"
    return {N_ROWS: "count(1)", ENTRIES: collected}, {}


_FORMS: dict[str, Callable[[Columns, bool], tuple[Aggregates, Doubts]]] = {
    "masks": _masks,
    "relevant": _relevant,
    "rows": _rows,
    "again": _again,
}
FORMS = ("masks", "relevant", "rows")
