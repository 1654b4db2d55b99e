"""What the steps of a run share; its record (config, inputs, counts, tables, verdict), and its tables, read back."""

import hashlib
import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession

import rankmetrics_spark
from rankmetrics_spark import config as cfg, engines as eng, gates, metrics as mx, pipeline, report as rep, road, sinks
from rankmetrics_spark.errors import InputError, MetricGateError, RankmetricsError, first_sentence, without_secrets
from rankmetrics_spark.job.earlier import Earlier
from rankmetrics_spark.job.lineage import Events
from rankmetrics_spark.pointers import Pointer, record_path, unpublished
from rankmetrics_spark.schemas import DATE, FAIL, NULL_PARTITION, OK, RUN, WARN, Check, quoted, rows_of

if TYPE_CHECKING:
    from rankmetrics_spark.job.recomputing import StoredDay

LIBRARIES = ("pyspark", "numpy", "pandas", "pyarrow", "scipy")
#: Key of the other days whose runs a run has read, or counted; a later run of such a day has a later id.
DAYS_SEEN = "days_seen"
#: Why tables still count users who were erased; not there if none does.
STILL_COUNTED = "still_counted"
#: Key of the sentence about the segments that an erasure has left out.
NO_SEGMENTS = "no_segments"
#: Rows of ``checks`` that a record holds.
MOST_CHECKS = 10_000
#: Sentences about earlier days among the warnings of a record.
MOST_WARNINGS = 5
#: If an input has more files, the record has no ``bytes``.
MOST_PATHS = 1_000
#: What a record says of the rows -> the count.
TOTALS = {"in": "rows", "evaluated": "evaluated", "quarantined": "quarantined"}


