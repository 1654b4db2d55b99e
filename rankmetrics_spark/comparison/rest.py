"""Each segment against the rest: the users of all other values of the same column."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rankmetrics_spark.comparison.families import TUKEY
from rankmetrics_spark.comparison.over_lists import rest_over_lists
from rankmetrics_spark.comparison.registry import statistic
from rankmetrics_spark.comparison.totals import (
    BASELINE,
    CANDIDATE,
    PAIR_SUMS,
    Key,
    arm,
    arm_moments,
    of_arm,
    of_pair,
    pair_moments,
    stacked,
    stacked_arms,
)
from rankmetrics_spark.schemas import EVERYONE, FROM_REST, REST, segment_columns
from rankmetrics_spark.statistics import (
    Floats,
    adjusted_p_values,
    difference_of_differences,
    nonzero,
    welch,
)

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Bools, Compared


@statistic(*REST, *FROM_REST, "p_rest", "p_rest_adjusted", needs="segments")
def against_rest(rows: Compared) -> tuple[Floats, ...]:
    """Does the effect differ in this segment? `rest_difference` is the difference among all other users of the column,
    `from_rest` = `difference` - `rest_difference`, with its interval and p-value: Welch's test of two groups of
    users, or of four where the design is independent. `p_rest_adjusted` is corrected over the candidates and values of
    the column, for primary metrics, guardrails and secondary ones apart. Null for all users, and where the lists of a
    user are in several segments.
    """
    everyone = [key._replace(segment=EVERYONE) for key in rows.keys]
    arms = [
        stacked_arms(rows.totals, everyone, place) - sums
        for place, sums in zip((BASELINE, CANDIDATE), rows.arms, strict=True)
    ]
    both = stacked(rows.totals, everyone, len(PAIR_SUMS)) - rows.both
    tested = rows.testable & ~rows.unresolved & _has_rest(rows)
    for sums in arms:
        tested &= (of_arm(sums, "with_relevant") > 0) & (of_arm(sums, "beyond") == 0)
    of_arms, of_both = (arm_moments(arms[0]), arm_moments(arms[1])), pair_moments(both)
    if rows.rules.by_ratio:
        of_arms, of_both = rest_over_lists(rows.totals, rows.keys, everyone)
    confidence = rows.rules.confidence
    paired = welch(of_both.difference, rows.pair.difference, confidence)
    independent = difference_of_differences(of_arms, rows.moments, confidence)
    n = np.where(rows.paired, of_pair(both, "both"), of_arm(arms[0], "n") + of_arm(arms[1], "n"))
    apart = rows.at_looks(paired.where(rows.paired, independent), rows.n_users + n)

    difference = np.where(rows.paired, of_both.difference.mean, of_arms[1].mean - of_arms[0].mean)
    baseline = np.where(rows.paired, of_both.baseline.mean, of_arms[0].mean)
    numbers = (difference, difference / nonzero(baseline), apart.difference, apart.ci_low, apart.ci_high, apart.p_value)
    *shown, p = (np.where(tested, each, np.nan) for each in numbers)
    return *shown, p, _adjusted(rows, p)


def _has_rest(rows: Compared) -> Bools:
    """(g,) whether each user of the two is in one segment of the column, so that the other users are the rest."""
    columns = {key.segment: segment_columns(key.segment) for key in rows.totals.sums}
    users = Counter[tuple[Key, str]]()
    for key, sums in rows.totals.sums.items():
        if key.kind in _COUNTED and key.segment != EVERYONE:
            users[key._replace(segment=EVERYONE), columns[key.segment]] += int(sums[0])

    def complete(key: Key, column: str) -> bool:
        sums = rows.totals.sums.get(key)
        return users[key, column] == (0 if sums is None else int(sums[0]))

    rests = np.zeros(len(rows.keys), bool)
    for i, key in enumerate(rows.keys):
        if key.segment != EVERYONE:
            whole, column = key._replace(segment=EVERYONE), columns.get(key.segment) or segment_columns(key.segment)
            counted = [whole] if rows.paired[i] else [arm(whole, place) for place in (BASELINE, CANDIDATE)]
            rests[i] = all(complete(each, column) for each in counted)
    return rests


_COUNTED = ("arm", "pair")
"""Kinds of sums that begin with a number of users."""


def _adjusted(rows: Compared, p_values: Floats) -> Floats:
    """(g,) p-values, corrected over the rows of a column and a role.

    Two segments that are the rest of each other ask one question, which counts once.
    """
    adjusted = np.full(len(p_values), np.nan)
    questions = _questions(rows)
    families: dict[object, dict[tuple[object, ...], int]] = {}
    for i, key in enumerate(rows.keys):
        family: object = "all" if rows.rules.one_family else (segment_columns(key.segment), rows.roles[i])
        families.setdefault(family, {}).setdefault(questions[i], i)
    for family in families.values():
        places = [*family.values()]
        # The segments of a column are no means that are compared in pairs.
        method = "holm" if rows.rules.correction == TUKEY else rows.rules.correction
        adjusted[places] = adjusted_p_values(p_values[places], method)
    first = {questions[i]: i for family in families.values() for i in family.values()}
    return np.where(np.isnan(p_values), np.nan, adjusted[[first[question] for question in questions]])


def _questions(rows: Compared) -> list[tuple[object, ...]]:
    """(g,) what a row asks; the same for the only two segments of a column."""
    labels: dict[tuple[object, ...], set[str]] = {}
    for key in rows.totals.sums:
        if key.kind == "arm":
            labels.setdefault((key.candidate, key.metric, segment_columns(key.segment)), set()).add(key.segment)
    questions: list[tuple[object, ...]] = []
    for key in rows.keys:
        column = segment_columns(key.segment)
        there = set().union(*(labels.get((key[place], key.metric, column), ()) for place in (BASELINE, CANDIDATE)))
        questions.append((key.baseline, key.candidate, key.metric, column if len(there) == 2 else key.segment))
    return questions
