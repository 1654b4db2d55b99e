"""Scores that round to the same double are ordered by their exact value."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rankmetrics_spark import layouts as lay, metrics as mx, udfs

WIDE = pa.decimal128(38, 0)


@pytest.mark.parametrize(
    ("kind", "scores"),
    [
        (pa.int64(), [-(2**53) - 2, -(2**53) - 1, -(2**53), 0, 2**53, 2**53 + 1, 2**63 - 1]),
        (WIDE, [Decimal(n) for n in (-(2**64) - 1, -(2**64), -(2**63), -1, 0, 1, 2**63, 2**64, 2**64 + 1)]),
        (pa.decimal128(20, 18), [Decimal("0.1"), Decimal("0.100000000000000001"), Decimal("0.100000000000000002")]),
    ],
)
def test_the_order_of_exact_scores_is_that_of_the_numbers(kind: pa.DataType, scores: list[int | Decimal]) -> None:
    given = [*reversed(scores), *scores]
    # Behind another list, so that the batch is a slice with an offset.
    lists = pa.array([[{"score": scores[0]}], [{"score": s} for s in given]], pa.list_(pa.struct([("score", kind)])))
    entries = lay.entries_of({"_entries": lists.slice(1)})
    order = [*reversed(range(len(scores))), *range(len(scores))]
    assert entries.ranked_by.tolist() == order
    assert np.array_equal(entries.score, np.array([float(score) for score in given]))


def test_doubles_are_ordered_as_they_are() -> None:
    lists = pa.array([[{"score": 0.5}, {"score": -1.0}]], pa.list_(pa.struct([("score", pa.float64())])))
    assert lay.entries_of({"_entries": lists}).ranked_by.tolist() == [0.5, -1.0]


@pytest.mark.parametrize("scores", [[2**53, 2**53 + 1, 2**53 + 2], [1, 1 + Decimal("1e-18"), 1 + Decimal("2e-18")]])
def test_a_udf_orders_exact_scores_too(scores: list[int | Decimal]) -> None:
    """The relevant item has the middle score, whichever item a tie would put first."""
    for items in ("aba", "bab"):
        names = [f"{letter}{place}" for place, letter in enumerate(items)]
        series = [pd.Series([Decimal(s) if isinstance(scores[1], Decimal) else s for s in scores])]
        rows = dict(zip(("score", "relevance", "item"), [*series, pd.Series([0, 1, 0]), pd.Series(names)], strict=True))
        assert udfs._values(rows, np.array([3]), mx.parse("rr"), mx.STANDARD, 1).tolist() == [1 / 2]
