"""Nights that nobody watches: a day on time, late, half, without an experiment, of a failed gate; ranges and alerts."""

import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, read, report as rep, run, sinks
from rankmetrics_spark.cli.status import days_until
from rankmetrics_spark.errors import InputError
from tests.helpers.commands import ROOT, Call
from tests.helpers.logs import Shown, a_list, parquet
from tests.helpers.readme import blocks, section

pytestmark = pytest.mark.both_engines

PUBLISHING = (ROOT / "docs" / "publishing.md").read_text(encoding="utf-8")
FIRST = date(2026, 11, 2)  # a Monday
NIGHT = f"{FIRST + timedelta(days=4)}"
USERS = {"a": 12, "b": 12}


class Nights:
    """Days of logs, their config and their output."""

    def __init__(self, call: Call, folder: Path) -> None:
        self.call, self.folder, self.out = call, folder, folder / "out" / "first"
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
        return {key: n for key, n in found.items() if key[1] in ("rows_change", "users_change", "experiments_missing")}


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
    "`source.ready` names a path that is not there yet", "exit 3 before an engine starts: the path; run it again"
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
        run(spark, cfg.load(nights.folder / "config.yaml", date=NIGHT))
    ready.touch()
    assert nights.evaluate("--date", NIGHT)[0] == 0 and nights.published(NIGHT)


