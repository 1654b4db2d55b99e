"""``run``: read, check, rank, score, aggregate, publish; the job of the command line, spark-submit and notebooks.

The module is not called ``run``, because it would hide the function of that name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark import sources
from rankmetrics_spark.config import Config
from rankmetrics_spark.engines import SETTINGS_OF_ROWS, all_of, engine_of, few_rows, session_settings
from rankmetrics_spark.errors import MetricGateError, RankmetricsError, lost_engine, raised_by_python, without_secrets
from rankmetrics_spark.gates import Counts, total_counts
from rankmetrics_spark.job import results
from rankmetrics_spark.job.earlier import Earlier
from rankmetrics_spark.job.lineage import Events
from rankmetrics_spark.job.record import Record, on_disk, record_refusal, versions_of
from rankmetrics_spark.pipeline import Presentation, check
from rankmetrics_spark.road import Tables
from rankmetrics_spark.schemas import CONVENTION_HASH, N_LISTS, REASON, Check
from rankmetrics_spark.sinks import (
    MOST_ROWS,
    Entry,
    Store,
    Written,
    check_row_counts,
    dated,
    partitions_for,
    previous_quality,
    publish,
    refuse_names,
    refuse_other_convention,
    refuse_other_date,
    store_of,
)
from rankmetrics_spark.sources import at_midnight, whole_log

if TYPE_CHECKING:
    from rankmetrics_spark.report import Figures

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
        return self._read_back("user_metrics")

    @cached_property
    def experiment_metrics(self) -> DataFrame:
        """The written averages, read back; lazy."""
        return self._read_back("experiment_metrics")

    @cached_property
    def comparisons(self) -> DataFrame | None:
        """The written comparisons, read back; lazy. None if nothing is compared."""
        return self._read_back("comparisons") if "comparisons" in self._tables else None

    @cached_property
    def checks(self) -> DataFrame:
        """The written checks, read back; lazy."""
        return self._read_back("checks")

    def _read_back(self, table: str) -> DataFrame:
        return dated(self._store.result(self._tables[table]))

    @property
    def paths(self) -> dict[str, Any]:
        """Where the output, its tables, the run record and, if asked for, the page are."""
        tables = {name: self._store.name_of(name) for name, table in self._tables.items() if table.partitions.filled}
        report = {"report": page} if (page := self.record["config"]["report"]["file"]) else {}
        return {"output": self.path, "tables": tables, "record": self.record_path} | report

    @cached_property
    def _figures(self) -> Figures:
        from rankmetrics_spark.report import figures_of_frames

        checks = rows_here(self, "checks") or [row.asDict() for row in few_rows(self.checks)]
        return figures_of_frames(self.experiment_metrics, self.comparisons, record=self.record, checks=checks)


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


@dataclass
class _Context:
    """What the steps of a run share."""

    spark: SparkSession
    config: Config
    steps: _Steps
    refused: list[str]
    earlier: Earlier = field(default_factory=Earlier)
    """What other runs have published that the comparisons read; known after the plan."""
    checks: list[Check] = field(default_factory=list)
    """What was checked so far."""

    @cached_property
    def convention(self) -> tuple[str, str]:
        """Name and hash of the convention."""
        return self.config.convention.name, self.config.convention.digest()

    @cached_property
    def record(self) -> Record:
        """The record of this run."""
        more = {"refused_settings": self.refused, "seconds": self.steps.seconds}
        return Record.open(self.config, engine_of(self.spark), versions_of(self.spark), more)


def run(spark: SparkSession, config: Config, progress: Progress = lambda text: None) -> Outcome:
    """Evaluate what a config describes and write every table.

    The input is read once: one job writes scores and faulty rows to a staging folder below the output. Tables are
    computed from there, and gates are checked on the staged tables. If a gate fails, nothing is published: the numbers
    are in the run record, and on a page beside it.

    Args:
        spark: The session; its settings are changed for the time of the run only.
        config: What to evaluate, and where to write.
        progress: Called with a short description before each step.

    Raises:
        ConfigError: A setting of ``spark`` that the session refuses, or a partition that holds another convention.
        InputError: The input cannot be read, lacks a column, or is empty.
        OutputError: The tables cannot be written, or other runs keep replacing the same partitions.
        QualityError: More faulty rows than ``quality`` allows.
        MetricGateError: A metric is beyond the limit of one of ``gates``; it has the numbers.
    """
    with session_settings(spark, config.spark) as refused:
        context = _Context(spark, config, _Steps(progress), refused)
        events = Events.of(spark, config, context.record.entries)
        store = store_of(spark, config.sink, context.record.run_id, config.spark)
        try:
            events.start()
            outcome = _evaluate(context, store)
        except BaseException as error:  # an interrupted run has a record too
            user_error = _user_error(error, config)
            context.record.add_checks([*context.checks, *(user_error.checks if user_error else ())])
            context.record.fail(user_error or error, store.record, on_disk(config))
            events.fail([*context.checks, *(user_error.checks if user_error else ())])
            if isinstance(user_error, MetricGateError):
                progress("writing the page of what was not published")
                results.write_unpublished(user_error, context.record, store, config)
            if user_error is None or user_error is error:  # raised from itself, it would lose its cause
                raise
            raise user_error from error
        finally:
            store.release()
        if sentence := events.complete(outcome.paths["tables"], context.checks):
            outcome.record["warnings"].append(sentence)
        return outcome


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


# ---- the steps


def _tables_of(context: _Context, store: Store) -> Tables:
    """Read the schemas and plan the evaluation; of the rows, only the first ones are read."""
    config, record = context.config, context.record
    store.check()
    record.note_start(store)
    refuse_other_date(store, config.evaluation_date, *context.convention)
    results.refuse_missing_date(store, config)
    context.earlier = Earlier.of(store, config)
    impressions, judgements = inputs(context.spark, config)
    record.add_inputs(config, impressions, judgements)
    refused = " and ".join(context.refused)
    record.entries["notes"] = [
        *([f"going on without {refused}, which have no effect in this session"] if refused else []),
        *whole_log(config.source, impressions.schema, config.evaluation_date),
        *at_midnight(config.source, impressions.schema),
    ]
    tables = Tables.of(impressions, judgements, config.options, keep=store.stage)
    if tables.plan.layout.name == "rows" and tables.plan.engine != "sail":
        # Each list travels with all of its rows, so hold fewer lists in memory, unless the config says how many.
        for name in SETTINGS_OF_ROWS.keys() - config.spark.keys() - set(context.refused):
            context.spark.conf.set(name, SETTINGS_OF_ROWS[name])
    return tables


def _evaluate(context: _Context, store: Store) -> Outcome:
    """Run every step, from reading to publishing."""
    config, steps = context.config, context.steps
    with steps("plan", "reading schemas"):
        tables = _tables_of(context, store)
    try:
        with steps("evaluate", f"evaluating ({tables.plan.layout.name} layout)"):
            tables.outcome  # noqa: B018  the pass over the input, which the store keeps
        with steps("check", "checking the rows"):
            source, limits = config.source, config.quality
            against_previous = any("_change" in level for levels in limits.gates.values() for level in levels)
            tags = source.format == "trec_run" and source.experiment_from == "tag"
            findings = check(tables, limits, previous_quality(store, against_previous), source.place, tags)
            counts = findings.counts
            context.checks += findings.checks
            context.record.add_counts(tables.plan, findings, tables.judgement_counts())
            steps.rows = total_counts(counts, "evaluated")
            refuse_names(store, counts)
            every_partition = partitions_for(config.evaluation_date, counts, "rows")
            store.claim(every_partition)
            refuse_other_convention(store, every_partition, *context.convention)
            results.refuse_comparison(config, counts)
        users = _users(store, tables, counts, context)
        written = _stage_tables(store, tables, users, counts, context)
        with steps("checks", "checking the gates" if config.gates else ""):
            written["checks"] = _checked(store, written, users, counts, context)
        name, digest = context.convention
        context.record.note_publishing(store)
        with steps("publish", "publishing"):
            compared = results.compared_of(config.comparison, counts, context.earlier)
            entry = Entry(context.record.run_id, (), convention={"name": name, "hash": digest}, compared=compared)
            warnings = publish(store, [*written.values()], entry, every_partition)
        path = context.record.finish(store, warnings)
        return Outcome(context.record.run_id, store.path, context.record.entries, path, store, written)
    finally:
        store.discard(like=tables.rows)


def inputs(spark: SparkSession, config: Config) -> tuple[DataFrame, DataFrame | None]:
    """Return impressions and judgements of a config; only schemas are read."""
    described = filter(None, (config.options.covariate, config.options.cluster))
    impressions = sources.read(spark, config.source, (*config.source.required_columns(), *described))
    judgements = config.judgements
    return impressions, sources.read(spark, judgements, judgements.required_columns()) if judgements else None


# ---- publish


def _stage_tables(
    store: Store, tables: Tables, users: results.Users, counts: Counts, context: _Context
) -> dict[str, Written]:
    """Aggregate and stage every table, and check their numbers of rows; nothing is published yet."""
    with context.steps("tables", "writing the tables"):
        rows = users.table.rows
        written = _in_threads(
            rows,
            counts,
            context,
            lambda: {"user_metrics": _stage_users(store, rows, tables, counts, context)},
            lambda: {"quarantine": _stage_quarantine(store, tables, counts, context)},
            lambda: _stage_aggregates(store, users, tables, counts, context),
        )
    aggregates, quarantine = written["experiment_metrics"], written["quarantine"]
    of_judged = tables.plan.scoring.judged and context.config.convention.population in ("judged", "both")
    lists = "judged_lists" if of_judged else "lists"
    context.checks += check_row_counts(written["user_metrics"], aggregates, quarantine, counts, lists)
    groups = few_rows(quarantine.rows.groupBy(REASON).count()) if quarantine.partitions.filled else []
    context.record.add_tables(written, {row[REASON]: row["count"] for row in groups})
    return written


def _stage_aggregates(
    store: Store, users: results.Users, tables: Tables, counts: Counts, context: _Context
) -> dict[str, Written]:
    """Stage ``experiment_metrics``, and ``comparisons`` if the config has them."""
    config, date = context.config, context.config.evaluation_date
    with context.steps("sums"):
        users = users.with_sums(store)

    def averages() -> dict[str, Written]:
        with context.steps("experiment_metrics"):
            lists = partitions_for(date, counts, "lists")
            return {"experiment_metrics": store.write("experiment_metrics", results.averages(users, tables), lists)}

    def stage(users: results.Users) -> dict[str, Written]:
        return {"comparisons": results.stage_comparisons(store, users, date, counts)}

    def comparisons() -> dict[str, Written]:
        days = context.earlier.days if users.compared is users.table else None
        with context.steps("comparisons", f"comparing over {days.text}" if days else ""):
            if days is None:
                return stage(users)

            def over(earlier: Earlier) -> dict[str, Written]:
                context.earlier = earlier.with_users(store, tables.plan, users.table.rows, config, counts)
                return stage(users.over(context.earlier, tables))

            return context.earlier.settled(store, config, over)

    works = [averages, *([comparisons] if config.comparison.is_requested else [])]
    return _in_threads(users.table.rows, counts, context, *works)


def _in_threads(
    rows: DataFrame, counts: Counts, context: _Context, *works: Callable[[], dict[str, Written]]
) -> dict[str, Written]:
    """Run functions that read the users at the same time, if the engine can; return all their tables."""
    days = context.earlier.days
    n_rows = total_counts(counts, "lists") * (len(days.dates) if days else 1)
    # The session of the rows: that of the run may be wrapped.
    tables_of_works = all_of(rows.sparkSession, works, n_rows)
    return {name: table for tables in tables_of_works for name, table in tables.items()}


def _users(store: Store, tables: Tables, counts: Counts, context: _Context) -> results.Users:
    """Return the rows of ``user_metrics``, and those of the period; gates, averages and comparisons read them."""
    config, earlier = context.config, context.earlier
    with context.steps("users"):
        rows = tables.user_metrics
    users = results.Users.of(store, tables, config, earlier)
    if earlier.days is None or not results.reads_users_again(config):
        return users

    def staged(earlier: Earlier) -> results.Users:
        context.earlier = earlier.with_users(store, tables.plan, rows, config, counts)
        return users.over(context.earlier, tables, lambda rows: store.stage(rows, "period"))

    with context.steps("period", f"reading the period {earlier.days.text}"):
        return earlier.settled(store, config, staged)


def _stage_users(store: Store, rows: DataFrame, tables: Tables, counts: Counts, context: _Context) -> Written:
    """Stage ``user_metrics``."""
    are_lists = tables.plan.lists_are_users or not tables.plan.scoring.judged
    in_memory = are_lists and total_counts(counts, "lists") <= MOST_ROWS
    # Assume ten rows per user.
    largest = max(count["rows"] for count in counts.values()) // 10
    partitions = partitions_for(context.config.evaluation_date, counts, "lists", largest, in_memory)
    with context.steps("user_metrics"):
        rows = rows.withColumn(CONVENTION_HASH, F.lit(context.convention[1]))
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


def _checked(
    store: Store, written: dict[str, Written], users: results.Users, counts: Counts, context: _Context
) -> Written:
    """Check the gates on the staged tables, and stage ``checks``; the record of a run that fails has the numbers."""
    record, config, earlier = context.record, context.config, context.earlier

    def verdict_of(now: Earlier) -> list[str]:
        # Where a run has replaced a day meanwhile, its users can no longer be read for the outlook.
        known = replace(earlier, dated=None)
        if now is earlier and earlier.dated is not None:
            # The users of this day are staged by now; computing them again would cost more than reading them.
            known = earlier.with_day(record.plan, written["user_metrics"].rows, config)
        return results.verdict_sentences(written.get("comparisons"), record.plan, config, known)

    with context.steps("verdict"):
        record.entries["verdict"] = earlier.settled(store, config, verdict_of)
    if period := earlier.as_record(counts):
        record.entries["period"] = period
        record.entries["notes"] += earlier.notes(record.plan)
    staged = results.Staged(written, users, config, counts, context.earlier.days)
    context.checks = staged.checks(record, context.checks)
    try:
        results.refuse_failed_gates(context.checks, config)
    except MetricGateError:
        staged.add_numbers(record)
        raise
    table = results.stage_checks(store, users.table.rows, context.checks, config.evaluation_date, counts)
    record.entries["tables"]["checks"] = {"rows": table.n}
    return table
