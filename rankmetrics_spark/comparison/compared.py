"""Sums of experiments and pairs -> the tests of the rows of ``comparisons``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.comparison import adjusted
from rankmetrics_spark.comparison.totals import (
    BASELINE,
    CANDIDATE,
    PAIR_SUMS,
    Ints,
    Key,
    Name,
    Request,
    Totals,
    arm,
    arm_moments,
    experiments_of,
    of_arm,
    of_pair,
    pair_moments,
    refuse_unknown,
    replicate_means,
    stacked,
    stacked_arms,
    whole,
)
from rankmetrics_spark.schemas import CUPED, EVERYONE, RELATIVE
from rankmetrics_spark.statistics import (
    LIMB_UNIT,
    Estimate,
    Floats,
    Moments,
    PairMoments,
    aa_share_independent,
    aa_share_paired,
    acceleration_of_difference,
    bca,
    effect_size_independent,
    effect_size_paired,
    minimum_detectable_effect,
    paired_t,
    percentile,
    relative_independent,
    relative_paired,
    sign_flip_p,
    signed_rank,
    users_needed,
    weighted_totals,
    welch,
)

Bools = npt.NDArray[np.bool_]
PAIRED, INDEPENDENT = "paired", "independent"
PAIRED_T, WELCH = "paired t", "welch"
SHARE_OF_PAIRED = 0.95
"""With ``auto``, a pair is paired where this share of the users of each experiment is in both; the rest is left out."""
_RESOLVED = 1_000
"""A spread below the rounding of the sums is no reason for doubt if the difference is so many times that rounding."""


@dataclass(frozen=True)
class Rules:
    """How rows of comparisons are made.

    Attributes:
        confidence: Of every interval.
        correction: Of the p-values: see ``corrections.adjusted``.
        design: ``auto``, ``paired`` or ``independent``.
        power: Of the minimum detectable effect.
        min_users: Fewer users of a segment in one of the experiments: no row for this segment.
        shares: Planned share of the users of each experiment.
        bca: Whether bootstrap intervals are bias-corrected and accelerated.
        wilcoxon: Whether ranks were summed.
        cuped: Whether values from before the experiment are there; where they say something, CUPED is the test.
        directions: Metric -> whether higher is better; None = neither.
    """

    confidence: float = 0.95
    correction: str = "holm"
    design: str = "auto"
    power: float = 0.8
    min_users: int = 0
    shares: Mapping[str, float] | None = None
    bca: bool = False
    wilcoxon: bool = False
    cuped: bool = False
    directions: Mapping[str, bool | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Compared:
    """The rows to make, with the sums that they need.

    Attributes:
        totals: All sums.
        rules: How rows are made.
        keys: Kind ``pair``; one per row.
        arms: (g, c) sums of the baseline and of the candidate.
        both: (g, c) sums of the users of both.
        paired: (g,) whether the row tests the users of both.
    """

    totals: Totals
    rules: Rules
    keys: list[Key]
    arms: tuple[Ints, Ints]
    both: Ints
    paired: Bools

    @classmethod
    def of(cls, totals: Totals, request: Request, rules: Rules) -> Compared:
        """The rows of all pairs.

        Raises:
            ConfigError: There is no experiment with the name of the baseline, of a candidate or of a share.
        """
        known = experiments_of(totals)
        refuse_unknown([request.baseline, *request.candidates, *(rules.shares or ())], known)
        keys = _large_enough(totals, _row_keys(totals, request, known), rules.min_users)
        arms = stacked_arms(totals, keys, BASELINE), stacked_arms(totals, keys, CANDIDATE)
        both = stacked(totals, keys, len(PAIR_SUMS))
        return cls(totals, rules, keys, arms, both, _designs(totals, keys, rules.design))

    @cached_property
    def moments(self) -> tuple[Moments, Moments]:
        """Of all users of baseline and candidate who have a value."""
        return arm_moments(self.arms[0]), arm_moments(self.arms[1])

    @cached_property
    def pair(self) -> PairMoments:
        """Of the users of both."""
        return pair_moments(self.both)

    @cached_property
    def n_users(self) -> Ints:
        """(g,) users that a row tests."""
        n = [of_arm(sums, "n") for sums in self.arms]
        return np.where(self.paired, of_pair(self.both, "both"), n[0] + n[1])

    @cached_property
    def testable(self) -> Bools:
        """(g,) whether both experiments have users with relevant items, and values that can be summed."""
        sound = [(of_arm(sums, "with_relevant") > 0) & (of_arm(sums, "beyond") == 0) for sums in self.arms]
        return np.asarray(sound[0] & sound[1])

    @cached_property
    def estimate(self) -> Estimate:
        """The t test of each row's design; NaN where there is nothing to test, all but the difference if unresolved."""
        found = self._estimate
        names = ("standard_error", "df", "ci_low", "ci_high", "p_value")
        tested = (np.where(self.unresolved, np.nan, getattr(found, name)) for name in names)
        return Estimate(found.difference, *tested)

    @cached_property
    def _estimate(self) -> Estimate:
        with np.errstate(all="ignore"):
            paired = paired_t(self.pair.difference, self.rules.confidence)
            independent = welch(*self.moments, self.rules.confidence)
        names = Estimate.__dataclass_fields__
        chosen = [self.chosen(getattr(paired, name), getattr(independent, name)) for name in names]
        return Estimate(*chosen)

    @cached_property
    def adjusted(self) -> adjusted.Adjusted | None:
        """CUPED's test of each row's design; None where it was not asked for."""
        if not self.rules.cuped:
            return None
        of_arms = adjusted.of_arms(self.totals, self.keys, self.moments, self.rules.confidence)
        of_pairs = adjusted.of_pairs(self.totals, self.keys, self.pair, self.rules.confidence)
        return adjusted.either(self.paired, of_pairs, of_arms)

    @cached_property
    def decided_by_cuped(self) -> Bools:
        """(g,) whether CUPED is the test of the row."""
        found = self.adjusted
        if found is None:
            return np.zeros(len(self.keys), bool)
        return np.asarray(found.decides & self.testable & ~self.unresolved)

    @cached_property
    def deciding(self) -> Estimate:
        """The test that p-values are corrected from, and that says who is better: CUPED's, else that of the design."""
        found = self.adjusted
        return self.estimate if found is None else found.estimate.where(self.decided_by_cuped, self.estimate)

    @cached_property
    def unresolved(self) -> Bools:
        """(g,) whether the spread is lost in the rounding of the sums, and could explain the difference.

        An error of 0 would make any difference certain. That is right for values that are all the same, and wrong for
        values of a size of 1e-9, or of 1e9 that differ by 1.
        """
        found, arms = self._estimate, self.moments
        with np.errstate(all="ignore"):
            errors = _rounding(arms[0]) + _rounding(arms[1])
            largest = np.sqrt(np.where(self.paired, _rounding(self.pair.difference), errors))
        size = np.abs(found.difference)
        return np.asarray((found.standard_error == 0) & (size > 0) & (size < _RESOLVED * largest))

    def chosen(self, paired: Floats, independent: Floats) -> Floats:
        """(g,) numbers of each row's design; NaN where nothing can be tested."""
        return np.where(self.testable, np.where(self.paired, paired, independent), np.nan)

    def described(self) -> dict[str, Any]:
        """Names, design and counts."""
        both, higher, lower = (of_pair(self.both, name) for name in ("both", "higher", "lower"))
        worse = np.array([self.rules.directions.get(key.metric) is False for key in self.keys])
        return {
            "experiment_id": [key.candidate for key in self.keys],
            "baseline": [key.baseline for key in self.keys],
            "segment": [key.segment for key in self.keys],
            "metric": [key.metric for key in self.keys],
            "design": np.where(self.paired, PAIRED, INDEPENDENT).tolist(),
            "test": [self._test(i) for i in range(len(self.keys))],
            "n_users": self.n_users,
            "wins": np.where(worse, lower, higher),
            "ties": both - higher - lower,
            "losses": np.where(worse, higher, lower),
            "n_users_baseline": of_arm(self.arms[0], "n"),
            "n_users_candidate": of_arm(self.arms[1], "n"),
            "n_users_both": both,
        }

    def _test(self, i: int) -> str | None:
        if np.isnan(self.deciding.p_value[i]):
            return None
        return CUPED if self.decided_by_cuped[i] else PAIRED_T if self.paired[i] else WELCH

    def tested(self) -> dict[str, Any]:
        """Means, difference, interval and p-value, as a number and as a share of the baseline."""
        found, arms, confidence = self.estimate, self.moments, self.rules.confidence
        with np.errstate(all="ignore"):
            of_pairs = relative_paired(self.pair, confidence)
            of_arms = relative_independent(*arms, confidence)
            relative, *bounds = (self.chosen(*both) for both in zip(of_pairs, of_arms, strict=True))
        means = zip((self.pair.baseline.mean, self.pair.candidate.mean), arms, self.arms, strict=True)
        # Without its values that are too large, the mean of an experiment would be another one.
        baseline, candidate = (
            np.where(of_arm(sums, "beyond") > 0, np.nan, np.where(self.paired, of_both, mine.mean))
            for of_both, mine, sums in means
        )
        low, high = (np.where(self.unresolved, np.nan, bound) for bound in bounds)
        return {
            "mean_baseline": baseline,
            "mean_candidate": candidate,
            "difference": found.difference,
            "relative_difference": relative,
            "ci_low": found.ci_low,
            "ci_high": found.ci_high,
            "p_value": found.p_value,
            "standard_error": found.standard_error,
            "relative_ci_low": low,
            "relative_ci_high": high,
        }

    def with_cuped(self) -> dict[str, Any]:
        """The same less what the values from before the experiment explain; nothing where CUPED was not asked for."""
        if (found := self.adjusted) is None:
            return {}
        of = found.estimate
        numbers = {
            **dict(zip(("difference", "ci_low", "ci_high"), (of.difference, of.ci_low, of.ci_high), strict=True)),
            **dict(zip(RELATIVE, found.relative, strict=True)),
            **{"standard_error": of.standard_error, "p_value": of.p_value, "variance_reduction": found.reduction},
        }
        there = self.testable & ~self.unresolved
        return {f"{CUPED}_{name}": np.where(there, values, np.nan) for name, values in numbers.items()}

    def sized(self) -> dict[str, Any]:
        """Effect size, and what the number of users could show."""
        found, rules = self.deciding, self.rules
        with np.errstate(all="ignore"):
            of_pairs = effect_size_paired(self.pair.difference)
            size = self.chosen(of_pairs, effect_size_independent(*self.moments))
            error = found.standard_error
            detectable = minimum_detectable_effect(error, found.df, rules.confidence, rules.power)
            needed = users_needed(self.n_users, found.difference, error, rules.confidence, rules.power)
        return {"effect_size": size, "minimum_detectable_effect": detectable, "users_needed": needed}


