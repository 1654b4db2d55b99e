"""Which pairs are formed of experiments, and which rows of them: what is asked for, and moments of the sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rankmetrics_spark import statistics as st
from rankmetrics_spark.comparison import measures
from rankmetrics_spark.comparison.measures import KINDS, LIMBS, SHAPES, Ints, Key, Name, Totals
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.errors import ConfigError, unknown
from rankmetrics_spark.schemas import EVERYONE


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
        drop_shared: Whether users of more than one of these experiments are left out.
        over_lists: Whether means are over lists instead of users.
        clustered: Whether clusters of users are the unit.
        only_changed: Whether a pair is made of the users whose lists differ.
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
    drop_shared: bool = False
    over_lists: bool = False
    clustered: bool = False
    only_changed: bool = False

    @classmethod
    def of(cls, comparison: Comparison) -> Request:
        """What a comparison asks for."""
        bootstrap, flips, reshuffles = comparison.bootstrap, comparison.randomization, comparison.aa_check
        return cls(
            baseline=comparison.baseline,
            candidates=comparison.candidates,
            all_pairs=comparison.pairs == "all",
            drop_shared=comparison.shared_users == "drop",
            over_lists=comparison.mean_over == "lists",
            clustered=comparison.cluster is not None,
            only_changed=comparison.only_changed,
            bootstrap=bootstrap.replicates if bootstrap else 0,
            bootstrap_seed=bootstrap.seed if bootstrap else 1,
            flips=flips.replicates if flips else 0,
            flip_seed=flips.seed if flips else 1,
            reshuffles=reshuffles.replicates if reshuffles else 0,
            reshuffle_seed=reshuffles.seed if reshuffles else 1,
        )

    @property
    def most_replicates(self) -> int:
        """The largest number of replicates of any kind."""
        return max(self.bootstrap, self.flips, self.reshuffles)

    def n_pairs(self, n_experiments: int) -> int:
        """How many pairs so many experiments form, if the baseline and the candidates are among them."""
        if self.all_pairs:
            return n_experiments * (n_experiments - 1) // 2
        return (len(self.candidates) or n_experiments - 1) if self.baseline is not None else 0

    def cells(self, n_experiments: int) -> int:
        """How many whole numbers the replicates of one metric of one segment are.

        >>> Request("a", bootstrap=1_000).cells(2)  # 3 limbs x 1,000 x (2 sums of 2 experiments + 3 sums of a pair)
        21000
        """
        pairs = self.n_pairs(n_experiments)
        of_each = {
            "bootstrap_arm": n_experiments * self.bootstrap,
            "bootstrap_pair": pairs * self.bootstrap,
            "flips": pairs * (self.flips + 1) * bool(self.flips),
            "aa_paired": pairs * (self.reshuffles + 1) * bool(self.reshuffles),
            "aa_independent": pairs * (self.reshuffles + 1) * bool(self.reshuffles),
        }
        return LIMBS * sum(SHAPES[kind] * n for kind, n in of_each.items())

    def refuse_too_many_replicates(self, n_experiments: int, n_metrics: int) -> None:
        """Refuse what could not be held, before anything is resampled; segments come on top of it.

        Raises:
            ConfigError: Says how many sums there would be, and how many replicates can be had.
        """
        n = self.cells(n_experiments) * n_metrics
        if n > measures.MOST_CELLS:
            raise ConfigError(
                f"comparison: {self.most_replicates:,} replicates of {self.n_pairs(n_experiments):,} pairs and "
                f"{n_metrics:,} metrics are {n:,} numbers; allowed: {measures.MOST_CELLS:,}, so at most "
                f"{self.most_replicates * measures.MOST_CELLS // n:,} replicates, or fewer pairs or metrics"
            )

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


def experiments_of(totals: Totals) -> list[Name]:
    """The experiments that have users, in the order of their names; None last."""
    kinds = ("arm", "shared")
    return by_name({key.candidate for key in totals.sums if key.kind in kinds and key.segment == EVERYONE})


def by_name(experiments: Iterable[Name]) -> list[Name]:
    """Experiments in the order of their names; None last.

    >>> by_name(["b", None, "a"])
    ['a', 'b', None]
    """
    return sorted(experiments, key=lambda name: (name is None, name))


def refuse_unknown(names: Sequence[str | None], known: Sequence[Name]) -> None:
    """Refuse the name of an experiment that has no users."""
    allowed = [str(name) for name in known]
    for name in names:
        if name is not None and name not in allowed:
            raise ConfigError(unknown("experiment", name, allowed))


def replicate_means(sums: Ints) -> st.Floats:
    """(r,) weighted means from weighted sums of values and of ones; NaN where nobody has a weight."""
    values, weights = st.weighted_totals(sums)
    return np.asarray(np.divide(values, weights, out=np.full(len(values), np.nan), where=weights > 0))


def row_keys(totals: Totals, request: Request, known: Sequence[Name]) -> list[Key]:
    """One key per pair, segment and metric that one of the two experiments has, in this order."""
    cells: dict[Name, dict[tuple[str, str], None]] = {}
    for key in totals.sums:
        if key.kind in ("arm", "shared"):
            cells.setdefault(key.candidate, {})[key.segment, key.metric] = None
    rows = []
    for i, j in zip(*request.pairs(known), strict=True):
        cells_of_pair = dict.fromkeys([*cells[known[i]], *cells[known[j]]])
        rows += [Key("pair", known[i], known[j], segment, metric) for segment, metric in sorted(cells_of_pair)]
    return rows


def large_enough(totals: Totals, keys: Sequence[Key], min_users: int) -> list[Key]:
    """The rows of all users, and of the segments with so many users in both experiments."""
    enough = np.minimum(*(sums["users"] for sums in totals.sides("arm", keys))) >= min_users
    return [key for key, keep in zip(keys, enough, strict=True) if keep or key.segment == EVERYONE]


def arm_moments(sums: st.Sums) -> st.Moments:
    """Moments of experiments; where means are over lists, those of the users' influence on them.

    A user's lists belong together, so the user stays the unit of every error: see ``statistics.RatioSums``.
    """
    return sums.moments("v", "n") if sums.measure == KINDS["arm"] else sums.ratio("y", "n").moments


def pair_moments(sums: st.Sums) -> st.PairMoments:
    """The same of the users of both experiments of pairs."""
    if sums.measure == KINDS["pair"]:
        return st.PairMoments(*(sums.moments(name, "both") for name in "xyd"))
    shared = (sums[name] for name in ("xy", "xn", "my", "mn"))
    return st.RatioPairSums(sums.ratio("x", "m"), sums.ratio("y", "n"), *shared).moments
