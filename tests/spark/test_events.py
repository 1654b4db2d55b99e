"""Clicks in rows of their own: which impression each belongs to, what it gives, and what is counted of the others."""

import csv
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import evaluate, job, run
from rankmetrics_spark.errors import QualityError, RankmetricsError
from tests.helpers.logs import config, csv_file
from tests.helpers.messages import cases

pytestmark = pytest.mark.both_engines

GOLDEN = Path(__file__).parent / "field" / "golden_inputs"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
BY_LIST = {"list": "request", "time": "at"}
"""Columns of events that name their list."""
BY_TIME = {"time": "at"}


def golden(name: str) -> list[dict[str, Any]]:
    rows = [*csv.DictReader((GOLDEN / f"{name}.csv").open())]
    return [{**row, "slot": int(row["slot"])} if "slot" in row else row for row in rows]


def shown(*lists: str, user: str = "u", experiment: str = "a") -> list[dict[str, Any]]:
    """Impressions: ``r1 10:00 x y`` is a request, its time and its items."""
    rows = []
    for text in lists:
        request, time, *items = text.split()
        for rank, item in enumerate(items, 1):
            keys = {"experiment": experiment, "user": user, "request": request, "seen": f"2026-11-20T{time}:00Z"}
            rows.append({**keys, "item": item, "position": rank})
    return rows


def events(*texts: str, user: str | None = "u", kind: bool = False) -> list[dict[str, Any]]:
    """Events: ``r1 x 10:01`` is a request, an item and a time; a fourth word is the kind."""
    rows = []
    for text in texts:
        request, item, time, *kinds = text.split()
        at = time if "T" in time or ":" not in time else f"2026-11-20T{time}:00Z"
        rows.append({"user": user, "request": request, "item": item, "at": at, **({"kind": kinds[0]} if kind else {})})
    return rows


def result_of(log: Any, of_users: Any, columns: Any = BY_TIME, **options: Any) -> Any:
    given = {"columns": {"time": "seen"}, "list": "request", "events": of_users, "event_columns": columns}
    return evaluate(log, ["ap@3", "cg@3"], **given, **options)


def gains(result: Any) -> dict[str, float]:
    """User -> mean sum of the grades of their lists."""
    return {row["user_id"]: row["cg_at_3"] for row in result.user_metrics.collect()}


def counted(result: Any) -> dict[str, int]:
    found: dict[str, int] = result.check(max_invalid_fraction=1).events
    return found


@pytest.mark.parametrize(
    ("mode", "columns"), [("by_request", {"list": "request_id", "time": "at"}), ("by_user_and_item", {"time": "at"})]
)
def test_golden_events_have_the_grades_and_counts_of_plain_loops(spark: SparkSession, mode: str, columns: Any) -> None:
    result = evaluate(
        golden("impressions"),
        ["ap@3", "ndcg@3"],
        columns={"experiment": None, "position": "slot", "time": "shown_at"},
        list="request_id",
        events=golden("events"),
        event_columns=columns,
        grades=EXPECTED["grades"],
        within=EXPECTED["within"],
    )
    rows = {row["user_id"]: row for row in result.user_metrics.collect()}
    assert {user: (row["n_lists"], row["ap_at_3"], row["ndcg_at_3"]) for user, row in rows.items()} == {
        user: (row["n_lists"], pytest.approx(row["ap"], abs=1e-12), pytest.approx(row["ndcg"], abs=1e-12))
        for user, row in EXPECTED[mode]["users"].items()
    }
    assert counted(result) == EXPECTED[mode]["counts"]
    assert result.quarantine.count() == 0


@pytest.mark.outcome(
    "events without an impression, before it, or later than `events.within`",
    "no grade; counted in `events`: `event_without_impression`, `event_before_impression`, `event_after_window`",
)
def test_the_window_ends_with_its_last_instant(spark: SparkSession) -> None:
    log = shown("r1 10:00 x y z")
    given = events("r1 x 11:00", "r1 y 11:01", "r1 z 09:59", "r1 q 10:30")
    for columns in (BY_LIST, BY_TIME):
        result = result_of(log, given, columns, within="1h")
        assert gains(result) == {"u": 1.0}
        assert counted(result) == {
            "matched": 1,
            "event_without_impression": 1,
            "event_before_impression": 1,
            "event_after_window": 1,
        }


def test_an_event_belongs_to_the_latest_impressions_of_its_item_and_to_all_tied_ones(spark: SparkSession) -> None:
    # x is shown at 10:00, and twice at 10:10, in another experiment too.
    log = [*shown("r1 10:00 x", "r2 10:10 y x"), *shown("r9 10:10 x", experiment="b")]
    result = result_of(log, events("- x 10:10", "- x 10:11"))
    rows = {(row["experiment_id"], row["user_id"]): row["cg_at_3"] for row in result.user_metrics.collect()}
    assert rows == {("a", "u"): (0 + 1) / 2, ("b", "u"): 1.0}
    assert counted(result) == {"matched": 2}


