"""Sums of experiments and pairs -> the tests of the rows of ``comparisons``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.comparison import adjusted
from rankmetrics_spark.comparison.totals import (
    ARM_SUMS,
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
    stacked,
    stacked_arms,
)
from rankmetrics_spark.schemas import EVERYONE
from rankmetrics_spark.statistics import (
    LARGEST_SUMMAND,
    LIMB_UNIT,
    Estimate,
    Floats,
    Moments,
    PairMoments,
    adjusted_p_values,
    bca,
    paired_t,
    percentile,
    relative_independent,
    relative_paired,
    sample_ratio_p,
    welch,
)

Bools = npt.NDArray[np.bool_]
PAIRED, INDEPENDENT = "paired", "independent"
SHARE_OF_PAIRED = 0.95
"""With ``auto``, a pair is paired where this share of the users of each experiment is in both; the rest is left out."""
SMALL_RATIO_P = 0.001
"""Below this p-value, the users do not follow the planned shares, and no verdict is given."""
NEEDS = {
    "ranks": "`wilcoxon: true`",
    "flips": "`randomization: true`",
    "bootstrap": "`bootstrap: true`",
    "reshuffles": "`aa_check: true`",
    "shares": "`shares: {...}`",
    "earlier": "`cuped: {date: ...}` or `cuped: {column: ...}`",
}
"""What a statistic may need beside the sums of experiments and pairs -> what asks for it."""
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
class Ranks:
    """Sums of signed ranks of one pair: see ``nonparametric.signed_rank``."""

    n: int
    twice_w_plus: int
    tie_term: int


@dataclass(frozen=True)
class Compared:
    """The rows to make, with what statistics read of them.

    Attributes:
        totals: All sums.
        ranks: Of all users; empty if no signed ranks are asked for.
        request: Which pairs, and how often users are resampled.
        rules: How rows are made.
        keys: Kind ``pair``; one per row.
        arms: (g, c) sums of the baseline and of the candidate.
        both: (g, c) sums of the users of both.
        paired: (g,) whether the row tests the users of both.
    """

    totals: Totals
    ranks: Mapping[Key, Ranks]
    request: Request
    rules: Rules
    keys: list[Key]
    arms: tuple[Ints, Ints]
    both: Ints
    paired: Bools

    @classmethod
    def of(cls, totals: Totals, ranks: Mapping[Key, Ranks], request: Request, rules: Rules) -> Compared:
        """The rows of all pairs.

        Raises:
            ConfigError: There is no experiment with the name of the baseline, of a candidate or of a share.
        """
        known = experiments_of(totals)
        refuse_unknown([request.baseline, *request.candidates, *(rules.shares or ())], known)
        keys = _large_enough(totals, _row_keys(totals, request, known), rules.min_users)
        arms = stacked_arms(totals, keys, BASELINE), stacked_arms(totals, keys, CANDIDATE)
        both = stacked(totals, keys, len(PAIR_SUMS))
        return cls(totals, ranks, request, rules, keys, arms, both, _designs(totals, keys, rules.design))

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
        paired = paired_t(self.pair.difference, self.rules.confidence)
        independent = welch(*self.moments, self.rules.confidence)
        names = Estimate.__dataclass_fields__
        chosen = [self.chosen(getattr(paired, name), getattr(independent, name)) for name in names]
        return Estimate(*chosen)

    @cached_property
    def relative(self) -> tuple[Floats, Floats, Floats]:
        """The difference as a share of the baseline, and its interval."""
        of_pairs = relative_paired(self.pair, self.rules.confidence)
        of_arms = relative_independent(*self.moments, self.rules.confidence)
        relative, *bounds = (self.chosen(*both) for both in zip(of_pairs, of_arms, strict=True))
        low, high = (np.where(self.unresolved, np.nan, bound) for bound in bounds)
        return relative, low, high

    @cached_property
    def adjusted(self) -> adjusted.Adjusted:
        """CUPED's test of each row's design, where ``rules.cuped``."""
        of_arms = adjusted.of_arms(self.totals, self.keys, self.moments, self.rules.confidence)
        of_pairs = adjusted.of_pairs(self.totals, self.keys, self.pair, self.rules.confidence)
        return adjusted.either(self.paired, of_pairs, of_arms)

    @cached_property
    def decided_by_cuped(self) -> Bools:
        """(g,) whether CUPED is the test of the row."""
        if not self.rules.cuped:
            return np.zeros(len(self.keys), bool)
        return np.asarray(self.adjusted.decides & self.testable & ~self.unresolved)

    @cached_property
    def deciding(self) -> Estimate:
        """The test that p-values are corrected from, and that says who is better: CUPED's, else that of the design."""
        if not self.rules.cuped:
            return self.estimate
        return self.adjusted.estimate.where(self.decided_by_cuped, self.estimate)

    @cached_property
    def p_adjusted(self) -> Floats:
        """(g,) p-values that are corrected over all rows."""
        return adjusted_p_values(self.deciding.p_value, self.rules.correction)

    @cached_property
    def n_tested(self) -> int:
        """How many rows have a p-value."""
        return int(np.count_nonzero(~np.isnan(self.deciding.p_value)))

    @cached_property
    def unresolved(self) -> Bools:
        """(g,) whether the spread is lost in the rounding of the sums, and could explain the difference.

        An error of 0 would make any difference certain. That is right for values that are all the same, and wrong for
        values of a size of 1e-9, or of 1e9 that differ by 1.
        """
        found, arms = self._estimate, self.moments
        errors = _rounding(arms[0]) + _rounding(arms[1])
        largest = np.sqrt(np.where(self.paired, _rounding(self.pair.difference), errors))
        size = np.abs(found.difference)
        return np.asarray((found.standard_error == 0) & (size > 0) & (size < _RESOLVED * largest))

    def chosen(self, paired: Floats, independent: Floats) -> Floats:
        """(g,) numbers of each row's design; NaN where nothing can be tested."""
        return np.where(self.testable, np.where(self.paired, paired, independent), np.nan)

    def has(self, need: str) -> bool:
        """Whether one of ``NEEDS`` was asked for."""
        rules, request = self.rules, self.request
        asked = {"ranks": rules.wilcoxon, "earlier": rules.cuped, "shares": rules.shares}
        return bool(asked[need] if need in asked else getattr(request, need))

    def replicates(self, kind: str, i: int, place: int | None = None) -> Ints | None:
        """Weighted sums of a row's pair, or of the experiment at a place of its key."""
        key = self.keys[i] if place is None else arm(self.keys[i], place)
        return self.totals.replicates.get(key._replace(kind=kind))

    def count(self, i: int, place: int, name: str) -> int:
        """One of ``ARM_SUMS`` of the experiment at a place of a row's key."""
        return int(of_arm(self.arms[place - BASELINE], name)[i])

    @cached_property
    def sample_ratio_p(self) -> float:
        """P-value of the planned shares against the users of all experiments; NaN without planned shares."""
        if not self.rules.shares:
            return np.nan
        keys = [Key("arm", "", name, EVERYONE, self.keys[0].metric) for name in self.rules.shares]
        users = of_arm(stacked(self.totals, keys, len(ARM_SUMS)), "users")
        return float(sample_ratio_p(users, [*self.rules.shares.values()]))

    @cached_property
    def doubts(self) -> list[str | None]:
        """(g,) why a row has no test, or why its test cannot be trusted."""
        return [_doubt(self, i) for i in range(len(self.keys))]


