"""Rows of ``comparisons`` with labels of people for some users and of a machine for all: golden values, and when."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rankmetrics_spark import comparison as cmp, errors as err, statistics as st
from rankmetrics_spark.config import Comparison
from tests.helpers.users import METRIC, PAIR, apart, compared, question, table, totals_of, user_rows
from tests.unit.test_cluster_rows import of_clusters
from tests.unit.test_machine_labels import QUERIES

Floats = Any


def with_machine(users: pd.DataFrame, machine: Floats) -> pd.DataFrame:
    return users.assign(**{f"machine {METRIC}": machine, "relevant": True})


def judged(n: int, others: int, seed: int = 0, noise: float = 0.1, **arms: float) -> pd.DataFrame:
    """Users of both experiments whose machine labels are noisy; ``arms`` are what is added to each experiment."""
    rng = np.random.default_rng(seed)
    size = n + others
    base = rng.beta(2, 3, size)
    people = {name: base + rng.normal(0, 0.2, size) + shift for name, shift in (arms or {"a": 0, "b": 0.05}).items()}
    machine = np.concatenate([each + rng.normal(0.02, noise, size) for each in people.values()])
    hidden = {name: np.where(np.arange(size) < n, each, np.nan) for name, each in people.items()}
    return with_machine(table(hidden), machine)


def row_of(users: pd.DataFrame, **asked: Any) -> dict[str, Any]:
    return compared(users, Comparison("a"), machine=True, **asked)[PAIR]


def test_the_golden_values_without_a_verdict_of_so_few() -> None:
    users = with_machine(table({"a": QUERIES[:, 0], "b": QUERIES[:, 1]}), QUERIES[:, 2:].T.ravel())
    row = row_of(users)
    human = [row[f"{name}_human"] for name in ("mean_baseline", "mean_candidate", "difference", "standard_error")]
    assert human == pytest.approx([0.47992500000000005, 0.5328625, 0.0529375, 0.021677275276031742], rel=1e-12)
    machine = [row[f"{name}_machine"] for name in ("mean_baseline", "mean_candidate", "difference")]
    assert machine == pytest.approx([0.5135458333333333, 0.6666291666666666, 0.15308333333333335], rel=1e-12)
    assert (row["n_judged"], row["n_users"], row["note"]) == (8, 24, "people judged 8 users, and a verdict needs 20")
    assert np.isnan([row[name] for name in ("standard_error", "p_value", "ci_low", "p_adjusted")]).all()
    assert (row["lambda"], row["test"], row["better"]) == (0, None, None)


def test_the_golden_values_of_the_rule_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAST_JUDGED", "LEAST_DIFFERENT"):
        monkeypatch.setattr(f"rankmetrics_spark.statistics.machine_labels.{name}", 8)
    monkeypatch.setattr("rankmetrics_spark.statistics.LEAST_JUDGED", 8)
    users = with_machine(table({"a": QUERIES[:, 0], "b": QUERIES[:, 1]}), QUERIES[:, 2:].T.ravel())
    row = row_of(users)
    names = ("mean_baseline", "mean_candidate", "difference", "standard_error", "p_value")
    golden = (0.4948375674126067, 0.5133625795805324, 0.03449862613717909, 0.01728681885345687, 0.07098485065389823)
    assert [row[name] for name in names] == pytest.approx(golden, rel=1e-12)


def slow_mean(h: Floats, f: Floats, others: Floats) -> tuple[float, float, float]:
    """Mean, squared error and degrees of freedom, one query at a time."""
    n, size = len(h), len(others)
    slopes = [
        np.clip(np.cov(np.delete(h, i), np.delete(f, i))[0, 1]
                / ((1 + n / size) * np.var(np.r_[np.delete(f, i), others], ddof=1)), 0, 1)
        for i in range(n)
    ]  # fmt: skip
    errors = [hi - slope * (fi - others.mean()) for hi, fi, slope in zip(h, f, slopes, strict=True)]
    parts = (np.mean(slopes) ** 2 * np.var(others, ddof=1) / size, size - 1), (np.var(errors, ddof=1) / n, n - 1)
    squared = parts[0][0] + parts[1][0]
    return float(np.mean(errors)), squared, squared**2 / sum(part**2 / df for part, df in parts)


def assert_bias(row: dict[str, Any], off: list[Floats], alike: Any) -> None:
    """The machine's bias with the p-values of SciPy, of each side and that they are ``alike``."""
    own = {} if alike is stats.ttest_rel else {"equal_var": False}
    known = [stats.ttest_1samp(each, 0).pvalue for each in off] + [alike(*off, **own).pvalue]
    sides = ("_baseline_machine", "_candidate_machine", "_machine")
    assert [row[f"p_bias{side}"] for side in sides] == pytest.approx(known, rel=1e-9)
    assert [row[f"bias{side}"] for side in sides[:2]] == pytest.approx([each.mean() for each in off], rel=1e-12)


