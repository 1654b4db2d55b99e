"""The records of earlier runs of an output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from rankmetrics_spark.config.places import local_path
from rankmetrics_spark.schemas import RUN
from rankmetrics_spark.sinks.parquet import Folder, literal
from rankmetrics_spark.sinks.partitions import Store


def previous_quality(store: Store, needed: bool) -> Mapping[str, Any]:
    """What the newest run record says about the quality of its log, with its ``run_id``; empty if there is none.

    Args:
        store: Where the runs write. Ids of runs start with their time, so the last in order is the newest.
        needed: Look for the record even if Spark has to read it: on another file system or in a catalog.
    """
    folder = local_path(f"{store.path}/runs") if isinstance(store, Folder) else None
    text = _newest_file(folder) if folder is not None and folder.is_dir() else None
    if text is None and needed:
        text = _newest_by_spark(store)
    try:
        record = json.loads(text or "{}")
    except ValueError:
        record = {}
    return {**record["quality"], "run_id": record["run_id"]} if "quality" in record else {}


def _newest_file(folder: Path) -> str | None:
    # Where Spark wrote a record, it is a folder with one file.
    for record in sorted(folder.glob("*.json"), reverse=True):
        files = [record] if record.is_file() else sorted(record.glob("part-*"))
        if files:
            return files[0].read_text(encoding="utf-8")
    return None


def _newest_by_spark(store: Store) -> str | None:
    if not isinstance(store, Folder):
        runs = store.existing("runs")
        row = None if runs is None else runs.orderBy(F.col(RUN).desc()).select("record").first()
        return None if row is None else str(row[0])
    try:
        lines = store.spark.read.text(f"{literal(store.path)}/runs/*.json", wholetext=True)
        row = lines.select("value", "_metadata.file_path").orderBy(F.col("file_path").desc()).first()
    except AnalysisException:  # there are no records yet
        return None
    return None if row is None else str(row["value"])
