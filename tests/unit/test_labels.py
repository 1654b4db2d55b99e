"""Bounds over the labels of unjudged items are those of all assignments of labels, tried one by one."""

import itertools
import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.metrics import Convention, parse
from rankmetrics_spark.studies import labels as lb
from tests.helpers.messages import messages
from tests.oracles import ORACLES, One

METRICS = ("p@3", "hit_rate@3", "rr@3", "rr", "r@3", "f1@3", "cg@3", "dcg", "dcg@3", "rbp(p=0.7)", "rbp(p=0.5)@3")
RATIOS = ("ap@3", "ap", "ndcg@3", "ndcg")
CONVENTIONS = {
    "standard": Convention(),
    "exponential": Convention(gain="exponential"),
    "a table": Convention(gain="table", gain_table=((1, 0.5), (2, 3))),
    "relevant from 2": Convention(relevant_from=2, gain="binary"),
    "divided by m": Convention(ap_denominator="m"),
}


@dataclass
class User:
    """Lists of items by experiment, and the grades of the judged items."""

    lists: dict[str, str]
    judged: dict[str, float] = field(default_factory=dict)


def users_at_random(rng: random.Random, n: int, max_grade: int, items: str = "abcdefg") -> list[User]:
    """Users with up to five unjudged items among those that are shown."""
    users: list[User] = []
    while len(users) < n:
        arms = rng.choice([("a",), ("a", "b"), ("a", "b"), ("b", "c"), ("a", "b", "c")])
        lists = {arm: "".join(rng.sample(items, rng.randint(1, 5))) for arm in arms}
        if rng.random() < 0.2:
            lists = dict.fromkeys(lists, lists[arms[0]])
        grades = [-1, 0, 0, 1, *range(1, max_grade + 2)]
        judged = {item: float(rng.choice(grades)) for item in items + "yz" if rng.random() < 0.6}
        if len({*"".join(lists.values())} - {*judged}) <= 5:
            users.append(User(lists, judged))
    return users


def arms_of(users: list[User]) -> lb.Arms:
    """The same users as arrays."""
    names = sorted({name for user in users for name in user.lists})
    rows, lists, pool = [], [], []
    for at, user in enumerate(users):
        for name in sorted(user.lists):
            for rank, item in enumerate(user.lists[name], start=1):
                rows.append((len(lists), rank, user.judged.get(item, math.nan), at * 1000 + ord(item)))
            lists.append((at, names.index(name)))
        pool += [(at, grade) for grade in user.judged.values()]
    entry, of_list, judged = (np.array(each, float).reshape(-1, n) for each, n in ((rows, 4), (lists, 2), (pool, 2)))
    no = np.unique(entry[:, 3], return_inverse=True)[1].astype(np.int64)
    ints = [entry[:, 0], entry[:, 1], of_list[:, 0], of_list[:, 1], judged[:, 0]]
    of_entry, rank, user_of_list, experiment, pool_user = (each.astype(np.int64) for each in ints)
    return lb.Arms(lb.Shown(user_of_list, of_entry, rank, entry[:, 2], no, pool_user, judged[:, 1]), names, experiment)


def assignments(user: User, cut: int | None, max_grade: int) -> list[dict[str, float]]:
    """Every assignment of labels to the unjudged items that a list of the user shows down to the cut-off."""
    items = sorted({item for shown in user.lists.values() for item in shown[:cut]} - {*user.judged})
    grades = range(max_grade + 1)
    return [dict(zip(items, map(float, each), strict=True)) for each in itertools.product(grades, repeat=len(items))]


def value(user: User, name: str, labels: dict[str, float], metric: str, rule: Convention) -> float:
    """The value of a list once these labels are judgements too: the loop that defines the metric."""
    known = user.judged | labels
    one = One(tuple(known.get(item, math.nan) for item in user.lists[name]), tuple(known.values()))
    parsed = parse(metric)
    result = ORACLES[parsed.name](one, rule, **parsed.arguments)
    return 0.0 if math.isnan(result) else result


