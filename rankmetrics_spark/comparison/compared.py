"""Sums of experiments and pairs -> the tests of the rows of ``comparisons``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rankmetrics_spark import config as cfg, schemas as sch, statistics as st, words
from rankmetrics_spark.comparison import adjusted, families, measures as ms
from rankmetrics_spark.comparison.daily import doubts_of_days
from rankmetrics_spark.comparison.families import Families, Question
from rankmetrics_spark.comparison.hard import Hard, with_exact
from rankmetrics_spark.comparison.judged import Judged
from rankmetrics_spark.comparison.notes import HITS_OF_LOOKS, doubts

PAIRED, INDEPENDENT = "paired", "independent"
#: With ``auto``, a pair is paired where this share of the users of each experiment is in both; the rest is left out.
SHARE_OF_PAIRED = 0.95
#: A spread below the rounding of the sums is no reason for doubt if the difference is so many times that rounding.
_RESOLVED = 1_000


@dataclass(frozen=True)
class Compared:
    """The rows to make, with what statistics read of them.

    Attributes:
        totals: All sums.
        question: Which pairs, and how rows are made.
        keys: Kind ``pair``; one per row.
        arms: (g,) sums of the kind ``arm``, of the baseline and of the candidate.
        both: (g,) sums of the kind ``pair``.
        paired: (g,) whether the row tests the users of both.
    """

    totals: ms.Totals
    question: Question
    keys: list[ms.Key]
    arms: tuple[st.Sums, st.Sums]
    both: st.Sums
    paired: st.Bools

    @classmethod
    def of(cls, totals: ms.Totals, question: Question) -> "Compared":
        """The rows of all pairs; refuses the name of an experiment that has no users."""
        known, request = families.experiments_of(totals), question.request
        if not question.by_test:  # an arm without a list is an arm all the same
            ms.refuse_unknown([request.baseline, *request.candidates, *(request.shares or ())], known)
        keys = families.row_keys(totals, request, known)
        # Of segments, those with so many users in both experiments.
        enough = np.minimum(*(sums["users"] for sums in totals.sides("arm", keys))) >= request.min_users
        keys = [key for key, keep in zip(keys, enough, strict=True) if keep or key.segment == sch.EVERYONE]
        # Lists of different users cannot be the same.
        paired = np.full(len(keys), request.only_changed or request.design == PAIRED)
        if request.design == "auto" and not request.only_changed:
            # All segments of a pair follow its users as a whole.
            everyone = [key._replace(segment=sch.EVERYONE) for key in keys]
            n, shared = (sums["n"] for sums in totals.sides("arm", everyone)), totals.of("pair", everyone)["both"]
            paired = (shared > 0) & (shared >= SHARE_OF_PAIRED * np.maximum(*n))
        return cls(totals, question, keys, totals.sides("arm", keys), totals.of("pair", keys), paired)

    @property
    def request(self) -> cfg.Comparison:
        """What is compared, and how."""
        return self.question.request

    @property
    def by_ratio(self) -> bool:
        """Whether means are ratios of two sums over the units, which have several lists or users each."""
        return self.request.mean_over == "lists" or self.request.cluster is not None

    @property
    def units(self) -> str:
        """What people call the units of errors."""
        return str(words.UNITS) if self.request.cluster is None else f"clusters of {self.request.cluster}"

    @property
    def unit(self) -> str:
        """What people call one of them."""
        return str(words.UNIT) if self.request.cluster is None else f"cluster of {self.request.cluster}"

    @cached_property
    def moments(self) -> tuple[st.Moments, st.Moments]:
        """Of all users of baseline and candidate who have a value."""
        baseline, candidate = self.totals.sides("arm_lists", self.keys) if self.by_ratio else self.arms
        return families.arm_moments(baseline), families.arm_moments(candidate)

    @cached_property
    def pair(self) -> st.PairMoments:
        """Of the users of both."""
        return families.pair_moments(self.totals.of("pair_lists", self.keys) if self.by_ratio else self.both)

    @cached_property
    def uneven(self) -> list[str]:
        """(g,) why the days of a pair differ; empty where they do not, and where this is no matter within days."""
        pairs = [(key.baseline, key.candidate) for key in self.keys]
        whole, within = (doubts_of_days(self.totals, {*pairs}, by_date) for by_date in (False, True))
        each = zip(pairs, self.by_date, strict=True)
        return [(within if by_date else whole).get(pair, "") for pair, by_date in each]

    @cached_property
    def by_date(self) -> st.Bools:
        """(g,) whether users are compared with those of the same first date, so that days may have unlike users."""
        return np.asarray(self.decided_by_cuped & ("date" in self.request.strata))

    @cached_property
    def n_users(self) -> st.Ints:
        """(g,) users that a row tests."""
        return np.where(self.paired, self.both["both"], self.arms[0]["n"] + self.arms[1]["n"])

    @cached_property
    def n_both(self) -> st.Ints:
        """(g,) users of both, whether their lists differ or not."""
        return (self.totals.of("all_paired", self.keys) if self.request.only_changed else self.both)["both"]

    @cached_property
    def testable(self) -> st.Bools:
        """(g,) whether both experiments have users with a value, either a relevant item, and no value too large."""
        return testable(self.arms)

    @cached_property
    def estimate(self) -> st.Estimate:
        """The t test of each row's design; NaN where there is nothing to test, all but the difference if unresolved."""
        tests = with_exact(self, self.plain, 1 - self.request.confidence)
        return replace(st.NO_ESTIMATE.where(self.unresolved, tests), difference=tests.difference)

    @cached_property
    def untriggered(self) -> "Compared":
        """The same rows of the users whom the trigger leaves out, at one look and without earlier values."""
        kinds = {"untriggered": "arm", "untriggered_values": "arm_values"}
        sums = self.totals.sums.items()
        totals = ms.Totals({key._replace(kind=kinds[key.kind]): each for key, each in sums if key.kind in kinds})
        request = replace(self.request, looks="one", trigger=None, strata=())
        question = replace(self.question, request=request, earlier=False)
        both, none = totals.of("pair", self.keys), np.zeros(len(self.keys), bool)
        return Compared(totals, question, self.keys, totals.sides("arm", self.keys), both, none)

    @cached_property
    def hard(self) -> Hard:
        """The rows for which t does not hold."""
        return Hard(self)

    @cached_property
    def judged(self) -> Judged:
        """The rows with the labels of a machine."""
        return Judged(self)

    @property
    def alike(self) -> st.Bools:
        """(g,) whether each user with a value stands for as many users as any other."""
        equal = np.ones(len(self.keys), bool)
        return ~self.judged.numbers["unequal"].astype(bool) if self.question.machine and len(self.keys) else equal

    @cached_property
    def plain(self) -> st.Estimate:
        """The t test of each row's design, of corrected means where a machine judged; NaN without anything to test."""
        if self.question.machine:
            return self.judged.estimate.where(self.testable, st.NO_ESTIMATE)
        return self.of_people

    @cached_property
    def of_people(self) -> st.Estimate:
        """The t test of each row's design of the values themselves; NaN where there is nothing to test."""
        if self.question.machine:
            return self.judged.people.where(self.testable, st.NO_ESTIMATE)
        paired = st.paired_t(self.pair.difference, self.request.confidence)
        independent = st.welch(*self.moments, self.request.confidence)
        return paired.where(self.paired, independent).where(self.testable, st.NO_ESTIMATE)

    @cached_property
    def denominator(self) -> st.Denominator:
        """The means that the differences are a share of."""
        if self.question.machine:
            return self.judged.denominator
        return st.denominator_paired(self.pair).where(self.paired, st.denominator_independent(*self.moments))

    @cached_property
    def margins(self) -> tuple[st.Floats, st.Bools]:
        """(g,) margin of the metric, NaN without one, and whether it is a share of the baseline's mean."""
        sizes = [self.request.size_of("margin", key.metric) for key in self.keys]
        return np.array([size for size, _ in sizes], float), np.array([is_share for _, is_share in sizes], bool)

    @cached_property
    def wanted(self) -> st.Floats:
        """(g,) the margin, else the stated effect, else the smallest drop that a gate forbids, in the metric's unit."""
        wanted = np.full(len(self.keys), np.nan)
        for i, mean in enumerate(np.abs(self.single_denominator.mean)):
            sizes = self.request.sizes(self.keys[i].metric, self.keys[i].segment, str(self.keys[i].candidate))
            of_first = (size * mean if is_share else size for size, is_share, name in sizes if name == sizes[0][2])
            wanted[i] = min(of_first, default=np.nan)
        return wanted

    @cached_property
    def relative(self) -> st.Estimate:
        """The difference of the design's test as a share of the baseline, with an interval."""
        return families.intervals_at(self.request.confidence, self.estimate, self.denominator)[1]

    @cached_property
    def adjusted(self) -> adjusted.Adjusted:
        """CUPED's test of each row's design, where there are earlier values; or the test within strata."""
        if self.request.strata or self.request.covariates:
            return adjusted.of_products(self.totals, self.keys, self.paired, self.request)
        of_arms = adjusted.of_arms(self.totals, self.keys, self.moments, self.request.confidence)
        of_pairs = adjusted.of_pairs(self.totals, self.keys, self.pair, self.request.confidence)
        return of_pairs.where(self.paired, of_arms)

    @cached_property
    def decided_by_cuped(self) -> st.Bools:
        """(g,) whether CUPED, or the one within strata, is the test of the row."""
        if not self.is_adjusted:
            return np.zeros(len(self.keys), bool)
        sound = self.testable & ~self.unresolved & ~(self.hard.decides & ~self.hard.dense)
        return np.asarray(self.adjusted.decides & sound & ~(self.paired & bool(self.request.strata)))

    @property
    def is_adjusted(self) -> bool:
        """Whether there are earlier values, or strata."""
        return self.question.earlier or bool(self.request.strata)

    @cached_property
    def single(self) -> st.Estimate:
        """The test of a single look: CUPED's where it decides, else t, or what holds where t does not (``hard``)."""
        p = np.where(self.hard.decides, self.hard.found[1], self.estimate.p_value)
        plain = replace(self.estimate, p_value=p)
        if not self.is_adjusted:
            return plain
        return self.adjusted.estimate.where(self.decided_by_cuped, plain)

    @cached_property
    def single_denominator(self) -> st.Denominator:
        """The means that the differences of that test are a share of."""
        if not self.is_adjusted:
            return self.denominator
        return self.adjusted.denominator.where(self.decided_by_cuped, self.denominator)

    @cached_property
    def deciding(self) -> st.Estimate:
        """The test that p-values are corrected from, and that says who is better; over several looks if asked for."""
        return self._deciding[0]

    @cached_property
    def deciding_relative(self) -> st.Estimate:
        """The difference of the deciding test as a share of the baseline."""
        return self._deciding[1]

    @cached_property
    def _deciding(self) -> tuple[st.Estimate, st.Estimate]:
        return self.at(self.request.confidence)

    def at(self, confidence: st.Floats | float) -> tuple[st.Estimate, st.Estimate]:
        """The deciding test and its relative difference at these levels; NaN for a look without a rule."""
        single, denominator = self.single, self.single_denominator
        if self.request.looks == "one":
            test, relative = families.intervals_at(confidence, single, denominator, skewness=self.hard.skewness)
            return self.hard.bounded((with_exact(self, test, 1 - confidence), relative), 1 - confidence)
        tests = single.untested, st.fieller(single.untested, single.untested.p_value, denominator)
        for chosen, rule in self.looks:
            of_rule = families.intervals_at(confidence, single, denominator, self.n_users, rule)
            tests = of_rule[0].where(chosen, tests[0]), of_rule[1].where(chosen, tests[1])
        return tests

    @cached_property
    def corrected(self) -> tuple[st.Estimate, st.Estimate]:
        """The deciding test and its relative difference, with intervals that exclude 0 exactly where it found one."""
        p, alpha = self.deciding.p_value, 1 - self.request.confidence
        levels = st.adjusted_levels(p, self.p_adjusted, alpha, self.families.strictest_levels)
        # These do not depend on the p-values of the family.
        if self.request.simultaneous:
            levels = np.where(np.isnan(p), np.nan, self.families.strictest_levels)
        alone = levels == alpha
        both = self.at(np.where(alone, self.request.confidence, 1 - levels))
        pairs = zip((self.deciding, self.deciding_relative), both, strict=True)
        test, relative = (old.where(alone, st.with_decision(new, self.decided)) for old, new in pairs)
        return test, relative

    @cached_property
    def decided(self) -> st.Bools:
        """(g,) whether the corrected test found a difference."""
        return np.asarray(self.p_adjusted < 1 - self.request.confidence)

    @cached_property
    def looks(self) -> list[tuple[st.Bools, st.Looks]]:
        """Which rows follow which rule over several looks; empty where a single look decides.

        A row whose look is not known, or beyond the plan, follows none; nor does one with too few hits for t, unless
        another test decides (``hard``): its p-value goes over looks, and it has no interval.
        """
        plan, alpha = self.request.looks, 1 - self.request.confidence
        if plan == "one":
            return []
        rules: list[tuple[st.Bools, st.Looks]] = []
        hard = self.hard.decides & ~self.decided_by_cuped
        for chosen, by_p in ((self.hits_suffice & ~hard, False), (hard, True)):
            if isinstance(plan, str):
                rules.append((chosen, st.AnyLook(self.request.tuning_users, alpha, by_p)))
                continue
            numbers = np.where(chosen, [plan.look or look or 0 for look in self.look], 0)
            planned = (number for number in np.unique(numbers).tolist() if 1 <= number <= plan.planned)
            rules += [(numbers == n, st.PlannedLook(n, plan.planned, plan.spending, alpha, by_p)) for n in planned]
        return rules

    def enough_hits(self, arms: Iterable[st.Sums], both: st.Sums) -> st.Bools:
        """(g,) whether a test of these users over looks has enough of them whose value is not 0, and not 1."""
        of_arms = np.min([sums[name] for sums in arms for name in ("hits", "misses")], axis=0)
        return np.asarray(np.where(self.paired, both["higher"] + both["lower"], of_arms) >= HITS_OF_LOOKS)

    @cached_property
    def hits_suffice(self) -> st.Bools:
        """(g,) the same of the users of the rows."""
        return self.enough_hits(self.arms, self.both)

    @cached_property
    def look(self) -> list[int | None]:
        """(g,) the number of this look at the pair and metric of a row; None where earlier dates are not known."""
        pairs = [(key.baseline, key.candidate, key.metric) for key in self.keys]
        numbers = {pair: self.question.look_numbers.get(pair) for pair in {*pairs}}
        return [numbers[pair] for pair in pairs]

    def by_look(self, of: Callable[[st.Looks], st.Floats]) -> st.Floats:
        """(g,) a number of each row's rule over several looks; NaN where it follows none, or only its p-value does."""
        numbers = np.full(len(self.keys), np.nan)
        for rows, rule in self.looks:
            numbers = np.where(rows & (not rule.by_p), of(rule), numbers)
        return numbers

    def at_looks(self, single: st.Estimate, n_users: st.Ints | None = None) -> st.Estimate:
        """T tests of a single look -> those of the rule over looks; by default of the users of the rows."""
        if self.request.looks == "one":
            return single
        tests, n = single.untested, self.n_users if n_users is None else n_users
        for rows, rule in self.looks:
            tests = st.over_looks(single, n, rule, self.request.confidence).where(rows & (not rule.by_p), tests)
        return tests

    @cached_property
    def roles(self) -> list[str]:
        """(g,) ``primary``, ``guardrail`` or ``secondary``, by the metric of the row."""
        return [self.question.roles.get(key.metric, sch.SECONDARY) for key in self.keys]

    @cached_property
    def families(self) -> Families:
        """Which rows are corrected together, and how."""
        return Families(self.keys, self.roles, self.request, self.deciding)

    @property
    def p_adjusted(self) -> st.Floats:
        """(g,) p-values that are corrected over their family."""
        return self.families.p_adjusted

    @cached_property
    def ranks(self) -> Mapping[tuple[str, str, ms.Name], tuple[int, int]]:
        """(segment, metric, experiment) -> the best and the worst rank that it may have."""
        return dict(families.bounds_of_ranks(self))

    @cached_property
    def unresolved(self) -> st.Bools:
        """(g,) whether the spread is lost in the rounding of the sums, and could explain the difference.

        An error of 0 would make any difference certain. That is right for values that are all the same, and wrong for
        values of a size of 1e-9, or of 1e9 that differ by 1.
        """
        estimate, arms = self.plain, self.moments
        errors = _rounding(arms[0]) + _rounding(arms[1])
        of_pairs = errors if self.by_ratio else _rounding(self.pair.difference)
        largest = np.sqrt(np.where(self.paired, of_pairs, errors))
        size = np.abs(estimate.difference)
        return np.asarray((estimate.standard_error == 0) & (size > 0) & (size < _RESOLVED * largest))

    def has(self, need: str) -> bool:
        """Whether a need of the registry was asked for."""
        question, request = self.question, self.request
        named = {
            "earlier": question.earlier,
            "looks": request.looks != "one",
            "segments": any(key.segment != sch.EVERYONE for key in self.keys),
            "period": question.days,
            "sparse": self.hard.decides.any(),
            "lists": request.mean_over == "lists",
            "chosen": request.only_changed or request.trigger,
            "machine": question.machine,
            "assigned": self.assigned,
            "left_out": self.leaves_out,
            "everyone": self.assigned or self.leaves_out,
        }
        return bool(named[need] if need in named else getattr(request, need))

    @cached_property
    def leaves_out(self) -> bool:
        """Whether some users have no value, or some of their lists."""
        return any(left["users"].any() for left in self.totals.sides("left_out", self.keys))

    def replicates(self, kind: str, i: int, place: int | None = None) -> st.Ints | None:
        """Weighted sums of a row's pair, or of the experiment at a place of its key."""
        key = self.keys[i]._replace(kind=kind) if place is None else self.keys[i].arm(place, kind)
        return self.totals.replicates(key)

    def count(self, i: int, place: int, name: str) -> int:
        """A count of the experiment at a place of a row's key."""
        return int(self.arms[place - ms.BASELINE][name][i])

    @cached_property
    def sample_ratio_p(self) -> float:
        """P-value of the planned shares against the users of all experiments; NaN without planned shares."""
        if not self.request.shares:
            return np.nan
        keys = [ms.Key("arm", "", name, sch.EVERYONE, self.keys[0].metric) for name in self.request.shares]
        # Who was left out followed the plan as well: without these users, a small share would look too small.
        counted = sum(self.totals.of(kind, keys)["users"] for kind in ("arm", "untriggered", "shared"))
        users = [self.assigned[name] for name in self.request.shares] if self.assigned else counted
        return float(st.sample_ratio_p(users, [*self.request.shares.values()]))

    @cached_property
    def assigned(self) -> dict[ms.Name, int]:
        """Experiment -> its users by the assignments, with a list or without; empty where there are none."""
        return {key.candidate: int(sums[0]) for key, sums in self.totals.sums.items() if key.kind == "assigned"}

    @cached_property
    def highest(self) -> st.Floats:
        """(g,) highest value of a metric whose lowest is 0; NaN where users who are all alike say nothing of others.

        So it is over several looks, where users or clusters have different weights, and with labels of a machine.
        """
        ranges = [self.question.ranges.get(key.metric, (np.nan, np.nan)) for key in self.keys]
        highest = np.array([high if low == 0 and high < np.inf else np.nan for low, high in ranges], float)
        bent = self.request.looks != "one" or self.by_ratio or self.question.machine
        return np.where(bent, np.nan, highest)

    @cached_property
    def doubts(self) -> list[str | None]:
        """(g,) why a row has no test, or why its test cannot be trusted."""
        return doubts(self)


def testable(arms: Sequence[st.Sums]) -> st.Bools:
    """(g,) whether two experiments can be compared, by their sums: without any relevant item there is nothing to."""
    sound = [(sums["n"] > 0) & (sums["beyond"] == 0) for sums in arms]
    return np.asarray(sound[0] & sound[1] & (arms[0]["with_relevant"] + arms[1]["with_relevant"] > 0))


def _rounding(of: st.Moments) -> st.Floats:
    """(g,) squared error of the mean that a variance has which ``Moments.variance`` cannot tell from 0."""
    mean = np.abs(np.nan_to_num(of.mean))
    return np.asarray(((1 + 4 * mean) * 2.0**-st.LIMB_UNIT + mean**2 * 2.0**-52) / of.n.astype(float))
