"""Publish staged files: put the new ones beside the old, write the pointer, remove the old ones.

A reader that follows the pointer always sees one complete result, even if the run is killed. All functions take the
files first and plain values otherwise, so that a task of Spark can run them if this process has no access to the files.
Each can be repeated.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileInfo

from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.pointers import FOLDER, Entry, Pointer, newest, record_path, run_in_name, sealed
from rankmetrics_spark.schemas import DATE, EXPERIMENT, NULL_PARTITION, OF_DATES, SMALL_TABLES, USER_STATES
from rankmetrics_spark.sinks import claims, partitions as pt
from rankmetrics_spark.sinks.files import STAGING, Files, as_record

TABLES = ("user_metrics", "experiment_metrics", "comparisons", "quarantine", "checks", USER_STATES, *OF_DATES)
#: Bytes of a folder's name; the limit of every common file system.
LONGEST_NAME = 255
#: Characters that Hive and Spark write otherwise in a path, where they are in the value of a partition.
_SPECIAL = {code: f"%{code:02X}" for code in (*range(1, 32), *b"\"#%'*/:=?\\{[]^\x7f")}


@dataclass(frozen=True)
class Swap:
    """What a run publishes.

    Attributes:
        date: Evaluation date, ISO.
        entry: The run and its experiments, which are replaced in every table.
        staged: Table -> its files in the staging of the run.
        by_date: Whether each small table gets one file, as it does on a date that has them.
    """

    date: str
    entry: Entry
    staged: Mapping[str, Sequence[pt.StagedFile]]
    by_date: bool = False


def folder_of(table: str, experiment: str | None, date: str) -> str:
    """The folder of a partition.

    >>> folder_of("user_metrics", "a/b", "2026-11-21"), folder_of("quarantine", None, "2026-11-21")[11:50]
    ('user_metrics/experiment_id=a%2Fb/evaluation_date=2026-11-21', 'experiment_id=__HIVE_DEFAULT_PARTITION_')
    """
    if table in OF_DATES:
        return f"{table}/{DATE}={date}"
    name = NULL_PARTITION if experiment is None else experiment.translate(_SPECIAL)
    return f"{table}/{EXPERIMENT}={name}/{DATE}={date}"


def problem_with_name(experiment: str) -> str | None:
    """Why a partition cannot have the name of this experiment; None if it can.

    >>> problem_with_name("a/b=c"), problem_with_name("x" * 300)
    (None, 'its folder would have a name of 314 bytes; allowed: 255')
    """
    if experiment == NULL_PARTITION:
        return "that is the name of the partition of rows without an experiment"
    if "\0" in experiment:
        return "the name holds a NUL character"
    size = len(f"{EXPERIMENT}={experiment.translate(_SPECIAL)}".encode())
    return f"its folder would have a name of {size} bytes; allowed: {LONGEST_NAME}" if size > LONGEST_NAME else None


def experiment_of(folder: str) -> str | None:
    """The experiment of a folder ``experiment_id=...``; a date of ``user_days`` has none.

    >>> experiment_of("experiment_id=a%2Fb")
    'a/b'
    """
    name = folder.partition("=")[2]
    return unquote(name) if name != NULL_PARTITION and folder.startswith(f"{EXPERIMENT}=") else None


def is_of_run(path: str) -> bool:
    """Whether all rows of a file are of one run: not those of a small table that has one file of all experiments."""
    table, folder = path.split("/")[:2]
    return table in OF_DATES or folder.startswith(f"{EXPERIMENT}=")


def swap(files: Files, change: Swap) -> None:
    """Publish a run: place new files, write the pointer, remove old files."""
    date, entry, staged = change.date, change.entry, dict(change.staged)
    by_date = change.by_date or bool((pointer_of(files, date) or Pointer(date)).by_date)
    small = {table: staged.pop(table, ()) for table in SMALL_TABLES} if by_date else {}
    old = place(files, replace(change, staged=staged))
    with pointer_gate(files):
        pointer = pointer_of(files, date) or Pointer(date)
        if by_date:
            # Behind the gate: two runs would leave out the rows of each other.
            old += gather(files, pointer, entry, small)
        elif pointer.by_date:
            raise OutputError(f"a run with sink.layout 'by_date' has published {date} meanwhile; run this again")
        write_pointer(files, replace(pointer.with_run(entry), by_date=entry.run_id if by_date else ""))
    remove(files, old)


def place(files: Files, change: Swap) -> list[str]:
    """Move the staged files to their partitions; return the files of other runs in these."""
    run = change.entry.run_id
    old = [path for path in partition_files(files, change.entry.experiments, change.date) if run_in_name(path) != run]
    staged = [(table, file) for table, of_table in change.staged.items() for file in of_table]
    targets = [f"{folder_of(table, file.experiment, change.date)}/{file.name}" for table, file in staged]
    _bring(files, [f"{STAGING}/{run}/{table}/{file.name}" for table, file in staged], targets)
    return old


def _bring(files: Files, sources: Sequence[str], targets: Sequence[str]) -> None:
    files.for_each(files.put, sources, targets)
    files.settle(targets, {folder for target in targets for folder in folders_above(target)})


def gather(files: Files, pointer: Pointer, entry: Entry, staged: Mapping[str, Sequence[pt.StagedFile]]) -> list[str]:
    """Place one file of each small table: the staged rows, and those that count of other experiments of the date.

    The caller holds the gate of the pointers.

    Returns:
        The files that it replaces.
    """
    run, date, id_of = entry.run_id, pointer.date, ids_of(pointer)
    old = [*date_files(files, date), *partition_files(files, pointer.run_of(), date, SMALL_TABLES)]
    replaced, sources, targets = pa.array(entry.experiments, pa.string()), [], []
    for table in SMALL_TABLES:
        # One file with the experiments of all rows, or one for each.
        new = {f"{STAGING}/{run}/{table}/{file.name}": file.experiment for file in staged.get(table, ())}
        live = [path for path in old if path.startswith(f"{table}/") and run_in_name(path) == id_of(path)]
        others = {path: experiment_of(path.split("/")[1]) for path in live}
        read = (files.for_each(partial(_with_experiment, files), [*part.items()]) for part in (new, others))
        added, stored = map(_joined, read)
        if new:  # the file holds the rows of a test that is withheld too
            added = added.filter(pc.is_in(added[EXPERIMENT], value_set=replaced))
        if others:
            stored = stored.filter(pc.invert(pc.is_in(stored[EXPERIMENT], value_set=replaced)))
        if (rows := _joined([added, stored])).num_rows:
            name = f"part-{run}-{uuid.uuid4().hex}.parquet"
            sources.append(f"{STAGING}/{run}/{table}/{name}")
            targets.append(f"{table}/{DATE}={date}/{name}")
            files.write_table(sources[-1], rows.take(pc.sort_indices(rows, [(EXPERIMENT, "ascending")])))
    _bring(files, sources, targets)
    return old


def _with_experiment(files: Files, file: tuple[str, str | None]) -> pa.Table:
    """The rows of a file with their experiment, which the file of a date has itself."""
    path, experiment = file
    rows = files.read_table(path)
    if EXPERIMENT in rows.column_names:
        return rows
    return rows.append_column(EXPERIMENT, pa.array([experiment] * len(rows), pa.string()))


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    """All rows, with null where a part lacks a column."""
    # The word for that in ``pa.concat_tables`` is another one since 14.
    schema = pa.unify_schemas([pa.schema([]), *(part.schema for part in parts)])
    columns = (
        [part[field.name] if field.name in part.column_names else pa.nulls(len(part), field.type) for field in schema]
        for part in parts
    )
    return pa.concat_tables([schema.empty_table(), *(pa.table(of_part, schema=schema) for of_part in columns)])


def ids_of(pointer: Pointer | None) -> Callable[[str], str | None]:
    """What gives the id that a file of a partition carries if it counts; None if no file beside it does."""
    run_of, by_date = (pointer.file_run_of(), pointer.by_date) if pointer else ({}, "")

    def id_of(path: str) -> str | None:
        """The id for a path below the output."""
        table, folder = path.split("/")[:2]
        if by_date and table in SMALL_TABLES:
            return by_date
        return run_of.get(experiment_of(folder)) if is_of_run(path) else None

    return id_of


def folders_above(path: str) -> list[str]:
    """Return every folder above a path, including the output.

    >>> folders_above("runs/day/a.json")
    ['', 'runs', 'runs/day']
    """
    steps = path.split("/")
    return ["/".join(steps[:n]) for n in range(len(steps))]


def linked_folder(files: Files, experiments: Iterable[str | None], date: str) -> str | None:
    """Return the first link among these partitions and the folders above them; None if there is none.

    A link leads to other files, which a run must neither replace nor remove.
    """
    partitions = [f"/{DATE}={date}", *(folder_of("", name, date) for name in experiments)]
    folders = (f"{table}{partition}/" for table in TABLES for partition in partitions)
    links = files.links(dict.fromkeys(step for folder in folders for step in folders_above(folder)[1:]))
    return next(iter(links), None)


def partition_files(files: Files, names: Iterable[str | None], date: str, tables: Sequence[str] = TABLES) -> list[str]:
    """The files in all partitions of some experiments on a date."""
    of_names = {folder_of("", name, date).split("/")[1] for name in names}
    stored = zip(tables, files.for_each(files.names, tables), strict=True)
    folders = [f"{table}/{name}/{DATE}={date}" for table, of_table in stored for name in of_table if name in of_names]
    if f"{EXPERIMENT}={NULL_PARTITION}" in of_names:
        folders += [folder_of(table, None, date) for table in OF_DATES if table in tables]
    return _files_here(files, folders)


def date_files(files: Files, date: str) -> list[str]:
    """The files of a date that hold the rows of all experiments."""
    return _files_here(files, [f"{table}/{DATE}={date}" for table in SMALL_TABLES])


def live_files(files: Files, pointer: Pointer) -> dict[str, str]:
    """The files that count on a date -> the id in their names."""
    id_of = ids_of(pointer)
    paths = {*partition_files(files, pointer.run_of(), pointer.date), *date_files(files, pointer.date)}
    return {path: own for path in sorted(paths) if (own := run_in_name(path)) == id_of(path)}


def _files_here(files: Files, folders: Sequence[str]) -> list[str]:
    steps_to = {folder: folders_above(f"{folder}/")[1:] for folder in folders}
    links = {*files.links({*chain.from_iterable(steps_to.values())})}
    folders_here = [folder for folder, steps in steps_to.items() if links.isdisjoint(steps)]
    return [*chain.from_iterable(files.for_each(files.files, folders_here))]


def pointer_gate(files: Files) -> AbstractContextManager[Any]:
    """What lets the runs of one disk read and write pointers one after another; on a store, the date is claimed."""
    return claims.gate(Path(files.root, STAGING)) if files.local else nullcontext()


def write_pointer(files: Files, pointer: Pointer) -> None:
    """Write the pointer of a date, behind its gate."""
    text = pointer.as_json() + "\n"
    path, next_path = _pointer_paths(pointer.date)
    # HDFS cannot replace a file at once, and no store a folder, as Spark writes it. Readers take the last of both.
    if files.renames and (not files.local or files.is_folder(path)):
        files.write(next_path, text)
    files.write(path, text)
    if files.renames:  # also what a killed run has left
        files.remove(next_path)


def pointer_of(files: Files, date: str) -> Pointer | None:
    """The pointer of a date, or None."""
    return newest([files.read(path) for path in _pointer_paths(date)[: 2 if files.renames else 1]]).get(date)


def _pointer_paths(date: str) -> tuple[str, str]:
    """Return the path of a date's pointer, and the path of its copy while it is replaced."""
    return f"{FOLDER}/{date}.json", f"{FOLDER}/{date}.next.json"