@pytest.mark.parametrize("max_grade", [1, 2])
@pytest.mark.parametrize("rule", CONVENTIONS.values(), ids=CONVENTIONS)
def test_the_bounds_of_every_metric_are_those_of_all_assignments(rule: Convention, max_grade: int) -> None:
    users = users_at_random(random.Random(max_grade), 60, max_grade)
    arms = arms_of(users)
    for metric in (*METRICS, *RATIOS):
        parsed = parse(metric)
        result = lb.bounds(arms.shown, parsed, lb.Labels(rule, max_grade))
        for at, (number, arm) in enumerate(zip(arms.shown.user, arms.experiment, strict=True)):
            user, name = users[number], str(arms.names[arm])
            values = [value(user, name, labels, metric, rule) for labels in assignments(user, parsed.cut, max_grade)]
            known = value(user, name, {}, metric, rule)
            expected = pytest.approx((known, min(values), max(values)), abs=1e-12)
            assert (result.value[at], result.low[at], result.high[at]) == expected, (metric, user, name)


def test_the_highest_ndcg_can_need_a_label_that_is_not_the_highest() -> None:
    """The ideal list has a grade 1 that is not shown, so a grade 3 at rank 2 costs more than it adds."""
    user = User({"a": "xy"}, {"x": 1.0, "z": 1.0})
    result = lb.bounds(arms_of([user]).shown, parse("ndcg@2"), lb.Labels(Convention(), 3))
    at_1, at_3 = 1.0, (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    assert result.high.tolist() == [pytest.approx(at_1)] and at_3 < at_1
    # Not judged relevant: 1 of (1 + 1 / log2(3)). The grade 3 is even lower than the same label at rank 1 would be.
    assert result.low.tolist() == [pytest.approx(1 / (1 + 1 / math.log2(3)))]


def test_the_lowest_ap_can_need_relevant_labels_in_the_list_and_outside_of_it() -> None:
    """The unjudged z at rank 5 adds (1 + 1) / 5, less than the mean that q, which only b shows, leaves."""
    user = User({"a": "vwxyz", "b": "q"}, {"v": 1.0, "w": 0.0, "x": 0.0, "y": 0.0})
    result = lb.bounds(arms_of([user]).shown, parse("ap"), lb.Labels(Convention()))
    assert result.low[0] == pytest.approx((1 + 2 / 5) / 3) and (1 + 2 / 5) / 3 < 1 / 2


@pytest.mark.parametrize("max_grade", [1, 2])
@pytest.mark.parametrize("metric", ["p@3", "cg@3", "dcg@3", "dcg", "rbp(p=0.7)", "rr@3", "rr", "hit_rate@3"])
def test_bounds_of_a_difference_are_those_of_all_assignments_of_one_label_per_item(metric: str, max_grade: int) -> None:
    users, rule = users_at_random(random.Random(7), 80, max_grade), Convention()
    arms, cut = arms_of(users), parse(metric).cut
    result = lb.bounds(arms.shown, parse(metric), lb.Labels(rule, max_grade))
    moves = lb.Moves.of(arms, result, arms.rows(result), (0, 1))
    both = [user for user in users if {"a", "b"} <= {*user.lists}]
    *each, enclosed = moves.differences(result)
    assert len(both) == len(enclosed) > 20 and not enclosed.any()
    for user, as_judged, low, high in zip(both, *each, strict=True):
        of_pair = User({name: user.lists[name] for name in "ab"}, user.judged)
        every = [
            value(user, "b", labels, metric, rule) - value(user, "a", labels, metric, rule)
            for labels in assignments(of_pair, cut, max_grade)
        ]
        assert (low, high) == pytest.approx((min(every), max(every)), abs=1e-12), user
        known = value(user, "b", {}, metric, rule) - value(user, "a", {}, metric, rule)
        assert as_judged == pytest.approx(known, abs=1e-12)


@pytest.mark.parametrize("max_grade", [1, 2])
@pytest.mark.parametrize("metric", [*RATIOS, "r@3", "f1@3"])
def test_the_bounds_of_a_ratio_enclose_those_of_all_assignments(metric: str, max_grade: int) -> None:
    users, rule, labels = users_at_random(random.Random(8), 60, 2), Convention(), lb.Labels(Convention(), max_grade)
    arms, cut = arms_of(users), parse(metric).cut
    result = lb.bounds(arms.shown, parse(metric), labels)
    both = [user for user in users if {"a", "b"} <= {*user.lists}]
    _, low, high, enclosed = lb.Moves.of(arms, result, arms.rows(result), (0, 1)).differences(result)
    n_exact = 0
    for at, user in enumerate(both):
        a, b = ([value(user, name, one, metric, rule) for one in assignments(user, cut, max_grade)] for name in "ab")
        every = [second - first for first, second in zip(a, b, strict=True)]
        assert low[at] <= min(every) + 1e-12 and max(every) <= high[at] + 1e-12, user
        equal = user.lists["a"][:cut] == user.lists["b"][:cut]
        assert enclosed[at] == (not equal and (max(a) > min(a) or max(b) > min(b)))
        expected = (0, 0) if equal else (min(b) - max(a), max(b) - min(a))
        assert (low[at], high[at]) == pytest.approx(expected, abs=1e-12), user
        n_exact += equal
    assert n_exact > 3 and enclosed.sum() > 10


@pytest.mark.parametrize("metric", [*METRICS, *RATIOS])
def test_what_a_label_alone_moves_is_the_change_of_the_value(metric: str) -> None:
    users, rule, top = users_at_random(random.Random(9), 60, 2), Convention(), 2.0
    arms, parsed = arms_of(users), parse(metric)
    result = lb.bounds(arms.shown, parsed, lb.Labels(rule, 2))
    moves = lb.Moves.of(arms, result, arms.rows(result), (0, 1))
    both = [user for user in users if {"a", "b"} <= {*user.lists}]
    number = {name: at for at, name in enumerate(np.unique(arms.shown.item).tolist())}
    assert len(number) == int(arms.shown.item.max()) + 1
    checked = 0
    for place, user in enumerate(both):
        mine = moves.user == place
        items = sorted({item for name in "ab" for item in user.lists[name][: parsed.cut]})
        assert mine.sum() == len(items)
        for item, move, ranks, is_open in zip(
            items, moves.move[mine], moves.rank[:, mine].T, moves.unjudged[mine], strict=True
        ):
            label = {item: top} if item not in user.judged else {}
            expected = [value(user, name, label, metric, rule) - value(user, name, {}, metric, rule) for name in "ab"]
            assert move == pytest.approx(expected[1] - expected[0], abs=1e-12)
            lists = [user.lists[name][: parsed.cut] for name in "ab"]
            assert ranks.tolist() == [shown.find(item) + 1 for shown in lists]
            assert is_open == (item not in user.judged)
            checked += is_open
    assert checked > 20


def sums_of(users: list[User], metric: str, baseline: str | None = None, max_grade: int = 1) -> dict[lb.Key, Any]:
    """The sums of users, added up over two batches."""
    sums: dict[lb.Key, Any] = {}
    half = len(users) // 2
    for part in (users[:half], users[half:]):
        if part:
            arms = arms_of(part)
            result = lb.bounds(arms.shown, parse(metric), lb.Labels(Convention(), max_grade))
            of_pairs = lb.pair_sums(arms, result, parse(metric), baseline)
            for key, each in itertools.chain(lb.arm_sums(arms, result, parse(metric)), of_pairs):
                sums[key] = sums[key] + each if key in sums else each
    return sums


def rows_of(users: list[User], metric: str, baseline: str | None = None) -> list[dict[str, Any]]:
    return [*lb.pair_rows(sums_of(users, metric, baseline), {metric: ""}, baseline)]


def test_a_pair_is_ahead_whatever_the_labels_are_only_if_it_is_in_every_assignment() -> None:
    seen = set()
    for seed in range(60):
        rng = random.Random(seed)
        users = [
            User({name: "".join(rng.sample("vwxyz", 3)) for name in "ab"}, {item: 1.0 for item in "vw"} | {"x": 0.0})
            for _ in range(2)
        ]
        (row,) = rows_of(users, "dcg@3")
        every = [
            np.mean(
                [
                    value(u, "b", labels, "dcg@3", Convention()) - value(u, "a", labels, "dcg@3", Convention())
                    for u, labels in zip(users, chosen, strict=True)
                ]
            )
            for chosen in itertools.product(*(assignments(user, 3, 1) for user in users))
        ]
        low, high = min(every), max(every)
        assert (row["low"], row["high"]) == pytest.approx((low, high), abs=1e-12)
        message = row["sentence"]
        if low > 1e-9:
            assert message.startswith("b is ahead of a")
        elif high < -1e-9:
            assert message.startswith("a is ahead of b")
        elif low < -1e-9 and high > 1e-9:
            assert message.startswith("The judgements do not say")
        else:
            assert "not behind" in message or "equal" in message
        seen.add(message.partition(" on ")[0])
    assert {"b is ahead of a", "a is ahead of b", "The judgements do not say who is ahead"} <= seen


def test_the_open_labels_are_those_that_move_the_difference_of_a_user() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        users = [User({name: "".join(rng.sample("vwxyz", 3)) for name in "ab"}, {"v": 1.0, "w": 0.0}) for _ in range(3)]
        (row,) = rows_of(users, "dcg@3")
        of = {(u, arm, x): value(users[u], arm, {x: 1.0} if x else {}, "dcg@3", Convention())
              for u in range(3) for arm in "ab" for x in ("", *"xyz")}  # fmt: skip
        moves = (of[u, "b", x] - of[u, "b", ""] - of[u, "a", x] + of[u, "a", ""] for u in range(3) for x in "xyz")
        assert row["n_open"] == sum(abs(move) > 1e-12 for move in moves)


PAIR = {"baseline": "a", "experiment_id": "b", "metric": "p@5", "n_users": 9, "n_unjudged": 1_200, "n_open": 30}


@pytest.mark.parametrize(("changes", "message"), messages("labels"))
def test_the_sentence_says_who_is_ahead_and_how_sure_that_is(changes: dict[str, Any], message: str) -> None:
    assert lb.sentence({**PAIR, "bounds": "exact", **changes}) == message


def test_an_unjudged_item_makes_the_bounds_of_a_ratio_an_enclosure() -> None:
    lists = {"a": "xyz", "b": "zyx"}
    judged, unjudged = User(lists, {"x": 1.0, "y": 0.0, "z": 0.0}), User(lists, {"w": 1.0})
    of_judged, of_both = (rows_of(users, "ndcg@10")[0] for users in ([judged], [judged, unjudged]))
    assert (of_judged["bounds"], of_both["bounds"]) == ("exact", "enclosure")
    assert " by at most " in of_both["sentence"] and " by at most " not in of_judged["sentence"]
    assert rows_of([unjudged], "dcg@10")[0]["bounds"] == "exact"


def test_every_pair_has_a_row_or_those_of_the_baseline_and_users_of_one_experiment_are_in_no_pair() -> None:
    users = [User({"a": "xy", "b": "yx"}, {"x": 1.0}), User({"c": "x"}, {})]
    rows = rows_of(users, "p@1")
    assert [(row["baseline"], row["experiment_id"], row["n_users"]) for row in rows] == [
        ("a", "b", 1), ("a", "c", 0), ("b", "c", 0),
    ]  # fmt: skip
    assert [row["low"] for row in rows] == [-1.0, None, None]
    assert [row["baseline"] for row in rows_of(users, "p@1", "b")] == ["b", "b"]
    with pytest.raises(ConfigError, match="unknown experiment 'd'"):
        rows_of(users, "p@1", "d")
    many = [User({f"e{at}": "x" for at in range(21)})]
    with pytest.raises(ConfigError, match="the log has 21 experiments; allowed without a baseline: up to 20"):
        rows_of(many, "p@1")


def test_a_value_that_cannot_be_summed_leaves_no_mean() -> None:
    (row,) = rows_of([User({"a": "x", "b": "y"}, {"x": 2.0**70, "y": 0.0})], "cg@1")
    assert row["low"] is None and row["sentence"].endswith("too large to be summed")
