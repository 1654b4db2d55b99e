"""The README's table of metrics, made from the registry: ``python -m tests.metric_table README.md``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rankmetrics_spark.metrics import reference

START, END = "<!-- metrics: written by make readme -->", "<!-- /metrics -->"
COLUMNS = {"name": "metric", "mean": "its mean", "range": "range", "direction": "direction"}


def markdown() -> str:
    """One line per registered metric.

    >>> markdown().splitlines()[2]
    '| `ap@10` | MAP | 0 to 1 | higher is better |'
    """
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|---" * len(COLUMNS) + "|"]
    for row in reference():
        cells = [f"`{row['name']}`", *(row[name] for name in list(COLUMNS)[1:])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """The text with a fresh table between its two markers."""
    page, n = re.subn(f"{re.escape(START)}.*?{re.escape(END)}", f"{START}\n{markdown()}\n{END}", text, flags=re.DOTALL)
    if n != 1:
        raise ValueError(f"the text holds the markers {START} ... {END} {n} times; allowed: once")
    return page


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
