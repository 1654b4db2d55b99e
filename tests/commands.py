"""The command line: as a process of its own, and the shape of a call in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Call = Callable[..., tuple[int, str, str]]
"""Arguments of the command to exit code, stdout, stderr: the fixture ``call``."""


def command(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``rankmetrics`` as a person does, with a Spark of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rankmetrics_spark.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
