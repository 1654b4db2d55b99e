"""Valid impressions -> one row per ranked list: the only shuffle of raw rows.

Three forms of the same thing, each giving the same values to the last bit:

* ``masks``: ranks up to 63 and small whole grades become bits of a few 64-bit integers. Nothing is collected, so the
  aggregation runs in generated code with a fixed-width buffer.
* ``relevant``: only relevant rows are collected; a row that is not relevant leaves nothing but its count.
* ``rows``: every row is collected: ranking by score, looking relevance up in judgements, metrics that need every item.

The first two see each list through cheap aggregates and *flag* a list that they cannot vouch for (a repeated rank, a
relevant item that may be repeated, a rank or grade that does not fit); flagged lists are computed again from ``rows``.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from rankmetrics_spark.schemas import (
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
)

MASK_RANKS = 63
PLANES = 3
"""Bit planes of the masks form: grades up to 2**PLANES - 1 fit."""

_WORDS = 10
"""Words of the test for repeated relevant items: each item sets one bit in each word, so without a repeat some word
is likely to hold as many bits as there are items. A repeat lowers every word; it can never go unseen."""


def lists(rows: DataFrame, columns: Columns, form: str, items_matter: bool) -> DataFrame:
    """Group validated rows by list in the given form; faulty rows form groups of their own (``rejected`` not null)."""
    aggregates, flagged = _FORMS[form](columns, items_matter)
    hashed = rows.withColumns(_item_hash(columns, items_matter))
    grouped = (_grouped if form != "masks" or not columns.segments else _grouped_twice)(hashed, columns, aggregates)
    return grouped.withColumn(FLAGGED, F.coalesce(flagged, F.lit(False)) & F.col(REJECTED).isNull())


def together(table: DataFrame) -> DataFrame:
    """The same table behind a projection that keeps Spark from pruning columns below it.

    Two branches of one query that read different columns of an aggregate would otherwise get two different
    aggregates, and the input would be read twice; with the same columns Spark shares the exchange.
    """
    return table.select(F.inline(F.array(F.struct(*table.columns))))


def only(rows: DataFrame, keys: DataFrame, columns: Columns) -> DataFrame:
    """The valid rows of the lists in ``keys``.

    Broadcast, so that adaptive execution sees an empty ``keys`` before it starts the scan, and never starts it.
    """
    return rows.where(F.col(REJECTED).isNull()).join(F.broadcast(keys), list(columns.keys), "left_semi")


def repeated(rows: DataFrame, columns: Columns, rank_by: str, keep: str) -> DataFrame:
    """Every valid row that loses its place to another of its list: a repeated item, then a repeated rank.

    Of several rows with one item the one with the highest grade stays, then the one with the best rank (``keep`` =
    "best_rank" turns these two about); of several rows at one rank, the highest grade, then the smallest item hash.
    """
    grade = F.col(RELEVANCE).desc_nulls_last() if columns.relevance else F.lit(0)
    best = F.col(POSITION) if rank_by == POSITION else F.col(SCORE).desc()
    order = [best, grade] if keep == "best_rank" else [grade, best]
    keys = list(columns.keys)
    first = Window.partitionBy(*keys, ITEM).orderBy(*order) if columns.item else None
    found = rows.withColumn("again", F.row_number().over(first) > 1 if first else F.lit(False))
    if rank_by != POSITION:
        return found.where("again").withColumn("reason", F.lit("duplicate_item")).drop("again")
    item = F.xxhash64(ITEM) if columns.item else F.lit(0)
    place = Window.partitionBy(*keys, "again", POSITION).orderBy(grade, item)
    reason = F.when(F.col("again"), "duplicate_item").when(F.row_number().over(place) > 1, "repeated_position")
    return found.withColumn("reason", reason).where(F.col("reason").isNotNull()).drop("again")


def _item_hash(columns: Columns, items_matter: bool) -> dict[str, Column]:
    return {
        HASH: F.xxhash64(ITEM) if columns.item and (items_matter or not columns.relevance) else F.lit(0).cast("bigint")
    }


def _grouped(rows: DataFrame, columns: Columns, aggregates: dict[str, Column]) -> DataFrame:
    """Group by list. Segments are the smallest value of the list's rows."""
    keys = [*columns.keys, REJECTED]
    smallest = {name: F.min(name) for name in columns.segments}
    return rows.groupBy(*keys).agg(*(column.alias(name) for name, column in (aggregates | smallest).items()))


