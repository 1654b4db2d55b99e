"""``run``: read, check, rank, score, aggregate, publish. The job that command line, spark-submit and notebooks share.

The module is not called ``run``, because the function of that name would then be hidden by its own module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark import road, sources
from rankmetrics_spark.config import Config
from rankmetrics_spark.engines import SETTINGS_OF_ROWS, all_of, engine_of, few_rows, session_settings
from rankmetrics_spark.errors import RankmetricsError, lost_engine, raised_by_python, without_secrets
from rankmetrics_spark.gates import Counts, Findings, Inspected, check_quality, total_counts
from rankmetrics_spark.job import answers
from rankmetrics_spark.job.record import Record, on_disk, record_refusal, versions_of
from rankmetrics_spark.pipeline import Presentation, Tables
from rankmetrics_spark.report import Figures, figures_of_frames
from rankmetrics_spark.road import Plan, head_fits_masks, judgement_counts, make_plan
from rankmetrics_spark.schemas import CONVENTION_HASH, N_LISTS, REASON
from rankmetrics_spark.sinks import (
    MOST_ROWS,
    Entry,
    Store,
    Written,
    compare_books,
    partitions_for,
    previous_quality,
    publish,
    refuse_names,
    refuse_other_convention,
    refuse_other_date,
    store_of,
)
from rankmetrics_spark.sources import at_midnight, whole_log

__all__ = [
    "Outcome",
    "Progress",
    "Record",
    "errors_in_words",
    "inputs",
    "on_disk",
    "record_refusal",
    "run",
]

Progress = Callable[[str], None]


@dataclass(frozen=True, repr=False)
class Outcome(Presentation):
    """What a run wrote.

    Attributes:
        run_id: Name of the run.
        path: Output folder, or schema of the tables.
        record: The run record as a mapping.
        record_path: Where the record lies.
    """

    run_id: str
    path: str
    record: dict[str, Any]
    record_path: str
    _store: Store
    _tables: Mapping[str, Written]

    def __repr__(self) -> str:
        """One sentence about what was counted and written; it starts no job."""
        rows, written = self.record["rows"], self.record["tables"]
        experiments = sum(count["lists"] > 0 for count in self.record["experiments"].values())
        return (
            f"Outcome of run {self.run_id}: {rows['evaluated']:,} rows evaluated, {rows['quarantined']:,} left out, "
            f"experiments: {experiments:,}; rows written to {without_secrets(self.path)}: "
            + ", ".join(f"{name} {table['rows']:,}" for name, table in written.items())
        )

    @cached_property
    def user_metrics(self) -> DataFrame:
        """The written values of the users, read back; lazy."""
        return self._store.result(self._tables["user_metrics"])

    @cached_property
    def experiment_metrics(self) -> DataFrame:
        """The written averages, read back; lazy."""
        return self._store.result(self._tables["experiment_metrics"])

    @cached_property
    def comparisons(self) -> DataFrame | None:
        """The written comparisons, read back; lazy. None if nothing is compared."""
        written = self._tables.get("comparisons")
        return None if written is None else self._store.result(written)

    @cached_property
    def _figures(self) -> Figures:
        return figures_of_frames(self.experiment_metrics, self.comparisons, record=self.record)


def rows_here(outcome: Outcome, table: str) -> list[dict[str, Any]] | None:
    """The rows of a table as a run wrote them, where this process has them; None elsewhere."""
    written = outcome._tables.get(table)
    return None if written is None else written.rows_here()


@dataclass
class _Steps:
    """Times the steps of a run and reports them to the caller."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)
    rows: int = 0
    """Rows that are evaluated, once they have been counted."""

    @contextmanager
    def __call__(self, name: str, text: str = "") -> Iterator[None]:
        """Time a step; without a text, it is a part of the one that was reported last."""
        if text:
            self.progress(f"{text} ({self.rows:,} rows)" if self.rows else text)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


@dataclass(frozen=True)
class _Run:
    """What a run is called, and what its steps share."""

    spark: SparkSession
    config: Config
    steps: _Steps
    refused: list[str]

    @cached_property
    def books(self) -> Record:
        """The record of this run."""
        more = {"refused_settings": self.refused, "seconds": self.steps.seconds}
        return Record.open(self.config, engine_of(self.spark), versions_of(self.spark), more)


def run(spark: SparkSession, config: Config, progress: Progress = lambda text: None) -> Outcome:
    """Evaluate what a config describes and write every table.

    The input is read once: one job writes the outcome of the pass to a staging folder below the output, and the gates
    and every other table are computed from there. When a gate fails, nothing else is written.

    Args:
        spark: The session; its settings are changed for the time of the run only.
        config: What to evaluate, and where to write.
        progress: Called with a few words before each step.

    Raises:
        ConfigError: A setting of ``spark`` that the session refuses, or a partition that holds another convention.
        InputError: The input cannot be read, lacks a column, or is empty.
        OutputError: The tables cannot be written, or other runs keep replacing the same partitions.
        QualityError: More faulty rows than ``quality`` allows.
        MetricGateError: A metric is beyond the limit of one of ``gates``.
    """
    with session_settings(spark, config.spark) as refused:
        this = _Run(spark, config, _Steps(progress), refused)
        store = store_of(spark, config.sink, this.books.run_id, config.spark)
        try:
            return _evaluated(this, store)
        except BaseException as error:  # an interrupted run has a record too
            ours = _in_words(error, config)
            this.books.failed(ours or error, store.record, on_disk(config))
            if ours is None or ours is error:  # raised from itself, it would lose its cause
                raise
            raise ours from error
        finally:
            store.release()


