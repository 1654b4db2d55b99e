"""Ratios of two sums over users, such as the mean over all lists: a user's part is their influence on the ratio.

With y = lists * value of a user and n = lists, the mean over lists is R = sum(y) / sum(n). A user's influence on it is
z = (y - R * n) / mean(n): R moves by z / users if the user counts a little more. The z add up to 0, and the variance
of R is that of the mean of R + z over the users. So a ratio becomes ``Moments`` of R + z, and every test of a mean is
one of the ratio, by the delta method with the users as clusters.

Source: Deng, Knoblich, Lu, Applying the Delta Method in Metric Analytics (KDD 2018), sections 3 and 4; Cochran,
Sampling Techniques (1977), chapter 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankmetrics_spark.statistics.exact_sums import LIMB_UNIT
from rankmetrics_spark.statistics.moments import Moments, PairMoments, Whole

_UNIT = 2**LIMB_UNIT
_ROUNDING = 2**52
"""Products are rounded to doubles before they are summed; a spread below this part of the sums is their rounding."""


@dataclass(frozen=True)
class RatioSums:
    """Sums over the users of g groups: exact integers (object arrays) in units of 2**-60, and the number of users.

    Attributes:
        users: (g,) number of users, as Python integers.
        y: (g,) sum of the numerators: lists of the user times their value.
        n: (g,) sum of the denominators: their lists.
        yy: (g,) sum of the squared numerators.
        yn: (g,) sum of the products.
        nn: (g,) sum of the squared denominators.
    """

    users: Whole
    y: Whole
    n: Whole
    yy: Whole
    yn: Whole
    nn: Whole

    @classmethod
    def of(cls, values: Any, lists: Any) -> RatioSums:
        """The sums of one group of plain values, one per user, and of their numbers of lists.

        >>> both = RatioSums.of([1.0, 0.25], [1, 3])  # (1 * 1 + 3 * 0.25) / 4
        >>> float(both.moments.mean[0]), float(both.moments.n[0])
        (0.4375, 2.0)
        """
        n = np.asarray(lists, np.float64)
        y = n * np.asarray(values, np.float64)
        totals = (sum(round(each * _UNIT) for each in summed.tolist()) for summed in (y, n, y * y, y * n, n * n))
        return cls(*(np.array([total], dtype=object) for total in (len(y), *totals)))

    @property
    def lists(self) -> Whole:
        """(g,) all lists."""
        return np.asarray(self.n // _UNIT)

    @property
    def moments(self) -> Moments:
        """Moments of R + z per user: their mean is the ratio, and their variance that of the users' influence.

        Where every user has one list, these are the moments of the values, bit for bit.
        """
        users, y, n = self.known
        spread = self.spread
        spread = np.where(spread * _ROUNDING <= self.rounding, 0, spread)
        squares = users * y * y * n * n * _UNIT + users * users * spread * _UNIT * _UNIT
        return Moments(users, _rounded(users * y * _UNIT, n), _rounded(squares, n**4))

    @property
    def known(self) -> tuple[Whole, Whole, Whole]:
        """(g,) users, sum of y and sum of n; without any list no users, 0 and 1."""
        some = self.n != 0
        return np.where(some, self.users, 0), np.where(some, self.y, 0), np.where(some, self.n, 1)

    @property
    def spread(self) -> Whole:
        """(g,) sum((y - R * n)**2) * n**2, with n the sum of all: a whole number in units of 2**-180."""
        _, y, n = self.known
        return np.asarray(self.yy * n * n - 2 * y * n * self.yn + y * y * self.nn)

    @property
    def rounding(self) -> Whole:
        """(g,) what ``spread`` is a small part of, in the same units."""
        _, y, n = self.known
        return np.asarray(self.yy * n * n + y * y * self.nn)


@dataclass(frozen=True)
class RatioPairSums:
    """Sums over the users who are in both experiments of g pairs.

    Attributes:
        baseline: Of their y and n in the baseline.
        candidate: Of their y and n in the candidate.
        yy: (g,) sum of products, y of the baseline times y of the candidate; like all, in units of 2**-60.
        yn: (g,) likewise, y of the baseline times n of the candidate.
        ny: (g,) likewise, n of the baseline times y of the candidate.
        nn: (g,) likewise, n of both.
    """

    baseline: RatioSums
    candidate: RatioSums
    yy: Whole
    yn: Whole
    ny: Whole
    nn: Whole

    @property
    def moments(self) -> PairMoments:
        """Moments of R + z of the same users in both, and of their difference, which keeps what the two share."""
        (users, x, m), (_, y, n) = self.baseline.known, self.candidate.known
        shared = self.yy * m * n - y * m * self.yn - x * n * self.ny + x * y * self.nn
        spread = self.baseline.spread * n**4 + self.candidate.spread * m**4 - 2 * shared * m * m * n * n
        rounding = self.baseline.rounding * n**4 + self.candidate.rounding * m**4
        # Sums of both are rounded, and so are those of the products of the two.
        spread = np.where(spread * _ROUNDING <= 2 * rounding, 0, spread)
        lead = y * m - x * n
        squares = users * lead * lead * m * m * n * n * _UNIT + users * users * spread * _UNIT * _UNIT
        difference = Moments(users, _rounded(users * lead * _UNIT, m * n), _rounded(squares, (m * n) ** 4))
        return PairMoments(self.baseline.moments, self.candidate.moments, difference)


def _rounded(numerator: Whole, denominator: Whole) -> Whole:
    """(g,) nearest whole numbers; denominators are above 0."""
    return np.asarray((2 * numerator + denominator) // (2 * denominator), dtype=object)
