"""Sums of doubles whose bits depend only on the values: not on row order, partitions or cores; moments from them.

A double is split into whole multiples of fixed powers of two (limbs). Sums of whole numbers are exact in any order, so
limbs can be added in Python and in SQL alike; they are put together once, at the end. Values up to
``LARGEST_SUMMAND`` are kept to a resolution of 2**-60 (about 1e-18). Means, deviations and covariances are arithmetic
on such sums.

The mean over lists is a ratio of two sums over users: with y = lists * value of a user and n = lists, it is
R = sum(y) / sum(n). A user's influence on it is z = (y - R * n) / mean(n): R moves by z / users if the user counts a
little more. The z add up to 0, and the variance of R is that of the mean of R + z over the users. So a ratio becomes
``Moments`` of R + z, and every test of a mean is one of the ratio, by the delta method with the users as clusters.

Source: Deng, Knoblich, Lu, Applying the Delta Method in Metric Analytics (KDD 2018), sections 3 and 4; Cochran,
Sampling Techniques (1977), chapter 6.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

#: The smallest limb counts multiples of 2**-LIMB_UNIT.
LIMB_UNIT = 60
#: Powers of two that the limbs count. Magnitudes up to 2**60 fit; below 2**33 values can be added without overflow.
LIMB_EXPONENTS = (30, 0, -30, -LIMB_UNIT)
#: The same for squares of such magnitudes.
SQUARE_EXPONENTS = (90, 60, *LIMB_EXPONENTS)
#: Factors of a product of such values -> the powers of two that its limbs count.
POWERS = {1: LIMB_EXPONENTS, 2: SQUARE_EXPONENTS, 3: (150, 120, *SQUARE_EXPONENTS)}
#: The largest magnitude of a value that can be summed.
LARGEST_SUMMAND = 2.0**60


def limbs_of(values: Floats, exponents: Sequence[int] = LIMB_EXPONENTS) -> list[Floats]:
    """Split each value into whole multiples of powers of two: by default of 2**30, 1, 2**-30 and 2**-60.

    Args:
        values: Doubles up to ``LARGEST_SUMMAND``, or their squares, in an array of any shape.
        exponents: ``LIMB_EXPONENTS``, or ``SQUARE_EXPONENTS`` for squares.

    Returns:
        One such array per power of two, largest first; doubles that hold whole numbers below 2**31. Powers above all
        values share one array, a zero with strides of 0.

    >>> [part.astype(int).tolist() for part in limbs_of(np.array([2.0**31 + 1.5, -0.25]))]
    [[2, 0], [1, 0], [536870912, -268435456], [0, 0]]
    """
    largest = max(values.max(initial=0.0), -values.min(initial=0.0))
    parts = [np.broadcast_to(0.0, values.shape)] * sum(largest <= 2.0**exponent for exponent in exponents[:-1])
    rest = values
    for exponent in exponents[len(parts) : -1]:
        # Rounded towards zero: a floor would turn a tiny negative value into -1 and a rest that no double can hold.
        whole = np.trunc(rest * 2.0**-exponent)
        rest = rest - whole * 2.0**exponent
        parts.append(whole)
    return [*parts, np.rint(rest * 2.0 ** -exponents[-1])]


def group_sums(columns: Iterable[Array], group: Ints, size: int) -> Ints:
    """Sums of whole numbers per group.

    Args:
        columns: (n,) counts and limbs. Their sums of doubles are exact: each is below 2**32, and there are fewer than
            2**21 rows.
        group: (n,) group of each row, below ``size``.
        size: Number of groups.

    Returns:
        (size, columns).

    >>> group_sums([np.array([1.0, 2.0, 3.0])], np.array([0, 2, 2]), 3).tolist()
    [[1], [0], [5]]
    """
    return np.stack([np.bincount(group, each, minlength=size).astype(np.int64) for each in columns], axis=-1)


def exact_total(sums: Sequence[Array], exponents: Sequence[int] = LIMB_EXPONENTS) -> Array:
    """Put the sums of limbs together without rounding.

    Args:
        sums: One (g,) array of Python integers (dtype object) per power of two, as ``limbs_of`` orders them.
        exponents: Those of the limbs.

    Returns:
        (g,) Python integers in units of 2**-60.

    >>> sums = [np.array([n], object) for n in (0, 1, 0, 3)]
    >>> exact_total(sums).tolist()
    [1152921504606846979]
    """
    return np.asarray(np.sum([part * 2 ** (e + LIMB_UNIT) for part, e in zip(sums, exponents, strict=True)], axis=0))


def exact_mean(sums: Sequence[Array], n: Ints) -> Floats:
    """Mean from sums of limbs, rounded a fixed number of times, for many small groups at once.

    Args:
        sums: One (g,) array per power of two, as ``limbs_of`` orders them.
        n: (g,) number of values.

    Returns:
        (g,) means; NaN where n is 0.

    >>> exact_mean([np.array([0]), np.array([1]), np.array([0]), np.array([0])], np.array([4])).tolist()
    [0.25]
    """
    parts = (part.astype(np.float64) * 2.0**exponent for part, exponent in zip(sums, LIMB_EXPONENTS, strict=True))
    added = sum(parts, np.zeros(len(n)))
    return np.asarray(np.divide(added, n, out=np.full(len(n), np.nan), where=n > 0))


#: Python integers in an object array: they neither round nor overflow.
Whole = Array


@dataclass(frozen=True)
class Moments:
    """Number and sums of powers of the values of g groups, as exact integers.

    Attributes:
        n: (g,) number of values, as Python integers (object array).
        total: (g,) their sum in units of 2**-60, likewise.
        squares: (g,) the sum of their squares, likewise.

    >>> a = Moments.of([0.5, 1.0]); float(a.mean[0]), round(float(a.std[0]), 6)
    (0.75, 0.353553)
    """

    n: Whole
    total: Whole
    squares: Whole

    @classmethod
    def of(cls, values: Any) -> "Moments":
        """Moments of one group of plain values."""
        whole = [round(v * 2**LIMB_UNIT) for v in values]
        square = [round(v * v * 2**LIMB_UNIT) for v in values]
        return cls(*(np.array([x], dtype=object) for x in (len(whole), sum(whole), sum(square))))

    @property
    def mean(self) -> Floats:
        """(g,) mean, rounded once; NaN without values."""
        n = np.where(self.n == 0, 1, self.n)
        return np.where(self.n == 0, np.nan, (self.total / (n * 2**LIMB_UNIT)).astype(float))

    @property
    def variance(self) -> Floats:
        """(g,) sample variance, divided by n - 1; NaN below two values, 0 below the rounding of the sums."""
        n = np.where(self.n < 2, 2, self.n)
        # n * sum((v - mean)**2) in units of 2**-120, exact.
        spread = self.n * self.squares * 2**LIMB_UNIT - self.total * self.total
        variance = (spread / (n * (n - 1) * 2 ** (2 * LIMB_UNIT))).astype(float)
        # A variance below the rounding of the sums cannot be told from 0.
        mean = np.abs(np.nan_to_num(self.mean))
        floor = (1 + 4 * mean) * 2.0**-LIMB_UNIT + mean**2 * 2.0**-52
        return np.where(self.n < 2, np.nan, np.where(variance <= floor, 0.0, variance))

    @property
    def std(self) -> Floats:
        """(g,) sample standard deviation, divided by n - 1; NaN below two values."""
        return np.asarray(np.sqrt(self.variance))


class PairMoments(NamedTuple):
    """Moments of the users who are in both experiments of a pair.

    Attributes:
        baseline: Of the users' values in the baseline.
        candidate: Of the values of the same users in the candidate.
        difference: Of candidate - baseline per user.

    >>> pair = PairMoments(Moments.of([0.0, 1.0]), Moments.of([1.0, 4.0]), Moments.of([1.0, 3.0]))
    >>> pair.covariance.tolist()
    [1.5]
    """

    baseline: Moments
    candidate: Moments
    difference: Moments

    @property
    def covariance(self) -> Floats:
        """(g,) sample covariance of a user's two values: (var(b) + var(c) - var(c - b)) / 2; NaN below two users."""
        return (self.baseline.variance + self.candidate.variance - self.difference.variance) / 2


