"""What is summed: the pairs that are formed, the names of their sums, and the sums by key.

All sums are whole numbers, so they add up to the same bits in any order, in any batch and on any number of machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.statistics import exact_sums

Ints = npt.NDArray[np.int64]
Name = str | None
"""Name of an experiment; None for rows without one."""

POWERS = {
    1: exact_sums.EXPONENTS,
    2: exact_sums.SQUARE_EXPONENTS,
    3: (150, 120, *exact_sums.SQUARE_EXPONENTS[:-2], *exact_sums.EXPONENTS[2:]),
}
"""Power of a value -> the exponents of the limbs of its sum."""


def _limb_names(kind: str) -> list[str]:
    return [f"{kind}_{i}" for i in range(len(POWERS[len(kind)]))]


def _columns(*kinds: str) -> tuple[str, ...]:
    return tuple(name for kind in kinds for name in _limb_names(kind))


ARM_SUMS = ("users", "n", "with_relevant", "beyond", *_columns("v", "vv", "vvv"))
"""Sums over the users of an experiment: users, those with a value, those with a value and a relevant item, those whose
value is too large to be summed, values, squares, cubes."""
BEFORE_SUMS = ("n_before", *_columns("b", "bb", "bv", "v"))
"""Sums over the users of an experiment who have a value of an earlier date: it, its square, its product with the value,
and the value."""
PAIR_SUMS = ("both", "higher", "lower", *_columns("x", "xx", "y", "yy", "d", "dd", "ddd"))
"""Sums over the users of both experiments: of the baseline (x), the candidate (y) and the difference d = y - x."""
MOST_CELLS = 100_000_000
"""Sums of replicates that one process holds at most."""


@dataclass(frozen=True)
class Request:
    """Which pairs are formed, and how often users are resampled.

    Attributes:
        baseline: The experiment that the others are compared with.
        candidates: Only these; empty = all.
        all_pairs: Every pair, the baseline first, then in the order of the names.
        bootstrap: Replicates of the Poisson bootstrap; 0 = none.
        bootstrap_seed: Its seed.
        flips: Replicates of the sign-flip test; 0 = none.
        flip_seed: Its seed.
        reshuffles: Replicates of the A/A check; 0 = none.
        reshuffle_seed: Its seed.
    """

    baseline: Name = None
    candidates: tuple[str, ...] = ()
    all_pairs: bool = False
    bootstrap: int = 0
    bootstrap_seed: int = 1
    flips: int = 0
    flip_seed: int = 1
    reshuffles: int = 0
    reshuffle_seed: int = 1

    @property
    def most_replicates(self) -> int:
        """The largest number of replicates of any kind."""
        return max(self.bootstrap, self.flips, self.reshuffles)

    def pairs(self, experiments: Sequence[Name]) -> tuple[Ints, Ints]:
        """Indices of baseline and candidate of every pair that these experiments form.

        >>> [places.tolist() for places in Request(baseline="b").pairs(["a", "b", "c"])]
        [[1, 1], [0, 2]]
        >>> [places.tolist() for places in Request(all_pairs=True).pairs(["b", "a", None])]
        [[1, 1, 0], [0, 2, 2]]
        """
        first = [i for i, name in enumerate(experiments) if name is not None and name == self.baseline]
        rest = sorted(set(range(len(experiments))) - set(first), key=lambda i: (experiments[i] is None, experiments[i]))
        chosen = [i for i in rest if not self.candidates or experiments[i] in self.candidates]
        pairs = [(i, j) for i in first for j in chosen]
        if self.all_pairs:
            ordered = [*first, *rest]
            pairs = [(i, j) for k, i in enumerate(ordered) for j in ordered[k + 1 :]]
        return np.array([i for i, _ in pairs], np.int64), np.array([j for _, j in pairs], np.int64)


class Key(NamedTuple):
    """What a sum belongs to; the baseline of an experiment's own sums is the empty text."""

    kind: str
    baseline: Name
    candidate: Name
    segment: str
    metric: str


@dataclass
class Totals:
    """Sums by key; those of several processes can be added.

    Attributes:
        sums: Key -> (c,) whole numbers, in the order of ``ARM_SUMS`` (kind ``arm``), ``BEFORE_SUMS`` (``before``) or
            ``PAIR_SUMS`` (``pair``).
        replicates: Key -> (3, q, r) whole numbers: limbs of q weighted sums in r replicates. The last replicate of
            signs has the sign + for every user: the sum of the data themselves.
    """

    sums: dict[Key, Ints] = field(default_factory=dict)
    replicates: dict[Key, Ints] = field(default_factory=dict)

    def add(self, key: Key, sums: Ints) -> None:
        """Add sums of a key."""
        old = self.sums.get(key)
        self.sums[key] = sums if old is None else old + sums

    def add_replicates(self, key: Key, sums: Ints) -> None:
        """Add weighted sums of a key.

        Raises:
            ConfigError: They no longer fit into memory.
        """
        old = self.replicates.get(key)
        self.replicates[key] = sums if old is None else old + sums
        if old is None and len(self.replicates) * sums.size > MOST_CELLS:
            raise ConfigError(
                f"resampling holds more than {MOST_CELLS:,} sums; ask for fewer replicates, metrics, segments or pairs"
            )
