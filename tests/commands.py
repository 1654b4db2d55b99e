"""The command line: as a process of its own, and the shape of a call in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rankmetrics_spark.sessions import spark_submit_env

ROOT = Path(__file__).resolve().parents[1]
Call = Callable[..., tuple[int, str, str]]
"""Arguments of the command to exit code, stdout, stderr: the fixture ``call``."""


def command(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``rankmetrics`` as a person does, with a Spark of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return ran([sys.executable, "-m", "rankmetrics_spark.cli", *arguments], cwd or Path.cwd(), environment)


def ran(
    command: Sequence[object], folder: Path, environment: Mapping[str, str], seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """A program run to its end in a folder, whatever its exit code, with nobody at its keyboard."""
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


def spark_environment(**more: str) -> dict[str, str]:
    """The environment of a Spark process that gets nothing of this checkout by way of PYTHONPATH."""
    return {name: value for name, value in spark_submit_env().items() if name != "PYTHONPATH"} | more
