"""Examination propensities from the ranks that a log itself varies: sums over keys, and three estimators of them.

A key, such as (query, item), is what was shown. Where rankers or experiments showed a key at the ranks j and k, its
relevance was the same at both, so that its click rates differ by examination alone. For each pair of ranks these keys
are the interventional set S(j, k). With N(k | key) impressions and C(k | key) clicks of a key at rank k,

    c(k; j, k) = sum over the keys of S(j, k) of C(k | key) / N(k | key).

The position-based model says: click rate = propensity of the rank * relevance of the key. Then c(k; j, k) / c(j; j, k)
estimates p_k / p_j without bias from relevance, whichever ranker prefers which item.

Source: Agarwal, Zaitsev, Wang, Li, Najork and Joachims, Estimating Position Bias without Intrusive Interventions (WSDM
2019), section 4; Fang, Agarwal and Joachims, Intervention Harvesting for Context-Dependent Examination-Bias Estimation
(SIGIR 2019). They divide a click by w(q, d, k), the number of queries that the rankers which show the document at rank
k were drawn for; a log of impressions has its observed number, N.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rankmetrics_spark import errors as err, statistics as st
from rankmetrics_spark.config import Section, choice, count, key, names
from rankmetrics_spark.metrics import Bools, Floats, Ints

METHODS = ("adjacent", "pivot", "all_pairs")
#: The largest k; that of ``all_pairs``, which has a sum for each pair of ranks and each replicate, is 20.
DEEPEST = 50
#: With fewer keys a bootstrap interval is too short.
FEWEST_KEYS = 30
#: Rates are scaled by this, so that their exact sums have a resolution of 2**-60.
_UNIT = 2.0**30
#: Random weights that Python holds in one go.
_WEIGHTS_AT_ONCE = 2**24
#: A larger share of bootstrap replicates without a value leaves no interval.
_MOST_FAILED = 0.05
_STEPS = 200
#: A click rate of 1 counts as less by this, so that all estimates are finite.
_CERTAIN = 1e-6


def _columns(path: str, value: object) -> tuple[str, ...]:
    if isinstance(value, (str, list, tuple)) and (columns := names(path, value)):
        return columns
    raise err.ConfigError(f"{path} names no column; allowed: at least one, such as query and item")


@dataclass(frozen=True)
class Harvest(Section):
    """What is estimated, and how: see ``propensities``."""

    method: str = key("adjacent", choice(*METHODS))
    k: int = key(10, count(2, DEEPEST))
    replicates: int = key(1_000, count(99, 100_000))
    seed: int = key(1, count(0, 2**63 - 1))
    key: tuple[str, ...] = key(("query", "item"), _columns)

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """Return the (p,) first and second ranks, from 0, of the pairs that the method compares."""
        ranks = np.arange(self.k)
        if self.method == "adjacent":
            return ranks[:-1], ranks[1:]
        if self.method == "pivot":
            return np.zeros(self.k - 1, np.int64), ranks[1:]
        first, second = np.triu_indices(self.k, 1)
        return first.astype(np.int64), second.astype(np.int64)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of keys, impressions and clicks by rank, exact sums, and sums of the replicates."""
        columns = 3 * len(self.pairs[0])
        return (3, self.k), (3, columns), (self.replicates, columns)

    def sums(self, shown: Ints, clicks: Ints, hashes: st.Words) -> Ints:
        """Return exact sums of (n, k) impressions and clicks over keys, whose sums have the same bits in any order."""
        first, second = self.pairs
        both = (shown[:, first] > 0) & (shown[:, second] > 0)
        read = np.zeros(shown.shape, bool)
        for pair, (one, other) in enumerate(zip(first, second, strict=True)):
            read[:, one] |= both[:, pair]
            read[:, other] |= both[:, pair]
        by_rank = np.stack([np.where(read, each, 0).sum(axis=0) for each in (np.ones_like(shown), shown, clicks)])
        rate = clicks / np.maximum(shown, 1)
        cells = np.concatenate([both, np.where(both, rate[:, first], 0), np.where(both, rate[:, second], 0)], axis=1)
        exact = st.weighted_sums(np.ones((len(cells), 1), np.uint8), cells * _UNIT)[:, 0]
        replicates = np.zeros(self.shapes[2], np.int64)
        step = max(1, _WEIGHTS_AT_ONCE // self.replicates)
        for start in range(0, len(cells), step):
            weights = st.poisson_weights(hashes[start : start + step], self.seed, self.replicates)
            _, whole, part = st.weighted_sums(weights, cells[start : start + step])
            replicates += whole * 2**30 + part
        return np.concatenate([by_rank.ravel(), exact.ravel(), replicates.ravel()])

    def parts(self, sums: Ints) -> "tuple[Ints, Pairs, Pairs]":
        """Return counts by rank, the sums of the log (one row), and those of the replicates."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        split = zip(np.split(sums, ends[:-1]), self.shapes, strict=True)
        counts, of_log, of_replicates = (part.reshape(shape) for part, shape in split)
        exact = st.weighted_totals(of_log[:, None]) / _UNIT
        log, replicates = (Pairs(*np.split(each, 3, axis=1)) for each in (exact, of_replicates / _UNIT))
        return counts, log, replicates

    def estimate(self, sums: "Pairs") -> Floats:
        """Return the (r, k) propensities of each row of sums, relative to rank 1; NaN where a rank has none."""
        if self.method == "all_pairs":
            return all_pairs(sums, *self.pairs, self.k)
        return adjacent(sums) if self.method == "adjacent" else pivot(sums)


@dataclass(frozen=True)
class Pairs:
    """Sums over the keys of each interventional set, (r, p) each.

    Attributes:
        keys: Number of keys.
        first: c(j; j, k), of the better rank.
        second: c(k; j, k).
    """

    keys: Floats
    first: Floats
    second: Floats

    @property
    def has_both(self) -> Bools:
        """Return whether there are clicks at both ranks."""
        return (self.first > 0) & (self.second > 0)

    @property
    def ratio(self) -> Floats:
        """Return c(k; j, k) / c(j; j, k); NaN without clicks at both ranks."""
        none = np.full(self.first.shape, np.nan)
        return np.asarray(np.divide(self.second, self.first, out=none, where=self.has_both))


def adjacent(sums: Pairs) -> Floats:
    """Adjacent chain: p_k / p_1 is the product of c(i; i-1, i) / c(i-1; i-1, i) for i from 2 to k.

    The pairs are (1, 2), (2, 3), ...; propensities are NaN from the first pair without clicks at both ranks on.

    Source: Agarwal et al. (WSDM 2019), section 4.2.

    >>> adjacent(Pairs(*np.array([[[4.0, 4.0]], [[2.0, 1.0]], [[1.0, 0.5]]]))).tolist()
    [[1.0, 0.5, 0.25]]
    """
    return np.asarray(np.cumprod(pivot(sums), axis=1))


def pivot(sums: Pairs) -> Floats:
    """Pivot: p_k / p_1 is c(k; 1, k) / c(1; 1, k), of the pairs (1, 2), (1, 3), ...; NaN without clicks at both ranks.

    Source: Agarwal et al. (WSDM 2019), section 4.1.
    """
    return np.concatenate([np.ones((len(sums.keys), 1)), sums.ratio], axis=1)


def all_pairs(sums: Pairs, first: Ints, second: Ints, k: int) -> Floats:
    """All pairs: the propensities p and relevances r(j, k) that maximise the likelihood of the click rates.

    The sum over all pairs, and over both ranks i of each, of

        c(i; j, k) log(p_i r(j, k)) + (n(j, k) - c(i; j, k)) log(1 - p_i r(j, k))

    with n keys is concave in the logarithms. For given p, the best r is the smaller root of a quadratic; Newton's
    method finds p. Each product p_i r is below 1, which fixes p up to a factor; it is divided by p_1. A rank that no
    chain of pairs with clicks at both ranks connects with rank 1 has NaN.

    Source: Agarwal et al. (WSDM 2019), section 4.3.
    """
    # (r, k) ranks that pairs with clicks at both ranks connect with the first one.
    has_both = np.zeros((len(sums.keys), k, k), bool)
    has_both[:, first, second] = has_both[:, second, first] = sums.has_both
    connected = np.zeros((len(sums.keys), k), bool)
    connected[:, 0] = True
    for _ in range(k):
        connected |= (has_both & connected[:, None, :]).any(axis=2)
    used = connected[:, first] & connected[:, second] & (sums.first + sums.second > 0)
    n = np.where(used, sums.keys, 1.0)
    a, b = (np.where(used, np.minimum(each, n * (1 - _CERTAIN)), 0.0) for each in (sums.first, sums.second))
    free = connected.copy()
    free[:, 0] = False
    log_p = np.zeros((len(n), k))
    moved = np.full(len(n), np.inf)
    for _ in range(_STEPS):
        step = np.where(free, _newton_step(log_p, (n, a, b, used), (first, second)), 0.0)
        moved = np.abs(step).max(axis=1)
        # Longer steps of an exponential likelihood may overshoot.
        log_p += step / np.maximum(1.0, 2 * moved)[:, None]
        if moved.max(initial=0.0) < 1e-11:
            break
    return np.where(connected & (moved < 1e-6)[:, None], np.exp(log_p), np.nan)


def _newton_step(log_p: Floats, sums: tuple[Floats, Floats, Floats, Bools], pairs: tuple[Ints, Ints]) -> Floats:
    """Return Newton's step for the logarithms of p, with each r at its best value; that of the first rank is 0.

    With x = p_i r, the slope for log x is (c - n x) / (1 - x) and its curvature -(n - c) x / (1 - x)^2. Without r, a
    pair has the curvature of two springs in series: the matrix is a Laplacian of the graph of ranks.
    """
    (n, a, b, used), (first, second) = sums, pairs
    p, q = (np.exp(log_p[:, ranks]) for ranks in pairs)
    of_p, of_q = p * (n + b), q * (n + a)
    r = 2 * (a + b) / (of_p + of_q + np.sqrt((of_p - of_q) ** 2 + 4 * p * q * (n - a) * (n - b)))
    x, y = p * r, q * r
    slope = np.where(used, (a - n * x) / (1 - x), 0.0)
    one, other = (n - a) * x / (1 - x) ** 2, (n - b) * y / (1 - y) ** 2
    spring = np.where(used, one * other / np.where(used, one + other, 1.0), 0.0)
    rows, k = log_p.shape
    matrix, gradient = np.zeros((rows, k, k)), np.zeros((rows, k))
    matrix[:, first, second] = matrix[:, second, first] = -spring
    of_pair = np.zeros((len(first), k))
    of_pair[np.arange(len(first)), first], of_pair[np.arange(len(first)), second] = 1.0, -1.0
    # Not a matrix product: its order of addition depends on the machine.
    for pair, signs in enumerate(of_pair):
        gradient += slope[:, pair, None] * signs
    diagonal = -matrix.sum(axis=2)
    # A little more than the sum of the others: no matrix is singular, and the maximum stays where it is.
    matrix[:, np.arange(k), np.arange(k)] = np.where(diagonal == 0, 1.0, diagonal * (1 + 1e-12))
    matrix[:, 0], gradient[:, 0] = np.eye(k)[0], 0.0
    return np.asarray(np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0])


def rows_of_ranks(harvest: Harvest, sums: Ints, deepest: int, confidence: float) -> Iterator[tuple[object, ...]]:
    """Yield rank, propensity, ci_low, ci_high, n_keys, n_impressions, n_clicks and note of each rank to the deepest."""
    counts, pairs, of_replicates = harvest.parts(sums)
    values, replicates = harvest.estimate(pairs)[0], harvest.estimate(of_replicates).T
    low, high = st.percentile(replicates, confidence)
    failed = np.isnan(replicates).sum(axis=1)
    for rank in range(1, deepest + 1):
        value, numbers = float(values[rank - 1]), [*map(int, counts[:, rank - 1])]
        if np.isnan(value):
            yield rank, None, None, None, *numbers, _absence(harvest, pairs, values, rank)
        elif rank == 1:
            yield rank, 1.0, 1.0, 1.0, *numbers, None
        else:
            n_keys, n_failed = numbers[0], int(failed[rank - 1])
            unbounded = n_failed > _MOST_FAILED * harvest.replicates
            bounds = (None, None) if unbounded else (float(low[rank - 1]), float(high[rank - 1]))
            notes = []
            if unbounded:
                of_all = f"{n_failed:,} of {harvest.replicates:,} bootstrap replicates"
                notes.append(f"no interval: {of_all} have no click at one of the ranks")
            elif n_keys < FEWEST_KEYS:
                notes.append(f"it rests on {n_keys:,} keys, too few for an interval that can be relied on")
            if value > 1:
                notes.append("above 1, as chance or a wrong model can make it; off_policy reads it as 1")
            yield rank, value, *bounds, *numbers, "; ".join(notes) or None


def _absence(harvest: Harvest, pairs: Pairs, values: Floats, rank: int) -> str:
    """Return why a rank has no propensity, in one sentence."""
    if harvest.method == "all_pairs":
        return f"no chain of pairs of ranks with clicks at both connects rank {rank} with rank 1"
    if harvest.method == "adjacent" and np.isnan(values[rank - 2]):
        return f"rank {rank - 1}, which the chain passes, has no propensity"
    upper = 1 if harvest.method == "pivot" else rank - 1
    if not pairs.keys[0, rank - 2]:
        return f"no key was shown at both rank {upper} and rank {rank}"
    silent = [each for each, sums in ((upper, pairs.first), (rank, pairs.second)) if not sums[0, rank - 2]]
    ranks = " or ".join(f"rank {each}" for each in silent)
    return f"the keys shown at both rank {upper} and rank {rank} have no click at {ranks}"
