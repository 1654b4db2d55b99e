"""Input formats and column mappings: the same log gives the same values."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import run
from rankmetrics_spark.config import from_mapping
from rankmetrics_spark.job import inputs
from rankmetrics_spark.pipeline import Result
from tests.logs import DATE, by_user, impressions

LOG = [("007", "u 1", "x", 1, 0), ("007", "u 1", "y", 2, 1), ("7", "u 1", "x", 1, 1), ("7", "ü/2", "y", 1, 0)]
NAMES = ("experiment_id", "user_id", "item_id", "position", "relevance")
VALUES = {("007", "u 1"): 1 / 2, ("7", "u 1"): 1, ("7", "ü/2"): 0}


def values(spark: SparkSession, source: dict[str, Any], **sections: Any) -> dict[tuple[str, str], float]:
    """Return the values of a run over this source; the input is read as a run reads it."""
    config = from_mapping({"metrics": ["rr"], "evaluation_date": DATE, "source": source} | sections)
    result = Result.of(*inputs(spark, config), config.options)
    assert result.quarantine.isEmpty()
    return {key: row["rr"] for key, row in by_user(result.user_metrics).items()}


def as_parquet(log: DataFrame, path: Path) -> dict[str, Any]:
    log.write.parquet(str(path))
    return {"format": "parquet", "path": str(path)}


def as_orc(log: DataFrame, path: Path) -> dict[str, Any]:
    log.write.orc(str(path))
    return {"format": "orc", "path": str(path)}


def as_csv(log: DataFrame, path: Path) -> dict[str, Any]:
    lines = [",".join(NAMES), *(",".join(map(str, row)) for row in LOG)]
    with gzip.open(path.with_suffix(".csv.gz"), "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return {"format": "csv", "path": str(path.with_suffix(".csv.gz"))}


def as_csv_without_header(log: DataFrame, path: Path) -> dict[str, Any]:
    path.write_text("\n".join(";".join(map(str, row)) for row in LOG), encoding="utf-8")
    columns = {role: f"_c{at}" for at, role in enumerate(("experiment", "user", "item", "position", "relevance"))}
    return {"format": "csv", "path": str(path), "columns": columns, "options": {"header": False, "sep": ";"}}


def as_json(log: DataFrame, path: Path) -> dict[str, Any]:
    path.write_text("\n".join(json.dumps(dict(zip(NAMES, row, strict=True))) for row in LOG), encoding="utf-8")
    return {"format": "json", "path": str(path)}


def as_table(log: DataFrame, path: Path) -> dict[str, Any]:
    log.write.mode("overwrite").saveAsTable("impressions_of_a_test")
    return {"table": "default.impressions_of_a_test"}


def as_several_paths(log: DataFrame, path: Path) -> dict[str, Any]:
    log.where("experiment_id = '7'").write.parquet(f"{path}/seven")
    log.where("experiment_id <> '7'").write.parquet(f"{path}/double o seven")
    return {"path": [f"{path}/seven", f"{path}/double o seven"]}


def as_unusual_columns(log: DataFrame, path: Path) -> dict[str, Any]:
    log.toDF("ab.variant", "the user", "item`s", "Rang", "größe").write.parquet(str(path))
    roles = {"experiment": "ab.variant", "user": "the user", "item": "item`s", "position": "Rang", "relevance": "größe"}
    return {"path": str(path), "columns": roles}


def as_short_names(log: DataFrame, path: Path) -> dict[str, Any]:
    log.toDF("experiment", "user", "item", "position", "relevance").write.parquet(str(path))
    return {"path": str(path)}


def as_filtered(log: DataFrame, path: Path) -> dict[str, Any]:
    more = log.selectExpr("*", "'new' as `day of`").union(log.selectExpr("*", "'old'"))
    more.write.parquet(str(path))
    return {"path": str(path), "where": "`day of` = 'new'"}


def as_dated(log: DataFrame, path: Path) -> dict[str, Any]:
    log.write.parquet(f"{path}/day={DATE}")
    return {"path": f"{path}/day={{date}}"}


WRITERS = [
    as_parquet,
    as_orc,
    as_csv,
    as_csv_without_header,
    as_json,
    as_table,
    as_several_paths,
    as_unusual_columns,
    as_short_names,
    as_filtered,
    as_dated,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_every_format_and_every_column_mapping_gives_the_same_values(
    spark: SparkSession, tmp_path: Path, write: Callable[[DataFrame, Path], dict[str, Any]]
) -> None:
    source = write(impressions(spark, LOG).coalesce(1), tmp_path / "log")
    assert values(spark, source) == VALUES


def test_a_log_without_an_experiment_column_is_one_experiment(spark: SparkSession, tmp_path: Path) -> None:
    source = as_parquet(impressions(spark, LOG[:2]).drop("experiment_id", "item_id"), tmp_path / "log")
    source["columns"] = {"experiment": None, "item": None}
    assert values(spark, source) == {("all", "u 1"): 1 / 2}


def test_clicks_may_be_booleans_and_ranks_may_be_floats(spark: SparkSession, tmp_path: Path) -> None:
    log = impressions(spark, LOG).selectExpr(
        "experiment_id", "user_id", "item_id", "cast(position as float) position", "relevance = 1 as relevance"
    )
    assert values(spark, as_parquet(log, tmp_path / "log")) == VALUES


def test_a_trec_run_is_ranked_by_its_score_and_judged_by_its_qrels(spark: SparkSession, tmp_path: Path) -> None:
    run_file, qrels = tmp_path / "run.txt", tmp_path / "qrels.txt"
    # The ranks are wrong on purpose; equal scores are in descending order of the document.
    run_file.write_text(
        "1 Q0 d1 1 0.5 tag\n1\tQ0\td2  2   0.9   tag   more\n\n  1 Q0 d3 3 0.5 tag\n002 Q0 d1 1 1e-3 tag\n"
    )
    qrels.write_text("1 0 d1 1\n1 0 d2 0\n1 0 d9 2\n002 0 d1 -1\n003 0 d1 1\n")
    source = {"format": "trec_run", "path": str(run_file)}
    judged = {"format": "trec_qrels", "path": str(qrels)}
    found = values(spark, source, judgements=judged, convention="trec_eval")
    assert found == {("tag", "1"): 1 / 3, ("tag", "002"): 0, ("tag", "003"): 0}


def test_a_line_of_a_trec_run_with_too_few_words_is_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text("1 Q0 d1 1 0.5 tag\n1 Q0 d2 2\n1 Q0 d3 3 high tag\n")
    (tmp_path / "qrels.txt").write_text("1 0 d1 1\n")
    document = {
        "source": {"format": "trec_run", "path": str(tmp_path / "run.txt")},
        "judgements": {"format": "trec_qrels", "path": str(tmp_path / "qrels.txt")},
        "quality": {"max_invalid_fraction": 1},
        "metrics": ["ap"],
        "sink": {"path": str(tmp_path / "out")},
    }
    done = run(spark, from_mapping(document))
    assert done.record["quarantine_reasons"] == {"null_experiment": 1, "unreadable_score": 1}
    assert done.record["rows"] == {"in": 3, "evaluated": 1, "quarantined": 2}
