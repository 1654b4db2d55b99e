"""Corrections of p-values against the arithmetic of their definitions."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from rankmetrics_spark.statistics import CORRECTIONS, adjusted_p_values, strictest_level

P = np.array([0.01, 0.04, 0.03, 0.005])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("none", [0.01, 0.04, 0.03, 0.005]),
        ("bonferroni", [4 * 0.01, 4 * 0.04, 4 * 0.03, 4 * 0.005]),
        # Smallest times 4, next times 3, ...; never below that of a smaller p-value.
        ("holm", [3 * 0.01, 2 * 0.03, 2 * 0.03, 4 * 0.005]),
        # Largest times 4 / 4, next times 4 / 3, ...; never above that of a larger p-value.
        ("fdr_bh", [4 / 2 * 0.01, 0.04, 4 / 3 * 0.03, 4 / 1 * 0.005]),
    ],
)
def test_adjusted_p_values_are_those_of_the_definition(method: str, expected: list[float]) -> None:
    assert adjusted_p_values(P, method) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", [name for name in CORRECTIONS if name != "none"])
def test_adjusted_p_values_are_those_of_statsmodels_to_the_bit(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each call of statsmodels collects garbage, which takes longer the more tests there are.
    monkeypatch.setattr("gc.collect", lambda: 0)
    rng = np.random.default_rng(11)
    for n in (1, 2, 3, 7, 40, 200):
        for p in (rng.random(n), rng.random(n) ** 9, rng.choice([0.0, 1e-300, 0.01, 0.02, 0.5, 1.0], n)):
            assert adjusted_p_values(p, method).tolist() == multipletests(p, method=method)[1].tolist()


@pytest.mark.parametrize("method", CORRECTIONS)
def test_what_was_not_tested_is_not_counted(method: str) -> None:
    gaps = np.array([np.nan, *P[:2], np.nan, *P[2:], np.nan])
    result = adjusted_p_values(gaps, method)
    assert np.isnan(result[[0, 3, 6]]).all()
    assert result[[1, 2, 4, 5]].tolist() == adjusted_p_values(P, method).tolist()
    assert np.isnan(adjusted_p_values(np.full(3, np.nan), method)).all()
    assert adjusted_p_values(np.array([]), method).tolist() == []


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown correction 'sidak'; known: holm, bonferroni"):
        adjusted_p_values(P, "sidak")


@pytest.mark.parametrize("method", CORRECTIONS)
def test_the_strictest_level_is_where_a_comparison_alone_is_found(method: str) -> None:
    level = strictest_level(0.05, 72, method)
    alone = np.full(72, 0.9)
    for p, is_found in ((0.999 * level, True), (1.001 * level, False)):
        alone[3] = p
        assert (adjusted_p_values(alone, method)[3] < 0.05) == is_found


def test_the_level_of_one_comparison_is_not_corrected() -> None:
    assert {strictest_level(0.05, n, method) for n in (0, 1) for method in CORRECTIONS} == {0.05}
