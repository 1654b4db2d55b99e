"""Sums of doubles whose bits depend only on the values: not on row order, partitions or cores.

A double is split into whole multiples of fixed powers of two (limbs). Sums of whole numbers are exact in any order, so
limbs can be added in Python and in SQL alike; they are put together once, at the end. Values up to
``LARGEST_SUMMAND`` are kept to a resolution of 2**-60 (about 1e-18).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LIMB_UNIT = 60
"""The smallest limb counts multiples of 2**-LIMB_UNIT."""
LIMB_EXPONENTS = (30, 0, -30, -LIMB_UNIT)
"""Powers of two that the limbs count. Magnitudes up to 2**60 fit; 2**33 values can be added without overflow."""
SQUARE_EXPONENTS = (90, 60, *LIMB_EXPONENTS)
"""The same for squares of such magnitudes."""
POWERS = {1: LIMB_EXPONENTS, 2: SQUARE_EXPONENTS, 3: (150, 120, *SQUARE_EXPONENTS[:-2], *LIMB_EXPONENTS[2:])}
"""Factors of a product of such values -> the powers of two that its limbs count."""
LARGEST_SUMMAND = 2.0**60
"""The largest magnitude of a value that can be summed."""


def limbs_of(values: Floats, exponents: Sequence[int] = LIMB_EXPONENTS) -> list[Floats]:
    """Split each value into whole multiples of powers of two: by default of 2**30, 1, 2**-30 and 2**-60.

    Args:
        values: (n,) doubles up to ``LARGEST_SUMMAND``, or their squares.
        exponents: ``LIMB_EXPONENTS``, or ``SQUARE_EXPONENTS`` for squares.

    Returns:
        One (n,) array per power of two, largest first; doubles that hold whole numbers below 2**31.

    >>> [part.astype(int).tolist() for part in limbs_of(np.array([2.0**31 + 1.5, -0.25]))]
    [[2, 0], [1, 0], [536870912, -268435456], [0, 0]]
    """
    parts, rest = [], values
    largest = float(np.abs(values).max(initial=0.0))
    none = np.zeros(len(values))
    for exponent in exponents[:-1]:
        # Rounded towards zero: a floor would turn a tiny negative value into -1 and a rest that no double can hold.
        whole = np.trunc(rest * 2.0**-exponent) if largest >= 2.0**exponent else none
        rest = rest - whole * 2.0**exponent if whole.any() else rest
        parts.append(whole)
    return [*parts, np.rint(rest * 2.0 ** -exponents[-1])]


def limbs_of_products(products: Iterable[tuple[Floats, int]]) -> list[Floats]:
    """The limbs of several columns of products, one after the other, in the order of ``limb_columns``.

    Args:
        products: (n,) values, and how many factors up to ``LARGEST_SUMMAND`` each of them has.
    """
    return [limb for values, factors in products for limb in limbs_of(values, POWERS[factors])]


def group_sums(columns: Iterable[npt.NDArray[Any]], group: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
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


def exact_total(sums: Sequence[npt.NDArray[Any]], exponents: Sequence[int] = LIMB_EXPONENTS) -> npt.NDArray[Any]:
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


def limb_columns(*names: str) -> tuple[str, ...]:
    """Columns of a table of sums; a name has a letter for each factor of what is summed.

    >>> limb_columns("v")
    ('v_0', 'v_1', 'v_2', 'v_3')
    """
    return tuple(f"{name}_{i}" for name in names for i in range(len(POWERS[len(name)])))


def total_of(table: npt.NDArray[Any], columns: Sequence[str], name: str) -> npt.NDArray[Any]:
    """The sum with this name, put together from the limbs of a (g, c) table with these columns; (g,) as above."""
    at, exponents = columns.index(f"{name}_0"), POWERS[len(name)]
    return exact_total([table[:, at + i].astype(object) for i in range(len(exponents))], exponents)


def exact_mean(sums: Sequence[npt.NDArray[Any]], n: npt.NDArray[np.int64]) -> Floats:
    """Mean from sums of limbs, rounded a fixed number of times, for many small groups at once.

    Args:
        sums: One (g,) array per power of two, as ``limbs_of`` orders them.
        n: (g,) number of values.

    Returns:
        (g,) means; NaN where n is 0.

    >>> exact_mean([np.array([0]), np.array([1]), np.array([0]), np.array([0])], np.array([4])).tolist()
    [0.25]
    """
    added = np.zeros(len(n))
    for part, exponent in zip(sums, LIMB_EXPONENTS, strict=True):
        added = added + part.astype(np.float64) * 2.0**exponent
    return np.asarray(np.divide(added, n, out=np.full(len(n), np.nan), where=n > 0))
