"""The judged pool where items repeat or judgements contradict the list; what tied scores leave open."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rankmetrics_spark.assembly import from_rows
from rankmetrics_spark.conventions import resolve
from rankmetrics_spark.metrics import one_list, parse
from rankmetrics_spark.metrics_compute import compute
from rankmetrics_spark.pooling import n_unknown
from rankmetrics_spark.ties import spreads, tie_lines
from tests.builders import ranked, value_of
from tests.frames import Case, columns, values

METRICS = ["ap@3", "ap", "ndcg@3", "ndcg", "r@3", "rprec"]


@pytest.mark.parametrize("preset", ["rectools", "sklearn", "torchmetrics", "tfma"])
def test_a_repeated_item_counts_in_the_pool_as_often_as_it_was_shown(preset: str) -> None:
    chance, rule = random.Random(1), resolve({"preset": preset, "ties": "item_desc"})
    cases = []
    for _ in range(200):
        items = chance.choices("abcdef", k=chance.randint(1, 7))
        judged = {item: chance.randint(0, 3) for item in chance.sample("abcdefgh", chance.randint(1, 6))}
        cases.append(Case(items, [float(-i) for i in range(len(items))], judged))
    for one, row in zip(cases, values(cases, METRICS, rule), strict=True):
        expected = [value_of(name, ranked(one.items, one.scores, one.judged, rule), rule) for name in METRICS]
        assert row == pytest.approx(expected, abs=1e-12, nan_ok=True), one
        assert not any(value > 1 + 1e-12 for value in row)


def test_values_stop_at_one_where_the_list_shows_more_than_the_judgements_hold() -> None:
    lists = one_list([1, 1, 1], pool=[1])
    names = ["ap", "ap@3", "ndcg", "r@3", "rprec", "bpref", "p@3", "f1@3"]
    assert compute(lists.batch, [parse(name) for name in names], resolve("standard")).tolist() == [[1.0] * 8]
    assert n_unknown(lists.batch, resolve("standard")).tolist() == [2]


def test_only_lists_with_ties_have_a_spread() -> None:
    cases = [Case(["a", "b"], [1.0, 1.0], {"a": 1}), Case(["a", "b"], [2.0, 1.0], {"a": 1})]
    rule, frame = resolve("standard"), columns(cases)
    tied = from_rows(frame, rule, True, False).tied
    assert tied.tolist() == [2, 0]
    assert spreads(frame, tied, [parse("rr"), parse("hit_rate@2")], rule, True).tolist() == [[0.5, 0.0], [0.0, 0.0]]


def test_a_log_without_ties_is_not_looked_at_again() -> None:
    assert spreads({}, np.zeros(3, np.int64), [parse("ap")], resolve("standard"), True).tolist() == [[0.0]] * 3


def test_nothing_is_said_about_ties_where_ranks_were_given_or_none_are_tied() -> None:
    assert tie_lines({"a": {"evaluated": 3}}, {}) == []
    assert tie_lines({"a": {"evaluated": 3, "tied": 0, "tie_spread": {"ap": 0.0}}}, {("ap", "a"): 0.1}) == []


def test_a_difference_larger_than_the_spread_raises_no_warning() -> None:
    experiments = {name: {"evaluated": 4, "tied": 2, "tie_spread": {"ap": 0.1}} for name in "ab"}
    assert tie_lines(experiments, {("ap", "a"): 0.1, ("ap", "b"): 0.5}) == [
        "tied scores: a 50.00% of its rows, b 50.00%"
    ]
