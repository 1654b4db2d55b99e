"""Forget: erase users from every table of an output, and derive what follows from the others, date by date."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark import config as cfg, engines as eng, gates, report as rep, schemas as sch, sinks, sources, words
from rankmetrics_spark.errors import ConfigError, DifferenceError, InputError, OutputError, RankmetricsError, said
from rankmetrics_spark.job import record as rec, verifying
from rankmetrics_spark.job.earlier import Earlier
from rankmetrics_spark.pointers import Entry, Pointer, Pointers

#: Tables that hold users.
_OF_USERS = ("user_metrics", "quarantine", *sch.OF_DATES, sch.USER_STATES)
_ID, _LINE = "_id", "_line"

Records = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Forgotten:
    """What was erased.

    Attributes:
        rows: A row for each run whose tables are new: its date, and how many users were erased.
        sentences: What a person has to know.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)


@dataclass
class _Erasing(sinks.ParquetFolder):
    """An output whose users are erased: other days are those that a run has seen, without these users."""

    ids: DataFrame = None  # type: ignore[assignment]
    seen: Callable[[Pointers], dict[str, Pointer]] = lambda pointers: {}

    def pointers(self) -> dict[str, Pointer]:
        """Date -> its pointer, as far as the run has seen them: as they are now."""
        return self.seen(super().pointers())

    def existing(self, table: str) -> DataFrame | None:
        """The rows of the others."""
        return self.others(super().existing(table))  # type: ignore[no-any-return]

    def days(self, table: str, pointers: Pointers, schema: T.StructType) -> DataFrame | None:
        """The rows of the others."""
        return self.others(super().days(table, pointers, schema))  # type: ignore[no-any-return]

    def others(self, rows: Any) -> Any:
        """The rows that are not of these users."""
        return rows if rows is None or sch.USER not in rows.columns else _of_ids(rows, self.ids, "left_anti")


def _of_ids(rows: DataFrame, ids: DataFrame, how: str) -> DataFrame:
    """The rows whose user is among these ids as text, or is not."""
    return rows.join(ids.select(_ID), F.col(sch.USER).cast("string") == F.col(_ID), how)


def forget(
    spark: SparkSession, path: str, users: str, progress: Callable[[str], None] = lambda text: None
) -> Forgotten:
    """Erase users from the tables, records and pages of an output; each date is published anew in one step.

    Args:
        spark: The session.
        path: The folder of the output.
        users: A text file with an id per line.
        progress: Called with a short description before each date.

    Raises:
        ConfigError: The output holds other tables than Parquet.
        InputError: Nothing is published there, or the file has no id.
        OutputError: A run is publishing one of the dates.
    """
    files, ids = sinks.files_of(path), sources.ids_in(spark, "--users", users)
    if any(pointer.format != "parquet" for pointer in sinks.pointers_of(spark, path).values()):
        raise ConfigError.of("delta_keeps_users", path=path)
    # Finishes what a killed command has left, and removes files that no pointer names.
    sinks.prune(files, path, None)
    out = _Output(spark, path, ids, {record[sch.RUN]: record for record in sinks.records_in(path) or ()})
    found, n_found, n_ids = out.found()
    if lost := sorted(found - out.pointers.keys()):
        raise InputError(f"no pointer names what is stored of {lost[0]}; allowed: dates that a run has published")
    # In the order of the runs, since each has read what was published before it.
    for date in sorted(out.pointers, key=lambda date: max(out.pointers[date].run_of().values())):
        if date in found or out.seen_by(date) & found:
            progress(f"erasing {words.UNITS} from {date}")
            out.erase(date)
    out.write_pages()
    dates, absent = f"{len(found):,} date{'s'[: len(found) != 1]}", n_ids - n_found
    out.done.sentences.append(said("erased", users=words.counted(n_found), dates=dates, absent=absent, ids=n_ids))
    return out.done


