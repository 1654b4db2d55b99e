"""Per-user values -> exact sums for every experiment and every pair of experiments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rankmetrics_spark import config as cfg, schemas as sch, statistics as st
from rankmetrics_spark.comparison.families import most_replicates, pairs_of, resamplings
from rankmetrics_spark.comparison.measures import FOLDS, MOST_IN_SEGMENTS, STRATUM, Groups, Key, Name, Totals
from rankmetrics_spark.comparison.units import Units, UserRows, of_both, refuse_repeats, summable

#: Values of users in pairs that are resampled in one go.
MOST_VALUES = 2**24


def add_rows(totals: Totals, rows: UserRows, request: cfg.Comparison) -> None:
    """Add what these users contribute to the sums of every experiment and pair.

    Args:
        totals: Changed in place.
        rows: Whole users.
        request: Which pairs, and how often users are resampled.

    Raises:
        InputError: A user has two rows of one experiment.
    """
    for labels, code in rows.segments[:1]:
        key = np.sort((rows.user * len(rows.experiments) + rows.experiment) * len(labels) + code)
        refuse_repeats(key[1:] == key[:-1])
    if request.shared_users == "drop":
        # Users of more than one of the compared experiments are counted only.
        shared, counts = shared_users(rows, request)
        if rows.segments[0][0] == [sch.EVERYONE]:
            for name, n in zip(rows.experiments, counts.tolist(), strict=True):
                for metric in rows.values if n else ():
                    totals.add(Key("shared", "", name, sch.EVERYONE, metric), np.array([n], np.int64))
        rows = rows.of_users(~shared)
        if not len(rows.user):
            return
    if rows.lists:
        lists = rows.lists
        rows = rows.with_each(
            ("values", "machine"), lambda name, v: np.where(np.abs(v * lists[name]) > st.LARGEST_SUMMAND, np.inf, v)
        )
    if rows.triggered is not None:
        _add_untriggered(totals, rows.take(np.flatnonzero(~rows.triggered)))
        rows = rows.take(np.flatnonzero(rows.triggered))
        if not len(rows.user):
            return
    for labels, code in rows.segments:
        _add_arms(totals, rows, labels, code)
    pairs = pairs_of(request, rows.experiments)
    # Most users of an independent test are in no pair.
    paired = rows.of_users(np.bincount(rows.user, minlength=len(rows.keys)) > 1)
    if len(paired.user) and len(pairs[0]):
        paired = paired.with_each(("values", "before_own"), lambda _, values: summable(values))
        for labels, code in paired.segments:
            for some in RowPairs.of(paired, labels, code, pairs):
                _add_pairs(totals, some, paired)
    if most_replicates(request):
        _add_replicates(totals, rows, request, pairs)


def shared_users(rows: UserRows, request: cfg.Comparison) -> tuple[st.Bools, st.Ints]:
    """(u,) whether a user is in several of the compared experiments, and (e,) how many such users each one has."""
    chosen = {request.baseline, *request.candidates} if request.candidates else {*rows.experiments}
    compared = np.array([name in chosen for name in rows.experiments])
    width = len(rows.experiments)
    memberships = np.unique((rows.user * width + rows.experiment)[compared[rows.experiment]])
    user, experiment = memberships // width, memberships % width
    shared = np.bincount(user, minlength=len(rows.keys)) > 1
    return shared, np.bincount(experiment[shared[user]], minlength=width)


def _add_untriggered(totals: Totals, rows: UserRows) -> None:
    """Add the sums of users who are not triggered, which are compared apart, as a check."""
    others = Totals(keeps_values=totals.keeps_values)
    for labels, code in rows.segments:
        _add_arms(others, rows, labels, code)
    for key, sums in others.sums.items():
        if key.kind in ("arm", "arm_values"):
            totals.add(key._replace(kind=key.kind.replace("arm", "untriggered")), sums)


def _add_arms(totals: Totals, rows: UserRows, labels: list[str], code: st.Ints) -> None:
    """Add the sums of each experiment in each segment; ``code`` is the (n,) index of each row's label."""
    number = code * len(rows.experiments) + rows.experiment
    order = np.argsort(number, kind="stable")
    rows, code, number = rows.take(order), code[order], number[order]
    cells = Groups.of_cells(rows.experiments, labels, number)
    folds, of_parts = FOLDS if "0" in rows.before else 1, None
    if folds > 1 or rows.stratum is not None:
        strata, stratum = ([""], np.zeros_like(code)) if rows.stratum is None else (rows.strata, rows.stratum)
        names = [f"{name}{STRATUM}{fold}" for name in strata for fold in range(folds)]
        of_parts = _split(rows, labels, code, stratum * folds + rows.fold % folds, names)
    for metric, values in rows.values.items():
        has_value, some = ~np.isnan(values), summable(values)
        v = np.nan_to_num(some)
        beyond = has_value & (np.abs(values) > st.LARGEST_SUMMAND)
        ends = (has_value & (values != end) for end in (0, 1))
        counts = (np.ones(len(v)), has_value, has_value & rows.relevant, beyond, *ends)
        cells.add(totals, "arm", metric, counts, v=v)
        some_hit = v != 0
        if len(labels) > 1:
            n_hits = np.bincount(rows.experiment[some_hit], minlength=len(rows.experiments))
            some_hit &= (n_hits <= MOST_IN_SEGMENTS)[rows.experiment]
        cells.keep(totals, "arm_values", metric, some_hit, v)
        if metric in rows.machine:
            # Who was judged is drawn, so nobody is left out.
            f, n, chance, shown = rows.rated(metric)
            others, judged = np.isnan(values) & ~np.isnan(f), ~np.isnan(some) & ~np.isnan(f)
            in_part = np.zeros(len(v), bool) if rows.in_part is None else rows.in_part
            counts = others, in_part, np.isnan(values) & np.isnan(f)
            y, n_others, s = (np.where(others, each, 0.0) for each in (f * n, n, shown))
            cells.add(totals, "machine", metric, counts, y=y, n=n_others, s=s)
            cells.keep(totals, "arm_judged", metric, judged, rows.keys[rows.user], some, f, n, shown, chance)
        elif (without := rows.left_out(metric, values)).any():
            cells.add(totals, "left_out", metric, [without > 0], t=without)
        known = ~np.isnan(some)
        n = np.where(known, rows.lists.get(metric, np.ones(len(v))), 0.0)
        if metric in rows.lists:
            cells.add(totals, "arm_lists", metric, [known], y=v * n, n=n)
            if labels == [sch.EVERYONE]:
                cells.keep(totals, "arm_units", metric, known, v * n, n)
        if of_parts is not None:
            of_user = [v * n, n]
            for each in rows.covariates(metric):
                both = known & ~np.isnan(each)
                of_user += [np.where(both, each, 0.0), both.astype(float)]
            of_parts.add_products(totals, metric, known, of_user)
        if metric in rows.before and folds == 1:
            before = summable(rows.before[metric])
            known = ~np.isnan(some) & ~np.isnan(before)
            cells.add(totals, "before", metric, [known], b=np.where(known, before, 0.0), v=np.where(known, v, 0.0))


