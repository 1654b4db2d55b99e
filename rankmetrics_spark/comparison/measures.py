"""What is summed over users, by name: the kinds of sums as words, and the sums by key.

All sums are whole numbers, so they add up to the same bits in any order, in any batch and on any number of machines.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np

from rankmetrics_spark import config as cfg, doors, errors as err, schemas as sch, statistics as st, words

said = words.sentences(doors.settings_of(__name__, "sentences"))
#: Table -> its columns -> their types.
TABLES = {table: sch.columns(text) for table, text in doors.settings_of(__name__, "columns").items()}
#: Name of an experiment; None for those without one.
Name = str | None

#: Kind of sums -> what is summed; there are none where nobody is counted.
KINDS = {kind: st.Measure(of["words"]) for kind, of in doors.data_of(__name__, "kinds").items()}
#: In how many folds users are adjusted by the coefficients of the others.
FOLDS = 5
#: Before the number of values whose products are summed by fold, with a letter for each: values times lists, and lists,
#: of an experiment with each covariate and whether it is known, or of both of a pair with the differences of these.
PRODUCTS = "products_"
for _n in range(2, 2 * cfg.MOST_COVARIATES + 5):
    _words = [*map("".join, (*ascii_lowercase[:_n], *combinations_with_replacement(ascii_lowercase[:_n], 2)))]
    KINDS[f"{PRODUCTS}{_n}"] = st.Measure(f"n | {' '.join(_words)}")
#: People judge at most so many users of an experiment where a machine judges all.
MOST_JUDGED = 2**16
#: Kind of what keeps values other than 0, as the bits of doubles, for permutations -> how many an experiment, or a pair
#: (whose differences these are), has at most. Of more, there are none, or not all: then nobody reads them; of those in
#: ``HEAVIEST``, there are as many of each column, the largest. Of ``judged`` units, it keeps a hash of the unit, the
#: value under labels of people, of a machine and the lists of each side, items of an experiment's lists, and the
#: probability of being drawn; of ``units`` with several lists, the sum of the values and their number, on each side.
VALUES = {"arm_values": st.ONE_BY_ONE, "pair_values": 19, "arm_judged": MOST_JUDGED, "pair_judged": MOST_JUDGED}
VALUES |= {"untriggered_values": VALUES["arm_values"], "arm_units": st.ONE_BY_ONE, "pair_units": 1024}
#: Of these, a permutation takes the others, which are light, by their sums.
HEAVIEST = ("arm_values", "untriggered_values", "arm_units")
#: Kind of what keeps several values of each unit -> how many.
WIDTHS = {"arm_judged": 6, "pair_judged": 8, "arm_units": 2, "pair_units": 4}
#: An experiment with more values other than 0 keeps none in its segments.
MOST_IN_SEGMENTS = 2**14
#: Parts of a value that ``day_values`` counts: whole numbers add up to the same bits on any engine.
VALUE_UNIT = 2**20
#: Parts in which a term of ties is summed: it grows with the cube of the users.
TIES_UNIT = 2**31
#: Whole numbers that make up a sum of a replicate.
LIMBS = len(st.RESAMPLING_LIMBS)
#: Kind of replicates -> how many weighted sums it has. Keys hold them in pieces, whose number follows the kind.
SHAPES = {"bootstrap_arm": 2, "bootstrap_pair": 3, "flips": 2, "aa_paired": 2, "aa_independent": 3}
#: Numbers in a piece: an engine puts thousands of sums into one batch, and a key may have a million numbers.
PIECE = 2**11
#: Whole numbers of replicates that one process holds at most, of 8 bytes each.
MOST_CELLS = 100_000_000
#: Kind of a value of a column that all rows share: the column is the metric of the key, the value the candidate.
ALIKE = "alike"
#: What stands before the stratum in the segment of a key, and the largest number of strata.
STRATUM, MOST_STRATA = "\x1f", 2**13
#: Where a key of a pair holds the names of its experiments.
BASELINE, CANDIDATE = 1, 2
SIDES = (BASELINE, CANDIDATE)


class Key(NamedTuple):
    """What a sum belongs to; the baseline of an experiment's own sums is the empty text."""

    kind: str
    baseline: Name
    candidate: Name
    segment: str
    metric: str

    def arm(self, place: int, kind: str = "arm") -> "Key":
        """Key of sums of the baseline or of the candidate of a pair."""
        return Key(kind, "", self[place], self.segment, self.metric)


KEY = Key._fields


