"""``run``: read, check, rank, score, aggregate, publish; the job of the command line, spark-submit and notebooks.

The module is not called ``run``, because it would hide the function of that name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import comparison, config as cfg, engines as eng, pointers, road, sinks, sources, words
from rankmetrics_spark.errors import ConfigError, MetricGateError, RankmetricsError, lost_engine, raised_by_python
from rankmetrics_spark.gates import Counts, log_of, past_checks, totals
from rankmetrics_spark.job import record as rec, results
from rankmetrics_spark.job.earlier import Earlier, checks_of_plan, register as register
from rankmetrics_spark.job.forgetting import Forgotten as Forgotten, forget as forget
from rankmetrics_spark.job.lineage import Events
from rankmetrics_spark.job.recomputing import StoredDay as StoredDay, recompute as recompute
from rankmetrics_spark.job.record import Outcome, Progress as Progress, Record, record_refusal, rows_here
from rankmetrics_spark.job.verifying import Verified as Verified, verify as verify
from rankmetrics_spark.pipeline import check
from rankmetrics_spark.schemas import CONVENTION_HASH, LISTS, N_LISTS, NULL_PARTITION, REASON, USER_DAYS, Check, quoted
from rankmetrics_spark.sources import at_midnight, inputs as inputs, whole_log


def run(
    spark: SparkSession,
    config: cfg.Config,
    progress: Progress = lambda text: None,
    *,
    store_for: Callable[[str], sinks.Store] | None = None,
    without: DataFrame | None = None,
    stored: StoredDay | None = None,
) -> Outcome:
    """Evaluate what a config describes and write every table.

    The input is read once: one job writes scores and faulty rows to a staging folder below the output. Tables are
    computed from there, and gates are checked on the staged tables. If a gate fails, nothing is published: the numbers
    are in the run record, and on a page beside it.

    Args:
        spark: The session; its settings are changed for the time of the run only.
        config: What to evaluate, and where to write.
        progress: Called with a short description before each step.
        store_for: Makes what the run with this id writes to, and reads earlier runs from, instead of the sink of the
            config; it then sends no event to anybody.
        without: Users whose rows are left out of every input before anything is counted: a column of ids as text.
        stored: The stored lists of an earlier run of the date, which are read instead of the log: see ``recompute``.

    Raises:
        ConfigError: No ``Config``, a setting of ``spark`` that the session refuses, or a partition that holds another
            convention.
        InputError: The input cannot be read, lacks a column, or is empty.
        OutputError: The tables cannot be written, or other runs keep replacing the same partitions.
        QualityError: More faulty rows than ``quality`` allows, or users who do not follow the planned shares.
        MetricGateError: A metric is beyond the limit of one of ``gates``; it has the numbers. Where the gate is one of
            a test, ``published`` is the outcome of the others.
    """
    if not isinstance(config, cfg.Config):
        raise ConfigError.of("no_config", kind=type(config).__name__)
    with eng.session_settings(spark, config.spark) as refused, words.counted_in(config.unit):
        context = rec.Context(spark, config, rec.Steps(progress), refused, store_for, without, stored)
        entries = context.record.entries
        events = Events(entries, config) if store_for else Events.of(spark, config, entries)
        store = context.store
        try:
            events.start()
            outcome = _evaluate(context)
        except BaseException as error:  # an interrupted run has a record too
            user_error = _user_error(error, config)
            context.record.add_checks([*context.checks, *(user_error.checks if user_error else ())])
            writers = partial(sinks.refuse, store), partial(sinks.refuse_on_disk, config.sink.path)
            context.record.fail(user_error or error, *writers)
            events.fail([*context.checks, *(user_error.checks if user_error else ())])
            if user_error and "means" in context.record.entries:
                progress("writing the page of what was not published")
                results.write_unpublished(user_error, context)
            if user_error is None or user_error is error:  # raised from itself, it would lose its cause
                raise
            raise user_error from error
        finally:
            store.release()
        if sentence := events.complete(outcome.paths["tables"], context.checks):
            outcome.record["warnings"].append(sentence)
        if context.withheld:
            context.withheld.published = outcome
            raise context.withheld
        return outcome


@contextmanager
def errors_in_words(config: cfg.Config) -> Iterator[None]:
    """In this block, raise an error that a user can fix as one sentence, with the engine's error as its cause."""
    try:
        yield
    except Exception as error:
        user_error = _user_error(error, config)
        if user_error is None or user_error is error:
            raise
        raise user_error from error


