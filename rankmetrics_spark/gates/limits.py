"""What a run has to keep: limits on rates of its log, also against the previous run, and limits on its metrics.

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

    >>> rates([{"repeated": 1, "rows": 8, "tied": 0, "evaluated": 0}], ["duplicate_rate", "tie_rate"])
    {'duplicate_rate': 0.125}
    """
    rows = [{**count, "unjudged_lists": count.get("lists", 0) - count.get("judged_lists", 0)} for count in counts]
    sums = {name: [sum(row.get(part, 0) for row in rows) for part in _PARTS[name]] for name in names if name in _PARTS}
    return {name: part / whole for name, (part, whole) in sums.items() if whole}


def breaches(found: Findings, limits: Limits, level: str) -> list[str]:
    """A sentence for each rate beyond its limit."""
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


Row = Mapping[str, Any]


_ROUNDING = 1e-12
"""By so much, as a share of a limit above 1, a value may be beyond it: 0.49 - 0.5 is a little below -0.01."""


def failed_gates(
    gates: Sequence[Gate],
    averages: Sequence[Row],
    comparisons: Sequence[Row],
    experiments: Iterable[str] = (),
    candidates: Iterable[str] = (),
) -> list[str]:
    """What each failed gate found; empty if all limits are kept.

    >>> gate = Gate(metric="ndcg@10", max_drop=0.01)
    >>> row = {"experiment_id": "b", "baseline": "a", "segment": "all", "metric": "ndcg@10", "difference": -0.02,
    ...        "ci_low": -0.03, "ci_high": -0.01, "relative_difference": -0.04, "mean_baseline": 0.5}
    >>> failed_gates([gate], [], [row])
    ['b is 0.0200 below a on ndcg@10; allowed: a drop of 0.01']
    >>> failed_gates([Gate(metric="ndcg@10", max_drop=0.02)], [], [row])
    []
    """
    found: list[str] = []
    for gate in gates:
        found += _said(gate, averages, experiments, _too_low) if gate.min is not None else ()
        found += _said(gate, comparisons, candidates, _too_far) if gate.compares else ()
    return found


def _said(
    gate: Gate, rows: Sequence[Row], wanted: Iterable[str], check: Callable[[Gate, Row], Iterator[str]]
) -> Iterator[str]:
    chosen = sorted((row for row in rows if _is_meant(gate, row)), key=lambda row: str(row[EXPERIMENT]))
    lacking = {gate.experiment} if gate.experiment else set(wanted)
    lacking -= {str(row[EXPERIMENT]) for row in chosen}
    without = f"the gate on {gate.metric} cannot be checked: no row of segment '{gate.segment}'"
    if not chosen and gate.experiment is None:
        yield without
        return
    for name in sorted(lacking):
        yield f"{without} and experiment '{name}'"
    for row in chosen:
        yield from check(gate, row)


def _is_meant(gate: Gate, row: Row) -> bool:
    named = gate.experiment is None or row[EXPERIMENT] == gate.experiment
    return bool(named and row[METRIC] == str(gate.metric) and row[SEGMENT] == gate.segment)


def _sign(gate: Gate) -> int:
    return -1 if gate.metric.higher_is_better is False else 1


def _too_low(gate: Gate, row: Row) -> Iterator[str]:
    """A mean, or its worse bound, beyond the limit."""
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
    """A difference, or its worse bound, beyond the limit; of the test that decides the row."""
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
    """By how much the candidate is worse, or may be; None if that is unknown."""
    sign = _sign(gate)
    if prefix and row["mean_baseline"] is not None and row["mean_baseline"] < 0:
        # As a share of a negative mean, a drop is positive.
        sign = -sign
    value = of_test(row, point if gate.on == "point" else f"{prefix}ci_{'low' if sign > 0 else 'high'}")
    return None if is_unknown(value) else -sign * value


def _where(gate: Gate) -> str:
    return str(gate.metric) if gate.segment == "all" else f"{gate.metric} in {gate.segment}"
