"""The page about bad input, made from the tests that hold it: ``python -m tests.bad_input docs/bad_input.md``.

A test with the marker ``outcome(does, happens, on_sail=None)`` is a line of the page; a parametrised test is a line for
each of its cases. The texts may name parameters in braces, as in ``outcome("sets {change}", "exit 2: {message}")``.
The test runs on both engines. Where Sail does otherwise, ``on_sail`` says what, and the test asserts it there; where it
cannot run there, the reason of its marker ``needs_spark`` stands in the column of Sail.
"""

import ast
import contextlib
import io
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
import yaml

from rankmetrics_spark.config import FUNCTIONS
from tests.helpers.readme import between, rewrite

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "bad_input.md"
LONGEST = 160
SAME = "the same"
HEAD = "| case | on Spark | on Sail |"
ON_SPARK_ONLY = "needs a Spark in this process"


T = TypeVar("T", bound=Callable[..., Any])


def outcomes(cases: Iterable[tuple[str, str] | tuple[str, str, str]]) -> Callable[[T], T]:
    """Mark a test that holds several cases: what the user does, what happens, and what on Sail if it differs."""

    def marked(test: T) -> T:
        """The test with a marker for each case."""
        for does, happens, *on_sail in cases:
            test = pytest.mark.outcome(does, happens, on_sail=on_sail[0] if on_sail else None)(test)
        return test

    return marked


class Line(NamedTuple):
    """One case: the file of its test, what the user does, and what happens on Spark and on Sail."""

    file: str
    does: str
    happens: str
    on_sail: str = SAME


def lines() -> list[Line]:
    """Every case, by file, in the order of the tests."""
    got = _Collected()
    with contextlib.redirect_stdout(io.StringIO()) as message:
        end = pytest.main(["--collect-only", "-q", "--slow", "-p", "no:cacheprovider", *_marked_files()], plugins=[got])
    if end != pytest.ExitCode.OK:
        raise RuntimeError(message.getvalue())
    return got.lines


def _marked_files() -> list[str]:
    files = sorted(path for path in (*TESTS.glob("unit/test_*.py"), *TESTS.glob("spark/test_*.py")))
    return [str(path) for path in files if "mark.outcome(" in path.read_text(encoding="utf-8")]


class _Collected:
    """A plugin of pytest that reads the markers of the tests that were collected."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for marker in item.iter_markers("outcome"):
                params = item.callspec.params if hasattr(item, "callspec") else {}
                texts = (*marker.args, _on_sail(item, marker))
                file = item.path.relative_to(TESTS).as_posix()
                self.lines.append(Line(file, *(_filled(text, params) for text in texts)))


def _on_sail(item: pytest.Item, outcome: pytest.Mark) -> str:
    """What happens on Sail, or why the test does not run there."""
    if text := outcome.kwargs.get("on_sail"):
        return str(text)
    if reason := item.get_closest_marker("needs_spark"):
        return str(reason.args[0])
    return ON_SPARK_ONLY if item.get_closest_marker("classic") else SAME


def _filled(text: str, params: Mapping[str, Any]) -> str:
    """The text with each parameter that it names, as code."""
    return re.sub(r"\{(\w+)\}", lambda match: _code(params[match[1]]), text)


def _code(value: object) -> str:
    """A value as a user would write it in a config, as Markdown code."""
    text = value if isinstance(value, str) else _as_yaml(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    fence = "``" if "`" in text else "`"
    space = " " if fence == "``" or text != text.strip() or not text else ""
    return fence + space + text.replace("|", "\\|") + space + fence


def _as_yaml(value: object) -> str:
    try:
        text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    except yaml.YAMLError:
        return str(value)
    return text.removesuffix("\n").removesuffix("\n...")


def markdown(cases: Iterable[Line]) -> str:
    """A table for each file of tests, each case once."""
    parts = []
    for file, group in groupby(cases, key=lambda line: line.file):
        table = [f"| {' | '.join(line[1:])} |" for line in dict.fromkeys(group)]
        head = f"## {_title(file)}\n\nHeld by `tests/{file}`.\n\n{HEAD}\n|---|---|---|"
        parts.append("\n".join([head, *table]))
    return "\n\n".join(parts)


def updated(page: str) -> str:
    """The page with its cases, and with the functions that a filter may call, between their markers."""
    functions = (f"- {what}: {', '.join(f'`{name}`' for name in names.split())}" for what, names in FUNCTIONS.items())
    return between("functions", "\n".join(functions), between("cases", markdown(lines()), page))


TITLES = {
    "spark/test_conventions_spark.py": "Conventions and the input",
    "spark/test_judgements.py": "Judgements",
    "spark/test_sources.py": "Input formats",
    "spark/test_wrong_values.py": "Numbers that could look right and be wrong",
    "unit/test_conventions.py": "Conventions",
    "unit/test_metric_names.py": "Metrics",
    "unit/test_safety.py": "Filters, table names and secrets",
    "unit/test_wrong_config.py": "Configs and options",
}


def _title(file: str) -> str:
    """What a module of tests is about: by default the first words of its docstring."""
    if file in TITLES:
        return TITLES[file]
    about = ast.get_docstring(ast.parse((TESTS / file).read_text(encoding="utf-8"))) or file
    return re.split(r"[:;.]", about.splitlines()[0])[0]


if __name__ == "__main__":
    rewrite(updated)
