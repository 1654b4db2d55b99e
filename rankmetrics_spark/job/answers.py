"""What a run says about its experiments: comparisons as a table, gates that stop it, the verdict in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark import comparison, road
from rankmetrics_spark.config import Comparison, Config, Gate, check_experiments
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.errors import ConfigError, InputError, MetricGateError, unknown
from rankmetrics_spark.gates import Counts, failed_gates
from rankmetrics_spark.pipeline import Tables
from rankmetrics_spark.report import deciding, verdict_of
from rankmetrics_spark.road import Plan
from rankmetrics_spark.schemas import BASELINE, DATE, EVERYONE, EXPERIMENT, METRIC, SEGMENT
from rankmetrics_spark.sinks import Store, Written, partitions_for

MOST_ROWS = 100_000
"""Rows of comparisons that are read for gates and for the verdict."""
_BOOTSTRAP = ("bootstrap_ci_low", "bootstrap_ci_high")


def refuse_comparison(config: Config, counts: Counts) -> None:
    """Refuse the name of an experiment without lists, shares that leave users over, and too many replicates."""
    asked = config.comparison
    known = [str(name) for name, count in counts.items() if count["lists"]]
    check_experiments(asked, known)
    for gate in config.gates:
        if gate.experiment is not None and gate.experiment not in known:
            raise ConfigError(f"gates: {unknown('experiment', gate.experiment, sorted(known))}")
    if asked.asked:
        comparison.refuse_too_many_replicates(asked, known, len(config.metrics))


def refuse_missing_date(store: Store, config: Config) -> None:
    """Refuse a date for CUPED without users, before anything is computed."""
    if config.comparison.asked:
        _earlier(store, config)


def check_gates(store: Store, tables: Tables, config: Config, counts: Counts) -> None:
    """Stop the run if a metric is beyond the limit of a gate. Nothing has been published yet.

    Every experiment with lists has to keep every limit; one without a row, such as one without users of the segment,
    does not.
    """
    plan, users = tables.plan, tables.user_metrics
    means, compared = [], []
    if any(gate.min is not None for gate in config.gates):
        means = _rows(road.averages(users, plan, tables.within_segments), config)
    if any(gate.compares for gate in config.gates):
        table = tables.compared_users(users, _before(store, plan, config))
        # A gate looks at differences and their intervals, of the test that decides.
        asked = replace(
            config.comparison,
            pairs="baseline",
            min_users=0,
            wilcoxon=False,
            randomization=None,
            bootstrap=None,
            aa_check=None,
        )
        chosen = tuple(metric for metric in table.metrics if any(gate.metric == metric for gate in config.gates))
        rows = comparison.comparisons(replace(table, metrics=chosen), asked)
        compared = _rows(rows.where(F.col(BASELINE).eqNullSafe(F.lit(config.comparison.baseline))), config)
    names = [str(name) for name, count in counts.items() if count["lists"]]
    candidates = config.comparison.candidates or [name for name in names if name != config.comparison.baseline]
    failed = failed_gates(config.gates, means, compared, names, candidates)
    if failed:
        raise MetricGateError("; ".join(failed) + " (gates; nothing was published)")


def _rows(table: DataFrame, config: Config) -> list[dict[str, Any]]:
    """The rows that a gate looks at."""
    metrics, segments = ({getattr(gate, name) for gate in config.gates} for name in ("metric", "segment"))
    meant = F.col(METRIC).isin([str(metric) for metric in metrics]) & F.col(SEGMENT).isin([*segments])
    return [row.asDict() for row in few_rows(table.where(meant))]


@dataclass(frozen=True)
class Users:
    """The users of a run, as its averages and comparisons read them.

    Attributes:
        table: Their values.
        asked: What is compared.
        sums: The sums of all experiments and pairs, where both the averages and the comparisons need them.
    """

    table: comparison.UserTable
    asked: Comparison
    sums: DataFrame | None = None

    @classmethod
    def of(cls, store: Store, rows: DataFrame, tables: Tables, config: Config) -> Users:
        """The users that a run has staged."""
        plan, asked = tables.plan, config.comparison
        table = tables.compared_users(rows, _before(store, plan, config))
        if asked.bootstrap is None:
            return cls(table, asked)
        return cls(table, asked, store.stage(comparison.sums_of(table, asked), "sums"))


def averages(users: Users, tables: Tables) -> DataFrame:
    """``experiment_metrics``, with bootstrap intervals of the means where they are asked for."""
    found = road.averages(users.table.rows, tables.plan, tables.within_segments)
    if users.sums is None:
        return found
    more = comparison.bootstrap_means(users.table, users.asked, users.sums)
    keys = (EXPERIMENT, SEGMENT, METRIC)
    renamed = more.select(*(F.col(name).alias(f"_{name}") for name in keys), *_BOOTSTRAP)
    same = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in keys]
    return found.join(renamed, same, "left").drop(*(f"_{name}" for name in keys))


def compared(store: Store, users: Users, date: str, counts: Counts) -> Written:
    """Stage ``comparisons``; nothing is published."""
    names = [name for name, count in counts.items() if count["lists"]]
    _, candidates = comparison.request_of(users.asked).pairs(names)
    found = {names[i] for i in candidates}
    filled = {name: {"compared": int(name in found)} for name in counts}
    rows = comparison.comparisons(users.table, users.asked, users.sums)
    return store.write("comparisons", rows, partitions_for(date, filled, "compared"))


def _before(store: Store, plan: Plan, config: Config) -> DataFrame | str | None:
    """Where the users' values from before the experiment are: see ``comparison.UserTable``."""
    return plan.public_covariate or (_earlier(store, config) if config.comparison.asked else None)


def _earlier(store: Store, config: Config) -> DataFrame | None:
    """``user_metrics`` of the date for CUPED; None if there is no CUPED."""
    cuped = config.comparison.cuped
    if cuped is None or cuped.date is None:
        return None
    written = store.existing("user_metrics")
    before = None if written is None else written.where(F.col(DATE) == cuped.date)
    if before is None or before.isEmpty():
        raise InputError(
            f"comparison.cuped.date is {cuped.date}, but {store.name_of('user_metrics')} has no rows of that date; "
            "allowed: the date of an earlier run with this sink"
        )
    return before


def in_words(comparisons: Written | None, plan: Plan, gates: Sequence[Gate] = ()) -> list[str]:
    """The verdict: a sentence per comparison of all users, those on the metric that decides first."""
    if comparisons is None or not comparisons.partitions.filled:
        return []
    metrics, gated = plan.scoring.metrics, gates[0].metric if gates else None
    if (rows := comparisons.rows_here()) is not None:
        return verdict_of(rows, metrics, gated)
    everyone = comparisons.rows.where(F.col(SEGMENT) == EVERYONE)
    decides = F.col(METRIC) == str(deciding(metrics, gated))
    first = everyone.orderBy(~decides, F.col("better").isNull(), F.col("p_adjusted").asc_nulls_last())
    read = [row.asDict() for row in few_rows(first.limit(MOST_ROWS))]
    return verdict_of(read, metrics, gated, everyone.count() - len(read) if len(read) == MOST_ROWS else 0)
