"""Small impression logs, their configs and files, and a slow, obvious evaluation of a log."""

import csv
import json
import math
import random
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from rankmetrics_spark.config import Config, from_mapping
from rankmetrics_spark.metrics import Convention, parse
from tests.oracles import One, by_definition, m

DATE = "2026-11-20"
SCHEMA = "experiment_id string, user_id string, item_id string, position bigint, relevance bigint"


class Shown(NamedTuple):
    """One impression."""

    experiment_id: str | None
    user_id: str | None
    item_id: str | None
    position: int | None
    relevance: int | None


def a_list(grades: Sequence[int | None], user: str = "u", experiment: str = "a") -> list[Shown]:
    """One list of distinct items with the given grades, at the ranks 1, 2, ..."""
    return [Shown(experiment, user, f"i{rank}", rank, grade) for rank, grade in enumerate(grades, start=1)]


def impressions(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame([tuple(row) for row in rows], schema)


def judgements(spark: SparkSession, rows: Iterable[Sequence[Any]]) -> DataFrame:
    typed = [(user, item, None if grade is None else float(grade)) for user, item, grade in rows]
    return spark.createDataFrame(typed, "user_id string, item_id string, relevance double")


def csv_file(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the rows as a CSV file with a header and return its path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return str(path)


def parquet(path: Path, rows: Iterable[Shown]) -> Path:
    """Write the rows as one Parquet file into the folder ``path`` and return the folder."""
    path.mkdir(parents=True, exist_ok=True)
    types = dict.fromkeys(Shown._fields, pa.string()) | {"position": pa.int64(), "relevance": pa.int64()}
    columns = zip(*rows, strict=True)
    table = {name: pa.array(column, types[name]) for name, column in zip(Shown._fields, columns, strict=True)}
    pq.write_table(pa.table(table), path / "part-0.parquet")
    return path


def only_records(out: Path) -> bool:
    """Whether an output holds nothing but run records and their checks: a run that fails leaves these alone."""
    return not out.exists() or {path.name for path in out.iterdir()} == {"refused_checks", "runs"}


def config(log: Path | str, out: Path | str, **changes: Any) -> Config:
    """A config that reads the Parquet folder ``log``; ``changes`` adds sections, ``source`` extends the source."""
    return from_mapping(_sections(log, out, **changes))


def config_file(log: Path | str, out: Path, **changes: Any) -> Path:
    """The same config, in a file beside ``out``."""
    file = out.parent / "config.yaml"
    file.write_text(json.dumps(_sections(log, out, **changes)), encoding="utf-8")
    return file


def _sections(log: Path | str, out: Path | str, **changes: Any) -> dict[str, Any]:
    source = {"path": str(log)} | changes.pop("source", {})
    sections = {"evaluation_date": DATE, "metrics": ["ap@5", "ndcg@5"], "source": source, "sink": {"path": str(out)}}
    return sections | changes


def keyed(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    """Map (experiment, user) to the other fields of the row."""
    rest = [row.asDict() for row in rows]
    result = {(row.pop("experiment_id"), row.pop("user_id")): row for row in rest}
    assert len(result) == len(rest)
    return result


def by_user(table: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """Collect a table; map (experiment, user) to the other fields of the row."""
    return keyed(table.collect())


def averages(table: DataFrame, field: str = "mean") -> dict[tuple[str, str, str], Any]:
    """Map (experiment, segment, metric) to the mean, or to another field."""
    return {(row["experiment_id"], row["segment"], row["metric"]): row[field] for row in table.collect()}


def bits(value: Any) -> Any:
    """Return a double as its bits, so that -0.0 and 0.0 differ and NaN equals itself; other values are unchanged."""
    return struct.pack(">d", value) if isinstance(value, float) else value


def exact(rows: Iterable[Row], leave_out: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """Return the rows in sorted order, with every double as its bits."""
    result = [tuple(bits(value) for name, value in row.asDict().items() if name not in leave_out) for row in rows]
    return sorted(result, key=repr)


def random_log(seed: int, users: int = 60) -> list[Shown]:
    """A shuffled log with what real logs contain: gaps, repeats, deep lists, unusual grades, nulls."""
    rng = random.Random(seed)
    rows: list[Shown] = []
    for experiment in ("a", "b"):
        for number in range(users):
            rows += _random_list(rng, experiment, f"user {number}")
    rng.shuffle(rows)
    return rows


def _random_list(rng: random.Random, experiment: str, user: str) -> list[Shown]:
    length = rng.choice([1, 2, 5, 10, 30, 63, 64, 90])
    ranks = list(range(1, length + 1))
    grades = rng.choice([[0], [0, 0, 0, 1], [0, 0, 1, 2, 3], [-2, -1, 0, 1], [0, 0, 7, 8, 12], [0, None, 1]])
    kind = rng.choice(["plain", "plain", "gaps", "same rank", "same item", "both"])
    if kind == "gaps":
        ranks = sorted(rng.sample(range(1, 2 * length + 10), length))
    rows = [Shown(experiment, user, f"item {rank}", rank, rng.choice(grades)) for rank in ranks]
    if kind in ("same rank", "both"):
        rows += [r._replace(item_id=f"other {r.item_id}", relevance=rng.choice(grades)) for r in rng.choices(rows, k=2)]
    if kind in ("same item", "both"):
        rows += [
            row._replace(position=rng.randint(1, length + 5), relevance=rng.choice(grades))
            for row in rng.choices(rows, k=3)
        ]
    return rows


def kept(rows: Iterable[Shown]) -> list[Shown]:
    """Remove the repeats of one list: an item keeps its highest grade, then its best rank; a rank its highest grade."""
    without_nulls = [row for row in rows if None not in row]
    items: dict[str, Shown] = {}
    for row in sorted(without_nulls, key=lambda row: (-row.relevance, row.position)):
        items.setdefault(row.item_id, row)
    ranks: dict[int, Shown] = {}
    for row in sorted(items.values(), key=lambda row: -row.relevance):
        ranks.setdefault(row.position, row)
    return [ranks[rank] for rank in sorted(ranks)]


def one_of(rows: Iterable[Shown]) -> One:
    """Convert one list for the oracles; the grade of a rank without an item is NaN."""
    grade_at = {row.position: float(row.relevance) for row in kept(rows)}
    ranks = range(1, max(grade_at, default=0) + 1)
    grades = tuple(grade_at.get(rank, math.nan) for rank in ranks)
    return One(grades, tuple(grade_at.values()), gaps=frozenset(ranks) - grade_at.keys())


def obvious(rows: Iterable[Shown], metrics: Sequence[str], c: Convention) -> dict[tuple[str, str], dict[str, Any]]:
    """Map (experiment, user) to n_relevant and each metric, computed one list at a time."""
    lists: dict[tuple[str, str], list[Shown]] = defaultdict(list)
    for row in rows:
        if None not in row:
            lists[row.experiment_id, row.user_id].append(row)
    return {key: values_of(one_of(shown), metrics, c) for key, shown in lists.items()}


def values_of(one: One, metrics: Sequence[str], c: Convention) -> dict[str, Any]:
    """Compute n_relevant and each metric of one list, keyed by column name."""
    values: dict[str, Any] = {"n_relevant": m(one, c)}
    for metric in map(parse, metrics):
        value = by_definition(metric.name, one, c, **metric.arguments)
        if math.isnan(value):
            value = {"zero": 0.0, "one": 1.0, "skip": None}[c.zero_relevant] if metric.definition.zero_policy else None
        values[metric.column] = value
    return values


def assert_close(result: Mapping[Any, Mapping[str, Any]], expected: Mapping[Any, Mapping[str, Any]]) -> None:
    """Check that both have the same rows and that the wanted fields are equal; doubles may differ by 1e-12."""
    assert result.keys() == expected.keys()
    for key, values in expected.items():
        for name, value in values.items():
            same = result[key][name] == (None if value is None else _near(value))
            assert same, f"{key} {name}: {result[key][name]} is not {value}"


def _near(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-12)
