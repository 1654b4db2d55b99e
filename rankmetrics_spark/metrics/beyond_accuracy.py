"""What lists show, whatever its relevance: how alike two lists are, and how exposure spreads over items.

Overlaps are of many pairs of lists at once: a pair has a list a and a list b. Exposures come from how many items were
shown how often: counts are whole numbers, and items with the same count are one entry, so every value is exact up to
its last rounding and does not depend on the order of items.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rankmetrics_spark.metrics.batch import Array, Floats, Ints, pair_codes, place
from rankmetrics_spark.metrics.discounts import Weight, span
from rankmetrics_spark.metrics.lists import sums

# ---- how alike two lists are


class Overlap(NamedTuple):
    """The items that both lists of a pair hold.

    Attributes:
        size: Number of pairs, called n below.
        pair: (c,) pair of each common item, non-decreasing; in the order of list a.
        in_a: (c,) its place in list a, from 1.
        in_b: (c,) its place in list b.
        n_a: (n,) items of list a.
        n_b: (n,) items of list b.
    """

    size: int
    pair: Ints
    in_a: Ints
    in_b: Ints
    n_a: Ints
    n_b: Ints

    @property
    def common(self) -> Ints:
        """(n,) number of common items."""
        return np.bincount(self.pair, minlength=self.size).astype(np.int64)


def overlap(pair_a: Ints, item_a: Ints, pair_b: Ints, item_b: Ints, size: int) -> Overlap:
    """Find the common items of n pairs of lists.

    Args:
        pair_a: (e,) pair of each item of the lists a, non-decreasing; the items of a list in their order.
        item_a: (e,) the items as whole numbers; a list holds none twice.
        pair_b: (f,) the same of the lists b.
        item_b: (f,) their items.
        size: Number of pairs.

    >>> found = overlap(np.array([0, 0, 0]), np.array([5, 6, 7]), np.array([0, 0]), np.array([7, 5]), 1)
    >>> found.in_a.tolist(), found.in_b.tolist()
    ([1, 3], [2, 1])
    """
    keys_a, keys_b = pair_codes(pair_a, item_a, pair_b, item_b)
    order = np.argsort(keys_b)
    at = np.minimum(np.searchsorted(keys_b[order], keys_a), max(len(keys_b) - 1, 0))
    both = keys_b[order][at] == keys_a if len(keys_b) else np.zeros(len(keys_a), bool)
    in_b = place(pair_b, size)[order][at[both]]
    n_a, n_b = (np.bincount(pair, minlength=size).astype(np.int64) for pair in (pair_a, pair_b))
    return Overlap(size, pair_a[both], place(pair_a, size)[both], in_b, n_a, n_b)


def list_hashes(lists: Ints, rank: Ints, item: Ints, size: int) -> Ints:
    """(n,) a hash of which item is at which rank of each list; 0 for a list without items.

    The hashes of (item, rank) are added modulo 2**64, so the order of the rows changes no bit. Two lists that differ
    have the same hash with probability 2**-64.

    Args:
        lists: (e,) list of each item, in any order.
        rank: (e,) its rank.
        item: (e,) hash of the item.
        size: Number of lists.

    >>> same, moved = list_hashes(np.array([0, 0, 1, 1]), np.array([1, 2, 2, 1]), np.array([7, 8, 8, 7]), 2)
    >>> other = list_hashes(np.array([0, 0]), np.array([1, 2]), np.array([8, 7]), 1)[0]
    >>> bool(same == moved), bool(other == same)
    (True, False)
    """
    cells = _mixed(_mixed(item.view(np.uint64)) + rank.view(np.uint64))
    added = np.zeros(size, np.uint64)
    np.add.at(added, lists, cells)
    return added.view(np.int64)


def _mixed(numbers: Array) -> Array:
    """Numbers whose bits all depend on all bits: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def jaccard(pairs: Overlap) -> Floats:
    """(n,) common items over the items of either list; NaN if both are empty.

    >>> jaccard(overlap(np.array([0, 0]), np.array([1, 2]), np.array([0, 0]), np.array([3, 1]), 1)).round(6).tolist()
    [0.333333]
    """
    either = pairs.n_a + pairs.n_b - pairs.common
    return np.asarray(np.divide(pairs.common, either, out=np.full(pairs.size, np.nan), where=either > 0))


