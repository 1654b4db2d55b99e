"""Before a test: how many users come by each day, how far their means spread, and which effects that can show.

Stored days are measured. Later days are expected: users by what the stored days say about users who come back, the
variance by what more lists of the same users take away from it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from rankmetrics_spark.statistics.corrections import strictest_level
from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.sequential import AnyLook
from rankmetrics_spark.statistics.significance import minimum_detectable_effect

#: Days are expected up to so many times the stored ones; beyond, the estimate of the users is too low.
FURTHEST = 3


@dataclass(frozen=True)
class Arrivals:
    """Users of the first d of D stored days, for each d. A user's value is the mean over their lists so far.

    Attributes:
        users: (D,) distinct users with a value.
        once: (D,) those of them who came on one day only.
        twice: (D,) those who came on two days.
        mean: (D,) over users.
        variance: (D,) of the users' values, within experiments.
        residual: (D,) what values from before leave of it; the variance itself without any.
        inverse_lists: (D,) mean over users of 1 / their lists.
        within: Variance of the value of a single list of a user, around the user's mean; NaN where nobody came twice.
    """

    users: Floats
    once: Floats
    twice: Floats
    mean: Floats
    variance: Floats
    residual: Floats
    inverse_lists: Floats
    within: float

    @property
    def days(self) -> int:
        """The stored days."""
        return len(self.users)

    @property
    def furthest(self) -> int:
        """The last day that can be expected: a single stored day does not say who comes back."""
        return FURTHEST * self.days if self.days > 1 else 1

    def users_by(self, days: int) -> Floats:
        """(days,) distinct users by each day: stored, then expected."""
        last, more = self.days, np.arange(1, max(days - self.days, 0) + 1)
        new = new_users(last, float(self.once[-1]), float(self.twice[-1]), more)
        return np.concatenate([self.users[:days], self.users[-1] + new])

    def variances_by(self, days: int) -> tuple[Floats, Floats]:
        """(days,) variance of the users' values by each day, and what values from before leave of it.

        The variance between users stays, and with it what values from before explain. That within users is the variance
        of a list times the mean of 1 / lists, which falls as a power of the days, as in the second half of the stored
        ones: the power is -1 where everybody comes every day, and 0 where nobody comes back.
        """
        last, half = self.days, -(-self.days // 2)
        inverse, variance = float(self.inverse_lists[-1]), float(self.variance[-1])
        fall = np.log(inverse / self.inverse_lists[half - 1]) / np.log(last / half) if last > half else 0.0
        shrinking = (np.arange(last + 1, days + 1) / last) ** fall
        # More than the whole variance cannot come from within users.
        within = min(self.within, variance / inverse) * inverse if self.within > 0 else 0.0
        expected = variance - within * (1 - shrinking)
        explained = variance - float(self.residual[-1])
        left = np.maximum(expected - explained, within * shrinking)
        return np.concatenate([self.variance[:days], expected]), np.concatenate([self.residual[:days], left])

    def growth(self, more: int) -> tuple[Floats, Floats]:
        """(more,) users, and standard errors of their mean, on further days, as multiples of the last stored day's."""
        with np.errstate(divide="ignore", invalid="ignore"):
            users = self.users_by(self.days + more) / self.users[-1]
            variance = self.variances_by(self.days + more)[0] / self.variance[-1]
            return users[self.days :], np.sqrt(variance / users)[self.days :]

    @property
    def users_error(self) -> float | None:
        """What the first half of the stored days expects of the last one: users expected / stored - 1.

        None below four stored days.
        """
        half = self.days // 2
        if half < 2:
            return None
        new = new_users(half, float(self.once[half - 1]), float(self.twice[half - 1]), np.array([self.days - half]))
        return float((self.users[half - 1] + new[0]) / self.users[-1] - 1)


