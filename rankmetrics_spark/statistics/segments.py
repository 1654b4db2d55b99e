"""Ways of splitting users: everyone, each segment column, and combinations of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.schemas import EVERYONE, segment_label

Ints = npt.NDArray[np.int64]


def ways(
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
    >>> for labels, index in ways(["country", "device"], coded, [(0, 1)], 3):
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
        yield _combined([names[i] for i in chosen], [coded[i] for i in chosen])


def _combined(names: Sequence[str], coded: Sequence[tuple[Sequence[str | None], Any]]) -> tuple[list[str], Ints]:
    index = np.zeros(len(coded[0][1]), np.int64)
    for values, own in coded:
        index = index * len(values) + own
    found, compact = np.unique(index, return_inverse=True)
    sizes = [len(values) for values, _ in coded]
    places = np.unravel_index(found, sizes)
    labels = [
        " & ".join(segment_label(name, values[i]) for name, (values, _), i in zip(names, coded, row, strict=True))
        for row in zip(*places, strict=True)
    ]
    return labels, compact.reshape(-1).astype(np.int64)
