"""Verdicts on hard data, counted in many tests that one call of ``compare`` makes: how often it says what is not true.

A segment of users, or a candidate, is a test. `make test-slow` runs them.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from rankmetrics_spark import compare
from tests.benchmarks import hard

pytestmark = pytest.mark.slow

Rng = np.random.Generator


def users(name: str, values: Any, **columns: Any) -> pd.DataFrame:
    """Users of an experiment with one list each; a value above 0 is a hit."""
    ids = [f"{name}{t}-{i}" for i, t in enumerate(columns.get("test", [""] * len(values)))]
    frame = {"experiment_id": name, "user_id": ids, "n_lists": 1, "ap_at_10": values}
    return pd.DataFrame(frame | columns).assign(n_relevant=lambda rows: (rows["ap_at_10"] > 0).astype(int))


def compared_at_once(rows: list[pd.DataFrame], **options: Any) -> pd.DataFrame:
    """The rows of all tests, each for itself."""
    result = compare(pd.concat(rows, ignore_index=True), "a", correction="none", **options).to_pandas()
    return result[result["segment"] != "all"] if "segments" in options else result


def at_most(times: Any, level: float) -> bool:
    """Whether so many tests are at most the level, within three standard errors of the simulation."""
    return bool(np.mean(times) <= level + 3 * np.sqrt(level * (1 - level) / len(times)))


@pytest.mark.parametrize(
    ("n", "rate", "worse"), [(8, 0.05, 0.05), (50, 0.03, 0.03), (50, 0.13, 0.03), (400, 0.03, 0.02)]
)
def test_rare_hits_are_not_shown_to_be_equivalent_beyond_the_level(n: int, rate: float, worse: float) -> None:
    """A candidate that is worse by the margin, which the permutation called equivalent in 31 and 22 of 100 tests."""
    rng, tests = np.random.default_rng(46), 1_000
    test = np.repeat([f"t{i}" for i in range(tests)], n)
    rates = {"a": rate, "b": rate - worse}
    arms = [users(name, (rng.random(tests * n) < p).astype(float), test=test) for name, p in rates.items()]
    rows = compared_at_once(arms, segments="test", margin={"ap@10": worse})
    assert len(rows) == tests
    assert at_most(rows["within_margin"] == "equivalent", 0.025) and at_most(rows["within_margin"].notna(), 0.025)
    still = rows["standard_error"] == 0
    assert rows.loc[still, ["users_needed", "minimum_detectable_effect"]].isna().all(axis=None)


@pytest.mark.parametrize(("sizes", "rate"), [((5, 95), 0.1), ((30, 30), 0.1), ((20, 180), 0.05), ((100, 100), 0.01)])
def test_an_experiment_without_a_hit_is_no_worse_by_chance(sizes: tuple[int, int], rate: float) -> None:
    rng, tests = np.random.default_rng(47), 1_500
    arms = []
    for name, n in zip("ab", sizes, strict=True):
        test = np.repeat([f"t{i}" for i in range(tests)], n)
        arms.append(users(name, (rng.random(tests * n) < rate).astype(float), test=test))
    rows = compared_at_once(arms, segments="test")
    silent = (rows["mean_candidate"] == 0) | (rows["mean_baseline"] == 0)
    assert rows.loc[silent, "difference"].notna().sum() > 50
    # Each side of the test has half of the level, of all tests.
    assert at_most((silent & rows["better"].notna()).to_numpy(), 0.025)


@pytest.mark.parametrize("gained", [0.0, 0.24])
def test_a_convention_that_leaves_users_out_makes_no_winner_of_those_who_are_left(gained: float) -> None:
    """60 % of the users have a value; the candidates reach a quarter more, late in the list, and serve nobody worse."""
    rng, n = np.random.default_rng(48), 500

    def reached(name: str, more: float) -> pd.DataFrame:
        u = rng.random(n)
        early, late = 1 / rng.integers(1, 6, n), 0.125
        return users(name, np.where(u < 0.6, early, np.where(u < 0.6 + more, late, np.nan)))

    rows = compared_at_once([reached("a", 0.0), *(reached(f"c{i}", gained) for i in range(300))])
    doubted = rows["note"].fillna("").str.startswith("not trustworthy")
    # All candidates are compared with one baseline, so they go together. The answer over everybody holds what is true.
    missed = (rows["ci_low_per_assigned"] > gained / 8) | (rows["ci_high_per_assigned"] < gained / 8)
    assert missed.mean() < 0.15
    if gained:
        assert (rows["difference"] < 0).all() and doubted.all() and rows["better"].isna().all()
        assert (rows["difference_per_assigned"] > 0).mean() > 0.9
    else:
        assert doubted.mean() < 0.02 and rows["better"].notna().mean() < 0.15


RAMPS = [((0.45, 0.55), 0.0, ()), ((0.5, 0.5), 0.0, ()), ((0.5, 0.5), 0.06, ())]
RAMPS += [((0.05, 0.8), effect, ("date",)) for effect in (0.0, 0.07)]
"""Shares of the candidate on the first and last day, its effect, and strata."""


@pytest.mark.parametrize(("shares", "effect", "strata"), RAMPS)
def test_a_ramp_over_days_that_differ_makes_no_winner(
    shares: tuple[float, float], effect: float, strata: tuple[str, ...]
) -> None:
    rng, n, days = np.random.default_rng(49), 400, 14
    share, mean = np.linspace(*shares, days), np.linspace(0.40, 0.55, days)

    def arm(name: str, sizes: Any, more: float) -> pd.DataFrame:
        size = np.rint(sizes).astype(int)
        dates = np.repeat([f"2026-11-{day:02}" for day in range(1, days + 1)], size)
        hits = rng.random(size.sum()) < np.repeat(mean, size) + more
        return users(name, hits.astype(float), evaluation_date=dates)

    # A baseline of its own for each few candidates: one draw of it moves them all.
    wins, losses, doubted, missed = [], [], [], []
    for _ in range(30 if strata else 6):
        arms = [arm("a", n * (1 - share), 0.0), *(arm(f"c{i}", n * share, effect) for i in range(2 if strata else 15))]
        rows = compared_at_once(arms, dates=("2026-11-01", "2026-11-14"), strata=strata)
        wins += (rows["better"] == "candidate").tolist()
        losses += (rows["better"] == "baseline").tolist()
        doubted += rows["note"].fillna("").str.contains("the means of days go from ").tolist()
        if strata:
            missed += ((rows["strata_ci_low"] > effect) | (rows["strata_ci_high"] < effect)).tolist()
    if strata:
        # Within days the ramp changes nothing: each test has a verdict and finds what is there.
        assert not any(doubted) and at_most(missed, 0.05)
        assert np.mean(wins) > 0.95 if effect else at_most([*wins, *losses], 0.05)
    elif shares[0] != shares[1]:
        # The days alone move the difference by half a standard error.
        assert at_most(wins, 0.025) and np.mean(doubted) > 0.5
    else:
        assert np.mean(doubted) < 0.02 and (np.mean(wins) > 0.95 if effect else at_most(losses, 0.05))


CELLS = [("values like AP", 20, 4, 0.5), ("0 or 1", 40, 9, 0.9), ("light lists", 30, 3, 0.9)]
CELLS += [("Pareto lists", 60, 1, 0.0), ("values like AP", 400, 9, 0.9), ("light lists", 400, 9, 0.9)]
CELLS += [(hard.PAIRED, 100, 1, 0.5), (hard.CAPPED, 100, 4, 0.5)]


@pytest.mark.parametrize(("data", "n", "times", "zeros"), CELLS)
def test_simulated_cells_are_compared_as_their_users_are(data: str, n: int, times: int, zeros: float) -> None:
    """The cells of ``tests.benchmarks.hard``, from which docs/comparing.md has its table, one by one and at once."""
    tests = 5
    expected, arms = hard.rows_of(data, (n, n * times), (1 - zeros, 1 - zeros), tests, 3)
    for test in range(tests):
        rows = []
        for name, of in zip("ab", arms, strict=True):
            value, lists, count = of[test]
            more = {"experiment_id": name, "n_lists": np.repeat(lists, count).astype(int)}
            rows.append(users(name * (data != hard.PAIRED), np.repeat(value, count)).assign(**more))
        cap = 0.99 if data == hard.CAPPED else None
        own = compared_at_once(rows, mean_over="lists" if "lists" in data else "users", cap=cap).iloc[0]
        for name in ("test", "better"):
            assert own[name] == expected[name][test]
        for name in ("p_adjusted", "adjusted_ci_low", "adjusted_ci_high", "adjusted_relative_ci_low"):
            value = np.array(expected[name], float)[test]
            assert float(own[name]) == pytest.approx(value, rel=1e-9, nan_ok=True), name


@pytest.mark.parametrize(("data", "n", "times", "zeros"), CELLS)
def test_the_error_is_that_of_the_level_however_few_have_a_hit(data: str, n: int, times: int, zeros: float) -> None:
    found = hard.summary(data, n, times, zeros, 600, 4)
    assert found["found"] <= 0.05 + 3 * 0.009 and found["wrong"] <= 0.05 + 3 * 0.009
    if n * (1 - zeros) >= 25 and "Pareto" not in data:
        # Many hits: each test has a verdict and an interval, and the level is used.
        assert not found["none"] and not found["no interval"] and found["found"] > 0.035 - 3 * 0.0075


@pytest.mark.parametrize("design", ["independent", "paired"])
@pytest.mark.parametrize(("n", "tests", "effect"), [(50, 1_000, 0.0), (50, 1_000, 0.3), (2_000, 100, 0.05)])
def test_intervals_less_what_covariates_explain_hold_what_is_true(
    n: int, tests: int, effect: float, design: str
) -> None:
    """Four covariates with correlations of 0.64, whose sum explains half of the variance."""
    rng, names, arms = np.random.default_rng(51), ["x1", "x2", "x3", "x4"], []
    for name, more in (("a", 0.0), ("b", effect)):
        x = 0.8 * rng.normal(size=(tests * n, 1)) + 0.6 * rng.normal(size=(tests * n, 4))
        value = 9 + more + x.sum(axis=1) / np.sqrt(16 * 0.64 + 4 * 0.36) + rng.normal(size=len(x))
        test, of_user = np.repeat([f"t{i}" for i in range(tests)], n), dict(zip(names, x.T, strict=True))
        arms.append(users(name * (design != "paired"), value, test=test, **of_user).assign(experiment_id=name))
    rows = compared_at_once(arms, segments="test", design=design, covariates=names)
    found, missed = rows["better"].notna(), (rows["cuped_ci_low"] > effect) | (rows["cuped_ci_high"] < effect)
    assert len(rows) == tests and (rows["test"] == "cuped").all()
    assert at_most(missed, 0.05) and missed.mean() > 0.05 - 3 * np.sqrt(0.0475 / tests)
    assert at_most(found, 0.05) if not effect else found.mean() > 1.5 * (rows["p_value"] < 0.05).mean()