def _rounding(of: Moments) -> Floats:
    """(g,) squared error of the mean that a variance has which ``Moments.variance`` cannot tell from 0."""
    mean = np.abs(np.nan_to_num(of.mean))
    return np.asarray(((1 + 4 * mean) * 2.0**-LIMB_UNIT + mean**2 * 2.0**-52) / of.n.astype(float))


def _row_keys(totals: Totals, request: Request, known: Sequence[Name]) -> list[Key]:
    """One key per pair, segment and metric that one of the two experiments has, in this order."""
    cells: dict[Name, dict[tuple[str, str], None]] = {}
    for key in totals.sums:
        if key.kind == "arm":
            cells.setdefault(key.candidate, {})[key.segment, key.metric] = None
    rows = []
    for i, j in zip(*request.pairs(known), strict=True):
        there = dict.fromkeys([*cells[known[i]], *cells[known[j]]])
        rows += [Key("pair", known[i], known[j], segment, metric) for segment, metric in sorted(there)]
    return rows


def _large_enough(totals: Totals, keys: Sequence[Key], min_users: int) -> list[Key]:
    """The rows of all users, and of the segments with so many users in both experiments."""
    n = [of_arm(stacked_arms(totals, keys, place), "users") for place in (BASELINE, CANDIDATE)]
    enough = np.minimum(*n) >= min_users
    return [key for key, keep in zip(keys, enough, strict=True) if keep or key.segment == EVERYONE]


