"""Rows of users that are few, all alike, in more than one experiment, or of values of any size."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from rankmetrics_spark.config import Comparison
from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import sentence
from tests.helpers.users import METRIC, apart, compared, one, table, times, values

REPLICATES = Comparison("a", bootstrap=times(400), randomization=times(300), aa_check=times(300))


# ---- hostile users


def test_identical_experiments_differ_by_0_with_p_1() -> None:
    a, _ = values(20)
    row = one(table({"a": a, "b": a}), REPLICATES, wilcoxon=True)
    assert row["difference"] == row["relative_difference"] == 0
    # The share of users with a difference from which 20 without one may be drawn, by Clopper and Pearson.
    assert -row["ci_low"] == row["ci_high"] == pytest.approx(proportion_confint(0, 20, 0.05, "beta")[1], rel=1e-9)
    nothing = ("bootstrap_ci_low", "bootstrap_ci_high", "minimum_detectable_effect", "relative_ci_low")
    assert np.isnan([row[name] for name in nothing]).all()
    assert [row[name] for name in ("p_value", "p_adjusted", "p_wilcoxon", "p_randomization")] == [1] * 4
    assert (row["better"], row["note"], row["ties"], row["aa_share"]) == (None, None, 20, 0)
    assert np.isnan(row["effect_size"]) and np.isnan(row["users_needed"])


@pytest.mark.parametrize("make", [table, lambda arms: apart(**arms)])
def test_a_constant_metric_differs_by_0_with_p_1(make: Any) -> None:
    row = one(make({"a": [0.3] * 9, "b": [0.3] * 9}), REPLICATES)
    assert (row["difference"], row["p_value"], row["better"]) == (0, 1, None)


# 2 of 2**9 signs, 2 of 18! / (9! 9!) = 48,620 ways to choose 9 of 18 users, and 1 of 55 ways to choose 2 of 11, give a
# difference of this size.
@pytest.mark.parametrize(
    ("make", "p"),
    [
        (table, 2 / 2**9),
        (lambda arms: apart(**arms), 2 / 48_620),
        (lambda arms: apart(a=arms["a"], b=[0.5] * 2), 1 / 55),
    ],
)
def test_two_constants_of_nine_users_are_different(make: Any, p: float) -> None:
    row = one(make({"a": [0.3] * 9, "b": [0.5] * 9}))
    assert row["difference"] == pytest.approx(0.2, abs=1e-15)
    assert (row["p_value"], row["better"]) == (p, "candidate")
    who = "have the same difference" if row["design"] == "paired" else "of an experiment have one value"
    assert row["note"] == f"no interval, since all users {who}"
    assert np.isnan([row[name] for name in ("ci_low", "adjusted_ci_high", "users_needed")]).all()


def test_two_users_do_not_show_a_difference() -> None:
    row = one(table({"a": [0.0, 0.0], "b": [1.0, 1.0]}))
    assert (row["difference"], row["p_value"], row["p_adjusted"], row["better"]) == (1, 0.5, 0.5, None)
    # Two of two users gain 1: as many others as Clopper and Pearson allow may lose 1.
    assert (row["ci_low"], row["ci_high"]) == (pytest.approx(1 - 2 * proportion_confint(0, 2, 0.05, "beta")[1]), 1)
    assert sentence(row | {"relative_difference": None}, parse(METRIC)).endswith(
        ": no difference shown, 0.000 → 1.000, +1.0000 (-0.6838 to +1.0000), p = 0.500"
    )


def test_users_who_are_all_at_one_end_of_a_metric_have_exact_intervals() -> None:
    row = one(apart(a=[0.0] * 4, b=[1.0] * 4))
    expected = confint_proportions_2indep(4, 4, 0, 4, "newcomb", "diff")
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(expected, rel=1e-9) and row["ci_low"] > 0.3
    assert (row["p_value"], row["better"], row["note"]) == (pytest.approx(2 / 70), "candidate", None)
    # Three against three can be chance (2 / 20), which Newcombe's interval does not say.
    unsure = one(apart(a=[0.0] * 3, b=[1.0] * 3))
    assert np.isnan(unsure["ci_low"]) and unsure["better"] is None
    for end in (0.0, 1.0):
        row = one(apart(a=[end] * 9, b=[end] * 30))
        bounds = [proportion_confint(0, n, 0.05, "beta")[1] for n in (9, 30)]
        assert (-row["ci_low"], row["ci_high"]) == pytest.approx(bounds if end == 0 else bounds[::-1], rel=1e-9)
    # Of a metric without a highest value, and over several looks, nothing is known.
    for rules in ({"ranges": {METRIC: (0.0, np.inf)}}, {"ranges": {}}, {"looks": "any"}):
        assert np.isnan(one(apart(a=[1.0] * 9, b=[1.0] * 9), **rules)["adjusted_ci_low"])


def test_bootstrap_intervals_grow_with_the_values() -> None:
    by_size: list[Any] = []
    for size in (1.0, 1 / 3, 0.1):
        values = [size] * 4 + [0.0] * 6
        row = one(table({"a": [0.0] * 10, "b": values}), Comparison("a", bootstrap=times(999)))
        by_size.append((row["bootstrap_ci_low"] / size, row["bootstrap_ci_high"] / size))
        assert by_size[-1] == pytest.approx(by_size[0], rel=1e-6)
        same = one(table({"a": [0.0] * 10, "b": [size] * 10}), Comparison("a", bootstrap=times(999)))
        assert np.isnan([same["bootstrap_ci_low"], same["bootstrap_ci_high"]]).all()


def untested(row: dict[str, Any]) -> None:
    for name in ("p_value", "p_adjusted", "ci_low", "standard_error", "minimum_detectable_effect", "users_needed"):
        assert np.isnan(row[name]), name
    for name in ("p_randomization", "bootstrap_ci_low", "bootstrap_ci_high", "aa_share"):
        assert np.isnan(row.get(name, np.nan)), name
    assert row["better"] is None
    assert row["n_comparisons"] == 0


def test_one_user_has_a_difference_and_no_test() -> None:
    row = one(table({"a": [0.25], "b": [0.75]}), REPLICATES)
    assert (row["difference"], row["relative_difference"], row["wins"]) == (0.5, 2, 1)
    assert row["note"] == "fewer than two users in both experiments"
    untested(row)


def test_an_experiment_with_one_user_is_not_tested() -> None:
    row = one(apart(a=[0.1, 0.2, 0.3], b=[0.75]), REPLICATES)
    assert row["note"] == "fewer than two users in b"
    assert row["difference"] == pytest.approx(0.55)
    untested(row)


def test_experiments_without_any_relevant_item_are_reported_and_not_tested_as_zero() -> None:
    row = one(table({"a": [0.0] * 3, "b": [0.0] * 3}).assign(relevant=False), REPLICATES, wilcoxon=True)
    assert row["note"] == "no users with relevant items in a and b"
    assert np.isnan(row["difference"]) and np.isnan(row["p_wilcoxon"])
    untested(row)


def silent(hits: int, n: int, m: int, design: str = "independent") -> dict[str, Any]:
    """Users of a, some of them with a hit, against users of b without one."""
    arms = {"a": [1.0] * hits + [0.0] * (n - hits), "b": [0.0] * m}
    users = apart(**arms) if design == "independent" else table(arms)
    return one(users.assign(relevant=users[METRIC] > 0), design=design)


def test_an_experiment_without_a_hit_is_compared_as_far_as_chance_explains_it() -> None:
    row = silent(10, 30, 30)
    assert (row["difference"], row["better"], row["note"]) == (pytest.approx(-1 / 3), "baseline", None)
    # As sure as Boschloo's test; t is a little less sure than Fisher's, and with four users against many, no surer.
    assert row["test"] == "boschloo" and row["adjusted_ci_high"] < 0
    assert row["sparse_p_value"] == pytest.approx(stats.boschloo_exact([[10, 0], [20, 30]]).pvalue, rel=0.01)
    assert stats.fisher_exact([[10, 20], [0, 30]]).pvalue < 0.001 < row["p_value"] < 0.005
    assert silent(250, 500, 4)["better"] is None and stats.fisher_exact([[250, 250], [0, 4]]).pvalue > 0.1
    paired = silent(10, 30, 30, "paired")
    assert paired["p_value"] == pytest.approx(stats.ttest_1samp([-1.0] * 10 + [0.0] * 20, 0).pvalue, rel=1e-9)
    # Four of four against none of four may be chance, and then the difference is what it is.
    assert silent(4, 4, 4)["note"] is None and silent(4, 4, 4)["better"] == "baseline"
    # Beyond chance, the hits of b were lost, rather than never made.
    assert stats.fisher_exact([[10, 20], [0, 70]]).pvalue > 1e-6 > stats.fisher_exact([[10, 20], [0, 80]]).pvalue
    assert silent(10, 30, 70)["note"] is None
    lost = silent(10, 30, 80)
    assert lost["note"] == (
        "not trustworthy: no user of b has a relevant item, and 33 % of those of a have: look whether those of b were "
        "logged"
    )
    assert (lost["better"], lost["difference"]) == (None, pytest.approx(-1 / 3)) and lost["p_value"] < 0.02


def test_an_experiment_whose_users_have_no_value_is_reported_even_as_the_baseline() -> None:
    users = table({"a": [0.1, 0.2, 0.3], "b": [np.nan] * 3})
    row = one(users, REPLICATES)
    assert (row["note"], row["n_users_candidate"]) == ("no users with a value in b", 0)
    untested(row)
    turned = compared(users, Comparison("b"))["b", "a", "all", METRIC]
    assert turned["note"] == "no users with a value in b"
    untested(turned)


def test_one_experiment_alone_has_no_rows() -> None:
    assert compared(table({"a": [0.1, 0.2]}), Comparison("a")) == {}


def test_without_overlap_a_paired_design_has_nothing_to_test() -> None:
    row = one(apart(a=[0.1, 0.2], b=[0.3, 0.4]), REPLICATES, design="paired")
    assert (row["n_users"], row["note"]) == (0, "no users in both experiments")
    assert np.isnan(row["mean_baseline"])
    untested(row)


def overlapping(shared: int, n: tuple[int, int] = (40, 40)) -> tuple[pd.DataFrame, Any, Any]:
    """Users u0, u1, ... of a, and the last ``shared`` of them with further ones in b; both sides' values."""
    (a, _), (_, b) = values(n[0]), values(n[1], seed=2)
    start = n[0] - shared
    names = {"a": [f"u{i}" for i in range(n[0])], "b": [f"u{start + i}" for i in range(n[1])]}
    return table({"a": a, "b": b}, names), a, b


