"""The run record: what a run read, was asked, counted, wrote and said, from its first step to its end."""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession

import rankmetrics_spark
from rankmetrics_spark.config import Config, Input, as_dict
from rankmetrics_spark.engines import engine_of, version_of
from rankmetrics_spark.errors import RankmetricsError, first_sentence, without_secrets
from rankmetrics_spark.gates import Findings, total_counts
from rankmetrics_spark.pointers import record_path
from rankmetrics_spark.road import Plan
from rankmetrics_spark.schemas import DATE, RUN
from rankmetrics_spark.sinks import Store, Written, as_json, of_disk

LIBRARIES = ("pyspark", "numpy", "pandas", "pyarrow", "scipy")
MOST_PATHS = 1_000
"""Files whose sizes are added up; a log of more files has no ``bytes`` in the record."""


@dataclass
class Record:
    """The record of a run while it grows.

    Attributes:
        record: What ``runs/<run id>.json`` holds.
        plan: The plan, once there is one.
    """

    record: dict[str, Any]
    _started: float = field(default_factory=time.monotonic)
    _plan: Plan | None = None

    @classmethod
    def open(cls, config: Config, engine: str, versions: Mapping[str, str], more: Mapping[str, Any]) -> Record:
        """The record of a run that begins now."""
        started = datetime.now(timezone.utc)
        return cls(
            {
                RUN: f"{started:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}",
                "outcome": "running",
                "started": started.isoformat(timespec="seconds"),
                DATE: config.evaluation_date,
                "config": as_dict(config),
                "convention": {
                    "name": config.convention.name,
                    "text": config.convention.text(),
                    "hash": config.convention.digest(),
                },
                "engine": engine,
                "versions": {"rankmetrics_spark": rankmetrics_spark.__version__, **versions, **_libraries()},
                **more,
            }
        )

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return str(self.record[RUN])

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        assert self._plan is not None
        return self._plan

    def begun(self, store: Store) -> None:
        """Write the record of a run that has begun, where that costs next to nothing."""
        store.note(self.record)

    def read(self, config: Config, impressions: DataFrame, judged: DataFrame | None) -> None:
        """Enter what is read."""
        tables: dict[str, tuple[Input, DataFrame]] = {"source": (config.source, impressions)}
        if judged is not None and config.judgements is not None:
            tables["judgements"] = (config.judgements, judged)
        self.record["inputs"] = {name: _input(*table) for name, table in tables.items()}

    def counted(self, plan: Plan, found: Findings, judgements: Mapping[str, int] | None) -> None:
        """Enter what the pass over the input has counted."""
        counts, self._plan = found.counts, plan
        self.record |= {
            "layout": plan.layout.name,
            "rows": {
                "in": total_counts(counts, "rows"),
                "evaluated": total_counts(counts, "evaluated"),
                "quarantined": total_counts(counts, "quarantined"),
            },
            "experiments": counts,
            "judgements": judgements,
            "quality": found.as_record(),
            "notes": [*self.record.get("notes", ()), *found.notes],
        }

    def written(self, tables: Mapping[str, Written], reasons: Mapping[str, int]) -> None:
        """Enter how many rows the tables have."""
        self.record["tables"] = {name: {"rows": one.n} for name, one in tables.items()}
        self.record["quarantine_reasons"] = dict(reasons)

    def publishing(self, store: Store) -> None:
        """Write the record before anything is published: if the run is killed then, its counts are known."""
        store.note(self.record | {"outcome": "publishing"})

    def done(self, store: Store, undone: Sequence[str]) -> str:
        """Write the record of a run that has published; return where it is."""
        self._close("done")
        self.record["warnings"] = [without_secrets(sentence) for sentence in undone]
        try:
            return store.record(self.record)
        except Exception as error:  # classic sessions raise a class of py4j
            cause = without_secrets(first_sentence(error))
            self.record["warnings"].append(f"published, but without the end of its run record ({cause})")
            return f"{store.path}/{record_path(self.run_id)}"

    def failed(self, error: BaseException, *writers: Callable[[dict[str, Any]], object]) -> None:
        """Write the record of a run that has failed; an output that cannot be written has none."""
        self._close("failed")
        ours = isinstance(error, RankmetricsError)
        said = str(error) if ours else first_sentence(Exception(str(error) or type(error).__name__))
        self.record["error"] = {
            "class": type(error).__name__,
            "exit_code": error.exit_code if isinstance(error, RankmetricsError) else 1,
            "message": without_secrets(said),
        }
        for write in writers:
            with suppress(Exception):
                write(self.record)
                return

    def _close(self, outcome: str) -> None:
        self.record["outcome"] = outcome
        self.record["total_seconds"] = round(time.monotonic() - self._started, 3)


def record_refusal(config: Config, engine: str, error: RankmetricsError) -> None:
    """Write the record of a run that has ended before it had a session, if its output is a folder of this machine."""
    Record.open(config, engine, {}, {}).failed(error, on_disk(config))


def on_disk(config: Config) -> Callable[[dict[str, Any]], None]:
    """Writes a record without the engine, if the output is a folder of this machine."""

    def write(record: dict[str, Any]) -> None:
        files = of_disk(config.sink.path) if config.sink.path else None
        if files is not None:
            files.write(record_path(record[RUN]), as_json(record) + "\n")

    return write


def versions_of(spark: SparkSession) -> dict[str, str]:
    """The versions of the engine behind a session."""
    found = {"spark": spark.version}
    if engine_of(spark) == "sail":
        found["sail"] = version_of(spark)
    return found


def _libraries() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _input(section: Input, rows: DataFrame) -> dict[str, Any]:
    """What is known of an input without reading it."""
    files: list[str] = []
    with suppress(Exception):  # not every session and not every table says it
        files = list(rows.inputFiles())
    return {
        "format": section.format,
        "paths": [without_secrets(path) for path in section.path or ()],
        "table": section.table,
        "filter": None if section.where is None else without_secrets(section.where),
        "files": len(files) or None,
        "bytes": _bytes(files),
        "schema": {field.name: field.dataType.simpleString() for field in rows.schema.fields},
    }


def _bytes(files: list[str]) -> int | None:
    """The size of files on this machine; None if they are elsewhere."""
    if not files or len(files) > MOST_PATHS:
        return None
    places = [urlsplit(name) for name in files]
    if any(place.scheme not in ("", "file") for place in places):
        return None
    try:
        return sum(os.stat(Path(unquote(place.path))).st_size for place in places)
    except OSError:
        return None