def _doubt(rows: Compared, i: int) -> str | None:
    for name, (text, forbidden) in _PROBLEMS.items():
        places = [place for place in (BASELINE, CANDIDATE) if (rows.count(i, place, name) > 0) is forbidden]
        if places:
            return f"{text} in {_names(rows.keys[i], places)}"
    if np.isnan(rows.deciding.p_value[i]):
        return _untested(rows, i)
    if rows.sample_ratio_p < SMALL_RATIO_P:
        return f"not trustworthy: the users do not follow the planned shares (p = {rows.sample_ratio_p:.2g})"
    return None


_PROBLEMS = {
    "users": ("no users", False),
    "n": ("no users with a value", False),
    "with_relevant": ("no users with relevant items", False),
    "beyond": (f"values above {LARGEST_SUMMAND:.2g}, which cannot be summed,", True),
}
"""Sum of an experiment -> what is wrong with it, and whether it is wrong to have some."""


def _names(key: Key, places: Sequence[int]) -> str:
    return " and ".join(str(key[place]) for place in places)


def _untested(rows: Compared, i: int) -> str:
    """Why two experiments that could be compared have no p-value."""
    if rows.unresolved[i]:
        return "the values differ too little from one another for a test"
    if rows.paired[i]:
        return "no users in both experiments" if not rows.n_users[i] else "fewer than two users in both experiments"
    few = [place for place in (BASELINE, CANDIDATE) if rows.count(i, place, "n") < 2]
    return f"fewer than two users in {_names(rows.keys[i], few)}"


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


def interval(means: Floats, estimate: Floats, acceleration: Floats, rules: Rules) -> tuple[Floats, Floats]:
    """Bootstrap interval of (g, r) replicates, as the rules want it."""
    # Replicates are cut off and the estimate is not, so a replicate that is equal to it lies a little beside it.
    means = np.where(np.abs(means - estimate[:, None]) <= _CUT, estimate[:, None], means)
    if rules.bca:
        return bca(means, estimate, acceleration, rules.confidence)
    return percentile(means, rules.confidence)
