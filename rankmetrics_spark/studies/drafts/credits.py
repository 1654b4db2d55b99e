"""Clicks of interleaved lists -> who won each list -> exact sums over users for each pair of rankers."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rankmetrics_spark import engines as eng, errors as err, layouts as lay, metrics as mx, schemas as sch
from rankmetrics_spark.statistics import Measure, group_sums
from rankmetrics_spark.studies.frame import said

TEAM = "_team"
RANKS = ("_rank_a", "_rank_b")
FAULTY, BELOW = "_faulty", "_below"
#: Sums by pair; those of one ranker have no ranker_b, those of the whole log have neither.
SUMS = eng.SumTable(("ranker_a", "ranker_b"))
#: Every pair of them is a row of the result.
MOST_RANKERS = 1000
#: The draft is checked rank by rank down to this one.
CHECKED_RANKS = 10
LOG_COUNTS = ("n_rows", "n_faulty_rows", "n_repeated", "n_rows_without_team", "n_clicks_without_team", "n_lists_of_log")
#: What is counted of the whole log: columns of the result, and how many rows have a rank below the first one.
READ_COUNTS = (*LOG_COUNTS, "n_below")
LIST_COUNTS = ("n_lists", "n_lists_clicked", "lists_a", "lists_b", "clicks_a", "clicks_b", "slots_a", "slots_b")
USER_COUNTS = ("n_users", "users_a", "users_b")
RANK_COUNTS = tuple(f"rank_{rank}_{of}" for of in "ab" for rank in range(1, CHECKED_RANKS + 1))
OF_USERS = Measure(f"{' '.join(USER_COUNTS)} | v vv")
#: Sums of a pair: over lists, and over users the counts and the preference.
PAIR_SUMS = Measure(f"{' '.join((*LIST_COUNTS, *RANK_COUNTS))} {OF_USERS.words}")

Pair = tuple[str | None, str | None]
Totals = dict[Pair, mx.Array]


class Draft(NamedTuple):
    """How the lists were made.

    Attributes:
        baseline: The ranker that is the first of each of its pairs.
        rankers: Of balanced interleaving, the two rankers; empty for a draft by teams.
    """

    baseline: str | None = None
    rankers: tuple[str, ...] = ()

    def order(self, names: list[str]) -> list[str]:
        """The rankers in the order in which a pair has them."""
        return [*self.rankers] or sorted(names, key=lambda name: (name != self.baseline, name))


class Slots(NamedTuple):
    """The rows of the lists of a batch, one per list and rank, by list and then by rank."""

    list: mx.Ints
    rank: mx.Ints
    click: mx.Bools
    #: Index of the ranker; -1 for none.
    team: mx.Ints
    #: Of balanced interleaving, the rank in each ranker's own list; 0 for none.
    ranks: tuple[mx.Ints, ...] = ()


class Sides(NamedTuple):
    """What each ranker has in each list where it takes part, by list and then by ranker."""

    list: mx.Ints
    team: mx.Ints
    clicks: mx.Ints
    slots: mx.Ints
    #: (n, CHECKED_RANKS) whether the slot of a rank is the ranker's.
    ranks: mx.Bools


def refuse_many(totals: Mapping[Pair, Any]) -> None:
    """Refuse sums of too many rankers."""
    n = sum(one is not None and other is None for one, other in totals)
    if n > MOST_RANKERS:
        raise err.ConfigError(said("many_rankers", n=n, most_rankers=MOST_RANKERS))


def user_sums(batch: pa.RecordBatch, draft: Draft) -> Iterator[tuple[Pair, mx.Ints]]:
    """Yield the exact sums of some users, by pair."""
    user, values = lay.flat(batch.column(sch.ENTRIES))
    codes, code = eng.coded(values.field(TEAM)) if not draft.rankers else ([], np.zeros(len(user), np.int64))
    names = draft.order([name for name in codes if name is not None])
    # The code of each name -> its place in the order of the names.
    place = {name: at for at, name in enumerate(names)}
    team = np.array([-1 if name is None else place[name] for name in codes] or [-1], np.int64)[code]
    slots, of_user, repeated = _slots(user, values, team, draft)
    sides, without = _balanced_sides(slots) if draft.rankers else _team_sides(slots)
    faulty, below = (int(lay.ints(batch.column(name)).sum()) for name in (FAULTY, BELOW))
    n_without, n_clicks = int(without.sum()), int((without & slots.click).sum())
    of_log = [len(user) + faulty, faulty, repeated, n_without, n_clicks, len(of_user), below]
    yield (None, None), np.array(of_log, np.int64)
    if len(names) > MOST_RANKERS:
        yield from (((name, None), np.zeros(2, np.int64)) for name in names)
        return
    for at, name in enumerate(names):
        own = sides.team == at
        if own.any() or draft.rankers:
            yield (name, None), np.array([sides.slots[own].sum(), sides.clicks[own].sum()], np.int64)
            yield from (((name, names[other]), sums) for other, sums in _pair_sums(sides, at, of_user, len(names)))


def _slots(user: mx.Ints, values: pa.Array, team: mx.Ints, draft: Draft) -> tuple[Slots, mx.Ints, int]:
    """Return one row per list and rank, the user of each list, and the number of rows that repeat a rank.

    Rows of one rank that name the same ranker are one row, clicked if one of them is. Where they name several, nobody
    knows which one was shown, so none of them stays.
    """
    rank, key = lay.ints(values.field(sch.POSITION)), lay.ints(values.field(sch.HASH))
    click = values.field(sch.RELEVANCE).to_numpy(zero_copy_only=False).astype(bool)
    own = [lay.ints(values.field(name)) for name in RANKS] if draft.rankers else [team]
    by = np.lexsort((*own, rank, key, user))
    starts_list = mx.pair_starts(user[by], key[by])
    starts = starts_list.copy()
    starts[1:] |= np.diff(rank[by]) != 0
    first, group = np.flatnonzero(starts), np.cumsum(starts) - 1
    size = np.bincount(group, minlength=len(first))
    differs = np.zeros(len(first), bool)
    for each in own:
        differs |= np.bincount(group, each[by] != each[by][first][group], len(first)) > 0
    clicked = np.bincount(group, click[by], len(first)) > 0
    repeated = int(np.where(differs, size, size - 1).sum())
    of_list = (np.cumsum(starts_list) - 1)[first]
    kept = ~differs
    chosen = by[first][kept]
    ranks = tuple(each[chosen] for each in own) if draft.rankers else ()
    slots = Slots(of_list[kept], rank[chosen], clicked[kept], team[chosen], ranks)
    return slots, user[by][starts_list], repeated


def _team_sides(slots: Slots) -> tuple[Sides, mx.Bools]:
    """A click counts for the ranker that drafted the item; also returns the rows that no ranker drafted.

    Source: Radlinski, Kurup and Joachims, How Does Clickthrough Data Reflect Retrieval Quality? (CIKM 2008); Schuth,
    Sietsma, Whiteson, Lefortier and de Rijke, Multileaved Comparisons for Fast Online Evaluation (CIKM 2014).
    """
    drafted = slots.team >= 0
    of, team, click = slots.list[drafted], slots.team[drafted], slots.click[drafted]
    width = int(team.max(initial=0)) + 1
    keys, side = np.unique(of * width + team, return_inverse=True)
    side = side.astype(np.int64)
    counts = group_sums([np.ones(len(side)), click], side, len(keys))
    ranks = np.zeros((len(keys), CHECKED_RANKS), bool)
    top = slots.rank[drafted] <= CHECKED_RANKS
    ranks[side[top], slots.rank[drafted][top] - 1] = True
    return Sides(keys // width, keys % width, counts[:, 1], counts[:, 0], ranks), ~drafted


def _balanced_sides(slots: Slots) -> tuple[Sides, mx.Bools]:
    """A click counts for each ranker that has the item in its top k; also returns the rows that neither ranker has.

    k is the better of the two ranks of the lowest clicked item. The one slot of a list is the first one, of the ranker
    that has its item first, if only one of them has.

    Source: Radlinski, Kurup and Joachims (CIKM 2008), section 4.1; Joachims, Optimizing Search Engines using
    Clickthrough Data (KDD 2002).
    """
    rank_a, rank_b = slots.ranks
    known = (rank_a > 0) | (rank_b > 0)
    lists, of = np.unique(slots.list[known], return_inverse=True)
    of, click, own = of.astype(np.int64), slots.click[known], [rank_a[known], rank_b[known]]
    beyond = np.iinfo(np.int64).max
    better = np.minimum(*(np.where(each > 0, each, beyond) for each in own))
    k = np.zeros(len(lists), np.int64)
    # Rows are by list and rank, so the lowest clicked row is the one that stays.
    k[of[click]] = better[click]
    first = np.diff(of, prepend=-1) != 0
    clicks, slot = [], []
    for each, other in (own, own[::-1]):
        clicks.append(np.bincount(of, click & (each > 0) & (each <= k[of]), len(lists)).astype(np.int64))
        slot.append(np.bincount(of, first & (each == 1) & (other != 1), len(lists)).astype(np.int64))
    of_clicks, of_slots = (np.stack(each, axis=1).ravel() for each in (clicks, slot))
    ranks = np.zeros((2 * len(lists), CHECKED_RANKS), bool)
    ranks[:, 0] = of_slots > 0
    return Sides(np.repeat(lists, 2), np.tile(np.arange(2), len(lists)), of_clicks, of_slots, ranks), ~known


def _pair_sums(sides: Sides, one: int, of_user: mx.Ints, n_rankers: int) -> Iterator[tuple[int, mx.Ints]]:
    """Yield the sums of the pairs of a ranker with those after it, over the lists in which both have a slot."""
    own = np.flatnonzero(sides.team == one)
    side_of = np.full(len(of_user), -1)
    side_of[sides.list[own]] = own
    b = np.flatnonzero((sides.team > one) & (side_of[sides.list] >= 0))
    if not len(b):
        return
    a, other = side_of[sides.list[b]], sides.team[b]
    clicks_a, clicks_b = sides.clicks[a], sides.clicks[b]
    clicked, won_a, won_b = clicks_a + clicks_b > 0, clicks_a > clicks_b, clicks_b > clicks_a
    counts = [np.ones(len(b)), clicked, won_a, won_b, clicks_a, clicks_b, sides.slots[a], sides.slots[b]]
    of_lists = group_sums([*counts, *sides.ranks[a].T, *sides.ranks[b].T], other, n_rankers)
    users, user = np.unique(of_user[sides.list[b]] * n_rankers + other, return_inverse=True)
    n, n_a, n_b = group_sums([clicked, won_a, won_b], user.astype(np.int64), len(users)).T
    with_click = n > 0
    # (B won + ties / 2) / lists with a click - 1 / 2
    value = (n_b - n_a)[with_click] / (2.0 * n[with_click])
    cells = OF_USERS.cells((np.ones(len(value)), value < 0, value > 0), v=value)
    of_users = group_sums(cells, (users % n_rankers)[with_click], n_rankers)
    for ranker in np.unique(other):
        yield int(ranker), np.concatenate([of_lists[ranker], of_users[ranker]])
