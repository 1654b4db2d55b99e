"""After how many more days an open comparison could find an effect: arithmetic, and the sentences."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from rankmetrics_spark.comparison import Outlook, outlook
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.report import outlook_sentence
from rankmetrics_spark.statistics import Arrivals, round_below, spending_bounds
from tests.helpers.messages import messages

GATE = (0.03, None, "the limit of a gate")
ONE = Comparison.read({"baseline": "a"})


def new_each_day(days: int = 10) -> Arrivals:
    """1,000 users a day, who never come back."""
    users, ones = 1_000.0 * np.arange(1, days + 1), np.ones(days)
    return Arrivals(users, users, 0 * users, ones, ones, ones, ones, math.nan)


def a_row(**more: Any) -> dict[str, Any]:
    return {
        "experiment_id": "b",
        "baseline": "a",
        "metric": "ndcg@10",
        "n_users": 20_000,
        "n_comparisons": 1,
        "adjusted_minimum_detectable_effect": 0.04,
        "looks": None,
        "power": 0.8,
    } | more


def outlook_of(row: dict[str, Any], rate: Arrivals, effect: float = 0.03, section: Comparison = ONE) -> Outlook:
    each = outlook(row, rate, section, (effect, None, "the limit of a gate"))
    assert each is not None
    return each


def test_users_who_arrive_at_the_same_rate_shrink_the_effect_with_their_root() -> None:
    # (0.04 / 0.03)**2 = 1.78 times the users: 17.8 days of 10, so the eighth further day, with 18,000 for 10,000.
    open_row = outlook_of(a_row(), new_each_day())
    assert (open_row.days, open_row.furthest, open_row.has_new_users) == (8, 20, True)
    assert open_row.users == pytest.approx(20_000 * 1.8, rel=0.005)
    # (0.04 / 0.02)**2 = 4 times the users, and three times the days are expected.
    beyond = outlook_of(a_row(), new_each_day(), 0.02)
    assert beyond.days is None and beyond.users == pytest.approx(4 * 20_000, rel=0.005)
    # 30 days of users instead of 10.
    assert beyond.last_effect == pytest.approx(0.04 / math.sqrt(3), rel=0.005)


def test_where_everybody_is_there_already_only_the_spread_within_users_shrinks() -> None:
    days = np.arange(1, 5)
    # 1 between users, and 3 / days within, for users who come every day.
    users, zeros, variance = np.full(4, 500.0), np.zeros(4), 1 + 3 / days
    rate = Arrivals(users, zeros + (days == 1) * 500.0, zeros + (days == 2) * 500.0, zeros, variance, variance,
                    1 / days, 3.0)  # fmt: skip
    # On day 12: sqrt((1 + 3 / 12) / (1 + 3 / 4)) = 0.845 of what is found on day 4, and 0.9 on the third further day.
    assert outlook_of(a_row(), rate, 0.04 * 0.9).days == next(
        i for i in range(1, 9) if math.sqrt((1 + 3 / (4 + i)) / (1 + 3 / 4)) <= 0.9
    )
    last = outlook_of(a_row(), rate, 0.04 * 0.84)
    assert (last.days, last.has_new_users, last.furthest) == (None, False, 8)


def test_at_every_look_the_bound_changes_with_the_users() -> None:
    n, level, power = 20_000, 0.05 / 3, 0.9
    tuning = 1_000
    rho = tuning / (math.log(1 - 2 * math.log(0.05)) - 2 * math.log(0.05))

    def bound(users: float) -> float:
        return math.sqrt((users + rho) / users * math.log((users + rho) / (rho * level**2))) + norm.ppf(power)

    section = Comparison.read({"baseline": "a", "looks": "any", "tuning_users": tuning, "power": power})
    row = a_row(looks="any", n_comparisons=3)
    effects = [0.04 * math.sqrt(10 / (10 + i)) * bound(n * (10 + i) / 10) / bound(n) for i in range(1, 21)]
    for i in (3, 9, 17):
        # Between the effects of two days, where users who are a few per mille too few do not matter.
        middle = (effects[i] + effects[i - 1]) / 2
        assert outlook_of(row, new_each_day(), middle, section).days == i + 1
    one_look = [0.04 * math.sqrt(10 / (10 + i)) for i in range(1, 21)]
    assert effects[-1] > one_look[-1] * 1.002


def test_a_primary_metric_has_its_part_of_the_error() -> None:
    section = Comparison.read({"baseline": "a", "looks": "any", "primary_share": 0.5})
    n, level = 20_000, 0.05 * 0.5
    rho = section.tuning_users / (math.log(1 - 2 * math.log(0.05)) - 2 * math.log(0.05))

    def bound(users: float) -> float:
        of_looks = math.sqrt((users + rho) / users * math.log((users + rho) / (rho * level**2)))
        return max(of_looks, norm.isf(level / 2)) + norm.ppf(section.power)

    effects = [0.04 * math.sqrt(10 / (10 + i)) * bound(n * (10 + i) / 10) / bound(n) for i in range(1, 21)]
    last = outlook_of(a_row(looks="any"), new_each_day(), effects[-1] * 0.9, section)
    assert last.last_effect == pytest.approx(effects[-1], rel=1e-3)


def test_planned_looks_end_with_the_plan() -> None:
    section = Comparison.read({"baseline": "a", "looks": {"planned": 8, "spending": "obrien_fleming"}})
    bounds = spending_bounds(np.arange(1, 9) / 8, 0.025, "obrien_fleming") + norm.ppf(0.8)
    row = a_row(looks="4 of 8, obrien_fleming")
    effects = [0.04 * math.sqrt(10 / (10 + i)) * bounds[3 + i] / bounds[3] for i in range(1, 5)]
    for i in (1, 2, 3):
        assert outlook_of(row, new_each_day(), (effects[i] + effects[i - 1]) / 2, section).days == i + 1
    last = outlook_of(row, new_each_day(), effects[-1] * 0.99, section)
    assert (last.days, last.furthest) == (None, 4)
    assert outlook(a_row(looks="8 of 8, obrien_fleming"), new_each_day(), section, GATE) is None


def test_what_nobody_knows_has_no_outlook() -> None:
    rate = new_each_day()
    alone = Arrivals(rate.users, rate.once, rate.twice, rate.mean, rate.variance * np.nan, rate.residual,
                     rate.inverse_lists, math.nan)  # fmt: skip
    assert outlook(a_row(), alone, ONE, GATE) is None
    # In a third of the days' error, too: 3 / sqrt(3) is more than a mean from 0 to 1 can change.
    assert outlook(a_row(adjusted_minimum_detectable_effect=3.0), rate, ONE, GATE) is None


@pytest.mark.parametrize(
    ("found_today", "expected"),
    [(3.9, 2.5), (0.75, 0.5), (0.74, 0.4), (1.5, 1.0), (1.49, 0.8), (15, 10), (0.0016, 0.001), (2.25, 1.5), (12, 8)],
)
def test_the_effect_is_the_largest_round_number_of_at_most_two_thirds(found_today: float, expected: float) -> None:
    assert round_below(found_today) == expected


@pytest.mark.parametrize(("more", "sentence"), messages("an outlook"))
def test_the_outlook_in_words_promises_nothing(more: dict[str, Any], sentence: str) -> None:
    case: dict[str, Any] = {
        "candidate": "b", "baseline": "a", "metric": "ndcg@10", "effect": 0.0125, "relative_effect": 0.025,
        "limit": "", "days": 20, "users": 24_310, "furthest": 28, "last_effect": 0.01425, "has_new_users": True,
        "looks": None,
        "power": 0.8,
    }  # fmt: skip
    assert outlook_sentence(Outlook(**case | more)) == f"b against a on NDCG@10: {sentence}"
