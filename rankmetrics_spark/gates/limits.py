"""Limits on the rates of a log, also against the previous run, and on metrics.

Pure arithmetic on counts and rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from rankmetrics_spark import doors, errors as err, findings as fd, schemas as sch
from rankmetrics_spark.config import RATES, Gate, Limits
from rankmetrics_spark.words import UNITS, sentences

if TYPE_CHECKING:
    from rankmetrics_spark.road import AssignmentCounts

said = sentences(doors.settings_of(__name__, "sentences"))
#: Rate -> the counts that it divides.
_PARTS = {name: rate.parts for name, rate in RATES.items() if rate.parts}
#: What a rate divides that is what others leave of the lists -> these others.
_LEFT_OF_LISTS = {"unjudged_lists": "judged_lists", "lists_of_population": "lists_outside"}
SHARED, UNMATCHED, OPEN = "shared_user_rate", "unmatched_event_rate", "open_window_rate"
MIXED = "mixed_arm_rate"
#: The rates of the whole log, which have no value per experiment.
OF_LOG = (SHARED, UNMATCHED, OPEN, MIXED)

Rates = dict[str, float]
#: Level, such as ``warn_change``, or name of a rate -> a number.
Levels = Mapping[str, float]
#: Rows of ``checks`` as they are made.
Checks = Iterator[sch.Check]
#: Holds a row of a table against a gate.
Held = Callable[[Gate, sch.Row], Checks]
#: Experiments that a notebook shows.
MOST_SHOWN = 20


#: What becomes of an event that gives no grade -> in words.
EVENTS = doors.data_of(__name__, "events")


def events_in_words(counts: Mapping[str, int], open_share: float | None) -> Iterator[str]:
    """What became of the events, and how complete the labels are; one sentence each."""
    total, others = sum(counts.values()), [f"{counts[s]:,} {text}" for s, text in EVENTS.items() if counts.get(s)]
    rest = f"; the others: {', '.join(others)}" if others else ""
    yield f"{counts.get(sch.MATCHED, 0):,} of {total:,} events give their impression a grade{rest}"
    if open_share:
        yield f"labels are complete for {sch.share(1 - open_share)} of the impressions: later events may still count"


def notes_about_ids(counts: Mapping[str, Mapping[str, Any]], judgements: int) -> Iterator[str]:
    """What is called like a missing value, such as ``nan`` or ``NULL``, and may be one; one sentence each."""
    found = {
        f"lists are of {UNITS}": sum(count["called_missing"] for count in counts.values()),
        "experiments are": sum(name in sch.MISSING for name in counts),
        f"judgements are of {UNITS} or items": judgements,
    }
    for what, n in found.items():
        if n:
            yield said("missing_ids", n=n, what=what, some=", ".join(sch.MISSING[:-1]), last=sch.MISSING[-1])


@dataclass(frozen=True)
class Findings:
    """Counts, rates and warnings of a log that passed the quality gates.

    Attributes:
        counts: Per experiment; see ``counts.row_counts``.
        rates: Per experiment: rate -> share, for the rates that apply to this log.
        overall: The same over all experiments.
        previous: The ``quality`` of the previous run's record, with its ``run_id``; empty without one.
        warnings: One sentence each.
        notes: What readers of the numbers should know, a sentence each; nothing is wrong.
        checks: The rates against their limits.
        events: What became of the events: status -> how many; None without events.
        log: The counts of the log, where experiments are arms of tests and a list may count in several.
        assigned: What was counted of the assignments.
    """

    counts: dict[str, dict[str, Any]]
    rates: Mapping[str, Rates]
    overall: Rates
    previous: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    checks: tuple[sch.Check, ...] = ()
    events: Mapping[str, int] | None = None
    log: Mapping[str, int] | None = None
    assigned: "AssignmentCounts | None" = None

    def total(self, name: str) -> int:
        """A count of the whole log."""
        return sum(count[name] for count in self.counts.values()) if self.log is None else self.log[name]

    def _repr_html_(self) -> str:
        """What a notebook shows: the warnings, then counts and rates with a column per experiment."""
        names = sorted(self.counts, key=str)[:MOST_SHOWN]
        lines = [("", [f"<b>{escape(err.printable(str(name)))}</b>" for name in names])]
        for key, label in (("rows", "rows read"), ("quarantined", "rows left out"), ("lists", "lists")):
            lines.append((label, [f"{self.counts[name].get(key, 0):,}" for name in names]))
        for rate, words in RATES.items():
            values = [self.rates.get(name, {}).get(rate) for name in names]
            if any(value is not None for value in values):
                lines.append((words.of, ["-" if value is None else f"{value:.1%}" for value in values]))
        cell = '<td style="padding:.25em .8em;border-bottom:1px solid #8884;text-align:{}">{}</td>'
        cells = ([("left", label), *(("right", value) for value in values)] for label, values in lines)
        rows = "".join(f"<tr>{''.join(cell.format(*each) for each in of_line)}</tr>" for of_line in cells)
        warnings = "".join(f"<li>{escape(err.printable(text))}</li>" for text in (*self.warnings, *self.notes))
        more = len(self.counts) - len(names)
        return (
            f'<div style="font-family:system-ui,sans-serif">{"" if warnings else "no warnings"}<ul>{warnings}</ul>'
            f'<table style="border-collapse:collapse">{rows}</table>'
            f"{f'<div>{more:,} more experiments</div>' if more > 0 else ''}</div>"
        )

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
    rows = []
    for count in counts:
        others = {name: count.get("lists", 0) - count.get(part, 0) for name, part in _LEFT_OF_LISTS.items()}
        rows.append({**count, **others})
    sums = {name: [sum(row.get(part, 0) for row in rows) for part in _PARTS[name]] for name in names if name in _PARTS}
    return {name: part / total for name, (part, total) in sums.items() if total}


def counts_of_rate(name: str) -> list[str]:
    """The counts that a rate follows from; none of a rate of the whole log alone."""
    return [_LEFT_OF_LISTS.get(part, part) for part in _PARTS.get(name, ())]


def rate_checks(findings: Findings, limits: Limits) -> list[sch.Check]:
    """Return a row for each rate of each experiment, and for each limit of its change.

    The users who are in several experiments are those of the whole log: their rate is the same in each experiment.
    """
    previous = findings.previous.get("rates", {})
    checks: list[sch.Check] = []
    # An engine counts experiments in any order.
    for name, values in sorted(findings.rates.items(), key=lambda pair: str(pair[0])):
        prefix, before = f"{name}: ", previous.get(name, {})
        names = dict.fromkeys([*(rate for rate in limits if rate not in OF_LOG), *values])
        checks += [check for rate in names for check in _of_rate(rate, prefix, values, before, limits, name)]
    before = findings.previous.get("overall", {})
    for rate in OF_LOG:
        if rate in findings.overall or (rate != SHARED and rate in limits):
            for experiment in findings.rates:
                checks += _of_rate(rate, "", findings.overall, before, limits, experiment)
    return checks


def _of_rate(rate: str, prefix: str, values: Rates, before: Levels, limits: Limits, experiment: str | None) -> Checks:
    """Hold a rate against its limits, and against that of the previous run."""
    levels, value = limits.get(rate, {}), values.get(rate)
    if value is None:
        yield sch.Check(rate, sch.NOT_CHECKED, f"{prefix}{RATES[rate].name} are not counted in such a log", experiment)
        return
    fact = prefix + RATES[rate].sentence.format(in_percent(value, levels.values()), UNITS=UNITS)
    yield _held(rate, "", value, levels, fact, experiment)
    if any(level.endswith("_change") for level in levels):
        if rate not in before:
            yield sch.Check(f"{rate}_change", sch.NOT_CHECKED, f"{fact}, and no previous run has it", experiment)
            return
        change = abs(value - before[rate])
        fact += f", {in_percent(before[rate])} in the previous run"
        yield _held(rate, "_change", change, levels, fact, experiment)


def _held(rate: str, kind: str, value: float, levels: Levels, fact: str, experiment: str | None) -> sch.Check:
    """Hold a rate, or with the kind ``_change`` its change, against ``fail`` first, then against ``warn``."""
    name = f"{rate}{kind}"
    status: sch.Status
    for status in (sch.FAIL, sch.WARN):
        limit = levels.get(f"{status}{kind}")
        if limit is not None and value > limit:
            above = "above a change of" if kind else "above"
            sentence = f"{fact} ({SAID[status]} {above} {in_percent(limit)}: quality.gates.{rate}.{status}{kind})"
            return sch.Check(name, status, sentence, experiment, value, limit, limit - value)
    kept = [limit for level in (sch.WARN, sch.FAIL) if (limit := levels.get(f"{level}{kind}")) is not None]
    if not kept:
        return sch.Check(name, sch.NOT_CHECKED, f"{fact}; it has no limit", experiment, value)
    least = min(kept)
    return sch.Check(name, sch.OK, f"{fact} (at most {in_percent(least)})", experiment, value, least, least - value)


#: What a limit does beyond which a log is, in words.
SAID = {sch.WARN: "warning", sch.FAIL: "refused"}


def in_percent(value: float, others: Iterable[float] = ()) -> str:
    """A share in percent, with the digits that tell it from others.

    >>> in_percent(0.1555), in_percent(0.1), in_percent(0.10004, [0.1]), in_percent(1 / 3)
    ('15.6 %', '10 %', '10.004 %', '33.3 %')
    """
    known = {f"{100 * other:g}" for other in others if other != value}
    texts = (f"{100 * value:.{digits}f}" for digits in range(1, 12))
    text = next((text for text in texts if f"{float(text):g}" not in known), f"{100 * value!r}")
    return f"{float(text):g} %"


#: Tolerance for rounding, relative to limits above 1: 0.49 - 0.5 is slightly below -0.01.
_ROUNDING = 1e-12


def gate_checks(
    gates: Sequence[Gate],
    averages: Sequence[sch.Row],
    comparisons: Sequence[sch.Row],
    experiments: Iterable[str] = (),
    candidates: Iterable[str] = (),
) -> list[sch.Check]:
    """Return a row for each limit of each gate and each experiment that it is about.

    >>> gate = Gate(metric="ndcg@10", max_drop=0.01)
    >>> row = {"experiment_id": "b", "baseline": "a", "segment": "all", "metric": "ndcg@10", "difference": -0.02,
    ...        "ci_low": -0.03, "ci_high": -0.01, "relative_difference": -0.04, "mean_baseline": 0.5}
    >>> [(check.status, check.sentence) for check in gate_checks([gate], [], [row])]
    [('fail', 'NDCG@10 of b fell by 0.0200 against a; the gate allows 0.01')]
    >>> [check.status for check in gate_checks([Gate(metric="ndcg@10", max_drop=0.02)], [], [row])]
    ['ok']
    """
    checks: list[sch.Check] = []
    for gate in gates:
        checks += _of_gate(gate, averages, experiments, _of_mean) if gate.min is not None else ()
        checks += _of_gate(gate, comparisons, candidates, _of_drop) if gate.compares else ()
    return checks


def _of_gate(gate: Gate, rows: Sequence[sch.Row], experiments: Iterable[str], check: Held) -> Checks:
    matches = [row for row in rows if row[sch.METRIC] == str(gate.metric) and row[sch.SEGMENT] == gate.segment]
    if gate.experiment is not None:
        matches = [row for row in matches if row[sch.EXPERIMENT] == gate.experiment]
    matches.sort(key=lambda row: str(row[sch.EXPERIMENT]))
    missing = {gate.experiment} if gate.experiment else set(experiments)
    missing -= {str(row[sch.EXPERIMENT]) for row in matches}
    problem = f"the gate on {gate.metric} cannot be checked: no row of segment '{gate.segment}'"
    drops = (("max_drop", gate.max_drop), ("max_relative_drop", gate.max_relative_drop), ("trusted", gate.trusted))
    name = "min" if check is _of_mean else next(name for name, limit in drops if limit is not None)
    keys: dict[str, Any] = {"segment": gate.segment, "metric": str(gate.metric)}
    # One sentence where no experiment has the segment.
    is_whole = not matches and gate.experiment is None
    lacking: list[Any] = sorted(missing) or [None] * is_whole
    for experiment in lacking:
        text = problem if is_whole else f"{problem} and experiment '{experiment}'"
        yield sch.Check(name, sch.FAIL, text, experiment, **keys)
    for row in matches:
        yield from check(gate, row)


def _sign(gate: Gate) -> int:
    return -1 if gate.metric.higher_is_better is False else 1


def _of_mean(gate: Gate, row: sch.Row) -> Checks:
    """Hold the mean, or a bound of it, against ``min``."""
    assert gate.min is not None
    low = _sign(gate) > 0
    side = "lower" if low == (gate.on == "bound") else "upper"
    value, name = row["mean" if gate.on == "point" else "ci_low" if side == "lower" else "ci_high"], row[sch.EXPERIMENT]
    what = "" if gate.on == "point" else f"the {side} bound of "
    if sch.is_unknown(value):
        missing = "mean" if gate.on == "point" else "interval"
        sentence = f"{name} has no {missing} of {_label(gate)}; the gate cannot be checked"
        yield _row_of_gate(gate, row, "min", sentence, None, gate.min, None)
        return
    limit = f"at {'least' if low else 'most'} {gate.min:g}"
    sentence = f"{what}{_label(gate)} of {name} is {value:.4f}; the gate asks for {limit}"
    yield _row_of_gate(gate, row, "min", sentence, value, gate.min, _sign(gate) * (value - gate.min))


def _of_drop(gate: Gate, row: sch.Row) -> Checks:
    """Hold the difference of the deciding test, or a bound of it, against the limits; and the test, if asked for."""
    found = fd.Finding.of(row)
    limits = (
        ("max_drop", gate.max_drop, "difference", found.shown, found.tested),
        ("max_relative_drop", gate.max_relative_drop, "relative difference", found.shown_share, found.tested_share),
    )
    pair = f"{found.candidate} against {found.baseline}"
    if gate.trusted:
        sentence = f"the test of {_label(gate)} of {pair} is {found.doubt or 'not in doubt'}"
        if found.trust == "none":
            sentence = f"there is no test of {_label(gate)} of {pair}: {found.note or 'not tested'}"
        if found.trust == "ok" and found.design == "independent" and found.sample_ratio_p is None:
            sentence += f"; the split of the {UNITS} is not checked without comparison.shares"
        status: sch.Status = sch.OK if found.trust == "ok" else sch.FAIL
        yield sch.Check("trusted", status, sentence, found.candidate, segment=gate.segment, metric=str(gate.metric))
    before, after = found.means
    for name, limit, what, shown, tested in limits:
        if limit is None:
            continue
        # Relative to a negative mean, a drop is positive.
        sign = -_sign(gate) if shown is found.shown_share and (before or 0.0) < 0 else _sign(gate)
        # The interval that agrees with the decision: a limit of 0 is passed exactly where the baseline is better.
        value = shown.high if sign > 0 else shown.low
        if gate.on != "clear":
            value = tested.value if gate.on == "point" else tested.low if sign > 0 else tested.high
        elif value is None and found.test in sch.SPARSE_TESTS and (found.p_adjusted or 0.0) >= 1 - found.confidence:
            # Without an interval, a difference that the test does not find is not clear.
            value = 0.0
        if value is None:
            what = what if gate.on == "point" else f"interval of the {what}"
            sentence = f"{pair} has no {what} on {_label(gate)}; the gate cannot be checked"
            yield _row_of_gate(gate, row, name, sentence, None, limit, None)
            continue
        drop = -sign * value
        falls = (drop >= 0) == (_sign(gate) > 0)
        moved = _MOVED[_BOUND if gate.on == "clear" and drop < 0 else gate.on][not falls]
        size, limit_text = f"{abs(drop):.4f}", f"{limit:g}"
        if tested is found.tested_share:
            size, limit_text = (f"{100 * each:.2f} %" for each in (abs(drop), limit))
        # With CUPED or strata, and for a bound, the two means do not add up to the difference.
        if gate.on == "point" and not found.adjusted_by and before is not None and after is not None:
            size += f" ({before:.3f} → {after:.3f})"
        if drop < 0:
            limit_text = f"a {'drop' if _sign(gate) > 0 else 'rise'} of {limit_text}"
        against = f"{moved} {size} against {found.baseline}{found.among}"
        sentence = f"{_label(gate)} of {found.candidate} {against}; the gate allows {limit_text}"
        sentence += "; these numbers are not to be trusted" if found.doubt else ""
        yield _row_of_gate(gate, row, name, sentence, drop, limit, limit - drop)


_BOUND = "bound"
#: What a gate looks at -> what it says of a metric that falls, and of one that rises.
_MOVED = doors.data_of(__name__, "moved")


def _row_of_gate(
    gate: Gate, row: sch.Row, name: str, sentence: str, observed: float | None, limit: float, margin: float | None
) -> sch.Check:
    """A number against the limit of a gate; what has no number keeps no limit."""
    is_kept = margin is not None and -margin <= _ROUNDING * max(1.0, abs(limit))
    status, metric = sch.OK if is_kept else sch.FAIL, str(gate.metric)
    return sch.Check(name, status, sentence, row[sch.EXPERIMENT], observed, limit, margin, gate.segment, metric)


def _label(gate: Gate) -> str:
    """What people call the metric, with the segment."""
    label = fd.label_of(gate.metric)
    return label if gate.segment == sch.EVERYONE else f"{label} in {gate.segment}"