def t_interval(moments: Moments, confidence: float) -> tuple[Floats, Floats]:
    """Student's t interval of the mean: mean -+ t(1 - (1 - confidence) / 2, n - 1) * std / sqrt(n).

    Args:
        moments: Of g groups.
        confidence: In (0, 1).

    Returns:
        Lower and upper bounds, (g,) each; NaN below two values, and where all are equal: they do not say how far others
        are from them.

    Source: Student, The Probable Error of a Mean (1908); same numbers as ``scipy.stats.t.interval``.
    """
    # Imported here: it is a fifth of what a Python worker of Spark loads, and those that score lists do not need it.
    from scipy.special import stdtrit

    n = np.maximum(moments.n.astype(float), 2.0)
    half = stdtrit(n - 1, 0.5 + confidence / 2) * np.where(moments.std == 0, np.nan, moments.std) / np.sqrt(n)
    return moments.mean - half, moments.mean + half


_UNIT = 2**LIMB_UNIT
#: Products are rounded to doubles before they are summed; a spread below this part of the sums is their rounding.
_ROUNDING = 2**52


class RatioSums(NamedTuple):
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


def moments_of_ratios(baseline: RatioSums, candidate: RatioSums, products: Iterable[Whole]) -> PairMoments:
    """Moments of R + z of the same users in both, and of their difference, which keeps what the two share.

    Args:
        baseline: Sums of the users who are in both experiments of g pairs, of their y and n in the baseline.
        candidate: Of their y and n in the candidate.
        products: (g,) sums of products in units of 2**-60: y of the baseline times y and n of the candidate, n of the
            baseline times y and n of the candidate.
    """
    (users, x, m), (_, y, n), (yy, yn, ny, nn) = baseline.known, candidate.known, products
    shared = yy * m * n - y * m * yn - x * n * ny + x * y * nn
    spread = baseline.spread * n**4 + candidate.spread * m**4 - 2 * shared * m * m * n * n
    rounding = baseline.rounding * n**4 + candidate.rounding * m**4
    # Sums of both are rounded, and so are those of the products of the two.
    spread = np.where(spread * _ROUNDING <= 2 * rounding, 0, spread)
    lead = y * m - x * n
    squares = users * lead * lead * m * m * n * n * _UNIT + users * users * spread * _UNIT * _UNIT
    difference = Moments(users, _rounded(users * lead * _UNIT, m * n), _rounded(squares, (m * n) ** 4))
    return PairMoments(baseline.moments, candidate.moments, difference)


