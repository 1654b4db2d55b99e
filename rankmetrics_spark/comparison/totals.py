"""What is summed: the pairs that are formed, the names of their sums, and the sums by key.

All sums are whole numbers, so they add up to the same bits in any order, in any batch and on any number of machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankmetrics_spark import statistics as st
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.errors import ConfigError, unknown
from rankmetrics_spark.schemas import EVERYONE

Ints = npt.NDArray[np.int64]
Name = str | None
"""Name of an experiment; None for rows without one."""

ARM_SUMS = ("users", "n", "with_relevant", "beyond", "hits", "misses", *st.limb_columns("v", "vv", "vvv"))
"""Sums over the users of an experiment: users, those with a value, those with a value and a relevant item, those whose
value is too large to be summed, those whose value is not 0, and not 1, values, squares, cubes."""
BEFORE_SUMS = ("n_before", *st.limb_columns("b", "bb", "bv", "v"))
"""Sums over the users of an experiment who have a value of an earlier date: it, its square, its product with the value,
and the value."""
BEFORE_PAIR_SUMS = ("n_before", *st.limb_columns("x", "xx", "xd", "xb"))
"""Sums over the users of both experiments who have an earlier value in each: the difference of the two (x), its square,
its products with the difference of the values and with the baseline's value."""
PAIR_SUMS = ("both", "higher", "lower", *st.limb_columns("x", "xx", "y", "yy", "d", "dd", "ddd"))
"""Sums over the users of both experiments: of the baseline (x), the candidate (y) and the difference d = y - x."""
ARM_LISTS, PAIR_LISTS = "arm_lists", "pair_lists"
"""Kinds of sums for means over lists."""
LIST_SUMS = ("users", *st.limb_columns("y", "n", "yy", "yn", "nn"))
"""Sums over the users of an experiment who have a value: their lists (n), lists times value (y), products."""
LIST_PAIR_SUMS = (
    "both",
    *st.limb_columns("x", "m", "xx", "xm", "mm", "y", "n", "yy", "yn", "nn", "xy", "xn", "my", "mn"),
)
"""The same over the users of both experiments: of the baseline (x, m) and the candidate (y, n), and their products."""
LEFT_OUT, LEFT_OUT_PAIR = "left_out", "left_out_pair"
"""Kinds of sums of what has no value: over the users of an experiment, and of both experiments of a pair."""
LEFT_OUT_SUMS = ("users", *st.limb_columns("t", "tt"))
"""Sums over the users with a list without a value: the share of these lists (t; 1 without any value), its square. Over
the users of both experiments: what t is more in the candidate. There are none where every list has a value."""
SHARED = "shared"
"""Kind of the one sum of an experiment that counts its users who are left out because they are in another one too."""
ALL_PAIRED = "all_paired"
"""Kind of the one sum of a pair that counts the users of both, whether their lists differ or not."""
MEMBERS = "members"
"""Kind of the one sum of an experiment that counts the users of its clusters who have a value."""
DAY = "day"
"""Kind of the sums of an experiment on a date of the period, which is their segment: users with a list, and those of
them with a relevant item."""
DAY_VALUES, VALUE_UNIT = "day_values", 2**20
"""Kind of the sums of a metric of an experiment on a date, which is their segment: users with a value, and their
values, each rounded to a whole number of these parts, so that they add up to the same bits on any engine."""
ALONE = "alone"
"""Kind of the one sum of an experiment that counts its users without a cluster."""
LIMBS = len(st.RESAMPLING_LIMBS)
"""Whole numbers that make up a sum of a replicate."""
SHAPES = {"bootstrap_arm": 2, "bootstrap_pair": 3, "flips": 2, "aa_paired": 2, "aa_independent": 3}
"""Kind of replicates -> how many weighted sums it has."""
MOST_CELLS = 100_000_000
"""Whole numbers of replicates that one process holds at most, of 8 bytes each."""


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
        if n > MOST_CELLS:
            raise ConfigError(
                f"comparison: {self.most_replicates:,} replicates of {self.n_pairs(n_experiments):,} pairs and "
                f"{n_metrics:,} metrics are {n:,} numbers; allowed: {MOST_CELLS:,}, so at most "
                f"{self.most_replicates * MOST_CELLS // n:,} replicates, or fewer pairs or metrics"
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
        sums: Key -> (c,) whole numbers, in the order of ``ARM_SUMS`` (kind ``arm``), ``BEFORE_SUMS`` (``before``),
            ``BEFORE_PAIR_SUMS`` (``before_pair``) or ``PAIR_SUMS`` (``pair``); for means over lists also of
            ``LIST_SUMS`` and ``LIST_PAIR_SUMS``.
        replicates: Key -> (3, q, r) whole numbers: limbs of q weighted sums in r replicates. The last replicate of
            signs has the sign + for every user: the sum of the data themselves.
        n_cells: Numbers in ``replicates``.
    """

    sums: dict[Key, Ints] = field(default_factory=dict)
    replicates: dict[Key, Ints] = field(default_factory=dict)
    n_cells: int = 0
    _pieces: dict[Key, dict[int, Ints]] = field(default_factory=dict)

    def add(self, key: Key, sums: Ints) -> None:
        """Add sums of a key."""
        old = self.sums.get(key)
        self.sums[key] = sums if old is None else old + sums

    def add_replicates(self, key: Key, sums: Ints) -> None:
        """Add weighted sums of a key; refuse more than fit into memory."""
        old = self.replicates.get(key)
        self.replicates[key] = sums if old is None else old + sums
        self._count(0 if old is not None else sums.size)

    def add_piece(self, key: Key, piece: int, sums: Ints) -> None:
        """Add a piece of the weighted sums of a key; ``joined`` puts the pieces together."""
        pieces = self._pieces.setdefault(key, {})
        old = pieces.get(piece)
        pieces[piece] = sums if old is None else old + sums
        self._count(0 if old is not None else sums.size)

    def joined(self) -> Totals:
        """The same, with the pieces of each key as one array."""
        for key in [*self._pieces]:
            pieces = self._pieces.pop(key)
            whole = np.concatenate([pieces[place] for place in sorted(pieces)])
            self.replicates[key] = whole.reshape(LIMBS, SHAPES[key.kind], -1)
        return self

    def _count(self, n: int) -> None:
        self.n_cells += n
        if self.n_cells > MOST_CELLS:
            raise ConfigError(
                f"comparison: the replicates of all pairs, metrics and segments are more than {MOST_CELLS:,} numbers; "
                "allowed: fewer replicates, pairs, metrics or segments"
            )


BASELINE, CANDIDATE = 1, 2
"""Where a key of a pair holds the names of its experiments."""


def experiments_of(totals: Totals) -> list[Name]:
    """The experiments that have users, in the order of their names; None last."""
    kinds = ("arm", SHARED)
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


def arm(key: Key, place: int) -> Key:
    """Key of the sums of the baseline or of the candidate of a pair."""
    return key._replace(kind="arm", baseline="", candidate=key[place])


def sum_table(totals: Totals, keys: Sequence[Key], width: int) -> Ints:
    """(g, width) sums; zeros for a key that has none."""
    nothing = np.zeros(width, np.int64)
    return np.array([totals.sums.get(key, nothing) for key in keys], np.int64).reshape(len(keys), width)


def arm_sum_table(totals: Totals, keys: Sequence[Key], place: int) -> Ints:
    """(g, c) sums of the baseline or of the candidate of each pair."""
    return sum_table(totals, [arm(key, place) for key in keys], len(ARM_SUMS))


def of_arm(sums: Ints, name: str) -> Ints:
    """(g,) one of ``ARM_SUMS``."""
    return sums[:, ARM_SUMS.index(name)]


def of_pair(sums: Ints, name: str) -> Ints:
    """(g,) one of ``PAIR_SUMS``."""
    return sums[:, PAIR_SUMS.index(name)]


def moments(sums: Ints, n: Ints, names: Sequence[str], kinds: Sequence[str]) -> st.Moments:
    """Moments from the sums of a value, of its square and, where a third kind is given, of its cube."""
    total, squares, *cubes = (st.total_of(sums, names, kind) for kind in kinds)
    return st.Moments(n.astype(object), total, squares, cubes[0] if cubes else None)


def arm_moments(sums: Ints) -> st.Moments:
    """Moments of experiments, from (g, c) sums."""
    return moments(sums, of_arm(sums, "n"), ARM_SUMS, ("v", "vv", "vvv"))


def pair_moments(sums: Ints) -> st.PairMoments:
    """Moments of the users of both experiments of pairs, from (g, c) sums."""
    n = of_pair(sums, "both")
    kinds = (("x", "xx"), ("y", "yy"), ("d", "dd", "ddd"))
    return st.PairMoments(*(moments(sums, n, PAIR_SUMS, each) for each in kinds))


def replicate_means(sums: Ints) -> st.Floats:
    """(r,) weighted means from weighted sums of values and of ones; NaN where nobody has a weight."""
    values, weights = st.weighted_totals(sums)
    return np.asarray(np.divide(values, weights, out=np.full(len(values), np.nan), where=weights > 0))


def row_keys(totals: Totals, request: Request, known: Sequence[Name]) -> list[Key]:
    """One key per pair, segment and metric that one of the two experiments has, in this order."""
    cells: dict[Name, dict[tuple[str, str], None]] = {}
    for key in totals.sums:
        if key.kind in ("arm", SHARED):
            cells.setdefault(key.candidate, {})[key.segment, key.metric] = None
    rows = []
    for i, j in zip(*request.pairs(known), strict=True):
        cells_of_pair = dict.fromkeys([*cells[known[i]], *cells[known[j]]])
        rows += [Key("pair", known[i], known[j], segment, metric) for segment, metric in sorted(cells_of_pair)]
    return rows


def large_enough(totals: Totals, keys: Sequence[Key], min_users: int) -> list[Key]:
    """The rows of all users, and of the segments with so many users in both experiments."""
    n = [of_arm(arm_sum_table(totals, keys, place), "users") for place in (BASELINE, CANDIDATE)]
    enough = np.minimum(*n) >= min_users
    return [key for key, keep in zip(keys, enough, strict=True) if keep or key.segment == EVERYONE]


# ---- the mean over all lists
# A user's lists belong together, so the user stays the unit of every error: see ``statistics.RatioSums``.


def arm_products(y: st.Floats, n: st.Floats) -> list[tuple[st.Floats, int]]:
    """What ``LIST_SUMS`` adds up after the users, each with its number of factors."""
    return [(y, 1), (n, 1), (y * y, 2), (y * n, 2), (n * n, 2)]


def pair_products(x: st.Floats, m: st.Floats, y: st.Floats, n: st.Floats) -> list[tuple[st.Floats, int]]:
    """What ``LIST_PAIR_SUMS`` adds up after the users."""
    return [*arm_products(x, m), *arm_products(y, n), (x * y, 2), (x * n, 2), (m * y, 2), (m * n, 2)]


def list_sums(totals: Totals, keys: Sequence[Key], place: int) -> Ints:
    """(g, c) sums of the baseline or of the candidate of each pair."""
    return sum_table(totals, [arm(key, place)._replace(kind=ARM_LISTS) for key in keys], len(LIST_SUMS))


def list_pair_sums(totals: Totals, keys: Sequence[Key]) -> Ints:
    """(g, c) sums of the users of both."""
    return sum_table(totals, [key._replace(kind=PAIR_LISTS) for key in keys], len(LIST_PAIR_SUMS))


def ratio_of(sums: Ints) -> st.RatioSums:
    """The sums of experiments, put together."""
    names = ("y", "n", "yy", "yn", "nn")
    return st.RatioSums(sums[:, 0].astype(object), *(st.total_of(sums, LIST_SUMS, name) for name in names))


def pair_moments_of(sums: Ints) -> st.PairMoments:
    """Moments of the users of both, from (g, c) sums."""
    users = sums[:, 0].astype(object)
    baseline, candidate = (
        st.RatioSums(users, *(st.total_of(sums, LIST_PAIR_SUMS, name) for name in names))
        for names in (("x", "m", "xx", "xm", "mm"), ("y", "n", "yy", "yn", "nn"))
    )
    shared = (st.total_of(sums, LIST_PAIR_SUMS, name) for name in ("xy", "xn", "my", "mn"))
    return st.RatioPairSums(baseline, candidate, *shared).moments


def arm_moments_over_lists(totals: Totals, keys: Sequence[Key]) -> tuple[st.Moments, st.Moments]:
    """Moments of baseline and candidate of each pair, whose means are those over lists."""
    baseline, candidate = (ratio_of(list_sums(totals, keys, place)).moments for place in (BASELINE, CANDIDATE))
    return baseline, candidate


def rest_over_lists(
    totals: Totals, keys: Sequence[Key], everyone: Sequence[Key]
) -> tuple[tuple[st.Moments, st.Moments], st.PairMoments]:
    """The same of ``everyone`` less the users of each key: of the experiments, and of the users of both."""
    baseline, candidate = (
        ratio_of(list_sums(totals, everyone, place) - list_sums(totals, keys, place)).moments
        for place in (BASELINE, CANDIDATE)
    )
    return (baseline, candidate), pair_moments_of(list_pair_sums(totals, everyone) - list_pair_sums(totals, keys))


def effective_units(totals: Totals, keys: Sequence[Key], paired: Any) -> tuple[st.Floats, st.Floats]:
    """(g,) how many units with equally many lists the baseline and the candidate are worth: (sum n)**2 / sum n**2.

    Source: Kish, Survey Sampling (1965).
    """
    of_both = list_pair_sums(totals, keys)
    result = []
    for place, names in ((BASELINE, ("m", "mm")), (CANDIDATE, ("n", "nn"))):
        of_arm_lists = list_sums(totals, keys, place)
        n, squares = (
            np.where(paired, st.total_of(of_both, LIST_PAIR_SUMS, both), st.total_of(of_arm_lists, LIST_SUMS, own))
            for both, own in zip(names, ("n", "nn"), strict=True)
        )
        known = squares != 0
        result.append(np.where(known, n * n / np.where(known, squares, 1) / 2**st.LIMB_UNIT, np.nan).astype(float))
    return result[0], result[1]


def n_lists(totals: Totals, keys: Sequence[Key], place: int) -> Ints:
    """(g,) lists of the baseline or of the candidate of each pair."""
    return np.asarray(ratio_of(list_sums(totals, keys, place)).lists, dtype=np.int64)