def _grouped_twice(rows: DataFrame, columns: Columns, aggregates: dict[str, Column]) -> DataFrame:
    """The same with the segments as keys first: a text minimum would take the raw rows out of generated code."""
    keys = [*columns.keys, REJECTED]
    parts = rows.groupBy(*keys, *columns.segments).agg(*(column.alias(name) for name, column in aggregates.items()))
    merge = dict.fromkeys((N_ROWS, "hits"), F.sum) | dict.fromkeys(("top", "steepest"), F.max)
    merged = {name: merge.get(name, F.bit_or)(name) for name in aggregates}
    return _grouped(parts, columns, merged)


def _masks(columns: Columns, items_matter: bool) -> tuple[dict[str, Column], Column]:
    bit = F.expr(f"case when {POSITION} between 1 and {MASK_RANKS} then shiftleft(1L, int({POSITION}) - 1) end")
    relevant = F.col(RELEVANCE) > 0
    planes = {
        f"plane_{b}": F.bit_or(F.when(relevant & (F.col(RELEVANCE).bitwiseAND(1 << b) != 0), bit))
        for b in range(PLANES)
    }
    seen = {N_ROWS: F.count(F.lit(1)), "top": F.max(POSITION), "shown": F.bit_or(bit), "steepest": F.max(RELEVANCE)}
    sound = (
        (F.col("top") <= MASK_RANKS)
        & (F.bit_count("shown") == F.col(N_ROWS))
        & (F.coalesce(F.col("steepest"), F.lit(0)) < 2**PLANES)
    )
    if not (columns.item and items_matter):
        return seen | planes, ~sound
    words = {
        f"word_{j}": F.bit_or(F.when(relevant, F.expr(f"shiftleft(1L, int(shiftright({HASH}, {6 * j}) & 63))")))
        for j in range(_WORDS)
    }
    hits = {"hits": F.count(F.when(relevant, 1))}
    bits = F.greatest(*(F.bit_count(word) for word in words))
    return seen | planes | hits | words, ~(sound & ((F.col("hits") == 0) | (bits == F.col("hits"))))


def _relevant(columns: Columns, items_matter: bool) -> tuple[dict[str, Column], Column]:
    entry = F.struct(POSITION, HASH, F.col(RELEVANCE).cast("double").alias(RELEVANCE))
    keep = F.col(REJECTED).isNull() & (F.col(RELEVANCE) > 0)
    bit = F.expr(f"case when {POSITION} between 1 and {MASK_RANKS} then shiftleft(1L, int({POSITION}) - 1) end")
    n, top = F.col(N_ROWS), F.col("top")
    squares = F.expr(f"sum(double({POSITION}) * {POSITION})")
    aggregates = {
        N_ROWS: F.count(F.lit(1)),
        ENTRIES: F.collect_list(F.when(keep, entry)),
        "top": F.max(POSITION),
        "shown": F.bit_or(bit),
        "ranks": F.sum(POSITION),
        "mixed": F.bit_xor(POSITION),
        "squares": squares,
    }
    mixed = F.element_at(F.array(n, F.lit(1).cast("bigint"), n + 1, F.lit(0).cast("bigint")), (n % 4 + 1).cast("int"))
    # A list that is exactly 1..n has this sum, xor and sum of squares; the last is exact in a double up to 200,000.
    complete = (
        (top == n)
        & (F.col("ranks") == n * (n + 1) / 2)
        & (F.col("mixed") == mixed)
        & ((n > 200_000) | (F.col("squares") == n.cast("double") * (n + 1) * (2 * n + 1) / 6))
    )
    return aggregates, ~(((top <= MASK_RANKS) & (F.bit_count("shown") == n)) | complete)


def _rows(columns: Columns, items_matter: bool) -> tuple[dict[str, Column], Column]:
    relevance = [F.col(RELEVANCE).cast("double").alias(RELEVANCE)] if columns.relevance else []
    has = [name for name in (POSITION, SCORE) if getattr(columns, name)]
    text = [ITEM] if columns.score and columns.item else []
    entry = F.struct(*has, HASH, *text, *relevance)
    collected = F.collect_list(F.when(F.col(REJECTED).isNull(), entry))
    return {N_ROWS: F.count(F.lit(1)), ENTRIES: collected}, F.lit(False)


_FORMS: dict[str, Callable[[Columns, bool], tuple[dict[str, Column], Column]]] = {
    "masks": _masks,
    "relevant": _relevant,
    "rows": _rows,
}
FORMS = tuple(_FORMS)