def remove(files: Files, paths: Sequence[str]) -> None:
    """Remove files of partitions, and the folders that are empty then."""
    files.for_each(files.remove, paths)
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        files.remove_if_empty(folder, folder.rpartition("/")[0], folder.split("/")[0])


def recover(files: Files, run: str, date: str | None, experiments: Sequence[str | None]) -> None:
    """Clean up after a killed run: finish publishing if its pointer is written, else remove its files.

    Its record then says whether it was published.
    """
    if date is not None:
        pointer = pointer_of(files, date)
        # It may have gathered the rows of all experiments, which another run does meanwhile.
        names = {*experiments, *(pointer.run_of() if pointer and pointer.by_date == run else ())}
        living = {name.removesuffix(".claim") for name in files.names(STAGING)} - {run}
        if pointer and run in pointer.file_run_of().values():
            place_records(files, run)
        outdated, id_of = [], ids_of(pointer)
        for path in [*partition_files(files, names, date), *date_files(files, date)]:
            current, own = id_of(path), run_in_name(path)
            if own not in {current, *living} and run in (own, current):
                outdated.append(path)
        remove(files, outdated)
    record = as_record(files.read(record_path(run)))
    if record.get("outcome") in ("running", "publishing"):
        pointer = pointer_of(files, str(record.get(DATE)))
        published = pointer is not None and run in pointer.run_of().values()
        record["outcome"] = "done" if published else "killed"
        files.write(record_path(run), sealed(record, indent=2) + "\n")
    drafts = files.drafts(record_path(run))
    if files.local and date is not None:
        # A disk has one writer at a time: the run that cleans up has locked the gate.
        drafts += [draft for path in _pointer_paths(date) for draft in files.drafts(path)]
    _remove_drafts(files, drafts)
    files.remove_tree(f"{STAGING}/{run}")


