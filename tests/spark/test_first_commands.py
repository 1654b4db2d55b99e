"""What people type in their first hour: short options, a config from stdin, examples, completion, relative paths."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark.config import EXAMPLES, example_text, from_mapping, load, parse
from rankmetrics_spark.engines import is_laptop
from tests.helpers.commands import ROOT, Call, Typed, ok, ran, succeeded
from tests.helpers.logs import DATE, a_list, config_file, parquet
from tests.helpers.readme import blocks

COMPLETION = (ROOT / "docs" / "completion.md").read_text(encoding="utf-8")
LOG = [*a_list([0, 1, 0], "u", "a"), *a_list([1, 0, 0], "u", "b"), *a_list([0, 0, 1], "v", "a")]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_file(parquet(tmp_path / "log", LOG), tmp_path / "unused", metrics=["ap@3"])


def means(out: str) -> dict[str, float]:
    return {row["experiment_id"]: row["mean"] for row in json.loads(out)["means"]}


# By the definition: the only relevant item is at rank 2, 1 and 3.
AP = {"a": (1 / 2 + 1 / 3) / 2, "b": 1.0}


def test_short_options_are_the_long_ones(call: Call, config: Path, tmp_path: Path) -> None:
    code, out, err = call("evaluate", "-c", config, "-o", tmp_path / "out", "--format", "json")
    assert (code, means(out)) == (0, pytest.approx(AP, rel=1e-15)), err
    assert (tmp_path / "out" / "published" / f"{DATE}.json").exists() and not (tmp_path / "unused").exists()
    code, out, err = call("runs", "-o", tmp_path / "out", "--format", "json")
    assert (code, [run["outcome"] for run in json.loads(out)]) == (0, ["done"]), err


def test_a_config_from_stdin_is_read_once_for_all_days(call: Call, config: Path, tmp_path: Path, typed: Typed) -> None:
    typed(config.read_text())
    days = ("--from", "2026-11-20", "--to", "2026-11-21")
    code, out, err = call("evaluate", "-c", "-", "-o", tmp_path / "out", *days, "--format", "json")
    assert (code, means(out)) == (0, pytest.approx(AP, rel=1e-15)), err
    assert len([*(tmp_path / "out" / "published").glob("*.json")]) == 2
    assert "warning: the source names no {date}, so all of these days are the same log" in " ".join(err.split())
    typed(config.read_text())
    code, out, err = call("check", "-", "--format", "json")
    assert (code, json.loads(out)["metrics"]) == (0, "ap@3"), err
    typed("")
    code, _, err = call("check", "-")
    assert (code, "the config '-' holds nothing; allowed: a mapping that starts with source" in err) == (2, True)


def test_quiet_leaves_the_result_and_the_warnings(call: Call, config: Path, tmp_path: Path) -> None:
    parquet(tmp_path / "log", [*LOG, *a_list([1], None, "a")])
    settings = ("quality.max_invalid_fraction=1", "quality.gates={short_rate: {warn: 0}}", "metrics=ap@5")
    more = [part for setting in settings for part in ("--set", setting)]
    _, usual, notes = call("evaluate", "-c", config, "-o", tmp_path / "out", *more)
    assert "left out: null_user 1" in notes and "run record: " in notes
    code, out, err = call("evaluate", "-q", "-c", config, "-o", tmp_path / "again", *more)
    assert (code, out) == (0, usual)
    warnings = [line for line in notes.splitlines() if line.startswith("warning: ")]
    assert "short_rate" in warnings[0] and sorted(err.splitlines()) == sorted(warnings)
    # An error is never quiet.
    code, out, err = call("evaluate", "-q", "-c", config, "--set", "metrics=nothing")
    assert (code, out, err[:33]) == (2, "", "rankmetrics: metrics: unknown met")


def test_verbose_prints_each_stage_where_there_is_no_terminal(call: Call, config: Path, tmp_path: Path) -> None:
    plain = call("evaluate", "-c", config, "-o", tmp_path / "out")[2]
    assert "reading schemas ...\n" in plain and not re.search(r"\d s$", plain, re.MULTILINE)
    code, _, err = call("evaluate", "-v", "-c", config, "-o", tmp_path / "again")
    stages = re.findall(r"^  (.+)  \d+\.\d s$", err, re.MULTILINE)
    assert code == 0 and stages[0] == "reading schemas" and "publishing (9 rows)" in stages, err


def test_check_names_the_command_that_runs_what_was_checked(call: Call, config: Path) -> None:
    _, err = ok(call, "check", config, "--set", "metrics=rr", "--date", "2026-11-19")
    assert err.endswith(f"to run it: rankmetrics evaluate --config {config} --set metrics=rr --date 2026-11-19\n")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_that_comes_with_the_package_is_a_config(call: Call, name: str) -> None:
    code, out, err = call("example", name)
    assert (code, out, err) == (0, example_text(name), "")
    document = parse(out)
    assert isinstance(document, dict)
    assert from_mapping(document).metrics == load(ROOT / "conf" / f"{name}.yaml").metrics


def test_a_path_is_relative_to_the_folder_of_the_command_not_of_the_config(
    call: Call, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_laptop(spark):
        return  # the Java of this session stays in the folder in which it was started, as a command's is
    (tmp_path / "conf").mkdir()
    parquet(tmp_path / "conf" / "log", a_list([1], "u", "wrong"))
    place = tmp_path / "work"
    parquet(place / "log", LOG)
    (tmp_path / "conf" / "config.yaml").write_text("{source: {path: log}, metrics: ap@3, sink: {path: out}}")
    monkeypatch.chdir(place)
    out, _ = ok(call, "check", "../conf/config.yaml", "--format", "json")
    assert json.loads(out)["impressions"].startswith(f"parquet, {place}/log, 1 file of")
    assert json.loads(out)["tables"].startswith(f"parquet in {place}/out, ")
    monkeypatch.chdir(tmp_path)
    code, _, err = call("check", "conf/config.yaml")
    assert code == 3
    assert err.endswith(
        f"an existing path in source.path, which is relative to the folder of the command, {tmp_path}\n"
    )


# ---- a terminal


def answered(folder: Path, arguments: list[str], answers: dict[str, str]) -> str:
    """What a command prints on a terminal of its own, where its questions are answered."""
    end, of_program = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "200"}
    program = subprocess.Popen(
        [sys.executable, "-m", "rankmetrics_spark", *arguments],
        cwd=folder, env=environment, stdin=of_program, stdout=of_program, stderr=of_program,
    )  # fmt: skip
    os.close(of_program)
    text, waiting, limit = "", dict(answers), time.monotonic() + 120
    try:
        while time.monotonic() < limit:
            if not select.select([end], [], [], 1)[0]:
                continue
            try:
                text += os.read(end, 4096).decode()
            except OSError:  # the program has ended
                break
            for question in [question for question in waiting if question in text]:
                os.write(end, (waiting.pop(question) + "\n").encode())
        assert program.wait(30) == 0, text
    finally:
        program.kill()
        os.close(end)
    assert not waiting, text
    return text


@pytest.mark.slow
@pytest.mark.program
def test_on_a_terminal_init_asks_what_it_cannot_know(tmp_path: Path) -> None:
    rows = [f"{arm},{user},{rank},{grade}" for arm in "xy" for user in "uv" for rank, grade in ((1, 1), (2, 3), (3, 0))]
    (tmp_path / "log.csv").write_text("\n".join(["variant,who,rank,grade", *rows]))
    answers = {
        "Which column is the user?": "who",
        "Which experiment is the baseline? (x, y) [x]": "y",
        "Which is the smallest grade that is a hit (1 to 3)? [1]": "3",
    }
    text = answered(tmp_path, ["init", "log.csv"], answers)
    assert "user = who (given)" in text and "not asked" not in text
    assert "next: rankmetrics evaluate --config rankmetrics.yaml" in text
    config = load(tmp_path / "rankmetrics.yaml")
    assert (config.source.columns["user"], config.comparison.baseline) == ("who", "y")
    assert config.convention.relevant_from == 3


# ---- completion


def completed(words: str, shell: str = "bash") -> list[str]:
    """What a shell gets for these words; the last one is not complete."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "_RANKMETRICS_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    program = "import sys; from rankmetrics_spark.__main__ import main; sys.argv[0] = 'rankmetrics'; main()"
    done = succeeded(ran([sys.executable, "-c", program], ROOT, environment, seconds=60))
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_shell_completes_commands_options_and_keys() -> None:
    assert completed("rankmetrics ev") == ["evaluate"]
    assert completed("rankmetrics evaluate --eng") == ["--engine"]
    assert completed("rankmetrics evaluate --engine s") == ["spark", "sail"]
    assert completed("rankmetrics evaluate --set comparison.bas") == ["comparison.baseline="]


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(each, marks=pytest.mark.slow) for each in ("zsh", "fish"))])
def test_the_page_of_completion_has_the_line_of_each_shell(shell: str, tmp_path: Path) -> None:
    (command,) = (line for part in blocks("sh", COMPLETION) for line in part.splitlines() if f"{shell}_source" in line)
    variable, source = re.findall(r"(_\w+)=(\w+)", command)[0]
    environment = os.environ | {"PYTHONPATH": str(ROOT), variable: source, "PATH": os.environ["PATH"]}
    program = "import sys; from rankmetrics_spark.__main__ import main; sys.argv[0] = 'rankmetrics'; main()"
    done = succeeded(ran([sys.executable, "-c", program], tmp_path, environment, seconds=60))
    assert f"{shell}_complete" in done.stdout and "rankmetrics" in done.stdout
