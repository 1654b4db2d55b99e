"""The configs of conf/ run as they are, on small logs of the shape that they describe; only places are overridden."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark.config import Config, load
from rankmetrics_spark.job import run
from tests.helpers.commands import ROOT
from tests.helpers.logs import DATE, a_list, parquet

CONF = ROOT / "conf"


def loaded(name: str, tmp_path: Path, **places: object) -> Config:
    """A config of conf/ with its inputs and its output below ``tmp_path``."""
    overrides = [f"{key.replace('__', '.')}={place}" for key, place in places.items()]
    return load(CONF / name, [*overrides, f"sink.path={tmp_path / 'out'}"], date=DATE)


def means(spark: SparkSession, config: Config) -> dict[tuple[str, str], float]:
    """(experiment, metric) -> mean over all users."""
    rows = run(spark, config).experiment_metrics.where("segment = 'all'").collect()
    return {(row["experiment_id"], row["metric"]): row["mean"] for row in rows}


def table(folder: Path, names: str, rows: list[tuple[Any, ...]]) -> Path:
    folder.mkdir(parents=True)
    columns = zip(names.split(), zip(*rows, strict=True), strict=True)
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns}), folder / "part-0.parquet")
    return folder


def test_the_names_below_are_all_configs() -> None:
    jobs = {file.name for file in CONF.glob("*.yaml")}
    assert jobs == {"example.yaml", "ab_test.yaml", "trec.yaml"}


def test_the_example_runs(spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", [*a_list([0, 1, 0, 1], "u", "a"), *a_list([1], "u", "b")])
    result = means(spark, loaded("example.yaml", tmp_path, source__path=log))
    assert result["a", "ap@5"] == result["a", "ap@10"] == (1 / 2 + 2 / 4) / 2
    assert {name: mean for name, mean in result.items() if name[0] == "b"} == {
        ("b", metric): 1 for metric in ("ap@5", "ap@10", "ndcg@5", "ndcg@10")
    }


@pytest.mark.slow
def test_the_ab_test_runs(spark: SparkSession, tmp_path: Path) -> None:
    shown = {"control": "bac", "candidate": "acb"}
    rows = [
        (variant, f"user {n}", item, slot, "request 1", "search", "DE", "mobile")
        for variant, items in shown.items()
        for n in range(3)
        for slot, item in enumerate(items, start=1)
    ]
    # Another surface, which the filter leaves out.
    rows.append(("control", "user 0", "a", 1, "request 2", "home", "DE", "mobile"))
    names = "variant user_id item_id slot request_id surface country device"
    table(tmp_path / "logs" / f"event_date={DATE}", names, rows)
    grades = [(f"user {n}", item, grade) for n in range(3) for item, grade in (("a", 3), ("b", 1), ("c", 2))]
    truth = table(tmp_path / "truth", "user_id item_id grade", grades)
    log = tmp_path / "logs" / "event_date={date}"
    result = means(spark, loaded("ab_test.yaml", tmp_path, source__path=log, judgements__path=truth))
    # Grades from 2 are relevant: the items a and c.
    assert (result["control", "ap@10"], result["control", "rr@10"]) == ((1 / 2 + 2 / 3) / 2, 1 / 2)
    assert (result["candidate", "ap@10"], result["candidate", "rr@10"]) == (1, 1)
    (record,) = (tmp_path / "out" / "comparisons").glob("experiment_id=candidate/*")
    assert record.name == f"evaluation_date={DATE}"


def test_the_trec_run_runs(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("".join(f"q1 Q0 d{n} {n} {1 - n / 10} my-run\n" for n in (1, 2, 3)))
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\nq1 0 d2 0\nq1 0 d3 1\nq1 0 d4 1\n")
    places = {"source__path": tmp_path / "run.txt", "judgements__path": tmp_path / "qrels.txt"}
    result = means(spark, loaded("trec.yaml", tmp_path, **places))
    assert result["my-run", "ap"] == (1 / 1 + 2 / 3) / 3
    assert (result["my-run", "p@5"], result["my-run", "rr"]) == (2 / 5, 1)