def place_records(files: Files, run: str) -> None:
    """Put records in place that are staged beside the tables of the runs that they are of."""
    for path in files.files(f"{STAGING}/{run}/runs"):
        files.write(path.removeprefix(f"{STAGING}/{run}/"), files.read(path) or "")


def discard(files: Files, run: str) -> None:
    """Remove the staging of a run, and the folders that are empty then."""
    files.remove_tree(f"{STAGING}/{run}")
    if files.names(STAGING) == [".gate"]:
        files.remove(f"{STAGING}/.gate")
    files.remove_if_empty(STAGING, "")


def _remove_drafts(files: Files, drafts: Iterable[FileInfo]) -> None:
    for draft in drafts:
        files.remove(str(draft.path)[len(files.root) + 1 :])


def remove_unclaimed(files: Files) -> None:
    """Remove old stagings and drafts without a claim.

    A server may continue to write after its client was killed, and a refused run has no claim.
    """
    names = files.names(STAGING)
    if files.renames:
        drafts = [draft for folder in ("runs", FOLDER) for draft in files.drafts(folder=folder)]
        _remove_drafts(files, [draft for draft in drafts if draft.mtime and _is_old(draft.mtime)])
    for name in names:
        start = re.match("[0-9]{8}T[0-9]{6}", name)
        if start and not name.endswith(".claim") and f"{name}.claim" not in names:
            time = datetime.strptime(start[0], "%Y%m%dT%H%M%S").replace(tzinfo=timezone.utc)
            if _is_old(time):
                files.remove_tree(f"{STAGING}/{name}")


def _is_old(time: datetime) -> bool:
    return datetime.now(timezone.utc) - time > timedelta(days=1)


def remove_spark_staging(files: Files) -> None:
    """Remove temporary folders of Spark from tables, if it was killed while it replaced partitions."""
    for table in TABLES:
        for name in files.names(table):
            if name.startswith((".spark-staging", "_temporary")):
                files.remove_tree(f"{table}/{name}")
