"""Ranked lists -> one row per list with its metrics; and per user, where users have several lists."""

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from pyspark.sql import DataFrame, types as T

from rankmetrics_spark import engines as eng, layouts as lay, schemas as sch
from rankmetrics_spark.road.checking import rejected_type

#: Column -> its SQL, of what later steps read; None = that of ``columns_beside``.
Kept: TypeAlias = Mapping[str, str] | None


def scored(
    lists: DataFrame,
    columns: sch.Columns,
    layout: lay.Layout,
    scoring: lay.Scoring,
    then: eng.Step | None = None,
    kept: Kept = None,
) -> DataFrame:
    """Score packed lists, in one round trip to Python; ``then`` is a step over the scored lists in the same one.

    One row per (list, convention): what is kept, ``_rows``, ``_all_rows_seen``, ``_convention``, the counts and one
    column per metric (null = no value). ``kept`` has the SQL of each column beside these, of ``columns_beside`` unless
    given.
    """
    kept = columns_beside(columns, layout, scoring) if kept is None else kept
    # The hashes of judged items are read to look up grades, and to count repeats of a judged item.
    needs_hash = not columns.relevance or any(rule.duplicates == "count" for rule in scoring.conventions)
    intents = [sch.POOL_INTENT, sch.POOL_INTENT_ITEM, sch.POOL_INTENT_GRADE] * scoring.judged_intents
    pool = [sch.POOL_GRADE, *[sch.POOL_HASH] * needs_hash, *intents] if scoring.judged else []
    pool += [sch.MACHINE_GRADE, sch.MACHINE_HASH] * scoring.machine
    inputs = lists.selectExpr(*(f"{sql} AS {name}" for name, sql in kept.items()), sch.N_ROWS, *layout.payload, *pool)
    if then is None and not layout.arrays and not (scoring.judged or scoring.stored) and len(scoring.conventions) == 1:
        score = partial(_score_one, layout=layout, scoring=scoring)
        arguments = [name for name in inputs.columns if name not in kept]
        scores = eng.struct_udf(score, arguments, T.StructType(_scores(scoring)))(*arguments).alias("_scores")
        scored_lists = inputs.select(*kept, sch.N_ROWS, scores)
        return scored_lists.selectExpr(*kept, sch.N_ROWS, f"0 AS {sch.CONVENTION_INDEX}", "_scores.*")
    kinds = _KINDS | {sch.REJECTED_ITEMS: T.ArrayType(rejected_type(columns))}
    fields = T.StructType([T.StructField(name, kinds.get(name, T.StringType())) for name in (*kept, sch.N_ROWS)])
    from_python = [T.StructField(sch.ALL_ROWS_SEEN, T.BooleanType())] * (layout.all_rows_seen is None)
    computed = T.StructType([T.StructField(sch.CONVENTION_INDEX, T.IntegerType()), *from_python, *_scores(scoring)])
    step = eng.computing(partial(lay.score_batch, layout=layout, scoring=scoring), fields, computed)
    step = eng.Step(partial(eng.in_slices, sizes=sch.N_ROWS, most=ROWS_AT_ONCE), step.schema).then(step)
    return (step.then(then) if then else step).of(inputs)


def columns_beside(columns: sch.Columns, layout: lay.Layout, scoring: lay.Scoring) -> dict[str, str]:
    """What later steps read beside the scores: keys, segments, covariate, cluster, trigger and flags -> SQL."""
    own = [*columns.keys, *columns.of_user, *[sch.TOP] * (not columns.by_score), *[sch.MIXED] * bool(columns.segments)]
    own += [*[sch.N_NEGATIVE] * columns.relevance, *columns.timed, *[sch.CHANCE] * scoring.chance]
    known = {} if layout.all_rows_seen is None else {sch.ALL_ROWS_SEEN: layout.all_rows_seen}
    judged = f"{sch.POOL_GRADE} IS NOT NULL" if scoring.judged else "false"
    return dict(zip(own, own, strict=True)) | known | {sch.JUDGED: judged}


#: Types of the columns that are kept beside the scores; the others are texts.
_KINDS: dict[str, T.DataType] = {
    **dict.fromkeys((sch.COVARIATE, sch.CHANCE), T.DoubleType()),
    **dict.fromkeys((sch.N_ROWS, sch.TOP, sch.N_NEGATIVE, sch.TIME), T.LongType()),
    **dict.fromkeys((sch.MIXED, sch.ALL_ROWS_SEEN, sch.JUDGED, sch.FLAGGED, sch.RANK_MAY_REPEAT), T.BooleanType()),
    **dict.fromkeys((sch.IS_LIST, sch.TRIGGERED), T.BooleanType()),
}


#: Types of what arrays of stored lists hold.
_ARRAYS = {
    **dict.fromkeys((sch.RANKS, sch.TIED_ABOVE, sch.ITEM_PLACES), T.IntegerType()),
    **dict.fromkeys((sch.GRADES, sch.SCORES), T.DoubleType()),
    sch.ITEM_HASHES: T.LongType(),
    sch.INTENTS: T.ArrayType(T.LongType()),
}

#: Rows whose arrays are made at once: it bounds what Python holds of long lists.
ROWS_AT_ONCE = 2**19


