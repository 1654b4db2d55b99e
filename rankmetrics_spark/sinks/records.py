"""The records of the runs of an output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rankmetrics_spark.schemas import RUN
from rankmetrics_spark.sinks.files import Files
from rankmetrics_spark.sinks.folder import Folder
from rankmetrics_spark.sinks.partitions import Store
from rankmetrics_spark.sinks.reaching import of_disk
from rankmetrics_spark.sinks.reading import texts_of


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
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if isinstance(record, dict) and RUN in record:
            found[record[RUN]] = record
    return [found[name] for name in sorted(found, reverse=True)]


def _newest_first(output: Files) -> Iterator[dict[str, Any]]:
    """The records one by one: after years of runs, nobody reads them all for the last one."""
    for name in reversed(output.names("runs")):
        if name.endswith(".json"):
            yield from _parsed([output.read(f"runs/{name}") or ""])


def previous_quality(store: Store, needed: bool) -> Mapping[str, Any]:
    """What the newest record of a run that was done says about the quality of its log, with its ``run_id``.

    Args:
        store: Where the runs write.
        needed: Look for the record even if Spark has to read it: on another file system or in a catalog.

    Returns:
        Empty if there is none.
    """
    disk = of_disk(store.path) if isinstance(store, Folder) else None
    if disk is not None and not disk.is_folder("runs"):
        disk = None
    found = _newest_first(disk) if disk else iter(run_records(store) if needed else [])
    # Records of earlier versions of this package have no outcome; they were written at the end.
    done = (record for record in found if record.get("outcome", "done") == "done" and "quality" in record)
    record = next(done, None)
    return {} if record is None else {**record["quality"], RUN: record[RUN]}