def _split(rows: UserRows, labels: list[str], code: st.Ints, part: st.Ints, parts: Sequence[str]) -> Groups:
    """The rows by segment, part (a stratum, or a fold of it) and experiment."""
    n = len(parts)
    present, place = np.unique(code * n + part, return_inverse=True)
    names = [f"{labels[i // n]}{STRATUM}{parts[i % n]}" for i in present.tolist()]
    return Groups.of_cells(rows.experiments, names, place.reshape(-1) * len(rows.experiments) + rows.experiment)


@dataclass(frozen=True)
class RowPairs:
    """Rows of one user in two experiments of a pair, ordered by segment and pair.

    They are as many as users have such rows: a table of all users and all experiments would grow with both.

    Attributes:
        left: (m,) row of the baseline.
        right: (m,) row of the candidate.
        differ: (m,) whether the two rows count in their pair, whatever their values; None where all do.
        groups: The segments and pairs.
    """

    left: st.Ints
    right: st.Ints
    differ: st.Bools | None
    groups: Groups

    @classmethod
    def of(cls, rows: UserRows, labels: list[str], code: st.Ints, pairs: tuple[st.Ints, st.Ints]) -> Iterator[RowPairs]:
        """As many at once as fit into the caches; ``code`` is the (n,) index of each row's label."""
        unit = rows.user
        if len(labels) > 1:
            unit = np.unique(code * len(rows.keys) + rows.user, return_inverse=True)[1].reshape(-1)
        width = len(rows.experiments)
        for left, right in _row_pairs(rows, unit, pairs):
            group = (code[left] * width + rows.experiment[left]) * width + rows.experiment[right]
            order = np.argsort(group, kind="stable")
            for at in range(0, len(order), _AT_ONCE):
                some = order[at : at + _AT_ONCE]
                here = group[some]
                starts = np.flatnonzero(np.concatenate([[True], here[1:] != here[:-1]]))
                names = [
                    (labels[i // width**2], rows.experiments[i // width % width], rows.experiments[i % width])
                    for i in here[starts].tolist()
                ]
                i, j, hashes = left[some], right[some], rows.lists_hash
                place = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(here)))
                differ = None if hashes is None else hashes[i] != hashes[j]
                yield cls(i, j, differ, Groups(names, place, starts))

    def of_both(self, values: st.Floats) -> tuple[st.Floats, st.Floats, st.Bools]:
        """Values of baseline and candidate, 0 where two rows do not count; and which ones count.

        They count if both have a value and, where only changed lists are compared, different lists.
        """
        return of_both(values[self.left], values[self.right], self.differ)


