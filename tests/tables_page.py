"""The tables of docs/tables.md: ``python -m tests.tables_page docs/tables.md`` writes the columns of ``comparisons``.

A person writes those of the others; tests/spark/test_tables.py holds them against what a run writes.
"""

import re

from rankmetrics_spark.comparison import STATISTICS
from tests.helpers import commands, readme

SQL = {"long": "bigint"}


def tables() -> dict[str, dict[str, str]]:
    """Table -> column -> type, as the page has them."""
    page = (commands.ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### (\w+)\n\n(?:<.*\n)?\| column \|.*\n.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    return {table: dict(re.findall(r"^\| `(.+?)` \| (.+?) \|", rows, re.MULTILINE)) for table, rows in sections}


def updated(page: str) -> str:
    """The page with the columns of ``comparisons`` between its two markers."""
    lines = ["| column | type | what it is |", "|---|---|---|", "| `evaluation_date` | date | the evaluation date |"]
    for each in STATISTICS.values():
        lines += [f"| `{name}` | {SQL.get(each.type, each.type)} | {each.meaning} |" for name in each.columns]
    return readme.between("schemas", "\n".join(lines), page)


if __name__ == "__main__":
    readme.rewrite(updated)
