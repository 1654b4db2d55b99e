"""Sums of experiments and pairs -> the rows of the table ``comparisons``: few rows, whatever the number of users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rankmetrics_spark.comparison.adjusted import SMALL_EARLIER_P
from rankmetrics_spark.comparison.compared import (
    INDEPENDENT,
    PAIRED,
    Compared,
    Ranks,
    Rules,
    interval,
    ranked,
    resampled,
)
from rankmetrics_spark.comparison.totals import (
    ARM_SUMS,
    BASELINE,
    CANDIDATE,
    Key,
    Name,
    Request,
    Totals,
    arm_moments,
    experiments_of,
    of_arm,
    of_pair,
    refuse_unknown,
    replicate_means,
    stacked,
)
from rankmetrics_spark.schemas import EVERYONE, segment_label
from rankmetrics_spark.statistics import (
    LARGEST_SUMMAND,
    Floats,
    adjusted_p_values,
    decompose,
    minimum_detectable_effect,
    sample_ratio_p,
    strictest_level,
)

SMALL_RATIO_P = 0.001
"""Below this p-value, the users do not follow the planned shares, and no verdict is given."""


def verdicts(rows: Compared) -> dict[str, Any]:
    """Corrected p-values over all rows, the family that they belong to, who is better, and what forbids a verdict."""
    p, rules = rows.deciding.p_value, rows.rules
    adjusted = adjusted_p_values(p, rules.correction)
    n, size = int(np.count_nonzero(~np.isnan(p))), len(p)
    ratio = _sample_ratio(rows)
    doubts = [_doubt(rows, i, ratio) for i in range(size)]
    found = {
        "p_adjusted": adjusted,
        "confidence": np.full(size, rules.confidence),
        "correction": [rules.correction] * size,
        "family": [f"{n} {'comparison' if n == 1 else 'comparisons'} of this run"] * size,
        "n_comparisons": np.full(size, n),
        "adjusted_minimum_detectable_effect": _detectable(rows, n),
        "better": [None if doubts[i] else _better(rows, i, adjusted[i]) for i in range(size)],
        "note": [doubts[i] or _remarks(rows, i) for i in range(size)],
    }
    return found if ratio is None else found | {"sample_ratio_p": np.full(size, ratio)}


def _detectable(rows: Compared, n: int) -> Floats:
    """(g,) the effects that the corrected tests find with the power of the rules, whatever the n - 1 others show."""
    rules, tested = rows.rules, rows.deciding
    level = strictest_level(1 - rules.confidence, n, rules.correction)
    with np.errstate(all="ignore"):
        return minimum_detectable_effect(tested.standard_error, tested.df, 1 - level, rules.power)


def _sample_ratio(rows: Compared) -> float | None:
    """P-value of the planned shares against the users of all experiments; None without planned shares."""
    if not rows.rules.shares:
        return None
    counts: dict[Name, int] = {}
    for key, sums in rows.totals.sums.items():
        if key.kind == "arm" and key.segment == EVERYONE:
            counts[key.candidate] = int(sums[ARM_SUMS.index("users")])
    return float(sample_ratio_p([counts[name] for name in rows.rules.shares], [*rows.rules.shares.values()]))


def _doubt(rows: Compared, i: int, ratio: float | None) -> str | None:
    """Why a row has no test, or why its test cannot be trusted."""
    for name, (text, forbidden) in _PROBLEMS.items():
        arms = [place for place in (BASELINE, CANDIDATE) if (_count(rows, i, place, name) > 0) is forbidden]
        if arms:
            return f"{text} in {_names(rows.keys[i], arms)}"
    if np.isnan(rows.deciding.p_value[i]):
        return _untested(rows, i)
    if ratio is not None and ratio < SMALL_RATIO_P:
        return f"not trustworthy: the users do not follow the planned shares (p = {ratio:.2g})"
    return None


_PROBLEMS = {
    "users": ("no users", False),
    "n": ("no users with a value", False),
    "with_relevant": ("no users with relevant items", False),
    "beyond": (f"values above {LARGEST_SUMMAND:.2g}, which cannot be summed,", True),
}
"""Sum of an experiment -> what is wrong with it, and whether it is wrong to have some."""


def _count(rows: Compared, i: int, place: int, name: str) -> int:
    return int(of_arm(rows.arms[place - BASELINE], name)[i])


def _names(key: Key, places: Sequence[int]) -> str:
    return " and ".join(str(key[place]) for place in places)


def _untested(rows: Compared, i: int) -> str:
    """Why two experiments that could be compared have no p-value."""
    if rows.unresolved[i]:
        return "the values differ too little from one another for a test"
    if rows.paired[i]:
        return "no users in both experiments" if not rows.n_users[i] else "fewer than two users in both experiments"
    few = [place for place in (BASELINE, CANDIDATE) if _count(rows, i, place, "n") < 2]
    return f"fewer than two users in {_names(rows.keys[i], few)}"


def _remarks(rows: Compared, i: int) -> str | None:
    """What a reader of the test has to know."""
    of_users = _left_out(rows, i) if rows.paired[i] else _overlap(rows, i)
    return "; ".join(filter(None, (of_users, _without_cuped(rows, i)))) or None


def _left_out(rows: Compared, i: int) -> str | None:
    """How many users of each experiment a paired test leaves out."""
    both, parts = int(of_pair(rows.both, "both")[i]), []
    for place in (BASELINE, CANDIDATE):
        n = _count(rows, i, place, "n")
        if n > both:
            parts.append(f"{n - both:,} of the {n:,} users of {rows.keys[i][place]}")
    return f"without {' and '.join(parts)}, who are not in both experiments" if parts else None


def _overlap(rows: Compared, i: int) -> str | None:
    """How many users a test of independent users takes for different ones, and what that does to it."""
    shared = int(of_pair(rows.both, "both")[i])
    if not shared:
        return None
    who = "1 user is" if shared == 1 else f"{shared:,} users are"
    covariance = float(rows.pair.covariance[i])
    width = "too wide" if covariance > 0 else "too narrow" if covariance < 0 else ""
    return f"{who} in both experiments and counted as different ones" + (f": the interval is {width}" if width else "")


def _without_cuped(rows: Compared, i: int) -> str | None:
    """Why CUPED, which was asked for, is not the test."""
    found = rows.adjusted
    if found is None or rows.decided_by_cuped[i]:
        return None
    if not found.n_before[i]:
        return "CUPED is not used: no user has an earlier value" + (" in both experiments" if rows.paired[i] else "")
    if not found.spread[i] > 0:
        of = (
            "a user has the same earlier value in both experiments"
            if rows.paired[i]
            else "all earlier values are equal"
        )
        return f"CUPED is not used: {of}"
    if found.earlier_p[i] < SMALL_EARLIER_P:
        return f"CUPED is not used: the experiments differed before already (p = {found.earlier_p[i]:.2g})"
    return "CUPED is not used: too few users"


def _better(rows: Compared, i: int, adjusted: float) -> str | None:
    """``candidate`` or ``baseline`` where the difference is shown."""
    direction = rows.rules.directions.get(rows.keys[i].metric)
    if direction is None or not adjusted < 1 - rows.rules.confidence:
        return None
    return "candidate" if bool(rows.deciding.difference[i] > 0) == direction else "baseline"


__all__ = [
    "INDEPENDENT",
    "PAIRED",
    "SMALL_RATIO_P",
    "Ranks",
    "Rules",
    "comparison_rows",
    "decomposition_rows",
    "experiments_of",
    "mean_intervals",
    "refuse_unknown",
]


def comparison_rows(totals: Totals, ranks: Mapping[Key, Ranks], request: Request, rules: Rules) -> dict[str, Any]:
    """The table ``comparisons``, column by column.

    Args:
        totals: Of all users.
        ranks: Of all users; empty if no signed ranks are asked for.
        request: Which pairs.
        rules: How rows are made.

    Returns:
        Column -> (g,) values; NaN and None are null.

    Raises:
        ConfigError: There is no experiment with the name of the baseline, of a candidate or of a share.
    """
    rows = Compared.of(totals, request, rules)
    if not rows.keys:
        return {}
    tested = rows.described() | rows.tested() | rows.sized() | rows.with_cuped()
    return tested | resampled(rows) | ranked(rows, ranks) | verdicts(rows)


def mean_intervals(totals: Totals, rules: Rules) -> dict[str, Any]:
    """Bootstrap intervals of the mean of every experiment, segment and metric.

    Returns:
        Columns experiment_id, segment, metric, bootstrap_ci_low, bootstrap_ci_high; (g,) each.
    """
    keys = [key for key in totals.sums if key.kind == "arm"]
    low, high = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
    moments = arm_moments(stacked(totals, keys, len(ARM_SUMS)))
    for i, key in enumerate(keys):
        found = totals.replicates.get(key._replace(kind="bootstrap_arm"))
        if found is not None and moments.n[i] >= 2 and not totals.sums[key][ARM_SUMS.index("beyond")]:
            part = slice(i, i + 1)
            means, estimate, skew = replicate_means(found)[None], moments.mean[part], moments.skew_term()[part]
            low[i], high[i] = (bound[0] for bound in interval(means, estimate, skew, rules))
    return {
        "experiment_id": [key.candidate for key in keys],
        "segment": [key.segment for key in keys],
        "metric": [key.metric for key in keys],
        "bootstrap_ci_low": low,
        "bootstrap_ci_high": high,
    }


def decomposition_rows(totals: Totals, baseline: Name, candidates: Sequence[Name], segment: str) -> dict[str, Any]:
    """Differences from the baseline, split by one segment column.

    Args:
        totals: Of all users.
        baseline: The experiment that the others are compared with.
        candidates: Only these; empty = all.
        segment: Name of the segment column, as its labels spell it.

    Returns:
        Column -> values; a row per (candidate, metric, label).

    Raises:
        ConfigError: There is no experiment with the name of the baseline or of a candidate.
    """
    known = experiments_of(totals)
    refuse_unknown([baseline, *candidates], known)
    start = segment_label(segment, "")
    cells = [key for key in totals.sums if key.kind == "arm" and key.segment.startswith(start)]
    chosen = [name for name in known if name != baseline and (not candidates or name in candidates)]
    columns: dict[str, list[Any]] = {}
    for candidate in chosen:
        for metric in dict.fromkeys(key.metric for key in cells):
            meant = {key.segment for key in cells if key.metric == metric and key.candidate in (baseline, candidate)}
            _decompose(totals, (baseline, candidate, metric), sorted(meant), columns)
    return columns


def _decompose(
    totals: Totals, of: tuple[Name, Name, str], labels: Sequence[str], columns: dict[str, list[Any]]
) -> None:
    baseline, candidate, metric = of
    keys = [[Key("arm", "", name, label, metric) for label in labels] for name in (baseline, candidate)]
    arms = [arm_moments(stacked(totals, each, len(ARM_SUMS))) for each in keys]
    found = decompose(arms[0], arms[1])
    rows = {
        "experiment_id": [candidate] * len(labels),
        "baseline": [baseline] * len(labels),
        "metric": [metric] * len(labels),
        "segment": list(labels),
        "n_users_baseline": [int(n) for n in arms[0].n],
        "n_users_candidate": [int(n) for n in arms[1].n],
        "mean_baseline": arms[0].mean.tolist(),
        "mean_candidate": arms[1].mean.tolist(),
        "mix": found.mix.tolist(),
        "within": found.within.tolist(),
    }
    for column, values in rows.items():
        columns.setdefault(column, []).extend(values)
