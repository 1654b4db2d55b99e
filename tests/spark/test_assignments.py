"""Who is in which test, since when: which lists count where, what is counted, and which arms are compared."""

import csv
import json
import random
import re
from collections.abc import Mapping
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from scipy.stats import chisquare, fisher_exact

from rankmetrics_spark import cli, compare, errors, evaluate, read, report as rep, run, tools
from rankmetrics_spark.cli.first import InitRequest, first_config, write_first_config
from rankmetrics_spark.config import Sink, as_dict, load
from rankmetrics_spark.errors import ConfigError, DifferenceError, InputError, MetricGateError, QualityError
from rankmetrics_spark.job import verify
from tests.helpers.commands import Call, Terminal, Typed, ok
from tests.helpers.logs import config, csv_file
from tests.helpers.messages import messages
from tests.tables_page import tables

GOLDEN = Path(__file__).parent / "field" / "golden_inputs"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
TESTS = EXPECTED["tests_on_by_request"]
SETTINGS: dict[str, Any] = {
    "layout": {"baseline": "control", "shares": {"control": 1, "new": 1}},
    "ranker": {"baseline": "old"},
}
EVENTS = {"columns": {"list": "request_id", "time": "at"}, "grades": EXPECTED["grades"], "within": EXPECTED["within"]}


def golden(name: str) -> list[dict[str, Any]]:
    rows = [*csv.DictReader((GOLDEN / f"{name}.csv").open())]
    return [{**row, "slot": int(row["slot"])} if "slot" in row else row for row in rows]


def check_golden(users: list[Any], means: list[Any]) -> None:
    """Users, their lists and values, and the means and assigned users of each arm, are those of plain loops."""
    arms = {f"{test}:{arm}": each for test, of_test in TESTS.items() for arm, each in of_test["arms"].items()}
    found: dict[str, dict[str, Any]] = {}
    for row in users:
        value = {"n_lists": row["n_lists"], "ndcg": pytest.approx(row["ndcg_at_3"], abs=1e-12)}
        found.setdefault(row["experiment_id"], {})[row["user_id"]] = value
    for name, arm in arms.items():
        assert arm["users"] == found[name]
        (row,) = (row for row in means if row["experiment_id"] == name and row["metric"] == "ndcg@3")
        assert (row["n_users"], row["n_assigned"]) == (arm["n_users"], arm["n_assigned"])
        assert row["test_name"] == name.split(":")[0]
        assert row["mean"] == pytest.approx(arm["mean_ndcg"], abs=1e-12)
    assert found.keys() == arms.keys()


@pytest.mark.both_engines
@pytest.mark.parametrize("shape", ["events", "structs"])
def test_golden_tests_have_the_users_and_means_of_plain_loops(spark: SparkSession, shape: str) -> None:
    given: dict[str, Any] = {"columns": {"position": "slot"}, "list": "request_id"}
    log = golden("impressions")
    if shape == "events":
        given |= {"events": golden("events"), "event_columns": EVENTS["columns"]}
        given |= {"grades": EVENTS["grades"], "within": "1h"}
    else:
        log = [json.loads(line) for line in (GOLDEN / "nested.jsonl").read_text().splitlines()]
        given["columns"] = {"items": "results", "item": "id", "relevance": "grade"}
    given["columns"]["time"] = "shown_at"
    columns = {"time": "first_exposure_at"}
    result = evaluate(
        log, ["ap@3", "ndcg@3"], assignments=golden("assignments"), assignment_columns=columns, tests=SETTINGS, **given
    )
    check_golden(result.user_metrics.collect(), result.experiment_metrics.collect())
    rows = {(row["baseline"], row["experiment_id"], row["metric"]): row for row in result.comparisons.collect()}
    pairs = [("layout:control", "layout:new"), ("ranker:old", "ranker:fresh")]
    assert rows.keys() == {(*pair, metric) for pair in pairs for metric in ("ap@3", "ndcg@3")}
    row = rows[(*pairs[0], "ndcg@3")]
    assert (row["test_name"], row["n_assigned_baseline"], row["n_assigned_candidate"]) == ("layout", 3, 3)
    # Each test is a family of its own: one primary metric, one pair.
    assert {each["n_comparisons"] for each in rows.values() if each["p_value"] is not None} == {1}
    assert row["sample_ratio_p"] == 1.0 and rows[(*pairs[1], "ndcg@3")]["sample_ratio_p"] is None
    with pytest.warns(match="hit"):
        findings = result.check()
    assert findings.overall["mixed_arm_rate"] == 1 / 11
    assert findings.assigned is not None and findings.assigned.as_record()["tests"]["ranker"]["mixed"] == 1


