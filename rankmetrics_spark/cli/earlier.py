"""What ``rankmetrics compare`` and ``rankmetrics runs`` read of earlier runs, and show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rankmetrics_spark import comparison, sinks
from rankmetrics_spark.config import Comparison, Options, Sink, check_cuped, override
from rankmetrics_spark.engines import few_rows
from rankmetrics_spark.errors import ConfigError, InputError, first_sentence, unknown
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.pointers import unpublished
from rankmetrics_spark.report import seconds_of
from rankmetrics_spark.schemas import BASELINE, CONVENTION_HASH, DATE, EXPERIMENT, METRIC, SEGMENT
from rankmetrics_spark.sinks import records_in, run_records, store_of

MOST_ROWS = 100_000
"""Rows of users or of segments that are shown at most."""


@dataclass(frozen=True)
class Asked:
    """What the command asks for: its options."""

    folder: str
    baseline: str | None = None
    candidates: Sequence[str] = ()
    date: str | None = None
    pairs: str = "baseline"
    metrics: str | None = None
    segments: Sequence[str] = ()
    combined: Sequence[str] = ()
    overrides: Sequence[str] = ()
    losses: int = 0
    decomposed: str | None = None

    @property
    def comparison(self) -> Comparison:
        """The section ``comparison`` that this describes.

        Raises:
            ConfigError: A key or value is not allowed, or nothing is compared.
        """
        document: Mapping[str, object] = {
            "baseline": self.baseline,
            "candidates": tuple(self.candidates),
            "pairs": self.pairs,
        }
        for assignment in self.overrides:
            document = override(document, assignment)
        found = Comparison.read(document)
        if not found.asked:
            raise ConfigError("neither --baseline nor --pairs all is given; allowed: one of the two")
        if (self.losses or self.decomposed) and not found.baseline:
            raise ConfigError("--losses and --decompose need a --baseline")
        return found


@dataclass(frozen=True)
class Found:
    """What the command shows.

    Attributes:
        date: Evaluation date of the users.
        dates: How many evaluation dates there are.
        comparisons: Rows of the table ``comparisons``.
        losses: Users with the largest losses, per candidate and metric.
        decomposition: Differences split by segment.
        metrics: Those that are compared: as they were asked for, or in the order of the run.
    """

    date: str
    dates: int
    comparisons: list[dict[str, Any]]
    losses: list[dict[str, Any]]
    decomposition: list[dict[str, Any]]
    metrics: Sequence[Metric]

    @property
    def of_day(self) -> str:
        """Whose users were compared, in words."""
        return f"users of {self.date}" + (f", one of {self.dates} evaluation dates" if self.dates > 1 else "")


def comparison_of(spark: SparkSession, asked: Asked) -> Found:
    """Read ``user_metrics`` of a date and compare its experiments.

    Raises:
        ConfigError: A wrong argument, or an experiment that is not there.
        InputError: There is no such table or date, or its experiments follow different conventions.
    """
    wanted = asked.comparison
    written = _users(spark, asked.folder)
    known = _partitions(written)
    date = asked.date or max(known)
    users = _of_date(written, known, date, "--date")
    _refuse_unknown(known[date], wanted)
    check_cuped(wanted, date)
    before: DataFrame | str | None = wanted.cuped.column if wanted.cuped else None
    if wanted.cuped is not None and wanted.cuped.date is not None:
        before = _of_date(written, known, wanted.cuped.date, "cuped.date")
    options = Options(segments=asked.segments or None, segment_combinations=asked.combined or None)
    shown = comparison.UserTable.of(users, asked.metrics, {name: name for name in options.segments}, before)
    shown = replace(shown, combinations=options.combined_segments)
    comparison.refuse_too_many_replicates(wanted, sorted({name for name, _ in known[date]}), len(shown.metrics))
    rows = comparison.comparisons(shown, wanted).orderBy(BASELINE, EXPERIMENT, SEGMENT, METRIC)
    compared = [{DATE: date, **row.asDict()} for row in few_rows(rows)]
    losses = comparison.largest_losses(shown, wanted, asked.losses) if asked.losses else None
    return Found(date, len(known), compared, _rows(losses), _rows(_split(users, asked, wanted)), shown.metrics)


def _split(users: DataFrame, asked: Asked, wanted: Comparison) -> DataFrame | None:
    name = asked.decomposed
    return (
        comparison.decomposition(comparison.UserTable.of(users, asked.metrics, {name: name}), wanted, name)
        if name
        else None
    )


def _rows(table: DataFrame | None) -> list[dict[str, Any]]:
    return [] if table is None else [row.asDict() for row in few_rows(table.limit(MOST_ROWS))]


def _users(spark: SparkSession, folder: str) -> DataFrame:
    """The table in the output folder, or in the folder of the table itself."""
    path, errors = folder.rstrip("/"), []
    for place in (f"{path}/user_metrics", path):
        try:
            found = sinks.read(spark, place)
        except Exception as error:  # Spark has a class of its own for each kind of session
            errors.append(error)
            continue
        if EXPERIMENT in found.columns and CONVENTION_HASH in found.columns:
            return found
    raise InputError(
        f"--input '{folder}' holds no user_metrics; allowed: the output folder of an earlier run"
        + (f" ({first_sentence(errors[0])})" if errors else "")
    )


def _partitions(users: DataFrame) -> dict[str, set[tuple[str, str]]]:
    """Date -> its experiments, each with the hash of its convention.

    Raises:
        InputError: The table has no rows.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for row in few_rows(users.select(DATE, EXPERIMENT, CONVENTION_HASH).distinct()):
        found.setdefault(str(row[0]), set()).add((str(row[1]), str(row[2])))
    if not found:
        raise InputError("--input holds a user_metrics without rows; allowed: the output folder of an earlier run")
    return found


