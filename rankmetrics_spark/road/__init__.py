"""The road of the data: check -> rank -> score -> aggregate. Each step is a function from tables to tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.engines import Step
from rankmetrics_spark.layouts import LAYOUTS, NO_ENTRIES, RECHECK, Layout
from rankmetrics_spark.road import aggregation, checking, ranking, scoring
from rankmetrics_spark.road.aggregation import averages_of_sums, sums_of_lists, sums_of_users
from rankmetrics_spark.road.checking import (
    FAULTY,
    GRADE,
    checked_rows,
    judgement_counts,
    rejected_rows,
    typed_judgements,
)
from rankmetrics_spark.road.plan import Plan, make_plan
from rankmetrics_spark.road.ranking import head_fits_masks
from rankmetrics_spark.schemas import (
    ALL_ROWS_SEEN,
    CONVENTION_INDEX,
    ENTRIES,
    EVERYONE,
    EXPERIMENT,
    FLAGGED,
    JUDGED,
    N_LISTS,
    N_RELEVANT,
    N_REPEATED,
    N_ROWS,
    N_SHOWN,
    RANK_MAY_REPEAT,
    REJECTED,
    RELEVANCE,
    SEGMENT,
    TOP,
    USER,
    Columns,
    lists_with_value,
)

__all__ = [
    "FAULTY",
    "GRADE",
    "Plan",
    "averages",
    "averages_of_sums",
    "checked_rows",
    "faulty",
    "faulty_of",
    "head_fits_masks",
    "judged_items",
    "judgement_counts",
    "make_plan",
    "outcome",
    "packed",
    "published_users",
    "rejected_rows",
    "repeated",
    "scored_lists",
    "sums_of_lists",
    "sums_of_users",
    "typed_judgements",
    "typed_rows",
    "users",
]


def typed_rows(impressions: DataFrame, plan: Plan) -> DataFrame:
    """Check: typed rows, each faulty one with its reason."""
    return checking.checked_rows(
        impressions, plan.mapping, plan.columns, plan.options.text_numbers, null_is_unjudged=plan.scoring.judged
    )


def judged_items(table: DataFrame | None, plan: Plan) -> DataFrame | None:
    """Check: the judged items of each user."""
    if table is None:
        return None
    every_grade = any(metric.needs == "judged" for metric in plan.scoring.metrics)
    return checking.pools(table, plan.judgement_mapping, every_grade, plan.options.text_numbers)


def packed(rows: DataFrame, plan: Plan) -> DataFrame:
    """Rank: the rows grouped by list, and groups of faulty rows; on Sail the lists only."""
    if plan.engine == "sail":
        return ranking.packed_sound(rows, plan.columns, plan.layout, plan.scoring.repeats)
    return ranking.share_exchange(ranking.packed(rows, plan.columns, plan.layout, plan.scoring.repeats))


def faulty(rows: DataFrame, packed_lists: DataFrame, plan: Plan) -> DataFrame:
    """The groups of equal faulty rows, from the table that holds them: see ``packed``."""
    return ranking.faulty_groups(rows, plan.columns) if plan.engine == "sail" else faulty_of(packed_lists, plan)


def faulty_of(table: DataFrame, plan: Plan) -> DataFrame:
    """The groups of equal faulty rows that a table holds beside the lists."""
    return table.where(F.col(REJECTED).isNotNull()).select(*plan.columns.keys, N_ROWS, REJECTED)


def scored_lists(
    rows: DataFrame, packed_lists: DataFrame, pools: DataFrame | None, plan: Plan, then: Step | None = None
) -> DataFrame:
    """Score: one row per list, or the result of ``then`` over these rows.

    Flagged lists, for which the packed form may be wrong, are recomputed from their rows.
    """
    columns, layout = plan.columns, plan.layout
    if not layout.pack(columns, plan.scoring.repeats).flags:
        return _scored(packed_lists.where(F.col(REJECTED).isNull()), layout, pools, plan, then)
    scores = _scored(packed_lists.where(f"NOT {FLAGGED}"), layout, pools, plan, then)
    flagged = packed_lists.where(FLAGGED).select(*columns.keys, RANK_MAY_REPEAT)
    recheck = ranking.packed(ranking.rows_of(rows, flagged, columns), columns, RECHECK, plan.scoring.repeats)
    return scores.unionByName(_scored(recheck, RECHECK, pools, plan, then))


def _scored(lists: DataFrame, layout: Layout, pools: DataFrame | None, plan: Plan, then: Step | None) -> DataFrame:
    if pools is not None:
        # Left join: users without judgements are still counted.
        lists = lists.join(pools, USER, "left")
    return scoring.scored(lists, plan.columns, layout, plan.scoring, then)


def outcome(rows: DataFrame, pools: DataFrame | None, plan: Plan) -> DataFrame:
    """The outcome of the one pass: scored lists and groups of faulty rows. All other tables follow from it."""
    grouped = packed(rows, plan)
    rejected = faulty(rows, grouped, plan)
    # Sail finds no field of a struct that only the second table has.
    none = F.lit(None).cast(rejected.schema[REJECTED].dataType)
    lists = scored_lists(rows, grouped, pools, plan).withColumn(REJECTED, none)
    return lists.unionByName(rejected, allowMissingColumns=True)


def users(
    lists: DataFrame, known: DataFrame, pools: DataFrame | None, plan: Plan, within: str | None = None
) -> DataFrame:
    """One row per (experiment, user, convention) of the convention's population, in internal names."""
    rows = scoring.per_user(lists, plan.columns, plan.scoring, within)
    if pools is None:
        return rows
    members = rows.where(f"{JUDGED} OR {_has_population(plan, 'shown', 'either')}")
    with_unseen = _has_population(plan, "judged", "either")
    if with_unseen == "false":
        return members
    return members.unionByName(_without_list(known, pools, plan).where(with_unseen), allowMissingColumns=True)


