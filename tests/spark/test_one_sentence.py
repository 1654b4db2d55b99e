"""Mistakes that Spark finds: each has one sentence, its exit code, and nothing half-written."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from rankmetrics_spark import compare_conventions, config as cfg, evaluate, read, run
from rankmetrics_spark.engines import engine_of
from rankmetrics_spark.errors import ConfigError, InputError, OutputError, RankmetricsError
from rankmetrics_spark.sinks import Partitions, claims, folders
from rankmetrics_spark.sinks.files import output_failure
from rankmetrics_spark.sources import failed_filter, read as source
from tests.helpers.commands import ROOT, Call
from tests.helpers.logs import DATE, Shown, a_list, by_user, config, impressions, parquet
from tests.helpers.messages import messages

LOG = [*a_list([0, 1], "u", "a"), *a_list([1, 0], "u", "b")]


def files(folder: Path) -> list[Path]:
    """All files but run records; where Spark writes these, each is a folder."""
    result = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in result if {"refused_checks", "runs"}.isdisjoint(path.relative_to(folder).parts))


def refused(call: Call, tmp_path: Path, source: dict[str, Any], sink: str = "out") -> tuple[int, str, list[str]]:
    """Run the command: exit code, its one sentence, the steps before it. Nothing but a run record may be written."""
    document = {"source": source, "metrics": "ap@5", "sink": {"path": sink}, "evaluation_date": DATE}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    before = files(tmp_path)
    code, out, err = call("evaluate", "--config", tmp_path / "config.yaml")
    assert out == ""
    assert files(tmp_path) == before
    *steps, sentence = err.splitlines()
    assert [step for step in steps if not step.endswith(" ...")] == []
    assert sentence.startswith("rankmetrics: ")
    assert "Traceback" not in err and "org.apache" not in err
    return code, sentence.removeprefix("rankmetrics: "), steps


# ---- inputs


@pytest.mark.outcome(
    "a Parquet file that is truncated, or is something else, beside good ones", "exit 3; names the file"
)
def test_a_broken_file_is_named(call: Call, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", LOG)
    good = (log / "part-0.parquet").read_bytes()
    for content in (good[:-100], b"PAR1 and then nothing of the kind" * 99):
        (log / "part-1.parquet").write_bytes(content)
        code, sentence, _ = refused(call, tmp_path, {"path": str(log)}, str(tmp_path / "out"))
        assert code == 3
        assert sentence.startswith("cannot read ") and "part-1.parquet" in sentence


@pytest.mark.outcome("a filter that fails on a row: a division by zero, a failing cast, a broken pattern", "exit 3")
@pytest.mark.outcome(
    "a filter with `to_date` or a cast of a text that is none", "exit 3: the filter; the value is hidden"
)
def test_a_filter_that_fails_on_a_row_is_named(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", LOG)
    # In the words of a compiled and of an interpreted query.
    filters: dict[str, tuple[str, ...]] = {
        "regexp_like(item_id, '(')": ("Unclosed group", "[INVALID_PARAMETER_VALUE.PATTERN] ")
    }
    if spark.conf.get("spark.sql.ansi.enabled") == "true":
        # Before Spark 4, these are null unless the session asks for ANSI mode, and no row fails.
        filters["1 / (position - 1) > 0"] = ("[DIVIDE_BY_ZERO] Division by zero",)
        filters["cast(user_id as int) = 1"] = ("[CAST_INVALID_INPUT] The value (hidden) of the type",)
        for where in ("to_date(user_id) = '2026-11-20'", "to_timestamp(user_id) > now()"):
            filters[where] = filters["cast(user_id as int) = 1"]
    if engine_of(spark) == "sail":
        filters = {
            "user_id < 1": ("Cast error: Cannot cast string (hidden)",),
            "to_date(user_id) = '2026-11-20'": ("[CAST_INVALID_INPUT] The value (hidden) of the type",),
            "to_timestamp(user_id) > now()": ("invalid timestamp: (hidden);",),
        }
    for where, causes in filters.items():
        code, sentence, _ = refused(call, tmp_path, {"path": str(log), "where": where}, str(tmp_path / "out"))
        assert code == 3
        assert sentence.startswith(tuple(f"cannot filter by source.where '{where}': {cause}" for cause in causes))
        assert sentence.endswith(
            "allowed: a condition that has a value for every row, such as one with try_divide or try_cast"
        )


def test_a_filter_that_fails_on_a_row_is_named_by_the_view_of_all_conventions_too(
    call: Call, spark: SparkSession, tmp_path: Path
) -> None:
    # Sail refuses the pattern before a row is read; before Spark 4, a division by zero is null.
    where = "user_id < 1" if engine_of(spark) == "sail" else "regexp_like(item_id, '(')"
    source = {"path": str(parquet(tmp_path / "log", LOG)), "where": where}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"source": source, "metrics": "ap@5"}))
    code, out, err = call("conventions", "--config", tmp_path / "config.yaml")
    assert (code, out) == (3, "")
    assert err.splitlines()[-1].startswith(f"rankmetrics: cannot filter by source.where '{where}': ")


def test_rows_that_the_engine_loses_without_an_error_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Sail fails to hash a column of folders of which a filter leaves one, and a Python step then sees no row."""
    spark.range(6).selectExpr("id", "id % 2 AS part").write.partitionBy("part").parquet(str(tmp_path / "parts"))
    hashed = spark.read.parquet(str(tmp_path / "parts")).where("part = 1").selectExpr("id", "xxhash64(part) AS hash")
    step = hashed.mapInArrow(lambda batches: batches, "id long, hash long")
    if engine_of(spark) != "sail":
        assert step.count() == 3
        return
    for _ in range(2):
        with pytest.raises(RankmetricsError) as error:
            step.collect()
        assert str(error.value).startswith("the laptop engine, Sail, failed inside (")
        assert str(error.value).endswith("), and rows may be missing; use --engine spark")
    # A failure is one of the query in which it happened.
    assert spark.range(3).count() == 3


