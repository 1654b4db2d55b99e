"""``evaluate``: impressions -> tables, lazily, and how a result shows them; ``read``: tables as they were written."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeAlias, get_args

from pyspark.sql import DataFrame

from rankmetrics_spark import comparison, config as cfg, engines as eng, metrics as mx, report as rep, sinks, words
from rankmetrics_spark.errors import ConfigError, InputError, QualityError, QualityWarning, said
from rankmetrics_spark.gates import Findings, Inspected, Previous, check_quality, with_agreement, with_arms
from rankmetrics_spark.road import Tables
from rankmetrics_spark.schemas import EXPERIMENT, FAIL, METRIC, OK, PRIMARY, USER, WARN, Check, ColumnMap

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    import polars as pl
    from pyspark.sql import SparkSession

TableName: TypeAlias = Literal["experiment_metrics", "user_metrics", "comparisons", "quarantine"]
_KEYS = (EXPERIMENT, "baseline", USER, "segment", METRIC)


def evaluate(
    impressions: eng.AnyTable,
    metrics: str | Sequence[str | mx.Metric] = cfg.DEFAULT_METRICS,
    judgements: eng.AnyTable | None = None,
    rank_by: Literal["position", "score"] = "position",
    *,
    columns: ColumnMap | None = None,
    judgement_columns: Mapping[str, str] | None = None,
    packed: Mapping[str, object] | None = None,
    judgement_packed: Mapping[str, object] | None = None,
    machine_judgements: eng.AnyTable | None = None,
    machine_columns: Mapping[str, str] | None = None,
    human_sample: str | Mapping[str, str] | None = None,
    machine_grades: Mapping[float, float] | None = None,
    events: eng.AnyTable | None = None,
    event_columns: Mapping[str, object] | None = None,
    grades: Mapping[str, float] | None = None,
    within: str | None = None,
    assignments: eng.AnyTable | None = None,
    assignment_columns: ColumnMap | None = None,
    tests: Mapping[str, Mapping[str, object]] | None = None,
    time_zone: str = "UTC",
    convention: str | Mapping[str, object] | mx.Convention = "standard",
    list: str | Sequence[str] = (),
    segments: str | Sequence[str] = (),
    segment_combinations: Sequence[str | Sequence[str]] = (),
    covariate: str | None = None,
    cluster: str | None = None,
    only_changed: bool = False,
    trigger: str | None = None,
    first_rank: Literal[0, 1] = 1,
    baseline: str | None = None,
    pairs: Literal["baseline", "all"] = "baseline",
    confidence: float = 0.95,
    mean_over: Literal["users", "lists"] = "users",
    correction: Literal["holm", "bonferroni", "fdr_bh", "none"] = "holm",
    percentiles: Sequence[float] = (),
    unit: Literal["user", "query"] = "user",
    repeated_items: Literal["relevant", "all", "ignore"] = "relevant",
    text_numbers: bool = False,
    layout: cfg.LayoutName = "auto",
) -> Result:
    """Per-user and per-experiment ranking metrics of an impression log, all out of one pass over it.

    Args:
        impressions: One row per shown item, or per list: a DataFrame of Spark, pandas or polars, a table of PyArrow or
            a list of dicts. A table of Python is computed on the session that is running, else on the laptop engine.
        metrics: Names such as ``ap@10`` or ``ndcg@10``; each metric once.
        judgements: (user, item, relevance), including items that were never shown. They define the number of relevant
            items and the ideal list.
        rank_by: By a column of ranks, or by score: the highest first.
        columns: Role -> column of the impressions: experiment, user, item, position, score, relevance, and intents (a
            text, a whole number, or an array of them) for the metrics of intents; ``None`` = the impressions have no
            such column. A role that is not named is looked for under its long name (``user_id``) and its short name.
            In a row per list, ``items`` is a column of lists, and item, score, relevance, position and intents are
            fields of its structs, or columns with one value per item; the rank is the place in the list, from
            ``first_rank``, unless there is a position. Each row is a list of its own, unless ``list`` names columns.
        judgement_columns: Role -> column of the judgements: user, item, relevance, and intents; an item may have a row
            for each intent.
        packed: How cells of text hold the items of a list, those of ``columns["items"]``: ``{"separator": " ",
            "parts": ["item", "relevance"], "between": "-"}`` reads ``N1-1 N2-0``.
        judgement_packed: How cells of text hold the items of a list of judgements; one without a relevance is relevant.
        machine_judgements: (user, item, relevance) of a machine, which judged all users; ``judgements`` are those of
            people, who judged a sample of them. ``judgement_columns["machine"]`` names the machine's column instead.
        machine_columns: Role -> column of the machine's judgements: user, item, relevance.
        human_sample: How users whom people judged were drawn: ``random``, or ``{column: drawn, probability: chance}``.
            That has to be before anyone sees results, and people judge all that any experiment shows a drawn user.
            The column ``prompt`` is true for users whom the machine's prompt was made with: drawn ones are refused.
        machine_grades: The machine's grade -> people's, if the scales differ.
        events: A row per click, purchase and the like, which give the relevance of shown items: the highest grade of
            the events of an impression, else 0. With judgements too, these give the relevant items and the ideal list.
        event_columns: Role (list, user, item, kind, time) -> column of the events. With list, an event belongs to the
            impression of its item in the list with the same values in the columns ``list``, in their order; without, to
            the latest impression of its item to its user at or before it, by ``columns["time"]``.
        grades: Kind of event -> the grade that it gives to its impression; without a column of kinds, each event has 1.
        within: How long after its impression an event counts, such as ``1h``, the end included; both have a time.
            The time of a list is that of its earliest row.
        assignments: A row per user and arm: who is in which test, since when. A list counts in each test of its user,
            from the first exposure on, and the impressions name no experiment: that is ``test:arm``, or the arm.
        assignment_columns: Role (test, arm, user, time) -> column of the assignments. Without test, all arms are of one
            test; without time, every list counts; with it, ``columns["time"]`` names the time of a list.
        tests: Test -> what it has of its own, as ``tests`` of a config: ``{"layout": {"baseline": "control"}}``.
        time_zone: Where today starts and ends, and of times without an offset.
        convention: A preset, or a mapping with ``preset`` and overrides, or a ``Convention``.
        list: Columns that tell a user's lists apart; a user's value is the mean over their lists.
        segments: Columns whose values split the averages.
        segment_combinations: Segments that split the averages together, such as ``[("country", "device")]``.
        covariate: A column with a number of each user from before the experiment; comparisons are adjusted by it
            (CUPED).
        cluster: A column whose values, such as households, were assigned as a whole: they are the units of errors,
            not users.
        only_changed: Compare only users whose lists differ between the two experiments; the effect over all users is
            shown too.
        trigger: A flag of the log, set where lists could differ: only users who have it are compared. All experiments
            log it by one rule; the effect over all users is shown too.
        first_rank: What the column of ranks calls the first rank.
        baseline: The experiment that the others are compared with, in ``result.comparisons``.
        pairs: Who is compared: with the baseline, or every pair. ``compare`` has further options.
        confidence: Confidence level of the intervals.
        mean_over: Every user counts once (``users``), or every list (``lists``); errors are by user in both.
        correction: Correction of the p-values for the number of comparisons.
        percentiles: Percentiles of each metric over the users, such as ``[50, 90]``: columns ``percentile_50``,
            ``percentile_50_ci_low`` and ``percentile_50_ci_high`` of ``experiment_metrics``, and so on. Exact, of
            Hyndman and Fan's type 7 as NumPy's; the intervals hold for any distribution.
        unit: What one user stands for: ``query`` where a log has queries; texts say so. Names of columns stay.
        repeated_items: Which repeated items are found: ``relevant`` = those that could change a value, ``all``,
            ``ignore`` = none. ``ignore`` trusts the log and does not read the item column.
        text_numbers: Numbers may come as text; text that is no number is a fault of its row.
        layout: How lists travel; the values are the same, the cost is not. See ``rankmetrics_spark.layouts``.

    Returns:
        The tables, lazy like any DataFrame.

    Raises:
        ConfigError: A wrong argument.
        InputError: A column is missing or has a wrong type.

    Examples:
        One user saw three items in each experiment and clicked the first one that they liked: at rank 2, and at rank 1.

        >>> log = [
        ...     {"experiment": arm, "user": "u", "item": item, "position": rank, "relevance": int(item == "b")}
        ...     for arm, items in (("control", "abc"), ("new", "bac"))
        ...     for rank, item in enumerate(items, start=1)
        ... ]
        >>> result = evaluate(log, "rr", baseline="control")  # doctest: +SKIP
        >>> [*result.to_pandas()["mean"]]  # doctest: +SKIP
        [0.5, 1.0]
    """
    keywords = locals()
    given = {"with_events": events is not None, "with_assignments": assignments is not None}
    given |= {"with_machine": machine_judgements is not None, "judged": judgements is not None}
    options = cfg.Options.of(keywords | given)
    compared = replace(cfg.Comparison.of(keywords), tests=cfg.tests("tests", tests or {}))
    cfg.check_tests(compared, options)
    if gated := [name for name, own in compared.tests.items() if own.gates]:
        raise ConfigError.of("gates_without_run", test=gated[0])
    cfg.check_units(compared, cuped=covariate is not None and compared.is_requested)
    eng.explain_in_notebooks()
    others = (), None, events, None, assignments, compared, machine_judgements
    with words.counted_in(options.unit):
        tables = Tables.of(impressions, judgements, options, *others)
    return Result(tables, compared)


P = ParamSpec("P")


def _shows_itself(function: Callable[P, DataFrame]) -> Callable[P, eng.ResultTable]:
    """The function, whose table shows itself in a notebook."""

    @wraps(function)
    def displayed(*arguments: P.args, **options: P.kwargs) -> eng.ResultTable:
        """The table of the function."""
        eng.explain_in_notebooks()
        return _shown(function(*arguments, **options))

    return displayed


def _shown(rows: DataFrame) -> eng.ResultTable:
    """Rows of ``comparisons`` that show themselves in a notebook: the verdict and a table; that starts a job."""
    html = words.bound(lambda: rep.compared_html(*rep.shown_rows(rows)))
    return eng.result_table(rows, html)


compare = eng.told_as_read(_shows_itself(comparison.compare))


def read(
    spark: SparkSession, path: str | Path, format: str = "parquet", *, dates: tuple[str, str] | None = None
) -> eng.ResultTable:
    """A written table, with the columns of all its files; a metric that only some dates have is null on the others.

    It follows the pointers of ``published``: while a run publishes, and after it was killed, each date has its earlier
    rows or the new ones, in all tables. ``experiment_id`` is exactly what was written: "007" stays "007".
    ``evaluation_date`` is a date.

    Args:
        spark: The session.
        path: Folder of the table, such as ``out/user_metrics``, or a table of a catalog: ``lake.ranking.user_metrics``.
        format: ``delta`` or ``iceberg`` for a table of a catalog; the pointers of a folder name its format.
        dates: First and last date of a period, of ``user_metrics`` only: one row per (experiment_id, user_id) over all
            of its dates, with the mean over the user's lists, ``n_days`` and ``first_date``, instead of one row per
            date. Which dates are there is read at once, by a small job.

    Raises:
        AnalysisException: There is no such folder.
        ConfigError: The dates are none, or the first is after the last.
        InputError: There is no such table in the catalog, or runs keep publishing to the folder; no date of the period
            is published, the table holds no users, or the dates follow different conventions.
    """
    rows = sinks.read(spark, str(path), format)
    if dates is None:
        return eng.result_table(sinks.dated(rows))
    days = comparison.published_days(rows, *comparison.first_and_last(dates))
    return eng.result_table(eng.with_unit(comparison.period_rows(rows, days), eng.unit_of(rows)))


def check(
    tables: Tables,
    limits: cfg.Quality,
    compared: cfg.Comparison,
    previous: Previous | None = None,
    source: cfg.Source | None = None,
) -> Findings:
    """Check the quality gates; return counts, rates and warnings. Without a source, the input are tables."""
    place, tags = source.place if source else "the impressions", False
    if source and source.format == "trec_run":
        tags = source.experiment_from == "tag"
    primary = [name for name, role in compared.roles(tables.plan.scoring.metrics).items() if role == PRIMARY]
    log = Inspected(tables, primary, place, tags)
    found = check_quality(log, limits, previous)
    if (labels := tables.label_counts) is not None:
        found = with_agreement(found, labels, bool(tables.plan.options.machine_grades))
    return with_arms(found, log, limits) if tables.assigned else found


def checks_of_log(tables: Tables, compared: cfg.Comparison) -> list[Check]:
    """What the default gates say of a log that no run has read: what a run would refuse, leave out or warn of."""
    try:
        findings = check(tables, cfg.Quality(), compared)
    except (InputError, QualityError) as error:
        # The faulty rows are refused, or else the log is.
        name = next((row.name for row in error.checks if row.status == FAIL), "log")
        return [Check(name, FAIL, f"A run would stop: {error}; check() says more")]
    rows, left_out = findings.total("rows"), findings.total("quarantined")
    sentence = f"{left_out:,} of {rows:,} rows ({left_out / rows:.2%}) were faulty and are left out"
    whole = Check("faulty_rate", OK, sentence if left_out else f"None of {rows:,}", observed=left_out / rows)
    return [whole, *(Check("log", WARN, text) for text in findings.warnings)]


def compared_users(tables: Tables, before: DataFrame | str | None) -> comparison.UserTable:
    """What a comparison reads of ``user_metrics``.

    Args:
        tables: Those of the evaluation.
        before: Values of the users before the experiment: see ``comparison.UserTable``.
    """
    plan, within = tables.plan, tables.within_segments
    if within:
        split = zip(plan.public_segments.items(), within, strict=True)
        rows_of = {name: (rows, column) for (name, column), rows in split}
        table = comparison.UserTable(tables.user_metrics, plan.scoring.metrics, {}, before, within=rows_of)
    else:
        combined = plan.options.combined_segments
        table = comparison.UserTable(tables.user_metrics, plan.scoring.metrics, plan.public_segments, before, combined)
    if tables.assigned:
        assigned = comparison.assigned_users(tables.assigned.experiments)
        table = replace(table, by_test=tables.assigned.asked.by_test, assigned=assigned)
    return replace(table, cluster=plan.public_cluster, trigger=plan.public_trigger)


class Presentation:
    """How a result shows itself. The report, which does it, is loaded by the first call that needs it."""

    @property
    def _figures(self) -> rep.Figures:
        """The small tables that are shown, read once. Reading them starts a job."""
        raise NotImplementedError

    @property
    def _checked(self) -> rep.Figures:
        """The same, with what is known of the log: a run has looked at it before it published."""
        return self._figures

    def summary(self) -> pd.DataFrame:
        """One tidy row per experiment, segment and metric: users, mean, interval and, if compared, the difference.

        A log that a run would refuse is a ``QualityWarning``.
        """
        return rep.summary(self._checked)

    def plot(self, metric: str | None = None) -> alt.LayerChart:
        """The means of a metric with their intervals; it shows itself without a network.

        Args:
            metric: ``ndcg@10``, or ``ndcg`` for all of its cut-offs, under any of their names; by default the metric
                that decides.

        Raises:
            ConfigError: There is no such metric, or the extra ``report`` is not installed.
        """
        return rep.plot(self._figures, metric)

    def write_report(self, file: str | Path) -> None:
        """Write the page of the report; the command ``rankmetrics report`` adds what only the written tables hold.

        Raises:
            ConfigError: The extra ``report`` is not installed.
            OutputError: The file cannot be written.
        """
        rep.write_page(self._checked, file)

    def log_to_mlflow(self, report: str | Path | None = None) -> dict[str, float]:
        """Log the means of all users, the convention and the report to the active run of MLflow, or to a new one.

        Returns the metrics that are logged: means and differences, with their intervals.

        Args:
            report: HTML file to log as well; None = the page of ``write_report``.

        Raises:
            ConfigError: The extra ``mlflow`` is not installed.
        """
        return rep.log_run(self._checked, report)

    def to_pandas(self, table: TableName = "experiment_metrics") -> pd.DataFrame:
        """A table as a DataFrame of pandas, sorted by its keys: collects all of its rows.

        Raises:
            ConfigError: There is no such table.
        """
        return eng.python_table(self._sorted(table), "pandas")  # type: ignore[no-any-return]

    def to_polars(self, table: TableName = "experiment_metrics") -> pl.DataFrame:
        """A table as a DataFrame of polars, sorted by its keys: collects all of its rows.

        Raises:
            ConfigError: There is no such table, or polars is not installed.
        """
        return eng.python_table(self._sorted(table), "polars")  # type: ignore[no-any-return]

    def _sorted(self, table: str) -> DataFrame:
        cfg.choice(*(name for name in get_args(TableName) if hasattr(type(self), name)))("table", table)
        rows: DataFrame = getattr(self, table)
        return rows.orderBy(*(name for name in rows.columns if name in _KEYS))

    def _repr_html_(self) -> str:
        return rep.as_html(self._checked)

    def __dir__(self) -> list[str]:
        """What docs/reference.md lists, and the hooks of Python and of notebooks."""
        return [name for name in super().__dir__() if not name.startswith("_") or name.endswith("_")]


_in_words = words.about(lambda result, *_, **__: result._tables.plan.options.unit)


@dataclass(frozen=True, repr=False)
class Result(Presentation):
    """What ``evaluate`` returns: tables, lazy like any DataFrame, and calls that show or check them."""

    _tables: Tables
    _comparison: cfg.Comparison

    def __repr__(self) -> str:
        """One sentence about the request; it starts no job."""
        options, compared = self._tables.plan.options, "nothing compared"
        if self._comparison.pairs == "all":
            compared = "every pair of experiments compared"
        elif self._comparison.is_requested:
            compared = f"every experiment compared with {self._comparison.baseline!r}"
        names = ["user_metrics", "experiment_metrics", *(["comparisons"] if self._comparison.is_requested else [])]
        return said("result", metrics=options.metrics, options=options, compared=compared, names=names)

    @property
    def user_metrics(self) -> eng.ResultTable:
        """One row per (experiment_id, user_id)."""
        return eng.result_table(eng.with_unit(self._tables.hashed_user_metrics, self._tables.plan.options.unit))

    @property
    def experiment_metrics(self) -> eng.ResultTable:
        """One row per (experiment_id, segment, metric)."""
        means = self._tables.experiment_metrics
        if self._comparison.cluster is not None or self._tables.plan.scoring.machine:
            means = comparison.with_cluster_intervals(means, compared_users(self._tables, None), self._comparison)
        return eng.result_table(means)

    @cached_property
    @_in_words
    def comparisons(self) -> eng.ResultTable:
        """One row per (baseline, experiment_id, segment, metric).

        Which experiments there are is known only when the rows are computed: an unknown baseline is refused then. A
        DataFrame made from this one raises the engine's error, with the same sentence in it.

        Raises:
            ConfigError: Neither a baseline nor all pairs were asked for.
        """
        users = compared_users(self._tables, self._tables.plan.public_covariate)
        return _shown(comparison.comparisons(users, self._comparison))

    @property
    def quarantine(self) -> eng.ResultTable:
        """The rows left out, as text, with a reason each."""
        return eng.result_table(self._tables.quarantine)

    @_in_words
    def check(
        self,
        max_invalid_fraction: float = 0.01,
        on_invalid: Literal["quarantine", "fail"] = "quarantine",
        gates: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Findings:
        """Count the rows and lists, and stop where the command would stop. Unlike all else here, this starts a job.

        Args:
            max_invalid_fraction: Largest fraction of faulty judgements or rows, also in each experiment.
            on_invalid: ``fail`` allows no faulty row or judgement.
            gates: Limits of rates, such as ``{tie_rate: {warn: 0.1, fail: 0.5}}``; see ``RATES``.

        Returns:
            The counts of each experiment, its rates, and the warnings; each warning is also a ``QualityWarning``.

        Raises:
            ConfigError: A wrong argument, or the baseline is not among the experiments.
            InputError: There are no rows, or the judgements match none of them.
            QualityError: Too many faulty rows or judgements, or what else stops the command.
        """
        allowed = cfg.Quality(on_invalid=on_invalid, max_invalid_fraction=max_invalid_fraction, gates=gates or {})
        if others := [name for name in allowed.gates if name in cfg.PAST]:
            raise ConfigError.of("gate_on_earlier_days", name=others[0])
        findings = check(self._tables, allowed, self._comparison)
        if not self._tables.by_test:  # the arms of tests are known to be there
            names = [str(name) for name, count in findings.counts.items() if count["lists"]]
            cfg.check_experiments(self._comparison, names)
        for warning in findings.warnings:
            warnings.warn(warning, QualityWarning, stacklevel=4)
        return findings

    @cached_property
    @_in_words
    def _figures(self) -> rep.Figures:
        metrics = [str(metric) for metric in self._tables.plan.scoring.metrics]
        compared = self.comparisons if self._comparison.is_requested else None
        return rep.figures_of_frames(self.experiment_metrics, compared, order=metrics)

    @cached_property
    @_in_words
    def _checked(self) -> rep.Figures:
        return replace(self._figures, of_log=checks_of_log(self._tables, self._comparison))
