"""Compaction: merge the small files of a partition, without a reader seeing it.

Files are merged as a run publishes: the new ones are put beside the old ones under an id of their own, the pointer
switches to that id, and the old files go. The run that a pointer names for an experiment stays the same, so its record,
and comparisons that name it, stay true. Killed at any moment, the old files count or the new ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from rankmetrics_spark.pointers import Entry, Pointer, run_in_name
from rankmetrics_spark.sinks.files import STAGING, Files
from rankmetrics_spark.sinks.partitions import ROWS_PER_FILE, StagedFile
from rankmetrics_spark.sinks.swapping import (
    Swap,
    experiment_of,
    linked_folder,
    place,
    pointer_gate,
    pointer_of,
    recover,
    remove,
    write_pointer,
)


@dataclass(frozen=True)
class Merge:
    """What becomes of the files of a run on a date. All of them get the new id, since the pointer names one per run.

    Attributes:
        entry: The run.
        groups: Folder of a partition -> groups of its files; each group becomes one file.
    """

    entry: Entry
    groups: Mapping[str, Sequence[Sequence[str]]]

    @classmethod
    def of(cls, files: Files, date: str, entry: Entry, paths: Sequence[str]) -> Merge:
        """Choose the files to merge, by the rows in their footers; none where a partition is behind a link.

        Args:
            files: The files of the output.
            date: Evaluation date, ISO.
            entry: A run that counts on the date.
            paths: The files in the partitions of the date.
        """
        if linked_folder(files, entry.experiments, date) is not None:
            return cls(entry, {})
        folders: dict[str, list[str]] = {}
        for path in paths:
            folder = path.rpartition("/")[0]
            if experiment_of(folder.split("/")[1]) in entry.experiments and run_in_name(path) == entry.file_id:
                folders.setdefault(folder, []).append(path)

        def rows_of(path: str) -> int:
            """The rows that the footer of a file counts."""
            return int(pq.read_metadata(files.at(path), filesystem=files.system).num_rows)

        several = [path for names in folders.values() if len(names) > 1 for path in names]
        rows = dict(zip(several, files.for_each(rows_of, several), strict=True))
        return cls(
            entry,
            {folder: _first_fit({path: rows.get(path, 0) for path in names}) for folder, names in folders.items()},
        )

    @property
    def merged(self) -> list[Sequence[str]]:
        """The groups of several files."""
        return [group for groups in self.groups.values() for group in groups if len(group) > 1]


def _first_fit(rows: Mapping[str, int]) -> list[list[str]]:
    """Files in groups that hold at most as many rows as a run writes into one file; the largest first.

    No two groups fit into one file, so nothing is left to merge afterwards.

    >>> _first_fit({"a": 300_000, "b": 900_000, "c": 100_000, "d": 700_000, "e": 5_000_000})
    [['e'], ['b', 'c'], ['d', 'a']]
    """
    groups: list[tuple[list[str], list[int]]] = []
    for path, n in sorted(rows.items(), key=lambda item: (-item[1], item[0])):
        room = next((group for group in groups if sum(group[1]) + n <= ROWS_PER_FILE), None)
        if room is None:
            groups.append(([path], [n]))
        else:
            room[0].append(path)
            room[1].append(n)
    return [paths for paths, _ in groups]


def switched(files: Files, pointer: Pointer, merges: Sequence[Merge], run: str) -> bool:
    """Publish the files of some runs anew, under one id.

    Args:
        files: The files of the output.
        pointer: That of the date, which the caller has claimed.
        merges: The runs, with what becomes of their files.
        run: The new id: that of the claim.

    Returns:
        Whether they count now: not if the pointer has changed.
    """
    if pointer_of(files, pointer.date) != pointer:
        return False
    old: list[str] = []
    entries, experiments = {entry.run_id: entry for entry in pointer.entries}, list(pointer.run_of())
    try:
        for merge in merges:
            entry, staged = merge.entry, _staged(files, merge, run)
            old += place(files, Swap(pointer.date, replace(entry, run_id=run), staged))
            tables = {name: {**facts, "files": len(staged.get(name, ()))} for name, facts in entry.tables.items()}
            entries[entry.run_id] = replace(entry, tables=tables, merged=run)
        with pointer_gate(files):
            is_same = pointer_of(files, pointer.date) == pointer
            if is_same:
                write_pointer(files, replace(pointer, entries=tuple(entries.values()), sequence=pointer.sequence + 1))
    except BaseException:
        with suppress(Exception):
            recover(files, run, pointer.date, experiments)
        raise
    if is_same:
        remove(files, old)
    else:
        recover(files, run, pointer.date, experiments)
    return is_same


def _staged(files: Files, merge: Merge, run: str) -> dict[str, list[StagedFile]]:
    """Write each group of files as one file to the staging; return table -> its files."""
    staged: dict[str, list[StagedFile]] = {}
    for folder, groups in merge.groups.items():
        table, experiment = folder.split("/")[:2]
        for group in groups:
            name = f"part-{run}-{uuid.uuid4().hex}.parquet"
            target = f"{STAGING}/{run}/{table}/{name}"
            if len(group) == 1:
                files.copy(group[0], target)
            else:
                rows = [
                    pq.read_table(files.at(path), filesystem=files.system, partitioning=None) for path in sorted(group)
                ]
                files.write_table(target, pa.concat_tables(rows, promote_options="default"))
            staged.setdefault(table, []).append(StagedFile(experiment_of(experiment), name, 0))
    return staged
