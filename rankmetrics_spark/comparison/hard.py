"""Rows for which t does not hold: few users with a hit, skewed values in experiments of different size, heavy users.

The error of t grows with the skewness of the difference. That of two means of different users, under equal chances, is
``k3 (1 / n1**2 - 1 / n0**2) / (s**2 (1 / n0 + 1 / n1))**1.5``, with the moments of all users of both: an experiment
without a hit looks as if it had none. Experiments of equal size have none.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rankmetrics_spark import schemas as sch, statistics as st
from rankmetrics_spark.comparison import measures

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared

#: Fewer users with a hit are expected in the smaller experiment, or differ in a pair: t does not decide.
FEW_HITS = 20
#: Below so many effective users of an experiment, its heavy users are said, and t does not decide.
EFFECTIVE_USERS = 50
#: Below so many equal units of the smaller experiment that the error of a ratio is worth, t and Hall do not hold.
FEW_UNITS = 3
#: Share of the users above which their numbers of lists are about equal: no user is heavy, however few there are.
_EVEN = 2 / 3
#: Above this skewness of the difference, t finds what is not there in more than 6 of 100 tests.
SKEWED = 0.1
PERMUTATION, SIGN_FLIPS, BOSCHLOO, HALL = sch.SPARSE_TESTS


@dataclass(frozen=True)
class Hard:
    """What decides where t does not.

    Attributes:
        rows: The rows.
    """

    rows: "Compared"

    @property
    def _t_alone(self) -> bool:
        """Whether t decides, whatever the values are."""
        return self.rows.question.only_t or self.rows.question.machine

    @cached_property
    def decides(self) -> st.Bools:
        """(g,) whether a row is one of these; of lists and clusters at a single look, of paired ones by their units."""
        rows = self.rows
        by_t = self._t_alone | (rows.by_ratio & (rows.paired | (rows.request.looks != "one")))
        moving = (rows.plain.standard_error > 0) & ~np.isnan(rows.plain.p_value)
        return np.asarray(moving & (self.heavy | self._sparse & ~by_t))

    @cached_property
    def _sparse(self) -> st.Bools:
        """(g,) whether hits are too few for t, or too skewed."""
        return np.asarray(self.few | (np.abs(self._skewness) > SKEWED))

    @cached_property
    def effective(self) -> list[st.Floats]:
        """(g,) how many units with equally many lists the baseline and the candidate are worth: (sum n)**2 / sum n**2.

        Source: Kish, Survey Sampling (1965).
        """
        rows, result = self.rows, []
        of_both = rows.totals.of("pair_lists", rows.keys)
        for own, lists in zip(rows.totals.sides("arm_lists", rows.keys), "mn", strict=True):
            n, squares = (np.where(rows.paired, of_both[lists * i], own["n" * i]) for i in (1, 2))
            known = squares != 0
            result.append(np.where(known, n * n / np.where(known, squares, 1) / 2**st.LIMB_UNIT, np.nan).astype(float))
        return result

    @cached_property
    def uneven(self) -> list[st.Bools]:
        """(g,) whether a few units of the baseline, and of the candidate, have most of the lists."""
        n = (np.where(self.rows.paired, self.rows.both["both"], sums["n"]) for sums in self.rows.arms)
        each = zip(self.effective, n, strict=True)
        return [worth < np.minimum(EFFECTIVE_USERS, users * _EVEN) for worth, users in each]

    def _kept(self, i: int) -> list[st.Floats]:
        """Of a row, values other than 0, or units with their lists, of both or of each experiment; empty if unknown."""
        rows, key = self.rows, self.rows.keys[i]
        what, count = ("units", "n") if rows.by_ratio else ("values", "hits")
        keys = [(key.arm(place, f"arm_{what}"), rows.count(i, place, count)) for place in measures.SIDES]
        if self._t_alone or (rows.request.looks != "one" if rows.by_ratio else self._too_many(i)):
            return []
        if rows.paired[i]:
            shared = rows.both["both"] if rows.by_ratio else rows.both["higher"] + rows.both["lower"]
            keys = [(key._replace(kind=f"pair_{what}"), int(shared[i]))]
        units = [each for own in keys if (each := rows.totals.kept(*own)) is not None]
        return units if len(units) == len(keys) else []

    @cached_property
    def _sums(self) -> st.Floats:
        """(2, k, g) sums of the baseline and of the candidate, as a permutation takes them."""
        arms = self.rows.totals.sides("arm_lists", self.rows.keys) if self.rows.by_ratio else self.rows.arms
        names = ("y", "yy", "n", "yn", "nn") if self.rows.by_ratio else ("v", "vv")
        return np.array([[sums.real(name) for name in names] for sums in arms])

    @cached_property
    def heavy(self) -> st.Bools:
        """(g,) whether units with their lists are permuted: a few have most of them, or hits are few or skewed."""
        hard = self.rows.by_ratio & (self.uneven[0] | self.uneven[1] | self._sparse | self._of_few)
        return np.array([bool(each and self._kept(i)) for i, each in enumerate(hard)], bool)

    @cached_property
    def _of_few(self) -> st.Bools:
        """(g,) whether a few units of different users make most of the error of a ratio, though hits are not few.

        With z = y - ratio * lists, the error is worth (sum z**2)**2 / sum z**4 equal units, of both experiments.
        """
        few = np.zeros(len(self.rows.keys), bool)
        for i in np.flatnonzero(self.rows.by_ratio & ~self.few & ~self.rows.paired).tolist():
            if units := self._kept(i):
                (y, lists), (total, yy, n, yn, nn) = np.concatenate(units).T, self._sums[..., i].sum(axis=0)
                sides, ratio = [self.rows.count(i, place, "n") for place in measures.SIDES], total / n
                worth = (yy - 2 * ratio * yn + ratio**2 * nn) ** 2 * min(sides) / sum(sides)
                few[i] = worth < FEW_UNITS * ((y - ratio * lists) ** 4).sum()
        return few

    @cached_property
    def rates(self) -> st.Bools:
        """(g,) whether all values of two experiments of different users are 0 or 1."""
        both = [sums["hits"] + sums["misses"] == sums["n"] for sums in self.rows.arms]
        return np.asarray(both[0] & both[1] & ~self.rows.paired & (not self.rows.by_ratio))

    @cached_property
    def expected(self) -> st.Floats:
        """(g,) users with a hit that the smaller experiment expects; of a pair, users whose values differ.

        Where all values are 0 or 1, those with 0 if they are fewer.
        """
        rows = self.rows
        n, hits, misses = ([sums[name].astype(float) for sums in rows.arms] for name in ("n", "hits", "misses"))
        hit, missed = hits[0] + hits[1], misses[0] + misses[1]
        share = np.where(self.rates, np.minimum(hit, missed), hit) / np.maximum(n[0] + n[1], 1)
        return np.asarray(
            np.where(rows.paired, rows.both["higher"] + rows.both["lower"], share * np.minimum(*n)), float
        )

    @cached_property
    def few(self) -> st.Bools:
        """(g,) whether these are too few for t."""
        return np.asarray(self.expected < FEW_HITS)

    @cached_property
    def dense(self) -> st.Bools:
        """(g,) whether t has sound intervals even of few: half of them have a hit, or differ, and none is skewed."""
        rows = self.rows
        hits, n = (rows.arms[0][name] + rows.arms[1][name] for name in ("hits", "n"))
        differ = np.where(rows.paired, self.expected / np.maximum(rows.both["both"], 1), hits / np.maximum(n, 1))
        return np.asarray((differ >= 0.5) & (np.abs(self._skewness) <= SKEWED) & ~self.rates & ~self.unbounded)

    @cached_property
    def unbounded(self) -> st.Bools:
        """(g,) whether a few units have most of the lists, so that the difference has no interval."""
        return np.asarray(self.heavy & (self.uneven[0] | self.uneven[1] | self._of_few))

    @cached_property
    def _skewness(self) -> st.Floats:
        """(g,) of the difference of different users, if the experiments do not differ; 0 where the users are the same.

        Where chance decides which of two values of a user is whose, their difference has none.
        """
        rows = self.rows
        baseline, candidate = (sums.moments("v", "n") for sums in rows.arms)
        pooled = st.Moments(*(getattr(baseline, name) + getattr(candidate, name) for name in ("n", "total", "squares")))
        cubes = rows.arms[0]["vvv"] + rows.arms[1]["vvv"]
        with np.errstate(all="ignore"):
            n = [np.maximum(arm.n, 1).astype(float) for arm in (baseline, candidate)]
            error = pooled.std * np.sqrt(1 / n[0] + 1 / n[1])
            skewness = st.third_cumulant(pooled, cubes) * (1 / n[1] ** 2 - 1 / n[0] ** 2) / error**3
            if rows.by_ratio:
                # As if values did not go with the lists: of few equal units, each has a larger part.
                skewness = skewness * np.sqrt((n[0] + n[1]) / (self.effective[0] + self.effective[1]))
        return np.where(rows.paired | ~(error > 0), 0.0, skewness)

    @cached_property
    def skewness(self) -> st.Floats:
        """(g,) what Hall's transformation takes away; 0 where bounds are t's, NaN where they are not known by t."""
        unknown = (self.few | self.rates | self.unbounded) & ~self.dense
        bent = np.where(self.dense, 0.0, np.where(unknown, np.nan, self._skewness))
        return np.where(self.decides, bent, 0.0)

    @cached_property
    def found(self) -> tuple[list[str | None], st.Floats]:
        """(g,) the test that decides, None where it is t; and all p-values."""
        test, rows = self.rows.plain, self.rows
        names: list[str | None] = [None] * len(rows.keys)
        p = np.where(self.decides, st.skewed_p(test, self._skewness), test.p_value)
        for i in np.flatnonzero(self.decides).tolist():
            n, hits = ([rows.count(i, place, name) for place in measures.SIDES] for name in ("n", "hits"))
            names[i] = HALL
            if self.rates[i]:
                names[i], p[i] = BOSCHLOO, st.boschloo_p((hits[0], hits[1]), (n[0], n[1]))
            elif units := self._kept(i):
                names[i] = SIGN_FLIPS if rows.paired[i] else PERMUTATION
                p[i] = self._permuted(i, units, (n[0], n[1]), n if rows.by_ratio else hits)
            elif rows.by_ratio:
                # A few users have most of the lists of few hits, and are not kept.
                p[i] = np.nan if self.few[i] and (self.uneven[0][i] or self.uneven[1][i]) else p[i]
        return names, p

    def _permuted(self, i: int, of: list[st.Floats], n: tuple[int, int], whole: list[int]) -> float:
        """The p-value of what is kept of a row, and of the sums of what is not."""
        if self.rows.paired[i]:
            return st.swapped_ratio_p(of[0]) if self.rows.by_ratio else st.flipped_p(of[0][:, 0])
        return st.permuted_p(of[0], of[1], n, None if [*map(len, of)] == whole else self._sums[..., i])

    def _too_many(self, i: int) -> bool:
        """Whether the segments of an experiment have too many values other than 0 for any of these to be kept."""
        key = self.rows.keys[i]
        splits = [(key[place], key.metric, sch.segment_columns(key.segment)) for place in measures.SIDES]
        return key.segment != sch.EVERYONE and max(self._in_segments[of] for of in splits) > measures.MOST_IN_SEGMENTS

    @cached_property
    def _in_segments(self) -> Counter[tuple[object, ...]]:
        """Experiment, metric and columns -> values other than 0 in all segments."""
        arms = [key for key in self.rows.totals.sums if key.kind == "arm"]
        hits = self.rows.totals.of("arm", arms)["hits"].tolist()
        counts = Counter[tuple[object, ...]]()
        for key, n in zip(arms, hits, strict=True):
            counts[key.candidate, key.metric, sch.segment_columns(key.segment)] += n
        return counts

    def bounded(
        self, tests: tuple[st.Estimate, st.Estimate], level: st.Floats | float
    ) -> tuple[st.Estimate, st.Estimate]:
        """The tests, and the same as a share, with Newcombe's interval of rates; bounds say of 0 what p says."""
        decides = self.decides & ~self.rows.decided_by_cuped
        if not decides.any():
            return tests
        hits, n = ([sums[name].astype(float) for sums in self.rows.arms] for name in ("hits", "n"))
        bounds = st.newcombe((hits[0], hits[1]), (n[0], n[1]), level)
        of_rates = tests[0].between(*bounds).where(decides & self.rates, tests[0]), tests[1]
        test, share = (st.with_decision(each, each.p_value < level).where(decides, each) for each in of_rates)
        return test, share


