"""A copy of the package with changes to its text, and programs that use it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import rankmetrics_spark
from tests.helpers.commands import ROOT, ran

Changes = Mapping[str, Mapping[str, str]]
"""File of the package -> text that stands there once -> text in its place."""


def run_with(changes: Changes, program: str, folder: Path, *arguments: str | Path) -> None:
    """Change a copy of the package and run a program with it; its first argument is the folder of the copy."""
    package = Path(rankmetrics_spark.__file__).parent
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, replacements in changes.items():
        file = folder / package.name / name
        text = file.read_text(encoding="utf-8")
        for old, new in replacements.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    (folder / "use.py").write_text(program, encoding="utf-8")
    # The folder of the program comes first: the changed package, with the tests of this checkout.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = ran([sys.executable, folder / "use.py", folder, *arguments], folder, environment)
    assert done.returncode == 0, done.stderr
