"""Sums by name: a measure says in words what is summed, and the sums are read by the same words.

A word that is summed has a letter for each factor: with values v and b, ``vv`` is the sum of v * v, and ``bv`` that of
b * v. All sums are whole numbers (limbs: see ``exact_sums``), so they add up to the same bits in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import mul

import numpy as np

from rankmetrics_spark.statistics import exact_sums


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
        return (
            *self.counts,
            *(f"{name}_{i}" for name in self.values for i in range(len(exact_sums.POWERS[len(name)]))),
        )

    def cells(self, counts: Sequence[exact_sums.Array], **values: exact_sums.Floats) -> Iterator[exact_sums.Array]:
        """Yield the (n,) numbers that are added up, column by column.

        Args:
            counts: In the order of the words.
            **values: (n,) of each letter; a product with a word of its own is given as such.
        """
        yield from counts
        for word in self.values:
            product = values[word] if word in values else reduce(mul, (values[letter] for letter in word))
            yield from exact_sums.limbs_of(product, exact_sums.POWERS[len(word)])


@dataclass(frozen=True)
class Sums:
    """Sums of g groups, by name.

    Attributes:
        measure: What was summed.
        table: (g, c) whole numbers, as ``Measure.columns`` names them.
    """

    measure: Measure
    table: exact_sums.Array

    def __getitem__(self, name: str) -> exact_sums.Array:
        """(g,) a count, or an exact sum in units of 2**-60 as Python integers."""
        if name in self.measure.counts:
            return np.asarray(self.table[:, self.measure.counts.index(name)])
        at, exponents = self.measure.columns.index(f"{name}_0"), exact_sums.POWERS[len(name)]
        return exact_sums.exact_total([self.table[:, at + i].astype(object) for i in range(len(exponents))], exponents)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.measure, self.table + other.table)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.measure, self.table - other.table)

    def real(self, name: str) -> exact_sums.Floats:
        """(g,) an exact sum, rounded once."""
        return np.asarray((self[name] / 2**exact_sums.LIMB_UNIT).astype(float))

    def mean(self, name: str, n: str) -> exact_sums.Floats:
        """(g,) mean of a value over what a count counts; NaN where that is 0."""
        total = self[name]
        return exact_sums.Moments(self[n].astype(object), total, total).mean

    def moments(self, name: str, n: str) -> exact_sums.Moments:
        """(g,) moments of a value over what a count counts."""
        return exact_sums.Moments(self[n].astype(object), self[name], self[name * 2])

    def covariance(self, one: str, other: str, n: str) -> exact_sums.Floats:
        """(g,) sample covariance of two values, divided by n - 1; NaN with fewer than two units."""
        units, unit = self[n].astype(object), 2**exact_sums.LIMB_UNIT
        at_least_two: exact_sums.Whole = np.where(units < 2, 2, units)
        exact = at_least_two * self[one + other] * unit - self[one] * self[other]
        values = (exact / (at_least_two * (at_least_two - 1) * unit**2)).astype(float)
        return np.where(units < 2, np.nan, values)

    def ratio(self, y: str, n: str) -> exact_sums.RatioSums:
        """Sums of a ratio of two values over the units, which are the first count."""
        units = self[self.measure.counts[0]].astype(object)
        return exact_sums.RatioSums(units, *(self[name] for name in (y, n, y + y, y + n, n + n)))