def test_independent_errors_are_added_with_four_degrees_of_freedom_in_welchs_way() -> None:
    rng = np.random.default_rng(1)
    truth = [rng.beta(2, 3, 200), rng.beta(2, 3, 300) + 0.1]
    machine = [each + rng.normal(0.05, 0.1, len(each)) for each in truth]
    n = (30, 40)
    hidden = [np.where(np.arange(len(each)) < k, each, np.nan) for each, k in zip(truth, n, strict=True)]
    row = row_of(with_machine(apart(a=hidden[0], b=hidden[1]), np.concatenate(machine)))
    each = [slow_mean(h[:k], f[:k], f[k:]) for h, f, k in zip(truth, machine, n, strict=True)]
    error = np.sqrt(each[0][1] + each[1][1])
    assert row["difference"] == pytest.approx(each[1][0] - each[0][0], rel=1e-12)
    assert row["standard_error"] == pytest.approx(error, rel=1e-12)
    parts = [st.corrected(h[:k], f[:k], st.Others(len(f) - k, f[k:].mean(), f[k:].var(ddof=1))).parts
             for h, f, k in zip(truth, machine, n, strict=True)]  # fmt: skip
    df = error**4 / sum(part**2 / of for side in parts for part, of in side)
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(abs(row["difference"]) / error, df), rel=1e-9)
    assert (row["n_judged_baseline"], row["n_judged_candidate"], row["n_judged"]) == (30, 40, 70)
    assert_bias(row, [f[:k] - h[:k] for h, f, k in zip(truth, machine, n, strict=True)], stats.ttest_ind)
    assert 0 < row["lambda_baseline"] < 1 and np.isnan(row["lambda"])


def test_paired_rows_test_the_differences_of_users() -> None:
    users = judged(40, 400)
    a, b = (users[users["experiment"] == name] for name in "ab")
    h, f = (b[name].to_numpy() - a[name].to_numpy() for name in (METRIC, f"machine {METRIC}"))
    mean, squared, df = slow_mean(h[:40], f[:40], f[40:])
    row = row_of(users)
    p = 2 * stats.t.sf(abs(mean) / np.sqrt(squared), df)
    assert_bias(row, [(arm[f"machine {METRIC}"] - arm[METRIC]).to_numpy()[:40] for arm in (a, b)], stats.ttest_rel)
    numbers = [row[name] for name in ("difference", "standard_error", "p_value")]
    assert numbers == pytest.approx([mean, np.sqrt(squared), p], rel=1e-9)
    assert row["standard_error"] < row["standard_error_human"]
    assert row["relative_difference"] == pytest.approx(mean / row["mean_baseline"], rel=1e-12)
    assert (row["relative_ci_low"] > 0) == (row["ci_low"] > 0)


