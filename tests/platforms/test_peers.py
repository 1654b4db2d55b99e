"""The systems whose rules over several looks are used here, run on the same numbers: gbstats of GrowthBook, seqabpy."""

from __future__ import annotations

import numpy as np
import pytest

from rankmetrics_spark.statistics import (
    AnyLook,
    Moments,
    always_valid_bound,
    mixture_rho,
    over_looks,
    relative_independent,
    spending_bounds,
    welch,
)

gbstats = pytest.importorskip("gbstats.frequentist.tests")
statistics = pytest.importorskip("gbstats.models.statistics")
gatsby = pytest.importorskip("seqabpy.gatsby")


def draws(seed: int) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(20, 2_000, 2)
    return rng.gamma(2, 1, sizes[0]).tolist(), (rng.gamma(2, 1, sizes[1]) + 0.3).tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tuning_users", [100, 5_000])
@pytest.mark.parametrize("relative", [False, True])
def test_interval_and_p_value_are_those_of_gbstats(seed: int, tuning_users: int, relative: bool) -> None:
    both = draws(seed)
    a, b = (
        statistics.SampleMeanStatistic(n=len(x), sum=float(np.sum(x)), sum_squares=float(np.square(x).sum()))
        for x in both
    )
    config = gbstats.SequentialConfig(
        difference_type="relative" if relative else "absolute", sequential_tuning_parameter=tuning_users
    )
    wanted = gbstats.SequentialTwoSidedTTest(a, b, config).compute_result()
    single = (relative_independent if relative else welch)(*map(Moments.of, both), 0.95)
    found = over_looks(single, len(both[0]) + len(both[1]), AnyLook(tuning_users, 0.05), 0.95)
    assert [found.ci_low[0], found.ci_high[0]] == pytest.approx(wanted.ci, rel=1e-9)
    assert found.p_value[0] == pytest.approx(wanted.p_value, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("fractions", [(0.3, 0.6, 1.0), (0.2, 0.4, 0.6, 0.8, 1.0)])
@pytest.mark.parametrize(("spending", "number"), [("obrien_fleming", 1), ("pocock", 2)])
def test_bounds_are_those_of_seqabpy(fractions: tuple[float, ...], spending: str, number: int) -> None:
    wanted = gatsby.ldBounds(np.array(fractions), iuse=number, alpha=0.025)
    bounds = next(
        np.asarray(each) for name, each in wanted.items() if "upper" in name.lower() or "bound" in name.lower()
    )
    # It integrates on a grid: four digits.
    assert spending_bounds(fractions, 0.025, spending) == pytest.approx(bounds, abs=1e-4)


def test_the_bound_is_that_of_confseq() -> None:
    boundaries = pytest.importorskip("confseq.boundaries", reason="it has no wheel for this Python")
    v = np.array([50.0, 100.0, 1_000.0])
    wanted = boundaries.normal_mixture_bound(v, alpha=0.05, v_opt=100, alpha_opt=0.05, is_one_sided=False)
    assert always_valid_bound(v, mixture_rho(100, 0.05), 0.05) * np.sqrt(v) == pytest.approx(wanted, rel=1e-6)