def new_users(days: int, once: float, twice: float, more: Any) -> Floats:
    """Users who are seen first within ``more`` further days, each with their own chance to come on a day.

    q * (1 - (1 - once / (days * q + once))**more), with Chao's estimate of the users who were not seen yet: q is
    (days - 1) / days times once**2 / (2 * twice), or times once * (once - 1) / 2 where nobody came twice. It is a lower
    bound: where chances differ, more users come.

    Args:
        days: Days that were seen.
        once: Users who came on one of them.
        twice: Users who came on two.
        more: (m,) further days.

    Returns:
        (m,) users; 0 where everybody came more than once.

    Source: Colwell et al., Models and estimators linking individual-based and sample-based rarefaction, extrapolation
    and comparison of assemblages (2012), equation 18.

    >>> new_users(2, 100, 50, [1, 2]).round(6).tolist()  # q = 1 / 2 * 100**2 / 100 = 50, and 1/2 of the rest comes
    [25.0, 37.5]
    """
    unseen = (days - 1) / days * (once**2 / (2 * twice) if twice > 0 else once * (once - 1) / 2)
    if unseen <= 0:
        return np.zeros(len(np.asarray(more)))
    chance = once / (days * unseen + once)
    return np.asarray(unseen * (1 - (1 - chance) ** np.asarray(more, float)))


@dataclass(frozen=True)
class Design:
    """How a test is planned.

    Attributes:
        shares: Of all users, those of the baseline and of the candidate; (1,) where the same ones are in both, and
            effects and variances are those of their differences.
        confidence: 1 - level of the two-sided test.
        power: Probability of finding the effect.
        tuning_users: Users at which intervals that are valid at every look are tightest.
        comparisons: How many p-values are corrected together.
    """

    shares: tuple[float, ...] = (0.5, 0.5)
    confidence: float = 0.95
    power: float = 0.8
    tuning_users: int = 10_000
    comparisons: int = 1

    @property
    def level(self) -> float:
        """That of the smallest step of Holm and of Benjamini-Hochberg, and of each step of Bonferroni."""
        return strictest_level(round(1 - self.confidence, 12), self.comparisons, "holm")

    def smallest_effects(self, users: Floats, variance: Floats) -> tuple[Floats, Floats]:
        """(g,) smallest difference of two means that the test finds, looked at once, and at any number of looks.

        Args:
            users: (g,) of both arms and of all others.
            variance: (g,) of the users' values.

        Returns:
            In the metric's unit; NaN below two users in an arm.
        """
        arms = [np.floor(np.round(share * users, 6)) for share in self.shares]
        arms = [np.where(arm < 2, np.nan, arm) for arm in arms]
        inverse = np.sum([1 / arm for arm in arms], axis=0)
        with np.errstate(invalid="ignore"):
            df = inverse**2 / np.sum([1 / (arm**2 * (arm - 1)) for arm in arms], axis=0)
        critical = AnyLook(self.tuning_users, 1 - self.confidence).critical(np.sum(arms, axis=0), df, self.level)
        test = (np.sqrt(variance * inverse), df, 1 - self.level, self.power)
        return minimum_detectable_effect(*test), minimum_detectable_effect(*test, critical=critical)

    def users_needed(self, effect: float, variance: float) -> int:
        """Users, of all arms, that one look needs to find an effect in the metric's unit: normal approximation."""
        quantiles = ndtri(self.power) - ndtri(self.level / 2)
        return int(np.ceil(variance * sum(1 / share for share in self.shares) * (quantiles / effect) ** 2))


def first_day(effects: Floats, effect: float) -> int | None:
    """The first day from which the smallest effect is not above ``effect``; None if that is no day.

    >>> first_day(np.array([0.3, 0.2, 0.1]), 0.2), first_day(np.array([0.3]), 0.2)
    (2, None)
    """
    enough = np.flatnonzero(np.nan_to_num(effects, nan=np.inf) <= effect)
    return int(enough[0]) + 1 if len(enough) else None


#: Times a power of ten.
ROUND_NUMBERS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)


def round_below(value: float) -> float:
    """The largest round number that is at most two thirds of ``value``, a number above 0.

    Two thirds need 2.25 times the users, and half would need 4 times: more than stored days allow to expect.

    >>> round_below(3.9), round_below(0.75), round_below(1.2), round_below(15), round_below(0.0016)
    (2.5, 0.5, 0.8, 10.0, 0.001)
    """
    limit = value * 2 / 3 * (1 + 1e-12)
    power = 10.0 ** math.floor(math.log10(limit))
    return round(max(each for each in ROUND_NUMBERS if each * power <= limit) * power, 15)
