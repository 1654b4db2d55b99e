"""The outcome of a pass -> what is worth knowing about its log: rates, and what is odd, a sentence each."""

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
"""Experiments or ids that a message names at most."""


@dataclass(frozen=True)
class Inspected:
    """The outcome of a pass, and the tables in which a gate looks up what it names.

    Attributes:
        plan: The plan of the pass.
        outcome: Scored lists and groups of faulty rows; each gate reads it, so it should be written already.
        rows: The typed rows.
        judged: The judgements as they came.
        repeated: Makes the table of the rows that repeat an item or a rank.
        place: What a message calls the input.
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
    """The counts of true experiments: rows without one are faulty, but no experiment is missed."""
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
    return Findings(counts, per_arm, overall, previous or {}, tuple(_noticed(log, counts)), tuple(_notes(log, counts)))


def _rates_of(plan: Plan) -> Iterator[str]:
    """The rates that mean something for this log."""
    yield "duplicate_rate"
    yield "gap_rate" if plan.scoring.by_position else "tie_rate"
    if longest_cut(plan):
        yield "short_rate"
    yield "no_relevant_rate"
    if plan.scoring.judged:
        yield "unjudged_rate"


def _shared_users(outcome: DataFrame) -> float:
    """Share of the users who have lists in more than one experiment; one more shuffle, of ids only."""
    pairs = outcome.where(F.col(REJECTED).isNull()).select(EXPERIMENT, USER).distinct()
    users = pairs.groupBy(USER).agg(F.count(F.lit(1)).alias("n"))
    found = users.agg(F.avg(F.when(F.col("n") > 1, 1.0).otherwise(0.0))).first()
    return float(found[0]) if found and found[0] is not None else 0.0


def _noticed(log: Inspected, counts: Counts) -> Iterator[str]:
    """What no limit speaks of, a sentence each."""
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


def _notes(log: Inspected, counts: Counts) -> Iterator[str]:
    """What a reader of the numbers should know, a sentence each."""
    (rule, *_), path = log.plan.scoring.conventions, log.plan.options.path_of("convention")
    if not rule.relevant_from and total_counts(counts, "graded_lists"):
        yield (
            "the relevance has grades other than 0 and 1, and every grade above 0 counts as relevant; if only higher "
            f"grades do, set {path}.relevant_from to the lowest of them"
        )


def _users_in_several_segments(log: Inspected) -> Iterator[str]:
    """Only users with several lists can be in several segments; one more shuffle, of ids and segments."""
    columns = log.plan.columns
    if not columns.list or not columns.segments:
        return
    differ = {name: f"count({name}) > 0 AND {only_value(name)} IS NULL" for name in columns.segment_columns}
    users = log.outcome.where(F.col(REJECTED).isNull()).groupBy(EXPERIMENT, USER)
    found = users.agg(*(F.expr(f"{sql} AS {name}") for name, sql in differ.items()))
    n = found.agg(*(F.expr(f"count_if({name}) AS {name}") for name in differ)).first()
    for name, segment in zip(differ, columns.segments, strict=True):
        if n and n[name]:
            yield (
                f"{n[name]:,} users have lists with different values of '{segment}': experiment_metrics averages them "
                "within each value; in user_metrics, and so in comparisons, their value is null"
            )


def within_limits(found: Findings, limits: Limits) -> Findings:
    """The findings with a warning for each rate beyond its limit of ``warn``."""
    failed = breaches(found, limits, "fail")
    if failed:
        more = f"; and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        raise QualityError("; ".join(failed[:MOST_NAMED]) + more)
    return replace(found, warnings=(*found.warnings, *breaches(found, limits, "warn")))


def ranks_seem_to_start_at_0(log: Inspected, counts: Counts) -> bool:
    below = total_counts(counts, "below_first_rank")
    return log.plan.columns.first_rank == 1 and 0 < total_counts(counts, "lists") <= below
