"""The order of the rows of a list never decides: neither which repeat stays, nor how a tie is settled."""

from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from rankmetrics_spark.layouts import Entries, Reading, by_score, without_repeats
from rankmetrics_spark.metrics import Convention
from tests.helpers.messages import json_cases

# (item, rank, grade); every score is the same.
Rows = list[tuple[str, float, float]]


def entries(rows: Rows) -> Entries:
    items, ranks, grades = zip(*rows, strict=True)
    size = len(rows)
    return Entries(
        np.zeros(size, np.int64),
        np.array([ord(item) for item in items]),
        np.array(grades),
        position=np.array(ranks),
        score=np.full(size, 0.5),
        row=np.arange(size),
        text=pa.array(items),
    )


@pytest.mark.parametrize(("duplicates", "rows", "expected"), json_cases("rows of a list in any order"))
def test_no_order_of_the_rows_changes_the_list(duplicates: str, rows: Rows, expected: list[float]) -> None:
    rule = Convention(ties="position", duplicates=duplicates)
    reading = Reading(rule, repeats=True, by_position=False)
    for shuffled in permutations(rows):
        kept, _ = without_repeats(entries(list(shuffled)), 1, reading)
        order, tied = by_score(kept, rule)
        ranked = kept.take(order)
        assert ranked.grade.tolist() == expected
        assert tied.all()


@pytest.mark.parametrize(("by_position", "rows"), json_cases("repeats without a judgement"))
def test_of_repeats_a_judgement_of_grade_0_stays_before_none(by_position: bool, rows: Rows) -> None:
    for shuffled in permutations(rows):
        kept, lost = without_repeats(entries(list(shuffled)), 1, Reading(Convention(), True, by_position))
        assert (kept.grade.tolist(), lost.tolist()) == ([0.0], [1])
