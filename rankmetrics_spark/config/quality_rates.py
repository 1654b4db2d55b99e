"""The rates that speak for the quality of a log, and the limits that a config sets for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rankmetrics_spark.config.fields import number, refuse
from rankmetrics_spark.errors import ConfigError, unknown

RATES = {
    "duplicate_rate": "rows that repeat an item or a rank of their list",
    "tie_rate": "evaluated rows that share their score with another row of their list",
    "gap_rate": "lists whose last rank is greater than their number of rows",
    "short_rate": "lists with fewer items than the largest cut-off of the metrics",
    "no_relevant_rate": "lists without a relevant item",
    "unjudged_rate": "lists of users without judgements",
    "shared_user_rate": "users who are in more than one experiment",
}
"""Name -> what it is a share of."""
LEVELS = ("warn", "fail", "warn_change", "fail_change")
"""``warn`` and ``fail`` limit a rate; ``warn_change`` and ``fail_change`` limit how far it is from the previous run."""

Limits = Mapping[str, Mapping[str, float]]
"""Rate -> level -> limit."""


def limits(path: str, value: object) -> dict[str, dict[str, float]]:
    """Limits of rates, each from 0 to 1.

    >>> limits("quality.gates", {"tie_rate": {"warn": 0.1, "fail": 0.5}})
    {'tie_rate': {'warn': 0.1, 'fail': 0.5}}
    """
    if not isinstance(value, Mapping):
        raise refuse(path, value, f"a mapping with keys out of {', '.join(RATES)}")
    for rate, levels in value.items():
        if rate not in RATES:
            raise ConfigError(f"{path}: {unknown('rate', rate, RATES)}")
        if not isinstance(levels, Mapping):
            raise refuse(f"{path}.{rate}", levels, f"a mapping with keys out of {', '.join(LEVELS)}")
    return {rate: _levels(f"{path}.{rate}", levels) for rate, levels in value.items()}


def _levels(path: str, value: Mapping[str, object]) -> dict[str, float]:
    for level in value:
        if level not in LEVELS:
            raise ConfigError(f"{path}: {unknown('limit', level, LEVELS)}")
    read = number(0, 1, inclusive=True)
    return {level: cast(float, read(f"{path}.{level}", limit)) for level, limit in value.items()}