@dataclass
class Totals:
    """Sums by key; those of several processes can be added.

    Attributes:
        sums: Key -> (c,) whole numbers, as ``KINDS`` has them, or a piece of replicates.
        n_cells: Numbers of replicates.
        keeps_values: Whether a few values are kept, too: see ``VALUES``.
    """

    sums: dict[Key, st.Ints] = field(default_factory=dict)
    n_cells: int = 0
    keeps_values: bool = True

    def add(self, key: Key, sums: st.Ints) -> None:
        """Add sums of a key."""
        old = self.sums.get(key)
        if key.kind in VALUES:
            # In order, so that they are the same in any one; as soon as there are too many, nobody reads them.
            rows, most = (sums if old is None else np.concatenate([old, sums])), VALUES[key.kind]
            rows = rows.reshape(-1, WIDTHS.get(key.kind, 1))
            if key.kind in HEAVIEST:
                rows = rows[st.heaviest(rows.view(np.float64), most)]
            rows = rows[np.lexsort(rows.T[::-1])]
            self.sums[key] = (rows if key.kind in HEAVIEST else rows[: most + 1]).ravel()
        else:
            self.sums[key] = sums if old is None else old + sums
        if old is None and key.kind.partition(".")[0] in SHAPES:
            self.n_cells += sums.size
            if self.n_cells > MOST_CELLS:
                raise err.ConfigError(said("many_replicates", most_cells=MOST_CELLS))

    def least(self, key: Key) -> float:
        """The smallest size of the values of a key that has as many as it keeps; 0 with fewer."""
        some = self.sums.get(key, np.zeros(0, np.int64))
        return float(np.abs(some.view(np.float64)).min()) if len(some) >= VALUES[key.kind] else 0.0

    def kept(self, key: Key, n: int) -> st.Floats | None:
        """(m, w) values of the n units of a key, in any order; None where neither all nor the heaviest are kept."""
        some = self.sums.get(key, np.zeros(0, np.int64)).view(np.float64).reshape(-1, WIDTHS.get(key.kind, 1))
        enough = len(some) >= min(n, VALUES[key.kind]) if key.kind in HEAVIEST else len(some) == n <= VALUES[key.kind]
        return some if enough else None

    def judged(self, key: Key) -> tuple[st.Ints, st.Floats]:
        """(n,) hashes and (w, n) numbers of the judged units of a key; refuse more than are kept, and no probability.

        Raises:
            ConfigError: They are too many.
            InputError: Some have no probability of being drawn.
        """
        rows = self.sums.get(key, np.zeros(0, np.int64)).reshape(-1, WIDTHS[key.kind])
        if len(rows) > MOST_JUDGED:
            raise err.ConfigError(said("many_judged", most_judged=MOST_JUDGED, key=key))
        numbers = rows[:, 1:].view(np.float64).T
        if wrong := np.count_nonzero(~((numbers[-1] > 0) & (numbers[-1] <= 1))):
            raise err.InputError(said("no_chance", wrong=wrong, n=len(rows), key=key))
        return rows[:, 0], numbers

    def of(self, kind: str, keys: Sequence[Key], place: int | None = None) -> st.Sums:
        """Sums of the pair of each key, or of the experiment at a place of it; 0 for a key that has none."""
        nothing = np.zeros(len(KINDS[kind].columns), np.int64)
        own = [key._replace(kind=kind) if place is None else key.arm(place, kind) for key in keys]
        sums = np.array([self.sums.get(key, nothing) for key in own], np.int64)
        return st.Sums(KINDS[kind], sums.reshape(len(keys), len(nothing)))

    def count(self, key: Key) -> int:
        """The first sum of a key: how many users it is about."""
        sums = self.sums.get(key)
        return 0 if sums is None else int(sums[0])

    def sides(self, kind: str, keys: Sequence[Key]) -> tuple[st.Sums, st.Sums]:
        """Sums of the baseline and of the candidate of each key."""
        return self.of(kind, keys, BASELINE), self.of(kind, keys, CANDIDATE)

    def by_test(self) -> "Iterator[tuple[str, Totals]]":
        """Each test with the sums of its experiments, in the order of their names."""
        parts: dict[str, Totals] = {}
        alike = {key: sums for key, sums in self.sums.items() if key.kind == ALIKE}
        for key, sums in self.sums.items():
            test, mark, _ = str(key.candidate).partition(sch.NAME_OF_ARM)
            if mark:
                parts.setdefault(test, Totals({**alike})).sums[key] = sums
        yield from sorted(parts.items())

    def add_replicates(self, key: Key, sums: st.Ints) -> None:
        """Add (3, q, r) whole numbers: limbs of q weighted sums in r replicates.

        The last replicate of signs has the sign + for every user: the sum of the data themselves.
        """
        for i, piece in enumerate(np.split(flat := sums.ravel(), range(PIECE, flat.size, PIECE))):
            self.add(key._replace(kind=f"{key.kind}.{i}"), piece)

    def replicates(self, key: Key) -> st.Ints | None:
        """What is added of a key; None without any."""
        pieces: list[st.Ints] = []
        while (piece := self.sums.get(key._replace(kind=f"{key.kind}.{len(pieces)}"))) is not None:
            pieces.append(piece)
        return np.concatenate(pieces).reshape(LIMBS, SHAPES[key.kind], -1) if pieces else None


