"""Nights that nobody watches: a day on time, late, half, without an experiment, of a failed gate; ranges and alerts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from rankmetrics_spark import read, run
from rankmetrics_spark.config import load
from rankmetrics_spark.errors import InputError
from tests.helpers.commands import Call
from tests.helpers.logs import Shown, a_list, parquet

pytestmark = pytest.mark.both_engines

FIRST = date(2026, 11, 2)  # a Monday
NIGHT = f"{FIRST + timedelta(days=4)}"
USERS = {"a": 12, "b": 12}


class Nights:
    """Days of logs, their config and their output."""

    def __init__(self, call: Call, folder: Path) -> None:
        self.call, self.folder, self.out = call, folder, folder / "out"
        self.document: dict[str, Any] = {
            "source": {"path": str(folder / "log" / "{date}")},
            "metrics": ["ap@5"],
            "comparison": {"baseline": "a"},
            "sink": {"path": str(self.out)},
        }

    def log(self, day: str, users: Mapping[str, int] = USERS, grades: tuple[int, ...] = (1, 0)) -> None:
        """A day with two rows of each user; those of b find what they look for first, or what ``grades`` says."""
        of_arm = {name: grades if name == "b" else (0, 1) for name in users}
        rows: list[Shown] = []
        for name, n in users.items():
            rows += [row for user in range(n) for row in a_list(of_arm[name], f"u{user}", name)]
        parquet(self.folder / "log" / day, rows)

    def evaluate(self, *more: object, **sections: Any) -> tuple[int, str, str]:
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(self.document | sections))
        return self.call("evaluate", "-c", file, *more)

    def published(self, day: str) -> str | None:
        pointer = self.out / "published" / f"{day}.json"
        return json.loads(pointer.read_text())["run_id"] if pointer.exists() else None

    def checks(self, spark: SparkSession, day: str) -> dict[tuple[str, str], tuple[str, float]]:
        """(experiment, name) -> status and number of what a day was held against earlier days by."""
        rows = read(spark, str(self.out / "checks")).where(f"evaluation_date = '{day}' AND name LIKE '%\\_%'").collect()
        found = {(row["experiment_id"], row["name"]): (row["status"], row["observed"]) for row in rows}
        return {
            key: each for key, each in found.items() if key[1] in ("rows_change", "users_change", "experiments_missing")
        }


@pytest.fixture
def nights(call: Call, tmp_path: Path) -> Nights:
    """Four days on time, each with 48 rows and 24 users."""
    made = Nights(call, tmp_path)
    days = [f"{FIRST + timedelta(days=n)}" for n in range(4)]
    for day in days:
        made.log(day)
    code, _, err = made.evaluate("--from", days[0], "--to", days[-1], "-q")
    assert (code, err) == (0, ""), err
    return made


def test_half_a_day_is_a_warning_and_stops_a_run_that_asks_for_it(nights: Nights, spark: SparkSession) -> None:
    nights.log(NIGHT, {"a": 6, "b": 6})
    half = "24 rows of the log, 50 % fewer than the median of the last 4 published days (48)"
    code, _, err = nights.evaluate("--date", NIGHT)
    assert code == 0 and f"warning: {half} (warning from 40 % on: quality.gates.rows.warn_change)" in err.splitlines()
    assert nights.checks(spark, NIGHT) == {
        (name, check): ("ok", 0.0) if check == "experiments_missing" else ("warn", 0.5)
        for name in "ab"
        for check in ("rows_change", "users_change", "experiments_missing")
    }
    before = nights.published(NIGHT)
    code, out, err = nights.evaluate("--date", NIGHT, quality={"gates": {"rows": {"fail_change": 0.5}, "users": {}}})
    assert (code, out, nights.published(NIGHT)) == (4, "", before)
    assert err.splitlines()[-1] == (
        f"rankmetrics: {half} (refused from 50 % on: quality.gates.rows.fail_change); nothing was published"
    )
    # The means are there to decide from.
    assert "rows_change" in err and "0.5000" in err


def test_a_missing_or_shrunken_experiment_is_named(nights: Nights, spark: SparkSession) -> None:
    nights.log(NIGHT, {"b": 24})
    code, _, err = nights.evaluate("--date", NIGHT, comparison={})
    gone = "a of the last 3 published days is missing in the log"
    assert code == 0 and f"warning: {gone} (warning: quality.gates.experiments.missing)" in err.splitlines()
    assert nights.checks(spark, NIGHT)["b", "experiments_missing"] == ("warn", 1.0)
    # An experiment that grows is ordinary; the log as a whole has as many rows as before.
    assert nights.checks(spark, NIGHT)["b", "rows_change"] == ("ok", 0.0)
    gates = {"experiments": {"missing": "fail"}}
    code, _, err = nights.evaluate("--date", NIGHT, comparison={}, quality={"gates": gates})
    assert code == 4 and err.splitlines()[-1].startswith(f"rankmetrics: {gone} (refused: ")
    # One arm alone may shrink; what another job publishes of the day is not missing.
    nights.log(NIGHT, {"a": 3, "b": 21})
    assert nights.evaluate("--date", NIGHT, comparison={})[0] == 0
    checks = nights.checks(spark, NIGHT)
    assert (checks["a", "rows_change"], checks["b", "rows_change"]) == (("warn", 0.75), ("ok", 0.0))
    nights.log(NIGHT, {"a": 12})
    assert nights.evaluate("--date", NIGHT, comparison={})[0] == 0
    assert nights.checks(spark, NIGHT)["a", "experiments_missing"] == ("ok", 0.0)


def test_three_days_of_the_same_experiments_are_needed(nights: Nights, spark: SparkSession) -> None:
    day = f"{FIRST + timedelta(days=2)}"
    code, _, err = nights.evaluate("--date", day, "--format", "json", quality={"gates": {"rows": {"fail_change": 0.1}}})
    assert code == 0 and set(nights.checks(spark, day).values()) == {("not_checked", None)}, err
    nights.log(NIGHT, {"of another job": 2})
    assert nights.evaluate("--date", NIGHT, comparison={})[0] == 0 and nights.checks(spark, NIGHT) == {}


@pytest.mark.outcome(
    "`source.ready` names a path that is not there yet",
    "exit 3 before an engine starts: the path; run it again",
)
def test_a_log_that_is_not_complete_yet_is_worth_another_try(nights: Nights, spark: SparkSession) -> None:
    ready = nights.folder / "log" / NIGHT / "_SUCCESS"
    nights.log(NIGHT)
    nights.document["source"]["ready"] = str(nights.folder / "log" / "{date}" / "_SUCCESS")
    code, out, err = nights.evaluate("--date", NIGHT)
    assert (code, out, err) == (3, "", (
        f"rankmetrics: source.ready is '{ready}', and there is no such file or folder yet, so the log is not complete; "
        "run this again when it is\n"
    ))  # fmt: skip
    # A notebook, and a server whose disk the client does not see, ask the engine.
    with pytest.raises(InputError, match=r"/_SUCCESS', and there is no such file or folder yet"):
        run(spark, load(nights.folder / "config.yaml", date=NIGHT))
    ready.touch()
    assert nights.evaluate("--date", NIGHT)[0] == 0 and nights.published(NIGHT)
