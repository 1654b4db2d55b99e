"""What is compared of the metrics of users: the tables of experiment against experiment, each lazy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, engines as eng, errors as err, metrics as mx
from rankmetrics_spark.comparison import judged, periods, registry, rows as made, sums as summed, table as tables
from rankmetrics_spark.comparison.families import Question
from rankmetrics_spark.comparison.over_time import over_time
from rankmetrics_spark.schemas import CONVENTION_HASH, DATE, EXPERIMENT, METRIC, SEGMENT


def compare(
    user_metrics: eng.AnyTable,
    baseline: str | None = None,
    candidates: str | Sequence[str] | None = None,
    metrics: str | Sequence[str | mx.Metric] | None = None,
    correction: str = "holm",
    confidence: float = 0.95,
    *,
    pairs: str = "baseline",
    segments: str | Sequence[str] = (),
    segment_combinations: Sequence[Sequence[str]] = (),
    design: str = "auto",
    wilcoxon: bool = False,
    randomization: bool | Mapping[str, int] | cfg.Resampling = False,
    bootstrap: bool | Mapping[str, object] | cfg.Bootstrap = False,
    aa_check: bool | Mapping[str, int] | cfg.AaCheck = False,
    primary: str | Sequence[str | mx.Metric] = (),
    guardrails: str | Sequence[str | mx.Metric] = (),
    families: str = "split",
    primary_share: float | None = None,
    margin: Mapping[str, float | str] | None = None,
    effect: Mapping[str, float | str] | float | str | None = None,
    simultaneous: bool = False,
    ranks: bool = False,
    shares: Mapping[str, float] | None = None,
    power: float = 0.8,
    min_users: int = 0,
    before: eng.AnyTable | str | None = None,
    looks: str | Mapping[str, object] | cfg.PlannedLooks = "one",
    tuning_users: int = 10_000,
    dates: tuple[str, str] | None = None,
    shared_users: str = "keep",
    mean_over: str = "users",
    cluster: str | None = None,
    only_changed: bool = False,
    target: str = "population",
    trigger: str | None = None,
    cap: float | None = None,
    strata: str | Sequence[str] = (),
    covariates: str | Sequence[str] = (),
) -> eng.ResultTable:
    """Is one experiment better than another, and how sure is that? From per-user metrics, without collecting users.

    Args:
        user_metrics: One row per (experiment_id, user_id), of one date: ``result.user_metrics``, or read back. With
            ``dates``, one row per (experiment_id, user_id, evaluation_date). Any table that ``evaluate`` takes.
        baseline: The experiment that the others are compared with.
        candidates: Only these are compared with the baseline; empty = all.
        metrics: Names such as ``ap@10`` or ``ndcg@10``; each metric once. By default every one that has a column.
        correction: Correction of the p-values for the number of comparisons of a family.
        confidence: Confidence level of the intervals.
        pairs: Who is compared: with the baseline, or every pair.
        segments: Columns whose values split the averages.
        segment_combinations: Segments that split the averages together, such as ``[("country", "device")]``.
        design: ``paired`` (users in both), ``independent`` (all, Welch), ``auto`` (paired where at least 95 % are in
            both).
        wilcoxon: Paired comparisons get the p-value of Wilcoxon's signed rank test.
        randomization: Paired comparisons get the p-value of the sign-flip test: true, or its keys.
        bootstrap: Every mean and difference gets a bootstrap interval: true, or its keys.
        aa_check: How often the t test finds a difference where there is none: true, or its keys.
        primary: The metrics that decide; by default the first gate's, else the first at its largest cut-off; no
            guardrail.
        guardrails: Metrics that must not get worse.
        families: ``split`` = roles of metrics and segment columns are corrected apart, ``one`` = all rows together.
        primary_share: Share of the level of significance for the primary metrics; all other comparisons share the
            rest.
        margin: Metric -> how much worse is no harm: ``1%`` of the baseline's mean, or a number in its unit.
        effect: The difference that the test is to find: ``1%`` of the baseline's mean, a number, or these by metric.
        ranks: Which ranks each experiment may have among all, jointly at the confidence level; with all pairs.
        simultaneous: Intervals of a family cover jointly; they and the p-values are of ``correction: bonferroni``.
        shares: Planned share of the users of each experiment, for the check of the sample ratio.
        power: Probability of finding the minimum detectable effect.
        min_users: Segments with fewer users in an experiment are not compared.
        before: For CUPED: ``user_metrics`` of an earlier date, or a column of this one with an earlier number.
        looks: Looks that intervals and p-values hold for: one, any number at a growing test, or a plan.
            ``one``, ``any`` or ``{"planned": 14, "look": 6}``, with ``spending`` as in the config.
        tuning_users: Users at which the intervals over any looks are tightest; fixed before the test.
        dates: First and last date of a period: each user counts with the mean over their lists of all these dates.
            Which of them are there is read at once, by a small job.
        shared_users: ``drop`` leaves users of more than one experiment out; every comparison is ``independent`` then.
        mean_over: Every user counts once (``users``), or every list (``lists``); errors are by user in both.
        cluster: A column whose values, such as households, were assigned as a whole: they are the units of errors,
            not users.
        only_changed: Compare only users whose lists differ between the two experiments; the effect over all users is
            shown too. ``evaluate`` has to have had it as well.
        target: Means of the ``population`` of which the users are a sample, or, beside a machine, of ``these_queries``.
        trigger: A flag of the log, set where lists could differ: only users who have it are compared. It is a boolean
            column of ``user_metrics``; the effect over all users is shown too.
        cap: The most lists of a user that count with ``mean_over: lists``, or the largest value: a share or a number.
            A share, such as 0.99, is of the users of all experiments who are not above the cap. Without lists, it is
            about metrics that have no upper bound.
        strata: Columns that split the users, or ``date``: users are compared within these strata only. ``date`` is a
            user's first one in the period.
        covariates: More that explains values: metrics or columns of earlier users, or columns of these.
            They are numbers from before the test, such as ``["ndcg@10", "n_lists"]`` of the users ``before``.

    Returns:
        One row per (baseline, candidate, segment, metric); lazy like any DataFrame.

    Raises:
        ConfigError: A wrong argument, or a metric without a column.
        InputError: ``user_metrics`` or ``before`` lacks a column, or the dates are not there, or follow different
            conventions. Without ``dates``, that of rows of several dates or conventions comes from the engine.

    Examples:
        >>> log = [
        ...     {"experiment": arm, "user": user, "item": item, "position": rank, "relevance": int(item == user)}
        ...     for arm, items in (("control", "xyz"), ("new", "zyx"))
        ...     for user in "yz"
        ...     for rank, item in enumerate(items, start=1)
        ... ]
        >>> users = evaluate(log, "rr").to_pandas("user_metrics")  # doctest: +SKIP
        >>> [*compare(users, baseline="control").to_pandas()["difference"].round(6)]  # doctest: +SKIP
        [0.333333]
    """
    comparison = cfg.Comparison.of(locals() | {"primary": primary or None, "guardrails": guardrails or None})
    cfg.check_units(comparison, cuped=before is not None)
    split = cfg.Options(segments=segments or None, segment_combinations=segment_combinations or None)
    rows = users = tables.of_one_test(eng.spark_table(user_metrics, "user_metrics", before), comparison.baseline)
    days = of_days = None
    if dates is not None:
        days = periods.published_days(users, *periods.first_and_last(dates))
        rows = periods.period_rows(users, days, find_repeats=True)
    table = tables.UserTable.of(rows, metrics, {name: name for name in split.segments}, _earlier_values(before, users))
    if days is not None:
        of_days = summed.days_of_experiments(users, days, table.metrics)
    alike = tuple(name for name in (CONVENTION_HASH, DATE) if name in rows.columns)
    table = replace(table, combinations=split.combined_segments, days=days, of_days=of_days, alike=alike)
    return eng.result_table(comparisons(table, comparison))


@eng.told_as_read
def effect_over_time(
    user_metrics: eng.AnyTable,
    baseline: str | None = None,
    candidates: str | Sequence[str] | None = None,
    metrics: str | Sequence[str | mx.Metric] | None = None,
    correction: str = "holm",
    confidence: float = 0.95,
    *,
    dates: tuple[str, str] | None = None,
    pairs: str = "baseline",
    design: str = "auto",
    min_users: int = 0,
    before: eng.AnyTable | str | None = None,
    looks: str = "one",
    tuning_users: int = 10_000,
) -> eng.ResultTable:
    """How does the effect develop? The difference per day, up to each day, and by days since a user's first date.

    Reads the users once, whatever the number of days. `kind` says what a row is about: ``day`` (the users of this
    date), ``cumulative`` (each user with the mean over their days so far; the last one is the whole period),
    ``days_since_first`` (each user's day so many days after their first one in the experiment), ``slope`` (what is
    added to the difference with each day since a user's first date: within users, by least squares with a level for
    each), ``slope_between`` (what is added to the difference on users' first day with each day that they come later:
    between users, by least squares with a level for each date), and ``before``
    (what the users of each experiment had before the first date, in whatever experiment they were then: a check of the
    split, since nothing should differ).

    Args:
        user_metrics: One row per (experiment_id, user_id, evaluation_date), as runs have written it.
        baseline: The experiment that the others are compared with.
        candidates: Only these are compared with the baseline; empty = all.
        metrics: Names such as ``ap@10`` or ``ndcg@10``; by default every one that has a column.
        correction: Correction of the p-values of all rows of a kind: ``slope``, ``slope_between`` and ``before``.
        confidence: Confidence level of the intervals, which are not corrected.
        dates: First and last date of the experiment, as YYYY-MM-DD; by default all dates, without a check of the split.
        pairs: Who is compared: with the baseline, or every pair.
        design: ``paired``, ``independent`` or ``auto``, as in ``compare``; the whole period decides for all rows.
        min_users: Rows with fewer users in an experiment are left out.
        before: For CUPED: ``user_metrics`` of an earlier date, or a column with an earlier number.
        looks: ``any``: intervals and p-values up to each day hold at every look; `valid_at` says so.
        tuning_users: Users at which these intervals are tightest; fixed before the test.

    Returns:
        One row per (baseline, experiment_id, metric, kind, label); lazy, but a small job looks for ``dates``. `label`
        is the date or the number of days, `day_number` that since the first date, `p_adjusted` is of slopes and before.

    Raises:
        ConfigError: A wrong argument, or a metric without a column.
        InputError: ``user_metrics`` or ``before`` lacks a column, no date of ``dates`` is there, or ``evaluation_date``
            holds something else than dates. That of rows of different conventions comes from the engine.
    """
    comparison = cfg.Comparison.of(locals())
    users = tables.of_one_test(eng.spark_table(user_metrics, "user_metrics", before), comparison.baseline)
    table = tables.UserTable.of(users, metrics, None, _earlier_values(before, users))
    # Given dates are read below, each with its convention.
    alike = (CONVENTION_HASH,) if dates is None and CONVENTION_HASH in users.columns else ()
    result = development(replace(table, alike=alike), comparison, dates)
    if dates is not None:
        periods.published_days(users, *periods.first_and_last(dates))
    return eng.result_table(result)


def development(table: tables.UserTable, comparison: cfg.Comparison, dates: tuple[str, str] | None = None) -> DataFrame:
    """The rows of ``effect_over_time``, from one row per (experiment_id, user_id, evaluation_date)."""
    _refuse_nothing(comparison)
    comparison.check("over_time")
    start = None
    if dates is not None:
        start, last = (cfg.day("dates", date) for date in periods.first_and_last(dates))
        if start > last:
            raise err.ConfigError(f"dates is {start} to {last}; allowed: a first date up to the last one")
        table = replace(table, rows=table.rows.where(F.col(DATE) <= last) if DATE in table.rows.columns else table.rows)
    return over_time(table, comparison, start)


def _refuse_nothing(comparison: cfg.Comparison) -> None:
    if not comparison.is_requested:
        raise err.ConfigError("comparison.baseline is null; allowed: an experiment, or comparison.pairs: all")


def _earlier_values(before: eng.AnyTable | str | None, users: DataFrame) -> DataFrame | str | None:
    return before if before is None or isinstance(before, str) else eng.spark_table(before, "before", users)


def comparisons(
    table: tables.UserTable,
    comparison: cfg.Comparison,
    sums: DataFrame | None = None,
    statistics: Sequence[registry.Statistic] = (),
) -> DataFrame:
    """The table ``comparisons``: one row per (baseline, candidate, segment, metric).

    Args:
        table: The users.
        comparison: What is compared.
        sums: ``sums_of`` the two, where it has been computed already.
        statistics: Those that become columns; by default all.

    Raises:
        ConfigError: Neither a baseline nor all pairs are asked for.
    """
    _refuse_nothing(comparison)
    given = (name for name, value in {"before": table.before, "dates": table.days}.items() if value is not None)
    cfg.check_machine(comparison, bool(tables.machine_columns(table)), *given)
    partials = sums_of(table, comparison) if sums is None else sums
    # Handed over: what a notebook or a test has registered is not registered in the process that makes the rows.
    statistics = tuple(statistics or registry.STATISTICS.values())
    body = partial(made.final, question=Question.of(comparison, _of_units(table, comparison)), statistics=statistics)
    return eng.in_one_step(partials, body, registry.types_of(statistics))


def sums_of(table: tables.UserTable, comparison: cfg.Comparison) -> DataFrame:
    """The exact sums, by key, that comparisons and bootstrap intervals are made of."""
    table = _of_units(table, comparison)
    if table.by_test:
        # No user is in two arms of a test, so there are no pairs of rows.
        comparison = replace(comparison, baseline=None, candidates=(), pairs="baseline", tests={}, period=None)
    partials = summed.sums_by_key(table, comparison)
    if comparison.wilcoxon and comparison.is_requested:
        partials = partials.unionByName(summed.signed_ranks(table, comparison))
    return partials


def with_bootstrap_intervals(means: DataFrame, comparison: cfg.Comparison, sums: DataFrame) -> DataFrame:
    """The means with the bootstrap intervals of the mean of every experiment, from ``sums_of`` their users."""
    body = partial(made.mean_intervals, confidence=comparison.confidence)
    return eng.beside(means, made.table_of_sums(sums, body, made.MEANS), _ROW)


#: What tells rows of means apart.
_ROW = (EXPERIMENT, SEGMENT, METRIC)


def _of_units(table: tables.UserTable, comparison: cfg.Comparison) -> tables.UserTable:
    """The table with the columns of cluster and trigger: those of the log, unless the table has other names."""
    own = {name: getattr(table, name) or getattr(comparison, name) for name in ("cluster", "trigger", "covariates")}
    return replace(table, **own)


def with_cluster_intervals(
    means: DataFrame, table: tables.UserTable, comparison: cfg.Comparison, sums: DataFrame | None = None
) -> DataFrame:
    """The means with the intervals of clusters as units, or corrected where a machine judged; else as they are.

    Args:
        means: Rows of ``experiment_metrics``.
        table: Their users.
        comparison: How the means are compared.
        sums: ``sums_of`` the two, where it has been computed already.
    """
    machine = bool(tables.machine_columns(table))
    if comparison.cluster is None and not machine:
        return means
    partials = sums_of(table, comparison) if sums is None else sums
    body, kinds = partial(made.cluster_intervals, confidence=comparison.confidence), made.CLUSTER_MEANS
    if machine:
        body, kinds = partial(judged.machine_means, request=comparison), judged.MACHINE_MEANS
    return eng.beside(means, made.table_of_sums(partials, body, kinds), _ROW)


def decomposition(table: tables.UserTable, comparison: cfg.Comparison, segment: str) -> DataFrame:
    """Each difference from the baseline, split into what the mix of users changed and what changed within segments.

    Args:
        table: The users; one of its segments is ``segment``.
        comparison: The baseline.
        segment: Name of the segment.

    Returns:
        One row per (experiment_id, metric, segment label): baseline, users and means of both sides, ``mix`` and
        ``within``. Over the labels, mix and within add up to the difference of the means.
    """
    partials = summed.sums_by_key(table, cfg.Comparison(baseline=comparison.baseline)).where("kind = 'arm'")
    body = partial(
        made.decomposition_rows, baseline=comparison.baseline, candidates=comparison.candidates, segment=segment
    )
    return made.table_of_sums(partials, body, made.DECOMPOSITION).orderBy(EXPERIMENT, METRIC, SEGMENT)
