"""Inputs as files of each format, and what a run makes of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import config as cfg, job, road, run
from tests.helpers.logs import DATE, by_user

LOG = [("007", "u 1", "x", 1, 0), ("007", "u 1", "y", 2, 1), ("7", "u 1", "x", 1, 1), ("7", "ü/2", "y", 1, 0)]
NAMES = ("experiment_id", "user_id", "item_id", "position", "relevance")
VALUES = {("007", "u 1"): 1 / 2, ("7", "u 1"): 1, ("7", "ü/2"): 0}


def values(spark: SparkSession, source: dict[str, Any], **sections: Any) -> dict[tuple[str, str], float]:
    """Return the values of a run over this source; the input is read as a run reads it."""
    config = cfg.from_mapping({"metrics": ["rr"], "evaluation_date": DATE, "source": source} | sections)
    result = road.Tables.of(*job.inputs(spark, config), config.options)
    assert result.quarantine.isEmpty()
    return {key: row["rr"] for key, row in by_user(result.user_metrics).items()}


def as_parquet(log: DataFrame, path: Path) -> dict[str, Any]:
    log.write.parquet(str(path))
    return {"format": "parquet", "path": str(path)}


def csv_folder(path: Path, *files: str) -> dict[str, Any]:
    path.mkdir()
    for number, text in enumerate(files):
        (path / f"part-{number}.csv").write_text(text, encoding="utf-8")
    return {"format": "csv", "path": str(path)}


HEADER = "experiment_id,user_id,item_id,position,relevance"


def json_lines(path: Path, rows: Sequence[dict[str, Any] | str]) -> dict[str, Any]:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return {"format": "json", "path": str(path)}


def shown(user: str, item: str, position: int, **more: Any) -> dict[str, Any]:
    return {"experiment_id": "a", "user_id": user, "item_id": item, "position": position} | more


def run_record(spark: SparkSession, source: dict[str, Any], out: Path, **sections: Any) -> dict[str, Any]:
    document = {"source": source, "metrics": ["rr"], "quality": {"max_invalid_fraction": 1}, "sink": {"path": str(out)}}
    return run(spark, cfg.from_mapping(document | sections)).record