def _has_population(plan: Plan, *populations: str) -> str:
    """SQL: whether the convention of a row has one of these populations."""
    indices = [str(i) for i, rule in enumerate(plan.scoring.conventions) if rule.population in populations]
    return f"{CONVENTION_INDEX} IN ({', '.join(indices)})" if indices else "false"


def _without_list(known: DataFrame, pools: DataFrame, plan: Plan) -> DataFrame:
    """Judged users without a list, once per experiment: the metrics of an empty list."""
    users_with_list = known.where(F.col(REJECTED).isNull()).select(EXPERIMENT, USER).distinct()
    judged_users = pools.crossJoin(F.broadcast(users_with_list.select(EXPERIMENT).distinct()))
    others = judged_users.join(users_with_list, [EXPERIMENT, USER], "left_anti")
    empty = others.selectExpr("*", f"0L AS {N_ROWS}", f"{NO_ENTRIES} AS {ENTRIES}", f"0L AS {TOP}")
    columns = Columns(item=True, position=True, score=False, relevance=True)
    by_position = replace(plan.scoring, by_position=True)
    lists = scoring.scored(empty, columns, LAYOUTS["relevant"], by_position)
    return scoring.per_user(lists, columns, by_position).withColumn(N_LISTS, F.lit(0).cast("bigint"))


def published_users(table: DataFrame, plan: Plan, *more: str) -> DataFrame:
    """``user_metrics`` with the segments and the covariate under the user's own names."""
    public = [*plan.public_segments.values(), *filter(None, (plan.public_covariate,))]
    public += filter(None, [plan.public_cluster if plan.columns.cluster else None])
    described = zip(plan.columns.of_user, public, strict=True)
    renamed = [F.col(internal).alias(public) for internal, public in described]
    counts = (N_LISTS, N_SHOWN, N_RELEVANT, N_REPEATED)
    metrics = (metric.column for metric in plan.scoring.metrics)
    with_value = map(lists_with_value, scoring.without_value(plan.columns, plan.scoring))
    return table.select(EXPERIMENT, USER, *renamed, *counts, *metrics, *with_value, *more)


def averages(
    user_metrics: DataFrame, plan: Plan, within: Sequence[DataFrame] = (), several_conventions: bool = False
) -> DataFrame:
    """Aggregate: ``experiment_metrics`` from ``user_metrics``, whether just computed or read back."""
    segments, metrics, over_lists = plan.public_segments, plan.scoring.metrics, plan.over_lists
    whole = {} if within else segments
    combined = () if within else plan.options.combined_segments
    sums = aggregation.sums_of_users(user_metrics, metrics, whole, several_conventions, combined, over_lists)
    for table, (name, column) in zip(within, segments.items(), strict=bool(within)):
        split = aggregation.sums_of_users(table, metrics, {name: column}, True, over_lists=over_lists)
        sums = sums.unionByName(split.where(F.col(SEGMENT) != EVERYONE))
    return aggregation.averages_of_sums(sums, plan.scoring.conventions, plan.options.confidence, over_lists)


def repeated(rows: DataFrame, lists: DataFrame, pools: DataFrame | None, plan: Plan) -> DataFrame:
    """The rows that are set aside because they repeat an item or a rank of their list, as ``quarantine`` holds them.

    Reads only the lists that have such rows, and of these the rows that scoring has read.
    """
    work, columns = plan.scoring, plan.columns
    keys = lists.where(F.col(N_REPEATED) > 0).select(*columns.keys, ALL_ROWS_SEEN)
    condition = f"{ALL_ROWS_SEEN} OR {RELEVANCE} > 0" if columns.relevance else ALL_ROWS_SEEN
    candidates = ranking.with_text(ranking.rows_of(rows, keys, columns).where(condition), columns)
    if not columns.relevance and pools is not None:
        # Which of several rows stays depends on their grades, here as in Python.
        candidates, columns = ranking.with_judged_grades(candidates, pools), replace(columns, relevance=True)
    if not work.repeats:
        columns = replace(columns, item=False)
    repeats = ranking.repeated_rows(candidates, columns, work.by_position, work.conventions[0].duplicates)
    return checking.as_quarantined(repeats, plan.columns)
