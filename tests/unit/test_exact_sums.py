"""Sums of doubles that do not depend on the order, against Python's exact arithmetic."""

import math
import random
from fractions import Fraction

import numpy as np

from rankmetrics_spark import statistics as st


def some_values() -> list[float]:
    """Multiples of 2**-60, the resolution of the sums, with very different sizes and both signs."""
    rng = random.Random(1)
    return [math.ldexp(rng.randint(-(2**52), 2**52), rng.randint(-60, -20)) for _ in range(500)]


def summed(values: list[float]) -> list[int]:
    return [int(part.sum()) for part in st.limbs_of(np.array(values))]


def test_sums_are_exact_in_every_order() -> None:
    values = some_values()
    expected = sum(map(Fraction, values))
    for _ in range(2):
        random.Random(2).shuffle(values)
        # Sum two parts and add the results, as Spark does with partitions.
        parts = [a + b for a, b in zip(summed(values[:123]), summed(values[123:]), strict=True)]
        assert sum(Fraction(2) ** power * n for n, power in zip(parts, st.LIMB_EXPONENTS, strict=True)) == expected
        (total,) = st.exact_total([np.array([part], dtype=object) for part in parts])
        assert Fraction(total, 2**st.LIMB_UNIT) == expected


def test_a_mean_differs_from_the_exact_mean_by_a_few_roundings_only() -> None:
    values = some_values()
    expected = sum(map(Fraction, values)) / len(values)
    sums = [np.array([part]) for part in summed(values)]
    (mean,) = st.exact_mean(sums, np.array([len(values)]))
    assert math.isclose(mean, float(expected), rel_tol=1e-12)
    objects = [np.array([part], dtype=object) for part in summed(values)]
    total = st.exact_total(objects)
    assert st.Moments(np.array([len(values)], dtype=object), total, total).mean[0] == float(expected)


def test_the_mean_of_no_values_is_nan() -> None:
    nothing = [np.zeros(1, np.int64)] * len(st.LIMB_EXPONENTS)
    assert np.isnan(st.exact_mean(nothing, np.array([0]))).all()


def test_squares_of_the_largest_values_are_summed_exactly() -> None:
    values = np.array([st.LARGEST_SUMMAND, 2.0**45 + 1, 0.5])
    parts = st.limbs_of(values * values, st.SQUARE_EXPONENTS)
    sums = [np.array([int(part.sum())], dtype=object) for part in parts]
    (total,) = st.exact_total(sums, st.SQUARE_EXPONENTS)
    # (2**45 + 1)**2 = 2**90 + 2**46 + 1, and a double keeps 53 bits: the 1 is rounded away.
    assert Fraction(total, 2**st.LIMB_UNIT) == 2**120 + 2**90 + 2**46 + Fraction(1, 4)
