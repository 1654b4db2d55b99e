"""Filters over odd rows: each engine keeps the rows that Spark keeps, or refuses the filter in one sentence."""

import json
import math

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark.config import Source, condition
from rankmetrics_spark.engines import engine_of
from rankmetrics_spark.sources import on_sail, read
from tests.helpers.odd_rows import DATES, DOUBLES, N_ROWS, TEXTS, TYPES, VALUES, digests, expressions, odd_rows


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("odd")
    pq.write_table(odd_rows(), folder / "odd.parquet")
    return str(folder)


def kept(spark: SparkSession, log: str, where: str) -> list[int]:
    rows: DataFrame = read(spark, Source(path=log, where=where))
    return sorted(row[0] for row in rows.select("id").collect())


def test_every_expression_has_the_values_that_spark_prints(spark: SparkSession, log: str) -> None:
    known = expressions()
    sail = engine_of(spark) == "sail"
    if not sail and spark.version != json.loads(VALUES.read_text(encoding="utf-8"))["spark"]:
        pytest.skip("another version of Spark printed the values")
    sql = {name: on_sail.filter_on_sail("source.where", name, TYPES) if sail else name for name in known}
    result = digests(spark.read.parquet(log), sql)
    assert {name: sql[name] for name in known if result[name] != known[name]} == {}


def texts(condition: str) -> list[int]:
    return [at for at, text in enumerate(TEXTS) if text is not None and eval(condition, {}, {"text": text})]


def doubles(condition: str) -> list[int]:
    values = [DOUBLES[at % len(DOUBLES)] for at in range(N_ROWS)]
    return [at for at, x in enumerate(values) if eval(condition, {"math": math}, {"x": x})]


def days(weekday: int) -> list[int]:
    return [at for at in range(N_ROWS) if (day := DATES[at % len(DATES)]) and day.weekday() == weekday]


@pytest.mark.parametrize(
    "where",
    [
        " or ".join(["id = 1"] * 400),
        " and ".join(["id between 1 and 1"] * 400),
        "(id = 1 or " * 29 + "id = 1" + ")" * 29 + " or id = 1" * 370,
        "case " + "when id = 1 then true " * 399 + "end",
        f"cast(id as string) in ({', '.join(['1', *(repr(str(-at)) for at in range(20_000))])}) and id = 1",
        "(" * 30 + "id" + ")" * 30 + " = 1",
        "not " * 30 + "id = 1",
        "id = " + "- " * 30 + "1",
        "lower(" * 30 + "'A'" + ")" * 30 + " = 'a' and id = 1",
        "coalesce(" * 8 + "id" + ", id)" * 8 + " = 1",
        "case when id = 1 then " * 8 + "true" + " end" * 8,
        f"length(replace(replace('a', 'a', '{'a' * 98}'), 'a', '{'a' * 98}')) = {98 * 98} and id = 1",
    ],
    ids=lambda where: where[:20],
)
def test_the_largest_filters_that_are_allowed_run(where: str, spark: SparkSession, log: str) -> None:
    # The next larger ones are refused: tests/unit/test_safety.py.
    assert kept(spark, log, condition("source.where", where)) == [1]


# The other side of each line is plain Python over the same values.
TRUTHS = [
    ("dayofweek(dt) = 1", days(6)),
    ("weekofyear(dt) = 53", [at for at in range(N_ROWS) if DATES[at % len(DATES)] == DATES[10]]),
    ("isnan(d)", doubles("x is not None and math.isnan(x)")),
    ("not isnan(d)", doubles("x is None or not math.isnan(x)")),
    ("d > 0.0", doubles("x is not None and (math.isnan(x) or x > 0)")),
    ("d = 0.1", doubles("x == 0.1")),
    ("d in (0.5, 1.5)", doubles("x in (0.5, 1.5)")),
    ("s like 'a_%'", texts("text[:1] == 'a' and len(text) > 1")),
]


@pytest.mark.parametrize(("where", "expected"), TRUTHS)
@pytest.mark.outcome("filters with {where}", "the same rows on both engines")
def test_a_filter_keeps_what_arithmetic_keeps(spark: SparkSession, log: str, where: str, expected: list[int]) -> None:
    assert expected
    assert kept(spark, log, where) == expected