@pytest.mark.both_engines
def test_a_run_counts_rows_once_and_scores_each_list_once(spark: SparkSession, tmp_path: Path) -> None:
    bad = tmp_path / "impressions.csv"
    # One row of u1, who is in both tests, has no time, and one of u9, who is in none, no rank.
    lines = (GOLDEN / "impressions.csv").read_text() + "r2,u1,,z,3\nr9,u9,2026-11-20T10:00:00Z,a,0\n"
    bad.write_text(lines)
    read = {"format": "csv", "columns": {"position": "slot", "time": "shown_at"}, "list": ["request_id"]}
    request = config(
        bad, tmp_path / "out", source=read, events={"path": str(GOLDEN / "events.csv"), **EVENTS},
        assignments={"path": str(GOLDEN / "assignments.csv"), "columns": {"time": "first_exposure_at"}},
        tests=SETTINGS, metrics=["ap@3", "ndcg@3"], quality={"max_invalid_fraction": 0.2},
    )  # fmt: skip
    done = run(spark, request)
    check_golden(done.user_metrics.collect(), done.experiment_metrics.collect())
    assert done.record["rows"] == {"in": 20, "evaluated": 18, "quarantined": 2}
    arms = {name: count for name, count in done.record["experiments"].items() if name}
    assert {name: (count["rows"], count["lists"], count["left_out"]) for name, count in arms.items()} == {
        "layout:control": (8, 3, 1), "layout:new": (7, 3, 0), "ranker:fresh": (5, 2, 0), "ranker:old": (5, 2, 1),
    }  # fmt: skip
    left_out = [*spark.read.parquet(str(tmp_path / "out" / "quarantine")).collect()]
    assert {row["reason"] for row in left_out} == {"null_time", "position_below_1"} and len(left_out) == 2
    assert done.record["assignments"] == {
        "rows": 13, "faulty": 0, "repeated": 1,
        "tests": {
            "layout": {"mixed": 0, "arms": {"layout:control": 3, "layout:new": 3}},
            "ranker": {"mixed": 1, "arms": {"ranker:fresh": 2, "ranker:old": 2}},
        },
    }  # fmt: skip
    notes = " ".join(done.record["notes"])
    assert "1 of 13 assignments are of a user in an arm once more; the first exposure counts" in notes
    assert "1 user is in several arms of the test 'ranker', and left out of it" in notes
    # All of it follows from the record, the days of users too.
    verified = verify(spark, request.sink)
    assert {row["table"] for row in verified.rows} == {*done.record["tables"]} and not verified.other
    # Without the assignments, which say how many there are and who is compared, the means follow from the users.
    verified = verify(spark, request.sink, source="user_metrics")
    assert [row["table"] for row in verified.rows] == ["experiment_metrics"]
    (said,) = verified.uncovered
    assert "inputs: checks, comparisons, quarantine, user_days (they read the assignments)" in said


@pytest.mark.both_engines
def test_a_user_who_was_erased_is_left_out_of_log_events_and_assignments(spark: SparkSession, tmp_path: Path) -> None:
    def request(folder: Path, out: str) -> Any:
        return config(
            folder / "impressions.csv", tmp_path / out, events={"path": str(folder / "events.csv"), **EVENTS},
            source={"format": "csv", "columns": {"position": "slot", "time": "shown_at"}, "list": ["request_id"]},
            assignments={"path": str(folder / "assignments.csv"), "columns": {"time": "first_exposure_at"}},
            tests=SETTINGS, metrics=["ap@3", "ndcg@3"], quality={"max_invalid_fraction": 0.2},
        )  # fmt: skip

    for name in ("impressions", "events", "assignments"):
        lines = (GOLDEN / f"{name}.csv").open()
        others = [line for line in lines if "u1" not in line.split(",")]
        (tmp_path / f"{name}.csv").write_text("".join(others))
    run(spark, request(tmp_path, "out"))
    (tmp_path / "ids.txt").write_text("u1\n")
    again = partial(verify, spark, request(tmp_path, "out").sink, document=as_dict(request(GOLDEN, "out")))
    assert not again(without=str(tmp_path / "ids.txt")).other
    with pytest.raises(DifferenceError, match="the events are not those on record"):
        again()
    # Another second changes no count and no value, but it is another input.
    for name, line in (("events", "a,click,2026-11-20T10:21:0"), ("assignments", "u7,2026-11-20T09:00:0")):
        text = (tmp_path / f"{name}.csv").read_text()
        (tmp_path / f"{name}.csv").write_text(text.replace(f"{line}0", f"{line}1"))
        with pytest.raises(DifferenceError) as error:
            verify(spark, request(tmp_path, "out").sink)
        assert str(error.value) == f"the {name} are not those on record"
        (tmp_path / f"{name}.csv").write_text(text)


# ---- small cases: a list of a user is two items, of which the first one was clicked

LOG = [("u1", "r1", "10:00"), ("u1", "r2", "11:00"), ("u2", "r3", "10:00"), ("u3", "r4", "10:00")]


def at(time: str) -> str:
    return time if "T" in time else f"2026-11-20T{time}:00Z"


