"""The schemas of the output tables: ``python -m tests.tables_page docs/tables.md`` writes them anew."""

from __future__ import annotations

from rankmetrics_spark.comparison import STATISTICS
from rankmetrics_spark.schemas import OUTPUT_TABLES, PARTITION_COLUMNS
from tests.helpers.readme import between, rewrite

SQL = {"long": "bigint"}


def tables() -> dict[str, dict[str, tuple[str, str]]]:
    """Table -> column -> type and meaning, without the partition columns."""
    compared = {
        name: (SQL.get(each.type, each.type), each.meaning) for each in STATISTICS.values() for name in each.columns
    }
    return OUTPUT_TABLES | {"comparisons": compared}


def updated(page: str) -> str:
    """The page with the columns of each table between its two markers."""
    lines = []
    for table, columns in tables().items():
        lines += [f"### {table}", "", "| column | type | what it is |", "|---|---|---|"]
        lines += [
            f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in (PARTITION_COLUMNS | columns).items()
        ]
        lines.append("")
    return between("schemas", "\n".join(lines), page)


if __name__ == "__main__":
    rewrite(updated)
