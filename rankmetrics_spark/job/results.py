"""Results of a run about its experiments: averages, comparisons, the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark import comparison, road
from rankmetrics_spark.config import Comparison, Config, check_experiments
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.errors import ConfigError, InputError, unknown
from rankmetrics_spark.gates import Counts
from rankmetrics_spark.job.earlier import Earlier
from rankmetrics_spark.pipeline import Tables
from rankmetrics_spark.pointers import Compared
from rankmetrics_spark.report import outlook_of, sentences_of_period, verdict_of
from rankmetrics_spark.road import Plan
from rankmetrics_spark.schemas import DATE, EVERYONE, EXPERIMENT, METRIC, PRIMARY, ROLE, SEGMENT
from rankmetrics_spark.sinks import Store, Written, partitions_for

MOST_ROWS = 100_000
"""Rows of comparisons that are read for the verdict."""
_BOOTSTRAP = ("bootstrap_ci_low", "bootstrap_ci_high")


def refuse_comparison(config: Config, counts: Counts) -> None:
    """Refuse names of experiments without lists, incomplete shares, and too many replicates."""
    request = config.comparison
    experiments = [str(name) for name, count in counts.items() if count["lists"]]
    check_experiments(request, experiments)
    for gate in config.gates:
        if gate.experiment is not None and gate.experiment not in experiments:
            raise ConfigError(f"gates: {unknown('experiment', gate.experiment, sorted(experiments))}")
    if request.is_requested:
        comparison.refuse_too_many_replicates(request, experiments, len(config.metrics))


def compared_of(request: Comparison, counts: Counts, earlier: Earlier) -> Compared | None:
    """Return which experiments a run compares, and from which other runs; None if there is no pair."""
    names = [name for name, count in counts.items() if count["lists"]]
    places = dict.fromkeys(int(place) for part in comparison.request_of(request).pairs(names) for place in part)
    every_pair = request.pairs == "all"
    if not (request.is_requested and places):
        return None
    return Compared(tuple(names[place] for place in places), every_pair, earlier.runs(counts))


def refuse_missing_date(store: Store, config: Config) -> None:
    """Refuse a CUPED date without users before anything is computed."""
    if config.comparison.is_requested:
        _cuped_rows(store, config)


def reads_users_again(config: Config) -> bool:
    """Whether a comparison reads the users twice, or gates limit segments that are too small to be published."""
    compared = config.comparison
    limited = any(gate.compares and gate.segment != EVERYONE for gate in config.gates)
    return compared.wilcoxon or bool(compared.min_users and limited)


@dataclass(frozen=True)
class Users:
    """The users of a run, as averages and comparisons read them.

    Attributes:
        table: Their values of the day.
        compared: Their values as comparisons read them: of the period, if there is one.
        request: Which comparisons the config asks for.
        sums: The sums of all experiments and pairs of the day, if the bootstrap needs them.
    """

    table: comparison.UserTable
    compared: comparison.UserTable
    request: Comparison
    sums: DataFrame | None = None

    @classmethod
    def of(cls, store: Store, rows: DataFrame, tables: Tables, config: Config, earlier: Earlier) -> Users:
        """Return the users of the day of a run."""
        table = replace(tables.compared_users(rows, _covariate(store, tables.plan, config)), looks=earlier.looks)
        return cls(table, table, config.comparison)

    def over(
        self, earlier: Earlier, tables: Tables, stage: Callable[[DataFrame], DataFrame] = lambda rows: rows
    ) -> Users:
        """Return the same users with those of the period, to be compared."""
        assert earlier.users is not None
        plan = tables.plan
        # The lists of a user may be in different segments, which the rows of users do not tell.
        split = {} if plan.columns.list else plan.public_segments
        combined = () if plan.columns.list else plan.options.combined_segments
        compared = replace(
            self.table, rows=stage(earlier.users), segments=split, combinations=combined, within={}, days=earlier.days
        )
        return replace(self, compared=compared)

    def with_sums(self, store: Store) -> Users:
        """Return the same users with the sums that the bootstrap needs, staged."""
        if self.request.bootstrap is None:
            return self
        return replace(self, sums=store.stage(comparison.sums_of(self.table, self.request), "sums"))


def averages(users: Users, tables: Tables) -> DataFrame:
    """Return ``experiment_metrics``, with bootstrap intervals of the means if the config has them."""
    means = road.averages(users.table.rows, tables.plan, tables.within_segments)
    if users.sums is None:
        return means
    bootstrap = comparison.bootstrap_means(users.table, users.request, users.sums)
    keys = (EXPERIMENT, SEGMENT, METRIC)
    intervals = bootstrap.select(*(F.col(name).alias(f"_{name}") for name in keys), *_BOOTSTRAP)
    same_row = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in keys]
    return means.join(intervals, same_row, "left").drop(*(f"_{name}" for name in keys))


def stage_comparisons(store: Store, users: Users, date: str, counts: Counts) -> Written:
    """Stage ``comparisons``; nothing is published."""
    names = [name for name, count in counts.items() if count["lists"]]
    _, candidates = comparison.request_of(users.request).pairs(names)
    candidates_with_lists = {names[i] for i in candidates}
    counts_by_name = {name: {"compared": int(name in candidates_with_lists)} for name in counts}
    sums = users.sums if users.compared is users.table else None
    rows = comparison.comparisons(users.compared, users.request, sums)
    return store.write("comparisons", rows, partitions_for(date, counts_by_name, "compared"))


def _covariate(store: Store, plan: Plan, config: Config) -> DataFrame | str | None:
    """Return the values for CUPED, as a column's name or a table: see ``comparison.UserTable``."""
    return plan.public_covariate or (_cuped_rows(store, config) if config.comparison.is_requested else None)


def _cuped_rows(store: Store, config: Config) -> DataFrame | None:
    """Return ``user_metrics`` of the CUPED date; None without one."""
    cuped = config.comparison.cuped
    if cuped is None or cuped.date is None:
        return None
    user_metrics = store.existing("user_metrics")
    rows = None if user_metrics is None else user_metrics.where(F.col(DATE) == cuped.date)
    if rows is None or rows.isEmpty():
        raise InputError(
            f"comparison.cuped.date is {cuped.date}, but {store.name_of('user_metrics')} has no rows of that date; "
            "allowed: the date of an earlier run with this sink"
        )
    return rows


def verdict_sentences(comparisons: Written | None, plan: Plan, config: Config, earlier: Earlier) -> list[str]:
    """Return one sentence per comparison of all users, those on primary metrics first, then what a period adds."""
    if comparisons is None or not comparisons.partitions.filled:
        return sentences_of_period(earlier.days)
    rows, n_more = comparisons.rows_here(), 0
    if rows is None:
        everyone = comparisons.rows.where(F.col(SEGMENT) == EVERYONE)
        first = everyone.orderBy(F.col(ROLE) != PRIMARY, F.col("better").isNull(), F.col("p_adjusted").asc_nulls_last())
        rows = [row.asDict() for row in few_rows(first.limit(MOST_ROWS))]
        n_more = everyone.count() - len(rows) if len(rows) == MOST_ROWS else 0
    metrics, outlook = plan.scoring.metrics, []
    if earlier.days is not None and earlier.dated is not None:
        outlook = outlook_of(rows, earlier.dated, earlier.days, config.comparison, metrics, config.gates)
    return [*verdict_of(rows, metrics, n_more), *outlook, *sentences_of_period(earlier.days)]
