"""One row with an absurd rank must not need memory for every rank above it."""

import os
import sys

from tests.helpers.commands import ROOT, ran, succeeded

SCRIPT = """
import resource
import numpy as np
from rankmetrics_spark.metrics import Batch, Convention, compute, parse

resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
deepest = 2**31 - 1
one, grade = np.zeros(1, np.int64), np.ones(1)
rank = np.array([deepest])
given = Batch(1, one, rank, grade, np.array([1]), one, grade)
scored = Batch(1, one, rank, grade, np.array([1]), one, grade, grade, rank, rank)
metrics = [parse(name) for name in ("ap", "rr", "ndcg@10", "ndcg", "rbp")]
for batch in (given, scored):
    for ties in ("item_desc", "expected"):
        print(*compute(batch, metrics, Convention(ties=ties))[0].tolist())"""


def test_the_deepest_rank_that_is_allowed_fits_into_little_memory() -> None:
    # The limit on virtual memory also counts the stacks of unused threads.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = succeeded(ran([sys.executable, "-c", SCRIPT], ROOT, environment, seconds=60))
    assert len(done.stdout.splitlines()) == 4
    for line in done.stdout.splitlines():
        ap, rr, ndcg_at_10, ndcg, rbp = map(float, line.split())
        # 1 / log2(2**31) = 1 / 31.
        assert (ap, rr, ndcg_at_10, round(ndcg, 12)) == (1 / (2**31 - 1), 1 / (2**31 - 1), 0, round(1 / 31, 12))
        assert rbp == 0
