"""An open comparison of a period -> after how many more days it could find an effect, if users keep arriving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, functions as F
from scipy.special import ndtri

from rankmetrics_spark import schemas as sch, statistics as st
from rankmetrics_spark.comparison import compared
from rankmetrics_spark.comparison.arrivals import arrivals, differences
from rankmetrics_spark.config import Comparison, Days
from rankmetrics_spark.findings import Finding, Row
from rankmetrics_spark.metrics import Metric, parse

#: Open comparisons whose outlook is computed at most.
MOST_PAIRS = 3
#: From about so many users on, how users arrive is measured on a part of them.
USERS_OF_SAMPLE = 2_000
#: Below this growth until the last expected day, no new users arrive.
FEW_NEW_USERS = 0.01
#: Baseline and candidate.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Outlook:
    """When an open comparison could find an effect, if users keep arriving as they did on its days.

    Attributes:
        candidate: The experiment.
        baseline: What it is compared with.
        metric: Name of the metric.
        effect: In the metric's unit.
        relative_effect: The same as a share of the baseline's mean; None where it was not chosen as one.
        limit: What names this effect: ``the limit of a gate``, ``the margin``, ``the stated effect``; empty where it
            is a round number.
        days: Further days that find it with the chosen power; None if ``furthest`` days do not.
        users: Users of the test by then; where no day is known, about as many as it needs.
        furthest: Further days that the stored ones allow to expect, or the planned looks that are left.
        last_effect: What the last of them finds, in the metric's unit.
        has_new_users: Whether new users arrive on further days.
        looks: The looks that the comparison holds for, as in its row; None for a single one.
        power: How likely the test finds the effect then.
    """

    candidate: str
    baseline: str
    metric: str
    effect: float
    relative_effect: float | None
    limit: str
    days: int | None
    users: int
    furthest: int
    last_effect: float
    has_new_users: bool
    looks: str | None
    power: float


def outlooks(rows: Sequence[Row], users: DataFrame, days: Days, section: Comparison, metric: Metric) -> list[Outlook]:
    """The outlook of the open comparisons of a period; runs a small job for each of their designs, if there are any.

    Args:
        rows: Rows of ``comparisons`` over the period.
        users: One row per (experiment_id, user_id, evaluation_date).
        days: The period; a single day does not say who comes back.
        section: How the rows were made: its margin, effect and gates name the effects of interest; without them, it is
            a round number below what is found today.
        metric: The metric that decides.

    Returns:
        At most ``MOST_PAIRS``, in the order of the rows; those whose effect is found already are left out.
    """
    if len(days.dates) < 2:
        return []
    targets = {}
    for place, found in enumerate(map(Finding.of, rows)):
        # A comparison of all users on the metric that shows no difference.
        is_open = found.is_of_all and found.metric == str(metric) and found.state == "open"
        if is_open and metric.higher_is_better is not None and (effect := _target(found, section, metric)):
            targets[place] = effect
    chosen = [*targets][:MOST_PAIRS]
    outlook_of: dict[int, Outlook | None] = {}
    for design in dict.fromkeys(rows[place]["design"] for place in chosen):
        places = [place for place in chosen if rows[place]["design"] == design]
        pairs = [(rows[place][sch.BASELINE], rows[place][sch.EXPERIMENT]) for place in places]
        n_users = max(rows[place]["n_users"] for place in places)
        measured = _measured(users, metric, pairs, design == compared.PAIRED, n_users)
        rate = arrivals(measured, metric, days, by_lists=section.mean_over == "lists")
        outlook_of |= {place: outlook(rows[place], rate, section, targets[place]) for place in places}
    return [each for place in chosen if (each := outlook_of[place]) is not None]


#: An effect in the metric's unit, the same as a share of the baseline's mean, and what names it: see ``Outlook``.
Target = tuple[float, float | None, str]


def outlook(row: Row, rate: st.Arrivals, section: Comparison, target: Target) -> Outlook | None:
    """The outlook of one comparison; None where it is unknown or impossible, and at the last planned look.

    What is found today shrinks as the standard error does, and with the bound of the looks.
    """
    looks, further = row.get(sch.LOOKS), 2 * rate.days
    if looks not in (None, "any"):
        # Such as "6 of 14, obrien_fleming".
        numbers, _, spending = looks.partition(", ")
        look, planned = map(int, numbers.split(" of "))
        further = min(further, planned - look)
    if further < 1:
        return None
    growth, errors = rate.growth(further)
    n_users = row["n_users"] * np.concatenate([[1.0], growth])
    # Standard errors that an effect has to have to be found, today and on each further day.
    of_family = (1 - section.confidence) * (section.primary_share or 1.0)
    level = st.strictest_level(of_family, row["n_comparisons"], section.correction)
    bounds = np.full(len(n_users), -ndtri(level / 2))
    if looks == "any":
        rho = st.mixture_rho(section.tuning_users, 1 - section.confidence)
        bounds = np.maximum(bounds, st.always_valid_bound(n_users, rho, level))
    elif looks is not None:
        of_looks = st.spending_bounds(np.arange(1, planned + 1) / planned, level / 2, spending)
        bounds = np.maximum(bounds, of_looks[look - 1 :][: len(n_users)])
    bounds = bounds + ndtri(section.power)
    effects = row["adjusted_minimum_detectable_effect"] * errors * bounds[1:] / bounds[0]
    room = parse(row[sch.METRIC]).room(row.get("mean_baseline") or 0.0)
    if not (np.isfinite(effects).all() and effects[-1] <= room):
        return None
    effect, relative, limit = target
    enough = np.flatnonzero(effects <= effect)
    at = int(enough[0]) + 1 if len(enough) else None
    needed = n_users[at] if at else n_users[-1] * (effects[-1] / effect) ** 2
    names = (row[sch.EXPERIMENT], row[sch.BASELINE], row[sch.METRIC])
    users, last, more = round(float(needed)), float(effects[-1]), bool(growth[-1] >= 1 + FEW_NEW_USERS)
    return Outlook(*names, effect, relative, limit, at, users, further, last, more, looks, section.power)


def _target(found: Finding, section: Comparison, metric: Metric) -> Target | None:
    """The smallest that the margin, the effect or a gate names, else a round number below what is found today.

    None where what is found today is enough or not known, or where the candidate is shown to be within the margin.
    """
    mean, today = found.means[0] or 0.0, found.adjusted_minimum_detectable_effect
    if found.within_margin or not today:
        return None
    today = min(today, metric.room(mean))
    limits: list[Target] = [
        (size * mean, size, name) if is_share else (size, None, name)
        for size, is_share, name in section.sizes(found.metric, sch.EVERYONE, found.candidate)
        if mean > 0 or not is_share
    ]
    if limits:
        return limit if (limit := min(limits, key=lambda each: each[0]))[0] < today else None
    if mean > 0:
        share = st.round_below(100 * today / mean) / 100
        return share * mean, share, ""
    return st.round_below(today), None, ""


def _measured(users: DataFrame, metric: Metric, pairs: Sequence[Pair], is_paired: bool, n_users: int) -> DataFrame:
    """The rows that say how users arrive: of the experiments, or of the differences of the first pair's users."""
    # A rate is as sure from a part of many users, and reading them all again would cost as much as the comparison.
    parts = 2 ** max(0, math.floor(math.log2(max(n_users, 1) / USERS_OF_SAMPLE)))
    rows = users.where(f"pmod(xxhash64({sch.USER}), {parts}) = 0") if parts > 1 else users
    if not is_paired:
        return rows.where(F.col(sch.EXPERIMENT).cast("string").isin([*{name for pair in pairs for name in pair}]))
    return differences(rows, metric, pairs[0])
