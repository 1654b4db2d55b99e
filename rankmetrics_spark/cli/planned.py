"""What ``rankmetrics plan`` reads of earlier runs, and shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from rankmetrics_spark.cli.earlier import stored_users
from rankmetrics_spark.comparison import Plan, plan
from rankmetrics_spark.config import override
from rankmetrics_spark.errors import ConfigError, unknown

_SETTINGS = ("confidence", "power", "tuning_users")


@dataclass(frozen=True)
class PlanRequest:
    """The options of the command."""

    folder: str
    metric: str
    days: int | None = None
    effect: str | None = None
    users: int | None = None
    shares: str = "0.5,0.5"
    first: str | None = None
    last: str | None = None
    before: str | None = None
    experiment: str | None = None
    overrides: Sequence[str] = ()

    @property
    def keywords(self) -> dict[str, Any]:
        """The keywords of ``comparison.plan``.

        Raises:
            ConfigError: An option is not what it should be.
        """
        settings: Mapping[str, object] = {}
        for assignment in self.overrides:
            settings = override(settings, assignment)
        for name in settings:
            if name not in _SETTINGS:
                raise ConfigError(f"--set: {unknown('key', name, _SETTINGS)}")
        try:
            shares = [float(share) for share in self.shares.split(",")]
        except ValueError:
            raise ConfigError(f"--shares is '{self.shares}'; allowed: two numbers such as 0.5,0.5") from None
        first, dots, last = (self.before or "").partition("..")
        return {
            "days": self.days,
            "effect": self.effect,
            "users": self.users,
            "shares": shares,
            "dates": (self.first, self.last),
            "before": None if self.before is None else (first, last if dots else first),
            "experiment": self.experiment,
            **settings,
        }


def plan_of(spark: SparkSession, request: PlanRequest) -> Plan:
    """Read ``user_metrics`` of an output and plan a test.

    Raises:
        ConfigError: A wrong argument, or more days than the stored ones allow to expect.
        InputError: There is no such table, no such date, or a single user.
    """
    keywords = request.keywords
    users, _ = stored_users(spark, request.folder)
    return plan(users, request.metric, **keywords)


def lines_of(result: Plan) -> list[dict[str, Any]]:
    """The rows as people read them: changes with their share of the mean."""
    return [
        {
            "day": row["day"],
            "date": row["date"] or row["basis"],
            "users": f"{row['users']:,}",
            "smallest change": _change(row, ""),
            "valid at every look": _change(row, "_any_look"),
        }
        for row in result.rows
    ]


def _change(row: Mapping[str, Any], looks: str) -> str:
    effect, share = row[f"smallest_effect{looks}"], row[f"smallest_relative_effect{looks}"]
    if effect is None:
        return "-"
    return _digits(effect) + ("" if share is None else f" ({_digits(100 * share)} %)")


def _digits(value: float) -> str:
    """Three digits, without the point that a whole number would end with.

    >>> _digits(0.0345), _digits(9.5), _digits(138.2)
    ('0.0345', '9.50', '138')
    """
    return f"{value:#.3g}".removesuffix(".")