@pytest.mark.parametrize(("n", "design"), [((40, 38), "paired"), ((38, 40), "paired"), ((41, 38), "independent")])
def test_the_design_is_paired_where_95_percent_of_both_experiments_are_in_both(n: tuple[int, int], design: str) -> None:
    # 38 of 40 users are 95 %, 38 of 41 are 93 %.
    users, a, b = overlapping(38, n)
    row = one(users)
    assert (row["design"], row["n_users_both"]) == (design, 38)
    paired = stats.ttest_rel(b[:38], a[n[0] - 38 :])
    expected = paired if design == "paired" else stats.ttest_ind(b, a, equal_var=False)
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-10)
    assert row["test"] == ("paired t" if design == "paired" else "welch")


def test_a_few_users_of_a_large_experiment_do_not_speak_for_all() -> None:
    # 120 of the 200 users of b are in a as well, and lose there; over all 20,000 users, b wins.
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.3, 0.1, 20_000), rng.normal(0.4, 0.1, 200)
    a[:120] = b[:120] + rng.normal(0.05, 0.01, 120)
    names = {"a": [f"u{i}" for i in range(20_000)], "b": [f"u{i}" for i in range(120)] + [f"v{i}" for i in range(80)]}
    users = table({"a": a, "b": b}, names)
    row = one(users)
    assert (row["design"], row["n_users"], row["better"]) == ("independent", 20_200, "candidate")
    assert row["p_value"] == pytest.approx(stats.ttest_ind(b, a, equal_var=False).pvalue, rel=1e-9)
    forced = one(users, design="paired")
    assert (forced["design"], forced["n_users"], forced["better"]) == ("paired", 120, "baseline")
    left_out = "without 19,880 of the 20,000 users of a and 80 of the 200 users of b, who are not in both experiments"
    assert forced["note"] == left_out
    assert sentence(forced | {"relative_difference": None}, parse(METRIC)).endswith(f"; {left_out}")
    assert sentence(forced | {"better": None, "relative_difference": None}, parse(METRIC)).endswith(f"; {left_out}")


