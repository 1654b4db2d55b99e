"""Bootstrap and sign flips: random weights of a user depend on the seed and on a hash of the user, on nothing else.

A replicate is therefore the same in any order of the users, in any batches and on any platform, and the sums below are
exact, so that their bits are the same too. What replicates say is in ``replicates.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.statistics import exact_sums
from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.replicates import (
    aa_share_independent,
    aa_share_paired,
    acceleration_of_difference,
    bca,
    percentile,
)

__all__ = [
    "RESAMPLING_LIMBS",
    "aa_share_independent",
    "aa_share_paired",
    "acceleration_of_difference",
    "bca",
    "percentile",
    "poisson_weights",
    "random_bits",
    "random_signs",
    "weighted_sums",
    "weighted_totals",
]

Words = npt.NDArray[np.uint64]

RESAMPLING_LIMBS = tuple(2.0**exponent for exponent in exact_sums.LIMB_EXPONENTS[:3])
"""What the limbs of ``weighted_sums`` count: 2**30, 1 and 2**-30; finer is far below the error of the resampling."""

POISSON_COUNTS = (24109, 24110, 12055, 4017, 1005, 201, 34, 4, 1)
"""How many of the 65,536 values of a 16-bit word mean the weight 0, 1, ..., 8.

Each is within 1.3 of 65,536 * exp(-1) / k!; mean and variance are exactly 1, the third and fourth central moments
1.00003 and 3.9998 instead of 1 and 4.
"""

_WEIGHT_OF_WORD = np.repeat(np.arange(len(POISSON_COUNTS), dtype=np.uint8), POISSON_COUNTS)
_SIGNS, _POISSON = range(2)
"""Uses of the bits: the same seed gives each its own."""
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_WORDS_AT_ONCE = 2**14
"""As many words as stay in the processor's cache while they are hashed."""
_ROWS_AT_ONCE = 2**11
"""Rows of a matrix product: sums of that many limbs below 2**31 with weights below 2**11 stay below 2**53."""


def random_bits(keys: Words, seed: int, count: int) -> Words:
    """Random words of each user: a hash of (key, seed, counter).

    Args:
        keys: (n,) hashes of the user ids.
        seed: Any whole number; its lowest 64 bits count.
        count: Words per user.

    Returns:
        (n, count) words.

    Source: Steele et al., Fast Splittable Pseudorandom Number Generators (2014): SplitMix64, one stream per key.

    >>> alone, second = np.array([7], np.uint64), np.array([8, 7], np.uint64)
    >>> bool((random_bits(alone, 1, 2)[0] == random_bits(second, 1, 2)[1]).all())
    True
    """
    start = np.array([(seed * _GOLDEN + _GOLDEN) & _MASK], np.uint64)
    _mix(start)
    states = keys.astype(np.uint64) ^ start
    _mix(states)
    counters = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    words = np.empty((len(keys), count), np.uint64)
    for rows in _slices(len(keys), max(1, _WORDS_AT_ONCE // max(count, 1))):
        np.add(states[rows, None], counters, out=words[rows])
        _mix(words[rows])
    return words


def _mix(words: Words) -> None:
    """SplitMix64's finalizer, in place."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)


def random_signs(keys: Words, seed: int, replicates: int) -> npt.NDArray[np.int8]:
    """Random signs for the randomisation test: +1 or -1 with the same probability.

    Args:
        keys: (n,) hashes of the user ids.
        seed: Any whole number.
        replicates: R.

    Returns:
        (n, R) of -1 and 1.
    """
    octets = _bits(keys, seed, _SIGNS, -(-replicates // 64)).view(np.uint8)
    ones = np.unpackbits(octets, axis=1, count=replicates, bitorder="little").view(np.int8)
    ones *= 2
    ones -= 1
    return ones


def poisson_weights(keys: Words, seed: int, replicates: int) -> npt.NDArray[np.uint8]:
    """How often each user is in each bootstrap replicate: a Poisson number of mean 1.

    Args:
        keys: (n,) hashes of the user ids.
        seed: Any whole number.
        replicates: R.

    Returns:
        (n, R) of 0 to 8; ``POISSON_COUNTS`` says how close that is to a Poisson number.

    Source: Chamandy et al., Estimating Uncertainty for Massive Data Streams (2012).
    """
    words = _bits(keys, seed, _POISSON, -(-replicates // 4)).view("<u2")
    return np.take(_WEIGHT_OF_WORD, words[:, :replicates])


def _bits(keys: Words, seed: int, use: int, count: int) -> Words:
    """(n, count) words for one use, in an order of bytes that is the same on every platform."""
    return random_bits(keys, seed * 4 + use, count).astype("<u8", copy=False)


def weighted_sums(weights: npt.NDArray[Any], values: Floats) -> npt.NDArray[np.int64]:
    """Sums of weighted values of each replicate, exact: the same bits in any order of rows and split into batches.

    Values count without what they have below 2**-30, as in the first limbs of ``exact_sums.limbs_of``. A sum that
    replicates are compared with must be cut off likewise.

    Args:
        weights: (n, R) whole numbers below 2**11: Poisson weights or signs.
        values: (n, k) finite doubles below 2**60; 0 for a user without a value.

    Returns:
        (3, R, k) whole multiples of ``RESAMPLING_LIMBS``. Sums of batches add up; ``weighted_totals`` makes doubles.

    >>> weighted_sums(np.array([[1, 2], [1, 0]]), np.array([[0.5], [3.0]])).tolist()
    [[[0], [0]], [[3], [0]], [[536870912], [1073741824]]]
    """
    n, k = values.shape
    parts = [limb.reshape(k, n) for limb in exact_sums.limbs_of(values.T.reshape(-1))[: len(RESAMPLING_LIMBS)]]
    sums = np.zeros((len(RESAMPLING_LIMBS), weights.shape[1], k), np.int64)
    # Many columns are the same, such as who has a value of each metric: each is summed once, and zeros not at all.
    places: dict[bytes, list[tuple[int, int]]] = {}
    for i, part in enumerate(parts):
        for j in range(k) if part.any() else ():
            if part[j].any():
                places.setdefault(part[j].tobytes(), []).append((i, j))
    if places:
        columns = np.stack([parts[i][j] for (i, j), *_ in places.values()])
        found = np.zeros((len(columns), weights.shape[1]), np.int64)
        for rows in _slices(n, _ROWS_AT_ONCE):
            found += (columns[:, rows] @ weights[rows].astype(np.float64)).astype(np.int64)
        for same, of_column in zip(places.values(), found, strict=True):
            for i, j in same:
                sums[i, :, j] = of_column
    return sums


def weighted_totals(sums: npt.NDArray[Any]) -> Floats:
    """Limbs of ``weighted_sums``, added over all batches -> doubles.

    Args:
        sums: (3, ...) whole numbers.

    Returns:
        (...) sums.
    """
    return np.asarray(np.tensordot(np.array(RESAMPLING_LIMBS), sums.astype(np.float64), axes=1))


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, n, size))
