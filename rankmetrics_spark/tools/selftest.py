"""The self-test: every preset against the golden values of the system it is named after.

Most values were printed by the system. A line says how many were not: they come from its published formula or, for the
preset ``standard``, from the definition.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from rankmetrics_spark import engines as eng, layouts as lay, metrics as mx, schemas as sch
from rankmetrics_spark.tools.golden import PRINTED, Peer, Value, cases, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Maps (case, digest of the convention, metric) to a value.
Values = Mapping[tuple[str, str, str], float]


class Check(NamedTuple):
    """One line of the report.

    Attributes:
        preset: Name of the preset.
        n_values: Number of golden values that were checked.
        difference: The largest difference from a golden value.
        ok: Whether every difference is within the tolerance.
        changed: The conventions that reproduce a variant of the system: the preset with other knobs -> values.
        unprinted: Where the values come from that no system printed -> values.
    """

    preset: str
    n_values: int
    difference: float
    ok: bool
    changed: Mapping[str, int] = {}
    unprinted: Mapping[str, int] = {}

    def __str__(self) -> str:
        """The line: name, number of values, those of variants or not printed, largest difference, ok or FAILED."""
        verdict = "ok" if self.ok else "FAILED"
        some = [*self.changed.items(), *self.unprinted.items()]
        variants = ", ".join(f"{count} of them {name}" for name, count in some)
        return (
            f"{self.preset:<14}{self.n_values:>4} values   largest difference {self.difference:8.1e}   "
            f"{f'{variants}   ' if variants else ''}{verdict}"
        )


def golden_checks(results: Values) -> list[Check]:
    """Check each preset, in the order of ``PRESETS``; a missing value counts as a failure.

    >>> all(check.ok for check in golden_checks(by_kernels()))
    True
    """
    checks = []
    for preset in mx.PRESETS:
        golden = [value for value in values() if value.defect is None and value.convention.preset == preset]
        gaps = [_gap(value, results) for value in golden]
        within_tolerance = all(gap <= value.tolerance for gap, value in zip(gaps, golden, strict=True))
        variants = Counter(value.convention.name for value in golden if value.convention.name != preset)
        origins = Counter(value.origin for value in golden if value.origin != PRINTED)
        ok = bool(golden) and within_tolerance
        checks.append(Check(preset, len(golden), max(gaps, default=0.0), ok, variants, origins))
    return checks


def _gap(value: Value, results: Values) -> float:
    ours = results.get((value.case, value.convention.digest(), str(value.metric)), math.inf)
    if math.isnan(ours) or math.isnan(value.number):
        return 0.0 if math.isnan(ours) and math.isnan(value.number) else math.inf
    gap = abs(ours - value.number)
    # If the system prints five decimals, a value that rounds to the printed one counts as equal.
    return 0.0 if Peer.tolerance < value.tolerance and gap <= value.tolerance else gap


def by_kernels() -> dict[tuple[str, str, str], float]:
    """Compute every golden value without Spark, with the code that runs inside a Python worker."""
    scoring, names = _scoring(), list(cases())
    # The fixtures as columns of a batch: one array of structs per list, with item ids instead of hashes.
    lists = list(cases().values())
    pools = [sorted(((float(r["relevance"]), r["item"]) for r in case["judgments"]), reverse=True) for case in lists]

    def entry(r: Mapping[str, Any]) -> dict[str, Any]:
        """A shown item."""
        ids = {sch.HASH: r["item"], sch.ITEM: str(r["item"])}
        return {**ids, sch.POSITION: r["position"], sch.SCORE: float(r["score"])}

    entries = [list(map(entry, case["list"])) for case in lists]
    columns = {sch.N_ROWS: pa.array([len(case["list"]) for case in lists]), sch.ENTRIES: pa.array(entries)}
    for at, name in enumerate((sch.POOL_GRADE, sch.POOL_HASH)):
        columns[name] = pa.array([[judged[at] for judged in pool] for pool in pools])
    tables = lay.score_batch(columns, lay.LAYOUTS["rows"], scoring)
    return {
        (case, rule.digest(), str(metric)): float(table[metric.column][row])
        for rule, table in zip(scoring.conventions, tables, strict=True)
        for row, case in enumerate(names)
        for metric in scoring.metrics
    }


def by_spark(spark: "SparkSession") -> dict[tuple[str, str, str], float]:
    """Compute every golden value on the session's executors."""
    from rankmetrics_spark.config import Options
    from rankmetrics_spark.road import Tables

    scoring, data = _scoring(), cases().items()
    lists = [(case, str(r["item"]), r["position"], r["score"]) for case, of in data for r in of["list"]]
    pools = [(case, str(r["item"]), float(r["relevance"])) for case, of in data for r in of["judgments"]]
    impressions = spark.createDataFrame(lists, "user_id string, item_id string, position bigint, score double")
    judgements = spark.createDataFrame(pools, "user_id string, item_id string, relevance double")
    options = Options(metrics=scoring.metrics, rank_by="score", columns={"experiment": None}, judged=True)
    users = Tables.of(impressions, judgements, options, scoring.conventions).users
    return {
        (row[sch.USER], scoring.conventions[row[sch.CONVENTION_INDEX]].digest(), str(metric)): (
            math.nan if row[metric.column] is None else row[metric.column]
        )
        for row in eng.few_rows(users)
        for metric in scoring.metrics
    }


def _scoring() -> lay.Scoring:
    """All conventions and metrics of the golden tables; lists are ranked by score."""
    metrics = dict.fromkeys(value.metric for value in values())
    conventions: Iterable[mx.Convention] = dict.fromkeys(value.convention for value in values())
    return lay.Scoring(tuple(metrics), tuple(conventions), by_position=False, judged=True)
