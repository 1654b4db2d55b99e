"""The commands and the code of docs/report.md and docs/publishing.md run as they stand there."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import evaluate, report as rep, run
from tests.helpers.commands import ROOT, Call, ok
from tests.helpers.logs import DATE, a_list, config, impressions, parquet
from tests.helpers.readme import blocks, commands, names_after, section

REPORT = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
COMPARING = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
PUBLISHING = (ROOT / "docs" / "publishing.md").read_text(encoding="utf-8")
LOG = [row for n in range(6) for name in ("a", "b") for row in a_list([n % 2, int(name == "b"), 1], f"u{n}", name)]


@pytest.fixture
def published(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the examples, which hold the relative path out/first; the engine may run in another one."""
    monkeypatch.chdir(tmp_path)
    log, out = parquet(tmp_path / "log", LOG), tmp_path / "out" / "first"
    request = {"metrics": ["ap@10", "ndcg@10"], "comparison": {"baseline": "a"}}
    document = {"source": {"path": str(log)}, "sink": {"path": str(out)}, **request}
    Path("run.yaml").write_text(json.dumps(document), encoding="utf-8")
    run(spark, config(log, out, **request))
    return out


@pytest.mark.slow
@pytest.mark.skipif(not rep.has_page_libraries(), reason="needs the libraries of the page")
def test_the_commands_and_the_code_of_a_period_run(
    call: Call, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out" / "first"
    rows = [row._replace(experiment_id="control" if row.experiment_id == "a" else "b") for row in LOG]
    for day in ("2026-11-08", "2026-11-21"):
        request = config(parquet(tmp_path / "log", rows), out, metrics=["ap@10"], comparison={"baseline": "control"})
        run(spark, replace(request, evaluation_date=day))
    text = section("One answer over many days", COMPARING)
    for program in commands("rankmetrics", text):
        ok(call, *words_of(program, out))
    assert "Period" in Path("report.html").read_text(encoding="utf-8")
    (program,) = blocks("python", text)
    names = names_after(program.replace("out/first", str(out)), spark=spark)
    assert {row["n_days"] for row in names["period"].collect()} == {2}


def words_of(program: list[str], out: Path) -> list[str]:
    """The words of a command of the docs, without the program."""
    return [str(out) if word == "out/first" else word for word in program[1:]]


@pytest.mark.skipif(not rep.has_page_libraries(), reason="needs the libraries of the page")
def test_the_commands_of_the_report_write_the_page(call: Call, published: Path) -> None:
    programs = commands("rankmetrics", REPORT)
    assert len(programs) >= 2
    for program in programs:
        words = words_of(program, published)
        page = Path(words[words.index("--html") + 1])
        page.unlink(missing_ok=True)
        ok(call, *words)
        assert DATE in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not rep.has_page_libraries(), reason="needs the libraries of the page")
def test_the_code_of_the_report_shows_the_answer_and_writes_the_page(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("python", REPORT)
    # MLflow has an environment of its own, and so has its test.
    lines = [line for line in program.splitlines() if "mlflow" not in line or find_spec("mlflow")]
    assert len(lines) >= 4
    names = names_after("\n".join(lines), result=evaluate(impressions(spark, LOG), ["ap@10", "ndcg@10"], baseline="a"))
    assert "ndcg@10" in {row["metric"] for row in names["result"].summary().to_dict("records")}
    assert "<html" in Path("report.html").read_text(encoding="utf-8")


def test_the_commands_of_publishing_run(call: Call, published: Path, tmp_path: Path) -> None:
    programs = [words_of(program, published) for program in commands("rankmetrics", PUBLISHING)]
    # The last one reads a catalog of Iceberg: tests/platforms/test_lakehouse.py.
    *status, forget, table, records, catalog = programs
    # Nothing is published of yesterday.
    assert [call(*each)[0] for each in status] == [5, 5]
    (tmp_path / "ids.txt").write_text("nobody")
    code, _, err = call(*(tmp_path / word if word == "ids.txt" else word for word in forget))
    assert code == 0 and "erased 0 users from 0 dates; 1 of 1 ids are in no table" in err
    code, out, err = call(*table)
    assert code == 0 and "done" in out, err
    code, out, err = call(*records)
    assert (code, [record["outcome"] for record in json.loads(out)]) == (0, ["done"]), err
    assert "--table" in catalog


def test_the_code_of_changed_lists_has_the_numbers_that_it_shows(spark: SparkSession) -> None:
    (program,) = blocks("python", section("Only changed lists", COMPARING))
    row = names_after(program)["row"]
    assert (row["n_users"], row["share_changed"]) == (2, 2 / 3)
    assert row["difference"] == pytest.approx(((1 - 1 / 3) + (1 / 2 - 1 / 3)) / 2) == pytest.approx(0.417, abs=5e-4)
    assert row["diluted_difference"] == pytest.approx(0.278, abs=5e-4)


def test_the_code_of_percentiles_has_the_numbers_that_it_shows(spark: SparkSession) -> None:
    (program,) = blocks("python", section("Percentiles", COMPARING))
    row = names_after(program)["row"]
    assert (row["percentile_50"], row["percentile_90"]) == (0.75, 1)
    assert row["percentile_50_ci_low"] != row["percentile_50_ci_low"]