def _user_error(error: BaseException, config: cfg.Config) -> RankmetricsError | None:
    """Return the error of this package for an error that a user can fix; None for any other."""
    if isinstance(error, RankmetricsError):
        return lost_engine(error) or error
    if not isinstance(error, Exception):
        return None
    # A broken file raises a class of py4j, which a client without a JVM does not have.
    return raised_by_python(error) or sources.failed_read(error, config.inputs) or lost_engine(error)


# ---- the steps


def _tables_of(context: rec.Context) -> road.Tables:
    """Read the schemas and plan the evaluation; of the rows, only the first ones are read."""
    config, record, store = context.config, context.record, context.store
    store.check()
    store.note(record.entries)
    if context.stored is None:
        sinks.refuse_other_date(store, config.evaluation_date, *context.convention)
    results.cuped_rows(store, config)  # refused before anything is computed
    context.earlier = Earlier.of(store, config)
    if context.stored is not None:
        return context.stored.tables(store, config, record)
    sources.check_ready(context.spark, config.source)
    read: dict[str, Any] = sources.all_inputs(context.spark, config)
    record.add_inputs(config, read)
    if context.without is not None:
        read = sources.without_users(read, context.without, config.options)
    refused = " and ".join(context.refused)
    record.entries["notes"] = [
        *([f"going on without {refused}, which have no effect in this session"] if refused else []),
        *whole_log(config.source, read["source"].schema, config.evaluation_date),
        *at_midnight(config.source, read["source"].schema),
    ]
    tables = road.Tables.of_config(config, read, store.stage)
    if config.sink.lists:
        road.refuse_to_store(tables)
        tables = replace(tables, plan=replace(tables.plan, scoring=replace(tables.plan.scoring, stored=True)))
    if tables.plan.layout.name == "rows" and tables.plan.engine != "sail":
        # Each list travels with all of its rows, so hold fewer lists in memory, unless the config says how many.
        for name in eng.SETTINGS_OF_ROWS.keys() - config.spark.keys() - set(context.refused):
            context.spark.conf.set(name, eng.SETTINGS_OF_ROWS[name])
    return tables


def _evaluate(context: rec.Context) -> Outcome:
    """Run every step, from reading to publishing."""
    config, steps, store = context.config, context.steps, context.store
    with steps("plan", "reading schemas"):
        tables = context.tables = _tables_of(context)
    try:
        with steps("evaluate", f"evaluating ({tables.plan.layout.name} layout)"):
            tables.outcome  # noqa: B018  the pass over the input, which the store keeps
        with steps("check", "checking the rows"):
            source, limits = config.source, config.quality
            against_previous = any("_change" in level for levels in limits.rates.values() for level in levels)
            previous = partial(sinks.previous_quality, store, needed=against_previous)
            findings = check(tables, limits, config.comparison, previous, source)
            counts = context.counts = findings.counts
            context.checks += findings.checks
            judged = tables.judgement_counts
            context.record.add_counts(tables.plan, findings, judged.counts if judged else None)
            context.record.add_digests(config, tables.digests)
            steps.rows = findings.total("evaluated")
            sinks.refuse_names(store, counts)
            every_partition = context.partitions("rows")
            store.claim(every_partition)
            published = store.pointer(config.evaluation_date)
            context.record.entries["notes"] += results.kept_beside(published, every_partition)
            if context.stored is None:
                sinks.refuse_other_convention(store, published, every_partition, *context.convention)
            else:
                context.stored.refuse_other_lists(counts, tables.digests["judgements"])
                if context.store_for is None:
                    context.stored.refuse_replaced(store)
            results.refuse_comparison(config, counts, store.pointers, tables.by_test)
        written, entry = staged_tables(context)
        # So that the counts survive if the run is killed while it publishes.
        store.note(context.record.entries | {"outcome": "publishing"})
        with steps("publish", "publishing"):
            warnings = sinks.publish(store, [*written.values()], entry, context.partitions("rows"))
        path = context.record.finish(store, warnings, context.withheld, context.checks)
        if context.withheld:
            results.write_unpublished(context.withheld, context)
        return Outcome(context.record.run_id, store.path, context.record.entries, path, store, written)
    finally:
        store.discard(like=tables.rows)