@contextmanager
def errors_in_words(config: Config) -> Iterator[None]:
    """In this block, an error that a user can fix is one sentence, with the engine's text as its cause."""
    try:
        yield
    except Exception as error:
        ours = _in_words(error, config)
        if ours is None or ours is error:
            raise
        raise ours from error


def _in_words(error: BaseException, config: Config) -> RankmetricsError | None:
    """The sentence for an error that a user can fix; None for any other."""
    if isinstance(error, RankmetricsError):
        return lost_engine(error) or error
    if not isinstance(error, Exception):
        return None
    # A broken file raises a class of py4j, which a client without a JVM does not have.
    return raised_by_python(error) or sources.failed_read(error, config.inputs) or lost_engine(error)


def _evaluated(this: _Run, store: Store) -> Outcome:
    """The road of the data, top to bottom."""
    config, steps, books = this.config, this.steps, this.books
    with steps("plan", "reading schemas"):
        store.check()
        books.begun(store)
        rule = config.convention
        refuse_other_date(store, config.evaluation_date, rule.name, rule.digest())
        answers.refuse_missing_date(store, config)
        impressions, judged = inputs(this.spark, config)
        books.read(config, impressions, judged)
        books.record["notes"] = [
            *_without_effect(this.refused),
            *whole_log(config.source, impressions.schema, config.evaluation_date),
            *at_midnight(config.source, impressions.schema),
        ]
        plan = make_plan(config.options, impressions.schema, judged.schema if judged is not None else None)
        plan = plan.on(engine_of(this.spark), impressions.schema)
        rows = road.typed_rows(impressions, plan)
        pools = road.judged_items(judged, plan)
        plan = _suited(plan, rows, this)
    try:
        with steps("evaluate", f"evaluating ({plan.layout.name} layout)"):
            staged = store.stage(road.outcome(rows, pools, plan))
        tables = Tables(plan, rows, pools, staged)
        with steps("check", "checking the rows"):
            found = _checked(tables, judged, store, config)
            counts = found.counts
            books.counted(plan, found, _judgement_counts(judged, plan))
            steps.rows = total_counts(counts, "evaluated")
            refuse_names(store, counts)
            _refuse_other_convention(store, plan, config, counts)
            answers.refuse_comparison(config, counts)
        if config.gates:
            with steps("gates", "checking the gates"):
                answers.check_gates(store, tables, config, counts)
        return _published(store, _written(store, tables, counts, this), counts, this)
    finally:
        store.discard(like=rows)


def _without_effect(refused: Sequence[str]) -> list[str]:
    return [f"going on without {' and '.join(refused)}, which have no effect in this session"] if refused else []


# ---- read


def inputs(spark: SparkSession, config: Config) -> tuple[DataFrame, DataFrame | None]:
    """Impressions and judgements of a config; schemas are looked up, nothing is computed."""
    covariate = [config.options.covariate] if config.options.covariate else []
    impressions = sources.read(spark, config.source, (*config.source.wanted(), *covariate))
    judged = config.judgements
    return impressions, sources.read(spark, judged, judged.wanted()) if judged else None


# ---- plan


def _suited(plan: Plan, rows: DataFrame, this: _Run) -> Plan:
    """The plan with the layout that suits the head of the log, and the session with the settings that suit both."""
    if plan.layout.name == "masks" and not head_fits_masks(rows):
        return plan.with_layout("relevant")
    if plan.layout.name == "rows" and plan.engine != "sail":
        # Hold fewer lists in memory, unless the config says how many, or the session takes no such setting.
        for name in SETTINGS_OF_ROWS.keys() - this.config.spark.keys() - set(this.refused):
            this.spark.conf.set(name, SETTINGS_OF_ROWS[name])
    return plan


# ---- check


def _checked(tables: Tables, judged: DataFrame | None, store: Store, config: Config) -> Findings:
    """What the pass found, after the gates of quality."""
    log = Inspected(
        tables.plan,
        tables.outcome,
        tables.rows,
        judged,
        lambda: tables.repeated,
        place=", ".join(config.source.path or ()) or str(config.source.table),
        tags=config.source.format == "trec_run" and config.source.experiment_from == "tag",
    )
    against_previous = any("_change" in level for levels in config.quality.gates.values() for level in levels)
    return check_quality(log, config.quality, previous_quality(store, against_previous))


