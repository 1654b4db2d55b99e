"""What a result shows of itself: small tables, read once. Spark and PyArrow read the same report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import display, evaluate, run
from rankmetrics_spark.config import Config, Sink, Source
from rankmetrics_spark.tools.demo import make_log
from rankmetrics_spark.tools.report import figures_of, local_tables, spark_tables

COLUMNS = {"experiment": "variant", "position": "slot", "relevance": "clicked"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_log(tmp_path_factory.mktemp("log"), users=2400).impressions)


def test_a_result_shows_itself_from_tables_that_are_read_once(
    spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, small = [], display._small
    monkeypatch.setattr(display, "_small", lambda table: read.append(table) or small(table))
    result = evaluate(spark.read.parquet(log), ["ap@10", "dcg@10"], columns=COLUMNS, baseline="control")
    assert read == [], "nothing is computed before somebody looks"
    shown = result._repr_html_()
    assert "<bdi>candidate_a</bdi> beats <bdi>control</bdi>" in shown
    frame = result.summary()
    assert frame["experiment"].tolist() == ["control", "candidate_a", "candidate_b"] * 2
    assert frame["users"].sum() == 2 * 2400
    assert set(frame["better"].dropna()) == {"candidate", "baseline"}
    assert len(read) == 2
    means = {row["experiment_id"]: row["mean"] for row in result.figures.means if row["metric"] == "ap@10"}
    assert f"{means['candidate_a']:.4f}" in shown


def test_spark_reads_the_figures_that_pyarrow_reads(spark: SparkSession, log: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    source = Source(path=log, columns=COLUMNS, segments=["device"])
    config = Config(source=source, metrics="ap@10,dcg@10", sink=Sink(path=out), evaluation_date="2026-11-20")
    run(spark, replace(config, comparison=replace(config.comparison, baseline="control")))
    tables = local_tables(out)
    if tables is None:
        pytest.fail(f"{out} is not on this machine")
    mine, theirs = figures_of(tables), figures_of(spark_tables(spark, Sink(path=out)))
    for name in ("means", "comparisons", "users"):
        one, other = (
            sorted(({key: row[key] for key in sorted(row)} for row in getattr(each, name)), key=repr)
            for each in (mine, theirs)
        )
        assert one == other and one
    assert (mine.record, mine.n_experiments, mine.n_comparisons) == (theirs.record, 3, theirs.n_comparisons)
    steps = [row for row in mine.users if row["experiment_id"] == "control" and row["metric"] == "dcg@10"]
    # DCG has no upper bound, so its steps end at the largest value.
    assert sum(row["users"] for row in steps) == mine.record["experiments"]["control"]["lists"]
    assert max(row["step"] for row in mine.users if row["metric"] == "dcg@10") == 19
