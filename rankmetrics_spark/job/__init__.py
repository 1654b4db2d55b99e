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
from rankmetrics_spark.job import results
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
    check_row_counts,
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
    """Return the rows of a table if this process still has them; else None."""
    written = outcome._tables.get(table)
    return None if written is None else written.rows_here()


@dataclass
class _Steps:
    """Times the steps of a run and reports them to the caller."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)
    rows: int = 0
    """Evaluated rows; 0 until they are counted."""

    @contextmanager
    def __call__(self, name: str, text: str = "") -> Iterator[None]:
        """Time a step and report its text; a step without text is part of the last reported one."""
        if text:
            self.progress(f"{text} ({self.rows:,} rows)" if self.rows else text)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


@dataclass(frozen=True)
class _Context:
    """What the steps of a run share."""

    spark: SparkSession
    config: Config
    steps: _Steps
    refused: list[str]

    @cached_property
    def record(self) -> Record:
        """The record of this run."""
        more = {"refused_settings": self.refused, "seconds": self.steps.seconds}
        return Record.open(self.config, engine_of(self.spark), versions_of(self.spark), more)


def run(spark: SparkSession, config: Config, progress: Progress = lambda text: None) -> Outcome:
    """Evaluate what a config describes and write every table.

    The input is read once: one job writes scores and faulty rows to a staging folder below the output. Gates and tables
    are computed from there. If a gate fails, nothing else is written.

    Args:
        spark: The session; its settings are changed for the time of the run only.
        config: What to evaluate, and where to write.
        progress: Called with a short description before each step.

    Raises:
        ConfigError: A setting of ``spark`` that the session refuses, or a partition that holds another convention.
        InputError: The input cannot be read, lacks a column, or is empty.
        OutputError: The tables cannot be written, or other runs keep replacing the same partitions.
        QualityError: More faulty rows than ``quality`` allows.
        MetricGateError: A metric is beyond the limit of one of ``gates``.
    """
    with session_settings(spark, config.spark) as refused:
        context = _Context(spark, config, _Steps(progress), refused)
        store = store_of(spark, config.sink, context.record.run_id, config.spark)
        try:
            return _evaluate(context, store)
        except BaseException as error:  # an interrupted run has a record too
            user_error = _user_error(error, config)
            context.record.fail(user_error or error, store.record, on_disk(config))
            if user_error is None or user_error is error:  # raised from itself, it would lose its cause
                raise
            raise user_error from error
        finally:
            store.release()


@contextmanager
def errors_in_words(config: Config) -> Iterator[None]:
    """In this block, raise an error that a user can fix as one sentence, with the engine's error as its cause."""
    try:
        yield
    except Exception as error:
        user_error = _user_error(error, config)
        if user_error is None or user_error is error:
            raise
        raise user_error from error


def _user_error(error: BaseException, config: Config) -> RankmetricsError | None:
    """Return the error of this package for an error that a user can fix; None for any other."""
    if isinstance(error, RankmetricsError):
        return lost_engine(error) or error
    if not isinstance(error, Exception):
        return None
    # A broken file raises a class of py4j, which a client without a JVM does not have.
    return raised_by_python(error) or sources.failed_read(error, config.inputs) or lost_engine(error)


