"""Rows of ``comparisons`` against SciPy, statsmodels and NumPy."""

import dataclasses
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from rankmetrics_spark import comparison as cmp, pointers, statistics as st
from rankmetrics_spark.config import Comparison, Days, OfTest
from rankmetrics_spark.errors import ConfigError
from tests.helpers import commands, messages, users as us
from tests.tables_page import updated

# ---- against SciPy, statsmodels and NumPy


def test_a_paired_row_has_the_numbers_of_scipy_and_numpy() -> None:
    a, b = us.values(40)
    row = us.one(us.table({"a": a, "b": b}), wilcoxon=True, confidence=0.9)
    expected = stats.ttest_rel(b, a)
    assert row["design"] == "paired"
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-10)
    assert row["confidence"] == 0.9
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(expected.confidence_interval(0.9)), rel=1e-10)
    # With zero differences, SciPy uses the normal approximation too.
    approximate = stats.wilcoxon(b, a, zero_method="wilcox", correction=False, method="approx")
    assert row["p_wilcoxon"] == pytest.approx(approximate.pvalue, rel=1e-10)
    assert (row["mean_baseline"], row["mean_candidate"]) == pytest.approx((a.mean(), b.mean()), rel=1e-14)
    assert row["difference"] == pytest.approx((b - a).mean(), rel=1e-12)
    assert row["relative_difference"] == pytest.approx(b.mean() / a.mean() - 1, rel=1e-12)
    assert row["standard_error"] == pytest.approx(stats.sem(b - a), rel=1e-12)
    assert row["effect_size"] == pytest.approx((b - a).mean() / (b - a).std(ddof=1), rel=1e-12)
    assert (row["wins"], row["ties"], row["losses"]) == ((b > a).sum(), (b == a).sum(), (b < a).sum())
    assert [row[f"n_users{side}"] for side in ("", "_baseline", "_candidate", "_both")] == [40] * 4


def test_an_independent_row_has_the_numbers_of_scipy() -> None:
    (a, _), (_, b) = us.values(30), us.values(50, seed=2)
    row = us.one(us.apart(a=a, b=b), wilcoxon=True)
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert row["design"] == "independent"
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-10)
    interval = CompareMeans(DescrStatsW(b), DescrStatsW(a)).tconfint_diff(0.05, usevar="unequal")
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(interval, rel=1e-9)
    assert [row[f"n_users{side}"] for side in ("", "_baseline", "_candidate", "_both")] == [80, 30, 50, 0]
    assert (row["wins"], row["ties"], row["losses"], row["note"]) == (0, 0, 0, None)
    assert np.isnan(row["p_wilcoxon"])


def test_users_without_a_value_are_in_no_test() -> None:
    a, b = us.values(40)
    a[:5], b[3:9] = np.nan, np.nan
    row = us.one(us.table({"a": a, "b": b}), wilcoxon=True, design="paired")
    present = ~np.isnan(a) & ~np.isnan(b)
    assert row["p_value"] == pytest.approx(stats.ttest_rel(b, a, nan_policy="omit").pvalue, rel=1e-10)
    assert (row["n_users"], row["n_users_baseline"], row["n_users_candidate"]) == (present.sum(), 35, 34)
    assert row["mean_baseline"] == pytest.approx(a[present].mean(), rel=1e-14)


@pytest.mark.parametrize("method", ["bonferroni", "fdr_bh", "holm", "none"])
def test_p_values_are_corrected_over_all_pairs_metrics_and_segments(method: str) -> None:
    rng = np.random.default_rng(3)
    users = us.table({name: rng.random(30) + shift for name, shift in (("a", 0), ("b", 0.1), ("c", 0.2), ("d", 0.2))})
    users["country"] = ["de", "fr", "it"] * 40
    users["ndcg"] = rng.random(len(users))
    result = us.compared(users, metrics=(us.METRIC, "ndcg"), segments=("country",), correction=method, families="one")
    rows = [*result.values()]
    assert len(rows) == 6 * 2 * 4
    p = [us.deciding_p(row) for row in rows]
    expected = p if method == "none" else multipletests(p, method=method)[1]
    assert [row["p_adjusted"] for row in rows] == pytest.approx(list(expected), rel=1e-12)
    assert {(row["family"], row["n_comparisons"], row["correction"]) for row in rows} == {("all", 48, method)}