# ---- publish


def staged_tables(context: rec.Context) -> tuple[dict[str, sinks.Written], pointers.Entry]:
    """Stage and check every table that follows from the users; return them, and what the pointer says of the run."""
    config, tables = context.config, context.tables
    users = _users(context)
    written = _stage_tables(context, users)
    with context.steps("checks", "checking the gates" if config.every_gate else ""):
        written["checks"] = _checked(context, written, users)
    (name, digest), counts = context.convention, context.counts  # without the tests that are withheld
    compared = results.compared_of(config.comparison, counts, context.earlier, tables.by_test)
    entry = pointers.Entry(context.record.run_id, (), convention={"name": name, "hash": digest}, compared=compared)
    return written, replace(entry, log=log_of(counts, written["user_metrics"].counts), unit=config.unit)


def _users(context: rec.Context) -> results.Users:
    """Return the rows of ``user_metrics``, and those of the period; gates, averages and comparisons read them."""
    config, store, tables, earlier = context.config, context.store, context.tables, context.earlier
    with context.steps("users"):
        rows = tables.user_metrics
        if context.stored is not None:
            context.stored.refuse_other_values(store, rows)
    users = results.Users.of(context)
    if earlier.days is None or not results.reads_users_again(config):
        return users

    def staged(earlier: Earlier) -> results.Users:
        context.earlier = earlier.with_users(store, tables, rows, config, context.counts)
        return users.over(context.earlier, tables, store.stage)

    with context.steps("period", f"reading the period {earlier.days.text}"):
        return earlier.settled(store, config, staged)


def _stage_tables(context: rec.Context, users: results.Users) -> dict[str, sinks.Written]:
    """Aggregate and stage every table, and check their numbers of rows; nothing is published yet."""
    store, tables, plan, counts = context.store, context.tables, context.tables.plan, context.counts
    total = totals(counts)

    def user_metrics() -> dict[str, sinks.Written]:
        are_lists = plan.lists_are_users or not plan.scoring.judged
        in_memory = are_lists and total["lists"] <= sinks.MOST_ROWS
        # Assume ten rows per user.
        largest = max(count["rows"] for count in counts.values()) // 10
        with context.steps("user_metrics"):
            rows = users.table.rows.withColumn(CONVENTION_HASH, F.lit(context.convention[1]))
            partitions = context.partitions("lists", largest, in_memory)
            return {"user_metrics": store.write("user_metrics", rows, partitions, N_LISTS)}

    def quarantine() -> dict[str, sinks.Written]:
        n_rows, largest = total["quarantined"], max(count["quarantined"] for count in counts.values())
        # The input is read again only if items or ranks repeat.
        rows = tables.quarantine if total["repeated"] else tables.rejected
        with context.steps("quarantine"):
            if n_rows > sinks.MOST_ROWS:
                rows = store.stage(rows, "left_out")
            partitions = context.partitions("quarantined", largest, n_rows <= sinks.MOST_ROWS)
            return {"quarantine": store.write("quarantine", rows, partitions)}

    def of_date(table: str, rows: DataFrame) -> dict[str, sinks.Written]:
        # They are of no experiment; a user has few days.
        n = total["lists"]
        partitions = sinks.Partitions(context.config.evaluation_date, [None], most=n, few=n < sinks.MOST_ROWS)
        with context.steps(table):
            return {table: store.write(table, rows, partitions)}

    with context.steps("tables", "writing the tables"):
        works = [user_metrics, quarantine, lambda: _stage_aggregates(context, users)]
        if tables.assigned and tables.assigned.asked.timed:
            works.append(lambda: of_date(USER_DAYS, tables.user_days))
        if context.config.sink.lists:
            works.append(lambda: of_date(LISTS, road.lists_to_store(tables)))
        written = _in_threads(context, users.table.rows, *works)
    staged = written["user_metrics"], written["experiment_metrics"], written["quarantine"]
    context.checks += sinks.check_row_counts(*staged, counts)
    left_out = written["quarantine"]
    groups = eng.few_rows(left_out.rows.groupBy(REASON).count()) if left_out.partitions.filled else []
    # An engine counts groups in any order.
    reasons = {row[REASON]: row["count"] for row in sorted(groups, key=lambda row: (-row["count"], row[REASON]))}
    context.record.entries["tables"] = {name: {"rows": table.n} for name, table in written.items()}
    context.record.entries["quarantine_reasons"] = reasons
    return written


