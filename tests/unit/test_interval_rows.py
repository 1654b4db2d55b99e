"""Intervals that agree with the corrected test: at which level, with which bounds, and what they say of 0."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats
from statsmodels.stats.weightstats import CompareMeans

from rankmetrics_spark import errors as err, report as rep, statistics as st
from rankmetrics_spark.config import Comparison, PlannedLooks
from tests.helpers.screens import contradictions, units
from tests.helpers.users import METRIC, apart, compared, table

METRICS = ("m1", "m2", "m3")
ROLES = {"m1": "primary", "m2": "guardrail", "m3": "secondary"}
BOUNDS = ("ci_low", "ci_high")
Rows = list[dict[str, Any]]


def log(seed: int, metrics: Sequence[str] = METRICS, n: int = 75, effect: float = 0.1) -> pd.DataFrame:
    """Users of three experiments; the effects of the metrics go from nothing to one that nobody doubts."""
    rng = np.random.default_rng(seed)
    users = table({name: np.zeros(n) for name in "abc"})
    own = np.tile(rng.random(n), 3)
    for place, metric in enumerate(metrics):
        shift = np.repeat([0.0, 1.0, -0.7], n) * effect * place
        users[metric] = own + rng.random(3 * n) / (1 + 400 * (place == 2)) + shift
        users[f"before {metric}"] = users[f"own {metric}"] = own + rng.random(3 * n) / 3
    users["country"] = [f"c{i % n % 3}" for i in range(3 * n)]
    return users


def rows_of(users: pd.DataFrame, metrics: Sequence[str] = METRICS, **rules: Any) -> Rows:
    return [*compared(users, metrics=metrics, segments=("country",), roles=ROLES, **rules).values()]


def excludes_zero(row: dict[str, Any], name: str) -> bool:
    return bool(row[f"{name}_low"] > 0 or row[f"{name}_high"] < 0)


LOOKS: dict[str, dict[str, Any]] = {
    "one": {},
    "any": {"looks": "any", "tuning_users": 50},
    "planned": {"looks": PlannedLooks(14, "pocock", 6)},
    "early": {"looks": PlannedLooks(14, "obrien_fleming", 1)},
    "beyond": {
        "looks": PlannedLooks(3, "linear"),
        "look_numbers": {("a", n, m): 4 - 2 * (n == "c") for n in "bc" for m in METRICS},
    },
}


@pytest.mark.parametrize("design", ["paired", "independent"])
@pytest.mark.parametrize("looks", LOOKS)
def test_a_row_is_better_or_worse_exactly_where_its_interval_excludes_0(design: str, looks: str) -> None:
    seen = set()
    for seed, correction in enumerate(st.CORRECTIONS):
        shape: dict[str, Any] = [{"families": "one"}, {"primary_share": 0.8}, {}][seed % 3]
        users = log(seed, n=[75, 63][seed % 2])
        for row in rows_of(users, correction=correction, design=design, earlier=seed % 2 == 0, **shape, **LOOKS[looks]):
            result = row["better"] is not None
            assert excludes_zero(row, "adjusted_ci") is result
            assert excludes_zero(row, "adjusted_relative_ci") is result or np.isnan(row["adjusted_relative_ci_low"])
            assert np.isnan(row["adjusted_ci_low"]) == np.isnan(row["p_adjusted"])
            seen.add("none" if np.isnan(row["p_adjusted"]) else "1" if row["p_adjusted"] == 1 else str(result))
            seen.add(f"of {row['n_comparisons']}")
    assert {"1", "True", "False"} <= seen or looks in ("early", "beyond")
    assert "none" in seen or looks != "beyond"


@pytest.mark.parametrize("correction", ["holm", "fdr_bh", "none"])
@pytest.mark.parametrize("design", ["paired", "independent"])
def test_the_interval_is_that_of_t_at_the_level_of_the_correction(correction: str, design: str) -> None:
    users = log(7)
    rows = rows_of(users, correction=correction, design=design, confidence=0.9)
    wider = 0
    for row in rows:
        some = users if row["segment"] == "all" else users[users["country"] == row["segment"].partition("=")[2]]
        arms = [some.loc[some["experiment"] == row[name], row["metric"]] for name in ("baseline", "experiment_id")]
        if row["p_value"] == 0:
            continue
        level = 0.1 * row["p_value"] / row["p_adjusted"]
        if design == "paired":
            interval = stats.ttest_rel(arms[1].to_numpy(), arms[0].to_numpy()).confidence_interval(1 - level)
        else:
            interval = CompareMeans.from_data(arms[1], arms[0]).tconfint_diff(level, usevar="unequal")
        assert [row["adjusted_ci_low"], row["adjusted_ci_high"]] == pytest.approx([*interval], rel=1e-8, abs=1e-12)
        assert row["adjusted_ci_low"] <= row["ci_low"] and row["ci_high"] <= row["adjusted_ci_high"]
        if row["p_adjusted"] == row["p_value"]:
            for name in (*BOUNDS, *(f"relative_{bound}" for bound in BOUNDS)):
                assert row[f"adjusted_{name}"] == row[name]
        wider += row["adjusted_ci_low"] < row["ci_low"]
    assert wider == 0 if correction == "none" else wider > 5


@pytest.mark.parametrize("looks", ["one", "any", "planned"])
@pytest.mark.parametrize("cuped", [False, True])
def test_alone_the_interval_is_that_of_the_deciding_test_to_the_bit(looks: str, cuped: bool) -> None:
    users = log(4, METRICS[1:2])
    row = compared(users, Comparison("a", candidates=("b",)), metrics=METRICS[1:2], earlier=cuped, **LOOKS[looks])[
        "a", "b", "all", "m2"
    ]
    kind = "cuped_" if cuped and looks == "one" else "sequential_" if looks != "one" else ""
    for name in (*BOUNDS, *(f"relative_{bound}" for bound in BOUNDS)):
        assert row[f"adjusted_{name}"] == row[f"{kind}{name}"]
    assert row["p_adjusted"] == (row["cuped_p_value"] if kind == "cuped_" else row.get("p_sequential", row["p_value"]))


def test_over_any_looks_the_interval_is_the_closed_form_at_the_level_of_the_correction() -> None:
    for row in rows_of(log(5), design="paired", **LOOKS["any"]):
        level = 0.05 * row["p_sequential"] / row["p_adjusted"]
        n, log_alpha = row["n_users"], np.log(0.05)
        rho = 50 / (np.log(1 - 2 * log_alpha) - 2 * log_alpha)
        bound = np.sqrt((n + rho) / n * np.log((n + rho) / (rho * level**2)))
        half = stats.t.isf(stats.norm.sf(bound), n - 1) * row["standard_error"]
        if row["p_sequential"] > 0:
            assert row["adjusted_ci_high"] - row["difference"] == pytest.approx(half, rel=1e-6)


def test_at_the_edge_of_the_decision_interval_and_decision_change_together() -> None:
    rng = np.random.default_rng(8)
    base, noise, other = rng.random(50), rng.normal(0, 0.1, 50), rng.random(50)

    def row(shift: float, **rules: Any) -> dict[str, Any]:
        users = table({"a": base, "b": base + noise + shift})
        users["m2"] = [*base, *other]
        return compared(users, Comparison("a"), metrics=(METRIC, "m2"), **rules)["a", "b", "all", METRIC]

    low, high = 0.0, 0.5
    for step in range(24):
        middle = (low + high) / 2
        result = row(middle, **(LOOKS["planned"] if step > 20 else {}))
        decided = result["better"] is not None
        assert excludes_zero(result, "adjusted_ci") is excludes_zero(result, "adjusted_relative_ci") is decided
        low, high = (low, middle) if decided else (middle, high)
    one, decided = np.ones(4), np.array([True, True, False, False])
    low, high = np.array([-1e-18, -2, 1e-18, -2]), np.array([2, 1e-18, 2, -1e-18])
    moved = st.with_decision(st.Estimate(np.array([1.0, -1.0, 1.0, -1.0]), one, one, low, high, one), decided)
    assert moved.excludes_zero.tolist() == decided.tolist()
    assert np.abs([moved.ci_low - low, moved.ci_high - high]).max() <= 1e-18


def test_a_p_value_that_is_too_small_for_a_number_has_the_level_that_is_always_enough() -> None:
    base = np.random.default_rng(9).random(600)
    users = table({"a": base, "b": base + 0.5 + np.tile([1e-4, -1e-4], 300), "c": base[::-1]})
    row = compared(users, Comparison("a"))["a", "b", "all", METRIC]
    assert row["p_value"] == row["p_adjusted"] == 0 and row["n_comparisons"] == 2
    half = stats.t.isf(0.05 / 2 / 2, 599) * row["standard_error"]
    assert row["adjusted_ci_high"] - row["difference"] == pytest.approx(half, rel=1e-6)
    levels = st.adjusted_levels(np.array([np.nan, 0.2]), np.array([np.nan, 1.0]), 0.05, np.full(2, 0.01))
    assert np.isnan(levels[0]) and levels[1] == pytest.approx(0.01)


def test_without_a_spread_nothing_is_known_of_the_size_of_a_difference_that_is_shown() -> None:
    few = compared(table({"a": np.zeros(4), "b": np.full(4, 0.5), "c": np.zeros(4)}))["a", "b", "all", METRIC]
    assert few["better"] is None and np.isnan([few["adjusted_ci_low"], few["adjusted_relative_ci_low"]]).all()
    users = table({"a": np.full(8, 0.5), "b": np.full(8, 1.0), "c": np.full(8, 0.5)})
    rows = compared(users, Comparison("a"))
    for name, bound, better in (("b", np.nan, "candidate"), ("c", 1 - 0.0125 ** (1 / 8), None)):
        row = rows["a", name, "all", METRIC]
        # Holm's level of the larger of two p-values is that of both together.
        assert row["better"] == better and np.isnan(row["adjusted_relative_ci_low"])
        assert np.isnan(row["adjusted_ci_high"]) if np.isnan(bound) else 0 < row["adjusted_ci_high"] <= bound


# ---- Fieller


def roots(z: Any, share: float, critical: float) -> list[float]:
    """Where a statistic z(share) reaches -critical and critical, found by halving."""
    return [optimize.brentq(lambda q, c=side * critical: z(q) - c, share - 1e6, share + 1e6) for side in (1, -1)]


def few_hits(seed: int, n: int, independent: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.3) * rng.choice([0.2, 0.5, 1.0], n) + 1e-3 * rng.random(n)
    b = np.clip(a * (rng.random(n) < 0.7) if not independent else (rng.random(n) < 0.25) * rng.random(n), 0, 1)
    return a, b + 1e-3 * rng.random(n)


def rows_of_draws(drawn: dict[str, Any], before: dict[str, Any] | None = None, **rules: Any) -> Rows:
    """The rows of all users, one per draw of two experiments; uncorrected."""
    none = np.zeros(len(next(iter(drawn.values()))[0]))
    users = apart(a=none, b=none) if rules.get("design") == "independent" else table({"a": none, "b": none})
    of_draws = {name: np.concatenate(arms) for name, arms in drawn.items()}
    for name, values in (before or {}).items():
        of_draws |= {f"before {name}": values, f"own {name}": values}
    users = pd.concat([users, pd.DataFrame(of_draws)], axis=1)
    return [*compared(users, Comparison("a"), metrics=[*drawn], correction="none", **rules).values()]


@pytest.mark.parametrize("independent", [False, True])
def test_the_interval_of_the_share_is_fiellers_whatever_the_delta_method_says(independent: bool) -> None:
    n_without = n_apart = 0
    drawn = {f"m{seed}": few_hits(seed, 24, independent) for seed in range(120)}
    for row in rows_of_draws(drawn, design="independent" if independent else "paired"):
        a, b = drawn[row["metric"]]
        df = CompareMeans.from_data(b, a).dof_satt() if independent else 23

        def z(q: float, a: Any = a, b: Any = b) -> float:
            c = b - (1 + q) * a
            squared = b.var(ddof=1) + (1 + q) ** 2 * a.var(ddof=1) if independent else c.var(ddof=1)
            return float(c.mean() / np.sqrt(squared / 24))

        q, shown = row["relative_difference"], [row["relative_ci_low"], row["relative_ci_high"]]
        near_0 = abs(stats.ttest_1samp(a, 0).statistic) < stats.t.isf(0.025, df)
        assert np.isnan(shown[0]) == near_0
        if near_0:
            # The baseline's own mean could be 0: no finite bounds.
            assert row["note"] == "the mean of a is too close to 0 for an interval in percent"
            n_without += 1
            continue
        assert (shown[0] > 0 or shown[1] < 0) == (row["p_value"] < 0.05) == (row["better"] is not None)
        assert shown == pytest.approx(roots(z, q, stats.t.isf(0.025, df)), rel=1e-6)
        n_apart += shown[1] - q > 1.2 * (q - shown[0])
    assert n_apart > 30 and 0 < n_without < 20


def test_a_share_of_a_mean_close_to_0_has_a_least_value_where_b_is_clearly_above_it() -> None:
    """5 % of the users of a have a hit, and 75 % of b: what is true is 1,400 % more."""
    rng, n = np.random.default_rng(4), 80
    shares = {"a": 0.05, "b": 0.75}
    drawn = {
        f"m{i}": tuple((rng.random(n) < p) * (0.5 + 0.5 * rng.random(n)) for p in shares.values()) for i in range(300)
    }
    n_said, n_wrong, close = 0, 0, "the mean of a is too close to 0 for an interval in percent"
    for row in rows_of_draws(drawn, design="independent"):
        a, b = drawn[row["metric"]]
        if row["note"] is None or not row["note"].startswith(close):
            continue
        # 0.05 / 4 for each of two bounds.
        exact = stats.binomtest(int((a > 0).sum()), n, alternative="less").proportion_ci(1 - 0.05 / 4).high
        low = b.mean() - stats.t.isf(0.05 / 4, n - 1) * b.std(ddof=1) / np.sqrt(n)
        assert row["note"] == f"{close}: b is at least {int(100 * (low / exact - 1)):,} % above it"
        assert np.isnan(row["adjusted_relative_ci_low"])
        n_said, n_wrong = n_said + 1, n_wrong + (low / exact - 1 > 14)
    assert n_said > 100 and n_wrong == 0
    # Of a metric without a highest value nothing is known.
    unbounded = rows_of_draws(drawn, design="independent", ranges=dict.fromkeys(drawn, (0.0, np.inf)))
    assert [row["note"] for row in unbounded].count(close) == n_said


def test_fiellers_interval_of_cuped_is_that_of_the_adjusted_differences() -> None:
    result, rng = 0, np.random.default_rng(1)
    drawn = {f"m{seed}": few_hits(seed, 24, independent=False) for seed in range(200)}
    earlier = {name: b - a + rng.normal(0, 0.25, 24) for name, (a, b) in drawn.items()}
    before = {name: np.concatenate([np.zeros(24), x]) for name, x in earlier.items()}
    for row in rows_of_draws(drawn, before, earlier=True):
        shown = [row["cuped_relative_ci_low"], row["cuped_relative_ci_high"]]
        q, (a, b), x = row["cuped_relative_difference"], drawn[row["metric"]], earlier[row["metric"]]
        if row["test"] != "cuped" or np.isnan(shown[0]):
            continue
        result += 1
        d, slope = b - a, np.cov(b - a, x)[0, 1] / x.var(ddof=1)
        lever = x.mean() ** 2 / (23 * x.var(ddof=1))

        def z(share: float, a: Any = a, y: Any = d - slope * x, lever: float = lever) -> float:
            of_means = 23 * (y - share * a).var(ddof=1) / 22 / 24
            return float((y.mean() - share * a.mean()) / np.sqrt(of_means + 23 * y.var(ddof=1) / 22 * lever))

        assert shown == pytest.approx(roots(z, q, stats.t.isf(0.025, 22)), rel=1e-6)
        assert (shown[0] > 0 or shown[1] < 0) == (row["cuped_p_value"] < 0.05)
    assert result > 50


def test_fiellers_interval_of_independent_cuped_is_that_of_the_adjusted_means() -> None:
    result, rng = 0, np.random.default_rng(2)
    drawn = {f"m{seed}": few_hits(seed, 24, independent=True) for seed in range(200)}
    earlier = {name: [arm + rng.normal(0, 0.3, 24) for arm in arms] for name, arms in drawn.items()}
    before = {name: np.concatenate(arms) for name, arms in earlier.items()}
    for row in rows_of_draws(drawn, before, earlier=True, design="independent"):
        shown = [row["cuped_relative_ci_low"], row["cuped_relative_ci_high"]]
        q, (a, b), x = row["cuped_relative_difference"], drawn[row["metric"]], earlier[row["metric"]]
        if row["test"] != "cuped" or np.isnan(shown[0]):
            continue
        result += 1
        spread = [23 * each.var(ddof=1) for each in x]
        slope = sum(23 * np.cov(y, each)[0, 1] for y, each in zip((a, b), x, strict=True)) / sum(spread)
        apart_by = [each.mean() - np.concatenate(x).mean() for each in x]
        means = [y.mean() - slope * off for y, off in zip((a, b), apart_by, strict=True)]

        def error(q: float, a: Any = a, b: Any = b, x: Any = x, slope: float = slope, off: Any = apart_by) -> float:
            # Half of the users are in each experiment, so the mean of the covariate moves by half with each.
            r, spread = 1 + q, [23 * each.var(ddof=1) for each in x]
            parts = (r * a - slope * (1 + r) / 2 * x[0], b - slope * (1 + r) / 2 * x[1])
            of_means = sum(part.var(ddof=1) * 46 / 45 / 24 for part in parts)
            plain = [y.var(ddof=1) * 46 / 45 for y in (a - slope * x[0], b - slope * x[1])]
            of_slope = (plain[0] * spread[0] + plain[1] * spread[1]) / sum(spread) ** 2
            return float(np.sqrt(of_means + (off[1] - r * off[0]) ** 2 * of_slope))

        assert error(0.0) == pytest.approx(row["cuped_standard_error"], rel=1e-9)
        critical = (row["cuped_ci_high"] - row["cuped_difference"]) / row["cuped_standard_error"]

        def z(q: float, means: Any = means, error: Any = error) -> float:
            return float((means[1] - (1 + q) * means[0]) / error(q))

        assert shown == pytest.approx(roots(z, q, critical), rel=1e-6)
    assert result > 50


# ---- intervals that cover jointly


def test_simultaneous_intervals_are_bonferronis_at_one_level() -> None:
    rows = rows_of(log(6), correction="bonferroni", simultaneous=True, design="paired", primary_share=0.8)
    assert any(row["p_adjusted"] == 1 for row in rows)
    for row in rows:
        share = 0.8 if row["family"] == "primary metrics" else 0.2
        half = stats.t.isf(0.05 * share / row["n_comparisons"] / 2, row["n_users"] - 1) * row["standard_error"]
        assert row["adjusted_ci_high"] - row["difference"] == pytest.approx(half, rel=1e-8)
        assert excludes_zero(row, "adjusted_ci") is (row["better"] is not None)


def test_simultaneous_needs_bonferroni() -> None:
    with pytest.raises(err.ConfigError) as caught:
        Comparison.read({"simultaneous": True, "correction": "fdr_bh"})
    assert str(caught.value) == ("comparison.correction is 'fdr_bh'; allowed: bonferroni, because simultaneous is true")
    assert Comparison.read({"simultaneous": True}).simultaneous


# ---- on the screens


@pytest.mark.parametrize("correction", ["holm", "fdr_bh", "none"])
@pytest.mark.parametrize("looks", ["one", "any"])
def test_no_screen_shows_an_interval_that_contradicts_the_words_beside_it(correction: str, looks: str) -> None:
    rng, n = np.random.default_rng(31), 21 if looks == "one" else 45
    users = table({name: np.zeros(n) for name in "abcd"})
    for metric in ("ap@5", "ap@10", "p@5", "rr"):
        # Few users with few hits, some of them with effects that are close to what the test can find.
        hits = (rng.random(4 * n) < 0.5) * rng.random(4 * n)
        users[metric] = hits + np.repeat([0, 0.2, 0.6, 0.0], n) * (rng.random(4 * n) < 0.8)
    users["country"] = ["de", "fr", "it"] * (4 * n // 3)
    request, names = Comparison("a"), ("ap@5", "ap@10", "p@5", "rr")
    result = compared(users, request, names, ("country",), correction=correction, design="paired", **LOOKS[looks])
    means = [
        {"experiment_id": name, "segment": "all", "metric": metric, "mean": 0.5, "n_users": n, "confidence": 0.95}
        | {"ci_low": 0.4, "ci_high": 0.6, "n_users_with_relevant": n, "convention": "standard"}
        for name in "abcd"
        for metric in names
    ]
    figures = rep.Figures(means, [*result.values()])
    assert {row["better"] for row in result.values()} >= {None, "candidate"}
    assert [*contradictions(figures)] == []
    assert all(len(unit) == 1 for unit in units(figures))
    plain = [{name: value for name, value in row.items() if not name.startswith("adjusted_ci")
              and not name.startswith("adjusted_relative")} for row in result.values()]  # fmt: skip
    # Rows of before have no such bounds: theirs are left out where they contradict.
    assert [*contradictions(rep.Figures(means, plain))] == []
    assert correction == "none" or any(excludes_zero(row, "ci") != (row["better"] is not None) for row in plain)
