"""Publish staged files: put the new ones beside the old, write the pointer, remove the old ones.

A reader that follows the pointer always sees one complete result, even if the run is killed. All functions take the
files first and plain values otherwise, so that a task of Spark can run them if this process has no access to the files.
Each can be repeated.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from rankmetrics_spark import pointers
from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.pointers import FOLDER, PLAN, RUN_ID, WITHOUT_ID, Entry, Pointer
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


def run_in_name(path: str) -> str:
    """The id of the run that wrote a file; empty for a file of Spark's own writer.

    The folders say nothing: an experiment may have a name such as ``model-20261121T120000-deadbeef``.

    >>> run_in_name("part-0-20261122T010203-0a1b2c3d-7.parquet"), run_in_name("part-00000-6f1c.c000.snappy.parquet")
    ('20261122T010203-0a1b2c3d', '')
    >>> run_in_name("user_metrics/experiment_id=m-20261121T120000-deadbeef/part-00000-6f1c.c000.snappy.parquet")
    ''
    """
    match = re.search(RUN_ID, path.rpartition("/")[2])
    return match[0] if match else WITHOUT_ID


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
    return pointers.newest(files.for_each(files.read, _pointer_paths(date)[: 2 if files.renames else 1])).get(date)


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
    record = as_record(files.read(pointers.record_path(run)))
    if record.get("outcome") in ("running", "publishing"):
        pointer = pointer_of(files, str(record.get(DATE)))
        published = pointer is not None and run in pointer.run_of().values()
        record["outcome"] = "done" if published else "killed"
        files.write(pointers.record_path(run), pointers.sealed(record, indent=2) + "\n")
    drafts = files.drafts(pointers.record_path(run))
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


# ---- seals: the record of a run has the SHA-256 of its files, the pointer of the date that of the record

#: Key of a record: path below the output -> SHA-256.
FILES = "files"
_HASH = re.compile("[0-9a-f]{64}")


def hashes(files: Files, date: str, run: str, done: bool = True) -> dict[str, str]:
    """Path -> SHA-256 of the files that a run has published on a date; of one that has failed, of what it left."""
    # The pointer may be why it has failed.
    return digests(files, (done and pointer_of(files, date)) or Pointer(date), run)


def digests(files: Files, pointer: Pointer, run: str) -> dict[str, str]:
    """The same of the files with this id that the pointer names."""
    paths = [path for path, own in live_files(files, pointer).items() if own == run]
    paths += [*files.files(pointers.refused_folder(pt.NO_RUN)), *files.files(pointers.refused_folder(run))]
    paths += [path for path in files.files("runs") if path == f"runs/{run}.html"]
    return dict(zip(paths, files.for_each(files.sha256, paths), strict=True))


def seal(files: Files, date: str, run: str) -> None:
    """Write the SHA-256 of the record of a run to the pointer of its date."""
    with pointer_gate(files):
        if pointer := pointer_of(files, date):
            digest = files.sha256(pointers.record_path(run))
            entries = (replace(each, sealed=digest) if each.run_id == run else each for each in pointer.entries)
            write_pointer(files, replace(pointer, entries=tuple(entries)))


def _text(files: Files, path: str) -> str | None:
    """The text of a file; an empty one for bytes that are none."""
    try:
        return files.read(path)
    except UnicodeDecodeError:
        return ""


def altered(files: Files, date: str) -> tuple[list[str], list[str]]:
    """What of a date is not as it was published, a sentence each, and what no digest covers."""
    name = f"{FOLDER}/{date}.json"
    changed = f"{name} is not as it was written: its digest is not that of its text"
    if (text := _text(files, name)) is None:
        return [], []
    pointer, is_whole = pointers.parse(text), pointers.is_sealed(text.removesuffix("\n"))
    if is_whole is False or pointer is None or (is_whole is None and any(each.sealed for each in pointer.entries)):
        return [changed], []
    found, uncovered = [], []
    if is_whole is None:
        uncovered.append(f"{name} has no digest: it is of an earlier version")
    if (plan := _text(files, PLAN)) is not None and not pointers.is_sealed(plan):
        found.append(f"{PLAN} is not as it was written: its digest is not that of its text")
    known: dict[str, str] = {}
    for entry in pointer.entries:
        path = pointers.record_path(entry.run_id)
        if not entry.sealed:
            uncovered.append(f"{path} has no digest: it is of an earlier version, or its run was killed as it ended")
        elif files.sha256(path) != entry.sealed:
            found.append(f"{path} is not as it was written: its SHA-256 is not the one in {name}")
        else:
            known |= json.loads(files.read(path) or "{}").get(FILES, {})
    others, of_refused = _of_others(files, pointer)
    found, known = found + others, of_refused | known
    found += _of_files(files, pointer, known) if not found else []
    known_ids = {*map(run_in_name, known)}
    merged = [entry.run_id for entry in pointer.entries if entry.merged not in {"", *known_ids}]
    if merged:
        uncovered.append(f"the files of {', '.join(merged)} were merged since, so their digests are of other files")
    return found, uncovered


def _of_others(files: Files, pointer: Pointer) -> tuple[list[str], dict[str, str]]:
    """Which records of runs that do not count on the date are not as they were written; the files of the others."""
    names = {f"runs/{name}" for name in files.names("runs") if name.endswith(".json")}
    paths = sorted(names - {pointers.record_path(entry.run_id) for entry in pointer.entries})
    found, known = [], dict[str, str]()
    for path, text in zip(paths, files.for_each(lambda path: _text(files, path), paths), strict=True):
        if pointers.is_sealed(text := (text or "").removesuffix("\n")):
            known |= json.loads(text).get(FILES, {})
        # Without the key it is of an earlier version, unless the key is what has changed.
        elif pointers.is_sealed(text) is False or _HASH.search(text[:90]) or (text[:1], text[-1:]) != ("{", "}"):
            found.append(f"{path} is not as it was written: its digest is not that of its text")
    return found, known


def _of_files(files: Files, pointer: Pointer, known: dict[str, str]) -> Iterator[str]:
    """The files that are others than the records say, that are missing, or that are on no record."""
    id_of = ids_of(pointer)
    of_runs = pointers.refused_folder(""), "runs/"
    expected = [path for path in known if path.startswith(of_runs) or id_of(path) == run_in_name(path)]
    for path, digest in zip(expected, files.for_each(files.sha256, expected), strict=True):
        if digest != known[path]:
            yield f"{path} {'is not as it was published' if digest else 'is missing'}: its SHA-256 is on record"
    # Of a run without a seal nothing is known, and files that were merged have names of their own.
    runs = {entry.run_id for entry in pointer.entries if entry.sealed} | {*map(run_in_name, known)} - {""}
    for path, own in live_files(files, pointer).items():
        if path not in known and own in runs:
            yield f"{path} is on no record, and readers count its rows"


def newest_date(files: Files) -> str:
    """The last date with a pointer, also one that cannot be read; empty without any."""
    dates = [name.removesuffix(".json") for name in files.names(FOLDER)]
    return max(filter(re.compile(r"\d{4}-\d{2}-\d{2}").fullmatch, dates), default="")
