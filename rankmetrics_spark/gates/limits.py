"""Limits on the rates of a log, also against the previous run, and on metrics.

Pure arithmetic on counts and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankmetrics_spark.config import Gate, Limits
from rankmetrics_spark.schemas import BASELINE, EXPERIMENT, METRIC, SEGMENT, is_unknown, of_test

_PARTS = {
    "duplicate_rate": ("repeated", "rows"),
    "tie_rate": ("tied", "evaluated"),
    "gap_rate": ("gaps", "lists"),
    "short_rate": ("short", "lists"),
    "no_relevant_rate": ("no_relevant", "lists"),
    "unjudged_rate": ("unjudged_lists", "lists"),
}
"""Rate -> the counts that it divides."""
SHARED = "shared_user_rate"
"""The share of users with lists in several experiments; the only rate that has no value per experiment."""

Rates = dict[str, float]


@dataclass(frozen=True)
class Findings:
    """Counts, rates and warnings of a log that passed the quality gates.

    Attributes:
        counts: Per experiment; see ``findings.row_counts``.
        rates: Per experiment: rate -> share, for the rates that apply to this log.
        overall: The same over all experiments.
        previous: The ``quality`` of the previous run's record, with its ``run_id``; empty without one.
        warnings: One sentence each.
        notes: What readers of the numbers should know, a sentence each; nothing is wrong.
    """

    counts: dict[str, dict[str, Any]]
    rates: Mapping[str, Rates]
    overall: Rates
    previous: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """Return the entry of the run record."""
        previous = {name: self.previous[name] for name in ("run_id", "overall") if name in self.previous}
        rates = {"rates": dict(self.rates), "overall": self.overall, "warnings": list(self.warnings)}
        return rates | ({"previous": previous} if previous else {})


def rates(counts: Iterable[Mapping[str, Any]], names: Iterable[str]) -> Rates:
    """Return the rates over the sum of these counts.

    >>> rates([{"repeated": 1, "rows": 8, "tied": 0, "evaluated": 0}], ["duplicate_rate", "tie_rate"])
    {'duplicate_rate': 0.125}
    """
    rows = [{**count, "unjudged_lists": count.get("lists", 0) - count.get("judged_lists", 0)} for count in counts]
    sums = {name: [sum(row.get(part, 0) for row in rows) for part in _PARTS[name]] for name in names if name in _PARTS}
    return {name: part / total for name, (part, total) in sums.items() if total}


def breaches(findings: Findings, limits: Limits, level: str) -> list[str]:
    """Return one sentence for each rate beyond its limit."""
    previous = findings.previous.get("rates", {})
    sentences = [
        sentence
        for name, values in findings.rates.items()
        for sentence in _beyond(f"experiment '{name}': ", values, previous.get(name, {}), limits, level)
    ]
    shared = {name: value for name, value in findings.overall.items() if name == SHARED}
    return [*sentences, *_beyond("", shared, findings.previous.get("overall", {}), limits, level)]


def _beyond(prefix: str, values: Rates, previous: Mapping[str, float], limits: Limits, level: str) -> Iterator[str]:
    for name, levels in limits.items():
        value, path = values.get(name), f"quality.gates.{name}"
        if value is None:
            continue
        if level in levels and value > levels[level]:
            yield f"{prefix}{name} is {value:.2%} ({path}.{level} is {levels[level]:.2%})"
        change, limit = value - previous.get(name, value), levels.get(f"{level}_change")
        if limit is not None and abs(change) > limit:
            yield (
                f"{prefix}{name} is {value:.2%}, and was {previous[name]:.2%} in the previous run "
                f"({path}.{level}_change is {limit:.2%})"
            )


Row = Mapping[str, Any]


_ROUNDING = 1e-12
"""Tolerance for rounding, relative to limits above 1: 0.49 - 0.5 is slightly below -0.01."""


def failed_gates(
    gates: Sequence[Gate],
    averages: Sequence[Row],
    comparisons: Sequence[Row],
    experiments: Iterable[str] = (),
    candidates: Iterable[str] = (),
) -> list[str]:
    """Return one sentence per failure; empty if all limits are met.

    >>> gate = Gate(metric="ndcg@10", max_drop=0.01)
    >>> row = {"experiment_id": "b", "baseline": "a", "segment": "all", "metric": "ndcg@10", "difference": -0.02,
    ...        "ci_low": -0.03, "ci_high": -0.01, "relative_difference": -0.04, "mean_baseline": 0.5}
    >>> failed_gates([gate], [], [row])
    ['b is 0.0200 below a on ndcg@10; allowed: a drop of 0.01']
    >>> failed_gates([Gate(metric="ndcg@10", max_drop=0.02)], [], [row])
    []
    """
    sentences: list[str] = []
    for gate in gates:
        sentences += _failures(gate, averages, experiments, _too_low) if gate.min is not None else ()
        sentences += _failures(gate, comparisons, candidates, _too_far) if gate.compares else ()
    return sentences


def _failures(
    gate: Gate, rows: Sequence[Row], experiments: Iterable[str], check: Callable[[Gate, Row], Iterator[str]]
) -> Iterator[str]:
    matches = [row for row in rows if row[METRIC] == str(gate.metric) and row[SEGMENT] == gate.segment]
    if gate.experiment is not None:
        matches = [row for row in matches if row[EXPERIMENT] == gate.experiment]
    matches.sort(key=lambda row: str(row[EXPERIMENT]))
    missing = {gate.experiment} if gate.experiment else set(experiments)
    missing -= {str(row[EXPERIMENT]) for row in matches}
    problem = f"the gate on {gate.metric} cannot be checked: no row of segment '{gate.segment}'"
    if not matches and gate.experiment is None:
        yield problem
        return
    for name in sorted(missing):
        yield f"{problem} and experiment '{name}'"
    for row in matches:
        yield from check(gate, row)


def _sign(gate: Gate) -> int:
    return -1 if gate.metric.higher_is_better is False else 1


def _too_low(gate: Gate, row: Row) -> Iterator[str]:
    """Check the mean, or its worse bound, against ``min``."""
    assert gate.min is not None
    bound = "ci_low" if _sign(gate) > 0 else "ci_high"
    value = row["mean" if gate.on == "point" else bound]
    what = "mean" if gate.on == "point" else "bound of the interval"
    if is_unknown(value):
        yield f"{row[EXPERIMENT]} has no {what} of {gate.metric}; the gate cannot be checked"
    elif _sign(gate) * (gate.min - value) > _ROUNDING * max(1.0, abs(gate.min)):
        limit = "at least" if _sign(gate) > 0 else "at most"
        yield f"{row[EXPERIMENT]} has a {what} of {value:.4f} on {_where(gate)}; allowed: {limit} {gate.min:g}"


def _too_far(gate: Gate, row: Row) -> Iterator[str]:
    """Check the difference of the deciding test, or its worse bound, against the limits."""
    limits = (
        (gate.max_drop, "difference", "", "{:.4f}", "{:g}"),
        (gate.max_relative_drop, "relative_difference", "relative_", "{:.2%}", "{:.2%}"),
    )
    for limit, point, prefix, style, allowed in limits:
        if limit is None:
            continue
        drop = _drop(gate, row, point, prefix)
        if drop is None:
            pair = f"{row[EXPERIMENT]} against {row[BASELINE]}"
            yield f"{pair} has no {point.replace('_', ' ')} on {_where(gate)}; the gate cannot be checked"
        elif drop - limit > _ROUNDING * max(1.0, limit):
            worse = "below" if _sign(gate) > 0 else "above"
            could = "is" if gate.on == "point" else "may be"
            yield (
                f"{row[EXPERIMENT]} {could} {style.format(drop)} {worse} {row[BASELINE]} on {_where(gate)}; "
                f"allowed: a drop of {allowed.format(limit)}"
            )


def _drop(gate: Gate, row: Row, point: str, prefix: str) -> float | None:
    """Return how much worse the candidate is, or may be; None if unknown."""
    sign = _sign(gate)
    if prefix and row["mean_baseline"] is not None and row["mean_baseline"] < 0:
        # Relative to a negative mean, a drop is positive.
        sign = -sign
    value = of_test(row, point if gate.on == "point" else f"{prefix}ci_{'low' if sign > 0 else 'high'}")
    return None if is_unknown(value) else -sign * value


def _where(gate: Gate) -> str:
    return str(gate.metric) if gate.segment == "all" else f"{gate.metric} in {gate.segment}"