#: Segment, baseline and candidate of some sums; the baseline of an experiment's own sums is the empty text.
Group = tuple[str, Name, Name]


@dataclass(frozen=True)
class Groups:
    """Rows that are added up by group, such as the users of an experiment in a segment.

    Attributes:
        names: (g,) the groups.
        place: (n,) index of each row's group.
        starts: (g,) first row of each group, where rows come group by group.
    """

    names: Sequence[Group]
    place: st.Ints
    starts: st.Ints | None = None

    @classmethod
    def of_cells(cls, experiments: Sequence[Name], labels: Sequence[str], number: st.Ints) -> "Groups":
        """Of each experiment in each segment that has rows; ``number`` is segment * experiments + experiment.

        Rows that come in its order are added up in a third of the time.
        """
        group, first, place = np.unique(number, return_index=True, return_inverse=True)
        width, is_ordered = len(experiments), (number[1:] >= number[:-1]).all()
        names = [(labels[i // width], "", experiments[i % width]) for i in group.tolist()]
        return cls(names, place.reshape(-1), first if is_ordered else None)

    def add(self, totals: Totals, kind: str, metric: str, counts: Sequence[Any], **values: st.Floats) -> None:
        """Add counts, and the sums of values and of their products, of each group."""
        self.add_up(totals, kind, metric, KINDS[kind].cells(counts, **values))

    def add_products(self, totals: Totals, metric: str, counted: st.Bools, values: Sequence[st.Floats]) -> None:
        """Add the sums of values and of all of their products."""
        letters = dict(zip(ascii_lowercase, values, strict=False))
        self.add(totals, f"{PRODUCTS}{len(values)}", metric, [counted], **letters)

    def add_up(self, totals: Totals, kind: str, metric: str, columns: Iterable[st.Array]) -> None:
        """Add the (n,) numbers of each column, which are those of a kind of sums; groups without any are left out."""
        sums = np.stack([self._sums(each) for each in columns], axis=-1)
        for i in np.flatnonzero(sums.any(axis=1)).tolist():
            totals.add(self.key(kind, metric, i), sums[i])

    def keep(self, totals: Totals, kind: str, metric: str, kept: st.Bools, *columns: st.Array) -> None:
        """Keep some rows of these columns, as bits; of groups that have too many, none if nobody reads a part."""
        if kind in HEAVIEST and len(columns) == 1:
            # Most rows of a large experiment are lighter than all that it has kept so far.
            least = [totals.least(self.key(kind, metric, i)) for i in range(len(self.names))]
            kept = kept & (np.abs(columns[0]) >= np.array(least)[self.place])
        rows = np.flatnonzero(kept & totals.keeps_values)
        n = np.bincount(self.place[rows], minlength=len(self.names))
        few = (n > 0) & ((n <= VALUES[kind]) | (VALUES[kind] == MOST_JUDGED) | (kind in HEAVIEST))
        rows = rows[few[self.place[rows]]]
        rows = rows if self.starts is not None else rows[np.argsort(self.place[rows], kind="stable")]
        cells = np.stack([each[rows].view(np.int64) for each in columns], axis=-1)
        for i, part in zip(np.flatnonzero(few).tolist(), np.split(cells, np.cumsum(n[few]))[:-1], strict=True):
            totals.add(self.key(kind, metric, i), part.ravel())

    def _sums(self, column: st.Array) -> st.Ints:
        size = len(self.names)
        if not (any(column.strides) and column.any()):
            return np.zeros(size, np.int64)
        if self.starts is None:
            return st.group_sums([column], self.place, size)[:, 0]
        return np.asarray(np.add.reduceat(column.astype(np.float64, copy=False), self.starts).astype(np.int64))

    def key(self, kind: str, metric: str, i: int) -> Key:
        """Key of the sums of a group."""
        segment, baseline, candidate = self.names[i]
        return Key(kind, baseline, candidate, segment, metric)


def refuse_unknown(names: Sequence[str | None], known: Sequence[Name]) -> None:
    """Refuse the name of an experiment that has no users."""
    allowed = [str(name) for name in known]
    for name in names:
        if name is not None and name not in allowed:
            raise err.ConfigError(err.unknown("experiment", name, allowed))