def test_bootstrap_intervals_are_quantiles_of_means_with_the_same_weights() -> None:
    a, b = us.values(40)
    users = us.table({"a": a, "b": b})
    weights = st.poisson_weights(us.keys_of([f"u{i}" for i in range(40)]), 9, 400).astype(float)

    def means(of: Any) -> Any:
        return weights.T @ of / weights.sum(axis=0)

    request = Comparison("a", bootstrap={"replicates": 400, "seed": 9})
    paired, independent = (us.one(users, request, design=design) for design in ("paired", "independent"))
    # The users are the same, so both designs see the same replicates.
    expected = np.quantile(means(b - a), [0.025, 0.975])
    for row in (paired, independent):
        assert (row["bootstrap_ci_low"], row["bootstrap_ci_high"]) == pytest.approx(tuple(expected), abs=1e-8)
    result = cmp.mean_intervals(us.totals_of(us.user_rows(users), request), 0.95)
    assert result["experiment_id"] == ["a", "b"] and result["segment"] == ["all"] * 2
    for i, of in enumerate((a, b)):
        bounds = result["bootstrap_ci_low"][i], result["bootstrap_ci_high"][i]
        assert bounds == pytest.approx(tuple(np.quantile(means(of), [0.025, 0.975])), abs=1e-8)


def test_one_user_has_no_bootstrap_interval_and_equal_values_have_one_without_width() -> None:
    users = us.table({"a": [1 / 3], "b": [1 / 3]})
    result = cmp.mean_intervals(us.totals_of(us.user_rows(users), Comparison("a", bootstrap=us.times(99))), 0.95)
    assert np.isnan([result["bootstrap_ci_low"], result["bootstrap_ci_high"]]).all()
    users = us.table({"a": [1 / 3] * 9, "b": [0.1] * 9})
    result = cmp.mean_intervals(us.totals_of(us.user_rows(users), Comparison("a", bootstrap=us.times(99))), 0.95)
    for name in ("bootstrap_ci_low", "bootstrap_ci_high"):
        assert result[name] == pytest.approx([1 / 3, 0.1], rel=1e-15)


def test_the_randomization_test_agrees_with_scipy() -> None:
    a, b = us.values(25)
    row = us.one(us.table({"a": a, "b": b}), Comparison("a", randomization=us.times(9_999)))
    expected = stats.permutation_test(
        (b - a,), np.mean, permutation_type="samples", vectorized=True, n_resamples=9_999, random_state=1
    )
    error = np.sqrt(expected.pvalue * (1 - expected.pvalue) / 9_999)
    assert row["p_randomization"] == pytest.approx(expected.pvalue, abs=5 * np.sqrt(2) * error)


@pytest.mark.parametrize("users", ["paired", "independent"])
def test_an_aa_check_finds_about_as_many_differences_as_the_level_says(users: str) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.normal(0, 1, 200), rng.normal(0.5, 1, 200)
    values = us.table({"a": a, "b": b}) if users == "paired" else us.apart(a=a, b=b)
    row = us.one(values, Comparison("a", aa_check=us.times(4_000)))
    assert row["design"] == users
    assert row["aa_share"] == pytest.approx(0.05, abs=5 * np.sqrt(0.05 * 0.95 / 4_000))


# ---- bits


