"""Tests that are looked at more than once: printed values of other systems, normal integrals of SciPy, simulation."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark import statistics as st
from tests.helpers.messages import json_cases
from tests.helpers.samples import moments

ANY = st.AnyLook(tuning_users=1_000, alpha=0.05)


def of_sums(n: int, total: float, squares: float) -> st.Moments:
    """Moments as printed: users, sum, sum of squares."""
    return st.Moments(*(np.array([round(m * unit)], object) for m, unit in ((n, 1), (total, 2**60), (squares, 2**60))))


def lift(baseline: st.Moments, candidate: st.Moments) -> st.Estimate:
    """Relative difference with the error of the delta method, and a normal quantile, as GrowthBook has it."""
    b, c = baseline.mean, candidate.mean
    parts = [c**2 / b**2 * baseline.variance / baseline.n.astype(float), candidate.variance / candidate.n.astype(float)]
    return st.Estimate.of(c / b - 1, np.sqrt(sum(parts)) / b, np.full(len(b), 1e12), 0.95)


def of_share(n: int, total: int) -> tuple[int, float, float]:
    """Users, sum and sum of squares of a share whose sample variance is p * (1 - p), as others take it."""
    share = total / n
    return n, total, share * (1 - share) * (n - 1) + n * share**2


def of_z(z: Any, df: float = 1e9) -> st.Estimate:
    """Differences of these many standard errors."""
    difference = np.atleast_1d(np.asarray(z, float))
    return st.Estimate.of(difference, np.ones(len(difference)), np.full(len(difference), df), 0.95)


def test_p_values_that_are_not_of_t_add_up_over_planned_looks() -> None:
    def p_of(look: int, spending: str, p: float) -> float:
        """Of a permutation, say."""
        test = replace(of_z([1.0]), p_value=np.array([p]))
        return float(st.PlannedLook(look, 14, spending, 0.05, by_p=True).p_value(test, 1)[0])

    # A 14th of the level may be spent at each look; of Pocock's at the first one, log(1 + (e - 1) / 14) of it.
    assert p_of(5, "linear", 0.001) == pytest.approx(14 * 0.001, rel=0.012)
    assert p_of(1, "pocock", 0.001) == pytest.approx(0.001 / np.log1p((np.e - 1) / 14), rel=0.012)
    assert p_of(14, "linear", 0.0035) <= 0.05 < p_of(14, "linear", 0.0036) and p_of(3, "linear", 0.9) == 1
    assert np.isnan(p_of(3, "pocock", np.nan))


# ---- however often: values that other systems print


@pytest.mark.parametrize(("arms", "tuning", "expected", "digits"), json_cases("relative intervals of GrowthBook"))
def test_the_relative_interval_is_that_of_growthbook(
    arms: list[list[Any]], tuning: int, expected: list[float], digits: float
) -> None:
    single = lift(*(of_sums(*arm) if len(arm) == 3 else of_sums(*of_share(*arm)) for arm in arms))
    result = st.over_looks(single, arms[0][0] + arms[1][0], st.AnyLook(tuning, 0.05), 0.95)
    shown = [result.difference[0], result.standard_error[0], result.ci_low[0], result.ci_high[0]]
    assert shown == pytest.approx(expected, rel=digits)
    assert bool(result.p_value[0] == 1) is (expected[2] < 0)


def test_bound_and_evidence_are_those_of_confseq() -> None:
    rho = st.mixture_rho(100, 0.05)
    assert rho == pytest.approx(12.60056, abs=5e-6)
    # Its bound is of the sum of 100 values of variance 1.
    assert 10 * st.always_valid_bound(100, rho, 0.05) == pytest.approx(30.35209, abs=5e-6)
    # A sum of 10: evidence below 1 is a p-value of 1, and that of 30 is its inverse.
    log_mixture = 10**2 / (2 * (100 + rho)) - np.log((100 + rho) / rho) / 2
    assert log_mixture == pytest.approx(-0.6510052, abs=5e-8)
    assert st.always_valid_p(1.0, 100, rho) == 1
    assert st.always_valid_p(3.0, 100, rho) == pytest.approx(np.exp(-log_mixture - (9 - 1) * 100 / (2 * (100 + rho))))


def test_a_few_degrees_of_freedom_widen_the_bound_to_the_t_with_the_same_tail() -> None:
    rule, rho = st.AnyLook(1_000, 0.05), st.mixture_rho(1_000, 0.05)
    z = float(st.always_valid_bound(200, rho, 0.05))
    for df in (5.0, 19.0, 1e9):
        critical = float(rule.critical(np.array([200]), np.array([df]), 0.05)[0])
        assert stats.t.sf(critical, df) == pytest.approx(stats.norm.sf(z), rel=1e-6)
        # A t of that size has the p-value of the level, and a larger one a smaller p-value.
        p = [float(rule.p_value(of_z(t, df), np.array([200]))[0]) for t in (critical, critical + 1)]
        assert p[1] < p[0] == pytest.approx(0.05, rel=1e-6)
    assert critical == pytest.approx(z, rel=1e-6)


# ---- a planned number of looks


@pytest.mark.parametrize(("spending", "alpha", "fractions", "expected"), json_cases("bounds of spending"))
def test_bounds_of_lan_and_demets(spending: str, alpha: float, fractions: list[float], expected: list[float]) -> None:
    assert st.spending_bounds(fractions, alpha, spending) == pytest.approx(expected, abs=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("spending", st.SPENDING)
@pytest.mark.parametrize("fractions", [(0.5, 1.0), (0.2, 0.25, 1.0), (0.1, 0.5, 0.7)])
def test_as_much_is_passed_as_may_be_spent(spending: str, fractions: tuple[float, ...]) -> None:
    bounds, times = st.spending_bounds(fractions, 0.025, spending), np.array(fractions)
    # z-values of sums at two times are as correlated as the root of the ratio of the times.
    correlation = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))
    spent = {
        "obrien_fleming": 2 * stats.norm.sf(stats.norm.isf(0.025 / 2) / np.sqrt(times)),
        "pocock": 0.025 * np.log(1 + (np.e - 1) * times),
        "linear": 0.025 * times,
    }
    for k in range(1, len(times) + 1):
        of_looks = np.zeros(k), correlation[:k, :k]
        stays = stats.multivariate_normal.cdf(bounds[:k], *of_looks, abseps=1e-9, releps=1e-9)
        assert 1 - stays == pytest.approx(spent[spending][k - 1], abs=1e-6)


def test_one_planned_look_is_the_test_of_a_single_look() -> None:
    single = st.paired_t(moments([[1.0, 2.0, 3.0, 2.5, 0.5, 4.0, -1.0]]), 0.9)
    for spending in st.SPENDING:
        result = st.over_looks(single, 7, st.PlannedLook(1, 1, spending, 0.1), 0.9)
        assert result.p_value == pytest.approx(single.p_value, rel=1e-9)
        assert result.ci_low == pytest.approx(single.ci_low, rel=1e-9)


@pytest.mark.parametrize("spending", st.SPENDING)
@pytest.mark.parametrize(("look", "planned"), [(1, 14), (6, 14), (14, 14), (2, 2)])
def test_p_of_a_planned_look_is_the_level_whose_bound_is_reached(spending: str, look: int, planned: int) -> None:
    rule = st.PlannedLook(look, planned, spending, 0.05)
    for level in (0.5, 0.05, 0.013, 1e-4, 1e-9):
        fractions = np.arange(1, look + 1) / planned
        reached = of_z(st.spending_bounds(fractions, level / 2, spending)[-1])
        assert rule.p_value(reached, 1) == pytest.approx([level], rel=2e-4)


def test_a_tiny_z_at_a_planned_look_has_a_p_value_of_one() -> None:
    result = st.PlannedLook(3, 14, "obrien_fleming", 0.05).p_value(of_z([0.0, 0.5, np.nan, 1e3]), 1)
    assert result[:2].tolist() == [1, 1] and np.isnan(result[2]) and 0 <= result[3] < 1e-15


# ---- interval and p-value say the same


RULES = (
    ANY,
    st.AnyLook(10_000, 0.1),
    st.PlannedLook(1, 14, "obrien_fleming", 0.05),
    st.PlannedLook(14, 14, "pocock", 0.05),
    st.PlannedLook(6, 14, "linear", 0.01),
)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("df", [1, 3, 20, 1e6])
def test_the_p_value_is_below_the_level_exactly_where_the_interval_excludes_zero(rule: st.Looks, df: float) -> None:
    alpha: float = rule.alpha  # type: ignore[attr-defined]
    bound = float(rule.critical(np.array([df + 1]), np.array([df]), alpha)[0])
    # Too few users for the tuning: no tail of t is so small, and nothing is found.
    is_known = bool(np.isfinite(bound))
    bound = max(bound, stats.t.isf(alpha / 2, df)) if is_known else 1e9
    z = bound * np.array([0.5, 1 - 1e-6, 1 + 1e-6, 2, -1 - 1e-6, -1 + 1e-6])
    single = st.Estimate.of(z, np.ones(6), np.full(6, df), 1 - alpha)
    result = st.over_looks(single, np.full(6, df + 1), rule, 1 - alpha)
    assert (result.p_value < alpha).tolist() == [False, False, is_known, is_known, is_known, False]
    assert ((result.ci_low > 0) | (result.ci_high < 0)).tolist() == (result.p_value < alpha).tolist()
    assert (result.p_value >= single.p_value).all()
    assert (result.ci_high - result.ci_low >= (single.ci_high - single.ci_low) * (1 - 1e-9)).all()


@pytest.mark.parametrize("rule", RULES)
def test_without_a_spread_the_test_is_that_of_a_single_look(rule: st.Looks) -> None:
    same, few = st.paired_t(moments([[0.5] * 9]), 0.95), st.paired_t(moments([[0.5] * 4]), 0.95)
    for single, n in ((same, 9), (few, 4), (st.paired_t(moments([[0.0] * 4]), 0.95), 4)):
        result = st.over_looks(single, n, rule, 0.95)
        assert result.p_value.tolist() == single.p_value.tolist()
        assert np.array_equal(result.ci_low, single.ci_low, equal_nan=True)


@pytest.mark.parametrize("rule", RULES)
def test_fewer_than_two_users_give_no_interval_and_no_p_value(rule: st.Looks) -> None:
    none, one = moments(np.zeros((1, 0))), moments([[1.0]])
    for single, n in ((st.paired_t(one, 0.95), 1), (st.welch(none, one, 0.95), 1), (st.welch(none, none, 0.95), 0)):
        result = st.over_looks(single, np.array([n]), rule, 0.95)
        assert np.isnan([result.ci_low, result.ci_high, result.p_value]).all()
        assert np.isnan(rule.users_needed(result, np.array([n]), 0.05, 0.8)).all()


# ---- what could be found


def test_the_detectable_effect_is_found_at_this_look_with_its_power() -> None:
    rules: tuple[st.Looks, ...] = RULES
    for rule, n in itertools.product(rules, (200, 5_000)):
        bound = rule.critical(np.array([n]), np.array([n - 1.0]), 0.05)
        effect = st.minimum_detectable_effect(np.ones(1), np.array([n - 1.0]), 0.95, 0.8, bound)
        assert stats.nct.sf(bound, n - 1, effect) == pytest.approx(0.8, abs=2e-3)
    assert st.minimum_detectable_effect(np.ones(1), np.array([99.0]), 0.95, 0.8, np.zeros(1)) == (
        st.minimum_detectable_effect(np.ones(1), np.array([99.0]), 0.95)
    )


@pytest.mark.parametrize("effect", [0.02, 0.1, 0.5])
def test_the_users_needed_have_the_effect_as_what_they_can_find(effect: float) -> None:
    n, error = 400, np.array([1 / np.sqrt(400)])
    single = st.Estimate.of(np.array([-effect]), error, np.array([n - 1.0]), 0.95)
    needed = float(ANY.users_needed(single, np.array([n]), 0.05, 0.8)[0])
    for users, enough in ((needed - 1, False), (needed, True)):
        reach = (st.always_valid_bound(users, st.mixture_rho(1_000, 0.05), 0.05) + stats.norm.ppf(0.8)) / np.sqrt(users)
        assert bool(reach <= effect) is enough
    # The last of 14 looks needs more than a single look, by the square of its bound.
    last = st.spending_bounds(np.arange(1, 15) / 14, 0.025, "obrien_fleming")[-1]
    ratio = ((last + stats.norm.ppf(0.8)) / (stats.norm.ppf(0.975) + stats.norm.ppf(0.8))) ** 2
    planned = st.PlannedLook(3, 14, "obrien_fleming", 0.05).users_needed(single, n, 0.05, 0.8)
    assert planned[0] == pytest.approx(st.users_needed(n, single.difference, error, 0.95)[0] * ratio, rel=0.02)


def test_no_difference_needs_no_number_of_users_and_a_certain_one_needs_two() -> None:
    single = st.Estimate.of(np.array([0.0, 0.5]), np.array([0.1, 0.0]), np.array([9.0, 9.0]), 0.95)
    for rule in RULES:
        result = rule.users_needed(single, np.array([10, 10]), 0.05, 0.8)
        assert np.isnan(result[0]) and result[1] == 2


def test_more_users_than_growthbook_asks_for_are_not_needed() -> None:
    """Its test file: 500 users a side, a lift of 5 %, power 0.8."""
    baseline, candidate = of_sums(500, 500, 1500), of_sums(500, 525, 1551.25)
    single = lift(baseline, candidate)
    assert single.difference == pytest.approx([0.05])
    fixed = st.users_needed(1_000, single.difference, single.standard_error, 0.95)[0] / 1_000 - 1
    assert fixed == pytest.approx(25.45703125, rel=2e-3)
    ours = st.AnyLook(5_000, 0.05).users_needed(single, np.array([1_000]), 0.05, 0.8)[0] / 1_000 - 1
    assert ours == pytest.approx(55.66796875, rel=2e-3)
