"""What comparisons say: a row of ``comparisons`` as typed numbers, the state it is in, and the words for both.

No other module of a report knows the names of the columns. No pyspark.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from rankmetrics_spark import metrics as mx, schemas as sch
from rankmetrics_spark.words import UNIT, UNITS, Change, Level, p_value

Row = sch.Row
Metrics = Sequence[mx.Metric]
T = TypeVar("T")
K = TypeVar("K")


class Side(NamedTuple):
    """An experiment in a comparison: what is counted of it."""

    name: str
    mean: float | None
    n_users: Any
    n_lists: Any
    n_members: Any


class Numbers(NamedTuple):
    """A difference with its interval; None where there is none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Both bounds; None where one is missing."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval says that the difference is not 0; None without one."""
        return None if self.low is None or self.high is None else self.low > 0 or self.high < 0

    def change(self, factor: int = 1, unit: str = "") -> Change | None:
        """The same for people; None where there is no difference."""
        if self.value is None:
            return None
        low, high = sorted(factor * bound for bound in self.bounds) if self.bounds else (None, None)
        return Change(factor * self.value, unit, low, high)


#: The part of a note that names the missing dates of a period: ``Days.gap``.
_GAP = re.compile(r"[0-9]+ of [0-9]+ days (?:is|are) not published: .+")


