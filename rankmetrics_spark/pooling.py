"""What the judged pool of a list owes to what was shown: repeats that count, and relevance that it does not know of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.assembly import Assembled, flat, with_pool
from rankmetrics_spark.batch import Arrays, Batch, Ints
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.metrics import Lists


def with_judgements(lists: Assembled, columns: Arrays, convention: Convention) -> Batch:
    """The batch with its pool of judged items (``pool_grade``, and ``pool_hash`` where repeats count).

    With ``duplicates: count`` a judged item that was shown c times is c items, in the list and in the pool, so that no
    metric can exceed 1.
    """
    batch = with_pool(lists.batch, columns.get("pool_grade"))
    if convention.duplicates != "count" or "pool_hash" not in columns or lists.hash is None:
        return batch
    hashes = flat(columns["pool_hash"])[1].to_numpy(zero_copy_only=False)
    if not len(hashes) or not len(lists.hash):
        return batch
    times = np.maximum(_shown(batch.pool_list, hashes, batch.list, lists.hash), 1)
    return replace(batch, pool_list=np.repeat(batch.pool_list, times), pool_grade=np.repeat(batch.pool_grade, times))


def _shown(pool_list: Ints, pool_hash: Ints, list: Ints, hash: Ints) -> Ints:
    """(p,) how often each judged item of a list was shown in it."""
    codes = np.unique(np.concatenate([pool_hash, hash]), return_inverse=True)[1].astype(np.int64)
    span = int(codes.max(initial=0)) + 1
    judged, shown = pool_list * span + codes[: len(pool_hash)], list * span + codes[len(pool_hash) :]
    keys, counts = np.unique(shown, return_counts=True)
    at: npt.NDArray[Any] = np.minimum(np.searchsorted(keys, judged), len(keys) - 1)
    return np.asarray(np.where(keys[at] == judged, counts[at], 0), np.int64)


def n_unknown(batch: Batch, convention: Convention) -> Ints:
    """(n,) relevant items shown beyond the m that the judgements hold: the list and the judgements contradict.

    >>> from rankmetrics_spark.metrics import one_list
    >>> n_unknown(one_list([1, 1, 0], pool=[1]).batch, Convention()).tolist()
    [1]
    """
    lists = Lists(batch, convention)
    hits = np.bincount(lists.found.list, lists.relevant, minlength=batch.size).astype(np.int64)
    return np.asarray(np.maximum(hits - lists.m, 0))