@dataclass
class Record:
    """The record of a run while it grows.

    Attributes:
        entries: What ``runs/<run id>.json`` holds.
    """

    entries: dict[str, Any]
    _started: float = field(default_factory=time.monotonic)

    @classmethod
    def open(cls, config: cfg.Config, engine: str, versions: Mapping[str, str], more: Mapping[str, Any]) -> "Record":
        """Start the record of a run."""
        started = datetime.now(timezone.utc)
        # In the order of runs, even of several in one second: microseconds first, since they have five digits.
        unique = f"{started.microsecond:05x}{uuid.uuid4().hex[:3]}"
        installed, rule = {"python": platform.python_version()}, config.convention
        for name in LIBRARIES:
            with suppress(PackageNotFoundError):
                installed[name] = version(name)
        entries = {
            RUN: f"{started:%Y%m%dT%H%M%S}-{unique}",
            "outcome": "running",
            "started": started.isoformat(timespec="milliseconds"),
            DATE: config.evaluation_date,
            "config": cfg.as_dict(config),
            "convention": {"name": rule.name, "text": rule.text(), "hash": rule.digest()},
            "engine": engine,
            "processor": processor(),
            "versions": {"rankmetrics_spark": rankmetrics_spark.__version__, **versions, **installed},
        }
        return cls({**entries, **more})

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return str(self.entries[RUN])

    def add_inputs(self, config: cfg.Config, tables: Mapping[str, DataFrame | None]) -> None:
        """Add paths, schemas and sizes of the inputs without reading rows; ``bytes`` are known of local files only."""
        inputs: dict[str, Any] = {}
        for name, rows in tables.items():
            section = getattr(config, name)
            if section is None or rows is None:
                continue
            files: list[str] = []
            with suppress(Exception):  # not every session and not every table supports it
                files = list(rows.inputFiles())
            urls, n_bytes = [urlsplit(file) for file in files], None
            if 0 < len(files) <= MOST_PATHS and all(url.scheme in ("", "file") for url in urls):
                with suppress(OSError):
                    n_bytes = sum(os.stat(Path(unquote(url.path))).st_size for url in urls)
            inputs[name] = {
                "format": section.format,
                "paths": [without_secrets(path) for path in section.paths],
                "table": section.table,
                "filter": None if section.where is None else without_secrets(section.where, True),
                "files": len(files) or None,
                "bytes": n_bytes,
                "schema": {field.name: field.dataType.simpleString() for field in rows.schema.fields},
            }
        self.entries["inputs"] = inputs

    def add_counts(self, plan: road.Plan, findings: gates.Findings, judgements: Mapping[str, int] | None) -> None:
        """Add what was counted in the input."""
        self.entries |= {
            "layout": plan.layout.name,
            "rows": {name: findings.total(counted) for name, counted in TOTALS.items()},
            "experiments": findings.counts,
            "judgements": judgements,
            "quality": findings.as_record(),
            **({} if findings.events is None else {"events": dict(findings.events)}),
            **({"assignments": findings.assigned.as_record()} if findings.assigned else {}),
            "notes": [*self.entries.get("notes", ()), *findings.notes],
        }

    def add_digests(self, config: cfg.Config, of_inputs: Mapping[str, str | None]) -> None:
        """Add what the run has read, in digests; those of the lists are among the counts of their experiments."""
        text = json.dumps(self.entries["config"], sort_keys=True, default=str)
        more = ["repeated items"] * (config.options.repeated_items == "ignore")
        more += ["who was drawn without a judgement, and how probably"] * bool(config.options.drawn_by)
        self.entries["digests"] = {
            "config": hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(),
            "convention": self.entries["convention"]["hash"],
            **of_inputs,
            "leaves_out": [*gates.DIGEST_LEAVES_OUT, *more],
        }

    def add_checks(self, checks: Sequence[Check]) -> None:
        """Add what was checked, what failed first: for a run that publishes no table of it."""
        order = {status: place for place, status in enumerate((FAIL, WARN, OK))}
        rows = sorted(checks, key=lambda check: order.get(check.status, len(order)))
        if rows:
            self.entries["checks"] = rows_of(rows[:MOST_CHECKS])

    def warn_of(self, checks: Sequence[Check]) -> None:
        """Add the sentences of checks that warn to the warnings about the log; the table has the rest of many."""
        texts = [*dict.fromkeys(check.sentence for check in checks if check.status == WARN)]
        more = [f"{len(texts) - MOST_WARNINGS:,} more: the table checks has them"] if texts[MOST_WARNINGS:] else []
        self.entries["quality"]["warnings"] += [*texts[:MOST_WARNINGS], *more]

    def finish(
        self, store: sinks.Store, warnings: Sequence[str], withheld: RankmetricsError | None, checks: Sequence[Check]
    ) -> str:
        """Write the record of a run that has published; return where it is. What was withheld is among the refused."""
        self._close("done", withheld)
        if withheld:
            self.add_checks(checks)
            with suppress(Exception):
                store.refuse(self.run_id, sinks.refused_checks(self.entries))
        self.entries["warnings"] = [without_secrets(sentence) for sentence in warnings]
        try:
            return store.record(self.entries)
        except Exception as error:  # classic sessions raise a class of py4j
            cause = without_secrets(first_sentence(error))
            self.entries["warnings"].append(f"published, but without the end of its run record ({cause})")
            return f"{store.path}/{record_path(self.run_id)}"

    def fail(self, error: BaseException, *writers: Callable[[dict[str, Any]], object]) -> None:
        """Write the record of a run that has failed, with the first writer that succeeds."""
        self._close("failed", error)
        for write in writers:
            with suppress(Exception):
                write(self.entries)
                return

    def _close(self, outcome: str, error: BaseException | None = None) -> None:
        self.entries["outcome"] = outcome
        if error is not None:
            ours = isinstance(error, RankmetricsError)
            message = str(error) if ours else first_sentence(Exception(str(error) or type(error).__name__))
            self.entries["error"] = {
                "class": type(error).__name__,
                "exit_code": error.exit_code if isinstance(error, RankmetricsError) else 1,
                "message": without_secrets(message),
            }
        self.entries["total_seconds"] = round(time.monotonic() - self._started, 3)


Progress = Callable[[str], None]


