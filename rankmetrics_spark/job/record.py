"""The run record: config, inputs, counts, written tables and verdict of one run."""

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
from rankmetrics_spark.schemas import DATE, FAIL, OK, RUN, WARN, Check
from rankmetrics_spark.sinks import Store, Written, as_json, of_disk

LIBRARIES = ("pyspark", "numpy", "pandas", "pyarrow", "scipy")
MOST_CHECKS = 10_000
"""Rows of ``checks`` that a record holds."""
MOST_PATHS = 1_000
"""If an input has more files, the record has no ``bytes``."""


@dataclass
class Record:
    """The record of a run while it grows.

    Attributes:
        entries: What ``runs/<run id>.json`` holds.
        plan: The plan; available after ``add_counts``.
    """

    entries: dict[str, Any]
    _started: float = field(default_factory=time.monotonic)
    _plan: Plan | None = None

    @classmethod
    def open(cls, config: Config, engine: str, versions: Mapping[str, str], more: Mapping[str, Any]) -> Record:
        """Start the record of a run."""
        started = datetime.now(timezone.utc)
        installed = {"python": platform.python_version()}
        for name in LIBRARIES:
            with suppress(PackageNotFoundError):
                installed[name] = version(name)
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
                "versions": {"rankmetrics_spark": rankmetrics_spark.__version__, **versions, **installed},
                **more,
            }
        )

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return str(self.entries[RUN])

    @property
    def plan(self) -> Plan:
        """The plan of the run."""
        assert self._plan is not None
        return self._plan

    def note_start(self, store: Store) -> None:
        """Write the record of a run that has begun, if the store can do so cheaply."""
        store.note(self.entries)

    def add_inputs(self, config: Config, impressions: DataFrame, judgements: DataFrame | None) -> None:
        """Add paths, schemas and sizes of the inputs."""
        tables: dict[str, tuple[Input, DataFrame]] = {"source": (config.source, impressions)}
        if judgements is not None and config.judgements is not None:
            tables["judgements"] = (config.judgements, judgements)
        self.entries["inputs"] = {name: _input(*table) for name, table in tables.items()}

    def add_counts(self, plan: Plan, findings: Findings, judgements: Mapping[str, int] | None) -> None:
        """Add what was counted in the input."""
        counts, self._plan = findings.counts, plan
        self.entries |= {
            "layout": plan.layout.name,
            "rows": {
                "in": total_counts(counts, "rows"),
                "evaluated": total_counts(counts, "evaluated"),
                "quarantined": total_counts(counts, "quarantined"),
            },
            "experiments": counts,
            "judgements": judgements,
            "quality": findings.as_record(),
            "notes": [*self.entries.get("notes", ()), *findings.notes],
        }

    def add_tables(self, tables: Mapping[str, Written], reasons: Mapping[str, int]) -> None:
        """Add the numbers of rows of the tables."""
        self.entries["tables"] = {name: {"rows": table.n} for name, table in tables.items()}
        self.entries["quarantine_reasons"] = dict(reasons)

    def add_checks(self, checks: Sequence[Check]) -> None:
        """Add what was checked, what failed first: for a run that publishes no table of it."""
        order = {status: place for place, status in enumerate((FAIL, WARN, OK))}
        rows = sorted(checks, key=lambda check: order.get(check.status, len(order)))
        if rows:
            self.entries["checks"] = [check.as_row() for check in rows[:MOST_CHECKS]]

    def note_publishing(self, store: Store) -> None:
        """Write the record before publishing, so that the counts survive if the run is killed."""
        store.note(self.entries | {"outcome": "publishing"})

    def finish(self, store: Store, warnings: Sequence[str]) -> str:
        """Write the record of a run that has published; return where it is."""
        self._close("done")
        self.entries["warnings"] = [without_secrets(sentence) for sentence in warnings]
        try:
            return store.record(self.entries)
        except Exception as error:  # classic sessions raise a class of py4j
            cause = without_secrets(first_sentence(error))
            self.entries["warnings"].append(f"published, but without the end of its run record ({cause})")
            return f"{store.path}/{record_path(self.run_id)}"

    def fail(self, error: BaseException, *writers: Callable[[dict[str, Any]], object]) -> None:
        """Write the record of a run that has failed, with the first writer that succeeds."""
        self._close("failed")
        ours = isinstance(error, RankmetricsError)
        message = str(error) if ours else first_sentence(Exception(str(error) or type(error).__name__))
        self.entries["error"] = {
            "class": type(error).__name__,
            "exit_code": error.exit_code if isinstance(error, RankmetricsError) else 1,
            "message": without_secrets(message),
        }
        for write in writers:
            with suppress(Exception):
                write(self.entries)
                return

    def _close(self, outcome: str) -> None:
        self.entries["outcome"] = outcome
        self.entries["total_seconds"] = round(time.monotonic() - self._started, 3)


def record_refusal(config: Config, engine: str, error: RankmetricsError) -> None:
    """Write the record of a run that failed before it had a session, if its output is a local folder."""
    Record.open(config, engine, {}, {}).fail(error, on_disk(config))


def on_disk(config: Config) -> Callable[[dict[str, Any]], None]:
    """Return a function that writes a record without the engine, if the output is a local folder."""

    def write(record: dict[str, Any]) -> None:
        files = of_disk(config.sink.path) if config.sink.path else None
        if files is not None:
            files.write(record_path(record[RUN]), as_json(record) + "\n")

    return write


def versions_of(spark: SparkSession) -> dict[str, str]:
    """Return the versions of the session's engine."""
    versions = {"spark": spark.version}
    if engine_of(spark) == "sail":
        versions["sail"] = version_of(spark)
    return versions


def _input(section: Input, rows: DataFrame) -> dict[str, Any]:
    """Describe an input without reading its rows."""
    files: list[str] = []
    with suppress(Exception):  # not every session and not every table supports it
        files = list(rows.inputFiles())
    return {
        "format": section.format,
        "paths": [without_secrets(path) for path in section.paths],
        "table": section.table,
        "filter": None if section.where is None else without_secrets(section.where),
        "files": len(files) or None,
        "bytes": _bytes(files),
        "schema": {field.name: field.dataType.simpleString() for field in rows.schema.fields},
    }


def _bytes(files: list[str]) -> int | None:
    """Return the total size of local files; None if one is elsewhere."""
    if not files or len(files) > MOST_PATHS:
        return None
    urls = [urlsplit(name) for name in files]
    if any(url.scheme not in ("", "file") for url in urls):
        return None
    try:
        return sum(os.stat(Path(unquote(url.path))).st_size for url in urls)
    except OSError:
        return None
