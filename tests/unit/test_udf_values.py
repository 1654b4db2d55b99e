"""The values behind the UDFs, without an engine: many lists at once have the value that each has alone."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from rankmetrics_spark.errors import InputError
from rankmetrics_spark.udfs import RankBy, _checked, _values

NAN = float("nan")
LISTS = {
    "position": [[2, 1, 3], [], [1, 2], [1.5, -1, NAN], [4, 1, 1]],
    "relevance": [[1, 0, 1], [], [0, NAN], [1, 1, 1], [1, 0, 1]],
    "item": [["a", "b", "a"], [], ["b", None], ["a", "a", "a"], ["z", "y", "x"]],
    "score": [[0.5, 0.5, 2], [], [1, NAN], [1, 1, 1], [-1, 7, 7]],
}
EXACT = [[2**53, 2**53 + 1, 1], [], [3, 4], [5, 5, 5], [2**53 + 1, 2**53, 2**53 + 2]]


@pytest.mark.parametrize("name", ["ap@2", "ndcg@10", "rr", "p@1"])
@pytest.mark.parametrize("rank_by", ["position", "score"])
@pytest.mark.parametrize("scores", [LISTS["score"], EXACT, [[Decimal(v) for v in each] for each in EXACT]])
def test_many_lists_have_the_values_of_each_alone(name: str, rank_by: RankBy, scores: list[list[object]]) -> None:
    metric, rule = _checked(name, "standard", rank_by)
    names = ("position", "relevance", "item") if rank_by == "position" else ("score", "relevance", "item")
    lists = LISTS | {"score": scores}

    def of(chosen: list[int]) -> list[float]:
        columns = {
            each: pd.Series([v for i in chosen for v in lists[each][i]], dtype=object if each == "item" else None)
            for each in names
        }
        result = _values(columns, np.array([len(lists["item"][i]) for i in chosen]), metric, rule, 1)
        return [float(value) for value in result]

    alone = [of([i])[0] for i in range(5)]
    assert np.array_equal(of([0, 1, 2, 3, 4]), alone, equal_nan=True)
    assert np.array_equal(of([4, 3, 1, 2, 0]), [alone[i] for i in (4, 3, 1, 2, 0)], equal_nan=True)
    assert np.isnan(alone[1]) and not np.isnan(alone[4])


def test_lists_of_which_no_row_counts_have_no_value() -> None:
    metric, rule = _checked("rr", "standard", "position")
    columns = {"position": pd.Series([NAN, 1, 2]), "relevance": pd.Series([1.0, 0.0, 1.0])}
    # No sound row; no row; the relevant item at rank 2.
    assert np.array_equal(_values(columns, np.array([1, 0, 2]), metric, rule, 1), [NAN, NAN, 1 / 2], equal_nan=True)


@pytest.mark.outcome("a rank of 0 in a UDF of {name}", "`ConfigError`, unless `first_rank=0`")
@pytest.mark.parametrize("name", ["ap@10", "ndcg@10", "rr", "cg@1"])
def test_a_rank_of_0_is_refused_or_the_first_one(name: str) -> None:
    lists = {"relevance": pd.Series([0, 1, 1]), "position": pd.Series([0, 1, 0])}
    metric, rule = _checked(name, "standard", "position", 0)
    from_1 = _values({**lists, "position": pd.Series([1, 2, 1])}, np.array([2, 1]), metric, rule, 1)
    assert np.array_equal(_values(lists, np.array([2, 1]), metric, rule, 0), from_1) and from_1[1] == 1
    with pytest.raises(InputError, match=rf"^{name} got a rank of 0, but first_rank is 1; allowed: first_rank=0"):
        _values(lists, np.array([2, 1]), metric, rule, 1)
