"""Folders are entered through their ``__init__``: import-linter holds the package to it, this file tests and jobs."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.helpers.messages import texts

ROOT = Path(__file__).parents[2]
PACKAGE = "rankmetrics_spark"

BEHIND = dict(line.split(": ", 1) for line in texts("imports behind a door"))
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


def behind(name: str) -> bool:
    file = file_of(name)
    return name.startswith(f"{PACKAGE}.") and file is not None and file.name != "__init__.py" and name.count(".") > 1


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
