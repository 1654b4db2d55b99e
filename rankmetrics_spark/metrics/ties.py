"""AP, RR, hit rate and AUC of lists with tied scores: exact expected values over all orders of tied items.

Notation: a tie group holds the ranks f to l, n = l - f + 1 items, s of them relevant, with b relevant items above it.
Source of the closed forms: McSherry and Najork, Computing Information Retrieval Performance Measures Efficiently in the
Presence of Tied Scores (ECIR 2008).
"""

import numpy as np

from rankmetrics_spark.metrics.batch import Bools, Floats, Ints
from rankmetrics_spark.metrics.discounts import last_rank, reciprocal, running_sums, span
from rankmetrics_spark.metrics.lists import Lists, Ties, sums


def expected_precisions(lists: Lists, k: int | None) -> Floats:
    """(n,) expected sum of the precisions at the relevant items of the top k, over all orders of tied items.

    An item at rank i of a group is relevant with probability s/n, and then has above it b relevant items and, of the
    i - f others, an expected (i - f)(s - 1)/(n - 1).
    """
    ties = lists.tied
    return sums(ties.list, _group_precisions(ties, last_rank(k)), lists.batch.size)


def _group_precisions(ties: Ties, cut: int) -> Floats:
    n, inside = ties.last - ties.first + 1, _inside(ties, cut)
    inverse = span(reciprocal, ties.first, ties.first - 1 + inside)
    from_ties = (ties.relevant - 1) / np.maximum(n - 1, 1) * (inside - ties.first * inverse)
    mean = ties.relevant / n * ((ties.before + 1) * inverse + from_ties)
    return np.asarray(np.where(n == 1, ties.relevant * (ties.before + 1) / ties.first * inside, mean))


def _inside(ties: Ties, cut: int) -> Ints:
    """(g,) ranks of each group down to the cut-off."""
    return np.asarray(np.clip(np.minimum(ties.last, cut) - ties.first + 1, 0, None))


def inside_and_last(lists: Lists, cut: int) -> tuple[Floats, Ints]:
    """(e,) share of each entry's tie group that is down to the cut-off; (e,) index of the last entry of the group.

    Unless ``ties`` is expected, an entry is its own group.
    """
    batch = lists.batch
    if lists.ties == "plain" or batch.tie_first is None or batch.tie_last is None:
        return (batch.rank <= cut).astype(np.float64), np.arange(len(batch.list))
    size = batch.tie_last - batch.tie_first + 1
    inside = np.clip(np.minimum(batch.tie_last, cut) - batch.tie_first + 1, 0, None) / size
    return inside, batch.tie_ends()[1]


def threshold_precisions(lists: Lists, k: int | None) -> Floats:
    """(n,) sum over relevant items of the precision at the end of their tie group, as in scikit-learn.

    If the cut-off divides a group, only the part inside counts, with the relevant items of the group spread evenly.
    """
    ties = lists.tied
    n, inside = ties.last - ties.first + 1, _inside(ties, last_rank(k))
    hits = ties.relevant * (inside / n)
    precision = (ties.before + hits) / np.maximum(ties.first + inside - 1, 1)
    return sums(ties.list, hits * precision, lists.batch.size)


def expected_precision_per_hit(lists: Lists, k: int | None) -> Floats:
    """(n,) expected mean of the precisions at the relevant items of the top k; 0 if there are none.

    Only a group that the cut-off divides makes the number of hits random. The number j of its relevant items inside
    the cut-off has a hypergeometric distribution; given j, the part inside is a tie group by itself.
    """
    cut, ties = last_rank(k), lists.tied
    is_inside = ties.last <= cut
    above = sums(ties.list[is_inside], _group_precisions(_take(ties, is_inside), cut), lists.batch.size)
    hits = sums(ties.list, ties.relevant * is_inside, lists.batch.size)
    result = np.divide(above, hits, out=np.zeros(lists.batch.size), where=hits > 0)
    split = _take(ties, (ties.first <= cut) & ~is_inside)
    inside, mean = _inside(split, cut), np.zeros(len(split.list))
    part = split._replace(last=split.first + inside - 1)
    for j in range(int(np.minimum(inside, split.relevant).max(initial=-1)) + 1):
        chance = _hypergeometric(split, inside, j)
        value = above[split.list] + _group_precisions(part._replace(relevant=np.full(len(inside), j)), cut)
        mean += chance * value / np.maximum(split.before + j, 1)
    result[split.list] = mean
    return result


def _hypergeometric(ties: Ties, inside: Ints, j: int) -> Floats:
    n, s = ties.last - ties.first + 1, ties.relevant
    possible = (j <= np.minimum(inside, s)) & (s - j <= n - inside)
    chosen = np.where(possible, j, np.maximum(0, s + inside - n))
    logs = _log_choose(s, chosen) + _log_choose(n - s, inside - chosen) - _log_choose(n, inside)
    return np.where(possible, np.exp(logs), 0.0)


def _log_choose(n: Ints, k: Ints) -> Floats:
    log_factorial = running_sums(np.log, int(n.max(initial=0)))
    return np.asarray(log_factorial[n] - log_factorial[k] - log_factorial[n - k])


def first_hits(lists: Lists) -> tuple[Ints, Ints, Floats]:
    """Each rank where the first relevant item of a list can be: list index, rank and probability.

    It is in the first group with a relevant item, at place i with probability C(n - i, s - 1) / C(n, s).
    """
    ties = lists.tied
    groups = _take(ties, ties.before == 0)
    index, chance = np.arange(len(groups.list)), groups.relevant / (groups.last - groups.first + 1)
    parts = [(index[:0], index[:0], np.zeros(0))]
    for place in range(int((groups.last - groups.first - groups.relevant).max(initial=-2)) + 2):
        rank, n_below = groups.first[index] + place, groups.last[index] - groups.first[index] - place
        parts.append((groups.list[index], rank, chance))
        alive = n_below >= groups.relevant[index]
        index, n_below = index[alive], n_below[alive]
        chance = chance[alive] * ((n_below + 1 - groups.relevant[index]) / n_below)
    of_lists, ranks, chances = (np.concatenate(column) for column in zip(*parts, strict=True))
    return of_lists, ranks, chances


def expected_reciprocal_rank(lists: Lists, k: int | None) -> Floats:
    """(n,) expected reciprocal rank of the first relevant item of the top k, over all orders of tied items."""
    group, rank, chance = lists.keep("first_hits", lambda: first_hits(lists))
    return sums(group, chance / rank * (rank <= last_rank(k)), lists.batch.size)


def expected_hit(lists: Lists, k: int | None) -> Floats:
    """(n,) probability of a relevant item in the top k, over all orders of tied items."""
    ties = lists.tied
    sure = sums(ties.list, ties.last <= last_rank(k), lists.batch.size) > 0
    group, rank, chance = lists.keep("first_hits", lambda: first_hits(lists))
    return np.asarray(np.where(sure, 1.0, sums(group, chance * (rank <= last_rank(k)), lists.batch.size)))


def _take(ties: Ties, keep: Bools) -> Ties:
    return Ties(*(each[keep] for each in ties))
