"""Where a run writes its tables: folders of Parquet, Delta tables, Iceberg tables.

A sink receives finished tables. It knows nothing about how they were computed. Here: choose the store, refuse mixed
conventions, choose the partitions, publish, and read what was published.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import config as cfg, engines as eng, errors as err
from rankmetrics_spark.pointers import FOLDER, REFUSED, REGISTERED, Entry, Pointer, Pointers, is_sealed, parse, unit_in
from rankmetrics_spark.schemas import EXPERIMENT, FAIL, NULL_PARTITION, OF_DATES, OK, PARTITION, RUN, Check, quoted
from rankmetrics_spark.sinks import files, partitions as pt, reading, sql_tables, swapping
from rankmetrics_spark.sinks.folders import DeltaFolder, Folder, ParquetFolder
from rankmetrics_spark.words import UNITS

#: Experiment -> what was counted of it.
Counts: TypeAlias = Mapping[Any, Mapping[str, Any]]


def store_of(spark: SparkSession, sink: cfg.Sink, run_id: str, settings: Mapping[str, str] | None = None) -> pt.Store:
    """The store that a config describes."""
    if eng.engine_of(spark) == "sail" and (sink.format != "parquet" or cfg.local_path(sink.path or "") is None):
        raise err.OutputError.of("not_written_by_sail", format=sink.format, location=sink.table or sink.path)
    if sink.table:
        return sql_tables.CatalogSchema(spark, sink.table, run_id, sink.format, sink.layout == "by_date")
    folder = DeltaFolder if sink.format == "delta" else ParquetFolder
    # The root of a file system stays what it is.
    return folder(spark, (sink.path or "").rstrip("/") or "/", run_id, settings or {}, sink.layout == "by_date")


def publish(store: pt.Store, written: Sequence[pt.Written], entry: Entry, partitions: pt.Partitions) -> list[str]:
    """Publish the staged tables of a run: put them in place, and write the pointer ``published/<date>.json`` last.

    ``check_row_counts`` comes before. docs/publishing.md says what readers of each store see meanwhile.
    """
    published = entry_of(entry, written, partitions)
    try:
        store.publish(written, published, partitions.date)
    except (Exception, KeyboardInterrupt) as error:
        pointer = None
        with suppress(Exception):  # the first error is the one to raise
            pointer = store.pointer(partitions.date)
        if pointer is None or published.run_id not in pointer.run_of().values():
            raise
        cause = "interrupted" if isinstance(error, KeyboardInterrupt) else err.root_cause(error)
        return [f"published; an error followed ({cause}), and the next run of this output removes what it has left"]
    with suppress(Exception):  # the result is published
        pt.begin(store)
    return []


def entry_of(entry: Entry, written: Sequence[pt.Written], partitions: pt.Partitions) -> Entry:
    """The entry with the experiments of these partitions, and what is known of the staged tables."""
    facts = {}
    for table in written:
        # The types of a table that has no file.
        fields = [field for field in table.rows.schema.fields if field.name not in PARTITION]
        columns = {field.name: field.dataType.simpleString() for field in fields}
        facts[table.table] = {"rows": table.n, "columns": columns, "files": len({file.name for file in table.files})}
    return replace(entry, experiments=tuple(sorted(partitions.experiments, key=str)), tables=facts)


def refuse_names(store: pt.Store, experiments: Iterable[str | None]) -> None:
    """Refuse names of experiments that no partition can have."""
    for name in experiments:
        problem = swapping.problem_with_name(name) if name else None
        if name and problem:
            raise err.OutputError.of("name_not_stored", name=name, path=store.path, problem=problem)


def refuse_other_date(store: pt.Store, date: str, name: str, digest: str) -> None:
    """Refuse, before anything is computed, a date that holds metrics of other conventions only.

    The experiments that a run replaces are known only after its pass over the input. On a date that has metrics of
    another convention only, no experiment can get this one.
    """
    pointer = store.pointer(date)
    if pointer and all(entry.convention["hash"] != digest for entry in pointer.entries):
        names = sorted(str(experiment) for entry in pointer.entries for experiment in entry.experiments)
        raise _other_convention(store, (names[0], pointer.entries[0].convention["name"]), date, name)


def refuse_other_convention(
    store: pt.Store, pointer: Pointer | None, partitions: pt.Partitions, name: str, digest: str
) -> None:
    """Refuse to replace metrics of one convention with metrics of another, so that no partition changes its meaning."""
    experiments = set(partitions.experiments)
    for entry in pointer.entries if pointer else ():
        shared = [experiment for experiment in entry.experiments if experiment in experiments]
        if shared and entry.convention["hash"] != digest:
            raise _other_convention(store, (shared[0], entry.convention["name"]), partitions.date, name)


def _other_convention(store: pt.Store, existing: tuple[str | None, str], date: str, name: str) -> err.ConfigError:
    table = store.name_of("experiment_metrics")
    held = {"experiment": existing[0], "convention": existing[1]}
    return err.ConfigError.of("other_convention", table=table, date=date, **held, name=name)


def check_row_counts(users: pt.Written, averages: pt.Written, quarantine: pt.Written, counts: Counts) -> list[Check]:
    """Refuse to publish tables with other numbers of rows than were counted in the input; return what was compared."""
    compared: list[Check] = []
    judged_lists, with_means = f"lists of {UNITS} with judgements", f"{UNITS} with averages"
    for name, count in counts.items():
        key = name or None
        n_users, n_means = users.counts.get(key, 0), averages.counts.get(key, 0)
        # "" and null share a partition.
        shares_partition = not name and {"", None} <= counts.keys()
        others = counts["" if name is None else None]["quarantined"] if shares_partition else 0
        lists = judged_lists if count["lists_outside"] else "lists"
        checks = (
            ("books_lists", lists, count["lists"] - count["lists_outside"], users.totals.get(key, 0)),
            ("books_quarantine", "rows left out", count["quarantined"], quarantine.counts.get(key, 0) - others),
            ("books_means", with_means, n_users, n_means if bool(n_users) != bool(n_means) else n_users),
        )
        for check, noun, n_input, n_tables in checks:
            sentence = f"experiment '{name}' has {n_input} {noun} in the input and {n_tables} in the tables"
            if n_input != n_tables:
                sentence = err.said("row_counts", difference=sentence)
            status, difference = OK if n_input == n_tables else FAIL, float(-abs(n_input - n_tables))
            compared.append(Check(check, status, sentence, name, n_tables, n_input, difference))
    failures = [check for check in compared if check.status == FAIL]
    if failures:
        error = err.OutputError(failures[0].sentence)
        error.checks = tuple(compared)
        raise error
    return compared


def run_records(store: pt.Store) -> list[dict[str, Any]]:
    """The records of all runs, the newest first. Ids of runs start with their time."""
    return _parsed(store.records())


def records_in(path: str, since: str = "") -> list[dict[str, Any]] | None:
    """The records of the runs of a folder on this machine, without Spark; None if there is no such folder.

    Args:
        path: The folder.
        since: The begin of an id, such as 20261121; earlier runs are not read.
    """
    disk = files.of_disk(path)
    if disk is None or not disk.is_folder("runs"):
        return None
    names = [name for name in disk.names("runs") if name.endswith(".json") and name >= since]
    return _parsed([text for name in names if (text := disk.read(f"runs/{name}"))])


def altered(store: pt.Store, date: str) -> tuple[list[str], list[str]]:
    """What of a date is not as it was published, and what no digest covers: sentences."""
    return store.altered(date) if isinstance(store, Folder) else ([], ["tables of a catalog have versions, no digests"])


def plan_texts(spark: SparkSession, path: str | None, started: str) -> list[str]:
    """The text of the plan of a folder; none where there is none, or where it came after a run has started."""
    texts = reading.texts_of(spark, path, REGISTERED) if path else []
    return [text for text in texts if not is_sealed(text) or json.loads(text)["registered"] <= started]


def unreadable_pointers(path: str) -> list[str]:
    """A sentence for each date of a folder on this machine whose pointer holds none, such as one that was cut off."""
    if (disk := files.of_disk(path)) is None:
        return []
    names = [name for name in disk.names(FOLDER) if re.fullmatch(r"\d{4}-\d{2}-\d{2}\.json", name)]
    texts = {f"{FOLDER}/{name}": disk.read(f"{FOLDER}/{name}") for name in names}
    broken = [name for name, text in texts.items() if text is not None and parse(text) is None]
    return [err.said("unreadable_pointer", name=name, date=name[-15:-5]) for name in broken]


def _parsed(texts: list[str]) -> list[dict[str, Any]]:
    records = {record[RUN]: record for record in map(files.as_record, texts) if RUN in record}
    return [records[name] for name in sorted(records, reverse=True)]


def previous_quality(store: pt.Store, experiments: Iterable[str | None], needed: bool) -> Mapping[str, Any]:
    """Quality of the log as completed runs have recorded it: of each experiment, the newest that has it.

    Args:
        store: Where the runs write; several jobs may share it.
        experiments: Those of the log.
        needed: Whether a limit reads the rates of every experiment.

    Returns:
        The entry of the newest run with one of these experiments, and its ``run_id``; in ``rates``, each experiment as
        the newest run with it has it. Empty without such a run.
    """
    disk = files.of_disk(store.path) if isinstance(store, Folder) else None
    records: Iterator[dict[str, Any]] = iter(())
    if disk is not None and disk.is_folder("runs"):
        # One by one: after years of runs, reading them all for the newest one takes long.
        names = [name for name in reversed(disk.names("runs")) if name.endswith(".json")]
        records = chain.from_iterable(_parsed([disk.read(f"runs/{name}") or ""]) for name in names)
    elif needed:  # Spark has to read them
        records = iter(run_records(store))
    return earlier_quality(records, experiments, needed)


def earlier_quality(
    records: Iterable[Mapping[str, Any]], experiments: Iterable[str | None], needed: bool = True
) -> Mapping[str, Any]:
    """The same of some records, the newest first."""
    missing = {NULL_PARTITION if name is None else name for name in experiments}
    quality: dict[str, Any] = {}
    rates: dict[str | None, Any] = {}
    for record in records:
        if record.get("outcome") != "done" or "quality" not in record:
            continue
        known = record["quality"].get("rates", {})
        if of_these := missing & known.keys():
            quality = quality or {**record["quality"], RUN: record[RUN], "rates": rates}
            rates |= {None if name == NULL_PARTITION else name: known[name] for name in of_these}
            missing -= of_these
        if not missing or (quality and not needed):
            break
    return quality


def read(spark: SparkSession, path: str, format: str = "parquet") -> DataFrame:
    """A written table, as its pointers say: see ``rankmetrics_spark.read``."""
    path = path.rstrip("/")
    rows, pointers = _read(spark, path, format)
    # A folder of an output, or a table of a schema.
    return rows.drop(EXPERIMENT) if re.split("[/.]", path)[-1] in OF_DATES else eng.with_unit(rows, unit_in(pointers))


def _read(spark: SparkSession, path: str, format: str) -> tuple[DataFrame, Pointers]:
    if format != "parquet" and "/" not in path:
        schema, _, table = path.rpartition(".")
        store = sql_tables.CatalogSchema(spark, schema, "", format)
        rows = store.existing(table)
        if rows is None:
            raise err.InputError(f"cannot read {format} from '{path}': there is no such table")
        return rows, store.pointers()
    folder, _, table = path.rpartition("/")
    root = folder or "."
    if table == REFUSED:
        return _refused(spark, path), {}
    pointers = reading.pointers_of(spark, root)
    if format == "delta" or any(pointer.format == "delta" for pointer in pointers.values()):
        rows = DeltaFolder(spark, root, "").existing(table)
        if rows is not None:
            return rows, pointers

    def select(pointers: Pointers) -> DataFrame:
        """The rows that the pointers name; the files are listed here."""
        try:
            return reading.live_rows(spark, path, pointers)
        except AnalysisException:
            # What was published may have no row in this table, such as a quarantine without faulty rows.
            if columns := columns_of(pointers, table):
                return spark.createDataFrame([], columns)
            raise

    return reading.settled(root, lambda: reading.pointers_of(spark, root), select, pointers), pointers


def _refused(spark: SparkSession, path: str) -> DataFrame:
    """The checks of the runs of a folder that published nothing; no pointer names them."""
    empty = pt.rows_of_arrow(spark, pt.SCHEMA.empty_table()).withColumn("run", F.lit(""))
    sail = eng.engine_of(spark) == "sail"
    try:
        return spark.read.schema(empty.schema).parquet(eng.sail_path(path) if sail else eng.spark_path(path))
    except AnalysisException:  # nothing has been published or refused
        return empty


def columns_of(pointers: Pointers, table: str) -> str:
    """The columns of a table as SQL, from the newest pointer that knows them; empty if none does."""
    for _, pointer in sorted(pointers.items(), reverse=True):
        for entry in pointer.entries:
            if columns := entry.tables.get(table, {}).get("columns"):
                keys = dict.fromkeys(PARTITION, "string")
                return ", ".join(f"{quoted(name)} {kind}" for name, kind in (columns | keys).items())
    return ""
