"""Rows of ``comparisons`` whose users have labels of people in a sample, and of a machine throughout."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.special import stdtr

from rankmetrics_spark import config as cfg, schemas as sch, statistics as st
from rankmetrics_spark.comparison.families import Families
from rankmetrics_spark.comparison.measures import SIDES, TABLES, Key, Totals, said
from rankmetrics_spark.words import UNITS, p_value

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared

#: Share of the judged users who may have an item at the first ranks that people did not judge.
MOST_IN_PART = 0.02
#: Columns of ``experiment_metrics`` that a machine's labels change or add, with the keys of its rows.
MACHINE_MEANS = TABLES["machine_means"]
#: What the users whom people judged have otherwise than the others, where they are not like them, by these p-values.
OTHERWISE = "the machine rates them otherwise", "their lists have other lengths", "other segments have more of them"
#: Labels of both sides of a row, of what it tests, and a covariance of the machine's values.
Row: TypeAlias = "tuple[tuple[Labels, ...], tuple[Labels, ...], float]"


@dataclass(frozen=True)
class Labels:
    """Values of units under labels of people and of a machine.

    Where means are over lists, a value is R + (value - R) * lists / mean lists, where R is the mean: what it adds to R.

    Attributes:
        ids: (n,) hash of each judged unit, ascending.
        h: (n,) values under people's labels.
        f: (n,) of the same units under the machine's.
        off: (n,) how much higher the machine's are.
        others: The machine's of the units that nobody judged.
        weights: (n,) 1 / probability of being drawn, with the mean 1.
        n_different: Judged units whose values differ under both.
        target: What the mean is of, as a comparison has it.
        slope: Lambda, one number or (n,); None for the best one of these values.
    """

    ids: st.Ints
    h: st.Floats
    f: st.Floats
    off: st.Floats
    others: st.Others
    weights: st.Floats
    n_different: int
    target: str = "population"
    slope: Any = None

    @classmethod
    def of_arm(cls, totals: Totals, key: Key, target: str) -> "Labels":
        """Those of an experiment."""
        ids, kept = totals.judged(key._replace(kind="arm_judged"))
        return _labels(ids, np.delete(kept, 3, axis=0), totals.of("machine", [key]), target)[0][0]

    @cached_property
    def mean(self) -> st.Corrected:
        """The corrected mean; that of people's labels alone where the machine's do not help."""
        slope = (None if self.helps else 0.0) if self.slope is None else self.slope
        return st.corrected(self.h, self.f, self.others, slope, self.target == "these_queries", self.weights)

    @cached_property
    def people(self) -> st.Corrected:
        """The mean of people's labels alone."""
        return st.corrected(self.h, self.f, self.others, 0.0, weights=self.weights)

    @cached_property
    def bias(self) -> st.Corrected:
        """How much higher the machine's values of the judged units are."""
        return st.corrected(self.off, self.f, self.others, 0.0, weights=self.weights)

    @property
    def helps(self) -> bool:
        """Whether the machine's labels are used."""
        return self.others.n > 1 and st.machine_helps(self.people.effective, self.n_different, self.rho)

    @property
    def products(self) -> st.Floats:
        """(3,) variances under people's labels and the machine's, and their covariance, of the judged units."""
        pairs = (self.h, self.h), (self.f, self.f), (self.h, self.f)
        return np.array([st.weighted(*pair, self.weights) for pair in pairs])

    @property
    def rho(self) -> float:
        """Correlation of the values of judged units; 0 where one of them does not vary."""
        return correlation(self.products)

    @cached_property
    def of_machine(self) -> st.Others:
        """The machine's values of all units."""
        return st.joined_values(self.f, self.others)


def correlation(products: st.Floats) -> float:
    """From two variances and a covariance; 0 without a spread."""
    return float(products[2] / np.sqrt(products[0] * products[1])) if min(products[:2]) > 0 else 0.0


