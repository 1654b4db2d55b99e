"""A run that is killed at a chosen moment: what the fault tests start as a process of its own."""

import errno
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import psutil

KILLED = 9
"""Exit code of a run that a hook has ended, without any clean-up: as after SIGKILL."""
NEVER = 10**9


class Moments:
    """Counts the steps of publishing, and does something at one of them."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.n, self._at, self._act, self.armed = 0, at, act, False

    def __call__(self) -> None:
        if self.armed:
            self.n += 1
            if self.n == self._at:
                self._act()

    def around(self, owner: Any, name: str) -> None:
        """Make every call of a function two moments: before it and after it."""
        function = getattr(owner, name)

        @wraps(function)
        def inner(*arguments: Any, **named: Any) -> Any:
            self()
            result = function(*arguments, **named)
            self()
            return result

        setattr(owner, name, inner)


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def read_only() -> None:
    raise OSError(errno.EROFS, "Read-only file system")


def kill_all() -> None:
    """SIGKILL to this process and all below it, the JVM among them."""
    for process in psutil.Process().children(recursive=True):
        process.kill()
    psutil.Process().kill()


ACTS: dict[str, Callable[[], None]] = {
    "kill": lambda: os._exit(KILLED),
    "kill all": kill_all,
    "full disk": full_disk,
    "read-only": read_only,
}


def hooked(at: int, act: str) -> Moments:
    """Hook into everything that changes an output while a run publishes."""
    from rankmetrics_spark import sinks
    from rankmetrics_spark.sinks import Files, sql_tables

    moments = Moments(at, ACTS[act])
    for name in ("put", "replace", "remove", "_write_stream", "remove_tree"):
        moments.around(Files, name)
    moments.around(sql_tables, "commit")
    publish = sinks.publish

    def armed(*arguments: Any) -> Any:
        # It stays armed: what follows is the record and the removal of the staging; they are moments too.
        moments.armed = True
        return publish(*arguments)

    sinks.publish = armed
    return moments


def command(spark: Any, document: dict[str, Any]) -> None:
    """Run a config; with ``recompute``, add these metrics to what it has published."""
    from rankmetrics_spark import job
    from rankmetrics_spark.config import from_mapping

    config = from_mapping({name: value for name, value in document.items() if name != "recompute"})
    if "recompute" in document:
        job.recompute(spark, config.sink, document["recompute"])
    else:
        job.run(spark, config)


def child(url: str, document: dict[str, Any], at: int, act: str, message: str) -> None:
    """Run a command on a Connect server; at a moment of publishing do one of ``ACTS``; write how many there are."""
    os.environ.update({"AWS_EC2_METADATA_DISABLED": "true"})
    from rankmetrics_spark.engines.spark import connect_session
    from rankmetrics_spark.errors import RankmetricsError

    moments = hooked(at, act)
    spark = connect_session(url)
    try:
        command(spark, document)
    except RankmetricsError as error:
        Path(message).write_text(str(error), encoding="utf-8")
        os._exit(1)
    Path(message).write_text(str(moments.n), encoding="utf-8")
    os._exit(0)
