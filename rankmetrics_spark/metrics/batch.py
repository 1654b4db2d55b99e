"""Many ranked lists as flat NumPy arrays, and the ways to sort and search inside each list."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Intents:
    """The intents of the items of a batch, flat: one element per (item, intent), none twice.

    An intent is a number from 0 on; equal texts in two lists have two numbers.

    Attributes:
        entry: (c,) index of the entry, non-decreasing.
        intent: (c,) its intent.
        grade: (c,) the grade that the entry has for this intent; NaN = unjudged.
        order: (e,) numbers that sort the entries by list; of shown items that gain the same, the lowest number is first
            in the ideal list.
        pool_list: (d,) list index of a judged item, non-decreasing.
        pool_item: (d,) number of that item, non-decreasing; of items that gain the same, the lowest is first likewise.
        pool_intent: (d,) its intent.
        pool_grade: (d,) the grade that the item has for this intent.
    """

    entry: Ints
    intent: Ints
    grade: Floats
    order: Ints
    pool_list: Ints
    pool_item: Ints
    pool_intent: Ints
    pool_grade: Floats

    def take(self, keep: Ints, size: int) -> "Intents":
        """The intents of the entries of an index, out of ``size`` entries; judged items stay."""
        moved = np.full(size, -1, np.int64)
        moved[keep] = np.arange(len(keep))
        at = np.flatnonzero(moved[self.entry] >= 0)
        entry, intent, grade = moved[self.entry[at]], self.intent[at], self.grade[at]
        return replace(self, entry=entry, intent=intent, grade=grade, order=self.order[keep])


@dataclass(frozen=True)
class Batch:
    """``size`` ranked lists; entries sorted by (list, rank), pool by list.

    An entry is a shown item; the pool holds the judged items. Unjudged items and items with a grade of 0 or less may
    be left out: they change no metric that reads relevant items only. A metric that reads them declares it with
    ``needs`` in its definition.

    Attributes:
        size: Number of lists, called n below.
        list: (e,) list index of each entry, non-decreasing, 0 <= list < n.
        rank: (e,) 1-based rank of each entry, strictly increasing within a list.
        grade: (e,) relevance grade of each entry; NaN = unjudged.
        shown: (n,) number of items shown in each list (its length L).
        pool_list: (p,) list index of each judged item, shown or not.
        pool_grade: (p,) grade of each judged item.
        score: (e,) score of each entry, or None if the lists come with ranks only.
        tie_first: (e,) first rank of each entry's group of equal scores; None if ties need no average.
        tie_last: (e,) last rank of that group; None if ties need no average.
        intents: The intents of entries and judged items, or None where no metric reads them.
    """

    size: int
    list: Ints
    rank: Ints
    grade: Floats
    shown: Ints
    pool_list: Ints
    pool_grade: Floats
    score: Floats | None = None
    tie_first: Ints | None = None
    tie_last: Ints | None = None
    intents: Intents | None = None

    def total(self, weights: Floats) -> Floats:
        """(n,) sum of ``weights`` (e,) per list, added in rank order: the bits do not depend on the other lists."""
        return np.asarray(np.bincount(self.list, weights, minlength=self.size), np.float64)

    @property
    def n_graded(self) -> Ints:
        """(n,) shown and judged items with a grade above 0 that is not 1: clicks have none."""
        counts = np.zeros(self.size, np.int64)
        for group, grade in ((self.list, self.grade), (self.pool_list, self.pool_grade)):
            counts += np.bincount(group[(grade > 0) & (grade != 1)], minlength=self.size)
        return counts

    def down_to(self, mask: Bools) -> Ints:
        """(e,) entries of ``mask`` (e,) at or above each entry, in its list."""
        ends = np.cumsum(np.bincount(self.list, mask, minlength=self.size).astype(np.int64))
        return np.asarray(np.cumsum(mask) - np.concatenate([[0], ends])[self.list])

    def tie_ends(self) -> tuple[Ints, Ints]:
        """(e,) index of the first entry of each entry's group of equal scores, and of the last one.

        The batch holds every entry. Without tie groups, an entry is its own group.
        """
        if self.tie_first is None:
            return np.arange(len(self.list)), np.arange(len(self.list))
        starts = np.flatnonzero(np.diff(self.list, prepend=-1) | np.diff(self.tie_first, prepend=-1))
        counts = np.diff(starts, append=len(self.list))
        return np.repeat(starts, counts), np.repeat(starts + counts - 1, counts)


def place(groups: Ints, size: int) -> Ints:
    """1-based place of each element within its group.

    Args:
        groups: (e,) group of each element, non-decreasing, below ``size``.
        size: Number of groups.

    Returns:
        (e,) places.

    >>> place(np.array([0, 0, 2, 2, 2]), 3).tolist()
    [1, 2, 1, 2, 3]
    """
    counts = np.bincount(groups, minlength=size)
    starts = np.cumsum(counts) - counts
    return np.arange(1, len(groups) + 1, dtype=np.int64) - starts[groups]


def spans(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Index of the span of each element, and the element, of spans of consecutive whole numbers.

    >>> [each.tolist() for each in spans(np.array([5, 0]), np.array([2, 3]))]
    [[0, 0, 1, 1, 1], [5, 6, 0, 1, 2]]
    """
    span = np.repeat(np.arange(len(starts)), counts)
    return span, np.arange(len(span)) - np.repeat(np.cumsum(counts) - counts, counts) + starts[span]


