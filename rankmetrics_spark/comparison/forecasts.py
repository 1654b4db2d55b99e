"""An open comparison of a period -> after how many more days it could find an effect, if users keep arriving."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions as F
from scipy.special import ndtri

from rankmetrics_spark import config as cfg, engines as eng, metrics as mx, schemas as sch, statistics as st
from rankmetrics_spark.comparison import adjusted, compared, daily, measures as ms, periods, table as tables, units
from rankmetrics_spark.comparison.families import by_name
from rankmetrics_spark.comparison.sums import PARTIALS, Layout, added, as_batches, whole_users
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.findings import Finding, Row

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


def outlooks(
    rows: Sequence[Row], users: DataFrame, days: cfg.Days, section: cfg.Comparison, metric: mx.Metric
) -> list[Outlook]:
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


def outlook(row: Row, rate: st.Arrivals, section: cfg.Comparison, target: Target) -> Outlook | None:
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
    room = mx.parse(row[sch.METRIC]).room(row.get("mean_baseline") or 0.0)
    if not (np.isfinite(effects).all() and effects[-1] <= room):
        return None
    effect, relative, limit = target
    enough = np.flatnonzero(effects <= effect)
    at = int(enough[0]) + 1 if len(enough) else None
    needed = n_users[at] if at else n_users[-1] * (effects[-1] / effect) ** 2
    names = (row[sch.EXPERIMENT], row[sch.BASELINE], row[sch.METRIC])
    users, last, more = round(float(needed)), float(effects[-1]), bool(growth[-1] >= 1 + FEW_NEW_USERS)
    return Outlook(*names, effect, relative, limit, at, users, further, last, more, looks, section.power)


def _target(found: Finding, section: cfg.Comparison, metric: mx.Metric) -> Target | None:
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


def _measured(users: DataFrame, metric: mx.Metric, pairs: Sequence[Pair], is_paired: bool, n_users: int) -> DataFrame:
    """The rows that say how users arrive: of the experiments, or of the differences of the first pair's users."""
    # A rate is as sure from a part of many users, and reading them all again would cost as much as the comparison.
    parts = 2 ** max(0, math.floor(math.log2(max(n_users, 1) / USERS_OF_SAMPLE)))
    rows = users.where(f"pmod(xxhash64({sch.USER}), {parts}) = 0") if parts > 1 else users
    if not is_paired:
        return rows.where(F.col(sch.EXPERIMENT).cast("string").isin([*{name for pair in pairs for name in pair}]))
    return differences(rows, metric, pairs[0])


# ---- how many users came by each day, and how far their means spread, as exact sums
#
# A user's state changes on their own days only, so each row adds the new state and takes the last one away: the work
# grows with the rows, not with users times days.

_VALUE, _LISTS, _DAY = "value", "lists", "day"


def differences(users: DataFrame, metric: mx.Metric, pair: tuple[str, str], *more: str) -> DataFrame:
    """The rows of the users of a pair, with the difference of their values; ``more``: columns in which both agree."""
    experiment, value = F.col(sch.EXPERIMENT).cast("string"), F.col(metric.column)
    sides = [F.max(F.when(experiment == name, value)) for name in pair]
    lists = F.min(F.expr(tables.lists_of(metric.column, users.columns)))
    both = users.where(experiment.isin([*pair])).groupBy(sch.USER, sch.DATE, *more)
    rows = both.agg((sides[1] - sides[0]).alias(metric.column), lists.alias(sch.N_LISTS))
    return rows.select("*", F.lit("difference").alias(sch.EXPERIMENT), F.lit(1).alias(sch.N_RELEVANT))