def everything(users: pd.DataFrame, totals: cmp.Totals | None = None) -> Any:
    request = Comparison("a", pairs="all", bootstrap=us.times(99), randomization=us.times(99), aa_check=us.times(99))
    whole = us.question(request, earlier=True, shares={"a": 1, "b": 1})
    result = cmp.comparison_rows(totals or us.totals_of(us.user_rows(users, segments=["country"]), request), whole)
    return {key: {name: repr(value) for name, value in row.items()} for key, row in us.by_key(result).items()}


def mixed_users(experiments: str = "abc") -> pd.DataFrame:
    rng = np.random.default_rng(7)
    users = us.table({name: rng.random(30) for name in experiments})
    users["country"] = rng.choice(["de", "fr"], len(users))
    users[f"before {us.METRIC}"], users[f"own {us.METRIC}"] = rng.random((2, len(users)))
    return users[rng.random(len(users)) < 0.8]


def test_the_order_of_the_users_changes_no_bit_of_a_row() -> None:
    users = mixed_users()
    rows = everything(users)
    assert everything(users.sample(frac=1, random_state=3)) == rows
    part = users["user"].map(lambda name: int(name[1:]) % 4)
    request = Comparison("a", pairs="all", bootstrap=us.times(99), randomization=us.times(99), aa_check=us.times(99))
    added = cmp.Totals()
    for i in (3, 0, 2, 1):
        result = us.totals_of(us.user_rows(users[part == i], segments=["country"]), request)
        for key in reversed(result.sums):
            added.add(key, result.sums[key])
    assert everything(users, added) == rows


def test_other_experiments_change_only_the_correction_of_a_row() -> None:
    users = mixed_users("abcd")
    family = {"p_adjusted", "family", "n_comparisons", "better", "adjusted_minimum_detectable_effect"}

    def kept(rows: Any) -> Any:
        return {
            key: {name: value for name, value in row.items() if name not in family}
            for key, row in rows.items()
            if "d" not in key[:2]
        }

    assert kept(everything(users)) == kept(everything(users[users["experiment"] != "d"]))


# ---- segments


def test_each_segment_is_a_test_of_its_own_users() -> None:
    a, b = us.values(40)
    users = us.table({"a": a, "b": b}).assign(country=["de", "fr"] * 40)
    result = us.compared(users, Comparison("a"), segments=["country"])
    assert [key[2] for key in result] == ["all", "country=de", "country=fr"]
    for label, part in (("country=de", slice(0, None, 2)), ("country=fr", slice(1, None, 2))):
        row = result["a", "b", label, us.METRIC]
        assert row["p_value"] == pytest.approx(stats.ttest_rel(b[part], a[part]).pvalue, rel=1e-10)
        assert row["n_users"] == 20


def test_the_design_of_a_segment_is_that_of_all_users() -> None:
    users = us.table({"a": [0.1, 0.2, 0.3, 0.5], "b": [0.2, 0.4, 0.5, 0.6]})
    # All users of b moved to another country: no user is in both within a country.
    users["country"] = ["de"] * 4 + ["fr"] * 4
    result = us.compared(users, Comparison("a"), segments=["country"])
    assert {row["design"] for row in result.values()} == {"paired"}
    assert result["a", "b", "country=fr", us.METRIC]["note"] == "no users in a"
    assert np.isnan(result["a", "b", "country=fr", us.METRIC]["difference"])


def test_a_segment_of_both_whose_users_moved_says_that_no_user_is_in_both() -> None:
    users = us.table({"a": [0.1, 0.2, 0.3, 0.5], "b": [0.2, 0.4, 0.5, 0.6]})
    users["country"] = ["de", "de", "fr", "fr", "fr", "fr", "de", "de"]
    row = us.compared(users, Comparison("a"), segments=["country"])["a", "b", "country=de", us.METRIC]
    assert (row["n_users"], row["note"]) == (0, "no users in both experiments")
    assert np.isnan(row["p_value"]) and np.isnan(row["difference"])


