"""What this project and nine other systems can do: ``python -m tests.compared docs/compared.md``.

The rows of the table are in ``features.yaml``, and the cells in ``results.json``, with the version of each system that
was tried. ``--prove`` tries them again, each system in an environment of its own, and writes that file; to add a
feature, add a line to the former, and a method to each class in ``peers`` and to ``ours.Ours`` that has it.
"""

import json
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.helpers.readme import between

RESULTS = Path(__file__).parent / "results.json"
OURS = "rankmetrics_spark"


class Feature(NamedTuple):
    """A row of the table: the method that proves it, what people choose by, and what names of it may look like."""

    name: str
    title: str
    words: str


FEATURES = [
    Feature(name, *more)
    for name, more in yaml.safe_load(Path(__file__).with_name("features.yaml").read_text(encoding="utf-8")).items()
]


def results() -> dict[str, dict]:
    """System -> its ``version``, ``documentation``, ``how`` the cells were found, and the ``cells``."""
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def markdown(result: dict[str, dict]) -> str:
    """The table, and a line per system with its version."""
    head = ["", *(OURS if title == OURS else f"[{title}]({of['documentation']})" for title, of in result.items())]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for feature in FEATURES:
        cells = (str(of["cells"][feature.name]) + (" †" if of["how"] == "source" else "") for of in result.values())
        lines.append(f"| {feature.title} | {' | '.join(cells)} |")
    versions = (f"{title} {of['version']}" for title, of in result.items() if title != OURS)
    return "\n".join([*lines, "", f"Versions: {', '.join(versions)}."])


def updated(page: str) -> str:
    """The page with a fresh table between its two markers."""
    return between("compared", markdown(results()), page)
