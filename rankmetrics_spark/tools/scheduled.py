"""A run as a task of a scheduler: what its exit code means, a process that outlives the task, what it has published.

Nothing here needs Airflow, an engine or a library.
"""

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import date as day, datetime, time as clock, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from rankmetrics_spark import doors, errors as err

#: Exit codes that a retry would repeat, and why.
PERMANENT = {2: "a wrong argument or config", 4: "a gate of the log", 5: "a gate of the metrics"}
#: The exit code of a log that is not there yet, and what stands for the code of a process that is not heard of.
LATE, LOST = 3, -1
#: Sentences of a verdict that are handed on; the record has all of them.
MOST_SENTENCES = 20

# Operators report an exit code, or the exception that ended a notebook.
_EXIT_CODE = re.compile(r"\b(?:Error code is|SystemExit): (\d+)\b|\b((?:Config|Input|Quality|MetricGate)Error): ")


def exit_code_in(text: str) -> int | None:
    """The exit code of a run that the error of an operator tells; None if it tells none.

    >>> exit_code_in("Cannot execute: spark-submit. Error code is: 4."), exit_code_in("MetricGateError: rr is 0.1")
    (4, 5)
    """
    found = _EXIT_CODE.search(text)
    return None if found is None else int(found[1] or getattr(err, found[2]).exit_code)


def waits_until(date: str, hour: str, zone: str) -> datetime:
    """The hour of the day after a date, or after the last one of a range, in a time zone.

    >>> str(waits_until("2026-11-19..2026-11-20", "09:30", "America/Los_Angeles"))
    '2026-11-21 09:30:00-08:00'
    """
    over = day.fromisoformat(date.rpartition("..")[2]) + timedelta(days=1)
    try:
        return datetime.combine(over, clock.fromisoformat(hour), ZoneInfo(zone))
    except (ValueError, KeyError):
        raise err.ConfigError.of("no_hour", hour=hour, zone=zone) from None


def announcement(pointer: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    """What other tasks learn of a published day: its run, its partitions, its counts and its verdict."""
    facts = {name: pointer[name] for name in ("evaluation_date", "run_id", "record", "partitions")}
    warnings = (record.get("quality") or {}).get("warnings") or ()
    facts |= {"rows": record.get("rows"), "warnings": len(warnings)}
    return facts | {"verdict": list(record.get("verdict") or ())[:MOST_SENTENCES]}


# It says once a second that the process lives, and its exit code at the end: nobody has to be its parent for that. A
# shell would end where `: > file` fails, as on a full disk.
_KEEPER = doors.text_of(__name__, "keeper.sh")


def start(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start a process that outlives this one.

    Its log and its exit code become files of the folder. A file ``stop`` there ends it, on whatever machine it is.
    """
    folder.mkdir(parents=True)
    nothing: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    # A session of its own: no signal for the task, and none for its group, reaches it.
    keeper = ["/bin/sh", "-c", _KEEPER, str(folder), *command]
    subprocess.Popen(keeper, env={**environment}, start_new_session=True, **nothing)


class Watch:
    """A process that ``start`` has started, seen from anywhere that sees its folder."""

    def __init__(self, folder: Path, silence: float = 120) -> None:
        """``silence``: seconds without a sign of life after which it is lost."""
        self.folder, self.silence, self._beat, self._heard = folder, silence, 0.0, time.monotonic()

    def code(self) -> int | None:
        """The exit code, or ``LOST``; None while it runs."""
        if (ended := self.folder / "code").exists():
            return int(ended.read_text() or LOST)
        beat = alive.stat().st_mtime if (alive := self.folder / "alive").exists() else 0.0
        # Only whether it changes: the clock of the machine that writes it may be another.
        if beat != self._beat:
            self._beat, self._heard = beat, time.monotonic()
        return LOST if time.monotonic() - self._heard > self.silence else None