# ---- rows whose users are all alike: t has no spread to measure with, and exact bounds say what is known of others


def with_exact(rows: "Compared", test: st.Estimate, level: st.Floats | float) -> st.Estimate:
    """The tests with exact bounds where users are all alike, as far as these say of 0 what the p-value says.

    Args:
        rows: The rows.
        test: Their tests, with intervals at 1 - ``level``; without a spread they have none.
        level: One number, or (g,).
    """
    (low, high), highest = _bounds(rows, level), rows.highest
    told = (test.standard_error == 0) & ~(((low > 0) | (high < 0)) & (test.p_value >= level))
    return test.between(np.where(told, low * highest, test.ci_low), np.where(told, high * highest, test.ci_high))


def side_of_margin(rows: "Compared", margin: st.Floats, sign: int) -> tuple[st.Floats, st.Floats]:
    """(g,) exact one-sided p-values of a margin on one side, as in ``margins``, and how far it may be there.

    Where all values are 0, it takes users of one experiment alone to be beyond the margin, a share as large as it: that
    none of n is among them has the probability (1 - margin)**n. NaN where the experiments, or a pair, are not equal.

    Args:
        rows: The rows.
        margin: (g,) in the unit of the metric.
        sign: 1 for being no further below than the margin, -1 for being no further above.
    """
    low, high = _bounds(rows, 1 - rows.request.confidence)
    highest, alike = rows.highest, rows.single.difference == 0
    n = np.log((1 - rows.request.confidence) / 2) / np.log1p(-np.where(sign > 0, -low, high))
    p = np.where(alike, np.maximum(1 - margin / highest, 0.0) ** n, np.nan)
    return p, np.where(alike, np.where(sign > 0, -low, high) * highest, np.nan)


def _bounds(rows: "Compared", level: st.Floats | float) -> tuple[st.Floats, st.Floats]:
    """(g,) bounds as shares of the highest value; a pair counts with its difference."""
    highest = rows.highest
    a = np.where(rows.paired, 0.0, rows.moments[0].mean) / highest
    b = np.where(rows.paired, rows.pair.difference.mean, rows.moments[1].mean) / highest
    n = [np.where(rows.paired, rows.both["both"], sums["n"]).astype(float) for sums in rows.arms]
    return st.bounds_without_spread((a, b), (n[0], n[1]), level, rows.paired)