def test_a_paired_row_says_how_many_users_it_leaves_out_of_the_side_that_has_more() -> None:
    users, _, _ = overlapping(38, (40, 38))
    assert one(users)["note"] == "without 2 of the 40 users of a, who are not in both experiments"
    alike = one(table({"a": [0.2, 0.2, 0.3], "b": [0.2, 0.2, 0.4]}))
    assert alike["note"] == "no interval before 20 users whose values differ, and 1 is"


@pytest.mark.parametrize(("sign", "width"), [(1, "too wide"), (-1, "too narrow")])
def test_an_independent_row_says_what_users_of_both_sides_do_to_its_interval(sign: int, width: str) -> None:
    a, _ = values(30)
    users = table({"a": a, "b": sign * a + 0.01 * np.arange(30)})
    row = one(users, design="independent")
    assert row["note"] == f"30 users are in both experiments and counted as different ones: the interval is {width}"
    # The variance of a difference is var(a) + var(b) - 2 cov(a, b).
    paired = one(users, design="paired")
    assert (paired["standard_error"] < row["standard_error"]) == (sign > 0)


def test_users_of_one_side_only_are_named_where_most_of_a_side_are_on_both() -> None:
    # 12 of a are in b too, with 5 new users of b, who are why it is lower: 12 / 17 is below the 95 % of a pair.
    a, _ = values(12)
    names = [f"u{i}" for i in range(17)]
    row = one(table({"a": a, "b": [*a, *[-5.0] * 5]}, {"a": names[:12], "b": names}))
    assert row["design"] == "independent"
    assert row["note"].partition("; ")[2] == (
        "5 of the 17 users of b are in one experiment only, which may be why the means differ (design: paired leaves "
        "them out); no interval before 20 users with a hit expected in the smaller experiment, and 12 are"
    )
    few = one(table({"a": a, "b": [*a[:2], *[-5.0] * 10]}, {"a": names[:12], "b": [*names[:2], *"abcdefghij"]}))
    assert few["note"].startswith("2 users are in both") and "only" not in few["note"]