def _in_threads(
    context: rec.Context, rows: DataFrame, *works: Callable[[], dict[str, sinks.Written]]
) -> dict[str, sinks.Written]:
    """Run functions that read the users at the same time, if the engine can; return all their tables."""
    days = context.earlier.days
    n_rows = totals(context.counts)["lists"] * (len(days.dates) if days else 1)
    # The session of the rows: that of the run may be wrapped.
    tables_of_works = eng.all_of(rows.sparkSession, works, n_rows)
    return {name: table for tables in tables_of_works for name, table in tables.items()}


def _stage_aggregates(context: rec.Context, users: results.Users) -> dict[str, sinks.Written]:
    """Stage ``experiment_metrics``, and ``comparisons`` if the config has them."""
    config, store, tables, counts = context.config, context.store, context.tables, context.counts
    with context.steps("sums"):
        if users.request.bootstrap is not None or users.request.cluster is not None:
            users = replace(users, sums=store.stage(comparison.sums_of(users.table, users.request), "sums"))

    def averages() -> dict[str, sinks.Written]:
        with context.steps("experiment_metrics"):
            rows = results.averages(users, tables)
            return {"experiment_metrics": store.write("experiment_metrics", rows, context.partitions("lists"))}

    def stage(users: results.Users) -> dict[str, sinks.Written]:
        return {"comparisons": results.stage_comparisons(context, users), **results.stage_states(context)}

    def comparisons() -> dict[str, sinks.Written]:
        days = context.earlier.days if users.compared is users.table else None
        with context.steps("comparisons", f"comparing over {days.text}" if days else ""):
            if days is None:
                return stage(users)

            def over(earlier: Earlier) -> dict[str, sinks.Written]:
                context.earlier = earlier.with_users(store, tables, users.table.rows, config, counts)
                return stage(users.over(context.earlier, tables))

            return context.earlier.settled(store, config, over)

    works = [averages, *([comparisons] if config.comparison.is_requested else [])]
    return _in_threads(context, users.table.rows, *works)


