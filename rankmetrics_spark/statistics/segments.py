"""Ways of splitting users, what their mix changes, and whether an effect differs between them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rankmetrics_spark.schemas import EVERYONE, segment_label
from rankmetrics_spark.statistics.exact_sums import Floats, Ints, Moments


def splits(
    names: Sequence[str],
    coded: Sequence[tuple[Sequence[str | None], Any]],
    combinations: Sequence[Sequence[int]],
    n: int,
) -> Iterator[tuple[list[str], Ints]]:
    """The labels of each way of splitting n rows, and the index of each row's label.

    Args:
        names: How each segment is called.
        coded: Per segment: its values, and the (n,) index of each row's value.
        combinations: Indices of the segments of each combination.
        n: Number of rows.

    >>> coded = [(["de", "fr"], np.array([0, 1, 1])), (["web"], np.array([0, 0, 0]))]
    >>> for labels, index in splits(["country", "device"], coded, [(0, 1)], 3):
    ...     print(labels, index.tolist())
    ['all'] [0, 0, 0]
    ['country=de', 'country=fr'] [0, 1, 1]
    ['device=web'] [0, 0, 0]
    ['country=de & device=web', 'country=fr & device=web'] [0, 1, 1]
    """
    yield [EVERYONE], np.zeros(n, np.int64)
    for name, (values, index) in zip(names, coded, strict=True):
        yield [segment_label(name, value) for value in values], index
    for chosen in combinations:
        index = np.zeros(n, np.int64)
        for i in chosen:
            index = index * len(coded[i][0]) + coded[i][1]
        distinct, compact = np.unique(index, return_inverse=True)
        places = np.unravel_index(distinct, [len(coded[i][0]) for i in chosen])
        labels = [
            " & ".join(segment_label(names[i], coded[i][0][place]) for i, place in zip(chosen, row, strict=True))
            for row in zip(*places, strict=True)
        ]
        yield labels, compact.reshape(-1).astype(np.int64)


def decompose(baseline: Moments, candidate: Moments) -> tuple[Floats, Floats]:
    """Split a difference of means into the mix of segments and the change within segments.

    With shares of users p, q and means a, b of a segment in baseline and candidate, and the means A, B over everyone:

        within = (p + q) / 2 * (b - a)
        mix    = (q - p) * ((a + b) / 2 - (A + B) / 2)

    Summed over the segments, both make B - A. A segment that grew adds to the mix if its mean is above that of
    everyone. A segment that only one experiment has can have changed nothing within: all of it is mix.

    Args:
        baseline: Moments of arrays (g, s): the s segments of one column, which share no user.
        candidate: The same segments; one that an experiment lacks has n = 0.

    Returns:
        (g, s) mix: what a segment adds because its share of the users differs; (g, s) within: what it adds because its
        mean does. NaN where an experiment has no user at all.

    Source: Kitagawa, Components of a Difference Between Two Rates (1955).

    >>> groups = [Moments.of([1.0, 1.0, 0.0]), Moments.of([1.0, 0.0, 0.0])]  # a segment each would be a column
    >>> mix, within = decompose(*(Moments(*(x[:, None] for x in (m.n, m.total, m.squares))) for m in groups))
    >>> round(float(within[0, 0]), 6), float(mix[0, 0])
    (-0.333333, 0.0)
    """
    means = [arm.mean for arm in (baseline, candidate)]
    # A segment that one experiment lacks takes the other's mean.
    a, b = (np.where(np.isnan(mine), other, mine) for mine, other in (means, means[::-1]))
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    p, q = _shares(baseline), _shares(candidate)
    everyone = ((p * a).sum(axis=-1) + (q * b).sum(axis=-1))[..., None] / 2
    return (q - p) * ((a + b) / 2 - everyone), (p + q) / 2 * (b - a)


def _shares(arm: Moments) -> Floats:
    """(g, s) share of a group's users in each segment; NaN without users."""
    n = arm.n.astype(float)
    users = n.sum(axis=-1, keepdims=True)
    return np.asarray(n / np.where(users > 0, users, np.nan))
