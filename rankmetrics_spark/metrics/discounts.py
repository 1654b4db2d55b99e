"""What each rank weighs in a sum, and the mean weight of the ranks that tied items share.

A weight is a function from ranks, (e,) 1-based, to their weights, (e,). NumPy computes logarithms, exponentials and
powers of a contiguous array element by element: on one machine, an element has the same bits at any offset in an array
of any length. A list therefore has the same value, to the last bit, in any row order, batch or partition and on any
core. Another NumPy version or another type of processor may round the last bit differently; across those, values agree
within 1e-12.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from rankmetrics_spark.metrics.batch import Floats, Ints
from rankmetrics_spark.metrics.conventions import Convention

Weight: TypeAlias = Callable[[Ints], Floats]

#: The cut-off of a metric without one.
UNCUT = 2**62


def last_rank(k: int | None) -> int:
    """The last rank that counts down to a cut-off.

    >>> last_rank(10), last_rank(None) == UNCUT
    (10, True)
    """
    return UNCUT if k is None else k


def unit(ranks: Ints) -> Floats:
    """(e,) weight 1 at every rank."""
    return np.ones(len(ranks))


def itself(ranks: Ints) -> Floats:
    """(e,) weight i at rank i.

    >>> itself(np.array([1, 4])).tolist()
    [1.0, 4.0]
    """
    return ranks.astype(np.float64)


def reciprocal(ranks: Ints) -> Floats:
    """(e,) weight 1/rank.

    >>> reciprocal(np.array([1, 2, 4])).tolist()
    [1.0, 0.5, 0.25]
    """
    return np.asarray(1.0 / ranks)


def discount(ranks: Ints) -> Floats:
    """(e,) weight 1/log2(rank + 1) of DCG.

    Source: Järvelin and Kekäläinen, Cumulated Gain-Based Evaluation of IR Techniques (TOIS 2002), in the form of
    Burges et al. (ICML 2005), which discounts rank 2 too.

    >>> discount(np.array([1, 3, 7])).tolist() == [1 / 1, 1 / 2, 1 / 3]
    True
    """
    return np.asarray(1.0 / np.log2(ranks + 1.0))


@lru_cache(maxsize=32)
def geometric(p: float) -> Weight:
    """The weight p^(rank - 1) of rank-biased precision; the same function for the same p.

    Source: Moffat and Zobel, Rank-Biased Precision for Measurement of Retrieval Effectiveness (TOIS 2008).

    >>> geometric(0.5)(np.array([1, 2, 3])).tolist()
    [1.0, 0.5, 0.25]
    """
    return lambda ranks: np.asarray(np.power(p, ranks - 1.0))


@lru_cache(maxsize=64)
def _running_sums(weight: Weight, size: int) -> Floats:
    return np.concatenate([[0.0], np.cumsum(weight(np.arange(1, size)))])


def running_sums(weight: Weight, longest: int) -> Floats:
    """Sum of the weights of the ranks 1 to i, at index i, for every i from 0 to at least ``longest``.

    Tables are kept and have a power of two as their length, so few are built. ``np.cumsum`` adds from the left, so an
    entry has the same bits in a table of any length.

    >>> running_sums(reciprocal, 2)[:3].tolist()
    [0.0, 1.0, 1.5]
    """
    return _running_sums(weight, 1 << max(6, int(longest + 1).bit_length()))


def span(weight: Weight, first: Ints, last: Ints) -> Floats:
    """Sum of the weights of the ranks first to last; 0 where ``last`` is below ``first``.

    One rank is weighed directly: a single deep rank must not cost a table of all ranks above it. Ranges of more ranks
    belong to items that exist, so the longest list bounds their table.

    Args:
        weight: A function of ranks.
        first: (e,) first rank of each range.
        last: (e,) last rank of each range.

    Returns:
        (e,) sums.

    >>> span(reciprocal, np.array([2**31 - 1, 2, 5]), np.array([2**31 - 1, 3, 4])).round(6).tolist()
    [0.0, 0.833333, 0.0]
    """
    table = running_sums(weight, int(np.where(last > first, last, 0).max(initial=0)))
    end = len(table) - 1
    above = np.minimum(first - 1, end)
    values = np.asarray(table[np.minimum(np.maximum(last, first - 1), end)] - table[above])
    single = np.flatnonzero(first == last)
    values[single] = weight(first[single])
    return values


def spread(weight: Weight, first: Ints, last: Ints, cut: int | Ints) -> Floats:
    """(e,) mean weight of the ranks first to last, where ranks below the cut-off weigh 0.

    >>> spread(reciprocal, np.array([1, 1]), np.array([1, 4]), 2).tolist()
    [1.0, 0.375]
    """
    return np.asarray(span(weight, first, np.minimum(last, cut)) / (last - first + 1))


#: The largest gain, so that sums of gains stay finite.
LARGEST = 2.0**1000
#: Discounted sums from here on count as infinite: one of their gains may have been cut to ``LARGEST``.
SUMMABLE = 2.0**900


def gain(grade: Floats, convention: Convention) -> Floats:
    """Gain of each grade, at most ``LARGEST``; 0 for a grade of 0 or less and for an unjudged item.

    Args:
        grade: (e,) grades; NaN = unjudged.
        convention: Its ``gain``, ``gain_table`` and, for ``gain: binary``, ``relevant_from`` are used.

    Returns:
        (e,) gains.

    >>> gain(np.array([np.nan, -1.0, 0.0, 3.0]), Convention(gain="exponential")).tolist()
    [0.0, 0.0, 0.0, 7.0]
    >>> gain(np.array([3.0, 4.0, 5.0]), Convention(gain="binary", relevant_from=4)).tolist()
    [0.0, 1.0, 1.0]
    """
    positive = np.where(grade > 0, grade, 0.0)
    gains = np.minimum(GAINS[convention.gain](positive, convention), LARGEST)
    return np.asarray(np.where(positive > 0, gains, 0.0))


def exponential(grade: Floats) -> Floats:
    """2^g - 1 of each grade, exact for whole grades.

    Source: Burges et al., Learning to Rank Using Gradient Descent (ICML 2005).

    >>> exponential(np.array([1.0, 31.0])).tolist()
    [1.0, 2147483647.0]
    """
    return power_of_two(grade) - 1.0


def power_of_two(exponent: Floats) -> Floats:
    """2^x of each element, exact for whole numbers on every platform; infinite where x is too large.

    >>> power_of_two(np.array([0.5, 4.0])).round(6).tolist()
    [1.414214, 16.0]
    """
    fraction, whole = np.modf(exponent)
    # Most grades are whole, and 2^0 is 1.
    factor = np.exp2(fraction) if fraction.any() else 1.0
    # ldexp takes C integers: cap what overflows to infinity anyway.
    with np.errstate(over="ignore"):
        return np.asarray(np.ldexp(factor, np.minimum(whole, 1100.0).astype(np.int64)))


def _gain_of_table(grade: Floats, convention: Convention) -> Floats:
    grades, gains = np.array(convention.gain_table).T
    return np.concatenate([[0.0], gains])[np.searchsorted(grades, grade, side="right")]


GAINS: dict[str, Callable[[Floats, Convention], Floats]] = {
    "linear": lambda grade, _: grade,
    "exponential": lambda grade, _: exponential(grade),
    "binary": lambda grade, convention: convention.relevant(grade).astype(np.float64),
    "table": _gain_of_table,
}