def _rounded(numerator: Whole, denominator: Whole) -> Whole:
    """(g,) nearest whole numbers; denominators are above 0."""
    return np.asarray((2 * numerator + denominator) // (2 * denominator), dtype=object)


# ---- sums by name: a measure says in words what is summed, and the sums are read by the same words
# A word that is summed has a letter for each factor: with values v and b, ``vv`` is the sum of v * v, and ``bv`` that
# of b * v. All sums are whole numbers (limbs), so they add up to the same bits in any order.


@dataclass(frozen=True)
class Measure:
    """What is summed over units: counts, and after a bar exact sums of values and of their products.

    >>> pair = Measure("both | d dd")
    >>> pair.columns[:6], len(pair.columns)
    (('both', 'd_0', 'd_1', 'd_2', 'd_3', 'dd_0'), 11)
    >>> cells = np.array([[each.sum() for each in pair.cells([np.ones(2)], d=np.array([0.5, 1.0]))]], np.int64)
    >>> Sums(pair, cells).moments("d", "both").mean.tolist(), Sums(pair, cells).real("dd").tolist()
    ([0.75], [1.25])
    """

    words: str

    @cached_property
    def counts(self) -> tuple[str, ...]:
        """Names of the counts."""
        return tuple(self.words.partition("|")[0].split())

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Names of the exact sums."""
        return tuple(self.words.partition("|")[2].split())

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a table of sums: the counts, and the limbs of each exact sum."""
        return (*self.counts, *(f"{name}_{i}" for name in self.values for i in range(len(POWERS[len(name)]))))

    def cells(self, counts: Sequence[Array], **values: Floats) -> Iterator[Array]:
        """Yield the (n,) numbers that are added up, column by column.

        Args:
            counts: In the order of the words.
            **values: (n,) of each letter; a product with a word of its own is given as such.
        """
        yield from counts
        for word in self.values:
            product = values[word] if word in values else reduce(mul, (values[letter] for letter in word))
            yield from limbs_of(product, POWERS[len(word)])


@dataclass(frozen=True)
class Sums:
    """Sums of g groups, by name.

    Attributes:
        measure: What was summed.
        table: (g, c) whole numbers, as ``Measure.columns`` names them.
    """

    measure: Measure
    table: Array

    def __getitem__(self, name: str) -> Array:
        """(g,) a count, or an exact sum in units of 2**-60 as Python integers."""
        if name in self.measure.counts:
            return np.asarray(self.table[:, self.measure.counts.index(name)])
        at, exponents = self.measure.columns.index(f"{name}_0"), POWERS[len(name)]
        return exact_total([self.table[:, at + i].astype(object) for i in range(len(exponents))], exponents)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.measure, self.table + other.table)

    def __sub__(self, other: "Sums") -> "Sums":
        return Sums(self.measure, self.table - other.table)

    def real(self, name: str) -> Floats:
        """(g,) an exact sum, rounded once."""
        return np.asarray((self[name] / 2**LIMB_UNIT).astype(float))

    def mean(self, name: str, n: str) -> Floats:
        """(g,) mean of a value over what a count counts; NaN where that is 0."""
        total = self[name]
        return Moments(self[n].astype(object), total, total).mean

    def moments(self, name: str, n: str) -> Moments:
        """(g,) moments of a value over what a count counts."""
        return Moments(self[n].astype(object), self[name], self[name * 2])

    def covariance(self, one: str, other: str, n: str) -> Floats:
        """(g,) sample covariance of two values, divided by n - 1; NaN with fewer than two units."""
        units, unit = self[n].astype(object), 2**LIMB_UNIT
        at_least_two: Whole = np.where(units < 2, 2, units)
        exact = at_least_two * self[one + other] * unit - self[one] * self[other]
        values = (exact / (at_least_two * (at_least_two - 1) * unit**2)).astype(float)
        return np.where(units < 2, np.nan, values)

    def ratio(self, y: str, n: str) -> RatioSums:
        """Sums of a ratio of two values over the units, which are the first count."""
        units = self[self.measure.counts[0]].astype(object)
        return RatioSums(units, *(self[name] for name in (y, n, y + y, y + n, n + n)))
