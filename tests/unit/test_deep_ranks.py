"""One row with an absurd rank must not cost the memory of every rank above it."""

from __future__ import annotations

import os
import sys

from tests.commands import ROOT, ran

SCRIPT = """
import resource
from rankmetrics_spark.batch import Batch
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.metrics import compute, parse
import numpy as np

resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
deepest = 2**31 - 1
one, grade = np.zeros(1, np.int64), np.ones(1)
batch = Batch(1, one, np.array([deepest]), grade, np.array([1]), one, grade)
print(*compute(batch, [parse("ap"), parse("rr"), parse("ndcg@10"), parse("ndcg")], Convention())[0].tolist())
"""


def test_the_deepest_rank_that_is_allowed_fits_into_little_memory() -> None:
    # The virtual memory of threads that have nothing to do would count too.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = ran([sys.executable, "-c", SCRIPT], ROOT, environment, seconds=60)
    assert done.returncode == 0, done.stderr
    ap, rr, ndcg_at_10, ndcg = map(float, done.stdout.split())
    # 1 / log2(2**31) = 1 / 31.
    assert (ap, rr, ndcg_at_10, round(ndcg, 12)) == (1 / (2**31 - 1), 1 / (2**31 - 1), 0, round(1 / 31, 12))
