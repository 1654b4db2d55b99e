"""``coec_judgements``: grades of items from their clicks, over the clicks that their ranks alone would bring.

With n(r) impressions of an item at rank r and c clicks in all, and CTR(r) the mean click rate of rank r in the log,

    COEC = c / sum over r of n(r) * CTR(r).

1 is an item that is clicked as often as the average item at its ranks. Clicks of an item are taken as Poisson with mean
COEC * expected, so the interval is the exact one of a Poisson mean (Garwood 1936), over the expected clicks; the click
rates of ranks rest on the whole log and count as known.

Source: Zhang and Jones, Comparing Click Logs and Editorial Labels for Training Query Rewriting (WWW 2007 workshop on
Query Log Analysis).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, engines as eng, errors as err
from rankmetrics_spark.metrics import Floats, Ints
from rankmetrics_spark.schemas import EXPERIMENT, ITEM, POSITION, REJECTED, RELEVANCE, USER, Columns
from rankmetrics_spark.studies import frame
from rankmetrics_spark.studies.weighting import examination, harvesting

#: Columns of the result -> their types.
COEC_COLUMNS = frame.TABLES["coec_judgements"]
#: Stands in each row, so that readers of the table see it.
NOTE = "from clicks of this log: they favour the ranker that made it"
_SHOWN, _CLICKS = "_shown", "_clicks"


@dataclass(frozen=True)
class Clicks(cfg.Section):
    """Which impressions count: see ``coec_judgements``."""

    k: int = cfg.key(10, cfg.count(1, harvesting.DEEPEST))
    min_impressions: int = cfg.key(10, cfg.count(1, 2**53))
    max_invalid_fraction: float = cfg.key(frame.MOST_FAULTY, cfg.number(0, 1, inclusive=True))


def coec_judgements(
    impressions: eng.AnyTable,
    *,
    k: int = 10,
    min_impressions: int = 10,
    propensities: eng.AnyTable | None = None,
    confidence: float = 0.95,
    columns: Mapping[str, str | None] | None = None,
    list: str | Sequence[str] = (),
    events: eng.AnyTable | None = None,
    event_columns: Mapping[str, object] | None = None,
    grades: Mapping[str, float] | None = None,
    within: str | None = None,
    first_rank: int = 1,
    max_invalid_fraction: float = 0.01,
) -> eng.ResultTable:
    """Make judgements from clicks: clicks over expected clicks (COEC) of each item of a query.

    **These judgements carry the bias of the ranker that made the log.** It decided what was shown, and with what beside
    it: an evaluation with them favours this ranker, and items that it never showed are unjudged. Use them for rankers
    that re-order what was shown, from a log that several rankers or a random order made, and check one known
    difference against people's judgements.

    The table serves as ``judgements`` of ``evaluate`` as it is: COEC is the grade, a real number. It is the gain of
    ``ndcg`` and ``dcg``. For metrics of relevant items, ``convention={"relevant_from": 1}`` says that an item is
    relevant if it is clicked at least as often as the average item at its ranks; a stricter rule keeps the rows with
    ``ci_low >= 1``.

    Args:
        impressions: One row per shown item. Rows at ranks deeper than ``k``, and a few faulty rows, are left out.
        k: The last rank that counts, up to 50.
        min_impressions: An item with fewer impressions for a query has no row.
        propensities: The table of ``propensities``, or any with the columns rank and propensity. The expected clicks
            are then the examinations: the sum of the propensities of the item's ranks. The grade is the clicks per
            examination, relative to rank 1. The click rate of a rank also holds how good its items are; a propensity
            does not, so items that rank 1 gets for being good keep their grade. Rows at ranks without a propensity are
            left out.
        confidence: Of the intervals, in (0, 1).
        columns: Role (user, item, position, relevance) -> column, as in ``evaluate``: user is the query, or what
            judgements are for; a relevance is a click, 0 or 1. Experiments are not told apart.
        list: Columns that tell a user's lists apart; only events need them.
        events: A row per click, which makes its impression a clicked one, as in ``evaluate``.
        event_columns: Role (list, user, item, kind, time) -> column of the events.
        grades: Kind of event -> its grade: 1 of those that are clicks.
        within: How long after its impression an event counts, such as ``1h``.
        first_rank: What the column of ranks calls the first rank.
        max_invalid_fraction: Largest fraction of faulty rows.

    Returns:
        One row per (user_id, item_id), lazy like any DataFrame: relevance (COEC), ci_low, ci_high, n_shown, n_clicks,
        expected, and a note on the bias. An item that was shown only at ranks that nobody clicked has no row. The
        log is read once for the click rates of the ranks, when the function is called, and once for the table.

    Raises:
        ConfigError: A wrong argument.
        InputError: A column is missing or has a wrong type, a relevance is neither 0 nor 1, ranks seem to start at 0,
            or too many rows are faulty.

    Source: Zhang and Jones, Comparing Click Logs and Editorial Labels for Training Query Rewriting (workshop on Query
    Log Analysis, WWW 2007); the interval: Garwood, Fiducial Limits for the Poisson Distribution (Biometrika 1936).

    Examples:
        Rank 1 has a click in 3 of 4 impressions. Item a has 2 clicks where 2 * 3/4 were expected.

        >>> clicks = [("a", 1), ("a", 1), ("b", 1), ("b", 0)]
        >>> log = [{"user": "q", "item": item, "position": 1, "relevance": click} for item, click in clicks]
        >>> grades = coec_judgements(log, min_impressions=2)  # doctest: +SKIP
        >>> grades.to_pandas().set_index("item_id")["relevance"].round(3).to_dict()  # doctest: +SKIP
        {'a': 1.333, 'b': 0.667}
    """
    keywords = locals()
    request = Clicks.of(keywords)
    keywords = frame.with_events(keywords)
    unread = {"experiment", "score", EXPERIMENT}
    roles = {role: column for role, column in (keywords["columns"] or {}).items() if role not in unread}
    options = cfg.Options(columns={**roles, "experiment": None}, first_rank=first_rank, confidence=confidence)
    if options.lacks("item"):
        raise err.ConfigError("columns.item is null; allowed: the column of the items, since judgements are of items")
    table, options = frame.log_of(keywords["impressions"], options)
    every, present = frame.typed_rows(table, options, item=True, relevance=True, position=True)
    rates = _click_rates(every, present, request, options.first_rank)
    if propensities is not None:
        examined = examination.examined_ranks(propensities, table)
        rates = np.array([examined.get(rank, np.nan) for rank in range(1, request.k + 1)])
    # The only shuffle of raw rows.
    rows = every.where(f"{REJECTED} IS NULL AND {POSITION} <= {request.k}").select(USER, ITEM, POSITION, RELEVANCE)
    step = partial(_judgements, rates=rates, request=request, confidence=options.confidence)
    items = rows.groupBy(USER, ITEM).agg(*map(F.expr, _counts(request.k)))
    return eng.result_table(frame.of_users(items, COEC_COLUMNS, step))


def _click_rates(every: DataFrame, columns: Columns, request: Clicks, first_rank: int) -> Floats:
    """Return (k,) click rates of the ranks of a log that may be read, NaN without an impression; reads it."""
    wrong = f"{REJECTED} IS NULL AND {POSITION} <= {request.k} AND NOT {RELEVANCE} IN (0, 1)"
    grade, of_log = f"max(CASE WHEN {wrong} THEN double({RELEVANCE}) END)", frame.counts_in_sql(columns)
    sums = (*_counts(request.k, f"{REJECTED} IS NULL AND "), f"count_if({wrong})", grade, *of_log.values())
    ((shown, clicks, n_wrong, largest, *counts),) = eng.few_rows(every.agg(*map(F.expr, sums)))
    frame.refuse_faulty(dict(zip(of_log, counts, strict=True)), frame.Allowed(request.max_invalid_fraction, first_rank))
    frame.refuse_grades(n_wrong, largest)
    impressions, none = np.array(shown, np.float64), np.full(request.k, np.nan)
    return np.asarray(np.divide(np.array(clicks, np.float64), impressions, out=none, where=impressions > 0))


def _counts(k: int, condition: str = "") -> tuple[str, str]:
    """SQL of the arrays of impressions and clicks at each rank, of rows with a condition that ends with AND."""
    at_rank = [f"count_if({condition}{POSITION} = {rank})" for rank in range(1, k + 1)]
    clicked = [f"count_if({condition}{POSITION} = {rank} AND {RELEVANCE} = 1)" for rank in range(1, k + 1)]
    return f"array({', '.join(at_rank)}) AS {_SHOWN}", f"array({', '.join(clicked)}) AS {_CLICKS}"


def _judgements(batch: pa.RecordBatch, rates: Floats, request: Clicks, confidence: float) -> Iterator[dict[str, Any]]:
    """The rows of the result."""
    known = ~np.isnan(rates)
    shown, clicks = (eng.matrix_of(batch.column(name))[:, known] for name in (_SHOWN, _CLICKS))
    n_shown, n_clicks = shown.sum(axis=1), clicks.sum(axis=1)
    # Not a matrix product: its order of addition depends on the machine.
    expected = np.cumsum(np.column_stack([np.zeros(len(shown)), shown * rates[known]]), axis=1)[:, -1]
    kept = np.flatnonzero((n_shown >= request.min_impressions) & (expected > 0))
    low, high = (bound / expected[kept] for bound in poisson_interval(n_clicks[kept], confidence))
    texts = [batch.column(name).take(pa.array(kept)) for name in (USER, ITEM)]
    values = (n_clicks[kept] / expected[kept], low, high, n_shown[kept], n_clicks[kept], expected[kept])
    yield dict(zip(COEC_COLUMNS, (*texts, *values, [NOTE] * len(kept)), strict=True))


def poisson_interval(n: Ints, confidence: float) -> tuple[Floats, Floats]:
    """Exact interval of the mean of a Poisson count.

    Args:
        n: (g,) counts.
        confidence: In (0, 1).

    Returns:
        Lower and upper bounds, (g,) each; the lower bound of a count of 0 is 0.

    Source: Garwood, Fiducial Limits for the Poisson Distribution (Biometrika 1936).

    >>> low, high = poisson_interval(np.array([0, 10]), 0.95)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 4.795], [3.689, 18.39])
    """
    # Imported here: Python workers that do not need it load faster.
    from scipy.special import gammaincinv

    tail, some = (1 - confidence) / 2, np.maximum(n, 1)
    return np.where(n > 0, gammaincinv(some, tail), 0.0), np.asarray(gammaincinv(n + 1, 1 - tail))
