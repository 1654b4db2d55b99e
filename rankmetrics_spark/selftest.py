"""Whether this build gives what the named systems returned: every preset against its golden values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rankmetrics_spark.batch import Arrays
from rankmetrics_spark.conventions import PRESETS, Convention
from rankmetrics_spark.golden import Peer, Value, cases, values
from rankmetrics_spark.many import Many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = Mapping[tuple[str, str, str], float]
"""(case, digest of the convention, metric) to value."""


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        preset: Its name.
        n_values: Golden values that were checked.
        difference: The largest difference from one of them.
        ok: Whether all of them were met.
    """

    preset: str
    n_values: int
    difference: float
    ok: bool

    def __str__(self) -> str:
        """The line: name, number of values, largest difference, ok or FAILED."""
        verdict = "ok" if self.ok else "FAILED"
        return f"{self.preset:<14}{self.n_values:>4} values   largest difference {self.difference:8.1e}   {verdict}"


def checks(found: Found) -> list[Check]:
    """A line for each preset, in their order; a value that is missing has failed.

    >>> all(check.ok for check in checks(by_kernels()))
    True
    """
    sound = [value for value in values() if value.defect is None]
    return [_check(name, [v for v in sound if v.convention.preset == name], found) for name in PRESETS]


def _check(preset: str, golden: list[Value], found: Found) -> Check:
    gaps = [_gap(value, found) for value in golden]
    met = all(gap <= value.tolerance for gap, value in zip(gaps, golden, strict=True))
    return Check(preset, len(golden), max(gaps, default=0.0), bool(golden) and met)


def _gap(value: Value, found: Found) -> float:
    ours = found.get((value.case, value.convention.digest(), str(value.metric)), math.inf)
    if math.isnan(ours) or math.isnan(value.number):
        return 0.0 if math.isnan(ours) and math.isnan(value.number) else math.inf
    gap = abs(ours - value.number)
    # A value that its system prints with five decimals is met by whatever rounds to it.
    return 0.0 if Peer.tolerance < value.tolerance and gap <= value.tolerance else gap


def by_kernels() -> dict[tuple[str, str, str], float]:
    """Every golden value computed without Spark, on the path that a batch takes inside the worker."""
    many, names = _many(), list(cases())
    found = many.values(_columns(cases().values()))["value"]
    return {
        (case, rule.digest(), str(metric)): float(found[row, i * len(many.metrics) + j])
        for row, case in enumerate(names)
        for i, rule in enumerate(many.conventions)
        for j, metric in enumerate(many.metrics)
    }


def by_spark(spark: SparkSession) -> dict[tuple[str, str, str], float]:
    """Every golden value computed by the session's executors."""
    from rankmetrics_spark.options import Options
    from rankmetrics_spark.schemas import METRIC, SCORE, USER
    from rankmetrics_spark.side_by_side import SideBySide

    many = _many()
    shown = [(case, str(r["item"]), r["position"], r["score"]) for case, data in cases().items() for r in data["list"]]
    judged = [
        (case, str(r["item"]), float(r["relevance"])) for case, data in cases().items() for r in data["judgments"]
    ]
    impressions = spark.createDataFrame(shown, "user_id string, item_id string, position bigint, score double")
    judgements = spark.createDataFrame(judged, "user_id string, item_id string, relevance double")
    options = Options(many.metrics, rank_by=SCORE, columns={"experiment": None})
    cells = SideBySide(impressions, judgements, options, many.conventions).cells()
    return {
        (row[USER], many.conventions[row["place"]].digest(), str(many.metrics[row[METRIC]])): (
            math.nan if row["value"] is None else row["value"]
        )
        for row in cells.toLocalIterator()
    }


def _many() -> Many:
    """All conventions and metrics of the golden tables, by score."""
    metrics = dict.fromkeys(value.metric for value in values())
    conventions: Iterable[Convention] = dict.fromkeys(value.convention for value in values())
    return Many(tuple(metrics), tuple(conventions), by_position=False)


def _columns(data: Iterable[Mapping[str, Any]]) -> Arrays:
    """The fixtures as a batch holds them: an array of structs per list, the items' names standing for their hashes."""
    lists = list(data)
    pools = [sorted(((float(r["relevance"]), r["item"]) for r in one["judgments"]), reverse=True) for one in lists]
    shown = [
        [
            {"hash": r["item"], "item_id": str(r["item"]), "position": r["position"], "score": float(r["score"])}
            for r in one["list"]
        ]
        for one in lists
    ]
    return {
        "entries": pa.array(shown),
        "pool_grade": pa.array([[grade for grade, _ in pool] for pool in pools]),
        "pool_hash": pa.array([[item for _, item in pool] for pool in pools]),
    }
