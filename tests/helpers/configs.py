"""Configs of made inputs, and what messages about them list."""

from pathlib import Path
from typing import Any

from rankmetrics_spark.config import Config, from_mapping, parse
from rankmetrics_spark.tools import FirstConfig, guesses, sample

LOGS: dict[str, Any] = {"path": "logs"}
TRUTH: dict[str, Any] = {"path": "truth"}
INPUT = "format, path, table, where, columns, options"
SOURCE = f"{INPUT}, packed, list, segments, segment_combinations, first_rank, experiment_from, rows, ready, team, ranks"
ROLES = "experiment, user, item, position, score, relevance, intents, items, time"
TEXT = "a text (in quotes where YAML would read something else)"


def config(**changes: object) -> Config:
    return from_mapping({"source": LOGS, **changes})


def first(path: Path | str, **more: Any) -> FirstConfig:
    """What ``rankmetrics init`` makes of a file."""
    result = sample(str(path))
    return FirstConfig(result, guesses(result.rows, {}), **more)


def written(config: FirstConfig) -> dict[str, Any]:
    """What the text means; every text has to be a config."""
    content = parse(config.text())
    assert isinstance(content, dict)
    from_mapping(content)
    return content
