"""The table of columns of a comparison: ``python -m tests.statistics_table docs/comparing.md`` writes it anew."""

from __future__ import annotations

from rankmetrics_spark.comparison import STATISTICS
from tests.helpers.readme import between, rewrite


def updated(page: str) -> str:
    """The page with a line for each registered statistic between its two markers."""
    rows = [(", ".join(f"`{name}`" for name in each.columns), each.meaning) for each in STATISTICS.values()]
    lines = [f"| {names} | {meaning} |" for names, meaning in [("column", "meaning"), ("---", "---"), *rows]]
    return between("columns", "\n".join(lines), page)


if __name__ == "__main__":
    rewrite(updated)