def pair_starts(first: Array, second: Array) -> Bools:
    """(e,) whether an element differs from the one before in either of two arrays; the first one does.

    >>> pair_starts(np.array([0, 0, 0, 1]), np.array([5, 5, 6, 6])).tolist()
    [True, False, True, True]
    """
    starts = np.ones(len(first), bool)
    starts[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return starts


#: 2**64 over the golden ratio: its multiples are spread evenly over the 64-bit integers.
_ODD = np.int64(-7046029254386353131)
_LAST = np.int64(np.iinfo(np.int64).max)


def grids(groups: Ints) -> Iterator[tuple[Ints, Bools]]:
    """Groups of similar length as the rows of a grid, so that one NumPy call works inside all of them.

    Sorting 4,096 lists of 50 as rows takes a tenth of the time of one sort by (list, value).

    Args:
        groups: (e,) group of each element, non-decreasing.

    Yields:
        (r, c) indices of elements, one group per row; and (r, c) whether a cell holds an element or padding. Padding
        fills less than half of a row.

    >>> [(at[inside].tolist(), at.shape) for at, inside in grids(np.array([0, 0, 0, 2, 5, 5]))]
    [([3], (1, 1)), ([4, 5], (1, 2)), ([0, 1, 2], (1, 3))]
    """
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    widths = np.frexp(sizes - 1)[1]
    for width in np.unique(widths):
        alike = widths == width
        start, size = starts[alike, None], sizes[alike, None]
        column = np.arange(size.max())
        inside = column < size
        yield np.where(inside, start + column, start), inside


def _width_of_all(groups: Ints) -> int:
    """Number of elements of each group if all have the same number, else 0: pages of results are often alike.

    >>> _width_of_all(np.array([0, 0, 2, 2])), _width_of_all(np.array([0, 0, 0, 2]))
    (2, 0)
    """
    ends = np.flatnonzero(groups[1:] != groups[:-1])
    width, odd = divmod(len(groups), len(ends) + 1)
    # Without elements, width is 0.
    return 0 if odd or not width or (ends != np.arange(width - 1, len(groups) - 1, width)).any() else width


def order_within(groups: Ints, key: Floats) -> Ints:
    """Indices that sort each group by ``key``; the order of equal keys is not defined.

    Args:
        groups: (e,) group of each element, non-decreasing.
        key: (e,) what to sort by, ascending, without NaN.

    Returns:
        (e,) indices of the elements.

    >>> order_within(np.array([0, 0, 1, 1]), np.array([2.0, 1.0, 3.0, 4.0])).tolist()
    [1, 0, 2, 3]
    """
    if _is_sorted(groups, key):
        return np.arange(len(groups))
    if width := _width_of_all(groups):
        by = np.argsort(key.reshape(-1, width), axis=1)
        return np.asarray((by + np.arange(0, len(groups), width)[:, None]).ravel())
    if len(groups) <= _IN_CACHE and groups[-1] < 2**16:
        # Whole numbers of 16 bits are sorted by their digits, which keeps the order of the keys.
        by = np.argsort(key)
        return by[np.argsort(groups[by].astype(np.uint16), kind="stable")]
    # Padding must sort last. NaN cannot be the padding: NumPy's vectorized sort treats NaN and infinity as equal. Whole
    # numbers in the order of the doubles are all below ``_LAST``.
    bits = (key + 0.0).view(np.int64)
    order, integers = np.arange(len(groups)), bits ^ ((bits >> 63) & _LAST)
    for at, inside in grids(groups):
        by = np.argsort(np.where(inside, integers[at], _LAST), axis=1)
        order[at[inside]] = np.take_along_axis(at, by, axis=1)[inside]
    return order


#: Up to so many elements, two sorts of all of them are faster than one of each group.
_IN_CACHE = 2**19
#: The first elements, which in most cases show at no cost that groups are not sorted.
_HEAD = 1000


def _is_sorted(groups: Ints, key: Floats) -> bool:
    """Whether each group is sorted by ``key`` already: logs are often written list by list, from the top.

    >>> _is_sorted(np.array([0, 0, 1]), np.array([1.0, 2.0, 0.0])), _is_sorted(np.array([0, 0]), np.array([2.0, 1.0]))
    (True, False)
    """
    if len(key) > _HEAD and not _is_sorted(groups[:_HEAD], key[:_HEAD]):
        return False
    return bool(((key[1:] >= key[:-1]) | (groups[1:] != groups[:-1])).all())


def has_repeat(groups: Ints, key: Ints) -> bool:
    """Whether any group holds a key twice; ``groups`` (e,) is non-decreasing, ``key`` is (e,)."""
    if width := _width_of_all(groups):
        sorted_keys = np.sort(key.reshape(-1, width), axis=1)
        return bool((sorted_keys[:, 1:] == sorted_keys[:, :-1]).any())
    # Equal keys of one group stay equal; those of different groups hardly ever become so.
    codes = np.sort(mixed_codes(groups, key))
    if not (codes[1:] == codes[:-1]).any():
        return False
    by = np.lexsort((key, groups))
    return bool(((key[by][1:] == key[by][:-1]) & (groups[by][1:] == groups[by][:-1])).any())


def mixed_codes(groups: Ints, key: Ints) -> Ints:
    """(e,) a whole number per (group, key): the same for equal pairs, and hardly ever for different ones."""
    return np.asarray(key + groups * _ODD)


def pair_codes(groups_a: Ints, key_a: Ints, groups_b: Ints, key_b: Ints) -> tuple[Ints, Ints]:
    """One whole number per (group, key) pair, the same for equal pairs of both sides and for no others.

    >>> one = np.array([7])
    >>> pair_codes(np.array([0, 1]), np.array([7, 7]), one - 6, one)[1].tolist() == [1]
    True
    """
    codes = np.unique(np.concatenate([key_a, key_b]), return_inverse=True)[1].astype(np.int64)
    width = int(codes.max(initial=0)) + 1
    return groups_a * width + codes[: len(key_a)], groups_b * width + codes[len(key_a) :]
