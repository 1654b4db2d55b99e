"""Publish the tables of a date anew, without some users: with their records, in one step, under the same runs."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from rankmetrics_spark.pointers import FOLDER, Entry, Pointer, record_path
from rankmetrics_spark.schemas import SMALL_TABLES
from rankmetrics_spark.sinks import files as fl, partitions, swapping as sw


@dataclass(frozen=True)
class Erased:
    """What becomes of a run on a date.

    Attributes:
        before: Its entry in the pointer.
        after: The entry as it becomes; without experiments where no user is left.
        staged: Table -> its new files in the staging.
        record: Its record as it becomes, but for the digests of files.
    """

    before: Entry
    after: Entry
    staged: Mapping[str, Sequence[partitions.StagedFile]]
    record: Mapping[str, Any]


def switch(files: fl.Files, pointer: Pointer, runs: Sequence[Erased], run: str) -> bool:
    """Publish a date anew, its files under the id of the claim; return False if its pointer has changed meanwhile."""
    small = SMALL_TABLES if pointer.by_date else ()
    gathered = {table: [*chain.from_iterable(each.staged.get(table, ()) for each in runs)] for table in small}

    old: list[str] = []
    try:
        for each in runs:
            staged = {table: of_table for table, of_table in each.staged.items() if table not in small}
            # Every experiment has its files replaced, also one without users by now.
            old += sw.place(files, sw.Swap(pointer.date, replace(each.before, run_id=run), staged))
        with sw.pointer_gate(files):
            if is_same := sw.pointer_of(files, pointer.date) == pointer:
                # The file of each small table, the pointer, and the records.
                old += sw.gather(files, pointer, Entry(run, tuple(pointer.run_of())), gathered) if small else []
                _write(files, replace(pointer, by_date=run if small else ""), runs, run)
                sw.place_records(files, run)
    except BaseException:
        with suppress(Exception):
            sw.recover(files, run, pointer.date, [*pointer.run_of()])
        raise
    if is_same:
        sw.remove(files, old)
    else:
        sw.recover(files, run, pointer.date, [*pointer.run_of()])
    return is_same


def _write(files: fl.Files, pointer: Pointer, runs: Sequence[Erased], run: str) -> None:
    """Stage the records with the digests of the new files, then write the pointer with those of the records."""
    after = [replace(each.after, merged=run) for each in runs if each.after.experiments]
    new = replace(pointer, entries=tuple(after), sequence=pointer.sequence + 1)
    digests, sealed = sw.digests(files, new, run), {}
    for each in runs:
        text = partitions.as_json({**each.record, sw.FILES: digests}) + "\n"
        files.write(f"{fl.STAGING}/{run}/{record_path(each.before.run_id)}", text)
        sealed[each.before.run_id] = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if after:
        entries = (replace(entry, sealed=sealed[entry.run_id]) for entry in after)
        return sw.write_pointer(files, replace(new, entries=tuple(entries)))
    # Nobody is left on this date.
    sw.place_records(files, run)
    for name in (f"{FOLDER}/{pointer.date}.next.json", f"{FOLDER}/{pointer.date}.json"):
        files.remove(name)
