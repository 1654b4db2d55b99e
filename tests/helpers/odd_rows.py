"""Odd rows, and what Spark computes of them: ``python -m tests.helpers.odd_rows`` prints the values again.

``filter_values.json`` holds a digest of the values of each expression, as Spark printed them. The other engine has to
give the same values, or to refuse the expression.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FAILS = "fails"
VALUES = Path(__file__).parents[1] / "spark" / "filter_values.json"
INF, NAN = float("inf"), float("nan")
SUNDAY, MONDAY = date(2026, 11, 22), date(2026, 11, 23)
TEXTS = [
    None, "", " ", "a", "ABC", "Straße", "été_1", "ΑΣ", "İstanbul", "ǆ", "日本語", "a b\tc", "  pad  ", "10", "-7.5",
    "1e3", "NaN", "Infinity", "true", "2026-11-22", "2024-02-29", "2026-11-20 23:59:59.5",
    "http://u:p@h.de:80/p/a?q=1&r=%20#f", '{"a":1,"b":[1,2]}', "[1,2]", "a,b,,c", "%", "a\\b", "x" * 300, "😀e\u0301",
    "0x10", "\u00a0", "A-B_c.D", "nine's", "a\nb", "a\n", "a\r", "1d", "YWJj", "ff", "a_b", "O'NEIL mc-donald", "٣",
]  # fmt: skip
PARTS = [None, "", "a", "b", "é", "A", " ", "x", "1", ",", "日", "%", "ß", ".", "s"]
DOUBLES = [
    None, NAN, INF, -INF, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1e300, -1e300, 1e-300, 1e-20, 123456789.125, 0.1,
    3.7, 2.0**53, 1e10, -7.0, 1.005, 2147483648.0,
]  # fmt: skip
INTS = [None, 0, 1, -1, 2, 7, -7, 2**31 - 1, -(2**31), 100, 3]
LONGS = [None, 0, 1, -1, 2**63 - 1, -(2**63), 10**12, -3, 1_795_219_200, 64]
DECIMALS = [None, "0.00", "1.25", "-1.25", "2.50", "99999999.99", "-0.50", "0.05", "3.50"]
DATES = [
    None, SUNDAY, MONDAY, date(2026, 11, 28), date(2024, 2, 29), date(1969, 12, 31), date(1970, 1, 1),
    date(2000, 12, 31), date(1900, 3, 1), date(2025, 12, 29), date(2021, 1, 3), date(2200, 12, 31),
    date(1700, 10, 10), date(2026, 1, 31),
]  # fmt: skip
TIMES = [
    None, "2026-11-22", "2026-11-22 23:59:59.999999", "2024-02-29 12:30:15.500000", "1969-12-31 23:59:59.250000",
    "1970-01-01", "2026-03-29 01:30:00", "2026-10-25 00:30:00", "1900-01-01", "2025-12-29 05:06:07.000008",
    "2026-11-20", "2026-11-20 00:00:00.000001",
]  # fmt: skip
ARRAYS = [None, [], [None], [1, 2, 2], [3, None, 1], [-1], [7, 1, 2]]
WORDS = [None, [], [None], ["a", "b", "a"], ["é", None, ""], ["B", "a"]]
MAPS = [None, [], [("a", 1)], [("b", None), ("a", 2)], [("", 3)]]
STRUCTS = [None, {"x": 1, "y": "a"}, {"x": None, "y": ""}, {"x": -1, "y": None}]
COLUMNS: Mapping[str, tuple[list[Any], pa.DataType]] = {
    "s": (TEXTS, pa.string()),
    "t": (PARTS, pa.string()),
    "d": (DOUBLES, pa.float64()),
    "f": (DOUBLES, pa.float32()),
    "n": (INTS, pa.int32()),
    "b": (LONGS, pa.int64()),
    "k": ([n and max(-32768, min(32767, n)) for n in INTS], pa.int16()),
    "dec": ([n and Decimal(n) for n in DECIMALS], pa.decimal128(10, 2)),
    "dt": (DATES, pa.date32()),
    "ts": ([n and datetime.fromisoformat(n).replace(tzinfo=timezone.utc) for n in TIMES], pa.timestamp("us", "UTC")),
    "flag": ([None, True, False], pa.bool_()),
    "bin": ([None, b"", b"abc", b"\xff\x00"], pa.binary()),
    "arr": (ARRAYS, pa.list_(pa.int32())),
    "words": (WORDS, pa.list_(pa.string())),
    "m": (MAPS, pa.map_(pa.string(), pa.int32())),
    "st": (STRUCTS, pa.struct([("x", pa.int32()), ("y", pa.string())])),
}
"""Column -> its values, which are repeated until the table is full, and its type."""
N_ROWS = len(TEXTS)
TYPES = {
    "id": "int", "s": "string", "t": "string", "d": "double", "f": "float", "n": "int", "b": "bigint", "k": "smallint",
    "dec": "decimal(10,2)", "dt": "date", "ts": "timestamp", "flag": "boolean", "bin": "binary", "arr": "array<int>",
    "words": "array<string>", "m": "map<string,int>", "st": "struct<x:int,y:string>",
}  # fmt: skip
"""The columns as Spark writes their types."""


def odd_rows() -> pa.Table:
    """A row for each text, with a value of every other column beside it."""
    columns = {"id": pa.array(range(N_ROWS), pa.int32())}
    for name, (values, kind) in COLUMNS.items():
        columns[name] = pa.array([values[row % len(values)] for row in range(N_ROWS)], kind)
    return pa.table(columns)


def expressions() -> dict[str, str]:
    """Expression -> digest of its values on Spark."""
    result: dict[str, str] = json.loads(VALUES.read_text(encoding="utf-8"))["values"]
    return result


def digests(rows: "DataFrame", sql: Mapping[str, str]) -> dict[str, str]:
    """Expression -> digest of its values, one query for sixteen of them; ``sql`` has what the engine is given."""
    names, result = [*sql], dict[str, str]()
    for start in range(0, len(names), 16):
        batch = names[start : start + 16]
        try:
            result |= _batch(rows, {name: sql[name] for name in batch})
        except Exception:  # the classes of the engines have no root of their own
            result |= {name: _alone(rows, name, sql[name]) for name in batch}
    return result


def _batch(rows: "DataFrame", sql: Mapping[str, str]) -> dict[str, str]:
    from pyspark.sql import functions as F

    columns = [F.expr(text).alias(f"c{at}") for at, text in enumerate(sql.values())]
    answer = sorted(rows.select("id", *columns).collect(), key=lambda row: row[0])
    return {name: digest(row[at + 1] for row in answer) for at, name in enumerate(sql)}


def _alone(rows: "DataFrame", name: str, text: str) -> str:
    try:
        return _batch(rows, {name: text})[name]
    except Exception:
        return FAILS


def digest(values: Iterable[Any]) -> str:
    """A short text for a column of values; whole doubles are like whole numbers, and -0.0 is 0."""
    return hashlib.sha256(repr([_plain(value) for value in values]).encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, (float, Decimal)):
        number = float(value)
        return int(number) if number == number and abs(number) < 1e15 and number == int(number) else number.hex()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in sorted(value.items())}
    return str(value) if isinstance(value, (date, datetime, timedelta)) else bytes(value).hex()


if __name__ == "__main__":
    import tempfile

    import pyarrow.parquet as pq

    from rankmetrics_spark.engines.spark import local_session

    spark = local_session("local[1]", conf={"spark.sql.codegen.wholeStage": "false"})
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(odd_rows(), f"{folder}/odd.parquet")
        printed = digests(spark.read.parquet(folder), {name: name for name in expressions()})
    document = {"spark": spark.version, "values": {name: value for name, value in printed.items() if value != FAILS}}
    VALUES.write_text(json.dumps(document, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    spark.stop()
