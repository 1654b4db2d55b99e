"""Tests that are looked at more than once: intervals and p-values that hold at any look, or at planned looks.

A test that is looked at every day and stopped at the first small p-value finds differences where there are none.
``AnyLook`` holds however often people look. ``PlannedLook`` spends the error over a number of looks that is fixed in
advance; it is narrower at the last of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from rankmetrics_spark.statistics.exact_sums import Floats
from rankmetrics_spark.statistics.significance import Estimate, users_needed

#: Standard deviations beyond which a normal density is left out of a quadrature: less than 1e-18 of it.
_SIDE = 9.0
#: Between the quantiles of z at whose levels the bounds are computed; p-values are interpolated.
_STEP = 0.25
#: A bound above every z-value whose probability is a number.
_HIGHEST = 37.0


def quantile_of_t(z: Floats, df: Floats) -> Floats:
    """(g,) the t with the same tail as each z; infinite where the tail is no number."""
    t = -np.asarray(stdtrit(df, ndtr(-z)))
    # SciPy has no quantile of the smallest tails of a few degrees of freedom: it gives one of the other side, or NaN.
    return np.where((z > 0) & (df > 0) & ~(t >= 0), np.inf, t)


def z_of(test: Estimate) -> Floats:
    """(g,) the z, at least 0, with the same tail as the t of each test."""
    return np.asarray(-ndtri(test.p_value / 2))


# ---- however often


def mixture_rho(tuning_users: float, alpha: float) -> float:
    """The precision of the normal mixture whose bound is tightest, in standard errors, at ``tuning_users`` users.

    Args:
        tuning_users: More than 0; fixed before the first look.
        alpha: Level of the two-sided interval, in (0, 1).

    Source: Howard, Ramdas, McAuliffe, Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences (2021).

    >>> round(mixture_rho(100, 0.05), 5)
    12.60056
    """
    logarithm = -2 * np.log(alpha)
    return float(tuning_users / (np.log1p(logarithm) + logarithm))


def always_valid_bound(n: Any, rho: float, level: Floats | float) -> Floats:
    """Half width of the always-valid interval, in standard errors.

    sqrt((n + rho) / n * log((n + rho) / (rho * level**2)))

    Args:
        n: (g,) users of the test: of both arms together where they differ.
        rho: See ``mixture_rho``.
        level: 1 - confidence, in (0, 1).

    Source: Waudby-Smith et al., Time-uniform central limit theory and asymptotic confidence sequences (2021).

    >>> float(always_valid_bound(100, mixture_rho(100, 0.05), 0.05).round(6))
    3.035209
    """
    users = np.where(np.asarray(n) > 0, n, np.nan).astype(float)
    return np.asarray(np.sqrt((users + rho) / users * (np.log1p(users / rho) - 2 * np.log(level))))


def always_valid_p(z: Any, n: Any, rho: float) -> Floats:
    """Two-sided p-value that may be looked at as often as wanted: min(1, 1 / E).

    E = exp(n * z**2 / (2 * (n + rho))) * sqrt(rho / (n + rho)). It is below a level where the interval of that level
    does not hold 0.

    Args:
        z: (g,) differences / standard errors.
        n: (g,) users of the test.
        rho: See ``mixture_rho``.

    >>> float(always_valid_p(3.0, 5000, mixture_rho(5000, 0.05)).round(6))
    0.054948
    """
    users = np.asarray(n, float)
    log_e = users * np.square(z) / (2 * (users + rho)) - np.log1p(users / rho) / 2
    return np.asarray(np.exp(np.minimum(0.0, -log_e)))


@dataclass(frozen=True)
class AnyLook:
    """Looks at any moment and as often as wanted: confidence sequences by a normal mixture.

    The bound is one of z. A few users in an arm leave t few degrees of freedom, so it goes through t: the statistic
    counts as the z with the same tail.

    Attributes:
        tuning_users: Users at which the intervals are tightest.
        alpha: 1 - confidence of the intervals that are tuned.
        by_p: Whether the p-value is not that of t, such as a permutation's: its z counts, and there is no interval.
            That the level holds then is simulated, and not proven.
    """

    tuning_users: int
    alpha: float
    by_p: bool = False

    def critical(self, n: Any, df: Floats, level: Floats | float) -> Floats:
        """(g,) quantiles of t with the same tail as ``always_valid_bound``."""
        if self.by_p:
            return np.full(np.shape(df), np.nan)
        return quantile_of_t(always_valid_bound(n, mixture_rho(self.tuning_users, self.alpha), level), df)

    def p_value(self, test: Estimate, n: Any) -> Floats:
        """(g,) ``always_valid_p`` of the z with the same tail as t."""
        return always_valid_p(z_of(test), n, mixture_rho(self.tuning_users, self.alpha))

    def users_needed(self, test: Estimate, n: Any, level: float, power: float) -> Floats:
        """(g,) users at whose look the difference is found with this power: the bound depends on them."""
        with np.errstate(divide="ignore", invalid="ignore"):
            effect = np.abs(test.difference / test.standard_error) / np.sqrt(np.asarray(n, float))
            known = np.where(effect > 0, effect, np.nan)
            rho = mixture_rho(self.tuning_users, self.alpha)
            low, high = np.zeros(len(known)), np.full(len(known), 64.0)
            for _ in range(60):
                middle = (low + high) / 2
                users = np.exp2(middle)
                enough = known * np.sqrt(users) >= always_valid_bound(users, rho, level) + ndtri(power)
                low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        needed = np.maximum(np.ceil(np.exp2(high) * (1 - 1e-12)), 2.0)
        return np.where(np.isnan(known) | (high == 64), np.nan, needed)


# ---- a planned number of looks

#: How much of a one-sided level may be spent until a fraction of the information is there.
#:
#: Source: Lan and DeMets, Discrete sequential boundaries for clinical trials (1983).
SPENDING: Mapping[str, Callable[[Any, Any], Any]] = {
    "obrien_fleming": lambda t, alpha: 2 * ndtr(ndtri(alpha / 2) / np.sqrt(t)),
    "pocock": lambda t, alpha: alpha * np.log1p((np.e - 1) * np.asarray(t)),
    "linear": lambda t, alpha: alpha * np.asarray(t),
}


def spending_bounds(fractions: Any, alpha: float, spending: str) -> Floats:
    """Bounds of z at each look, so that the chance to pass one of them by a look is what may be spent until then.

    The density of the sum at a look, of tests that went on until then, is integrated over all sums at the look before.

    Args:
        fractions: (k,) of the information at each look: rising, above 0, at most 1.
        alpha: One-sided level, in (0, 0.5].
        spending: One of ``SPENDING``.

    Returns:
        (k,) z-values; infinite where so little may be spent that it is no number.

    Source: Armitage, McPherson, Rowe, Repeated significance tests on accumulating data (1969).

    >>> spending_bounds([0.5, 1], 0.05, "linear").round(4).tolist()
    [1.96, 1.8071]
    """
    times = np.asarray(fractions, float)
    spent = np.asarray(SPENDING[spending](times, alpha))
    sums, mass, bounds = np.zeros(1), np.ones(1), []
    for time, before, budget in zip(times, [0.0, *times[:-1]], np.diff(spent, prepend=0.0), strict=True):
        step, root = np.sqrt(time - before), np.sqrt(time)
        bounds.append(_bound(sums, mass, step, root, budget))
        low, high = -_SIDE * root, min(bounds[-1], _SIDE) * root
        places, weights = _gauss_legendre(32 * int(np.ceil((high - low) / step / 24)))
        points = low + (high - low) * places
        density = np.exp(-(((points[:, None] - sums) / step) ** 2) / 2) @ mass / (step * np.sqrt(2 * np.pi))
        sums, mass = points, (high - low) * weights * density
    return np.array(bounds)


@cache
def _gauss_legendre(n: int) -> tuple[Floats, Floats]:
    """Places and weights of a quadrature over (0, 1)."""
    places, weights = np.polynomial.legendre.leggauss(n)
    return (places + 1) / 2, weights / 2


def _bound(sums: Floats, mass: Floats, step: float, root: float, budget: float) -> float:
    """The z-value that is passed with the probability ``budget``, from the density of the sums one look before."""

    def beyond(z: float) -> float:
        """What passes z more than the budget, on a scale on which small budgets count."""
        return float(np.log(mass @ ndtr((sums - z * root) / step)) - np.log(budget))

    # Imported here: it takes long, and only a planned number of looks needs it.
    from scipy.optimize import brentq

    with np.errstate(divide="ignore"):
        if budget <= 0 or beyond(_HIGHEST) >= 0:
            return np.inf
        return float(brentq(beyond, -_SIDE, _HIGHEST, xtol=1e-13))


@dataclass(frozen=True)
class PlannedLook:
    """One of a planned number of looks, at equal fractions of the information.

    Attributes:
        look: Number of this look; the first one is 1.
        planned: Number of all looks.
        spending: One of ``SPENDING``.
        alpha: 1 - confidence, at which p-value and interval agree to the bit.
        by_p: Whether the p-value is not that of t, such as a permutation's: what is spent at each look is then added
            up, since nothing is known of how the looks depend on one another, and there is no interval.
    """

    look: int
    planned: int
    spending: str
    alpha: float
    by_p: bool = False

    def bound(self, level: float) -> float:
        """The z-value of this look, of a two-sided test at ``level``."""
        fractions = np.arange(1, self.look + 1) / self.planned
        return float(spending_bounds(fractions, level / 2, self.spending)[-1])

    def critical(self, n: Any, df: Floats, level: Floats | float) -> Floats:
        """(g,) quantiles of t with the same tail as the bound; infinite where so little may be spent."""
        if self.by_p:
            return np.full(np.shape(df), np.nan)
        # Imported here: it takes long, and only a planned number of looks needs it.
        from scipy.interpolate import CubicSpline

        bounds, quantiles = _levels_of_bounds(self)
        z = -ndtri(np.asarray(level) / 2)
        # A correction asks for a level of its own for each row, and a bound of its own takes long.
        critical = np.where(z > quantiles[-1], np.inf, CubicSpline(quantiles, bounds)(np.maximum(z, quantiles[0])))
        return quantile_of_t(critical, df)

    def p_value(self, test: Estimate, n: Any) -> Floats:
        """(g,) repeated p-values: the level whose bound is the z-value with the same tail as t.

        With ``by_p``, the smallest level that spends the p-value at this look.
        """
        if self.by_p:
            levels = np.unique([*np.logspace(-15, 0, 3_001), self.alpha])
            spent = 2 * SPENDING[self.spending](np.array([[self.look - 1], [self.look]]) / self.planned, levels / 2)
            here = np.maximum.accumulate(spent[1] - (spent[0] if self.look > 1 else 0.0))
            at = np.searchsorted(here, test.p_value)
            return np.where(np.isnan(test.p_value), np.nan, levels[np.minimum(at, len(levels) - 1)])
        # Imported here: it takes long, and only a planned number of looks needs it.
        from scipy.interpolate import CubicSpline

        bounds, quantiles = _levels_of_bounds(self)
        z = np.clip(z_of(test), bounds[0], bounds[-1])
        return np.asarray(2 * ndtr(-CubicSpline(bounds, quantiles)(z)))

    def users_needed(self, test: Estimate, n: Any, level: float, power: float) -> Floats:
        """(g,) users that the last look needs to find the difference with this power."""
        last = replace(self, look=self.planned).bound(level)
        return users_needed(n, test.difference, test.standard_error, 1 - level, power, last)


@cache
def _levels_of_bounds(look: PlannedLook) -> tuple[Floats, Floats]:
    """Bounds of this look, rising, and the quantiles of z that belong to their levels: an almost straight line."""
    quantiles = np.unique([*np.arange(0, 8.3, _STEP), -ndtri(look.alpha / 2)])
    bounds = np.array([look.bound(2 * float(ndtr(-z))) for z in quantiles])
    # A level that is spent later may have no bound above that of a larger level; the larger one counts then.
    rising = (np.diff(np.maximum.accumulate(bounds), prepend=-np.inf) > 0) & np.isfinite(bounds)
    return bounds[rising], quantiles[rising]


#: A rule that says when a difference is larger than chance explains, over more than one look: how many standard errors
#: it needs (``critical``), its p-value, and the users that a test needs.
Looks = AnyLook | PlannedLook


def over_looks(test: Estimate, n: Any, looks: Looks, confidence: Floats | float) -> Estimate:
    """The test of a single look -> the same difference with an interval and a p-value that hold over all looks.

    Without a spread it stays the test of a single look, whose p-value is that of a permutation: users who all have one
    value now had it at every earlier look.

    Args:
        test: Tests of g pairs at one look.
        n: (g,) users of the test: of both arms together where they differ.
        looks: The rule.
        confidence: Of the interval, in (0, 1); one number, or (g,).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        moving = ~(test.standard_error == 0)
        p = np.where(moving, looks.p_value(test, n), test.p_value)
        tests = Estimate(test.difference, test.standard_error, test.df, p, p, p)
        return tests.within(critical_value(test.df, confidence, n, looks))


def critical_value(df: Floats, confidence: Floats | float, n: Any = None, looks: Looks | None = None) -> Floats:
    """(g,) standard errors from a difference to the bound of its interval: of t, or of some looks.

    Args:
        df: (g,) degrees of freedom.
        confidence: Of the interval, in (0, 1); one number, or (g,).
        n: (g,) users of the test.
        looks: The rule; None for a single look.
    """
    if looks is not None:
        return looks.critical(n, df, 1 - confidence)
    return np.asarray(stdtrit(df, 0.5 + np.asarray(confidence) / 2))