@dataclass(frozen=True)
class Finding:
    """One row of ``comparisons``, or of ``effect_over_time``: what is not there is None, as is what is no number.

    Fields have the names of the columns, which docs/tables.md explains, but for these:

    Attributes:
        row: The whole row, with None for what is no number, for tables that list its columns.
        candidate: The column ``experiment_id``.
        at: The column ``label`` of ``effect_over_time``.
    """

    row: Row = field(repr=False)
    candidate: str = ""
    baseline: str = ""
    segment: str = sch.EVERYONE
    metric: str = ""
    test: str | None = None
    design: str | None = None
    role: str | None = None
    wins: int = 0
    ties: int = 0
    losses: int = 0
    ci_low: float | None = None
    p_value: float | None = None
    looks: str | None = None
    look: int | None = None
    p_sequential: float | None = None
    margin: float | None = None
    relative_margin: float | None = None
    worst_case: float | None = None
    relative_worst_case: float | None = None
    p_no_worse: float | None = None
    p_equivalent: float | None = None
    within_margin: str | None = None
    adjusted_minimum_detectable_effect: float | None = None
    share_changed: float | None = None
    trigger: str | None = None
    share_triggered_baseline: float | None = None
    share_triggered_candidate: float | None = None
    p_share_triggered: float | None = None
    p_untriggered: float | None = None
    share_with_value_baseline: float | None = None
    share_with_value_candidate: float | None = None
    p_share_with_value: float | None = None
    cap: float | None = None
    n_judged: int | None = None
    better: str | None = None
    note: str = ""
    confidence: float = 0.95
    p_adjusted: float | None = None
    correction: str = "none"
    family: str | None = None
    n_comparisons: int | None = None
    adjusted_ci_low: float | None = None
    power: float | None = None
    n_users: int = 0
    n_users_both: int | None = None
    cluster: str | None = None
    mean_over: str | None = None
    sample_ratio_p: float | None = None
    difference: float | None = None
    relative_difference: float | None = None
    p_rest_adjusted: float | None = None
    evaluation_date: str = ""
    period_from: str | None = None
    period_to: str | None = None
    n_days: int | None = None
    kind: str = ""
    at: str = ""
    day_number: int | None = None

    @classmethod
    def of(cls, row: Row) -> "Finding":
        """The finding of a row of ``comparisons`` or of ``effect_over_time``."""
        ((row, cells),) = sch.typed([row], _FIELDS, _NAMES)
        return cls(row, **cells)

    def _numbers(self, cell: Callable[[Row, str], Any], prefix: str = "") -> Numbers:
        return Numbers(*(cell(self.row, prefix + name) for name in ("difference", "ci_low", "ci_high")))

    @cached_property
    def shown(self) -> Numbers:
        """The difference as people see it: of the test that decides, with the interval that agrees with the decision.

        Rows that were written before there were such bounds have none where theirs say something else of 0 than
        ``p_adjusted``.

        >>> row = {"test": "welch", "difference": 0.1, "ci_low": 0.05, "ci_high": 0.15}
        >>> agreeing = Finding.of(row | {"adjusted_ci_low": -0.01, "adjusted_ci_high": 0.21})
        >>> agreeing.shown, agreeing.tested.low
        (Numbers(value=0.1, low=-0.01, high=0.21), 0.05)
        >>> Finding.of(row | {"p_adjusted": 0.3}).shown.low, Finding.of(row).shown.low
        (None, 0.05)
        """
        return self._numbers(_shown)

    @cached_property
    def shown_share(self) -> Numbers:
        """``shown`` as a share of the baseline."""
        return self._numbers(_shown, "relative_")

    @property
    def shown_row(self) -> dict[str, Any]:
        """The row with ``shown`` and ``shown_share`` in its columns."""
        names = (*sch.RELATIVE, "difference", "ci_low", "ci_high")
        return {**self.row, **dict(zip(names, (*self.shown_share, *self.shown), strict=True))}

    @cached_property
    def tested(self) -> Numbers:
        """The difference of the test that decides, with the interval of one comparison.

        >>> row = {"test": "welch", "difference": 0.1, "cuped_difference": 0.2, "ci_low": 0.05}
        >>> Finding.of(row).tested.value, Finding.of(row | {"test": sch.CUPED}).tested.value
        (0.1, 0.2)
        >>> Finding.of(row | {"looks": "any", "sequential_ci_low": -0.01}).tested.low
        -0.01
        >>> Finding.of(row | {"test": "hall", "sparse_ci_low": 0.02}).tested.low
        0.02
        """
        return self._numbers(_tested)

    @cached_property
    def tested_share(self) -> Numbers:
        """``tested`` as a share of the baseline."""
        return self._numbers(_tested, "relative_")

    @property
    def tested_p(self) -> float | None:
        """The p-value of the test that decides, not corrected; of looks, over all of them."""
        p: float | None = _tested(self.row, "p_value") if self.p_sequential is None else self.p_sequential
        return p

    def further(self, prefix: str = "") -> Numbers:
        """The difference of the t-test, whether it decides or not; or that of ``cuped_`` and the like."""
        return self._numbers(Mapping.get, prefix)

    @property
    def sides(self) -> tuple[Side, Side]:
        """What is counted of baseline and candidate."""
        get, names = self.row.get, ("n_users", "n_lists", "n_members")
        baseline, candidate = (
            Side(name, mean, *(get(f"{n}_{side}") for n in names))
            for name, mean, side in zip(self.pair[::-1], self.means, ("baseline", "candidate"), strict=True)
        )
        return baseline, candidate

    @property
    def means(self) -> tuple[float | None, float | None]:
        """The means of baseline and candidate."""
        return self.row.get("mean_baseline"), self.row.get("mean_candidate")

    @cached_property
    def pair(self) -> tuple[str, str]:
        """The candidate and its baseline."""
        return self.candidate, self.baseline

    @property
    def ranks(self) -> dict[str, tuple[int, int]]:
        """Experiment -> the best and the worst rank that it may have, where these are known.

        >>> Finding.of({"experiment_id": "b", "baseline": "a", "rank_low": 1, "rank_high": 2}).ranks
        {'b': (1, 2)}
        """
        ends = {self.baseline: "_baseline", self.candidate: ""}
        of_each = {name: [self.row.get(f"rank_{to}{end}") for to in ("low", "high")] for name, end in ends.items()}
        return {name: (int(low), int(high)) for name, (low, high) in of_each.items() if low and high}

    @property
    def is_of_all(self) -> bool:
        """Whether it is about all users."""
        return self.segment == sch.EVERYONE

    @cached_property
    def label(self) -> str:
        """What people call the metric."""
        return label_of(mx.parse(self.metric))

    @property
    def level(self) -> float:
        """Below this p-value, a difference is shown."""
        return 1 - self.confidence

    @property
    def remark(self) -> str:
        """Its note without the missing dates of its period, which are said once for all rows.

        >>> Finding({}, note="the interval is too wide; 1 of 3 days is not published: 2026-11-09; no test").remark
        'the interval is too wide; no test'
        """
        return "; ".join(part for part in self.note.split("; ") if not _GAP.fullmatch(part))

    @cached_property
    def why(self) -> str:
        """Why the numbers cannot be trusted; empty where they can.

        >>> [Finding({}, note=f"{text}2 users are in both").why for text in ("not trustworthy: ", "")]
        ['2 users are in both', '']
        """
        return self.note.removeprefix(f"{sch.NOT_TRUSTED}: ") if self.note.startswith(sch.NOT_TRUSTED) else ""

    @property
    def doubt(self) -> str:
        """The note that says why the numbers cannot be trusted; empty where they can."""
        return self.note if self.why else ""

    @property
    def trust(self) -> Level:
        """``warn`` where the numbers cannot be trusted, ``none`` where there is no test, else ``ok``."""
        return "warn" if self.why else "none" if self.p_adjusted is None else "ok"

    @cached_property
    def state(self) -> str:
        """What it says of its candidate: one of ``STATES``."""
        if self.trust != "ok":
            return "doubtful"
        return {"candidate": "better", "baseline": "worse"}.get(self.better or "", "open")

    @property
    def winner(self) -> tuple[str, str] | None:
        """The experiment that is better, and the other one; None where neither is."""
        return {"candidate": self.pair, "baseline": self.pair[::-1]}.get(self.better or "")

    @property
    def is_guardrail(self) -> bool:
        """Whether the metric is a guardrail."""
        return self.role == sch.GUARDRAIL

    @property
    def is_lost_guardrail(self) -> bool:
        """Whether the candidate clearly loses on a guardrail."""
        return self.is_guardrail and self.better == "baseline"

    @property
    def among(self) -> str:
        """Which users are tested, where these are only the ones whose lists differ or could; else empty.

        >>> Finding.of({"share_changed": 0.123, "design": "paired"}).among, Finding.of({"share_changed": None}).among
        (' among the 12 % of users whose lists changed', '')
        """
        some = self.share_changed if self.trigger is None else self.share_triggered_candidate
        return "" if some is None else f" among the {sch.share(some)} of {UNITS} {self.whose}"

    @property
    def narrower(self) -> str:
        """What the changes are about, where the means are about more; else empty.

        >>> Finding.of({"cap": 20.0, "mean_over": "lists"}).narrower, Finding.of({"cap": 5.0}).narrower
        ('at most 20 lists of each user', 'values up to the cap')
        """
        if self.cap is not None:
            return f"at most {self.cap:g} lists of each {UNIT}" if self.over_lists else "values up to the cap"
        return f"the {UNITS} {self.whose}" if self.among else ""

    @property
    def whose(self) -> str:
        """What the users are known by who are tested, where not all are."""
        if self.trigger is not None:
            return f"with {self.trigger}"
        return "" if self.share_changed is None else "whose lists changed"

    @property
    def units(self) -> str:
        """What people call the units of the comparison.

        >>> Finding.of({}).units, Finding.of({"cluster": "household"}).units
        ('users', 'clusters of household')
        """
        return str(UNITS) if self.cluster is None else f"clusters of {self.cluster}"

    @property
    def over_lists(self) -> bool:
        """Whether means are over lists instead of users."""
        return self.mean_over == "lists"

    @cached_property
    def is_percentage(self) -> bool:
        """Whether it can be told in percent of its baseline.

        It cannot where the baseline's mean is not above 0. Nor can it where the difference has an interval and the
        ratio has none, or one that says something else of 0.
        """
        if (self.means[0] or 0.0) <= 0 or self.tested_share.value is None:
            return False
        return self.shown.excludes_zero == self.shown_share.excludes_zero

    def change(self, in_percent: bool | None = None) -> Change | None:
        """The change that people see, by the test that decides; None where there is no difference."""
        if self.is_percentage if in_percent is None else in_percent:
            return self.shown_share.change(100, " %")
        return self.shown.change()

    @property
    def is_widened(self) -> bool:
        """Whether the interval that is shown is wider than that of the same test alone.

        >>> row = {"test": "welch", "ci_low": 0.05, "ci_high": 0.15, "adjusted_ci_low": -0.01}
        >>> [Finding.of(row | more).is_widened for more in ({}, {"adjusted_ci_low": 0.05}, {"adjusted_ci_low": None})]
        [True, False, False]
        """
        low, alone = self.adjusted_ci_low, self.tested.low
        return low is not None and alone is not None and low < alone

    @property
    def means_in_words(self) -> tuple[str, str] | None:
        """The means of baseline and candidate, with the digits that show how they differ."""
        before, after = self.means
        if before is None or after is None:
            return None
        digits = next((n for n in range(3, 7) if abs(after - before) >= 10.0 ** (1 - n)), 3 if before == after else 6)
        return f"{before:.{digits}f}", f"{after:.{digits}f}"

    @property
    def adjusted_by(self) -> str:
        """What the numbers of the test are, if they are not those of the means; else empty."""
        return sch.ADJUSTED_BY.get(self.test or "", ("",))[0]

    @property
    def movement(self) -> str:
        """From which mean to which, or with CUPED the difference: the means are those without it.

        >>> Finding.of({"mean_baseline": 0.4388, "mean_candidate": 0.5477, "test": "welch"}).movement
        '0.439 \N{RIGHTWARDS ARROW} 0.548'
        >>> Finding.of({"test": sch.CUPED, "cuped_difference": 0.0123}).movement
        '+0.0123'
        """
        if self.adjusted_by:
            return "" if self.tested.value is None else Change(self.tested.value, "").plain
        return " \N{RIGHTWARDS ARROW} ".join(self.means_in_words or ())

    @property
    def p(self) -> str:
        """The corrected p-value in words."""
        return p_value(self.p_adjusted or 0.0, self.level)

    @property
    def with_power(self) -> str:
        """How likely the test finds what it can find; empty where that is not stored.

        >>> Finding.of({"power": 0.8}).with_power, Finding.of({}).with_power
        (' with a probability of 80 %', '')
        """
        return "" if self.power is None else f" with a probability of {100 * self.power:.3g} %"

    def detectable(self, in_percent: bool | None = None) -> str:
        """The change that the corrected test finds with its power, never rounded down; empty where it is unknown.

        >>> row = {"test": sch.STRATA, "mean_baseline": 0.3, "adjusted_minimum_detectable_effect": 0.03}
        >>> row |= {"strata_difference": 0.04, "strata_relative_difference": 0.1}  # of 0.4 within the strata
        >>> Finding.of(row).detectable(in_percent=True)
        '7.5 %'
        """
        effect, unit = self.adjusted_minimum_detectable_effect, ""
        if not effect:  # Without a spread, what the test could find is unknown.
            return ""
        if self.is_percentage if in_percent is None else in_percent:
            base, share = self.means[0] or 0.0, self.tested_share.value
            if self.test == sch.STRATA and share:
                base = (self.tested.value or 0.0) / share
            effect, unit = 100 * effect / base, " %"
        digits = Change(effect, unit).digits
        return f"{math.ceil(round(effect * 10**digits, 6)) / 10**digits:.{digits}f}{unit}"

    @property
    def too_few(self) -> str:
        """What the users are, where the corrected test finds no change that the metric allows; else empty.

        >>> row = {"metric": "ap@10", "mean_baseline": 0.3, "power": 0.8}
        >>> [Finding.of({**row, "adjusted_minimum_detectable_effect": effect}).too_few for effect in (0.7, 0.71, None)]
        ['', 'too few to find even the largest possible change with a probability of 80 %', '']
        """
        effect = self.adjusted_minimum_detectable_effect
        is_possible = not effect or effect <= mx.parse(self.metric).room(self.means[0] or 0.0)
        return "" if is_possible else f"too few to find even the largest possible change{self.with_power}"

    @property
    def valid_at(self) -> str:
        """The looks that interval and p-value hold for; empty for a single one, and beyond the plan.

        >>> [Finding.of({"looks": looks}).valid_at for looks in ("any", "6 of 14, pocock", None)]
        ['valid at every look', 'valid at look 6 of 14', '']
        >>> [Finding.of({"looks": looks}).valid_at for looks in ("15 of 14, pocock", "? of 14, pocock")]
        ['', '']
        """
        if self.looks is None or self.looks == "any":
            return "valid at every look" if self.looks else ""
        look, _, planned = (of := self.looks.split(",")[0]).partition(" of ")
        return f"valid at look {of}" if look.isdigit() and int(look) <= int(planned) else ""


