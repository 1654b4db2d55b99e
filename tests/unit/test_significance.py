"""Tests of differences against SciPy and statsmodels."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestIndPower, TTestPower
from statsmodels.stats.proportion import proportion_confint

from rankmetrics_spark import statistics as st
from tests.helpers.samples import Floats, moments, pair_moments


def ranked(differences: Floats) -> tuple[int, int, int, int]:
    """What ``signed_rank`` takes: number, 2 * sum of positive ranks, tie term, number of zeros."""
    moved = differences[differences != 0]
    ranks = stats.rankdata(np.abs(moved))
    ties = np.unique(np.abs(moved), return_counts=True)[1]
    return len(moved), round(2 * ranks[moved > 0].sum()), int((ties**3 - ties).sum()), len(differences) - len(moved)


def shown_of(result: st.Estimate) -> tuple[Floats, Floats, Floats]:
    return result.difference, result.ci_low, result.ci_high


def wilcoxon(rows: Any) -> Floats:
    return st.signed_rank(*np.array([ranked(np.asarray(row)) for row in rows], dtype=object).T)


def relative_of(baseline: st.Moments, candidate: st.Moments) -> st.Estimate:
    """The share of different users, at a single look."""
    test = st.welch(baseline, candidate, 0.95)
    return st.fieller(test, stats.t.isf(0.025, test.df), st.denominator_independent(baseline, candidate))


def relative_of_pair(pair: st.PairMoments) -> st.Estimate:
    """The share of the same users, at a single look."""
    test = st.paired_t(pair.difference, 0.95)
    return st.fieller(test, stats.t.isf(0.025, test.df), st.denominator_paired(pair))


def test_signed_ranks_are_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    small = [rng.normal(0.3, 1, n) for n in (1, 2, 5, 13, 25)]
    large = [rng.normal(0.1, 1, n) for n in (26, 60, 400)]
    tied = [rng.integers(-3, 5, n).astype(float) for n in (30, 51, 500)]
    assert wilcoxon(small) == pytest.approx([stats.wilcoxon(d, method="exact").pvalue for d in small], abs=1e-12)
    # SciPy 1.10 knows the approximation as "approx" only.
    expected = [stats.wilcoxon(d, correction=False, method="approx").pvalue for d in [*large, *tied]]
    assert wilcoxon([*large, *tied]) == pytest.approx(expected, abs=1e-12)


def test_a_zero_or_a_tie_makes_small_samples_approximate() -> None:
    z = (0 - 10 * 11 / 4) / np.sqrt(10 * 11 * 21 / 24)
    with_zero = st.signed_rank(*(np.array([x], object) for x in (10, 0, 0, 1)))
    assert with_zero == pytest.approx([2 * stats.norm.cdf(z)], rel=1e-12)
    z = (0 - 10 * 11 / 4) / np.sqrt((10 * 11 * 21 - (2**3 - 2) / 2) / 24)
    with_tie = st.signed_rank(*(np.array([x], object) for x in (10, 0, 6, 0)))
    assert with_tie == pytest.approx([2 * stats.norm.cdf(z)], rel=1e-12)


def test_signed_ranks_of_many_users_do_not_overflow() -> None:
    n = 10**9
    row = (n, n * (n + 1) // 2 + 10**14, n**2, 5)
    z = 10**14 / 2 / np.sqrt((n * (n + 1) * (2 * n + 1) - n**2 / 2) / 24)
    result = st.signed_rank(*(np.array([x], object) for x in row))
    assert result == pytest.approx([2 * stats.norm.sf(z)], rel=1e-9)


def test_signed_ranks_without_differences() -> None:
    rows = [(0, 0, 0, 7), (0, 0, 0, 0)]
    result = st.signed_rank(*np.array(rows, object).T)
    assert result[0] == 1 and np.isnan(result[1])


def test_sign_flips_count_the_replicates_that_are_at_least_as_large() -> None:
    replicates = np.array([[1.0, -3.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    result = st.sign_flip_p(np.array([-2.0, 0.0, np.nan]), replicates)
    assert result[:2].tolist() == [(1 + 2) / (3 + 1), (1 + 3) / (3 + 1)] and np.isnan(result[2])


def test_sign_flips_of_equal_differences_see_ties() -> None:
    # 0.1 + 0.2 and 0.3 are the same sum although 2**-30 cannot say so.
    differences = np.array([[0.1, 0.2, 0.3]])
    every = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    flipped = st.weighted_totals(st.weighted_sums(every.T, differences.T)).T
    assert st.sign_flip_p(np.array([0.6]), flipped).tolist() == [(1 + 2) / 9]
    assert st.sign_flip_p(np.array([0.1 + 0.2 - 0.3]), flipped).tolist() == [1.0]


# Fisher's exact test of the same counts: 0.56, 0.12, 0.0008 and 0.00045.
@pytest.mark.parametrize("counts", [(300, 1_000, 3), (250, 500, 4), (10, 30, 30), (250, 500, 12)])
@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_users_who_are_all_alike_count_with_what_they_leave_open(counts: tuple[int, int, int], scale: float) -> None:
    hits, n, m = counts
    values = scale * np.repeat([1.0, 0.0], [hits, n - hits])
    # Clopper and Pearson: a share of others that may have a hit. It is the half width of an interval of 1.96 errors.
    share = proportion_confint(0, m, 0.05, "beta")[1]
    of_few = min(share * scale / stats.norm.ppf(0.975), np.sqrt((values**2).mean() / m))
    error = np.hypot(values.std(ddof=1) / np.sqrt(n), of_few)
    p, fisher = 2 * stats.t.sf(values.mean() / error, n - 1), stats.fisher_exact([[hits, n - hits], [0, m]]).pvalue
    for one in (0.0, scale):
        many, few = st.Moments.of(np.abs(one - values).tolist()), st.Moments.of([one] * m)
        for result in (st.welch(many, few, 0.95), st.welch(few, many, 0.95)):
            assert result.p_value[0] == pytest.approx(p, rel=1e-9) and result.df[0] == n - 1
            assert result.excludes_zero[0] == (fisher < 0.05) and fisher / 2 < result.p_value[0] < max(6 * fisher, 0.01)


@pytest.mark.parametrize("values", [[], [0.5]])
def test_below_two_users_nothing_is_tested(values: list[float]) -> None:
    few, many = st.Moments.of(values), st.Moments.of([0.1, 0.2, 0.6])
    for result in (st.paired_t(few, 0.95), st.welch(few, many, 0.95), st.welch(many, few, 0.95)):
        assert np.isnan([result.standard_error, result.df, result.ci_low, result.ci_high, result.p_value]).all()
        assert np.isnan(st.minimum_detectable_effect(result.standard_error, result.df, 0.95)).all()
        assert np.isnan(st.users_needed(len(values), result.difference, result.standard_error, 0.95)).all()
    for result in (relative_of_pair(st.PairMoments(few, few, few)), relative_of(many, few)):
        assert np.isnan(shown_of(result)[1:]).all()
    assert np.isnan(st.effect_size_paired(few)).all() and np.isnan(st.effect_size_independent(few, many)).all()


def test_no_pairs_give_no_rows() -> None:
    none = moments(np.zeros((0, 3)))
    assert st.paired_t(none, 0.95).p_value.tolist() == st.welch(none, none, 0.95).p_value.tolist() == []
    assert wilcoxon([[]])[:0].tolist() == relative_of(none, none).difference.tolist() == []


def test_the_relative_difference_of_a_baseline_of_zero_is_unknown() -> None:
    zero, some = np.zeros((1, 5)), np.arange(5.0)[None]
    assert np.isnan(shown_of(relative_of_pair(pair_moments(zero, some)))).all()
    assert np.isnan(shown_of(relative_of(moments(zero), moments(some)))).all()


def test_effect_sizes_are_those_of_their_definitions() -> None:
    rng = np.random.default_rng(6)
    left, right = rng.random(30), rng.random(12) * 2
    assert st.effect_size_paired(moments([left])) == pytest.approx([left.mean() / left.std(ddof=1)])
    pooled = np.sqrt((29 * left.var(ddof=1) + 11 * right.var(ddof=1)) / 40)
    result = st.effect_size_independent(moments([left]), moments([right]))
    assert result == pytest.approx([(right.mean() - left.mean()) / pooled])


@pytest.mark.parametrize("n", [10, 30, 200, 10_000])
def test_the_minimum_detectable_effect_is_close_to_that_of_statsmodels(n: int) -> None:
    exact = TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)
    result = st.minimum_detectable_effect(np.array([1 / np.sqrt(n)]), np.array([n - 1.0]), 0.95)[0]
    assert result == pytest.approx(exact, rel=0.005)
    exact = TTestIndPower().solve_power(nobs1=n, ratio=2, alpha=0.1, power=0.9)
    result = st.minimum_detectable_effect(np.array([np.sqrt(1 / n + 0.5 / n)]), np.array([3 * n - 2.0]), 0.9, 0.9)[0]
    assert result == pytest.approx(exact, rel=0.005)


@pytest.mark.parametrize("level", [0.05 / 72, 0.05 / 5_000])
@pytest.mark.parametrize(("n", "near"), [(6, 0.003), (10, 0.002), (30, 0.001), (600, 0.0001)])
def test_the_detectable_effect_has_its_power_at_the_level_of_a_correction(n: int, near: float, level: float) -> None:
    result = st.minimum_detectable_effect(np.array([1.0]), np.array([n - 1.0]), 1 - level)[0]
    assert stats.nct.sf(stats.t.ppf(1 - level / 2, n - 1), n - 1, result) == pytest.approx(0.8, abs=near)


@pytest.mark.parametrize("effect", [0.5, 0.1, 0.02])
def test_the_users_needed_are_close_to_those_of_statsmodels(effect: float) -> None:
    exact = TTestPower().solve_power(effect_size=effect, alpha=0.05, power=0.8)
    result = st.users_needed(50, np.array([effect]), np.array([1 / np.sqrt(50)]), 0.95)[0]
    assert 1 <= exact - result <= 2
    exact = TTestIndPower().solve_power(effect_size=effect, alpha=0.05, power=0.8, ratio=4)
    result = st.users_needed(500, np.array([-effect]), np.array([np.sqrt(1 / 100 + 1 / 400)]), 0.95)[0]
    assert 1 <= 5 * exact - result <= 2


def test_no_difference_needs_no_number_of_users_and_a_certain_one_needs_two() -> None:
    result = st.users_needed(np.array([10, 10]), np.array([0.0, 0.5]), np.array([0.1, 0.0]), 0.95)
    assert np.isnan(result[0]) and result[1] == 2