@pytest.mark.parametrize("design", ["paired", "independent"])
def test_the_mean_of_these_queries_has_the_errors_of_the_judged_ones_alone(design: str) -> None:
    users = judged(40, 160)
    if design == "independent":
        users["user"] += users["experiment"]
    values = [users[users["experiment"] == name][[METRIC, f"machine {METRIC}"]].to_numpy().T for name in "ab"]
    parts = values if design == "independent" else [values[1] - values[0]]
    squared = 0.0
    for h, f in parts:
        slopes = st.slopes(h[:40], f[:40], st.Others(160, f[40:].mean(), f[40:].var(ddof=1)))
        # N / (n + N) * var(h - lambda * (1 + n / N) * f) / n, of f around the mean of the others.
        squared += 160 / 200 * np.var(h[:40] - slopes * (1 + 40 / 160) * (f[:40] - f[40:].mean()), ddof=1) / 40
    row, usual = row_of(users, design=design, target="these_queries"), row_of(users, design=design)
    assert row["standard_error"] == pytest.approx(np.sqrt(squared), rel=1e-9)
    assert row["difference"] == usual["difference"] and row["standard_error"] < usual["standard_error"]


def added(values: Floats, lists: Floats, w: Any = 1.0) -> Floats:
    """R + z of each unit: what it adds to a mean R over lists, of units with weights."""
    ratio = (values * lists * w).sum() / (lists * w).sum()
    return ratio + (values - ratio) * lists * np.mean(w * np.ones(len(lists))) / (lists * w).mean()


@pytest.mark.parametrize("design", ["paired", "independent"])
def test_means_over_lists_are_those_of_what_each_unit_adds(design: str) -> None:
    n, lists = 60, np.random.default_rng(8).integers(1, 6, 300)
    users = judged(n, 240).assign(list_count=np.tile(lists, 2))
    if design == "independent":
        users["user"] += users["experiment"]
    row = row_of(users, design=design, mean_over="lists")
    assert (row["n_users"], row["n_lists_baseline"]) == (300 if design == "paired" else 600, lists.sum())
    arms = [users[users["experiment"] == name][[METRIC, f"machine {METRIC}"]].to_numpy().T for name in "ab"]
    off = np.average((arms[1][1] - arms[1][0])[:n], weights=lists[:n])
    assert row["bias_candidate_machine"] == pytest.approx(off, rel=1e-9)
    tested = [(added(h[:n], lists[:n]), added(f, lists)) for h, f in arms]
    if design == "paired":
        tested = [(tested[1][0] - tested[0][0], tested[1][1] - tested[0][1])]
    each = [slow_mean(h, f[:n], f[n:]) for h, f in tested]
    difference, squared = each[-1][0] - (each[0][0] if len(each) > 1 else 0), sum(error for _, error, _ in each)
    assert (row["difference"], row["standard_error"]) == pytest.approx((difference, np.sqrt(squared)), rel=1e-9)
    people = [stats.sem(h) for h, _ in tested]
    assert row["standard_error_human"] == pytest.approx(np.sqrt(np.sum(np.square(people))), rel=1e-9)


def test_clusters_of_which_people_judged_some_users_have_no_verdict() -> None:
    users = judged(100, 400)
    # Every second user of a pair is judged, and so is no pair as a whole.
    users["household"] = "h" + (users["user"].str[1:].astype(int) % 250).astype(str)
    row = of_clusters(users, machine=True)[PAIR]
    assert row["note"].startswith("people judged 100 of 100 clusters of household in part, as where a system came later"
                                  ", or users were drawn and not whole clusters of household; n_to_judge")  # fmt: skip
    assert np.isnan(row["p_value"]) and row["better"] is None


def of_pair(rows: Any, design: str, one: str, other: str) -> dict[str, Any]:
    return compared(rows, Comparison(pairs="all"), machine=True, design=design)[(one, other, *PAIR[2:])]


