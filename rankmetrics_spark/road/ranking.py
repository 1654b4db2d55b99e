"""Typed rows -> one row per ranked list: the only shuffle of raw rows."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window, functions as F

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.engines import REAL, engine_of, few_rows
from rankmetrics_spark.layouts import LARGEST_MASKED_GRADE, LAYOUTS, MASK_RANKS, Layout, Numbers, Packing
from rankmetrics_spark.road.checking import checked_rows
from rankmetrics_spark.road.plan import Plan

#: Rows of the log that the choice of a layout reads.
HEAD = 20_000
_REPEATS_ITEM = "_repeats_item"
_TEXT = "_text"
#: Share of lists with a repeated rank beyond which a second read costs more: a log that does not name its sessions.
_FLAGGED = 0.25
#: With more relevant items in a list, the search for repeats flags one list in a thousand that has none.
_FEW_RELEVANT = 8
#: Most users that a query names.
MOST_NAMED = 1_000


def packed(rows: DataFrame, columns: sch.Columns, layout: Layout, repeats: bool) -> DataFrame:
    """Group typed rows by list, in the given layout; equal faulty rows form groups of their own."""
    packing, keys = layout.pack(columns, repeats), (*columns.keys, sch.REJECTED)
    flag = f"CASE WHEN {sch.REJECTED} IS NULL THEN coalesce({{}}, true) END AS {{}}"
    flags = (flag.format(condition, name) for name, condition in packing.flags.items())
    return _grouped(rows, columns, packing, keys).selectExpr(*keys, *_aggregates(packing, columns), *flags)


def packed_sound(rows: DataFrame, columns: sch.Columns, layout: Layout, repeats: bool) -> DataFrame:
    """As ``packed``, but without the groups of faulty rows: on Sail, a struct as a key doubles the time of a pass."""
    packing, sound = layout.pack(columns, repeats), rows.where(f"{sch.REJECTED} IS NULL")
    flags = (f"coalesce({condition}, true) AS {name}" for name, condition in packing.flags.items())
    grouped = _grouped(sound, columns, packing, columns.keys)
    return grouped.selectExpr(*columns.keys, f"string(null) AS {sch.REJECTED}", *_aggregates(packing, columns), *flags)


def faulty_groups(rows: DataFrame, columns: sch.Columns) -> DataFrame:
    """Groups of equal faulty rows: the keys, ``_rows`` and ``_rejected``."""
    groups = rows.where(sch.IS_FAULTY).groupBy(*columns.keys, sch.REJECTED)
    return groups.agg(F.expr(f"count(1) AS {sch.N_ROWS}")).selectExpr(*columns.keys, sch.N_ROWS, sch.REJECTED)


def _aggregates(packing: Packing, columns: sch.Columns) -> dict[str, str]:
    """Aggregates that Python reads: the layout's, the last rank, and those of segments, covariate, cluster and trigger.

    The segment of a list is the smallest of its rows' values; ``_mixed`` is whether these differ. A covariate or
    a cluster on which rows differ is unknown.
    """
    aggregates = {**packing.aggregates, **described(columns)}
    if columns.relevance:
        aggregates[sch.N_NEGATIVE] = f"count_if({sch.RELEVANCE} < 0)"
    return aggregates if columns.by_score else aggregates | {sch.TOP: f"max({sch.POSITION})"}


def described(columns: sch.Columns) -> dict[str, str]:
    """Aggregates of segments, covariate, cluster and trigger, over the rows of a list."""
    names = columns.segment_columns
    aggregates = {name: f"min({name})" for name in names}
    if columns.covariate:
        aggregates[sch.COVARIATE] = sch.only_value(sch.COVARIATE)
    if columns.cluster:
        aggregates[sch.CLUSTER_OF_USER] = sch.only_value(sch.CLUSTER_OF_USER)
    if columns.trigger:
        aggregates[sch.TRIGGERED] = f"max({sch.TRIGGERED})"
    aggregates |= {name: f"min({name})" for name in columns.timed}
    if names:
        differ = (f"NOT (min({name}) <=> max({name})) OR count({name}) NOT IN (0, count(1))" for name in names)
        aggregates[sch.MIXED] = " OR ".join(differ)
    return aggregates


def _grouped(rows: DataFrame, columns: sch.Columns, packing: Packing, keys: Sequence[str]) -> DataFrame:
    hashed = rows.selectExpr("*", f"{packing.item_hash} AS {sch.HASH}")
    columns_sql = {**_aggregates(packing, columns), **packing.evidence}
    aggregates = ", ".join(f"{sql} AS {name}" for name, sql in columns_sql.items())
    return hashed.groupBy(*keys).agg(F.expr(f"struct({aggregates}) AS aggregates")).selectExpr(*keys, "aggregates.*")


def share_exchange(table: DataFrame, key: str = "") -> DataFrame:
    """Keep Spark from pruning columns below this table, so that two branches of a query share one exchange.

    Branches that read different columns of an aggregate get two different aggregates, and read the input twice. With
    ``key``, Spark still knows that the exchange has parted the table by this column.
    """
    names = ", ".join("_key" if name == key else name for name in table.columns)
    return table.selectExpr(*filter(None, [key]), f"inline(array(struct(*))) AS ({names})")


def named_users(rows: DataFrame, lists: DataFrame) -> DataFrame:
    """The rows of the users of some lists if these are few, else all: a small query reads who they are.

    An engine then reads files only where the statistics of a column of users allow these names.
    """
    users = few_rows(lists.select(sch.USER).distinct().limit(MOST_NAMED + 1))
    return rows if len(users) > MOST_NAMED else rows.where(F.col(sch.USER).isin([user for (user,) in users]))


def rows_of(rows: DataFrame, lists: DataFrame, columns: sch.Columns) -> DataFrame:
    """The sound rows of some lists, with the other columns of ``lists``.

    ``lists`` is broadcast: if it is empty, adaptive execution does not read the rows again.
    """
    sound = rows.where(f"{sch.REJECTED} IS NULL")
    if engine_of(rows.sparkSession) == "sail":
        return sound.join(F.broadcast(lists), list(columns.keys))
    # By <=>, since the filters on null that = implies would keep Spark from reading an exchange of the rows again.
    named = F.broadcast(lists.withColumnsRenamed({name: f"_of{name}" for name in columns.keys}))
    same = F.expr(" AND ".join(f"{name} <=> _of{name}" for name in columns.keys))
    return sound.join(named, same).drop(*(f"_of{name}" for name in columns.keys))


def with_judged_grades(rows: DataFrame, pools: DataFrame) -> DataFrame:
    """The rows with the grade that the judgements give their item as ``relevance``; null = not judged."""
    grade = f"get({sch.POOL_GRADE}, int(array_position({sch.POOL_HASH}, xxhash64({sch.ITEM})) - 1))"
    return rows.join(pools, sch.USER, "left").selectExpr(*rows.columns, f"{grade} AS {sch.RELEVANCE}")


def with_text(rows: DataFrame, columns: sch.Columns) -> DataFrame:
    """The rows with their numbers as they came: of rows that are equal otherwise, -0.0 is listed before 0.0."""
    names = [name for name, exists in ((sch.RELEVANCE, columns.relevance), (sch.SCORE, columns.score)) if exists]
    return rows.withColumn(_TEXT, F.concat_ws(" ", *(F.col(f"{sch.RAW}.{name}") for name in names)))


def repeated_rows(rows: DataFrame, columns: sch.Columns, by_position: bool, keep: str) -> DataFrame:
    """The rows that are set aside because they repeat an item of their list, or else a rank; with the reason.

    Of several rows of an item the highest grade stays, then the best rank; ``keep="best_rank"`` swaps the two
    criteria, "count" keeps every row. Of several rows at one rank the highest grade stays, then the smallest item hash.
    The rows come from ``with_text``.
    """
    real = [field.name for field in rows.schema.fields if isinstance(field.dataType, REAL)]
    if real and engine_of(rows.sparkSession) == "sail":
        # Sail sorts -0.0 and 0.0 as two values; the text of ``with_text`` stays as it came.
        rows = rows.withColumns({name: F.col(name) + F.lit(0.0) for name in real})
    grade = F.col(sch.RELEVANCE).desc_nulls_last() if columns.relevance else F.lit(0)
    repeats_item = F.lit(False)
    if columns.item and keep != "count":
        best_rank = F.col(sch.POSITION) if by_position else F.col(sch.SCORE).desc()
        order = [best_rank, grade] if keep == "best_rank" else [grade, best_rank]
        if not by_position and columns.position:
            order.append(F.col(sch.POSITION).asc_nulls_last())
        repeats_item = _as_before((sch.ITEM,), columns, *order, F.col(_TEXT))
    rows = rows.withColumn(_REPEATS_ITEM, repeats_item)
    if not by_position:
        return rows.where(_REPEATS_ITEM).withColumn(sch.REASON, F.lit("duplicate_item")).drop(_REPEATS_ITEM)
    item = F.xxhash64(sch.ITEM) if columns.item else F.lit(0)
    repeats_rank = _as_before((_REPEATS_ITEM, sch.POSITION), columns, grade, item, F.col(_TEXT))
    reason = F.when(F.col(_REPEATS_ITEM), "duplicate_item").when(repeats_rank, "repeated_position")
    return rows.withColumn(sch.REASON, reason).where(F.col(sch.REASON).isNotNull()).drop(_REPEATS_ITEM)


def _as_before(names: Sequence[str], columns: sch.Columns, *order: Column) -> Column:
    """Whether the row before, among those of its list by these columns and then by ``order``, is equal in them.

    Windows of single items would be as many as rows, of which Sail takes 3 microseconds for each.
    """
    of_list = Window.partitionBy(*columns.keys).orderBy(*names, *order)
    return F.coalesce(reduce(and_, (F.lag(name).over(of_list) == F.col(name) for name in names)), F.lit(False))


def layout_of_head(rows: DataFrame, columns: sch.Columns, layout: Layout) -> Layout:
    """The layout for a log with this head, where scored lists are kept: a guess about cost, which changes no value."""
    sound = rows.where(f"{sch.REJECTED} IS NULL")
    if isinstance(layout, Numbers):
        # The rows of flagged lists can be read later, which pays if these are few.
        repeats = F.expr(f"count(1) > count(DISTINCT {sch.POSITION}) AS repeats")
        lists = sound.limit(HEAD).groupBy(*columns.keys).agg(F.expr(f"max({sch.POSITION}) AS top"), repeats)
        (sums,) = few_rows(lists.selectExpr("max(top) AS top", "count_if(repeats) AS repeating", "count(1) AS n"))
        few = sums["repeating"] <= _FLAGGED * sums["n"]
        return replace(layout, whole=not few or (sums["top"] or 0) > MASK_RANKS)
    if layout.name != "masks":
        return layout
    # Not an aggregation: behind a limit, it reads the head of every partition.
    head = sound.select(sch.POSITION, sch.RELEVANCE).take(HEAD)
    top = max((row[sch.POSITION] for row in head), default=0)
    grades = [row[sch.RELEVANCE] for row in head if (row[sch.RELEVANCE] or 0) > 0]
    few = len(grades) * top <= _FEW_RELEVANT * len(head)
    fits = top <= MASK_RANKS and max(grades, default=0) <= LARGEST_MASKED_GRADE and few
    return layout if fits else LAYOUTS["relevant"]


def sound_rows(table: DataFrame, plan: Plan) -> DataFrame:
    """The rows without a fault, with their rank or score, whatever their relevance."""
    roles = replace(plan.columns, item=True, relevance=False, position=not plan.columns.by_score)
    rows = checked_rows(table, plan.mapping, roles, text=False, null_is_unjudged=False)
    return rows.where(f"{sch.REJECTED} IS NULL")


def top_rows(table: DataFrame, plan: Plan, k: int | None) -> DataFrame:
    """The sound rows down to rank k (None: all) with their rank: lists of one per user."""
    rows = sound_rows(table, plan)
    if plan.columns.by_score:
        # Sail sorts -0.0 and 0.0 as two values.
        score = F.col(sch.SCORE) + F.lit(0.0) if isinstance(rows.schema[sch.SCORE].dataType, REAL) else F.col(sch.SCORE)
        order = Window.partitionBy(sch.EXPERIMENT, sch.USER).orderBy(score.desc(), F.col(sch.ITEM).desc())
        rows = rows.withColumn(sch.POSITION, F.row_number().over(order))
    return rows if k is None else rows.where(F.col(sch.POSITION) <= k)
