"""Means over lists against visible arithmetic, SciPy, a bootstrap over users, and what they mean for heavy users."""

from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from rankmetrics_spark import metrics as mx, statistics as st
from rankmetrics_spark.comparison import Key, Totals, comparison_rows
from rankmetrics_spark.config import Comparison, Options
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.report import console, means_of, verdict_of
from rankmetrics_spark.road import SUMS_OVER_LISTS, Summands, sums_of_lists
from tests.helpers.samples import ratio_sums
from tests.helpers.users import METRIC, PAIR, apart, compared, question, table, totals_of, user_rows


def heavy_users(n: int, seed: int, effect: float = 0.0) -> tuple[Any, Any]:
    """Values of n users and their numbers of lists: some have many, and these are the better served ones."""
    rng = np.random.default_rng(seed)
    lists = np.ceil(rng.pareto(2.5, n) * 3 + 0.01)
    return np.clip(0.3 + effect + 0.1 * np.log(lists) + rng.normal(0, 0.1, n), 0, None), lists


def influence(values: Any, lists: Any) -> Any:
    """R + z of each user: Deng, Knoblich, Lu (2018)."""
    y = values * lists
    ratio = y.sum() / lists.sum()
    return ratio + (y - ratio * lists) / lists.mean()


def one(users: pd.DataFrame, **rules: Any) -> dict[str, Any]:
    return compared(users, Comparison("a", mean_over="lists"), **rules)[PAIR]


def test_an_independent_row_is_welchs_test_of_the_influence_of_users() -> None:
    pytest.importorskip("scipy", minversion="1.11")  # has intervals
    (a, n), (b, m) = heavy_users(80, 1), heavy_users(60, 2)
    row = one(apart(a=a, b=b).assign(list_count=[*n, *m]))
    expected = stats.ttest_ind(influence(b, m), influence(a, n), equal_var=False)
    assert (row["design"], row["mean_over"]) == ("independent", "lists")
    assert (row["mean_baseline"], row["mean_candidate"]) == pytest.approx(
        ((a * n).sum() / n.sum(), (b * m).sum() / m.sum()), rel=1e-13
    )
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)
    assert (row["n_lists_baseline"], row["n_lists_candidate"]) == (n.sum(), m.sum())
    assert (row["n_users_baseline"], row["n_users_candidate"], row["n_users"]) == (80, 60, 140)
    # The mean over users is another number.
    assert abs(row["mean_baseline"] - a.mean()) > 0.02


@pytest.mark.parametrize("paired", [False, True])
def test_a_few_users_with_most_of_the_lists_are_said_with_the_users_that_they_are_worth(paired: bool) -> None:
    rng, n = np.random.default_rng(8), 120
    lists = {"a": np.ceil(rng.pareto(1.1, n) + 1), "b": np.ceil(rng.pareto(0.9, n) + 1)}
    users = (table if paired else lambda arms: apart(**arms))({name: rng.random(n) for name in lists})
    row = one(users.assign(list_count=[*lists["a"], *lists["b"]]))
    worth = [each.sum() ** 2 / (each**2).sum() for each in lists.values()]
    assert max(worth) < 40
    assert [row["effective_users_baseline"], row["effective_users_candidate"]] == pytest.approx(worth, rel=1e-12)
    assert row["note"] == (
        f"a few users have most of the lists, so that all count as {worth[0]:.0f} equal ones in a and as "
        f"{worth[1]:.0f} equal ones in b: all users were permuted, and there is no interval; a comparison.cap makes "
        "one possible"
    )
    users = users.assign(list_count=[*lists["a"], *lists["b"]])
    units = [np.stack([of[METRIC] * of["list_count"], of["list_count"]], 1) for _, of in users.groupby("experiment")]
    p = st.swapped_ratio_p(np.concatenate(units, 1)) if paired else st.permuted_p(*units)
    assert (row["test"], row["sparse_p_value"]) == ("sign flips" if paired else "permutation", p)
    assert np.isnan([row["adjusted_ci_low"], row["sparse_ci_low"], row["adjusted_relative_ci_low"]]).all()
    # Over several looks, and of a segment, t decides.
    said = compared(users, Comparison("a", mean_over="lists", looks="any"))[PAIR]["note"]
    of_segment = compared(users.assign(country="de"), Comparison("a", mean_over="lists"), segments=["country"])
    of_segment_too = of_segment["a", "b", "country=de", METRIC]["note"]
    assert all("chance alone gives small p-values too often" in each for each in (said, of_segment_too))
    # Few users are no heavy ones, and many effective users are enough.
    assert one(users.assign(list_count=3))["note"] is None
    assert one(users.assign(list_count=rng.integers(1, 9, 2 * n)))["note"] is None


