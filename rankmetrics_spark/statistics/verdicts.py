"""Which of the rows of ``comparisons`` show a difference, and which must not be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankmetrics_spark.schemas import EVERYONE
from rankmetrics_spark.statistics import corrections, sanity
from rankmetrics_spark.statistics.compared import Compared
from rankmetrics_spark.statistics.exact_sums import LARGEST
from rankmetrics_spark.statistics.stacked import BASELINE, CANDIDATE, of_arm, of_pair
from rankmetrics_spark.statistics.totals import ARM_SUMS, Key, Name

SMALL_RATIO_P = 0.001
"""Below this p-value, the users do not follow the planned shares, and no verdict is given."""


def verdicts(rows: Compared) -> dict[str, Any]:
    """Corrected p-values over all rows, the family that they belong to, who is better, and what forbids a verdict."""
    p, rules = rows.estimate.p_value, rows.rules
    adjusted = corrections.adjusted(p, rules.correction)
    n, size = int(np.count_nonzero(~np.isnan(p))), len(p)
    ratio = _sample_ratio(rows)
    doubts = [_doubt(rows, i, ratio) for i in range(size)]
    found = {
        "p_adjusted": adjusted,
        "confidence": np.full(size, rules.confidence),
        "correction": [rules.correction] * size,
        "family": [f"{n} {'comparison' if n == 1 else 'comparisons'} of this run"] * size,
        "n_comparisons": np.full(size, n),
        "better": [None if doubts[i] else _better(rows, i, adjusted[i]) for i in range(size)],
        "note": [doubts[i] or _overlap(rows, i) for i in range(size)],
    }
    return found if ratio is None else found | {"sample_ratio_p": np.full(size, ratio)}


def _sample_ratio(rows: Compared) -> float | None:
    """P-value of the planned shares against the users of all experiments; None without planned shares."""
    if not rows.rules.shares:
        return None
    counts: dict[Name, int] = {}
    for key, sums in rows.totals.sums.items():
        if key.kind == "arm" and key.segment == EVERYONE:
            counts[key.candidate] = int(sums[ARM_SUMS.index("users")])
    return float(sanity.sample_ratio_p([counts[name] for name in rows.rules.shares], [*rows.rules.shares.values()]))


def _doubt(rows: Compared, i: int, ratio: float | None) -> str | None:
    """Why a row has no test, or why its test cannot be trusted."""
    for name, (text, forbidden) in _PROBLEMS.items():
        arms = [place for place in (BASELINE, CANDIDATE) if (_count(rows, i, place, name) > 0) is forbidden]
        if arms:
            return f"{text} in {_names(rows.keys[i], arms)}"
    if np.isnan(rows.estimate.p_value[i]):
        return _untested(rows, i)
    if ratio is not None and ratio < SMALL_RATIO_P:
        return f"not trustworthy: the users do not follow the planned shares (p = {ratio:.2g})"
    return None


_PROBLEMS = {
    "users": ("no users", False),
    "n": ("no users with a value", False),
    "with_relevant": ("no users with relevant items", False),
    "beyond": (f"values above {LARGEST:.2g}, which cannot be summed,", True),
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


def _overlap(rows: Compared, i: int) -> str | None:
    """How many users a test of independent users counts twice."""
    shared = int(of_pair(rows.both, "both")[i])
    if rows.paired[i] or not shared:
        return None
    return f"{shared:,} {'user is' if shared == 1 else 'users are'} in both experiments"


def _better(rows: Compared, i: int, adjusted: float) -> str | None:
    """``candidate`` or ``baseline`` where the difference is shown."""
    direction = rows.rules.directions.get(rows.keys[i].metric)
    if direction is None or not adjusted < 1 - rows.rules.confidence:
        return None
    return "candidate" if bool(rows.estimate.difference[i] > 0) == direction else "baseline"
