"""``unit: query``: all that people read says queries; names from data, columns, keys and options keep their words."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from rankmetrics_spark import compare, config as cfg, effect_over_time, evaluate, read, run
from rankmetrics_spark.report import assets, html
from tests.helpers.commands import Call, ok
from tests.helpers.logs import csv_file

DAYS = ("2026-11-20", "2026-11-21")
COLUMNS = {"experiment": "system", "user": "query", "item": "doc", "position": "rank", "relevance": "clicked"}
NEW = "the users who won"
"""An experiment, whose name is data."""
OF_DATA = re.compile(
    rf"{NEW}|kind=users?|report\.users\.html|columns\.user|user = query|--per-user|quality\.gates\.users"
)


def log() -> list[dict[str, Any]]:
    """60 queries a day; the first one is in one experiment only, and some have no click."""
    return [
        {"system": system, "query": f"q{n:02d}", "doc": doc, "rank": rank, "clicked": int(doc == clicked)}
        | {"day": day, "kind": "user" if n % 2 else "users"}
        for day in DAYS
        for n in range(60)
        for place, system in enumerate(("control", NEW)[: 2 if n else 1])
        for clicked in ["-" if n % 7 == 3 else "abc"[(n + (n % 3 and place)) % 3]]
        for rank, doc in enumerate("abc", start=1)
    ]


def config(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "source": {"path": csv_file(folder / "log.csv", log()), "where": "day = '{date}'", "columns": COLUMNS}
        | {"segments": ["kind"]},
        "metrics": ["ap@3", "ndcg@3"],
        "percentiles": [50],
        "comparison": {"baseline": "control", "shares": {"control": 0.5, NEW: 0.5}},
        "evaluation_date": DAYS[-1],
        "sink": {"path": str(folder / "out")},
        "report": {"file": str(folder / "report.users.html"), "examples": 2},
        "unit": "query",
    } | more


def about_users(text: str) -> list[str]:
    """The lines that speak of users, though no name does."""
    return [line for line in text.splitlines() if re.search(r"\b[Uu]sers?\b", OF_DATA.sub("", line))]


def texts_of(page: str) -> Iterator[str]:
    """What a page shows: its text, the labels of parts, the texts of its data, and the titles of charts."""
    for part in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S):
        yield from values(json.loads(part))
    # The run as JSON has the config with its keys.
    text = re.sub(r"<(script|style|pre)\b.*?</\1>", "", page, flags=re.S)
    yield from (*re.findall(r'aria-label="([^"]*)"', text), re.sub(r"<[^>]*>", " ", text))


def values(of: Any, key: str = "") -> Iterator[str]:
    if isinstance(of, (dict, list)):
        for name, each in of.items() if isinstance(of, dict) else ((key, each) for each in of):
            yield from values(each, name)
    elif isinstance(of, str) and key not in ("field", "axis", "calculate", "keys"):
        yield of


@pytest.fixture(scope="module")
def output(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("queries")
    first, _ = (run(spark, cfg.from_mapping(config(folder, evaluation_date=day))) for day in DAYS)
    assert "queries" in " ".join(first.record["verdict"]) + first.checks.toPandas().to_csv()
    return folder


def test_a_run_of_queries_never_says_users(output: Path, call: Call) -> None:
    pytest.importorskip("altair")
    file = output / "config.yaml"
    file.write_text(yaml.safe_dump(config(output)), encoding="utf-8")
    out = ("--input", output / "out")
    of_days = ("--from", DAYS[0], "--to", DAYS[1])
    found = {}
    for arguments in (
        ("check", file),
        ("evaluate", "-c", file, "--details", "--segments"),
        ("compare", *out, "--baseline", "control", "--losses", 2, "--gains", 2, "--decompose", "kind", "--details"),
        ("compare", *out, "--baseline", "control", *of_days, "--details"),
        ("compare", *out, "--baseline", "control", "--over-time", *of_days),
        ("compare", *out, "--baseline", "control", "--set", "design=independent", "--set", "looks=any"),
        ("plan", *out, "--metric", "ap@3", "--experiment", "control", "--effect", "1%"),
        ("conventions", "-c", file),
        ("changed", "-c", file),
        ("runs", "--output", output / "out"),
        ("report", *out, "--html", output / "period.html", *of_days),
        ("report", *out, "--html", output / "days.html", "--each"),
    ):
        printed, told = ok(call, *arguments)
        found[arguments] = about_users(printed + told)
    assert not {arguments: lines for arguments, lines in found.items() if lines}
    for page in ("report.users", "period", "days", f"days.{DAYS[0]}"):
        texts = [*texts_of((output / f"{page}.html").read_text(encoding="utf-8"))]
        assert not [line for text in texts for line in about_users(text)]
        assert any(NEW in text for text in texts) and any(" queries" in text for text in texts)


def test_the_scripts_of_a_page_have_no_sentence_about_users() -> None:
    for name in html.SCRIPTS:
        lines = [line for line in assets.file_text(f"{name}.js").splitlines() if not re.match(r"\s*(//|/\*)", line)]
        assert not [line for line in lines if re.search(r"""["'`][^"'`]*\b[Uu]sers? [a-z]""", line)]


def test_written_tables_know_what_their_users_are(spark: SparkSession, output: Path) -> None:
    users = read(spark, output / "out" / "user_metrics").where(f"evaluation_date = '{DAYS[0]}'")
    notes = [row.note for row in compare(users, "control", design="paired").collect()]
    assert all(note.startswith("without 1 of the 60 queries of control, which are not in both") for note in notes)
    shown = compare(users, "control")._repr_html_()
    assert "<b>queries</b>" in shown and not about_users(shown)
    told = {row.note for row in effect_over_time(users, "control").collect() if row.kind == "slope"}
    assert told == {"no slope: too few queries with values on different days"}


def test_results_of_queries_and_of_users_keep_their_words(spark: SparkSession) -> None:
    rows = [{name: row[name] for name in COLUMNS.values()} for row in log() if row["day"] == DAYS[0]]
    asked: dict[str, Any] = {"columns": COLUMNS, "baseline": "control"}
    results = [evaluate(rows, "ap@3", unit="query", **asked), evaluate(rows, "ap@3", **asked)]
    with ThreadPoolExecutor(2) as pool:
        shown = [*pool.map(lambda result: result._repr_html_(), [*results, *results])]
    for text, (mine, other) in zip(shown, [("queries", "users"), ("users", "queries")] * 2, strict=True):
        assert re.search(rf"\b{mine}\b", text) and not re.search(rf"\b{other}\b", text.replace(NEW, ""))
    for result, noun in zip(results, ("queries", "users"), strict=True):
        note = compare(result.user_metrics, "control", design="paired").to_pandas()["note"][0]
        assert note.startswith(f"without 1 of the 60 {noun} of control")


def test_an_index_has_a_line_for_each_day_and_those_without_a_run_first(output: Path, call: Call) -> None:
    pytest.importorskip("altair")
    file = output / "config.yaml"
    file.write_text(yaml.safe_dump(config(output, report={})), encoding="utf-8")
    code, *_ = call("evaluate", "-c", file, "--date", "2026-11-22")
    assert code != 0  # the log has no rows of it
    out = ("report", "--input", output / "out", "--html", output / "index.html", "--each")
    assert call(*out)[0] == 0
    lines = re.findall(r"<li><b>.*", (output / "index.html").read_text(encoding="utf-8"))
    assert [re.search(r"\d{4}-\d\d-\d\d", line)[0] for line in lines] == ["2026-11-22", *DAYS[::-1]]  # type: ignore[index]
    assert "(not published): the input is empty" in lines[0] and "href" not in lines[0]
    assert f'href="index.{DAYS[1]}.html"' in lines[1] and " queries" in lines[1] and " % (" in lines[1]
    assert DAYS[0] in (output / f"index.{DAYS[0]}.html").read_text(encoding="utf-8")
    assert call(*out, "--from", DAYS[1])[0] == 0
    assert DAYS[0] not in (output / "index.html").read_text(encoding="utf-8")
    code, _, told = call(*out, "--from", "2027-01-01")
    assert code == 3 and "nothing is published on 2027-01-01" in told
    assert call(*out, "--date", DAYS[0])[0] == 2
