"""``evaluate``: impressions -> tables. Lazy: nothing here starts a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark import aggregation, conventions, judging, ranking, scoring
from rankmetrics_spark.errors import ConfigError, unknown
from rankmetrics_spark.metrics import Metric, parse
from rankmetrics_spark.options import Options, check_choices, chosen_form, renamed, resolved_columns
from rankmetrics_spark.quality import validated
from rankmetrics_spark.schemas import (
    DOUBTFUL,
    EXPERIMENT,
    FLAGGED,
    ITEM,
    N_DROPPED,
    N_LISTS,
    N_ROWS,
    POSITION,
    REASON,
    REJECTED,
    RELEVANCE,
    SCORE,
    USER,
    WHOLE,
    Columns,
    quoted,
)
from rankmetrics_spark.scoring import Scoring
from rankmetrics_spark.vectorized import Step


def evaluate(
    impressions: DataFrame,
    metrics: Sequence[str | Metric] = Options.metrics,
    judgements: DataFrame | None = None,
    rank_by: str = POSITION,
    **options: object,
) -> Result:
    """Per-user and per-experiment ranking metrics of an impression log, all out of one pass over it.

    Args:
        impressions: One row per shown item.
        metrics: Names such as ``ap@10`` or ``ndcg@10``.
        judgements: (user, item, relevance), items never shown included; they define m and the ideal list.
        rank_by: ``position`` (a column of ranks from 1) or ``score`` (descending).
        **options: Further fields of ``Options``: columns, convention, list, segments, ...

    Raises:
        ConfigError: A wrong argument.
        InputError: A column is missing or has a wrong type.
    """
    known = {name for name in vars(Options()) if name not in ("metrics", "rank_by")}
    for name in options:
        if name not in known:
            raise ConfigError(f"evaluate() got an {unknown('option', name, sorted(known))}")
    return Result(Evaluation.of(impressions, judgements, Options(metrics, rank_by=rank_by, **options)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Evaluation:
    """A planned evaluation: what is there, what is computed, and the steps between.

    ``table`` is the outcome of the one pass: a row per list with its metrics, and a row per group of equal faulty rows
    (``rejected`` not null). Every other table follows from it, so a job can write it once and read it back.
    """

    rows: DataFrame
    pools: DataFrame | None
    columns: Columns
    scoring: Scoring
    form: str
    confidence: float
    judgement_columns: Mapping[str, str | None]

    @classmethod
    def of(cls, impressions: DataFrame, judgements: DataFrame | None, options: Options) -> Evaluation:
        """Check the arguments against the input's schema and plan the evaluation."""
        metrics = tuple(dict.fromkeys(m if isinstance(m, Metric) else parse(m) for m in options.metrics))
        rule = conventions.resolve(options.convention)
        check_choices(options, metrics, rule)
        columns, mapping = resolved_columns(impressions, judgements is not None, options, metrics, rule)
        work = Scoring(
            metrics,
            rule,
            options.rank_by == POSITION,
            columns.item and options.repeated_items != "ignore",
            judgements is not None,
        )
        if work.by_position and columns.relevance and not work.items_matter:
            columns = replace(columns, item=False)
        rows = validated(impressions, mapping, columns, options.text, null_is_unjudged=judgements is not None)
        form = chosen_form(options, columns, work, rows.schema[RELEVANCE].dataType if columns.relevance else None)
        pools, names = None, {}
        if judgements is not None:
            names = renamed(judgements.columns, options.judgement_columns or {}, (USER, ITEM, RELEVANCE))
            pools = judging.pools(judgements, names, any(m.needs == "judged" for m in metrics), options.text)
        return cls(rows, pools, columns, work, form, options.confidence, names)

    def table(self) -> DataFrame:
        """The one pass over the rows: scored lists and faulty rows."""
        return self.lists().unionByName(self.faulty, allowMissingColumns=True)

    @cached_property
    def first(self) -> DataFrame:
        """The rows grouped by list, and the groups of faulty ones."""
        return ranking.together(ranking.lists(self.rows, self.columns, self.form, self.scoring.items_matter))

    @property
    def known(self) -> DataFrame:
        """The groups of sound rows, before anything is computed of them."""
        return self.first.where(F.col(REJECTED).isNull())

    @property
    def faulty(self) -> DataFrame:
        """The groups of equal faulty rows."""
        groups = self.first.where(F.col(REJECTED).isNotNull())
        return groups.select(*map(quoted, self.columns.keys), N_ROWS, REJECTED)

    def lists(self, then: Step | None = None) -> DataFrame:
        """Scored lists; those that the form cannot vouch for are computed again from their rows.

        Where ``then`` says what is made of them, that.
        """
        if self.form == "rows":
            return self._scored(self.known, self.form, then)
        done = self._scored(self.first.where(f"NOT {FLAGGED}"), self.form, then)
        keys = self.first.where(FLAGGED).select(*map(quoted, self.columns.keys), DOUBTFUL)
        rows = ranking.only(self.rows, keys, self.columns)
        again = ranking.lists(rows, self.columns, "again", self.scoring.items_matter)
        return done.unionByName(self._scored(again, "again", then))

    def _scored(self, lists: DataFrame, form: str, then: Step | None) -> DataFrame:
        if self.pools is not None:
            # Whom nobody judged stays in: his rows are accounted for, whatever the population.
            lists = lists.join(self.pools, USER, "left")
        return scoring.scored(lists, self.columns, form, self.scoring, then)

    def user_metrics(self, lists: DataFrame, known: DataFrame) -> DataFrame:
        """One row per (experiment, user) of the convention's population.

        Args:
            lists: Scored lists.
            known: Their experiments and users, from where they cost least.
        """
        population = self.scoring.convention.population
        users = scoring.per_user(lists, self.columns, self.scoring)
        if self.pools is not None and population in ("judged", "both"):
            users = users.join(self.pools.select(USER), USER, "left_semi")
        if self.pools is None or population not in ("judged", "either"):
            return users
        return users.unionByName(self._without_list(known), allowMissingColumns=True)

    def _without_list(self, known: DataFrame) -> DataFrame:
        """Judged users without a list, once per experiment: metrics of an empty list."""
        assert self.pools is not None
        there = known.select(EXPERIMENT, USER).distinct()
        empty = replace(self.columns, list=(), segments=(), position=True, score=False, relevance=True)
        keys = self.pools.crossJoin(F.broadcast(there.select(EXPERIMENT).distinct())).join(
            there, [EXPERIMENT, USER], "left_anti"
        )
        entry = "array<struct<position: bigint, hash: bigint, relevance: double>>"
        none = keys.withColumns({N_ROWS: F.lit(0).cast("bigint"), "entries": F.array().cast(entry)})
        users = scoring.per_user(scoring.scored(none, empty, "relevant", self.scoring), empty, self.scoring)
        return users.withColumn(N_LISTS, F.lit(0).cast("bigint"))

    def experiment_metrics(self, users: DataFrame) -> DataFrame:
        """Averages of ``user_metrics``."""
        return self._averages(aggregation.sums_of_users(users, self.scoring.metrics, self.columns.segments))

    def averages(self) -> DataFrame:
        """The same without ``user_metrics`` where every list is a user and no user lacks one: one way to Python."""
        if self.columns.list or (self.pools is not None and self.scoring.convention.population != "shown"):
            return self.experiment_metrics(self.user_metrics(self.lists(), self.known))
        sums = aggregation.sums(self.scoring.metrics, self.columns.segments)
        return self._averages(self.lists(sums))

    def _averages(self, sums: DataFrame) -> DataFrame:
        return aggregation.averages(sums, self.scoring.convention, self.confidence)

    def rejected(self, faulty: DataFrame) -> DataFrame:
        """Rows with a fault of their own, as text with the reason; ``faulty`` holds groups of equal ones."""
        rows = faulty.select(F.col(REJECTED), F.explode(F.expr(f"array_repeat(0, int({N_ROWS}))")).alias("copy"))
        return rows.select(*(F.col(f"{REJECTED}.{quoted(name)}").alias(name) for name in self._quarantine_columns()))

    def repeated(self, lists: DataFrame) -> DataFrame:
        """Rows that lost their place to another of their list.

        Looks only at the lists that lost some, and there at the rows that were looked at when they did.
        """
        keys = lists.where(F.col(N_DROPPED) > 0).select(*map(quoted, self.columns.keys), WHOLE)
        seen = f"{WHOLE} OR {RELEVANCE} > 0" if self.columns.relevance else WHOLE
        columns = self.columns if self.scoring.items_matter else replace(self.columns, item=False)
        rank_by = POSITION if self.scoring.by_position else SCORE
        rows = ranking.repeated(
            ranking.only(self.rows, keys, self.columns).where(seen),
            columns,
            rank_by,
            self.scoring.convention.duplicates,
        )
        return rows.select(*(F.col(quoted(name)).cast("string").alias(name) for name in self._quarantine_columns()))

    def _quarantine_columns(self) -> list[str]:
        return [*self.columns.keys, *self.columns.values, REASON]


@dataclass(frozen=True)
class Result:
    """The tables of one evaluation, lazy like any DataFrame; what nobody asks for is not even planned."""

    _work: Evaluation

    @cached_property
    def user_metrics(self) -> DataFrame:
        """One row per (experiment_id, user_id)."""
        return self._work.user_metrics(self._lists, self._work.known)

    @cached_property
    def experiment_metrics(self) -> DataFrame:
        """One row per (experiment_id, segment, metric)."""
        return self._work.averages()

    @cached_property
    def quarantine(self) -> DataFrame:
        """The rows left out, with a reason each."""
        rejected = self._work.rejected(self._work.faulty)
        return rejected.unionByName(self._work.repeated(self._lists))

    @cached_property
    def _lists(self) -> DataFrame:
        return self._work.lists()
