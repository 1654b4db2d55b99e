"""Non-inferiority and equivalence: statsmodels, SciPy on a scaled baseline, the interval."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans, ttost_ind, ttost_paired

from rankmetrics_spark.config import Comparison, Gate
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import Figures, html, verdict_of
from tests.helpers.users import METRIC, apart, compared, one, table

COLUMNS = ("margin", "relative_margin", "worst_case", "relative_worst_case", "p_no_worse", "p_equivalent")


def same(n: int = 150, effect: float = -0.005, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    a = rng.beta(2, 2, n)
    return a, a + effect + rng.normal(0, 0.05, n)


def row_of(users: pd.DataFrame, margin: float, in_shares: bool, **rules: Any) -> dict[str, Any]:
    return one(users, margin={METRIC: f"{100 * margin}%" if in_shares else margin}, **rules)


# ---- oracles


@pytest.mark.parametrize("margin", [0.004, 0.02])
def test_a_paired_row_has_the_p_values_of_statsmodels(margin: float) -> None:
    a, b = same()
    row = row_of(table({"a": a, "b": b}), margin, False)
    p, lower, _ = ttost_paired(b, a, -margin, margin)
    assert row["p_equivalent"] == pytest.approx(p, rel=1e-9)
    assert row["p_no_worse"] == pytest.approx(lower[1], rel=1e-9)
    assert (row["margin"], np.isnan(row["relative_margin"])) == (margin, True)
    assert row["worst_case"] == -row["ci_low"] and np.isnan(row["relative_worst_case"])


def test_users_needed_are_for_the_margin_else_the_effect_else_what_a_gate_forbids() -> None:
    a, b = same()
    limits = [{"max_relative_drop": 0.02}, {"max_drop": 0.03, "experiment": "b"}, {"max_drop": 0.0}]
    others = ({"segment": "country=de"}, {"experiment": "c"}, {"metric": "rr"})
    every = [*limits, *({"max_drop": 0.001, **other} for other in others)]
    gates = tuple(Gate(**{"metric": METRIC, **limit}) for limit in every)
    for asked, effect in (
        ({}, np.nan),
        ({"effect": {"rr": 0.01}}, np.nan),
        ({"gates": gates}, 0.02 * a.mean()),
        ({"gates": gates, "effect": {METRIC: 0.04}}, 0.04),
        ({"gates": gates, "effect": "4%"}, 0.04 * a.mean()),
        ({"effect": 0.005, "margin": {METRIC: 0.01}}, 0.01),
        ({"effect": 0.005, "margin": {METRIC: "3%"}}, 0.03 * a.mean()),
    ):
        # Whatever was observed.
        needed = len(a) * ((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * stats.sem(b - a) / effect) ** 2
        np.testing.assert_equal(one(table({"a": a, "b": b}), **asked)["users_needed"], np.ceil(needed))


@pytest.mark.parametrize("margin", [0.01, 0.3])
def test_an_independent_row_has_the_p_values_of_statsmodels(margin: float) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random(80), rng.beta(2, 1, 110)
    row = row_of(apart(a=a, b=b), margin, False)
    p, lower, _ = ttost_ind(b, a, -margin, margin, usevar="unequal")
    assert row["p_equivalent"] == pytest.approx(p, rel=1e-9)
    assert row["p_no_worse"] == pytest.approx(lower[1], rel=1e-9)
    again = CompareMeans.from_data(b, a).ttost_ind(-margin, margin, usevar="unequal")
    assert row["p_equivalent"] == pytest.approx(again[0], rel=1e-9)


@pytest.mark.parametrize("share", [0.01, 0.05])
@pytest.mark.parametrize("paired", [True, False])
def test_a_relative_margin_is_a_test_of_the_scaled_baseline(paired: bool, share: float) -> None:
    a, b = same()
    b = b if paired else b[:120]
    row = row_of(table({"a": a, "b": b}) if paired else apart(a=a, b=b), share, True)

    def p_of(scale: float, alternative: str) -> float:
        if paired:
            return float(stats.ttest_1samp(b - scale * a, 0, alternative=alternative).pvalue)
        return float(stats.ttest_ind(b, scale * a, equal_var=False, alternative=alternative).pvalue)

    assert row["p_no_worse"] == pytest.approx(p_of(1 - share, "greater"), rel=1e-9)
    both = max(p_of(1 - share, "greater"), p_of(1 + share, "less"))
    assert row["p_equivalent"] == pytest.approx(both, rel=1e-9)
    # The worst case is the margin that would just be shown; its degrees of freedom are those at the margin.
    tolerance = 1e-9 if paired else 1e-2
    assert p_of(1 - row["relative_worst_case"], "greater") == pytest.approx(0.025, rel=tolerance)
    assert (row["relative_margin"], np.isnan(row["margin"]), np.isnan(row["worst_case"])) == (share, True, True)


@pytest.mark.parametrize("in_shares", [True, False])
def test_where_lower_is_better_the_candidate_must_not_be_above_the_margin(in_shares: bool) -> None:
    a, b = same(effect=0.004)
    row = row_of(table({"a": a, "b": b}), 0.01, in_shares, directions={METRIC: False})
    expected = stats.ttest_1samp(b - 1.01 * a if in_shares else b - a - 0.01, 0, alternative="less").pvalue
    assert row["p_no_worse"] == pytest.approx(expected, rel=1e-9)
    worst = row["relative_worst_case" if in_shares else "worst_case"]
    at = stats.ttest_1samp(b - (1 + worst) * a if in_shares else b - a - worst, 0, alternative="less").pvalue
    assert at == pytest.approx(0.025, rel=1e-9)


# ---- what is shown


@pytest.mark.parametrize("design", ["paired", "independent"])
@pytest.mark.parametrize("in_shares", [True, False])
@pytest.mark.parametrize("sequential", ["one", "any"])
def test_what_is_shown_agrees_with_worst_case_and_interval(design: str, in_shares: bool, sequential: str) -> None:
    rules: dict[str, Any] = {"design": design, "looks": sequential, "tuning_users": 300}
    shown = set()
    for effect in (-0.03, 0.1):
        a, b = same(effect=effect, seed=7)
        for margin in (0.005, 0.04, 0.5):
            row = row_of(table({"a": a, "b": b}), margin, in_shares, **rules)
            worst = row["relative_worst_case" if in_shares else "worst_case"]
            assert (row["within_margin"] is not None) == (worst < margin)
            if not in_shares:
                low, high = (row[f"{'' if sequential == 'one' else 'sequential_'}ci_{end}"] for end in ("low", "high"))
                expected = "equivalent" if -margin < low and high < margin else "no worse" if -margin < low else None
                assert row["within_margin"] == expected
            shown.add(row["within_margin"])
    assert shown == {None, "no worse", "equivalent"}


def test_over_any_looks_less_is_shown() -> None:
    a, b = same()
    rows = [row_of(table({"a": a, "b": b}), 0.03, True, looks=looks) for looks in ("one", "any")]
    assert rows[0]["p_no_worse"] < rows[1]["p_no_worse"]
    assert rows[0]["relative_worst_case"] < rows[1]["relative_worst_case"]


@pytest.mark.parametrize("in_shares", [True, False])
def test_with_cuped_the_margin_is_that_of_cuped(in_shares: bool) -> None:
    rng = np.random.default_rng(4)
    before = rng.random(240)
    users = apart(a=before[:120] + rng.normal(0, 0.05, 120), b=before[120:] + rng.normal(0, 0.05, 120))
    users[f"before {METRIC}"] = before
    row = row_of(users, 0.04, in_shares, earlier=True)
    assert row["test"] == "cuped"
    prefix = "cuped_relative_" if in_shares else "cuped_"
    worst = row["relative_worst_case" if in_shares else "worst_case"]
    assert worst == pytest.approx(-row[f"{prefix}ci_low"], rel=1e-12)
    assert (row["within_margin"] is not None) == (worst < 0.04)
    assert (row["p_no_worse"] < 0.025) == (worst < 0.04)


def test_nothing_is_shown_without_a_test_a_margin_or_a_direction() -> None:
    a, b = same()
    users = table({"a": a, "b": b})
    both = users.assign(rr=users[METRIC])
    result = compared(both, Comparison("a"), metrics=(METRIC, "rr"), margin={METRIC: 0.1})
    assert np.isnan([result["a", "b", "all", "rr"][name] for name in COLUMNS]).all()
    assert result["a", "b", "all", "rr"]["within_margin"] is None
    row = row_of(users, 0.1, False, directions={METRIC: None})
    assert np.isnan(row["p_no_worse"]) and row["within_margin"] == "equivalent"
    one_user = row_of(users[users.user == "u0"], 0.1, False)
    assert np.isnan(one_user["p_no_worse"]) and one_user["within_margin"] is None
    spoilt = row_of(users.iloc[:-60], 0.1, False, shares={"a": 1.0, "b": 9.0}, design="independent")
    assert spoilt["note"].startswith("not trustworthy") and spoilt["within_margin"] is None
    assert "margin" not in compared(users, Comparison("a"))["a", "b", "all", METRIC]


def test_a_few_users_without_a_spread_show_little() -> None:
    """Were a hundredth of all users worse by 1, four would be among the others with the probability 0.99**4."""
    for users in (table({"a": [0.5] * 4, "b": [0.5] * 4}), apart(a=[0.0] * 4, b=[0.0] * 4)):
        row = row_of(users, 0.01, False)
        assert row["p_no_worse"] == row["p_equivalent"] == pytest.approx(0.99**4)
        assert row["within_margin"] is None and row["worst_case"] == pytest.approx(1 - 0.025**0.25)
        line = "MAP@10 of b is no more than 0.01 below that of a: not shown, it may be 0.6024 below"
        assert verdict_of([row])[-1] == line
    # 0.99**368 is 0.0248, and 0.99**367 is 0.025003.
    for n, said in ((367, None), (368, "equivalent")):
        row = row_of(table({"a": [0.5] * n, "b": [0.5] * n}), 0.01, False)
        assert (row["within_margin"], row["worst_case"] < 0.01, row["ci_high"] < 0.01) == (said, bool(said), bool(said))
    # In shares of a baseline of 0.5, the same margin is 2 %, whatever the spread of the baseline.
    row = row_of(table({"a": [0.2, 0.8] * 184, "b": [0.2, 0.8] * 184}), 0.02, True)
    assert (row["within_margin"], row["p_no_worse"]) == ("equivalent", pytest.approx(0.99**368))
    for high, arms in ((1.0, (0.0, 0.5)), (np.inf, (0.0, 0.0))):
        row = row_of(apart(a=[arms[0]] * 99, b=[arms[1]] * 99), 0.01, False, ranges={METRIC: (0.0, high)})
        assert np.isnan([row["p_no_worse"], row["worst_case"]]).all() and row["within_margin"] is None


def test_an_unknown_interval_has_no_worst_case_and_a_share_of_nothing_is_no_margin() -> None:
    # Three equal differences: p = 2 / 2**3, so nobody knows how far they may be.
    row = row_of(table({"a": [0.5] * 3, "b": [0.6] * 3}), 0.01, True)
    assert row["within_margin"] is None and np.isnan(row["relative_worst_case"])
    assert "MAP@10 of b is no more than 1 % below that of a: not tested" in verdict_of([row])
    spread = row_of(table({"a": [0.5, 0.7, 0.9], "b": [0.6, 0.8, 1.0]}), 0.01, True)
    assert np.isnan([spread["ci_low"], spread["relative_worst_case"]]).all() and spread["difference"] > 0
    for baseline in (0.0, -0.5):
        lost = row_of(table({"a": [baseline] * 30, "b": [baseline + 0.1] * 30}), 0.01, True)
        assert np.isnan(lost["p_no_worse"]) and lost["within_margin"] is None
        assert "MAP@10 of b is no more than 1 % below that of a: not tested" in verdict_of([lost])


# ---- words, config


def test_verdict_and_page_say_what_is_shown() -> None:
    pytest.importorskip("altair")
    a, b = same()
    row = row_of(table({"a": a, "b": b}), 0.05, True)
    worst = f"{100 * row['relative_worst_case']:.1f} %"
    assert verdict_of([row])[-1] == f"MAP@10 of b and a are within 5 % of each other: shown, at most {worst} below"
    row = row_of(table({"a": a, "b": b}), 0.005, False)
    line = verdict_of([row])[-1]
    assert (
        line == f"MAP@10 of b is no more than 0.005 below that of a: not shown, it may be {row['worst_case']:.4f} below"
    )
    counts = {"n_users": 150, "n_users_with_relevant": 150, "confidence": 0.95, "convention": "standard"}
    mean = {"segment": "all", "metric": METRIC, "mean": 0.5, "ci_low": 0.4, "ci_high": 0.6, **counts}
    page = html.page(Figures([mean | {"experiment_id": name} for name in "ab"], [row]))
    assert f"<li>{line}.</li>" in page


def test_numbers_that_are_not_to_be_trusted_show_nothing_of_a_margin() -> None:
    rng = np.random.default_rng(6)
    # The candidate is clearly better, or clearly worse, or as good, and has a fifth of the users that it should have.
    for effect in (0.2, -0.2, 0.0):
        users = apart(a=rng.random(3000) * 0.5 + 0.25, b=rng.random(600) * 0.5 + 0.25 + effect)
        row = row_of(users, 0.02, True, shares={"a": 1.0, "b": 1.0}, design="independent")
        assert row["note"].startswith("not trustworthy")
        (line,) = (line for line in verdict_of([row]) if " than 2 % " in line)
        assert line == (
            "MAP@10 of b is no more than 2 % below that of a: not tested, since these numbers are not to be trusted"
        )


@pytest.mark.parametrize("p", [0.001, 0.4, 0.999])
@pytest.mark.parametrize("shown", [None, "no worse", "equivalent"])
def test_a_candidate_that_is_above_is_never_said_to_be_below(p: float, shown: str | None) -> None:
    a, b = same()
    above = {"p_no_worse": p, "p_equivalent": p, "within_margin": shown, "relative_worst_case": -0.18, "note": None}
    above["better"] = "candidate"
    line = verdict_of([row_of(table({"a": a, "b": b}), 0.02, True) | above])[-1]
    assert "MAP@10 of b" in line and "18.0 % below" not in line and "by up to" not in line
    assert ("at least 18.0 % above" in line) == (shown is not None)


def test_a_margin_claims_no_win_and_no_loss_that_the_corrected_test_does_not_show() -> None:
    # 2.1 standard errors: p = 0.036 alone, 0.072 of two comparisons after Holm.
    a = np.tile([8.0, 12.0], 500)
    error = np.sqrt(2 * a.var(ddof=1) / 1000)
    worst = f"{(2.1 + stats.t.ppf(0.975, 1998)) * error:.4f}"
    for sign, says in ((1, "shown"), (-1, f"not shown, it may be {worst} below")):
        users = apart(a=a, b=a + sign * 2.1 * error, c=a + 0.5 * error)
        result = compared(users, Comparison("a"), margin={METRIC: 0.01}, directions={METRIC: True})
        row = result["a", "b", "all", METRIC]
        assert row["better"] is None and row["p_value"] == pytest.approx(2 * stats.t.sf(2.1, 1998))
        assert (row["p_no_worse"] < 0.025, row["p_no_worse"] > 0.975) == (sign > 0, sign < 0)
        assert f"MAP@10 of b is no more than 0.01 below that of a: {says}" in verdict_of([*result.values()])


def test_margins_are_read_as_people_write_them() -> None:
    sizes = {"ndcg@10": (0.01, True), "ap@5": (0.02, False), "p@5": (0.005, True), "rr": (None, False)}
    for name in ("margin", "effect"):
        section = Comparison.read({name: {"nDCG@10": "1 %", "ap@5": 0.02, "p@5": "0.5%"}})
        assert {metric: section.size_of(name, metric) for metric in sizes} == sizes
        given = getattr(section, name)
        assert given == {"ndcg@10": "1%", "ap@5": 0.02, "p@5": "0.5%"} and Comparison.read({name: given}) == section
    assert Comparison.read({"effect": "0.5 %"}).size_of("effect", "rr") == (0.005, True)


@pytest.mark.parametrize("margin", [{"ap@5": 0}, {"ap@5": "-1%"}, {"ap@5": "100%"}, {"ap@5": True}, {"ap@5": "a bit"}])
def test_a_margin_is_above_0(margin: dict[str, object]) -> None:
    for given in ({"margin": margin}, {"effect": margin["ap@5"]}):
        with pytest.raises(ConfigError, match=r"(margin.ap@5|effect) is .*; allowed: a number above 0 in the unit"):
            Comparison.read(given)


def test_margins_are_a_mapping_of_metrics_of_the_run() -> None:
    with pytest.raises(ConfigError, match=r"comparison.margin is 0.01; allowed: a mapping of metrics to their margins"):
        Comparison.read({"margin": 0.01})
    for name in ("margin", "effect"):
        with pytest.raises(ConfigError, match=rf"comparison.{name}: unknown metric 'rr'"):
            Comparison.read({name: {"rr": 0.1}}).roles([parse("ap@5")])
