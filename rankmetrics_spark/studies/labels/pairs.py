"""Sums of bounds over users, and what they say: whether one experiment is ahead whatever the missing labels are."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from rankmetrics_spark import errors as err, metrics as mx, statistics as st, words
from rankmetrics_spark.studies.frame import TABLES, said
from rankmetrics_spark.studies.labels.kernels import Bounds, Shown

MEANS = TABLES["unjudged_means"]
#: Columns of the tables of experiments and of pairs -> their types.
PAIRS = TABLES["unjudged_pairs"]
#: Without a baseline every pair is compared, so there may not be more.
MOST_EXPERIMENTS = 20
#: Users, those whose value cannot be summed; the value, its lowest and its highest one over labels.
_SUMS = st.Measure("n_users n_unjudged n_open n_enclosed n_beyond | v l h")
#: A difference below this part of the values is rounding.
_SMALL = 1e-12


class Key(NamedTuple):
    """What a row of sums is about: an experiment (no baseline), or a pair."""

    baseline: str | None
    experiment: str | None
    metric: str


class Arms(NamedTuple):
    """Lists with their experiments.

    Attributes:
        shown: The lists of some users.
        names: Name of each experiment.
        experiment: (n,) experiment of each list.
    """

    shown: Shown
    names: Sequence[str | None]
    experiment: mx.Ints

    def rows(self, bounds: Bounds) -> list[mx.Ints]:
        """Of each experiment, the entries of ``bounds``."""
        of_entry = self.experiment[self.shown.list[bounds.at]]
        order = np.argsort(of_entry, kind="stable")
        return np.split(order, np.searchsorted(of_entry[order], np.arange(1, len(self.names))))


def pairs_of(names: Sequence[str | None], baseline: str | None) -> list[tuple[int, int]]:
    """Baseline and candidate of each comparison, as indices of ``names``, in the order of the names.

    Raises:
        ConfigError: There is no baseline, and there are too many experiments.
    """
    places = sorted(range(len(names)), key=lambda at: str(names[at]))
    if baseline is not None:
        base = [at for at in places if names[at] == baseline]
        return [(first, at) for first in base for at in places if at != first]
    if len(places) > MOST_EXPERIMENTS:
        raise err.ConfigError(said("many_experiments", n=len(places), most=MOST_EXPERIMENTS))
    return [*combinations(places, 2)]


class Moves(NamedTuple):
    """The items of the users who are in both experiments of a pair.

    Attributes:
        lists: (2, u) lists of these users in the baseline and the candidate.
        item: (i,) items of either list down to the cut-off, ascending, as ``Shown`` numbers them.
        user: (i,) index of their user in ``lists``.
        unjudged: (i,) whether a label may change.
        rank: (2, i) rank in both lists; 0 = not shown.
        move: (i,) how much the highest grade of this item alone adds to candidate - baseline; 0 for a judged item.
    """

    lists: mx.Ints
    item: mx.Ints
    user: mx.Ints
    unjudged: mx.Bools
    rank: mx.Ints
    move: mx.Floats

    @classmethod
    def of(cls, arms: Arms, bounds: Bounds, rows: Sequence[mx.Ints], pair: tuple[int, int]) -> "Moves":
        """The items of a pair; ``rows`` as ``Arms.rows`` returns them."""
        shown, of_user = arms.shown, np.full((2, int(arms.shown.user[-1]) + 1), -1)
        for side, arm in enumerate(pair):
            lists = np.flatnonzero(arms.experiment == arm)
            of_user[side, shown.user[lists]] = lists
        both = np.asarray((of_user >= 0).all(axis=0))
        place = np.cumsum(both) - 1
        lists = of_user[:, both]
        own = [entries[both[shown.user[shown.list[bounds.at[entries]]]]] for entries in (rows[pair[0]], rows[pair[1]])]
        item = np.unique(np.concatenate([shown.item[bounds.at[entries]] for entries in own]))
        user, unjudged = np.zeros(len(item), np.int64), np.zeros(len(item), bool)
        rank, moves = np.zeros((2, len(item)), np.int64), np.zeros((2, len(item)))
        at = [np.searchsorted(item, shown.item[bounds.at[entries]]) for entries in own]
        for side, entries in enumerate(own):
            user[at[side]] = place[shown.user[shown.list[bounds.at[entries]]]]
            unjudged[at[side]] = bounds.unjudged[entries]
            rank[side, at[side]] = shown.rank[bounds.at[entries]]
        for side, entries in enumerate(own):
            moves[side] = bounds.absent[lists[side, user]] if len(item) else 0.0
            moves[side, at[side]] = bounds.move[entries]
        return cls(lists, item, user, unjudged, rank, np.where(unjudged, moves[1] - moves[0], 0.0))

    def differences(self, bounds: Bounds) -> tuple[mx.Floats, mx.Floats, mx.Floats, mx.Bools]:
        """Candidate - baseline of each user as judged, its lowest and highest value over all labels, where an item of
        both lists has one label; and whether no label leads beyond these, but perhaps none leads there.

        A label adds its ``move`` to a sum, and of the labels that let an item be the first, one alone is best. A label
        changes both parts of a ratio: the bounds of both values enclose the difference, unless both lists are the same.
        """
        base, other = self.lists
        value, n = bounds.value[other] - bounds.value[base], len(base)
        least, most = np.zeros((2, n))
        if bounds.kind == "sum":
            least += np.bincount(self.user, np.minimum(self.move, 0.0), minlength=n)
            most += np.bincount(self.user, np.maximum(self.move, 0.0), minlength=n)
        elif bounds.kind == "first":
            np.minimum.at(least, self.user, self.move)
            np.maximum.at(most, self.user, self.move)
        else:
            # Without an unjudged item, the bounds are the value itself.
            open_ = (bounds.high > bounds.low)[self.lists].any(axis=0)
            differs = np.bincount(self.user[self.rank[0] != self.rank[1]], minlength=n) > 0
            low, high = bounds.low[other] - bounds.high[base], bounds.high[other] - bounds.low[base]
            return value, np.where(differs, low, 0.0), np.where(differs, high, 0.0), differs & open_
        return value, value + least, value + most, np.zeros(n, bool)


def arm_sums(arms: Arms, bounds: Bounds, metric: mx.Metric) -> Iterator[tuple[Key, mx.Ints]]:
    """Yield the sums of each experiment."""
    n = len(arms.experiment)
    open_ = np.bincount(arms.shown.list[bounds.at][bounds.unjudged], minlength=n)
    counts = (np.ones(n), open_, bounds.high > bounds.low, np.zeros(n))
    sums = _sums(counts, (bounds.value, bounds.low, bounds.high), arms.experiment, len(arms.names))
    yield from zip((Key(None, name, str(metric)) for name in arms.names), sums, strict=True)


def pair_sums(arms: Arms, bounds: Bounds, metric: mx.Metric, baseline: str | None) -> Iterator[tuple[Key, mx.Ints]]:
    """Yield the sums of each pair."""
    rows = arms.rows(bounds)
    for pair in pairs_of(arms.names, baseline):
        moves = Moves.of(arms, bounds, rows, pair)
        n_users = moves.lists.shape[1]
        key = Key(arms.names[pair[0]], arms.names[pair[1]], str(metric))
        value, low, high, enclosed = moves.differences(bounds)
        moving = moves.move != 0
        if bounds.kind == "ratio":
            moving = moves.unjudged & (high > low)[moves.user]
        of_user = [np.bincount(moves.user[mask], minlength=n_users) for mask in (moves.unjudged, moving)]
        numbers = (np.ones(n_users), *of_user, enclosed)
        yield key, _sums(numbers, (value, low, high), np.zeros(n_users, np.int64), 1)[0]


def _sums(counts: Sequence[Any], values: Sequence[mx.Floats], group: mx.Ints, size: int) -> mx.Ints:
    """(size, c) exact sums."""
    sound = np.logical_and.reduce([np.abs(each) <= st.LARGEST_SUMMAND for each in values])
    v, low, high = (np.where(sound, each, 0.0) for each in values)
    return st.group_sums(_SUMS.cells([*counts, 1.0 - sound], v=v, l=low, h=high), group, size)


# ---- the rows of the results


def _read(table: Any) -> tuple[dict[str, int], list[float | None]]:
    """Counts, and means of the three values; None without a user."""
    sums = st.Sums(_SUMS, np.asarray(table)[None])
    counts = {name: int(sums[name][0]) for name in _SUMS.counts}
    known = counts["n_users"] and not counts["n_beyond"]
    return counts, [float(sums.mean(name, "n_users")[0]) if known else None for name in _SUMS.values]


def arm_rows(sums: Mapping[Key, Any]) -> Iterator[dict[str, Any]]:
    """The rows of ``means``."""
    arms = [key for key in sums if key.baseline is None]
    for key in sorted(arms, key=lambda arm: (arm.experiment is None, str(arm.experiment), arm.metric)):
        counts, values = _read(sums[key])
        n = (counts[name] for name in ("n_users", "n_open", "n_unjudged"))
        yield dict(zip(MEANS, (key.experiment, key.metric, *n, *values), strict=True))


def pair_rows(sums: Mapping[Key, Any], metrics: Mapping[str, str], baseline: str | None) -> Iterator[dict[str, Any]]:
    """The rows of ``pairs``, from the sums of all users; the metrics in their order, with what their labels may be.

    Raises:
        ConfigError: No experiment has the name of the baseline, or there are too many experiments.
    """
    names = sorted({key.experiment for key in sums if key.baseline is None}, key=str)
    err.check_known("experiment", [baseline], [name for name in names if name is not None])
    nobody = np.zeros(len(_SUMS.columns), np.int64)
    for metric in metrics:
        for base, other in pairs_of(names, baseline):
            key = Key(names[base], names[other], metric)
            counts, values = _read(sums.get(key, nobody))
            n = (counts[name] for name in ("n_users", "n_unjudged", "n_open"))
            kind = "enclosure" if counts["n_enclosed"] else "exact"
            row = dict(zip(PAIRS, (*key, *n, *values, kind, ""), strict=True))
            yield row | {"sentence": sentence(row, metrics[metric])}


def sentence(row: Mapping[str, Any], grades: str = "") -> str:
    """What the bounds in a row of ``pairs`` say: of these users alone, so it never says "beats", which a test says.

    >>> row = {"baseline": "a", "experiment_id": "b", "metric": "p@5", "n_users": 9, "n_unjudged": 4, "n_open": 3,
    ...        "low": 0.1, "high": 0.2, "bounds": "exact"}
    >>> sentence(row)
    'b is ahead of a on mean Precision@5 whatever the labels of the 4 unjudged items are: by 0.1 to 0.2'
    >>> sentence(row | {"low": -0.1}).partition("; ")[2]
    '3 more judgements could decide'
    """
    a, b, n = row["baseline"], row["experiment_id"], row["n_unjudged"]
    metric = mx.parse(row["metric"]).headline
    low, high = row["low"], row["high"]
    if not row["n_users"]:
        return f"The judgements do not say who is ahead on {metric}: no {words.UNIT} is in both {a} and {b}"
    if low is None or high is None:
        return f"The judgements do not say who is ahead on {metric}: a value is too large to be summed"
    labels = "label of the unjudged item is" if n == 1 else f"labels of the {n:,} unjudged items are"
    whatever = f"on {metric} whatever the {labels}{grades}" if n else f"on {metric}"
    if low > _SMALL:
        return f"{b} is ahead of {a} {whatever}: by {_range(low, high)}"
    if high < -_SMALL:
        return f"{a} is ahead of {b} {whatever}: by {_range(-high, -low)}"
    if low >= -_SMALL and high <= _SMALL:
        return f"{a} and {b} are equal {whatever}"
    if low >= -_SMALL:
        return f"{b} is not behind {a} {whatever}: ahead by up to {high:.4g}"
    if high <= _SMALL:
        return f"{a} is not behind {b} {whatever}: ahead by up to {-low:.4g}"
    by = "by" if row["bounds"] == "exact" else "by at most"
    judgements = "judgement" if row["n_open"] == 1 else "judgements"
    return said("undecided", metric=metric, a=a, by=by, of_a=-low, b=b, of_b=high, row=row, judgements=judgements)


def _range(low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g}" if f"{low:.4g}" != f"{high:.4g}" else f"{low:.4g}"


# ---- which items to judge first


def heaviest(arms: Arms, limits: Bounds, baseline: str | None) -> tuple[Any, Any, Any]:
    """(i,) largest weight of each item, and (2, i) experiments and ranks of the pair that has it; -1 and 0: none."""
    shown = arms.shown
    size = int(shown.item.max(initial=-1)) + 1
    weight, pair, ranks = np.zeros(size), np.full((2, size), -1), np.zeros((2, size), np.int64)
    rows = arms.rows(limits)
    n_lists = np.bincount(shown.user)
    if baseline is not None:
        is_base = np.array([name == baseline for name in arms.names])[arms.experiment]
        n_lists *= np.bincount(shown.user[is_base], minlength=len(n_lists))
    # Of users without a pair, the move of the value itself; of several lists the largest one stays.
    alone = np.flatnonzero(limits.unjudged & (n_lists[shown.user[shown.list[limits.at]]] < 2))
    alone = alone[np.lexsort((-shown.rank[limits.at[alone]], np.abs(limits.move[alone])))]
    at, item = limits.at[alone], shown.item[limits.at[alone]]
    weight[item], ranks[1, item] = np.abs(limits.move[alone]), shown.rank[at]
    pair[1, item] = arms.experiment[shown.list[at]]
    for one in pairs_of(arms.names, baseline):
        moves = Moves.of(arms, limits, rows, one)
        heavier = np.abs(moves.move) > weight[moves.item]
        of = moves.item[heavier]
        weight[of] = np.abs(moves.move[heavier])
        pair[:, of] = np.array(one)[:, None]
        ranks[:, of] = moves.rank[:, heavier]
    return weight, pair, ranks