def _checked(context: rec.Context, written: dict[str, sinks.Written], users: results.Users) -> sinks.Written:
    """Check the gates on the staged tables, and stage ``checks``; the record of a run that fails has the numbers."""
    record, config, earlier = context.record, context.config, context.earlier
    store, counts, plan = context.store, context.counts, context.tables.plan
    parts = results.parts_of(config.comparison, counts, users.table.by_test)
    of_plan = checks_of_plan(context.spark, config, record.entries["started"], earlier.looks, parts)

    def verdict_of(now: Earlier) -> list[str]:
        # Where a run has replaced a day meanwhile, its users can no longer be read for the outlook.
        known = replace(earlier, dated=None)
        if now is earlier and earlier.dated is not None:
            # The users of this day are staged by now; computing them again would cost more than reading them.
            known = earlier.with_day(plan, written["user_metrics"].rows, config)
        as_registered = dict.fromkeys(f"{check.sentence}." for check in of_plan if check.experiment in context.counts)
        return [*results.verdict_sentences(written.get("comparisons"), plan, config, known), *as_registered]

    with context.steps("verdict"):
        record.entries["verdict"] = earlier.settled(store, config, verdict_of)
    if period := earlier.as_record(counts):
        record.entries["period"] = period
        record.entries["notes"] += earlier.notes(plan)
    seen = earlier.seen
    if config.quality.past:
        of_users = written["user_metrics"].counts
        tests, published = None if config.assignments is None else config.tests, store.pointers()
        seen = seen or tuple(sorted(day for day in published if day < config.evaluation_date))
        of_past = past_checks(counts, of_users, config.evaluation_date, published, config.quality, tests)
        record.warn_of(of_past)
        context.checks += of_past
    record.entries[rec.DAYS_SEEN] = [*seen]
    record.warn_of(of_plan)
    context.checks += of_plan
    staged = results.Staged(context, written, users)
    of_tests, others = staged.checks(record, context.checks)
    context.checks = [*of_tests, *others]
    try:
        results.refuse_failed_gates(others, config)
        arms, context.withheld = results.withheld_arms(of_tests, counts)
    except RankmetricsError as error:
        if context.failed is None:
            staged.add_numbers(record)
            raise
        context.failed.append(str(error))
    if context.withheld and context.failed is not None:
        context.failed.append(str(context.withheld))
    elif context.withheld:
        _withhold(context, staged, arms)
        record.entries["verdict"] = earlier.settled(store, config, verdict_of)
    table = results.stage_checks(context, users.table.rows, context.checks)
    record.entries["tables"]["checks"] = {"rows": table.n}
    return table


def _withhold(context: rec.Context, staged: results.Staged, arms: set[str]) -> None:
    """Take experiments out of what will be published; the record keeps their numbers."""
    staged.add_numbers(context.record, arms)
    staged.written.update({name: table.without(arms) for name, table in staged.written.items()})
    context.counts = {name: count for name, count in context.counts.items() if name not in arms}
    context.record.entries["tables"] = {name: {"rows": table.n} for name, table in staged.written.items()}


def from_users(
    spark: SparkSession,
    config: cfg.Config,
    recorded: Mapping[str, Any],
    users: DataFrame,
    names: Collection[str | None],
    store_for: Callable[[str], sinks.Store],
) -> tuple[dict[str, sinks.Written], Record]:
    """What follows from the rows of ``user_metrics`` of a run: means, comparisons, what both say; and a new record.

    Args:
        spark: The session.
        config: What the run has evaluated.
        recorded: Its record.
        users: The rows.
        names: Their experiments.
        store_for: Makes what is staged to, and reads other days.
    """
    with eng.session_settings(spark, config.spark) as refused, words.counted_in(config.unit):
        context = rec.Context(spark, config, rec.Steps(lambda text: None), refused, store_for)
        store = context.store
        store.check()
        context.tables = replace(rec.tables_on_record(spark, config, recorded), keep=store.stage, assigned=None)
        vars(context.tables)["user_metrics"] = users
        context.counts = {name: n for name, n in rec.counts_on_record(recorded).items() if (name or None) in names}
        context.earlier = Earlier.of(store, config)
        of_users = _users(context)
        written = _stage_aggregates(context, of_users)
        staged = results.Staged(context, written, of_users)
        of_tests, others = staged.checks(Record({**recorded}), ())
        written["checks"] = results.stage_checks(context, users, [*of_tests, *others])
        return written, context.record
