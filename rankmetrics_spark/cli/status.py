"""``rankmetrics status``: a line per day: published, refused, late or missing. It needs no engine on a disk."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rankmetrics_spark import config as cfg, errors as err, report as rep
from rankmetrics_spark.cli.options import Command, on_session
from rankmetrics_spark.cli.stored import days_of
from rankmetrics_spark.engines import choose
from rankmetrics_spark.pointers import Pointer, Pointers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Read = tuple[dict[str, Pointer], list[dict[str, Any]]]
STATES = ("published", "refused", "late", "missing")


class Day(NamedTuple):
    """What became of one day.

    Attributes:
        date: Evaluation date, ISO.
        state: ``published``; else by its newest run: ``late`` (exit code 3), ``refused``, or ``missing`` if none ended.
        alert: Whether somebody should look: the day is not published, or a later run of it failed.
        exit_code: That of its newest run; None where none has ended.
        run_id: That run.
        rows: Rows of its log, where they were counted.
        warnings: Warnings about its log.
        sentence: What a person should know; empty where all is well.
    """

    date: str
    state: str
    alert: bool = False
    exit_code: int | None = None
    run_id: str | None = None
    rows: int | None = None
    warnings: int = 0
    sentence: str = ""


def days_until(last: str, since: int, published: Pointers, records: Sequence[Mapping[str, Any]]) -> Iterator[Day]:
    """The last days that are over, and later ones that runs were about; none before the first run.

    Args:
        last: The last day that is over.
        since: How many days.
        published: Date -> its pointer.
        records: Those of all runs, the newest first.
    """
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        runs.setdefault(str(record.get("evaluation_date")), []).append(record)
    known = sorted({*published, *runs})
    over = (f"{date.fromisoformat(last) - timedelta(days=n)}" for n in reversed(range(since)))
    for day in [*(day for day in over if day >= known[0]), *(day for day in known if day > last)]:
        yield _day(day, published.get(day), [run for run in runs.get(day, ()) if run.get("outcome") != "killed"])


def _day(day: str, pointer: Pointer | None, runs: Sequence[Mapping[str, Any]]) -> Day:
    """One day, by its pointer and its runs, the newest first."""
    newest: Mapping[str, Any] = runs[0] if runs else {}
    # A run that has published may have withheld a test.
    error, has_published = newest.get("error"), newest.get("outcome") == "done"
    code = error["exit_code"] if error else 0 if has_published else None
    words = err.without_secrets(str(error["message"])) if error else ""
    run, counted = newest.get("run_id"), (newest.get("rows") or {}).get("in")
    if pointer is not None:
        counting = {*pointer.run_of().values()}
        of_log = ((each.get("quality") or {}).get("warnings", ()) for each in runs if each["run_id"] in counting)
        warnings = [*chain.from_iterable(of_log)]
        failed = "published in part" if has_published else "published, and a later run failed"
        sentence = f"{failed}: {words}" if error else "; ".join(map(str, warnings[:1]))
        return Day(day, "published", bool(error), code, run, counted, len(warnings), sentence)
    if error:
        return Day(day, "late" if code == 3 else "refused", True, code, run, counted, sentence=words)
    words = f"a run has not ended: {run}" if run else "no run has ended"
    return Day(day, "missing", True, None, run, counted, sentence=words)


def as_prometheus(days: Sequence[Day], output: str) -> str:
    """The days as a file for the textfile collector of node_exporter.

    >>> print(as_prometheus([Day("2026-11-20", "published", rows=9)], "out").splitlines()[2])
    rankmetrics_day{output="out",date="2026-11-20",state="published"} 1
    """
    place = f"output={json.dumps(output)}"
    last = max((day.date for day in days if day.state == "published"), default=None)
    seconds = datetime.fromisoformat(last).replace(tzinfo=timezone.utc).timestamp() if last else None
    in_state = Counter(day.state for day in days)
    families: dict[str, tuple[str, list[tuple[str, float | None]]]] = {
        "day": ("What became of a day.", [(f'date="{day.date}",state="{day.state}"', 1) for day in days]),
        "days": ("Days in each state.", [(f'state="{state}"', in_state[state]) for state in STATES]),
        "alerts": ("Days that somebody should look at.", [("", sum(day.alert for day in days))]),
        "warnings": ("Warnings about the log of a day.", [(f'date="{day.date}"', day.warnings) for day in days]),
        "rows": ("Rows of the log of a day.", [(f'date="{day.date}"', day.rows) for day in days]),
        "last_published_timestamp_seconds": ("Begin of the newest published day.", [("", seconds)] if seconds else []),
    }
    lines: list[str] = []
    for name, (words, values) in families.items():
        lines += [f"# HELP rankmetrics_{name} {words}", f"# TYPE rankmetrics_{name} gauge"]
        for labels, value in (each for each in values if each[1] is not None):
            lines.append(f"rankmetrics_{name}{{{place}{',' if labels else ''}{labels}}} {value:.15g}")
    return "\n".join(lines) + "\n"


@click.command(cls=Command)
def status(output: str, since: str, style: str, master: str | None) -> None:
    """A line per day: published, refused, late or missing; exit code 5 if somebody should look, else 0."""
    n = days_of(since, "--since")
    published, records = _read(output, n, lambda work: on_session(choose(None, master), work))
    if not published and not records:
        raise err.InputError(f"'{output}' has no run records; allowed: the output of an earlier run")
    zone = str((records[0].get("config") or {}).get("time_zone") or "UTC") if records else "UTC"
    days = [*days_until(cfg.resolved(cfg.evaluation_day("--since", "yesterday"), zone), n, published, records)]
    if style == "prometheus":
        click.echo(as_prometheus(days, output), nl=False)
    else:
        rep.LIST_PRINTERS[style]([day._asdict() for day in days])
    if alerts := [day.date for day in days if day.alert]:
        raise err.MetricGateError(f"{len(alerts)} of {len(days)} days need a look: {', '.join(alerts)}")


def _read(output: str, days: int, on_spark: Callable[[Callable[[SparkSession], Read]], Read]) -> Read:
    """What is published, and the records of the runs since the day before these days; older ones are not opened."""
    from rankmetrics_spark import sinks

    start = f"{datetime.now(timezone.utc) - timedelta(days=days + 2):%Y%m%d}"
    if (records := sinks.records_in(output, start)) is not None:
        return sinks.pointers_of(None, output), records

    def read(spark: SparkSession) -> Read:
        """The same where Spark reads it."""
        return sinks.pointers_of(spark, output), sinks.run_records(sinks.store_of(spark, cfg.Sink(path=output), ""))

    return on_spark(read)
