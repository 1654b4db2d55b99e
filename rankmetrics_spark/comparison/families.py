"""What a comparison is asked, and its families: which rows are corrected together, and how; intervals that agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rankmetrics_spark import metrics as mx, pointers, schemas as sch, statistics as st
from rankmetrics_spark.comparison import measures as ms, table as tables
from rankmetrics_spark.config import Comparison, Days, of_test

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
