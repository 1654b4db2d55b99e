"""How an effect develops: each kind of row against a slow loop over the users, without Spark."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from rankmetrics_spark.comparison import Question, Totals, add_days, over_time_rows
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.errors import ConfigError, InputError
from tests.helpers.user_days import DATES, days_of, developed, log
from tests.helpers.users import METRIC


def means_up_to(rows: pd.DataFrame, date: str) -> dict[str, dict[str, float]]:
    """Experiment -> user -> mean over the lists of the user's days so far: a loop."""
    result: dict[str, dict[str, float]] = {}
    for (name, user), days in rows[(rows.date <= date) & rows[METRIC].notna()].groupby(["experiment", "user"]):
        result.setdefault(str(name), {})[str(user)] = float((days[METRIC] * days.lists).sum() / days.lists.sum())
    return result


def assert_welch(row: Mapping[str, Any], baseline: Any, candidate: Any) -> None:
    expected = sm.stats.CompareMeans.from_data([*candidate], [*baseline])
    assert row["n_users"] == len(baseline) + len(candidate)
    assert row["difference"] == pytest.approx(np.mean([*candidate]) - np.mean([*baseline]), rel=1e-9)
    assert row["p_value"] == pytest.approx(expected.ttest_ind(usevar="unequal")[1], rel=1e-9)
    bounds = expected.tconfint_diff(1 - row["confidence"], usevar="unequal")
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(bounds, rel=1e-9)
    assert row["mean_baseline"] == pytest.approx(np.mean([*baseline]), rel=1e-9)
    assert row["relative_difference"] == pytest.approx(row["difference"] / row["mean_baseline"], rel=1e-9)


@pytest.mark.parametrize("confidence", [0.95, 0.9])
def test_each_day_holds_the_users_of_that_date(confidence: float) -> None:
    rows = log()
    result = developed(rows, confidence=confidence)
    for place, date in enumerate(DATES):
        values = {name: part[METRIC].dropna() for name, part in rows[rows.date == date].groupby("experiment")}
        row = result["b", "day", date]
        assert_welch(row, values["a"], values["b"])
        assert (row["day_number"], row["confidence"], row["design"]) == (place, confidence, "independent")


def test_up_to_a_day_each_user_counts_with_the_mean_over_their_lists_so_far() -> None:
    rows = log()
    result = developed(rows)
    for place, date in enumerate(DATES):
        means = means_up_to(rows, date)
        for name in "bc":
            assert_welch(result[name, "cumulative", date], means["a"].values(), means[name].values())
        assert result["c", "cumulative", date]["day_number"] == place


def test_days_since_the_first_date_are_those_of_each_user() -> None:
    rows = log()
    first = rows.groupby(["experiment", "user"]).date.transform("min")
    since = (pd.to_datetime(rows.date) - pd.to_datetime(first)).dt.days
    result = developed(rows)
    for k in range(14):
        values = {name: part[METRIC].dropna() for name, part in rows[since == k].groupby("experiment")}
        if len(values) == 3 and min(map(len, values.values())) > 1:
            assert_welch(result["b", "days_since_first", str(k)], values["a"], values["b"])
            assert result["b", "days_since_first", str(k)]["day_number"] == k
    assert ("b", "days_since_first", "14") not in result


def slope(rows: pd.DataFrame, name: str, same_users: bool) -> tuple[float, ...]:
    """By one regression of statsmodels with a level for each user in each experiment, and users as clusters."""
    part = rows[rows.experiment.isin(["a", name])].copy()
    first = part.groupby(["experiment", "user"]).date.transform("min")
    part["k"] = (pd.to_datetime(part.date) - pd.to_datetime(first)).dt.days
    part = part[part[METRIC].notna()]
    # Users of one day say nothing about a change.
    part = part[part.groupby(["experiment", "user"]).k.transform("nunique") > 1]
    if same_users:
        part = part[part.groupby("user").experiment.transform("nunique") > 1]
    levels = pd.get_dummies(part.experiment + part.user).to_numpy(float)
    per_day = [(part.experiment == each) * part.k for each in ("a", name)]
    groups = {"groups": pd.factorize(part.user)[0], "use_correction": False}
    fit = sm.OLS(part[METRIC].to_numpy(), np.column_stack([*per_day, levels])).fit(cov_type="cluster", cov_kwds=groups)
    change, users = fit.params[1] - fit.params[0], part.groupby("experiment").user.nunique()
    if same_users:
        n = users[name]
        df, error = n - 1, np.sqrt(np.array([-1, 1]) @ fit.cov_params()[:2, :2] @ [-1, 1] * n / (n - 1))
    else:
        parts = [fit.bse[i] ** 2 * users[each] / (users[each] - 1) for i, each in enumerate(("a", name))]
        n, error = users.sum(), np.sqrt(sum(parts))
        df = sum(parts) ** 2 / sum(p**2 / (users[each] - 1) for p, each in zip(parts, ("a", name), strict=True))
    half = stats.t.isf(0.025, df) * error
    return change, change - half, change + half, 2 * stats.t.sf(abs(change) / error, df), n


