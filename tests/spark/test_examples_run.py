"""The lists of users who lost and gained most, read once more from the log: by position, by score, with judgements."""

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import comparison, config as cfg, job
from rankmetrics_spark.report import Examples, figures_of_run, has_page_libraries
from tests.helpers.commands import Call, ok
from tests.helpers.logs import DATE, Shown, a_list, config, config_file, parquet

GRADES = {
    ("a", "u1"): [1, 0, 0], ("b", "u1"): [0, 0, 1],  # AP@3: 1 -> 1/3
    ("a", "u2"): [0, 1, 0], ("b", "u2"): [1, 0, 0],  # 1/2 -> 1
    ("a", "u3"): [1, 0, 0], ("b", "u3"): [1, 0, 0],
    ("a", "u4"): [1, 0, 0], ("b", "u4"): [0, 1, 0],  # 1 -> 1/2
}  # fmt: skip
"""(experiment, user) -> grades by rank."""

LENIENT: dict[str, Any] = {"quality": {"max_invalid_fraction": 1}}


def log_rows() -> list[Shown]:
    rows = [row for (experiment, user), grades in GRADES.items() for row in a_list(grades, user, experiment)]
    return [*rows, Shown("a", "u1", None, 4, 1), Shown("a", "only in a", "i1", 1, 1)]


def record_of(spark: SparkSession, tmp_path: Path, **changes: Any) -> tuple[cfg.Config, dict[str, Any]]:
    usual = LENIENT | {"metrics": ["ap@3"], "comparison": {"baseline": "a", "design": "paired"}}
    usual |= {"report": {"file": str(tmp_path / "r.html"), "examples": 2}}
    settings = config(parquet(tmp_path / "log", log_rows()), tmp_path / "out", **usual | changes)
    return settings, job.run(spark, settings).record


def examples(spark: SparkSession, tmp_path: Path, **changes: Any) -> Examples:
    result = figures_of_run(spark, *record_of(spark, tmp_path, **changes)).examples
    assert result is not None
    return result


def items(result: Examples, experiment: str, user: str) -> list[tuple[Any, ...]]:
    chosen = [row for row in result.lists if (row.experiment_id, row.user_id) == (experiment, user)]
    return [(row.rank, row.item, row.grade, row.relevant) for row in chosen]


def test_the_users_who_lost_and_gained_most_come_with_their_lists(spark: SparkSession, tmp_path: Path) -> None:
    result = examples(spark, tmp_path)
    changes = [(row.kind, row.user_id, row.value_baseline, row.size) for row in result.changes]
    assert changes == [("loss", "u1", 1.0, pytest.approx(2 / 3)), ("loss", "u4", 1.0, 0.5), ("gain", "u2", 0.5, 0.5)]
    assert items(result, "b", "u1") == [(1, "i1", 0.0, False), (2, "i2", 0.0, False), (3, "i3", 1.0, True)]
    # The faulty row is in no list.
    assert [row[1] for row in items(result, "a", "u1")] == ["i1", "i2", "i3"]
    assert {row.user_id for row in result.lists} == {"u1", "u2", "u4"}, "only theirs are read"
    assert {(row.user_id, row.size) for row in result.topics} >= {("u2", 0.5), ("u3", 0.0), ("u4", -0.5)}
    assert len(result.topics) == 4


