"""Bounds of metrics over all labels that unjudged items may have, for many lists at once.

A label is a whole grade from 0 to ``max_grade``. The labels range over the unjudged items that any list of the user
shows in the top k. A label is one more judgement: it counts in m and in the ideal list. All bounds are exact. With the
notation of ``metrics.kernels``, and t labels that are relevant:

* Sums (``p``, ``cg``, ``dcg``, ``rbp``) and the first relevant item (``hit_rate``, ``rr``): each label can only add.
* ``r``, ``f1``: (hits + t) / (m + t) grows with t as hits <= m, so own items are all relevant or none.
* ``ap``: with t relevant unjudged items, their best places are the highest ranks and their worst the lowest, since a
  relevant item that moves up from rank j to i adds (c + 1) / i - (c + 1) / j or more. So t decides: all t are tried.
* ``ndcg``: the DCG is linear in the gains of the labels, and the ideal DCG, a maximum of linear functions, is convex.
  Their ratio is quasi-concave, so its minimum is at labels of 0 or the highest grade, and t decides as in ``ap``. For
  the maximum, see ``_best_ratio``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from rankmetrics_spark import metrics as mx

#: How the labels of several items act together: they add up, the first one counts, or they change a divisor too.
Kind = Literal["sum", "first", "ratio"]
#: Numbers of a table of NDCG that are held at once.
_CELLS = 2**20
#: Steps towards the highest NDCG; each at least doubles the correct digits, so a handful is usual.
_STEPS = 100


@dataclass(frozen=True)
class Labels:
    """What a label may be, and what it counts.

    Attributes:
        convention: Its gains, its lowest relevant grade, and the denominator of AP.
        max_grade: The highest grade of a label.
    """

    convention: mx.Convention
    max_grade: int = 1

    @cached_property
    def gains(self) -> mx.Floats:
        """(max_grade + 1,) gain of each grade."""
        return mx.gain(np.arange(self.max_grade + 1.0), self.convention)

    @property
    def top(self) -> float:
        """The highest gain of a label."""
        return float(self.gains[-1])

    @property
    def relevant(self) -> float:
        """1 if the highest grade is relevant, else 0."""
        return float(self.convention.relevant(np.array([float(self.max_grade)]))[0])


class Shown(NamedTuple):
    """The lists of some users, in the order of the users, and the judgements of these users.

    Attributes:
        user: (n,) user of each list, non-decreasing.
        list: (e,) list of each entry, non-decreasing.
        rank: (e,) its rank, ascending within a list.
        grade: (e,) its grade; NaN = unjudged.
        item: (e,) number of its user and item; the same for the same item in two lists of a user.
        pool_user: (j,) user of each judgement, non-decreasing.
        pool_grade: (j,) its grade.
    """

    user: mx.Ints
    list: mx.Ints
    rank: mx.Ints
    grade: mx.Floats
    item: mx.Ints
    pool_user: mx.Ints
    pool_grade: mx.Floats


class Bounds(NamedTuple):
    """Bounds of one metric, of n lists and their e entries down to the cut-off.

    Attributes:
        kind: How labels act together.
        at: (e,) indices of the entries in ``Shown``.
        unjudged: (e,) whether a label may change.
        value: (n,) the value if no unjudged item is relevant, as ``evaluate`` has it.
        low: (n,) the lowest value.
        high: (n,) the highest value.
        move: (e,) how much the highest grade of this item alone adds to ``value``; 0 for a judged item.
        absent: (n,) how much the highest grade of an item that the list does not show adds; 0 or less.
    """

    kind: Kind
    at: mx.Ints
    unjudged: mx.Bools
    value: mx.Floats
    low: mx.Floats
    high: mx.Floats
    move: mx.Floats
    absent: mx.Floats


class Top:
    """The entries of lists down to a cut-off, in what metrics need of them."""

    def __init__(self, shown: Shown, cut: int | None, labels: Labels) -> None:
        """Nothing is computed yet."""
        self.shown, self.labels, self.cut = shown, labels, mx.last_rank(cut)
        self.size = len(shown.user)
        self.at = np.flatnonzero(shown.rank <= self.cut)
        self.list, self.rank, self.grade = shown.list[self.at], shown.rank[self.at], shown.grade[self.at]
        self.unjudged = np.isnan(self.grade)

    @cached_property
    def relevant(self) -> mx.Bools:
        """(e,) judged relevant."""
        return self.labels.convention.relevant(self.grade)

    @cached_property
    def may_be_relevant(self) -> mx.Bools:
        """(e,) unjudged, and a label can make it relevant."""
        return np.asarray(self.unjudged & (self.labels.relevant > 0))

    @cached_property
    def m(self) -> mx.Ints:
        """(n,) judged relevant items of the user."""
        relevant = self.labels.convention.relevant(self.shown.pool_grade)
        of_user = np.bincount(self.shown.pool_user[relevant], minlength=self.n_users)
        return of_user[self.shown.user].astype(np.int64)

    @property
    def n_users(self) -> int:
        """The number of users; each has a list."""
        return int(self.shown.user[-1]) + 1 if self.size else 0

    @cached_property
    def open(self) -> mx.Ints:
        """(n,) unjudged items of the list."""
        return self.count(self.unjudged)

    @cached_property
    def of_user(self) -> mx.Ints:
        """(n,) unjudged items that any list of the user shows down to the cut-off."""
        _, first = np.unique(self.shown.item[self.at][self.unjudged], return_index=True)
        users = self.shown.user[self.list[self.unjudged][first]]
        return np.bincount(users, minlength=self.n_users)[self.shown.user].astype(np.int64)

    @property
    def others(self) -> mx.Ints:
        """(n,) of these, those that the list itself does not show."""
        return self.of_user - self.open

    def count(self, mask: mx.Bools) -> mx.Ints:
        """(n,) entries of a mask."""
        return np.bincount(self.list[mask], minlength=self.size).astype(np.int64)

    def total(self, values: mx.Floats) -> mx.Floats:
        """(n,) sums, added in the order of the ranks."""
        return mx.sums(self.list, values, self.size)


def bounds(shown: Shown, metric: mx.Metric, labels: Labels) -> Bounds:
    """Return the bounds of a metric over all labels."""
    top = Top(shown, metric.cut, labels)
    kind, kernel = KERNELS[metric.name]
    parameters = {name: value for name, value in metric.arguments.items() if name != "k"}
    value, low, high, move, absent = kernel(top, **parameters)
    absent = np.where(top.of_user > 0, absent, 0.0)
    return Bounds(kind, top.at, top.unjudged, value, low, high, np.where(top.unjudged, move, 0.0), absent)


Five = tuple[mx.Floats, mx.Floats, mx.Floats, mx.Floats, mx.Floats]


def _summed(top: Top, judged: mx.Floats, may_add: mx.Floats, scale: Callable[[mx.Floats], mx.Floats]) -> Five:
    """Bounds of a sum, from what each judged entry adds, and what each label may add."""
    value = scale(top.total(judged))
    return value, value, scale(top.total(judged + may_add)), scale(may_add), np.zeros(top.size)


def _relevant(top: Top, weight: Callable[[mx.Ints], mx.Floats], scale: Callable[[mx.Floats], mx.Floats]) -> Five:
    weights = weight(top.rank)
    return _summed(top, top.relevant * weights, top.may_be_relevant * weights, scale)


def _gained(top: Top, weight: Callable[[mx.Ints], mx.Floats]) -> Five:
    weights, label = weight(top.rank), top.unjudged * top.labels.top
    judged = np.asarray(mx.gain(top.grade, top.labels.convention) * weights)
    return _summed(top, judged, np.asarray(label * weights), lambda each: each)


def _first(top: Top, weight: Callable[[mx.Ints], mx.Floats]) -> Five:
    """Bounds where the first relevant item decides: its weight is the value."""
    weights, value, high = weight(top.rank), np.zeros(top.size), np.zeros(top.size)
    np.maximum.at(value, top.list, top.relevant * weights)
    np.maximum.at(high, top.list, (top.relevant | top.may_be_relevant) * weights)
    move = np.maximum(top.may_be_relevant * weights - value[top.list], 0.0)
    return value, value, high, move, np.zeros(top.size)


def _share(part: mx.Floats | mx.Ints, whole: mx.Floats | mx.Ints) -> mx.Floats:
    return np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)


def _over_m(top: Top, divisor: Callable[[mx.Ints], mx.Ints], factor: int = 1) -> Five:
    """Bounds of hits over a divisor that grows with m."""
    hits, may = top.count(top.relevant), int(top.labels.relevant)
    value = _share(factor * hits, divisor(top.m) * (top.m > 0))
    high = _share(factor * (hits + may * top.open), divisor(top.m + may * top.open))
    low = _share(factor * hits, divisor(top.m + may * top.others))
    one = divisor(top.m + may)
    alone, absent = _share(factor * (hits + may), one) - value, _share(factor * hits, one) - value
    return value, low, high, alone[top.list], absent


def _ap(top: Top) -> Five:
    """AP with the t best and the t worst places of relevant labels, for each t."""
    whole = top.labels.convention.ap_denominator == "m"

    def divisor(m: mx.Floats | mx.Ints) -> mx.Floats | mx.Ints:
        return m if whole else np.minimum(m, top.cut)

    may = int(top.labels.relevant)
    value, low, high, absent = np.zeros((4, top.size))
    move = np.zeros(len(top.list))
    for at, inside in mx.grids(top.list):
        lists = top.list[at[:, 0]]
        m, others = top.m[lists, None], may * top.others[lists, None]
        weight = np.where(inside, mx.reciprocal(top.rank)[at], 0.0)
        known, label = ((each[at] & inside).astype(np.float64) for each in (top.relevant, top.may_be_relevant))
        above, below = np.cumsum(known, axis=1), _from_below(known * weight)
        base = np.cumsum(known * above * weight, axis=1)[:, -1:]
        # A label at this rank counts the relevant items above it, and adds 1 to each relevant item below it.
        taken = np.cumsum(label, axis=1)
        taken_below = _from_below(label)
        best = base + np.cumsum(label * ((above + taken) * weight + below), axis=1)
        below_all = below + np.pad(_from_below(label * weight)[:, 1:], ((0, 0), (0, 1)))
        worst = base + _from_below(label * ((above + 1) * weight + below_all))
        plain = _share(base, divisor(m))
        value[lists] = plain[:, 0]
        high[lists] = np.maximum(plain[:, 0], (label * _share(best, divisor(m + taken))).max(axis=1))
        lowest = _share(base, divisor(m + others))[:, 0]
        each = np.where(label > 0, _share(worst, divisor(m + others + taken_below)), np.inf)
        low[lists] = np.minimum(lowest, each.min(axis=1))
        alone = _share(base + (above + 1) * weight + below, divisor(m + 1)) - plain
        move[at[inside]] = (label * alone)[inside]
        absent[lists] = (_share(base, divisor(m + may)) - plain)[:, 0]
    return value, np.minimum(low, 1.0), np.minimum(high, 1.0), move, absent


def _from_below(values: mx.Floats) -> mx.Floats:
    """Running sums of the rows of a grid from their ends; padding, which is 0, changes no bit."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]