@pytest.mark.parametrize("same_users", [False, True])
def test_the_slope_is_that_of_statsmodels_with_a_level_for_each_user(same_users: bool) -> None:
    rows = log()
    if same_users:
        rows["user"] = rows.user.str[1:]
    result = developed(rows)
    p = []
    for name in "bc":
        row = result[name, "slope", "per day since the first date"]
        numbers = [row[key] for key in ("difference", "ci_low", "ci_high", "p_value", "n_users")]
        assert (row["design"], row["test"]) == (("paired", "paired t") if same_users else ("independent", "welch"))
        assert numbers == pytest.approx(slope(rows, name, same_users), rel=1e-7)
        p.append(row["p_value"])
    adjusted = sorted(result[name, "slope", "per day since the first date"]["p_adjusted"] for name in "bc")
    assert adjusted == pytest.approx([min(1.0, 2 * min(p)), min(1.0, max(2 * min(p), max(p)))])


BETWEEN = "slope_between", "per day of a later first date"


def between(rows: pd.DataFrame, name: str, same_users: bool) -> tuple[float, ...]:
    """Of first days: a regression with a level for each date, and a loop over dates and experiments for its error."""
    first = rows.sort_values("date").drop_duplicates(["experiment", "user"]).rename(columns={METRIC: "y"})
    first = first[first.experiment.isin(["a", name])].dropna()
    first["t"], first["b"] = pd.to_datetime(first.date).dt.day, 1.0 * (first.experiment == name)
    if same_users:
        both = first[first.b == 0].merge(first[first.b == 1], on=["user", "t"])
        first = both.assign(y=both.y_y - both.y_x, b=1.0)
    # A date with one user of an experiment says nothing about the spread.
    sizes = first.groupby(["t", "b"]).y.count().unstack(fill_value=0).min(axis=1)
    used = first[first.t.map(sizes) > 1]
    levels = [] if same_users else [pd.get_dummies(used.t).to_numpy(float)]
    part = np.linalg.pinv(np.column_stack([*levels, used.b, used.b * used.t]))[-1]
    cells = [each for _, each in used.assign(c=part).groupby(["t", "b"])]
    errors = np.array([(each.c.iloc[0] ** 2 * len(each) * each.y.var(), len(each) - 1) for each in cells])
    change, error, df = part @ used.y, np.sqrt(errors[:, 0].sum()), errors[:, 0].sum() ** 2
    df /= (errors[:, 0] ** 2 / errors[:, 1]).sum()
    half = stats.t.isf(0.025, df) * error
    return change, change - half, change + half, 2 * stats.t.sf(abs(change) / error, df), len(first)


@pytest.mark.parametrize("same_users", [False, True])
def test_the_slope_between_users_is_that_of_their_first_days_with_a_level_for_each_date(same_users: bool) -> None:
    rows = log(users=60, share=0.2)
    if same_users:
        rows["user"] = rows.user.str[1:]
        rows["date"] = [DATES[int(user) % 3 * 4] for user in rows.user]
        rows = rows.drop_duplicates(["experiment", "user"])
    result = developed(rows, design="paired" if same_users else "independent")
    for name in "bc":
        row = result[(name, *BETWEEN)]
        numbers = [row[key] for key in ("difference", "ci_low", "ci_high", "p_value", "n_users")]
        assert row["test"] == ("paired t" if same_users else "welch")
        assert numbers == pytest.approx(between(rows, name, same_users), rel=1e-7)


