"""The ranked lists of one Arrow batch as flat arrays; no pyspark here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Batch:
    """``size`` ranked lists; entries sorted by (list, rank), pool sorted by (list, grade descending).

    An entry is a shown item. Items with a grade of 0 or less and unjudged items may be left out (they change no
    metric that reads relevant items only); a metric that needs them says so with ``needs`` in its registration.

    Attributes:
        size: Number of lists, called n below.
        list: (e,) list index of each entry, non-decreasing, 0 <= list < n.
        rank: (e,) 1-based rank of each entry, strictly increasing within a list.
        grade: (e,) relevance grade of each entry; NaN = unjudged.
        shown: (n,) number of items shown in each list (its length L).
        pool_list: (p,) list index of each judged item, shown or not.
        pool_grade: (p,) its grade; items with a grade of 0 or less may be left out as above.
        score: (e,) score of each entry, or None where ranks were given.
        tie_first: (e,) first rank of the entry's group of equal scores, or None unless ties are averaged.
        tie_last: (e,) last rank of that group, or None.
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

    def total(self, weights: Floats) -> Floats:
        """Sum of ``weights`` (e,) per list, (n,): added in rank order, so the bits do not depend on the batch."""
        return np.asarray(np.bincount(self.list, weights, minlength=self.size), np.float64)

    def pool_total(self, weights: Floats) -> Floats:
        """Sum of ``weights`` (p,) per list, (n,): added in pool order."""
        return np.asarray(np.bincount(self.pool_list, weights, minlength=self.size), np.float64)


def place(groups: Ints, size: int) -> Ints:
    """1-based place of each element within its group; ``groups`` (e,) is non-decreasing and below ``size``.

    >>> place(np.array([0, 0, 2, 2, 2]), 3).tolist()
    [1, 2, 1, 2, 3]
    """
    counts = np.bincount(groups, minlength=size)
    starts = np.cumsum(counts) - counts
    return np.arange(1, len(groups) + 1, dtype=np.int64) - starts[groups]