@pytest.mark.parametrize("design", ["paired", "independent"])
def test_all_pairs_have_one_lambda_of_sums_over_the_pairs(design: str) -> None:
    n, machine = 40, f"machine {METRIC}"
    users = judged(n, 160, a=0.0, b=0.05, c=0.3)
    users[machine] += np.where(users["experiment"] == "c", np.random.default_rng(2).normal(0, 0.3, len(users)), 0)
    arms = {name: rows[[METRIC, machine]].to_numpy().T for name, rows in users.groupby("experiment")}
    paired, pools = design == "paired", [arms[y] - arms[x] for x, y in ("ab", "ac", "bc")]
    if not paired:
        users["user"] += users["experiment"]
        pools = [*arms.values()]

    def slope(without: list[Any]) -> float:
        """Lambda, without a unit or [] of each pool."""
        each = [*zip(pools, without, strict=True)]
        covariance = sum(np.cov(np.delete(h[:n], i), np.delete(f[:n], i))[0, 1] for (h, f), i in each)
        return float(covariance / sum((1 + n / 160) * np.delete(f, i).var(ddof=1) for (_, f), i in each))

    each = []
    for k, (h, f) in enumerate(pools):
        own = np.array([slope([i if paired or k == at else [] for at in range(3)]) for i in range(n)])
        e = h[:n] - own * (f[:n] - f[n:].mean())
        each.append((e.mean(), own.mean() ** 2 * f[n:].var(ddof=1) / 160 + e.var(ddof=1) / n))
    for place, (one, other) in enumerate(("ab", "ac", "bc")):
        row = of_pair(users, design, one, other)
        (low, error), (high, more) = ((0, 0), each[place]) if paired else (each["abc".index(at)] for at in one + other)
        mean, squared = high - low, error + more
        assert (row["difference"], row["standard_error"]) == pytest.approx((mean, np.sqrt(squared)), rel=1e-9)
    differences = [of_pair(users, design, *pair)["difference"] for pair in ("ab", "bc", "ac")]
    assert differences[0] + differences[1] == pytest.approx(differences[2], rel=1e-12)


def test_no_pair_uses_a_machine_that_differs_from_people_too_rarely_in_one_of_them() -> None:
    users = judged(60, 240, a=0.0, b=0.05, c=0.1)
    same = users["experiment"] != "c"
    users[f"machine {METRIC}"] = users[f"machine {METRIC}"].where(~same | users[METRIC].isna(), users[METRIC])
    row = of_pair(users, "paired", "a", "c")
    assert row["lambda"] == 0 and row["note"].endswith("or every user is judged (in some pair)")
    alone = compared(users, Comparison("a"), machine=True)
    assert alone[PAIR]["lambda"] == 0 < alone[("a", "c", *PAIR[2:])]["lambda"]


def weighted_mean(h: Floats, f: Floats, others: Floats, w: Floats) -> tuple[float, float]:
    """Mean and squared error of queries with weights, one query at a time."""
    n, size = len(h), len(others)

    def slope(i: int) -> float:
        rest = [np.delete(each, i) for each in (h, f, w)]
        covariance = np.cov(*rest[:2], aweights=rest[2], ddof=0)[0, 1] * (n - 1) / (n - 2)
        return float(np.clip(covariance / ((1 + n / size) * np.var(np.r_[rest[1], others], ddof=1)), 0, 1))

    slopes, everyone = np.array([slope(i) for i in range(n)]), np.r_[f, others].mean()
    centre = everyone + n / size * (everyone - np.average(f, weights=w))
    mean = np.average(h - slopes * (f - centre), weights=w)
    # What people's labels say of what the machine leaves open; without a query, it moves by so much (the jackknife).
    rest = h - slopes * (1 + n / size) * (f - centre)
    moves = [np.average(rest, weights=w) - np.average(np.delete(rest, i), weights=np.delete(w, i)) for i in range(n)]
    adds = (n - 1) * np.array(moves) + slopes * n / size * (f - centre)
    return float(mean), float(slopes.mean() ** 2 * others.var(ddof=1) / size + adds.var(ddof=1) / n)