def _labels(ids: st.Ints, kept: st.Floats, sums: st.Sums, target: str) -> tuple[list[Labels], float]:
    """Those of an experiment, or of both of a pair and of their difference; covariance of baseline and difference.

    Args:
        ids: (n,) the judged units.
        kept: (3 * sides + 1, n) people's value, the machine's and lists of each side; probability of being drawn.
        sums: Of the others.
        target: What the means are of.
    """
    n, rest, letters = len(ids), int(sums["others"][0]), "yn" if len(kept) == 4 else "xmyn"
    weights = 1 / kept[-1] / (1 / kept[-1]).mean() if n else kept[-1]
    words = [[word if (word := one + other) in sums.measure.values else other + one for other in letters]
             for one in letters]  # fmt: skip
    total, squares = (np.vectorize(lambda word: Fraction(int(sums[word][0]), 2**st.LIMB_UNIT), otypes=[object])(each)
                      for each in ([*letters], words))  # fmt: skip
    sides: list[Any] = []
    for at in range(0, len(letters), 2):
        h, f, lists = kept[at // 2 * 3 :][:3]
        n_lists = Fraction(float(lists.sum())) + total[at + 1] or Fraction(1)
        mean, size = (Fraction(float((lists * f).sum())) + total[at]) / n_lists, n_lists / max(n + rest, 1)
        # What the value of a unit adds to the mean is linear in its sum and its lists.
        linear = np.full(len(letters), Fraction(0))
        linear[at : at + 2] = 1 / size, -mean / size
        weighed = weights * lists
        of_people = (_added(each, lists, (weighed * each).sum() / weighed.sum(), weighed.mean()) for each in (h, f - h))
        machine = _added(f, lists, float(mean), float(size))
        sides.append((np.array([*of_people, machine, f - h]) if n else np.zeros((4, 0)), linear, mean))
    if len(sides) > 1:
        sides.append(tuple(theirs - ours for ours, theirs in zip(*sides, strict=True)))

    def covariance(one: Any, other: Any) -> float:
        """Of what two values of each of the others add."""
        spread = one @ squares @ other - (one @ total) * (other @ total) / max(rest, 1)
        return float(spread / (rest - 1)) if rest > 1 else 0.0

    labels = []
    for (h, off, f, differ), linear, mean in sides:
        of_rest = float(mean + linear @ total / rest) if rest else 0.0
        others = st.Others(rest, of_rest, max(covariance(linear, linear), 0.0))
        labels.append(Labels(ids, h, f, off, others, weights, int(np.count_nonzero(differ)), target))
    return labels, covariance(sides[0][1], sides[-1][1])


def _added(values: st.Floats, lists: st.Floats, mean: float, size: float) -> st.Floats:
    """(n,) what units add to a mean over lists, of which they have ``size`` on average: the values if each has one."""
    return values if size == 1 and (lists == 1).all() else mean + (values - mean) * lists / size


def _p_value(difference: float, parts: Sequence[tuple[float, float]]) -> float:
    """Of a difference of means that have these errors; NaN without a spread."""
    error = np.sqrt(sum(squared for squared, _ in parts))
    return float(2 * stdtr(st.welch_df(parts), -abs(difference) / error)) if error > 0 else np.nan


def sample_ps(totals: Totals, request: cfg.Comparison) -> dict[tuple[Any, str], list[float]]:
    """Experiment and metric -> p-values, in the order of ``OTHERWISE``, of judged users being like the others."""
    found: dict[tuple[Any, str], list[float]] = {}
    counts = defaultdict[Any, list[Any]](list)
    for key in {key._replace(kind="arm") for key in totals.sums if key.kind in ("machine", "arm_judged")}:
        (_, kept), sums, name = totals.judged(key._replace(kind="arm_judged")), totals.of("machine", [key]), key[2::2]
        if key.segment != sch.EVERYONE:
            row = (1 / kept[-1]).sum(), kept.shape[1], int(sums["others"][0])
            counts[name, sch.segment_columns(key.segment)].append(row)
            continue
        of, shown = Labels.of_arm(totals, key, request.target), sums.moments("s", "others")
        others = replace(of.others, mean=float(shown.mean[0]), variance=float(shown.variance[0]))
        found[name] = [st.sample_p(of.f, of.others, of.weights), st.sample_p(kept[3], others, of.weights)]
    for (name, _), of_labels in counts.items():
        of = Labels.of_arm(totals, Key("arm", "", name[0], sch.EVERYONE, name[1]), request.target)
        weights, n, others = np.array(sorted(of_labels)).T
        found[name].append(st.shares_p(weights, n, others, of.people.effective))
    # Of several columns of segments, the one that differs most, as if they were independent ones.
    return {name: [*ps[:2], np.fmin.reduce([np.nan, *(min(p * len(ps[2:]), 1) for p in ps[2:])])]
            for name, ps in found.items()}  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """The rows, and the tests of their corrected means."""

    rows: "Compared"

    @cached_property
    def numbers(self) -> dict[str, st.Floats]:
        """(g,) numbers by name, those of columns of ``comparisons`` among them."""
        each = [self._numbers(*labels) for labels in self.labels]
        return {name: np.array([row[name] for row in each], float) for name in each[0]}

    @cached_property
    def labels(self) -> list[Row]:
        """(g,) of both sides, of what is tested, and the covariance of a paired baseline's values with differences."""
        rows = [self._labels(*row) for row in zip(self.rows.keys, self.rows.paired, strict=True)]
        if self.rows.request.pairs != "all":
            return rows
        groups: dict[tuple[str, str], list[Labels]] = {}
        for key, (_, tested, _) in zip(self.rows.keys, rows, strict=True):
            groups.setdefault((key.segment, key.metric), []).extend(tested)
        shared = {group: iter(with_one_slope(labels)) for group, labels in groups.items()}
        return [
            (sides, tuple(islice(shared[key.segment, key.metric], len(tested))), covariance)
            for key, (sides, tested, covariance) in zip(self.rows.keys, rows, strict=True)
        ]

    def _labels(self, key: Key, paired: bool) -> Row:
        totals, target = self.rows.totals, self.rows.request.target
        if not paired:
            return (sides := tuple(Labels.of_arm(totals, key.arm(side), target) for side in SIDES)), sides, 0.0
        kept = totals.judged(key._replace(kind="pair_judged"))
        (*both, difference), covariance = _labels(*kept, totals.of("machine_pair", [key]), target)
        return tuple(both), (difference,), covariance

    def _numbers(self, sides: tuple[Labels, ...], tested: tuple[Labels, ...], shared: float) -> dict[str, float]:
        first, last, paired = tested[0].mean, tested[-1].mean, len(tested) == 1
        covariance = first.covariance(sides[0].mean, shared if paired else tested[0].others.variance)
        means = {
            f"{name}_{side}{end}": number
            for side, of in zip(("baseline", "candidate"), sides, strict=True)
            for name, end, number in (
                ("mean", "", of.mean.mean),
                ("lambda", "", of.mean.slope),
                ("mean", "_human", of.people.mean),
                ("mean", "_machine", of.of_machine.mean),
                ("bias", "_machine", of.bias.mean),
                ("p_bias", "_machine", _p_value(of.bias.mean, of.bias.parts)),
            )
        }
        of_machine = [(of.variance / max(of.n, 1), of.n - 1) for of in (each.of_machine for each in tested)]
        errors = {"": [of.mean for of in tested], "_human": [of.people for of in tested]}
        parts = {end: [part for of in each for part in of.parts] for end, each in errors.items()}
        of_bias = [part for of in tested for part in of.bias.parts]
        for end, each in (parts | {"_machine": of_machine}).items():
            means |= {f"squared_error{end}": sum(error for error, _ in each), f"df{end}": st.welch_df(each)}
        return means | {
            "difference": last.mean if paired else last.mean - first.mean,
            "difference_human": sides[1].people.mean - sides[0].people.mean,
            "difference_machine": sides[1].of_machine.mean - sides[0].of_machine.mean,
            "lambda": first.slope if paired or tested[0].slope is not None else np.nan,
            "helped": any(of.mean.slope for of in tested),
            "effective": min(of.people.effective for of in tested),
            "p_bias_machine": _p_value(sides[1].bias.mean - sides[0].bias.mean, of_bias),
            "covariance": covariance if paired else -covariance,
            "squared_error_baseline": sides[0].mean.squared_error,
            "unequal": any(np.ptp(of.weights) > 0 for of in tested if len(of.weights)),
        }

    @cached_property
    def samples(self) -> dict[tuple[Any, str], list[float]]:
        """Of all users of each experiment and metric, whether the judged ones are like the others."""
        return sample_ps(self.rows.totals, self.rows.request)

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
        unknown = [end != "_human" and self.doubt(i) is not None for i in range(len(self.rows.keys))]
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
    def people(self) -> st.Estimate:
        """The tests of people's labels alone, in any case."""
        return self._test("_human")

    @cached_property
    def denominator(self) -> st.Denominator:
        """The baseline's means that the differences are a share of."""
        return st.Denominator(*(self.numbers[n] for n in ("mean_baseline", "squared_error_baseline", "covariance")))

    def remark(self, i: int) -> str | None:
        """Whether people's labels alone decide, and what the machine's alone would have said."""
        rows, remarks = self.rows, []
        if not self.numbers["helped"][i]:
            where = " (in some pair)" if rows.request.pairs == "all" else ""
            remarks.append(said("people_alone", least=st.LEAST_DIFFERENT, rows=rows, where=where))
        alone = Families(rows.keys, rows.roles, rows.request, self.machine).p_adjusted < 1 - rows.request.confidence
        tests = ((rows.deciding, rows.decided), (self.machine, alone))
        ours, theirs = (np.sign(test.difference[i]) * bool(found[i]) for test, found in tests)
        if ours != theirs:
            higher = rows.keys[i].candidate if theirs > 0 else rows.keys[i].baseline
            shown = f"that {higher} is higher" if theirs else "no difference"
            remarks.append(f"labels of the machine alone would have shown {shown}")
        return "; ".join(remarks) or None

    def doubt(self, i: int) -> str | None:
        """Why the row has no test; None if it may have one."""
        n, shared, units = int(self.least[i]), int(self.rows.both["both"][i]), self.rows.units
        if shared and not self.rows.paired[i]:
            return said("judged_in_both", shared=shared, units=units)
        worth = self.numbers["effective"][i]
        if min(n, worth) < st.LEAST_JUDGED:
            unequal = f", worth {worth:.0f} that were drawn with equal chances" if n >= st.LEAST_JUDGED else ""
            who = self.rows.unit if n == 1 else units
            return f"people judged {n} {who}{unequal}, and a verdict needs {st.LEAST_JUDGED}"
        sides = self.rows.totals.sides("machine", self.rows.keys)
        gaps, unrated, rated = ([int(sums[name][i]) for sums in sides] for name in ("in_part", "unrated", "others"))
        if max(unrated) > MOST_IN_PART * (n + max(rated) + max(unrated)):
            return f"neither people nor the machine judged {max(unrated):,} {units}, who may not be like the others"
        # One that has items of its own that nobody judged was not there when they were drawn.
        if max(gaps) > (MOST_IN_PART * n if min(gaps) else min(1, MOST_IN_PART * n)):
            why = f", or {UNITS} were drawn and not whole {units}" if self.rows.request.cluster else ""
            gap = f"people judged {max(gaps):,} of {n:,} {units} in part, as where a system came later{why}"
            return f"{gap}; n_to_judge of user_metrics says how many items are to judge, and `unjudged` which"
        key, none = self.rows.keys[i], [np.nan] * len(OTHERWISE)
        ps = [self.samples.get((key[side], key.metric), none) for side in SIDES]
        if key.segment != sch.EVERYONE:
            ps += [[st.sample_p(of.f, of.others, of.weights), *none[1:]] for of in self.labels[i][0]]
        for p, off in zip(np.fmin.reduce(ps).tolist(), OTHERWISE, strict=True):
            if p < sch.SMALL_RATIO_P:
                how_sure = p_value(p, sch.SMALL_RATIO_P)
                return f"the {units} that people judged are not like the others: {off} ({how_sure})"
        return None


def with_one_slope(labels: Sequence[Labels]) -> list[Labels]:
    """What the pairs of a table test, with one lambda: sum of covariances / sum of variances, each without the unit.

    So the differences of three systems add up. It is 0 where the machine is not used in one of the pairs.
    """
    number, differ = min(of.people.effective for of in labels), min(of.n_different for of in labels)
    rho = correlation(np.sum([of.products for of in labels], axis=0))
    if min(of.others.n for of in labels) < 2 or not st.machine_helps(number, differ, rho):
        return [replace(of, slope=0.0) for of in labels]
    ids = np.unique(np.concatenate([of.ids for of in labels]))
    parts = np.zeros((2, len(ids)))
    for of in labels:
        own, whole = (st.moments_without(of.h, of.f, of.others, of.weights, without) for without in (True, False))
        # What a unit is not in is the same without it.
        all_units = np.repeat(np.array(whole)[:, :1], len(ids), axis=1)
        all_units[:, np.searchsorted(ids, of.ids)] = own
        parts += all_units
    slope = st.clipped(*parts)
    return [replace(of, slope=slope[np.searchsorted(ids, of.ids)]) for of in labels]


def machine_means(totals: Totals, request: cfg.Comparison) -> dict[str, Any]:
    """Corrected means of every experiment, segment and metric that a machine has judged, with intervals."""
    rated = {key._replace(kind="arm") for key in totals.sums if key.kind in ("machine", "arm_judged")}
    keys, samples, none = [key for key in totals.sums if key in rated], sample_ps(totals, request), [np.nan] * 3
    members = totals.of("members", keys)["users"] if request.cluster else None
    judged, others = (totals.of(kind, keys).ratio("y", "n").lists for kind in ("arm_lists", "machine"))
    rows = []
    for i, labels in enumerate(Labels.of_arm(totals, key, request.target) for key in keys):
        mean, n = labels.mean, len(labels.h)
        error = np.array(np.sqrt(mean.squared_error) if n >= st.LEAST_JUDGED else np.nan)
        test = st.Estimate.of(np.array(mean.mean), error, np.array(st.welch_df(mean.parts)), request.confidence)
        numbers = mean.mean, float(test.ci_low), float(test.ci_high), labels.people.mean, labels.of_machine.mean
        bias = labels.bias.mean, _p_value(labels.bias.mean, labels.bias.parts)
        likeness = samples[keys[i][2::2]] if keys[i].segment == sch.EVERYONE else none
        counts = labels.of_machine.n if members is None else int(members[i]), n
        of_lists = int(judged[i] + others[i]) if request.mean_over == "lists" else None
        names = keys[i].candidate, keys[i].segment, keys[i].metric
        rows.append((*names, *numbers, mean.slope, *bias, *likeness, *counts, of_lists))
    return {name: [row[i] for row in rows] for i, name in enumerate(MACHINE_MEANS)}
