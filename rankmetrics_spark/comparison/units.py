"""Rows of users, and the units of a test: a user, a user within a segment, or a cluster such as a household."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankmetrics_spark import errors as err, schemas as sch
from rankmetrics_spark.comparison.measures import FOLDS, Groups, Name, Totals, said
from rankmetrics_spark.statistics import LARGEST_SUMMAND, LIMB_UNIT, Bools, Floats, Ints, Words, exact_total, limbs_of


@dataclass(frozen=True)
class UserRows:
    """All rows of some users, ordered by user.

    Attributes:
        user: (n,) index of the user, from 0, ascending.
        keys: (u,) hash of each user's id.
        experiments: Names of the experiments.
        experiment: (n,) index of the experiment.
        segments: Per way of splitting the users: the labels, and the (n,) index of each row's label.
        values: Metric -> (n,) values, NaN where the user has none.
        relevant: (n,) whether the user has a relevant item.
        before: Metric -> (n,) values of an earlier date, NaN where there is none; empty if none are wanted. Covariates
            have numbers instead of metrics, from "0" on.
        before_own: The same of the row's own experiment: those of a user may differ between experiments.
        lists: Metric -> (n,) lists of the user that have a value; empty where means are over users.
        member: Where clusters are the unit: ``user`` is the cluster, and this the (n,) hash of the user.
        alone: Where clusters are the unit: (n,) whether the user has none, and so is one of their own.
        lists_hash: (n,) hash of the lists of the row, where only users whose lists differ are compared.
        without: Metric -> (n,) share of the user's lists that have no value, where it is known which have one.
        triggered: (n,) whether the row counts in comparisons; None where all do.
        machine: Metric -> (n,) values under the labels of a machine; empty where there are none.
        strata: The strata, in order.
        stratum: (n,) index of the stratum; None where there are none.
        in_part: (n,) whether people have judged some of the user's items, and not all; None without a machine.
        chance: (n,) probability that people were to judge the user; None where it is the same for all.
        shown: (n,) items of the user's lists; None without a machine, and where it is not known.
    """

    user: Ints
    keys: Words
    experiments: list[Name]
    experiment: Ints
    segments: list[tuple[list[str], Ints]]
    values: dict[str, Floats]
    relevant: Bools
    before: dict[str, Floats] = field(default_factory=dict)
    before_own: dict[str, Floats] = field(default_factory=dict)
    lists: dict[str, Floats] = field(default_factory=dict)
    member: Words | None = None
    alone: Bools | None = None
    lists_hash: Ints | None = None
    without: dict[str, Floats] = field(default_factory=dict)
    triggered: Bools | None = None
    machine: dict[str, Floats] = field(default_factory=dict)
    in_part: Bools | None = None
    strata: list[str] = field(default_factory=list)
    stratum: Ints | None = None
    chance: Floats | None = None
    shown: Floats | None = None

    def rated(self, metric: str) -> tuple[Floats, Floats, Floats, Floats]:
        """(n,) values under the machine's labels that can be summed, lists, probabilities that people judge, items."""
        one = np.ones(len(self.user))
        chance, shown = (one if each is None else each for each in (self.chance, self.shown))
        return summable(self.machine[metric]), self.lists.get(metric, one), chance, shown

    def left_out(self, metric: str, values: Floats) -> Floats:
        """(n,) share of a user's lists that have no value of the metric; 1 where the user has none at all."""
        nobody = np.isnan(values)
        return np.where(nobody, 1.0, self.without[metric]) if metric in self.without else nobody.astype(float)

    def with_each(self, fields: Sequence[str], of: Callable[[str, Floats], Floats]) -> "UserRows":
        """The rows with ``of(metric, values)`` in place of the values that these fields have of each metric."""
        changed: dict[str, Any] = {}
        for name in fields:
            changed[name] = {metric: of(metric, each) for metric, each in getattr(self, name).items()}
        return replace(self, **changed)

    def covariates(self, metric: str, own: bool = False) -> list[Floats]:
        """(n,) values of the covariates, those of the metric first; empty where there is one earlier value alone."""
        of = self.before_own if own else self.before
        return [summable(each) for name, each in of.items() if "0" in of and (name == metric or name.isdigit())]

    @property
    def fold(self) -> Ints:
        """(n,) fold of each row's user."""
        return (((self.keys >> np.uint64(32)) * np.uint64(FOLDS)) >> np.uint64(32)).astype(np.int64)[self.user]

    def of_users(self, chosen: Bools) -> "UserRows":
        """The rows of some users; ``chosen`` is (u,)."""
        if chosen.all():
            return self
        rows = self.take(np.flatnonzero(chosen[self.user]))
        return replace(rows, user=(np.cumsum(chosen) - 1)[rows.user], keys=self.keys[chosen])

    def take(self, places: Ints, **changed: Any) -> "UserRows":
        """The rows at these places, by default with all that they have."""

        def taken(each: Any) -> Any:
            """Those of an array, and of the arrays of metrics."""
            if isinstance(each, dict):
                return {metric: values[places] for metric, values in each.items()}
            return each if each is None else each[places]

        segments = [(labels, code[places]) for labels, code in self.segments]
        of_rows = vars(self).keys() - {"keys", "experiments", "segments", "strata"} - changed.keys()
        kept = {name: taken(getattr(self, name)) for name in of_rows}
        return replace(self, **{"segments": segments, **kept, **changed})


