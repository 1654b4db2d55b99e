"""Clicks under position bias, or under another policy: weighted metrics with their effective sample size."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark import config as cfg, engines as eng, errors as err, layouts as lay, road, schemas as sch
from rankmetrics_spark.metrics import Floats, Ints, Metric
from rankmetrics_spark.studies import frame
from rankmetrics_spark.studies.weighting import estimates as est, examination
from rankmetrics_spark.studies.weighting.kernels import LIST, WEIGHTED, user_values, weighted_lists

_SUMS = eng.SumTable((sch.EXPERIMENT, sch.METRIC, "estimator"))
_FAULTY, _UNWEIGHTED, _BELOW = "_faulty", "_unweighted", "_below"
_WEIGHT = "_off_policy_weight"


def off_policy(
    impressions: eng.AnyTable,
    metrics: str | Sequence[str | Metric] = ("p@3", "ndcg@3", "ap@3"),
    *,
    propensity: str | None = None,
    propensities: eng.AnyTable | None = None,
    target: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    list: str | Sequence[str] = (),
    events: eng.AnyTable | None = None,
    event_columns: Mapping[str, object] | None = None,
    grades: Mapping[str, float] | None = None,
    within: str | None = None,
    estimators: str | Sequence[str] = est.ESTIMATORS,
    clip: float = 10.0,
    least_effective: float = 30.0,
    least_share: float = 0.01,
    confidence: float = 0.95,
    first_rank: int = 1,
) -> eng.ResultTable:
    """Estimate ranking metrics without position bias, or under another policy, by inverse-propensity weighting.

    Args:
        impressions: One row per shown item, shown with certainty or by a policy that drew it.
        metrics: Out of ``p@k``, ``dcg@k``, ``ndcg@k`` and ``ap@k``, under the convention ``standard``.
        propensity: Column of probabilities in (0, 1]: that the user examined the row; or, with ``target``, that the
            policy which wrote the log showed the item there. None: the column ``propensity``.
        propensities: Instead of such a column: the table of ``propensities``, or any with the columns rank and
            propensity. A propensity above 1 counts as 1. Rows at ranks without one leave no estimate. Its first rank
            is 1, whatever the impressions call theirs.
        target: Column of probabilities in [0, 1]: that the other policy shows the item there. None: 1, which removes
            position bias.
        columns: Role (experiment, user, item, position, relevance) -> column, as in ``evaluate``.
        list: Columns that tell a user's lists apart; a user's value is the mean over their lists.
        events: A row per click and the like, which give the relevance of shown items, as in ``evaluate``.
        event_columns: Role (list, user, item, kind, time) -> column of the events.
        grades: Kind of event -> the grade that it gives to its impression.
        within: How long after its impression an event counts, such as ``1h``.
        estimators: Out of ``ips``, ``clipped`` (weights of at most ``clip``) and ``self_normalised``.
        clip: The largest weight of ``clipped``.
        least_effective: With fewer effective rows or effective users there is no estimate.
        least_share: With a smaller share of effective rows or users there is no estimate.
        confidence: Of the intervals over users, in (0, 1).
        first_rank: What the column of ranks calls the first rank.

    Returns:
        One row per (experiment_id, metric, estimator), lazy like any DataFrame: value, ci_low, ci_high, n_users, n_rows
        (which the metric reads: ``ap`` and ``ndcg`` every row, the others those down to the cut-off),
        effective_sample_size and effective_share (of these rows), effective_users, mean_weight, n_faulty_rows,
        n_repeated, confidence, and a note where there is no value, where weights were clipped, or where more than 1 %
        of the rows are faulty or repeat an item or a rank of their list.

    Raises:
        ConfigError: A wrong argument.
        InputError: A column is missing or has a wrong type; when the rows are computed: ranks seem to start at 0.

    Examples:
        The clicked item was at rank 2, which every second user looks at: each such click counts twice.

        >>> log = [
        ...     {"user": "u", "item": item, "position": rank, "relevance": int(rank == 2), "propensity": 1 / rank}
        ...     for rank, item in enumerate("ab", start=1)
        ... ]
        >>> options = {"columns": {"experiment": None}, "estimators": "ips", "least_effective": 0}
        >>> estimated = off_policy(log, "dcg@2", **options)  # doctest: +SKIP
        >>> [*(estimated.to_pandas()["value"] * math.log2(3)).round(6)]  # doctest: +SKIP
        [2.0]
    """
    keywords = frame.with_events(locals(), propensity, target, "propensity")
    options = cfg.Options.of(keywords)
    for metric in options.metrics:
        if metric.name not in WEIGHTED:
            raise err.ConfigError(f"metrics: '{metric}' has no weighted version; allowed: {', '.join(WEIGHTED)}")
    if propensities is not None and (propensity or target):
        raise err.ConfigError(frame.said("two_propensities", name="propensity" if propensity else "target"))
    ranks = None if propensities is None else examination.examined_ranks(propensities, impressions)
    weighting = est.Weighting.of(keywords | {"ranks": ranks})
    table, options = frame.log_of(keywords["impressions"], options, *weighting.columns)
    users, has_items = _users(table, options, weighting)
    rules = est.Rules(weighting, options.confidence, options.metrics, has_items, options.first_rank)
    sums = frame.added_up(users, _SUMS, partial(_sums, rules=rules))
    return frame.of_sums(sums, _SUMS, est.COLUMNS, partial(_rows, rules=rules))


def _users(table: DataFrame, options: cfg.Options, weighting: est.Weighting) -> tuple[DataFrame, bool]:
    """Return one row per (experiment, user), and whether rows name their item; the only shuffle of raw rows.

    A user has their rows, whose weight takes the place of the score, and counts of faulty ones.
    """
    weights = zip(weighting.columns, ("propensity", "target"), strict=False)
    wrong = "column '{name}' ({role}) has type {kind}; it must be a number"
    kinds = frame.column_types(table, weights, T.NumericType, "impressions", wrong)
    rank = road.make_plan(options, table.schema).mapping[sch.POSITION]
    # Any other column is refused below.
    is_number = rank and isinstance(kinds.get(rank), T.NumericType)
    sql = weighting.sql(sch.quoted(rank) if rank and is_number else "0", options.first_rank)
    weighted_table = table.select("*", F.expr(sql).alias(_WEIGHT))
    rows, roles = frame.typed_rows(weighted_table, options, {sch.SCORE: _WEIGHT}, score=True)
    of_list = f"xxhash64({', '.join(roles.list_columns)})" if roles.list else "0L"
    hash_sql = [f"xxhash64({sch.ITEM}) AS {sch.HASH}"] if roles.item else []
    grade = f"double({sch.RELEVANCE}) AS {sch.RELEVANCE}"
    row = lay.entry(f"{of_list} AS {LIST}", sch.POSITION, *hash_sql, grade, sch.SCORE)
    no_weight = f"{sch.REJECTED}.{sch.REASON} IN ('null_score', 'nan_score')"
    users = rows.groupBy(sch.EXPERIMENT, sch.USER).agg(
        F.expr(f"collect_list({row}) FILTER (WHERE {sch.REJECTED} IS NULL) AS {sch.ENTRIES}"),
        F.expr(f"count_if(NOT {no_weight}) AS {_FAULTY}"),
        F.expr(f"count_if({no_weight}) AS {_UNWEIGHTED}"),
        F.expr(f"{frame.counts_in_sql(roles)['n_below']} AS {_BELOW}"),
    )
    return users.select(sch.EXPERIMENT, sch.ENTRIES, _FAULTY, _UNWEIGHTED, _BELOW), roles.item


def _sums(batch: pa.RecordBatch, rules: est.Rules) -> Iterator[tuple[est.Key, Ints]]:
    """Yield the sums of some users, by experiment, metric and estimator."""
    columns: lay.Arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    lists = weighted_lists(columns, rules.repeats)
    experiments, group = eng.coded(columns[sch.EXPERIMENT])
    faulty, unweighted, below = (lay.ints(columns[name]) for name in (_FAULTY, _UNWEIGHTED, _BELOW))
    n_entries = np.bincount(lay.flat(columns[sch.ENTRIES])[0], minlength=len(group))
    n_lists = np.bincount(lists.user, minlength=len(group))
    # As ``ROW_COUNTS`` names them.
    of_users = (faulty, unweighted, lists.repeated, below, n_entries + faulty + unweighted, n_lists)
    counts = np.stack([np.bincount(group, count, len(experiments)).astype(np.int64) for count in of_users], axis=1)
    for metric in rules.metrics:
        for weight, estimators in weights_of(lists.weight, rules.weighting):
            # An infinite weight becomes NaN; such a user is counted as ``beyond``.
            with np.errstate(invalid="ignore", over="ignore"):
                has_rows, users = user_values(lists, metric, weight)
                sums = np.concatenate([counts, est.limb_sums(users, group[has_rows], len(experiments)).table], axis=1)
            for estimator in estimators:
                yield from zip((est.Key(name, str(metric), estimator) for name in experiments), sums, strict=True)


def weights_of(weight: Floats, weighting: est.Weighting) -> Iterator[tuple[Floats, list[str]]]:
    """Yield the plain and the clipped weights, each with the estimators that read them."""
    names = [name for name in weighting.estimators if name != "clipped"]
    if names:
        yield weight, names
    if "clipped" in weighting.estimators:
        yield np.minimum(weight, weighting.clip), ["clipped"]


def _rows(totals: frame.Sums, rules: est.Rules) -> list[dict[str, Any]]:
    """Make the rows of the result from the sums of all users."""
    sums = {est.Key._make(key): total for key, total in totals.items()}
    metrics, estimators = [*map(str, rules.metrics)], rules.weighting.estimators
    # Each metric and estimator has the same counts.
    of_one = [total for key, total in sums.items() if (key.metric, key.estimator) == (metrics[0], estimators[0])]
    n_below, n_lists = (sum(int(each[est.ROW_COUNTS.index(name)]) for each in of_one) for name in ("below", "lists"))
    frame.refuse_ranks_from_0(n_below, n_lists, rules.first_rank)

    def place(of: est.Key) -> tuple[bool, str, int, int]:
        return of.experiment is None, of.experiment or "", metrics.index(of.metric), estimators.index(of.estimator)

    return est.off_policy_rows(sums, rules, sorted(sums, key=place))