def _evaluate(context: _Context, store: Store) -> Outcome:
    """Run every step, from reading to publishing."""
    config, steps, record = context.config, context.steps, context.record
    with steps("plan", "reading schemas"):
        store.check()
        record.note_start(store)
        rule = config.convention
        refuse_other_date(store, config.evaluation_date, rule.name, rule.digest())
        results.refuse_missing_date(store, config)
        impressions, judgements = inputs(context.spark, config)
        record.add_inputs(config, impressions, judgements)
        record.entries["notes"] = [
            *_without_effect(context.refused),
            *whole_log(config.source, impressions.schema, config.evaluation_date),
            *at_midnight(config.source, impressions.schema),
        ]
        plan = make_plan(config.options, impressions.schema, judgements.schema if judgements is not None else None)
        plan = plan.on(engine_of(context.spark), impressions.schema)
        rows = road.typed_rows(impressions, plan)
        pools = road.judged_items(judgements, plan)
        plan = _choose_layout(plan, rows, context)
    try:
        with steps("evaluate", f"evaluating ({plan.layout.name} layout)"):
            staged = store.stage(road.outcome(rows, pools, plan))
        tables = Tables(plan, rows, pools, staged)
        with steps("check", "checking the rows"):
            findings = _check(tables, judgements, store, config)
            counts = findings.counts
            record.add_counts(plan, findings, _judgement_counts(judgements, plan))
            steps.rows = total_counts(counts, "evaluated")
            refuse_names(store, counts)
            _refuse_other_convention(store, plan, config, counts)
            results.refuse_comparison(config, counts)
        if config.gates:
            with steps("gates", "checking the gates"):
                results.check_gates(store, tables, config, counts)
        return _publish(store, _stage_tables(store, tables, counts, context), counts, context)
    finally:
        store.discard(like=rows)


def _without_effect(refused: Sequence[str]) -> list[str]:
    return [f"going on without {' and '.join(refused)}, which have no effect in this session"] if refused else []


# ---- read


def inputs(spark: SparkSession, config: Config) -> tuple[DataFrame, DataFrame | None]:
    """Return impressions and judgements of a config; only schemas are read."""
    covariate = [config.options.covariate] if config.options.covariate else []
    impressions = sources.read(spark, config.source, (*config.source.wanted(), *covariate))
    judgements = config.judgements
    return impressions, sources.read(spark, judgements, judgements.wanted()) if judgements else None


# ---- plan


def _choose_layout(plan: Plan, rows: DataFrame, context: _Context) -> Plan:
    """Choose the layout by the first rows of the log, and set what the layout needs in the session."""
    if plan.layout.name == "masks" and not head_fits_masks(rows):
        return plan.with_layout("relevant")
    if plan.layout.name == "rows" and plan.engine != "sail":
        # Hold fewer lists in memory, unless the config says how many, or the session takes no such setting.
        for name in SETTINGS_OF_ROWS.keys() - context.config.spark.keys() - set(context.refused):
            context.spark.conf.set(name, SETTINGS_OF_ROWS[name])
    return plan


# ---- check