#: Pairs of rows that are added up in one go.
_AT_ONCE = 2**18


def _row_pairs(rows: UserRows, unit: st.Ints, pairs: tuple[st.Ints, st.Ints]) -> Iterator[tuple[st.Ints, st.Ints]]:
    """Two rows of a unit in the experiments of a pair, for all of them: of the baseline, and of the candidate."""
    if len(np.unique(pairs[0])) == 1:
        row_of_unit = np.full(int(unit.max()) + 1, -1)
        is_baseline = rows.experiment == pairs[0][0]
        row_of_unit[unit[is_baseline]] = np.flatnonzero(is_baseline)
        is_candidate = np.zeros(len(rows.experiments), bool)
        is_candidate[pairs[1]] = True
        right = np.flatnonzero(is_candidate[rows.experiment] & (row_of_unit[unit] >= 0))
        if len(right):
            yield row_of_unit[unit[right]], right
        return
    # Every two rows of a unit: first those next to each other in the order of the pairs, then the ones after these.
    # An experiment is the baseline of all that come after it, so the first one is the baseline of most pairs.
    n_after = np.bincount(pairs[0], minlength=len(rows.experiments))
    order = np.lexsort((-n_after[rows.experiment], unit))
    unit, at, step = unit[order], np.arange(len(order)), 0
    while len(at):
        step += 1
        at = at[at + step < len(order)]
        at = at[unit[at] == unit[at + step]]
        if len(at):
            yield order[at], order[at + step]


def _add_pairs(totals: Totals, pairs: RowPairs, rows: UserRows) -> None:
    """Add the sums of the users of both experiments of each pair; the values can be summed."""
    groups = pairs.groups
    for metric, values in rows.values.items():
        x, y, both = pairs.of_both(values)
        d = y - x
        groups.add(totals, "pair", metric, (both, d > 0, d < 0), x=x, y=y, d=d)
        groups.keep(totals, "pair_values", metric, d != 0, d)
        if metric in rows.machine:
            _add_machine_pairs(totals, pairs, metric, values, rows)
        elif (without := rows.left_out(metric, values)).any():
            more = without[pairs.right] - without[pairs.left]
            more = more if pairs.differ is None else np.where(pairs.differ, more, 0.0)
            groups.add(totals, "left_out_pair", metric, (more != 0,), t=more)
        if pairs.differ is not None:
            everyone = ~np.isnan(values[pairs.left] + values[pairs.right])
            groups.add(totals, "all_paired", metric, (everyone,))
        if metric in rows.lists:
            m, n = (np.where(both, rows.lists[metric][side], 0.0) for side in (pairs.left, pairs.right))
            groups.add(totals, "pair_lists", metric, (both,), x=x * m, m=m, y=y * n, n=n)
            if groups.names[0][0] == sch.EVERYONE:
                groups.keep(totals, "pair_units", metric, both, x * m, m, y * n, n)
        if covariates := rows.covariates(metric, own=True):
            m, n = (rows.lists[metric][side] if rows.lists else np.ones(len(x)) for side in (pairs.left, pairs.right))
            of_lists = [np.where(both, each, 0.0) for each in (x * m, m, y * n, n)]
            apart = [np.where(both, np.nan_to_num(each[pairs.right] - each[pairs.left]), 0.0) for each in covariates]
            parts = [f"{STRATUM}{STRATUM}{fold}" for fold in range(FOLDS)]
            names = [(label + part, a, b) for label, a, b in groups.names for part in parts]
            of_folds = Groups(names, groups.place * FOLDS + rows.fold[pairs.left])
            of_folds.add_products(totals, metric, both, [*of_lists, *apart])
        elif metric in rows.before_own:
            before, after, known = pairs.of_both(rows.before_own[metric])
            known &= both
            e, d, b = (np.where(known, each, 0.0) for each in (after - before, d, x))
            groups.add(totals, "before_pair", metric, (known,), x=e, d=d, b=b)


