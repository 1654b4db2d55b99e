"""Counts of a log -> rates that speak for its quality, against limits and against the previous run. No pyspark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rankmetrics_spark.config import Limits

_PARTS = {
    "duplicate_rate": ("repeated", "rows"),
    "tie_rate": ("tied", "evaluated"),
    "gap_rate": ("gaps", "lists"),
    "short_rate": ("short", "lists"),
    "no_relevant_rate": ("no_relevant", "lists"),
    "unjudged_rate": ("unjudged_lists", "lists"),
}
"""Rate -> the count that it is a share of another count."""
SHARED = "shared_user_rate"
"""The rate that belongs to no experiment: users who are in more than one."""

Rates = dict[str, float]


@dataclass(frozen=True)
class Findings:
    """What the gates of quality found in a log that they let pass.

    Attributes:
        counts: Per experiment; see ``counts.row_counts``.
        rates: Per experiment: rate -> share, for the rates that this log has.
        overall: The same over all experiments.
        previous: The ``quality`` of the previous run's record, with its ``run_id``; empty without one.
        warnings: A sentence each.
        notes: What a reader of the numbers should know, a sentence each; nothing is wrong.
    """

    counts: dict[str, dict[str, Any]]
    rates: Mapping[str, Rates]
    overall: Rates
    previous: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """What a run record keeps."""
        before = {name: self.previous[name] for name in ("run_id", "overall") if name in self.previous}
        rates = {"rates": dict(self.rates), "overall": self.overall, "warnings": list(self.warnings)}
        return rates | ({"previous": before} if before else {})


def rates(counts: Iterable[Mapping[str, Any]], names: Iterable[str]) -> Rates:
    """The rates of the lists that are counted together.

    Args:
        counts: Of one experiment or of several.
        names: The rates to give; one whose whole is 0 is left out.

    >>> rates([{"repeated": 1, "rows": 8, "tied": 0, "evaluated": 0}], ["duplicate_rate", "tie_rate"])
    {'duplicate_rate': 0.125}
    """
    rows = [{**count, "unjudged_lists": count.get("lists", 0) - count.get("judged_lists", 0)} for count in counts]
    sums = {name: [sum(row.get(part, 0) for row in rows) for part in _PARTS[name]] for name in names if name in _PARTS}
    return {name: part / whole for name, (part, whole) in sums.items() if whole}


def breaches(found: Findings, limits: Limits, level: str) -> list[str]:
    """A sentence for each rate beyond its limit.

    Args:
        found: The rates of this run and of the previous one.
        limits: Rate -> level -> limit.
        level: ``warn`` or ``fail``.
    """
    before = found.previous.get("rates", {})
    said = [
        sentence
        for name, values in found.rates.items()
        for sentence in _beyond(f"experiment '{name}': ", values, before.get(name, {}), limits, level)
    ]
    shared = {name: value for name, value in found.overall.items() if name == SHARED}
    return [*said, *_beyond("", shared, found.previous.get("overall", {}), limits, level)]


def _beyond(who: str, values: Rates, before: Mapping[str, float], limits: Limits, level: str) -> Iterator[str]:
    for name, levels in limits.items():
        value, path = values.get(name), f"quality.gates.{name}"
        if value is None:
            continue
        if level in levels and value > levels[level]:
            yield f"{who}{name} is {value:.2%} ({path}.{level} is {levels[level]:.2%})"
        change, limit = value - before.get(name, value), levels.get(f"{level}_change")
        if limit is not None and abs(change) > limit:
            yield (
                f"{who}{name} is {value:.2%}, and was {before[name]:.2%} in the previous run "
                f"({path}.{level}_change is {limit:.2%})"
            )
