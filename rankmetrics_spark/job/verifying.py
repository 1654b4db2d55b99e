"""Verify: derive what is published on a date again, from the records and the inputs, and compare every table."""

import json
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark import comparison, config as cfg, engines as eng, schemas as sch, sinks, sources, words
from rankmetrics_spark.errors import HIDDEN, ConfigError, DifferenceError, InputError, MetricGateError, QualityError
from rankmetrics_spark.gates import CHECKS_OF_LOG
from rankmetrics_spark.job.record import DAYS_SEEN, NO_SEGMENTS, STILL_COUNTED, known_runs, with_config
from rankmetrics_spark.pointers import PLAN, REGISTERED, Entry, Pointer, record_path

#: Files and inputs that an error names.
MOST_NAMED = 3
#: Table -> what tells its rows apart; rows of other tables are compared as a whole.
KEYS = {
    "user_metrics": (sch.EXPERIMENT, sch.USER),
    sch.USER_STATES: (sch.EXPERIMENT, sch.USER),
    "experiment_metrics": (sch.EXPERIMENT, sch.SEGMENT, sch.METRIC),
    "comparisons": (sch.EXPERIMENT, sch.BASELINE, sch.SEGMENT, sch.METRIC),
}
#: With the same versions of these, every bit has to be the same.
EXACT_IF_SAME = ("rankmetrics_spark", "numpy", "scipy", "processor")
#: Keys of a config that say where and how a run computes, not what.
_OF_THE_PLACE = ("sink", "report", "lineage", "spark", "engine")
#: Tables that depend on what is published on other days.
OF_OTHER_DAYS = (sch.USER_STATES, "comparisons", "checks")
#: Checks that follow from the users, beside those of gates on metrics.
OF_USERS = ("n_users", "users_without_relevant", "users_left_out", "sample_ratio", "days")
OF_USERS_OR_GATES = f"{sch.METRIC} IS NOT NULL AND name NOT IN {CHECKS_OF_LOG} OR name IN {OF_USERS}"
_PUBLISHED = "_is_published"
#: What is read unless another source is named.
INPUTS = "inputs"
_FROM_INPUTS = "allowed: --from inputs --without FILE, or --from user_metrics"


@dataclass(frozen=True)
class Verified:
    """What was derived again, and is the same.

    Attributes:
        date: Evaluation date.
        rows: A row for each table of each run: how many rows were compared, of how many, and how far they are the same.
        other: Why values were compared within bounds, and not to the bit; empty where every bit was compared.
        uncovered: What no digest covers, and what was not shown.
        source: What it was derived from: ``inputs``, ``user_metrics`` or ``lists``.
    """

    date: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    uncovered: list[str] = field(default_factory=list)
    source: str = INPUTS

    def in_words(self) -> list[str]:
        """What was shown, a sentence each."""
        how = f"within 1e-12 (intervals 1e-10), not to the bit: {'; '.join(self.other)}" if self.other else "to the bit"
        is_whole = all(row["rows"] == row["of"] for row in self.rows)
        whole = "every table" if is_whole else "what was compared of each table"
        what = f"{self.date} was derived again: {whole} is the same {how}"
        if self.source != INPUTS:
            names = ", ".join(dict.fromkeys(row["table"] for row in self.rows))
            what = f"{self.date}: what follows from {self.source} was derived again, and is the same {how}: {names}"
            what += f"; that {self.source} follow{'s' * (self.source != sch.LISTS)} from the inputs was not shown"
        return [what, *self.uncovered]


