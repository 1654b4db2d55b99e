"""Judged items when items repeat in the list, and when the judgements contradict the list."""

from __future__ import annotations

import random

import pytest

from rankmetrics_spark.layouts import n_unknown
from rankmetrics_spark.metrics import compute, one_list, parse, resolve
from tests.helpers.builders import ranked, value_of
from tests.helpers.frames import Case, values

METRICS = ["ap@3", "ap", "ndcg@3", "ndcg", "r@3", "rprec"]


@pytest.mark.parametrize("preset", ["rectools", "sklearn", "torchmetrics", "tfma"])
def test_a_repeated_item_counts_in_the_pool_as_often_as_it_was_shown(preset: str) -> None:
    rng, rule = random.Random(1), resolve({"preset": preset, "ties": "item_desc"})
    cases = []
    for _ in range(200):
        items = rng.choices("abcdef", k=rng.randint(1, 7))
        judged = {item: rng.randint(0, 3) for item in rng.sample("abcdefgh", rng.randint(1, 6))}
        cases.append(Case(items, [float(-i) for i in range(len(items))], judged))
    for one, row in zip(cases, values(cases, METRICS, rule), strict=True):
        expected = [value_of(name, ranked(one.items, one.scores, one.judged, rule), rule) for name in METRICS]
        assert row == pytest.approx(expected, abs=1e-12, nan_ok=True), one
        assert not any(value > 1 + 1e-12 for value in row)


def test_values_are_at_most_one_when_the_list_has_more_relevant_items_than_the_judgements() -> None:
    lists = one_list([1, 1, 1], pool=[1])
    names = ["ap", "ap@3", "ndcg", "r@3", "rprec", "bpref", "p@3", "f1@3"]
    assert compute(lists.batch, [parse(name) for name in names], resolve("standard")).tolist() == [[1.0] * 8]
    assert n_unknown(lists.batch, resolve("standard")).tolist() == [2]
