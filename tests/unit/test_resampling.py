"""Weights of users, their exact sums, and what replicates say, against SciPy and plain Python."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark import statistics as st
from tests.helpers.samples import Floats

MASK = 2**64 - 1
DRAWS = 4_000


def some_keys(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)


def mixed(z: int) -> int:
    """SplitMix64's finalizer as its authors print it."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def test_random_bits_are_those_of_splitmix64() -> None:
    golden = 0x9E3779B97F4A7C15
    # The first three numbers of the published generator from the state 0.
    first = [mixed(golden * i & MASK) for i in (1, 2, 3)]
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    for key, seed in ((0, 0), (MASK, 12), (7, -3)):
        state = mixed(key ^ mixed((seed + 1) * golden & MASK))
        expected = [mixed(state + golden * i & MASK) for i in (1, 2, 3)]
        assert st.random_bits(np.array([key], np.uint64), seed, 3)[0].tolist() == expected


def test_weights_and_signs_are_read_from_the_bits_from_the_lowest_on() -> None:
    keys = some_keys(5)
    words = st.random_bits(keys, 4 * 9, 2)
    bits = [[int(word) >> i & 1 for word in row for i in range(64)][:100] for row in words]
    assert st.random_signs(keys, 9, 100).tolist() == [[2 * bit - 1 for bit in row] for row in bits]
    table = np.cumsum(st.POISSON_COUNTS)
    words = st.random_bits(keys, 4 * 9 + 1, 2)
    short = [[int(word) >> 16 * i & 0xFFFF for word in row for i in range(4)][:7] for row in words]
    assert st.poisson_weights(keys, 9, 7).tolist() == np.searchsorted(table, short, side="right").tolist()


