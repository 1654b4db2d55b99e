"""The same impressions under every convention, out of one pass: the rows are read, shuffled and handed over once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rankmetrics_spark import ranking
from rankmetrics_spark.conventions import PRESETS, Convention, resolve
from rankmetrics_spark.many import Many, differences, with_tie_bounds
from rankmetrics_spark.metrics import check
from rankmetrics_spark.options import Options
from rankmetrics_spark.pipeline import Evaluation
from rankmetrics_spark.schemas import (
    CONVENTION,
    ENTRIES,
    EXPERIMENT,
    METRIC,
    N_RELEVANT,
    N_ROWS,
    REJECTED,
    USER,
    quoted,
)
from rankmetrics_spark.sums import SUMS, exact_mean, exact_sums, mean_of
from rankmetrics_spark.vectorized import carried, step

SHOWN, JUDGED = "is_shown", "is_judged"
NOWHERE = -1


class SideBySide:
    """A planned comparison of conventions; lazy, and as good on Spark Connect as on a classic session.

    Attributes:
        conventions: In the order of the table.
    """

    def __init__(
        self,
        impressions: DataFrame,
        judgements: DataFrame | None = None,
        options: Options | None = None,
        conventions: Sequence[Convention] | None = None,
    ) -> None:
        """Checks the arguments against the schema of the input, and plans.

        Args:
            impressions: As in ``evaluate``.
            judgements: As in ``evaluate``.
            options: As in ``evaluate``; its convention is one of the rows if it is no preset.
            conventions: The rows of the table; every preset, and by score the bounds that ties leave open, by default.
        """
        options = options or Options()
        own = resolve(options.convention)
        # A rank column settles ties for those conventions that want it; nobody is dropped before his convention is.
        reading = Convention(ties="position", population="either", preset="side_by_side")
        self._work = Evaluation.of(impressions, judgements, replace(options, convention=reading, form="rows"))
        by_position = self._work.scoring.by_position
        rows = [*PRESETS.values(), *([own] if own.preset not in PRESETS or own != PRESETS[own.preset] else [])]
        self.conventions = with_tie_bounds(rows, by_position) if conventions is None else tuple(conventions)
        for rule in self.conventions:
            check(self._work.scoring.metrics, rule)
        self._many = Many(self._work.scoring.metrics, self.conventions, by_position, self._work.scoring.items_matter)
        self._first = ranking.together(ranking.lists(self._work.rows, self._work.columns, "rows", True))

    def lists(self) -> DataFrame:
        """One row per list, and per judged user without a list: keys, and arrays as ``Many.values`` has them."""
        work, first = self._work, self._first
        sound = first.where(F.col(REJECTED).isNull()).select(*map(quoted, work.columns.keys), N_ROWS, ENTRIES)
        lists = sound.withColumn(SHOWN, F.lit(True))
        if work.pools is None:
            return self._scored(lists.withColumn(JUDGED, F.lit(True)))
        pools = work.pools.withColumn(JUDGED, F.lit(True))
        lists = lists.join(pools, USER, "left")
        there = first.where(F.col(REJECTED).isNull()).select(EXPERIMENT, USER, N_ROWS).distinct()
        unseen = pools.crossJoin(F.broadcast(there.select(EXPERIMENT).distinct())).join(
            there, [EXPERIMENT, USER], "left_anti"
        )
        return self._scored(lists.unionByName(unseen.withColumn(SHOWN, F.lit(False)), allowMissingColumns=True))

    def _scored(self, lists: DataFrame) -> DataFrame:
        keys = dict.fromkeys(self._work.columns.keys, T.StringType())
        kept = keys | dict.fromkeys((SHOWN, JUDGED), T.BooleanType())
        pools = ["pool_grade", "pool_hash"] if self._work.pools is not None else []
        return step(self._many.values, kept, _SCHEMA).of(lists.selectExpr(*carried(kept), ENTRIES, *pools))

    def cells(self) -> DataFrame:
        """One row per (experiment, user, convention, metric) of the convention's population."""
        n, keys = len(self._many.metrics), [*map(quoted, self._work.columns.keys)]
        members = F.array(*(_member(rule.population) for rule in self.conventions))
        every: list[str | Column] = [SHOWN, members.alias("members"), N_RELEVANT, "n_dropped"]
        long = self.lists().select(*keys, *every, F.posexplode("value").alias("at", "value"))
        place = F.expr(f"int(at div {n})")
        cells = long.select(
            *keys,
            SHOWN,
            place.alias("place"),
            F.expr(f"int(at % {n})").alias(METRIC),
            "value",
            *(F.col(name)[place].alias(name) for name in (N_RELEVANT, "n_dropped")),
            F.col("members")[place].alias("member"),
        )
        return self._per_user(cells.where("member"))

    def _per_user(self, cells: DataFrame) -> DataFrame:
        keys = [EXPERIMENT, USER, "place", METRIC]
        if not self._work.columns.list:
            return cells.select(*keys, SHOWN, "value", N_RELEVANT, "n_dropped")
        relevant = F.max(N_RELEVANT) if self._work.pools is not None else F.sum(N_RELEVANT)
        return cells.groupBy(*keys).agg(
            F.max(SHOWN).alias(SHOWN),
            exact_mean("value").alias("value"),
            relevant.alias(N_RELEVANT),
            F.sum("n_dropped").alias("n_dropped"),
        )

    def means(self) -> DataFrame:
        """One small row per (experiment, convention, metric), both as numbers; ``rows`` makes a table of them.

        The rows that were left out because of a fault of their own are counted under the place ``NOWHERE``.
        """
        users = F.col("value").isNotNull()
        means = (
            self.cells()
            .groupBy(EXPERIMENT, "place", METRIC)
            .agg(
                *exact_sums("value"),
                F.count("value").alias("n_users"),
                F.count(F.when(users & (F.col(N_RELEVANT) > 0), 1)).alias("n_users_with_relevant"),
                F.count(F.when(users & ~F.col(SHOWN), 1)).alias("n_users_without_list"),
                F.sum("n_dropped").alias("n_dropped"),
            )
        )
        faulty = self._first.where(F.col(REJECTED).isNotNull()).groupBy(EXPERIMENT).agg(F.sum(N_ROWS).alias(N_ROWS))
        return means.unionByName(faulty.withColumn("place", F.lit(NOWHERE)), allowMissingColumns=True)

    def rows(self) -> list[dict[str, Any]]:
        """The table: a row per (experiment, convention) with a mean per metric; starts the one job."""
        found: dict[tuple[Any, int], dict[str, Any]] = {}
        faulty: dict[Any, int] = {}
        for row in self.means().toLocalIterator():
            if row["place"] == NOWHERE:
                faulty[row[EXPERIMENT]] = row[N_ROWS]
            else:
                cells = found.setdefault((row[EXPERIMENT], row["place"]), {})
                # Divided here, and not by Spark: evaluate() rounds a mean once, too.
                mean = mean_of([row[name] for name in SUMS], row["n_users"]) if row["n_users"] else None
                cells[str(self._many.metrics[row[METRIC]])] = row.asDict() | {"mean": mean}
        experiments = sorted({*faulty, *(name for name, _ in found)}, key=lambda name: (name is not None, name))
        return [
            self._row(name, place, found.get((name, place), {}), faulty.get(name, 0))
            for name in experiments
            for place in range(len(self.conventions))
        ]

    def _row(self, experiment: Any, place: int, cells: dict[str, dict[str, Any]], faulty: int) -> dict[str, Any]:
        rule = self.conventions[place]
        counts = max(cells.values(), key=lambda cell: int(cell["n_users"]), default=_NOBODY)
        refused = counts["n_dropped"] if rule.duplicates == "refuse" else 0
        note = differences(rule, self._many.by_position, self._work.pools is not None)
        names = [str(metric) for metric in self._many.metrics]
        return {
            EXPERIMENT: experiment,
            CONVENTION: rule.name,
            **{name: counts[name] for name in ("n_users", "n_users_with_relevant", "n_users_without_list")},
            "n_faulty_rows": faulty,
            **{name: None if refused or name not in cells else cells[name]["mean"] for name in names},
            "differs": f"refuses {refused} repeated rows; {note}" if refused else note,
        }


_NOBODY = dict.fromkeys(("n_users", "n_users_with_relevant", "n_users_without_list", "n_dropped"), 0)
_SCHEMA = T.StructType(
    [
        T.StructField("value", T.ArrayType(T.DoubleType())),
        T.StructField(N_RELEVANT, T.ArrayType(T.LongType())),
        T.StructField("n_dropped", T.ArrayType(T.LongType())),
    ]
)


def _member(population: str) -> Column:
    """Whether a list, or a judged user without one, belongs to a population."""
    shown, judged = F.col(SHOWN), F.coalesce(F.col(JUDGED), F.lit(False))
    return {"shown": shown, "judged": judged, "both": shown & judged, "either": shown | judged}[population]