def arrivals(
    users: DataFrame,
    metric: mx.Metric,
    days: cfg.Days,
    before: cfg.Days | None = None,
    by_lists: bool = False,
    cluster: str | None = None,
) -> st.Arrivals:
    """Users by day, from one row per (experiment_id, user_id, evaluation_date); runs one small job.

    A user counts in the experiment of their first day only, of several the first by name. Values of days ``before``
    explain a part of the variance. With a ``cluster``, clusters count, and errors are those between them.
    """
    column, lists = metric.column, tables.lists_of(metric.column, users.columns)
    lists = f"greatest({lists}, 1)" if by_lists else lists
    rows = users.where(F.col(sch.DATE).cast("string").isin([*days.dates])).where(f"{column} IS NOT NULL")
    earlier = None if before is None else periods.period_rows(users, before).drop(sch.EXPERIMENT)
    table = tables.UserTable(rows, (metric,), {_DAY: sch.DATE}, earlier, cluster=cluster)
    columns = ((_VALUE, column), (_LISTS, "_lists"))
    body = partial(_sums, layout=Layout(columns, (_DAY,)), days=days.dates, by_lists=by_lists)
    parts = eng.Step(body, PARTIALS).of(tables.by_user(table, f"double({lists}) AS _lists"))
    totals = ms.Totals()
    for row in eng.few_rows(eng.Step(added, PARTIALS).of(parts.repartition(1))):
        totals.add(ms.Key(*(row[name] for name in ms.KEY)), np.array(row["sums"], np.int64))
    return _arrivals(totals, days.dates)


def _sums(batches: eng.Batches, layout: Layout, days: tuple[str, ...], by_lists: bool) -> Iterator[pa.RecordBatch]:
    totals = ms.Totals()
    for rows in whole_users(batches, layout):
        _, (labels, code) = rows.segments
        day = np.array([days.index(label.partition("=")[2]) for label in labels])[code]
        add_states(totals, rows, day, days, by_lists)
    yield from as_batches(totals)


def states_of(user: st.Ints, values: st.Floats, lists: st.Floats) -> tuple[st.Ints, st.Floats, st.Floats, st.Floats]:
    """What is known of each user on each of their days, of rows in the order of user and day: (n,) days of the user so
    far, their mean over the lists so far, these lists, and squares around the mean, each times its lists.

    One step for all users' first rows, then their second ones.

    Source: Welford, Note on a method for calculating corrected sums of squares and products (1962).
    """
    counts = daily.running(np.ones(len(user), np.int64), user)
    means, total, around = values.copy(), lists.copy(), np.zeros(len(user))
    order = np.argsort(counts, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(counts[order])) + 1)[1:]:
        apart = values[at] - means[at - 1]
        total[at] += total[at - 1]
        share = np.divide(lists[at], total[at], out=np.zeros(len(at)), where=total[at] > 0)
        means[at] = means[at - 1] + share * apart
        around[at] = around[at - 1] + lists[at] * apart * (values[at] - means[at])
    # A user without a list has the same value each day, as if in one list.
    return counts, means, np.where(total > 0, total, 1.0), around


def _running(user: st.Ints, changes: st.Floats) -> st.Floats:
    """(n,) sums of each user's changes so far, exact: other users of a batch change no bit."""
    limbs = [daily.running(limb.astype(np.int64), user).astype(object) for limb in st.limbs_of(changes)]
    return np.asarray((st.exact_total(limbs) / 2**st.LIMB_UNIT).astype(float))


def _less_last(n: st.Ints, states: st.Array) -> st.Array:
    """(n,) what each state adds to the one that it replaces; ``n`` is 1 for a first one."""
    return np.asarray(states - np.where(n == 1, 0, np.concatenate([[0], states[:-1]])))