def _add_machine_pairs(totals: Totals, pairs: RowPairs, metric: str, values: st.Floats, rows: UserRows) -> None:
    """Add sums of the units that nobody judged, and keep the values of the others."""
    groups, (machine, lists, chance, _) = pairs.groups, rows.rated(metric)
    (x, y, judged), (f, g, known) = (pairs.of_both(each) for each in (values, machine))
    others, judged = known & ~judged, known & judged
    m, n = lists[pairs.left], lists[pairs.right]
    sums = (np.where(others, each, 0.0) for each in (f * m, m, g * n, n))
    groups.add(totals, "machine_pair", metric, (others,), **dict(zip("xmyn", sums, strict=True)))
    ids = rows.keys[rows.user[pairs.left]]
    groups.keep(totals, "pair_judged", metric, judged, ids, x, f, m, y, g, n, chance[pairs.left])


def _add_replicates(totals: Totals, rows: UserRows, request: cfg.Comparison, pairs: tuple[st.Ints, st.Ints]) -> None:
    """Add the weighted sums of all metrics in every replicate: one product of matrices for each kind of weights."""
    weights: dict[str, st.Array] = {}
    # Drawn once for all metrics and segments.
    for kind, of in resamplings(request).items():
        if kind == "bootstrap":
            weights[kind] = st.poisson_weights(rows.keys, of.seed, of.replicates)
        else:
            # The last replicate has + for every user.
            plus = np.ones((len(rows.keys), 1), np.int8)
            weights[kind] = np.concatenate([st.random_signs(rows.keys, of.seed, of.replicates), plus], axis=1)
    arms: list[tuple[Name, Name]] = [("", name) for name in rows.experiments]
    left, right = pairs
    for labels, code in rows.segments:
        units = Units.of(rows, labels, code)
        tables = {metric: summable(units.dense(each)) for metric, each in rows.values.items()}
        # As many pairs at once as fit into memory.
        step = max(1, MOST_VALUES // max(1, len(units.user) * len(tables)))
        for at in range(0, max(1, len(left)), step):
            some = rows.experiments, left[at : at + step], right[at : at + step]
            columns = {metric: _summands(units, table, [] if at else arms, some) for metric, table in tables.items()}
            for kind, drawn in weights.items():
                summands = [(metric, each) for metric, kinds in columns.items() for each in kinds[kind] if each[1]]
                if summands:
                    _add_weighted(totals, units, drawn, summands)


def _summands(
    units: Units, table: st.Floats, arms: list[tuple[Name, Name]], pairs: tuple[list[Name], st.Ints, st.Ints]
) -> dict[str, list[_Columns]]:
    """The columns that the weights of each kind multiply."""
    experiments, left, right = pairs
    names = [(experiments[i], experiments[j]) for i, j in zip(left, right, strict=True)]
    has_value = ~np.isnan(table)
    v = np.where(has_value, table, 0.0)
    x, y, both = units.of_both(table, left, right)
    one = has_value[:, left] ^ has_value[:, right]
    either = np.where(one, v[:, left] + v[:, right], 0.0)
    return {
        # Where all users are in both, x and y are columns of arms too, and equal columns are summed once.
        "bootstrap": [("bootstrap_arm", arms, (v, has_value)), ("bootstrap_pair", names, (x, y, both))],
        "randomization": [("flips", names, (y - x, both))],
        "aa_check": [("aa_paired", names, (y - x, both)), ("aa_independent", names, (either, either * either, one))],
    }


#: Kind of sums, baselines and candidates, and their columns; the last column is 1 for users who count.
_Columns = tuple[str, list[tuple[Name, Name]], Sequence[st.Array]]


def _add_weighted(totals: Totals, units: Units, weights: st.Array, summands: Sequence[tuple[str, _Columns]]) -> None:
    table = np.concatenate([column.astype(float) for _, each in summands for column in each[2]], axis=1)
    for label, part in units.slices():
        sums = st.weighted_sums(units.of_users(weights, part), table[part])
        start = 0
        for metric, (kind, names, columns) in summands:
            shape = (len(columns), len(names))
            # (limbs, replicates, columns and names) -> (limbs, columns, replicates) of each name
            own = sums[..., start : start + shape[0] * shape[1]].reshape(*sums.shape[:2], *shape).swapaxes(1, 2)
            start += shape[0] * shape[1]
            for i, (baseline, candidate) in enumerate(names):
                if columns[-1][part, i].any():
                    totals.add_replicates(Key(kind, baseline, candidate, label, metric), own[..., i])
