"""Inverse-propensity weights, their effective sample size, and estimates with an interval: the user is the unit.

A row of a log has a propensity: the probability that its item was seen at its rank (position bias), or that the policy
which wrote the log chose it. Its weight is ``target / propensity``. With ``target`` 1 the weights correct position
bias; with the probability that another policy chooses the item, they give that policy's value.

Sources: Horvitz and Thompson, A Generalization of Sampling Without Replacement From a Finite Universe (JASA 1952);
Swaminathan and Joachims, The Self-Normalized Estimator for Counterfactual Learning (NIPS 2015); Joachims, Swaminathan
and Schnabel, Unbiased Learning-to-Rank with Biased Feedback (WSDM 2017); Kish, Survey Sampling (1965).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from rankmetrics_spark.errors import InputError
from rankmetrics_spark.statistics import exact_sums
from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.intervals import t_interval
from rankmetrics_spark.statistics.moments import Moments, Whole

Ints = npt.NDArray[np.int64]

FIRST = ("v", "b", "c", "w", "a")
"""Summed over users: the value (v), the mean weight of a list (b), its mean number of rows (c), the weight of all rows
(w), the mean weight of a row (a)."""
SECOND = ("vv", "vb", "vc", "bb", "bc", "cc", "ww", "aa")
"""Sums of products of these; ``ww`` is the sum of the squared weights of all rows."""
COUNTS = ("n", "rows", "beyond")
"""Users, their rows, and users with a number that is not defined or too large to be summed."""
SUMS = (
    *COUNTS,
    *(f"{name}_{i}" for name in FIRST for i in range(len(exact_sums.EXPONENTS))),
    *(f"{name}_{i}" for name in SECOND for i in range(len(exact_sums.SQUARE_EXPONENTS))),
)
"""What ``limb_sums`` returns, in its order."""


def importance_weights(propensity: npt.ArrayLike, target: npt.ArrayLike = 1.0, clip: float = float("inf")) -> Floats:
    """Weight of each row: target / propensity, at most ``clip``.

    Clipping lowers the variance at the price of a bias: clipped weights count too few clicks.

    Args:
        propensity: (e,) probabilities in (0, 1].
        target: (e,) probabilities in [0, 1] under the policy whose value is wanted, or 1: position bias is removed.
        clip: The largest weight.

    Returns:
        (e,) weights.

    Raises:
        InputError: A probability is outside its range or NaN.

    Source: Horvitz and Thompson (1952); clipping: Ionides, Truncated Importance Sampling (2008).

    >>> importance_weights([1.0, 0.5, 0.05], clip=10).tolist(), importance_weights([0.5], [0.1]).tolist()
    ([1.0, 2.0, 10.0], [0.2])
    """
    chance, wanted = np.asarray(propensity, np.float64), np.asarray(target, np.float64)
    _check(chance, (chance > 0) & (chance <= 1), "propensity", "(0, 1]")
    _check(wanted, (wanted >= 0) & (wanted <= 1), "target", "[0, 1]")
    return np.asarray(np.minimum(wanted / chance, clip), np.float64)


def _check(values: Floats, sound: npt.NDArray[np.bool_], what: str, allowed: str) -> None:
    if not np.all(sound):
        raise InputError(f"a {what} is {np.ravel(values)[~np.ravel(sound)][0]}; allowed: a number in {allowed}")


def effective_sample_size(total: Any, squares: Any) -> Floats:
    """How many rows of equal weight would tell as much: sum(w)**2 / sum(w**2); 0 where all weights are 0.

    Args:
        total: (g,) sums of weights.
        squares: (g,) sums of squared weights.

    Source: Kish, Survey Sampling (1965), section 11.7.

    >>> effective_sample_size([4.0, 4.0], [4.0, 16.0]).tolist()  # four weights of 1; one of 4 and three of 0
    [4.0, 1.0]
    """
    total, squares = np.asarray(total, np.float64), np.asarray(squares, np.float64)
    return np.asarray(np.divide(total * total, squares, out=np.zeros(total.shape), where=squares > 0))


@dataclass(frozen=True)
class UserValues:
    """What u users add to an estimate.

    Attributes:
        value: (u,) weighted value of the metric: the mean over the user's lists.
        lists: (u,) lists of the user, at least 1.
        rows: (u,) rows of these lists down to the cut-off.
        weight: (u,) sum of the weights of these rows.
        squares: (u,) sum of their squares.
    """

    value: Floats
    lists: Floats
    rows: Floats
    weight: Floats
    squares: Floats


def limb_sums(users: UserValues, group: Ints, size: int) -> Ints:
    """Exact sums over the users of each group.

    Args:
        users: u users.
        group: (u,) group of each user, below ``size``.
        size: Number of groups.

    Returns:
        (size, len(SUMS)) whole numbers; they can be added in any order.
    """
    first = {"v": users.value, "b": users.weight / users.lists, "c": users.rows / users.lists, "w": users.weight}
    first["a"] = np.divide(users.weight, users.rows, out=np.zeros(len(group)), where=users.rows > 0)
    beyond = np.any([~(np.abs(each) <= exact_sums.LARGEST) for each in first.values()], axis=0)
    first = {name: np.where(beyond, 0.0, each) for name, each in first.items()}
    second = {name: first[name[0]] * first[name[1]] for name in SECOND} | {"ww": np.where(beyond, 0.0, users.squares)}
    cells = [np.ones(len(group)), users.rows, beyond.astype(np.float64)]
    cells += [limb for name in FIRST for limb in exact_sums.limbs(first[name])]
    cells += [limb for name in SECOND for limb in exact_sums.limbs(second[name], exact_sums.SQUARE_EXPONENTS)]
    # Doubles are exact here: a limb is below 2**31, and there are nowhere near 2**22 users in a batch.
    return np.stack([np.bincount(group, cell, minlength=size).astype(np.int64) for cell in cells], axis=1)


@dataclass(frozen=True)
class WeightedMoments:
    """Sums over the users of g groups, as Python integers (object arrays); add two of them with ``+``.

    Attributes:
        counts: Name out of ``COUNTS`` -> (g,) counts.
        sums: Name out of ``FIRST`` and ``SECOND`` -> (g,) sums in units of 2**-60.
    """

    counts: dict[str, Whole]
    sums: dict[str, Whole]

    @classmethod
    def of_sums(cls, sums: Whole | Ints) -> WeightedMoments:
        """From (g, len(SUMS)) whole numbers, as ``limb_sums`` orders them."""
        columns = dict(zip(SUMS, np.asarray(sums, object).T, strict=True))
        exponents = dict.fromkeys(FIRST, exact_sums.EXPONENTS) | dict.fromkeys(SECOND, exact_sums.SQUARE_EXPONENTS)
        totals = {
            name: exact_sums.total([columns[f"{name}_{i}"] for i in range(len(powers))], powers)
            for name, powers in exponents.items()
        }
        return cls({name: columns[name] for name in COUNTS}, totals)

    @classmethod
    def of(cls, users: UserValues) -> WeightedMoments:
        """Of one group of users.

        >>> two = UserValues(*map(np.array, ([1.0, 0.0], [1.0, 1.0], [2.0, 2.0], [4.0, 2.0], [8.0, 2.0])))
        >>> self_normalised(WeightedMoments.of(two), 0.95).value.round(6).tolist()  # (1 + 0) / 2 / (6 / 4)
        [0.333333]
        """
        return cls.of_sums(limb_sums(users, np.zeros(len(users.value), np.int64), 1))

    def __add__(self, other: WeightedMoments) -> WeightedMoments:
        return WeightedMoments(
            {name: each + other.counts[name] for name, each in self.counts.items()},
            {name: each + other.sums[name] for name, each in self.sums.items()},
        )

    def mean(self, name: str) -> Floats:
        """(g,) mean over users of a name out of ``FIRST``; NaN without users."""
        return Moments(self.counts["n"], self.sums[name], self.sums[name]).mean

    def covariance(self, one: str, other: str) -> Floats:
        """(g,) sample covariance of two of v, b and c, divided by n - 1; NaN below two users."""
        n, unit = np.where(self.counts["n"] < 2, 2, self.counts["n"]), 2**exact_sums.UNIT
        exact = n * self.sums[one + other] * unit - self.sums[one] * self.sums[other]
        return np.where(self.counts["n"] < 2, np.nan, (exact / (n * (n - 1) * unit**2)).astype(float))

    @property
    def mean_weight(self) -> Floats:
        """(g,) mean weight of a row; near 1 where another policy's probabilities are the target."""
        return Moments(self.counts["rows"], self.sums["w"], self.sums["w"]).mean

    @property
    def effective_rows(self) -> Floats:
        """(g,) effective number of rows."""
        return self._effective("w", "ww")

    @property
    def effective_users(self) -> Floats:
        """(g,) effective number of users; a user weighs as much as one of their rows does on average."""
        return self._effective("a", "aa")

    def _effective(self, first: str, second: str) -> Floats:
        unit = 2**exact_sums.UNIT
        return effective_sample_size(*((self.sums[name] / unit).astype(float) for name in (first, second)))


