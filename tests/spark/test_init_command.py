"""``rankmetrics init``: from a file to a config that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankmetrics_spark.cli import first
from rankmetrics_spark.config import load
from tests.helpers.commands import Call

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
    code, out, err = call("init", log, "-o", config, "--format", "json")
    assert code == 0, err
    means = {(row["experiment"], row["metric"]): (row["users"], row["mean"]) for row in json.loads(out)}
    # On the newest day each list has its one relevant item at rank 2.
    assert {means[arm, "ap@10"] for arm in "ab"} == {(2, 1 / 2)}
    assert list(dict.fromkeys(metric for _, metric in means)) == ["ndcg@10", "ap@10", "p@10", "rr"]
    said = " ".join(err.split())
    assert f"wrote {config}: its comments say what was guessed" in said
    assert f"means of all rows; next: rankmetrics evaluate --config {config} --date {NEWEST}" in said
    # The command that it names gives the same numbers, and compares what the config names.
    more = ("--date", NEWEST, "--output", tmp_path / "out", "--format", "json")
    code, out, err = call("evaluate", "--config", config, *more)
    assert code == 0, err
    found = json.loads(out)
    assert {row["mean"] for row in found["means"] if row["metric"] == "ap@10"} == {1 / 2}
    assert {(row["baseline"], row["experiment_id"]) for row in found["comparisons"]} == {("a", "b")}


def test_a_config_that_exists_stays(call: Call, log: Path, tmp_path: Path) -> None:
    config = tmp_path / "first.yaml"
    config.write_text("mine")
    code, out, err = call("init", log, "--output", config)
    assert (code, out, config.read_text()) == (2, "", "mine")
    assert "which exists; allowed: a new file" in " ".join(err.split())


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (("--column", "uid"), 2, "--column is 'uid'; allowed: ROLE=NAME, such as user=visitor_id"),
        (("--column", "user=id"), 2, "--column user=id: unknown column 'id'; did you mean 'uid'?"),
        (("--baseline", "c"), 2, "--baseline is 'c'; allowed: one of a, b"),
    ],
)
def test_a_wrong_answer_is_refused(
    call: Call, log: Path, tmp_path: Path, changes: tuple[str, str], code: int, message: str
) -> None:
    found, _, err = call("init", log, "-o", tmp_path / "first.yaml", *changes)
    assert found == code
    assert message in " ".join(err.split())
    assert not (tmp_path / "first.yaml").exists()


def test_what_nobody_can_guess_is_named_with_the_columns(call: Call, log: Path, tmp_path: Path) -> None:
    log.write_text(log.read_text().replace("uid", "x"))
    code, _, err = call("init", log, "-o", tmp_path / "first.yaml")
    wanted = f"no column of '{log}' looks like the user; it has x, variant, doc, rank, click, day; allowed: --column"
    assert (code, wanted in " ".join(err.split())) == (2, True), err
    assert "instead of users" not in err
    log.write_text(log.read_text().replace("day", "request_id"))
    assert "also user=request_id for requests instead of users" in " ".join(call("init", log)[2].split())
    code, _, err = call("init", log, "-o", tmp_path / "first.yaml", "--column", "user=x")
    assert code == 0, err
    assert load(tmp_path / "first.yaml").source.columns["user"] == "x"


def test_a_log_that_is_not_there_has_the_code_of_inputs(call: Call, tmp_path: Path) -> None:
    assert call("init", tmp_path / "nowhere.csv", "-o", tmp_path / "first.yaml")[0] == 3


def test_on_a_terminal_the_user_is_asked(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write_text(log.read_text().replace("uid", "x").replace(";1;2026", ";3;2026").replace(";0;2026", ";1;2026"))
    answers = iter(["x", "b", False])
    asked = []

    def answer(question: str, *_more: object, **_keywords: object) -> object:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr(first, "_asks", lambda: True)
    monkeypatch.setattr("click.prompt", answer)
    monkeypatch.setattr("click.confirm", answer)
    config = first.first_config(str(log), (), None, None)
    assert asked == ["Which column is the user?", "Which experiment is the baseline?", "Is a grade of 1 relevant?"]
    assert (config.columns["user"].column, config.baseline, config.relevant_from) == ("x", "b", 3)


def test_a_run_of_trec_is_evaluated_with_its_judgements(call: Call, tmp_path: Path) -> None:
    run, qrels = tmp_path / "results.test", tmp_path / "qrels.test"
    run.write_text("q1 Q0 d1 1 2.5 bm25\nq1 Q0 d2 2 1.5 bm25\n")
    qrels.write_text("q1 0 d1 0\nq1 0 d2 1\n")
    more = ("--judgements", qrels, "-o", tmp_path / "first.yaml", "--format", "json")
    code, out, err = call("init", run, *more)
    assert code == 0, err
    means = {row["metric"]: row["mean"] for row in json.loads(out)}
    assert (means["ap@10"], means["rr"], means["p@10"]) == (1 / 2, 1 / 2, 1 / 10)
