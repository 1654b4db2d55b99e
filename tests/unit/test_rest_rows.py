"""Segments against the rest: SciPy, statsmodels, visible arithmetic; what is corrected together; false alarms."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans

from rankmetrics_spark.comparison import comparison_rows
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.schemas import EVERYONE
from rankmetrics_spark.statistics import LIMB_UNIT, Moments, difference_of_differences, welch
from tests.helpers.users import METRIC, apart, by_key, compared, question, table, totals_of, user_rows
from tests.unit.test_sequential_rows import half_width

COUNTRIES = ("de", "fr", "it", "pl")


def both(n: int = 120, seed: int = 1, effects: dict[str, float] | None = None) -> pd.DataFrame:
    """The same users in two experiments, by country."""
    rng = np.random.default_rng(seed)
    country = [COUNTRIES[i % 4] for i in range(n)]
    a = rng.random(n)
    b = a + rng.normal(0, 0.2, n) + [(effects or {}).get(name, 0.0) for name in country]
    return table({"a": a, "b": b}).assign(country=country * 2)


def others(sizes: tuple[int, int] = (110, 90), seed: int = 2) -> pd.DataFrame:
    """Different users in two experiments, by country."""
    rng = np.random.default_rng(seed)
    users = apart(a=rng.random(sizes[0]), b=rng.beta(2, 1, sizes[1]))
    return users.assign(country=[COUNTRIES[i % 4] for i in range(len(users))])


def row_of(users: pd.DataFrame, segment: str = "country=de", **rules: Any) -> dict[str, Any]:
    return compared(users, Comparison("a"), segments=("country",), **rules)["a", "b", segment, METRIC]


def test_paired_users_are_two_groups_of_differences() -> None:
    users = both(effects={"de": 0.1})
    row = row_of(users, confidence=0.9)
    a, b = (users[users.experiment == name] for name in "ab")
    d, inside = b[METRIC].to_numpy() - a[METRIC].to_numpy(), (a.country == "de").to_numpy()
    expected = stats.ttest_ind(d[inside], d[~inside], equal_var=False)
    assert row["p_rest"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert row["rest_difference"] == pytest.approx(d[~inside].mean(), rel=1e-9)
    assert row["rest_relative_difference"] == pytest.approx(d[~inside].mean() / a[METRIC][~inside].mean(), rel=1e-9)
    assert row["from_rest"] == pytest.approx(row["difference"] - row["rest_difference"], rel=1e-9)
    interval = CompareMeans.from_data(d[inside], d[~inside]).tconfint_diff(0.1, usevar="unequal")
    assert (row["from_rest_ci_low"], row["from_rest_ci_high"]) == pytest.approx(interval, rel=1e-9)


def test_different_users_are_four_groups_with_the_interaction_of_a_least_squares_fit() -> None:
    users = others()
    row = row_of(users)
    frame = users.assign(y=users[METRIC], t=(users.experiment == "b") * 1, s=(users.country == "de") * 1)
    fit = smf.ols("y ~ t * s", frame).fit(cov_type="HC2")
    assert row["from_rest"] == pytest.approx(fit.params["t:s"], rel=1e-9)
    groups = [frame.y[(frame.t == t) & (frame.s == s)] for t in (0, 1) for s in (0, 1)]
    errors = [group.var(ddof=1) / len(group) for group in groups]
    assert np.sqrt(sum(errors)) == pytest.approx(fit.bse["t:s"], rel=1e-9)
    df = sum(errors) ** 2 / sum(e**2 / (len(group) - 1) for e, group in zip(errors, groups, strict=True))
    t = row["from_rest"] / fit.bse["t:s"]
    assert row["p_rest"] == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9)
    half = stats.t.ppf(0.975, df) * fit.bse["t:s"]
    assert row["from_rest_ci_low"] == pytest.approx(row["from_rest"] - half, rel=1e-9)
    assert row["from_rest_ci_high"] == pytest.approx(row["from_rest"] + half, rel=1e-9)
    rest = [users[(users.experiment == name) & (users.country != "de")][METRIC].mean() for name in "ab"]
    assert row["rest_difference"] == pytest.approx(rest[1] - rest[0], rel=1e-9)
    assert row["rest_relative_difference"] == pytest.approx(rest[1] / rest[0] - 1, rel=1e-9)


def test_all_users_have_no_rest_and_rows_without_segments_lack_the_columns() -> None:
    result = compared(both(), Comparison("a"), segments=("country",))
    assert np.isnan(result["a", "b", EVERYONE, METRIC]["p_rest"])
    assert np.isnan(result["a", "b", EVERYONE, METRIC]["rest_difference"])
    assert "p_rest" not in compared(both(), Comparison("a"))["a", "b", EVERYONE, METRIC]


@pytest.mark.parametrize("correction", ["holm", "fdr_bh", "none"])
def test_p_values_are_corrected_over_candidates_and_values_of_a_column_by_role(correction: str) -> None:
    rng = np.random.default_rng(5)
    users = table({name: rng.random(120) for name in "abc"})
    users["m2"], users["m3"] = rng.random(360), rng.random(360)
    users["country"], users["device"] = [*COUNTRIES] * 90, ["web", "app", "tv"] * 120
    roles = {METRIC: "primary", "m2": "secondary", "m3": "secondary"}
    result = compared(
        users, Comparison("a"), metrics=tuple(roles), segments=("country", "device"), roles=roles, correction=correction
    )
    for column, n in (("country", 4), ("device", 3)):
        for role, n_metrics in (("primary", 1), ("secondary", 2)):
            rows = [r for r in result.values() if r["segment"].startswith(column) and r["role"] == role]
            assert len(rows) == 2 * n * n_metrics
            p = [row["p_rest"] for row in rows]
            expected = p if correction == "none" else multipletests(p, method=correction)[1]
            assert [row["p_rest_adjusted"] for row in rows] == pytest.approx(list(expected), rel=1e-12)


def test_one_family_corrects_the_segments_of_all_columns_together() -> None:
    users = both().assign(device=["web", "app", "tv"] * 80)
    result = compared(users, Comparison("a"), segments=("country", "device"), families="one", correction="bonferroni")
    rows = [row for row in result.values() if row["segment"] != EVERYONE]
    assert [row["p_rest_adjusted"] for row in rows] == pytest.approx([min(1, 7 * r["p_rest"]) for r in rows])


def test_the_only_two_segments_of_a_column_are_one_question() -> None:
    users = both().assign(country=["de", "fr"] * 120)
    result = compared(users, Comparison("a"), segments=("country",), correction="bonferroni")
    de, fr = (result["a", "b", f"country={name}", METRIC] for name in ("de", "fr"))
    assert de["from_rest"] == pytest.approx(-fr["from_rest"], rel=1e-12)
    assert 0.01 < de["p_rest"] < 0.9
    assert de["p_rest_adjusted"] == fr["p_rest_adjusted"] == pytest.approx(de["p_rest"], rel=1e-12)
    # With one of them left out as too small, the other one still is one question.
    users = users[~((users.country == "fr") & (users.user > "u3"))]
    result = compared(users, Comparison("a"), segments=("country",), correction="bonferroni", min_users=50)
    assert [key[2] for key in result] == [EVERYONE, "country=de"]


def test_who_has_lists_in_several_segments_is_in_no_rest() -> None:
    users = both()
    whole, request = user_rows(users), Comparison("a")
    totals = totals_of(whole, request)
    # The first user has lists in a second country too.
    more = pd.concat([users, users.iloc[[0]].assign(country="xx")])
    rows = user_rows(more, segments=("country",))
    within = totals_of(type(rows)(**{**vars(rows), "segments": rows.segments[1:]}), request)
    for key, sums in within.sums.items():
        totals.add(key, sums)
    result = by_key(comparison_rows(totals, question(request, design="independent")))
    of_segments = [row for key, row in result.items() if key[2] != EVERYONE]
    assert len(of_segments) == 5 and not np.isnan(of_segments[0]["p_value"])
    for name in ("rest_difference", "from_rest", "p_rest", "p_rest_adjusted"):
        assert np.isnan([row[name] for row in of_segments]).all()


def test_a_pair_of_rows_in_different_segments_is_in_no_paired_rest() -> None:
    users = both()
    users.loc[0, "country"] = "fr"
    assert np.isnan(row_of(users, design="paired")["p_rest"])
    assert not np.isnan(row_of(users, design="independent")["p_rest"])


def test_a_few_equal_values_are_not_certain() -> None:
    """Two users of a country whose values are all 0 say little about its effect."""
    rng = np.random.default_rng(7)
    users = apart(a=[0.0, 0.0, *rng.normal(0, 1, 60)], b=[0.0, 0.0, *rng.normal(1, 1, 60)])
    users["country"] = (["de"] * 2 + ["fr"] * 60) * 2
    row = row_of(users)
    v = [users[(users.experiment == name) & (users.country == "fr")][METRIC].var(ddof=1) for name in "ab"]
    error = np.sqrt(sum(v) / 2 + sum(v) / 60)
    assert row["from_rest_ci_high"] - row["from_rest"] > 1.9 * error
    assert row["p_rest"] > 0.2
    users.loc[users.country == "de", METRIC] = 0.5
    users.loc[users.country == "fr", METRIC] = [*[0.1] * 60, *[0.3] * 60]
    assert np.isnan(row_of(users)["p_rest"])


def test_over_any_looks_the_interval_is_the_closed_form_over_all_users() -> None:
    users = others()
    single, row = row_of(users), row_of(users, looks="any", tuning_users=500)
    d, df_half = single["from_rest"], single["from_rest_ci_high"] - single["from_rest"]
    groups = [
        users[(users.experiment == name) & ((users.country == "de") == inside)][METRIC]
        for name in "ab"
        for inside in (True, False)
    ]
    parts = [group.var(ddof=1) / len(group) for group in groups]
    df = sum(parts) ** 2 / sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    half = half_width(np.sqrt(sum(parts)), 200, 500, df)
    assert half > df_half
    assert (row["from_rest_ci_low"], row["from_rest_ci_high"]) == pytest.approx((d - half, d + half), rel=1e-9)
    assert row["p_rest"] > single["p_rest"]


def moments_of(values: Any, chosen: Any) -> Moments:
    """Of each column, over the chosen rows."""
    part = values[chosen]
    sums = [[int(x * 2**LIMB_UNIT) for x in (part**power).sum(axis=0)] for power in (1, 2)]
    n = np.full(values.shape[1], len(part), object)
    return Moments(n, *(np.array(each, object) for each in sums))


@pytest.mark.parametrize("paired", [True, False])
def test_experiments_without_a_true_difference_rarely_name_a_segment(paired: bool) -> None:
    """At most 5 in 100 runs, also with a skewed metric and small countries."""
    rng, n, runs = np.random.default_rng(11), 400, 2_000
    a, b = (rng.beta(0.5, 2, (n, runs)) for _ in range(2))
    b = np.clip(a + rng.normal(0, 0.2, (n, runs)), 0, 1) if paired else b
    p, start = [], 0
    for share in (0.4, 0.25, 0.15, 0.1, 0.06, 0.04):
        inside = (np.arange(n) >= start) & (np.arange(n) < start + round(share * n))
        start += round(share * n)
        if paired:
            p.append(welch(moments_of(b - a, ~inside), moments_of(b - a, inside), 0.95).p_value)
        else:
            rest, segment = ((moments_of(a, chosen), moments_of(b, chosen)) for chosen in (~inside, inside))
            p.append(difference_of_differences(rest, segment, 0.95).p_value)
    smallest = np.sort(np.array(p), axis=0)
    named = np.mean(smallest[0] < 0.05 / len(p))  # Holm names one if Bonferroni does.
    # Three standard errors of a share of 5 % over so many runs.
    assert named <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.01)