def test_more_replicates_begin_with_the_same_ones_and_another_seed_gives_others() -> None:
    ids = some_keys(100)
    for draw in (st.random_signs, st.poisson_weights):
        assert (draw(ids, 1, 500)[:, :130] == draw(ids, 1, 130)).all()
        assert (draw(ids, 1, 130) != draw(ids, 2, 130)).mean() > 0.4
    # Signs and weights of the same seed do not share bits.
    assert abs(np.corrcoef(st.random_signs(ids, 1, 500).ravel(), st.poisson_weights(ids, 1, 500).ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("keys", [some_keys(20_000), np.arange(20_000, dtype=np.uint64)], ids=["hashes", "counters"])
def test_signs_are_fair_and_independent(keys: Any) -> None:
    result = st.random_signs(keys, 5, 64).astype(float)
    assert set(np.unique(result)) == {-1.0, 1.0}
    # A mean of n signs has the standard deviation 1 / sqrt(n).
    assert np.abs(result.mean(axis=0)).max() * np.sqrt(20_000) < 4.2
    between_replicates = result.T @ result / 20_000 - np.eye(64)
    between_users = (result[1:] * result[:-1]).mean(axis=0)
    assert np.abs(between_replicates).max() * np.sqrt(20_000) < 5
    assert np.abs(between_users).max() * np.sqrt(20_000) < 4.2


def test_the_table_of_weights_is_that_of_a_poisson_number() -> None:
    counts, k = np.array(st.POISSON_COUNTS), np.arange(9)
    assert counts.sum() == 2**16
    assert Fraction(int(k @ counts), 2**16) == Fraction(int((k - 1) ** 2 @ counts), 2**16) == 1
    assert np.abs(counts - 2**16 * stats.poisson(1).pmf(k)).max() < 1.3
    assert ((k - 1.0) ** 3 @ counts / 2**16, (k - 1.0) ** 4 @ counts / 2**16) == pytest.approx((1, 4), abs=2e-4)


def test_weighted_sums_are_exact() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(0, 1, (300, 4)) * [1, 2.0**40, 2.0**-20, 0]
    weights = rng.integers(-8, 9, (300, 5))
    result = st.weighted_sums(weights, values)
    cut = [[int(Fraction(v) * 2**30) for v in column] for column in values.T.tolist()]
    whole = result.astype(object) * np.array([2**60, 2**30, 1], object)[:, None, None]
    expected = [[sum(w * v for w, v in zip(row, column, strict=True)) for column in cut] for row in weights.T.tolist()]
    assert whole.sum(axis=0).tolist() == expected
    assert st.weighted_totals(result) == pytest.approx(weights.T @ values, rel=1e-5, abs=300 * 8 * 2.0**-30)


def test_sums_with_weights_of_one_are_the_first_limbs_of_the_exact_sums() -> None:
    values = np.random.default_rng(4).normal(0, 100, (50, 1))
    limbs = [int(limb.sum()) for limb in st.limbs_of(values[:, 0])]
    assert st.weighted_sums(np.ones((50, 1)), values)[:, 0, 0].tolist() == limbs[: len(st.RESAMPLING_LIMBS)]


def test_no_users_and_no_columns_have_sums_of_zero() -> None:
    none = st.weighted_sums(st.poisson_weights(some_keys(0), 1, 10), np.zeros((0, 2)))
    assert none.shape == (3, 10, 2) and not none.any()
    assert st.weighted_sums(st.random_signs(some_keys(4), 1, 10), np.zeros((4, 0))).shape == (3, 10, 0)


def test_percentiles_are_those_of_numpy_without_nan() -> None:
    replicates = np.random.default_rng(5).normal(0, 1, (6, 101))
    replicates[2, :7], replicates[3, 1:], replicates[4, :] = np.nan, np.nan, np.nan
    low, high = st.percentile(replicates, 0.9)
    expected = np.nanquantile(replicates[[0, 1, 2, 3, 5]], [0.05, 0.95], axis=1)
    assert np.array([low, high])[:, [0, 1, 2, 3, 5]] == pytest.approx(expected, rel=1e-12)
    assert np.isnan([low[4], high[4]]).all()


def test_intervals_without_spread_are_a_point() -> None:
    still = np.full((1, 50), 0.3)
    assert [float(bound[0]) for bound in st.percentile(still, 0.95)] == [0.3] * 2


def bootstrapped(values: Floats, seed: int, replicates: int) -> Floats:
    """(g, replicates) means of (n, g) values."""
    weights = st.poisson_weights(some_keys(len(values), seed), seed, replicates)
    with np.errstate(invalid="ignore"):
        return (st.weighted_totals(st.weighted_sums(weights, values)) / weights.sum(axis=0)[:, None]).T


@pytest.mark.slow
# The interval is too short for 30 users: its docstring says by how much.
@pytest.mark.parametrize(("users", "low", "high"), [(30, 0.93, 0.945), (100, 0.94, 0.96)])
def test_the_percentile_interval_of_a_skewed_mean_covers_as_documented(users: int, low: float, high: float) -> None:
    rng, at_once, covered = np.random.default_rng(8), 250, 0.0
    for seed in range(DRAWS // at_once):
        bounds = st.percentile(bootstrapped(rng.beta(1, 3, (users, at_once)), seed, 1_000), 0.95)
        covered += ((bounds[0] <= 0.25) & (bounds[1] >= 0.25)).sum() / DRAWS
    assert low <= covered <= high


def test_the_aa_check_of_a_paired_design_counts_the_t_tests_of_scipy() -> None:
    differences = np.random.default_rng(9).exponential(1, (3, 15)) - 0.5
    drawn = st.random_signs(some_keys(15), 1, 400)
    flipped = st.weighted_totals(st.weighted_sums(drawn, differences.T)).T
    result = st.aa_share_paired(np.full(3, 15), (differences**2).sum(axis=1), flipped, 0.05)
    p = stats.ttest_1samp(differences[:, None, :] * drawn.T[None], 0, axis=2).pvalue
    assert result.tolist() == (p < 0.05).mean(axis=1).tolist()


def share_of_arms(values: Floats, drawn: Any, level: float = 0.05) -> float:
    """The A/A check of an independent design, for one group of (n,) values."""
    columns = np.stack([values, values**2, np.ones(len(values))], axis=1)
    signed = st.weighted_totals(st.weighted_sums(drawn, columns)).T
    return float(st.aa_share_independent([*columns.sum(axis=0)], signed, level))


def test_the_aa_check_of_an_independent_design_counts_the_tests_of_scipy() -> None:
    values, drawn = np.random.default_rng(10).exponential(1, 40), st.random_signs(some_keys(40), 1, 300)
    p = [stats.ttest_ind(values[each > 0], values[each < 0], equal_var=False).pvalue for each in drawn.T]
    assert share_of_arms(values, drawn, 0.1) == (np.array(p) < 0.1).mean()


def test_the_aa_check_of_values_without_spread_finds_nothing() -> None:
    for constant in (0.0, 0.7, 1 / 3):
        assert share_of_arms(np.full(30, constant), st.random_signs(some_keys(30), 1, 200)) == 0
    assert st.aa_share_paired(30, 0.0, np.zeros(200), 0.05) == 0


def test_the_aa_check_needs_two_users_in_each_arm() -> None:
    assert np.isnan(st.aa_share_paired(np.array([1, 0]), np.ones(2), np.ones((2, 50)), 0.05)).all()
    for n in (0, 1, 3):
        assert np.isnan(share_of_arms(np.arange(float(n)), st.random_signs(some_keys(n), 1, 50)))
