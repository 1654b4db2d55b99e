"""What people see: ids are text, a narrow terminal stays readable, and piped output has one line per row."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
from rich.console import Console

from rankmetrics_spark import cli, config as cfg, metrics as mx, report as rep, sinks
from rankmetrics_spark.cli.exit_codes import Folding
from rankmetrics_spark.pointers import SEAL, Entry, Pointer, parse as parse_pointer
from rankmetrics_spark.report import console
from rankmetrics_spark.schemas import CONVENTION, EXPERIMENT, METRIC, N_USERS, SEGMENT
from tests.helpers.commands import Terminal
from tests.helpers.messages import json_cases, texts
from tests.helpers.results import Output

METRICS = ["ap@5", "ap@10", "ndcg@5", "ndcg@10", "p@10", "r@10", "rr", "hit_rate@10"]
HEADS = texts("heads of metrics")
IDS = ["model[v1]", "[/b]", "[bold]x[/bold]", ":smile:", "a\\[b", "[link=x]", "{a}", "%s", "ä/ü"]


def row(experiment: str, metric: str, segment: str = "all") -> dict[str, Any]:
    means = {"mean": 0.25, "ci_low": 0.125, "ci_high": 0.375, "confidence": 0.95}
    return {EXPERIMENT: experiment, SEGMENT: segment, METRIC: metric, CONVENTION: "standard", N_USERS: 2400} | means


def rows(*experiments: str, segment: str = "all") -> list[dict[str, Any]]:
    return [row(experiment, metric, segment) for experiment in experiments for metric in METRICS]


def print_table(listed: list[dict[str, Any]], metrics: Sequence[str] = ()) -> None:
    rep.print_result(rep.Figures(listed, order=metrics), every_segment=True)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Run some calls where stdout is a terminal; return the lines that it shows."""
    for name, value in {"TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)

    def shown(*calls: Callable[[], None], width: int = 80) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        screen = Terminal()
        with redirect_stdout(screen):
            for call in calls:
                call()
        return [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue()).splitlines()]

    return shown


@pytest.mark.outcome("an experiment or segment called {name}", "printed as it is")
@pytest.mark.parametrize("name", IDS)
def test_an_id_in_a_table_is_text(name: str, terminal: Callable[..., list[str]]) -> None:
    convention = {EXPERIMENT: name, CONVENTION: "standard", N_USERS: 1, "ap": 0.5, "differs": name}
    printed = terminal(
        partial(print_table, rows(name, "other", segment=f"country={name}") + rows(name)),
        partial(rep.print_conventions, [convention]),
        partial(rep.print_list, [{"name": name, "summary": name * 30}]),
    )
    assert sum(name in line for line in printed) >= 2 * 4 + 1 + 1 + 1


@pytest.mark.outcome("an experiment, segment or user id with brackets, an emoji's name or control characters", "text")
def test_a_control_character_of_an_id_is_escaped(terminal: Callable[..., list[str]]) -> None:
    assert r"a\nb\x1b[31m" in "\n".join(terminal(partial(print_table, rows("a\nb\x1b[31m"))))
    counts = {"evaluated": 9, "tied": 3, "beyond_judgements": 0}
    record = {
        "rows": {"in": 1, "evaluated": 1, "quarantined": 0},
        "quarantine_reasons": {"null_\x1b[1m": 1},
        "experiments": {"[b]\x07": counts},
        "judgements": None,
    }
    message = rep.accounting(record)
    assert r"null_\x1b[1m 1" in message[1] and r"[b]\x07 33 %" in message[2]


@pytest.mark.outcome("eight metrics on a terminal of 80 columns", "the table is printed in blocks of metrics")
def test_eight_metrics_fit_on_a_terminal_of_80_columns(terminal: Callable[..., list[str]]) -> None:
    printed = terminal(partial(print_table, rows("model[v1]", "a control with a name")))
    assert max(map(len, printed)) <= 80
    text = "\n".join(printed)
    assert all(text.count(head) == 1 for head in HEADS)
    # Whole numbers and whole names, in each of the blocks.
    assert text.count("0.2500 ± 0.1250") == 2 * len(METRICS)
    assert text.count("a control with a name") == text.count("model[v1]") == text.count("┏") == 4
    assert "…" not in text