def test_a_list_has_the_time_of_its_earliest_row(spark: SparkSession) -> None:
    log = shown("r1 10:00 x y")
    log[0]["seen"] = "2026-11-20T10:30:00Z"
    # One hour from 10:00, the time of y.
    result = result_of(log, events("r1 x 11:10", "r1 x 10:05"), BY_LIST, within="1h")
    assert counted(result) == {"matched": 1, "event_after_window": 1}
    assert gains(result) == {"u": 1.0}


@pytest.mark.parametrize("kind", [int, str])
def test_a_repeated_item_receives_its_events_once(spark: SparkSession, kind: type) -> None:
    log = [row | {"request": int(row["request"])} for row in shown("1 10:00 x y x")]
    given = [row | {"request": kind(row["request"])} for row in events("1 x 10:01", "1 x 10:01")]
    result = result_of(log, given, BY_LIST)
    assert gains(result) == {"u": 1.0}
    assert counted(result) == {"matched": 2}
    assert [row["position"] for row in result.quarantine.collect()] == ["3"]


@pytest.mark.outcome("an event of a kind that has no grade", "counted in `events`: `kind_without_grade`")
def test_the_highest_grade_counts_and_a_kind_without_one_is_counted(spark: SparkSession) -> None:
    given = events("r1 x 10:01 click", "r1 x 10:02 buy", "r1 y 10:02 click", "r1 y 10:02 hover", kind=True)
    result = result_of(shown("r1 10:00 x y"), given, BY_LIST, grades={"click": 1, "buy": 2.5})
    assert gains(result) == {"u": 3.5}
    assert counted(result) == {"matched": 3, "kind_without_grade": 1}


@pytest.mark.outcome("an event whose time is none, or without an item", "counted in `events`: `faulty_event`")
def test_faulty_events_are_counted(spark: SparkSession) -> None:
    given = [*events("r1 x 10:01", "r1 y soon"), *events("r1 y 10:01", user=None)]
    result = result_of(shown("r1 10:00 x y"), given, BY_LIST)
    assert gains(result) == {"u": 1.0}
    assert counted(result) == {"matched": 1, "faulty_event": 2}


@pytest.mark.outcome("a time without an offset", "read in `time_zone`, which is UTC unless given")
def test_a_time_without_an_offset_is_of_the_time_zone(spark: SparkSession) -> None:
    log = shown("r1 10:00 x y")
    # In Berlin, winter is one hour ahead: 11:30 there is 10:30Z.
    given = events("r1 x 2026-11-20T11:30:00", "r1 y 2026-11-20T12:00:01+01:00")
    berlin = result_of(log, given, BY_LIST, within="1h", time_zone="Europe/Berlin")
    assert counted(berlin) == {"matched": 1, "event_after_window": 1}
    assert counted(result_of(log, given, BY_LIST, within="90m")) == {"matched": 2}


def test_judgements_give_the_ideal_list_beside_events(spark: SparkSession) -> None:
    judgements = [{"user": "u", "item": item, "relevance": 1} for item in ("y", "never shown")]
    result = result_of(shown("r1 10:00 x y"), events("r1 y 10:01"), BY_LIST, judgements=judgements)
    # y is at rank 2, and two items are relevant: (1/2) / 2.
    assert [row["ap_at_3"] for row in result.user_metrics.collect()] == [1 / 4]


def test_lists_in_a_row_each_take_events_too(spark: SparkSession) -> None:
    log = [
        {"user": "u", "request": "r1", "items": ["x", "y"], "seen": "2026-11-20T10:00:00Z"},
        {"user": "u", "request": "r2", "items": ["y", "x"], "seen": "2026-11-20T10:05:00Z"},
    ]
    columns = {"experiment": None, "item": "items", "time": "seen"}
    given = {"event_columns": BY_LIST, "list": "request"}
    result = evaluate(log, ["ap@3"], columns=columns, events=events("r1 y 10:01", "r2 y 10:06"), **given)  # type: ignore[arg-type]
    assert [row["ap_at_3"] for row in result.user_metrics.collect()] == [(1 / 2 + 1) / 2]


