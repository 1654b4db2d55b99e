"""``evaluate``: impressions -> tables. Lazy: nothing here starts a job."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark import comparison, road
from rankmetrics_spark.config import DEFAULT_METRICS, Comparison, Options, Quality, check_experiments
from rankmetrics_spark.engines import engine_of, spark_table, with_fields
from rankmetrics_spark.errors import QualityWarning
from rankmetrics_spark.gates import Findings, Inspected, check_quality
from rankmetrics_spark.metrics import Convention, Metric
from rankmetrics_spark.report import Displayed
from rankmetrics_spark.road import Plan, averages_of_sums, make_plan, rejected_rows, sums_of_lists
from rankmetrics_spark.schemas import (
    CONVENTION_INDEX,
    REJECTED,
)

ColumnMap: TypeAlias = Mapping[str, str | None]


def evaluate(
    impressions: DataFrame,
    metrics: str | Sequence[str | Metric] = DEFAULT_METRICS,
    judgements: DataFrame | None = None,
    rank_by: Literal["position", "score"] = "position",
    *,
    columns: ColumnMap | None = None,
    judgement_columns: Mapping[str, str] | None = None,
    convention: str | Mapping[str, object] | Convention = "standard",
    list: str | Sequence[str] = (),
    segments: str | Sequence[str] = (),
    segment_combinations: Sequence[str | Sequence[str]] = (),
    covariate: str | None = None,
    first_rank: Literal[0, 1] = 1,
    baseline: str | None = None,
    pairs: Literal["baseline", "all"] = "baseline",
    confidence: float = 0.95,
    correction: Literal["holm", "bonferroni", "fdr_bh", "fdr_by", "none"] = "holm",
    repeated_items: Literal["relevant", "all", "ignore"] = "relevant",
    text_numbers: bool = False,
    layout: Literal["auto", "masks", "relevant", "rows"] = "auto",
) -> Result:
    """Per-user and per-experiment ranking metrics of an impression log, all out of one pass over it.

    Args:
        impressions: One row per shown item.
        metrics: Names such as ``ap@10`` or ``ndcg@10``.
        judgements: (user, item, relevance), including items that were never shown. They define the number of relevant
            items and the ideal list.
        rank_by: ``position`` (a column of ranks, from 1) or ``score`` (descending).
        columns: Role (experiment, user, item, position, score, relevance) -> column of the impressions; ``None`` = the
            impressions have no such column. A role that is not named is looked for under its long name (``user_id``)
            and its short name.
        judgement_columns: The same for the judgements (user, item, relevance).
        convention: A preset, a mapping with ``preset`` and overrides, or a ``Convention``.
        list: Columns that tell a user's lists apart; a user's value is the mean over their lists.
        segments: Columns whose values split the averages.
        segment_combinations: Segments that split them together, such as ``[("country", "device")]``.
        covariate: A column with a number of each user from before the experiment; comparisons are adjusted by it
            (CUPED).
        first_rank: What the column of ranks calls the first rank.
        baseline: The experiment that ``result.comparisons`` compares the others with.
        pairs: ``all`` compares every pair. ``compare`` has further options.
        confidence: Of the intervals, in (0, 1).
        correction: Of the p-values, for the number of comparisons.
        repeated_items: ``relevant`` finds every repeated item that could change a value, ``all`` finds every one,
            ``ignore`` trusts the log and does not read the item column.
        text_numbers: Numbers may come as text; text that is no number is a fault of its row.
        layout: How lists travel: the values are the same, the cost is not. See ``rankmetrics_spark.layouts``.

    Returns:
        The tables, lazy like any DataFrame.

    Raises:
        ConfigError: A wrong argument.
        InputError: A column is missing or has a wrong type.
    """
    options = Options(
        metrics=metrics,
        convention=convention,
        rank_by=rank_by,
        columns=columns,
        judgement_columns=judgement_columns,
        list=list,
        segments=segments,
        segment_combinations=segment_combinations,
        covariate=covariate,
        first_rank=first_rank,
        confidence=confidence,
        repeated_items=repeated_items,
        layout=layout,
        text_numbers=text_numbers,
        judged=judgements is not None,
    )
    compared = Comparison(baseline=baseline, pairs=pairs, confidence=confidence, correction=correction)
    return Result.of(impressions, judgements, options, comparison=compared)


@dataclass(frozen=True)
class Result(Displayed):
    """The tables of one evaluation, lazy like any DataFrame; what is never asked for is not even planned.

    Attributes:
        plan: Columns, layout, metrics and conventions, as they were chosen.
        user_metrics: One row per (experiment_id, user_id): the segments, the covariate, n_lists, n_shown, n_relevant,
            n_repeated, and one column per metric (null = left out by the convention).
        experiment_metrics: One row per (experiment_id, segment, metric), and per convention if there are several: the
            number of users, the mean with its deviation and interval.
        comparisons: One row per (baseline, experiment_id, segment, metric): is the one better than the other?
        quarantine: The rows left out, as text, with a reason each.
    """

    plan: Plan
    _rows: DataFrame
    _pools: DataFrame | None
    _staged: DataFrame | None = None
    """The outcome of the pass, where it has been written and read back."""
    _comparison: Comparison = field(default_factory=Comparison)
    _truth: DataFrame | None = None
    """The judgements as they came."""

    @classmethod
    def of(
        cls,
        impressions: DataFrame,
        judgements: DataFrame | None,
        options: Options,
        conventions: Sequence[Convention] = (),
        comparison: Comparison | None = None,
    ) -> Result:
        """Plan the evaluation that the options describe; with several ``conventions``, under each of them.

        Raises:
            ConfigError: A table is no DataFrame of Spark, or the options do not fit one another.
            InputError: A column is missing or has a type that cannot serve.
        """
        columns = (*options.columns.values(), *options.list, *options.segments, options.covariate)
        impressions = with_fields(spark_table(impressions, "impressions"), filter(None, columns))
        if judgements is not None:
            judgements = with_fields(spark_table(judgements, "judgements"), options.judgement_columns.values())
        schema = None if judgements is None else judgements.schema
        plan = make_plan(options, impressions.schema, schema, conventions)
        plan = plan.on(engine_of(impressions.sparkSession), impressions.schema)
        asked = comparison or Comparison()
        rows, pools = road.typed_rows(impressions, plan), road.judged_items(judgements, plan)
        return cls(plan, rows, pools, _comparison=asked, _truth=judgements)

    def check(
        self,
        max_invalid_fraction: float = 0.01,
        on_invalid: Literal["quarantine", "fail"] = "quarantine",
        gates: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Findings:
        """Count the rows and lists, and stop where the command would stop. Unlike all else here, this starts a job.

        Args:
            max_invalid_fraction: Largest allowed fraction of faulty rows, in each experiment and over all.
            on_invalid: ``fail`` allows none.
            gates: Limits of rates, such as ``{"tie_rate": {"warn": 0.1, "fail": 0.5}}``; see ``RATES``.

        Returns:
            The counts of each experiment, its rates, and the warnings; each warning is also a ``QualityWarning``.

        Raises:
            ConfigError: A wrong argument, or the baseline is not among the experiments.
            InputError: There are no rows, or the judgements match none of them.
            QualityError: Too many faulty rows, or what else stops the command.
        """
        allowed = Quality(on_invalid=on_invalid, max_invalid_fraction=max_invalid_fraction, gates=gates or {})
        log = Inspected(self.plan, self.outcome, self.rows, self._truth, lambda: self.repeated)
        found = check_quality(log, allowed)
        check_experiments(self._comparison, [str(name) for name, count in found.counts.items() if count["lists"]])
        for warning in found.warnings:
            warnings.warn(warning, QualityWarning, stacklevel=2)
        return found

    @property
    def rows(self) -> DataFrame:
        """The typed rows of the input, each faulty one with its reason, in internal names."""
        return self._rows

    @property
    def outcome(self) -> DataFrame:
        """Scored lists and groups of faulty rows, in internal names."""
        return road.outcome(self._rows, self._pools, self.plan) if self._staged is None else self._staged

    @cached_property
    def user_metrics(self) -> DataFrame:
        """One row per (experiment_id, user_id)."""
        return road.published_users(self.users, self.plan)

    @cached_property
    def experiment_metrics(self) -> DataFrame:
        """One row per (experiment_id, segment, metric); with several conventions, a row for each."""
        if not self.plan.lists_are_users:
            users = road.published_users(self.users, self.plan, CONVENTION_INDEX)
            return road.averages(users, self.plan, self.within_segments, several_conventions=True)
        # One way to Python for both: the sums are taken where the lists are scored.
        combined = self.plan.options.combined_segments
        step = sums_of_lists(self.plan.scoring.metrics, self.plan.columns.segments, combined)
        sums = road.scored_lists(self._rows, self._packed, self._pools, self.plan, step)
        return averages_of_sums(sums, self.plan.scoring.conventions, self.plan.options.confidence)

    @cached_property
    def comparisons(self) -> DataFrame:
        """One row per (baseline, experiment_id, segment, metric).

        Which experiments there are is known only when the rows are computed: the error of an unknown baseline comes
        from the engine then, with its trace. ``check``, ``summary`` and ``write_report`` say it in a sentence.

        Raises:
            ConfigError: Neither a baseline nor all pairs were asked for.
        """
        table = road.compared_users(self.user_metrics, self.plan, self.plan.public_covariate, self.within_segments)
        return comparison.comparisons(table, self._comparison)

    @cached_property
    def quarantine(self) -> DataFrame:
        """The rows left out, with a reason each."""
        return self.rejected.unionByName(self.repeated)

    def shown_tables(self) -> tuple[DataFrame, DataFrame | None, dict[str, Any]]:
        """What a notebook shows: see ``Displayed``."""
        metrics = [str(metric) for metric in self.plan.scoring.metrics]
        compared = self.comparisons if self._comparison.asked else None
        return self.experiment_metrics, compared, {"order": metrics}

    @property
    def rejected(self) -> DataFrame:
        """The part of the quarantine that has a fault of its own; it needs no second look at the input."""
        return rejected_rows(self.faulty, self.plan.columns)

    @property
    def repeated(self) -> DataFrame:
        """The part of the quarantine that repeats an item or a rank."""
        return road.repeated(self._rows, self._lists, self._pools, self.plan)

    @cached_property
    def users(self) -> DataFrame:
        """One row per (experiment, user, convention), in internal names."""
        return road.users(self._lists, self._packed, self._pools, self.plan)

    @cached_property
    def within_segments(self) -> Sequence[DataFrame]:
        """Per segment column: a row per user and value, over the user's lists with it; empty if users have one list."""
        if not self.plan.columns.list:
            return ()
        names = self.plan.columns.segment_columns
        tables = (road.users(self._lists, self._packed, self._pools, self.plan, within=name) for name in names)
        return [road.published_users(table, self.plan, CONVENTION_INDEX) for table in tables]

    @property
    def faulty(self) -> DataFrame:
        """Groups of equal faulty rows."""
        if self._staged is not None:
            return road.faulty_of(self._staged, self.plan)
        return road.faulty(self._rows, self._packed, self.plan)

    @cached_property
    def _packed(self) -> DataFrame:
        return road.packed(self._rows, self.plan) if self._staged is None else self._staged

    @cached_property
    def _lists(self) -> DataFrame:
        if self._staged is not None:
            return self._staged.where(F.col(REJECTED).isNull())
        return road.scored_lists(self._rows, self._packed, self._pools, self.plan)