@dataclass
class _Scratch(sinks.ParquetFolder):
    """A temporary output; what it reads of other days is what another output holds of them."""

    of: sinks.Store = None  # type: ignore[assignment]
    seen: Callable[[Mapping[str, Pointer]], dict[str, Pointer]] = lambda pointers: {}

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer, as far as the run has seen them: as they are now."""
        return self.seen(self.of.pointers())

    def pointer(self, date: str) -> Pointer | None:
        """Nothing: the run is derived as the first one of its date."""
        return None

    def existing(self, table: str) -> DataFrame | None:
        """The rows of the other output."""
        return self.of.existing(table)

    def days(self, table: str, pointers: Mapping[str, Pointer], schema: T.StructType) -> DataFrame | None:
        """The rows of the other output, but no states: what these say is derived from the users of each day."""
        return None if table == sch.USER_STATES else self.of.days(table, pointers, schema)


def verify(
    spark: SparkSession,
    sink: cfg.Sink,
    date: str | None = None,
    document: Mapping[str, object] | None = None,
    without: str | None = None,
    source: str = INPUTS,
    progress: Callable[[str], None] = lambda text: None,
) -> Verified:
    """Derive what is published on a date again, and compare every table; the output is only read.

    Args:
        spark: The session, on this machine: what is derived lies in a temporary folder meanwhile.
        sink: Where the runs have written.
        date: By default the newest date that is published.
        document: A config instead of the one on record, for secrets that this hides, and inputs in other places.
        without: File with the ids of users who were erased, one a line: what is derived is derived without them.
        source: What is read: the ``inputs``, or what is published in ``user_metrics`` or ``lists``; beside lists, the
            judgements.
        progress: Called with a short description before each step.

    Raises:
        ConfigError: The record hides secrets, or the config is wrong; users were erased, and no file names them.
        DifferenceError: A file, an input, the config or a row of a table is another one; the first one is named.
        InputError: Nothing is published on this date, or an input is not there any more.
    """
    store = sinks.store_of(spark, sink, "verify")
    disk, pointers = sinks.of_disk(sink.path) if sink.path else None, store.pointers()
    date = date or (disk and sinks.newest_date(disk)) or max(pointers, default="")
    progress(f"comparing the files of {date} with their digests")
    found, uncovered = sinks.altered(store, date)
    if found:
        more = f"; and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
        raise DifferenceError("; ".join(found[:MOST_NAMED]) + more)
    records = known_runs(store, date, pointers)
    verified = Verified(date, uncovered=uncovered, source=source)
    others = (
        f"allowed: rankmetrics verify {'--table' if sink.table else '--output'} {shlex.quote(store.path)} --date {date}"
    )
    if source == sch.LISTS and not has_lists(pointers[date]):
        cure = f"{others}, from the inputs, or --from user_metrics"
        raise InputError.of("no_stored_lists", dates=date, done="derived from lists", cure=cure)
    ids = None if without is None else sources.ids_in(spark, "--without", without)
    for entry in pointers[date].entries:
        progress(f"deriving {date} again, as run {entry.run_id} has published it")
        record = with_config(store, records, entry.run_id)
        if text := record.get(STILL_COUNTED):
            raise DifferenceError(text)
        if record.get(sch.ERASED) and ids is None and source == INPUTS:
            cure = f"{others} --without FILE, with an id per line, or --from user_metrics"
            raise ConfigError(f"{words.UNITS} were erased from run {entry.run_id}; {cure}")
        with TemporaryDirectory(prefix="rankmetrics-verify-") as folder:
            # Earlier versions did not write down what they saw: what was published before.
            before = (
                each for each in records.values() if each[sch.RUN] < entry.run_id and each.get("outcome") == "done"
            )
            seen = record.get(DAYS_SEEN, sorted({str(each[sch.DATE]) for each in before} - {date}))
            of_run = _Derived(spark, store, pointers[date], entry, record, Path(folder), seen)
            if source == "user_metrics":
                of_run.follow(records, verified)
            else:
                of_run.compare(of_run.again(records, document, ids, source), verified)
    return verified


@dataclass(frozen=True)
class _Derived:
    """What one run has published on a date, and where it is derived again."""

    spark: SparkSession
    store: sinks.Store
    pointer: Pointer
    entry: Entry
    record: Mapping[str, Any]
    folder: Path
    seen: Sequence[str]

    @cached_property
    def since(self) -> list[str]:
        """The other days that the run has read and that have changed since: a sentence, or none."""
        pointers, run_id = self.store.pointers(), self.entry.run_id
        newest = {day: max(each.run_of().values(), default="") for day, each in pointers.items()}
        changed = [day for day in self.seen if not "" < newest.get(day, "") < run_id]
        days = [f"{day} was {'published again' if day in newest else 'removed'}" for day in changed[:MOST_NAMED]]
        more = f" and {n:,} days more" if (n := len(changed) - MOST_NAMED) > 0 else ""
        return [f"run {run_id} has read days that have changed since: {', '.join(days)}{more}"] if days else []

    @property
    def _place(self) -> dict[str, object]:
        """The sections of the config that write: to the temporary folder, and nowhere else."""
        lists = self.record["config"]["sink"].get("lists") if sch.LISTS in self.entry.tables else False
        states = self.record["config"]["sink"].get("user_states") if sch.USER_STATES in self.entry.tables else None
        sink = {"path": str(self.folder), "lists": lists, "user_states": states}
        return {"sink": sink, "report": {}, "lineage": {}}

    def _scratch(self, records: Mapping[str, Mapping[str, Any]]) -> Callable[[str], sinks.Store]:
        """What makes the temporary output, with the earlier records."""
        (self.folder / "runs").mkdir()
        # Limits on changes are held against earlier runs.
        texts = {record_path(each): sinks.as_json(records[each]) for each in records if each < self.entry.run_id}
        if plans := sinks.plan_texts(self.spark, self.store.path, self.record["started"]):
            (self.folder / REGISTERED).mkdir()
            texts[PLAN] = plans[0]
        for path, text in texts.items():
            (self.folder / path).write_text(text, encoding="utf-8")
        seen = partial(as_seen, date=self.pointer.date, run=self.entry.run_id, days=self.seen)
        return partial(_Scratch, self.spark, str(self.folder), of=self.store, seen=seen)

    def again(
        self,
        records: Mapping[str, Mapping[str, Any]],
        document: Mapping[str, object] | None,
        without: DataFrame | None,
        source: str,
    ) -> dict[str, Any]:
        """Run it in the temporary folder, over its inputs or the stored lists; return the new record."""
        from rankmetrics_spark.job import StoredDay, run

        date, run_id = self.pointer.date, self.entry.run_id
        then = self.record["config"]
        if document is None and HIDDEN in json.dumps(then["judgements"] if source == sch.LISTS else then, default=str):
            raise ConfigError(f"{record_path(run_id)} hides secrets of its config; allowed: --config with it")
        # Settings that had no effect there may be refused here.
        refused = self.record.get("refused_settings") or ()
        kept = {name: value for name, value in then.get("spark", {}).items() if name not in refused}
        # A key that an older version did not have counts as its default.
        each = (then, document or {**then, "spark": kept})
        recorded, config = (cfg.load({**one, **self._place}, date=date) for one in each)
        if changed := [*other_keys(cfg.as_dict(recorded), cfg.as_dict(config))]:
            raise DifferenceError("the config is another one: " + "; ".join(changed[:MOST_NAMED]))
        try:
            stored = (
                StoredDay(self.pointer, self.record, recorded, True, cure=_FROM_INPUTS) if source == sch.LISTS else None
            )
            return run(self.spark, config, store_for=self._scratch(records), without=without, stored=stored).record
        except (MetricGateError, QualityError) as error:
            if error.published is not None:
                return dict(error.published.record)
            sentence = f"derived again, {run_id} publishes nothing: {error}"
            raise DifferenceError("; ".join([*self.since, sentence])) from error
        except (ConfigError, InputError) as error:  # of a day that is gone, or that has another convention now
            if not (self.since and str(error).startswith("comparison.")):
                raise
            raise DifferenceError(self.since[0]) from error

    def compare(self, again: Mapping[str, Any], verified: Verified) -> None:
        """Compare inputs and tables; add what is the same."""
        store = sinks.ParquetFolder(self.spark, str(self.folder), "verify")
        pointer = store.pointers()[self.pointer.date]
        facts = {table: each["columns"] for table, each in pointer.entries[0].tables.items()}
        derived = {table: rows_of_run(store, pointer, self.entry, table, columns) for table, columns in facts.items()}
        only = {}
        if verified.source == sch.LISTS:
            read = [name for name in (sch.LISTS, "quarantine") if derived.pop(name, None) is not None]
            others = ["which rows were left out, and that the log has the digests on record"]
            others += ["events"] * ("events" in self.record)
            given = [name for name in ("judgements", "assignments") if self.record["config"].get(name) is not None]
            also = f"; {' and '.join(given)} were read as before" * bool(given)
            verified.uncovered.append(f"not shown, since they need the inputs: {', '.join([*read, *others])}{also}")
        if sch.ERASED in self.record:
            only = {"checks": OF_USERS_OR_GATES}
            verified.uncovered.append("checks of rates: where users were erased, counts that no table tells stay")
            if text := self.record.get(NO_SEGMENTS):
                only |= dict.fromkeys(("experiment_metrics", "comparisons"), f"{sch.SEGMENT} = '{sch.EVERYONE}'")
                verified.uncovered.append(text)
        self._compare(derived, again, verified, [*_other_inputs(self.record, again)][:MOST_NAMED], only)
        if not all("digest" in count for name, count in self.record["experiments"].items() if count["lists"]):
            verified.uncovered.append(f"{record_path(self.entry.run_id)} has no digests of its inputs")

    def follow(self, records: Mapping[str, Mapping[str, Any]], verified: Verified) -> None:
        """Derive what follows from the published rows of users, and compare it; say what does not follow."""
        from rankmetrics_spark.job import from_users

        config = cfg.load({**self.record["config"], **self._place}, date=self.pointer.date)
        lists = {name for name, count in self.record["experiments"].items() if count["lists"]}
        kept = {sch.NULL_PARTITION if name is None else name for name in self.entry.experiments}
        of_lists = bool(config.source.list and config.source.segments)
        why = {
            "experiments of the run were replaced since, or withheld": not lists <= kept,
            "they read the assignments": config.assignments is not None,
            "user_metrics does not have the segments of each list": of_lists,
        }
        facts, make = self.entry.tables, self._scratch(records)
        users = rows_of_run(self.store, self.pointer, self.entry, "user_metrics", facts["user_metrics"]["columns"])
        written, record = from_users(self.spark, config, self.record, users, self.entry.experiments, make)
        reason = next((f" ({reason})" for reason, holds in why.items() if holds), "")
        derived = {name: each.rows for name, each in written.items() if not (reason and name in OF_OTHER_DAYS)}
        others = sorted(name for name in facts if facts[name]["rows"] and name not in (*derived, "user_metrics"))
        others += ["checks that are neither of users nor of gates on metrics"] * ("checks" in derived)
        verified.uncovered.append(f"not shown, since they need the inputs: {', '.join(others)}{reason}")
        only = {"checks": OF_USERS_OR_GATES}
        only |= {"experiment_metrics": f"{sch.SEGMENT} = '{sch.EVERYONE}'"} if of_lists else {}
        self._compare(derived, record.entries, verified, [], only)

    def _compare(
        self,
        tables: Mapping[str, DataFrame],
        again: Mapping[str, Any],
        verified: Verified,
        differences: list[str],
        only: Mapping[str, str] = {},
    ) -> None:
        """Compare the tables that were derived, or only some of their rows; add what is the same."""
        then, now = ({**each["versions"], "processor": each.get("processor")} for each in (self.record, again))
        apart = [name for name in EXACT_IF_SAME if then.get(name) != now[name]]
        other = [f"{name} {then.get(name)} on record, {now[name]} here" for name in apart]
        facts, rows = self.entry.tables, []
        names = tables if verified.source != INPUTS else dict.fromkeys((*facts, *tables))
        for table in sorted(names, key=lambda table: table in OF_OTHER_DAYS):
            had, fields = (
                facts.get(table, {}).get("columns", {}),
                tables[table].schema.fields if table in tables else [],
            )
            has = {each.name: each.dataType.simpleString() for each in fields if each.name not in sch.PARTITION}
            # Where users are read, others are known of the assignments alone.
            read = verified.source != "user_metrics"
            had = {name: kind for name, kind in had.items() if name != sch.RUN and (name in has or read)}
            if gone := sorted({*had.items()} - {*has.items()}):
                differences.append(f"{table}: the column {gone[0][0]} is not derived again, or of another type")
                break
            if newer := sorted({*has} - {*had}):
                new = ", ".join(newer) if had else "its columns"
                verified.uncovered.append(f"{table}: what was published has not yet {new}, so these are not compared")
            if not had:
                continue
            shown = only.get(table, "true")
            published = rows_of_run(self.store, self.pointer, self.entry, table, had).where(shown)
            derived = tables[table].select(*map(sch.quoted, published.columns)).where(shown)
            if other and table == sch.USER_STATES:
                published, derived = map(comparison.period_means, (published, derived))
            if difference := first_difference(table, published, derived, exact=not other):
                differences += (table in OF_OTHER_DAYS and self.since) or [difference]
                break
            how, of = "within bounds" if other else "to the bit", facts[table]["rows"]
            n = published.count() if table in only else of
            rows.append({sch.RUN: self.entry.run_id, "table": table, "rows": n, "of": of, "the same": how})
        if differences:
            raise DifferenceError("; ".join([*differences, *(f"derived with {each}" for each in other)]))
        verified.rows.extend(rows)
        verified.other.extend(each for each in other if each not in verified.other)


def as_seen(pointers: Mapping[str, Pointer], date: str, run: str, days: Collection[str]) -> dict[str, Pointer]:
    """The pointers of these days, and of a run's own date what earlier runs have published and it has not replaced.

    >>> own = Pointer("2026-11-08", (Entry("r1", ("a",)), Entry("r2", ("b",)), Entry("r3", ("c",))))
    >>> as_seen({own.date: own}, own.date, "r2", [])[own.date].run_of()
    {'a': 'r1'}
    """
    seen = {day: each for day, each in pointers.items() if day in days}
    if before := tuple(each for day in {date} & {*pointers} for each in pointers[day].entries if each.run_id < run):
        seen[date] = replace(pointers[date], entries=before)
    return seen


def has_lists(pointer: Pointer) -> bool:
    """Whether the lists of all experiments of a date are stored."""
    return len(pointer.entries) == 1 and "columns" in pointer.entries[0].tables.get(sch.LISTS, {})


def rows_of_run(
    store: sinks.Store, pointer: Pointer, entry: Entry, table: str, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows of a table of a run: its columns in their order, by default all that it has published."""
    columns = columns or entry.tables[table]["columns"]
    ddl = ", ".join(f"{sch.quoted(name)} {kind}" for name, kind in columns.items())
    schema = store.spark.createDataFrame([], ddl).schema
    names = [sch.EXPERIMENT, *(sch.quoted(field.name) for field in schema.fields if field.name != sch.RUN)]
    rows = store.days(table, {pointer.date: pointer}, schema)
    if rows is None:
        return store.spark.createDataFrame([], f"{sch.EXPERIMENT} string, {ddl}").select(*names)
    of_none = F.col(sch.EXPERIMENT).isNull() if None in entry.experiments else F.lit(False)
    return rows.where(of_none | F.col(sch.EXPERIMENT).isin(*filter(None, entry.experiments))).select(*names)


