"""Configs of made inputs, and what messages about them list."""

from __future__ import annotations

from typing import Any

from rankmetrics_spark.config import Config, from_mapping

LOGS: dict[str, Any] = {"path": "logs"}
TRUTH: dict[str, Any] = {"path": "truth"}
INPUT = "format, path, table, where, columns, options"
SOURCE = f"{INPUT}, list, segments, segment_combinations, first_rank, experiment_from, team, ranks"
ROLES = "experiment, user, item, position, score, relevance, intents"
TEXT = "a text (in quotes where YAML would read something else)"


def config(**changes: object) -> Config:
    return from_mapping({"source": LOGS, **changes})
