"""The plan of a test against statsmodels, arithmetic, and simulated users who come back."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from statsmodels.stats.power import NormalIndPower, TTestIndPower

from rankmetrics_spark.statistics import Arrivals, Design, Floats, first_day, new_users


def arrivals_of(came: np.ndarray, values: Floats) -> Arrivals:
    """Loops over users and days, for users (n, D) who came or not, with one list on each day."""
    columns: list[list[float]] = []
    for day in range(1, came.shape[1] + 1):
        n_days, means = [], []
        for user in range(len(came)):
            own = [values[user, d] for d in range(day) if came[user, d]]
            if own:
                n_days.append(len(own))
                means.append(sum(own) / len(own))
        once, twice = sum(n == 1 for n in n_days), sum(n == 2 for n in n_days)
        variance = np.var(means, ddof=1)
        inverse = sum(1 / n for n in n_days) / len(n_days)
        columns.append([len(means), once, twice, np.mean(means), variance, variance, inverse])
    around, freedom = 0.0, 0
    for user in range(len(came)):
        own = values[user, came[user]]
        if len(own):
            around, freedom = around + sum((own - own.mean()) ** 2), freedom + len(own) - 1
    return Arrivals(*np.array(columns).T, within=around / freedom if freedom else math.nan)


def returning_users(chances: Floats, days: int, within: float, seed: int) -> tuple[np.ndarray, Floats]:
    """(n, days) whether users with these chances came, and values with a variance of 1 between users."""
    rng = np.random.default_rng(seed)
    came = rng.random((len(chances), days)) < chances[:, None]
    users = rng.standard_normal((len(chances), 1))
    return came, users + math.sqrt(within) * rng.standard_normal((len(chances), days))


# ---- effects


# Arms of different sizes have Welch's degrees of freedom, fewer than statsmodels' n - 2, which few users would show.
@pytest.mark.parametrize(("shares", "users"), [((0.5, 0.5), 60), ((0.5, 0.5), 4_000), ((0.3, 0.2), 5_000)])
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_the_smallest_effect_is_found_with_the_power_of_statsmodels(
    shares: tuple[float, float], users: int, confidence: float
) -> None:
    design = Design(shares, confidence, power=0.9)
    effect = design.smallest_effects(np.array([float(users)]), np.array([0.16]))[0][0]
    baseline = users * shares[0]
    power = TTestIndPower().power(effect / 0.4, baseline, 1 - confidence, shares[1] / shares[0])
    assert power == pytest.approx(0.9, abs=0.003)


def test_at_any_number_of_looks_the_always_valid_interval_excludes_zero_with_the_power() -> None:
    n, variance, level = 40_000.0, 0.25, 0.05
    design = Design(power=0.8, tuning_users=5_000)
    once, any_look = (float(each[0]) for each in design.smallest_effects(np.array([n]), np.array([variance])))
    error = math.sqrt(variance * (1 / 20_000 + 1 / 20_000))
    rho = 5_000 / (math.log(1 - 2 * math.log(level)) - 2 * math.log(level))
    half = error * math.sqrt((n + rho) / n * math.log((n + rho) / (rho * level**2)))
    assert norm.sf((half - any_look) / error) == pytest.approx(0.8, abs=1e-4)
    assert norm.sf((1.959964 * error - once) / error) == pytest.approx(0.8, abs=1e-4)
    assert any_look > once


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.7, 0.1)])
def test_the_users_that_an_effect_needs_are_those_of_statsmodels(shares: tuple[float, float]) -> None:
    needed = Design(shares, 0.95, 0.8).users_needed(0.01, 0.16)
    ratio = shares[1] / shares[0]
    baseline = NormalIndPower().solve_power(0.01 / 0.4, alpha=0.05, power=0.8, ratio=ratio)
    assert needed == pytest.approx(baseline / shares[0], abs=1)


def test_an_arm_below_two_users_finds_nothing() -> None:
    once, any_look = Design().smallest_effects(np.array([3.0, 4.0]), np.array([1.0, 1.0]))
    assert np.isnan(once).tolist() == np.isnan(any_look).tolist() == [True, False]


# ---- users


def test_users_who_all_have_the_same_chance_arrive_as_arithmetic_says() -> None:
    n, p, days, more = 10_000, 0.1, 6, np.array([1, 4, 12])
    once, twice = n * days * p * (1 - p) ** (days - 1), n * math.comb(days, 2) * p**2 * (1 - p) ** (days - 2)
    exact = n * (1 - p) ** days * (1 - (1 - p) ** more)
    assert new_users(days, once, twice, more) == pytest.approx(exact, rel=1e-12)


def test_users_who_never_come_back_arrive_at_the_same_rate() -> None:
    # 500 new users a day: nobody was there twice, so the 3,000 of six days are a tiny part of all.
    assert new_users(6, 3_000, 0, [1, 6]) == pytest.approx([500, 3_000], rel=0.002)


def test_users_who_all_come_every_day_are_all_there_on_the_first() -> None:
    assert new_users(6, 0, 0, [1, 6]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("a", "b"), [(0.6, 2.4), (2.0, 8.0), (0.2, 2.0)])
def test_the_expected_users_are_a_lower_bound_that_is_close_to_users_who_come_back(a: float, b: float) -> None:
    chances = np.random.default_rng(1).beta(a, b, 4_000)
    came, values = returning_users(chances, 15, 0.5, seed=2)
    stored = arrivals_of(came[:, :5], values[:, :5])
    users = stored.users_by(15)
    truth = np.array([came[:, :day].any(axis=1).sum() for day in range(1, 16)])
    assert users[:5].tolist() == truth[:5].tolist()
    assert np.all(users[5:10] / truth[5:10] - 1 > -0.06)
    assert -0.12 < users[-1] / truth[-1] - 1 < 0.02
    # The first two of five days say how far off such an estimate is.
    again = arrivals_of(came[:, :2], values[:, :2]).users_by(5)[-1]
    assert stored.users_error == pytest.approx(again / truth[4] - 1)


def test_fewer_than_four_days_do_not_say_how_far_off_they_are() -> None:
    came, values = returning_users(np.full(50, 0.5), 3, 1.0, seed=3)
    assert arrivals_of(came, values).users_error is None
    assert (arrivals_of(came, values).furthest, arrivals_of(came[:, :1], values[:, :1]).furthest) == (9, 1)


# ---- variances


def test_where_everybody_comes_every_day_only_the_variance_within_users_shrinks() -> None:
    came, values = returning_users(np.ones(3_000), 15, 2.0, seed=4)
    stored = arrivals_of(came[:, :5], values[:, :5])
    variance, _ = stored.variances_by(15)
    assert stored.users_by(15).tolist() == [3_000.0] * 15
    # 1 between users, and 2 / days within.
    assert variance == pytest.approx([1 + 2 / day for day in range(1, 16)], rel=0.06)
    # From what is stored, exactly.
    last = float(stored.variance[-1])
    assert variance[5:] == pytest.approx([last - stored.within * (1 / 5 - 1 / day) for day in range(6, 16)])
    effects, _ = Design().smallest_effects(stored.users_by(15), variance)
    # So more days help less and less: from day 5 to day 15 by a tenth, not by the root of 3.
    assert effects[14] / effects[4] == pytest.approx(math.sqrt((1 + 2 / 15) / (1 + 2 / 5)), rel=0.02)


def test_where_nobody_comes_back_the_variance_stays() -> None:
    came = np.eye(6, dtype=bool).repeat(40, axis=0)
    values = np.random.default_rng(5).standard_normal((240, 6))
    stored = arrivals_of(came, values)
    variance, left = stored.variances_by(18)
    assert math.isnan(stored.within)
    assert set(variance[6:]) == set(left[6:]) == {stored.variance[-1]}
    effects, _ = Design().smallest_effects(stored.users_by(18), variance)
    # Three times the users: the effect falls with their root.
    assert effects[17] / effects[5] == pytest.approx(math.sqrt(1 / 3), rel=0.05)


def test_what_values_from_before_explain_stays_and_the_rest_shrinks() -> None:
    # 100 users who come every day.
    alike = [np.full(2, number) for number in (100.0, 0.0, 100.0, 0.5, 0.06, 0.04)]
    stored = Arrivals(*alike, inverse_lists=np.array([1.0, 0.5]), within=0.04)
    variance, left = stored.variances_by(4)
    # Within users 0.04 / 2 lists of 0.06; after 4 days 0.04 / 4. What is explained is 0.02.
    assert variance[3] == pytest.approx(0.06 - 0.04 / 2 + 0.04 / 4)
    assert left[3] == pytest.approx(0.06 - 0.04 / 2 + 0.04 / 4 - 0.02)
    # A variance within users above the whole one would make the rest negative.
    variance, left = replace(stored, within=1.0).variances_by(6)
    assert variance[5] == pytest.approx(0.06 * 2 / 6)
    assert left[5] == pytest.approx(0.06 * 2 / 6)


def test_the_first_day_is_the_first_one_whose_effect_is_small_enough() -> None:
    effects = np.array([np.nan, 0.3, 0.2, 0.1])
    assert [first_day(effects, effect) for effect in (0.5, 0.2, 0.15, 0.05)] == [2, 3, 4, None]
