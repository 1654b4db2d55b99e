"""The table ``checks``: what a run has judged, and what is left of a run that fails a gate."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import read, run
from rankmetrics_spark.errors import MetricGateError, QualityError
from rankmetrics_spark.report import has_page_libraries
from tests.helpers.commands import Call, ok
from tests.helpers.logs import DATE, Shown, a_list, config, config_file, only_records, parquet

EARLIER = "2026-11-19"


def log(folder: Path) -> Path:
    """Two users in each experiment: the relevant item is at rank 2 in a, at rank 1 in b; one row of b has no item."""
    rows = [*a_list([0, 1], "u", "a"), *a_list([0, 1], "v", "a"), *a_list([1, 0], "u", "b"), *a_list([1, 0], "v", "b")]
    return parquet(folder / "log", [*rows, Shown("b", "v", None, 3, 1)])


def document(folder: Path, **sections: Any) -> Path:
    """A config of the log in which b is compared with a."""
    usual: dict[str, Any] = {"metrics": ["ap@5"], "comparison": {"baseline": "a"}}
    usual |= {"quality": {"max_invalid_fraction": 0.5, "gates": {"no_relevant_rate": {"fail": 0.5}}}}
    return config_file(log(folder), folder / "out", **usual | sections)


def by_name(rows: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["experiment_id"], row["name"]): row for row in rows}


KEPT = [{"metric": "ap@5", "min": 0.25, "max_drop": 0.125}]


def test_every_gate_rate_ratio_and_book_is_a_row(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    out, _ = ok(call, "evaluate", "--config", document(tmp_path, gates=KEPT), "--date", DATE, "--format", "json")
    rows = by_name(row.asDict() for row in read(spark, str(tmp_path / "out" / "checks")).collect())
    assert {(str(row["evaluation_date"]), row["segment"]) for row in rows.values()} == {(DATE, "all")}
    numbers = {key: (row["status"], row["observed"], row["limit"], row["margin"]) for key, row in rows.items()}
    # AP of a is 1/2, of b 1: a drop of -1/2.
    assert numbers["a", "min"] == ("ok", 0.5, 0.25, 0.25)
    assert numbers["b", "min"] == ("ok", 1.0, 0.25, 0.75)
    assert numbers["b", "max_drop"] == ("ok", -0.5, 0.125, 0.625)
    assert ("a", "max_drop") not in numbers
    assert {row["metric"] for row in rows.values()} == {None, "ap@5"}
    assert numbers["b", "no_relevant_rate"] == ("ok", 0.0, 0.5, 0.5)
    assert numbers["b", "gap_rate"] == ("not_checked", 0.0, None, None)
    # One of the five rows of b is left out.
    assert numbers["b", "faulty_rate"] == ("warn", 1 / 5, 0.01, pytest.approx(0.01 - 1 / 5))
    assert numbers["a", "faulty_rate"] == ("ok", 0.0, 0.01, 0.01)
    assert numbers["a", "n_users"] == ("warn", 2.0, 100.0, -98.0)
    assert numbers["b", "users_without_relevant"] == ("ok", 0.0, 0.5, 0.5)
    assert numbers["b", "sample_ratio"] == ("not_checked", None, None, None)
    for name, n in (("books_rows", 5), ("books_lists", 2), ("books_quarantine", 1), ("books_means", 2)):
        assert numbers["b", name] == ("ok", n, n, 0.0), name
    assert rows["b", "max_drop"]["sentence"] == (
        "MAP@5 of b rose by 0.5000 (0.500 → 1.000) against a; the gate allows a drop of 0.125"
    )
    printed = by_name(json.loads(out)["checks"])
    assert {key: {name: row[name] for name in printed[key]} for key, row in rows.items()} == printed
    out, _ = ok(call, "evaluate", "--config", document(tmp_path, gates=KEPT), "--date", DATE,
                        "--format", "csv", "--table", "checks")  # fmt: skip
    lines = by_name(csv.DictReader(io.StringIO(out)))
    assert lines.keys() == rows.keys() and lines["b", "max_drop"]["margin"] == "0.625"


@pytest.mark.outcome(
    "users who do not follow `comparison.shares`",
    "exit 4: both shares, and the key that publishes all the same; the numbers are on stderr, in the run record and on "
    "a page",
)
def test_the_sample_ratio_is_judged_where_the_shares_are_known(spark: SparkSession, tmp_path: Path) -> None:
    """95 users of a and 5 of b, where half of them should be in each: p is far below 0.001."""
    rows = [shown for u in range(100) for shown in a_list([1, 0], f"u{u}", "a" if u < 95 else "b")]
    request, out = {"baseline": "a", "shares": {"a": 0.5, "b": 0.5}}, tmp_path / "o"
    log = parquet(tmp_path / "log", rows)
    with pytest.raises(QualityError) as caught:
        run(spark, config(log, out, comparison=request))
    assert str(caught.value) == (
        "the split of users is off: 95.0 / 5.0 % instead of 50 / 50 % (p < 0.001), so there is no verdict: find the "
        "cause, or set quality.on_broken_split to warn to publish the means all the same (nothing was published)"
    )
    assert not published_dates(out) and bool(caught.value.page) == has_page_libraries()
    refused = by_name(caught.value.record["checks"])
    assert [refused[name, "sample_ratio"]["status"] for name in "ab"] == ["fail", "fail"]
    assert {row["experiment_id"]: row["n_users"] for row in caught.value.record["means"]} == {"a": 95, "b": 5}
    done = run(spark, config(log, tmp_path / "out", comparison=request, quality={"on_broken_split": "warn"}))
    result = by_name(row.asDict() for row in done.checks.collect())
    for name in "ab":
        row = result[name, "sample_ratio"]
        assert (row["status"], row["limit"]) == ("warn", 0.001) and row["observed"] < 1e-9
        assert row["sentence"] == (
            "The split of users is off: 95.0 / 5.0 % instead of 50 / 50 % (p < 0.001). Find the cause before you read "
            "the numbers. There is no verdict."
        )


@pytest.mark.outcome("a gate that asks for a trusted test, users who do not follow the shares", "exit 5: why")
def test_a_gate_can_refuse_a_split_that_is_off(call: Call, tmp_path: Path) -> None:
    """95 users of a and 5 of b, b better; a limit alone is kept. p = chi2.sf((95 - 50)**2 / 50 * 2, 1) = 2.3e-19."""
    rows = [shown for u in range(100) for shown in a_list([u % 2, 1], f"u{u}", "a" if u < 95 else "b")]
    source = {"path": str(parquet(tmp_path / "uneven", rows))}
    request = {"baseline": "a", "shares": {"a": 0.5, "b": 0.5}}
    limit = {"metric": "ap@5", "max_drop": 0.5}
    allowed = {"on_broken_split": "warn"}
    file = document(tmp_path, source=source, comparison=request, gates=[limit], quality=allowed)
    code, out, _ = call("evaluate", "--config", file, "--date", EARLIER)
    assert code == 0 and "▲ better, ▼ worse than a, ≈ no difference shown, ? no verdict" in out
    trusted = [{**limit, "trusted": True}, {"metric": "ap@5", "trusted": True, "experiment": "b"}]
    file = document(tmp_path, source=source, comparison=request, gates=trusted, quality={})
    code, _, err = call("evaluate", "--config", file, "--date", DATE)
    assert code == 5
    # Two gates of the same test: one sentence.
    assert err.splitlines()[-1] == (
        "rankmetrics: the test of MAP@5 of b against a is not trustworthy: the users do not follow the planned shares "
        "(p = 2.3e-19) (gates; nothing was published)"
    )
    assert published_dates(tmp_path / "out") == {EARLIER}
    # A split as planned is published.
    request = {"baseline": "a", "shares": {"a": 0.95, "b": 0.05}}
    file = document(tmp_path, source=source, comparison=request, gates=trusted, quality={})
    out, _ = ok(call, "evaluate", "--config", file, "--date", DATE, "--format", "json")
    assert "? no verdict" not in call("evaluate", "--config", file, "--date", DATE)[1]
    row = by_name(json.loads(out)["checks"])["b", "trusted"]
    assert (row["status"], row["sentence"]) == ("ok", "the test of MAP@5 of b against a is not in doubt")
    assert published_dates(tmp_path / "out") == {EARLIER, DATE}


def published_dates(output: Path) -> set[str]:
    return {path.name[:10] for path in (output / "published").glob("*.json")}


def test_a_failed_gate_shows_its_numbers_and_publishes_nothing(call: Call, tmp_path: Path) -> None:
    assert call("evaluate", "--config", document(tmp_path), "--date", EARLIER)[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*") if path.is_file()}
    gates = [{"metric": "ap@5", "min": 0.75}, {"metric": "ap@5", "max_drop": 0.0}]
    report = {"report": str(tmp_path / "report.html")} if has_page_libraries() else {}
    file = document(tmp_path, gates=gates, **report)
    code, out, err = call("evaluate", "--config", file, "--date", DATE, "--format", "json")
    assert (code, out) == (5, "")
    lines = err.splitlines()
    assert lines[-1] == (
        "rankmetrics: MAP@5 of a is 0.5000; the gate asks for at least 0.75 (gates; nothing was published)"
    )
    # The means, the comparison and the margins.
    assert "Not published: a gate failed, or the split is off. These are the numbers of the run." in lines
    assert any("│ b " in line and "1.0000" in line for line in lines)
    assert any("│ b " in line and "+0.5000" in line for line in lines)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│ min " in line]
    assert cells == [
        ["min", "a", "all", "ap@5", "0.5", "0.75", "-0.25", "fail"],
        ["min", "b", "all", "ap@5", "1", "0.75", "+0.25", "ok"],
    ]
    # What was published is there as it was; beside it, only the record and the page.
    new = {path for path in (tmp_path / "out").rglob("*.*") if path.is_file()} - before.keys()
    assert {path: path.read_bytes() for path in before} == before
    assert {path.parent.name.partition("=")[0] for path in new} == {"run", "runs"}
    assert not (tmp_path / "report.html").exists()
    (file,) = (path for path in new if path.suffix == ".json")
    record = json.loads(file.read_text())
    assert (record["outcome"], record["error"]["exit_code"]) == ("failed", 5)
    assert {row["experiment_id"]: row["mean"] for row in record["means"]} == {"a": 0.5, "b": 1.0}
    assert [(row["baseline"], row["difference"]) for row in record["comparisons"]] == [("a", 0.5)]
    assert record["verdict"]
    result = by_name(record["checks"])
    assert (result["a", "min"]["status"], result["a", "min"]["margin"]) == ("fail", -0.25)
    assert result["b", "books_rows"]["status"] == "ok"
    if has_page_libraries():
        (page,) = (path for path in new if path.suffix == ".html")
        assert page.stem == file.stem and f"open the page, which is not published: {page}" in lines
        text = page.read_text()
        assert "<title>Not published: Ranking report" in text
        assert "Not published: MAP@5 of a is 0.5000; the gate asks for at least 0.75" in text
        assert '<li class="check fail">' in text


def test_the_record_precedes_the_page(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it writes the page, a run has lost nothing but this page."""
    pytest.importorskip("altair")
    seen: list[Any] = []

    def killed(*_: object) -> str:
        (file,) = (tmp_path / "out" / "runs").iterdir()
        seen.append(json.loads(file.read_text()))
        seen.append({path.name for path in (tmp_path / "out").iterdir()})
        raise KeyboardInterrupt

    monkeypatch.setattr("rankmetrics_spark.report.page", killed)
    request = config(log(tmp_path), tmp_path / "out", quality={"max_invalid_fraction": 1},
                   gates=[{"metric": "ap@5", "min": 0.75}])  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        run(spark, request)
    record, folders = seen
    # The claim of the run is still there.
    assert folders <= {"refused_checks", "runs", "_staging"}
    assert record["outcome"] == "failed" and record["means"] and record["checks"]


