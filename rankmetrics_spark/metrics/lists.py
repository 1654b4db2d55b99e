"""A batch under one convention, and the values of its metrics; what several metrics share is computed once."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

import numpy as np

from rankmetrics_spark import errors as err
from rankmetrics_spark.metrics import conventions, discounts
from rankmetrics_spark.metrics.batch import Array, Batch, Bools, Floats, Intents, Ints, order_within, place
from rankmetrics_spark.metrics.names import Metric, check

T = TypeVar("T")


class Ties(NamedTuple):
    """Groups of equal scores that hold a relevant item, in rank order: one element per group.

    Attributes:
        list: List index.
        first: First rank.
        last: Last rank.
        relevant: Relevant items in the group.
        before: Relevant items of the list above the group.
    """

    list: Ints
    first: Ints
    last: Ints
    relevant: Ints
    before: Ints


#: Items with a gain, in each list from the highest gain down: list index, rank there, and gain times its discount.
Ideal = tuple[Ints, Ints, Floats]


class Lists:
    """What a kernel reads: a batch under a convention and one reading of ties.

    In the shapes below, n is the number of lists and e the number of entries with a grade above 0.

    >>> lists = one_list([2, 0, 1, 0])
    >>> lists.hits_at(3), lists.dcg_at(3), lists.ideal_at(1)
    (array([2.]), array([2.5]), array([2.]))
    """

    def __init__(self, batch: Batch, convention: conventions.Convention, ties: str = "plain") -> None:
        """Nothing is computed yet.

        Args:
            batch: n ranked lists.
            convention: How to read relevance, gain, the ideal list and ties.
            ties: ``plain`` (ranks as they are), ``expected`` or ``threshold``: see ``Definition.readings``.
        """
        self.batch, self.convention, self.ties = batch, convention, ties
        self._cache: dict[Hashable, object] = {}

    @cached_property
    def found(self) -> Batch:
        """The entries with a grade above 0: sums of relevance or gain need no others."""
        keep = self.batch.grade > 0
        return self.batch if bool(keep.all()) else _filter(self.batch, np.flatnonzero(keep))

    @cached_property
    def relevant(self) -> Floats:
        """(e,) 1 for a relevant entry, else 0."""
        return self.convention.relevant(self.found.grade).astype(np.float64)

    @cached_property
    def count(self) -> Ints:
        """(e,) relevant items at or above each entry."""
        return self.found.down_to(self.relevant > 0)

    @cached_property
    def precisions(self) -> Floats:
        """(e,) the precision at the rank of each relevant entry; 0 for other entries."""
        return self.relevant * (self.count / self.found.rank)

    @cached_property
    def m(self) -> Ints:
        """(n,) relevant items among all judged ones, shown or not; under ``relevant_pool: shown`` among those shown."""
        if self.convention.relevant_pool == "shown":
            return np.bincount(self.found.list, self.relevant, minlength=self.batch.size).astype(np.int64)
        relevant = self.convention.relevant(self.batch.pool_grade)
        return np.bincount(self.batch.pool_list[relevant], minlength=self.batch.size).astype(np.int64)

    @property
    def has_relevant(self) -> Bools:
        """(n,) whether a list has what every metric of the convention needs: a relevant item, and one with a gain.

        The convention decides whether judged items count, or shown items only.
        """
        present = (self.m > 0) & (self.top_gain > 0)
        only_shown = self.convention.ideal_pool == "shown" or self.convention.ap_denominator == "hits"
        return np.asarray(present & (self.hits_at(None) > 0) if only_shown else present)

    @cached_property
    def top_gain(self) -> Floats:
        """(n,) highest gain of the judged items (``ideal_pool: shown``: of those shown); 0 if nothing has a gain."""
        ideal = self.shown_ideal if self.convention.ideal_pool == "shown" else self.judged_ideal
        # The discount of rank 1 is 1.
        return _ideal_dcg(self, ideal, 1)

    @cached_property
    def gains(self) -> Floats:
        """(e,) gain of each entry."""
        return discounts.gain(self.found.grade, self.convention)

    @cached_property
    def tied(self) -> Ties:
        """The tie groups that hold a relevant item; without tie groups in the batch, each item is its own group."""
        relevant = _filter(self.found, np.flatnonzero(self.relevant))
        first = relevant.rank if relevant.tie_first is None else relevant.tie_first
        last = relevant.rank if relevant.tie_last is None else relevant.tie_last
        start = np.flatnonzero(np.diff(relevant.list, prepend=-1) | np.diff(first, prepend=-1))
        size = np.diff(start, append=len(first)).astype(np.int64)
        before = place(relevant.list, self.batch.size)[start] - 1
        return Ties(relevant.list[start], first[start], last[start], size, before)

    @cached_property
    def stops(self) -> Floats:
        """(e,) probability that a user who reads from the top stops at this entry, satisfied for the first time."""
        top, group = self.convention.max_grade, self.found.list
        satisfied = discounts.exponential(np.minimum(self.found.grade, top)) / discounts.power_of_two(np.array([top]))
        stops, reading = np.zeros(len(satisfied)), np.ones(self.batch.size)
        # The first entry of every list, then the second one, and so on.
        depth = place(group, self.batch.size)
        order = np.argsort(depth, kind="stable")
        for at in np.split(order, np.cumsum(np.bincount(depth)[1:])[:-1]) if len(order) else ():
            stops[at] = reading[group[at]] * satisfied[at]
            reading[group[at]] *= 1 - satisfied[at]
        return stops

    @property
    def scores(self) -> Floats:
        """Score of every entry of the batch, of any grade.

        Raises:
            InputError: If the lists have no scores.
        """
        if self.batch.score is None and not len(self.batch.list):
            return np.zeros(0)
        if self.batch.score is None:
            raise err.InputError("this metric needs scores, and the lists have none")
        return self.batch.score

    def log_sum_exp(self, t: float, keep: Bools | None = None) -> Floats:
        """(n,) log of the sum of exp(score / t) over the entries in ``keep`` (default: all); minus infinity if none."""
        index = slice(None) if keep is None else keep
        group, scores = self.batch.list[index], self.scores[index] / t
        top = np.full(self.batch.size, -np.inf)
        np.maximum.at(top, group, scores)
        # Without the subtraction, exp overflows for large scores.
        total = sums(group, np.exp(scores - top[group]), self.batch.size)
        with np.errstate(divide="ignore"):
            return np.asarray(top + np.log(total))

    def total(self, values: Floats, weight: discounts.Weight, cut: int | Ints | None) -> Floats:
        """Weighted sum per list: values times the weight of their rank, down to a cut-off.

        Unless ``ties`` is plain, an entry has the mean weight of its tie group. For a sum of this form that gives the
        expected value over all orders of tied items.
        Source: McSherry and Najork, Computing Information Retrieval Performance Measures Efficiently in the Presence
        of Tied Scores (ECIR 2008).

        Args:
            values: (e,) value of each entry.
            weight: A function of ranks.
            cut: The last rank that counts, for all entries or (e,) for each; None: every rank counts.

        Returns:
            (n,) sums.
        """
        if isinstance(cut, np.ndarray):
            return self.found.total(values * self._weights(weight, cut))
        limit = discounts.last_rank(cut)
        return self.found.total(values * self.keep((weight, limit), lambda: self._weights(weight, limit)))

    def _weights(self, weight: discounts.Weight, cut: int | Ints) -> Floats:
        entries = self.found
        if self.ties == "plain" or entries.tie_first is None or entries.tie_last is None:
            return self.keep(weight, lambda: weight(entries.rank)) * (entries.rank <= cut)
        return discounts.spread(weight, entries.tie_first, entries.tie_last, cut)

    def hits_at(self, k: int | None) -> Floats:
        """(n,) relevant items in the top k."""
        return self.keep(("hits", k), lambda: self.total(self.relevant, discounts.unit, k))

    def dcg_at(self, k: int | None) -> Floats:
        """(n,) discounted gain of the top k."""
        return self.keep(("dcg", k), lambda: self.total(self.gains, discounts.discount, k))

    def ideal_at(self, k: int | None) -> Floats:
        """(n,) discounted gain of the best possible top k of the convention's ideal pool; 0 if the pool has no gain."""
        return self.keep(("ideal", k), lambda: IDEALS[self.convention.ideal_pool](self, discounts.last_rank(k)))

    def keep(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The value of ``compute``, computed once per key; for values that metrics or cut-offs share."""
        if key not in self._cache:
            self._cache[key] = compute()
        return cast(T, self._cache[key])

    @cached_property
    def judged_ideal(self) -> Ideal:
        """The ideal list of all judged items."""
        at = np.flatnonzero(self.batch.pool_grade > 0)
        return _ideal(self.batch.pool_list[at], discounts.gain(self.batch.pool_grade[at], self.convention))

    @cached_property
    def shown_ideal(self) -> Ideal:
        """The ideal list of the shown items."""
        return _ideal(self.found.list, self.gains)


def one_list(
    grades: Sequence[float],
    *,
    pool: Sequence[float] | None = None,
    scores: Sequence[float] | None = None,
    intents: Sequence[Sequence[str]] | None = None,
    pool_intents: Sequence[Sequence[str]] | None = None,
    convention: conventions.Convention | None = None,
) -> Lists:
    """One list, to try a kernel by hand.

    Args:
        grades: Grades of the shown items in rank order; NaN = unjudged.
        pool: Grades of all judged items, shown or not; default: those of ``grades``.
        scores: Scores of the shown items.
        intents: Intents of each shown item; of items that gain the same, the first one is in the ideal list.
        pool_intents: Intents of each item of ``pool``; default: those of ``intents``.
        convention: Default: standard.

    >>> one_list([1, 0], pool=[1, 1, 0]).m.tolist()
    [2]
    """
    grade, length = np.array(grades, np.float64), len(grades)
    judged = np.array(grades if pool is None else pool, np.float64)
    pool_grade = np.sort(judged[~np.isnan(judged)])[::-1]
    entries = (np.zeros(length, np.int64), np.arange(1, length + 1), grade)
    pool_list = np.zeros(len(pool_grade), np.int64)
    score = None if scores is None else np.array(scores, np.float64)
    of_items = None if intents is None else _intents(grade, intents, judged, pool_intents or intents)
    batch = Batch(1, *entries, np.array([length]), pool_list, pool_grade, score=score, intents=of_items)
    return Lists(batch, convention or conventions.Convention())


def _intents(grades: Floats, shown: Sequence[Sequence[str]], judged: Floats, pool: Sequence[Sequence[str]]) -> Intents:
    """The intents of one list, from those of each shown and each judged item."""
    numbers = {name: i for i, name in enumerate(sorted({name for names in (*shown, *pool) for name in names}))}

    def flat(items: Sequence[Sequence[str]], grade: Floats) -> tuple[Ints, Ints, Floats]:
        pairs = [(at, numbers[name]) for at, names in enumerate(items) for name in sorted(set(names))]
        at, intent = np.array(pairs, np.int64).reshape(-1, 2).T
        return at, intent, grade[at]

    of_pool = flat(pool, judged)
    return Intents(*flat(shown, grades), np.arange(len(shown)), np.zeros(len(of_pool[0]), np.int64), *of_pool)


def sums(groups: Ints, weights: Array, size: int) -> Floats:
    """(size,) sum of weights per group, added in the order given: the bits do not depend on other groups."""
    return np.asarray(np.bincount(groups, weights, minlength=size), np.float64)


def _ideal(group: Ints, gains: Floats) -> Ideal:
    group, gains = group[gains > 0], gains[gains > 0]
    is_unsorted = (np.diff(gains) > 0) & (np.diff(group) == 0)
    order = order_within(group, -gains) if is_unsorted.any() else slice(None)
    rank = place(group, int(group.max(initial=-1)) + 1)
    return group, rank, gains[order] * discounts.discount(rank)


def _ideal_dcg(lists: Lists, ideal: Ideal, cut: int) -> Floats:
    of_list, rank, discounted = ideal
    return sums(of_list, discounted * (rank <= cut), lists.batch.size)


def _constant_ideal(lists: Lists, cut: int) -> Floats:
    length = lists.batch.shown if cut == discounts.UNCUT else np.full(lists.batch.size, cut)
    ideal = discounts.span(discounts.discount, np.ones_like(length), length)
    return np.asarray(np.where(_ideal_dcg(lists, lists.judged_ideal, 1) > 0, ideal, 0.0))


IDEALS: dict[str, Callable[[Lists, int], Floats]] = {
    "judged": lambda lists, cut: _ideal_dcg(lists, lists.judged_ideal, cut),
    "shown": lambda lists, cut: _ideal_dcg(lists, lists.shown_ideal, cut),
    "constant_k": _constant_ideal,
}


def _filter(batch: Batch, keep: Ints) -> Batch:
    names = ("list", "rank", "grade", "score", "tie_first", "tie_last")
    arrays = {name: getattr(batch, name) for name in names}
    intents = None if batch.intents is None else batch.intents.take(keep, len(batch.list))
    return replace(batch, intents=intents, **{name: a[keep] for name, a in arrays.items() if a is not None})


def condensed(batch: Batch) -> Batch:
    """The batch without unjudged entries: those below move up, and a gap in the given ranks stays a gap.

    Source: Sakai, Alternatives to Bpref (SIGIR 2007).

    Args:
        batch: Lists with every entry.

    >>> short = condensed(one_list([1, np.nan, 0, np.nan, 2]).batch)
    >>> short.rank.tolist(), short.grade.tolist(), short.shown.tolist()
    ([1, 2, 3], [1.0, 0.0, 2.0], [3])
    """
    unjudged = np.isnan(batch.grade)
    if not unjudged.any():
        return batch
    removed = batch.down_to(unjudged)
    moved = replace(batch, rank=batch.rank - removed, shown=batch.shown - batch.total(unjudged * 1.0).astype(np.int64))
    if batch.tie_first is not None and batch.tie_last is not None:
        first, last = batch.tie_ends()
        above = removed[first] - unjudged[first]
        moved = replace(moved, tie_first=batch.tie_first - above, tie_last=batch.tie_last - removed[last])
    return _filter(moved, np.flatnonzero(~unjudged))


# ---- values

#: Value of a metric without a value, per setting of the knob ``zero_relevant``.
ZERO_RELEVANT = {"zero": 0.0, "skip": np.nan, "one": 1.0}


def compute(batch: Batch, metrics: Sequence[Metric], convention: conventions.Convention) -> Floats:
    """Value of each metric for each list.

    Args:
        batch: n ranked lists.
        metrics: Metrics from ``parse``.
        convention: How to read the lists. Its ``zero_relevant`` decides what NaN from a kernel becomes: 0, NaN or 1.
            With ``skip``, a list without a relevant item has no value in any metric, so that all have the same lists.

    Returns:
        (n, len(metrics)) values; NaN where a list has no value.

    Raises:
        ConfigError: If a metric cannot read tied scores as the convention asks, or returns other than n numbers.

    >>> from rankmetrics_spark.metrics import parse
    >>> batch = Batch(2, *map(np.array, ([0, 0], [1, 3], [1.0, 1.0], [3, 3], [0, 0], [1.0, 1.0])))
    >>> compute(batch, [parse("ap@3"), parse("rr")], conventions.Convention()).round(3).tolist()
    [[0.833, 1.0], [0.0, 0.0]]
    """
    check(metrics, convention)
    batch = condensed(batch) if convention.unjudged == "removed" else batch
    views: dict[str, Lists] = {}
    values = np.empty((batch.size, len(metrics)), order="F")
    for column, metric in enumerate(metrics):
        reading = metric.definition.reading(convention)
        lists = views.setdefault(reading, Lists(batch, convention, reading))
        scores = _one_per_list(metric, metric.definition.kernel(lists, **metric.arguments), batch.size)
        if metric.definition.zero_policy:
            scores = np.where(np.isnan(scores), ZERO_RELEVANT[convention.zero_relevant], scores)
        values[:, column] = scores
    if convention.zero_relevant == "skip":
        values[~Lists(batch, convention).has_relevant] = np.nan
    return values


def _one_per_list(metric: Metric, returned: object, n: int) -> Floats:
    """What a kernel returned, as (n,) numbers: one number, or an array of one, would become the value of every list."""
    try:
        values = np.asarray(returned, np.float64)
        if returned is not None and values.shape == (n,):
            return values
        what = "None" if returned is None else f"values of shape {values.shape}"
    except (TypeError, ValueError):
        what = f"a {type(returned).__name__} that holds no such numbers"
    raise err.ConfigError.of("not_a_number_per_list", metric=metric, what=what, n=n)
