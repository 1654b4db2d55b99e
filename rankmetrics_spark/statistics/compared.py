"""Sums of experiments and pairs -> the tests of the rows of ``comparisons``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.schemas import EVERYONE
from rankmetrics_spark.statistics import significance
from rankmetrics_spark.statistics.exact_sums import UNIT, Floats
from rankmetrics_spark.statistics.moments import Moments, PairMoments
from rankmetrics_spark.statistics.stacked import (
    BASELINE,
    CANDIDATE,
    arm_moments,
    experiments_of,
    of_arm,
    of_pair,
    pair_moments,
    refuse_unknown,
    stacked,
    stacked_arms,
)
from rankmetrics_spark.statistics.totals import PAIR_SUMS, Ints, Key, Name, Request, Totals

Bools = npt.NDArray[np.bool_]
PAIRED, INDEPENDENT = "paired", "independent"
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
        cuped: Whether values of an earlier date are there.
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
    def estimate(self) -> significance.Estimate:
        """The t test of each row's design; NaN where there is nothing to test, all but the difference if unresolved."""
        found = self._estimate
        names = ("standard_error", "df", "ci_low", "ci_high", "p_value")
        tested = (np.where(self.unresolved, np.nan, getattr(found, name)) for name in names)
        return significance.Estimate(found.difference, *tested)

    @cached_property
    def _estimate(self) -> significance.Estimate:
        with np.errstate(all="ignore"):
            paired = significance.paired_t(self.pair.difference, self.rules.confidence)
            independent = significance.welch(*self.moments, self.rules.confidence)
        names = significance.Estimate.__dataclass_fields__
        chosen = [self.chosen(getattr(paired, name), getattr(independent, name)) for name in names]
        return significance.Estimate(*chosen)

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
            "n_users": self.n_users,
            "wins": np.where(worse, lower, higher),
            "ties": both - higher - lower,
            "losses": np.where(worse, higher, lower),
            "n_users_baseline": of_arm(self.arms[0], "n"),
            "n_users_candidate": of_arm(self.arms[1], "n"),
            "n_users_both": both,
        }

    def tested(self) -> dict[str, Any]:
        """Means, difference, interval and p-value, as a number and as a share of the baseline."""
        found, arms, confidence = self.estimate, self.moments, self.rules.confidence
        with np.errstate(all="ignore"):
            of_pairs = significance.relative_paired(self.pair, confidence)
            of_arms = significance.relative_independent(*arms, confidence)
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

    def sized(self) -> dict[str, Any]:
        """Effect size, and what the number of users could show."""
        found, rules = self.estimate, self.rules
        with np.errstate(all="ignore"):
            of_pairs = significance.effect_size_paired(self.pair.difference)
            size = self.chosen(of_pairs, significance.effect_size_independent(*self.moments))
            error = found.standard_error
            detectable = significance.minimum_detectable_effect(error, found.df, rules.confidence, rules.power)
            needed = significance.users_needed(self.n_users, found.difference, error, rules.confidence, rules.power)
        return {"effect_size": size, "minimum_detectable_effect": detectable, "users_needed": needed}


def _rounding(of: Moments) -> Floats:
    """(g,) squared error of the mean that a variance has which ``Moments.variance`` cannot tell from 0."""
    mean = np.abs(np.nan_to_num(of.mean))
    return np.asarray(((1 + 4 * mean) * 2.0**-UNIT + mean**2 * 2.0**-52) / of.n.astype(float))


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
    return np.asarray((both > 0) & (2 * both >= np.minimum(*n)))
