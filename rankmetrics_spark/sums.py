"""Sums of doubles whose bits depend on nothing but the values: not on row order, partitions or cores.

A double is split into whole multiples of fixed powers of two (limbs); integer sums are exact in any order, and the
limbs are put together once at the end. Values are kept to a resolution of 2**-60 (about 1e-18).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from rankmetrics_spark.batch import Floats
from rankmetrics_spark.statistics import UNIT

EXPONENTS = (30, 0, -30, -60)
"""Powers of two that the limbs count. Magnitudes up to 2**60 fit; 2**33 values can be added without overflow."""


SUMS = tuple(f"sum_{i}" for i in range(len(EXPONENTS)))
"""Columns of ``exact_sums``."""


def limbs(value: str) -> list[str]:
    """A double as whole multiples of 2**30, 1, 2**-30 and 2**-60, each a bigint; null stays null.

    SQL in, SQL out, as in all of this module: one text costs the driver one call, an expression tree dozens.
    """
    parts, rest = [], f"({value})"
    for exponent in EXPONENTS[:-1]:
        # Towards zero: a floor would turn a tiny negative value into -1 and a rest that no double can hold.
        whole = f"bigint({rest} * {2.0**-exponent!r}D)"
        parts.append(whole)
        rest = f"({rest} - double({whole}) * {2.0**exponent!r}D)"
    return [*parts, f"bigint(rint({rest} * {2.0 ** -EXPONENTS[-1]!r}D))"]


def exact_sums(value: str) -> list[Column]:
    """Aggregates ``sum_0`` to ``sum_3``: the limbs of the sum of the non-null values, for ``mean_of``."""
    return [F.expr(f"sum({part})").alias(name) for part, name in zip(limbs(value), SUMS, strict=True)]


def mean_of(sums: Sequence[int], n: int) -> float:
    """The mean of n values from the limbs of their sum, rounded once: the same bits as ``Moments.mean``.

    >>> mean_of([0, 1, 0, 0], 3)
    0.3333333333333333
    """
    total = sum(part << (exponent + UNIT) for part, exponent in zip(sums, EXPONENTS, strict=True))
    return total / (n << UNIT)


def exact_mean(value: str) -> Column:
    """Aggregate: mean of the non-null values, from exact sums, rounded a fixed number of times.

    Not always the bits of ``mean_of``, which rounds once.
    """
    parts = zip(limbs(value), EXPONENTS, strict=True)
    total = " + ".join(f"double(sum({part})) * {2.0**exponent!r}D" for part, exponent in parts)
    return F.expr(f"(0D + {total}) / count({value})")


def limbs_of(values: Floats) -> list[Floats]:
    """The same limbs as ``limbs``, of an array; doubles that hold whole numbers.

    >>> [part.astype(int).tolist() for part in limbs_of(np.array([2.0**31 + 1.5, -0.25]))]
    [[2, 0], [1, 0], [536870912, -268435456], [0, 0]]
    """
    parts, rest = [], values
    largest = float(np.abs(values).max(initial=0.0))
    for exponent in EXPONENTS[:-1]:
        whole = np.trunc(rest * 2.0**-exponent) if largest >= 2.0**exponent else np.zeros(len(values))
        rest = rest - whole * 2.0**exponent if whole.any() else rest
        parts.append(whole)
    return [*parts, np.rint(rest * 2.0 ** -EXPONENTS[-1])]