def test_a_run_records_what_became_of_the_events(spark: SparkSession, tmp_path: Path) -> None:
    log, given = shown("r1 10:00 x y", "r2 23:30 x"), events("r1 x 10:01", "r1 q 10:05", "r0 z 00:20", "r2 x 23:50")
    # Where more of the next day is read, its events are of impressions of that day.
    given += events("r9 x 2026-11-21T00:00:00Z")
    done = run(
        spark,
        config(
            csv_file(tmp_path / "log.csv", log),
            tmp_path / "out",
            source={"format": "csv", "columns": {"time": "seen"}, "list": ["request"]},
            events={"path": csv_file(tmp_path / "events-2026-11-21.csv", given).replace("2026-11-21", "{date+1}"),
                    "columns": BY_LIST, "within": "1h"},
            evaluation_date="2026-11-20",
            quality={"gates": {"unmatched_event_rate": {"warn": 0.3}, "open_window_rate": {"warn": 0.1}}},
            metrics=["ap@3"],
        ),
    )  # fmt: skip
    assert done.record["events"] == {
        "matched": 2, "event_without_impression": 1, "event_of_earlier_day": 1, "event_of_later_day": 1
    }  # fmt: skip
    notes = " ".join(done.record["notes"])
    assert (
        "2 of 5 events give their impression a grade; the others: 1 without an impression, 1 perhaps of the day before"
        ", 1 perhaps of the day after" in notes
    )
    # The newest event is at 00:00, and the window of one of three impressions ends at 00:30.
    assert "labels are complete for 67 % of the impressions" in notes
    checks = done.checks.collect()
    # To the last bit: engines round a mean of decimals in two ways.
    assert {row["observed"] for row in checks if row["name"] == "open_window_rate"} == {1 / 3}
    warned = {row["name"]: row["sentence"] for row in checks if row["name"][-4:] == "rate"}
    warned = {name: sentence for name, sentence in warned.items() if "warning" in sentence}
    assert warned == {
        "unmatched_event_rate": "33.3 % of the events with a grade belong to no impression (warning above 30 %: "
        "quality.gates.unmatched_event_rate.warn)",
        "open_window_rate": "33.3 % of the impressions may still get events (warning above 10 %: "
        "quality.gates.open_window_rate.warn)",
    }
    assert done.record["rows"] == {"in": 3, "evaluated": 3, "quarantined": 0}


@pytest.mark.outcome("events with {options}", "refused: {sentence}")
@pytest.mark.parametrize(("options", "error", "sentence"), cases("events that give no grades"))
def test_what_gives_no_grades_is_one_sentence(spark: SparkSession, options: Any, error: str, sentence: str) -> None:
    usual = {"columns": {"time": "seen"}, "list": "request", "event_columns": BY_LIST}
    log = [{**row, "half": 0.5} for row in shown("r1 10:00 x")]
    with pytest.raises(RankmetricsError, match=re.escape(sentence)) as caught:
        evaluate(log, ["ap@3"], events=events("r1 x 10:01"), **{**usual, **options})
    assert type(caught.value).__name__ == error


@pytest.mark.parametrize("unit", [1, 10**3, 10**6])
@pytest.mark.parametrize("kind", [int, str])
def test_times_may_be_whole_numbers_since_1970(spark: SparkSession, unit: int, kind: type) -> None:
    def counts(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        """The same rows with their times in seconds, milliseconds or microseconds."""
        of = (datetime.fromisoformat(row[name].replace("Z", "+00:00")).timestamp() for row in rows)
        return [{**row, name: kind(round(time) * unit)} for row, time in zip(rows, of, strict=True)]

    log, clicks = counts(shown("r1 10:00 x y"), "seen"), counts(events("r1 x 11:00", "r1 y 11:01"), "at")
    # Parquet often has seconds in 32 bits.
    kinds = {"seen": pa.int32()} if unit == 1 and kind is int else {}
    short = pa.table({name: pa.array([row[name] for row in log], kinds.get(name)) for name in log[0]})
    result = result_of(short, clicks, BY_LIST, within="1h")
    assert counted(result) == {"matched": 1, "event_after_window": 1}
    log[0]["seen"] = kind(20261120100000)  # a date, and no count
    with pytest.raises(QualityError, match="check grades, and by which columns the events belong to the log; quality"):
        counted(result_of(log[:1], clicks, BY_LIST, within="1h"))


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_table_of_both_has_no_impressions_among_its_events_and_needs_no_item_in_other_rows(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    rows = [{**row, "event": "shown"} for row in shown("r1 10:00 x y")]
    rows += [{**rows[1], "event": "click", "seen": "2026-11-20T10:01:00Z"}]
    rows += [{**rows[0], "event": "page view", "item": None}]
    columns = {"experiment": "experiment", "user": "user", "item": "item", "position": "position", "time": "seen"}
    source = {"columns": columns, "list": "request", "rows": {"column": "event", "shown": "shown"}}
    of = {"columns": {"list": "request", "item": "item", "kind": "event", "time": "seen"}, "grades": {"click": 1}}
    log = csv_file(tmp_path / "log.csv", rows)
    if format == "json":
        log = str(tmp_path / "log.json")
        Path(log).write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = config(log, tmp_path / "out", source=source, events=of, metrics=["ap@3"])
    assert run(spark, request).record["events"] == {"matched": 1, "kind_without_grade": 1}
    # The record says it too.
    assert not job.verify(spark, request.sink).other


def test_a_gate_refuses_events_of_other_lists(spark: SparkSession) -> None:
    result = result_of(shown("r1 10:00 x"), events("r7 x 10:01"), BY_LIST)
    with pytest.raises(QualityError, match="100 % of the events with a grade belong to no impression"):
        result.check(gates={"unmatched_event_rate": {"fail": 0.5}})