CSV = "experiment_id,user_id,item_id,position,relevance,new\na,u,i,1,1,true\na,v,i,1,0,false\n"


@pytest.mark.outcome(
    "a filter of CSV that compares a text with a boolean",
    "the text is read as a boolean",
    on_sail="exit 3: the filter, and to compare values of one type",
)
@pytest.mark.outcome(
    "CSV whose header has a name twice", "both are numbered, as Spark does", on_sail="exit 3: the file and the name"
)
def test_what_sail_does_not_read_of_csv_is_named(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(CSV)
    if engine_of(spark) != "sail":
        assert source(spark, cfg.Source(path=(str(file),), format="csv", where="new = true")).count() == 1
        return
    for where in ("new = true", "not new", "new", "new in (true)"):
        code, sentence, _ = refused(call, tmp_path, {"path": str(file), "where": where}, str(tmp_path / "out"))
        assert code == 3 and sentence.startswith(f"cannot filter by source.where '{where}': Can")
        assert "; allowed: values of one type, such as clicked = 'true' for a column of text, and " in sentence
    file.write_text(CSV.replace("new\n", "relevance\n"))
    code, sentence, _ = refused(call, tmp_path, {"path": str(file)}, str(tmp_path / "out"))
    allowed = "each name once, or --engine spark, which numbers such columns"
    assert (code, sentence) == (3, f"cannot read '{file}': its header has 2 columns 'relevance'; allowed: {allowed}")


def test_the_filter_that_failed_is_told_from_the_other_one() -> None:
    inputs = [cfg.Source(path=("log",), where="a = 1"), cfg.Source(path=("truth",), where="1 / n > 0")]
    context = "== SQL (line 1, position 1) ==\n1 / n > 0\n^^^^^\n"
    result = failed_filter(ValueError(f"[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n{context}"), inputs)
    assert str(result).startswith("cannot filter by source.where '1 / n > 0': [DIVIDE_BY_ZERO]")
    assert failed_filter(ValueError("[DIVIDE_BY_ZERO] Division by zero."), [cfg.Source(path=("log",))]) is None
    assert failed_filter(ValueError("Java heap space"), inputs) is None


# ---- outputs


@pytest.mark.outcome("an output on a file system that the session lacks", "exit 1, before the evaluation")
def test_an_output_out_of_reach_is_refused_before_evaluation(call: Call, spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", LOG)
    code, sentence, steps = refused(call, tmp_path, {"path": str(log)}, "foo://bucket/out")
    lacks = "this session has no file system for 'foo'; start it with the jar of one, or use another path"
    expected = f"cannot write to 'foo://bucket/out': {lacks}"
    if engine_of(spark) == "sail":
        allowed = "parquet in a folder of this machine, or use --engine spark"
        expected = f"the engine sail cannot write parquet to 'foo://bucket/out'; allowed: {allowed}"
    assert (code, sentence, steps) == (1, expected, [] if engine_of(spark) == "sail" else ["reading schemas ..."])
    assert not Path("foo:").exists()


@pytest.mark.outcome(
    "an output `a:b`, which is no address", "exit 1, before the evaluation", on_sail="a folder of this name"
)
def test_an_output_that_is_no_address_is_refused_before_the_evaluation(
    call: Call, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = parquet(tmp_path / "log", LOG)
    if engine_of(spark) == "sail":
        config = {"source": {"path": str(log)}, "metrics": "ap@5", "sink": {"path": "a:b"}}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
        assert call("evaluate", "--config", tmp_path / "config.yaml")[0] == 0
        assert {"user_metrics", "experiment_metrics", "published"} <= {path.name for path in Path("a:b").iterdir()}
        return
    # The record of the run goes to a folder of this name, and nothing else.
    code, sentence, steps = refused(call, tmp_path, {"path": str(log)}, "a:b")
    reason = "it is no address that Spark can read; allowed: a path such as out or s3a://bucket/out"
    assert (code, sentence, steps) == (1, f"cannot write to 'a:b': {reason}", ["reading schemas ..."])


@pytest.mark.outcome("an output that cannot be written: {error}", "exit 1: {reason}")
@pytest.mark.parametrize(("error", "reason"), messages("failed writes"))
def test_a_failed_write_has_a_reason(error: str, reason: str) -> None:
    with pytest.raises(OutputError, match=f"^cannot write to 's3a://out': {reason}"), folders.writing("s3a://out"):
        raise OSError(error)


def test_an_error_about_something_else_keeps_its_own_words() -> None:
    assert output_failure("out", OSError("error while reading file file:/log: Permission denied")) is None
    assert output_failure("out", OSError("Java heap space")) is None
    with pytest.raises(OSError, match="File file:/x does not exist"), folders.writing("out"):
        raise OSError("File file:/x does not exist")
    with pytest.raises(OutputError, match="probably because another run"), folders.writing("out", tables=True):
        raise OSError("File file:/x does not exist")


@pytest.mark.outcome("an output named with `[1]`, `{a,b}`, `*`, `?` or a backslash", "works")
@pytest.mark.outcome("another convention than that of every result of the date", "exit 2, before the evaluation")
@pytest.mark.outcome("an experiment and date that another run is writing", "exit 1; the other run is not disturbed")
def test_an_output_with_wildcards_in_its_name_is_that_folder(spark: SparkSession, tmp_path: Path) -> None:
    log, out, steps = parquet(tmp_path / "log", LOG), tmp_path / "o[1]{a,b}*?\\", list[str]()
    claim = claims.Claim(out / "_staging")
    claim.take(Partitions(DATE, ["b"]), str(out))
    with pytest.raises(
        OutputError, match=f"^another run is writing experiment 'b' of {DATE} in .*; run this again when it has ended$"
    ):
        run(spark, config(log, out))
    assert sorted(path.name for path in out.iterdir()) == ["_staging", "refused_checks", "runs"]
    claim.release()
    run(spark, config(log, out))
    assert {row["ap_at_5"] for row in read(spark, f"{out}/user_metrics").collect()} == {1 / 2, 1}
    tables = ["experiment_metrics", "published", "refused_checks", "runs", "user_metrics"]
    assert sorted(path.name for path in out.iterdir()) == ["checks", *tables]
    with pytest.raises(ConfigError, match="under the convention 'standard', and this run has 'trec_eval'"):
        run(spark, config(log, out, convention="trec_eval"), steps.append)
    assert steps == ["reading schemas"]


def test_claims_of_other_partitions_and_of_ended_runs_do_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "_staging"
    first, second = claims.Claim(folder), claims.Claim(folder)
    code = (
        "import os; from pathlib import Path; from rankmetrics_spark.sinks.claims import Claim\n"
        "from rankmetrics_spark.sinks.partitions import Partitions\n"
        f"Claim(Path({str(folder)!r})).take(Partitions({DATE!r}, ['a']), 'out'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 9
    assert len(list(folder.glob("*.claim"))) == 1
    first.take(Partitions(DATE, ["a", None]), "out")
    second.take(Partitions(DATE, ["b"]), "out")
    second.take(Partitions("2026-11-19", ["a"]), "out")
    for taken, what in ((["b", "a"], "experiment 'a'"), ([None], "rows without an experiment")):
        with pytest.raises(OutputError, match=f"^another run is writing {what} of {DATE} in out; run this again"):
            second.take(Partitions(DATE, taken), "out")
    first.release()
    second.take(Partitions(DATE, ["a"]), "out")
    second.release()
    assert list(folder.iterdir()) == []


# ---- Python


@pytest.mark.outcome("a path, or rows that are no dicts, instead of a table", "`ConfigError`")
def test_anything_but_a_table_is_refused(spark: SparkSession) -> None:
    log = impressions(spark, LOG)
    allowed = "allowed: a DataFrame of Spark, pandas or polars, a table of PyArrow, a list of dicts"
    expected = {
        f"str; {allowed}, such as spark.read.parquet(path) or pandas.read_csv(path)": "logs",
        f"list without dicts; {allowed}": LOG,
        f"list without rows; {allowed}": [],
        f"NoneType; {allowed}": None,
    }
    for message, value in expected.items():
        for call in (evaluate, compare_conventions):
            with pytest.raises(ConfigError) as caught:
                call(value)  # type: ignore[arg-type]
            assert str(caught.value) == f"impressions is a {message}"
        if value is not None:
            with pytest.raises(ConfigError) as caught:
                evaluate(log, judgements=value)  # type: ignore[arg-type]
            assert str(caught.value) == f"judgements is a {message}"
    with pytest.raises(ConfigError, match=r"^columns is \[\]; allowed: a mapping"):
        evaluate(log, columns=[])  # type: ignore[arg-type]


@pytest.mark.outcome("columns that differ only in case, or have one name", "`InputError`, if one of them is read")
def test_columns_that_spark_cannot_tell_apart_are_refused(spark: SparkSession) -> None:
    log = impressions(spark, LOG).selectExpr("*", "user_id AS User", "user_id AS user", "1 AS n", "2 AS n")
    for name, alike in {"user": "'User', 'user'", "n": "'n', 'n'"}.items():
        with pytest.raises(InputError, match=rf"^the impressions have columns that .*: {alike}; allowed: one column"):
            evaluate(log, "rr", columns={"user": name})
    assert by_user(evaluate(log, "rr").user_metrics.where("experiment_id = 'a'"))[("a", "u")]["rr"] == 1 / 2


@pytest.mark.outcome("a column `u.id`", "the field of a struct; a column with this very name wins")
@pytest.mark.outcome("a list column named `it's`, and `list` and `metrics` as a single text", "works")
def test_fields_of_structs_and_unusual_names_are_columns(spark: SparkSession) -> None:
    rows = [Shown("a", "u1", "x", 1, 1), Shown("a", "u1", "x", 1, 0), Shown("b", "u2", "x", 1, 1)]
    log = impressions(spark, rows).selectExpr(
        "experiment_id",
        "struct(user_id AS id, struct(item_id AS `i.d`) AS seen) AS u",
        "struct(position AS rank) AS `at.once`",
        "position AS `p.rank`",
        "struct(99 AS rank) AS p",
        "relevance",
        "relevance AS `it's`",
    )
    columns = {"user": "u.id", "item": "u.seen.i.d", "position": "p.rank"}
    result = evaluate(log, "ap@10", columns=columns, list="it's", segments="at.once.rank")
    actual = by_user(result.user_metrics)
    # Two lists of u1: one with a relevant item, one without.
    assert {key: (row["ap_at_10"], row["n_lists"], row["at.once.rank"]) for key, row in actual.items()} == {
        ("a", "u1"): (1 / 2, 2, "1"),
        ("b", "u2"): (1, 1, "1"),
    }
    with pytest.raises(InputError, match=r"unknown column 'u\.uid'"):
        evaluate(log, "ap", columns={"user": "u.uid"})
