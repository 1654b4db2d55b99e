"""Rows of ``comparisons`` whose users have labels of people in a sample, and of a machine throughout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankmetrics_spark import statistics as st
from rankmetrics_spark.comparison.families import Families
from rankmetrics_spark.comparison.measures import SIDES, VALUES, Key, Totals

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared


@dataclass(frozen=True)
class Labels:
    """Values of users under labels of people and of a machine.

    Attributes:
        h: (n,) under people's, of the judged users.
        f: (n,) of the same users under the machine's.
        others: The machine's of the users whom nobody judged.
    """

    h: st.Floats
    f: st.Floats
    others: st.Others

    @classmethod
    def of_arm(cls, totals: Totals, key: Key) -> Labels | None:
        """Those of an experiment; None where too many of its users are judged to be kept."""
        rows = totals.judged(key._replace(kind="arm_judged"))
        return None if rows is None else cls(rows[:, 0], rows[:, 1], _others(totals.of("machine", [key]), "u"))

    @property
    def helped(self) -> bool:
        """Whether the machine's labels are used."""
        return self.others.n > 1 and st.machine_helps(self.h, self.f)

    @cached_property
    def corrected(self) -> st.Corrected:
        """The mean; of people's labels alone where the machine's do not help."""
        return st.corrected(self.h, self.f, self.others, None if self.helped else 0.0)

    @cached_property
    def of_machine(self) -> st.Others:
        """The machine's values of all users."""
        return st.joined_values(self.f, self.others)


def _others(sums: st.Sums, name: str) -> st.Others:
    moments = sums.moments(name, "others")
    mean, variance = (float(np.nan_to_num(each[0])) for each in (moments.mean, moments.variance))
    return st.Others(int(moments.n[0]), mean, variance)


class Row(NamedTuple):
    """What a row is made of.

    Attributes:
        sides: Of the baseline and of the candidate.
        tested: Of the differences of users; None where the users of the two are different ones.
        covariance: Of the machine's differences with the baseline's values, of the users whom nobody judged.
    """

    sides: tuple[Labels, Labels]
    tested: Labels | None
    covariance: float = 0.0

    @property
    def least(self) -> int:
        """Judged users, of the side that has fewer."""
        return min(len(side.h) for side in self.sides)

    def numbers(self) -> tuple[float, ...]:
        """Difference, squared error and its degrees of freedom, and the covariance with the baseline's mean."""
        baseline, candidate = (side.corrected for side in self.sides)
        if self.tested is not None:
            d = self.tested.corrected
            return d.mean, d.squared_error, st.welch_df(d.parts), d.covariance(baseline, self.covariance)
        parts = [*baseline.parts, *candidate.parts]
        error = sum(error for error, _ in parts)
        return candidate.mean - baseline.mean, error, st.welch_df(parts), -baseline.squared_error

    def of_machine(self) -> tuple[float, float, float]:
        """Difference of the machine's labels of all users, its squared error and degrees of freedom."""
        each = [side.of_machine for side in ((self.tested,) if self.tested else self.sides)]
        parts = [(of.variance / of.n if of.n > 1 else np.nan, of.n - 1) for of in each]
        error = sum(error for error, _ in parts)
        return each[-1].mean - (0.0 if self.tested else each[0].mean), error, st.welch_df(parts)


