"""Judged items when items repeat in the list, and when the judgements contradict the list."""

import random

import numpy as np
import pyarrow as pa
import pytest

from rankmetrics_spark.layouts import LAYOUTS, Entries, Reading, by_score, n_unknown
from rankmetrics_spark.metrics import compute, mixed_codes, one_list, parse, resolve
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


@pytest.mark.parametrize("step", [1, 3])
def test_grades_are_looked_up_by_list_and_item_even_if_the_codes_of_pairs_collide(step: int) -> None:
    # A hash that is less by the odd number in the next list gives the same code as this one.
    odd = int(mixed_codes(np.array([1]), np.array([0]))[0])
    first = np.array([5, 6, 7, 8], np.int64)
    hashes = [first, first - odd * (step == 1) + 10 * (step != 1)]
    grades = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
    columns = {"_pool_hash": pa.array([list(each) for each in hashes]), "_pool_grade": pa.array(grades)}
    shown = [[hashes[0][1], hashes[1][1]], [hashes[1][2], hashes[0][2], np.int64(99)]]
    rows = [[{"_hash": int(h), "score": -float(rank)} for rank, h in enumerate(each)] for each in shown]
    columns |= {"_entries": pa.array(rows, pa.list_(pa.struct({"score": pa.float64(), "_hash": pa.int64()})))}
    batch = LAYOUTS["rows"].unpack(columns, Reading(resolve("standard"), by_position=False)).batch
    assert batch.list.tolist() == [0, 0, 1, 1, 1]
    result = [None if np.isnan(grade) else grade for grade in batch.grade]
    assert result == [2.0, None, 7.0, None, None]


def test_lists_of_one_user_find_the_judgements_of_that_user() -> None:
    pools = {"a": {5: 1.0, 6: 2.0}, "b": {5: 3.0}, "c": {}, "d": {7: 4.0}}
    users, shown = ["b", "a", "d", "b", "c", "a"], [[5], [6, 7], [7], [6, 5], [5], [5, 6]]
    of_user = [pools[user] for user in users]
    rows = [[{"score": -float(rank), "_hash": item} for rank, item in enumerate(each)] for each in shown]
    columns = {
        "user_id": pa.array(users),
        "_pool_hash": pa.array([list(pool) for pool in of_user], pa.list_(pa.int64())),
        "_pool_grade": pa.array([list(pool.values()) for pool in of_user], pa.list_(pa.float64())),
        "_entries": pa.array(rows, pa.list_(pa.struct({"score": pa.float64(), "_hash": pa.int64()}))),
    }
    batch = LAYOUTS["rows"].unpack(columns, Reading(resolve("standard"), by_position=False)).batch
    expected = [pools[user].get(item) for user, items in zip(users, shown, strict=True) for item in items]
    assert [None if np.isnan(grade) else grade for grade in batch.grade] == expected


def test_tied_rows_of_one_item_are_ordered_by_their_grade() -> None:
    text, grade = pa.array(["b", "a", "b", "c", "b"]), np.array([1.0, 2.0, 3.0, 0.0, 2.0])
    entries = Entries(*[np.zeros(5, np.int64)] * 2, grade, score=np.zeros(5), row=np.arange(5), text=text)
    order = by_score(entries, resolve({"ties": "item_desc"}))[0]
    assert [(text[i].as_py(), grade[i]) for i in order] == [("c", 0), ("b", 3), ("b", 2), ("b", 1), ("a", 2)]


def test_order_of_tied_items_is_that_of_their_text() -> None:
    text = pa.array(["b", "a", "é", "b", "\U0001f600", "\uffff", ""])
    entries = Entries(*[np.zeros(7, np.int64)] * 2, np.zeros(7), score=np.zeros(7), row=np.arange(7), text=text)
    order, tied = by_score(entries, resolve({"ties": "item_asc"}))
    assert tied.all()
    assert [text[i].as_py() for i in order] == ["", "a", "b", "b", "é", "\uffff", "\U0001f600"]