_NAMES = {sch.EXPERIMENT: "candidate", "label": "at"}
_FIELDS = {each.name for each in fields(Finding)}


def p_or_last(row: Row) -> float:
    """The corrected p-value, or a number above every p-value where there is none."""
    p = sch.number(row.get("p_adjusted"))
    return 2.0 if p is None else p


def surest_first(row: Row) -> tuple[Any, ...]:
    """Sort key of rows of a table: those of all users first, then by p-value, those without one last."""
    names = str(row[sch.EXPERIMENT]), str(row.get(sch.BASELINE))
    return row[sch.SEGMENT] != sch.EVERYONE, p_or_last(row), *names, row[sch.METRIC], row[sch.SEGMENT]


def findings(rows: Iterable[Row]) -> list[Finding]:
    """Rows of ``comparisons`` as findings."""
    return [Finding(row, **cells) for row, cells in sch.typed(rows, _FIELDS, _NAMES)]


def of_all(found: Iterable[Finding]) -> list[Finding]:
    """Those about all users."""
    return [each for each in found if each.is_of_all]


def _tested(row: Row, name: str) -> Any:
    """A number of the test that decides the row."""
    if name in sch.BOUNDS and row.get(sch.LOOKS) is not None:
        return row.get(f"{sch.SEQUENTIAL}_{name}")
    test = row.get("test")
    own = f"{sch.SPARSE if test in sch.SPARSE_TESTS else test}_{name}"
    return row.get(own if own in row else name)