def _of_date(users: DataFrame, known: Mapping[str, set[tuple[str, str]]], date: str, place: str) -> DataFrame:
    """The rows of a date.

    Args:
        users: ``user_metrics``.
        known: See ``_partitions``.
        date: The date.
        place: What messages call it.

    Raises:
        InputError: There are no rows of that date, or they follow different conventions.
    """
    if date not in known:
        raise InputError(f"{place}: {unpublished(date, known)}")
    if len({digest for _, digest in known[date]}) > 1:
        raise InputError(f"the experiments of {date} follow different conventions; their values cannot be compared")
    return users.where(F.col(DATE) == date)


def _refuse_unknown(there: set[tuple[str, str]], wanted: Comparison) -> None:
    known = sorted(name for name, _ in there)
    for name in (wanted.baseline, *wanted.candidates, *(wanted.shares or ())):
        if name is not None and name not in known:
            raise ConfigError(unknown("experiment", name, known))


Records = list[dict[str, Any]]


def records_of(sink: Sink, on_spark: Callable[[Callable[[SparkSession], Records]], Records]) -> Records:
    """The records of all runs of an output, the newest first.

    Args:
        sink: Where the runs write.
        on_spark: Runs a function on a session; called only where this process does not reach the records.

    Raises:
        InputError: There are none.
    """
    found = records_in(sink.path) if sink.path else None
    if found is None:
        found = on_spark(lambda spark: run_records(store_of(spark, sink, "")))
    if not found:
        raise InputError(f"'{sink.path or sink.table}' has no run records; allowed: the output of an earlier run")
    return found


def summaries(records: Sequence[Mapping[str, Any]]) -> Records:
    """One flat row per run: outcome, date, counts, seconds, and the error of one that failed.

    >>> row = summaries([{"run_id": "r", "rows": {"in": 3, "evaluated": 2, "quarantined": 1}, "outcome": "done"}])[0]
    >>> row["outcome"], row["rows"], row["quarantined"], row["error"]
    ('done', 3, 1, None)
    """
    return [_summary(record) for record in records]


def _summary(record: Mapping[str, Any]) -> dict[str, Any]:
    rows = record.get("rows", {})
    return {
        "run_id": record["run_id"],
        "date": record.get("evaluation_date"),
        "started": record.get("started"),
        "outcome": record.get("outcome"),
        "experiments": len(record["experiments"]) if "experiments" in record else None,
        "rows": rows.get("in"),
        "evaluated": rows.get("evaluated"),
        "quarantined": rows.get("quarantined"),
        "seconds": seconds_of(record),
        "error": record.get("error", {}).get("message"),
    }
