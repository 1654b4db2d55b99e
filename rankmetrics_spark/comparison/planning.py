"""Before a test: by which day it finds which effect, from the stored days of the same users."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from rankmetrics_spark.comparison.forecasts import arrivals, differences
from rankmetrics_spark.comparison.measures import said
from rankmetrics_spark.comparison.periods import published_days, refuse_missing
from rankmetrics_spark.comparison.table import UserTable, check_column
from rankmetrics_spark.config import Comparison, Days, count, dates_in_words, refuse
from rankmetrics_spark.engines import AnyTable, few_rows, spark_table, told_as_read
from rankmetrics_spark.errors import ConfigError, InputError, unknown
from rankmetrics_spark.metrics import Metric
from rankmetrics_spark.schemas import CONVENTION_HASH, DATE, EXPERIMENT, TEST_NAME
from rankmetrics_spark.statistics import FURTHEST, Arrivals, Design, first_day
from rankmetrics_spark.words import UNITS

#: Days of a plan at most.
MOST_DAYS = 1000
#: Days of a plan that names none, if the stored days allow to expect so many.
USUAL_DAYS = 14


@dataclass(frozen=True)
class Plan:
    """By which day a test finds which effect.

    Attributes:
        metric: Name of the metric.
        days: The stored days.
        mean: The metric's mean over the users, or lists, of these days; with ``baseline``, that of the baseline.
        rows: One per day. ``day``: its number. ``date``: the stored day; None for an expected one. ``basis``:
            ``measured`` or ``expected``. ``users``: distinct users of the whole test until then.
            ``standard_deviation`` of their means, after CUPED where there are earlier days. ``smallest_effect`` that
            one look on this day finds with the chosen power, and ``smallest_relative_effect``, a share of the mean; the
            same ``_any_look`` for intervals that are valid at every look. None where not even the largest change that
            the metric allows is found.
        users_error: How far off the rule for users is: what the first half of the stored days expects of the last one,
            as a share of the users that were stored, less 1; None below four stored days.
        effect: The effect that was asked for, in the metric's unit, or None.
        days_needed: The first day on which one look finds it; None if that is beyond ``furthest``.
        days_needed_any_look: The same for intervals that are valid at every look.
        users_needed: Users of the whole test by this day; where no day is known, what one look needs to find it.
        furthest: The last day that the stored ones allow to expect.
        design: How the test is planned.
        without: Days between the stored ones that are published without the metric.
        units: What people call the users, or the clusters of a column.
        over: What means are over: ``users`` or ``lists``.
    """

    metric: str
    days: Days
    mean: float
    rows: tuple[dict[str, Any], ...]
    users_error: float | None
    effect: float | None
    days_needed: int | None
    days_needed_any_look: int | None
    users_needed: int | None
    furthest: int
    design: Design
    without: tuple[str, ...] = ()
    units: str = field(default_factory=lambda: str(UNITS), repr=False)
    over: str = "users"

    @property
    def test(self) -> str:
        """What a smallest change is, in words."""
        shares = " / ".join(f"{100 * share:.3g}" for share in self.design.shares)
        who = f"{shares} % of the {self.units}" if len(self.design.shares) > 1 else f"the same {self.units} in both"
        n, corrected = self.design.comparisons, "not corrected for further comparisons"
        if n > 1:
            corrected = f"corrected: at the smallest step of {n} comparisons, a level of {self.design.level:.3g}"
        over, power, level = " over lists" * (self.over == "lists"), self.design.power, self.design.confidence
        test = said("plan", plan=self, over=over, who=who, power=100 * power, level=100 * level, corrected=corrected)
        is_possible = all(row["smallest_effect_any_look"] for row in self.rows)
        return test if is_possible else f"{test}; -: too few {self.units} to find even the largest possible change"

    @property
    def basis(self) -> str:
        """What is measured, what is expected, and how far off that is, in words."""
        stored, last = len(self.days.dates), len(self.rows)
        unpublished = replace(self.days, dates=(*self.days.dates, *self.without)).gap
        lacking = f"{self.metric} was not stored on {dates_in_words(self.without)}" if self.without else ""
        gap = "".join(f"; {part}" for part in (unpublished, lacking) if part)
        if last <= stored:
            return f"measured on {self.days.text}{gap}"
        later = f"day {last} is" if last == stored + 1 else f"days {stored + 1} to {last} are"
        later += f" expected, with a lower bound of the new {self.units}"
        if self.users_error is None:
            return f"measured on {self.days.text}{gap}; {later}"
        off = f"{abs(100 * self.users_error):.1f} % {'fewer' if self.users_error < 0 else 'more'} {self.units}"
        check = f"from the first {stored // 2} days the same rule expects {off} by day {stored} than came"
        return f"measured on {self.days.text}{gap}; {later}; {check}"

    @property
    def answer(self) -> str:
        """By which day the effect that was asked for is found, in words; empty if none was."""
        if self.effect is None:
            return ""
        share = f" ({100 * self.effect / self.mean:.3g} %)" if self.mean > 0 else ""
        change = f"a change of {self.effect:.3g}{share} in {self.metric}"
        is_measured = self.days_needed is not None and self.days_needed <= len(self.days.dates)
        needed = f"{self.users_needed:,}" if is_measured else f"about {_rounded(self.users_needed or 0):,}"
        needed += f" {self.units}"
        found = f"to be found with a probability of {100 * self.design.power:.3g} %"
        if self.days_needed is None:
            limit = f"within {self.furthest} days"
            more = f", {FURTHEST} times the stored ones" if self.furthest > 1 else ", the only stored one"
            return f"{change} is not found {limit}{more}: it needs {needed} {found}"
        at_any, last = self.days_needed_any_look, _in_words(self.furthest)
        days = _in_words(self.days_needed) + ("" if is_measured else " or fewer")
        looks = f"more than {last}" if at_any is None else _in_words(at_any)
        at_once = f"{change} takes {days} ({needed}) {found}, looked at once"
        return f"{at_once}; with intervals that are valid at every look, {looks}"

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        needed = ("effect", "days_needed", "days_needed_any_look", "users_needed", "furthest", "users_error")
        return {
            "metric": self.metric,
            "mean": self.mean,
            "stored_days": list(self.days.dates),
            "missing_days": list(self.days.missing),
            "level": self.design.level,
            **{name: getattr(self, name) for name in needed},
            "days": list(self.rows),
        }


@told_as_read
def plan(
    user_metrics: AnyTable,
    metric: str | Metric,
    days: int | None = None,
    effect: float | str | None = None,
    users: int | None = None,
    *,
    shares: Sequence[float] = (0.5, 0.5),
    dates: tuple[str | None, str | None] | None = None,
    before: tuple[str, str] | None = None,
    experiment: str | None = None,
    confidence: float = 0.95,
    power: float = 0.8,
    tuning_users: int = 10_000,
    comparisons: int = 1,
    baseline: str | None = None,
    mean_over: str = "users",
    cluster: str | None = None,
) -> Plan:
    """How long does a test have to run? From per-user metrics of stored days; runs small jobs at once.

    Distinct users and the spread of their means are measured by each stored day and expected for later ones: see
    docs/comparing.md. The test is that of different users in both experiments, unless there is a ``baseline``.

    Args:
        user_metrics: One row per (experiment_id, user_id, evaluation_date): ``read(spark, "out/user_metrics")``.
        metric: A metric that has a column, such as ``ndcg@10``.
        days: How many days the test may run; by default 14, or as many as the stored days allow to expect.
        effect: An effect to find: ``"0.5%"`` of the mean, or a number in the metric's unit.
        users: Users of the whole test who have a value by its last day, if they are not those of the stored days.
        shares: Of all users, those of the baseline and of the candidate.
        dates: First and last stored day; None for the first or the last one there is, without those of ``before``.
        before: First and last of earlier days, whose values CUPED takes away.
        experiment: Only users of this experiment; by default of all, each in the experiment of their first day, of
            several the first by name.
        confidence: Of the intervals.
        power: Probability of finding the effect.
        tuning_users: Users at which intervals that are valid at every look are tightest.
        comparisons: How many p-values are corrected together: the level is that of the smallest step of Holm and of
            Benjamini-Hochberg.
        baseline: Plan a paired replay, from the differences of ``experiment`` from it of the same users.
        mean_over: ``lists``: plan a mean over all lists.
        cluster: A column whose values, such as households, will be assigned as a whole; users are clusters then.

    Returns:
        One row per day, and when the effect is found.

    Raises:
        ConfigError: A wrong argument, or more days than the stored ones allow to expect.
        InputError: There are no such days, or a single user.
    """
    by_lists = Comparison.read({"confidence": confidence, "power": power, "mean_over": mean_over}).mean_over == "lists"
    design = Design(_shares(shares), confidence, power, tuning_users, comparisons)
    count(1, 10**12)("tuning_users", tuning_users)
    count(1, 10**6)("comparisons", comparisons)
    if before is not None and (by_lists or cluster is not None):
        raise refuse("before", [*before], "null with mean_over: lists or cluster: CUPED works with one value per user")
    if baseline is not None and (experiment is None or design.shares != (0.5, 0.5)):
        raise refuse("baseline", baseline, "null, or one with experiment, the candidate, and without shares")
    if days is not None:
        count(1, MOST_DAYS)("days", days)
    if users is not None:
        count(4, 10**12)("users", users)
    table = spark_table(user_metrics, "user_metrics")
    chosen = UserTable.of(table, [metric]).metrics[0]
    refuse_missing(table)
    if TEST_NAME in table.columns and experiment is None:
        raise ConfigError(said("no_arm_to_plan"))
    kept = [] if cluster is None else [cluster]
    for name in kept:
        check_column(table.columns, name, "cluster")
    of_baseline = None if baseline is None else _of_experiment(table, baseline)
    own = _of_experiment(table, experiment)
    if baseline is not None:
        pair, design = (baseline, str(experiment)), replace(design, shares=(1.0,))
        own = differences(table, chosen, pair, *kept, *[CONVENTION_HASH] * (CONVENTION_HASH in table.columns))
    earlier = None if before is None else published_days(own, *before, "before")
    stored, without = _stored_days(own, chosen, dates or (None, None), earlier)
    growth = arrivals(own, chosen, stored, earlier, by_lists, cluster)
    if of_baseline is not None:
        growth = replace(growth, mean=arrivals(of_baseline, chosen, stored, None, by_lists).mean)
    if not growth.users[-1] >= 2:
        raise InputError(said("one_user", days=stored, n=growth.users[-1], metric=chosen))
    if not growth.variance[-1] > 0:
        raise InputError(said("no_spread", days=stored, metric=chosen))
    most = max(growth.furthest, growth.days)
    days = min(USUAL_DAYS, most) if days is None else days
    if days > most:
        more = f"{FURTHEST} times the stored days" if growth.days > 1 else "since one day does not say who comes back"
        raise ConfigError(f"days is {days}, and {_in_words(growth.days)} {'is' if growth.days == 1 else 'are'} stored; "
                          f"allowed: up to {growth.furthest}, {more}")  # fmt: skip
    result = planned(chosen, stored, growth, design, (days, effect, users))
    units = result.units if cluster is None else f"clusters of {cluster}"
    return replace(result, without=without, units=units, over=mean_over)


def planned(
    metric: Metric, stored: Days, growth: Arrivals, design: Design, limits: tuple[int, float | str | None, int | None]
) -> Plan:
    """The plan from what stored days say; ``limits`` are days, effect and users, as ``plan`` takes them."""
    days, effect, n_users = limits
    mean, furthest = float(growth.mean[-1]), max(growth.furthest, days)
    users = growth.users_by(furthest)
    if n_users is not None:
        users = users * n_users / users[days - 1]
    _, variance = growth.variances_by(furthest)
    effects = design.smallest_effects(users, variance)
    # An effect that the metric does not allow is none.
    once, any_look = (np.where(each > metric.room(mean), np.nan, each) for each in effects)
    rows = tuple(
        {
            "day": i + 1,
            "date": stored.dates[i] if i < growth.days else None,
            "basis": "measured" if i < growth.days else "expected",
            "users": round(float(users[i])),
            "standard_deviation": _known(math.sqrt(variance[i])),
            "smallest_effect": _known(once[i]),
            "smallest_relative_effect": _known(once[i] / mean if mean > 0 else np.nan),
            "smallest_effect_any_look": _known(any_look[i]),
            "smallest_relative_effect_any_look": _known(any_look[i] / mean if mean > 0 else np.nan),
        }
        for i in range(days)
    )
    answers: tuple[float | None, int | None, int | None, int | None] = (None, None, None, None)
    if effect is not None:
        target = effect_of(effect, mean, metric)
        at = first_day(once, target)
        needed = round(float(users[at - 1])) if at else design.users_needed(target, float(variance[-1]))
        answers = (target, at, first_day(any_look, target), needed)
    return Plan(str(metric), stored, mean, rows, growth.users_error, *answers, furthest, design)


def _rounded(users: int) -> int:
    """Three digits: what is expected is no surer than that.

    >>> _rounded(424_335), _rounded(1_947), _rounded(85)
    (424000, 1950, 85)
    """
    return round(users, min(0, 3 - len(str(users))))


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _in_words(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"


def _shares(shares: Sequence[float]) -> tuple[float, float]:
    numbers = [share for share in shares if isinstance(share, (int, float)) and 0 < share < 1]
    if len(numbers) != 2 or len(shares) != 2 or sum(numbers) > 1 + 1e-9:
        raise ConfigError(said("two_shares", shares=list(shares)))
    return float(numbers[0]), float(numbers[1])


def effect_of(effect: float | str, mean: float, metric: Metric) -> float:
    """The effect in the metric's unit."""
    text = str(effect).strip()
    allowed = "allowed: a share of the mean such as 0.5%, or a number above 0 in the metric's unit"
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if isinstance(effect, bool) or not 0 < value < math.inf:
        raise ConfigError(f"effect is '{effect}'; {allowed}")
    if text.endswith("%") and not mean > 0:
        raise ConfigError(said("share_of_nothing", effect=effect, mean=mean))
    size, room = value / 100 * mean if text.endswith("%") else value, metric.room(mean)
    if size > room:
        raise ConfigError(said("impossible_effect", effect=effect, metric=metric, mean=mean, room=room))
    return size


