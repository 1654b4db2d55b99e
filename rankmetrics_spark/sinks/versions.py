"""The pointer of a date in Delta and Iceberg: which version of each table holds the rows of which run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from rankmetrics_spark.few_rows import few_rows
from rankmetrics_spark.pointers import Entry, Pointer
from rankmetrics_spark.schemas import DATE, EXPERIMENT, RUN
from rankmetrics_spark.sinks.reading import rows_by
from rankmetrics_spark.sinks.swapping import TABLES

if TYPE_CHECKING:
    from rankmetrics_spark.sinks.sql_tables import SqlTables

ATTEMPTS = 3
"""How often the tables or a pointer are written at most when another run does the same at the same time."""


def point(tables: SqlTables, date: str, entry: Entry) -> bool:
    """Write the pointer of a date; False if another run has replaced rows of this one.

    If another run has written the pointer meanwhile, look again.
    """
    for _ in range(ATTEMPTS):
        there = tables.pointer(date)
        before = there or _first_pointer(tables, date)
        after = _with_versions(tables, before.with_run(entry))
        if tables.pointer(date) == there:
            break
    mine = after.entries[0]
    if any(sum(mine.counted(table) or ()) != entry.tables.get(table, {}).get("rows", 0) for table in mine.tables):
        return False
    tables.write_pointer(after)
    return True


def _first_pointer(tables: SqlTables, date: str) -> Pointer:
    """What earlier versions of this package have written on a date, without a pointer."""
    found = tables.current("user_metrics")
    if found is None:
        return Pointer(date)
    # Their records were written at the end. A run that is just publishing, or was killed, is not one of them.
    records = map(json.loads, tables.records())
    done = {record.get(RUN) for record in records if record.get("outcome", "done") == "done"}
    there = found.where((F.col(DATE) == date) & F.col(RUN).isNotNull()).select(RUN, EXPERIMENT).distinct()
    runs: dict[str, list[str | None]] = {}
    for row in few_rows(there):
        if row[0] in done:
            runs.setdefault(row[0], []).append(row[1])
    return Pointer(date, tuple(Entry(run, tuple(sorted(names, key=str))) for run, names in sorted(runs.items())))


def _with_versions(tables: SqlTables, pointer: Pointer) -> Pointer:
    """The pointer with a version of each table for each run that holds its rows that count, and their numbers.

    This is the version of now, except for rows that another run has replaced meanwhile without getting as far as
    its own pointer: these are read from the version that the pointer before named.
    """
    entries = list(pointer.entries)
    for table in TABLES:
        version = tables.version(table)
        if version is None:
            continue
        n = rows_by(tables.at_version(table, version), {pointer.date: pointer}, EXPERIMENT)
        for place, entry in enumerate(entries):
            now = [n.get((entry.run_id, name), 0) for name in entry.experiments]
            known = entry.counted(table) if place else None
            counted, holder = (now, version) if known in (None, now) else (known, entry.tables[table]["version"])
            facts = {
                **entry.tables.get(table, {}),
                "rows": sum(counted or ()),
                "version": holder,
                "counted": counted,
            }
            entries[place] = replace(entry, tables={**entry.tables, table: facts})
    return replace(pointer, entries=tuple(entries), format=tables.format)
