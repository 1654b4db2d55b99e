"""Rows of users -> exact sums, without an engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.road import SUMS_OF_USERS, sums_of_lists
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
        sums_of_lists([parse("ndcg@10")], ()).body([pa.RecordBatch.from_pydict(columns)])
    ).to_pydict()
    sums = dict(zip(SUMS_OF_USERS, np.array(made["sums"], object).T, strict=True))
    assert made["experiment_id"] == ["a", "b"]
    assert [sums[name].tolist() for name in ("n_users", "n_users_with_relevant")] == [[3, 1], [1, 1]]
    # Of the values, and of those of users with a relevant item.
    for kind, wanted in (("v", [2.5, 0.25]), ("r", [0.5, 0.25])):
        limbs = [sums[f"{kind}_{i}"] for i in range(len(LIMB_EXPONENTS))]
        total = exact_total(limbs, LIMB_EXPONENTS) / 2**LIMB_UNIT
        assert total.tolist() == pytest.approx(wanted), kind