def test_a_user_in_two_experiments_is_reported_and_the_verdict_stays() -> None:
    users = table({"a": [0.1, 0.2, 0.3] * 8, "b": [9.1, 9.3, 9.2] * 8},
                  {"a": [f"u{i}" for i in range(24)], "b": ["u0", *(f"v{i}" for i in range(23))]})  # fmt: skip
    row = one(users)
    # The spread of one user's values is not known.
    message = "1 user is in both experiments and counted as different ones"
    assert (row["design"], row["note"], row["better"]) == ("independent", message, "candidate")


def test_rows_without_an_experiment_are_an_experiment_without_a_name() -> None:
    result = compared(table({"a": [0.1, 0.2, 0.4], None: [0.2, 0.2, 0.1]}), Comparison(pairs="all"))
    assert [key[:2] for key in result] == [("a", None)]


@pytest.mark.parametrize("value", [np.inf, -np.inf, 2.0**61])
def test_a_value_that_cannot_be_summed_forbids_the_test_and_is_reported(value: float) -> None:
    row = one(table({"a": [0.1, 0.2, 0.3], "b": [0.1, value, 0.4]}), REPLICATES)
    assert row["note"] == "values above 1.2e+18, which cannot be summed, in b"
    assert np.isnan(row["mean_candidate"]) and np.isnan(row["difference"])
    untested(row)


@pytest.mark.parametrize("scale", [1e-6, 1e9])
@pytest.mark.parametrize("make", [table, lambda arms: apart(**arms)])
def test_small_and_large_values_are_tested_like_others(scale: float, make: Any) -> None:
    a, b = (scale * side for side in values(40))
    row = one(make({"a": a, "b": b}))
    expected = stats.ttest_rel(b, a) if row["design"] == "paired" else stats.ttest_ind(b, a, equal_var=False)
    # A square of 1e-12 is kept to 2**-60.
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-5 if scale < 1 else 1e-10)
    assert row["difference"] == pytest.approx(b.mean() - a.mean(), rel=1e-10)