def _of_experiment(table: DataFrame, experiment: str | None) -> DataFrame:
    if experiment is None:
        return table
    rows = table.where(table[EXPERIMENT].cast("string") == experiment)
    if rows.isEmpty():
        known = [str(row[0]) for row in few_rows(table.select(EXPERIMENT).distinct())]
        raise ConfigError(unknown("experiment", experiment, sorted(known)))
    return rows


def _stored_days(
    table: DataFrame, metric: Metric, dates: tuple[str | None, str | None], earlier: Days | None
) -> tuple[Days, tuple[str, ...]]:
    """The stored days of a plan from the first to the last with a value, and those between without one.

    They are those of ``dates``, by default all after the earlier days. A run may have had other metrics: what nobody
    has measured is no day without new users.
    """
    first, last = dates
    if first is None or last is None:
        later = table if earlier is None else table.where(table[DATE].cast("string") > earlier.last)
        (row,) = few_rows(later.selectExpr(f"string(min({DATE}))", f"string(max({DATE}))"))
        if row[0] is None:
            after = f" after {earlier.last}" if earlier else ""
            raise InputError(f"user_metrics has no stored day{after}; allowed: the output of earlier runs")
        first, last = first or str(row[0]), last or str(row[1])
    stored = published_days(table, first, last)
    if earlier is not None and earlier.last >= stored.first:
        raise ConfigError(said("not_before", earlier=earlier, stored=stored))
    valued = table.where(f"{metric.column} IS NOT NULL").selectExpr(f"string({DATE})").distinct()
    known = {str(row[0]) for row in few_rows(valued)}
    measured = tuple(date for date in stored.dates if date in known)
    if not measured:
        return stored, ()
    between = tuple(date for date in stored.dates if measured[0] < date < measured[-1] and date not in known)
    return Days(measured[0], measured[-1], measured), between
