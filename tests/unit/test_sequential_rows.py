"""Rows of ``comparisons`` over several looks: the closed forms over the single test; everything that follows them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats
from statsmodels.stats.weightstats import CompareMeans

from rankmetrics_spark.comparison import STATISTICS, types_of
from rankmetrics_spark.config import Comparison, Config, Gate, PlannedLooks, as_dict, from_mapping
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.findings import Finding
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import Figures, answer, cards, sentence, verdict_of
from rankmetrics_spark.statistics import SPENDING, adjusted_p_values, spending_bounds
from tests.helpers.gates import failed_gates
from tests.helpers.messages import messages
from tests.helpers.users import METRIC, apart, compared, one, table

PLAN: dict[str, Any] = {"planned": 14, "spending": "obrien_fleming", "look": 6}


def both(n: int = 200, effect: float = 0.05, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.random(n)
    return table({"a": a, "b": a + effect + rng.normal(0, 0.2, n)})


def rho_of(tuning: float, alpha: float = 0.05) -> float:
    return float(tuning / (np.log(1 - 2 * np.log(alpha)) - 2 * np.log(alpha)))


def half_width(error: float, n: int, tuning: float, df: float, alpha: float = 0.05) -> float:
    """The closed form, of a t with the same tail as its z."""
    rho = rho_of(tuning, alpha)
    z = np.sqrt((n + rho) / n * np.log((n + rho) / (rho * alpha**2)))
    return float(error * stats.t.isf(stats.norm.sf(z), df))


# ---- any look


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("design", ["paired", "independent"])
def test_the_interval_is_the_closed_form_over_the_error_of_the_test(design: str, confidence: float) -> None:
    users = both()
    row = one(users, design=design, looks="any", tuning_users=700, confidence=confidence)
    a, b = (users.loc[users.experiment == name, METRIC].to_numpy() for name in "ab")
    n, df = (200, 199) if design == "paired" else (400, CompareMeans.from_data(b, a).dof_satt())
    half = half_width(row["standard_error"], n, 700, df, 1 - confidence)
    assert (row["n_users"], row["looks"], row["tuning_users"]) == (n, "any", 700)
    assert row["sequential_ci_low"] == pytest.approx(row["difference"] - half, rel=1e-9)
    assert row["sequential_ci_high"] == pytest.approx(row["difference"] + half, rel=1e-9)
    rho, z = rho_of(700, 1 - confidence), stats.norm.isf(row["p_value"] / 2)
    evidence = np.exp(n * z**2 / (2 * (n + rho))) * np.sqrt(rho / (n + rho))
    assert row["p_sequential"] == pytest.approx(min(1, 1 / evidence), rel=1e-9)
    single = one(users, design=design, confidence=confidence)
    assert all(row[name] == single[name] for name in single if name not in FOLLOWS)
    # At the bounds of the share, a test of b - (1 + q) * a has the same t.
    for name, sign in (("low", 1), ("high", -1)):
        scaled = (1 + row[f"sequential_relative_ci_{name}"]) * a
        t = stats.ttest_rel(b, scaled) if design == "paired" else stats.ttest_ind(b, scaled, equal_var=False)
        assert t.statistic == pytest.approx(sign * half / row["standard_error"], rel=1e-8)


FOLLOWS = ("p_adjusted", "better", "adjusted_ci_low", "adjusted_ci_high", "adjusted_relative_ci_low", "users_needed",
           "adjusted_relative_ci_high", "minimum_detectable_effect", "adjusted_minimum_detectable_effect")  # fmt: skip
"""Columns that follow the looks, beside those that only they have."""


def test_without_looks_their_columns_are_null() -> None:
    row = one(both())
    names = [name for name in types_of(STATISTICS.values()) if name.startswith("sequential_")]
    assert len(names) == 4
    assert not {*names, "looks", "p_sequential", "tuning_users"} & {*row}


def test_a_difference_of_a_single_look_is_none_over_any_looks() -> None:
    users = both(effect=0.05)
    single, row = one(users), one(users, looks="any", tuning_users=1_000)
    assert single["p_value"] < 0.05 < row["p_sequential"] == row["p_adjusted"]
    assert (single["better"], row["better"]) == ("candidate", None)
    assert row["sequential_ci_low"] < 0 < row["ci_low"]
    assert Finding.of(row).tested.low == row["sequential_ci_low"] and Finding.of(single).tested.low == single["ci_low"]
    assert Finding.of(row).tested_share.high == row["sequential_relative_ci_high"]


@pytest.mark.parametrize("method", ["holm", "fdr_bh"])
def test_the_p_values_over_looks_are_corrected(method: str) -> None:
    rng = np.random.default_rng(3)
    users = table({name: rng.random(60) + shift for name, shift in (("a", 0), ("b", 0.2), ("c", 0.45), ("d", 0.2))})
    users["country"] = ["de", "fr", "it"] * 80
    options = {"correction": method, "looks": "any", "tuning_users": 50, "families": "one"}
    rows = [*compared(users, segments=("country",), **options).values()]
    assert len(rows) == 6 * 4  # all pairs, all users and three countries
    p = np.array([row["p_sequential"] for row in rows])
    assert [row["p_adjusted"] for row in rows] == pytest.approx(list(adjusted_p_values(p, method)), rel=1e-12)
    better = {row["better"] is not None for row in rows}
    assert better == {True, False}
    for row in rows:
        assert row["better"] is None or row["sequential_ci_low"] > 0 or row["sequential_ci_high"] < 0
        assert row["p_sequential"] >= row["p_value"]


def test_what_can_be_found_is_what_this_look_can_find() -> None:
    row = one(both(), looks="any", tuning_users=700, effect=0.03)
    reach = half_width(row["standard_error"], 200, 700, 199) + stats.norm.ppf(0.8) * row["standard_error"]
    assert row["minimum_detectable_effect"] == pytest.approx(reach, rel=0.02)
    assert row["adjusted_minimum_detectable_effect"] == row["minimum_detectable_effect"]  # one comparison
    n, deviation = row["users_needed"], row["standard_error"] * np.sqrt(200)
    for users, is_enough in ((n, True), (n - 1, False)):
        error = deviation / np.sqrt(users)
        reach = half_width(error, users, 700, 1e9) + stats.norm.ppf(0.8) * error
        assert bool(reach <= 0.03) is is_enough


def test_the_corrected_effect_is_that_of_the_stricter_level() -> None:
    users = both()
    users["ndcg"] = users[METRIC]
    row = compared(users, Comparison("a"), metrics=(METRIC, "ndcg"), looks="any", tuning_users=700)[
        "a", "b", "all", METRIC
    ]
    # The mixture is that of the run's level, also where a comparison has to pass half of it.
    rho, error = rho_of(700), row["standard_error"]
    bound = error * np.sqrt((200 + rho) / 200 * np.log((200 + rho) / (rho * 0.025**2)))
    expected = bound + stats.norm.ppf(0.8) * error
    assert row["adjusted_minimum_detectable_effect"] == pytest.approx(expected, rel=0.02)
    assert row["adjusted_minimum_detectable_effect"] > row["minimum_detectable_effect"] * 1.02


# ---- planned looks


@pytest.mark.parametrize("spending", SPENDING)
def test_a_planned_look_has_the_bound_of_its_number(spending: str) -> None:
    row = one(both(2_000), looks=PlannedLooks(14, spending, 6))
    bound = spending_bounds(np.arange(1, 7) / 14, 0.025, spending)[-1]
    half = row["sequential_ci_high"] - row["difference"]
    assert half / row["standard_error"] == pytest.approx(stats.t.isf(stats.norm.sf(bound), 1_999), rel=1e-6)
    assert (row["looks"], row["tuning_users"]) == (f"6 of 14, {spending}", None)


def test_each_pair_has_the_bound_of_its_own_look() -> None:
    rng = np.random.default_rng(5)
    users = table({name: rng.random(400) for name in "abc"})
    looks = {("a", "b", METRIC): 1, ("a", "c", METRIC): 9}
    rows = compared(users, Comparison("a"), looks=PlannedLooks(10, "obrien_fleming"), look_numbers=looks)
    for name, look in (("b", 1), ("c", 9)):
        row = rows["a", name, "all", METRIC]
        bound = spending_bounds(np.arange(1, look + 1) / 10, 0.025, "obrien_fleming")[-1]
        half = (row["sequential_ci_high"] - row["difference"]) / row["standard_error"]
        assert half == pytest.approx(stats.t.isf(stats.norm.sf(bound), 399), rel=1e-6)


@pytest.mark.parametrize(
    ("rules", "note"),
    [({"look_numbers": {("a", "b", METRIC): 15}}, "not tested, since this is look 15 and 14 are planned"),
     ({}, "not tested, since looks are planned and the number of this look is not known")],
)  # fmt: skip
def test_beyond_the_plan_there_is_no_test(rules: dict[str, Any], note: str) -> None:
    row = one(both(effect=1.0), looks=PlannedLooks(14), **rules)
    assert row["note"] == note and row["better"] is None and row["test"] is None
    for name in ("p_sequential", "p_adjusted", "sequential_ci_low", "sequential_relative_ci_high", "users_needed"):
        assert np.isnan(row[name])
    assert sentence(row, parse(METRIC)) == f"b against a on MAP@10: {note}"
    gate = Gate(metric=parse(METRIC), max_drop=0.1, on="bound")
    assert failed_gates([gate], [], [row]) == [
        "b against a has no interval of the difference on MAP@10; the gate cannot be checked"
    ]


def test_beyond_the_plan_a_split_that_is_off_is_said_all_the_same() -> None:
    rng = np.random.default_rng(27)
    users = apart(a=rng.normal(0, 1, 500), b=rng.normal(0, 1, 300))
    row = one(users, looks=PlannedLooks(14), look_numbers={("a", "b", METRIC): 15}, shares={"a": 1, "b": 1})
    p = stats.chisquare([500, 300]).pvalue
    assert row["note"] == f"not trustworthy: the users do not follow the planned shares (p = {p:.2g})"
    assert np.isnan(row["p_adjusted"]) and row["better"] is None


# ---- what decides, and what is shown


def test_cuped_is_widened_where_it_decides() -> None:
    rng = np.random.default_rng(25)
    x, arm = rng.normal(0.5, 0.2, 80), np.repeat([0.0, 1.0], 40)
    y = x - 0.02 * arm + rng.normal(0, 0.02, 80)
    users = apart(a=y[:40], b=y[40:])
    users[f"before {METRIC}"] = x
    row = one(users, earlier=True, looks="any", tuning_users=80)
    single = (row["cuped_ci_high"] - row["cuped_difference"]) / row["cuped_standard_error"]
    df = optimize.brentq(lambda df: stats.t.isf(0.025, df) - single, 5, 1e4)
    half = half_width(row["cuped_standard_error"], 80, 80, df)
    assert row["test"] == "cuped"
    assert row["sequential_ci_low"] == pytest.approx(row["cuped_difference"] - half, rel=1e-9)
    assert Finding.of(row).tested.high == row["sequential_ci_high"] == pytest.approx(row["cuped_difference"] + half)
    ratio = (row["sequential_relative_ci_high"] - row["cuped_relative_difference"]) / (
        row["cuped_relative_ci_high"] - row["cuped_relative_difference"]
    )
    # Fieller's interval of a baseline whose own error is 10 % of it grows a little faster than its t.
    assert 1 < ratio / (half / (row["cuped_ci_high"] - row["cuped_difference"])) < 1.03


def test_gates_on_the_bound_look_at_the_interval_over_looks() -> None:
    row = one(both(), looks="any", tuning_users=700)
    lowest = row["sequential_relative_ci_low"]
    drop = Gate(metric=parse(METRIC), max_relative_drop=max(0.0, -lowest) + 1e-6, on="bound")
    assert failed_gates([drop], [], [row]) == []
    tight = one(both(effect=-0.05), looks="any", tuning_users=700)
    limit = -(tight["ci_low"] + tight["sequential_ci_low"]) / 2
    result = failed_gates([Gate(metric=parse(METRIC), max_drop=limit, on="bound")], [], [tight])
    assert result == [
        f"MAP@10 of b may have fallen by {-tight['sequential_ci_low']:.4f} against a; the gate allows {limit:g}"
    ]
    assert failed_gates([Gate(metric=parse(METRIC), max_drop=limit, on="bound")], [], [one(both(effect=-0.05))]) == []


def test_the_sentence_shows_the_interval_that_decides() -> None:
    row = one(both(effect=0.2), looks="any", tuning_users=700)
    shown = [100 * row[n] for n in ("relative_difference", "sequential_relative_ci_low", "sequential_relative_ci_high")]
    assert sentence(row, parse(METRIC)) == (
        f"b beats a on MAP@10: {row['mean_baseline']:.3f} → {row['mean_candidate']:.3f}, {shown[0]:+.1f} % "
        f"({shown[1]:+.1f} to {shown[2]:+.1f}), p < 0.001, valid at every look"
    )
    row = one(both(effect=0.2), looks=PlannedLooks(**PLAN))
    assert sentence(row, parse(METRIC)).endswith(", p < 0.001, valid at look 6 of 14")
    row = one(both(effect=0.0), looks="any")
    assert ", valid at every look; 200 users are enough to find" in sentence(row, parse(METRIC))


def test_the_verdict_says_what_limits_it() -> None:
    row = one(both(), looks="any", look_numbers={("a", "b", METRIC): 6})
    assert verdict_of([row])[1:] == [
        "This is look 6, and no comparison.period is set: a verdict over several looks needs data that grow from look "
        "to look, not a new date each time"
    ]
    of_period = row | {"period_from": "2026-11-08", "n_days": 6}
    assert verdict_of([of_period])[1:] == []
    planned = of_period | {"looks": "6 of 14, pocock"}
    assert verdict_of([planned])[1:] == [
        "The bounds of planned looks count on users who are new at each look. If many of them return on several of the "
        "6 days, up to 9 instead of 5 of 100 tests without a difference 'beat'; looks: any has no such limit"
    ]
    assert verdict_of([planned | {"n_days": 1}])[1:] == []
    assert "single look" in verdict_of([one(both(), look_numbers={("a", "b", METRIC): 6})])[1]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_handful_of_users_is_never_surer_than_a_single_look(n: int) -> None:
    users = both(n, effect=3.0)
    single, row = one(users), one(users, looks="any", tuning_users=2)
    if n == 1:
        assert np.isnan(row["p_sequential"]) and row["note"] == "fewer than two users in both experiments"
    else:
        # All signs of so few differences say nothing, however often somebody looks.
        assert single["p_value"] < 0.05 and row["p_sequential"] == 1 and row["better"] is None
        assert row["test"] == "sign flips" and row["sparse_p_value"] == 2 / 2**n and np.isnan(row["sequential_ci_low"])


def test_before_10_users_with_a_hit_in_each_arm_there_is_no_test_over_looks() -> None:
    rng = np.random.default_rng(4)
    hits = {"a": np.r_[rng.random(9) / 9, np.zeros(31)], "b": 0.6 + rng.random(60) / 3}
    few = "no test yet: several looks need 10 users with a hit in each experiment, and a has 9"
    for rule in ({"looks": "any"}, {"looks": PlannedLooks(**PLAN)}):
        row = one(apart(**hits), margin={METRIC: "10%"}, **rule)
        assert row["p_value"] < 1e-6 and row["note"] == few and row["better"] is None
        undecided = ("p_sequential", "p_adjusted", "adjusted_ci_low", "sequential_relative_ci_high", "p_no_worse",
                     "minimum_detectable_effect", "users_needed")  # fmt: skip
        assert np.isnan([row[name] for name in undecided]).all() and row["within_margin"] is None
        # Verdict, headline and gate say so.
        assert sentence(row, parse(METRIC)) == f"b against a on MAP@10: {few}"
        assert few in str(failed_gates([Gate(metric=parse(METRIC), trusted=True)], [], [row]))
        ten = one(apart(a=np.r_[0.01, hits["a"]], b=hits["b"]), **rule)
        assert ten["better"] == "candidate" and "no test yet" not in str(ten["note"])
    # Rare misses are as hard to measure as rare hits.
    full = apart(a=np.r_[np.ones(31), hits["a"][:9]], b=1 - hits["b"] / 2)
    for rule in ({"looks": "any"}, {"looks": PlannedLooks(**PLAN)}):
        assert one(full, **rule)["note"] == few.replace("a hit", "a value other than 1") and one(full)["better"]
    assert one(apart(**hits))["better"] == "candidate"
    both_few = one(apart(a=[0.1, 0.2], b=np.arange(17) / 17), looks="any")
    assert both_few["note"].startswith("no interval over several looks, since permutation decides: t does not hold")


def test_without_a_spread_the_single_look_decides() -> None:
    row = one(table({"a": np.zeros(10), "b": np.full(10, 0.5)}), looks="any")
    assert row["p_sequential"] == row["p_value"] == 2**-9
    assert np.isnan([row["sequential_ci_low"], row["sequential_ci_high"]]).all() and row["better"] == "candidate"
    tiny = one(table({"a": np.zeros(9), "b": np.full(9, 1e-17)}), looks="any")
    assert np.isnan(tiny["p_sequential"]) and tiny["note"] == "the values differ too little from one another for a test"


# ---- the config


def config(**comparison: Any) -> Config:
    return from_mapping({"source": {"path": "logs"}, "comparison": {"baseline": "a", **comparison}})


def test_looks_are_read_as_users_write_them() -> None:
    assert config().comparison.looks == "one" and config().comparison.tuning_users == 10_000
    assert config(looks="ANY", tuning_users=500).comparison == Comparison(baseline="a", looks="any", tuning_users=500)
    planned = config(looks={"planned": 14}).comparison.looks
    assert planned == PlannedLooks(14, "obrien_fleming", None)
    record = as_dict(config(looks=PLAN))["comparison"]
    assert record["looks"] == PLAN and record["tuning_users"] == 10_000
    for spending in SPENDING:
        assert config(looks={"planned": 2, "spending": spending}).comparison.looks == PlannedLooks(2, spending)


@pytest.mark.parametrize(("comparison", "message"), messages("looks"))
def test_other_looks_are_refused(comparison: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**comparison)
    assert str(caught.value) == message


# ---- the page


def test_the_page_shows_the_interval_that_decides_and_says_at_which_looks_it_holds() -> None:
    row = one(both(effect=0.2), looks="any", tuning_users=700)
    means = [{"experiment_id": name, "segment": "all", "metric": METRIC, "mean": 0.5} for name in "ab"]
    figures = Figures(means, [row | {"experiment_id": "b", "baseline": "a"}])
    result = answer(figures)
    shown = [100 * row[f"sequential_relative_ci_{side}"] for side in ("low", "high")]
    assert "".join(result.detail) == f"(95 % interval {shown[0]:+.1f} to {shown[1]:+.1f} %, valid at every look)"
    (card,) = cards(figures)
    assert card.interval == f"95 % interval {shown[0]:+.1f} to {shown[1]:+.1f} %, valid at every look"
    open_row = one(both(effect=0.02), looks=PlannedLooks(**PLAN))
    (card,) = cards(Figures(means, [open_row]))
    assert card.found.state == "open" and card.interval.endswith(", valid at look 6 of 14")
    assert card.change is not None and card.change.low == pytest.approx(100 * open_row["sequential_relative_ci_low"])