@pytest.mark.parametrize("design", ["paired", "independent"])
def test_unequal_probabilities_are_weights_in_every_sum_and_equal_ones_change_nothing(design: str) -> None:
    n, machine = 40, f"machine {METRIC}"
    users, rng = judged(n, 160), np.random.default_rng(4)
    chance = np.tile(np.r_[rng.uniform(0.05, 0.5, n), np.full(160, np.nan)], 2)
    if design == "independent":
        users["user"] += users["experiment"]
    plain, same = row_of(users, design=design), row_of(users.assign(chance=0.2), design=design)
    numbers = [name for name, value in plain.items() if isinstance(value, float)]
    assert [same[name] for name in numbers] == pytest.approx([plain[name] for name in numbers], rel=1e-12, nan_ok=True)
    row = row_of(users.assign(chance=chance), design=design)
    arms = [users[users["experiment"] == name][[METRIC, machine]].to_numpy().T for name in "ab"]
    tested = arms if design == "independent" else [arms[1] - arms[0]]
    each = [weighted_mean(h[:n], f[:n], f[n:], 1 / chance[:n]) for h, f in tested]
    difference, squared = each[-1][0] - (each[0][0] if len(each) > 1 else 0), sum(error for _, error in each)
    assert (row["difference"], row["standard_error"]) == pytest.approx((difference, np.sqrt(squared)), rel=1e-9)
    people = [np.average(h[:n], weights=1 / chance[:n]) for h, _ in arms]
    assert [row["mean_baseline_human"], row["mean_candidate_human"]] == pytest.approx(people, rel=1e-12)
    # Users who stand for unequal numbers of others neither win nor lose.
    assert (row["wins"], row["ties"], row["losses"]) == (None, None, None) and np.isnan(row["effect_size"])
    assert same["wins"] == plain["wins"] and same["effect_size"] == plain["effect_size"] != 0
    few = row_of(users.assign(chance=np.where(np.arange(len(users)) % 200 < 4, 0.001, 0.5)), design=design)
    assert few["note"] == "people judged 40 users, worth 4 that were drawn with equal chances, and a verdict needs 20"


@pytest.mark.parametrize(
    ("column", "same", "said"),
    [("shown", 10, "their lists have other lengths"), ("country", "de", "other segments have more of them")],
)
def test_judged_users_of_other_lengths_or_segments_have_no_verdict(column: str, same: Any, said: str) -> None:
    users, at = judged(60, 340), np.tile(np.arange(400), 2)
    alike = users.assign(shown=at % 7 + 4, country=np.where(at % 3, "de", "fr"))
    assert compared(alike, Comparison("a"), segments=["country"], machine=True)[PAIR]["note"] is None
    other = alike.assign(**{column: np.where((at < 60) & (at % 5 > 0), same, alike[column])})
    rows = compared(other, Comparison("a"), segments=["country"], machine=True)
    assert rows[PAIR]["note"] == f"the users that people judged are not like the others: {said} (p < 0.001)"
    assert {rows[(*PAIR[:2], f"country={name}", METRIC)]["better"] for name in ("de", "fr")} == {None}
    # Drawn with such chances, they stand for as many users as there are.
    share = other.groupby("country")[METRIC].agg(lambda values: values.notna().mean())
    drawn = other.assign(chance=other["country"].map(share)), ["country"] * (column == "country")
    row = compared(drawn[0], Comparison("a"), segments=drawn[1], machine=True)[PAIR]
    assert np.isnan(row["p_value"]) == (column == "shown")


@pytest.mark.parametrize(("n", "note"), [(12, None), (13, "neither people nor the machine judged 13 users, who may")])
def test_users_whom_nobody_judged_are_at_most_2_of_100(n: int, note: str | None) -> None:
    users = judged(60, 540)
    at = np.tile(np.arange(600), 2)
    users[f"machine {METRIC}"] = users[f"machine {METRIC}"].mask(at >= 600 - n)
    row = row_of(users)
    assert row["n_users"] == 600 - n and (row["note"] or "")[: len(note or "")] == (note or "")
    assert np.isnan(row["p_value"]) == (note is not None)


