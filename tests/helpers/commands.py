"""Run the command line as its own process; the type of a call within this process."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rankmetrics_spark.engines import QUICK_JAVA, spark

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"JDK_JAVA_OPTIONS": QUICK_JAVA}
"""Environment of a short-lived JVM."""
Call = Callable[..., tuple[int, str, str]]
"""Type of the fixture ``call``: takes the command's arguments, returns exit code, stdout and stderr."""
Typed = Callable[..., None]
"""Type of the fixture ``typed``: takes the text of stdin."""


def ok(call: Call, *arguments: object) -> tuple[str, str]:
    """Stdout and stderr of a command that must succeed."""
    code, out, err = call(*arguments)
    assert code == 0, err
    return out, err


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def command(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``rankmetrics`` as a user does: in a new process that starts its own Spark."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), **QUICK}
    return ran([sys.executable, "-m", "rankmetrics_spark", *arguments], cwd or Path.cwd(), environment)


def ran(
    command: Sequence[object], folder: Path, environment: Mapping[str, str], seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder until it ends, with empty stdin; return its result for any exit code."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def succeeded(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """A program that must have ended well."""
    assert done.returncode == 0, done.stderr
    return done


def spark_environment(**more: str) -> dict[str, str]:
    """Return an environment in which a Spark process neither finds this checkout nor is a client of Connect."""
    unwanted = ("PYTHONPATH", "SPARK_CONNECT_MODE_ENABLED")
    return {name: value for name, value in spark.spark_submit_env().items() if name not in unwanted} | more


def as_stranger(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program as another account, which only root can."""
    # In this order, because the account may be unable to read this Python.
    stranger = "import errno, os, socket, sys\nos.setgroups([]), os.setgid(65534), os.setuid(65534)\n"
    return ran([sys.executable, "-I", "-c", stranger + code, *arguments], Path("/"), os.environ, seconds=60)
