"""Which grades are relevant belongs to the data: every metric, every preset and every population reads it alike."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rankmetrics_spark.config import Options
from rankmetrics_spark.conventions import differences, every_convention
from rankmetrics_spark.layouts import LAYOUTS, Arrays, Layout, Numbers, Scoring, score_batch
from rankmetrics_spark.metrics import PRESETS, compute, parse, resolve
from tests.helpers.builders import batch_of, shown, value_of
from tests.helpers.messages import json_cases

NAN = math.nan
STARS = [5, 3, 4, 1]
"""Of these, 5 and 4 are relevant from 4 stars on; they are at the ranks 1 and 3."""
FROM_FOUR = {"gain": "binary", "relevant_from": 4}
NDCG = (1 / math.log2(2) + 1 / math.log2(4)) / (1 / math.log2(2) + 1 / math.log2(3))


@pytest.mark.parametrize("preset", [name for name, rule in PRESETS.items() if rule.gain == "binary"])
def test_a_binary_gain_is_one_from_the_lowest_relevant_grade_on(preset: str) -> None:
    rule = resolve({"preset": preset, "relevant_from": 4})
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4) if rule.ideal_pool == "constant_k" else 1 + 1 / math.log2(3)
    one = shown(*STARS)
    assert value_of("dcg@3", one, rule) == 1 / math.log2(2) + 1 / math.log2(4)
    assert value_of("ndcg@3", one, rule) == pytest.approx((1 + 1 / 2) / ideal, abs=1e-15)
    assert value_of("ap@3", one, rule) == (1 / 1 + 2 / 3) / 2


def test_other_gains_do_not_depend_on_the_lowest_relevant_grade() -> None:
    for gain in ("linear", "exponential"):
        values = [value_of("ndcg@3", shown(*STARS), resolve({"gain": gain, "relevant_from": n})) for n in (0, 4)]
        assert values[0] == values[1]


def columns_of(layout: Layout) -> Arrays:
    """One list of ``STARS`` as each layout packs it."""
    ranks = range(1, len(STARS) + 1)
    entry = {"_hash": pa.int64(), "item_id": pa.string(), "score": pa.float64(), "position": pa.int64()}
    entries = [
        {"_hash": rank, "item_id": f"i{rank}", "score": -float(rank), "position": rank, "relevance": float(grade)}
        for rank, grade in zip(ranks, STARS, strict=True)
    ]
    kind = pa.list_(pa.struct([*entry.items(), ("relevance", pa.float64())]))
    planes = [sum((grade >> bit & 1) << rank - 1 for rank, grade in zip(ranks, STARS, strict=True)) for bit in range(3)]
    packed = [rank << 32 | grade for rank, grade in zip(ranks, STARS, strict=True)]
    return {
        "_rows": pa.array([len(STARS)]),
        "_entries": pa.array([entries], kind),
        **{f"_plane_{bit}": pa.array([plane]) for bit, plane in enumerate(planes)},
        "_ranks_of_rows": pa.array([packed]),
    }


@pytest.mark.parametrize(
    ("layout", "by_position"),
    [(LAYOUTS["rows"], False), *((one, True) for one in (*LAYOUTS.values(), Numbers(small=True, hashed=False)))],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_every_layout_reads_the_lowest_relevant_grade(layout: Layout, by_position: bool) -> None:
    metrics = (parse("ndcg@4"), parse("idcg@4"))
    scoring = Scoring(metrics, (resolve(FROM_FOUR),), by_position, repeats=False)
    (result,) = score_batch(columns_of(layout), layout, scoring)
    assert result["ndcg_at_4"].tolist() == pytest.approx([NDCG], abs=1e-15)
    assert result["idcg_at_4"].tolist() == pytest.approx([1 + 1 / math.log2(3)], abs=1e-15)
    # 5, 3 and 4 are grades above 0 that are not 1, in the list and again among the judged items.
    assert (result["n_relevant"].tolist(), result["_graded"].tolist()) == ([2], [6])


def test_the_ideal_list_of_judged_items_reads_it_too() -> None:
    one = shown(3, 4, pool=[3, 4, 5, 2])
    assert value_of("ndcg@2", one, resolve(FROM_FOUR)) == pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3)))


SOME = [
    shown(5, 1),
    shown(3, 2),  # nothing from 4 stars on
    shown(1, 0, pool=[1, 0, 5]),  # the relevant item was not shown
    shown(0, NAN),
    shown(pool=[4]),  # a judged user without a list
]


@pytest.mark.parametrize(("rule", "counted"), json_cases("users whom all metrics count"))
def test_all_metrics_leave_out_the_same_users(rule: dict[str, Any], counted: list[int]) -> None:
    names = ["ap@10", "ndcg@10", "p@10", "r@10", "rr", "hit_rate@10", "dcg@10", "cg@10", "err@10", "judged@10"]
    convention = resolve({"relevant_from": 4, "zero_relevant": "skip"} | rule)
    values = compute(batch_of(*SOME), [parse(name) for name in names], convention)
    present = ~np.isnan(values)
    # An empty list has no share of judged items.
    assert [[*np.flatnonzero(column)] for column in present[:, :-1].T] == [counted] * (len(names) - 1)
    assert [*np.flatnonzero(present[:, -1])] == [i for i in counted if i != 4]


def test_the_presets_side_by_side_keep_which_grades_are_relevant() -> None:
    own = resolve({"preset": "ranx", "relevant_from": 4})
    rules = every_convention(Options(convention=own, rank_by="score"))
    assert len(rules) == len(PRESETS) + 2
    assert {rule.relevant_from for rule in rules} == {4.0}
    assert [rule.name for rule in rules].count("ranx(relevant_from=4.0)") == 1
    # All rows have it, so it explains no difference between them.
    notes = [differences(rule, Options(convention=own)) for rule in rules]
    assert not any("relevant_from" in note for note in notes)
    assert notes[0] == ""