@pytest.mark.parametrize(("gaps", "says"), [([1, 0], False), ([2, 0], True), ([2, 2], False), ([5, 5], True)])
def test_items_of_one_system_that_nobody_judged_leave_no_verdict(gaps: list[int], says: bool) -> None:
    users = judged(200, 400)
    part = np.concatenate([np.arange(600) < n for n in gaps])
    note = row_of(users.assign(in_part=part))["note"]
    assert (note is not None) == says
    assert note is None or note.startswith(f"people judged {max(gaps)} of 200 users in part, as where a system came")


@pytest.mark.parametrize("wrong", [0.0, -0.1, 1.01, np.nan])
def test_a_drawn_query_without_a_probability_is_refused(wrong: float) -> None:
    users = judged(40, 160).assign(chance=0.5)
    users.loc[users["user"].isin(["u3", "u7"]), "chance"] = wrong
    said = "2 of 40 users of b that people were to judge have no probability of being drawn; allowed: one above 0 and"
    with pytest.raises(err.InputError, match=said):
        row_of(users)


@pytest.mark.parametrize(
    ("users", "says"),
    [
        (judged(40, 400, noise=9.0), "agree too little"),
        (judged(40, 0), "every user is judged"),
        (judged(19, 400), "people judged 19 users, and a verdict needs 20"),
        (judged(1, 400), "people judged 1 user, and a verdict needs 20"),
    ],
)
def test_people_alone_decide_where_the_machine_does_not_help(users: pd.DataFrame, says: str) -> None:
    row = row_of(users)
    assert says in row["note"] and row["lambda"] == 0
    assert row["difference"] == pytest.approx(row["difference_human"], rel=1e-12)
    if "verdict" not in says:
        assert row["p_value"] == pytest.approx(row["p_value_human"], rel=1e-9)


def test_a_judge_that_differs_in_few_users_is_not_used() -> None:
    users = judged(100, 900, noise=0.0)
    same = users[METRIC].where(users[METRIC].notna(), users[f"machine {METRIC}"])
    wrong = np.where(np.arange(len(users)) % 1000 < 9, 0.5, 0.0) * (users["experiment"] == "b")
    row = row_of(with_machine(users, same + wrong))
    assert row["lambda"] == 0 and "fewer than 10 judged users" in row["note"]


def test_the_machine_alone_would_have_called_a_winner() -> None:
    users = judged(50, 2000, a=0.0, b=0.0)
    rated = users[f"machine {METRIC}"] + np.where(users["experiment"] == "b", 0.05, 0.0)
    row = row_of(with_machine(users, rated))
    assert row["better"] is None and row["p_value_machine"] < 1e-4
    assert row["note"] == "labels of the machine alone would have shown that b is higher"


def test_people_who_judged_users_of_both_sides_give_no_verdict_of_independent_rows() -> None:
    row = row_of(users := judged(50, 300), design="independent")
    assert row["note"] == "people judged 50 users of both experiments, whose errors belong together (design: paired)"
    assert np.isnan(row["p_adjusted"])
    users[METRIC] = users[METRIC].where(users["experiment"] == "a")
    assert row_of(users, design="independent")["note"] == "no users that people judged in b"


def test_more_judged_users_than_are_kept_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankmetrics_spark.comparison.measures.MOST_JUDGED", 30)
    with pytest.raises(err.ConfigError, match="people judged more than 30 users of b; allowed"):
        row_of(judged(40, 400))


def test_order_and_parts_of_the_users_change_no_bit() -> None:
    users = judged(60, 300, seed=4)
    request = question(Comparison("a"), machine=True)
    whole = cmp.comparison_rows(totals_of(user_rows(users), request.request), request)
    names = users["user"].unique()
    for seed in range(3):
        totals = cmp.Totals()
        for part in np.array_split(np.random.default_rng(seed).permutation(names), 4):
            rows = users[users["user"].isin(part)].sample(frac=1, random_state=seed)
            for key, sums in totals_of(user_rows(rows), request.request).sums.items():
                totals.add(key, sums)
        again = cmp.comparison_rows(totals, request)
        for name, values in whole.items():
            assert np.array_equal(again[name], values) or again[name] == values or np.isnan(values[0]), name
