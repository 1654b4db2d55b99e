"""What is refused or said, and in which words: the cases of tests/messages.txt."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from rankmetrics_spark.errors import RankmetricsError, raised_by_python
from tests.helpers.configs import INPUT, ROLES, SOURCE, TEXT

FILE = Path(__file__).resolve().parents[1] / "messages.txt"
WORDS = {"INPUT": INPUT, "ROLES": ROLES, "SOURCE": SOURCE, "TEXT": TEXT}
"""What several messages list, by its name in the file."""
slow = partial(pytest.param, marks=pytest.mark.slow)
"""A case that runs with ``--slow`` alone."""


def messages(section: str) -> list[tuple[Any, str]]:
    """The cases of a section: what is given, as YAML, and the message on the line below."""
    lines = texts(section)
    return [
        (yaml.safe_load(given), re.sub(r"<([A-Z]+)>", lambda word: WORDS[word[1]], message.strip()))
        for given, message in zip(lines[::2], lines[1::2], strict=True)
    ]


def cases(section: str) -> list[tuple[Any, ...]]:
    """The same of a section whose cases give several values: each is an argument of its own."""
    return [(*given, message) for given, message in messages(section)]


def json_cases(section: str) -> list[Any]:
    """The cases of a section, a line of JSON each: one value, or a list of several."""
    return [json.loads(line) for line in texts(section)]


def texts(section: str) -> list[str]:
    (cases,) = re.findall(rf"^== {section}\n(.*?)(?=^== |\Z)", FILE.read_text(encoding="utf-8"), re.M | re.S)
    return [line for line in cases.splitlines() if line and not line.startswith("#")]


def refusal(act: Callable[[], Any]) -> RankmetricsError | None:
    """What ends a call, or the computation of a table."""
    with pytest.raises(Exception) as caught:
        act()
    return raised_by_python(caught.value)
