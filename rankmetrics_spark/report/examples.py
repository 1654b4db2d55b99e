"""The users who lost and gained most, with their ranked lists: read once more from the log, for these users only."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from rankmetrics_spark import comparison, config as cfg, engines as eng, metrics as mx, road, schemas as sch, sources
from rankmetrics_spark.errors import HIDDEN, ConfigError, InputError
from rankmetrics_spark.report import read, story
from rankmetrics_spark.report.figures import Examples, Figures, ListedItem, UserChange
from rankmetrics_spark.words import UNIT, UNITS, counted

#: Users whose lists are read.
MOST_USERS = 200
#: Lists of a user in an experiment that are shown.
MOST_LISTS = 3
#: Ranks of a list that are shown.
DEPTH = 20
#: Relevant items per user that no list shows.
MOST_MISSED = 5
#: Users in both experiments up to which each of them is shown: topics of a test collection.
MOST_TOPICS = 200
#: Experiments beside the best one, where all pairs are compared.
MOST_OTHERS = 5
#: Changes that are read; with more, only those on the metric that decides.
MOST_ROWS = 20_000
_PLACE, _N_LIST, _LIST = "_place", "size", "which"
KINDS: tuple[Literal["loss", "gain"], ...] = ("loss", "gain")


def examples_of(
    spark: SparkSession, config: cfg.Config, figures: Figures, tables: read.SparkTables, n: int | None = None
) -> Examples | None:
    """What a page shows of single users; None where nothing was asked for, or where nothing is compared.

    Args:
        spark: The session.
        config: That of the run; it says where the log is.
        figures: What the page shows besides; it says who is compared.
        tables: The output of the run.
        n: Users with the largest losses, and with the largest gains; by default as the config says.

    Raises:
        InputError: The log cannot be read.
    """
    n = config.report.examples or 0 if n is None else n
    if not n or not figures.compared or figures.primary is None or config.assignments:
        return None
    with eng.session_settings(spark, config.spark):
        if (users := tables.of_date("user_metrics", config.evaluation_date)) is None:
            return None
        section, table = sides_of(figures), comparison.UserTable.of(users)
        changes = largest(table, figures, n)
        shown = Examples(
            changes,
            n_changes=len(changes),
            of_queries=config.source.format == "trec_run",
            baseline=str(section.baseline),
            others=(len(section.candidates), len(figures.experiments) - 1) if len(figures.baselines) > 1 else None,
            is_ahead=section.baseline == story.leader(figures),
        )
        if not changes:
            is_paired = any(found.design == "paired" for found in figures.compared)
            none = f"The values of all {UNITS} are the same" if is_paired else f"Each {UNIT} has seen one experiment"
            return replace(shown, note=f"{none}, so none has lost or gained.")
        log = Log.of(spark, config)
        chosen = shown.users[:MOST_USERS]
        lists, missed = log.lists(chosen, shown.experiments), log.missed(chosen)
        of_chosen = [change for change in changes if change.user_id in {*chosen}]
        return replace(shown, changes=of_chosen, lists=lists, missed=missed, topics=topics(table, figures))


def with_examples(
    spark: SparkSession, figures: Figures, sink: cfg.Sink, log: str | Mapping[str, object] | None, n: int | None
) -> Figures:
    """The figures of an output with single users, whose lists are read once more from the log of the run.

    A log that cannot be read any more, or whose lists are not those of the values, is a sentence on the page.

    Args:
        spark: The session.
        figures: What the page shows besides.
        sink: Where the run wrote.
        log: The config that names the log, or its file; by default the config that is in the run record.
        n: Users with the largest losses, and with the largest gains; by default as that config says.

    Raises:
        ConfigError: The config is wrong, asks for no users, or the record has none from which a log can be read.
    """
    date = str(figures.record.get(sch.DATE) or "")
    if log is not None:
        config = cfg.load(log, date=date or None)
    elif not figures.config or HIDDEN in json.dumps(figures.config):
        problem = "hides secrets of its config" if figures.config else "is not there"
        raise ConfigError(f"--examples: the run record of {date or 'this date'} {problem}; allowed: --config with it")
    else:
        config = cfg.from_mapping(figures.config)
    n = config.report.examples if n is None else n
    if n and config.assignments:
        raise ConfigError(f"--examples: each {UNIT} of a test sees one of its arms; allowed: --examples 0")
    if not n:
        raise ConfigError("--config is given, and its report.examples is 0; allowed: --examples 20 with it")
    try:
        tables = read.spark_tables(spark, sink)
        examples = examples_of(spark, config, figures, tables, n)
        if examples and examples.changes and (changed := changed_since(spark, config, tables, examples)):
            note = "Their lists are not shown: the log has changed since the run, or is read otherwise"
            examples = Examples((), note=f"{note} ({changed}).")
    except InputError as error:
        examples = Examples((), note=f"Their lists cannot be read again: {error}.")
    return replace(figures, examples=examples)


def changed_since(spark: SparkSession, config: cfg.Config, tables: read.SparkTables, examples: Examples) -> str:
    """How many users have lists that give other values now than the run has stored, in words; empty for none."""
    users = examples.users
    stored = tables.of_date("user_metrics", config.evaluation_date)
    assert stored is not None
    with eng.session_settings(spark, config.spark):
        (impressions, judgements), events = sources.inputs(spark, config), sources.read_events(spark, config.events)
        log = road.Tables.of(impressions, judgements, config.options, events=events, day=config.evaluation_date)
        of_users = F.col(sch.USER).isin(users)
        pools = None if log.pools is None else log.pools.where(of_users)
        now = replace(log, rows=log.rows.where(of_users), pools=pools).user_metrics
        names = [sch.N_SHOWN, sch.N_RELEVANT, *(metric.column for metric in config.options.metrics)]
        names = [name for name in names if name in stored.columns and name in now.columns]
        chosen = of_users & F.col(sch.EXPERIMENT).isin(examples.experiments)
        both = (eng.few_rows(rows.where(chosen).select(sch.EXPERIMENT, sch.USER, *names)) for rows in (stored, now))
        before, after = ({(experiment, user): cells for experiment, user, *cells in rows} for rows in both)
    changed = {key[1] for key in {*before} | {*after} if not _alike(before.get(key), after.get(key))}
    return f"{len(changed):,} of {counted(len(users))} have other values" if changed else ""


def _alike(before: Sequence[float | None] | None, after: Sequence[float | None] | None) -> bool:
    """Whether values are the same but for the rounding of another engine."""
    if before is None or after is None:
        return before is after
    pairs = zip(before, after, strict=True)
    return all(a is b or (a is not None and b is not None and math.isclose(a, b, abs_tol=1e-9)) for a, b in pairs)


def sides_of(figures: Figures) -> cfg.Comparison:
    """Whose lists stand on the left, and on the right: the baseline and what was compared with it.

    Of all pairs, the experiment that is ahead, else that with the best mean, and the best of the others.
    """
    if figures.only_baseline:
        candidates = dict.fromkeys(found.candidate for found in figures.compared)
        return cfg.Comparison(baseline=figures.only_baseline, candidates=tuple(candidates))
    best = story.leader(figures) or figures.experiments[0]
    others = [name for name in figures.experiments if name != best]
    return cfg.Comparison(baseline=best, candidates=tuple(others[:MOST_OTHERS]))


def fitting(table: comparison.UserTable, figures: Figures, n: int) -> comparison.UserTable:
    """The users with all metrics, the one that decides first; with it alone where so many of each are too many."""
    stored = {str(metric) for metric in table.metrics}
    metrics = [metric for metric in figures.metrics if str(metric) in stored]
    metrics.sort(key=lambda metric: metric != figures.primary)
    are_few = n * len(sides_of(figures).candidates) * len(metrics) <= MOST_ROWS
    return replace(table, metrics=tuple(metrics if are_few else metrics[:1]))


def _changes(rows: DataFrame, size: str, kind: str = "") -> list[UserChange]:
    """Rows of ``comparison.user_changes``, with the column that is their size."""
    columns = rows.limit(MOST_ROWS).select(*UserChange._fields[:-2], size)
    return [UserChange._make((*row, kind)) for row in eng.few_rows(columns)]


def largest(users: comparison.UserTable, figures: Figures, n: int) -> list[UserChange]:
    """The changes of the users who lost and gained most: of the metric that decides first, the largest first."""
    table, section = fitting(users, figures, 2 * n), sides_of(figures)
    of_kinds = [_changes(comparison.largest_changes(table, section, n, kind), kind, kind) for kind in KINDS]
    order = {str(metric): place for place, metric in enumerate(table.metrics)}

    def place(change: UserChange) -> tuple[Any, ...]:
        metric, experiment = order[change.metric], figures.places.get(change.experiment_id, 0)
        return metric, experiment, change.kind != KINDS[0], -change.size, change.user_id

    return sorted(itertools.chain(*of_kinds), key=place)


def topics(users: comparison.UserTable, figures: Figures) -> list[UserChange]:
    """The change of every user, the largest loss first; empty where they are many, or where few are in both."""
    section = sides_of(figures)
    shown = {str(section.baseline), *section.candidates}
    paired = [each for each in figures.compared if {*each.pair} <= shown and each.design == "paired"]
    if not paired or max(each.n_users for each in paired) > MOST_TOPICS:
        return []
    changes = _changes(comparison.user_changes(fitting(users, figures, MOST_TOPICS), section), "difference")
    known = (change for change in changes if change.size is not None)
    # Of ties, the order of the rows of an engine is not always the same.
    return sorted(known, key=lambda change: (change.size, change.user_id, change))


@dataclass(frozen=True)
class Log:
    """The impressions and judgements of a run, read again for a few users.

    Attributes:
        rows: The sound rows, typed, in internal names.
        judged: user, item and grade of each judgement; None without judgements.
        columns: What the impressions hold.
        convention: Which grades are relevant, and how tied scores are ordered.
    """

    rows: DataFrame
    judged: DataFrame | None
    columns: sch.Columns
    convention: mx.Convention

    @classmethod
    def of(cls, spark: SparkSession, config: cfg.Config) -> "Log":
        """Read the schemas."""
        tables = *sources.inputs(spark, config), sources.read_events(spark, config.events)
        impressions, judgements, options, *_ = road.flattened(*tables, config.options, config.evaluation_date)
        plan = road.make_plan(options, impressions.schema, judgements.schema if judgements else None)
        plan = replace(plan, columns=replace(plan.columns, item=plan.mapping.get(sch.ITEM) in impressions.columns))
        text_numbers, judged = plan.options.text_numbers, plan.scoring.judged
        rows = road.checked_rows(impressions, plan.mapping, plan.columns, text_numbers, judged)
        grades = None
        if judgements is not None:
            typed = road.typed_judgements(judgements, plan.judgement_mapping, text_numbers)
            sound = typed.where(F.col(road.FAULTY).isNull())
            grades = sound.groupBy(sch.USER, sch.ITEM).agg(F.max(road.GRADE).alias(road.GRADE))
        return cls(rows.where(F.col(sch.REJECTED).isNull()), grades, plan.columns, config.convention)

    def lists(self, users: Sequence[str], experiments: Sequence[str]) -> list[ListedItem]:
        """The first ranks of the first lists of these users."""
        columns, keys = self.columns, list(self.columns.keys)
        rows = self.rows.where(F.col(sch.USER).isin([*users]) & F.col(sch.EXPERIMENT).isin([*experiments]))
        # Of tied items, the order is that of the convention, else by id, descending.
        by_item = F.col(sch.ITEM).asc() if self.convention.ties == "item_asc" else F.col(sch.ITEM).desc()
        order = [F.col(sch.POSITION), *([F.col(sch.ITEM)] if columns.item else [])]
        if columns.by_score:
            score = F.col(sch.SCORE).cast("float") if self.convention.score_precision == 32 else F.col(sch.SCORE)
            tied = [F.col(sch.POSITION).asc_nulls_last()] * (self.convention.ties == "position" and columns.position)
            order = [score.desc(), *tied, *([by_item] if columns.item else [])]
        in_list, in_user = Window.partitionBy(*keys), Window.partitionBy(sch.EXPERIMENT, sch.USER)
        place = {
            _PLACE: F.row_number().over(in_list.orderBy(*order)),
            _N_LIST: F.count(F.lit(1)).over(in_list),
            _LIST: F.dense_rank().over(in_user.orderBy(*columns.list_columns)) if columns.list else F.lit(1),
        }
        top = rows.withColumns(place).where((F.col(_PLACE) <= DEPTH) & (F.col(_LIST) <= MOST_LISTS))
        grade = F.col(sch.RELEVANCE).cast("double") if columns.relevance else F.lit(None).cast("double")
        rank = F.col(_PLACE) if columns.by_score else F.col(sch.POSITION)
        item = F.col(sch.ITEM) if columns.item else F.lit("")
        label = F.concat_ws(", ", *columns.list_columns) if columns.list else F.lit("")
        top = top.select(sch.EXPERIMENT, sch.USER, label.alias("label"), _LIST, _N_LIST,
                         rank.alias("rank"), item.alias("item"), grade.alias("grade"))  # fmt: skip
        if self.judged is not None and not columns.relevance:
            known = self.judged.withColumnsRenamed({sch.ITEM: "item", road.GRADE: "_judged_grade"})
            top = top.join(known, [sch.USER, "item"], "left").withColumn("grade", F.col("_judged_grade"))
        ordered = top.orderBy(sch.EXPERIMENT, sch.USER, _LIST, "rank", "item").select(*ListedItem._fields[:-1])
        items, least = eng.few_rows(ordered), self.convention.relevant_from
        return [ListedItem._make((*item, grade, (grade or 0) > 0 and grade >= least)) for *item, grade in items]

    def missed(self, users: Sequence[str]) -> list[tuple[str, str, float, int]]:
        """Relevant items of these users that no list of any experiment shows, the highest grades first."""
        if self.judged is None or not self.columns.item:
            return []
        of_users = self.judged.where(F.col(sch.USER).isin([*users]))
        relevant = of_users.where((F.col(road.GRADE) > 0) & (F.col(road.GRADE) >= self.convention.relevant_from))
        shown = self.rows.where(F.col(sch.USER).isin([*users])).select(sch.USER, sch.ITEM).distinct()
        place = F.row_number().over(Window.partitionBy(sch.USER).orderBy(F.desc(road.GRADE), sch.ITEM))
        size = F.count(F.lit(1)).over(Window.partitionBy(sch.USER))
        left = relevant.join(shown, [sch.USER, sch.ITEM], "left_anti").withColumns({_PLACE: place, "n": size})
        first = left.where(F.col(_PLACE) <= MOST_MISSED).orderBy(sch.USER, _PLACE)
        return [*map(tuple, eng.few_rows(first.select(sch.USER, sch.ITEM, road.GRADE, "n")))]
