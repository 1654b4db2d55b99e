"""The command line: exit codes, one sentence on stderr, results on stdout."""

import csv
import io
import json
import os
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.commands import ROOT, Call, command, ok, ran, spark_environment
from tests.helpers.logs import DATE, Shown, a_list, only_records, parquet
from tests.helpers.messages import cases, messages


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    source = parquet(tmp_path / "log", [*a_list([0, 1], "u", "a"), *a_list([1, 0], "u", "b")])
    return {"source": {"path": str(source)}, "metrics": ["ap@5"], "sink": {"path": str(tmp_path / "out")}}


def write(tmp_path: Path, document: Any) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return file


def error_line(err: str) -> str:
    """Return the one line that says what is wrong; the only other lines on stderr may be the steps."""
    lines = [line for line in err.splitlines() if not line.endswith(" ...")]
    assert len(lines) == 1, err
    assert lines[0].startswith("rankmetrics: ")
    assert "org.apache" not in err and "Traceback" not in err and "\tat " not in err
    return lines[0]


@pytest.mark.both_engines
def test_a_run_ends_with_0_and_prints_json(call: Call, tmp_path: Path, document: dict[str, Any]) -> None:
    out, err = ok(call, "evaluate", "--config", write(tmp_path, document), "--format", "json", "--date", DATE)
    result = json.loads(out)
    assert {(row["experiment_id"], row["metric"]): row["mean"] for row in result["means"]} == {
        ("a", "ap@5"): 1 / 2,
        ("b", "ap@5"): 1,
    }
    assert (result["evaluation_date"], result["comparisons"], result["verdict"]) == (DATE, [], [])
    assert result["counts"]["rows"] == {"in": 4, "evaluated": 4, "quarantined": 0}
    assert {name: count["lists"] for name, count in result["counts"]["experiments"].items()} == {"a": 1, "b": 1}
    assert json.loads(Path(result["paths"]["record"]).read_text())["run_id"] == result["run_id"]
    assert result["paths"]["tables"] == {
        name: f"{tmp_path}/out/{name}" for name in ("user_metrics", "experiment_metrics", "checks")
    }
    assert "rows: 4 read = 4 evaluated + 0 left out" in err
    assert (tmp_path / "out" / "user_metrics" / "experiment_id=a" / f"evaluation_date={DATE}").is_dir()


def test_the_report_is_written_even_if_the_reader_of_the_output_has_gone(
    call: Call, tmp_path: Path, document: dict[str, Any]
) -> None:
    pytest.importorskip("altair")
    report, (reader, writer) = tmp_path / "report.html", os.pipe()
    os.close(reader)
    with suppress(BrokenPipeError), open(writer, "w") as closed, redirect_stdout(closed):
        assert call("evaluate", "--config", write(tmp_path, document | {"report": str(report)}))[0] == 1
    assert "</html>" in report.read_text()


def test_a_run_prints_experiments_as_they_are_called_and_names_no_user_and_no_item(call: Call, tmp_path: Path) -> None:
    names = ["model[v1]", "[/b]", ":car:", "[bold]"]
    log = [Shown(name, "user quokka", f"item wombat {rank}", rank, 1) for name in names for rank in (1, 2)]
    log += [Shown("[/b]", "user quokka", None, 3, 1), Shown("[/b]", "user quokka", "item wombat 2", 1, 1)]
    document = {
        "source": {"path": str(parquet(tmp_path / "log", log))},
        "metrics": ["ap@5", "ap@10", "ndcg@5", "ndcg@10", "rr", "p@5", "p@10", "r@5"],
        "quality": {"max_invalid_fraction": 1},
        "sink": {"path": str(tmp_path / "out")},
    }
    out, err = ok(call, "evaluate", "--config", write(tmp_path, document))
    lines = [line for line in out.splitlines() if any(name in line for name in names)]
    assert len(lines) == len(names) and all(line.count("±") == 0 and line.count("│") == 11 for line in lines)
    assert "left out: duplicate_item 1, null_item 1" in err
    assert "user_metrics, quarantine, experiment_metrics, checks; run record: " in err
    (record,) = (tmp_path / "out" / "runs").iterdir()
    for message in (out, err, record.read_text(encoding="utf-8")):
        assert "quokka" not in message and "wombat" not in message


