"""``rankmetrics init``: from a file to a config that runs."""

import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark.cli import first, init
from rankmetrics_spark.config import load, schema
from rankmetrics_spark.tools import FirstConfig, sample
from tests.helpers.commands import Call, Terminal, Typed, ok
from tests.helpers.logs import a_list, impressions
from tests.helpers.messages import messages

ROWS = [("uid", "variant", "doc", "rank", "click", "day")] + [
    (user, arm, f"d{rank}", str(rank), str(int(rank == hit)), day)
    for day, hit in (("2026-11-19", 3), ("2026-11-20", 2))
    for arm in ("b", "a")
    for user in ("u1", "u2")
    for rank in (1, 2, 3)
]
NEWEST = "2026-11-20"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text("".join(";".join(row) + "\n" for row in ROWS))
    return tmp_path / "log.csv"


def test_the_written_config_runs_and_its_first_rows_are_evaluated(call: Call, log: Path, tmp_path: Path) -> None:
    config = tmp_path / "first.yaml"
    out, err = ok(call, "init", log, "-o", config, "--format", "json")
    means = {(row["experiment"], row["metric"]): (row["users"], row["mean"]) for row in json.loads(out)}
    # On the newest day each list has its one relevant item at rank 2.
    assert {means[arm, "ap@10"] for arm in "ab"} == {(2, 1 / 2)}
    assert list(dict.fromkeys(metric for _, metric in means)) == ["ndcg@10", "ap@10", "p@10", "rr"]
    message = " ".join(err.split())
    assert f"wrote {config}, whose comments say what was guessed: " in message
    assert "user = uid (sure), item = doc (sure)" in message
    assert f"means of the rows of {NEWEST}; next: rankmetrics evaluate --config {config} --date {NEWEST}" in message
    # The command that it names gives the same numbers, and compares what the config names.
    more = ("--date", NEWEST, "--output", tmp_path / "out", "--format", "json")
    out, _ = ok(call, "evaluate", "--config", config, *more)
    result = json.loads(out)
    assert {row["mean"] for row in result["means"] if row["metric"] == "ap@10"} == {1 / 2}
    assert {(row["baseline"], row["experiment_id"]) for row in result["comparisons"]} == {("a", "b")}


def test_rows_that_a_run_would_refuse_have_no_means(call: Call, tmp_path: Path) -> None:
    rows = [f"a,u,i{item},{1 + item % 2},{item % 3}" for item in range(8)]
    (tmp_path / "log.csv").write_text("\n".join(["variant,uid,doc,rank,click", *rows]))
    config = tmp_path / "first.yaml"
    for style, expected in (("table", ""), ("json", "[]\n")):
        code, out, err = call("init", tmp_path / "log.csv", "-o", config, "--force", "--format", style)
        assert (code, out) == (0, expected), err
        message = " ".join(err.split())
        # Of the four rows with a rank, three repeat it.
        assert "a run over these rows would stop: 6 of 8 rows are faulty (75.00%, allowed 1.00%" in message
        assert f"once that is settled: rankmetrics evaluate --config {config}" in message
        assert "means of" not in message


def csv_log(tmp_path: Path, head: str, *rows: str) -> Path:
    (tmp_path / "log.csv").write_text("\n".join([head, *rows]))
    return tmp_path / "log.csv"


def test_a_run_that_would_stop_for_empty_clicks_is_told_to_fill_them(call: Call, tmp_path: Path) -> None:
    """A left join of impressions and clicks has nothing where nobody clicked."""
    config = tmp_path / "first.yaml"
    rows = [f"u{user},i{rank},{rank},{'1' * (rank == 2)}" for user in range(3) for rank in (1, 2, 3)]
    # Two rows of nobody: they are no list.
    rows += [",i1,1,1"] * 2
    code, _, err = call("init", csv_log(tmp_path, "uid,doc,rank,click", *rows), "-o", config)
    advice = "; 6 of 11 rows have no value in click: fill them with 0 if empty means no click"
    assert (code, advice in " ".join(err.split())) == (0, True), err
    # The reasons of a run.
    assert "reasons: null_relevance 6, null_user 2;" in " ".join(err.split())
    # Where a value is none, filling the empty ones is no way out.
    rows[0] += "?"
    code, _, err = call("init", csv_log(tmp_path, "uid,doc,rank,click", *rows), "-o", config, "--force",
                        "--column", "relevance=click")  # fmt: skip
    assert (code, "would stop" in " ".join(err.split()), "fill them" in err) == (0, True, False), err