def test_a_name_longer_than_the_terminal_is_folded_and_numbers_stay_whole(terminal: Callable[..., list[str]]) -> None:
    printed = terminal(partial(print_table, rows("q" * 200)))
    assert max(map(len, printed)) <= 80
    text = "\n".join(printed)
    assert text.count("0.2500 ± 0.1250") == len(METRICS)
    assert text.count("q") == 200 * text.count("┏")


@pytest.mark.outcome(
    "a name of 5,000 characters, and a pipe instead of a terminal",
    "one line per row, whatever its width; metrics beyond 160 characters in further tables",
)
def test_piped_output_has_one_line_per_row_at_any_width(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 5000
    print_table(rows(name, "b"))
    rep.print_conventions([{EXPERIMENT: name, CONVENTION: "standard", N_USERS: 5, "ap": 0.5, "differs": "y " * 900}])
    rep.print_list([{"name": name, "summary": "words " * 400}])
    printed = capsys.readouterr().out.splitlines()
    # Two tables of four metrics, two of the convention, one list.
    assert sum(name in line for line in printed) == 2 + 2 + 1
    assert len(printed) == 1 + 2 * (3 + 2 + 1) + 1 + 2 * (3 + 1 + 1) + (3 + 1 + 1)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.outcome("names of 100 characters on a terminal of {width} columns", "sentences break at spaces only")
def test_sentences_break_at_spaces_at_any_width(width: int, terminal: Callable[..., list[str]]) -> None:
    name = "q" * 100
    message = [f"{name} beats {name} on MAP@10: 0.439 → 0.548, +24.7 % (+21.4 to +28.1)", "a short one"]
    printed = terminal(partial(rep.print_verdict, message), width=width)
    assert " ".join(printed) == " ".join(message)
    assert all(len(line) <= width or line == name for line in printed)
    assert max(len(line) for line in printed if line != name) > width / 2
    screen = io.StringIO()
    Folding(file=screen, force_terminal=True, width=width, no_color=True, highlight=False).lines(message[0])
    assert screen.getvalue().splitlines() == printed[:-1]


def test_columns_are_in_the_order_of_the_config(capsys: pytest.CaptureFixture[str]) -> None:
    expected = ["rr", "ndcg@10", "ap@5", "ndcg@5"]
    listed = [row("a", metric) for metric in sorted(expected)]
    print_table(listed, expected)
    assert re.findall(r"MRR|(?:mean )?NDCG@\d+|MAP@5", capsys.readouterr().out) == [
        "MRR", "mean NDCG@10", "MAP@5", "mean NDCG@5"]  # fmt: skip


def test_the_verdict_of_a_single_experiment_is_its_mean_and_that_there_is_nothing_to_compare(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = [row("only", metric) for metric in METRICS]
    one_user = [{**each, N_USERS: 1, "ci_low": None, "ci_high": None} for each in alone]
    for means, units in ((alone, "2,400 users, 95 % interval 0.1250 to 0.3750"), (one_user, "1 user")):
        rep.print_verdict([], result=rep.Figures(means, order=METRICS))
        assert capsys.readouterr().out == (
            f"MAP@10 of only is 0.250 (mean over {units}). There is one experiment, so nothing to compare it with.\n"
        )
    rep.print_verdict([], result=rep.Figures(rows("a", "b"), order=METRICS))
    assert capsys.readouterr().out == ""


def test_columns_that_fit_beside_the_labels_share_a_block() -> None:
    wide = Console(width=rep.ANY_WIDTH)
    figures = rep.Figures(rows("a"))
    shown = console.grid(figures.averages, figures.metrics)
    assert len(shown.columns) == 2 + len(METRICS)
    assert rep.blocks(lambda some: shown, [1, 2, 3], wide) == [[1, 2, 3]]


@pytest.mark.parametrize(("users", "quarantined", "tables"), json_cases("tables that were written"))
def test_only_the_tables_that_were_written_are_named(users: int, quarantined: int, tables: str) -> None:
    record = {"tables": {"user_metrics": {"rows": users}, "quarantine": {"rows": quarantined}}}
    assert rep.paths_text("out[1]", record, "out[1]/runs/x.json") == f"{tables}run record: out[1]/runs/x.json"
    assert "hush" not in rep.paths_text("s3a://ID:hush@bucket/out", record, "s3a://ID:hush@bucket/out/runs/x.json")


def test_compare_is_one_table_as_csv_and_one_object_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    names = {EXPERIMENT: "b", "baseline": "a", SEGMENT: "all", METRIC: "ap@5"}
    compared = [{**names, "note": "not tested", "p_adjusted": None, "better": None}]
    losses = [{EXPERIMENT: "b", "user_id": "u1", "loss": 0.5}]

    def printed(more: dict[str, Any], style: str) -> str:
        rep.print_all(rep.Compared("2026-11-20", 1, compared, more), style)
        return capsys.readouterr().out

    assert printed({}, "csv").splitlines()[1:] == ["2026-11-20,b,a,all,ap@5,not tested,,"]
    assert printed({"losses": losses}, "csv").splitlines() == [
        "evaluation_date,experiment_id,user_id,loss",
        "2026-11-20,b,u1,0.5",
    ]
    verdict = ["b against a on MAP@5: not tested"]
    message = {"evaluation_date": "2026-11-20", "period": None, "comparisons": compared, "verdict": verdict}
    assert json.loads(printed({}, "json")) == message
    assert json.loads(printed({"losses": losses}, "json")) == message | {"losses": losses}


def test_compare_names_the_period_that_it_took_in_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    days = cfg.Days("2026-11-08", "2026-11-10", ("2026-11-08", "2026-11-10"))
    losses = [{EXPERIMENT: "b", "user_id": "u1", "loss": 0.5}]

    def printed(style: str) -> str:
        rep.print_all(rep.Compared("2026-11-10", 1, [], {"losses": losses}, (), days), style)
        return capsys.readouterr().out

    assert json.loads(printed("json"))["period"] == {
        "period_from": "2026-11-08",
        "period_to": "2026-11-10",
        "n_days": 2,
        "missing": ["2026-11-09"],
    }
    assert printed("csv").splitlines() == [
        "evaluation_date,period_from,period_to,n_days,experiment_id,user_id,loss",
        "2026-11-10,2026-11-08,2026-11-10,2,b,u1,0.5",
    ]
    gap = "1 of 3 days is not published: 2026-11-09"
    assert f"The comparisons are over 2026-11-08 to 2026-11-10 (2 of 3 days); {gap}\n" in printed("table")
    rep.print_all(rep.Compared("2026-11-10", 1, []), "table")
    assert "Users of 2026-11-10.\n" in capsys.readouterr().out


def test_an_effect_over_time_names_its_dates_in_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    days = cfg.Days("2026-11-08", "2026-11-09", ("2026-11-08", "2026-11-09"))
    row = {"kind": "slope", EXPERIMENT: "b", "baseline": "a", METRIC: "ap@5", "difference": float("nan")}

    def printed(style: str, *rows: Any) -> str:
        rep.print_over_time(days, rows, style)
        return capsys.readouterr().out

    result = json.loads(printed("json", row))
    assert (result["period"], result["missing"]) == ({"period_from": "2026-11-08", "period_to": "2026-11-09"}, [])
    assert result["over_time"] == [row | {"difference": None}]
    assert printed("csv", row).splitlines() == [
        "period_from,period_to,kind,experiment_id,baseline,metric,difference",
        "2026-11-08,2026-11-09,slope,b,a,ap@5,",
    ]


def test_what_is_no_number_is_null_in_json_and_empty_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    nan, inf = float("nan"), float("inf")
    rep.LIST_PRINTERS["json"]([{"mean": nan, "more": {"low": -inf, "high": [inf, 1.5, 3]}}])

    def refused(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    result = json.loads(capsys.readouterr().out, parse_constant=refused)
    assert result == [{"mean": None, "more": {"low": None, "high": [None, 1.5, 3]}}]
    rep.LIST_PRINTERS["csv"]([{"mean": nan, "low": -inf, "n": 1}])
    assert capsys.readouterr().out.splitlines() == ["mean,low,n", ",,1"]


def test_compare_begins_with_the_first_metric_of_the_run_not_the_alphabet(capsys: pytest.CaptureFixture[str]) -> None:
    names = {EXPERIMENT: "b", "baseline": "a", SEGMENT: "all", "note": "not tested", "p_adjusted": None, "better": None}
    compared = [names | {METRIC: metric} for metric in ("ap@10", "ndcg@10", "ndcg@5")]
    metrics = [mx.parse(name) for name in ("ndcg@5", "ndcg@10", "ap@10")]
    rep.print_all(rep.Compared("2026-11-20", 1, compared, metrics=metrics), "json")
    message = json.loads(capsys.readouterr().out)["verdict"]
    assert [text.split(" on ")[1].partition(":")[0] for text in message] == ["NDCG@10", "NDCG@5", "MAP@10"]


# ---- terminals and locales that are older than UTF-8


@pytest.mark.parametrize("style", ["table", "json"])
@pytest.mark.outcome("a terminal or a pipe in ASCII, and a name that it cannot show", "the name with escapes, exit 0")
def test_a_name_that_a_terminal_cannot_show_is_escaped(tmp_path: Path, style: str) -> None:
    out = Output(tmp_path / "l\u00f6g", ["gr\u00f6\u00dfe", "\u043a\u043b\u044e\u0447"], users=60)
    record = json.loads((out.write() / "runs" / "20261120T010203-0a1b2c3d.json").read_text())
    (out.path / "runs" / "failed.json").write_text(
        json.dumps(
            record | {"run_id": "failed", "outcome": "failed", "error": {"message": "no gr\u00f6\u00dfe \u2192"}}
        )
    )
    arguments = ["runs", "--output", str(out.path), "--format", style]
    for encoding in ("ascii", "latin-1"):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        done = subprocess.run(
            [sys.executable, "-m", "rankmetrics_spark", *arguments], env=environment, capture_output=True, check=False
        )
        shown = done.stdout.decode(encoding)
        assert (done.returncode, done.stderr) == (0, b"")
        assert ("no gr\u00f6" if encoding == "latin-1" and style != "json" else "no gr\\") in shown
        assert style != "json" or json.loads(shown)[0]["error"]["message"] == "no gr\u00f6\u00dfe \u2192"


def test_runs_are_a_line_each_on_a_terminal_80_wide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Output(tmp_path / "out", ["a", "b"], users=60).write() / "runs"
    record = json.loads((folder / "20261120T010203-0a1b2c3d.json").read_text())
    failed = {"run_id": "20261121T010203-0a1b2c3d", "outcome": "failed", "error": {"message": "no such log"}}
    rows = {"in": 12_345_678, "evaluated": 12_345_600, "quarantined": 78}
    (folder / "failed.json").write_text(json.dumps(record | failed | {"rows": rows, "total_seconds": 61.4}))
    cli.main(["runs", "--output", str(tmp_path / "out")], "rankmetrics")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and sum(line.startswith("│") for line in lines) == 2
    assert lines[-1] == "20261121T010203-0a1b2c3d: no such log"
    (line,) = [line for line in lines if "failed" in line]
    assert [cell.strip() for cell in line.split("│")[4:6]] == ["12,345,678", "78"]


@pytest.mark.outcome("a path, in a locale without UTF-8, that has no name there", "exit 2: the path; PYTHONUTF8=1")
def test_a_file_that_a_locale_cannot_name_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if version("click").startswith("8.0."):
        pytest.skip("Click 8.0 refuses a locale of ASCII itself, in its own words")
    (tmp_path / "c.yaml").write_text("source: {path: l\u00f6g}", encoding="utf-8")
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"}
    program = [sys.executable, "-m", "rankmetrics_spark", "check", "c.yaml"]
    done = subprocess.run(program, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    sentence = r"rankmetrics: 'l\xf6g' cannot be written in ascii; allowed: UTF-8, as with PYTHONUTF8=1"
    assert (done.returncode, done.stderr.strip().replace(f"{tmp_path}/", "")) == (2, sentence)
    # Bytes that are no text in any locale.
    for arguments in (["evaluate", "-c", "c.yaml", "-o", "out\udcff"], ["runs", "--output", "\udcff"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(arguments, "rankmetrics")
        assert "\\udcff' is no text in utf-8; allowed: text in utf-8\n" in capsys.readouterr().err


# ---- CSV


HOSTILE = [
    ("a\x1b[31m\nb\u202e", "a\\x1b[31m\\nb\\u202e"),
    ("=1+1", "'=1+1"),
    ("@x", "'@x"),
    ("+1", "'+1"),
    ("-a", "'-a"),
    ("a=b", "a=b"),
]


@pytest.mark.parametrize(("name", "safe"), HOSTILE)
@pytest.mark.outcome(
    "experiments whose names hold control characters, or are formulas of a spreadsheet, in CSV: {name}",
    "control characters are escaped; with `--safe-cells` the cell is {safe}",
)
def test_csv_holds_no_control_characters_and_formulas_only_unless_asked(
    name: str, safe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"experiment_id": name, "difference": -0.13, "n_users": -1, "note": None}]
    for request, cell in ((False, safe.removeprefix("'")), (True, safe)):
        rep.safe_cells.set(request)
        rep.LIST_PRINTERS["csv"](rows)
        printed = capsys.readouterr().out
        assert list(csv.reader(io.StringIO(printed))) == [[*rows[0]], [cell, "-0.13", "-1", ""]]
        assert all(c == "\n" or c.isprintable() for c in printed)
    rep.safe_cells.set(False)


@pytest.mark.parametrize(
    "name", ["a\x1b[31m\nb\u202e\u2067", "\x9b1m\x7f\u2028", "\U000e0041\ud800", "\u00a0\u00e9 \u5b57"]
)
@pytest.mark.outcome(
    "the same as JSON, in the run record and in what is published",
    "`\\u202e`: no sign stands there as it is, no name changes",
)
def test_json_holds_the_same_names_without_control_characters(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"experiments": {name: {"rows": 1}}, "notes": [name]}
    rep.print_json(record)
    pointer = Pointer("2026-11-20", (Entry("20261120T010203-0a1b2c3d", (name,)),))
    texts = {capsys.readouterr().out: record, sinks.as_json(record): record, pointer.as_json(): None}
    for text, value in texts.items():
        assert all(c == "\n" or c.isprintable() or category(c) == "Zs" for c in text)
        text.encode()
        assert value is None or {name: each for name, each in json.loads(text).items() if name != SEAL} == value
    assert parse_pointer(pointer.as_json()) == pointer


def test_the_option_of_safe_cells_reaches_the_printer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setitem(rep.LIST_PRINTERS, "csv", lambda _: seen.append(rep.safe_cells.get()))
    out = Output(tmp_path, users=20).write()
    for arguments in (["--safe-cells"], []):
        cli.main(["runs", "--output", str(out), "--format", "csv", *arguments], "rankmetrics")
    assert seen == [True, False]


def test_json_is_written_in_one_piece(tmp_path: Path) -> None:
    """A file that several processes append to has each piece as it was written."""
    pieces: list[bytes] = []

    class Recording(io.FileIO):
        def write(self, piece: Any) -> int:
            pieces.append(bytes(piece))
            return len(pieces[-1])

    raw = Recording(tmp_path / "out.json", "w")
    stream = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
    rows = [{"name": f"é{place}", "mean": place / 7} for place in range(20_000)]
    with redirect_stdout(stream):
        rep.print_json({"means": rows})
    (piece,) = pieces
    assert json.loads(piece) == {"means": rows}
