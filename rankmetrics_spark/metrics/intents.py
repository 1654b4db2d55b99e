"""How much the items of a list add to what the items above them cover: gains of intents, and the greedy ideal list.

An item that covers an intent for the (c+1)-th time in its list gains (1 - alpha)^c. Gains are whole numbers of steps of
2^-46, so a sum has the same bits in any order, and two items that cover equally much tie exactly.
"""

from collections.abc import Iterator

import numpy as np

from rankmetrics_spark import errors
from rankmetrics_spark.metrics.batch import Floats, Intents, Ints, place
from rankmetrics_spark.metrics.discounts import Weight
from rankmetrics_spark.metrics.lists import Lists

#: The gain of an intent that nothing above covers. An item of fewer than 2^17 intents has a sum that 64 bits hold.
ONE = 2**46


def intents_of(lists: Lists) -> Intents:
    """The intents of a batch.

    Raises:
        InputError: If its lists come without any.
    """
    intents, batch = lists.batch.intents, lists.batch
    if intents is not None:
        return intents
    if len(batch.list):
        raise errors.InputError("this metric needs intents, and the lists have none")
    none = np.empty(0, np.int64)
    return Intents(none, none, np.empty(0), none, none, none, none, np.empty(0))


def n_covered(lists: Lists) -> Ints:
    """(n,) intents that some relevant item of the pool covers: judged ones, or under ``relevant_pool: shown`` shown."""
    of_list, _, intent = _pool(lists, lists.convention.relevant_pool == "shown")
    first = np.unique(intent, return_index=True)[1]
    return np.bincount(of_list[first], minlength=lists.batch.size).astype(np.int64)


def discounted(lists: Lists, alpha: float, weight: Weight, k: int) -> Floats:
    """(n,) gains of the top k, each times the weight of its rank."""
    batch = lists.batch

    def gains() -> Floats:
        """(e,) gain of each entry."""
        entry, intent = _relevant_entries(lists)
        of_entry = np.zeros(len(batch.list))
        if len(entry):
            order = np.argsort(intent, kind="stable")
            above = np.empty(len(intent), np.int64)
            above[order] = place(intent[order], int(intent.max()) + 1) - 1
            starts = np.flatnonzero(np.diff(entry, prepend=-1))
            of_entry[entry[starts]] = np.add.reduceat(_steps(alpha, int(above.max()))[above], starts) / ONE
        return of_entry

    return batch.total(lists.keep(("intent gains", alpha), gains) * weight(batch.rank) * (batch.rank <= k))


def _steps(alpha: float, most: int) -> Ints:
    """Gain of an intent that is covered c times above, for c from 0 to ``most``."""
    powers = np.cumprod(np.concatenate([[1.0], np.full(most, 1.0 - alpha)]))
    return np.asarray(np.rint(powers * ONE), np.int64)


def _relevant_entries(lists: Lists) -> tuple[Ints, Ints]:
    """Entry and intent, of each intent that an entry covers."""
    intents = intents_of(lists)
    covers = lists.convention.relevant(intents.grade)
    return intents.entry[covers], intents.intent[covers]


def _pool(lists: Lists, shown: bool) -> tuple[Ints, Ints, Ints]:
    """List, item and intent, of each intent that a judged or shown item covers, in the order in which items compete."""
    intents = intents_of(lists)
    if not shown:
        covers = lists.convention.relevant(intents.pool_grade)
        return intents.pool_list[covers], intents.pool_item[covers], intents.pool_intent[covers]
    entry, intent = _relevant_entries(lists)
    by = np.argsort(intents.order[entry], kind="stable")
    return lists.batch.list[entry][by], entry[by], intent[by]


def ideal(lists: Lists, alpha: float, weight: Weight, k: int) -> Floats:
    """(n,) weighted gains of the top k of the greedy ideal list."""

    def started() -> tuple[list[Floats], Iterator[Floats]]:
        pool = _pool(lists, lists.convention.ideal_pool == "shown")
        return [], _greedy(*pool, lists.batch.size, alpha)

    steps, ranks = lists.keep(("ideal gains", alpha), started)
    while len(steps) < k and (gains := next(ranks, None)) is not None:
        steps.append(gains)
    total = np.zeros(lists.batch.size)
    for rank, gains in enumerate(steps[:k], start=1):
        total += gains * weight(np.array([rank]))
    return total


def _greedy(of_list: Ints, item: Ints, intent: Ints, size: int, alpha: float) -> Iterator[Floats]:
    """(size,) gain at rank 1, 2, ... of the list that takes an item with the highest gain at every rank, the first one.

    The best order is NP-hard to find; this one is that of Clarke et al. (SIGIR 2008) and ndeval.
    """
    times = np.zeros(int(intent.max(initial=-1)) + 1, np.int64)
    steps = _steps(alpha, int(np.bincount(intent, minlength=1).max()))
    while len(item):
        starts = np.flatnonzero(np.diff(item, prepend=-1))
        gain, lists = np.add.reduceat(steps[times[intent]], starts), of_list[starts]
        first = np.flatnonzero(np.diff(lists, prepend=-1))
        best = np.maximum.reduceat(gain, first)
        at_list = np.repeat(np.arange(len(first)), np.diff(first, append=len(lists)))
        highest = np.flatnonzero(gain == best[at_list])
        chosen = highest[np.diff(lists[highest], prepend=-1) != 0]
        ranked = np.zeros(size)
        ranked[lists[first]] = best / ONE
        yield ranked
        of_item = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(item)))
        is_chosen = np.zeros(len(starts), bool)
        is_chosen[chosen] = True
        is_chosen = is_chosen[of_item]
        times[intent[is_chosen]] += 1
        stays = ~is_chosen & (best > 0)[at_list][of_item]
        of_list, item, intent = of_list[stays], item[stays], intent[stays]


def n_distinct(lists: Lists, k: int) -> Floats:
    """(n,) intents of the top k, whatever the relevance of the items."""
    intents, batch = intents_of(lists), lists.batch
    inside = batch.rank[intents.entry] <= k
    first = np.unique(intents.intent[inside], return_index=True)[1]
    return batch.total(np.bincount(intents.entry[inside][first], minlength=len(batch.list)).astype(np.float64))
