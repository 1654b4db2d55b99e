"""The scored lists and faulty rows of a log -> rates, warnings and notes, one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.config import Limits
from rankmetrics_spark.errors import QualityError
from rankmetrics_spark.gates.counts import Counts, total_counts
from rankmetrics_spark.gates.limits import SHARED, Findings, breaches, rates
from rankmetrics_spark.road import Plan
from rankmetrics_spark.schemas import EXPERIMENT, REJECTED, USER, only_value

MOST_NAMED = 3
"""A message names at most this many experiments or ids."""


@dataclass(frozen=True)
class Inspected:
    """The scored lists of a log, and the tables that messages of the gates need.

    Attributes:
        plan: The plan.
        outcome: Scored lists and groups of faulty rows. Each gate reads it, so it should be stored.
        rows: The typed rows.
        judged: The judgements as read.
        repeated: Returns the rows that repeat an item or a rank.
        place: The name of the input in messages.
        tags: Whether tags name the experiments, as in TREC runs.
    """

    plan: Plan
    outcome: DataFrame
    rows: DataFrame
    judged: DataFrame | None
    repeated: Callable[[], DataFrame]
    place: str = "the impressions"
    tags: bool = False


def arms(counts: Counts) -> Counts:
    """Return the counts of experiments; leave out the group of rows without a valid experiment."""
    return {name: count for name, count in counts.items() if count["rows"] > count["no_experiment"]}


def longest_cut(plan: Plan) -> int:
    return max((metric.cut or 0 for metric in plan.scoring.metrics), default=0)


def findings(log: Inspected, counts: Counts, limits: Limits, previous: Mapping[str, Any] | None) -> Findings:
    names = [*_rates_of(log.plan)]
    counts = {name: {key: n for key, n in count.items() if key != "beyond_sums"} for name, count in counts.items()}
    per_arm = {name: rates([count], names) for name, count in arms(counts).items() if count["lists"]}
    overall = rates(arms(counts).values(), names)
    if SHARED in limits:
        overall[SHARED] = _shared_users(log.outcome)
    return Findings(
        counts, per_arm, overall, previous or {}, tuple(_warnings_about(log, counts)), tuple(_notes_about(log, counts))
    )


def _rates_of(plan: Plan) -> Iterator[str]:
    """Return the rates that apply to this log."""
    yield "duplicate_rate"
    yield "gap_rate" if plan.scoring.by_position else "tie_rate"
    if longest_cut(plan):
        yield "short_rate"
    yield "no_relevant_rate"
    if plan.scoring.judged:
        yield "unjudged_rate"


def _shared_users(outcome: DataFrame) -> float:
    """Return the share of users with lists in more than one experiment; shuffles ids only."""
    pairs = outcome.where(F.col(REJECTED).isNull()).select(EXPERIMENT, USER).distinct()
    users = pairs.groupBy(USER).agg(F.count(F.lit(1)).alias("n"))
    share = users.agg(F.avg(F.when(F.col("n") > 1, 1.0).otherwise(0.0))).first()
    return float(share[0]) if share and share[0] is not None else 0.0


def _warnings_about(log: Inspected, counts: Counts) -> Iterator[str]:
    """Warn of what has no limit, one sentence each."""
    for name, count in arms(counts).items():
        if not count["lists"]:
            yield f"experiment '{name}' has no result: all {count['rows']:,} of its rows are faulty"
    if ranks_seem_to_start_at_0(log, counts):
        yield (
            f"{total_counts(counts, 'below_first_rank'):,} rows have a rank below 1; if your ranks start at 0, set "
            f"{log.plan.options.path_of('first_rank')} to 0"
        )
    if mixed := total_counts(counts, "mixed_segments"):
        path = log.plan.options.path_of("segments")
        yield f"{mixed:,} lists have rows in different segments ({path}); each counts for the smallest of their values"
    yield from _users_in_several_segments(log)


def _notes_about(log: Inspected, counts: Counts) -> Iterator[str]:
    """Tell what a reader of the numbers should know, one sentence each."""
    (rule, *_), path = log.plan.scoring.conventions, log.plan.options.path_of("convention")
    if not rule.relevant_from and total_counts(counts, "graded_lists"):
        yield (
            "the relevance has grades other than 0 and 1, and every grade above 0 counts as relevant; if only higher "
            f"grades do, set {path}.relevant_from to the lowest of them"
        )


def _users_in_several_segments(log: Inspected) -> Iterator[str]:
    """Warn of users whose lists are in several segments; shuffles ids and segments."""
    columns = log.plan.columns
    if not columns.list or not columns.segments:
        return
    conditions = {name: f"count({name}) > 0 AND {only_value(name)} IS NULL" for name in columns.segment_columns}
    users = log.outcome.where(F.col(REJECTED).isNull()).groupBy(EXPERIMENT, USER)
    conflicts = users.agg(*(F.expr(f"{sql} AS {name}") for name, sql in conditions.items()))
    n = conflicts.agg(*(F.expr(f"count_if({name}) AS {name}") for name in conditions)).first()
    for name, segment in zip(conditions, columns.segments, strict=True):
        if n and n[name]:
            yield (
                f"{n[name]:,} users have lists with different values of '{segment}': experiment_metrics averages them "
                "within each value; in user_metrics, and so in comparisons, their value is null"
            )


def within_limits(findings: Findings, limits: Limits) -> Findings:
    """Raise an error for rates beyond ``fail``; add a warning for each rate beyond ``warn``."""
    failures = breaches(findings, limits, "fail")
    if failures:
        more = f"; and {len(failures) - MOST_NAMED} more" if len(failures) > MOST_NAMED else ""
        raise QualityError("; ".join(failures[:MOST_NAMED]) + more)
    return replace(findings, warnings=(*findings.warnings, *breaches(findings, limits, "warn")))


def ranks_seem_to_start_at_0(log: Inspected, counts: Counts) -> bool:
    below = total_counts(counts, "below_first_rank")
    return log.plan.columns.first_rank == 1 and 0 < total_counts(counts, "lists") <= below
