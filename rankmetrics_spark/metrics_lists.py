"""A batch read under one convention: what several metrics share is computed once, on first use."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from rankmetrics_spark import errors
from rankmetrics_spark.batch import Batch, Floats, Ints, order_within, place
from rankmetrics_spark.conventions import Convention
from rankmetrics_spark.metrics_weights import UNCUT, Weight, at, by_element, discount, spread, table, unit

T = TypeVar("T")


@dataclass(frozen=True)
class Ties:
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


class Lists:
    """A batch under a convention and one reading of ties; kernels take this. n lists, e entries with a grade above 0.

    >>> lists = one_list([2, 0, 1, 0])
    >>> lists.hits_at(3), lists.dcg_at(3), lists.ideal_at(1)
    (array([2.]), array([2.5]), array([2.]))
    """

    def __init__(self, batch: Batch, convention: Convention, ties: str = "plain") -> None:
        """Reads nothing yet."""
        self.batch, self.convention, self.ties = batch, convention, ties
        self._kept: dict[Hashable, object] = {}

    @cached_property
    def found(self) -> Batch:
        """The entries with a grade above 0: every sum over relevance or gain is a sum over these."""
        keep = self.batch.grade > 0
        return self.batch if bool(keep.all()) else _filter(self.batch, np.flatnonzero(keep))

    @cached_property
    def relevant(self) -> Floats:
        """(e,) 1 for a relevant entry, else 0."""
        return self.convention.relevant(self.found.grade).astype(np.float64)

    @cached_property
    def count(self) -> Ints:
        """(e,) relevant items at or above each entry."""
        relevant = self.relevant.astype(np.int64)
        totals = np.bincount(self.found.list, relevant, minlength=self.batch.size).astype(np.int64)
        return np.asarray(np.cumsum(relevant) - (np.cumsum(totals) - totals)[self.found.list])

    @cached_property
    def m(self) -> Ints:
        """(n,) relevant items among all judged ones, shown or not."""
        relevant = self.convention.relevant(self.batch.pool_grade)
        return np.bincount(self.batch.pool_list[relevant], minlength=self.batch.size).astype(np.int64)

    @cached_property
    def gains(self) -> Floats:
        """(e,) gain of each entry."""
        return gain(self.found.grade, self.convention)

    @cached_property
    def tied(self) -> Ties:
        """The tie groups that hold a relevant item; a batch without tie groups has groups of one."""
        found = _filter(self.found, np.flatnonzero(self.relevant))
        first = found.rank if found.tie_first is None else found.tie_first
        last = found.rank if found.tie_last is None else found.tie_last
        start = np.flatnonzero(np.diff(found.list, prepend=-1) | np.diff(first, prepend=-1))
        size = np.diff(start, append=len(first)).astype(np.int64)
        before = place(found.list, self.batch.size)[start] - 1
        return Ties(found.list[start], first[start], last[start], size, before)

    @cached_property
    def stops(self) -> Floats:
        """(e,) probability that a user who reads down the list is satisfied by this entry and no earlier one."""
        top, group = self.convention.max_grade, self.found.list
        satisfied = exponential(np.minimum(self.found.grade, top)) / _power_of_two(np.array([top]))
        stops, reading = np.zeros(len(satisfied)), np.ones(self.batch.size)
        for where in _by_depth(group, self.batch.size):
            stops[where] = reading[group[where]] * satisfied[where]
            reading[group[where]] *= 1 - satisfied[where]
        return stops

    @property
    def scores(self) -> Floats:
        """Score of every entry of the batch, whatever its grade.

        Raises:
            InputError: where the lists have none.
        """
        if self.batch.score is None and not len(self.batch.list):
            return np.zeros(0)
        if self.batch.score is None:
            raise errors.InputError("this metric needs scores, and the lists have none")
        return self.batch.score

    def log_sum_exp(self, t: float, keep: npt.NDArray[np.bool_] | None = None) -> Floats:
        """(n,) log of the sum of exp(score / t) over the entries kept; minus infinity where there is none."""
        which = slice(None) if keep is None else keep
        group, scores = self.batch.list[which], self.scores[which] / t
        top = np.full(self.batch.size, -np.inf)
        np.maximum.at(top, group, scores)
        total = sums(group, by_element(math.exp, scores - top[group]), self.batch.size)
        return top + by_element(lambda x: math.log(x) if x else -math.inf, total)

    def total(self, values: Floats, weight: Weight, cut: int | Ints | None) -> Floats:
        """(n,) sum of values (e,) times the weight of their rank, down to a cut-off: one for all, or (e,), or none.

        Unless ``ties`` is plain, an entry has the mean weight of its group, which is the expected value over all
        orders of tied items for any sum of this form (McSherry and Najork 2008).
        """
        if isinstance(cut, np.ndarray):
            return self.found.total(values * self._weights(weight, cut))
        limit = UNCUT if cut is None else cut
        return self.found.total(values * self.keep((weight, limit), lambda: self._weights(weight, limit)))

    def _weights(self, weight: Weight, cut: int | Ints) -> Floats:
        found = self.found
        if self.ties == "plain" or found.tie_first is None or found.tie_last is None:
            return np.asarray(at(weight, found.rank) * (found.rank <= cut))
        return spread(weight, found.tie_first, found.tie_last, cut)

    def hits_at(self, k: int | None) -> Floats:
        """(n,) relevant items in the top k."""
        return self.keep(("hits", k), lambda: self.total(self.relevant, unit, k))

    def dcg_at(self, k: int | None) -> Floats:
        """(n,) discounted gain of the top k."""
        return self.keep(("dcg", k), lambda: self.total(self.gains, discount, k))

    def ideal_at(self, k: int | None) -> Floats:
        """(n,) discounted gain of the best list of k that the convention's pool allows; 0 where it holds no gain."""
        return self.keep(("ideal", k), lambda: IDEALS[self.convention.ideal_pool](self, UNCUT if k is None else k))

    def keep(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The value of ``compute``, computed once per key; for intermediates shared by some metrics or cut-offs."""
        if key not in self._kept:
            self._kept[key] = compute()
        return cast(T, self._kept[key])

    @cached_property
    def judged_ideal(self) -> tuple[Ints, Floats]:
        """List index and gain of every judged item with a gain, best first."""
        with_gain = np.flatnonzero(self.batch.pool_grade > 0)
        return _best_first(self.batch.pool_list[with_gain], gain(self.batch.pool_grade[with_gain], self.convention))

    @cached_property
    def shown_ideal(self) -> tuple[Ints, Floats]:
        """List index and gain of every shown item with a gain, best first."""
        return _best_first(self.found.list, self.gains)


def one_list(
    grades: Sequence[float],
    *,
    pool: Sequence[float] | None = None,
    scores: Sequence[float] | None = None,
    convention: Convention | None = None,
) -> Lists:
    """One list to try a kernel on: its grades in rank order, and the grades of all judged items if more than those.

    >>> one_list([1, 0], pool=[1, 1, 0]).m.tolist()
    [2]
    """
    shown, length = np.array(grades, np.float64), len(grades)
    known = np.sort(np.array(grades if pool is None else pool, np.float64))
    known = known[~np.isnan(known)][::-1]
    batch = Batch(
        1,
        np.zeros(length, np.int64),
        np.arange(1, length + 1),
        shown,
        np.array([length]),
        np.zeros(len(known), np.int64),
        known,
        score=None if scores is None else np.array(scores, np.float64),
    )
    return Lists(batch, convention or Convention())


def sums(groups: Ints, weights: npt.NDArray[Any], size: int) -> Floats:
    """(size,) sum of weights per group, added in the order given, so the bits do not depend on other groups."""
    return np.asarray(np.bincount(groups, weights, minlength=size), np.float64)


def _by_depth(group: Ints, size: int) -> list[Ints]:
    """Indices of the first element of every group, then of the second, and so on."""
    depth = place(group, size)
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth)[1:])[:-1]) if len(order) else []


def _best_first(group: Ints, gains: Floats) -> tuple[Ints, Floats]:
    group, gains = group[gains > 0], gains[gains > 0]
    rising = (np.diff(gains) > 0) & (np.diff(group) == 0)
    order = order_within(group, -gains) if rising.any() else slice(None)
    return group[order], gains[order]


def _sorted_ideal(lists: Lists, ideal: tuple[Ints, Floats], cut: int) -> Floats:
    group, gains = ideal
    ranks = place(group, lists.batch.size)
    weights = at(discount, ranks) * (ranks <= cut)
    return sums(group, gains * weights, lists.batch.size)


def _constant_ideal(lists: Lists, cut: int) -> Floats:
    length = lists.batch.shown if cut == UNCUT else np.full(lists.batch.size, cut)
    sums = table(discount, int(length.max(initial=0)))[1][length]
    return np.asarray(np.where(_sorted_ideal(lists, lists.judged_ideal, 1) > 0, sums, 0.0))


IDEALS: dict[str, Callable[[Lists, int], Floats]] = {
    "judged": lambda lists, cut: _sorted_ideal(lists, lists.judged_ideal, cut),
    "shown": lambda lists, cut: _sorted_ideal(lists, lists.shown_ideal, cut),
    "constant_k": _constant_ideal,
}


def gain(grade: Floats, convention: Convention) -> Floats:
    """Gain of each grade; 0 for a grade of 0 or less and for an unjudged item.

    >>> gain(np.array([np.nan, -1.0, 0.0, 3.0]), Convention(gain="exponential")).tolist()
    [0.0, 0.0, 0.0, 7.0]
    """
    positive = np.where(grade > 0, grade, 0.0)
    return np.asarray(np.where(positive > 0, GAINS[convention.gain](positive, convention), 0.0))


def exponential(grade: Floats) -> Floats:
    """2^g - 1, exact for whole grades (Burges et al. 2005)."""
    return _power_of_two(grade) - 1.0


def _power_of_two(exponent: Floats) -> Floats:
    fraction, whole = np.modf(exponent)
    factor = by_element(lambda x: 2.0**x, fraction) if fraction.any() else 1.0
    return np.asarray(np.ldexp(factor, np.minimum(whole, 1100.0).astype(np.int64)))


def _tabled(grade: Floats, convention: Convention) -> Floats:
    grades, gains = np.array(convention.gain_table).T
    return np.concatenate([[0.0], gains])[np.searchsorted(grades, grade, side="right")]


GAINS: dict[str, Callable[[Floats, Convention], Floats]] = {
    "linear": lambda grade, _: grade,
    "exponential": lambda grade, _: exponential(grade),
    "binary": lambda grade, _: np.ones_like(grade),
    "table": _tabled,
}


def _filter(batch: Batch, keep: Ints) -> Batch:
    names = ("list", "rank", "grade", "score", "tie_first", "tie_last")
    arrays = {name: getattr(batch, name) for name in names}
    return replace(batch, **{name: array[keep] for name, array in arrays.items() if array is not None})