def test_the_error_of_a_failed_gate_has_the_record(spark: SparkSession, tmp_path: Path) -> None:
    gates = [{"metric": "ap@5", "min": 0.75, "segment": "item_id=none"}]
    with pytest.raises(MetricGateError) as caught:
        run(spark, config(log(tmp_path), tmp_path / "out", quality={"max_invalid_fraction": 1}, gates=gates))
    error = caught.value
    assert {row["experiment_id"] for row in error.record["means"]} == {"a", "b"}
    result = by_name(error.record["checks"])
    assert (result["a", "min"]["status"], result["a", "min"]["observed"]) == ("fail", None)
    assert (error.page is not None) == has_page_libraries()


def test_a_failed_rate_is_in_the_record_and_on_stderr(call: Call, tmp_path: Path) -> None:
    """No list of a has an item beyond rank 2, so all are shorter than the cut-off 5."""
    quality = {"max_invalid_fraction": 1, "gates": {"short_rate": {"fail": 0.25}, "gap_rate": {"fail": 0.5}}}
    code, out, err = call("evaluate", "--config", document(tmp_path, quality=quality), "--date", DATE)
    assert (code, out) == (4, "")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in err.splitlines() if "│ short_rate" in line]
    assert cells == [["short_rate", name, "all", "-", "1", "0.25", "-0.75", "fail"] for name in "ab"]
    assert only_records(tmp_path / "out")
    (file,) = (tmp_path / "out" / "runs").iterdir()
    result = by_name(json.loads(file.read_text())["checks"])
    assert (result["a", "short_rate"]["status"], result["a", "gap_rate"]["status"]) == ("fail", "ok")


def test_too_many_faulty_rows_are_in_the_record(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(QualityError):
        run(spark, config(log(tmp_path), tmp_path / "out", quality={"max_invalid_fraction": 0.125}))
    (file,) = (tmp_path / "out" / "runs").iterdir()
    result = by_name(json.loads(file.read_text())["checks"])
    row = result["b", "faulty_rate"]
    assert (row["status"], row["observed"], row["limit"]) == ("fail", 1 / 5, 0.125)
    assert result["a", "faulty_rate"]["status"] == "ok"