def unexpectedness(pairs: Overlap) -> Floats:
    """(n,) share of the items of list b that are not in list a, the baseline; NaN if list b is empty.

    Source: Murakami, Mori and Orihara, Metrics for Evaluating the Serendipity of Recommendation Lists (2008), without
    relevance; a short list is divided by its length.

    >>> found = overlap(np.array([0, 0]), np.array([1, 2]), np.array([0, 0, 0]), np.array([3, 1, 4]), 1)
    >>> unexpectedness(found).round(6).tolist()
    [0.666667]
    """
    unseen = pairs.n_b - pairs.common
    return np.asarray(np.divide(unseen, pairs.n_b, out=np.full(pairs.size, np.nan), where=pairs.n_b > 0))


def same_top(pairs: Overlap) -> Floats:
    """(n,) 1 if both lists hold the same items in the same order, else 0; NaN if both are empty.

    >>> same_top(overlap(np.array([0, 0]), np.array([1, 2]), np.array([0, 0]), np.array([2, 1]), 1)).tolist()
    [0.0]
    """
    in_place = sums(pairs.pair, pairs.in_a == pairs.in_b, pairs.size)
    same = (in_place == pairs.n_a) & (pairs.n_a == pairs.n_b)
    return np.where(pairs.n_a + pairs.n_b > 0, same, np.nan)


def kendall(lists: Overlap) -> Floats:
    """(n,) Kendall's tau of the common items: 1 in the same order, -1 in the reverse order; NaN below two of them.

    Source: Kendall, A New Measure of Rank Correlation (Biometrika 1938).

    >>> found = overlap(np.array([0, 0, 0]), np.arange(3), np.array([0, 0, 0]), np.array([1, 0, 2]), 1)
    >>> kendall(found).round(6).tolist()
    [0.333333]
    """
    n, score = lists.common, np.zeros(lists.size)
    # Items that are j places apart among the common ones of list a: as many steps as the longest list has items.
    for apart in range(1, int(n.max(initial=0))):
        first = np.flatnonzero(lists.pair[apart:] == lists.pair[:-apart])
        score += sums(lists.pair[first], np.sign(lists.in_b[first + apart] - lists.in_b[first]), lists.size)
    pairs = n * (n - 1) / 2
    return np.asarray(np.divide(score, pairs, out=np.full(lists.size, np.nan), where=pairs > 0))


@lru_cache(maxsize=32)
def _agreement(p: float) -> Weight:
    """The weight p^d / d of the overlap at depth d."""
    return lambda depths: np.asarray(np.power(p, depths * 1.0) / depths)


def rbo(pairs: Overlap, p: float = 0.9) -> Floats:
    """(n,) rank-biased overlap, extrapolated beyond the ends of the lists; 0 if one is empty, NaN if both are.

    Source: Webber, Moffat and Zobel, A Similarity Measure for Indefinite Rankings (TOIS 2010), equation 32, which takes
    lists of different lengths.

    Args:
        pairs: The pairs.
        p: In (0, 1): the chance that a reader goes on to the next rank; higher values look deeper.

    >>> alike = overlap(np.array([0, 0]), np.array([1, 2]), np.array([0, 0]), np.array([1, 2]), 1)
    >>> rbo(alike).round(9).tolist()
    [1.0]
    """
    weight, depth = _agreement(p), np.maximum(pairs.in_a, pairs.in_b)
    short, long = np.minimum(pairs.n_a, pairs.n_b), np.maximum(pairs.n_a, pairs.n_b)
    at_short = sums(pairs.pair, depth <= short[pairs.pair], pairs.size)
    seen = sums(pairs.pair, span(weight, depth, long[pairs.pair]), pairs.size)
    # The short list is taken to agree below its end as often as down to it.
    lasting = np.divide(at_short, short, out=np.zeros(pairs.size), where=short > 0)
    tail = np.power(p, short + 1.0) - np.power(p, long + 1.0)
    missing = lasting * tail / (1 - p) - at_short * span(weight, short + 1, long)
    below = np.divide(pairs.common - at_short, long, out=np.zeros(pairs.size), where=long > 0) + lasting
    values = (1 - p) / p * (seen + missing) + below * np.power(p, long * 1.0)
    return np.where(long > 0, np.clip(values, 0.0, 1.0), np.nan)


# ---- how exposure spreads


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
