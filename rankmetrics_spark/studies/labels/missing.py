"""``unjudged``: what the missing labels of a log could change, and which items to judge first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import engines as eng, errors as err, layouts as lay, metrics as mx, road, schemas as sch
from rankmetrics_spark.config import Options, Section, count, key, number, text
from rankmetrics_spark.studies import frame
from rankmetrics_spark.studies.labels import kernels, pairs as of_pairs

USERS = frame.TABLES["unjudged_users"]
#: Columns of the tables of ``Unjudged`` -> their types.
TO_JUDGE = frame.TABLES["to_judge"]
_SUMS = eng.SumTable(of_pairs.Key._fields)
#: In place of a metric: counts of rows, by experiment and of the log.
_READ = "rows read"
#: Knobs of a convention that the bounds can read; others have their standard value.
_KNOBS = ("ap_denominator", "gain", "gain_table", "relevant_from")

#: The sums of all users -> the rows of a table.
_RowsOfSums: TypeAlias = Callable[[Mapping[of_pairs.Key, Any]], Iterator[dict[str, Any]]]


@dataclass(frozen=True)
class Missing(Section):
    """What is compared, and what a label may be: see ``unjudged``."""

    baseline: str | None = key(None, text)
    max_grade: int = key(1, count(1, 100))
    max_invalid_fraction: float = key(frame.MOST_FAULTY, number(0, 1, inclusive=True))


class _Work(NamedTuple):
    """What the Python steps compute."""

    metrics: tuple[mx.Metric, ...]
    labels: kernels.Labels
    allowed: frame.Allowed


class Unjudged:
    """What unjudged items could change; each table is lazy like any DataFrame.

    Each reads the impressions once for the counts of faulty rows, and once for the lists.

    Labels are the whole grades from 0 to ``max_grade``. They range over the unjudged items that any experiment shows
    the user down to the cut-off of the metric, and a label counts in m and in the ideal list as any judgement does. So
    ``low`` and ``high`` are the lowest and the highest value that ``evaluate`` can have once these items are judged.
    """

    def __init__(self, top: DataFrame, judged: DataFrame, counts: DataFrame, work: _Work) -> None:
        """Nothing is computed yet."""
        self._top, self._pool, self._counts, self._work = top, judged, counts, work

    @cached_property
    def users(self) -> eng.ResultTable:
        """One row per (experiment_id, user_id, metric): n_unjudged, value (unjudged = not relevant), low and high."""
        return eng.result_table(frame.of_users(self._lists(), USERS, partial(_user_rows, work=self._work)))

    @cached_property
    def means(self) -> eng.ResultTable:
        """One row per (experiment_id, metric): n_users, those whose value is open, n_unjudged, mean, low and high."""
        return self._final(of_pairs.arm_rows, of_pairs.MEANS, compares=False)

    @cached_property
    def pairs(self) -> eng.ResultTable:
        """One row per (baseline, experiment_id, metric), over the users who are in both experiments.

        n_unjudged (items of either list), n_open (of these, whose label can move the difference), difference
        (experiment - baseline, as judged), its low and high, bounds (``exact``; ``enclosure``: no label leads beyond,
        perhaps none leads there), a sentence.
        """
        labels, baseline = self._work.labels, self._work.allowed.baseline
        grades = f" (grades 0 to {labels.max_grade})"
        # A higher grade moves the gains of (n)dcg further.
        metrics = {str(each): grades * ("cg" in each.name or not labels.relevant) for each in self._work.metrics}
        return self._final(partial(of_pairs.pair_rows, metrics=metrics, baseline=baseline), of_pairs.PAIRS)

    @cached_property
    def to_judge(self) -> eng.ResultTable:
        """One row per unjudged item whose label could move the first metric, the heaviest first.

        user_id, item_id, experiments that show it and its ranks there (the best rank first), weight: how much the
        highest grade of this item alone would move the difference of the pair (baseline, experiment_id) that it moves
        most, and its ranks in both. Of a user in one experiment only, the weight is that of the value itself.
        """
        rows = frame.of_users(self._lists(sch.ITEM), TO_JUDGE, partial(_rows_to_judge, work=self._work))
        return eng.result_table(rows.orderBy(F.col("weight").desc(), sch.USER, sch.ITEM))

    def _lists(self, *more: str, may_fail: bool = True) -> DataFrame:
        """One row per user: their rows and judgements, the only shuffle of raw rows; a log to be refused may fail."""
        place, item = f"bigint({sch.POSITION}) AS {sch.POSITION}", f"xxhash64({sch.ITEM}) AS {sch.HASH}"
        row = lay.entry(sch.EXPERIMENT, place, item, *more)
        users = self._top.groupBy(sch.USER).agg(F.expr(f"collect_list({row}) AS {sch.ENTRIES}"))
        users = frame.sound_lists(users, self._counts, self._work.allowed) if may_fail else users
        return users.join(self._pool, sch.USER, "left").select(sch.USER, sch.ENTRIES, sch.POOL_GRADE, sch.POOL_HASH)

    def _final(self, rows: _RowsOfSums, columns: Mapping[str, str], compares: bool = True) -> eng.ResultTable:
        step = partial(_sums, work=self._work, compares=compares)
        counts = self._counts.selectExpr("string(NULL)", sch.EXPERIMENT, f"'{_READ}'", eng.SUMS)
        sums = frame.added_up(self._lists(may_fail=False), _SUMS, step).unionAll(counts)
        return frame.of_sums(sums, _SUMS, columns, partial(_rows_of_all, rows=rows, allowed=self._work.allowed))


def unjudged(
    impressions: eng.AnyTable,
    judgements: eng.AnyTable,
    metrics: str | Sequence[str | mx.Metric] = ("p@10", "dcg@10", "ap@10", "ndcg@10"),
    *,
    baseline: str | None = None,
    max_grade: int = 1,
    convention: str | Mapping[str, object] | mx.Convention = "standard",
    columns: Mapping[str, str | None] | None = None,
    judgement_columns: Mapping[str, str] | None = None,
    human_sample: str | Mapping[str, str] | None = None,
    rank_by: Literal["position", "score"] = "position",
    first_rank: int = 1,
    max_invalid_fraction: float = 0.01,
) -> Unjudged:
    """Bound metrics and their differences over all labels that unjudged items may have; say which to judge first.

    Bounds of one list are exact for every metric. In a difference, an item that both lists show has one label in both.
    Its bounds are exact for ``p``, ``cg``, ``dcg``, ``rbp``, ``rr`` and ``hit_rate``. For ``ap``, ``ndcg``, ``r`` and
    ``f1``, the bounds of both values enclose the difference. A user has one list per experiment.

    Args:
        impressions: One row per shown item, as in ``evaluate``; a column of relevance is not read. Faulty rows are left
            out, a few of them, and a repeated item counts at its best rank.
        judgements: One row per judgement, as in ``evaluate``. A shown item without one is unjudged.
        metrics: Out of ``p@k``, ``hit_rate@k``, ``rr``, ``r@k``, ``f1@k``, ``cg``, ``dcg``, ``rbp``, ``ap`` and
            ``ndcg``; the first one decides what to judge first.
        baseline: The experiment that the others are compared with. None: all pairs, of up to 20 experiments.
        max_grade: The highest grade that a label may have, from 1 to 100.
        convention: ``standard``, with other ``gain``, ``relevant_from`` or ``ap_denominator`` (``min(m,k)`` or ``m``).
        columns: Role (experiment, user, item, position, score) -> column.
        judgement_columns: Role (user, item, relevance) -> column of the judgements.
        human_sample: How users whom people judge were drawn, where a machine judges too: only these are read.
        rank_by: By ranks, or by score: the highest first, equal scores by descending item id.
        first_rank: What the column of ranks calls the first rank.
        max_invalid_fraction: Largest fraction of faulty rows, and of the rows of lists that repeat a rank.

    Returns:
        The tables ``users``, ``means``, ``pairs`` and ``to_judge``.

    Raises:
        ConfigError: A wrong argument; an unknown baseline is refused when the rows are computed.
        InputError: A column is missing or has a wrong type; when the rows are computed: ranks seem to start at 0, too
            many rows are faulty or repeat a rank of their user, or no shown id is in the judgements.

    Source: bounds from unjudged items: Moffat and Zobel, Rank-Biased Precision for Measurement of Retrieval
    Effectiveness (TOIS 2008), the residual of RBP. Judging first what moves a difference most: Carterette, Allan and
    Sitaraman, Minimal Test Collections for Retrieval Evaluation (SIGIR 2006).

    Examples:
        Nobody has judged z, which only b shows, at rank 1.

        >>> lists = {"a": "xy", "b": "zx"}
        >>> log = [
        ...     {"experiment": arm, "user": "u", "item": item, "position": rank}
        ...     for arm, items in lists.items()
        ...     for rank, item in enumerate(items, start=1)
        ... ]
        >>> qrels = [{"user": "u", "item": item, "relevance": int(item == "x")} for item in "xy"]
        >>> unjudged(log, qrels, "p@2").pairs.to_pandas()["sentence"][0]  # doctest: +SKIP
        'b is not behind a on mean Precision@2 whatever the label of the unjudged item is: ahead by up to 0.5'
    """
    keywords = locals()
    request = Missing.of(keywords)
    roles = {role: column for role, column in (columns or {}).items() if role != "relevance"}
    people = {role: column for role, column in (judgement_columns or {}).items() if role != "machine"}
    given = {"judgement_columns": people, "with_machine": human_sample is not None, "judged": True}
    options = Options.of(keywords | given | {"columns": {**roles, "relevance": None}})
    _check(options)
    table, options = frame.log_of(impressions, options, beside=judgements)
    names = (*sch.JUDGEMENT_ROLES, *sch.JUDGEMENT_ROLES.values())
    own = (*options.judgement_columns.values(), *options.drawn_by.values())
    judged = eng.table_of(judgements, "judgements", own, names, table)
    judged, options = road.flat_judgements(judged, options)
    plan = road.make_plan(options, table.schema, judged.schema)
    cuts = [metric.cut for metric in options.metrics]
    deepest = None if None in cuts else max(cut for cut in cuts if cut is not None)
    allowed = frame.Allowed(request.max_invalid_fraction, options.first_rank, request.baseline)
    work = _Work(options.metrics, kernels.Labels(options.convention, request.max_grade), allowed)
    drawn, top = None, road.top_rows(table, plan, deepest)
    if options.machine:
        judged, drawn = road.drawn_labels(judged, options)
    pool = road.pools(judged, plan.judgement_mapping, every_grade=True, text=False)
    if options.machine:
        top = top.join((pool if drawn is None else drawn).select(sch.USER), sch.USER, "left_semi")
    return Unjudged(top, pool, frame.counts_of_known(table, plan, judged), work)


def _check(options: Options) -> None:
    """Refuse metrics and conventions without bounds."""
    for metric in options.metrics:
        if metric.name not in kernels.KERNELS:
            raise err.ConfigError(f"metrics: '{metric}' has no bounds of labels; allowed: {', '.join(kernels.KERNELS)}")
    if options.convention.ap_denominator not in ("min(m,k)", "m"):
        raise err.ConfigError(frame.said("ap_denominator", value=options.convention.ap_denominator))
    for knob in mx.knobs():
        value, usual = getattr(options.convention, knob.name), getattr(mx.STANDARD, knob.name)
        if knob.name not in (*_KNOBS, "max_grade") and value != usual:  # that of ERR, which has no bounds
            raise err.ConfigError(frame.said("knob", knob=knob, value=value, usual=usual, others=", ".join(_KNOBS)))


def _read(batch: pa.RecordBatch) -> tuple[of_pairs.Arms, pa.Array | None, Any]:
    """Return the lists of the users of a batch, each with one row per item and per rank; the texts of the items, and
    the row of each entry in these.
    """
    columns: lay.Arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    entries = lay.entries_of(columns)
    entries = replace(entries, grade=lay.judged_grades(entries, columns))
    names, experiment = eng.coded(lay.flat(columns[sch.ENTRIES])[1].field(sch.EXPERIMENT))
    lists, of = np.unique(entries.list * len(names) + experiment, return_inverse=True)
    of_list = replace(entries, list=of.astype(np.int64)).take(np.argsort(of, kind="stable"))
    rows = lay.by_position(lay.without_repeats(of_list, len(lists), lay.Reading(mx.STANDARD))[0])
    user, arm = np.divmod(lists, len(names))
    item = np.unique(np.stack([user[rows.list], rows.hash]), axis=1, return_inverse=True)[1].reshape(-1)
    pool_user, grades = lay.flat(columns[sch.POOL_GRADE])
    pool = np.asarray(grades.to_numpy(zero_copy_only=False), np.float64)
    rank = np.asarray(rows.position, np.int64)
    shown = kernels.Shown(user, rows.list, rank, rows.grade, item.astype(np.int64), pool_user, pool)
    return of_pairs.Arms(shown, names, arm), rows.text, rows.row


def _user_rows(batch: pa.RecordBatch, work: _Work) -> Iterator[dict[str, Any]]:
    """The rows of ``users``, for each metric."""
    arms = _read(batch)[0]
    shown, names = arms.shown, np.array(arms.names, object)
    users = batch.column(sch.USER).take(pa.array(shown.user))
    for metric in work.metrics:
        limits = kernels.bounds(shown, metric, work.labels)
        n = np.bincount(shown.list[limits.at][limits.unjudged], minlength=len(shown.user))
        values = {"value": limits.value, "low": limits.low, "high": limits.high}
        keys = {sch.EXPERIMENT: names[arms.experiment], sch.USER: users, sch.METRIC: [str(metric)] * len(n)}
        yield {**keys, "n_unjudged": n, **values}


def _sums(batch: pa.RecordBatch, work: _Work, compares: bool) -> Iterator[tuple[of_pairs.Key, Any]]:
    """Yield the exact sums of some users by experiment, and by pair if it compares."""
    arms = _read(batch)[0]
    for (name,), counts in frame.list_counts(batch):
        yield of_pairs.Key(None, name, _READ), counts
    for metric in work.metrics:
        limits = kernels.bounds(arms.shown, metric, work.labels)
        yield from of_pairs.arm_sums(arms, limits, metric)
        if compares:
            yield from of_pairs.pair_sums(arms, limits, metric, work.allowed.baseline)


def _rows_of_all(totals: frame.Sums, rows: _RowsOfSums, allowed: frame.Allowed) -> Iterator[dict[str, Any]]:
    """The rows of a table, from the sums of all users."""
    sums = {of_pairs.Key._make(key): total for key, total in totals.items()}
    read = {key: sums.pop(key) for key in [*sums] if key.metric == _READ}
    frame.refuse({key.experiment: counts for key, counts in read.items()}, allowed)
    yield from rows(sums) if sums else ()


# ---- which items to judge first


def _rows_to_judge(batch: pa.RecordBatch, work: _Work) -> Iterator[dict[str, Any]]:
    """The rows of ``to_judge``: per unjudged item the pair that its label moves most."""
    arms, texts, row = _read(batch)
    shown = arms.shown
    limits = kernels.bounds(shown, work.metrics[0], work.labels)
    weight, pair, ranks = of_pairs.heaviest(arms, limits, work.allowed.baseline)
    chosen = np.flatnonzero(weight > 0)
    if not len(chosen):
        return
    # The entries of each chosen item, the best rank first; equal ranks in the order of the experiments' names.
    names = np.array(arms.names, object)
    by_name = np.argsort(np.argsort(names.astype(str)))
    entries = limits.at[np.isin(shown.item[limits.at], chosen)]
    experiment = arms.experiment[shown.list[entries]]
    order = np.lexsort((by_name[experiment], shown.rank[entries], shown.item[entries]))
    entries, experiment = entries[order], experiment[order]
    first = np.flatnonzero(np.diff(shown.item[entries], prepend=-1))
    ends = pa.array(np.append(first, len(entries)), pa.int32())
    lists = (pa.array(names[experiment], pa.string()), pa.array(shown.rank[entries]))
    users = batch.column(sch.USER).take(pa.array(shown.user[shown.list[entries[first]]]))
    assert texts is not None
    text = texts.take(pa.array(row[entries[first]]))
    base, other = (pa.array([arms.names[at] if at >= 0 else None for at in side[chosen]], pa.string()) for side in pair)
    of_pair = (pa.array(side[chosen], mask=side[chosen] == 0) for side in ranks)
    arrays = [pa.ListArray.from_arrays(ends, values) for values in lists]
    columns = [users, text, *arrays, pa.array(weight[chosen]), base, other, *of_pair]
    yield dict(zip(TO_JUDGE, columns, strict=True))