def test_a_run_that_would_stop_at_pages_says_what_they_seem_to_be(call: Call, tmp_path: Path) -> None:
    rows = [f"u{user},{page},{rank},{rank % 2}" for user in range(3) for page in (1, 2) for rank in (1, 2, 3)]
    code, _, err = call("init", csv_log(tmp_path, "uid,page,rank,click", *rows), "-o", tmp_path / "first.yaml")
    seen = "; page repeats for every user: if rank starts anew on each page of a list, compute a position over all"
    assert (code, seen in " ".join(err.split())) == (0, True), err


# Sail filters no JSON by its date.
@pytest.mark.parametrize(("format", "day"), [("json", "at"), pytest.param("parquet", "day", marks=pytest.mark.slow)])
def test_a_log_with_structs_is_evaluated(call: Call, tmp_path: Path, format: str, day: str) -> None:
    rows = [
        {"event": {"user": {"id": f"u{user}"}, "arm": arm, day: "2026-11-20"}, "item": {"sku": f"i{rank}"},
         "more": {"rank": rank, "country": "DE"}, "clicked": int(rank == hit)}
        for arm, hit in (("a", 1), ("b", 2)) for user in range(3) for rank in (1, 2, 3)
    ]  # fmt: skip
    file, config = tmp_path / f"log.{format}", tmp_path / "first.yaml"
    frame = pd.DataFrame(rows)
    frame.to_parquet(file) if format == "parquet" else frame.to_json(file, orient="records", lines=True)
    more = ("--column", "user=event.user.id", "--segment", "more.country")
    out, _ = ok(call, "init", file, "-o", config, "--format", "json", *more)
    expected = {"a": 1, "b": 1 / 2}
    assert {row["experiment"]: row["mean"] for row in json.loads(out) if row["metric"] == "rr"} == expected
    out, _ = ok(call, "evaluate", "-c", config, "--date", NEWEST, "-o", tmp_path / "out", "--format", "json")
    means = [row for row in json.loads(out)["means"] if row["metric"] == "rr" and row["segment"] == "all"]
    assert {row["experiment_id"]: row["mean"] for row in means} == expected


@pytest.mark.parametrize(("given", "message"), messages("columns of a first config"))
def test_columns_that_cannot_serve_are_named_with_a_value(
    call: Call, tmp_path: Path, given: tuple[str, str, list[str]], message: str
) -> None:
    head, row, assignments = given
    options = [word for assignment in assignments for word in ("--column", assignment)]
    code, out, err = call("init", csv_log(tmp_path, head, row, row), "-o", tmp_path / "first.yaml", *options)
    assert (code, out, message in " ".join(err.split())) == (2, "", True), err
    assert not (tmp_path / "first.yaml").exists()


def test_a_column_of_judgements_that_cannot_serve_is_refused(call: Call, log: Path, tmp_path: Path) -> None:
    (tmp_path / "truth.csv").write_text("uid,doc,grade\nu1,d1,good\n")
    more = ("--judgements", tmp_path / "truth.csv", "--column", "judgements.relevance=grade")
    code, _, err = call("init", log, "-o", tmp_path / "first.yaml", *more)
    message = "--column judgements.relevance=grade: column 'grade' holds good; a relevance is a number"
    assert (code, message in " ".join(err.split())) == (2, True), err


def test_a_config_that_exists_stays(call: Call, log: Path, tmp_path: Path) -> None:
    config = tmp_path / "first.yaml"
    config.write_text("mine")
    code, out, err = call("init", log, "--output", config)
    assert (code, out, config.read_text()) == (2, "", "mine")
    assert "which exists; allowed: a new file, or --force" in " ".join(err.split())


def test_force_replaces_a_config_and_the_schema_lies_beside_it(call: Call, log: Path, tmp_path: Path) -> None:
    config = tmp_path / "first.yaml"
    config.write_text("mine")
    code, _, err = call("init", log, "-o", config, "--force", "--baseline", "b", "--segment", "doc", "-q")
    assert (code, err) == (0, "")
    assert (load(config).comparison.baseline, load(config).source.segments) == ("b", ("doc",))
    first_line = config.read_text().splitlines()[0]
    assert json.loads((tmp_path / first_line.rpartition("=")[2]).read_text()) == schema()


