"""Percentiles against NumPy and SciPy, to the bit; and how people read them."""

import re

import numpy as np
import pytest
from scipy import stats

from rankmetrics_spark.config import Config, Options
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.report import Figures, print_result
from rankmetrics_spark.statistics import interpolated, quantile_ranks

SIZES = (1, 2, 3, 4, 5, 7, 10, 19, 20, 50, 101, 1_000, 12_345)
PERCENTILES = (0.1, 5, 25, 50, 75, 90, 95, 99.9)


@pytest.mark.parametrize("percentile", PERCENTILES)
def test_a_percentile_has_the_bits_of_numpy(percentile: float) -> None:
    p = percentile / 100
    rng = np.random.default_rng(3)
    for n in SIZES:
        values = np.sort(np.round(rng.normal(size=n), 1 if n % 2 else 17))
        (ranks,) = quantile_ranks(np.array([n]), p, 0.95)
        below, above = values[ranks[:1] - 1], values[ranks[1:2] - 1]
        assert interpolated(below, above, np.array([n]), p)[0] == np.percentile(values, percentile), n


@pytest.mark.skipif(not hasattr(stats, "quantile_test"), reason="SciPy before 1.11 has no interval of a quantile")
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("percentile", PERCENTILES)
def test_the_interval_is_that_of_scipy(percentile: float, confidence: float) -> None:
    p = percentile / 100
    result = quantile_ranks(np.array(SIZES), p, confidence)
    for n, (*_, low, high) in zip(SIZES, result.tolist(), strict=True):
        values = np.arange(1.0, n + 1)
        expected = stats.quantile_test(values, p=p).confidence_interval(confidence)
        # Rank r is the value r here; none is 0.
        assert (low, high) == tuple(0 if np.isnan(bound) else bound for bound in expected), n


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    n = 30
    (ranks,) = quantile_ranks(np.array([n]), 0.5, 0.95)
    covered = stats.binom.cdf(ranks[3] - 1, n, 0.5) - stats.binom.cdf(ranks[2] - 1, n, 0.5)
    assert 0.95 <= covered < 0.98


def test_infinite_values_and_equal_values_are_percentiles_too() -> None:
    inf = np.array([np.inf])
    assert interpolated(inf, inf, np.array([4]), 0.5)[0] == np.inf
    # Of 1, 2 and infinity.
    assert [interpolated(np.array([2.0]), inf, np.array([3]), p)[0] for p in (0.5, 0.9)] == [2, np.inf]
    assert interpolated(np.array([0.1]), np.array([0.1]), np.array([4]), 0.9)[0] == 0.1


# ---- the option


def test_percentiles_are_numbers_each_once() -> None:
    assert Options(percentiles=[50, 90.0, 50, 99.9]).percentiles == (50.0, 90.0, 99.9)
    assert Options(percentiles="25, 75").percentiles == (25.0, 75.0)
    assert Options(percentiles=50).percentiles == (50.0,)
    assert Config.read({"source": {"path": "x"}, "percentiles": [50]}).options.percentiles == (50.0,)
    assert Options().percentiles == ()


@pytest.mark.parametrize("wrong", [0, 100, -1, "median", True, None, float("nan"), 99.9999999])
def test_what_is_no_percentile_is_refused(wrong: object) -> None:
    shown = "null" if wrong is None else repr(wrong)
    message = f"percentiles is {shown}; allowed: numbers above 0 and below 100, such as 50 or 99.9"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Options(percentiles=[50, wrong])


def test_too_many_percentiles_and_clusters_are_refused() -> None:
    with pytest.raises(ConfigError, match="allowed: at most 20 percentiles"):
        Options(percentiles=[*range(1, 22)])
    with pytest.raises(ConfigError, match=r"percentiles is given with comparison\.cluster; allowed: one of the two"):
        Config.read({"source": {"path": "x"}, "percentiles": [50], "comparison": {"cluster": "home"}})


# ---- on a terminal

MEAN = {"experiment_id": "a", "segment": "all", "metric": "ndcg@10", "convention": "standard", "n_users": 4,
        "mean": 0.5, "ci_low": 0.3, "ci_high": 0.7, "confidence": 0.95, "mean_over": "users"}  # fmt: skip


def test_percentiles_are_printed_where_they_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    request = {"percentile_90": 0.9, "percentile_90_ci_low": None, "percentile_90_ci_high": None,
             "percentile_5": 0.1, "percentile_5_ci_low": 0.05, "percentile_5_ci_high": 0.25}  # fmt: skip
    print_result(Figures([MEAN | request]))
    out = capsys.readouterr().out
    assert "percentiles over the users, with 95 % intervals" in out
    line = next(line for line in out.splitlines() if "(0.0500" in line)
    assert line.replace("│", " ").split() == ["a", "NDCG@10", "0.1000", "(0.0500", "to", "0.2500)", "0.9000"]
    print_result(Figures([MEAN]))
    assert "percentiles" not in capsys.readouterr().out