def _designs(totals: Totals, keys: Sequence[Key], design: str) -> Bools:
    """Whether each row is paired; with ``auto``, all segments of a pair follow its users as a whole."""
    if design != "auto":
        return np.full(len(keys), design == PAIRED)
    everyone = [key._replace(segment=EVERYONE) for key in keys]
    n = [of_arm(stacked_arms(totals, everyone, place), "n") for place in (BASELINE, CANDIDATE)]
    both = of_pair(stacked(totals, everyone, len(PAIR_SUMS)), "both")
    return np.asarray((both > 0) & (both >= SHARE_OF_PAIRED * np.maximum(*n)))


_CUT = 2.0**-28
"""Replicates so close to the estimate are equal to it."""
_FINEST_ERROR, _FINEST_DIFFERENCE = 2.0**-22, 2.0**-20
"""Sums of replicates are cut off at 2**-30 per user; below these, too much of the difference would be cut off."""


@dataclass(frozen=True)
class Ranks:
    """Sums of signed ranks of one pair: see ``nonparametric.signed_rank``."""

    n: int
    twice_w_plus: int
    tie_term: int


def resampled(rows: Compared) -> dict[str, Any]:
    """Bootstrap interval, sign-flip test and A/A share; only those that were asked for."""
    kinds = {key.kind for key in rows.totals.replicates}
    columns: dict[str, Any] = {}
    if "bootstrap_arm" in kinds:
        columns["bootstrap_ci_low"], columns["bootstrap_ci_high"] = _bootstrap(rows)
    if "flips" in kinds:
        columns["p_randomization"] = _flips(rows)
    if kinds & {"aa_paired", "aa_independent"}:
        columns["aa_share"] = _aa(rows)
    return columns