def test_set_and_output_replace_values_and_csv_is_printed(call: Call, tmp_path: Path, document: dict[str, Any]) -> None:
    file = write(tmp_path, document)
    code, out, _ = call(
        "evaluate", "--config", file, "--set", "metrics=rr,MAP@1", "--output", tmp_path / "other", "--format", "csv"
    )
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert {(row["experiment_id"], row["metric"]): float(row["mean"]) for row in rows} == {
        ("a", "ap@1"): 0,
        ("a", "rr"): 1 / 2,
        ("b", "ap@1"): 1,
        ("b", "rr"): 1,
    }
    assert (tmp_path / "other" / "runs").is_dir() and not (tmp_path / "out").exists()


def test_a_document_has_verdict_and_table_on_stdout(call: Call, tmp_path: Path, document: dict[str, Any]) -> None:
    file = write(tmp_path, document | {"metrics": "ap@5"})
    out, _ = ok(call, "evaluate", "--config", file, "--format", "markdown")
    rows = [line.strip("| ").split(" | ") for line in out.splitlines() if line.startswith("|")]
    assert [row[:2] for row in rows[2:]] == [["b", "1"], ["a", "1"]]
    # The best mean is bold.
    assert [row[2].startswith("**") for row in rows[2:]] == [True, False]
    assert "0.5000" in rows[3][2] and "1.0000" in rows[2][2]
    code, out, err = call("evaluate", "--config", file, "--format", "latex")
    assert (code, "\\textbf{1.0000" in out, out.count("\\begin{tabular}")) == (0, True, 1), err
    code, out, err = call("evaluate", "--config", file, "--format", "markdown", "--segments")
    assert (code, out.count("| **1.0000"), out.count("| 0.5000")) == (0, 1, 1), out


@pytest.mark.parametrize("style", ["table", "json", "csv", "markdown", "latex"])
def test_verdict_and_warnings_reach_a_stream_in_every_format(
    call: Call, tmp_path: Path, document: dict[str, Any], style: str
) -> None:
    rows = [row for n in range(20) for name, grades in (("a", [0, 1, 0]), ("b", [1, 0, 0]))
            for row in a_list(grades, f"u{n}", name)]  # fmt: skip
    gates = {"quality": {"gates": {"short_rate": {"warn": 0.5}}}, "comparison": {"baseline": "a"}, "metrics": ["ap@5"]}
    document["source"]["path"] = str(parquet(tmp_path / "long log", rows))
    out, err = ok(call, "evaluate", "--config", write(tmp_path, document | gates), "--format", style)
    message = (out + err).replace("\\@", "@")
    assert "b beats a on " in message and "warning: " in message and "short_rate" in message
    assert style != "table" or all(text in out for text in ("MAP@5", "0.5000", "1.0000"))
    if style in ("json", "csv"):  # stdout is for programs
        assert "b beats a on " in err and "warning: " in err


def test_a_compared_run_prints_one_object_or_table_of_csv(call: Call, tmp_path: Path, document: dict[str, Any]) -> None:
    """Experiment a has the relevant item at rank 2, b at rank 1."""
    file = write(tmp_path, document | {"comparison": {"baseline": "a"}})
    code, out, err = call("evaluate", "--config", file, "--format", "json", "--date", DATE)
    result = json.loads(out)
    (row,) = result["comparisons"]
    assert (code, row["mean_baseline"], row["mean_candidate"]) == (0, 1 / 2, 1), err
    assert result["verdict"] and all(line in err for line in result["verdict"])
    assert [*result["paths"]["tables"]] == ["user_metrics", "experiment_metrics", "comparisons", "checks"]
    # One user has no interval: null, and no NaN, which is not JSON.
    assert (row["ci_low"], "NaN" in out) == (None, False)
    tables = {}
    for name in ("means", "comparisons"):
        out, _ = ok(call, "evaluate", "--config", file, "--format", "csv", "--table", name, "--date", DATE)
        tables[name] = list(csv.DictReader(io.StringIO(out)))
    assert [(each["experiment_id"], float(each["mean"])) for each in tables["means"]] == [("a", 1 / 2), ("b", 1)]
    (each,) = tables["comparisons"]
    assert (each["baseline"], each["experiment_id"], float(each["difference"]), each["ci_low"]) == ("a", "b", 1 / 2, "")