def studentised(a: Any, b: Any, paired: bool = False) -> float:
    left, right = (influence(of[:, 0] / of[:, 1], of[:, 1]) for of in (a, b))
    squared = (right - left).var(ddof=1) / len(a) if paired else sum(z.var(ddof=1) / len(z) for z in (left, right))
    return float((right.mean() - left.mean()) / np.sqrt(squared))


@pytest.mark.parametrize("paired", [False, True])
def test_the_permutation_of_users_with_their_lists_is_that_of_every_way(paired: bool) -> None:
    rng, u = np.random.default_rng(5 if paired else 6), 11
    lists = np.ceil(rng.pareto(1, (u, 2)) + 0.01)
    values = 0.7 * rng.random((u, 1)) + 0.3 * rng.random((u, 2)) + [0, 0.25]
    pairs = np.stack([values * lists, lists], 2).reshape(u, 4)

    if paired:
        tables = (np.where(np.array(each)[:, None], np.roll(pairs, 2, 1), pairs) for each in product((0, 1), repeat=u))
        p, ways = st.swapped_ratio_p(pairs[::-1]), [studentised(each[:, :2], each[:, 2:], True) for each in tables]
    else:
        pool, chosen = np.concatenate([pairs[:6, :2], pairs[6:, 2:]]), combinations(range(u), 5)
        p = st.permuted_p(pool[:6][::-1], pool[6:])
        ways = [studentised(np.delete(pool, each, 0), pool[[*each]]) for each in chosen]
    found = studentised(pairs[:, :2], pairs[:, 2:], True) if paired else studentised(pool[:6], pool[6:])
    tails = [np.mean(side * np.array(ways) >= side * found - 1e-9) for side in (1, -1)]
    assert p == pytest.approx(2 * min(tails), abs=6 * np.sqrt(min(tails) / 2**13))


def test_the_heaviest_users_are_the_same_of_any_parts_and_permuted_with_the_sums_of_the_others() -> None:
    rng, n, kept, ways = np.random.default_rng(16), (900, 2_700), [], []
    lists = [np.ceil(rng.pareto(1.5, size)) for size in n]
    users = [np.stack([k * (rng.random(len(k)) < 0.5 + 0.15 * i), k], 1) for i, k in enumerate(lists)]
    keys = [Key("arm_units", "", name, "all", METRIC) for name in "ab"]
    for parts in (1, 7, 40):
        totals = Totals()
        for key, of in zip(keys, users, strict=True):
            for part in np.array_split(rng.permutation(of), parts):
                totals.add(key, part.view(np.int64).ravel())
        kept.append([totals.kept(key, size) for key, size in zip(keys, n, strict=True)])
    for i, of in enumerate(users):
        tops = [sorted(range(n[i]), key=lambda u, of=of, by=by: (*of[u, by], u))[-512:] for by in ([0, 1], [1, 0])]
        heaviest = sorted(map(tuple, of[[*{*tops[0], *tops[1]}]]))
        assert len(heaviest) > 512 and all(sorted(map(tuple, each[i])) == heaviest for each in kept)
    sums = np.array([[y.sum(), y @ y, k.sum(), y @ k, k @ k] for y, k in (of.T for of in users)])
    (p,), pool = {st.permuted_p(*each, n, sums) for each in kept}, np.concatenate(users)
    for _ in range(3_000):
        ways.append(studentised(*np.split(pool, n[:1])))
        pool = rng.permutation(pool)
    tails = [np.mean(side * np.array(ways) >= side * ways[0]) for side in (1, -1)]
    assert p == pytest.approx(2 * min(tails), abs=8 * np.sqrt(min(tails) / 3_000))