@dataclass(frozen=True)
class Judged:
    """The rows, and the tests of their corrected means."""

    rows: Compared

    @cached_property
    def each(self) -> list[Row | None]:
        """(g,) what rows are made of; None for people's labels alone, where too many users are judged to be kept."""
        return [self._row(key, bool(paired)) for key, paired in zip(self.rows.keys, self.rows.paired, strict=True)]

    def _row(self, key: Key, paired: bool) -> Row | None:
        totals = self.rows.totals
        if not paired:
            of_arms = [Labels.of_arm(totals, key.arm(place)) for place in SIDES]
            return Row((of_arms[0], of_arms[1]), None) if of_arms[0] and of_arms[1] else None
        values, sums = totals.judged(key._replace(kind="pair_judged")), totals.of("machine_pair", [key])
        if values is None:
            return None
        x, f, y, g = values.T
        baseline, apart = _others(sums, "x"), _others(sums, "d")
        shared = float(np.nan_to_num(sums.covariance("x", "d", "others")[0]))
        candidate = st.Others(baseline.n, baseline.mean + apart.mean, baseline.variance + 2 * shared + apart.variance)
        sides = Labels(x, f, baseline), Labels(y, g, candidate)
        return Row(sides, Labels(y - x, g - f, apart), shared)

    def of(self, number: Any, missing: Any = np.nan) -> Any:
        """(g,) a number of each row."""
        return np.array([missing if each is None else number(each) for each in self.each])

    @cached_property
    def kept(self) -> st.Bools:
        """(g,) whether the values of the judged users are kept."""
        return np.array([each is not None for each in self.each], bool)

    @cached_property
    def least(self) -> st.Ints:
        """(g,) judged users, of the side that has fewer."""
        counts = [np.where(self.rows.paired, self.rows.both["both"], sums["n"]) for sums in self.rows.arms]
        return np.minimum(*counts)

    @cached_property
    def n_others(self) -> tuple[st.Ints, st.Ints, st.Ints]:
        """(g,) users of baseline, candidate and both whom nobody judged."""
        totals, keys = self.rows.totals, self.rows.keys
        ours, theirs = (sums["others"] for sums in totals.sides("machine", keys))
        return ours, theirs, totals.of("machine_pair", keys)["others"]

    @cached_property
    def shared(self) -> st.Bools:
        """(g,) whether users of an independent row are judged in both experiments, so that errors do not add up."""
        return np.asarray(~self.rows.paired & (self.rows.both["both"] > 0))

    @cached_property
    def estimate(self) -> st.Estimate:
        """The tests; without errors below so many judged users, or where these are the same on both sides."""
        return self._test(self.of(Row.numbers, (np.nan,) * 4)).where(self.kept, self.rows.of_people)

    def _test(self, numbers: Any) -> st.Estimate:
        difference, squared, df = numbers.reshape(len(self.each), -1).T[:3]
        error = np.where((self.least < st.LEAST_JUDGED) | self.shared, np.nan, np.sqrt(squared))
        return st.Estimate.of(difference, error, df, self.rows.request.confidence)

    @cached_property
    def machine(self) -> st.Estimate:
        """The tests that the machine's labels alone would give."""
        return self._test(self.of(Row.of_machine, (np.nan,) * 3))

    @cached_property
    def denominator(self) -> st.Denominator:
        """The baseline's means that the differences are a share of."""
        with_baseline = self.of(Row.numbers, (np.nan,) * 4).reshape(len(self.each), -1)[:, 3]
        squared = self.of(lambda row: row.sides[0].corrected.squared_error)
        found = st.Denominator(self.means[0], squared, with_baseline)
        return found.where(self.kept, self.rows.denominator_of_people)

    @cached_property
    def means(self) -> tuple[st.Floats, st.Floats]:
        """(g,) corrected means of baseline and candidate."""
        return self.of(lambda row: row.sides[0].corrected.mean), self.of(lambda row: row.sides[1].corrected.mean)

    def remark(self, i: int) -> str | None:
        """Whether people's labels alone decide, and what the machine's alone would have said."""
        row = self.each[i]
        if row is None:
            n = VALUES["pair_judged"]
            return f"labels of people alone decide, since more than {n:,} users are judged"
        tested, said = [row.tested] if row.tested else row.sides, []
        if not any(each.helped for each in tested):
            why = "it agrees too little with people" if all(each.others.n > 1 for each in tested) else "all are judged"
            same = all(np.count_nonzero(each.h != each.f) < st.LEAST_DIFFERENT for each in tested)
            why = f"it differs from people in fewer than {st.LEAST_DIFFERENT} judged users" if same else why
            said.append(f"labels of people alone decide, and those of the machine are not used: {why}")
        ours, theirs = (
            np.sign(difference) if decided else 0.0
            for difference, decided in (
                (self.rows.deciding.difference[i], self.rows.decided[i]),
                (self.machine.difference[i], self._machine_decides[i]),
            )
        )
        if ours != theirs:
            key = self.rows.keys[i]
            higher = f"that {key.candidate if theirs > 0 else key.baseline} is higher" if theirs else "no difference"
            said.append(f"labels of the machine alone would have shown {higher}")
        return "; ".join(said) or None

    @cached_property
    def _machine_decides(self) -> st.Bools:
        """(g,) whether the corrected tests of the machine's labels find a difference."""
        families = Families(self.rows.keys, self.rows.roles, self.rows.request, self.machine)
        return np.asarray(families.p_adjusted < 1 - self.rows.request.confidence)

    def doubt(self, i: int) -> str | None:
        """Why the row has no test; None if it may have one."""
        if self.shared[i]:
            n = int(self.rows.both["both"][i])
            return f"people judged {n:,} users of both experiments, whose errors belong together (design: paired)"
        if self.least[i] < st.LEAST_JUDGED:
            return f"people judged {self.least[i]:,} users, and a verdict needs {st.LEAST_JUDGED}"
        return None


def machine_means(totals: Totals, confidence: float) -> dict[str, Any]:
    """Corrected means of every experiment, segment and metric that a machine has judged, with intervals."""
    keys = [key for key in totals.sums if key.kind == "arm" and key._replace(kind="machine") in totals.sums]
    known = [(key, labels) for key in keys if (labels := Labels.of_arm(totals, key)) is not None]
    rows = []
    for _, of in known:
        mean = of.corrected
        error = np.sqrt(mean.squared_error) if len(of.h) >= st.LEAST_JUDGED else np.nan
        bounds = st.Estimate.of(np.array(mean.mean), np.array(error), np.array(st.welch_df(mean.parts)), confidence)
        both = float(of.h.mean()) if len(of.h) else np.nan, of.of_machine.mean
        rows.append((mean.mean, float(bounds.ci_low), float(bounds.ci_high), *both, mean.slope, len(of.h)))
    columns = dict(zip(MEANS, zip(*rows, strict=True), strict=True)) if rows else {name: () for name in MEANS}
    names = {"experiment_id": "candidate", "segment": "segment", "metric": "metric"}
    return {name: [getattr(key, field) for key, _ in known] for name, field in names.items()} | columns


MEANS = ("mean", "ci_low", "ci_high", "mean_human", "mean_machine", "lambda", "n_judged")
"""Columns of ``experiment_metrics`` that a machine's labels change or add."""