def _flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The keys of nested mappings, with their values."""
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _flat(each, f"{path}.{name}" if path else str(name))
    else:
        yield path, value


def other_keys(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a config that are not as on record; inputs may be in other places, and digests tell them apart."""
    configs = ({name: each[name] for name in each if name not in _OF_THE_PLACE} for each in (recorded, now))
    then, now = (dict(_flat(config)) for config in configs)
    for path in sorted({*then, *now}):
        is_place = path.rpartition(".")[2] in ("path", "table", "ready") or HIDDEN in str(then.get(path))
        if not is_place and json.dumps(then.get(path), default=str) != json.dumps(now.get(path), default=str):
            yield f"{path} is {then.get(path)} on record, and {now.get(path)} now"


def _other_inputs(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The inputs that are not as on record, by the digests and counts of both records."""
    others = []
    for name in ("judgements", "machine_judgements", "events", "assignments") if not then.get(sch.ERASED) else ():
        digests = [each.get("digests", {}).get(name) for each in (then, now)]
        # Without digests, counts tell; those of events say what of the log they belong to, too.
        if digests[0] != digests[1] if all(digests) else then.get(name) != now.get(name):
            others.append(name)
            yield f"the {name.replace('_', ' ')} are not those on record"
    null = {None: sch.NULL_PARTITION}
    counts = [{null.get(name, name): n for name, n in each["experiments"].items()} for each in (then, now)]
    log = " ".join(filter(None, ("the log", then.get("inputs", {}).get("source", {}).get("table"))))
    # Assignments say whose rows these are; events, and judgements that are looked up, say their grades.
    for name in dict.fromkeys((*counts[0], *counts[1])) if "assignments" not in others else ():
        if name == sch.NULL_PARTITION and then.get("assignments") and then.get(sch.ERASED):
            continue  # where users were erased, rows of users in no test stay
        before, after = (each.get(name, {}) for each in counts)
        if (n := before.get("rows", 0)) != (m := after.get("rows", 0)):
            yield f"{log} has {m:,} rows of experiment '{name}', and {n:,} are on record"
        graded_by = {"events", *["judgements"] * ("top_items" in before)}
        if n == m and before.get("digest", "") not in ("", after.get("digest")) and not graded_by & {*others}:
            yield f"{log} has as many rows of experiment '{name}' as on record, but others"


def first_difference(table: str, published: DataFrame, derived: DataFrame, *, exact: bool) -> str:
    """A sentence about the first row that is not the same in two tables of the same columns; empty if all are.

    Args:
        table: Name of the table.
        published: Its rows.
        derived: Those that were derived again.
        exact: Whether every bit has to be the same, and not only values within bounds.
    """
    is_double = {field.name: isinstance(field.dataType, T.DoubleType) for field in published.schema.fields}
    keys = KEYS.get(table) or [name for name, double in is_double.items() if not double]
    values = {f"_{i}": name for i, name in enumerate(name for name in is_double if name not in keys)}
    conditions, sides = {}, {f"_n_{side}": f"count_if({_PUBLISHED} = {side})" for side in ("true", "false")}
    for key, name in values.items():
        sql = sch.quoted(name) if is_double[name] else f"string({sch.quoted(name)})"
        a, b = f"{key}_true", f"{key}_false"
        sides |= {f"{key}_{side}": f"max(CASE WHEN {_PUBLISHED} = {side} THEN {sql} END)" for side in ("true", "false")}
        same = f"{a} <=> {b}"
        if is_double[name] and not exact:
            same += f" OR coalesce(abs({a} - {b}) <= {_bound(table, name)!r}D * greatest(1D, abs({a})), false)"
        conditions[key] = f"CASE WHEN NOT ({same}) THEN '{key}' END"
    both = published.withColumn(_PUBLISHED, F.lit(True)).unionByName(derived.withColumn(_PUBLISHED, F.lit(False)))
    rows = both.groupBy(*map(sch.quoted, keys)).agg(*(F.expr(f"{sql} AS {name}") for name, sql in sides.items()))
    rows = rows.withColumn("_other", F.expr(f"concat_ws(' ', {', '.join(['string(null)', *conditions.values()])})"))
    first = eng.few_rows(rows.where("_n_true != _n_false OR _other != ''").orderBy(*map(sch.quoted, keys)).limit(1))
    if not first:
        return ""
    (row,) = first
    where = ", ".join(f"{name} {row[name]!r}" for name in keys if row[name] is not None)
    if row["_n_true"] != row["_n_false"]:
        return f"{table}: {row['_n_true']} rows are published and {row['_n_false']} derived again of {where}"
    key = row["_other"].split()[0]
    was, now = row[f"{key}_true"], row[f"{key}_false"]
    return f"{table}: {values[key]} is {was!r} as published and {now!r} derived again, of {where}"


def _bound(table: str, name: str) -> float:
    """How far a value may be from the published one where libraries differ."""
    return 1e-12 if table in ("user_metrics", sch.USER_DAYS) or name.startswith(("mean", "difference")) else 1e-10