def interval(means: Floats, estimate: Floats, acceleration: Floats, rules: Rules) -> tuple[Floats, Floats]:
    """Bootstrap interval of (g, r) replicates, as the rules want it."""
    # Replicates are cut off and the estimate is not, so a replicate that is equal to it lies a little beside it.
    means = np.where(np.abs(means - estimate[:, None]) <= _CUT, estimate[:, None], means)
    if rules.bca:
        return bca(means, estimate, acceleration, rules.confidence)
    return percentile(means, rules.confidence)


def _resampled(rows: Compared) -> Bools:
    """(g,) whether a row has a t test, and replicates that are fine enough for its difference."""
    error, difference = rows.estimate.standard_error, np.abs(rows.estimate.difference)
    still = (error == 0) & ((difference == 0) | (difference >= _FINEST_DIFFERENCE))
    return np.asarray(still | (error >= _FINEST_ERROR))


def _replicates(rows: Compared, kind: str, i: int, place: int | None = None) -> Ints | None:
    key = rows.keys[i] if place is None else arm(rows.keys[i], place)
    return rows.totals.replicates.get(key._replace(kind=kind))


def _bootstrap(rows: Compared) -> tuple[Floats, Floats]:
    low, high = np.full(len(rows.keys), np.nan), np.full(len(rows.keys), np.nan)
    of_arms = acceleration_of_difference(*rows.moments)
    acceleration = np.where(rows.paired, rows.pair.difference.skew_term(), of_arms)
    for i in np.flatnonzero(_resampled(rows)):
        means = _difference_replicates(rows, int(i))
        if means is not None:
            part = slice(i, i + 1)
            bounds = interval(means[None], rows.estimate.difference[part], acceleration[part], rows.rules)
            low[i], high[i] = bounds[0][0], bounds[1][0]
    return low, high


def _difference_replicates(rows: Compared, i: int) -> Floats | None:
    if rows.paired[i]:
        pair = _replicates(rows, "bootstrap_pair", i)
        return None if pair is None else replicate_means(pair[:, 1:]) - replicate_means(pair[:, ::2])
    arms = [_replicates(rows, "bootstrap_arm", i, place) for place in (BASELINE, CANDIDATE)]
    if arms[0] is None or arms[1] is None:
        return None
    return replicate_means(arms[1]) - replicate_means(arms[0])


def _flips(rows: Compared) -> Floats:
    p = np.full(len(rows.keys), np.nan)
    for i in np.flatnonzero(_resampled(rows) & rows.paired):
        found = _replicates(rows, "flips", int(i))
        if found is not None:
            sums = weighted_totals(found)[0]
            p[i] = sign_flip_p(sums[-1:], sums[None, :-1])[0]
    return p


def _aa(rows: Compared) -> Floats:
    share = np.full(len(rows.keys), np.nan)
    for i in np.flatnonzero(_resampled(rows)):
        found = _replicates(rows, "aa_paired" if rows.paired[i] else "aa_independent", int(i))
        if found is not None:
            share[i] = _aa_paired(rows, int(i), found) if rows.paired[i] else _aa_independent(rows, found)
    return share


def _aa_paired(rows: Compared, i: int, found: Ints) -> float:
    both = rows.both[i : i + 1]
    squares = whole(both, PAIR_SUMS, "dd") / 2**LIMB_UNIT
    sums = weighted_totals(found)[:1, :-1]
    n = of_pair(both, "both").astype(float)
    return float(aa_share_paired(n, squares.astype(float), sums, 1 - rows.rules.confidence)[0])


def _aa_independent(rows: Compared, found: Ints) -> float:
    sums = weighted_totals(found)
    return float(aa_share_independent([*sums[:, -1]], sums[:, :-1], 1 - rows.rules.confidence))


def ranked(rows: Compared, ranks: Mapping[Key, Ranks]) -> dict[str, Any]:
    """P-values of Wilcoxon's signed rank test; 1 where all differences are 0."""
    if not rows.rules.wilcoxon:
        return {}
    found = [ranks.get(key._replace(kind="ranks"), Ranks(0, 0, 0)) for key in rows.keys]
    n, rank_sums, ties = (
        np.array([getattr(each, name) for each in found], dtype=object) for name in ("n", "twice_w_plus", "tie_term")
    )
    n_zero = of_pair(rows.both, "both").astype(object) - n
    with np.errstate(all="ignore"):
        p = signed_rank(n, rank_sums, ties, n_zero)
    return {"p_wilcoxon": np.where(rows.testable & rows.paired, p, np.nan)}
