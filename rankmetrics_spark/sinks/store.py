"""What a run does with its finished tables: choose the store, refuse mixed conventions, choose the partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark.config import Sink, local_path
from rankmetrics_spark.engines import engine_of
from rankmetrics_spark.errors import ConfigError, InputError, OutputError, root_cause
from rankmetrics_spark.pointers import Entry, Pointer
from rankmetrics_spark.schemas import PARTITION, RUN, quoted
from rankmetrics_spark.sinks import reading
from rankmetrics_spark.sinks.files import Files
from rankmetrics_spark.sinks.folder import Folder
from rankmetrics_spark.sinks.lakehouse import CatalogSchema, DeltaFolder
from rankmetrics_spark.sinks.parquet import ParquetFolder
from rankmetrics_spark.sinks.partitions import Partitions, Store, Written, problem_with_name
from rankmetrics_spark.sinks.reaching import of_disk
from rankmetrics_spark.sinks.reading import literal, live, live_files, pointers_of, settled, texts_of, with_schema


def store_of(spark: SparkSession, sink: Sink, run_id: str, settings: Mapping[str, str] | None = None) -> Store:
    """The store that a config describes."""
    if engine_of(spark) == "sail" and (sink.format != "parquet" or local_path(sink.path or "") is None):
        location = sink.table or sink.path
        raise OutputError(
            f"the engine sail cannot write {sink.format} to '{location}'; allowed: parquet in a folder of this "
            "machine, or use --engine spark"
        )
    if sink.table:
        return CatalogSchema(spark, sink.table, run_id, sink.format)
    folder = DeltaFolder if sink.format == "delta" else ParquetFolder
    # The root of a file system stays what it is.
    return folder(spark, (sink.path or "").rstrip("/") or "/", run_id, settings or {})


def publish(store: Store, written: Sequence[Written], entry: Entry, partitions: Partitions) -> list[str]:
    """Publish the complete tables of a run: the one way to every store.

    The tables are staged and their books are compared before this is called. Here they are put in place, and the
    pointer ``published/<date>.json`` is written last. See docs/publishing.md for what readers of each store see.
    """
    facts = {table.table: {"rows": table.n, "columns": _columns(table), "files": len(table.files)} for table in written}
    published = replace(entry, experiments=tuple(sorted(partitions.experiments, key=str)), tables=facts)
    try:
        store.publish(written, published, partitions.date)
    except (Exception, KeyboardInterrupt) as error:
        if not _is_published(store, published.run_id, partitions.date):
            raise
        cause = "interrupted" if isinstance(error, KeyboardInterrupt) else root_cause(error)
        return [f"published; an error followed ({cause}), and the next run of this output removes what it has left"]
    return []


def _is_published(store: Store, run_id: str, date: str) -> bool:
    """Whether a run is published on a date; False where nobody can tell."""
    try:
        pointer = store.pointer(date)
    except Exception:  # an output that cannot be read keeps the error of before
        return False
    return pointer is not None and run_id in pointer.run_of().values()


def _columns(written: Written) -> dict[str, str]:
    """Name -> type: a table without a file is read with these columns."""
    return {
        field.name: field.dataType.simpleString() for field in written.rows.schema.fields if field.name not in PARTITION
    }


def partitions_for(
    date: str, counts: Mapping[Any, Mapping[str, Any]], filled: str, most: int = 1, few: bool = True
) -> Partitions:
    """The partitions of a table that a run replaces: all its experiments on its date.

    >>> counts = {"a": {"lists": 3, "quarantined": 0}, "b": {"lists": 0, "quarantined": 7}}
    >>> partitions_for("2026-11-21", counts, "lists")
    Partitions(date='2026-11-21', filled=['a'], emptied=['b'], most=1, few=True)
    """
    with_rows = [experiment for experiment, count in counts.items() if count[filled]]
    without = [experiment for experiment, count in counts.items() if not count[filled]]
    return Partitions(date, with_rows, without, most, few)


def refuse_names(store: Store, experiments: Iterable[str | None]) -> None:
    """Refuse names of experiments that no partition can have."""
    for name in experiments:
        problem = problem_with_name(name) if name else None
        if name and problem:
            raise OutputError(
                f"experiment {name!r} cannot be stored in {store.path}: {problem}; rename it in the input, or leave "
                "it out with a source.where"
            )


def refuse_other_date(store: Store, date: str, name: str, digest: str) -> None:
    """Refuse, before anything is computed, a date that holds metrics of other conventions only.

    Which experiments a run replaces is known only after its pass over the input. Whichever these are, they must not
    stand beside metrics of another convention on a date that has no other.
    """
    pointer = store.pointer(date)
    if pointer and all(entry.convention["hash"] != digest for entry in pointer.entries):
        names = sorted(str(experiment) for entry in pointer.entries for experiment in entry.experiments)
        raise _other_convention(store, (names[0], pointer.entries[0].convention["name"]), date, name)


def refuse_other_convention(store: Store, partitions: Partitions, name: str, digest: str) -> None:
    """Refuse to replace metrics of one convention with metrics of another, so that no partition changes its meaning."""
    pointer, experiments = store.pointer(partitions.date), set(partitions.experiments)
    for entry in pointer.entries if pointer else ():
        shared = [experiment for experiment in entry.experiments if experiment in experiments]
        if shared and entry.convention["hash"] != digest:
            raise _other_convention(store, (shared[0], entry.convention["name"]), partitions.date, name)


def _other_convention(store: Store, existing: tuple[str | None, str], date: str, name: str) -> ConfigError:
    experiment, convention = existing
    return ConfigError(
        f"{store.name_of('experiment_metrics')} holds experiment '{experiment}' of {date} under the convention "
        f"'{convention}', and this run has '{name}'; choose another sink or date, or remove what is there"
    )


def check_row_counts(
    users: Written, averages: Written, quarantine: Written, counts: Mapping[Any, Mapping[str, Any]], lists: str
) -> None:
    """Refuse to publish tables whose rows do not add up to what was counted."""
    for name, count in counts.items():
        key = name or None
        _check_same("lists", count[lists], users.totals.get(key, 0), name)
        _check_same(
            "rows left out",
            count["quarantined"],
            quarantine.counts.get(key, 0) - _rows_of_others(name, counts),
            name,
        )
        if bool(users.counts.get(key, 0)) != bool(averages.counts.get(key, 0)):
            raise _mismatch("users with averages", users.counts.get(key, 0), averages.counts.get(key, 0), name)


def _rows_of_others(name: str | None, counts: Mapping[Any, Mapping[str, Any]]) -> int:
    """Rows that are stored with those of an experiment without being its: "" and null share a partition."""
    if name or not {"", None} <= counts.keys():
        return 0
    return int(counts["" if name is None else None]["quarantined"])


def _check_same(counted_thing: str, counted: int, written: int, name: str | None) -> None:
    if counted != written:
        raise _mismatch(counted_thing, counted, written, name)


def _mismatch(what: str, counted: int, written: int, name: str | None) -> OutputError:
    return OutputError(
        f"row counts do not add up: experiment '{name}' has {counted} {what} in the input and {written} in the tables; "
        "nothing was published; the input may have changed while it was read: run this again"
    )


def run_records(store: Store) -> list[dict[str, Any]]:
    """The records of all runs, the newest first. Ids of runs start with their time."""
    return _parsed(store.records())


def records_in(path: str) -> list[dict[str, Any]] | None:
    """The records of all runs of a folder on this machine, without Spark; None if there is no such folder."""
    disk = of_disk(path)
    if disk is None or not disk.is_folder("runs"):
        return None
    return _parsed(texts_of(None, path, "runs"))


def _parsed(texts: list[str]) -> list[dict[str, Any]]:
    records: dict[str, dict[str, Any]] = {}
    for text in texts:
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if isinstance(record, dict) and RUN in record:
            records[record[RUN]] = record
    return [records[name] for name in sorted(records, reverse=True)]


def _newest_first(output: Files) -> Iterator[dict[str, Any]]:
    """The records one by one: after years of runs, nobody reads them all for the last one."""
    for name in reversed(output.names("runs")):
        if name.endswith(".json"):
            yield from _parsed([output.read(f"runs/{name}") or ""])


def previous_quality(store: Store, needed: bool) -> Mapping[str, Any]:
    """What the newest record of a run that was done says about the quality of its log, with its ``run_id``."""
    disk = of_disk(store.path) if isinstance(store, Folder) else None
    if disk is not None and not disk.is_folder("runs"):
        disk = None
    records = _newest_first(disk) if disk else iter(run_records(store) if needed else [])
    finished = (record for record in records if record.get("outcome") == "done" and "quality" in record)
    record = next(finished, None)
    return {} if record is None else {**record["quality"], RUN: record[RUN]}


def read(spark: SparkSession, path: str, format: str = "parquet") -> DataFrame:
    """A written table, with the columns of all its files; a metric that only some dates have is null on the others.

    It follows the pointers of ``published``: while a run publishes, and after it was killed, each date has its earlier
    rows or the new ones, in all tables. The partition columns are strings, exactly as they were written: "007" stays
    "007".

    Args:
        spark: The session.
        path: Folder of the table, such as ``out/user_metrics``, or a table of a catalog: ``lake.ranking.user_metrics``.
        format: ``delta`` or ``iceberg`` for a table of a catalog; the pointers of a folder name its format.

    Raises:
        AnalysisException: There is no such folder.
        InputError: There is no such table in the catalog, or runs keep publishing to the folder.
    """
    path = path.rstrip("/")
    if format != "parquet" and "/" not in path:
        return _of_catalog(spark, path, format)
    folder, _, table = path.rpartition("/")
    root = folder or "."
    pointers = pointers_of(spark, root)
    if format == "delta" or any(pointer.format == "delta" for pointer in pointers.values()):
        rows = DeltaFolder(spark, root, "").existing(table)
        if rows is not None:
            return rows
    return settled(root, lambda: pointers_of(spark, root), lambda pointers: _rows(spark, path, pointers), pointers)


def _rows(spark: SparkSession, path: str, pointers: Mapping[str, Pointer]) -> DataFrame:
    try:
        return _listed(spark, path, pointers)
    except AnalysisException:
        columns = columns_of(pointers, path.rpartition("/")[2])
        if not columns:
            raise
        # What was published has no row in this table, such as a quarantine without faulty rows.
        return spark.createDataFrame([], columns)


def _listed(spark: SparkSession, path: str, pointers: Mapping[str, Pointer]) -> DataFrame:
    """The rows that the pointers name; the files are listed here."""
    if engine_of(spark) == "sail":
        return _on_sail(spark, path, pointers)
    schema = spark.read.option("mergeSchema", "true").parquet(literal(path)).schema
    return live(with_schema(spark, path, schema), pointers, path)


def _on_sail(spark: SparkSession, path: str, pointers: Mapping[str, Pointer]) -> DataFrame:
    disk = of_disk(path)
    if disk is None or not disk.is_folder(""):
        columns = columns_of(pointers, path.rpartition("/")[2])
        if not columns:
            raise AnalysisException(f"there is no folder '{path}'")
        return spark.createDataFrame([], columns)
    rows = reading.rows_of(spark, disk, live_files(disk, pointers))
    if rows is None:
        raise AnalysisException(f"'{path}' holds no rows that were published")
    return rows


def columns_of(pointers: Mapping[str, Pointer], table: str) -> str:
    """The columns of a table as SQL, from the newest pointer that knows them; empty if none does."""
    for _, pointer in sorted(pointers.items(), reverse=True):
        for entry in pointer.entries:
            if columns := entry.tables.get(table, {}).get("columns"):
                keys = dict.fromkeys(PARTITION, "string")
                return ", ".join(f"{quoted(name)} {kind}" for name, kind in (columns | keys).items())
    return ""


def _of_catalog(spark: SparkSession, name: str, format: str) -> DataFrame:
    schema, _, table = name.rpartition(".")
    rows = CatalogSchema(spark, schema, "", format).existing(table)
    if rows is None:
        raise InputError(f"cannot read {format} from '{name}': there is no such table")
    return rows