def test_a_list_by_score_is_in_the_order_of_the_convention_and_judgements_say_what_is_relevant(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs, qrels = tmp_path / "runs", tmp_path / "qrels.txt"
    runs.mkdir()
    # Of two tied scores, trec_eval takes the larger id first, whatever the ranks of the file say.
    (runs / "a").write_text("q1 Q0 d1 1 2.0 a\nq1 Q0 d2 2 2.0 a\nq1 Q0 d3 3 1.0 a\n")
    (runs / "b").write_text("q1 Q0 d3 1 9.0 b\nq1 Q0 d9 2 8.0 b\n")
    qrels.write_text("q1 0 d1 1\nq1 0 d3 0\nq1 0 d7 2\nq1 0 d8 1\n")
    result = examples(
        spark, tmp_path,
        source={"format": "trec_run", "path": str(runs)}, judgements={"format": "trec_qrels", "path": str(qrels)},
        convention="trec_eval", metrics=["ap"], report=str(tmp_path / "r.html"), comparison={"baseline": "a"},
    )  # fmt: skip
    assert result.of_queries, "a query is nobody, so its lists are there unless refused"
    assert items(result, "a", "q1") == [(1, "d2", None, False), (2, "d1", 1.0, True), (3, "d3", 0.0, False)]
    assert items(result, "b", "q1") == [(1, "d3", 0.0, False), (2, "d9", None, False)]
    assert result.missed == [("q1", "d7", 2.0, 2), ("q1", "d8", 1.0, 2)]


def test_where_all_pairs_are_compared_the_lists_are_those_of_the_best_and_of_the_next_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    ranks = {"a": 3, "b": 1, "c": 2}  # AP@3 of each user is 1 / rank of its relevant item
    rows = [
        row
        for user in range(12)
        for name, rank in ranks.items()
        for row in a_list([int(place == rank) for place in (1, 2, 3)], f"u{user}", name)
    ]
    rows += [Shown("b", "v", "i1", 1, 0), Shown("c", "v", "i9", 1, 1), Shown("a", "v", "i9", 1, 0)]
    source = {"path": str(parquet(tmp_path / "three", rows))}
    result = examples(spark, tmp_path, source=source, comparison={"pairs": "all", "design": "paired"})
    # b beats a: twelve users gain 2/3 and one nothing, so of 2^12 sign flips two are as extreme: p = 0.0005.
    assert (result.baseline, result.others, result.is_ahead) == ("b", (2, 2), True)
    pairs = [(row.experiment_id, row.kind, row.user_id, row.size) for row in result.changes]
    third = pytest.approx(2 / 3)
    assert pairs == [
        ("c", "loss", "u0", 0.5), ("c", "loss", "u1", 0.5), ("c", "gain", "v", 1.0),
        ("a", "loss", "u0", third), ("a", "loss", "u1", third),
    ]  # fmt: skip
    assert {row.experiment_id for row in result.lists} == {"a", "b", "c"}
    assert len([row for row in result.topics if row.experiment_id == "c"]) == 13


def test_where_each_user_saw_one_experiment_the_page_says_that_nobody_lost(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row for user in range(6) for row in a_list([user % 2, 1], f"u{user}", "ab"[user // 3])]
    done = examples(spark, tmp_path, source={"path": str(parquet(tmp_path / "b", rows))}, comparison={"baseline": "a"})
    assert (done.note, [*done.changes], [*done.lists]) == (
        "Each user has seen one experiment, so none has lost or gained.", [], [],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not has_page_libraries(), reason="needs the libraries of the page")
def test_report_reads_lists_of_a_finished_run_from_its_log_and_says_if_it_is_gone(call: Call, tmp_path: Path) -> None:
    log, out = parquet(tmp_path / "log", log_rows()), tmp_path / "out"
    more = {"comparison": {"baseline": "a", "design": "paired"}, "convention": {"gain": {1: 0.5, 2: 1}}}
    assert call("evaluate", "--config", config_file(log, out, metrics=["ap@3"], **LENIENT | more))[0] == 0

    def page_of(*options: Any) -> tuple[str, str]:
        """The page that a report writes, and stderr."""
        _, err = ok(call, "report", "--input", out, "--html", tmp_path / "r.html", *options)
        return (tmp_path / "r.html").read_text(), err

    page, _ = page_of()
    assert 'id="examples"' not in page and "rankmetrics report --examples 20" in page, "not unasked"
    for options in (("--examples", 2), ("--examples", 2, "--config", tmp_path / "config.yaml")):
        page, err = page_of(*options)
        data = json.loads(page.partition('id="examples-data">')[2].partition("</script>")[0])
        texts = data["texts"]
        assert [(texts[row[2]], row[6]) for row in data["changes"]] == [("u1", "loss"), ("u4", "loss"), ("u2", "gain")]
        places = {key: texts.index(key) for key in ("a", "b", "u1")}
        rows = data["lists"][f"{places['b']} {places['u1']}"][0]["rows"]
        assert [(rank, texts[item], hit) for rank, item, _, hit in rows] == [(1, "i1", 0), (2, "i2", 0), (3, "i3", 1)]
    code, _, err = call("report", "--input", out, "--html", tmp_path / "r.html", "--config", tmp_path / "config.yaml")
    assert code == 2 and "its report.examples is 0; allowed: --examples 20 with it" in err
    # In b, another item of u4 is relevant by now: AP@3 is 1/3 in place of the 1/2 that is stored. Then u2 is gone.
    others = [row for row in log_rows() if row[:2] != ("b", "u4")]
    for late in ([*others, *a_list([0, 0, 1], "u4", "b")], [row for row in log_rows() if row.user_id != "u2"]):
        parquet(log, late)
        page, err = page_of("--examples", 2)
        note = "the log has changed since the run, or is read otherwise (1 of 3 users have other values)."
        assert f"warning: Their lists are not shown: {note}" in err and note in page
    log.rename(tmp_path / "elsewhere")
    page, err = page_of("--examples", 2)
    assert "Their lists cannot be read again: " in page and str(log) in page
    assert "warning: Their lists cannot be read again: " in err
    (record,) = (out / "runs").glob("*.json")
    record.write_text(record.read_text().replace(str(log), "s3://key:(hidden)@bucket/log"))
    code, _, err = call("report", "--input", out, "--html", tmp_path / "r.html", "--examples", 2)
    assert code == 2 and f"the run record of {DATE} hides secrets of its config; allowed: --config with it" in err


@pytest.mark.skipif(not has_page_libraries(), reason="needs the libraries of the page")
def test_the_page_says_what_unjudged_items_could_change_or_how_to_ask(call: Call, tmp_path: Path) -> None:
    judged = [{"user_id": "u1", "item_id": f"i{n}", "relevance": 2.0 - n} for n in (1, 2)]
    seen = {"a": ("i1", "i2"), "b": ("new", "i1")}
    rows = [(f"u{u}", name, i, rank) for u in (1, 2) for name, items in seen.items() for rank, i in enumerate(items, 1)]
    pd.DataFrame(rows, columns=["user_id", "experiment_id", "item_id", "position"]).to_parquet(tmp_path / "log.parquet")
    pd.DataFrame([j | {"user_id": f"u{n}"} for n in (1, 2) for j in judged]).to_parquet(tmp_path / "truth.parquet")
    columns = {"experiment": "experiment_id", "user": "user_id", "item": "item_id", "position": "position"}
    truth = {"path": str(tmp_path / "truth.parquet")}
    more: dict[str, Any] = {"judgements": truth, "metrics": ["p@2"], "comparison": {"baseline": "a"}}
    file = config_file(tmp_path / "log.parquet", tmp_path / "out", source={"columns": columns}, **more)
    ok(call, "evaluate", "--config", file)
    page, said = tmp_path / "page.html", []
    for more in ((), ("--examples", "1")):
        ok(call, "report", "--input", tmp_path / "out", "--html", page, *more)
        said.append(page.read_text(encoding="utf-8"))
    # Each user is shown one unjudged item, in b alone: were it relevant, b would have 2 of 2, and a has 1.
    assert "rankmetrics unjudged --config FILE says what" in said[0] and "rankmetrics unjudged --config" not in said[1]
    assert "whatever the labels of the 2 unjudged items are: ahead by up to 0.5." in said[1]


def test_nothing_is_read_again_unless_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    config, record = record_of(spark, tmp_path, report=str(tmp_path / "r.html"))
    # Read again, it would be a note of the examples that it is not there.
    (tmp_path / "log").rename(tmp_path / "elsewhere")
    assert figures_of_run(spark, config, record).examples is None


def test_a_metric_of_which_lower_is_better_is_lost_where_it_rises(spark: SparkSession) -> None:
    values = [("a", "u", 1, 1.0), ("b", "u", 1, 3.0), ("a", "v", 1, 1.0), ("b", "v", 1, 0.5)]
    schema = "experiment_id string, user_id string, n_relevant bigint, softmax_loss_t_1 double"
    users = spark.createDataFrame(values, schema)
    table, request = comparison.UserTable.of(users), cfg.Comparison(baseline="a")
    sizes = {
        kind: [(row["user_id"], row[kind]) for row in comparison.largest_changes(table, request, 5, kind).collect()]
        for kind in ("loss", "gain")
    }
    assert sizes == {"loss": [("u", 2.0)], "gain": [("v", 0.5)]}


def test_compare_lists_gains_and_writes_every_user_of_both(call: Call, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", log_rows())
    file = config_file(log, tmp_path / "out", metrics=["ap@3", "rr"], **LENIENT)
    assert call("evaluate", "--config", file)[0] == 0
    compare = ("compare", "--input", tmp_path / "out", "--baseline", "a")
    out, _ = ok(call, *compare, "--gains", 3, "--losses", 1, "--format", "json", "--per-user", tmp_path / "u.csv")
    result = json.loads(out)
    for name, size, user, value in (("gains", "gain", "u2", 0.5), ("losses", "loss", "u1", pytest.approx(2 / 3))):
        assert [(row["metric"], row["user_id"], row[size]) for row in result[name]] == [
            ("ap@3", user, value),
            ("rr", user, value),
        ]
    rows = list(csv.DictReader((tmp_path / "u.csv").read_text().splitlines()))
    assert [(row["metric"], row["user_id"]) for row in rows] == [
        (metric, user) for metric in ("ap@3", "rr") for user in ("u1", "u2", "u3", "u4")
    ]
    assert {(row["baseline"], row["experiment_id"]) for row in rows} == {("a", "b")}
    values = {row["user_id"]: (float(row["value_baseline"]), float(row["difference"])) for row in rows}
    assert values["u4"] == (1.0, -0.5) and values["u3"] == (1.0, 0.0)
    assert [path.name for path in tmp_path.iterdir() if "u.csv" in path.name] == ["u.csv"], "nothing else is left"
    # What is there is not replaced, and a mistake is said before anything is computed.
    for file, problem in (("u.csv", "is there; allowed: a new file"), ("no/u.csv", "is in no folder; allowed: a new")):
        code, _, err = call(*compare, "--per-user", tmp_path / file)
        assert code == 2 and f"{file}' {problem}" in err
    code, _, err = call(*compare[:3], "--pairs", "all", "--losses", 1, "--gains", 1, "--per-user", "x.csv")
    assert code == 2 and "--losses and --gains and --per-user without a --baseline" in err
