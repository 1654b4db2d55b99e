"""``user_metrics`` as a comparison reads it: the rows of each user together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark.comparison.batches import BEFORE, HASHES
from rankmetrics_spark.engines import in_order
from rankmetrics_spark.errors import ConfigError, InputError, unknown
from rankmetrics_spark.metrics import Metric, metric_of_column, parse
from rankmetrics_spark.schemas import EXPERIMENT, N_RELEVANT, USER, quoted


@dataclass(frozen=True)
class UserTable:
    """``user_metrics`` and what is read of it.

    Attributes:
        rows: One row per (experiment_id, user_id).
        metrics: Each has a column.
        segments: How a segment is called -> its column.
        before: ``user_metrics`` of an earlier date, or None.
        combinations: Indices of segments that split the users together.
    """

    rows: DataFrame
    metrics: tuple[Metric, ...]
    segments: Mapping[str, str]
    before: DataFrame | None = None
    combinations: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        metrics: str | Sequence[str | Metric] | None = None,
        segments: Mapping[str, str] | None = None,
        before: DataFrame | None = None,
    ) -> UserTable:
        """A table with the metrics asked for, or with all that it has.

        Raises:
            ConfigError: A metric has no column.
            InputError: A column of the users or of a segment is missing.
        """
        there = rows.columns
        for name in (EXPERIMENT, USER, N_RELEVANT, *(segments or {}).values()):
            if name not in there:
                raise InputError(f"user_metrics has no column {name}: {unknown('column', name, there)}")
        chosen = _chosen(metrics) if metrics is not None else _metrics_in(there, segments or {})
        for metric in chosen:
            if metric.column not in there:
                raise ConfigError(f"metrics: user_metrics has no column for {metric}: "
                                  f"{unknown('column', metric.column, there)}")  # fmt: skip
        if before is not None:
            _check_earlier(before.columns, chosen)
        return cls(rows, chosen, segments or {}, before)


def _chosen(metrics: str | Sequence[str | Metric]) -> tuple[Metric, ...]:
    items = metrics.split(",") if isinstance(metrics, str) else metrics
    found = tuple(item if isinstance(item, Metric) else parse(item.strip()) for item in items)
    if not found:
        raise ConfigError("metrics is an empty list; allowed: metrics such as ap@10, or None for all")
    return tuple(dict.fromkeys(found))


def _check_earlier(columns: Sequence[str], metrics: Sequence[Metric]) -> None:
    """Refuse a table of an earlier date that has no users, or none of the metrics."""
    if USER not in columns:
        raise InputError(
            f"the user_metrics of the earlier date have no column {USER}: {unknown('column', USER, columns)}"
        )
    if not {metric.column for metric in metrics} & set(columns):
        wanted = ", ".join(metric.column for metric in metrics)
        raise InputError(f"the user_metrics of the earlier date have none of the columns {wanted}")


def _metrics_in(columns: Iterable[str], segments: Mapping[str, str]) -> tuple[Metric, ...]:
    """The metrics whose columns are there, in their order."""
    found = []
    for name in columns:
        metric = None if name in segments.values() else metric_of_column(name)
        if metric is not None:
            found.append(metric)
    if not found:
        raise ConfigError("metrics: user_metrics has no column of a known metric; allowed: such as ap_at_10")
    return tuple(found)


def by_user(table: UserTable) -> DataFrame:
    """The rows of each user together in one partition, one after the other."""
    hashes = (f"xxhash64({USER}) AS {HASHES[0]}", f"xxhash64({USER}, 1) AS {HASHES[1]}")
    labels = (f"string({quoted(column)}) AS _segment_{i}" for i, column in enumerate(table.segments.values()))
    values = (metric.column for metric in table.metrics)
    # Read back without a schema, Spark takes the folders of some experiments for numbers.
    experiment = f"string({EXPERIMENT}) AS {EXPERIMENT}"
    rows = table.rows.selectExpr(*hashes, experiment, f"{N_RELEVANT} > 0 AS _relevant", *labels, *values)
    if table.before is not None:
        rows = rows.join(_earlier(table), list(HASHES), "left")
    return in_order(rows, [HASHES[0]], HASHES)


def _earlier(table: UserTable) -> DataFrame:
    """One row per user: the mean of what they had in the experiments of the earlier date."""
    assert table.before is not None
    hashes = (f"xxhash64({USER}) AS {HASHES[0]}", f"xxhash64({USER}, 1) AS {HASHES[1]}")
    there = {metric.column for metric in table.metrics} & set(table.before.columns)
    # Added in the order of their size, so that the order of a user's experiments changes no bit.
    values = (f"aggregate(array_sort(collect_list({name})), 0D, (added, value) -> added + value) / "
              f"nullif(count({name}), 0) AS {BEFORE}{name}" for name in sorted(there))  # fmt: skip
    return table.before.selectExpr(*hashes, *sorted(there)).groupBy(*HASHES).agg(*map(F.expr, values))