def test_what_is_not_asked_is_said_with_the_option_that_answers_it(call: Call, log: Path, tmp_path: Path) -> None:
    log.write_text(log.read_text().replace(";a;", ";x;").replace(";1;2026", ";3;2026").replace(";0;2026", ";1;2026"))
    code, _, err = call("init", log, "-o", tmp_path / "first.yaml")
    said = " ".join(err.split())
    assert code == 0 and "not asked without a terminal: which experiment is the baseline (nothing is compared; " in said
    assert "--baseline b, or another of b, x) not asked without a terminal: which grades are relevant (all " in said
    more = ("--baseline", "x", "--relevant-from", "3")
    code, _, err = call("init", log, "-o", tmp_path / "second.yaml", *more)
    assert (code, "not asked" in err) == (0, False)
    config = load(tmp_path / "second.yaml")
    assert (config.comparison.baseline, config.convention.relevant_from) == ("x", 3)


@pytest.mark.parametrize(("given", "message"), messages("wrong answers to init"))
def test_a_wrong_answer_is_refused(
    call: Call, log: Path, tmp_path: Path, given: tuple[list[str], int], message: str
) -> None:
    changes, code = given
    result, _, err = call("init", log, "-o", tmp_path / "first.yaml", *changes)
    assert result == code
    assert message in " ".join(err.split())
    assert not (tmp_path / "first.yaml").exists()


def test_what_nobody_can_guess_is_named_with_the_columns(call: Call, log: Path, tmp_path: Path) -> None:
    log.write_text(log.read_text().replace("uid", "x"))
    code, _, err = call("init", log, "-o", tmp_path / "first.yaml")
    expected = f"no column of '{log}' looks like the user; it has x, variant, doc, rank, click, day; allowed: --column"
    assert (code, expected in " ".join(err.split())) == (2, True), err
    assert "instead of users" not in err
    # All that is missing in one sentence, with the whole command; a file without names says so.
    (log.parent / "truth.csv").write_text("a b,ann,x 1\na c,bob,x 2\n")
    code, _, err = call("init", log, "--judgements", log.parent / "truth.csv", "--column", "item=doc")
    assert " ".join(err.split()).endswith(
        f"no column of '{log}' looks like the user; none of '{log.parent}/truth.csv' looks like the user or the item "
        f"or the relevance; it has x, variant, doc, rank, click, day; {log.parent}/truth.csv has a b, ann, x 1; "
        "allowed: --column user=NAME --column judgements.user=NAME --column judgements.item=NAME --column "
        f"judgements.relevance=NAME; as a whole: rankmetrics init {log} --judgements {log.parent}/truth.csv --column "
        "item=doc --column user=NAME --column judgements.user=NAME --column judgements.item=NAME --column "
        "judgements.relevance=NAME"
    )
    log.write_text(log.read_text().replace("day", "request_id"))
    assert "also user=request_id for requests instead of users" in " ".join(call("init", log)[2].split())
    ok(call, "init", log, "-o", tmp_path / "first.yaml", "--column", "user=x")
    assert load(tmp_path / "first.yaml").source.columns["user"] == "x"


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_log_with_a_row_per_list_is_read_as_it_is(call: Call, tmp_path: Path, format: str) -> None:
    rows = pd.DataFrame({"uid": ["u", "v"], "docs": [["x", "y"], ["y"]], "clicks": [[0, 1], [0]]})
    file = tmp_path / f"log.{format}"
    rows.to_parquet(file) if format == "parquet" else rows.to_json(file, orient="records", lines=True)
    ok(call, "init", file, "-o", tmp_path / "first.yaml")
    assert load(tmp_path / "first.yaml").source.columns == {
        "experiment": None,
        "user": "uid",
        "item": "docs",
        "relevance": "clicks",
    }


def test_a_log_that_is_not_there_has_the_code_of_inputs(call: Call, tmp_path: Path) -> None:
    assert call("init", tmp_path / "nowhere.csv", "-o", tmp_path / "first.yaml")[0] == 3


def init_request(*arguments: object) -> first.InitRequest:
    return first.InitRequest(**init.make_context("init", [*map(str, arguments)]).params)


Ask = Callable[..., tuple[FirstConfig, list[str]]]


@pytest.fixture
def asked(typed: Typed) -> Ask:
    """Make a config as on a terminal where somebody types these answers; return it with the questions."""

    def asked(request: first.InitRequest, *answers: str) -> tuple[FirstConfig, list[str]]:
        typed("".join(f"{answer}\n" for answer in answers), terminal=True)
        with redirect_stderr(Terminal()) as screen:
            config = first.first_config(request, sample(request.log))
        assert sys.stdin.read() == ""
        return config, re.findall(r"(?:Are|Is|Which) [^?]*\?", screen.getvalue())

    return asked