@dataclass(frozen=True)
class Estimate:
    """Estimates of g groups with their intervals, (g,) each; NaN where there is none."""

    value: Floats
    low: Floats
    high: Floats


def ips(moments: WeightedMoments, confidence: float) -> Estimate:
    """Mean of the users' weighted values, with Student's t interval over users; for clipped weights too.

    Args:
        moments: Of g groups.
        confidence: In (0, 1).

    Source: Horvitz and Thompson (1952).
    """
    values = Moments(moments.counts["n"], moments.sums["v"], moments.sums["vv"])
    return Estimate(values.mean, *t_interval(values, confidence))


def self_normalised(moments: WeightedMoments, confidence: float) -> Estimate:
    """The same mean over the mean weight of the rows, which is 1 in expectation if the rows were drawn by propensity.

    It is the ratio V * C / B of three means over users: of the values, of the rows and of the weights per list. For
    precision and DCG, that is every weight divided by the mean weight. Slightly biased, by a term of order 1 / n.

    Not for position bias: there, the rows were shown with certainty and the mean of 1 / propensity is no estimate of 1.

    Args:
        moments: Of g groups.
        confidence: In (0, 1), of the interval by the delta method over users.

    Returns:
        Estimates; NaN where all weights are 0.

    Source: Swaminathan and Joachims (NIPS 2015); the interval: Cochran, Sampling Techniques (1977), chapter 6.
    """
    v, b, c = (moments.mean(name) for name in "vbc")
    weight = np.where(b > 0, b, np.nan)
    slopes = {"v": c / weight, "b": -v * c / weight**2, "c": v / weight}
    value = v * slopes["v"]
    pairs = {"vv": 1, "bb": 1, "cc": 1, "vb": 2, "vc": 2, "bc": 2}
    variance = sum(
        times * slopes[name[0]] * slopes[name[1]] * moments.covariance(*name) for name, times in pairs.items()
    )
    n = np.maximum(moments.counts["n"].astype(float), 2.0)
    half = stdtrit(n - 1, 0.5 + confidence / 2) * np.sqrt(_above_rounding(np.asarray(variance), value) / n)
    return Estimate(value, value - half, value + half)


def _above_rounding(variance: Floats, value: Floats) -> Floats:
    """A variance below the rounding of the sums cannot be told from 0."""
    floor = (1 + 4 * np.abs(value)) * 2.0**-exact_sums.UNIT + value**2 * 2.0**-50
    return np.where(variance <= floor, 0.0, variance)