def test_the_query_of_the_docs_and_the_status_find_what_nobody_published(
    nights: Nights, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (query, views), out = blocks("sql", section("An alert that rings", PUBLISHING)), str(nights.out)
    late, later, refused, half, last = (f"{FIRST + timedelta(days=n)}" for n in (4, 5, 7, 8, 10))
    monkeypatch.chdir(nights.folder)
    # There from the first published day on, since a glob of DuckDB refuses no file at all.
    assert [path.name for path in (nights.out / "refused_checks").glob("*/*.parquet")] == ["part-none.parquet"]
    assert read(spark, f"{out}/refused_checks").count() == 0
    assert nights.evaluate("--date", late)[0] == nights.evaluate("--date", later)[0] == 3
    nights.log(later)
    nights.log(refused)
    gates = [{"metric": "ap@5", "experiment": "a", "min": 0.9}]
    assert nights.evaluate("--date", later)[0] == 0 and nights.evaluate("--date", refused, gates=gates)[0] == 5
    nights.log(half, {"a": 6, "b": 6})
    assert nights.evaluate("--date", half)[0] == 0
    for table in ("checks", "refused_checks"):
        read(spark, f"{out}/{table}").createOrReplaceTempView(table)
    answers = [[tuple(row) for row in spark.sql(query).collect()]]
    if find_spec("duckdb"):  # the environment of Sail has none
        import duckdb

        session = duckdb.connect()
        session.execute(views)
        answers.append(session.execute(query).fetchall())
    gate = "MAP@5 of a is 0.5000; the gate asks for at least 0.9 (gates; nothing was published)"
    for answer in answers:
        # The late day that came after all is over. Twelve users are a doubt on every day.
        got = [(f"{day}", what, text) for day, what, text in answer if "users" not in text]
        assert [row[:2] for row in got] == [
            (late, "late"), (late, "missing"), (f"{FIRST + timedelta(days=6)}", "missing"), (refused, "refused"),
            (half, "doubt"), (f"{FIRST + timedelta(days=9)}", "missing"),
        ]  # fmt: skip
        assert got[1][2] == f"nothing is published before {later}" and got[3][2] == gate
        assert got[0][2].startswith("cannot read parquet from ") and got[4][2].startswith("24 rows of the log, 50 %")
    rows = read(spark, f"{out}/refused_checks").where(f"evaluation_date = '{refused}'").collect()
    assert {(row["name"], row["experiment_id"]): row["observed"] for row in rows}["run", None] == 5.0
    assert ("min", "a") in {(row["name"], row["experiment_id"]) for row in rows if row["status"] == "fail"}
    days = days_until(last, 7, sinks.pointers_of(None, out), sinks.records_in(out) or [])
    assert [(day.date, day.state, day.alert, day.exit_code, day.rows) for day in days] == [
        (late, "late", True, 3, None),
        (later, "published", False, 0, 48),
        (f"{FIRST + timedelta(days=6)}", "missing", True, None, None),
        (refused, "refused", True, 5, 48),
        (half, "published", False, 0, 24),
        (f"{FIRST + timedelta(days=9)}", "missing", True, None, None),
        (last, "missing", True, None, None),
    ]
    # A re-run of a published day that fails leaves it published, and rings.
    assert nights.evaluate("--date", half, gates=gates)[0] == 5
    (day,) = days_until(half, 1, sinks.pointers_of(None, out), sinks.records_in(out) or [])
    assert (day.state, day.alert, day.exit_code) == ("published", True, 5) and gate in day.sentence


def test_status_is_a_line_per_day_for_people_and_programs(nights: Nights) -> None:
    last = date.today() - timedelta(days=1)
    for n in range(3):
        nights.log(f"{last - timedelta(days=n)}")
    assert nights.evaluate("--from", last - timedelta(days=2), "--to", last, "-q")[0] == 0
    code, out, err = nights.call("status", "-o", nights.out, "--since", "3d", "--format", "json")
    assert (code, [day["state"] for day in json.loads(out)], err) == (0, ["published"] * 3, "")
    code, out, err = nights.call("status", "-o", nights.out, "--since", "4d", "--format", "prometheus")
    missing = last - timedelta(days=3)
    assert code == 5 and err == f"rankmetrics: 1 of 4 days need a look: {missing}\n"
    place, seconds = f'output="{nights.out}"', datetime.fromisoformat(f"{last}T00:00:00+00:00").timestamp()
    assert {line for line in out.splitlines() if line[0] != "#"} >= {
        f'rankmetrics_day{{{place},date="{missing}",state="missing"}} 1',
        f'rankmetrics_days{{{place},state="published"}} 3',
        f"rankmetrics_alerts{{{place}}} 1",
        f'rankmetrics_rows{{{place},date="{last}"}} 48',
        f"rankmetrics_last_published_timestamp_seconds{{{place}}} {seconds:.0f}",
    }
    assert nights.call("status", "-o", nights.folder / "log")[0] == 3
    assert nights.call("status", "-o", nights.out, "--since", "soon")[::2] == (
        2, "rankmetrics: --since is 'soon'; allowed: a number of days or weeks such as 90d or 12w\n",
    )  # fmt: skip


def test_a_range_goes_on_after_a_late_and_a_refused_day(nights: Nights) -> None:
    days = [f"{FIRST + timedelta(days=n)}" for n in range(4, 9)]
    late, good, half, other, last = days
    for day in (good, other, last):
        nights.log(day)
    nights.log(half, {"a": 6, "b": 6})
    nights.document["quality"] = {"gates": {"rows": {"fail_change": 0.5}, "users": {}}}
    pages = {"file": str(nights.folder / "{date}.html")} if rep.has_page_libraries() else {}
    code, out, err = nights.evaluate("--from", late, "--to", last, "--keep-going", "--format", "json", report=pages)
    # The last of these days is the one that is printed; 4 is worse than 3.
    assert (code, json.loads(out)["evaluation_date"]) == (4, last), err
    assert [nights.published(day) is not None for day in days] == [False, True, False, True, True]
    assert err.splitlines()[-6:] == [
        *(f"{day}: {what}" for day, what in zip(
            days, ("exit code 3", "published", "exit code 4", "published", "published"), strict=True
        )),
        f"rankmetrics: 2 of 5 days are not published: {late}, {half}",
    ]  # fmt: skip
    assert f"{half} is not published: 24 rows of the log, 50 % fewer than " in err
    made = {path.name for path in nights.folder.glob("*.html")}
    assert made == ({f"{day}.html" for day in (good, other, last)} if pages else set())
    # Where the last day fails, the last one that is published is printed; where each does, nothing is.
    nights.document["quality"] = {"gates": {"rows": {"fail_change": 0.01}}}
    nights.log(last, {"a": 6, "b": 6})
    code, out, _ = nights.evaluate("--date", f"{other}..{last}", "--keep-going", "--format", "json")
    assert (code, json.loads(out)["evaluation_date"]) == (4, other)
    code, out, err = nights.evaluate("--date", late, "--keep-going")
    assert (code, out) == (3, "") and err.splitlines()[-1].startswith("rankmetrics: cannot read parquet from "), err