@dataclass
class _Output:
    """The output, and what was erased so far."""

    spark: SparkSession
    path: str
    ids: DataFrame
    records: Records
    done: Forgotten = field(default_factory=Forgotten)
    pages: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reads the pointers."""
        self.store = sinks.store_of(self.spark, cfg.Sink(path=self.path), "forget")
        self.pointers = self.store.pointers()

    def found(self) -> tuple[set[str], int, int]:
        """The dates with rows of these users, how many users there are, and how many ids."""
        stored = [rows for table in _OF_USERS if (rows := self.store.existing(table)) is not None]
        tables = [rows.selectExpr(sch.DATE, f"string({sch.USER}) AS {_ID}") for rows in stored]
        rows = reduce(DataFrame.unionByName, tables).join(self.ids, _ID)
        dates = {str(row[0]) for row in eng.few_rows(rows.select(sch.DATE).distinct())}
        n_found, n_ids = (each.select(_LINE).distinct().count() for each in (rows, self.ids))
        return dates, n_found, n_ids

    def seen_by(self, date: str) -> set[str]:
        """The other days that the runs of a date have read."""
        records = [self.records.get(entry.run_id, {}) for entry in self.pointers[date].entries]
        return {
            day for each in records for day in (*each.get(rec.DAYS_SEEN, ()), *each.get("period", {}).get("days", ()))
        }

    def erase(self, date: str) -> None:
        """Stage what becomes of each run of a date, then publish all of them."""
        pointer = self.pointers[date]
        store = _Erasing(self.spark, self.path, sinks.new_id(), by_date=bool(pointer.by_date), ids=self.ids)
        store.check()
        try:
            runs = [self._without_users(store, pointer, entry) for entry in pointer.entries]
            store.claim(sinks.Partitions(date, sorted(pointer.run_of(), key=str)))
            # The page of the newest run with this file may show the lists of a user.
            for file, run in rec.pages_of(self.records).items():
                if run in pointer.run_of().values():
                    Path(file).unlink()
                    self.pages[file] = date
            if not store.switch(pointer, runs):
                raise OutputError(f"a run has published {date} in '{self.path}' meanwhile; run this again")
        finally:
            store.release()
        self.records |= {each.before.run_id: dict(each.record) for each in runs}

    def write_pages(self) -> None:
        """Write the pages anew, without examples of users."""
        for file, date in self.pages.items():
            try:
                rep.check_page_libraries()
                rep.write_page(rep.figures_of_output(self.spark, cfg.Sink(path=self.path), date), file)
                self.done.sentences.append(f"wrote {file} again, without examples")
            except RankmetricsError as error:
                self.done.sentences.append(f"removed {file}: {error}")

    def _without_users(self, store: _Erasing, pointer: Pointer, entry: Entry) -> sinks.Erased:
        """The tables and the record of a run without the users."""
        record, date = self.records.get(entry.run_id, {sch.RUN: entry.run_id, "outcome": "done"}), pointer.date
        stored = {table: verifying.rows_of_run(self.store, pointer, entry, table) for table in entry.tables}
        # The users of a state may be those of other days.
        of_users = [stored[table] for table in _OF_USERS[:-1] if table in stored]
        users = [_of_ids(rows, self.ids, "left_semi").select(sch.USER) for rows in of_users]
        n = reduce(DataFrame.union, users).distinct().count()
        erased = {sch.ERASED: n + record.get(sch.ERASED, 0)} if n else {}
        new = deepcopy(record) | erased
        try:
            with words.counted_in(record.get("config", {}).get("unit", "user")):
                after, written = self._again(store, entry, date, new, stored)
        except RankmetricsError as error:
            text = said("still_counted", date=date, units=words.UNITS, error=error)
            new = deepcopy(record) | erased | {"notes": [*record.get("notes", ()), text], rec.STILL_COUNTED: text}
            written = {table: _written(store, table, store.others(rows), date) for table, rows in stored.items()}
            after = sinks.entry_of(entry, [*written.values()], sinks.Partitions(date, entry.experiments))
            self.done.sentences.append(text)
        self.done.rows.append({sch.DATE: date, sch.RUN: entry.run_id, sch.ERASED: n})
        return sinks.Erased(entry, after, {table: each.files for table, each in written.items()}, new)

    def _again(
        self, store: _Erasing, entry: Entry, date: str, record: dict[str, Any], stored: Mapping[str, DataFrame]
    ) -> tuple[Entry, dict[str, sinks.Written]]:
        """Derive the tables of a run again from the users who stay, and bring its record up to date.

        Raises:
            RankmetricsError: They cannot be derived.
        """
        from rankmetrics_spark.job import staged_tables

        record.pop(rec.STILL_COUNTED, None)
        # What one erasure leaves out, the next may derive again.
        gone = record.pop(rec.NO_SEGMENTS, None)
        record["notes"] = [note for note in record["notes"] if note != gone]
        config = self._config(entry, date, record, stored["user_metrics"])
        days = {*record.get(rec.DAYS_SEEN, ())} - {date}
        store.seen = partial(verifying.as_seen, date=date, run=entry.run_id, days=days)
        with eng.session_settings(self.spark, config.spark) as refused:
            assigned = self._assigned(config, record)
            tables = rec.tables_on_record(self.spark, config, record, assignments=assigned)
            tables = replace(tables, keep=lambda rows, name: rows)
            faulty = stored.get("quarantine", stored["user_metrics"].limit(0).withColumn(sch.REASON, F.lit("")))
            users, of_faulty = (_of_ids(rows, self.ids, "left_semi") for rows in (stored["user_metrics"], faulty))
            known = rec.counts_on_record(record)
            counts = {name: n for name, n in known.items() if (name or None) in entry.experiments}
            left, stay = gates.without_users(counts, users, of_faulty, tables.plan)
            record["experiments"] = {name: n for name, n in known.items() if name not in counts} | left
            # A list counts in each test of its user, and what is in none is not stored.
            were, are = gates.totals(counts), gates.totals(left)
            for total, key in rec.TOTALS.items() if config.assignments is None else ():
                record["rows"][total] -= were[key] - are[key]
            if count := tables.assignment_counts:
                record["digests"]["assignments"], record["assignments"] = count.digest, count.as_record()
                stay = [*stay, "rows and rates of the whole log", f"{words.UNITS} in no test"]
            of_erased = " erased from this date"
            text = f"{words.counted(record.get(sch.ERASED, 0))}{of_erased}"
            text += f"; counts that cannot be derived without the log stay: {', '.join(stay)}" if stay else ""
            record["notes"] = [*(note for note in record["notes"] if of_erased not in note), text]
            if not are["lists"]:
                return replace(entry, experiments=(), tables={}), {}
            rows, left_out = store.stage(store.others(stored["user_metrics"]), "others"), store.others(faulty)
            vars(tables).update(user_metrics=rows, within_segments=(), quarantine=left_out, rejected=left_out)
            vars(tables).update({name: store.others(stored[name]) for name in (sch.USER_DAYS,) if name in stored})
            context = rec.Context(self.spark, config, rec.Steps(lambda text: None), refused, failed=[])
            vars(context).update(record=rec.Record(record), store=store, tables=tables, counts=left)
            earlier = [self.records[run] for run in sorted(self.records, reverse=True) if run < entry.run_id]
            quality = record["quality"] = gates.rates_without_users(record["quality"], left, stay)
            before = sinks.earlier_quality(earlier, quality["rates"]) if "previous" in quality else {}
            checks = sch.checks_of(row.asDict() for row in eng.few_rows(stored["checks"]))
            context.checks += gates.checks_without_users(checks, quality, left, config.quality.rates, before)
            context.earlier = Earlier.of(store, config)
            written, after = staged_tables(context)
            partitions = context.partitions("rows")
            if sch.LISTS in stored:
                # They are of no experiment.
                written[sch.LISTS] = _written(store, sch.LISTS, store.others(stored[sch.LISTS]), date)
                partitions = replace(partitions, emptied=[*partitions.emptied, *[None] * (None not in left)])
        record["notes"] = [*dict.fromkeys(record["notes"])]
        self.done.sentences.extend(f"{date}: {text}" for text in context.failed or ())
        return sinks.entry_of(after, [*written.values()], partitions), written

    def _config(self, entry: Entry, date: str, record: dict[str, Any], users: DataFrame) -> cfg.Config:
        """The config on record; without segments where a user may have lists in several of them."""
        if missing := [key for key in ("config", "inputs", "experiments", "quality") if key not in record]:
            raise InputError(f"the record has no {missing[0]}")
        states = record["config"]["sink"].get("user_states") if sch.USER_STATES in entry.tables else None
        place = {"sink": {"path": self.path, "user_states": states}, "report": {}, "lineage": {}}
        document = deepcopy(record["config"]) | place
        source = document["source"]
        names = [
            sch.quoted(name) for name in source.get("segments") or () if source.get("list") and name in users.columns
        ]
        if names and eng.few_rows(users.where(" OR ".join(f"{name} IS NULL" for name in names)).limit(1)):
            source["segments"] = []
            record[rec.NO_SEGMENTS] = said("no_segments")
            record["notes"].append(record[rec.NO_SEGMENTS])
        config = cfg.load(document, date=date)
        if config.convention.digest() != entry.convention.get("hash"):
            raise ConfigError("another version has published them, so they are not derived without the log")
        return config

    def _assigned(self, config: cfg.Config, record: Mapping[str, Any]) -> DataFrame | None:
        """The assignments of the others; None where there are none.

        Raises:
            DifferenceError: They are not those that the run has read.
        """
        rows = sources.read_events(self.spark, config.assignments)
        counted = rec.tables_on_record(self.spark, config, record, assignments=rows).assignment_counts
        if counted and counted.digest != record["digests"]["assignments"]:
            raise DifferenceError.of("other_assignments_now")
        return sources.without_users({"assignments": rows}, self.ids, config.options)["assignments"]  # type: ignore[no-any-return]


def _written(store: sinks.Store, table: str, rows: DataFrame, date: str) -> sinks.Written:
    """Stage rows as they are."""
    counts = {row[0]: row[1] for row in eng.few_rows(rows.groupBy(sch.EXPERIMENT).count())}
    most, few = max(counts.values(), default=1), sum(counts.values()) < sinks.MOST_ROWS
    return store.write(table, rows, sinks.Partitions(date, [*counts], most=most, few=few))