@dataclass
class Steps:
    """Times the steps of a run and reports them to the caller; ``rows`` are evaluated, 0 until they are counted."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=dict)
    rows: int = 0

    @contextmanager
    def __call__(self, name: str, text: str = "") -> Iterator[None]:
        """Time a step and report its text; a step without text is part of the last reported one."""
        if text:
            self.progress(f"{text} ({self.rows:,} rows)" if self.rows else text)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


@dataclass
class Context:
    """What the steps of a run share.

    Attributes:
        spark: The session.
        config: What to evaluate.
        steps: How long each step took.
        refused: Settings of the config that the session does not take.
        store_for: See ``run``.
        without: See ``run``.
        stored: See ``run``.
        earlier: What other runs have published that the comparisons read; known after the plan.
        checks: What was checked so far.
        tables: The tables of the evaluation; known after the plan.
        counts: What was counted, per experiment; known after the pass over the input.
        withheld: Says which tests are not published, if their own gates have failed.
        failed: What gates say that have failed, where that ends nothing; None where it ends the run.
    """

    spark: SparkSession
    config: cfg.Config
    steps: Steps
    refused: list[str]
    store_for: Callable[[str], sinks.Store] | None = None
    without: DataFrame | None = None
    stored: "StoredDay | None" = None
    earlier: Earlier = field(default_factory=Earlier)
    checks: list[Check] = field(default_factory=list)
    tables: road.Tables = field(init=False)
    counts: gates.Counts = field(init=False)
    withheld: MetricGateError | None = None
    failed: list[str] | None = None

    @cached_property
    def convention(self) -> tuple[str, str]:
        """Name and hash of the convention."""
        return self.config.convention.name, self.config.convention.digest()

    @cached_property
    def record(self) -> Record:
        """The record of this run."""
        engine, more = eng.engine_of(self.spark), {"refused_settings": self.refused, "seconds": self.steps.seconds}
        versions = {"spark": self.spark.version} | ({"sail": eng.version_of(self.spark)} if engine == "sail" else {})
        return Record.open(self.config, engine, versions, more)

    @cached_property
    def store(self) -> sinks.Store:
        """Where this run writes."""
        if self.store_for is not None:
            return self.store_for(self.record.run_id)
        return sinks.store_of(self.spark, self.config.sink, self.record.run_id, self.config.spark)

    def partitions(self, filled: str, most: int = 1, few: bool = True, counts: Any = None) -> sinks.Partitions:
        """The partitions of a table that has rows where this was counted, in the log or in ``counts``."""
        known = self.counts if counts is None else counts
        with_rows, without = ([name for name, n in known.items() if bool(n[filled]) == has] for has in (True, False))
        # Stored lists are of no experiment.
        without += [None] * (self.config.sink.lists is not None and filled == "rows" and None not in self.counts)
        return sinks.Partitions(self.config.evaluation_date, with_rows, without, most, few)


@dataclass(frozen=True, repr=False)
class Outcome(pipeline.Presentation):
    """What a run wrote.

    Attributes:
        run_id: Name of the run.
        path: Output folder, or schema of the tables.
        record: The run record as a mapping.
        record_path: Where the record lies.
    """

    run_id: str
    path: str
    record: dict[str, Any]
    record_path: str
    _store: sinks.Store
    _tables: Mapping[str, sinks.Written]

    def __repr__(self) -> str:
        """One sentence about what was counted and written; it starts no job."""
        rows, written = self.record["rows"], self.record["tables"]
        experiments = sum(count["lists"] > 0 for count in self.record["experiments"].values())
        return (
            f"Outcome of run {self.run_id}: {rows['evaluated']:,} rows evaluated, {rows['quarantined']:,} left out, "
            f"experiments: {experiments:,}; rows written to {without_secrets(self.path)}: "
            + ", ".join(f"{name} {table['rows']:,}" for name, table in written.items())
        )

    @cached_property
    def user_metrics(self) -> DataFrame:
        """The written values of the users, read back; lazy."""
        return self._read_back("user_metrics")

    @cached_property
    def experiment_metrics(self) -> DataFrame:
        """The written averages, read back; lazy."""
        return self._read_back("experiment_metrics")

    @cached_property
    def comparisons(self) -> DataFrame | None:
        """The written comparisons, read back; lazy. None if nothing is compared."""
        return self._read_back("comparisons") if "comparisons" in self._tables else None

    @cached_property
    def checks(self) -> DataFrame:
        """The written checks, read back; lazy."""
        return self._read_back("checks")

    def _read_back(self, table: str) -> DataFrame:
        return sinks.dated(self._store.result(self._tables[table]))

    @property
    def paths(self) -> dict[str, Any]:
        """Where the output, its tables, the run record and, if asked for, the page are."""
        tables = {name: self._store.name_of(name) for name, table in self._tables.items() if table.partitions.filled}
        report = {"report": page} if (page := self.record["config"]["report"]["file"]) else {}
        return {"output": self.path, "tables": tables, "record": self.record_path} | report

    @cached_property
    def _figures(self) -> rep.Figures:
        checks = rows_here(self, "checks") or [row.asDict() for row in eng.few_rows(self.checks)]
        return rep.figures_of_frames(self.experiment_metrics, self.comparisons, record=self.record, checks=checks)


def rows_here(outcome: Outcome, table: str) -> list[dict[str, Any]] | None:
    """Return the rows of a table if this process still has them; else None."""
    written = outcome._tables.get(table)
    return None if written is None else written.rows_here()


def processor() -> str:
    """What computes here: NumPy chooses its instructions by it."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        if names := [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]:
            return f"{platform.machine()} {names[0]}"
    return platform.machine()


