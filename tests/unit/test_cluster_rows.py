"""Clusters of users, such as households, as units: against statsmodels, SciPy and a bootstrap over clusters."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import stats
from statsmodels.stats.weightstats import CompareMeans

from rankmetrics_spark import metrics as mx, report as rep
from rankmetrics_spark.comparison import Totals, add_rows, comparison_rows, rows_of_clusters
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.errors import ConfigError, InputError
from tests.helpers.users import METRIC, PAIR, Found, apart, by_key, compared, keys_of, question, table, user_rows


def of_clusters(
    users: pd.DataFrame, segments: Sequence[str] = (), request: Comparison | None = None, **asked: Any
) -> Found:
    """The rows of ``comparisons`` with the column ``household`` as the unit; a user without one is alone."""
    alone = users["household"].isna()
    names = users["household"].where(~alone, "user " + users["user"])
    rows = user_rows(users.assign(user=names), segments=segments)
    order = np.argsort(pd.factorize(names)[0], kind="stable")
    members = keys_of(users["user"].iloc[order])
    totals, whole = Totals(), question(request or Comparison("a"), **({"cluster": "household"} | asked))
    for units in rows_of_clusters(totals, replace(rows, member=members, alone=alone.to_numpy()[order])):
        add_rows(totals, units, whole.request)
    return by_key(comparison_rows(totals, whole))


def households(seed: int, n: int = 300, size: int = 5, effect: float = 0.1, both: bool = False) -> pd.DataFrame:
    """Users of two experiments; those of a household are alike, and in one experiment unless it is in ``both``."""
    rng = np.random.default_rng(seed)
    house = rng.integers(0, n // size, 2 * n)
    arm = np.repeat([0, 1], n)
    if not both:
        house = house + arm * (n // size)
    own = rng.normal(0, 0.3, 2 * (n // size))[house]
    values = 0.5 + own + rng.normal(0, 0.2, 2 * n) + effect * arm
    users = apart(a=values[:n], b=values[n:])
    return users.assign(household=[f"h{each}" for each in house])


def influence(users: pd.DataFrame, name: str) -> pd.Series:
    """R + z of each cluster of an experiment: Deng, Knoblich, Lu (2018) with clusters of users."""
    of = users[users["experiment"] == name].groupby("household")[METRIC].agg(["sum", "count"])
    ratio = of["sum"].sum() / of["count"].sum()
    return ratio + (of["sum"] - ratio * of["count"]) / of["count"].mean()


def test_the_error_is_that_of_least_squares_with_clusters_in_statsmodels() -> None:
    users = households(1)
    row = of_clusters(users)[PAIR]
    frame = users.rename(columns={METRIC: "value"}).assign(treated=(users["experiment"] == "b").astype(float))
    groups = pd.factorize(users["household"])[0]
    fit = smf.ols("value ~ treated", frame).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False}
    )
    assert row["difference"] == pytest.approx(fit.params["treated"], rel=1e-10)
    # Each variance is divided by one cluster less, as in Welch's test; statsmodels corrects both sides together.
    parts = [influence(users, name) for name in "ab"]
    assert fit.bse["treated"] ** 2 == pytest.approx(sum(part.var(ddof=0) / len(part) for part in parts), rel=1e-9)
    expected = CompareMeans.from_data(parts[1], parts[0])
    assert row["p_value"] == pytest.approx(expected.ttest_ind(usevar="unequal")[1], rel=1e-9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(expected.tconfint_diff(usevar="unequal"), rel=1e-9)
    assert (row["n_users_baseline"], row["n_users_candidate"]) == tuple(map(len, parts))
    assert (row["cluster"], row["n_members_baseline"], row["n_members_candidate"]) == ("household", 300, 300)
    # Users taken for independent ones: an interval that is far too narrow.
    alone = compared(users, Comparison("a"))[PAIR]
    assert row["standard_error"] > 1.5 * alone["standard_error"]
    assert row["mean_baseline"] == pytest.approx(alone["mean_baseline"], rel=1e-14)


def test_who_is_left_out_of_a_cluster_is_a_user_and_no_list() -> None:
    n = np.arange(400)
    values = {name: np.where(n % every, n / 400, np.nan) for name, every in (("a", 2), ("b", 4))}
    users = apart(**values).assign(household=np.repeat(n[:200], 4).astype(str))
    said = "on average, 50 % of the users of a cluster of household in a and 75 % in b have a value (p < 0.001); "
    assert f"{said}the others are left out, so different users are compared" in of_clusters(users)[PAIR]["note"]


def test_the_error_is_that_of_a_bootstrap_over_clusters() -> None:
    users = households(2)
    rng, means = np.random.default_rng(3), []
    for name in "ab":
        of = users[users["experiment"] == name].groupby("household")[METRIC].agg(["sum", "count"]).to_numpy()
        drawn = rng.integers(0, len(of), (4_000, len(of)))
        means.append(of[drawn, 0].sum(axis=1) / of[drawn, 1].sum(axis=1))
    assert of_clusters(users)[PAIR]["standard_error"] == pytest.approx((means[1] - means[0]).std(ddof=1), rel=0.05)


def test_households_that_are_in_both_experiments_are_paired() -> None:
    users = households(4, both=True)
    row = of_clusters(users)[PAIR]
    houses = [{*users.loc[users["experiment"] == name, "household"]} for name in "ab"]
    parts = [influence(users[users["household"].isin(houses[0] & houses[1])], name).sort_index() for name in "ab"]
    assert row["design"] == "paired"
    expected = stats.ttest_rel(parts[1], parts[0])
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)
    assert row["wins"] + row["ties"] + row["losses"] == row["n_users_both"] == len(parts[0])
    assert row["standard_error"] < of_clusters(users, design="independent")[PAIR]["standard_error"]


def test_clusters_of_one_user_are_the_users_to_the_bit() -> None:
    users = households(5)
    plain = compared(users, Comparison("a", effect=0.1))[PAIR]
    result = of_clusters(users.assign(household="of " + users["user"]), effect=0.1)[PAIR]
    assert plain["users_needed"] > 0
    assert {name: result[name] for name in plain} == plain


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_users_changes_no_bit(seed: int) -> None:
    users = households(6)
    shuffled = users.sample(frac=1, random_state=seed).reset_index(drop=True)
    assert str(of_clusters(shuffled)[PAIR]) == str(of_clusters(users)[PAIR])


def test_a_user_without_a_cluster_is_one_and_the_row_says_so() -> None:
    users = households(7, n=40)
    users.loc[[0, 1, 2], "household"] = None
    row = of_clusters(users)[PAIR]
    own = users.assign(household=users["household"].fillna("user " + users["user"]))
    assert row["p_value"] == of_clusters(own)[PAIR]["p_value"]
    assert row["note"] == "3 users of a without one value of household count as clusters of their own"


def test_users_without_a_value_and_clusters_of_such_users_do_not_count() -> None:
    users = households(8)
    users.loc[users["household"].isin(["h0", "h1"]), METRIC] = np.nan
    users.loc[:3, METRIC] = np.nan
    row, known = of_clusters(users)[PAIR], users[users[METRIC].notna()]
    assert row["n_members_baseline"] == (known["experiment"] == "a").sum()
    assert row["n_users_baseline"] == known[known["experiment"] == "a"]["household"].nunique()
    expected = stats.ttest_ind(influence(known, "b"), influence(known, "a"), equal_var=False)
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)


def test_a_segment_has_the_part_of_each_cluster_and_no_rest_where_clusters_are_split() -> None:
    users = households(9).assign(device=["web", "app", "app"] * 200)
    users["country"] = np.where(users["household"].str[-1].isin(list("02468")), "de", "fr")
    rows = of_clusters(users, ("device", "country"))
    for column, value in (("device", "web"), ("country", "de")):
        row, some = rows["a", "b", f"{column}={value}", METRIC], users[users[column] == value]
        expected = stats.ttest_ind(influence(some, "b"), influence(some, "a"), equal_var=False)
        assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
        # Users of one household on two devices are not independent of one another.
        assert np.isnan(row["p_rest"]) == (column == "device")
    french = users[users["country"] == "fr"]
    rest = influence(french, "b").mean() - influence(french, "a").mean()
    assert rows["a", "b", "country=de", METRIC]["rest_difference"] == pytest.approx(rest, rel=1e-10)


def test_lists_are_counted_within_clusters_too() -> None:
    users = households(10)
    users["list_count"] = np.random.default_rng(1).integers(1, 9, len(users)).astype(float)
    row = of_clusters(users, request=Comparison("a", mean_over="lists"))[PAIR]
    lists = users.loc[users.index.repeat(users["list_count"].astype(int))]
    expected = stats.ttest_ind(influence(lists, "b"), influence(lists, "a"), equal_var=False)
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert row["n_lists_baseline"] == users.loc[users["experiment"] == "a", "list_count"].sum()
    assert row["n_members_baseline"] == 300


def test_clusters_of_several_experiments_can_be_left_out() -> None:
    users = households(11)
    users.loc[[0, 600 - 1], "household"] = "shared"
    row = of_clusters(users, request=Comparison("a", shared_users="drop"), design="independent")[PAIR]
    kept = users[users["household"] != "shared"]
    expected = stats.ttest_ind(influence(kept, "b"), influence(kept, "a"), equal_var=False)
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert "without 1 of the 61 clusters of household in a and 1 of the 61" in row["note"]
    overlap = of_clusters(users, design="independent")[PAIR]["note"]
    assert overlap.startswith("1 cluster of household is in both experiments and counted as different ones")


def test_a_user_with_two_rows_of_an_experiment_is_refused() -> None:
    users = pd.concat([households(12, n=20)] * 2, ignore_index=True)
    with pytest.raises(InputError, match="a user has two rows of one experiment in user_metrics"):
        of_clusters(users)


def test_one_household_has_no_test() -> None:
    users = table({"a": [0.1, 0.2, 0.3], "b": [0.2, 0.4, 0.6]}).assign(household="h")
    row = of_clusters(users, design="independent")[PAIR]
    assert np.isnan(row["p_value"]) and row["note"] == "fewer than two clusters of household in a and b"


def test_the_verdict_names_the_unit() -> None:
    users = households(13, effect=0.0)
    row = of_clusters(users)[PAIR]
    lines = rep.verdict_of([row], [mx.parse(METRIC)])
    n = row["n_users_baseline"], row["n_users_candidate"]
    assert f"; {sum(n)} clusters of household are enough to find changes of" in lines[0]
    expected = f"Errors are by household: {n[0]} clusters of 300 users in a, {n[1]} clusters of 300 users in b"
    assert lines[1] == expected


@pytest.mark.parametrize("name", ["wilcoxon", "randomization", "bootstrap", "aa_check"])
def test_what_needs_one_value_per_user_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"comparison.cluster is household, and comparison.{name} works with one"):
        Comparison.read({"cluster": "household", name: True})


@pytest.mark.slow
@pytest.mark.parametrize("paired", [False, True])
def test_intervals_by_household_cover_the_true_difference_and_those_by_user_do_not(paired: bool) -> None:
    covered = by_user = 0
    draws, truth = 400, 0.1
    for seed in range(draws):
        users = households(1_000 + seed, n=160, size=4, both=paired)
        row, naive = of_clusters(users)[PAIR], compared(users, Comparison("a"))[PAIR]
        covered += row["ci_low"] <= truth <= row["ci_high"]
        by_user += naive["ci_low"] <= truth <= naive["ci_high"]
    noise = np.sqrt(0.95 * 0.05 / draws)
    assert abs(covered / draws - 0.95) <= 3 * noise
    assert paired or by_user / draws < 0.85
