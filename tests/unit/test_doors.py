"""Folders are entered through their ``__init__``: import-linter holds the package to it, this file tests and jobs."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "rankmetrics_spark"

BEHIND = {
    "cli.exit_codes": "what ends a command is shown without starting one, and the live line is drawn",
    "cli.earlier": "a listing without a folder",
    "cli.options": "the console of stderr, on a made terminal",
    "cli.status": "the days of a made output, on any today",
    "cli.stored": "the engine is that of the suite",
    "cli.first": "the questions of init, without a terminal",
    "comparison.sums": "the size of a batch is made small",
    "comparison.measures": "the limit of replicates is made small",
    "comparison.judged": "a mean of one sample is simulated, without a table of users",
    "config.days": "the clock is replaced",
    "engines.choice": "what the machine has is replaced",
    "engines.sail.process": "what a neighbour can do is tried on the parts of the engine",
    "engines.sail.session": "how a session ends is tried on engines without a child",
    "engines.sail.server": "what a neighbour can do is tried on the parts of the engine",
    "engines.sessions": "an engine is recognised by what its client answers; a benchmark tries other settings",
    "engines.spark": "sessions are started by commands, jobs and tests; the folder is replaced, and the disk is full",
    "gates.limits": "rates and limits are compared with visible arithmetic, without a log",
    "job.lineage": "an endpoint refuses an event, with its address in the error",
    "job.results": "rows are read back, or must not be",
    "job.verifying": "of a date, the run alone that a test has just published is derived again",
    "report.assets": "libraries are missing",
    "report.console": "the printers are replaced",
    "report.beside": "the looks at the rows are counted",
    "report.html": "its parts are looked at, and the file is there",
    "report.formats": "cells of a made table",
    "report.notebook": "the points of a chart are looked at without drawing it",
    "report.periods": "the reads of a result are counted",
    "report.read": "segments are those of a made store",
    "road.ranking": "what one layout packs is unpacked by another",
    "sinks.erasing": "a command that erases users is killed at each of its steps",
    "sinks.files": "the disk is full, and a run is killed between the steps of publishing",
    "sinks.pruning": "a prune is killed, and meets a run, between its steps",
    "sinks.claims": "a run is killed between the steps of publishing",
    "sinks.folders": "the error of a made failure is a sentence",
    "sinks.reading": "a reader meets a run that is publishing",
    "sinks.seals": "bytes are flipped, and digests written again as somebody would who can write to the output",
    "sinks.sql_tables": "a run is killed between the steps of publishing",
    "sinks.swapping": "a run is killed, and an erasing is met by a run, between the steps of publishing",
    "sources.files": "names of files, without an engine",
    "sources.on_sail": "names of files, and every translation of a filter as text, without an engine",
    "tools.selftest": "a wrong golden value is planted",
}
"""Module behind a door -> why a test imports it."""


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if file_of(name) else node.module


def file_of(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def behind(module: str) -> bool:
    file = file_of(module)
    return (
        module.startswith(f"{PACKAGE}.") and file is not None and file.name != "__init__.py" and module.count(".") > 1
    )


def test_tests_and_jobs_come_through_the_front_doors_or_say_why() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")]
    result = {module.removeprefix(f"{PACKAGE}.") for file in files for module in imports(file) if behind(module)}
    assert result == BEHIND.keys()
    assert not any(behind(module) for file in (ROOT / "jobs").rglob("*.py") for module in imports(file))


@pytest.mark.parametrize("stub", sorted((ROOT / PACKAGE).rglob("__init__.pyi")), ids=lambda stub: stub.parent.name)
def test_a_door_has_the_names_of_its_stub_and_no_other(stub: Path) -> None:
    door = import_module(".".join(stub.parent.relative_to(ROOT).parts))
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    for node in imports:
        home = import_module(f"{door.__name__}.{node.module}")
        assert all(getattr(door, alias.name) is getattr(home, alias.name) for alias in node.names)
    names = [alias.name for node in imports for alias in node.names]
    assert door.__all__ == names and {*names} <= {*dir(door)}
    assert [name for name in dir(door) if name not in names and not name.startswith("__")] == []
    with pytest.raises(AttributeError, match=f"^module '{door.__name__}' has no attribute 'nothing'$"):
        door.nothing  # noqa: B018
