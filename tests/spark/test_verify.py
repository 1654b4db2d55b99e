"""``rankmetrics verify``: what is published is derived again, and each change of it or of its inputs is named."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import rankmetrics_spark
from rankmetrics_spark import run
from rankmetrics_spark.config import Sink, load
from rankmetrics_spark.errors import DifferenceError, InputError, MetricGateError
from rankmetrics_spark.job import Outcome, Verified, results, verify
from rankmetrics_spark.report import has_page_libraries
from rankmetrics_spark.sinks import files_of, prune, swapping
from rankmetrics_spark.sinks.folders import DeltaFolder
from tests.helpers.commands import ROOT, Call, ran
from tests.helpers.kills import Killed, count_down
from tests.helpers.logs import DATE, a_list, config, parquet, random_log
from tests.spark.test_assignments import assigned, run_of
from tests.tables_page import tables

LAX: dict[str, Any] = {"quality": {"max_invalid_fraction": 1}}
LAPTOP = ROOT / ".venvs" / "laptop" / "bin" / "python"
WORDS = {"to the bit", "within bounds"}
"""The environments may have other versions of NumPy and SciPy."""
GRADES = [("u1", "i1", 1.0), ("u2", "i2", 2.0), ("u3", "i9", 1.0)]


def rewritten(folder: Path, change: Callable[[pa.Table], pa.Table], parts: int = 1) -> None:
    """Write the rows of a folder again, changed, in so many files."""
    table = change(pq.read_table(folder))
    for file in folder.glob("*.parquet"):
        file.unlink()
    starts = [n * len(table) // parts for n in range(parts + 1)]
    for n in range(parts):
        pq.write_table(table.slice(starts[n], starts[n + 1] - starts[n]), folder / f"part-{n}.parquet")


def reversed_rows(table: pa.Table) -> pa.Table:
    return table.take([*range(len(table))][::-1])


def published(spark: SparkSession, tmp_path: Path, **more: Any) -> Outcome:
    """A run of four users in two experiments, with judgements."""
    log = [row for e in "ab" for u in range(4) for row in a_list([u % 2, 1, 0], f"u{u}", e)]
    (tmp_path / "truth").mkdir()
    names = dict(zip(("user_id", "item_id", "relevance"), map(list, zip(*GRADES, strict=True)), strict=True))
    pq.write_table(pa.table(names), tmp_path / "truth" / "part-0.parquet")
    sections = {"judgements": {"path": str(tmp_path / "truth")}, "comparison": {"baseline": "a"}} | LAX | more
    return run(spark, config(parquet(tmp_path / "log", log), tmp_path / "out", **sections))


def again(spark: SparkSession, tmp_path: Path, document: dict[str, Any] | None = None, source: str = "inputs") -> str:
    """The sentence of the difference that is found."""
    with pytest.raises(DifferenceError) as error:
        verify(spark, Sink(path=str(tmp_path / "out")), document=document, source=source)
    assert error.value.exit_code == 6
    return str(error.value)


def resealed(done: Outcome, without: str = "", **changes: Any) -> None:
    """Who may rewrite the record and the pointer leaves no trace in digests."""
    files, path = files_of(done.path), Path(done.record_path)
    record = json.loads(path.read_text()) | changes | {"files": swapping.hashes(files, DATE, done.run_id)}
    path.write_text(json.dumps({key: record[key] for key in record if key != without}))
    swapping.seal(files, DATE, done.run_id)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


RUNS: dict[str, dict[str, Any]] = {
    "faulty rows": LAX | {"comparison": {"baseline": "a", "bootstrap": {"replicates": 99}, "wilcoxon": True}},
    "lists": LAX | {"source": {"list": ["item_id"], "segments": ["user_id"]}, "metrics": ["rr", "ndcg@3", "err@5"]},
    "scores": LAX | {"rank_by": "score", "source": {"columns": {"score": "position"}}, "metrics": ["ap", "rbp(p=0.8)"]},
    "one file": LAX | {"comparison": {"pairs": "all"}},
}


@pytest.mark.parametrize("kind", RUNS)
def test_another_order_in_other_files_gives_the_same_bits(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    log, out = parquet(tmp_path / "log", random_log(5, users=20)), tmp_path / "out"
    sections = RUNS[kind]
    if kind == "one file":
        sections = sections | {"sink": {"path": str(out), "layout": "by_date"}}
    done = run(spark, config(log, out, **sections))
    rewritten(log, reversed_rows, parts=3)
    before = contents(out)
    result = verify(spark, Sink(path=str(out)))
    assert (result.date, result.other, result.uncovered) == (DATE, [], [])
    assert {row["table"]: row["rows"] for row in result.rows} == {
        name: table["rows"] for name, table in done.record["tables"].items()
    }
    assert {row["the same"] for row in result.rows} == {"to the bit"}
    assert contents(out) == before


@pytest.mark.needs_spark
@pytest.mark.skipif(not LAPTOP.exists(), reason="no environment with Sail (make test-sail makes one)")
@pytest.mark.parametrize("kind", RUNS)
def test_what_spark_has_published_sail_derives_to_the_bit(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    log, out = parquet(tmp_path / "log", random_log(7, users=20)), tmp_path / "out"
    run(spark, config(log, out, **RUNS[kind]))
    rewritten(log, reversed_rows, parts=3)
    words = [LAPTOP, "-m", "rankmetrics_spark", "verify", "-o", out, "--engine", "sail", "--format", "json"]
    done = ran(words, tmp_path, os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and {row["the same"] for row in json.loads(done.stdout)} <= WORDS, done.stderr
    assert "no digest" not in done.stderr


FOLLOWING = {"experiment_metrics", "comparisons", "checks"}
STORED: dict[str, dict[str, Any]] = RUNS | {
    "clusters": LAX | {"comparison": {"baseline": "a", "cluster": "user_id"}},
    "gates": LAX | {"comparison": {"baseline": "a"}, "gates": [{"metric": "ap@5", "min": 0.0}], "percentiles": [50]},
    "looked up": LAX | {"comparison": {"baseline": "a"}, "source": {"columns": {"relevance": None}}},
}


@pytest.mark.parametrize("kind", STORED)
def test_what_follows_from_the_published_users_needs_no_inputs(
    spark: SparkSession, tmp_path: Path, call: Call, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, out = parquet(tmp_path / "log", random_log(5, users=20)), tmp_path / "out"
    judged = {"judgements": {"path": str(log)}} if kind == "looked up" else {}
    done = run(spark, config(log, out, **STORED[kind], **judged))
    shutil.rmtree(log)
    before = contents(out)
    # Tables of the temporary folder need not be read back.
    monkeypatch.delattr(results, "_read")
    code, shown, err = call("verify", "-o", out, "--from", "user_metrics", "--format", "json")
    rows = {row["table"]: row for row in json.loads(shown)}
    follow = {"experiment_metrics"} if kind == "lists" else FOLLOWING & {*done.record["tables"]}
    assert code == 0 and {*rows} == follow, err
    assert {row["the same"] for row in rows.values()} == {"to the bit"}
    assert "that user_metrics follows from the inputs was not shown" in err.replace("\n", " ")
    assert contents(out) == before
    assert call("verify", "-o", out)[0] == 3


def test_rows_that_are_read_back_have_the_order_of_those_that_are_here(spark: SparkSession) -> None:
    rows = [("b", "all", "ap"), ("c", "all", "ap"), ("a", "de", "ap"), ("a", "all", "ndcg"), ("a", "all", "ap")]
    table = spark.createDataFrame(rows, "experiment_id string, segment string, metric string")
    read = results._read(table, {"all"}, None)
    assert [f"{row['experiment_id']} {row['metric']}" for row in read] == ["a ap", "a ndcg", "b ap", "c ap"]


def moved(table: pa.Table) -> pa.Table:
    """The second item of one list is relevant no more, and the third one is."""
    is_one = pc.and_(pc.equal(table["experiment_id"], "b"), pc.equal(table["user_id"], "u2"))
    grades = pc.if_else(is_one, pc.if_else(pc.equal(table["position"], 3), 1, 0), table["relevance"])
    return table.set_column(table.column_names.index("relevance"), "relevance", grades)


INPUTS: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "changed": ("log", moved, "the log has as many rows of experiment 'b' as on record, but others; user_metrics: "),
    "missing": ("log", lambda rows: rows.slice(1), "the log has 11 rows of experiment 'a', and 12 are on record"),
    "added": (
        "log",
        lambda rows: pa.concat_tables([rows, rows.slice(0, 1).set_column(1, "user_id", pa.array(["u9"]))]),
        "the log has 13 rows of experiment 'a', and 12 are on record",
    ),
    **{
        f"{name} judgements": ("truth", change, "the judgements are not those on record; user_metrics: n")
        for name, change in {
            "other": lambda rows: rows.set_column(2, "relevance", pa.array([1.0, 1.0, 1.0])),
            "missing": lambda rows: rows.slice(0, 2),
            "added": lambda rows: pa.concat_tables([rows, rows.slice(0, 1).set_column(1, "item_id", [["i3"]])]),
        }.items()
    },
}


@pytest.mark.parametrize("change", INPUTS)
def test_an_input_that_has_changed_is_named(spark: SparkSession, tmp_path: Path, change: str) -> None:
    published(spark, tmp_path)
    folder, changed, expected = INPUTS[change]
    rewritten(tmp_path / folder, changed)
    sentence = again(spark, tmp_path)
    assert expected.removesuffix("n") in sentence
    if change == "changed":  # the relevant item of the list of u2 has another rank
        assert re.search(r"user_metrics: \w+ is 1 as published and 0 derived again|user_id 'u2'", sentence)


def test_a_table_of_a_catalog_that_has_changed_is_named(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.read.parquet(str(parquet(tmp_path / "log", [*random_log(5, users=4)])))
    name = f"verified_{tmp_path.name}"
    rows.write.saveAsTable(name)
    run(spark, config(tmp_path, tmp_path / "out", source={"path": None, "table": name, "format": "table"}, **LAX))
    assert not verify(spark, Sink(path=str(tmp_path / "out"))).other
    rows.where("user_id != 'user 1'").write.mode("overwrite").saveAsTable(name)
    assert again(spark, tmp_path).startswith(f"the log {name} has ")
    spark.sql(f"DROP TABLE {name}")
    with pytest.raises(InputError, match=name):
        verify(spark, Sink(path=str(tmp_path / "out")))


def test_a_config_and_an_input_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    done = published(spark, tmp_path)
    document = {**done.record["config"], "metrics": ["ap@5"]}
    expected = "the config is another one: metrics is ['ap@5', 'ndcg@5'] on record, and ['ap@5'] now"
    assert again(spark, tmp_path, document) == expected
    (tmp_path / "log").rename(tmp_path / "moved")
    with pytest.raises(InputError, match="log"):
        verify(spark, Sink(path=str(tmp_path / "out")))
    document = {**done.record["config"], "source": {**done.record["config"]["source"], "path": str(tmp_path / "moved")}}
    assert not verify(spark, Sink(path=str(tmp_path / "out")), document=document).other


def test_with_another_package_values_are_compared_within_bounds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    published(spark, tmp_path, sink={"path": str(tmp_path / "out"), "lists": True})
    now = rankmetrics_spark.__version__
    monkeypatch.setattr(rankmetrics_spark, "__version__", "9.9.9")
    for source in ("inputs", "user_metrics", "lists"):
        code, out, err = call("verify", "-o", tmp_path / "out", "--format", "json", "--from", source)
        assert code == 0 and {row["the same"] for row in json.loads(out)} == {"within bounds"}
        assert f"not to the bit: rankmetrics_spark {now} on record, 9.9.9 here" in err
    rewritten(tmp_path / "log", moved)
    code, _, err = call("verify", "-o", tmp_path / "out")
    assert code == 6 and f"derived with rankmetrics_spark {now} on record, 9.9.9 here" in err
    (tmp_path / "log" / "part-0.parquet").unlink()
    assert call("verify", "-o", tmp_path / "out")[0] == 3


@pytest.mark.parametrize("layout", ["by_experiment", "by_date"])
def test_1000_flipped_bytes_are_all_found(spark: SparkSession, tmp_path: Path, call: Call, layout: str) -> None:
    """Also in the records of a run that was replaced and of one that has failed, and in the checks of this one.

    And in the days of users, and what tells of a test that is withheld: both are of runs with assignments.
    """
    out, rng, days = tmp_path / "out", random.Random(55), tmp_path / "days" / "out"
    members = assigned(*(f"{test}:{arm} {user} 09:00" for test in "xy" for arm, user in (("a", "u1"), ("b", "u2"))))
    gates, sink = {"x": {}, "y": {"gates": {"metric": "rr", "min": 2}}}, {"path": str(days), "layout": layout}
    with pytest.raises(MetricGateError):
        run_of(spark, days.parent, members, comparison={"baseline": "a"}, tests=gates, sink=sink, **LAX)
    of_out = {"path": str(out), "lists": True, "user_states": 1, "layout": layout}
    period = {"comparison": {"baseline": "a", "period": {"from": DATE}}}
    settings = published(spark, tmp_path, sink=of_out, **period).record["config"]
    rewritten(tmp_path / "log", lambda log: pa.concat_tables([log, log.slice(0, 1).set_column(2, "item_id", [[""]])]))
    (tmp_path / "plan.yaml").write_text(f"{{baseline: a, primary: ap@5, looks: one, end: {DATE}}}")
    assert call("register", tmp_path / "plan.yaml", "-o", out)[0] == 0
    run(spark, load(settings, date=DATE))
    with pytest.raises(MetricGateError):
        run(spark, load({**settings, "gates": [{"metric": "ap@5", "min": 1.0}]}, date=DATE))
    flipped = [(place, name, data) for place in (out, days) for name, data in sorted(contents(place).items())]
    kinds = [(place == out, name.partition("/")[0]) for place, name, _ in flipped]
    assert {kind for _, kind in kinds} == {*tables(), "runs", "published", "refused_checks", "registered"}
    assert [kinds.count((of, "runs")) for of in (True, False)] == [3 + has_page_libraries(), 1 + has_page_libraries()]
    assert (True, "lists") in kinds and (False, "user_days") in kinds
    assert [swapping.altered(files_of(str(place)), DATE) for place in (out, days)] == [([], [])] * 2
    for n in range(1000):
        place, name, before = flipped[n % len(flipped)]
        data = bytearray(before)
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        (place / name).write_bytes(data)
        found, _ = swapping.altered(files_of(str(place)), DATE)
        assert len(found) == 1 and found[0].startswith(f"{name} is not as it was "), (name, found)
        (place / name).write_bytes(before)
    # A file that readers would count, and one that is gone.
    (table,) = (out / name for _, name, _ in flipped if name.startswith("user_metrics/experiment_id=b"))
    beside = table.with_name(table.name.replace("part-", "part-x"))
    beside.write_bytes(table.read_bytes())
    assert again(spark, tmp_path) == f"{beside.relative_to(out)} is on no record, and readers count its rows"
    beside.unlink()
    table.unlink()
    assert again(spark, tmp_path).startswith(f"{table.relative_to(out)} is missing")


def test_a_row_that_was_changed_with_its_digests_is_derived_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    done = published(spark, tmp_path)
    (file,) = (tmp_path / "out").glob("experiment_metrics/experiment_id=b/*/*.parquet")
    table = pq.read_table(file, partitioning=None)
    means = pa.array([value + (0.25 if n == 0 else 0) for n, value in enumerate(table["mean"].to_pylist())])
    pq.write_table(table.set_column(table.column_names.index("mean"), "mean", means), file)
    resealed(done)
    metric, mean = table["metric"][0].as_py(), table["mean"][0].as_py()
    expected = f"experiment_metrics: mean is {mean + 0.25!r} as published and {mean!r} derived again, of "
    for source in ("inputs", "user_metrics"):
        found = again(spark, tmp_path, source=source)
        assert found == f"{expected}experiment_id 'b', segment 'all', metric '{metric}'"


def test_what_differs_from_the_stored_lists_is_named(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    out, words = tmp_path / "out", ("verify", "-o", tmp_path / "out", "--from", "lists")
    done = published(spark, tmp_path, sink={"path": str(out), "lists": True})
    shutil.rmtree(tmp_path / "log")
    code, _, err = call(*words)
    assert code == 0 and "that lists follow from the inputs was not shown" in err, err
    assert call(*words, "--without", "file")[0] == 2
    document = {**done.record["config"], "metrics": ["ap@5"]}
    assert again(spark, tmp_path, document, "lists").startswith("the config is another one: metrics is ")
    (file,) = (out / "lists").rglob("*.parquet")
    table = pq.read_table(file, partitioning=None)
    moved_on = table.set_column(0, "user_id", [[*table["user_id"].to_pylist()[1:], "u7"]])
    more = pa.concat_tables([table, table.slice(0, 1).set_column(0, "user_id", [["u9"]])])
    for other in (moved_on, table.slice(1), more):
        pq.write_table(other, file)
        resealed(done)
        said = rf"the stored lists and rows left out of experiment '[ab]' on {DATE} are not those which runs/"
        assert re.match(said, again(spark, tmp_path, source="lists"))
    pq.write_table(table, file)
    resealed(done)
    rewritten(tmp_path / "truth", lambda rows: rows.slice(1))
    assert again(spark, tmp_path, source="lists").startswith("the judgements are not those on record; ")
    shutil.rmtree(out)
    shutil.rmtree(tmp_path / "truth")
    published(spark, tmp_path)
    code, _, err = call(*words)
    assert code == 3 and "experiments; allowed: rankmetrics verify --output" in err.replace("\n", " ")


def test_users_who_were_erased_are_left_out_of_every_input(spark: SparkSession, tmp_path: Path, call: Call) -> None:
    """What is published is of a log that never had u2; the log and the judgements have that user again."""
    done = published(spark, tmp_path)
    log, truth, out = tmp_path / "log", tmp_path / "truth", tmp_path / "out"
    shutil.rmtree(out)
    whole = {folder: pq.read_table(folder) for folder in (log, truth)}
    for folder in whole:
        rewritten(folder, lambda rows: rows.filter(pc.not_equal(rows["user_id"], "u2")))
    done = run(spark, load({**done.record["config"]}, date=DATE))
    for folder, rows in whole.items():
        rewritten(folder, lambda _, rows=rows: rows)
    assert "the log has 12 rows of experiment 'a', and 9 are on record" in again(spark, tmp_path)
    file = tmp_path / "erased ids.txt"
    file.write_text("\n u2 \n\nu2\nnobody\n")
    assert call("verify", "-o", out, "--without", file)[0] == 0
    file.write_text("u1\n")
    code, _, err = call("verify", "-o", out, "--without", file)
    assert code == 6 and "the log has as many rows of experiment 'a' as on record, but others" in err
    # The record of a run says how many users were erased: it cannot be derived again without their ids.
    resealed(done, erased_users=1)
    code, _, err = call("verify", "-o", out)
    said = f"users were erased from run {done.run_id}; allowed: rankmetrics verify --output {out} --date {DATE}"
    assert code == 2 and f"{said} --without FILE" in err
    assert call("verify", "-o", out, "--from", "user_metrics")[0] == 0
    file.write_text("u2")
    assert call("verify", "-o", out, "--without", file)[0] == 0
    for text in ("\n \n", None):
        file.unlink() if text is None else file.write_text(text)
        code, _, err = call("verify", "-o", out, "--without", file)
        assert code == 3 and f"--without '{file}'" in err
    assert call("verify", "-o", out, "--without", file, "--from", "user_metrics")[0] == 2


@pytest.mark.parametrize("source", ["inputs", "lists"])
@pytest.mark.parametrize("after", [0, 6, 20])
def test_a_verification_that_is_killed_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, source: str
) -> None:
    published(spark, tmp_path, sink={"path": str(tmp_path / "out"), "lists": True})
    before = contents(tmp_path / "out")
    with monkeypatch.context() as killing:
        count_down(killing, after)
        with pytest.raises(Killed):
            verify(spark, Sink(path=str(tmp_path / "out")), source=source)
        # From users, nothing is written that could be killed.
        verify(spark, Sink(path=str(tmp_path / "out")), source="user_metrics")
    assert contents(tmp_path / "out") == before


def test_an_output_without_digests_is_derived_all_the_same(spark: SparkSession, tmp_path: Path) -> None:
    done = published(spark, tmp_path)
    pointer, path = tmp_path / "out" / "published" / f"{DATE}.json", Path(done.record_path)
    document, record = json.loads(pointer.read_text()), json.loads(path.read_text())
    del document["sha256"], document["runs"][0]["sealed"]
    del record["files"], record["digests"], record["processor"]
    for count in record["experiments"].values():
        del count["digest"]
    pointer.write_text(json.dumps(document))
    path.write_text(json.dumps(record))
    result = verify(spark, Sink(path=str(tmp_path / "out")))
    assert [sentence.split(":")[0] for sentence in result.uncovered] == [
        f"published/{DATE}.json has no digest",
        f"runs/{done.run_id}.json has no digest",
        f"runs/{done.run_id}.json has no digests of its inputs",
    ]
    assert result.other[0].startswith("processor None on record, ")
    # A pointer that has lost its digest alone is one that was changed.
    document["runs"][0]["sealed"] = "0" * 64
    pointer.write_text(json.dumps(document))
    assert again(spark, tmp_path).startswith(f"published/{DATE}.json is not as it was written")


def test_what_an_older_version_did_not_write_is_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    done = published(spark, tmp_path)
    out, config_then = tmp_path / "out", json.loads(Path(done.record_path).read_text())["config"]
    (file,), pointer = out.glob("comparisons/experiment_id=b/*/*.parquet"), out / "published" / f"{DATE}.json"

    def written_by_other_code(table: pa.Table, columns: dict[str, str]) -> None:
        pq.write_table(table, file)
        document = json.loads(pointer.read_text())
        del document["sha256"]
        document["runs"][0]["tables"]["comparisons"]["columns"] = columns
        pointer.write_text(json.dumps(document))
        resealed(done, config=config_then)

    del config_then["unit"], config_then["comparison"]["tuning_users"]
    table, name = pq.read_table(file, partitioning=None), "p_share_with_value"
    columns = json.loads(pointer.read_text())["runs"][0]["tables"]["comparisons"]["columns"]
    written_by_other_code(table.drop([name]), {each: columns[each] for each in columns if each != name})
    said = f"comparisons: what was published has not yet {name}, so these are not compared"
    for document in (None, {**done.record["config"], "unit": "user"}):
        assert verify(spark, Sink(path=str(out)), document=document).uncovered == [said]
    assert "unit is user on record, and query now" in again(spark, tmp_path, {**done.record["config"], "unit": "query"})
    written_by_other_code(table.append_column("own", table[name]), columns | {"own": "double"})
    assert again(spark, tmp_path) == "comparisons: the column own is not derived again, or of another type"


def test_days_and_runs_that_came_later_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    days = ("2026-11-19", "2026-11-18", DATE)
    more: dict[str, Any] = {"comparison": {"baseline": "a", "period": {"from": days[1], "to": "{date}"}}} | LAX
    out = tmp_path / "out"
    for n, day in enumerate(days):
        log = [row for e in "ab" for u in range(9) for row in a_list([u % (n + 2), 1], f"u{u}", e)]
        run(spark, config(parquet(tmp_path / day, log), out, evaluation_date=day, **more))
    # The earlier day was published after it, and so was another experiment.
    alone = parquet(tmp_path / "alone", [row for u in range(9) for row in a_list([1, u % 2], f"u{u}", "c")])
    run(spark, config(alone, out, evaluation_date=days[0], **LAX))
    result = verify(spark, Sink(path=str(out)), days[0])
    assert len({row["run_id"] for row in result.rows}) == 2 and not result.other
    run(spark, config(tmp_path / days[1], out, evaluation_date=days[1], **more))
    assert not verify(spark, Sink(path=str(out))).other
    run(spark, config(tmp_path / days[0], out, evaluation_date=days[1], **more))
    assert f"has read days that have changed since: {days[1]} was published again" in again(spark, tmp_path)


def test_other_days_that_are_no_longer_as_a_run_has_read_them_are_named(spark: SparkSession, tmp_path: Path) -> None:
    days, out = ("2026-11-17", "2026-11-18", "2026-11-19", DATE), tmp_path / "out"
    logs = {
        name: parquet(tmp_path / name, [r for e in "ab" for u in range(9) for r in a_list([u % n, 1], f"u{u}{e}", e)])
        for name, n in {"log": 2, "other": 3}.items()
    }

    def day(date: str, log: str = "log", **more: Any) -> Outcome:
        compared = {"baseline": "a", "looks": {"planned": 4}, "tuning_users": 100} | more
        return run(spark, config(logs[log], out, evaluation_date=date, comparison=compared, **LAX))

    *_, done = [day(date, **({"cuped": {"date": days[0]}} if date == DATE else {})) for date in days]
    assert done.record["days_seen"] == [*days[:3]]
    day(days[0])
    day(days[1])
    assert not verify(spark, Sink(path=str(out))).other
    of_users = verify(spark, Sink(path=str(out)), source="user_metrics")
    assert {row["table"] for row in of_users.rows} == FOLLOWING and not of_users.other
    day(days[0], "other")
    named = f"run {done.run_id} has read days that have changed since: {days[0]} was "
    assert again(spark, tmp_path) == f"{named}published again, {days[1]} was published again"
    # Before records said what their runs had read, those of earlier runs showed it.
    resealed(done, without="days_seen")
    assert again(spark, tmp_path) == f"{named}published again, {days[1]} was published again"
    resealed(done, days_seen=[*days[:3]])
    with pytest.raises(DifferenceError, match=re.escape(f"{named}published again")):
        verify(spark, Sink(path=str(out)), source="user_metrics")
    prune(files_of(str(out)), str(out), 2, False)
    assert again(spark, tmp_path) == f"{named}removed, {days[1]} was removed"


def test_a_folder_of_delta_tables_is_read_as_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    (tmp_path / "experiment_metrics" / "_delta_log").mkdir(parents=True)
    sinks: list[Sink] = []
    monkeypatch.setattr("rankmetrics_spark.cli.options.on_session", lambda choice, work: work(None))
    monkeypatch.setattr("rankmetrics_spark.job.verify", lambda spark, sink, *_: sinks.append(sink) or Verified(DATE))
    assert call("verify", "-o", tmp_path)[0] == 0
    assert sinks == [Sink(path=str(tmp_path), format="delta")]
    assert DeltaFolder(spark, str(tmp_path), "").altered(DATE)[1] == ["Delta tables have versions, no digests of files"]