def test_small_segments_are_left_out_and_all_users_never_are() -> None:
    users = us.apart(a=[0.1, 0.2, 0.3, 0.4], b=[0.2, 0.4, 0.1]).assign(
        country=["de", "de", "fr", "fr", "de", "fr", "fr"]
    )
    result = us.compared(users, Comparison("a"), segments=["country"], min_users=2)
    assert [key[2] for key in result] == ["all", "country=fr"]
    assert [key[2] for key in us.compared(users, Comparison("a"), segments=["country"], min_users=99)] == ["all"]


# ---- direction


def test_lower_is_better_where_the_metric_says_so() -> None:
    a, b = np.linspace(1, 2, 20), np.linspace(1, 2, 20) - np.linspace(0.1, 0.2, 20)
    users = us.table({"a": a, "b": b})
    lower = us.one(users, directions={us.METRIC: False})
    assert (lower["wins"], lower["losses"], lower["better"]) == (20, 0, "candidate")
    higher = us.one(users)
    assert (higher["wins"], higher["losses"], higher["better"]) == (0, 20, "baseline")
    neither = us.one(users, directions={us.METRIC: None})
    assert (neither["better"], neither["note"]) == (None, None) and neither["p_adjusted"] < 0.001


@pytest.mark.parametrize(
    ("correction", "level"), [("holm", 0.05 / 3), ("bonferroni", 0.05 / 3), ("fdr_bh", 0.05 / 3), ("none", 0.05)]
)
def test_the_detectable_effect_is_that_of_the_corrected_test(correction: str, level: float) -> None:
    a, b = us.values(40)
    rows = us.compared(us.table({"a": a, "b": b, "c": b[::-1], "d": a[::-1]}), Comparison("a"), correction=correction)
    row, n = rows[us.PAIR], 40
    assert row["n_comparisons"] == 3
    assert row["power"] == 0.8
    effect = {name: row[f"{name}minimum_detectable_effect"] / (b - a).std(ddof=1) for name in ("", "adjusted_")}
    assert TTestPower().power(effect["adjusted_"], n, level) == pytest.approx(0.8, abs=0.002)
    assert TTestPower().power(effect[""], n, 0.05) == pytest.approx(0.8, abs=0.002)


# ---- which pairs


def test_a_baseline_that_is_not_there_names_the_nearest() -> None:
    users = us.table({"control": [0.1, 0.2], "candidate_a": [0.2, 0.3]})
    for request in (Comparison("contrl"), Comparison("contrl", pairs="all")):
        with pytest.raises(
            ConfigError, match="unknown experiment 'contrl'; did you mean 'control'\\? known: candidate_a"
        ):
            us.compared(users, request)
    with pytest.raises(ConfigError, match="unknown experiment 'candidate_b'; did you mean 'candidate_a'"):
        us.compared(users, Comparison("control", candidates=("candidate_b",)))
    with pytest.raises(ConfigError, match="unknown experiment 'x'; known: candidate_a, control"):
        us.compared(users, Comparison("control"), shares={"x": 1, "control": 1})


def test_each_row_has_the_number_of_the_look_at_its_pair() -> None:
    entry = pointers.Entry("20261101T000000-00000000", ("b",), compared=pointers.Compared(("a", "b")))
    days = {date: pointers.Pointer(date, (entry,)) for date in ("2026-11-08", "2026-11-09")}
    result = us.compared(mixed_users(), Comparison("a"), look_numbers=pointers.History.before("2026-11-10", days))
    assert {key[1]: row["look"] for key, row in result.items()} == {"b": 3, "c": 1}
    assert {row["look"] for row in us.compared(mixed_users(), Comparison("a")).values()} == {None}


def test_only_the_candidates_are_compared_and_all_pairs_start_with_the_baseline() -> None:
    users = us.table({name: us.values(9, seed)[0] for seed, name in enumerate("dcba")})
    assert [key[:2] for key in us.compared(users, Comparison("b", candidates=("d",)))] == [("b", "d")]
    assert [key[:2] for key in us.compared(users, Comparison("c", pairs="all"))] == [
        ("c", "a"),
        ("c", "b"),
        ("c", "d"),
        ("a", "b"),
        ("a", "d"),
        ("b", "d"),
    ]