def _shown(row: Row, name: str) -> Any:
    """A number as people see it: a bound is one that agrees with the decision."""
    if name not in sch.BOUNDS:
        return _tested(row, name)
    if row.get(f"{sch.ADJUSTED}_ci_low") is not None:
        return row.get(f"{sch.ADJUSTED}_{name}")
    prefix, p = name.removesuffix("low").removesuffix("high"), row.get("p_adjusted")
    low, high = (_tested(row, f"{prefix}{side}") for side in ("low", "high"))
    agrees = p is None or low is None or high is None or (low > 0 or high < 0) == (p < 1 - row.get("confidence", 0.95))
    return _tested(row, name) if agrees else None


def label_of(metric: mx.Metric) -> str:
    """What people call the metric.

    >>> label_of(mx.parse("ndcg@10")), label_of(mx.parse("ap"))
    ('NDCG@10', 'MAP')
    """
    return metric.headline.removeprefix("mean ")


def all_percentages(found: Iterable[Finding]) -> bool:
    """Whether findings that stand on one axis can all be told in percent; those without a difference do not count."""
    return all(each.is_percentage for each in found if each.difference is not None)


def grouped(each: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Key -> what has it, in one pass; with a pass for each of hundreds of metrics, work grows with their square."""
    groups: dict[K, list[T]] = {}
    for one in each:
        groups.setdefault(key(one), []).append(one)
    return groups


def by_metric(found: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Metric -> its findings."""
    return grouped(found, lambda each: each.metric)


def by_comparison(found: Iterable[Finding]) -> dict[tuple[str, str, str], list[Finding]]:
    """Candidate, baseline and metric -> their findings, of all users and of segments."""
    return grouped(found, lambda each: (*each.pair, each.metric))


def by_pair(found: Iterable[Finding]) -> dict[tuple[str, str], list[Finding]]:
    """Candidate and baseline -> their findings."""
    return grouped(found, lambda each: each.pair)


def by_columns(found: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Columns of a segment, as its label names them -> the findings of their segments."""
    return grouped(found, lambda each: sch.segment_columns(each.segment))


def by_test(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Test -> its rows of a table, in the order of names; empty where experiments are no arms of tests."""
    of_tests = (row for row in rows if row.get(sch.TEST_NAME) is not None)
    return dict(sorted(grouped(of_tests, lambda row: str(row[sch.TEST_NAME])).items()))


NEWS = ("worse", "doubtful", "open", "better")


def news_of(found: Iterable[Finding]) -> str:
    """The worst state of the metrics that decide; a guardrail that is lost is as bad as one of these.

    >>> news_of([]), news_of([Finding({}, role="primary", p_adjusted=0.5), Finding({}, role="secondary")])
    ('open', 'open')
    """
    states = {each.state for each in of_all(found) if each.role == sch.PRIMARY or each.is_lost_guardrail}
    return next((state for state in NEWS if state in states), "open")


def primary_names(found: Iterable[Finding]) -> set[str]:
    """The primary metrics of findings."""
    return {each.metric for each in found if each.role == sch.PRIMARY}