def add_states(totals: ms.Totals, rows: units.UserRows, day: st.Ints, days: tuple[str, ...], by_lists: bool) -> None:
    """Add what the states of these users change on each day; ``day`` is the position of each row's date in ``days``.

    A state has the value v of a user and its weight w, whose sums have the mean as their ratio: the user's mean and 1,
    or both times the lists; and i, which the variance of a list is multiplied with. That of a cluster has the sums of
    its users.
    """
    # By name: the numbers of experiments are those of a batch, and depend on the order of its rows.
    rank_of = {name: rank for rank, name in enumerate(by_name(rows.experiments))}
    ranks = np.array([rank_of[name] for name in rows.experiments], np.int64)
    order = np.lexsort((ranks[rows.experiment], day, rows.user))
    user, experiment = rows.user[order], rows.experiment[order]
    first = daily.first_places(user)
    order = order[experiment == np.repeat(experiment[first], np.diff(first, append=len(user)))]
    person = rows.user[order]
    if rows.member is not None:
        order = order[np.lexsort((day[order], rows.member[order], rows.user[order]))]
        new = [np.diff(each[order]) != 0 for each in (rows.user, rows.member.view(np.int64))]
        person = np.cumsum(np.r_[0, new[0] | new[1]])
    values = rows.values[_VALUE][order]
    if np.abs(values).max(initial=0.0) > st.LARGEST_SUMMAND:
        raise InputError(f"a value of {np.abs(values).max():.3g} is too large; allowed: up to {st.LARGEST_SUMMAND:.3g}")
    units.refuse_repeats(~(np.diff(person) | np.diff(day[order])).astype(bool), of_days=True)
    n, mean, lists, around = states_of(person, values, rows.values[_LISTS][order])
    weights = lists if by_lists else np.ones(len(n))
    v, i = mean * weights, lists if by_lists else 1 / lists
    states: list[Any] = [n - 1, v, weights, i, around]
    if rows.member is not None:
        place = np.lexsort((rows.member[order], day[order], rows.user[order]))
        order, changes = order[place], [_less_last(n, each)[place] for each in states]
        last = np.flatnonzero(np.diff(rows.user[order], append=-1) | np.diff(day[order], append=-1))
        states = [_running(rows.user[order], each)[last] for each in changes]
        order = order[last]
        n = daily.running(np.ones(len(order), np.int64), rows.user[order])
    more, v, weights, i, around = states
    counts = [np.ones(len(n)), n == 1, n == 2, more]
    cells = ms.Groups.of_cells(rows.experiments, days, day[order] * len(rows.experiments) + rows.experiment[order])

    def add_states_of(kind: str, counts: list[Any], **values: st.Floats) -> None:
        """Add the states, less those that they replace."""
        columns = (np.asarray(each, np.int64) for each in ms.KINDS[kind].cells(counts, **values))
        cells.add_up(totals, kind, "", (_less_last(n, each) for each in columns))

    add_states_of("arrivals", counts, v=v, w=weights, i=i, ss=around)
    if rows.before:
        (known,) = rows.before.values()
        b = known[order]
        has_before = ~np.isnan(b)
        add_states_of("before", [has_before], b=np.where(has_before, b, 0.0), v=np.where(has_before, v, 0.0))


# ---- sums -> what a plan needs


def _arrivals(totals: ms.Totals, days: tuple[str, ...]) -> st.Arrivals:
    """Sums of all experiments; variances are those within experiments."""
    experiments = by_name({key.candidate for key in totals.sums})
    sums = [_by_day(totals, "arrivals", name, days) for name in experiments]
    arms, added = [each.ratio("v", "w").moments for each in sums], reduce(add, sums)
    freedom = [np.maximum(arm.n - 1, 0).astype(float) for arm in arms]
    spread = sum((np.nan_to_num(arm.variance) * n for arm, n in zip(arms, freedom, strict=True)), np.zeros(len(days)))
    of_all = sum(freedom, np.zeros(len(days)))
    variance = spread / np.where(of_all > 0, of_all, np.nan)
    users, once, twice, more = (added[name].astype(float) for name in ("users", "once", "twice", "more"))
    residual = variance
    if any(key.kind == "before" for key in totals.sums):
        earlier = [_by_day(totals, "before", name, days) for name in experiments]
        both = adjusted.with_mean_covariate([*zip(arms, earlier, strict=True)])
        residual = variance * (1 - np.nan_to_num(st.variance_reduction_of(*both)))
    return st.Arrivals(
        users,
        once,
        twice,
        mean=added.ratio("v", "w").moments.mean,
        variance=variance,
        residual=residual,
        inverse_lists=added.real("i") * users / np.square(np.where(users > 0, added.real("w"), np.nan)),
        within=float(added.real("ss")[-1]) / more[-1] if more[-1] else float("nan"),
    )


def _by_day(totals: ms.Totals, kind: str, experiment: ms.Name, days: tuple[str, ...]) -> st.Sums:
    """Sums up to each day."""
    of_days = totals.of(kind, [ms.Key(kind, "", experiment, day, "") for day in days])
    return st.Sums(of_days.measure, np.cumsum(of_days.table, axis=0))