@pytest.mark.parametrize("make", [table, lambda arms: apart(**arms)])
def test_values_of_1e9_that_differ_by_1_are_not_certainly_different(make: Any) -> None:
    rng = np.random.default_rng(8)
    a, b = 1e9 + rng.normal(0, 1, 20), 1e9 + rng.normal(0, 1, 20)
    row = one(make({"a": a, "b": b}), REPLICATES)
    assert row["difference"] == pytest.approx(b.mean() - a.mean(), abs=1e-6)
    if row["design"] == "paired":
        assert row["p_value"] == pytest.approx(stats.ttest_rel(b, a).pvalue, rel=1e-5)
    else:
        assert row["note"] == "the values differ too little from one another for a test"
        untested(row)


def test_values_of_1e_minus_9_are_not_tested_with_an_error_of_0() -> None:
    rng = np.random.default_rng(9)
    a, b = 5e-10 * rng.random(20), 5e-10 * rng.random(20)
    row = one(table({"a": a, "b": b}), REPLICATES)
    assert row["difference"] == pytest.approx(b.mean() - a.mean(), rel=1e-6)
    assert row["note"] == "the values differ too little from one another for a test"
    untested(row)


def test_replicates_are_left_out_where_the_cut_off_would_be_seen() -> None:
    a, b = (1e-8 * side for side in values(40))
    row = one(table({"a": a, "b": b}), REPLICATES)
    assert 0 < row["p_value"] < 1
    assert np.isnan([row[name] for name in ("bootstrap_ci_low", "p_randomization", "aa_share")]).all()


# ---- users of more than one experiment


def with_shared(n: int = 200) -> pd.DataFrame:
    """Experiments a and b of n users each; 20 of them are in both, and 5 of b are in c too."""
    rng = np.random.default_rng(4)
    names = {"a": [f"u{i}" for i in range(n)], "b": [f"u{i}" for i in range(n - 20, 2 * n - 20)]}
    names["c"] = [*names["b"][-5:], "w0", "w1"]
    return table({name: rng.random(len(users)) for name, users in names.items()}, names)


def test_users_of_more_than_one_experiment_are_left_out_and_counted() -> None:
    users = with_shared()
    result = compared(users, Comparison("a", shared_users="drop"), design="independent")["a", "b", "all", METRIC]
    experiments = users.groupby("user")["experiment"].nunique()
    alone = users[users["user"].map(experiments) == 1]
    a, b = (alone.loc[alone["experiment"] == name, METRIC] for name in "ab")
    assert (len(a), len(b)) == (180, 175)
    assert result["p_value"] == pytest.approx(stats.ttest_ind(b, a, equal_var=False).pvalue, rel=1e-9)
    assert (result["n_users_baseline"], result["n_users_candidate"], result["n_users_both"]) == (180, 175, 0)
    assert result["note"] == (
        "without 20 of the 200 users of a and 25 of the 200 users of b, who are in more than one experiment"
    )
    kept = compared(users, Comparison("a"), design="independent")["a", "b", "all", METRIC]
    assert kept["n_users_both"] == 20 and "20 users are in both experiments" in kept["note"]


def test_only_experiments_that_are_compared_share_users() -> None:
    request = Comparison("a", candidates=("b",), shared_users="drop")
    result = compared(with_shared(), request, design="independent")["a", "b", "all", METRIC]
    assert result["n_users_candidate"] == 180
    assert result["note"].startswith("without 20 of the 200 users of a and 20 of the 200 users of b,")


def test_users_who_are_left_out_belong_to_the_sample_ratio() -> None:
    # Nine of ten users are in a: 20 who are in both would be a quarter of b, and a small part of a.
    names = {"a": [f"u{i}" for i in range(720)], "b": [f"u{i}" for i in range(700, 780)]}
    users = table({name: np.linspace(0, 1, len(of)) for name, of in names.items()}, names)
    request = Comparison("a", shared_users="drop")
    result = compared(users, request, design="independent", shares={"a": 9, "b": 1})["a", "b", "all", METRIC]
    assert result["sample_ratio_p"] == pytest.approx(stats.chisquare([720, 80], [720, 80]).pvalue)


def test_where_every_user_is_left_out_the_row_says_so() -> None:
    users = table({"a": [0.1, 0.2], "b": [0.3, 0.4]})
    result = compared(users, Comparison("a", shared_users="drop"), design="independent")["a", "b", "all", METRIC]
    assert np.isnan(result["p_value"])
    assert result["note"] == (
        "no users in a and b; without 2 of the 2 users of a and 2 of the 2 users of b, who are in more than one "
        "experiment"
    )