def lists(*texts: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [
        {"user": user, "request": request, "seen": at(time), "item": item, "position": rank,
         "relevance": int(rank == 1)}
        for user, request, time in texts or LOG for rank, item in enumerate("ab", 1)
    ]  # fmt: skip


def clicked(ranks: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Lists of three items each: (user, instant) -> the rank of the click."""
    return [
        {"user": user, "request": user + at, "seen": at, "item": item, "position": place,
         "relevance": int(place == rank)}
        for (user, at), rank in ranks.items() for place, item in enumerate("xyz", 1)
    ]  # fmt: skip


def assigned(*texts: str) -> list[dict[str, Any]]:
    """``t:a u1 10:00`` is a test and an arm, a user, and the exposure."""
    rows = []
    for text in texts:
        name, user, time = text.split()
        test, _, arm = name.rpartition(":")
        of_test = {"test": test} if test else {}
        rows.append({**of_test, "arm": arm.replace(";", ":"), "user": user, "time": at(time)})
    return rows


def result_of(of_users: Any, log: Any = None, **options: Any) -> Any:
    usual: dict[str, Any] = {"columns": {"time": "seen"}, "list": "request"}
    return evaluate(lists() if log is None else log, ["rr"], assignments=of_users, **{**usual, **options})


def n_lists(result: Any) -> dict[tuple[str, str], int]:
    return {(row["experiment_id"], row["user_id"]): row["n_lists"] for row in result.user_metrics.collect()}


def test_a_list_counts_from_the_instant_of_the_first_exposure_on(spark: SparkSession) -> None:
    result = result_of(assigned("t:a u1 11:00", "t:a u1 11:30", "t:b u2 10:00", "t:b u3 10:01", "s:a u1 09:00"))
    assert n_lists(result) == {("t:a", "u1"): 1, ("t:b", "u2"): 1, ("s:a", "u1"): 2}
    # Scored once: as many lists as the log has.
    assert result._tables.outcome.count() == len(LOG)


def test_a_time_without_offset_is_of_the_time_zone_and_arms_without_tests_are_experiments(spark: SparkSession) -> None:
    # In Berlin, winter is one hour ahead: 12:00 there is 11:00Z.
    rows = assigned("a u1 2026-11-20T12:00:00", "b u2 2026-11-20T11:00:00")
    result = result_of(rows, time_zone="Europe/Berlin", baseline="a")
    assert n_lists(result) == {("a", "u1"): 1, ("b", "u2"): 1}
    assert [(row["baseline"], row["experiment_id"], row["test_name"]) for row in result.comparisons.collect()] == [
        ("a", "b", None)
    ]
    without_times = [{"arm": row["arm"], "user": row["user"]} for row in rows]
    assert n_lists(result_of(without_times)) == {("a", "u1"): 2, ("b", "u2"): 1}


# Into another arm at one instant, later on the day, and into the same arm again.
@pytest.mark.parametrize(("again", "mixed"), [("t:b u1 09:00", 1), ("t:b u1 23:00", 1), ("t:a u1 09:00", 0)])
@pytest.mark.outcome(
    "two assignments of a user to two arms of a test", "the user is left out of the test: `mixed_arm_rate`"
)
def test_users_of_several_arms_are_left_out_of_their_test(spark: SparkSession, again: str, mixed: int) -> None:
    result = result_of(assigned("t:a u1 09:00", again, "t:b u2 09:00", "t:a u3 09:00"))
    expected = {("t:b", "u2"): 1, ("t:a", "u3"): 1} | ({} if mixed else {("t:a", "u1"): 2})
    assert n_lists(result) == expected
    assert result.check().overall["mixed_arm_rate"] == mixed / 3
    if mixed:
        with pytest.raises(QualityError, match=re.escape("33.3 % of the users of tests are in several arms of theirs")):
            result.check(gates={"mixed_arm_rate": {"fail": 0.1}})


KEYS = ("experiment_id", "segment", "metric", "user_id")
MORE = {"test_name", "n_assigned", "n_assigned_baseline", "n_assigned_candidate", "sample_ratio_p"}


def plain(rows: list[Any]) -> list[str]:
    """Rows as texts, in order; without what only assignments have."""
    return sorted(str({name: cell for name, cell in row.asDict().items() if name not in MORE}) for row in rows)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"list": ()},
        {"rank_by": "score", "segments": ["country"], "percentiles": [50]},
        {"mean_over": "lists", "confidence": 0.9},
        {"covariate": "before"},
        {"judgements": [{"user": f"u{i}", "item": "b", "relevance": i % 3} for i in range(20)]},
    ],
    ids=str,
)
def test_values_are_those_of_a_log_that_names_the_experiments(spark: SparkSession, options: Any) -> None:
    log = lists(*((f"u{i % 20}", f"r{i}", f"10:{i % 60:02}") for i in range(70)))
    for at_row, row in enumerate(log):
        number = int(row["user"][1:])
        more = {"country": "de" if number % 3 else "fr", "before": number * 0.5}
        row |= {"score": float(at_row * 7 % 5), "relevance": int(at_row * 11 % 3 == 0), **more}
    entered = {f"u{i}": ("ab"[i % 2], f"10:{i:02}") for i in range(20)}
    rows = assigned(*(f"{test}:{arm} {user} {time}" for user, (arm, time) in entered.items() for test in "ts"))
    named: list[dict[str, Any]] = []
    if options.get("list") == ():  # the time of a user's only list is that of its first row
        log = [row for row in log if int(row["request"][1:]) >= 60 or row["request"] == "r5"]
    for row in log:
        arm, time = entered[row["user"]]
        if row["seen"] >= at(time):
            named += [{**row, "experiment": f"{test}:{arm}"} for test in "ts"]
    result = result_of(rows, log, baseline="a", **options)
    expected = evaluate(named, ["rr"], **{"list": "request", "baseline": "t:a", **options})
    by_list = result_of(rows, nested(log), **{**options, "columns": {"time": "seen", "items": "items"}})
    for table in ("user_metrics", "experiment_metrics"):
        assert plain(getattr(result, table).collect()) == plain(getattr(expected, table).collect())
        # Without columns of lists, each row of a nested log is one.
        if "list" not in options:
            assert plain(getattr(by_list, table).collect()) == plain(getattr(expected, table).collect())
    only = {"candidates": "t:b", "baseline": "t:a", "confidence": options.get("confidence", 0.95)}
    asked = {name: options[name] for name in ("segments", "mean_over") if name in options}
    users = expected.user_metrics
    compared = compare(users, **only, **asked, before="before" if "covariate" in options else None)
    found = [row for row in result.comparisons.collect() if row["test_name"] == "t"]
    assert found and plain(found) == plain(compared.collect())


def nested(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log with a row per list."""
    of_item = ("item", "position", "score", "relevance")
    lists: dict[Any, dict[str, Any]] = {}
    for row in log:
        own = {name: value for name, value in row.items() if name not in of_item}
        items = lists.setdefault((row["user"], row["request"]), {**own, "items": []})["items"]
        items.append({name: row[name] for name in of_item if name in row})
    return [*lists.values()]


@pytest.mark.both_engines
@pytest.mark.parametrize("told_apart", [(), ("request",)], ids=["rows are lists", "requests are lists"])
def test_lists_of_a_row_have_times_and_faults_of_their_items(spark: SparkSession, told_apart: tuple[str, ...]) -> None:
    log = lists(*LOG, ("u1", "r5", "noon"), ("u3", "r6", "10:30"))
    for row in log:
        row["seen"] = {"r6": None}.get(row["request"], row["seen"])
    log[3]["relevance"] = None
    rows = assigned("t:a u1 11:00", "t:b u2 10:00", "s:a u1 09:00", "s:b u3 10:01")
    flat = result_of(rows, log)
    by_list = result_of(rows, nested(log), columns={"time": "seen", "items": "items"}, list=told_apart)
    assert n_lists(by_list) == n_lists(flat) == {("t:a", "u1"): 1, ("t:b", "u2"): 1, ("s:a", "u1"): 2}
    for table in ("user_metrics", "experiment_metrics"):
        assert plain(getattr(by_list, table).collect()) == plain(getattr(flat, table).collect())
    reasons = [sorted(row["reason"] for row in result.quarantine.collect()) for result in (by_list, flat)]
    expected = ["null_relevance", "null_time", "null_time", "unreadable_time", "unreadable_time"]
    assert reasons == [expected, expected]


def run_of(spark: SparkSession, tmp_path: Path, of_users: Any, log: Any = None, **changes: Any) -> Any:
    source = {"format": "csv", "columns": {"time": "seen"}, "list": ["request"]}
    tmp_path.mkdir(exist_ok=True)
    path = csv_file(tmp_path / "log.csv", log or lists())
    section = {"path": csv_file(tmp_path / "assignments.csv", of_users)}
    return run(spark, config(path, tmp_path / "out", source=source, assignments=section, metrics=["rr"], **changes))


def test_a_run_knows_the_assignments_up_to_the_end_of_its_day_and_the_days_of_its_tests(
    spark: SparkSession, tmp_path: Path
) -> None:
    # u3 enters at the midnight that ends the day, and would be in two arms then.
    rows = assigned(
        "t:a u1 09:00", "t:b u2 09:00", "t:a u3 09:00", "t:b u3 2026-11-21T00:00:00Z", "s:a u1 09:00", "s:b u2 09:00"
    )
    later = {"from": "2026-11-21"}  # before, a test may lack users, or an arm
    tests = {"t": {"baseline": "a"}, "s": {"baseline": "z"} | later, "r": {"shares": {"a": 1, "b": 1}} | later}
    done = run_of(spark, tmp_path, rows, tests=tests)
    assert done.record["assignments"]["tests"]["t"] == {"mixed": 0, "arms": {"t:a": 2, "t:b": 1}}
    assert {row["experiment_id"] for row in done.user_metrics.collect()} == {"t:a", "t:b"}


def test_a_period_leaves_out_who_has_entered_another_arm_since_and_stored_tests_are_compared_one_by_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    users = {"u1": "a", "u2": "a", "u3": "b", "u4": "b"}
    rows = assigned(*(f"{test}:{arm} {user} 09:00" for user, arm in users.items() for test in "ts"))
    rows += assigned("t:b u1 2026-11-21T08:00:00Z")
    for day in ("2026-11-20", "2026-11-21"):
        log = lists(*((user, f"{user}{day}", f"{day}T10:00:00Z") for user in users))
        compared = {"baseline": "a", "period": {"from": "2026-11-20", "to": day}}
        done = run_of(spark, tmp_path, rows, log, comparison=compared, evaluation_date=day)
    found = {row["experiment_id"]: row for row in done.comparisons.collect()}
    row, whole = found["t:b"], found["s:b"]
    # On the first day, u1 was in one arm alone.
    assert (row["n_users_baseline"], row["n_assigned_baseline"], row["n_users_candidate"]) == (1, 1, 2)
    assert (whole["n_users_baseline"], whole["n_assigned_baseline"], whole["n_days"]) == (2, 2, 2)
    stored = read(spark, tmp_path / "out" / "user_metrics")
    (row,) = compare(stored, baseline="s:a", dates=("2026-11-20", "2026-11-21")).collect()
    assert (row["experiment_id"], row["n_users"]) == ("s:b", 4)
    with pytest.raises(ConfigError, match="baseline is null, and the users are of tests"):
        compare(stored, pairs="all", dates=("2026-11-20", "2026-11-21"))
    with pytest.raises(InputError, match="have no page of a period; allowed: --date of a run without"):
        rep.figures_of_output(spark, Sink(path=str(tmp_path / "out")), None, ("2026-11-20", "2026-11-21"))


def test_a_period_counts_lists_of_stored_days_as_the_assignments_are_now(spark: SparkSession, tmp_path: Path) -> None:
    users, days = [f"u{i}" for i in range(12)], [f"2026-11-{day}" for day in (20, 21, 22)]
    first = {"t": "2026-11-20T10:30:00Z", "s": "2026-11-20T10:45:00Z", "r": "2026-11-21T00:00:00Z"}
    # Only the last run knows "s" and "r". The 20th was split at 10:30 alone, so "s" counts from the 21st on.
    counts_from = {"t": first["t"], "s": "2026-11-21", "r": first["r"]}
    late = assigned(*(f"{test}:{'ab'[i % 2]} {user} {first[test]}" for test in "sr" for i, user in enumerate(users)))
    known = assigned(*(f"t:{'ab'[i % 2]} {user} {first['t']}" for i, user in enumerate(users)))

    def ranks_of(day: str, shift: int) -> dict[tuple[str, str], int]:
        """The rank of the click of each list of a day."""
        rng = random.Random(shift)
        return {(user, f"{day}T{hour}:00:00Z"): rng.randint(1, 3) for hour in (10, 11, 12) for user in users}

    def compared(runs: list[tuple[str, int]]) -> dict[str, Any]:
        """Test -> its row in the last run, which knows all of them."""
        for day, shift in runs:
            request = {"baseline": "a", "period": {"from": days[0], "to": day}}
            of_users = known + (late if day == days[-1] else [])
            log = clicked(ranks_of(day, shift))
            done = run_of(spark, tmp_path, of_users, log, comparison=request, evaluation_date=day)
        return {row["test_name"]: row for row in done.comparisons.collect()}

    for runs, shifts in (([*zip(days, (0, 1, 2), strict=True)], (0, 1, 2)), ([(days[1], 5), (days[2], 2)], (0, 5, 2))):
        found, ranks = compared(runs), dict[tuple[str, str], int]()
        for day, shift in zip(days, shifts, strict=True):
            ranks |= ranks_of(day, shift)
        for test, start in counts_from.items():
            values = [[1 / ranks[each] for each in ranks if each[0] == user and each[1] >= start] for user in users]
            assert {len(of_user) for of_user in values} == {8 if test == "t" else 6}
            means = [sum(of_user) / len(of_user) for of_user in values]
            row = found[test]
            assert row["mean_baseline"] == pytest.approx(sum(means[::2]) / 6, rel=1e-12)
            assert row["mean_candidate"] == pytest.approx(sum(means[1::2]) / 6, rel=1e-12)
            assert (row["n_users"], row["n_days"], row["n_comparisons"]) == (12, 3, 1)
            # A test that was not known has not been looked at.
            assert row["look"] == (3 if test == "t" else 1)
    request = {"baseline": "a", "period": {"from": days[0], "to": days[2]}}
    log = clicked(ranks_of(days[2], 2))
    done = run_of(spark, tmp_path, late, log, comparison=request, evaluation_date=days[2])
    assert [*done.record["period"]["runs"]] == days[:2]


def test_a_period_takes_no_lists_of_its_users_from_a_run_of_another_log(spark: SparkSession, tmp_path: Path) -> None:
    ranks = {"u1": (1, 2), "u2": (2, 3), "u3": (3, 1), "u4": (1, 3)}
    days = ("2026-11-20", "2026-11-21")

    for test, at, users in (("t", 0, ranks), ("s", 0, ("u1", "u2")), ("t", 1, ranks)):
        of_users = assigned(*(f"{test}:{'ab'[i % 2]} {user} 09:00" for i, user in enumerate(ranks)))
        request = {"baseline": "a", "period": {"from": days[0], "to": days[at]}}
        log = clicked({(user, f"{days[at]}T10:00:00Z"): ranks[user][at] for user in users})
        done = run_of(spark, tmp_path, of_users, log, comparison=request, evaluation_date=days[at])
    (row,) = done.comparisons.collect()
    means = [(1 / ranks[user][0] + 1 / ranks[user][1]) / 2 for user in ranks]
    assert row["mean_baseline"] == pytest.approx((means[0] + means[2]) / 2, rel=1e-12)
    assert row["mean_candidate"] == pytest.approx((means[1] + means[3]) / 2, rel=1e-12)


@pytest.mark.outcome(
    "assignments that repeat all users daily", "the first exposure of each counts; a note says how many repeat"
)
def test_assignments_that_repeat_all_users_daily_count_once(spark: SparkSession, tmp_path: Path) -> None:
    days = [f"2026-11-{day}T09:00:00Z" for day in (18, 19, 20)]
    rows = assigned(*(f"t:{arm} {user} {day}" for day in days for arm, user in (("a", "u1"), ("b", "u2"))))
    done = run_of(spark, tmp_path, rows)
    assert {r["experiment_id"]: r["n_assigned"] for r in done.experiment_metrics.collect()} == {"t:a": 1, "t:b": 1}
    assert "4 of 6 assignments are of a user in an arm once more; the first exposure counts" in done.record["notes"]


@pytest.mark.both_engines
def test_who_is_assigned_is_in_the_sample_ratio_and_another_triggering_gives_no_verdict(spark: SparkSession) -> None:
    shown = {"a": 60, "b": 30}
    log = lists(*((f"{arm}{i}", f"r{arm}{i}", "10:00") for arm, n in shown.items() for i in range(n)))
    # Every other user clicks the second item instead.
    log = [{**row, "relevance": int((row["position"] == 1) == (int(row["user"][1:]) % 2 == 0))} for row in log]
    n_assigned = {"a": 66, "b": 60}
    rows = assigned(*(f"t:{arm} {arm}{i} 09:00" for arm, n in n_assigned.items() for i in range(n)))
    settings = {"t": {"baseline": "a", "shares": {"a": 0.5, "b": 0.5}}}
    (row,) = result_of(rows, log, tests=settings).comparisons.collect()
    assert row["sample_ratio_p"] == pytest.approx(chisquare([66, 60]).pvalue)
    p = fisher_exact([[60, 6], [30, 30]]).pvalue
    assert p < 0.001 and row["note"].startswith("not trustworthy: 91 % of the users who are assigned to t:a and 50 %")
    assert f"(p = {p:.2g}): the triggering is not the same" in row["note"] and row["better"] is None


def test_each_test_has_its_own_split_verdict_and_page(spark: SparkSession, tmp_path: Path) -> None:
    # In "good", b shows the click first, in "bad" last; "off" has three times as many users in a.
    log, rows = [], []
    for test, hits in {"good": {"a": 0, "b": 1}, "bad": {"a": 1, "b": 0}, "off": {"a": 1, "b": 1}}.items():
        for arm, first in hits.items():
            for i in range(90 if (test, arm) == ("off", "a") else 30):
                user = f"{test}{arm}{i}"
                # One in ten users has it the other way round, so that values differ.
                clicked = 1 if bool(first) != (i % 10 == 0) else 2
                log += [{**row, "relevance": int(row["position"] == clicked)} for row in lists((user, user, "10:00"))]
                rows += assigned(f"{test}:{arm} {user} 09:00")
    shares = {"a": 1, "b": 1}
    settings = {name: {"baseline": "a", "shares": shares} for name in ("good", "bad")} | {"off": {"shares": shares}}
    page = tmp_path / "page.html"
    done = run_of(spark, tmp_path, rows, log, tests=settings, comparison={"baseline": "a"}, report=str(page))
    split = {row["experiment_id"]: row["status"] for row in done.checks.collect() if row["name"] == "sample_ratio"}
    assert split == {"good:a": "ok", "good:b": "ok", "bad:a": "ok", "bad:b": "ok", "off:a": "warn", "off:b": "warn"}
    starts, verdict = ["bad:b loses to", "off:b against", "good:b beats"], done.record["verdict"]
    assert [line[: len(start)] for line, start in zip(verdict, starts, strict=True)] == starts
    assert f"p = {chisquare([90, 30]).pvalue:.2g}" in verdict[1]
    # Each verdict is a family of its own.
    assert {row["n_comparisons"] for row in done.comparisons.collect()} == {1}
    gated = {"tests": settings, "comparison": {"baseline": "a"}, "gates": [{"metric": "rr", "max_drop": 0.01}]}
    with pytest.raises(MetricGateError, match=r"^MRR of bad:b fell by 0\.4000") as failed:
        run_of(spark, tmp_path, rows, log, **gated)
    assert "good:b" not in str(failed.value)
    html = done._repr_html_()
    assert [html.index(f">{name}:b<") for name in ("bad", "off", "good")] == sorted(
        html.index(f">{name}:b<") for name in ("bad", "off", "good")
    )
    assert "ahead of all others" not in html
    pytest.importorskip("altair")
    done.write_report(page)
    text = page.read_text()
    assert [text.index(f'href="page.{name}.html"') for name in ("bad", "off", "good")] == sorted(
        text.index(f'href="page.{name}.html"') for name in ("bad", "off", "good")
    )
    own = (tmp_path / "page.good.html").read_text()
    title = own[own.index("<h1") : own.index("</h1>")]
    assert "good:b" in title and "beats" in title and "60 users in all, 30 in each experiment" in own


@pytest.mark.parametrize(
    ("texts", "options", "error", "sentence"),
    [
        pytest.param(*case, said, id=words, marks=pytest.mark.outcome(words, f"exit {case[2].exit_code}: `{said}`"))
        for (words, *given, error), said in messages("assignments that are refused")
        for case in [(*given, getattr(errors, error))]
    ],
)
def test_assignments_that_fit_nothing_are_refused_in_one_sentence(
    spark: SparkSession, texts: list[str], options: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        result_of(assigned(*texts), **options).check()


@pytest.mark.both_engines
@pytest.mark.parametrize("layout", ["by_experiment", "by_date"])
def test_gates_of_a_test_withhold_it_alone(spark: SparkSession, call: Call, tmp_path: Path, layout: str) -> None:
    users = {f"{test}{arm}{i}": (test, arm) for test in ("good", "bad") for arm in "ab" for i in range(6)}
    # In "bad", b shows the click second.
    log = [
        {**row, "relevance": int(row["position"] == 1 + (row["user"][:4] == "badb"))}
        for row in lists(*((user, user, "10:00") for user in users))
    ]
    csv_file(tmp_path / "log.csv", log)
    csv_file(tmp_path / "assigned.csv", assigned(*(f"{test}:{arm} {u} 09:00" for u, (test, arm) in users.items())))
    gate = [{"metric": "rr", "max_drop": 0.1}, {"metric": "rr", "min": 0.4, "experiment": "b"}]
    out = tmp_path / "out"
    document = {
        "source": {"path": f"{tmp_path}/log.csv", "columns": {"time": "seen"}, "list": ["request"], "format": "csv"},
        "assignments": {"path": f"{tmp_path}/assigned.csv"}, "metrics": ["rr"], "comparison": {"baseline": "a"},
        "evaluation_date": "2026-11-20", "sink": {"path": f"{out}", "layout": layout},
    }  # fmt: skip
    file = tmp_path / "config.yaml"

    def evaluated(**changes: Any) -> tuple[int, str, str]:
        """The command with these sections."""
        file.write_text(json.dumps(document | changes))
        return call("evaluate", "--config", file, "--format", "json")

    assert evaluated()[0] == 0
    code, text, err = evaluated(tests={"good": {"gates": gate}, "bad": {"gates": gate}})
    said = "MRR of bad:b fell by 0.5000 (1.000 → 0.500) against bad:a; the gate allows 0.1 (tests.bad.gates)"
    said += "; bad is not published, the other tests are"
    assert code == 5 and err.splitlines()[-1] == f"rankmetrics: {said}", err
    assert "Not published: a gate failed" in err
    result = json.loads(text)
    assert {row["experiment_id"] for row in result["means"]} == {"good:a", "good:b"}
    assert [row["experiment_id"] for row in result["comparisons"]] == ["good:b"]
    assert all(sentence.startswith("good:b") for sentence in result["verdict"])
    means = read(spark, f"{out}/experiment_metrics").select("experiment_id").collect()
    assert sorted(row[0] for row in means) == ["bad:a", "bad:b", "good:a", "good:b"]
    entries = json.loads((out / "published" / "2026-11-20.json").read_text())["runs"]
    assert [{*each["experiments"]} - {None} for each in entries] == [{"good:a", "good:b"}, {"bad:a", "bad:b"}]
    record = json.loads((out / "runs" / f"{entries[0]['run_id']}.json").read_text())
    assert record["outcome"] == "done" and record["error"]["message"] == said
    assert {row["experiment_id"] for row in record["means"]} == {"bad:a", "bad:b"}
    refused = [row for row in spark.read.parquet(f"{out}/refused_checks").collect() if row["status"] == "fail"]
    assert {(row["name"], row["experiment_id"]) for row in refused} == {("run", None), ("max_drop", "bad:b")}
    _, text, _ = call("status", "-o", out, "--since", "36500d", "--format", "json")
    day = json.loads(text)[0]
    assert (day["state"], day["alert"], day["exit_code"]) == ("published", True, 5)
    assert day["sentence"] == f"published in part: {said}"
    csv_file(tmp_path / "log.csv", [row for row in log if row["user"][:4] != "badb"])
    code, _, err = evaluated(tests={"bad": {"gates": {"metric": "rr", "max_drop": 0.1}}})
    assert code == 5 and "(tests.bad.gates); bad is not published, the other tests are" in err, err
    csv_file(tmp_path / "log.csv", log)
    stored = tmp_path / "stored"  # and from stored lists
    evaluated(tests={"bad": {"gates": gate}}, sink={"path": f"{stored}", "layout": layout, "lists": True})
    code, text, err = call("recompute", "-o", stored, "--metrics", "p@1", "--format", "json")
    assert [row["metrics"] for row in json.loads(text)] == ["rr p@1"]  # what is published all the same
    assert code == 5 and err.splitlines()[-1] == f"rankmetrics: 2026-11-20: {said}", err
    rows = read(spark, f"{stored}/experiment_metrics").where("metric = 'p@1'").collect()
    assert {row["experiment_id"] for row in rows} == {"good:a", "good:b"}
    code, _, err = evaluated(tests={"bad": {"gates": {"metric": "rr", "min": 0, "experiment": "z"}}})
    assert code == 2 and "the test 'bad' has no arm 'z', which tests.bad.gates names" in err
    code, _, err = evaluated(comparison={"baseline": "a", "candidates": ["b", "z"]})
    assert code == 2 and "comparison.candidates: unknown arm 'z'; known: a, b" in err
    code, _, err = evaluated(tests={name: {"gates": {"metric": "rr", "min": 2}} for name in ("good", "bad")})
    assert code == 5 and err.rstrip().endswith("(tests.bad.gates); nothing was published")


@pytest.mark.both_engines
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_init_takes_a_table_of_assignments(spark: SparkSession, call: Call, tmp_path: Path, format: str) -> None:
    files = {name: tmp_path / f"{name}.{format}" for name in ("impressions", "events", "assignments")}
    for name, file in files.items():
        rows = pd.read_csv(GOLDEN / f"{name}.csv", dtype={"slot": int}, parse_dates=False)
        # What the log calls an experiment is none of those of the assignments.
        rows = rows.assign(experiment="x") if name == "impressions" else rows
        rows.to_csv(file, index=False) if format == "csv" else rows.to_parquet(file)
    written = tmp_path / "first.yaml"
    more = [word for name in ("events", "assignments") for word in (f"--{name}", files[name])]
    ok(call, "init", files["impressions"], *more, "-o", written)
    found = load(written)
    assert found.source.columns["experiment"] is None and found.source.columns["time"] == "shown_at"
    assert {test: own.baseline for test, own in found.tests.items()} == {"layout": "control", "ranker": "old"}
    more = [word for each in ("metrics=ap@3,ndcg@3", "events.within=1h") for word in ("--set", each)]
    ok(call, "evaluate", "-c", written, "-o", tmp_path / "out", "--date", "2026-11-20", "--format", "json", *more)
    users, means = (read(spark, tmp_path / "out" / name).collect() for name in ("user_metrics", "experiment_metrics"))
    check_golden(users, means)


def test_init_asks_for_one_baseline_and_names_what_no_column_says(call: Call, typed: Typed, tmp_path: Path) -> None:
    log, who = csv_file(tmp_path / "log.csv", lists()), tmp_path / "who.csv"
    for text, changes, expected in (
        ("experiment,variation,user\n" + "t,x,u1\nt,y,u2\ns,on,u3\ns,old,u3\n", [], {"t": "x", "s": "old"}),
        ("group,user\ny,u1\nx,u2\n", ["--baseline", "y"], "y"),
        ("experiment,user\ncontrol,u1\nx,u2\n", [], "control"),
    ):
        who.write_text(text)
        request = InitRequest(**cli.init.make_context("init", [log, "--assignments", str(who), *changes]).params)
        typed("\n", terminal=True)
        with redirect_stderr(Terminal()) as screen:
            made = first_config(request, tools.sample(log))
        asked = "Which arm of t is the baseline? (x, y) [x]" if "t,x" in text else ""
        assert asked in screen.getvalue() and screen.getvalue().count("?") == bool(asked)
        write_first_config(made, tmp_path / "first.yaml")
        compared = load(tmp_path / "first.yaml").comparison
        baselines = {name: own.baseline for name, own in compared.tests.items()}
        assert (baselines or compared.baseline) == expected
    who.write_text("who,cell\nu1,x\n")
    code, _, err = call("init", log, "--assignments", who, "-o", tmp_path / "second.yaml")
    assert code == 2 and f"no column of '{who}' looks like the user; it has who, cell; allowed: --column assignm" in err
    code, _, err = call("init", log, "--assignments", who, "-o", tmp_path / "2", "--column", "assignments.user=who")
    assert code == 0 and "which arm of the assignments is the baseline (nothing is compared; --baseline ARM" in err


@pytest.mark.both_engines
def test_lists_from_before_the_exposure_to_a_test_reduce_its_variance(spark: SparkSession, tmp_path: Path) -> None:
    # Two lists a day. All are exposed to "s" between those of the 19th; to "t" between those of the 20th, or at the
    # midnight before it. With `days: 1`, the lists of the 18th are from too long before.
    users, days = [f"u{i}" for i in range(20)], [f"2026-11-{day}" for day in (18, 19, 20)]
    shown = [(user, f"{day}T{hour}:00:00Z") for day in days for hour in (10, 11) for user in users]
    rank = {each: 1 + (7 * at_row + at_row // 3) % 3 for at_row, each in enumerate(shown)}
    entered = {user: "2026-11-20T00:00:00Z" if i % 3 else "2026-11-20T10:30:00Z" for i, user in enumerate(users)}
    before = {user: [1 / rank[each] for each in shown if each[0] == user and "2026-11-19" < each[1] < entered[user]]
              for user in users}  # fmt: skip
    assert {len(values) for values in before.values()} == {2, 3}
    of_t = assigned(*(f"t:{'ab'[i % 2]} {user} {entered[user]}" for i, user in enumerate(users)))
    of_s = assigned(*(f"s:{'ab'[i // 10]} {user} 2026-11-19T10:30:00Z" for i, user in enumerate(users)))
    of_s += assigned("r:a u0 2026-11-18T09:00:00Z", "r:b u1 2026-11-18T09:00:00Z")  # a test from the first day on
    cuped: dict[str, Any] = {"before": "exposure", "days": 1}
    for day in (*days, days[-1]):  # the last one again
        log = clicked({each: rank[each] for each in shown if each[1].startswith(day)})
        log = [{**row, "pre": sum(before[row["user"]]) / len(before[row["user"]])} for row in log]
        compared = {"baseline": "a", "cuped": cuped if day > days[0] else None}
        done = run_of(spark, tmp_path / "all", of_s + of_t, log, comparison=compared, evaluation_date=day)
    found = {row["test_name"]: row for row in done.comparisons.collect()}
    compared = {"baseline": "a", "cuped": {"column": "pre"}}
    (expected,) = run_of(spark, tmp_path / "t", of_t, log, comparison=compared).comparisons.collect()
    names = [name for name in expected.asDict() if name.startswith("cuped_")]
    assert [found["t"][name] for name in names] == pytest.approx([expected[name] for name in names], rel=1e-12)
    assert expected["cuped_variance_reduction"] > 0 and found["s"]["cuped_difference"] != found["s"]["difference"]
    stored = (table := read(spark, tmp_path / "all" / "out" / "user_days")).collect()
    kinds = {name: kind for name, kind in tables()["user_days"].items() if "<" not in name}
    assert dict(table.dtypes) == kinds | {"rr": "double"}
    folders = {path.relative_to(tmp_path / "all" / "out" / "user_days").parts[:-1] for path in
               (tmp_path / "all" / "out" / "user_days").rglob("*.parquet")}  # fmt: skip
    assert folders == {(f"evaluation_date={day}",) for day in days}
    assert sum(row["n_lists"] for row in stored) == len(shown)
    assert [row["n_lists"] for row in stored if str(row["evaluation_date"]) == days[1]] == [1] * 2 * len(users)
    without_times = [{"test": row["test"], "arm": row["arm"], "user": row["user"]} for row in of_t]
    with pytest.raises(ConfigError, match=r"cuped\.before is given, and the assignments have no column of times"):
        run_of(spark, tmp_path / "t", without_times, log, comparison={"baseline": "a", "cuped": cuped})