def test_a_user_who_makes_most_of_the_error_has_users_permuted_however_many_lists_others_have() -> None:
    a, b = (np.random.default_rng(seed).random(400) for seed in (1, 2))
    a[0], lists = 1.0, np.r_[60.0, np.ones(799)]
    row = one(apart(a=a, b=b).assign(list_count=lists))
    assert row["effective_users_baseline"] == pytest.approx(459**2 / 3999) and np.isnan(row["adjusted_ci_low"])
    assert row["test"] == "permutation" and "so that all count as 53 equal ones in a and as 400 equal" in row["note"]


def test_a_paired_row_is_the_t_test_of_the_differences_of_influence() -> None:
    (a, n), (noise, m) = heavy_users(50, 3), heavy_users(50, 4)
    b = 0.7 * a + 0.3 * noise + 0.02
    row = one(table({"a": a, "b": b}).assign(list_count=[*n, *m]))
    left, right = influence(a, n), influence(b, m)
    expected = stats.ttest_rel(right, left)
    assert row["design"] == "paired"
    assert row["difference"] == pytest.approx(right.mean() - left.mean(), rel=1e-11)
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(expected.confidence_interval()), rel=1e-9)
    ratio = right.mean() / left.mean()
    assert row["relative_difference"] == pytest.approx(ratio - 1, rel=1e-10)
    # Fieller's: at the bounds q, a test of right - (1 + q) * left has the t of the interval.
    for bound, sign in ((row["relative_ci_low"], 1), (row["relative_ci_high"], -1)):
        t = stats.ttest_1samp(right - (1 + bound) * left, 0).statistic
        assert t == pytest.approx(sign * stats.t.ppf(0.975, 49), rel=1e-7)
    assert (row["wins"], row["losses"]) == ((b > a).sum(), (b < a).sum())


def test_the_standard_error_is_that_of_a_bootstrap_over_users() -> None:
    (a, n), (b, m) = heavy_users(400, 5), heavy_users(400, 6)
    row = one(apart(a=a, b=b).assign(list_count=[*n, *m]))
    rng = np.random.default_rng(7)

    def means(values: Any, lists: Any) -> Any:
        drawn = rng.integers(0, len(values), (4_000, len(values)))
        return (values * lists)[drawn].sum(axis=1) / lists[drawn].sum(axis=1)

    assert row["standard_error"] == pytest.approx((means(b, m) - means(a, n)).std(ddof=1), rel=0.05)


def test_with_one_list_per_user_both_means_are_the_same_to_the_bit() -> None:
    (a, _), (b, _) = heavy_users(30, 8), heavy_users(40, 9)
    users = apart(a=a, b=b)
    over_users = compared(users, Comparison("a", effect=0.1))[PAIR]
    over_lists = one(users.assign(list_count=1.0), effect=0.1)
    told_apart = {"mean_over", *(name for name in over_lists if name.startswith(("n_lists", "effective_users")))}
    assert {name: value for name, value in over_lists.items() if name not in told_apart} == {
        name: value for name, value in over_users.items() if name not in told_apart
    }
    assert over_users["mean_over"] == "users"
    assert "n_lists_baseline" not in over_users


def test_equal_arms_differ_by_exactly_nothing_and_equal_values_have_no_spread() -> None:
    a, n = heavy_users(30, 10)
    row = one(table({"a": a, "b": a}).assign(list_count=[*n, *n]))
    assert (row["difference"], row["standard_error"], row["p_value"]) == (0, 0, 1)
    assert ratio_sums([0.3] * 30, n).moments.variance.tolist() == [0]
    many = ratio_sums(a, n)
    of_both = st.moments_of_ratios(many, many, (many.yy, many.yn, many.yn, many.nn))
    assert of_both.difference.variance.tolist() == [0]