def _refuse_other_convention(store: Store, plan: Plan, config: Config, counts: Counts) -> None:
    (rule,) = plan.scoring.conventions
    everything = partitions_for(config.evaluation_date, counts, "rows")
    store.claim(everything)
    refuse_other_convention(store, everything, rule.name, rule.digest())


# ---- publish


def _written(store: Store, tables: Tables, counts: Counts, this: _Run) -> dict[str, Written]:
    """Aggregate and stage every table beside the target, and compare the books; nothing is published yet."""
    plan = tables.plan
    with this.steps("tables", "writing the tables"):
        rows = _users(store, tables)
        written = _at_once(
            rows,
            lambda: {"user_metrics": _written_users(store, rows, tables, counts, this)},
            lambda: {"quarantine": _quarantined(store, tables, counts, this)},
            lambda: _answered(store, rows, tables, counts, this),
        )
    users, averages = written["user_metrics"], written["experiment_metrics"]
    of_judged = plan.scoring.judged and plan.scoring.conventions[0].population in ("judged", "both")
    compare_books(users, averages, written["quarantine"], counts, "judged_lists" if of_judged else "lists")
    this.books.written(written, _reasons(written["quarantine"]))
    return written


def _answered(store: Store, rows: DataFrame, tables: Tables, counts: Counts, this: _Run) -> dict[str, Written]:
    """Stage the averages of the users, and the comparisons if some are asked for."""
    config, date = this.config, this.config.evaluation_date
    with this.steps("sums"):
        users = answers.Users.of(store, rows, tables, config)

    def averages() -> dict[str, Written]:
        with this.steps("experiment_metrics"):
            lists = partitions_for(date, counts, "lists")
            return {"experiment_metrics": store.write("experiment_metrics", answers.averages(users, tables), lists)}

    def comparisons() -> dict[str, Written]:
        with this.steps("comparisons"):
            return {"comparisons": answers.compared(store, users, date, counts)}

    return _at_once(rows, averages, *([comparisons] if config.comparison.asked else []))


def _at_once(rows: DataFrame, *works: Callable[[], dict[str, Written]]) -> dict[str, Written]:
    """The tables of independent works on these rows."""
    # Not the session of the run, which may be wrapped.
    found = all_of(rows.sparkSession, works)
    return {name: table for tables in found for name, table in tables.items()}


def _users(store: Store, tables: Tables) -> DataFrame:
    """The rows of ``user_metrics``: for the files, for the averages and for the comparisons."""
    (rule,) = tables.plan.scoring.conventions
    rows = tables.user_metrics.withColumn(CONVENTION_HASH, F.lit(rule.digest()))
    return rows if tables.plan.lists_are_users else store.stage(rows, "users")


def _written_users(store: Store, rows: DataFrame, tables: Tables, counts: Counts, this: _Run) -> Written:
    """Stage ``user_metrics``."""
    few = total_counts(counts, "lists") <= MOST_ROWS and (tables.plan.lists_are_users or not tables.plan.scoring.judged)
    # A guess: ten rows a user.
    most = max(count["rows"] for count in counts.values()) // 10
    partitions = partitions_for(this.config.evaluation_date, counts, "lists", most, few)
    with this.steps("user_metrics"):
        return store.write("user_metrics", rows, partitions, N_LISTS)


def _quarantined(store: Store, tables: Tables, counts: Counts, this: _Run) -> Written:
    """Stage the rows left out. Without repeats the input is not read again."""
    bad, most = total_counts(counts, "quarantined"), max(count["quarantined"] for count in counts.values())
    left_out = tables.quarantine if total_counts(counts, "repeated") else tables.rejected
    partitions = partitions_for(this.config.evaluation_date, counts, "quarantined", most, bad <= MOST_ROWS)
    with this.steps("quarantine"):
        if bad > MOST_ROWS:
            left_out = store.stage(left_out, "left_out")
        return store.write("quarantine", left_out, partitions)


def _reasons(quarantine: Written) -> dict[str, int]:
    """How many rows were left out for each reason."""
    if not quarantine.partitions.filled:
        return {}
    return {row[REASON]: row["count"] for row in few_rows(quarantine.rows.groupBy(REASON).count())}


def _published(store: Store, tables: dict[str, Written], counts: Counts, this: _Run) -> Outcome:
    """Publish the staged tables and close the books."""
    rule, date = this.config.convention, this.config.evaluation_date
    this.books.record["verdict"] = answers.in_words(tables.get("comparisons"), this.books.plan, this.config.gates)
    this.books.publishing(store)
    with this.steps("publish", "publishing"):
        entry = Entry(this.books.run_id, (), convention={"name": rule.name, "hash": rule.digest()})
        undone = publish(store, [*tables.values()], entry, partitions_for(date, counts, "rows"))
    path = this.books.done(store, undone)
    return Outcome(this.books.run_id, store.path, this.books.record, path, store, tables)


def _judgement_counts(judged: DataFrame | None, plan: Plan) -> dict[str, int] | None:
    if judged is None:
        return None
    row = judgement_counts(judged, plan.judgement_mapping, plan.options.text_numbers).first()
    return row.asDict() if row else None