def test_users_who_come_on_more_days_are_no_trend() -> None:
    # Each user has one value on all days; users of b who stay are the better ones, those of a are not.
    staying = {"a": ((1, 0.5), (4, 0.5)), "b": ((1, 0.1), (4, 0.9))}
    rows = pd.DataFrame(
        [(name, f"{name}{stays}{i}", DATES[day], value / 3, 1, True)
         for name, kinds in staying.items() for stays, value in kinds for i in range(9) for day in range(stays)],
        columns=["experiment", "user", "date", METRIC, "lists", "relevant"],
    )  # fmt: skip
    result = developed(rows)
    row = result["b", "slope", "per day since the first date"]
    assert [row[key] for key in ("difference", "p_value", "n_users", "test")] == [0.0, 1.0, 18, "welch"]
    first, last = (result["b", "days_since_first", str(day)]["difference"] for day in (0, 3))
    assert last - first == pytest.approx(0.4 / 3)


def test_the_same_users_in_both_experiments_are_paired_day_by_day() -> None:
    rows = log(share=1.0)
    rows["user"] = rows.user.str[1:]
    result = developed(rows)
    for date in (DATES[0], DATES[5], DATES[-1]):
        of_day = rows[rows.date == date].pivot(index="user", columns="experiment", values=METRIC)
        both = of_day[["a", "b"]].dropna()
        row = result["b", "day", date]
        assert row["design"] == "paired" and row["n_users"] == len(both)
        assert row["p_value"] == pytest.approx(stats.ttest_rel(both.b, both.a).pvalue, rel=1e-9)
        means = means_up_to(rows, date)
        users = sorted(set(means["a"]) & set(means["b"]))
        expected = stats.ttest_rel([means["b"][u] for u in users], [means["a"][u] for u in users])
        row = result["b", "cumulative", date]
        assert (row["n_users"], row["p_value"]) == (len(users), pytest.approx(expected.pvalue, rel=1e-9))


def test_a_user_who_is_in_both_on_different_days_counts_in_both_up_to_a_day() -> None:
    rows = pd.DataFrame(
        [("a", "u", DATES[0], 0.5, 1), ("b", "u", DATES[2], 0.75, 1), ("a", "v", DATES[1], 0.25, 1),
         ("b", "v", DATES[1], 0.75, 1), ("a", "u", DATES[3], 1.0, 3)],
        columns=["experiment", "user", "date", METRIC, "lists"],
    ).assign(relevant=True)  # fmt: skip
    result = developed(rows, design="paired")
    difference = {date: result["b", "cumulative", date]["difference"] for date in DATES[1:4]}
    # v alone; u with 0.75 - 0.5 as well; u's mean in a is then (0.5 + 3 * 1.0) / 4.
    assert difference == {DATES[1]: 0.5, DATES[2]: (0.5 + 0.25) / 2, DATES[3]: (0.5 - 0.125) / 2}
    assert [result["b", "cumulative", date]["n_users"] for date in DATES[1:4]] == [1, 2, 2]


def test_a_day_without_a_list_counts_where_a_user_has_nothing_else() -> None:
    rows = pd.DataFrame(
        [("a", "u", DATES[0], 0.0, 0), ("a", "u", DATES[1], 0.0, 0), ("a", "v", DATES[0], 0.5, 1),
         ("b", "w", DATES[0], 0.0, 0), ("b", "w", DATES[1], 0.5, 2), ("b", "x", DATES[0], 0.75, 1)],
        columns=["experiment", "user", "date", METRIC, "lists"],
    ).assign(relevant=True)  # fmt: skip
    result = developed(rows)
    assert [result["b", "cumulative", date]["mean_baseline"] for date in DATES[:2]] == [0.25, 0.25]
    assert [result["b", "cumulative", date]["mean_candidate"] for date in DATES[:2]] == [0.375, 0.625]


def test_only_lists_with_a_value_count_where_they_are_stored() -> None:
    rows = pd.DataFrame(
        [("a", "u", DATES[0], 0.0, 4, 1), ("a", "u", DATES[1], 1.0, 3, 3), ("a", "v", DATES[0], 0.5, 2, np.nan),
         ("b", "w", DATES[0], 0.25, 9, 9), ("b", "x", DATES[1], 0.75, 1, 1)],
        columns=["experiment", "user", "date", METRIC, "lists", "with_value"],
    ).assign(relevant=True)  # fmt: skip
    # (1 * 0.0 + 3 * 1.0) / 4 of u, and 0.5 of v
    assert developed(rows)["b", "cumulative", DATES[1]]["mean_baseline"] == (0.75 + 0.5) / 2


