"""How far the lists of users differ between experiments, without any relevance."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from rankmetrics_spark import config as cfg, engines as eng, layouts as lay, metrics as mx, road, schemas as sch
from rankmetrics_spark.studies import frame

#: Columns of the result -> their types.
COLUMNS = frame.TABLES["changed"]


@dataclass(frozen=True)
class Change(cfg.Section):
    """What is compared, and how deep: see ``changed``."""

    baseline: str = cfg.key("control", cfg.text)
    k: int = cfg.key(10, cfg.count(1, frame.DEEPEST))
    p: float = cfg.key(0.9, cfg.number(0, 1, inclusive=False))
    max_invalid_fraction: float = cfg.key(frame.MOST_FAULTY, cfg.number(0, 1, inclusive=True))


def changed(
    impressions: eng.AnyTable,
    baseline: str,
    *,
    k: int = 10,
    p: float = 0.9,
    columns: Mapping[str, str | None] | None = None,
    rank_by: Literal["position", "score"] = "position",
    first_rank: int = 1,
    max_invalid_fraction: float = 0.01,
) -> eng.ResultTable:
    """How alike the top k of each user is to that of the same user in the baseline; relevance is not read.

    A user has one list per experiment; where they have several, name the column of the request as the user. Reads the
    impressions once for the counts of faulty rows, and once for the lists, with one shuffle.

    Args:
        impressions: One row per shown item, as in ``evaluate``. Faulty rows are left out, a few of them.
        baseline: The experiment that the others are compared with.
        k: Items down to this rank count, up to 1,000. A repeated item counts at its best rank.
        p: Of RBO, in (0, 1): the chance that a reader goes on to the next rank.
        columns: Role (experiment, user, item, position, score) -> column.
        rank_by: By ranks, or by score: the highest first, equal scores by descending item id.
        first_rank: What the column of ranks calls the first rank.
        max_invalid_fraction: Largest fraction of faulty rows, and of the rows down to rank k that repeat a rank.

    Returns:
        One row per (experiment_id, user_id) of the users who are in the baseline too, lazy like any DataFrame:
        baseline, experiment_id, user_id, n_items_baseline, n_items, n_common, same_top (1 if both top k are the same,
        in the same order, else 0), jaccard (common items over items of either), rbo (rank-biased overlap, extrapolated:
        Webber, Moffat and Zobel, TOIS 2010, equation 32), kendall (tau of the common items; null below two of them),
        unexpectedness (share of the n_items that are not among those of the baseline: Murakami et al., 2008).

    Raises:
        ConfigError: A wrong argument; an unknown baseline is refused when the rows are computed.
        InputError: A column is missing or has a wrong type; when the rows are computed: ranks seem to start at 0, or
            too many rows are faulty or repeat a rank of their user.
    """
    if baseline is None:
        raise cfg.refuse("baseline", baseline, "the experiment that the others are compared with")
    change = Change.of(locals())
    table, plan = frame.log_of_lists(impressions, columns, rank_by, first_rank)
    rows, is_scored = road.sound_rows(table, plan), plan.columns.by_score
    # By score, Python ranks whole lists: a window sorts and shuffles the log once more. Ties are ordered by the items.
    order = (sch.SCORE, sch.ITEM) if is_scored else (f"bigint({sch.POSITION}) AS {sch.POSITION}",)
    rows = rows if is_scored else rows.where(F.col(sch.POSITION) <= change.k)
    row = lay.entry(sch.EXPERIMENT, f"xxhash64({sch.ITEM}) AS {sch.HASH}", *order)
    lists = rows.groupBy(sch.USER).agg(F.expr(f"collect_list({row}) AS {sch.ENTRIES}"))
    allowed = frame.Allowed(change.max_invalid_fraction, plan.options.first_rank, change.baseline)
    lists = frame.sound_lists(lists, frame.log_counts(table, plan), allowed)
    return eng.result_table(frame.of_users(lists, COLUMNS, partial(_changes, change=change)))


def _changes(batch: pa.RecordBatch, change: Change) -> Iterator[dict[str, Any]]:
    """Compare the lists of each user of a batch with their list of the baseline."""
    user, values = lay.flat(batch.column(sch.ENTRIES))
    experiments, experiment = eng.coded(values.field(sch.EXPERIMENT))
    if change.baseline not in experiments:
        return
    arm = experiments.index(change.baseline)
    cell = user * len(experiments) + experiment
    has_rows = np.bincount(cell) > 0
    lists, of = np.flatnonzero(has_rows), (np.cumsum(has_rows) - 1)[cell]
    of, items = lay.top_items(lay.entries_of({sch.ENTRIES: batch.column(sch.ENTRIES)}), of, change.k)
    users, arms = np.divmod(lists, len(experiments))
    base_of = np.full(batch.num_rows, -1)
    base_of[users[arms == arm]] = np.flatnonzero(arms == arm)
    others = np.flatnonzero((arms != arm) & (base_of[users] >= 0))
    if len(others):
        counts, bases = np.bincount(of), base_of[users[others]]
        starts = np.cumsum(counts) - counts
        of_base, in_base = mx.spans(starts[bases], counts[bases])
        of_other, in_other = mx.spans(starts[others], counts[others])
        overlaps = mx.overlap(of_base, items[in_base], of_other, items[in_other], len(others))
        names = batch.column(sch.USER).take(pa.array(users[others]))
        arms_of = ([change.baseline] * len(others), [experiments[i] for i in arms[others]], names)
        sizes = (overlaps.n_a, overlaps.n_b, overlaps.common)
        measures = (mx.same_top, mx.jaccard, partial(mx.rbo, p=change.p), mx.kendall, mx.unexpectedness)
        values = (measure(overlaps) for measure in measures)
        yield dict(zip(COLUMNS, (*arms_of, *sizes, *values), strict=True))