def _score_one(columns: lay.Arrays, layout: lay.Layout, scoring: lay.Scoring) -> eng.Computed:
    """The scores under the only convention, without its index."""
    (scores,) = lay.score_batch(columns, layout, scoring)
    return {name: values for name, values in scores.items() if name != sch.CONVENTION_INDEX}


def _scores(scoring: lay.Scoring) -> list[T.StructField]:
    """Columns of a scored list: counts, and one double per metric."""
    counts = [T.StructField(name, T.LongType()) for name in lay.COUNTS]
    hashes = [T.StructField(scoring.list_hash, T.LongType())] * bool(scoring.list_hash)
    arrays = scoring.stored_arrays if scoring.stored else ()
    hashes += [T.StructField(name, T.ArrayType(_ARRAYS[name])) for name in arrays]
    return counts + hashes + [T.StructField(name, T.DoubleType()) for name in _values(scoring)]


def _values(scoring: lay.Scoring) -> list[str]:
    """Columns of values: of each metric, and the same under the labels of a machine."""
    return [*(metric.column for metric in scoring.metrics), *scoring.machine_columns]


_USER_COUNTS = (sch.N_LISTS, sch.N_SHOWN, sch.N_RELEVANT, sch.N_REPEATED)


def per_user(
    lists: DataFrame, columns: sch.Columns, scoring: lay.Scoring, within: str | None = None, alone: bool = False
) -> DataFrame:
    """One row per (experiment, user, convention): the list itself, or the mean over the lists of the user.

    A segment is null where the lists of the user differ; with ``within``, a segment column, there is a row for each of
    its values. ``alone`` = no user has several lists under a convention.
    """
    metrics, own = _values(scoring), (sch.EXPERIMENT, sch.USER, sch.CONVENTION_INDEX)
    gaps, chance = [sch.TO_JUDGE] * scoring.machine, [sch.CHANCE] * scoring.chance
    if scoring.machine:
        gap = f"greatest(least({sch.N_SHOWN}, {scoring.top}L) - {sch.N_KNOWN_TOP}, 0L)"
        lists = lists.selectExpr("*", f"CASE WHEN {sch.JUDGED} THEN {gap} END AS {sch.TO_JUDGE}")
    hashed = [scoring.list_hash] * bool(scoring.list_hash)
    ordered = [*own, sch.JUDGED, *columns.of_user, *_USER_COUNTS, *hashed, *gaps, *chance, *metrics]
    if not columns.list:
        return lists.selectExpr(*(f"1L AS {sch.N_LISTS}" if name == sch.N_LISTS else name for name in ordered))
    keys = (*own, *([within] if within else []))
    # Judged items belong to the user, so they are the same in each of their lists; shown ones add up.
    rules = enumerate(scoring.conventions if scoring.judged else ())
    of_user = [str(i) for i, rule in rules if rule.relevant_pool == "judged"]
    is_of_user = f"{sch.CONVENTION_INDEX} IN ({', '.join(of_user)})" if of_user else "false"
    # Of one list, its own value.
    top, total, only = ("", "", str) if alone else ("max", "sum", sch.only_value)
    aggregates = [
        *(f"{top}({name}) AS {name}" for name in (sch.JUDGED, *chance)),
        *(f"{only(name)} AS {name}" for name in columns.of_user if name not in (within, sch.TRIGGERED)),
        *[f"{top}({sch.TRIGGERED}) AS {sch.TRIGGERED}"] * bool(columns.trigger),
        f"{'1L' if alone else 'count(1)'} AS {sch.N_LISTS}",
        f"CASE WHEN {is_of_user} THEN {top}({sch.N_RELEVANT}) ELSE {total}({sch.N_RELEVANT}) END AS {sch.N_RELEVANT}",
        *(f"{total}({name}) AS {name}" for name in (sch.N_SHOWN, sch.N_REPEATED, *gaps)),
    ]
    # Added up, the hashes of several lists do not depend on their order; halves never overflow.
    half = f"{total}(shiftright({{0}}, 32)), {total}({{0}} & {2**32 - 1}L)"
    aggregates += (f"xxhash64({half.format(name)}) AS {name}" for name in hashed)
    read = lists.select(*(name for name in ordered if name != sch.N_LISTS))
    if alone:
        means = read.selectExpr(*keys, *aggregates, *(f"{eng.mean_of_one(name)} AS {name}" for name in metrics))
    else:
        means = eng.group_means(read, keys, dict.fromkeys(metrics, "1"), aggregates)
    lists_of = "bigint({} IS NOT NULL)".format if alone else eng.weight_of
    with_value = (f"{lists_of(name)} AS {sch.lists_with_value(name)}" for name in without_value(columns, scoring))
    return means.selectExpr(*ordered, *with_value)


def without_value(columns: sch.Columns, scoring: lay.Scoring) -> list[str]:
    """The columns of metrics in which a list of a user may lack a value: the mean is over fewer lists then."""
    if not columns.list:
        return []
    skips = any(rule.zero_relevant == "skip" for rule in scoring.conventions)
    return [metric.column for metric in scoring.metrics if skips or not metric.definition.zero_policy]