def record_refusal(config: cfg.Config, engine: str, error: RankmetricsError) -> None:
    """Send the events of a run that failed before it had a session, and write its record to an output on a disk."""
    record = Record.open(config, engine, {}, {})
    events = Events.of(None, config, record.entries)
    events.start()
    record.fail(error, partial(sinks.refuse_on_disk, config.sink.path))
    events.fail(())


def tables_on_record(
    spark: SparkSession,
    config: cfg.Config,
    record: Mapping[str, Any],
    keep: road.Keep | None = None,
    rules: Sequence[mx.Convention] = (),
    **read: DataFrame | None,
) -> road.Tables:
    """The tables of a run over inputs without rows that have the columns on record: the plan follows from these.

    Inputs in ``read`` are there with their rows; ``keep`` stores what is made of them; with ``rules``, under each of
    these conventions.
    """
    inputs: dict[str, Any] = {}
    for name, each in record["inputs"].items():
        columns = ", ".join(f"{quoted(column)} {kind}" for column, kind in each["schema"].items())
        inputs[name.removesuffix("_judgements")] = spark.createDataFrame([], columns)
    inputs |= {name: rows for name, rows in read.items() if rows is not None}
    log, judgements, asked = inputs.pop("source"), inputs.pop("judgements", None), config.options
    inputs |= {"day": config.evaluation_date, "compared": config.comparison}
    return road.Tables.of(log, judgements, asked, rules, keep=keep, **inputs)


def counts_on_record(record: Mapping[str, Any]) -> Any:
    """What a run has counted of each experiment."""
    known = record["experiments"].items()
    return {None if name == NULL_PARTITION else name: {**count} for name, count in known}


def known_runs(store: sinks.Store, date: str, pointers: Mapping[str, Pointer]) -> dict[str, dict[str, Any]]:
    """Run -> its record.

    Raises:
        InputError: Nothing is published on the date.
    """
    if date not in pointers:
        raise InputError(unpublished(date, pointers) if pointers else f"'{store.path}' holds nothing that is published")
    return {record[RUN]: record for record in sinks.run_records(store)}


def pages_of(records: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """File of a page that is there -> the newest run that has written it."""
    named = ((each.get("config", {}).get("report", {}).get("file"), run) for run, each in sorted(records.items()))
    return {file: run for file, run in named if file and Path(file).is_file()}


def with_config(store: sinks.Store, records: Mapping[str, dict[str, Any]], run: str) -> dict[str, Any]:
    """The record of a run, which has its config.

    Raises:
        InputError: It is not there.
    """
    if "config" not in (record := records.get(run, {})):
        raise InputError(f"{record_path(run)} of '{store.path}' is not there, and it has the config")
    return record
