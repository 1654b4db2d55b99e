"""The books of a run: what was counted in the pass over the input against what is about to be published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.sinks.partitions import Written


def compare_books(
    users: Written, averages: Written, quarantine: Written, counts: Mapping[Any, Mapping[str, Any]], lists: str
) -> None:
    """Refuse to publish tables whose rows do not add up to what was counted.

    Args:
        users: ``user_metrics``, with the sums of ``n_lists``.
        averages: ``experiment_metrics``.
        quarantine: ``quarantine``.
        counts: Experiment -> its counts in the pass.
        lists: The count that the lists of all users add up to.

    Raises:
        OutputError: One sentence with the experiment and both numbers.
    """
    for name, count in counts.items():
        key = name or None
        _same("lists", count[lists], users.totals.get(key, 0), name)
        _same(
            "rows left out",
            count["quarantined"],
            quarantine.counts.get(key, 0) - _others(name, counts, quarantine),
            name,
        )
        if bool(users.counts.get(key, 0)) != bool(averages.counts.get(key, 0)):
            raise _mismatch("users with averages", users.counts.get(key, 0), averages.counts.get(key, 0), name)


def _others(name: str | None, counts: Mapping[Any, Mapping[str, Any]], quarantine: Written) -> int:
    """Rows that are stored with those of an experiment without being its: "" and null share a partition."""
    if name or not {"", None} <= counts.keys():
        return 0
    return int(counts["" if name is None else None]["quarantined"])


def _same(what: str, counted: int, written: int, name: str | None) -> None:
    if counted != written:
        raise _mismatch(what, counted, written, name)


def _mismatch(what: str, counted: int, written: int, name: str | None) -> OutputError:
    return OutputError(
        f"row counts do not add up: experiment '{name}' has {counted} {what} in the input and {written} in the tables; "
        "nothing was published; the input may have changed while it was read: run this again"
    )
