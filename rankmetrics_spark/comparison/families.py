"""What a comparison is asked, and its families: which rows are corrected together, and how; intervals that agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankmetrics_spark import errors as err, metrics as mx, pointers, schemas as sch, statistics as st
from rankmetrics_spark.comparison import measures as ms, table as tables
from rankmetrics_spark.config import Comparison, Days, Resampling, of_test

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared

#: Role of a metric -> the family of its comparisons of all users.
FAMILIES = {sch.PRIMARY: "primary metrics", sch.GUARDRAIL: "guardrails", sch.SECONDARY: "secondary metrics"}


@dataclass(frozen=True)
class Question:
    """A comparison, and what is known of its metrics and users beside their sums.

    Attributes:
        request: What is compared, and how; see ``of``.
        roles: Metric -> ``primary``, ``guardrail`` or ``secondary``; others are secondary.
        directions: Metric -> whether higher is better; None = neither.
        ranges: Metric -> its lowest and highest value; unknown for others.
        earlier: Whether values from before the experiment are there; where they say something, CUPED is the test.
        days: The days of the period that the users are of, if they are of one.
        metrics: The metrics.
        by_test: Whether experiments are arms of tests.
        look_numbers: (baseline, candidate, metric) -> the number of this look; None where earlier ones are unknown.
        only_t: Whether t decides also where it is rough.
        machine: Whether there are values under the labels of a machine, which correct those of people.
    """

    request: Comparison
    roles: Mapping[str, str] = field(default_factory=dict)
    directions: Mapping[str, bool | None] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    earlier: bool = False
    days: Days | None = None
    look_numbers: pointers.LookNumbers = field(default_factory=pointers.unknown_looks)
    metrics: tuple[mx.Metric, ...] = ()
    by_test: bool = False
    only_t: bool = False
    machine: bool = False

    @classmethod
    def of(cls, request: Comparison, table: tables.UserTable) -> Question:
        """A comparison of these users, with the design, the correction and the cluster that follow from the rest."""
        # Without the users of both experiments there is nothing to pair.
        alone = request.shared_users == "drop" or table.trigger is not None
        design = "independent" if alone else request.design
        correction = "bonferroni" if request.simultaneous else request.correction
        # The flag keeps the name that it has in the log.
        flag, named = request.trigger or table.trigger, {str(metric): metric for metric in table.metrics}
        return cls(
            replace(request, design=design, correction=correction, cluster=table.cluster, trigger=flag),
            roles=request.roles(table.metrics),
            directions={name: metric.higher_is_better for name, metric in named.items()},
            ranges={name: metric.definition.range for name, metric in named.items()},
            earlier=table.before is not None or bool(request.covariates),
            days=table.days,
            look_numbers=table.looks,
            metrics=table.metrics,
            by_test=table.by_test,
            machine=bool(tables.machine_columns(table)),
        )

    def of_test(self, name: str) -> Question:
        """The comparison of the arms of one test."""
        own = of_test(self.request, name)
        return replace(self, request=own, roles=own.roles(self.metrics))


@dataclass(frozen=True)
class Families:
    """The rows of comparisons, and how their p-values are corrected.

    Attributes:
        keys: One per row.
        roles: (g,) ``primary``, ``guardrail`` or ``secondary``, by the metric of the row.
        request: How they are corrected.
        deciding: The tests that are corrected.
    """

    keys: Sequence[ms.Key]
    roles: Sequence[str]
    request: Comparison
    deciding: st.Estimate

    @cached_property
    def names(self) -> list[str]:
        """(g,) rows of one name are corrected together."""
        if self.request.families == "one":
            return ["all"] * len(self.keys)
        names = [
            FAMILIES[role] if key.segment == sch.EVERYONE else f"segments of {sch.segment_columns(key.segment)}"
            for key, role in zip(self.keys, self.roles, strict=True)
        ]
        if self.request.primary_share is None:
            return names
        return [name if name == FAMILIES[sch.PRIMARY] else "all but primary" for name in names]

    @cached_property
    def p_adjusted(self) -> st.Floats:
        """(g,) p-values that are corrected over their family."""
        adjusted = np.full(len(self.keys), np.nan)
        for rows, share in self._rows:
            p = st.adjusted_p_values(self.deciding.p_value[rows], self.request.correction)
            adjusted[rows] = np.minimum(p / share, 1)
        return adjusted

    @cached_property
    def n_tested(self) -> st.Ints:
        """(g,) how many rows of the family have a p-value."""
        n = np.zeros(len(self.keys), np.int64)
        for rows, _ in self._rows:
            n[rows] = np.count_nonzero(~np.isnan(self.deciding.p_value[rows]))
        return n

    @cached_property
    def strictest_levels(self) -> st.Floats:
        """(g,) the level that a row has to pass whatever the others of its family show."""
        levels, alpha = np.full(len(self.keys), np.nan), 1 - self.request.confidence
        for rows, share in self._rows:
            levels[rows] = st.strictest_level(share * alpha, int(self.n_tested[rows][0]), self.request.correction)
        return levels

    @cached_property
    def _rows(self) -> list[tuple[st.Bools, float]]:
        """Per family: (g,) whether a row belongs to it, and its share of the level of significance."""
        names, share = np.array(self.names), self.request.primary_share
        of_primary = 1.0 if share is None else share
        of_others = 1.0 if share is None or self.request.families == "one" else 1 - share
        return [
            (names == name, of_primary if name == FAMILIES[sch.PRIMARY] else of_others)
            for name in dict.fromkeys(self.names)
        ]


def intervals_at(
    confidence: st.Floats | float,
    single: st.Estimate,
    denominator: st.Denominator,
    n: Any = None,
    looks: st.Looks | None = None,
    skewness: st.Floats | float = 0.0,
) -> tuple[st.Estimate, st.Estimate]:
    """The test, and the same as a share of the baseline, with intervals at these levels, one number or (g,).

    ``n`` are the users of the test, ``looks`` is the rule over several looks; without one, it is a single look.
    ``skewness`` of the differences makes bounds of different distance.
    """
    critical = st.critical_value(single.df, confidence, n, looks)
    test = single if looks is None else st.over_looks(single, n, looks, confidence)
    below, above = st.bent(critical, skewness), -st.bent(-critical, skewness)
    test = test.within(below, above)
    return test, st.fieller(test, below, denominator, above)


def levels_of(p: st.Floats, p_adjusted: st.Floats, correction: str, alpha: float) -> st.Floats:
    """(g,) levels of the intervals of one family, which agree with its corrected p-values."""
    strictest = st.strictest_level(alpha, int(np.count_nonzero(~np.isnan(p))), correction)
    return st.adjusted_levels(p, p_adjusted, alpha, np.full(len(p), strictest))


def bounds_of_ranks(rows: Compared) -> Iterator[tuple[tuple[str, str, ms.Name], tuple[int, int]]]:
    """Segment, metric and experiment, with the best and the worst rank that it may have: see ``st.rank_bounds``."""
    groups: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(rows.keys):
        if rows.question.directions.get(key.metric) is not None and rows.request.looks == "one":
            groups.setdefault((key.segment, key.metric), []).append(i)
    shows = np.array([doubt is None for doubt in rows.doubts]) & ~rows.hard.decides & (rows.estimate.standard_error > 0)
    of_rows = np.where(shows, rows.estimate.difference / rows.estimate.standard_error, np.nan)
    n = [arm.n.astype(float) for arm in rows.moments]
    variances = [arm.variance / users for arm, users in zip(rows.moments, n, strict=True)]
    shared = rows.pair.difference.n.astype(float) * rows.pair.covariance / (n[0] * n[1])
    for (segment, metric), some in groups.items():
        place = {name: i for i, name in enumerate(dict.fromkeys(rows.keys[i][side] for i in some for side in ms.SIDES))}
        a, b = (np.array([place[rows.keys[i][side]] for i in some]) for side in ms.SIDES)
        t, covariance = np.full((len(place), len(place)), np.nan), np.zeros((len(place), len(place)))
        t[b, a] = of_rows[some] if rows.question.directions[metric] else -of_rows[some]
        t[a, b] = -t[b, a]
        for one, other, each in ((a, a, variances[0]), (b, b, variances[1]), (a, b, shared), (b, a, shared)):
            covariance[one, other] = np.nan_to_num(each[some])
        df = float(np.fmin.reduce(rows.estimate.df[some], initial=np.inf))
        low, high = st.rank_bounds(t, covariance, df, rows.request.confidence)
        yield from (((segment, metric, name), (int(low[i]), int(high[i]))) for name, i in place.items())


#: Replicates so close to the estimate are equal to it.
_CUT = 2.0**-28


def interval(means: st.Floats, estimate: st.Floats, confidence: float) -> tuple[st.Floats, st.Floats]:
    """Bootstrap interval of (g, r) replicates."""
    # Replicates are cut off and the estimate is not, so a replicate that is equal to it lies a little beside it.
    means = np.where(np.abs(means - estimate[:, None]) <= _CUT, estimate[:, None], means)
    return st.percentile(means, confidence)


# ---- which pairs experiments form, and which rows these; moments of their sums


def resamplings(request: Comparison) -> dict[str, Resampling]:
    """Key of ``comparison`` -> how often it resamples the users."""
    each = {name: getattr(request, name) for name in ("bootstrap", "randomization", "aa_check")}
    return {name: drawn for name, drawn in each.items() if drawn is not None}


def most_replicates(request: Comparison) -> int:
    """The largest number of replicates of any kind."""
    return max((drawn.replicates for drawn in resamplings(request).values()), default=0)


def _n_pairs(request: Comparison, n_experiments: int) -> int:
    """How many pairs so many experiments form, if the baseline and the candidates are among them."""
    if request.pairs == "all":
        return n_experiments * (n_experiments - 1) // 2
    return (len(request.candidates) or n_experiments - 1) if request.baseline is not None else 0


def n_cells(request: Comparison, n_experiments: int) -> int:
    """How many whole numbers the replicates of one metric of one segment are.

    >>> n_cells(Comparison("a", bootstrap=True), 2)  # 3 limbs x 1,000 x (2 sums of 2 experiments + 3 sums of a pair)
    21000
    """
    pairs = _n_pairs(request, n_experiments)
    # Signs have one replicate more: all of them are + in it.
    n = {kind: drawn.replicates + (kind != "bootstrap") for kind, drawn in resamplings(request).items()}
    of_each = {
        "bootstrap_arm": n_experiments * n.get("bootstrap", 0),
        "bootstrap_pair": pairs * n.get("bootstrap", 0),
        "flips": pairs * n.get("randomization", 0),
        "aa_paired": pairs * n.get("aa_check", 0),
        "aa_independent": pairs * n.get("aa_check", 0),
    }
    return ms.LIMBS * sum(ms.SHAPES[kind] * n for kind, n in of_each.items())


def refuse_too_many_replicates(request: Comparison, n_experiments: int, n_metrics: int) -> None:
    """Refuse what could not be held, before anything is resampled; segments come on top of it.

    Raises:
        ConfigError: Says how many sums there would be, and how many replicates can be had.
    """
    n, most = n_cells(request, n_experiments) * n_metrics, most_replicates(request)
    if n > ms.MOST_CELLS:
        numbers = {"most": most, "pairs": _n_pairs(request, n_experiments), "metrics": n_metrics, "n": n}
        cells = ms.MOST_CELLS
        raise err.ConfigError(ms.said("too_many_replicates", **numbers, cells=cells, fitting=most * cells // n))


def pairs_of(request: Comparison, experiments: Sequence[ms.Name]) -> tuple[st.Ints, st.Ints]:
    """Indices of baseline and candidate of every pair that these experiments form.

    Every pair starts with the baseline, then follows the order of the names.

    >>> [places.tolist() for places in pairs_of(Comparison("b"), ["a", "b", "c"])]
    [[1, 1], [0, 2]]
    >>> [places.tolist() for places in pairs_of(Comparison(pairs="all"), ["b", "a", None])]
    [[1, 1, 0], [0, 2, 2]]
    """
    first = [i for i, name in enumerate(experiments) if name is not None and name == request.baseline]
    rest = sorted(set(range(len(experiments))) - set(first), key=lambda i: (experiments[i] is None, experiments[i]))
    chosen = [i for i in rest if not request.candidates or experiments[i] in request.candidates]
    pairs = [(i, j) for i in first for j in chosen]
    if request.pairs == "all":
        ordered = [*first, *rest]
        pairs = [(i, j) for k, i in enumerate(ordered) for j in ordered[k + 1 :]]
    return np.array([i for i, _ in pairs], np.int64), np.array([j for _, j in pairs], np.int64)


def experiments_of(totals: ms.Totals) -> list[ms.Name]:
    """The experiments that have users, in the order of their names; None last."""
    kinds = ("arm", "untriggered", "shared")
    return by_name({key.candidate for key in totals.sums if key.kind in kinds and key.segment == sch.EVERYONE})


def by_name(experiments: Iterable[ms.Name]) -> list[ms.Name]:
    """Experiments in the order of their names; None last.

    >>> by_name(["b", None, "a"])
    ['a', 'b', None]
    """
    return sorted(experiments, key=lambda name: (name is None, name))


def replicate_means(sums: st.Ints) -> st.Floats:
    """(r,) weighted means from weighted sums of values and of ones; NaN where nobody has a weight."""
    values, weights = st.weighted_totals(sums)
    return np.asarray(np.divide(values, weights, out=np.full(len(values), np.nan), where=weights > 0))


def row_keys(totals: ms.Totals, request: Comparison, known: Sequence[ms.Name]) -> list[ms.Key]:
    """One key per pair, segment and metric that one of the two experiments has, in this order."""
    cells: dict[ms.Name, dict[tuple[str, str], None]] = {}
    for key in totals.sums:
        if key.kind in ("arm", "untriggered", "shared"):
            cells.setdefault(key.candidate, {})[key.segment, key.metric] = None
    rows = []
    for i, j in zip(*pairs_of(request, known), strict=True):
        cells_of_pair = dict.fromkeys([*cells[known[i]], *cells[known[j]]])
        rows += [ms.Key("pair", known[i], known[j], segment, metric) for segment, metric in sorted(cells_of_pair)]
    return rows


def arm_moments(sums: st.Sums) -> st.Moments:
    """Moments of experiments; where means are over lists, those of the users' influence on them.

    A user's lists belong together, so the user stays the unit of every error: see ``statistics.RatioSums``.
    """
    return sums.moments("v", "n") if "v" in sums.measure.values else sums.ratio("y", "n").moments


def pair_moments(sums: st.Sums) -> st.PairMoments:
    """The same of the users of both experiments of pairs."""
    if sums.measure == ms.KINDS["pair"]:
        return st.PairMoments(*(sums.moments(name, "both") for name in "xyd"))
    shared = (sums[name] for name in ("xy", "xn", "my", "mn"))
    return st.moments_of_ratios(sums.ratio("x", "m"), sums.ratio("y", "n"), shared)