def _check(tables: Tables, judgements: DataFrame | None, store: Store, config: Config) -> Findings:
    """Check the quality gates; return counts, rates and warnings."""
    log = Inspected(
        tables.plan,
        tables.outcome,
        tables.rows,
        judgements,
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


def _stage_tables(store: Store, tables: Tables, counts: Counts, context: _Context) -> dict[str, Written]:
    """Aggregate and stage every table, and check their numbers of rows; nothing is published yet."""
    plan = tables.plan
    with context.steps("tables", "writing the tables"):
        rows = _user_rows(store, tables)
        written = _in_threads(
            rows,
            lambda: {"user_metrics": _stage_users(store, rows, tables, counts, context)},
            lambda: {"quarantine": _stage_quarantine(store, tables, counts, context)},
            lambda: _stage_aggregates(store, rows, tables, counts, context),
        )
    users, averages = written["user_metrics"], written["experiment_metrics"]
    of_judged = plan.scoring.judged and plan.scoring.conventions[0].population in ("judged", "both")
    check_row_counts(users, averages, written["quarantine"], counts, "judged_lists" if of_judged else "lists")
    context.record.add_tables(written, _reasons(written["quarantine"]))
    return written


def _stage_aggregates(
    store: Store, rows: DataFrame, tables: Tables, counts: Counts, context: _Context
) -> dict[str, Written]:
    """Stage ``experiment_metrics``, and ``comparisons`` if the config has them."""
    config, date = context.config, context.config.evaluation_date
    with context.steps("sums"):
        users = results.Users.of(store, rows, tables, config)

    def averages() -> dict[str, Written]:
        with context.steps("experiment_metrics"):
            lists = partitions_for(date, counts, "lists")
            return {"experiment_metrics": store.write("experiment_metrics", results.averages(users, tables), lists)}

    def comparisons() -> dict[str, Written]:
        with context.steps("comparisons"):
            return {"comparisons": results.stage_comparisons(store, users, date, counts)}

    return _in_threads(rows, averages, *([comparisons] if config.comparison.asked else []))


def _in_threads(rows: DataFrame, *works: Callable[[], dict[str, Written]]) -> dict[str, Written]:
    """Run these functions at the same time; return all their tables."""
    # The session of the rows: that of the run may be wrapped.
    tables_of_works = all_of(rows.sparkSession, works)
    return {name: table for tables in tables_of_works for name, table in tables.items()}


def _user_rows(store: Store, tables: Tables) -> DataFrame:
    """Return the rows of ``user_metrics``; averages and comparisons read them too."""
    (rule,) = tables.plan.scoring.conventions
    rows = tables.user_metrics.withColumn(CONVENTION_HASH, F.lit(rule.digest()))
    return rows if tables.plan.lists_are_users else store.stage(rows, "users")


def _stage_users(store: Store, rows: DataFrame, tables: Tables, counts: Counts, context: _Context) -> Written:
    """Stage ``user_metrics``."""
    in_memory = total_counts(counts, "lists") <= MOST_ROWS and (
        tables.plan.lists_are_users or not tables.plan.scoring.judged
    )
    # Assume ten rows per user.
    largest = max(count["rows"] for count in counts.values()) // 10
    partitions = partitions_for(context.config.evaluation_date, counts, "lists", largest, in_memory)
    with context.steps("user_metrics"):
        return store.write("user_metrics", rows, partitions, N_LISTS)


def _stage_quarantine(store: Store, tables: Tables, counts: Counts, context: _Context) -> Written:
    """Stage ``quarantine``. The input is read again only if items or ranks repeat."""
    n_rows, largest = total_counts(counts, "quarantined"), max(count["quarantined"] for count in counts.values())
    rows = tables.quarantine if total_counts(counts, "repeated") else tables.rejected
    partitions = partitions_for(context.config.evaluation_date, counts, "quarantined", largest, n_rows <= MOST_ROWS)
    with context.steps("quarantine"):
        if n_rows > MOST_ROWS:
            rows = store.stage(rows, "left_out")
        return store.write("quarantine", rows, partitions)


def _reasons(quarantine: Written) -> dict[str, int]:
    """Count the rows of ``quarantine`` by reason."""
    if not quarantine.partitions.filled:
        return {}
    return {row[REASON]: row["count"] for row in few_rows(quarantine.rows.groupBy(REASON).count())}


def _publish(store: Store, tables: dict[str, Written], counts: Counts, context: _Context) -> Outcome:
    """Publish the staged tables and write the end of the record."""
    rule, date = context.config.convention, context.config.evaluation_date
    context.record.entries["verdict"] = results.verdict_sentences(
        tables.get("comparisons"), context.record.plan, context.config.gates
    )
    context.record.note_publishing(store)
    with context.steps("publish", "publishing"):
        entry = Entry(context.record.run_id, (), convention={"name": rule.name, "hash": rule.digest()})
        warnings = publish(store, [*tables.values()], entry, partitions_for(date, counts, "rows"))
    path = context.record.finish(store, warnings)
    return Outcome(context.record.run_id, store.path, context.record.entries, path, store, tables)


def _judgement_counts(judgements: DataFrame | None, plan: Plan) -> dict[str, int] | None:
    if judgements is None:
        return None
    row = judgement_counts(judgements, plan.judgement_mapping, plan.options.text_numbers).first()
    return row.asDict() if row else None
