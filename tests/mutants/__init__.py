"""Planted bugs: the lists of tests/mutants/*.yaml, and what shows that the tests catch each of them.

An entry names a file, the text that is replaced, the text that plants the bug, and the tests of which one has to fail.
"""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LISTS = Path(__file__).parent
ENGINES = ("none", "spark", "sail")
"""What the tests of a planted bug start."""
PYTHONS = {"none": sys.executable, "spark": sys.executable, "sail": str(ROOT / ".venvs" / "laptop" / "bin" / "python")}
NOT_COPIED = ("*.egg-info", "__pycache__", "build", "dist", "out", "spark-warehouse")
SECONDS = 600
"""A test that takes longer has caught nothing."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of the C library, where PyYAML has it, is six times as fast."""


@dataclass(frozen=True)
class Mutant:
    """A planted bug: the text ``old`` of a file becomes ``new``, and one of the tests has to fail."""

    area: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    engine: str = ""

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"

    @cached_property
    def starts(self) -> str:
        """The engine that the tests start; one of ENGINES."""
        return self.engine or ("spark" if any(test.startswith("tests/spark/") for test in self.tests) else "none")

    def planted(self, text: str) -> str:
        return text.replace(self.old, self.new)


def mutants(lists: Path = LISTS) -> list[Mutant]:
    """Every planted bug, by area.

    Raises:
        ValueError: an entry is not complete, or does not fit the code any more.
    """
    entries = [
        _mutant(path.stem, entry)
        for path in sorted(lists.glob("*.yaml"))
        for entry in yaml.load(path.read_text(encoding="utf-8"), LOADER) or []
    ]
    faults = [f"{mutant}: {fault}" for mutant in entries for fault in _faults(mutant)]
    names = [str(mutant) for mutant in entries]
    faults += sorted({f"{name}: the name is not unique" for name in names if names.count(name) > 1})
    if faults:
        raise ValueError("\n".join(faults))
    return entries


def _mutant(area: str, entry: dict[str, object]) -> Mutant:
    keys = {"name", "file", "old", "new", "tests"}
    if not keys <= set(entry) <= keys | {"engine"}:
        raise ValueError(
            f"{area}: an entry has the keys {', '.join(entry)}; allowed: {', '.join(sorted(keys))}, engine"
        )
    return Mutant(**{**entry, "area": area, "tests": tuple(entry["tests"] or ())})  # type: ignore[arg-type]


def _faults(mutant: Mutant) -> Iterable[str]:
    """Sentences that say what keeps this bug from being planted."""
    if mutant.engine and mutant.engine not in ENGINES:
        yield f"engine is {mutant.engine!r}; allowed: {', '.join(ENGINES)}"
    if not mutant.tests:
        yield "no test is named"
    yield from (f"there is no test {test}" for test in mutant.tests if not is_test(test))
    file = ROOT / mutant.file
    if not file.is_file():
        yield f"there is no file {mutant.file}"
        return
    text = file.read_text(encoding="utf-8")
    if (count := text.count(mutant.old)) != 1:
        yield f"the old text occurs {count} times in {mutant.file}; allowed: once"
    elif mutant.planted(text) == text:
        yield "the new text is the old one"
    elif file.suffix == ".py" and not _is_python(mutant, text):
        yield f"with the new text {mutant.file} is no Python"


def _is_python(mutant: Mutant, text: str) -> bool:
    """Whether the statements of the module that the bug changes can be parsed: the whole takes ten times as long."""
    first = text[: text.index(mutant.old)].count("\n") + 1
    last = first + mutant.old.count("\n")
    starts, lines = _starts(text), text.splitlines(keepends=True)
    begin = max((start for start in starts if start <= first), default=1) - 1
    end = min((start for start in starts if start > last), default=len(lines) + 1) - 1
    try:
        ast.parse(mutant.planted("".join(lines[begin:end])))
    except SyntaxError:
        return False
    return True


@cache
def _starts(text: str) -> list[int]:
    """The first line of each statement of a module, or of its first decorator."""
    return [min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            for node in ast.parse(text).body]  # fmt: skip


def is_test(test: str) -> bool:
    """A file, or a function of it: ``path::name``, ``path::name[case]``, or a doctest ``path::module.name``."""
    path, _, function = test.partition("[")[0].partition("::")
    if not (ROOT / path).is_file():
        return False
    module = function.rpartition(".")[0]
    if module and not module.startswith(path.removesuffix(".py").replace("/", ".")):
        return False
    return not function or function.replace("::", ".").split(".")[-1] in _names_in(path)


@cache
def _names_in(path: str) -> set[str]:
    """Functions and classes of a module, and the module itself."""
    tree = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return {Path(path).stem, *(node.name for node in tree if isinstance(node, (ast.FunctionDef, ast.ClassDef)))}


def _not_copied(folder: str, names: list[str]) -> set[str]:
    """Environments, caches and what the other targets make; tests read .ci and .gitignore."""
    hidden = {name for name in names if name.startswith(".") and name not in (".ci", ".gitignore")}
    return hidden | shutil.ignore_patterns(*NOT_COPIED)(folder, names)


class Copy:
    """A copy of the checkout, in which bugs are planted one at a time; the checkout itself stays as it is."""

    def __init__(self, folder: Path, checkout: Path = ROOT) -> None:
        # Without the data of other systems beside it: no planted bug may need them.
        self.root = folder / "checkout"
        shutil.copytree(checkout, self.root, ignore=_not_copied, symlinks=True)

    def run(self, tests: Sequence[str], engine: str) -> tuple[int, str]:
        """Run tests until one fails; return pytest's exit code and what it printed."""
        # Without bytecode: Python would take that of the file without the bug, if time and size are the same. With CI
        # set, tests whose data of other systems are absent would fail here with or without the bug.
        environment = os.environ | {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1", "CI": ""}
        options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=short"]
        # Doctests of the package run without tests/conftest.py, which knows this option.
        options += ["--slow"] if any(test.startswith("tests/") for test in tests) else []
        options += ["--engine", "sail"] if engine == "sail" else []
        try:
            done = subprocess.run(
                [PYTHONS[engine], "-m", "pytest", *options, *tests],
                cwd=self.root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return -1, f"no answer within {SECONDS} seconds"
        return done.returncode, done.stdout + done.stderr

    def catches(self, mutant: Mutant) -> tuple[bool, str]:
        """Whether a test fails once the bug is planted, and what pytest printed.

        A test that cannot be collected, or that does not run, catches nothing.
        """
        file = self.root / mutant.file
        text = file.read_text(encoding="utf-8")
        file.write_text(mutant.planted(text), encoding="utf-8")
        try:
            code, message = self.run(mutant.tests, mutant.starts)
        finally:
            file.write_text(text, encoding="utf-8")
        return code == pytest.ExitCode.TESTS_FAILED, message
