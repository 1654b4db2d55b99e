"""Inverse-propensity weights: visible arithmetic, exact unbiasedness, and simulations in which the truth is known."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from rankmetrics_spark.metrics import STANDARD, Batch, compute, parse
from rankmetrics_spark.statistics import LARGEST_SUMMAND, Sums
from rankmetrics_spark.studies import weighting as wt
from tests.helpers.builders import batch_of, shown

METRICS = [parse(name) for name in ("p@1", "p@3", "dcg@3", "dcg", "ap@2", "ap@3", "ap", "ndcg@2", "ndcg@3", "ndcg")]


def lists(grades: Any) -> Batch:
    """Lists of equal length, from an array with a row per list."""
    grades = np.asarray(grades, float)
    n, length = grades.shape
    at, rank = np.repeat(np.arange(n), length), np.tile(np.arange(1, length + 1), n)
    return Batch(n, at, rank, grades.ravel(), np.full(n, length), at, grades.ravel())


def weighted(name: str, grades: Any, weights: Any) -> Any:
    metric, batch = parse(name), lists(grades)
    flat = np.broadcast_to(np.asarray(weights, float), (batch.size, len(batch.list) // batch.size)).ravel()
    return wt.WEIGHTED[metric.name](batch, flat, metric.cut)


def plain(name: str, grades: Any) -> Any:
    return compute(lists(grades), [parse(name)], STANDARD)[:, 0]


def draws(values: Any, users: int, rows: int = 1, weights: Any = None) -> Sums:
    """Sums of many draws of so many users each."""
    n = len(values)
    weight = np.ones(n) if weights is None else weights.sum(axis=1)
    squares = np.ones(n) if weights is None else (weights**2).sum(axis=1)
    of = wt.UserValues(values, np.ones(n), np.full(n, float(rows)), weight, squares)
    return wt.limb_sums(of, np.arange(n) // users, n // users)


def arrays(users: wt.UserValues) -> list[Any]:
    """What is given of the users."""
    return [column for column in users if column is not None]


def covered(result: wt.Estimate, truth: float) -> float:
    return float(np.mean((result.low <= truth) & (truth <= result.high)))


def test_the_effective_sample_size_is_that_of_kish() -> None:
    for weights, effective in (([1, 1, 1, 1], 4), ([3, 1], 16 / 10), ([5, 0, 0], 1), ([0, 0], 0)):
        w = np.array(weights, float)
        assert wt.effective_sample_size([w.sum()], [(w**2).sum()]).tolist() == [effective]


def test_with_weights_of_one_every_value_is_that_of_the_plain_metric() -> None:
    rng = np.random.default_rng(1)
    ones = [shown(*rng.integers(0, 2, length).tolist()) for length in rng.integers(1, 40, 200)]
    batch = batch_of(*ones)
    for metric in METRICS:
        result = wt.WEIGHTED[metric.name](batch, np.ones(len(batch.list)), metric.cut)
        assert np.abs(result - compute(batch, [metric], STANDARD)[:, 0]).max() < 1e-14, str(metric)
    one = batch_of(shown(0, 3, 1), shown(2, 0))
    assert wt.WEIGHTED["dcg"](one, np.ones(5), 3).tolist() == compute(one, [parse("dcg@3")], STANDARD)[:, 0].tolist()


def test_precision_and_dcg_are_sums_of_weighted_relevance() -> None:
    assert weighted("p@3", [[1, 0, 1, 1]], [1, 2, 4, 8]).tolist() == [(1 + 4) / 3]
    assert weighted("dcg@3", [[3, 0, 1, 1]], [1, 2, 4, 8]).tolist() == [1 * 3 / 1 + 4 * 1 / 2]


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 2), (2, 3), (4, 1.5), (0, 2), (0.1, 0.2)])
def test_ap_and_ndcg_weigh_what_is_relevant_and_what_is_not(a: float, b: float) -> None:
    # The values of the lists (1, 0), (0, 1) and (1, 1), each with the weights of its rows.
    assert weighted("ap", [[1, 1]], [a, b])[0] == pytest.approx(a * (1 - b) * 1 + (1 - a) * b / 2 + a * b * 1)
    of_second = 1 / math.log2(3)
    assert weighted("ndcg", [[1, 1]], [a, b])[0] == pytest.approx(a * (1 - b) + (1 - a) * b * of_second + a * b)


def test_ndcg_of_grades_has_no_value_and_ap_reads_them_as_relevant() -> None:
    assert np.isnan(weighted("ndcg@2", [[2, 0], [0, 0.5]], 1.0)).all()
    assert weighted("ap@2", [[2, 0], [0, 0.5]], 1.0).tolist() == [1, 1 / 2]


@pytest.mark.parametrize("name", [str(metric) for metric in METRICS])
def test_the_mean_over_everything_that_can_be_examined_is_the_true_value(name: str) -> None:
    propensity = np.array([0.9, 0.6, 0.35, 0.2, 0.5])
    examined = np.array([*itertools.product((0, 1), repeat=5)])
    chance = np.prod(np.where(examined, propensity, 1 - propensity), axis=1)
    for relevant in itertools.product((0, 1), repeat=5):
        result = weighted(name, examined * relevant, 1 / propensity)
        assert chance @ result == pytest.approx(plain(name, [relevant])[0], abs=1e-12)


def test_the_value_of_a_list_does_not_depend_on_the_lists_beside_it() -> None:
    rng = np.random.default_rng(2)
    ones = [shown(*(rng.random(length) < 0.4).astype(float)) for length in rng.integers(1, 60, 50)]
    weights = [1 / rng.uniform(0.05, 1, len(one.grades)) for one in ones]
    for m in METRICS:
        together = wt.WEIGHTED[m.name](batch_of(*ones), np.concatenate(weights), m.cut)
        alone = [wt.WEIGHTED[m.name](batch_of(one), w, m.cut)[0] for one, w in zip(ones, weights, strict=True)]
        assert together.tolist() == alone


def test_the_interval_of_ips_is_students_over_users() -> None:
    values = np.array([0.0, 0.5, 2.0, 0.25])
    result = wt.ips(draws(values, 4), 0.9)
    low, high = stats.t.interval(0.9, 3, np.mean(values), stats.sem(values))
    assert [result.value[0], result.low[0], result.high[0]] == pytest.approx([0.6875, low, high], rel=1e-14)


def test_the_self_normalised_estimate_is_the_ratio_with_its_delta_interval() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 4, 50).astype(float)
    value, weight = rng.exponential(1, 50), rng.exponential(1, 50) * lengths
    users = wt.UserValues(value, np.ones(50), lengths, weight, weight**2)
    moments = wt.limb_sums(users)
    result = wt.self_normalised(moments, 0.95)
    ratio = value.sum() / weight.sum() * lengths.mean()
    # The influence of each user on V * C / B.
    influence = ratio * (value / value.mean() + lengths / lengths.mean() - weight / weight.mean() - 1)
    half = stats.t.ppf(0.975, 49) * np.std(influence, ddof=1) / math.sqrt(50)
    assert result.value[0] == pytest.approx(ratio, rel=1e-13)
    assert [result.low[0], result.high[0]] == pytest.approx([ratio - half, ratio + half], rel=1e-10)
    assert moments.mean("w", "rows")[0] == pytest.approx(weight.sum() / lengths.sum(), rel=1e-14)
    a = weight / lengths
    assert wt.effective_users(moments)[0] == pytest.approx(a.sum() ** 2 / (a**2).sum(), rel=1e-14)


def test_moments_of_parts_add_up_to_those_of_the_whole() -> None:
    rng = np.random.default_rng(5)
    parts = [rng.exponential(1, 60) for _ in range(3)]
    users = wt.UserValues(parts[0], np.ones(60), np.full(60, 2.0), parts[1], parts[2])
    cut = [wt.UserValues(*(column[at] for column in arrays(users))) for at in (slice(0, 7), slice(7, None))]
    both, whole = wt.limb_sums(cut[1]) + wt.limb_sums(cut[0]), wt.limb_sums(users)
    assert both.table.tolist() == whole.table.tolist()
    assert wt.self_normalised(both, 0.95).high.tolist() == wt.self_normalised(whole, 0.95).high.tolist()


DRAWS, USERS, LENGTH = 4_000, 200, 5
EXAMINED = np.array([1.0, 0.7, 0.5, 0.4, 0.3])


@pytest.fixture(scope="module")
def clicks() -> tuple[Any, Any]:
    """Relevance and clicks, a row per list: a click is a relevant row that was examined."""
    rng = np.random.default_rng(6)
    relevant = rng.random((DRAWS * USERS, LENGTH)) < [0.3, 0.25, 0.25, 0.2, 0.2]
    return relevant.astype(float), (relevant & (rng.random(relevant.shape) < EXAMINED)).astype(float)


TRUTHS = ("p@3", "dcg@5", "ap@5", "ndcg@3")


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUTHS)
def test_an_interval_covers_the_truth_as_often_as_it_says(name: str, clicks: tuple[Any, Any]) -> None:
    relevant, clicked = clicks
    result = wt.ips(draws(weighted(name, clicked, 1 / EXAMINED), USERS), 0.95)
    assert 0.94 <= covered(result, plain(name, relevant).mean()) <= 0.96


LOGGED, WANTED = np.array([0.6, 0.25, 0.15]), np.array([0.2, 0.3, 0.5])
RATE = np.array([0.5, 0.55, 0.6])


@pytest.fixture(scope="module")
def another_policy() -> tuple[float, Any, Any]:
    """The value of a policy, and what another one logged: weight and click, a row per user."""
    rng = np.random.default_rng(7)
    item = rng.choice(3, DRAWS * USERS, p=LOGGED)
    return float(WANTED @ RATE), (WANTED / LOGGED)[item, None], (rng.random(len(item)) < RATE[item])[:, None] * 1.0


@pytest.mark.slow
def test_one_policys_log_gives_the_value_of_another(another_policy: tuple[float, Any, Any]) -> None:
    truth, weights, clicked = another_policy
    squares = WANTED**2 / LOGGED
    error = math.sqrt((squares @ RATE - truth**2) / USERS)
    error_of_ratio = math.sqrt(squares @ (RATE * (1 - truth) ** 2 + (1 - RATE) * truth**2) / USERS)
    for name in ("p@1", "ap@1", "ndcg@1"):
        values = weighted(name, clicked, weights)
        result = draws(values, USERS, weights=weights)
        assert 0.94 <= covered(wt.ips(result, 0.95), truth) <= 0.96
        assert 0.94 <= covered(wt.self_normalised(result, 0.95), truth) <= 0.96
        assert np.std(wt.ips(result, 0.95).value) == pytest.approx(error, rel=0.05)
        assert np.std(wt.self_normalised(result, 0.95).value) == pytest.approx(error_of_ratio, rel=0.05)
    assert error_of_ratio < 0.75 * error
    assert result.mean("w", "rows").mean() == pytest.approx(1, abs=0.01)


def entries(rows: list[list[tuple[int, int, int, float, float]]]) -> dict[str, pa.Array]:
    names = ("_list", "position", "_hash", "relevance", "score")
    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.float64(), pa.float64())
    users = [[dict(zip(names, row, strict=True)) for row in user] for user in rows]
    return {"_entries": pa.array(users, pa.list_(pa.struct([*zip(names, kinds, strict=True)])))}


def test_ap_and_ndcg_rest_on_the_rows_of_every_rank_and_on_products_of_weights() -> None:
    # Two lists of a user: clicks of the weights 2 and 5 (below the cut-off), and one of the weight 3.
    rows = [
        [*((7, 1, 1, 1.0, 2.0), (7, 2, 2, 0.0, 4.0), (7, 3, 3, 1.0, 5.0)), *((9, 1, 1, 0.0, 6.0), (9, 2, 2, 1.0, 3.0))]
    ]
    result = wt.weighted_lists(entries(rows), repeats=True)
    for name in ("ap@1", "ndcg@1"):
        _, users = wt.user_values(result, parse(name), np.minimum(result.weight, 4.0))
        assert (users.rows.tolist(), users.weight.tolist()) == ([5], [2.0 + 4 + 4 + 4 + 3])
        assert users.clipped is not None and users.clipped.tolist() == [2]  # 5 and 6 count as 4
        assert users.joint is not None and users.joint.tolist() == [(2 * 4 + 3) / 2]
    _, users = wt.user_values(result, parse("p@1"), np.minimum(result.weight, 4.0))
    assert (users.rows.tolist(), users.weight.tolist(), users.joint) == ([2], [2.0 + 4], None)
    assert users.clipped is not None and users.clipped.tolist() == [1]


def test_a_product_of_weights_stops_at_what_can_be_summed() -> None:
    rows = [[(7, rank, rank, 1.0, 1e5) for rank in range(1, 100)]]
    result = wt.weighted_lists(entries(rows), repeats=True)
    with np.errstate(over="ignore", invalid="ignore"):
        _, users = wt.user_values(result, parse("ap@3"), result.weight)
    assert users.joint is not None and users.joint.tolist() == [LARGEST_SUMMAND]


def test_a_user_is_the_mean_over_their_lists_and_repeated_rows_are_counted() -> None:
    rows = [
        # Two lists; in the first one an item repeats, in the second one a rank.
        [
            *((7, 1, 1, 1.0, 2.0), (7, 2, 1, 1.0, 3.0), (7, 3, 3, 0.0, 4.0)),
            *((9, 1, 1, 0.0, 2.0), (9, 2, 2, 1.0, 5.0), (9, 2, 3, 0.0, 6.0)),
        ],
        [],
        [(7, 1, 5, 1.0, 1.5)],
    ]
    result = wt.weighted_lists(entries(rows), repeats=True)
    assert (result.repeated.tolist(), result.user.tolist()) == ([2, 0, 0], [0, 0, 2])
    present, users = wt.user_values(result, parse("p@2"), result.weight)
    assert present.tolist() == [True, False, True]
    assert users.value.tolist() == [(2.0 / 2 + 5.0 / 2) / 2, 1.5 / 2]
    assert users.lists.tolist() == [2, 1]
    assert users.rows.tolist() == [3, 1]  # The row at rank 3 is below the cut-off.
    assert users.weight.tolist() == [2.0 + 2.0 + 5.0, 1.5]
    assert users.squares.tolist() == [4.0 + 4.0 + 25.0, 1.5**2]


def test_the_order_of_the_rows_changes_no_bit() -> None:
    rng = np.random.default_rng(8)
    rows = [
        (int(rng.integers(3)), int(rng.integers(1, 9)), int(rng.integers(12)), float(rng.integers(2)), rng.random())
        for _ in range(200)
    ]
    result = [wt.weighted_lists(entries([order]), repeats=True) for order in (rows, rows[::-1], sorted(rows))]
    values = [[wt.user_values(one, metric, one.weight)[1] for metric in METRICS] for one in result]
    for other in values[1:]:
        assert [[*map(np.ndarray.tolist, arrays(v))] for v in other] == [
            [*map(np.ndarray.tolist, arrays(v))] for v in values[0]
        ]


def test_only_the_clipped_estimate_reads_clipped_weights() -> None:
    weighting = wt.Weighting(propensity="p", estimators=("ips", "clipped", "self_normalised"), clip=4.0)
    result = {name: w.tolist() for w, names in wt.weights_of(np.array([1.0, 20.0]), weighting) for name in names}
    assert result == {"ips": [1.0, 20.0], "self_normalised": [1.0, 20.0], "clipped": [1.0, 4.0]}


POLICY, CLIPPED = wt.Weighting(target="target"), wt.Weighting(clip=2.0)
RULES = wt.Rules(POLICY, confidence=0.95)


def row(
    weights: Any, estimator: str = "ips", rules: wt.Rules = RULES, users: wt.UserValues | None = None, **lost: int
) -> dict[str, Any]:
    """The result of users with one row each, all with a click; or of ``users``."""
    w = np.asarray(weights, float)
    ones = np.ones(len(w))
    users = users or wt.UserValues(w, ones, ones, w, w**2)
    sums = wt.limb_sums(users).table[0].tolist()
    key = wt.Key("a", "ndcg@3", estimator)
    counts = [lost.get(name, 0) for name in wt.ROW_COUNTS]
    return wt.off_policy_rows({key: np.array([*counts, *sums], object)}, rules, [key])[0]


def test_a_row_has_an_estimate_and_what_it_rests_on() -> None:
    result = row([1.0, 3.0] * 50, faulty=2, repeated=1, all=1_000)
    assert result["value"] == 2.0
    assert result["ci_low"] < 2 < result["ci_high"]
    counts = ("n_users", "n_rows", "n_faulty_rows", "n_repeated", "note")
    assert [result[name] for name in counts] == [100, 100, 2, 1, None]
    assert result["effective_sample_size"] == result["effective_users"] == 200**2 / (50 * 10)
    assert (result["effective_share"], result["mean_weight"]) == (0.8, 2.0)


@pytest.mark.parametrize(
    ("result", "note"),
    [
        (row([1.0] * 29), "the weights leave 29.0 effective rows of 29 rows; an estimate needs at least 30"),
        (
            row([], users=wt.UserValues(*np.ones((5, 99)), joint=np.array([1e6, *[1.0] * 98]))),
            "the weights leave 1.0 effective users of 99 users; an estimate needs at least 30",
        ),
        (
            row([], users=wt.UserValues(*np.ones((5, 9_990)), joint=np.array([*[1e9] * 40, *[1.0] * 9_950]))),
            "the weights leave 40.0 effective users of 9,990, which is 0.40%; an estimate needs at least 1.00%",
        ),
        (
            row([1e9] * 40 + [0.0] * 9_960),
            "the weights leave 40.0 effective rows of 10,000, which is 0.40%; an estimate needs at least 1.00%",
        ),
        (row([1.0] * 99, unweighted=1), f"rows with {POLICY.fault()}: 1; allowed: none, so remove or repair"),
        (row([], faulty=3), "no usable row; rows with a fault in another column: 3"),
        (
            row([1.0] * 99 + [math.nan, 2.0**61]),
            "users without a usable value: 2; allowed: none, so every value from relevance 0 or 1",
        ),
        (row([1.0] * 99, "self_normalised", wt.Rules(CLIPPED, 0.95)), "there is no self-normalised estimate"),
    ],
)
def test_without_an_estimate_a_row_says_why_in_one_sentence(result: dict[str, Any], note: str) -> None:
    assert result["note"].startswith(note)
    assert (result["value"], result["ci_low"], result["ci_high"]) == (None, None, None)


CLICKS = replace(RULES, weighting=CLIPPED, metrics=(parse("ndcg@3"),))


@pytest.mark.parametrize("estimator", ["ips", "clipped"])
def test_a_value_that_is_outside_its_range_for_sure_is_no_estimate(estimator: str) -> None:
    # Each user has a click of the weight 1.5: a mean of 1.5 without any spread, where at most 1 is possible.
    result = row([1.5] * 100, estimator, CLICKS)
    assert (result["value"], result["ci_low"], result["ci_high"]) == (None, None, None)
    assert result["note"] == (
        "the estimate of 1.5 is outside the range of ndcg@3, 0 to 1, by more than its error (1.5 to 1.5): "
        "the propensities do not fit the clicks"
    )
    below = row([], estimator, CLICKS, users=wt.UserValues(np.full(99, -0.1), *np.ones((4, 99))))
    assert below["value"] is None and below["note"].startswith("the estimate of -0.1 is outside the range")


def test_a_value_outside_its_range_within_its_error_is_one() -> None:
    # 100 users of 0 or 2.1: the mean is 1.05, its standard error 0.1.
    users = wt.UserValues(np.array([0.0, 2.1] * 50), *np.ones((4, 100)))
    result = row([], rules=CLICKS, users=users)
    assert (result["value"], result["note"]) == (pytest.approx(1.05), None)
    assert result["ci_low"] < 1 < result["ci_high"]
    # A sum of gains has no highest value.
    assert row([1.5] * 100, rules=replace(CLICKS, metrics=()))["value"] == 1.5
    # Rounding is no error of the propensities.
    assert row([1 + 2**-50] * 100, rules=CLICKS)["value"] == pytest.approx(1)


def test_a_clipped_value_says_what_its_interval_is_of() -> None:
    users = wt.UserValues(*np.ones((5, 100)), clipped=np.array([1.0] * 7 + [0.0] * 93))
    result = row([], "clipped", CLICKS, users=users)
    assert result["value"] == 1.0
    assert result["note"] == (
        "7 of 100 rows have a weight above 2 and count with 2: the value is biased, and the interval is that of the "
        "clipped value, not of the metric"
    )
    assert row([1.0] * 100, "clipped", CLICKS)["note"] is None


def estimated(length: int, rate: float, propensity: Any, name: str, clip: float = math.inf) -> tuple[Any, ...]:
    """The rows of many draws of a log of 200 users, the clipped value of all draws, and the true value."""
    draws_of, users = 300, 200
    rng = np.random.default_rng(9)
    relevant = rng.random((draws_of * users, length)) < rate
    clicked = (relevant & (rng.random(relevant.shape) < propensity)).astype(float)
    full = 1 / np.broadcast_to(propensity, clicked.shape)
    weight = np.minimum(full, clip)
    values = weighted(name, clicked, weight)
    rows, ones = np.full(len(values), float(length)), np.ones(len(values))
    joint = np.prod(np.where(clicked > 0, np.maximum(weight, 1), 1), axis=1)
    of = wt.UserValues(values, ones, rows, weight.sum(1), (weight**2).sum(1), (weight < full).sum(1) * 1.0, joint)
    sums = wt.limb_sums(of, np.arange(len(values)) // users, draws_of).table
    rules = wt.Rules(replace(CLIPPED, clip=min(clip, 1e9)), 0.95, (parse(name),))
    keys = [wt.Key(str(i), name, "ips" if math.isinf(clip) else "clipped") for i in range(draws_of)]
    cells = {key: np.array([0] * len(wt.ROW_COUNTS) + s.tolist(), object) for key, s in zip(keys, sums, strict=True)}
    rows_of_all = wt.off_policy_rows(cells, rules, keys)
    table = {name: [row[name] for row in rows_of_all] for name in rows_of_all[0]}
    return table, values.mean(), plain(name, relevant.astype(float)).mean()


def coverage(table: dict[str, list[Any]], truth: float) -> float:
    kept = [(low, high) for low, high in zip(table["ci_low"], table["ci_high"], strict=True) if low is not None]
    return float(np.mean([low <= truth <= high for low, high in kept]))


@pytest.mark.parametrize("name", ["ap@3", pytest.param("ndcg@3", marks=pytest.mark.slow)])
def test_an_estimate_that_is_not_refused_covers_the_truth(name: str) -> None:
    steep = 1 / np.arange(1, 11)
    for rate, propensity in ((0.1, steep**0.5), (0.3, steep**0.5), (0.2, steep)):
        table, _, truth = estimated(10, rate, propensity, name)
        # With 300 draws a coverage of 0.95 has a standard error of 0.013.
        assert coverage(table, truth) >= 0.9, (rate, propensity)
    # With 4 clicks in 10 and propensities down to 0.1, a few lists weigh as much as all others: hardly any estimate.
    table, _, truth = estimated(10, 0.4, steep, name)
    assert sum(value is not None for value in table["value"]) < 0.2 * len(table["value"])
    # Propensities of 0.03 from rank 4 on, below the cut-off.
    table, _, truth = estimated(10, 0.2, np.array([1.0] * 3 + [0.03] * 7), name)
    assert sum(value is not None for value in table["value"]) < 0.2 * len(table["value"])


@pytest.mark.parametrize("name", ["ap@3", "ndcg@3"])
def test_the_interval_of_clipped_weights_covers_the_clipped_value_and_says_so(name: str) -> None:
    table, own, truth = estimated(10, 0.2, 1 / np.arange(1, 11), name, clip=3.0)
    assert coverage(table, own) >= 0.92
    assert coverage(table, truth) < 0.85
    notes = [note for note, value in zip(table["note"], table["value"], strict=True) if value is not None]
    assert len(notes) > 250
    assert all("not of the metric" in note for note in notes)
