"""Rows of ``comparisons`` whose users have labels of people in a sample, and of a machine throughout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtr

from rankmetrics_spark import statistics as st
from rankmetrics_spark.comparison.families import Families
from rankmetrics_spark.comparison.measures import SIDES, Key, Totals
from rankmetrics_spark.config import Comparison
from rankmetrics_spark.schemas import SMALL_RATIO_P, columns
from rankmetrics_spark.words import UNIT, UNITS

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared

#: Share of the judged users who may have an item at the first ranks that people did not judge.
MOST_IN_PART = 0.02
#: Columns of ``experiment_metrics`` that a machine's labels change or add, with the keys of its rows.
MACHINE_MEANS = columns(
    "string: experiment_id segment metric; double: mean ci_low ci_high mean_human mean_machine lambda; "
    "long: n_users n_judged"
)


@dataclass(frozen=True)
class Labels:
    """Values of users under labels of people and of a machine.

    Attributes:
        h: (n,) under people's, of the judged users.
        f: (n,) of the same users under the machine's.
        others: The machine's of the users whom nobody judged.
        target: What the mean is of, as a comparison has it.
    """

    h: st.Floats
    f: st.Floats
    others: st.Others
    target: str = "population"

    @classmethod
    def of_arm(cls, totals: Totals, key: Key, target: str) -> Labels:
        """Those of an experiment."""
        values, sums = totals.judged(key._replace(kind="arm_judged")), totals.of("machine", [key])
        return cls(values[:, 0], values[:, 1], _others(sums, "u"), target)

    @cached_property
    def mean(self) -> st.Corrected:
        """The corrected mean; that of people's labels alone where the machine's do not help."""
        helped = self.others.n > 1 and st.machine_helps(self.h, self.f)
        return st.corrected(self.h, self.f, self.others, None if helped else 0.0, self.target == "these_queries")

    @property
    def sample_p(self) -> float:
        """P-value of the machine's values of the judged users being those of users like the others."""
        rest = self.others
        if not len(self.f) > 1 < rest.n:
            return 1.0
        p = _p_value(self.f.mean() - rest.mean, [_part(self.f), (rest.variance / rest.n, rest.n - 1)])
        return float(np.nan_to_num(p, nan=1.0))

    @property
    def bias(self) -> float:
        """How much higher the machine's values of the judged users are; NaN without any."""
        return float(np.mean(self.f - self.h)) if len(self.h) else np.nan

    @property
    def rho(self) -> float:
        """Correlation of the values of judged users; 0 where one of them does not vary."""
        return float(np.corrcoef(self.h, self.f)[0, 1]) if len(self.h) > 1 and self.h.std() * self.f.std() else 0.0

    @cached_property
    def of_machine(self) -> st.Others:
        """The machine's values of all users."""
        return st.joined_values(self.f, self.others)


def _part(values: st.Floats) -> tuple[float, int]:
    """Squared error of a mean, and its degrees of freedom."""
    return (float(values.var(ddof=1)) / len(values) if len(values) > 1 else np.nan), len(values) - 1


def _p_value(difference: float, parts: list[tuple[float, int]]) -> float:
    """Of a difference of means that have these errors; NaN without a spread."""
    error = np.sqrt(sum(squared for squared, _ in parts))
    return float(2 * stdtr(st.welch_df(parts), -abs(difference) / error)) if error > 0 else np.nan


def _others(sums: st.Sums, name: str) -> st.Others:
    moments = sums.moments(name, "others")
    mean, variance = (float(np.nan_to_num(each[0])) for each in (moments.mean, moments.variance))
    return st.Others(int(moments.n[0]), mean, variance)


