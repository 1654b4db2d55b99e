"""The table of metrics, made from the registry: ``python -m tests.metric_table docs/metrics.md``."""

from rankmetrics_spark.metrics import reference
from tests.helpers.readme import between, rewrite

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
    return between("metrics", markdown(), text)


if __name__ == "__main__":
    rewrite(updated)