def test_days_since_the_first_date_begin_with_the_first_list() -> None:
    rows = pd.DataFrame(
        [("a", "u", DATES[0], 0.0, 0), ("a", "u", DATES[1], 0.5, 1), ("a", "v", DATES[2], 0.25, 1),
         ("b", "w", DATES[1], 1.0, 1), ("b", "x", DATES[4], 0.75, 1)],
        columns=["experiment", "user", "date", METRIC, "lists"],
    ).assign(relevant=True)  # fmt: skip
    result = developed(rows)
    assert {label for _, kind, label in result if kind == "days_since_first"} == {"0"}
    assert result["b", "days_since_first", "0"]["mean_baseline"] == (0.5 + 0.25) / 2


def test_users_before_the_start_count_with_all_that_they_had_then() -> None:
    rows = log(share=0.7, b=0.3)
    # Before the start, everybody is in one experiment, which is not part of the test.
    rows.loc[rows.date < DATES[7], "experiment"] = "old"
    result = developed(rows, DATES[7])
    earlier = means_up_to(rows, DATES[6])["old"]
    present = {name: {*part.user} for name, part in rows[rows.date >= DATES[7]].groupby("experiment")}
    values = {name: [earlier[user] for user in sorted(users) if user in earlier] for name, users in present.items()}
    row = result["b", "before", DATES[7]]
    assert_welch(row, values["a"], values["b"])
    p = sorted(result[name, "before", DATES[7]]["p_value"] for name in "bc")
    adjusted = sorted(result[name, "before", DATES[7]]["p_adjusted"] for name in "bc")
    assert adjusted == pytest.approx([min(1.0, 2 * p[0]), min(1.0, max(2 * p[0], p[1]))])
    assert {label for name, kind, label in result if kind == "day"} == {*DATES[7:]}
    assert not any(kind == "before" for _, kind, _ in developed(rows[rows.experiment != "old"]))


def test_what_is_corrected_has_the_interval_that_agrees_with_it_and_the_rest_its_own() -> None:
    result, seen = developed(log(), start=DATES[4]), set()
    for (_, kind, _), row in result.items():
        low, high = row["adjusted_ci_low"], row["adjusted_ci_high"]
        if kind in ("slope", "slope_between", "before"):
            assert (low > 0 or high < 0) == (row["p_adjusted"] < 0.05)
            if row["p_adjusted"] > row["p_value"] and row["p_adjusted"] < 1:
                assert low < row["ci_low"] and high > row["ci_high"]
                seen.add(kind)
            shares = row["adjusted_relative_ci_low"], row["adjusted_relative_ci_high"]
            assert (shares[0] > 0 or shares[1] < 0) == (low > 0 or high < 0)
        else:
            assert (low, high) == (row["ci_low"], row["ci_high"])
            assert row["adjusted_relative_ci_low"] == row["relative_ci_low"]
    assert seen


def test_the_order_of_the_rows_and_the_chunks_change_no_bit() -> None:
    rows = log(users=15)
    result = developed(rows, DATES[3])
    again = developed(rows.sample(frac=1.0, random_state=3), DATES[3])
    totals = Totals()
    for _, some in rows.groupby("user"):
        add_days(totals, days_of(some), Comparison(baseline="a"), DATES[3])
    columns = over_time_rows(totals, Question(Comparison(baseline="a")), DATES[3])
    assert str(again) == str(result)
    assert str([*zip(*columns.values(), strict=True)]) == str([tuple(row.values()) for row in result.values()])


def test_two_rows_of_a_user_and_a_date_and_unknown_experiments_are_refused() -> None:
    rows = log(users=3)
    with pytest.raises(InputError, match="two rows of one experiment"):
        developed(pd.concat([rows, rows.iloc[:1]]))
    with pytest.raises(ConfigError, match="unknown experiment 'd'"):
        developed(rows, request=Comparison(baseline="d"))