def test_on_a_terminal_the_user_is_asked(log: Path, asked: Ask) -> None:
    log.write_text(log.read_text().replace("uid", "x").replace(";1;2026", ";3;2026").replace(";0;2026", ";1;2026"))
    config, questions = asked(init_request(log), "x", "b", "")
    hit = "Which is the smallest grade that is a hit (1 to 3)?"
    assert questions == ["Which column is the user?", "Which experiment is the baseline?", hit]
    assert (config.columns["user"].column, config.baseline, config.relevant_from) == ("x", "b", 3)
    # All grades are hits: the config says that too, so that no run asks again.
    assert "relevant_from: 1}" in asked(init_request(log), "x", "b", "1")[0].text()
    # What the options say is not asked.
    named, questions = asked(init_request(log, "--column", "user=x", "--baseline", "b", "--relevant-from", 3))
    assert (named.columns["user"].column, named.baseline, named.relevant_from) == ("x", "b", 3)
    assert questions == []


def test_on_a_terminal_the_user_says_whether_values_name_experiments(log: Path, asked: Ask) -> None:
    log.write_text(log.read_text().replace("variant", "setting"))
    asks = "Is setting the experiment (a, b)?"
    config, questions = asked(init_request(log), "y", "b")
    assert questions == [asks, "Which experiment is the baseline?"]
    assert (config.columns["experiment"].reason, config.baseline) == ("given", "b")
    config, questions = asked(init_request(log), "n")
    assert (questions, "experiment" in config.columns, config.columns["list"].column) == ([asks], False, "setting")


def test_on_a_terminal_the_user_may_name_judgements(tmp_path: Path, asked: Ask) -> None:
    run, recs, truth = tmp_path / "results.test", tmp_path / "recs.csv", tmp_path / "truth.csv"
    run.write_text("q1 Q0 d1 1 2.5 bm25\n")
    recs.write_text("user,doc,rank\nu,d,1\n")
    truth.write_text("user,what,stars\nu,d,1\nu,e,4\nu,f,5\n")
    config, questions = asked(init_request(recs), "y", str(truth), "what", "")
    assert questions == [
        "Are there judgements, in a file of their own?",
        "Which file?",
        "Which column of the judgements is the item?",
        "Which is the smallest grade that is a hit (1 to 5)?",
    ]
    assert (config.judged_columns["item"].column, config.relevant_from) == ("what", 4)
    qrels = tmp_path / "qrels.test"
    qrels.write_text("q1 0 d1 1\n")
    config, questions = asked(init_request(run), str(qrels))
    assert (questions, config.judgements) == (["Which file holds the judgements (qrels)?"], str(qrels))


@pytest.mark.slow
@pytest.mark.classic
def test_a_table_of_the_catalog_is_looked_at_by_its_engine(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    rows = [*a_list([1, 0], "u", "a"), *a_list([0, 1], "u", "b")]
    spark.sql("CREATE DATABASE IF NOT EXISTS first_hour")
    impressions(spark, rows).write.mode("overwrite").saveAsTable("first_hour.shown")
    try:
        out, _ = ok(call, "init", "first_hour.shown", "-o", tmp_path / "first.yaml", "--format", "json")
        assert load(tmp_path / "first.yaml").source.table == "first_hour.shown"
        means = {row["experiment"]: row["mean"] for row in json.loads(out) if row["metric"] == "ap@10"}
        assert means == {"a": 1, "b": 1 / 2}
        code, _, err = call("init", "first_hour.nothing", "-o", tmp_path / "second.yaml")
        assert code == 3 and "cannot read table from 'first_hour.nothing'" in err
    finally:
        spark.sql("DROP DATABASE first_hour CASCADE")


def test_a_run_of_trec_asks_for_its_judgements(call: Call, tmp_path: Path) -> None:
    (tmp_path / "results.test").write_text("q1 Q0 d1 1 2.5 bm25\nq1 Q0 d2 2 1.5 bm25\n")
    code, _, err = call("init", tmp_path / "results.test", "-o", tmp_path / "first.yaml")
    assert code == 2 and "is a TREC run, which has no relevance; allowed: --judgements FILE, with its qrels" in err
    assert not (tmp_path / "first.yaml").exists()
