"""The scores of ranked lists: with the judged items, their intents, and under each convention.

This runs inside the Python workers, without a loop over lists. The judgements give shown items their grade and their
intents, and add the judged items that were not shown.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankmetrics_spark import errors as err, metrics as mx, schemas as sch
from rankmetrics_spark.layouts import lists as li


def with_judgements(lists: li.RankedLists, columns: li.Arrays, convention: mx.Convention) -> mx.Batch:
    """The batch with its judged items; without judgements, those are the shown items with a grade.

    With ``duplicates: count`` a judged item that was shown c times is c items, in the list and among the judged ones,
    so that no metric can exceed 1.
    """
    batch = lists.batch
    if sch.POOL_GRADE not in columns:
        is_judged = ~np.isnan(batch.grade)
        return replace(batch, pool_list=batch.list[is_judged], pool_grade=batch.grade[is_judged])
    pool_list, values = li.flat(columns[sch.POOL_GRADE])
    grades = li.numbers(values, np.float64)
    if convention.duplicates == "count" and sch.POOL_HASH in columns and lists.hash is not None and len(grades):
        judged_hash = li.ints(li.flat(columns[sch.POOL_HASH])[1])
        judged_codes, shown_codes = mx.pair_codes(pool_list, judged_hash, batch.list, lists.hash)
        times = np.ones(len(grades), np.int64)
        if len(shown_codes):
            keys, counts = np.unique(shown_codes, return_counts=True)
            at = np.minimum(np.searchsorted(keys, judged_codes), len(keys) - 1)
            times = np.where(keys[at] == judged_codes, counts[at], 1)
        pool_list, grades = np.repeat(pool_list, times), np.repeat(grades, times)
    return replace(batch, pool_list=pool_list, pool_grade=grades)


def judged_grades(entries: li.Entries, columns: li.Arrays) -> mx.Floats:
    """(e,) grade of each entry from the judgements (``_pool_hash``, ``_pool_grade`` per list); NaN = not judged."""
    # Lists of one user have the same judgements, which are searched once: the runs of a track share their topics.
    users = pa.array(range(len(columns[sch.POOL_HASH])))
    if sch.USER in columns:
        users = columns[sch.USER].dictionary_encode(null_encoding="encode").indices
    first = pa.array(np.unique(li.ints(users), return_index=True)[1])
    index, hashes = li.flat(columns[sch.POOL_HASH].take(first))
    grades, judged_hash = li.numbers(li.flat(columns[sch.POOL_GRADE].take(first))[1], np.float64), li.ints(hashes)
    if not len(grades):
        return np.full(len(entries.hash), np.nan)
    user = li.ints(users)[entries.list]
    judged_codes, shown_codes = mx.mixed_codes(index, judged_hash), mx.mixed_codes(user, entries.hash)
    if len(pc.unique(pa.array(judged_codes))) < len(judged_codes):
        judged_codes, shown_codes = mx.pair_codes(index, judged_hash, user, entries.hash)
    at = li.ints(pc.index_in(pa.array(shown_codes), value_set=pa.array(judged_codes)).fill_null(0))
    is_judged = (judged_hash[at] == entries.hash) & (index[at] == user)
    return np.where(is_judged, grades[at], np.nan)


# ---- intents


def entry_intents(entries: li.Entries, columns: li.Arrays) -> li.EntryIntents | None:
    """The intents of ranked entries: their own, else those of their item in the judgements; None if nobody reads them.

    An item has the intents that its judgements give it, each with a grade; no intent gets a grade above the entry's.
    """
    if entries.intents is not None:
        at, hashes = entries.own_intents()
        grade = entries.grade[at]
    elif sch.POOL_INTENT in columns:
        # Each judged (item, intent), of every entry with the same item.
        index, item = li.flat(columns[sch.POOL_INTENT_ITEM])
        judged_codes, shown_codes = mx.pair_codes(index, li.ints(item), entries.list, entries.hash)
        by_code = np.argsort(judged_codes, kind="stable")
        first = np.searchsorted(judged_codes[by_code], shown_codes)
        counts = np.searchsorted(judged_codes[by_code], shown_codes, "right") - first
        at, judged_at = mx.spans(first, counts)
        judged = by_code[judged_at]
        hashes = li.ints(li.flat(columns[sch.POOL_INTENT])[1])[judged]
        of_intents = li.numbers(li.flat(columns[sch.POOL_INTENT_GRADE])[1], np.float64)[judged]
        grade = np.minimum(of_intents, entries.grade[at])
    else:
        return None
    # Where rows of one item share a place, the rank decides.
    order = np.empty(len(entries.list), np.int64)
    order[np.lexsort((-li.item_order(entries), entries.list))] = np.arange(len(order))
    return li.EntryIntents(at, hashes, grade, order)


def _with_intents(lists: li.RankedLists, columns: li.Arrays) -> mx.Intents | None:
    """The intents of entries and judged items; without judgements, the judged items are the entries."""
    own, batch = lists.intents, lists.batch
    if own is None and sch.POOL_INTENT not in columns:
        return None
    if own is None:
        none = np.empty(0, np.int64)
        own = li.EntryIntents(none, none, np.empty(0), np.arange(len(batch.list)))
    if sch.POOL_INTENT in columns:
        pool_list, hashes = li.flat(columns[sch.POOL_INTENT])
        starts = mx.pair_starts(pool_list, li.ints(li.flat(columns[sch.POOL_INTENT_ITEM])[1]))
        item = np.asarray(np.cumsum(starts), np.int64)
        pool_grade, pool_hash = li.numbers(li.flat(columns[sch.POOL_INTENT_GRADE])[1], np.float64), li.ints(hashes)
    else:
        by = np.argsort(own.order[own.entry], kind="stable")
        pool_list, pool_hash, pool_grade = batch.list[own.entry][by], own.hash[by], own.grade[by]
        item = own.order[own.entry][by]
    shown_codes, pool_codes = mx.pair_codes(batch.list[own.entry], own.hash, pool_list, pool_hash)
    number = np.unique(np.concatenate([shown_codes, pool_codes]), return_inverse=True)[1].astype(np.int64)
    intent, pool_intent = number[: len(shown_codes)], number[len(shown_codes) :]
    once, pool_once = _once(own.entry, intent), _once(item, pool_intent)
    shown = own.entry[once], intent[once], own.grade[once], own.order
    judged = pool_list[pool_once], item[pool_once], pool_intent[pool_once], pool_grade[pool_once]
    return mx.Intents(*shown, *judged)


def _once(item: mx.Ints, intent: mx.Ints) -> mx.Ints:
    """Indices of one element of each (item, intent), by item and then by intent."""
    by = np.lexsort((intent, item))
    return by[mx.pair_starts(item[by], intent[by])]


def n_unknown(batch: mx.Batch, convention: mx.Convention) -> mx.Ints:
    """(n,) relevant items shown beyond the m of the judgements: the list and the judgements contradict each other.

    >>> from rankmetrics_spark.metrics import one_list
    >>> n_unknown(one_list([1, 1, 0], pool=[1]).batch, mx.Convention()).tolist()
    [1]
    """
    lists = mx.Lists(batch, convention)
    hits = np.bincount(lists.found.list, lists.relevant, minlength=batch.size).astype(np.int64)
    return np.asarray(np.maximum(hits - lists.m, 0))


#: Orders of tied items that depend on their grades.
_BY_GRADE = ("best", "worst")


def hashed_lists(entries: li.Entries, size: int, reading: li.Reading) -> mx.Ints:
    """(n,) a hash of which item is at which rank, whatever the grades: equal lists may have different clicks.

    A repeated item counts at its best rank, however repeats are scored.
    """
    shown = replace(entries, grade=np.zeros(len(entries.list)))
    rule = replace(reading.convention, duplicates="best_rank")
    shown = li.without_repeats(shown, size, replace(reading, convention=rule, repeats=True))[0]
    if reading.by_position:
        rank = np.asarray(shown.position, np.int64)
    else:
        ties = "item_desc" if rule.ties in _BY_GRADE else rule.ties
        shown = shown.take(li.by_score(shown, replace(rule, ties=ties))[0])
        rank = mx.place(shown.list, size)
    top = rank <= reading.hashed_to
    return mx.list_hashes(shown.list[top], rank[top], shown.hash[top], size)


def top_items(entries: li.Entries, of: mx.Ints, k: int) -> tuple[mx.Ints, mx.Ints]:
    """Return list and item of the rows down to rank k, list by list in rank order; ``of`` is the list of each row.

    Of a repeated item the best rank stays.
    """
    size = int(of.max(initial=0)) + 1
    # Small whole numbers are sorted by their digits, which takes a tenth of the time.
    by = np.argsort(of.astype(np.min_scalar_type(size)), kind="stable")
    if entries.score is None:
        rank = np.asarray(entries.position, np.int64)[by]
        tied = mx.has_repeat(of[by], rank)
        by = by[np.lexsort((entries.hash[by], rank, of[by])) if tied else mx.order_within(of[by], rank.astype(float))]
    else:
        # Without grades, scores and the text of items order all rows.
        exact = None if entries.exact is None else entries.exact[by]
        rows = li.Entries(of[by], by, np.full(len(by), np.nan), score=entries.score[by], exact=exact, row=by)
        by = by[li.by_score(replace(rows, text=entries.text), mx.STANDARD)[0]]
        by = by[mx.place(of[by], size) <= k]
    of, items = of[by], entries.hash[by]
    if not mx.has_repeat(of, items):
        return of, items
    order = np.lexsort((items, of))
    kept = np.sort(order[mx.pair_starts(of[order], items[order])])
    return of[kept], items[kept]


_OF_JUDGEMENTS = (sch.N_UNKNOWN, sch.N_KNOWN, sch.N_KNOWN_TOP, sch.N_REFUTED)
COUNTS = (sch.N_SHOWN, sch.N_RELEVANT, sch.N_REPEATED, sch.N_TIED, *_OF_JUDGEMENTS, sch.N_GRADED, sch.DIGEST)
#: Ranks whose judgements are counted where no metric has a cut-off.
USUAL_TOP = 10


@dataclass(frozen=True)
class Scoring:
    """What is computed for each list.

    Attributes:
        metrics: The metrics, each with its cut-off.
        conventions: Each reads the same rows its own way; the scored lists have a row for each.
        by_position: Whether ranks are given; otherwise lists are ranked by score.
        repeats: Whether repeated items are looked for.
        judged: Whether judgements are given.
        list_hash: The column with a hash of the items of a list; empty = none.
        looks_up: Whether the relevance of shown items is looked up in the judgements.
        finite: Whether a value that is infinite because of large grades is refused.
        machine: Whether a machine has judged too, so that each value is there under both labels.
        chance: Whether people were to judge users with different probabilities.
        stored: Whether the ranks and grades that were scored come back too, to be stored.
        reads: What is stored beside them: scores, intents.
        looks_up_intents: Whether the intents of shown items are looked up in the judgements.
    """

    metrics: tuple[mx.Metric, ...]
    conventions: tuple[mx.Convention, ...]
    by_position: bool = True
    repeats: bool = True
    judged: bool = False
    list_hash: str = ""
    looks_up: bool = False
    finite: bool = True
    machine: bool = False
    chance: bool = False
    stored: bool = False
    reads: tuple[str, ...] = ()
    looks_up_intents: bool = False

    @property
    def machine_columns(self) -> tuple[str, ...]:
        """The columns of values under the labels of a machine."""
        return tuple(f"{sch.MACHINE}{metric.column}" for metric in self.metrics if self.machine)

    @property
    def top(self) -> int:
        """The rank down to which judged items are counted: the cut-off of the metric that decides."""
        if self.machine:
            return int(min(max(map(mx.cut_of, self.metrics)), mx.UNCUT))
        decides = mx.deciding(self.metrics)
        return (decides and decides.cut) or USUAL_TOP

    @property
    def hashed_to(self) -> int:
        """The rank down to which the items of a list are hashed: the largest cut-off."""
        return max(metric.cut or mx.UNCUT for metric in self.metrics) if self.list_hash else 0

    @property
    def every_row(self) -> bool:
        """Whether rows without relevance are read, too."""
        return bool(self.reads) or any(metric.needs != "relevant" for metric in self.metrics)

    @property
    def stored_arrays(self) -> tuple[str, ...]:
        """The arrays of stored lists; hashes of items, where judgements are looked up, or count repeated items."""
        counts = any(rule.duplicates == "count" for rule in self.conventions)
        items = self.judged and self.repeats and (self.looks_up or self.looks_up_intents or counts)
        of_scores = [sch.SCORES, sch.TIED_ABOVE] * ("scores" in self.reads)
        of_intents = [sch.ITEM_PLACES, *[sch.INTENTS] * (not self.looks_up_intents)] * ("intents" in self.reads)
        return (sch.RANKS, sch.GRADES, *[sch.ITEM_HASHES] * items, *of_scores, *of_intents)

    @property
    def every_grade(self) -> bool:
        """Whether an item that is judged and not relevant differs from an unjudged one: the counts tell them apart."""
        removes = any(rule.unjudged == "removed" for rule in self.conventions)
        return self.looks_up or removes or any(metric.needs == "judged" for metric in self.metrics)

    @property
    def judged_intents(self) -> bool:
        """Whether the intents of judged items are read."""
        return self.judged and (self.looks_up_intents or any(metric.needs == "intents" for metric in self.metrics))

    def reading(self, rule: mx.Convention) -> li.Reading:
        """How the rows are read under one of the conventions."""
        relevant = not (self.every_row or self.judged or rule.averages_ties)
        return li.Reading(rule, self.repeats, self.by_position, relevant, self.hashed_to)


def _refuse_infinite(values: mx.Floats, metrics: Sequence[mx.Metric], batch: mx.Batch, rule: mx.Convention) -> None:
    """Refuse values that are infinite because the gains of a list are too large to be added up."""
    for metric, of_lists in zip(metrics, values, strict=True):
        if metric.needs != "scores" and np.isinf(of_lists).any():
            highest = max(np.nanmax(grades, initial=0) for grades in (batch.grade, batch.pool_grade))
            raise err.InputError.of("gain_not_finite", metric=metric, highest=highest, gain=rule.gain)


def score_batch(columns: li.Arrays, layout: li.Layout, scoring: Scoring) -> Iterator[Mapping[str, mx.Array]]:
    """Score n lists under each convention."""
    lists_by_order: dict[tuple[object, ...], li.RankedLists] = {}
    for index, rule in enumerate(scoring.conventions):
        order = (rule.ties, rule.score_precision, rule.duplicates, rule.averages_ties)
        if order not in lists_by_order:
            lists = layout.unpack(columns, scoring.reading(rule))
            batch = replace(lists.batch, intents=_with_intents(lists, columns))
            lists_by_order[order] = replace(lists, batch=batch)
        lists = lists_by_order[order]
        batch = with_judgements(lists, columns, rule)
        scores: dict[str, mx.Array] = {sch.CONVENTION_INDEX: np.full(batch.size, index, np.int32)}
        if lists.all_rows_seen is not None:
            scores[sch.ALL_ROWS_SEEN] = lists.all_rows_seen
        n_beyond = n_unknown(batch, rule) if scoring.judged else np.zeros(batch.size)
        n_judged: list[mx.Array] = [np.zeros(batch.size)] * 3
        if scoring.judged:
            known = ~np.isnan(batch.grade)
            flags = ((batch.list, known), (batch.list, known & (batch.rank <= scoring.top)))
            refuted = batch.pool_list, np.asarray(batch.pool_grade <= 0)
            n_judged = [np.bincount(of, flag, minlength=batch.size) for of, flag in (*flags, refuted)]
        n_relevant = mx.Lists(batch, rule).m
        # The same in every layout: what has no relevance is counted only.
        at = np.flatnonzero(batch.grade > 0)
        digest = mx.list_hashes(batch.list[at], batch.rank[at], batch.grade[at].view(np.int64), batch.size)
        of_list = batch.shown, n_relevant, lists.n_repeated, lists.n_tied
        counts = (*of_list, n_beyond, *n_judged, batch.n_graded, digest)
        scores |= {name: np.asarray(count, np.int64) for name, count in zip(COUNTS, counts, strict=True)}
        if scoring.list_hash:
            scores[scoring.list_hash] = np.zeros(batch.size, int) if lists.list_hash is None else lists.list_hash
        if scoring.stored:
            # Only some lists of the other layouts come with items without relevance, which nothing reads there.
            only_relevant = scoring.reading(rule).only_relevant or layout.name not in ("rows", "stored")
            scores |= li.stored_arrays(lists, only_relevant, scoring.stored_arrays)
        values = mx.compute(batch, scoring.metrics, rule).T
        if scoring.finite:
            _refuse_infinite(values, scoring.metrics, batch, rule)
        names = [metric.column for metric in scoring.metrics]
        if scoring.machine:
            of_machine = {**columns, **{own: columns[name] for own, name in sch.OF_MACHINE.items()}}
            rated = with_judgements(_rated(lists, of_machine, layout, scoring.reading(rule)), of_machine, rule)
            of_both = (columns, values), (of_machine, mx.compute(rated, scoring.metrics, rule).T)
            values = np.concatenate([_where_judged(*each) for each in of_both])
            names += scoring.machine_columns
        yield scores | dict(zip(names, values, strict=True))


def _rated(lists: li.RankedLists, columns: li.Arrays, layout: li.Layout, reading: li.Reading) -> li.RankedLists:
    """The same lists under the grades of the machine, which may decide which of repeated or tied rows comes first."""
    if lists.hash is None or lists.n_repeated.any() or lists.n_tied.any():
        return layout.unpack(columns, reading)
    batch = lists.batch
    grade = judged_grades(li.Entries(batch.list, lists.hash, batch.grade), columns)
    return replace(lists, batch=replace(batch, grade=grade))


def _where_judged(columns: li.Arrays, values: mx.Floats) -> mx.Floats:
    """The values of the lists of judged users; NaN for the others."""
    return np.where(columns[sch.POOL_GRADE].is_null().to_numpy(zero_copy_only=False), np.nan, values)
