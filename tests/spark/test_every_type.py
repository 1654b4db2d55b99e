"""Every type of Arrow as an id, a relevance and a rank: the same outcome on every engine."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, engines as eng, job
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.road import Tables
from tests.helpers.logs import DATE

pytestmark = pytest.mark.slow
DAYS = [date(2026, 11, 20), date(2026, 11, 21)]
TIMES = [datetime(2026, 11, 20, 1, 2, 3, 500_000), datetime(2026, 11, 21)]
UUIDS: list[str | None] = [str(UUID(bytes=bytes(range(16)))), str(UUID(int=2**128 - 1))]
TIME_TEXTS = ["2026-11-20 01:02:03.5", "2026-11-21 00:00:00"]


class Case(NamedTuple):
    """Two values of a type, as ids and as numbers; None where it is refused. ``only``: no other engine reads it."""

    values: pa.Array
    ids: list[str | None] | None
    numbers: list[float | None] | None
    only: str | None = None

    def on(self, spark: SparkSession) -> "Case":
        return self if self.only in (None, eng.engine_of(spark)) else Case(self.values, None, None)


def decimals(kind: pa.DataType) -> pa.Array:
    return pa.array([Decimal("1"), Decimal("2.5")], kind)


WHOLE = {f"{sign}int{bits}": pa.array([1, 2], f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
CASES = {
    **{name: Case(values, ["1", "2"], [1, 2]) for name, values in WHOLE.items()},
    "float32": Case(pa.array([1, 2], pa.float32()), ["1.0", "2.0"], [1, 2]),
    "float64": Case(pa.array([1.0, 2.0]), ["1.0", "2.0"], [1, 2]),
    "fractions of 32 bits": Case(pa.array([0.5, 2.25], pa.float32()), ["0.5", "2.25"], [0.5, 2.25]),
    "bool": Case(pa.array([True, False]), ["true", "false"], [1, 0]),
    "decimal": Case(decimals(pa.decimal128(10, 2)), ["1.00", "2.50"], [1, 2.5]),
    "wide decimal": Case(decimals(pa.decimal128(38, 3)), ["1.000", "2.500"], [1, 2.5]),
    "decimal of 256 bits": Case(decimals(pa.decimal256(40, 2)), ["1.00", "2.50"], [1, 2.5], only="sail"),
    "string": Case(pa.array(["1", "2"]), ["1", "2"], None),
    "large string": Case(pa.array(["1", "2"], pa.large_string()), ["1", "2"], None),
    "blanks": Case(pa.array([" 1", "1 "]), [" 1", "1 "], None),
    "dictionary": Case(pa.array(["1", "2"]).dictionary_encode(), ["1", "2"], None),
    "dictionary of numbers": Case(pa.array([1, 2]).dictionary_encode(), ["1", "2"], [1, 2]),
    "date32": Case(pa.array(DAYS), ["2026-11-20", "2026-11-21"], None),
    "date64": Case(pa.array(DAYS, pa.date64()), ["2026-11-20", "2026-11-21"], None),
    "time of UTC": Case(pa.array(TIMES, pa.timestamp("us", "UTC")), TIME_TEXTS, None),
    "time without a zone": Case(pa.array(TIMES, pa.timestamp("us")), TIME_TEXTS, None),
    "time in milliseconds": Case(pa.array(TIMES, pa.timestamp("ms")), TIME_TEXTS, None),
    "time in nanoseconds": Case(pa.array(TIMES, pa.timestamp("ns")), TIME_TEXTS, None, only="sail"),
    "time of a day": Case(pa.array([time(1), time(2)], pa.time64("us")), None, None),
    "binary": Case(pa.array([b"1", b"\xfe\n"]), ["31", "fe0a"], None),
    "UUIDs": Case(pa.array([bytes(range(16)), b"\xff" * 16], pa.binary(16)), UUIDS, None),
    "list": Case(pa.array([[1], [2]]), None, None),
    "struct": Case(pa.array([{"a": 1}, {"a": 2}]), None, None),
    "map": Case(pa.array([[("a", 1)], [("b", 2)]], pa.map_(pa.string(), pa.int64())), None, None),
    "null": Case(pa.nulls(2), [None, None], [None, None]),
    "strings with null": Case(pa.array([None, "1"]), [None, "1"], None),
    "numbers with null": Case(pa.array([None, 1]), [None, "1"], [None, 1]),
}
every_type = pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
LOG: dict[str, list[Any]] = {
    "experiment_id": ["a", "a"],
    "user_id": ["u", "v"],
    "item_id": ["x", "y"],
    "position": [1, 1],
    "relevance": [1, 2],
}


def tables(spark: SparkSession, folder: Path, case: Case, *roles: str, **more: Any) -> Tables:
    """A log whose columns of these roles hold the values, as a run reads it."""
    columns = {name: pa.array(values) for name, values in (LOG | more).items()} | dict.fromkeys(roles, case.values)
    pq.write_table(pa.table(columns), folder / "log.parquet", version="2.6")
    source: dict[str, Any] = {"path": str(folder / "log.parquet")}
    if "country" in roles:
        source["segments"] = ["country"]
    config = cfg.from_mapping({"metrics": ["cg@1"], "evaluation_date": DATE, "source": source})
    return Tables.of(*job.inputs(spark, config), config.options)


def grades(result: Tables) -> dict[str, float]:
    """User -> the relevance at rank 1."""
    return {row["user_id"]: row["cg_at_1"] for row in result.user_metrics.collect()}


def reasons(result: Tables) -> list[str]:
    return sorted(row["reason"] for row in result.quarantine.collect())


@every_type
def test_as_a_user_an_item_and_a_segment(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    case = case.on(spark)
    if case.ids is None:
        for role in ("user_id", "item_id", "country"):
            with pytest.raises(InputError):
                tables(spark, tmp_path, case, role).user_metrics.collect()
        return
    result = tables(spark, tmp_path, case, "user_id", "item_id", "country")
    known = {text: grade for text, grade in zip(case.ids, LOG["relevance"], strict=True) if text is not None}
    assert grades(result) == known
    assert reasons(result) == ["null_user"] * case.ids.count(None)
    means = {row["segment"]: row["mean"] for row in result.experiment_metrics.collect() if row["segment"] != "all"}
    assert means == {f"country={text}": grade for text, grade in known.items()}


@every_type
def test_as_a_relevance(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    case = case.on(spark)
    if case.numbers is None:
        with pytest.raises(InputError):
            tables(spark, tmp_path, case, "relevance").user_metrics.collect()
        return
    result = tables(spark, tmp_path, case, "relevance")
    assert grades(result) == {u: grade for u, grade in zip("uv", case.numbers, strict=True) if grade is not None}
    assert reasons(result) == ["null_relevance"] * case.numbers.count(None)


@every_type
def test_as_a_rank(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    case = case.on(spark)
    if case.numbers is None or pa.types.is_boolean(case.values.type):
        with pytest.raises(InputError):
            tables(spark, tmp_path, case, "position").user_metrics.collect()
        return
    result = tables(spark, tmp_path, case, "position", relevance=[3, 4])
    # Users whose only item has another rank than 1 have nothing at rank 1.
    faults = {None: "null_position"} | dict.fromkeys([0.5, 2.25, 2.5], "fractional_position")
    found = dict(zip("uv", case.numbers, strict=True))
    expected = {user: {1: grade, 2: 0}[rank] for (user, rank), grade in zip(found.items(), [3, 4], strict=True)
                if rank not in faults}  # fmt: skip
    assert grades(result) == expected
    assert reasons(result) == sorted(faults[rank] for rank in case.numbers if rank in faults)


def test_a_number_of_64_bits_without_a_sign_is_an_id_and_no_rank(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(pa.array([1, 2**63], pa.uint64()), None, None)
    assert grades(tables(spark, tmp_path, case, "user_id")) == {"1": 1, str(2**63): 2}
    assert reasons(tables(spark, tmp_path, case, "position")) == ["position_too_large"]


def test_a_duration_is_read_by_spark_as_a_number_and_refused_by_sail(spark: SparkSession, tmp_path: Path) -> None:
    case = Case(pa.array([timedelta(microseconds=1), timedelta(microseconds=2)]), ["1", "2"], None)
    if eng.engine_of(spark) == "spark":
        assert grades(tables(spark, tmp_path, case, "user_id")) == {"1": 1, "2": 2}
    else:
        with pytest.raises(InputError, match="type interval"):
            tables(spark, tmp_path, case, "user_id")
