"""How exposure spreads over items: coverage, Gini, entropy and novelty, from how many items were shown how often.

Counts are whole numbers, and items with the same count are one entry, so every value is exact up to its last rounding
and does not depend on the order of items.
"""

from __future__ import annotations

import math

import numpy as np

from rankmetrics_spark.metrics.batch import Ints


def coverage(n_items: int, n_catalogue: int) -> float:
    """Share of the catalogue that was shown to anybody; NaN if the catalogue is empty.

    Source: Ge, Delgado-Battenfeld and Jannach, Beyond Accuracy (RecSys 2010), catalogue coverage.

    >>> coverage(3, 4)
    0.75
    """
    return n_items / n_catalogue if n_catalogue else math.nan


def gini(shown: Ints, items: Ints, n_catalogue: int) -> float:
    """Gini index of the exposure of the catalogue: 0 if all items are shown equally often, 1 - 1/n if one has all.

    With c_1 <= ... <= c_n the counts of the n items, unseen ones included: sum of (2j - n - 1) c_j over n times their
    sum. NaN if nothing was shown.

    Args:
        shown: (h,) distinct counts above 0.
        items: (h,) how many items have each.
        n_catalogue: n, at least the sum of ``items``.

    Source: Gini 1912; of recommendations: Fleder and Hosanagar, Blockbuster Culture's Next Rise or Fall (2009).

    >>> gini(np.array([2, 1]), np.array([1, 1]), 2), gini(np.array([5]), np.array([1]), 4)  # (2 - 1) / (2 * 3); 1 - 1/4
    (0.16666666666666666, 0.75)
    """
    order = np.argsort(shown)
    count, number = shown[order].astype(object), items[order].astype(object)
    total = int((count * number).sum())
    before = n_catalogue - int(number.sum()) + np.cumsum(number) - number
    # The places j of the items of one count add up to a whole number, too large for 64 bits in a large log.
    spread = int((count * number * (2 * before + number - n_catalogue)).sum())
    return spread / (n_catalogue * total) if total else math.nan


def entropy(shown: Ints, items: Ints) -> float:
    """Shannon entropy of the exposure in bits; 2 to its power is the number of items if all had the same exposure.

    Args:
        shown: (h,) distinct counts above 0.
        items: (h,) how many items have each.

    Source: Shannon, A Mathematical Theory of Communication (1948). NaN if nothing was shown.

    >>> entropy(np.array([2, 1]), np.array([1, 2]))  # 1/2 * 1 + 2 * 1/4 * 2
    1.5
    """
    total = int(shown @ items)
    logs = [int(number) * int(count) * math.log2(int(count)) for count, number in zip(shown, items, strict=True)]
    return math.log2(total) - math.fsum(logs) / total if total else math.nan


def novelty(interactions: Ints, shown: Ints, n_interactions: int) -> float:
    """Mean self-information of what was shown: -log2 of the item's share of all interactions, over the shown rows.

    Args:
        interactions: (h,) distinct numbers of interactions above 0.
        shown: (h,) how often items with each number were shown.
        n_interactions: All interactions.

    Source: Vargas and Castells, Rank and Relevance in Novelty and Diversity Metrics (RecSys 2011). NaN if nothing was
    shown that has interactions.

    >>> novelty(np.array([1, 2]), np.array([1, 3]), 4)  # (1 * 2 + 3 * 1) / 4
    1.25
    """
    total = int(shown.sum())
    logs = [int(n) * math.log2(n_interactions / int(count)) for count, n in zip(interactions, shown, strict=True)]
    return math.fsum(logs) / total if total else math.nan