# ---- planned shares


def test_users_who_do_not_follow_the_planned_shares_forbid_a_verdict() -> None:
    rng = np.random.default_rng(10)
    users = us.apart(a=rng.normal(0, 1, 500), b=rng.normal(3, 1, 300), c=rng.normal(0, 1, 400))
    row = us.one(users, Comparison("a", candidates=("b",)), shares={"a": 2, "b": 2, "c": 2})
    p = stats.chisquare([500, 300, 400]).pvalue
    assert row["sample_ratio_p"] == pytest.approx(p, rel=1e-12)
    assert row["note"] == f"not trustworthy: the users do not follow the planned shares (p = {p:.2g})"
    assert row["better"] is None and row["p_adjusted"] < 0.001


def test_users_who_follow_the_planned_shares_do_not() -> None:
    rng = np.random.default_rng(11)
    row = us.one(us.apart(a=rng.normal(1, 1, 510), b=rng.normal(3, 1, 490)), shares={"a": 50, "b": 50})
    assert row["sample_ratio_p"] == pytest.approx(stats.chisquare([510, 490]).pvalue, rel=1e-12)
    assert (row["note"], row["better"]) == (None, "candidate")


def test_users_without_a_value_count_for_the_planned_shares() -> None:
    rng = np.random.default_rng(12)
    users = us.apart(a=rng.normal(0, 1, 500), b=np.where(np.arange(500) < 250, np.nan, rng.normal(0, 1, 500)))
    assert us.one(users, shares={"a": 1, "b": 1})["sample_ratio_p"] == 1


def test_the_arms_of_a_test_are_compared_with_one_another_and_by_their_assigned_users() -> None:
    rng = np.random.default_rng(13)
    arms = {"t:a": rng.normal(1, 1, 90), "t:b": rng.normal(3, 1, 60), "s:a": rng.normal(1, 1, 20)}
    gate = {"metric": us.METRIC, "max_drop": 0.5, "experiment": "b"}
    tests = {"t": OfTest(baseline="a", shares={"a": 1, "b": 1}, gates=gate)}
    request = us.question(Comparison("control", tests=tests), by_test=True)
    totals = us.totals_of(us.user_rows(us.apart(**arms)), Comparison())
    for name, n in {"t:a": 100, "t:b": 100, "t:c": 100, "s:a": 20}.items():
        totals.add(cmp.Key("assigned", "", name, "all", ""), np.array([n]))
    parts = dict(totals.by_test())
    assert [*parts] == ["s", "t"]
    (row,) = us.by_key(cmp.comparison_rows(parts["t"], request.of_test("t"))).values()
    assert (row["test_name"], row["n_assigned_baseline"], row["n_assigned_candidate"]) == ("t", 100, 100)
    assert row["sample_ratio_p"] == 1 and row["p_value"] == pytest.approx(
        stats.ttest_ind(arms["t:b"], arms["t:a"], equal_var=False).pvalue
    )
    assert np.isnan(row["difference_per_assigned"])  # no list is no value of AP
    error = np.sqrt(stats.sem(arms["t:a"]) ** 2 + stats.sem(arms["t:b"]) ** 2)
    quantiles = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert row["users_needed"] == np.ceil(150 * (quantiles * error / 0.5) ** 2)
    as_gain = {
        key._replace(metric="dcg@10") if key.metric == us.METRIC else key: sums for key, sums in parts["t"].sums.items()
    }
    of_gain = dataclasses.replace(parts["t"], sums=as_gain)
    (gain,) = us.by_key(cmp.comparison_rows(of_gain, request.of_test("t"))).values()
    zeros = [np.append(arms[name], np.zeros(100 - len(arms[name]))) for name in ("t:b", "t:a")]
    expected = stats.ttest_ind(*zeros, equal_var=False)
    pytest.importorskip("scipy", minversion="1.11")  # has intervals
    interval = expected.confidence_interval(0.95)
    names = [f"{name}_per_assigned" for name in ("difference", "ci_low", "ci_high", "p_value")]
    assert [gain[name] for name in names] == pytest.approx(
        [zeros[0].mean() - zeros[1].mean(), interval.low, interval.high, expected.pvalue]
    )
    p = stats.fisher_exact([[90, 10], [60, 40]]).pvalue
    assert row["note"].endswith(f"(p = {p:.2g}): the triggering is not the same, so these are different users")


