"""The table of columns of a comparison: ``python -m tests.statistics_table docs/comparing.md`` writes it anew."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rankmetrics_spark.comparison import STATISTICS

START, END = "<!-- columns: written by make readme -->", "<!-- /columns -->"


def updated(page: str) -> str:
    """The page with a line for each registered statistic between its two markers."""
    rows = [(", ".join(f"`{name}`" for name in each.columns), each.meaning) for each in STATISTICS.values()]
    lines = [f"| {names} | {meaning} |" for names, meaning in [("column", "meaning"), ("---", "---"), *rows]]
    table = "\n".join([START, *lines, END])
    found, n = re.subn(f"{START}.*?{END}", lambda _: table, page, flags=re.DOTALL)
    assert n == 1
    return found


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
