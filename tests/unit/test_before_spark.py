"""Mistakes that the command reports before it starts Spark: one sentence, the right exit code, nothing written."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from rankmetrics_spark import cli, run, sinks
from rankmetrics_spark.cli.earlier import summaries
from rankmetrics_spark.config import Sink, Source, check_local_paths, check_output, refuse_overlap
from rankmetrics_spark.errors import LONGEST_MESSAGE, ConfigError, InputError, OutputError
from rankmetrics_spark.report import Figures, html as page
from tests.helpers import commands, packages
from tests.helpers.messages import cases, json_cases, messages

Refused = Callable[..., tuple[int, str]]
LONG = "n" * 100_000
CUT = "n" * 150 + "... (100,000 characters)"


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    """Run ``rankmetrics evaluate`` on a config without a session: exit code and the only line on stderr."""

    def no_session(*_: object) -> NoReturn:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(cli, "session_of", no_session)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").mkdir()

    def refused(config: str | dict[str, Any], *arguments: str) -> tuple[int, str]:
        text = config if isinstance(config, str) else yaml.safe_dump({"source": {"path": "log"}} | config)
        (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
        before = {*tmp_path.rglob("*")}
        with pytest.raises(SystemExit) as caught:
            cli.main(["evaluate", "--config", "config.yaml", *arguments], "rankmetrics")
        new = {*tmp_path.rglob("*")} - before
        records = [path for path in new if path.suffix == ".json" and path.parent.name == "runs"]
        assert len(records) <= 1
        checks = [path for path in new if path.parent.parent.name == "refused_checks"]
        assert len(checks) == len(records)
        assert new <= {step for path in (*records, *checks) for step in (path, *path.parents)}
        lines = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("starting ")]
        assert len(lines) == 1, lines
        assert lines[0].startswith("rankmetrics: ")
        return int(caught.value.code or 0), lines[0].removeprefix("rankmetrics: ")

    return refused


@pytest.mark.outcome("a filter of a scheduler and a `source.where` in the config", "exit 2: both, and how to leave one")
def test_a_filter_of_a_scheduler_replaces_none_of_the_config(refused: Refused) -> None:
    filtered = {"source": {"path": "log", "where": "surface = 'search'"}}
    assert refused(filtered, "--where", "event_date = '2026-11-20'") == (2, (
        "--where is \"event_date = '2026-11-20'\", and source.where of the config is \"surface = 'search'\", which it "
        "would replace; allowed: one of the two (a scheduler leaves the config its filter where RANKMETRICS_WHERE is "
        "empty, or the bundle's variable where is null)"
    ))  # fmt: skip
    for where, own, used in (
        ("event_date = '{date}'", None, "event_date = '2026-11-20'"),
        ("event_date = '2026-11-20'", "event_date = '{date}'", "event_date = '2026-11-20'"),  # the same one
        ("null", "surface = 'search'", "surface = 'search'"),  # the variable of a bundle
        ("null", None, None),
    ):
        document = {"source": {"path": "log", "where": own}}
        assert cli.opts.loaded(document, (), date="2026-11-20", where=where).source.where == used
    with pytest.raises(ConfigError, match=r"source.where of the config is 'slot <= 3', which it would replace"):
        cli.opts.loaded({"source": {"path": "log"}}, ("source.where=slot <= 3",), where="slot <= 5")
    # Neither scheduler sets the key, which would replace it.
    for file in (commands.ROOT / "jobs" / "airflow_dag.py", commands.ROOT / "conf" / "databricks.yml"):
        assert "--where" in file.read_text() and "source.where=" not in file.read_text()
    # By default the DAG has no filter: the config means the same by hand.
    assert 'setting("WHERE", "")' in (commands.ROOT / "jobs" / "airflow_dag.py").read_text()


# ---- the text of a config

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]\n" for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name}\n  <<: [{', '.join([f'*{last}'] * 9)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP_BLOCK = "\n".join(" " * level + "a:" for level in range(5000))
BAD_YAML = [
    ("aliases that expand to 9^9 values", BOMB, "line 6, column 12: its aliases stand for more than 100,000 values"),
    ("merges that expand to 9^9 keys", MERGES, "its aliases stand for more than 100,000 values; allowed: 100,000"),
    ("brackets 5,000 deep", "source: " + "[" * 5000, "line 1, column 57: more than 50 levels; allowed: 50"),
    ("mappings 5,000 deep", DEEP_BLOCK, "line 50, column 50: more than 50 levels; allowed: 50"),
    ("an alias inside of itself", "source: &a [*a]", "the alias 'a' is inside of what it stands for"),
    ("a repeated key", "source: {path: log}\nsource: {path: b}", "line 2, column 1: the key 'source' is there twice"),
    ("a number of 5,000 digits", "comparison: {baseline: " + "9" * 5000 + "}", "a value cannot be read: Exceeds the"),
    ("a value that does not fit its tag", "source: {path: !!timestamp x}", "a value cannot be read: it does not fit"),
]


@pytest.mark.outcome("{what} in a config", "exit 2, with the place where there is one")
@pytest.mark.parametrize(("what", "text", "message"), BAD_YAML, ids=[what for what, _, _ in BAD_YAML])
def test_a_hostile_yaml_is_refused_in_one_sentence(refused: Refused, what: str, text: str, message: str) -> None:
    code, sentence = refused(text)
    assert code == 2
    assert sentence.startswith("the config 'config.yaml' is not valid YAML: ")
    assert message in sentence


def test_aliases_of_a_usual_size_are_read(refused: Refused) -> None:
    code, sentence = refused("source: &s {path: nowhere}\njudgements: *s\nmetrics: &m [ap@5]\n")
    assert (code, "'nowhere'" in sentence) == (3, True)


@pytest.mark.outcome("a name of 100,000 characters as {where}", "exit {code}; the message shows its beginning")
@pytest.mark.parametrize(
    ("where", "config", "code", "message"),
    [
        ("a key", {LONG: 1}, 2, f"unknown key '{CUT}'; known: source, judgements"),
        ("a metric", {"metrics": [LONG]}, 2, f"unknown metric '{CUT}'; known: ap, ndcg"),
        ("an input", {"source": {"path": LONG}}, 3, f"cannot read parquet from '{CUT}': there is no such file"),
        ("an output", {"sink": {"path": LONG}}, 1, f"cannot write to '{CUT}': File name too long; allowed: a folder"),
        ("a date", {"evaluation_date": LONG}, 2, f"evaluation_date is '{CUT}'; allowed: a date as YYYY-MM-DD"),
    ],
)
def test_a_long_name_is_cut(refused: Refused, where: str, config: dict[str, Any], code: int, message: str) -> None:
    result, sentence = refused(config)
    assert result == code
    assert message in sentence
    assert len(sentence) <= LONGEST_MESSAGE


@pytest.mark.outcome("line breaks and control characters in a name", "one line; control characters as escapes")
def test_a_message_is_one_line_whatever_a_name_holds() -> None:
    assert str(ConfigError("unknown key 'a\nb\u2028c\x1b[31m'; known: x")) == "unknown key 'a b c\\x1b[31m'; known: x"
    assert str(ConfigError("word " * 1000 + "; allowed: x")).endswith("allowed: x")


# ---- where inputs and outputs are


@pytest.mark.outcome("a local input that does not exist", "exit 3, before Spark starts")
def test_a_missing_input_is_refused(refused: Refused) -> None:
    expected = "there is no such file or folder; allowed: an existing path in"
    here = f", which is relative to the folder of the command, {Path.cwd()}"
    code, sentence = refused({"source": {"path": "nowhere"}})
    assert (code, sentence) == (3, f"cannot read parquet from 'nowhere': {expected} source.path{here}")
    code, sentence = refused({"judgements": {"path": "/nowhere", "format": "csv"}})
    assert (code, sentence) == (3, f"cannot read csv from '/nowhere': {expected} judgements.path")


def test_a_run_that_is_refused_before_spark_starts_has_a_record(refused: Refused, tmp_path: Path) -> None:
    code, sentence = refused({"source": {"path": "nowhere"}, "sink": {"path": "out"}}, "--engine", "spark")
    (record,) = sinks.records_in(str(tmp_path / "out")) or ()
    assert (record["outcome"], record["engine"], record["config"]["source"]["path"]) == ("failed", "spark", ["nowhere"])
    assert record["error"] == {"class": "InputError", "exit_code": code, "message": sentence}
    assert [(row["outcome"], row["error"]) for row in summaries([record])] == [("failed", sentence)]


@pytest.mark.outcome("a metric that does not exist", "exit 2, before Spark starts")
def test_an_unknown_metric_is_refused(refused: Refused) -> None:
    assert refused({}, "--set", "metrics=ndgc@10")[0] == 2


@pytest.mark.outcome("a master that is no address of Spark", "exit 2")
def test_an_unknown_master_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text(f"source: {{path: {tmp_path}}}\nsink: {{path: /out}}")
    with pytest.raises(SystemExit) as caught:
        cli.main(["evaluate", "--config", str(tmp_path / "config.yaml"), "--master", "foo"], "rankmetrics")
    assert caught.value.code == 2
    assert "rankmetrics: --master is 'foo'; allowed: an address such as local, spark://" in capfd.readouterr().err


@pytest.mark.outcome("`--output` with an empty or blank text", "exit 2")
@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_output_is_refused(refused: Refused, given: str) -> None:
    code, sentence = refused({"sink": {"path": "out"}}, "--output", given)
    assert code == 2
    assert sentence.startswith(f"sink.path is {given!r}; allowed: a text")


@pytest.mark.outcome("an output {how} the input", "exit 2")
@pytest.mark.parametrize(("source", "sink", "how"), json_cases("an output is apart from the input"))
def test_an_output_is_apart_from_the_input(refused: Refused, source: str, sink: str, how: str) -> None:
    code, sentence = refused({"source": {"path": source}, "sink": {"path": sink}})
    expected = f"sink.path '{sink}' is {how} source.path '{source}'; allowed: an output apart from the inputs"
    assert (code, sentence) == (2, expected)


@pytest.mark.parametrize(("source", "sink", "overlaps"), json_cases("paths that overlap by their folders"))
def test_paths_overlap_by_their_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, sink: str, overlaps: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "log")
    inputs = [Source(path=(source,))]
    if overlaps:
        with pytest.raises(ConfigError, match="allowed: an output apart from the inputs"):
            refuse_overlap(inputs, Sink(path=sink))
    else:
        refuse_overlap(inputs, Sink(path=sink))
    for same in (f"file://{tmp_path}/log", "link/x"):
        with pytest.raises(ConfigError, match="allowed: an output apart from the inputs"):
            refuse_overlap([Source(path=(same,))], Sink(path="log"))


@pytest.mark.outcome("an output schema whose table is the input", "exit 2")
def test_an_output_schema_must_not_hold_the_input() -> None:
    sink = Sink(format="iceberg", table="lake.ranking")
    refuse_overlap([Source(table="lake.ranking.impressions"), Source(table="lake.other.user_metrics")], sink)
    with pytest.raises(ConfigError, match=r"^sink\.table 'lake\.ranking' is the schema of source\.table"):
        refuse_overlap([Source(table="lake.`Ranking`.user_metrics")], sink)


@pytest.mark.outcome("an output that is a file, or below a file", "exit 1, before Spark starts")
@pytest.mark.parametrize("sink", ["taken", "taken/a/b"])
def test_an_output_that_is_a_file_is_refused(refused: Refused, tmp_path: Path, sink: str) -> None:
    (tmp_path / "taken").write_text("mine")
    code, sentence = refused({}, "--output", sink)
    assert (code, sentence) == (
        1,
        f"cannot write to '{sink}': '{tmp_path / 'taken'}' is not a folder; allowed: a folder, or a new path",
    )
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.outcome("an output to which the user may not write", "exit 1, before Spark starts")
def test_a_read_only_output_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # For the administrator every folder is writable.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(OutputError, match=rf"^cannot write to '{tmp_path}/new/out': '{tmp_path}' is read-only"):
        check_output(f"{tmp_path}/new/out")
    check_output("s3a://bucket/out")


def test_paths_of_other_file_systems_are_left_to_spark(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    with pytest.raises(AssertionError, match="Spark was started"):
        refused({"source": {"path": "nowhere"}})


@pytest.mark.outcome("a Parquet file of 0 bytes beside good ones, on this machine", "exit 3, with the name of the file")
@pytest.mark.parametrize(
    ("path", "named"), [("log", "log/day=1/part-1.parquet"), ("log/*", "log/day=1/part-1.parquet")]
)
def test_a_file_that_lost_its_content_is_named(refused: Refused, tmp_path: Path, path: str, named: str) -> None:
    folder = tmp_path / "log" / "day=1"
    folder.mkdir()
    (folder / "part-0.parquet").write_bytes(b"PAR1...")
    for hidden in ("_SUCCESS", ".part-1.parquet.crc"):
        (folder / hidden).touch()
    check_local_paths([Source(path=str(tmp_path / path))])
    (folder / "part-1.parquet").touch()
    code, sentence = refused({"source": {"path": path}})
    assert code == 3
    assert sentence == (
        f"cannot read parquet from '{path}': the file '{named}' is empty, and even a table without rows has a header; "
        "allowed: complete files"
    )
    with pytest.raises(InputError, match=r"part-1\.parquet' is empty"):
        check_local_paths([Source(path=str(folder / "part-1.parquet"), format="parquet")])
    # A text file may be empty.
    check_local_paths([Source(path=path, format="csv")])


# Without a fixed time in it, the names of the cases would differ between the processes of the suite.
GZIPPED = gzip.compress(b"user", mtime=0)


@pytest.mark.outcome(
    "a folder without files; a CSV file of 0 bytes; `.gz` and content that is not, or the other way round; UTF-16",
    "exit 3, before Spark starts",
)
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, b"", "it is a folder without files that hold rows; allowed: a folder of files, or a file"),
        ("_SUCCESS", b"hidden", "it is a folder without files that hold rows; allowed: a folder of files, or a file"),
        ("a.csv", b"", "it is a folder without files that hold rows; allowed: a folder of files, or a file"),
        ("a.csv", GZIPPED, "it is compressed; allowed: a name that ends with .gz, such as a.csv.gz"),
        ("a.csv.gz", b"user", "its name ends with .gz, and it is not compressed so; allowed: a name without .gz"),
        ("a.csv.zst", b"user", "its name ends with .zst, and it is not compressed so; allowed: a name without .zst"),
        ("a.csv", "user".encode("utf-16"), "its text is UTF-16; allowed: UTF-8"),
        ("a.csv.gz", GZIPPED, None),
        ("a.csv", b"user", None),
    ],
)
def test_files_that_are_not_what_their_name_says_are_one_sentence(
    tmp_path: Path, name: str | None, content: bytes, message: str | None
) -> None:
    (tmp_path / "log").mkdir()
    if name:
        (tmp_path / "log" / name).write_bytes(content)
    places = [tmp_path / "log", *([tmp_path / "log" / name] if name and content and name[0] != "_" else [])]
    for place in places:
        if message is None:
            check_local_paths([Source(path=str(place), format="csv")])
            continue
        with pytest.raises(InputError) as caught:
            check_local_paths([Source(path=str(place), format="csv")])
        assert str(caught.value) == f"cannot read csv from '{place}': {message}"
    (tmp_path / "empty.csv").touch()
    with pytest.raises(InputError, match=r"empty\.csv': it is empty; allowed: a file with rows"):
        check_local_paths([Source(path=str(tmp_path / "empty.csv"))])


# ---- where the page of a report goes

FOREIGN = {
    "log/part-0.parquet": "PAR1...",
    "config.yaml": "source: {path: log}",
    "out/published/2026-11-20.json": "{}",
    "page.html": "<!doctype html>\n<html><head><title>of somebody else</title>",
}


@pytest.mark.outcome("a report whose file is {what}", "exit 2, before anything is computed; what is there stays")
@pytest.mark.parametrize(("what", "file", "message"), cases("files of a report"))
def test_a_report_replaces_nothing_but_a_page(
    refused: Refused, tmp_path: Path, capfd: pytest.CaptureFixture[str], what: str, file: str, message: str
) -> None:
    pytest.importorskip("altair")
    for name, text in FOREIGN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "link.html").symlink_to("log/part-0.parquet")
    (tmp_path / "dangling.html").symlink_to("log/new.parquet")
    expected = f"{message}; allowed: a new file, or an earlier page"
    code, sentence = refused({"report": file})
    assert (code, sentence) == (2, f"report is '{file}': {expected}")
    with pytest.raises(SystemExit) as caught:
        cli.main(["report", "--input", "out", "--html", file], "rankmetrics")
    assert caught.value.code == 2
    assert capfd.readouterr().err.strip() == f"rankmetrics: --html is '{file}': {expected}"
    with pytest.raises(OutputError, match=f"^cannot write the report to '{file}': {expected}$"):
        page.write_page(Figures([]), file)
    kept = {name: (tmp_path / name).read_text() for name in FOREIGN if name != "config.yaml"}
    assert kept == {name: text for name, text in FOREIGN.items() if name != "config.yaml"}
    assert not (tmp_path / "log" / "new.parquet").exists()


def test_a_page_replaces_an_earlier_one_and_no_name_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("altair")
    packages.quick_vega(monkeypatch)
    file, other = tmp_path / "new" / "page.html", tmp_path / "new" / "other.html"
    page.write_page(Figures([]), file)
    page.check_page_file("report", file)
    other.hardlink_to(file)
    file.chmod(0o640)
    monkeypatch.setattr(page, "page", lambda figures: "<!doctype html>\n" + page.PAGE_MARK.decode() + "\udcff")
    page.write_page(Figures([]), file)
    assert "</html>" in other.read_text() and file.read_text().endswith("\\udcff")
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in file.parent.iterdir()) == ["other.html", "page.html"]


@pytest.mark.outcome("an option twice where one value is meant, as in `--date A --date B`", "exit 2, with the option")
@pytest.mark.parametrize(("arguments", "message"), messages("options that are given twice"))
def test_options_are_given_once(arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments], "rankmetrics")
    assert caught.value.code == 2
    assert capfd.readouterr().err.splitlines()[-1] == f"Error: {message}"


@pytest.mark.parametrize(("options", "message"), messages("keys that compare refuses"))
def test_compare_refuses_keys_that_would_change_nothing(
    options: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["compare", "--input", "out", "--baseline", "a", *options], "rankmetrics")
    assert caught.value.code == 2
    assert capfd.readouterr().err == f"rankmetrics: {message}\n"


# ---- an interrupt while modules are imported

PRESSED = """
import os, signal, sys

class Pressed:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Pressed())
# In the background of a shell, a program starts with interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from rankmetrics_spark.__main__ import main
main(["demo", "--engine", "spark"])"""
"""Sends an interrupt to itself when the module of its argument is imported."""


@pytest.mark.parametrize(
    "module", ["rankmetrics_spark.cli", "click", "numpy", "rich.console", "rankmetrics_spark.cli.exit_codes"]
)
@pytest.mark.outcome("presses Ctrl+C in the first second, while modules are imported", "exit 1: `interrupted`")
def test_an_interrupt_in_the_first_second_is_one_word(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRESSED, module], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "rankmetrics: interrupted\n")


def test_a_run_of_settings_that_are_no_config_is_refused() -> None:
    nothing: Any = None
    settings: Any = {"source": {"path": "logs"}}
    with pytest.raises(ConfigError) as caught:
        run(nothing, settings)
    assert str(caught.value) == (
        "config is a dict; allowed: a Config, as load(path) and from_mapping(settings) of rankmetrics_spark.config "
        "make it"
    )