@dataclass(frozen=True)
class Units:
    """The units of one way of splitting the users: a user, or a user within a segment; ordered by segment.

    Attributes:
        labels: The segments.
        starts: (s,) first unit of each segment.
        user: (u,) user of each unit.
        row_unit: (n,) unit of each row.
        experiment: (n,) experiment of each row.
        n_experiments: Number of experiments.
        lists_hash: (u, e) hash of the lists of a unit in each experiment; None where all units are compared.
    """

    labels: list[str]
    starts: Ints
    user: Ints
    row_unit: Ints
    experiment: Ints
    n_experiments: int
    lists_hash: Ints | None = None

    @classmethod
    def of(cls, rows: UserRows, labels: list[str], code: Ints) -> "Units":
        """The units of some rows; ``code`` is the (n,) index of each row's label."""
        n_users, n_experiments = len(rows.keys), len(rows.experiments)
        if len(labels) == 1:
            # Every user is one unit; the general way sorts them again.
            starts, user, row_unit = np.zeros(1, np.int64), np.arange(n_users), rows.user
        else:
            keys, places = np.unique(code * n_users + rows.user, return_inverse=True)
            present, starts = np.unique(keys // n_users, return_index=True)
            labels, user = [labels[i] for i in present], keys % n_users
            row_unit = places.reshape(-1).astype(np.int64)
        units = cls(labels, starts, user, row_unit, rows.experiment, n_experiments)
        return units if rows.lists_hash is None else replace(units, lists_hash=units.dense(rows.lists_hash, 0))

    def dense(self, values: Any, none: float = np.nan) -> Any:
        """(units, experiments) values; ``none`` where a unit has no row of an experiment."""
        table = np.full((len(self.user), self.n_experiments), none, values.dtype)
        table[self.row_unit, self.experiment] = values
        return table

    def of_both(self, table: Floats, left: Ints, right: Ints) -> tuple[Floats, Floats, Bools]:
        """Values of baseline and candidate, 0 where a unit does not count in the pair; and which units count.

        A unit counts if it has both values and, where only changed lists are compared, different lists.
        """
        hashes = self.lists_hash
        return of_both(table[:, left], table[:, right], None if hashes is None else hashes[:, left] != hashes[:, right])

    def of_users(self, rows: Ints, part: slice) -> Ints:
        """The rows of the users of some units, which are ordered by user."""
        users = self.user[part]
        return rows if len(users) == len(rows) else rows[users]

    def slices(self) -> Iterator[tuple[str, slice]]:
        """The units of each segment."""
        ends = [*self.starts[1:].tolist(), len(self.user)]
        for label, start, end in zip(self.labels, self.starts.tolist(), ends, strict=True):
            yield label, slice(start, end)


def of_both(x: Floats, y: Floats, differ: Bools | None) -> tuple[Floats, Floats, Bools]:
    """The values, 0 where a pair does not count, and which pairs do: both values known and, if given, ``differ``."""
    both = ~(np.isnan(x) | np.isnan(y))
    if differ is not None:
        both &= differ
    return np.where(both, x, 0.0), np.where(both, y, 0.0), both


def summable(table: Floats) -> Floats:
    """The values without those that are too large to be summed."""
    beyond = np.abs(table) > LARGEST_SUMMAND
    return np.where(beyond, np.nan, table) if beyond.any() else table


def rows_of_clusters(totals: Totals, rows: UserRows) -> Iterator[UserRows]:
    """One row per (cluster, experiment), for each way of splitting the users, instead of one per user.

    The value is the mean over the users of the cluster, or over their lists, and ``lists`` is how many these are; so
    a mean over clusters, weighted by them, is the mean over users or lists. A cluster whose users are in several
    segments is a unit in each of them. Sums are exact, so the order of the users changes no bit.

    Args:
        totals: Changed in place: how many users the clusters have, and how many are in none.
        rows: All users of some clusters; ``user`` is the cluster.

    Raises:
        InputError: A user has two rows of one experiment.
    """
    assert rows.member is not None and rows.alone is not None
    n = len(rows.experiments)
    group = rows.user * n + rows.experiment
    order = np.lexsort((rows.member, group))
    refuse_repeats((np.diff(group[order]) == 0) & (np.diff(rows.member[order].view(np.int64)) == 0))
    for labels, code in rows.segments:
        number = group * len(labels) + code
        order = np.argsort(number, kind="stable")
        first = np.flatnonzero(np.diff(number[order], prepend=-1))
        alike = np.ones(len(order))
        chosen, cells = order[first], Groups.of_cells(rows.experiments, labels, code * n + rows.experiment)
        values, lists, without, machine = {}, {}, {}, {}
        in_part = np.zeros(len(first), bool)
        if rows.in_part is not None:
            in_part = np.logical_or.reduceat(rows.in_part[order], first)
        for metric, each in rows.values.items():
            without[metric] = _means(rows.left_out(metric, each)[order], alike, first)[0]
            weights, rated = rows.lists.get(metric, np.ones(len(each))), rows.machine.get(metric, each)
            cells.add(totals, "members", metric, [~np.isnan(rated)])
            values[metric], lists[metric] = _means(each[order], weights[order], first)
            if metric in rows.machine:
                # People judge a cluster as a whole, or in part.
                judged = lists[metric]
                machine[metric], lists[metric] = _means(rated[order], weights[order], first)
                in_part |= (judged > 0) & (judged < lists[metric])
            if labels == [sch.EVERYONE]:
                cells.add(totals, "alone", metric, [rows.alone])
        yield replace(
            rows,
            user=rows.user[chosen],
            experiment=rows.experiment[chosen],
            segments=[(labels, code[chosen])],
            relevant=np.logical_or.reduceat(rows.relevant[order], first),
            values=values,
            lists=lists,
            without=without,
            # That of the first of its users, in the order of the names.
            stratum=None if rows.stratum is None else np.minimum.reduceat(rows.stratum[order], first),
            machine=machine,
            before={name: _means(each[order], alike, first)[0] for name, each in rows.before.items()},
            before_own={name: _means(each[order], alike, first)[0] for name, each in rows.before_own.items()},
            in_part=in_part,
            chance=None if rows.chance is None else _only(rows.chance[order], first),
            shown=None if rows.shown is None else np.add.reduceat(rows.shown[order], first),
            member=None,
            alone=None,
        )


def _only(values: Floats, first: Ints) -> Floats:
    """(g,) the one value of the groups that begin at these rows; NaN where they have several."""
    low, high = np.fmin.reduceat(values, first), np.fmax.reduceat(values, first)
    return np.where(low == high, low, np.nan)


def _means(values: Floats, lists: Floats, first: Ints) -> tuple[Floats, Floats]:
    """(g,) means of the groups that begin at these rows, and what they are over; NaN and 0 without a value."""
    has_value = ~np.isnan(values)
    y, n = np.where(has_value, values * lists, 0.0), np.where(has_value, lists, 0.0)
    beyond = np.abs(y) > LARGEST_SUMMAND
    limbs = [np.add.reduceat(limb.astype(np.int64), first).astype(object) for limb in limbs_of(np.where(beyond, 0, y))]
    over = np.add.reduceat(n.astype(np.int64), first)
    whole = exact_total(limbs) / (np.where(over > 0, over, 1).astype(object) * 2**LIMB_UNIT)
    means = np.where(over > 0, whole.astype(float), np.nan)
    return np.where(np.logical_or.reduceat(beyond, first), np.inf, means), over.astype(float)


def refuse_repeats(repeated: Bools, of_days: bool = False) -> None:
    """Refuse a user who has two rows of one experiment, or of one and a date: a row that repeats another one."""
    if repeated.any() and of_days:
        raise err.InputError("a user has two rows of one experiment and date in user_metrics; allowed: one")
    if repeated.any():
        raise err.InputError(said("two_rows"))
