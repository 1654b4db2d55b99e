"""Rows of users -> exact sums, without an engine."""

import numpy as np
import pyarrow as pa
import pytest

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.road import SUMS_OF_USERS, Summands, sums_of_lists
from rankmetrics_spark.statistics import LIMB_EXPONENTS, LIMB_UNIT, exact_total


def test_the_mean_of_users_with_a_relevant_item_leaves_the_others_out() -> None:
    # Users without a relevant item count 1 under ``zero_relevant: one``, and nothing under ``skip``.
    values, relevant = [1.0, 0.5, 1.0, 0.25, None], [0, 2, 0, 1, 0]
    columns = {
        "experiment_id": pa.array(["a", "a", "a", "b", "b"]),
        "n_relevant": pa.array(relevant, pa.int64()),
        "n_repeated": pa.array([0] * 5, pa.int64()),
        "ndcg_at_10": pa.array(values, pa.float64()),
    }
    made = pa.Table.from_batches(
        sums_of_lists(Summands([parse("ndcg@10")])).body([pa.RecordBatch.from_pydict(columns)])
    ).to_pydict()
    sums = dict(zip(SUMS_OF_USERS.columns, np.array(made["sums"], object).T, strict=True))
    assert made["experiment_id"] == ["a", "b"]
    assert [sums[name].tolist() for name in ("n_users", "n_users_with_relevant")] == [[3, 1], [1, 1]]
    # Of the values, and of those of users with a relevant item.
    for kind, expected in (("v", [2.5, 0.25]), ("r", [0.5, 0.25])):
        limbs = [sums[f"{kind}_{i}"] for i in range(len(LIMB_EXPONENTS))]
        total = exact_total(limbs, LIMB_EXPONENTS) / 2**LIMB_UNIT
        assert total.tolist() == pytest.approx(expected), kind


def test_flagged_lists_come_back_with_their_keys_once_and_count_in_no_sum() -> None:
    columns = {
        "experiment_id": pa.array(["a", "a", "b", "b"]),
        "user_id": pa.array(["u1", "u2", "u1", "u2"]),
        "_flagged": pa.array([False, True, True, True]),
        "_rank_may_repeat": pa.array([False, True, False, True]),
        "n_relevant": pa.array([1, 1, 0, 0]),
        "n_repeated": pa.array([0, 7, 7, 7]),
        "ap_at_10": pa.array([0.5, 1.0, 1.0, 1.0]),
    }
    # A batch comes once for each convention.
    batches = [pa.RecordBatch.from_pydict({**columns, "_convention": pa.array([i] * 4, pa.int32())}) for i in (0, 1)]
    step = sums_of_lists(Summands([parse("ap@10")]), flagged=("user_id", "_rank_may_repeat"))
    assert step.schema.names[-2:] == ["user_id", "_rank_may_repeat"]
    rows = pa.Table.from_batches(step.body(batches)).to_pylist()
    names = ("experiment_id", "metric", "_convention", "user_id", "_rank_may_repeat")
    keys = [tuple(row[name] for name in names) for row in rows if row["sums"] is None]
    assert keys == [("a", None, None, "u2", True), ("b", None, None, "u1", False), ("b", None, None, "u2", True)]
    kept = pa.RecordBatch.from_pydict({name: values[:1] for name, values in columns.items()})
    (alone,) = pa.Table.from_batches(sums_of_lists(Summands([parse("ap@10")])).body([kept])).to_pylist()
    sums = [row for row in rows if row["sums"] is not None]
    assert [tuple(row[name] for name in names) for row in sums] == [("a", "ap@10", i, None, None) for i in "01"]
    assert [row["sums"] for row in sums] == [alone["sums"]] * 2