# ---- decomposition


def test_mix_and_within_add_up_to_the_difference() -> None:
    rng = np.random.default_rng(15)
    users = us.apart(a=rng.random(60), b=rng.random(50)).assign(country=rng.choice(["de", "fr", None], 110), x="=")
    result = cmp.decomposition_rows(
        us.totals_of(us.user_rows(users, segments=["country", "x"]), Comparison("a")), "a", (), "country"
    )
    assert result["segment"] == ["country=de", "country=fr", "country=null"]
    means = users.groupby("experiment")[us.METRIC].mean()
    assert sum(result["mix"]) + sum(result["within"]) == pytest.approx(means["b"] - means["a"], rel=1e-12)


def test_a_segment_of_one_experiment_changes_the_mix_alone() -> None:
    users = us.apart(a=[0.2, 0.4], b=[0.2, 0.4, 0.9]).assign(country=["de", "de", "de", "de", "fr"])
    result = cmp.decomposition_rows(
        us.totals_of(us.user_rows(users, segments=["country"]), Comparison("a")), "a", (), "country"
    )
    assert result["within"] == [0, 0]
    # (0.2 + 0.4 + 0.9) / 3 - (0.2 + 0.4) / 2
    assert sum(result["mix"]) == pytest.approx(0.2, rel=1e-12)
    assert (result["n_users_baseline"], result["n_users_candidate"]) == ([2, 0], [2, 1])


def test_a_decomposition_of_a_baseline_that_is_not_there_names_the_nearest() -> None:
    totals = us.totals_of(us.user_rows(us.apart(control=[0.1], b=[0.2]).assign(c="x"), segments=["c"]), Comparison())
    with pytest.raises(ConfigError, match="did you mean 'control'"):
        cmp.decomposition_rows(totals, "contol", (), "c")


# ---- the registry


def test_each_statistic_is_in_a_test_of_rows_and_in_the_docs() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (commands.ROOT / "tests" / "unit").glob("*_rows.py"))
    without = [
        name for name, each in cmp.STATISTICS.items() if not any(f'"{column}"' in tests for column in each.columns)
    ]
    assert without == []
    page = (commands.ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert updated(page) == page, "run: make readme"


@pytest.mark.parametrize(("columns", "settings", "message"), messages.cases("statistics that do not fit"))
def test_a_statistic_that_does_not_fit_is_refused(columns: Any, settings: Any, message: str) -> None:
    def new(rows: Any) -> Any:
        return rows.keys

    known = dict(cmp.STATISTICS)
    with pytest.raises(ConfigError, match=re.escape(message)):
        cmp.statistic(*columns, **settings)(new)
    assert known == cmp.STATISTICS


# ---- a period


def test_the_days_of_a_period_stand_in_the_row_and_missing_ones_in_its_note() -> None:
    users = us.apart(a=[0.2, 0.2, 0.3], b=[0.3, 0.5, 0.4])
    days = Days("2026-11-08", "2026-11-11", ("2026-11-08", "2026-11-11"))
    row = us.one(users, days=days)
    assert (row["period_from"], row["period_to"], row["n_days"]) == ("2026-11-08", "2026-11-11", 2)
    assert row["note"] == "2 of 4 days are not published: 2026-11-09, 2026-11-10"
    assert "period_from" not in us.one(users)