@pytest.mark.outcome("`--table {table} --format {style}`", "exit 2: {message}")
@pytest.mark.parametrize(("table", "style", "message"), cases("tables to print"))
def test_a_table_that_cannot_be_printed_ends_with_2_before_anything_is_read(
    call: Call, tmp_path: Path, document: dict[str, Any], table: str, style: str, message: str
) -> None:
    words = ("evaluate", "--config", write(tmp_path, document), "--table", table, "--format", style)
    code, out, err = call(*words)
    assert (code, out) == (2, "") and message in error_line(err)
    assert not (tmp_path / "out").exists()


@pytest.mark.outcome("a config that does not exist, or no `--config`", "exit 2")
def test_a_missing_config_or_argument_ends_with_2(call: Call, tmp_path: Path) -> None:
    code, _, err = call("evaluate", "--config", tmp_path / "nowhere.yaml")
    assert code == 2
    assert "nowhere.yaml" in error_line(err)
    assert call("evaluate")[0] == 2


@pytest.mark.outcome("a source with {source}", "exit 3: {message}; nothing but a run record is written")
@pytest.mark.parametrize(("source", "message"), messages("inputs that cannot be read"))
def test_an_unreadable_input_ends_with_3_and_writes_nothing(
    call: Call, tmp_path: Path, document: dict[str, Any], source: dict[str, Any], message: str
) -> None:
    document["source"] = {name: value for name, value in (document["source"] | source).items() if value is not None}
    code, out, err = call("evaluate", "--config", write(tmp_path, document))
    assert (code, out) == (3, "")
    assert message in error_line(err)
    assert only_records(tmp_path / "out")


@pytest.mark.outcome(
    "a row without an item with `on_invalid: fail`",
    "exit 4: `1 of 3 rows are faulty`; nothing but a run record is written",
)
def test_a_quality_gate_ends_with_4_and_writes_nothing(call: Call, tmp_path: Path, document: dict[str, Any]) -> None:
    parquet(tmp_path / "log", [*a_list([0, 1]), Shown("a", "u", None, 3, 1)])
    document["quality"] = {"on_invalid": "fail"}
    code, out, err = call("evaluate", "--config", write(tmp_path, document))
    assert (code, out) == (4, "")
    assert "1 of 3 rows are faulty" in error_line(err) and "null_item 1" in err
    assert only_records(tmp_path / "out")


@pytest.mark.program
def test_a_command_in_its_own_process_prints_a_sentence_for_an_error(tmp_path: Path, document: dict[str, Any]) -> None:
    document["source"]["path"] = str(tmp_path / "nowhere")
    done = command("evaluate", "--config", write(tmp_path, document))
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot read parquet from" in error_line(done.stderr)


OF_ANOTHER_PYTHON = """
from pyspark.sql import SparkSession
from rankmetrics_spark import evaluate
from rankmetrics_spark.errors import RankmetricsError

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
log = [{"experiment": "a", "user": "u", "item": "i", "position": 1, "relevance": 1}]
try:
    evaluate(spark.createDataFrame(log), "ap@3").check()
except RankmetricsError as error:
    print(error)
"""


@pytest.mark.outcome("workers of a Python without the package", "exit 1: `PYSPARK_PYTHON`")
@pytest.mark.program
@pytest.mark.needs_spark("the laptop engine runs its Python steps in this Python")
def test_workers_of_another_python_are_one_sentence_with_the_variable_to_set(tmp_path: Path) -> None:
    # As in a virtual environment that is not activated.
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    environment = spark_environment(PATH=f"{tmp_path}:{os.environ['PATH']}", PYTHONPATH=str(ROOT))
    del environment["PYSPARK_PYTHON"], environment["PYSPARK_DRIVER_PYTHON"]
    end = ran([sys.executable, "-c", OF_ANOTHER_PYTHON], tmp_path, environment)
    assert end.stdout.startswith("Spark's workers run another Python than this process: No module named '"), end.stderr
    assert f"; allowed: PYSPARK_PYTHON={sys.executable} in the environment before" in end.stdout
