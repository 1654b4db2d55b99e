"""What stops a run or makes it warn: shares of faulty rows per experiment, causes in words, rates of the log."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, evaluate, metric_udf, parse, run
from rankmetrics_spark.errors import InputError, QualityError, QualityWarning
from rankmetrics_spark.report import accounting, checks, figures_of, has_page_libraries, local_tables, page
from tests.helpers import commands, logs

ANY = {"max_invalid_fraction": 1}


def without_item(rows: list[logs.Shown]) -> list[logs.Shown]:
    return [row._replace(item_id=None) for row in rows]


# ---- faulty rows


def test_the_share_of_faulty_rows_is_limited_in_each_experiment(spark: SparkSession, tmp_path: Path) -> None:
    # Over all, 2 of 40 rows are faulty; in experiment b, 2 of 2.
    log = logs.parquet(tmp_path / "log", [*logs.a_list([1] * 38), *without_item(logs.a_list([1, 0], experiment="b"))])
    with pytest.raises(QualityError) as caught:
        run(spark, logs.config(log, tmp_path / "out", quality={"max_invalid_fraction": 0.5}))
    assert str(caught.value) == (
        "2 of 2 rows of experiment 'b' are faulty (100.00%, allowed 50.00%: quality.max_invalid_fraction is 0.5); "
        "experiment 'b' would have no result; reasons: null_item 2"
    )
    assert logs.only_records(tmp_path / "out")


def test_an_experiment_without_a_sound_row_is_named(spark: SparkSession, tmp_path: Path) -> None:
    # Rows without an experiment are faulty, but they are no experiment that could be missed.
    rows = [*logs.a_list([1]), *without_item(logs.a_list([1, 0], experiment="b")), logs.Shown(None, "u", "i", 1, 1)]
    done = run(spark, logs.config(logs.parquet(tmp_path / "log", rows), tmp_path / "out", quality=ANY))
    warning = "experiment 'b' has no result: all 2 of its rows are faulty"
    assert done.record["quality"]["warnings"] == [warning]
    assert f"warning: {warning}" in accounting(done.record)
    with pytest.warns(QualityWarning, match=warning):
        result = evaluate(logs.impressions(spark, rows), ["ap"]).check(max_invalid_fraction=1)
    assert {name: count["lists"] for name, count in result.counts.items()} == {"a": 1, "b": 0, None: 0}


def test_experiments_whose_names_look_alike_are_named(spark: SparkSession, tmp_path: Path) -> None:
    names = ("Control", "control ", "con trol", "control2", "control2\u200b", "é", "e\u0301", "b")
    rows = [shown for name in names for shown in logs.a_list([1], experiment=name)]
    done = run(spark, logs.config(logs.parquet(tmp_path / "log", rows), tmp_path / "out"))
    assert done.record["quality"]["warnings"] == [
        "the experiments 'Control' and 'con trol' and 'control ' look alike; are they one?",
        r"the experiments 'control2' and 'control2\u200b' look alike; are they one?",
        r"the experiments 'e\u0301' and 'é' look alike; are they one?",
    ]


def test_check_stops_in_python_where_the_command_stops(spark: SparkSession) -> None:
    rows = [*logs.a_list([1, 0]), *without_item(logs.a_list([1]))]
    result = evaluate(logs.impressions(spark, rows), ["ap"])
    with pytest.raises(QualityError, match=r"^1 of 3 rows are faulty \(33.33%, allowed 1.00%: .*reasons: null_item 1$"):
        result.check()
    actual = result.check(max_invalid_fraction=0.5)
    expected = {"rows": 3, "evaluated": 2, "quarantined": 1, "lists": 1}
    assert {name: actual.counts["a"][name] for name in expected} == expected
    with pytest.raises(InputError, match="the input is empty: no rows in the impressions"):
        evaluate(logs.impressions(spark, []), ["ap"]).check()


# A sound grade, two in words, a judgement without an item: 3 of 4 are faulty.
JUDGED = "user_id,item_id,relevance\nu,i1,1\nu,i2,relevant\nu,i3,not relevant\nu,,1\n"
FAULTY_JUDGEMENTS = "reasons: unreadable_relevance 2, null_item 1"


def of_judgements(folder: Path, judged: str = JUDGED, **quality: object) -> Path:
    """A config of one list, whose relevance is looked up in a file of CSV."""
    (folder / "truth.csv").write_text(judged)
    log, truth = logs.parquet(folder / "log", logs.a_list([None] * 3)), {"path": str(folder / "truth.csv")}
    more: dict[str, Any] = {"source": {"columns": {"relevance": None}}, "judgements": truth, "quality": quality}
    return logs.config_file(log, folder / "out", metrics=["ap"], **more)


@pytest.mark.outcome(
    "more faulty judgements than `max_invalid_fraction`",
    "exit 4: the fraction, the limit and the reasons; nothing but a run record is written",
)
def test_too_many_faulty_judgements_stop_a_run(call: commands.Call, tmp_path: Path) -> None:
    config_file = of_judgements(tmp_path, max_invalid_fraction=0.5)
    code, out, err = call("evaluate", "--config", config_file, "--date", logs.DATE)
    assert (code, out) == (4, "")
    limit = "(75.00%, allowed 50.00%: quality.max_invalid_fraction is 0.5)"
    assert err.splitlines()[-1] == f"rankmetrics: 3 of 4 judgements are faulty {limit}; {FAULTY_JUDGEMENTS}"
    assert logs.only_records(tmp_path / "out")
    config_file = of_judgements(tmp_path, JUDGED.splitlines()[0] + "\nu,i1,1\nu,i2,\n", on_invalid="fail")
    code, _, err = call("evaluate", "--config", config_file, "--date", logs.DATE)
    assert code == 4 and err.splitlines()[-1].endswith(
        "1 of 2 judgements are faulty (50.00%, allowed 0.00%: quality.on_invalid is fail); reasons: null_relevance 1"
    )


def test_faulty_judgements_within_the_limit_are_a_warning(call: commands.Call, tmp_path: Path) -> None:
    file = of_judgements(tmp_path, max_invalid_fraction=0.75)
    code, out, err = call("evaluate", "--config", file, "--date", logs.DATE, "--format", "json")
    warning = "3 of 4 judgements (75.00%) are faulty and left out; " + FAULTY_JUDGEMENTS
    assert code == 0 and f"warning: {warning}" in err.splitlines()
    result = json.loads(out)
    assert result["warnings"] == [warning]
    assert [row["sentence"] for row in result["checks"] if row["name"] == "log"] == [warning]
    assert f"{warning}." in [str(check) for check in checks(figures_of(local_tables(str(tmp_path / "out"))))]


def test_python_says_the_same_of_faulty_judgements(spark: SparkSession) -> None:
    truth = [("u", "i1", 1), ("u", "i2", None), ("u", None, 1), ("u", "i3", float("nan"))]
    result = evaluate(logs.impressions(spark, logs.a_list([None] * 3)), ["ap"], logs.judgements(spark, truth))
    faulty, why = "3 of 4 judgements are faulty (75.00%", "reasons: nan_relevance 1, null_item 1, null_relevance 1"
    with pytest.raises(QualityError, match=f"^{re.escape(faulty)}, allowed 1.00%: .*{why}$"):
        result.check()
    with pytest.warns(QualityWarning, match=f"^3 of 4 judgements .* left out; {why}$"):
        result.check(max_invalid_fraction=0.75)
    with pytest.warns(QualityWarning, match=f"^A run would stop: {re.escape(faulty)}"):
        result.summary()


def test_repeated_items_suggest_a_list_column(spark: SparkSession) -> None:
    # Two requests of one user: three of the five rows repeat an item or a rank.
    rows = [*logs.a_list([1, 0]), *logs.a_list([1, 0, 0])[:2], *logs.a_list([0, 0])[:1]]
    with pytest.raises(QualityError, match=r"; if users have several requests each, set list to the request's column$"):
        evaluate(logs.impressions(spark, rows), ["ap"], repeated_items="all").check()


# ---- ranks from 0


def test_ranks_from_0_are_suspected_and_can_be_declared(spark: SparkSession, tmp_path: Path) -> None:
    """The relevant item of each list is the second: its rank is 2, and would be 1 without the first item."""
    ranks = range(150)
    rows = [logs.Shown("a", user, f"i{rank}", rank, int(rank == 1)) for user in "uv" for rank in ranks]
    log = logs.parquet(tmp_path / "log", [*rows, logs.Shown("a", "w", "x", -1, 1), logs.Shown("a", "w", "x", 0, 1)])
    with pytest.raises(QualityError) as caught:
        run(spark, logs.config(log, tmp_path / "out", quality={"max_invalid_fraction": 0.02}))
    assert str(caught.value) == (
        "4 rows have a rank below 1, and there are 2 lists: the ranks seem to start at 0; set source.first_rank to 0, "
        "or allow faulty rows with max_invalid_fraction: 1"
    )
    result = evaluate(spark.read.parquet(str(log)), ["rr"], first_rank=0)
    values = {user: row["rr"] for (_, user), row in logs.by_user(result.user_metrics).items()}
    assert values == {"u": 1 / 2, "v": 1 / 2, "w": 1}
    assert [(row["position"], row["reason"]) for row in result.quarantine.collect()] == [("-1", "position_below_0")]
    with pytest.raises(QualityError, match=r"position_below_1 2; if your ranks start at 0, set first_rank to 0$"):
        evaluate(logs.impressions(spark, [*rows[:3], *rows[150:153]]), ["rr"]).check()


@pytest.mark.outcome("ranks that start at 1 with `first_rank: 0`", "a warning: each rank counts as one more")
def test_ranks_that_start_at_1_are_told_from_gaps(spark: SparkSession) -> None:
    rows = [*logs.a_list([1, 0]), *logs.a_list([0, 1], "v")]
    result = evaluate(logs.impressions(spark, rows), ["rr"], first_rank=0)
    # 1 and 2 are the second and the third rank.
    assert {user: row["rr"] for (_, user), row in logs.by_user(result.user_metrics).items()} == {"u": 1 / 2, "v": 1 / 3}
    with pytest.warns(QualityWarning) as caught:
        result.check()
    assert [str(warning.message) for warning in caught if warning.category is QualityWarning] == [
        "all 2 lists have gaps: the ranks seem to start at 1, and each counts as one more; if they do, set first_rank "
        "to 1"
    ]
    # A list from rank 0 on; and lists with gaps whose ranks are known to start at 1.
    beside = [*rows, logs.Shown("a", "w", "i", 0, 1)]
    assert evaluate(logs.impressions(spark, beside), ["rr"], first_rank=0).check().warnings == ()
    assert evaluate(logs.impressions(spark, [rows[1], rows[3]]), ["rr"]).check().warnings == ()


# ---- what quarantine keeps


def test_quarantine_keeps_the_text_of_a_repeated_row(spark: SparkSession) -> None:
    schema = logs.SCHEMA.replace("bigint", "string")
    rows = [("a", "u", "x", "1", "1"), ("a", "u", "x", " 02.0", "1e0 "), ("a", "u", "y", "3", "true")]
    result = evaluate(logs.impressions(spark, rows, schema), ["ap"], text_numbers=True)
    (left,) = (tuple(row) for row in result.quarantine.collect())
    assert left == ("a", "u", "x", " 02.0", "1e0 ", "duplicate_item")


# ---- values that have no average


def test_grades_that_are_too_large_are_refused_with_metric_and_grade(spark: SparkSession) -> None:
    rows = [*logs.a_list([2000, 1]), *logs.a_list([1], "v", "b")]
    result = evaluate(logs.impressions(spark, rows), ["ndcg@5"], convention={"gain": "exponential"})
    with pytest.raises(QualityError) as caught:
        result.check()
    assert str(caught.value) == (
        "ndcg@5 of experiment 'a' has no value for some lists, whose gains are too large to be added up; the highest "
        "grade is 2000, and the gain is exponential; allowed: grades whose gains can be added up"
    )


# ---- rates of the log

RATED = [
    # A gap: the last of two ranks is 3. Without a relevant item. Shorter than the cut-off of 3.
    *[logs.Shown("a", "u", "i", 1, 0), logs.Shown("a", "u", "j", 3, 0)],
    # One of four rows repeats an item.
    *[*logs.a_list([1, 1, 1], "v"), logs.Shown("a", "v", "i1", 4, 1)],
    *logs.a_list([1, 0, 0], "v", "b"),
]


def test_the_rates_of_a_log_come_with_the_result_and_are_limited(spark: SparkSession, tmp_path: Path) -> None:
    def settings(rows: list[logs.Shown], name: str, **gates: Any) -> cfg.Config:
        quality = ANY | {"gates": gates}
        return logs.config(logs.parquet(tmp_path / name, rows), tmp_path / "out", metrics=["ap@3"], quality=quality)

    first = run(spark, settings(RATED, "first", shared_user_rate={"warn": 0.4})).record["quality"]
    assert first == {
        "rates": {
            "a": {"duplicate_rate": 1 / 6, "gap_rate": 1 / 2, "short_rate": 1 / 2, "no_relevant_rate": 1 / 2},
            "b": {"duplicate_rate": 0, "gap_rate": 0, "short_rate": 0, "no_relevant_rate": 0},
        },
        "overall": {
            "duplicate_rate": 1 / 9,
            "gap_rate": 1 / 3,
            "short_rate": 1 / 3,
            "no_relevant_rate": 1 / 3,
            # Of u and v, only v is in both experiments.
            "shared_user_rate": 1 / 2,
        },
        "warnings": [
            "50 % of the users are in several experiments (warning above 40 %: quality.gates.shared_user_rate.warn)"
        ],
    }
    # Another job of the same output, whose lists are as long as the cut-off.
    run(spark, settings([*logs.a_list([1, 0, 0], "v", "of_apps")], "apps"))
    with pytest.raises(QualityError) as caught:
        run(spark, settings(RATED[2:], "second", short_rate={"fail_change": 0.2}, gap_rate={"fail": 0.5}))
    assert str(caught.value) == (
        "a: 0 % of the lists are shorter than the largest cut-off, 50 % in the previous run "
        "(refused above a change of 20 %: quality.gates.short_rate.fail_change)"
    )
    done = run(spark, settings(RATED[2:], "second", gap_rate={"fail": 0.5}))
    line = (
        "quality: repeated rows 14 % (was 11 %), lists with gaps 0 % (was 33 %), "
        "lists shorter than the largest cut-off 0 % (was 33 %)"
    )
    assert any(result.startswith(line) for result in accounting(done.record))


def test_the_rate_of_tied_scores_is_limited_by_score(spark: SparkSession) -> None:
    rows = [("a", "u", item, 1, int(item == "z"), score) for item, score in [("x", 1.0), ("y", 1.0), ("z", 0.5)]]
    log = logs.impressions(spark, rows, logs.SCHEMA + ", score double")
    result = evaluate(log, ["ap@3"], rank_by="score")
    sentence = r"^a: 66.7 % of the rows have tied scores \(refused above 50 %: quality.gates.tie_rate.fail\)"
    with pytest.raises(QualityError, match=sentence):
        result.check(gates={"tie_rate": {"fail": 0.5}})


@pytest.mark.outcome(
    "judgements of other users than those of the impressions", "exit 3: the shapes of ids on both sides, and no id"
)
def test_judgements_that_match_nobody_show_shapes_and_name_nobody(spark: SparkSession) -> None:
    rows = [("a", "anna.berg@x.org", "Boat-77", 1, 1)]
    truth = spark.createDataFrame([("00419", "sku 5", 1)], "user_id string, item_id string, relevance int")
    with pytest.raises(InputError) as caught:
        evaluate(logs.impressions(spark, rows), ["ap@3"], truth).check()
    message = str(caught.value)
    assert "shown: 'aaaa.aaaa@a.aaa'; judged: '99999'" in message
    assert not any(name in message for name in ("anna", "berg", "00419", "Boat", "sku"))


# ---- what has a limit of its own

NO_CLICK = (
    "none of the 2 lists of the log has a relevant item: check the clicks or grades in 'relevance' (source.columns"
    ".relevance); quality.gates: {no_relevant_rate: {fail: 1}} lets such a log pass"
)


@pytest.mark.outcome(
    "a log without one relevant item",
    "exit 4: what to check, and the limit that lets it pass; nothing but a run record is written",
)
def test_a_day_without_a_click_is_refused_unless_it_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    log = logs.parquet(tmp_path / "log", [*logs.a_list([0, 0]), *logs.a_list([0], experiment="b")])
    with pytest.raises(QualityError) as caught:
        run(spark, logs.config(log, tmp_path / "out"))
    assert str(caught.value) == NO_CLICK and caught.value.exit_code == 4
    assert logs.only_records(tmp_path / "out")
    (record,) = (tmp_path / "out" / "runs").glob("*.json")
    failed = [row for row in json.loads(record.read_text())["checks"] if row["status"] == "fail"]
    assert [(row["experiment_id"], row["name"]) for row in failed] == [(name, "nothing_relevant") for name in "ab"]
    # A limit of the user takes its place; it is above, so 1 allows everything, and 0.9 refuses in its own words.
    allowed = logs.config(log, tmp_path / "out", quality={"gates": {"no_relevant_rate": {"fail": 1}}})
    assert run(spark, allowed).record["rows"]["evaluated"] == 3
    with pytest.raises(QualityError, match=r"^a: 100 % of the lists have no relevant item \(refused above 90 %: "):
        run(spark, logs.config(log, tmp_path / "o", quality={"gates": {"no_relevant_rate": {"fail": 0.9}}}))
    # One click is enough, and so is a metric that asks for none.
    one = logs.parquet(tmp_path / "one", [*logs.a_list([0, 1]), *logs.a_list([0], "v")])
    assert run(spark, logs.config(one, tmp_path / "o"))
    judged = {"judgements": {"path": str(tmp_path / "truth")}, "metrics": ["judged@5"]}
    logs.judgements(spark, [("u", "i1", 0)]).coalesce(1).write.parquet(str(tmp_path / "truth"))
    assert run(spark, logs.config(log, tmp_path / "o", source={"columns": {"relevance": None}}, **judged))


def with_device(folder: Path, of_b: object, *more: object, of_a: Sequence[object] = ("web", "app")) -> Path:
    """Two experiments with one list each for each device."""
    rows = [(shown, device) for arm, devices in (("a", of_a), ("b", [of_b, *more]))
            for n, device in enumerate(devices) for shown in logs.a_list([0, 1], f"u{n}", arm)]  # fmt: skip
    table = pa.table({
        **{name: [getattr(shown, name) for shown, _ in rows] for name in logs.Shown._fields},
        "device": pa.array([device for _, device in rows], pa.string()),
    })  # fmt: skip
    folder.mkdir()
    pq.write_table(table, folder / "part-0.parquet")
    return folder


@pytest.mark.outcome(
    "a segment without a value in nearly all lists of an experiment, or in clearly more than in another one",
    "ok: a warning names it",
)
@pytest.mark.parametrize(
    ("of_a", "devices", "lists"),
    [
        (["web", "app"], [None, None], "100 % of the lists of b"),
        (["web", "app"], [None, "web"], "50 % of the lists of b"),
        (["web", "app"], ["app", "web", "web", "web", None], None),  # a fifth more than in a is no more than that
        (["web", None, "web"], ["app", "web", None], None),  # ordinary nulls
        ([None, "app"] + 6 * [None], [None, "web"] + 6 * [None], None),
        ([None], [None, None], "any list"),
    ],
)
def test_a_segment_without_values_is_named(
    spark: SparkSession, tmp_path: Path, of_a: list[object], devices: list[object], lists: str | None
) -> None:
    log = with_device(tmp_path / "log", *devices, of_a=of_a)
    done = run(spark, logs.config(log, tmp_path / "out", source={"segments": ["device"]}))
    sentence = f"'device' (source.segments) has no value in {lists}: check that every part of the log has the column"
    assert done.record["quality"]["warnings"] == ([sentence] if lists else [])
    rows = [row.asDict() for row in done.checks.where("name = 'segment_rate'").collect()]
    low, high = (each.count(None) / len(each) for each in (of_a, devices))
    of_rows = {row["experiment_id"]: (row["status"], row["observed"], row["limit"], row["margin"]) for row in rows}
    limit = min(0.99, low + 0.2)
    expected = {name: ("warn", share, limit, limit - share) for name, share in (("a", low), ("b", high))}
    assert of_rows == (expected if lists else {})


def test_a_file_without_the_segment_is_seen_by_the_lists_that_lack_it(spark: SparkSession, tmp_path: Path) -> None:
    log = logs.parquet(with_device(tmp_path / "log", "app", "web").rename(tmp_path / "two"), logs.a_list([1], "w", "b"))
    os.replace(log / "part-0.parquet", log / "part-1.parquet")
    with_device(tmp_path / "again", "app", "web")
    shutil.copy(tmp_path / "again" / "part-0.parquet", log / "part-0.parquet")
    done = run(spark, logs.config(log, tmp_path / "out", source={"segments": ["device"]}))
    (sentence,) = done.record["quality"]["warnings"]
    assert sentence.startswith("'device' (source.segments) has no value in 33 % of the lists of b: ")


def judged_log(spark: SparkSession, folder: Path, grades: tuple[int, int]) -> dict[str, Any]:
    """Ten users, a list of five each: all of a are judged, and the first two of b; users have these two grades."""
    rows = [shown for u in range(10) for name in "ab" for shown in logs.a_list([None] * 5, f"u{u}", name)]
    rows = [row._replace(item_id=f"new{row.position}") if row.experiment_id == "b" and row.position > 2 else row
            for row in rows]  # fmt: skip
    truth = [(f"u{u}", f"i{rank}", grades[rank % 2]) for u in range(10) for rank in range(1, 6)]
    logs.judgements(spark, truth).coalesce(1).write.parquet(str(folder / "truth"))
    return {"log": logs.parquet(folder / "log", rows), "source": {"columns": {"relevance": None}},
            "judgements": {"path": str(folder / "truth")}, "metrics": ["ndcg@4", "ndcg@3"]}  # fmt: skip


@pytest.mark.outcome(
    "judgements that know less of the first ranks of one experiment than of another",
    "ok: a warning with both shares, also in the first line of the page",
)
def test_unjudged_first_ranks_are_warned_of_for_each_experiment(spark: SparkSession, tmp_path: Path) -> None:
    made = judged_log(spark, tmp_path, (0, 1))
    done = run(spark, logs.config(made.pop("log"), tmp_path / "out", comparison={"baseline": "a"}, **made))
    differs = "the judged share of the top 4 differs: 1.00 in a, 0.50 in b"
    assert done.record["quality"]["warnings"] == [
        "50 % (b) to 100 % (a) of the items of the top 4 have a judgement; the others count as not relevant",
        f"{differs}; unjudged items count as not relevant, so b may be better than it looks",
    ]
    rows = {(row["experiment_id"], row["name"]): row for row in done.checks.collect()}
    found = {key: (row["status"], row["observed"]) for key, row in rows.items() if key[1].startswith("judged_")}
    assert found == {
        ("a", "judged_top_rate"): ("ok", 1.0), ("b", "judged_top_rate"): ("warn", 2 / 4),
        ("a", "judged_difference"): ("warn", 0.0), ("b", "judged_difference"): ("warn", 1 - 2 / 4),
        ("a", "judged_rate"): ("ok", 1.0), ("b", "judged_rate"): ("ok", 1.0),
    }  # fmt: skip
    assert rows["a", "judged_top_rate"]["metric"] == "judged@4"
    if has_page_libraries():
        # In the first line of the page.
        assert f"Warning: </span>{differs}</li>" in page(figures_of(local_tables(str(tmp_path / "out"))))


def test_judgements_of_relevant_items_alone_say_nothing_of_the_others(spark: SparkSession, tmp_path: Path) -> None:
    made = judged_log(spark, tmp_path, (1, 1))
    done = run(spark, logs.config(made.pop("log"), tmp_path / "out", **made))
    assert done.record["quality"]["warnings"] == []
    rows = done.checks.where("name LIKE 'judged_top%' OR name = 'judged_difference'").collect()
    assert [(row["status"], row["name"]) for row in rows] == [("not_checked", "judged_top_rate")] * 2


@pytest.mark.outcome("grades of 1e308 and {metric}", "refused: the metric is infinite")
@pytest.mark.parametrize("metric", ["ndcg@2", "dcg@2", "graded_rbp"])
def test_a_value_that_is_infinite_is_refused_and_never_returned(spark: SparkSession, metric: str) -> None:
    lists = [*logs.a_list([1, 1]), *logs.a_list([0, 1], "v", "b")]
    rows = [(*row[:-1], 1e308 if row.relevance else 0.0) for row in lists]
    log = logs.impressions(spark, rows, logs.SCHEMA.replace("relevance bigint", "relevance double"))
    result = evaluate(log, [metric, "ap"], baseline="a")
    name = str(parse(metric))
    said = f"{name} has a value that is not finite; the highest grade is 1e+308, and the gain is linear"
    for read in (
        lambda: result.user_metrics.collect(),
        lambda: result.to_pandas(),
        lambda: result.comparisons.collect(),
        lambda: log.groupBy("user_id").agg(metric_udf(metric)("position", "relevance")).collect(),
    ):
        with pytest.raises(Exception, match=re.escape(said)):
            read()
    with pytest.raises(InputError):
        result.user_metrics.collect()
    why = r"values above 1.15e\+18" if metric == "dcg@2" else "no value for some lists, whose gains"
    with pytest.raises(QualityError, match=rf"^{re.escape(name)} of experiment 'a' has {why}"):
        result.check()
    assert [row["ap"] for row in evaluate(log, "ap").user_metrics.orderBy("user_id").collect()] == [1, 1 / 2]


@pytest.mark.outcome("grades below 0, with {options}", "counted in a note: they have no gain")
@pytest.mark.parametrize(
    "options", [{}, {"layout": "rows"}, {"rank_by": "score"}, {"list": "user_id"}, {"judged": True}]
)
def test_grades_below_0_are_counted_in_a_note(spark: SparkSession, options: dict[str, Any]) -> None:
    judged = [("u", "i1", 1)] if options.pop("judged", False) else None
    rows = [*logs.a_list([-1, 1, 0]), *logs.a_list([-1, -1, 1], "v", "b"), *logs.a_list([None, 0], "w", "b")]
    log = logs.impressions(spark, rows).selectExpr("*", "-position AS score")
    truth = None if judged is None else logs.judgements(spark, judged)
    notes = evaluate(log, "ndcg", truth, **options).check(max_invalid_fraction=1).notes
    note = "3 rows have a grade below 0, which is not relevant; leave them out if it stands for no label"
    assert note in notes
    sound = evaluate(log.where("relevance >= 0"), "ndcg", truth, **options).check().notes
    assert not any("below 0" in each for each in sound)