def test_a_value_that_cannot_be_summed_leaves_no_test_behind() -> None:
    rows = log(users=10)
    at = rows.index[(rows.experiment == "b") & (rows.date == DATES[4]) & rows[METRIC].notna()][0]
    rows.loc[at, METRIC] = np.inf
    result = developed(rows)
    for key in (("b", "day", DATES[4]), ("b", "cumulative", DATES[9]), ("b", "slope", "per day since the first date")):
        assert np.isnan(result[key]["p_value"]) and result[key]["note"]
    assert result["b", "day", DATES[5]]["p_value"] > 0 and result["b", "cumulative", DATES[3]]["p_value"] > 0


def test_days_with_few_users_are_left_out() -> None:
    result = developed(log(users=20), min_users=9)
    assert 0 < sum(kind == "day" for _, kind, _ in result) < 28
    # Only the slopes are left where each row has fewer: they are of the users of all days.
    assert {kind for _, kind, _ in developed(log(users=20), min_users=21)} == {"slope", "slope_between"}


def test_users_of_two_experiments_are_left_out_of_every_row_where_that_is_asked_for() -> None:
    rows = log(users=20)
    rows.loc[rows.user.isin(["b3", "b4"]) & (rows.date > DATES[6]), "experiment"] = "a"
    dropped = developed(rows, request=Comparison(baseline="a", shared_users="drop"), design="independent")
    without = developed(rows[~rows.user.isin(["b3", "b4"])], design="independent")
    assert str(dropped) == str(without) and str(dropped) != str(developed(rows, design="independent"))


def test_days_without_relevant_items_are_doubted_wherever_they_count_with_others() -> None:
    rows = log()
    rows.loc[(rows.experiment == "b") & (rows.date == DATES[5]), ["relevant", METRIC]] = [False, 0.0]
    result = developed(rows)
    doubt = f"not trustworthy: no user of b has a relevant item on {DATES[5]}, while users of a do; these values count "
    doubt += "as 0: compare a period without this day"
    for place, date in enumerate(DATES):
        assert result["b", "cumulative", date]["note"] == (doubt if place >= 5 else None), date
        if place != 5:
            assert result["b", "day", date]["note"] is None
    of_day = result["b", "day", DATES[5]]
    assert of_day["note"].startswith("not trustworthy: no user of b has a relevant item, and ")
    assert of_day["difference"] == pytest.approx(-of_day["mean_baseline"])
    for kind, label in (("days_since_first", "0"), ("slope", "per day since the first date"), BETWEEN):
        assert result["b", kind, label]["note"] == doubt
        assert result["c", kind, label]["note"] is None
    assert {row["note"] for (name, *_), row in developed(log()).items() if name == "b"} <= {None}


def test_a_ramp_over_days_that_differ_is_doubted_from_the_day_on_which_it_moves_the_difference() -> None:
    """20, 50 and 80 % of the users of a day have 1, and b has 40, 50 and 60 % of them: 0.46 against 0.54."""
    sizes = ((0.2, {"a": 180, "b": 120}), (0.5, {"a": 150, "b": 150}), (0.8, {"a": 120, "b": 180}))
    parts = [
        pd.DataFrame(
            {"experiment": name, "user": [f"{name}{day}-{i}" for i in range(n)], "date": DATES[day], "lists": 1}
        ).assign(**{METRIC: (np.arange(n) < mean * n).astype(float), "relevant": True})
        for day, (mean, arms) in enumerate(sizes)
        for name, n in arms.items()
    ]
    result = developed(pd.concat(parts, ignore_index=True))
    doubted = {key[1:] for key, row in result.items() if "alone moves the difference by +0.08" in str(row["note"])}
    assert doubted == {("cumulative", DATES[2]), ("days_since_first", "0")}
    assert result["b", "cumulative", DATES[2]]["p_value"] < 0.05


def test_lists_without_a_value_are_asked_about_on_each_day_and_up_to_it() -> None:
    rows = log().assign(lists=4)
    told = [str(row["note"]) for row in developed(rows.assign(with_value=2)).values()]
    assert not any("have a value" in note for note in told)
    result = developed(rows.assign(with_value=np.where(rows.experiment == "b", 3, 2)))
    assert "of a user's lists in a and 7" in result["b", "cumulative", DATES[-1]]["note"]
    for (name, kind, _), row in result.items():
        assert str(row["note"]).startswith("not trustworthy: on average, ") == (name == "b"), kind