# ---- NDCG


def _ndcg(top: Top) -> Five:
    """NDCG with all numbers of labels above each grade; see ``_best_ratio``."""
    value, low, high, absent = np.zeros((4, top.size))
    move = np.zeros(len(top.list))
    weights = mx.discount(top.rank)
    dcg = top.total(mx.gain(top.grade, top.labels.convention) * weights)
    most_lists = int(np.bincount(top.shown.user).max(initial=1))
    deepest = int(top.of_user.max(initial=0)) + int(np.bincount(top.shown.pool_user).max(initial=0)) + 1
    # So few users at once that their tables fit into memory.
    step = max(1, _CELLS // (deepest * (most_lists + len(top.labels.gains))))
    for first in range(0, top.n_users, step):
        users = slice(first, min(first + step, top.n_users))
        lists = slice(*np.searchsorted(top.shown.user, [users.start, users.stop]).tolist())
        entries = slice(*np.searchsorted(top.list, [lists.start, lists.stop]).tolist())
        ideals = _ideals(top, users, int(top.of_user[lists].max(initial=0)))
        user, open_ = top.shown.user[lists] - users.start, top.open[lists]
        unjudged = top.unjudged[entries]
        rows = top.list[entries][unjudged] - lists.start
        # (n, q + 1) sums of the t first and of the t last weights of each list, for each t.
        best, worst = np.zeros((2, len(open_), int(open_.max(initial=0)) + 1))
        place = np.arange(len(rows)) - (np.cumsum(open_) - open_)[rows]
        best[rows, place + 1] = worst[rows, open_[rows] - place] = weights[entries][unjudged]
        best, worst = np.cumsum(best, axis=1), np.cumsum(worst, axis=1)
        base, ideal = dcg[lists], ideals.at_highest[user]
        value[lists] = _share(base, ideal[:, 0])
        t = np.arange(best.shape[1])
        after = np.minimum(t + top.others[lists, None], ideal.shape[1] - 1)
        lows = _share(base[:, None] + top.labels.top * worst, np.take_along_axis(ideal, after, axis=1))
        low[lists] = np.where(t <= open_[:, None], lows, np.inf).min(axis=1)
        high[lists] = _best_ratio(value[lists], base, best, open_, ideals, user, top.labels.gains)
        with_one = ideal[:, min(1, ideal.shape[1] - 1)]
        absent[lists] = _share(base, with_one) - value[lists]
        of_entry = top.list[entries] - lists.start
        alone = base[of_entry] + top.labels.top * weights[entries]
        move[entries] = _share(alone, with_one[of_entry]) - value[lists][of_entry]
    return np.minimum(value, 1.0), np.minimum(low, 1.0), np.minimum(high, 1.0), move, absent


class _Ideals(NamedTuple):
    """The ideal DCG of u users by how many labels reach each grade.

    Attributes:
        by_grade: (g, u, N + 1) the part of gains from grade h to h + 1 if n labels are above it.
        rest: (u,) the part of gains above the highest grade.
        at_highest: (u, N + 1) the ideal DCG if n labels have the highest grade.
    """

    by_grade: mx.Floats
    rest: mx.Floats
    at_highest: mx.Floats


def _ideals(top: Top, users: slice, most: int) -> _Ideals:
    """The ideal DCG in layers of gain: a layer is the DCG of what the sorted items have between two gains."""
    gains, size = top.labels.gains, users.stop - users.start
    first, last = np.searchsorted(top.shown.pool_user, [users.start, users.stop])
    pool_user = top.shown.pool_user[first:last] - users.start
    pool = mx.gain(top.shown.pool_grade[first:last], top.labels.convention)
    order = np.lexsort((-pool, pool_user))
    pool_user, pool = pool_user[order], pool[order]
    place = np.arange(len(pool_user)) - np.searchsorted(pool_user, pool_user)
    kept = place < min(top.cut, len(pool) + 1)
    width = int(place[kept].max(initial=-1)) + 1
    sorted_pool = np.zeros((size, width))
    sorted_pool[pool_user[kept], place[kept]] = pool[kept]
    ranks = np.arange(1, width + most + 1)
    weights = mx.discount(ranks) * (ranks <= top.cut)
    running = np.concatenate([[0.0], np.cumsum(weights)])
    layers = np.clip(sorted_pool, gains[:-1, None, None], gains[1:, None, None]) - gains[:-1, None, None]
    by_grade = np.zeros((len(gains) - 1, size, most + 1))
    for n in range(most + 1):
        # n labels of the full layer come first, then the judged items.
        judged = _last(np.cumsum(layers * weights[n : n + width], axis=-1))
        by_grade[:, :, n] = np.diff(gains)[:, None] * running[n] + judged
    rest = _last(np.cumsum(np.maximum(sorted_pool - gains[-1], 0.0) * weights[:width], axis=-1))
    at_highest = rest[:, None]
    for layer in by_grade:
        at_highest = at_highest + layer
    return _Ideals(by_grade, rest, at_highest)


def _last(running: mx.Floats) -> mx.Floats:
    return running[..., -1] if running.shape[-1] else np.zeros(running.shape[:-1])


def _best_ratio(
    value: mx.Floats, base: mx.Floats, best: mx.Floats, open_: mx.Ints, ideals: _Ideals, user: mx.Ints, gains: mx.Floats
) -> mx.Floats:
    """(n,) highest NDCG over labels of any grades: Dinkelbach's method, with an exact solution in each step.

    If n_h labels reach grade h, the best places are the highest ranks for the highest labels. Then the DCG is the sum
    over h of (gain of h less that of h - 1) times the discounts of the first n_h unjudged ranks, and the ideal DCG the
    sum of ``by_grade[h, n_h]``. For a ratio a, DCG - a * ideal is a sum over h, so each n_h can be chosen on its own.
    Higher layers hold fewer judged items, so the choices do not grow with h, as labels require; the largest ratio is
    that whose best DCG - a * ideal is 0.

    Source: Dinkelbach, On Nonlinear Fractional Programming (Management Science 1967).
    """
    ratio, allowed = value, np.arange(best.shape[1]) <= open_[:, None]
    width = best.shape[1]
    for _ in range(_STEPS):
        dcg, ideal = base, ideals.rest[user]
        for layer, step in zip(ideals.by_grade, np.diff(gains), strict=True):
            of_list = layer[user, :width]
            wins = np.where(allowed, step * best - ratio[:, None] * of_list, -np.inf)
            n = width - 1 - np.argmax(wins[:, ::-1], axis=1)
            chosen = np.arange(len(n)), n
            dcg, ideal = dcg + step * best[chosen], ideal + of_list[chosen]
        better = _share(dcg, ideal)
        if not (better > ratio).any():
            break
        ratio = np.maximum(ratio, better)
    return ratio


#: Name of a metric -> how labels act together, and its bounds.
KERNELS: dict[str, tuple[Kind, Callable[..., Five]]] = {
    "p": ("sum", lambda top: _relevant(top, mx.unit, lambda hits: hits / top.cut)),
    "cg": ("sum", lambda top: _gained(top, mx.unit)),
    "dcg": ("sum", lambda top: _gained(top, mx.discount)),
    "rbp": ("sum", lambda top, p: _relevant(top, mx.geometric(p), lambda hits: (1 - p) * hits)),
    "hit_rate": ("first", lambda top: _first(top, mx.unit)),
    "rr": ("first", lambda top: _first(top, mx.reciprocal)),
    "r": ("ratio", lambda top: _over_m(top, lambda m: m)),
    "f1": ("ratio", lambda top: _over_m(top, lambda m: top.cut + m, 2)),
    "ap": ("ratio", _ap),
    "ndcg": ("ratio", _ndcg),
}