def test_a_group_without_lists_has_no_mean() -> None:
    nothing = ratio_sums([], []).moments
    assert np.isnan(nothing.mean).all()
    assert np.isnan(st.welch(nothing, ratio_sums([0.5, 1], [1, 2]).moments, 0.95).p_value).all()
    assert np.isnan(st.paired_t(nothing, 0.95).p_value).all()


def test_users_without_a_value_and_values_that_are_too_large_do_not_count() -> None:
    users = apart(a=[0.5, 1.0, np.nan], b=[0.25, 0.75, 1.0]).assign(list_count=[1, 3, 7, 1, 1, 2])
    row = one(users)
    assert (row["mean_baseline"], row["n_lists_baseline"], row["n_users_baseline"]) == (0.875, 4, 2)
    beyond = one(users.assign(list_count=[1, 3, 7, 1, 1, st.LARGEST_SUMMAND * 2]))
    assert beyond["note"].startswith("values above")
    assert np.isnan(beyond["p_value"])


def test_a_segment_stands_against_the_lists_of_the_rest() -> None:
    (a, n), (b, m) = heavy_users(60, 11), heavy_users(60, 12)
    country = ["de"] * 20 + ["at"] * 40
    users = apart(a=a, b=b).assign(list_count=[*n, *m], country=country * 2)
    rows = compared(users, Comparison("a", mean_over="lists"), segments=["country"])
    row = rows["a", "b", "country=de", METRIC]
    own, rest = slice(0, 20), slice(20, 60)

    def ratio(values: Any, lists: Any, part: slice) -> float:
        return float((values * lists)[part].sum() / lists[part].sum())

    difference, others = (ratio(b, m, part) - ratio(a, n, part) for part in (own, rest))
    assert row["difference"] == pytest.approx(difference)
    assert (row["rest_difference"], row["from_rest"]) == pytest.approx((others, difference - others))
    errors = [stats.sem(influence(v[part], k[part])) for v, k in ((a, n), (b, m)) for part in (own, rest)]
    half = (row["from_rest_ci_high"] - row["from_rest_ci_low"]) / 2
    assert half == pytest.approx(np.sqrt(np.square(errors).sum()) * 2, rel=0.05)


def test_shared_users_are_left_out_with_their_lists() -> None:
    users = table({"a": [0.1, 0.2, 0.4], "b": [0.9, 0.3, 0.5]}, {"a": ["u", "v", "w"], "b": ["u", "x", "y"]})
    asked = Comparison("a", shared_users="drop", mean_over="lists")
    result = compared(users.assign(list_count=[50, 1, 3, 50, 2, 2]), asked, design="independent")[PAIR]
    assert (result["mean_baseline"], result["mean_candidate"]) == pytest.approx((0.35, 0.4))


def test_the_row_says_the_cap_of_its_metric() -> None:
    request = Comparison("a", mean_over="lists", cap=0.99)
    totals = totals_of(user_rows(apart(a=[0.5, 1.0], b=[0.2, 0.4]).assign(list_count=1)), request)
    totals.sums[Key("alike", "", "17.0", "all", "_cap_ap_at_10")] = np.ones(1, np.int64)
    assert comparison_rows(totals, question(request))["cap"].tolist() == [17]


# ---- the means of experiments


def test_the_sums_of_means_count_lists() -> None:
    columns = {
        "experiment_id": pa.array(["a"] * 4),
        "n_relevant": pa.array([1, 0, 2, 1]),
        "n_repeated": pa.array([0] * 4),
        "n_lists": pa.array([2, 3, 0, 9]),
        "n_lists_ap_at_10": pa.array([1, None, 0, 0]),
        "ap_at_10": pa.array([1.0, 0.5, 0.0, None]),
    }
    (batch,) = sums_of_lists(Summands([mx.parse("ap@10")], over_lists=True)).body([pa.RecordBatch.from_pydict(columns)])
    made = dict(zip(SUMS_OVER_LISTS.columns, batch["sums"][0].as_py(), strict=True))
    # Lists with a value: 1 of 2, all 3, the empty one of who was shown nothing, and none of the user without a value.
    assert (made["n_users"], made["l_1"], made["m_1"]) == (3, 5, 2)
    assert (made["v_1"], made["v_2"]) == (2, 2**29)