@dataclass(frozen=True)
class Judged:
    """The rows, and the tests of their corrected means."""

    rows: Compared

    @cached_property
    def numbers(self) -> dict[str, st.Floats]:
        """(g,) numbers by name, those of columns of ``comparisons`` among them."""
        each = [self._numbers(*labels) for labels in self.labels]
        return {name: np.array([row[name] for row in each], float) for name in each[0]}

    @cached_property
    def labels(self) -> list[tuple[tuple[Labels, ...], tuple[Labels, ...], float]]:
        """(g,) of both sides, of what is tested, and the covariance of a paired baseline's values with differences."""
        return [self._labels(*row) for row in zip(self.rows.keys, self.rows.paired, strict=True)]

    def _labels(self, key: Key, paired: bool) -> tuple[tuple[Labels, ...], tuple[Labels, ...], float]:
        totals, target = self.rows.totals, self.rows.request.target
        if not paired:
            return (sides := tuple(Labels.of_arm(totals, key.arm(side), target) for side in SIDES)), sides, 0.0
        (x, f, y, g), sums = totals.judged(key._replace(kind="pair_judged")).T, totals.of("machine_pair", [key])
        a, d = _others(sums, "x"), _others(sums, "d")
        shared = float(np.nan_to_num(sums.covariance("x", "d", "others")[0]))
        b = st.Others(a.n, a.mean + d.mean, a.variance + 2 * shared + d.variance)
        return (Labels(x, f, a, target), Labels(y, g, b, target)), (Labels(y - x, g - f, d, target),), shared

    def _numbers(self, sides: tuple[Labels, ...], tested: tuple[Labels, ...], shared: float) -> dict[str, float]:
        first, last = tested[0].mean, tested[-1].mean
        paired, parts = len(tested) == 1, [part for of in tested for part in of.mean.parts]
        covariance = first.covariance(sides[0].mean, shared) if paired else -first.squared_error
        of_bias = [_part(of.f - of.h) for of in tested]
        means = {
            f"{name}_{side}{end}": number
            for side, of in zip(("baseline", "candidate"), sides, strict=True)
            for name, end, number in (
                ("mean", "", of.mean.mean),
                ("lambda", "", of.mean.slope),
                ("mean", "_machine", of.of_machine.mean),
                ("bias", "_machine", of.bias),
                ("p_bias", "_machine", _p_value(of.bias, [_part(of.f - of.h)])),
            )
        }
        of_machine = [(of.variance / max(of.n, 1), of.n - 1) for of in (each.of_machine for each in tested)]
        return means | {
            "difference": last.mean if paired else last.mean - first.mean,
            "lambda": first.slope if paired else np.nan,
            "p_bias_machine": _p_value(sides[1].bias - sides[0].bias, of_bias),
            **{"squared_error": sum(error for error, _ in parts), "df": st.welch_df(parts)},
            **{"covariance": covariance, "squared_error_baseline": sides[0].mean.squared_error},
            "sample_p": min(side.sample_p for side in sides),
            "difference_machine": sides[1].of_machine.mean - sides[0].of_machine.mean,
            "squared_error_machine": sum(error for error, _ in of_machine),
            "df_machine": st.welch_df(of_machine),
        }

    @cached_property
    def least(self) -> st.Ints:
        """(g,) judged users, of the side that has fewer."""
        return np.minimum(*(np.where(self.rows.paired, self.rows.both["both"], sums["n"]) for sums in self.rows.arms))

    @cached_property
    def n_others(self) -> tuple[st.Ints, st.Ints, st.Ints]:
        """(g,) users of baseline, candidate and both whom nobody judged."""
        totals, keys = self.rows.totals, self.rows.keys
        ours, theirs = (sums["others"] for sums in totals.sides("machine", keys))
        return ours, theirs, totals.of("machine_pair", keys)["others"]

    def _test(self, end: str = "") -> st.Estimate:
        difference, squared, df = (self.numbers[f"{name}{end}"] for name in ("difference", "squared_error", "df"))
        unknown = [self.doubt(i) is not None for i in range(len(self.rows.keys))]
        return st.Estimate.of(difference, np.where(unknown, np.nan, np.sqrt(squared)), df, self.rows.request.confidence)

    @cached_property
    def estimate(self) -> st.Estimate:
        """The tests, without errors where nothing can be said."""
        return self._test()

    @cached_property
    def machine(self) -> st.Estimate:
        """The tests that the machine's labels alone would give."""
        return self._test("_machine")

    @cached_property
    def denominator(self) -> st.Denominator:
        """The baseline's means that the differences are a share of."""
        return st.Denominator(*(self.numbers[n] for n in ("mean_baseline", "squared_error_baseline", "covariance")))

    def remark(self, i: int) -> str | None:
        """Whether people's labels alone decide, and what the machine's alone would have said."""
        rows, said = self.rows, []
        sides = ("",) if rows.paired[i] else ("_baseline", "_candidate")
        if not any(self.numbers[f"lambda{side}"][i] for side in sides):
            said.append(
                "labels of people alone decide, since those of the machine agree too little with them, or differ from "
                f"them in fewer than {st.LEAST_DIFFERENT} judged {UNITS}, or every {UNIT} is judged"
            )
        alone = Families(rows.keys, rows.roles, rows.request, self.machine).p_adjusted < 1 - rows.request.confidence
        tests = ((rows.deciding, rows.decided), (self.machine, alone))
        ours, theirs = (np.sign(test.difference[i]) * bool(found[i]) for test, found in tests)
        if ours != theirs:
            higher = rows.keys[i].candidate if theirs > 0 else rows.keys[i].baseline
            shown = f"that {higher} is higher" if theirs else "no difference"
            said.append(f"labels of the machine alone would have shown {shown}")
        return "; ".join(said) or None

    def doubt(self, i: int) -> str | None:
        """Why the row has no test; None if it may have one."""
        n, shared = int(self.least[i]), int(self.rows.both["both"][i])
        if shared and not self.rows.paired[i]:
            return (
                f"people judged {shared:,} {UNITS} of both experiments, whose errors belong together (design: paired)"
            )
        if n < st.LEAST_JUDGED:
            return f"people judged {n} {UNITS}, and a verdict needs {st.LEAST_JUDGED}"
        gaps = [int(sums["in_part"][i]) for sums in self.rows.totals.sides("machine", self.rows.keys)]
        if max(gaps) > MOST_IN_PART * n:
            gap = f"people judged {max(gaps):,} of {n:,} {UNITS} in part, as where a system came later"
            return f"{gap}; n_to_judge of user_metrics says how many items are to judge"
        p = self.numbers["sample_p"][i]
        off = f"the {UNITS} that people judged are not like the others: the machine rates them otherwise (p = {p:.2g})"
        return off if p < SMALL_RATIO_P else None


def machine_means(totals: Totals, request: Comparison) -> dict[str, Any]:
    """Corrected means of every experiment, segment and metric that a machine has judged, with intervals."""
    rated = {key._replace(kind="arm") for key in totals.sums if key.kind in ("machine", "arm_judged")}
    keys = [key for key in totals.sums if key in rated]
    rows = []
    for key, labels in ((key, Labels.of_arm(totals, key, request.target)) for key in keys):
        mean, n = labels.mean, len(labels.h)
        error = np.array(np.sqrt(mean.squared_error) if n >= st.LEAST_JUDGED else np.nan)
        test = st.Estimate.of(np.array(mean.mean), error, np.array(st.welch_df(mean.parts)), request.confidence)
        numbers = mean.mean, float(test.ci_low), float(test.ci_high), float(labels.h.mean()) if n else np.nan
        counts = labels.of_machine.n, n
        rows.append((key.candidate, key.segment, key.metric, *numbers, labels.of_machine.mean, mean.slope, *counts))
    return {name: [row[i] for row in rows] for i, name in enumerate(MACHINE_MEANS)}