# ---- words and refusals


def test_the_verdict_and_the_table_say_once_which_mean_it_is() -> None:
    (a, n), (b, m) = heavy_users(30, 13), heavy_users(30, 14)
    users = apart(a=a, b=b).assign(list_count=[*n, *m])
    rows = [one(users) | {"look": None}]
    lines = [line for line in verdict_of(rows) if line.startswith("Means are over lists")]
    assert lines == [
        f"Means are over lists, and errors by user: {int(n.sum()):,} lists of 30 users in a, "
        f"{int(m.sum()):,} lists of 30 users in b"
    ]
    mean = {"experiment_id": "a", "segment": "all", "metric": "ap@10", "mean": 0.5, "ci_low": 0.4, "n_users": 30,
            "n_lists": 1234, "mean_over": "lists", "confidence": 0.95, "convention": "standard"}  # fmt: skip
    assert console.title(means_of([mean])) == "mean over lists ± 95 % margin, errors by user; convention standard"
    (of_users,) = means_of([mean | {"mean_over": "users"}])
    assert console.title([of_users]) == "mean over users ± 95 % margin; convention standard"
    columns = console.grid(means_of([mean]), [mx.parse("ap@10")]).columns
    assert [column.header for column in columns][1:3] == ["users", "lists"] and [*columns[2].cells] == ["1,234"]


@pytest.mark.parametrize("name", ["wilcoxon", "randomization", "bootstrap", "aa_check"])
def test_what_needs_one_value_per_user_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"mean_over is lists, and comparison\.{name} works with one value per user"):
        Comparison.read({"baseline": "a", "mean_over": "lists", name: True})


def test_the_option_is_checked() -> None:
    assert (Options().mean_over, Options(mean_over="lists").mean_over) == ("users", "lists")
    with pytest.raises(ConfigError, match="mean_over: unknown value 'requests'"):
        Options(mean_over="requests")


# ---- how often the intervals hold


@pytest.mark.slow
@pytest.mark.parametrize("paired", [False, True])
def test_intervals_cover_the_true_difference_of_heavy_users(paired: bool) -> None:
    tests, users, rng = 1_500, 400, np.random.default_rng(15)
    covered = naive = 0
    truth = 0.02
    for _ in range(tests):
        n = np.ceil(rng.gamma(0.5, 8, (2, users)) + 0.01)
        n[1] = n[0] if paired else n[1]
        level = 0.4 + 0.05 * np.log(n) + rng.normal(0, 0.15, (2, users))
        level[1] = 0.7 * level[0] + 0.3 * level[1] if paired else level[1]
        # The same effect on every list, so the true ratio differs by it whatever the lists of a user.
        values = level + np.array([[0.0], [truth]])
        sums = [ratio_sums(v, k) for v, k in zip(values, n, strict=True)]
        if paired:
            (x, y), unit = values * n, 2.0**60
            products = ((x, y), (x, n[1]), (n[0], y), (n[0], n[1]))
            cross = [np.array([int((p * q).sum() * unit)], object) for p, q in products]
            result = st.paired_t(st.moments_of_ratios(*sums, cross).difference, 0.95)
        else:
            result = st.welch(sums[0].moments, sums[1].moments, 0.95)
        covered += bool(result.ci_low[0] <= truth <= result.ci_high[0])
        # Lists taken for independent ones: what the interval must not be.
        of_lists = np.sqrt(sum((k * (v - (v * k).sum() / k.sum()) ** 2).sum() / k.sum() ** 2
                               for v, k in zip(values, n, strict=True)))  # fmt: skip
        naive += bool(abs(result.difference[0] - truth) <= 1.96 * of_lists)
    assert 0.94 <= covered / tests <= 0.965
    if not paired:
        assert naive / tests < 0.8
