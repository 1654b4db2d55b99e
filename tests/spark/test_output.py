"""What a run writes: its files, what a second run replaces, ids that are read back unchanged, no leftovers."""

import errno
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from rankmetrics_spark import config as cfg, evaluate, metrics as mx, run
from rankmetrics_spark.engines import SETTINGS_OF_RUNS, all_of, engine_of
from rankmetrics_spark.errors import ConfigError, InputError, OutputError
from rankmetrics_spark.job import forget, rows_here, verify
from rankmetrics_spark.pointers import Entry, Pointer
from rankmetrics_spark.report import accounting, compared_rows, figures_of, local_tables, result_rows
from rankmetrics_spark.sinks import Files, Partitions, read, reading, records_in, sql_tables, swapping
from tests.helpers.logs import DATE, Shown, a_list, averages, bits, config, exact, impressions, parquet
from tests.helpers.messages import json_cases

TABLES = ("user_metrics", "experiment_metrics", "quarantine", "checks")
NAMES = ["007", "7", "a/b=c", "ä ö", "x%2F", "1e3", "2026-01-01", "true", "a:b?c*d\\e\"f'g#h{i}[j]^k", "..", " padded "]


def everything(spark: SparkSession, out: Path, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read(spark, str(out / table)).collect()), key=repr)


def files(out: Path, table: str) -> dict[str, int]:
    """Map each partition folder to its number of Parquet files."""
    folders = [folder for folder in (out / table).glob("experiment_id=*/evaluation_date=*") if folder.is_dir()]
    return {str(folder.relative_to(out / table)): len(list(folder.glob("*.parquet"))) for folder in folders}


@pytest.mark.both_engines
def test_each_table_has_one_file_per_experiment_and_date(spark: SparkSession, tmp_path: Path) -> None:
    log = [row for e in "ab" for n in range(40) for row in a_list([0, 1, 0], f"u{n}", e)]
    log.append(Shown("a", "u0", None, 9, 1))
    out = tmp_path / "with a space" / "out"
    done = run(spark, config(parquet(tmp_path / "log", log), out))
    one_file_each = {f"experiment_id={e}/evaluation_date={DATE}": 1 for e in "ab"}
    assert files(out, "user_metrics") == one_file_each
    assert files(out, "experiment_metrics") == one_file_each
    assert files(out, "quarantine") == {f"experiment_id=a/evaluation_date={DATE}": 1}
    assert files(out, "checks") == one_file_each
    folders = "checks experiment_metrics published quarantine refused_checks runs user_metrics"
    assert sorted(path.name for path in out.iterdir()) == folders.split()
    assert [row[:5] for row in everything(spark, out, "quarantine")] == [("u0", None, "9", "1", "null_item")]
    users = read(spark, str(out / "user_metrics"))
    assert users.columns[:4] == ["user_id", "n_lists", "n_shown", "n_relevant"]
    assert {"ap_at_5", "ndcg_at_5"} < set(users.columns)
    assert json.loads(Path(done.record_path).read_text(encoding="utf-8"))["run_id"] == done.run_id
    assert (done.record["evaluation_date"], done.record["config"]["metrics"]) == (DATE, ["ap@5", "ndcg@5"])


@pytest.mark.both_engines
def test_a_file_of_all_experiments_has_the_rows_of_a_file_of_each(spark: SparkSession, tmp_path: Path) -> None:
    names = {"everyone": ["a", "007", "b/c", "d"], "few": ["b/c", "new"]}
    for log, experiments in names.items():
        users = [(f"u{u}", [u % 2, len(log) % 2], e) for n, e in enumerate(experiments) for u in range(5 + n)]
        parquet(tmp_path / log, [row for user, grades, e in users for row in a_list(grades, user, e)])
    tables, days = ("user_metrics", "experiment_metrics", "comparisons", "checks"), ("2026-11-19", DATE)

    def publish(out: Path, log: str, day: str = DATE, layout: str = "by_experiment") -> None:
        sink = {"path": str(out), "layout": layout}
        done = run(spark, config(tmp_path / log, out, comparison={"pairs": "all"}, evaluation_date=day, sink=sink))
        assert {row["experiment_id"] for row in done.experiment_metrics.collect()} == {*names[log]}

    def seen(out: Path) -> Any:
        """Every table as a session reads it, and as pages do."""
        pages = [figures_of(local_tables(str(out)), day) for day in days]
        shown = [[*page.means, *page.comparisons, *page.checks, *page.trend, *page.over_time] for page in pages]
        return {table: everything(spark, out, table) for table in tables}, [sorted(map(repr, rows)) for rows in shown]

    of_each, of_all = (tmp_path / layout for layout in ("by_experiment", "by_date"))
    publish(of_each, "everyone", days[0])
    copytree(of_each, of_all)
    for out in (of_each, of_all):
        publish(out, "everyone", layout=out.name)
        publish(out, "few", layout=out.name)
    before = seen(of_each)
    assert seen(of_all) == before
    # Two metrics of 6 pairs; those of the candidate that is run again make room for its pair with a new one.
    assert len(before[0]["comparisons"]) == 2 * (6 + (6 - 2 + 1))
    of_dates = {table: [file.parent.name for file in of_all.glob(f"{table}/e*=*/*.parquet")] for table in tables}
    assert of_dates == {table: [f"evaluation_date={DATE}"] for table in tables[1:]} | {"user_metrics": []}
    assert verify(spark, cfg.Sink(path=str(of_all)), days[0]).in_words()[0].endswith("the same to the bit")
    # A date keeps its layout.
    publish(of_all, "few")
    assert seen(of_all) == before


def test_names_of_experiments_are_read_back_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    log = [row for name in NAMES for row in a_list([0, 1], f"user of {name}", name)]
    log += [Shown(name, "u", None, 1, 1) for name in NAMES]
    done = run(spark, config(parquet(tmp_path / "log", log), tmp_path / "out", quality={"max_invalid_fraction": 1}))
    users = read(spark, f"{done.path}/user_metrics").select("experiment_id", "user_id").collect()
    assert {row["experiment_id"]: row["user_id"] for row in users} == {name: f"user of {name}" for name in NAMES}
    for table in ("experiment_metrics", "quarantine"):
        result = read(spark, f"{done.path}/{table}").select("experiment_id").distinct().collect()
        assert {row[0] for row in result} == set(NAMES)
    assert {row["experiment_id"] for row in done.experiment_metrics.collect()} == set(NAMES)
    assert set(done.record["experiments"]) == set(NAMES)
    clean = run(spark, config(parquet(tmp_path / "clean", log[: -len(NAMES)]), tmp_path / "out"))
    assert clean.record["rows"]["quarantined"] == 0
    assert everything(spark, tmp_path / "out", "quarantine") == []


def test_a_rerun_replaces_exactly_the_partitions_that_it_computed(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    bad = Shown("a", "u", None, 9, 1)
    lax = {"quality": {"max_invalid_fraction": 1}}
    first = parquet(
        tmp_path / "first", [*a_list([0, 1], "u", "a"), bad, *a_list([0, 1], "u", "b"), bad._replace(experiment_id="b")]
    )
    run(spark, config(first, out, **lax))
    run(spark, config(first, out, **lax, evaluation_date="2026-11-19"))
    before = {table: everything(spark, out, table) for table in TABLES}
    run(spark, config(parquet(tmp_path / "second", a_list([1, 0], "someone else", "a")), out, **lax))
    for table in TABLES:
        now = everything(spark, out, table)
        others = [row for row in before[table] if row[-2:] != ("a", DATE)]
        assert [row for row in now if row[-2:] != ("a", DATE)] == others
        assert len(others) == 3 * len(before[table]) // 4
    users = [row for row in everything(spark, out, "user_metrics") if row[-2:] == ("a", DATE)]
    assert [row[0] for row in users] == ["someone else"]
    # The second log of 'a' has no faulty row.
    assert [row for row in everything(spark, out, "quarantine") if row[-2:] == ("a", DATE)] == []
    assert len(list((out / "runs").glob("*.json"))) == 3


def test_of_many_experiments_that_stay_a_run_names_five(spark: SparkSession, tmp_path: Path) -> None:
    everyone = parquet(tmp_path / "everyone", [row for e in "abcdefgh" for row in a_list([1, 0], "u", e)])
    run(spark, config(everyone, tmp_path / "out"))
    done = run(spark, config(parquet(tmp_path / "one", a_list([1, 0], "u", "h")), tmp_path / "out"))
    stay = f"a, b, c, d, e and 2 more of {DATE} stay as earlier runs have published them: not in this log"
    assert done.record["notes"] == [stay]


@pytest.mark.outcome(
    "a run under another convention than that of the partitions it would replace",
    "exit 2: the experiment and both conventions; nothing but a run record is written",
)
def test_a_partition_never_changes_its_convention(spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", [*a_list([0, 1], "u", "a"), *a_list([1, 0], "u", "b")])
    run(spark, config(log, tmp_path / "out"))
    before = {table: everything(spark, tmp_path / "out", table) for table in TABLES[:2]}
    message = f"holds experiment '[ab]' of {DATE} under the convention 'standard', and this run has 'trec_eval'"
    with pytest.raises(ConfigError, match=message):
        run(spark, config(log, tmp_path / "out", convention="trec_eval"))
    assert {table: everything(spark, tmp_path / "out", table) for table in TABLES[:2]} == before
    other = run(spark, config(log, tmp_path / "out", convention="trec_eval", evaluation_date="2026-11-19"))
    hashes = {row[0] for row in other.experiment_metrics.select("convention_hash").collect()}
    users = read(spark, str(tmp_path / "out" / "user_metrics")).where("evaluation_date = '2026-11-19'")
    assert {row[0] for row in users.select("convention_hash").collect()} == hashes == {mx.resolve("trec_eval").digest()}


@pytest.mark.outcome(
    "a rerun in which an experiment has no valid row", "its earlier result is removed, its rows are in quarantine"
)
def test_an_experiment_without_a_valid_row_loses_its_earlier_result(spark: SparkSession, tmp_path: Path) -> None:
    lax = {"quality": {"max_invalid_fraction": 1}}
    both = [*a_list([0, 1], "u", "a"), *a_list([1, 0], "u", "b")]
    run(spark, config(parquet(tmp_path / "first", both), tmp_path / "out"))
    run(spark, config(parquet(tmp_path / "second", [*both[:2], Shown("b", "u", None, 1, 1)]), tmp_path / "out", **lax))
    for table in TABLES[:2]:
        assert {row[-2] for row in everything(spark, tmp_path / "out", table)} == {"a"}


def test_a_new_metric_is_null_on_earlier_dates(spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", a_list([0, 1]))
    run(spark, config(log, tmp_path / "out", metrics=["ap@5"], evaluation_date="2026-11-19"))
    done = run(spark, config(log, tmp_path / "out", metrics=["ap@5", "rr"]))
    assert averages(done.experiment_metrics) == {("a", "all", "ap@5"): 1 / 2, ("a", "all", "rr"): 1 / 2}
    users = read(spark, f"{done.path}/user_metrics").collect()
    result = {row["evaluation_date"]: (row["ap_at_5"], row["rr"]) for row in users}
    assert result == {"2026-11-19": (1 / 2, None), DATE: (1 / 2, 1 / 2)}


@pytest.mark.outcome(
    "a log without any valid row and `max_invalid_fraction: 1`", "no averages; every row is in quarantine"
)
def test_a_log_without_a_valid_row_has_no_result(spark: SparkSession, tmp_path: Path) -> None:
    lax = {"quality": {"max_invalid_fraction": 1}}
    log = parquet(tmp_path / "log", [Shown("", "u", "x", 1, 1), Shown("", "u", "y", 2, 1)])
    done = run(spark, config(log, tmp_path / "out", **lax))
    assert done.record["rows"] == {"in": 2, "evaluated": 0, "quarantined": 2}
    assert (done.user_metrics.count(), done.experiment_metrics.count()) == (0, 0)
    assert [row["reason"] for row in read(spark, f"{done.path}/quarantine").collect()] == ["empty_experiment"] * 2


@pytest.mark.outcome(
    "the sink {sink} in a session without its jars",
    "exit 1: the table and what the session lacks; nothing but a run record and its checks is written",
    on_sail="exit 1: `the engine sail cannot write` ...; nothing but a run record and its checks is written",
)
@pytest.mark.parametrize(("sink", "name"), json_cases("formats that a session lacks"))
def test_a_table_format_that_the_session_lacks_is_reported_before_anything_is_computed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: dict[str, str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    log, steps = parquet(tmp_path / "log", a_list([0, 1])), list[str]()
    lacks = "this session was started without the jar or the catalog settings of (delta|iceberg)"
    sentence = f"cannot write the {name}: {lacks}"
    if engine_of(spark) == "sail":
        allowed = "parquet in a folder of this machine, or use --engine spark"
        sentence = f"the engine sail cannot write {sink['format']} to '.*'; allowed: {allowed}"
    with pytest.raises(OutputError, match=f"^{sentence}$"):
        run(spark, config(log, tmp_path / "out", sink=sink), steps.append)
    assert steps in ([], ["reading schemas"], ["reading schemas", "evaluating (masks layout)"])
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if not {"log", "runs", "refused_checks"} & {*path.parts}] == []


def test_a_failed_write_leaves_no_staging(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("rankmetrics_spark.sinks.folders.ParquetFolder.write", fail)
    with pytest.raises(OSError, match="disk full"):
        run(spark, config(parquet(tmp_path / "log", a_list([1])), tmp_path / "out"))
    assert not (tmp_path / "out" / "_staging").exists()


@pytest.mark.slow
@pytest.mark.needs_spark("Sail writes to folders of this machine only")
def test_what_only_spark_writes_is_read(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as only_spark:
        for name in ("reach_of", "likely_reach", "on_this_machine"):
            only_spark.setattr(f"rankmetrics_spark.sinks.files.{name}", lambda *_: None)
        for experiments in ("ab", "b"):
            log = [row for name in experiments for row in a_list([len(experiments) - 1, 1], "u", name)]
            done = run(spark, config(parquet(tmp_path / experiments, log), out, metrics=["rr"]))
            assert not [*out.rglob(f"*{done.run_id}*.parquet")]
        result = read(spark, f"{out}/experiment_metrics")
        assert {(row["experiment_id"], row["mean"]) for row in result.collect()} == {("a", 1.0), ("b", 0.5)}
    # Spark writes a text as a folder with one file. Where Python can write, the pointer is a file again.
    pointer = out / "published" / f"{DATE}.json"
    assert pointer.is_dir()
    run(spark, config(parquet(tmp_path / "a", a_list([0, 0, 1])), out, metrics=["rr"]))
    assert [path.name for path in pointer.parent.iterdir()] == [pointer.name] and pointer.is_file()
    result = read(spark, f"{out}/experiment_metrics")
    assert {(row["experiment_id"], row["mean"]) for row in result.collect()} == {("a", 1 / 3), ("b", 0.5)}


@pytest.fixture
def swap_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Let runs publish their files by this function."""
    return partial(monkeypatch.setattr, "rankmetrics_spark.sinks.swapping.swap")


def test_an_interrupt_while_publishing_leaves_the_earlier_result(
    spark: SparkSession, tmp_path: Path, swap_by: Callable[..., None]
) -> None:
    out = tmp_path / "out"
    first = run(spark, config(parquet(tmp_path / "first", a_list([1])), out))

    def interrupted(files: Files, change: swapping.Swap) -> None:
        swapping.place(files, change)
        assert [*out.glob(f"user_metrics/**/*{change.entry.run_id}*")]
        raise KeyboardInterrupt

    swap_by(interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(spark, config(parquet(tmp_path / "second", a_list([0, 1])), out))
    assert [row["ap_at_5"] for row in read(spark, str(out / "user_metrics")).collect()] == [1.0]
    left = [path.name for path in out.rglob("*.parquet") if "refused_checks" not in path.parts]
    assert len(left) == 3 and all(first.run_id in name for name in left)
    assert not (out / "_staging").exists()


def test_a_large_answer_is_split_by_tasks_into_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = [row for name in ("a", "b/c", "ä") for n in range(5) for row in a_list([n % 2, 1, n % 3], f"u{n}", name)]
    log.append(Shown("a", "u0", None, 9, 1))
    small, large = tmp_path / "small", tmp_path / "large"
    lenient = {"max_invalid_fraction": 1}
    run(spark, config(parquet(tmp_path / "log", log), small, quality=lenient))
    monkeypatch.setattr("rankmetrics_spark.sinks.partitions.MOST_ROWS", 0)
    by_tasks = []
    prepared = Partitions.prepared
    monkeypatch.setattr(Partitions, "prepared", lambda *given: by_tasks.append(given) or prepared(*given))
    run(spark, config(parquet(tmp_path / "log", log), large, quality=lenient))
    assert len(by_tasks) == len(TABLES)
    for table in TABLES:
        assert files(large, table) == files(small, table)
        rows, same = ([*map(repr, everything(spark, out, table))] for out in (large, small))
        assert rows and rows == same


def test_a_reader_gives_up_where_runs_publish_all_the_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(spark, config(parquet(tmp_path / "log", a_list([1])), tmp_path / "out"))
    pointers, looks = reading.pointers_of(spark, done.path), count()
    assert list(pointers) == [DATE]

    def changed(*_: object) -> dict[str, Pointer]:
        return {DATE: replace(pointers[DATE], sequence=next(looks))}

    monkeypatch.setattr("rankmetrics_spark.sinks.reading.pointers_of", changed)
    with pytest.raises(InputError, match=r"runs publish to it all the time; read it again when they have ended$"):
        read(spark, f"{done.path}/user_metrics")
    assert next(looks) == 1 + reading.ATTEMPTS


def test_files_that_vanish_are_one_sentence_that_keeps_its_cause(
    spark: SparkSession, tmp_path: Path, swap_by: Callable[..., None]
) -> None:
    gone = FileNotFoundError("No such file: part-0.parquet")

    def fail(*_: object) -> None:
        raise gone

    swap_by(fail)
    with pytest.raises(OutputError, match="files vanished while they were written") as caught:
        run(spark, config(parquet(tmp_path / "log", a_list([1])), tmp_path / "out"))
    assert caught.value.__cause__ is gone


@pytest.mark.outcome("a disk that is full once the pointer is written", "exit 0: the run is done, with a warning")
def test_an_error_after_the_pointer_warns(spark: SparkSession, tmp_path: Path, swap_by: Callable[..., None]) -> None:
    swap = swapping.swap

    def swapped(*arguments: Any) -> None:
        swap(*arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    swap_by(swapped)
    done = run(spark, config(parquet(tmp_path / "log", a_list([1])), tmp_path / "out"))
    (record,) = records_in(done.path) or ()
    for each in (done.record, record):
        (warning,) = each["warnings"]
        assert each["outcome"] == "done" and "error" not in each
        assert warning.startswith("published; an error followed (cannot write to") and "the disk is full" in warning
    assert f"warning: {warning}" in accounting(done.record)
    assert len(everything(spark, tmp_path / "out", "user_metrics")) == 1


def test_a_run_leaves_the_settings_of_the_session_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    names = [
        "spark.sql.shuffle.partitions",
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "spark.sql.sources.partitionOverwriteMode",
        "spark.sql.adaptive.enabled",
    ]
    before = [spark.conf.get(name) for name in names]
    log = a_list([0, 1])
    evaluate(impressions(spark, log), ["ap"]).experiment_metrics.collect()
    settings = {"spark.sql.shuffle.partitions": 3}
    for metrics in (["ap"], ["judged@2"]):
        done = run(spark, config(parquet(tmp_path / "log", log), tmp_path / "out", spark=settings, metrics=metrics))
        cheapest = "relevant" if engine_of(spark) == "sail" else "masks"
        assert done.record["layout"] == ("rows" if metrics == ["judged@2"] else cheapest)
        notes = [line for line in accounting(done.record) if "spark.sql.shuffle.partitions" in line]
        no_effect = "note: going on without spark.sql.shuffle.partitions, which have no effect in this session"
        assert notes == ([no_effect] if engine_of(spark) == "sail" else [])
        assert [spark.conf.get(name) for name in names] == before


def test_runs_at_once_in_a_session_leave_its_settings_and_their_own_tables(spark: SparkSession, tmp_path: Path) -> None:
    names = [*SETTINGS_OF_RUNS, "spark.sql.shuffle.partitions"]
    before = [spark.conf.get(name, None) for name in names]
    logs = {n: a_list([0] * n + [1]) for n in range(3)}

    def work(n: int) -> None:
        request = {"spark.sql.shuffle.partitions": n + 3} if n else {}
        metrics = ["ap"] if n else ["ap", "judged@2"]
        run(spark, config(parquet(tmp_path / f"log{n}", logs[n]), tmp_path / f"out{n}", spark=request, metrics=metrics))

    with ThreadPoolExecutor(len(logs)) as pool:
        list(pool.map(work, logs))
    assert [spark.conf.get(name, None) for name in names] == before
    for n in logs:
        rows = read(spark, str(tmp_path / f"out{n}" / "experiment_metrics")).where("metric = 'ap'").collect()
        assert [row["mean"] for row in rows] == [1 / (n + 1)]


@pytest.mark.classic
def test_the_rows_that_a_run_still_has_are_those_that_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    # A user without a relevant item has no recall.
    log = [*a_list([0, 1], "u", "a/b"), *a_list([0], "v", "a/b"), *a_list([1, 0], "u", "é"), *a_list([1, 1], "v", "z")]
    request = config(parquet(tmp_path / "log", log), tmp_path / "out", metrics=["ap", "recall@2"])
    done = run(spark, replace(request, comparison=cfg.Comparison.read({"pairs": "all"})))
    here = rows_here(done, "experiment_metrics")
    assert here is not None and len(here) == 6
    compared = compared_rows(rows_here(done, "comparisons"))
    assert len(compared) == 6
    for ours, written in (
        (result_rows(here), result_rows(done.experiment_metrics)),
        (compared, [{name: row[name] for name in compared[0]} for row in compared_rows(done.comparisons)]),
    ):
        assert [[bits(r[n]) for n in ours[0]] for r in ours] == [[bits(r[n]) for n in ours[0]] for r in written]


class Serverless:
    """A session that allows one setting; it refuses to set, unset or return any other."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.conf = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def get(self, name: str, default: str | None = None) -> str | None:
        return self._spark.conf.get(self._allowed(name), default)

    def set(self, name: str, value: str) -> None:
        self._spark.conf.set(self._allowed(name), value)

    def unset(self, name: str) -> None:
        self._spark.conf.unset(self._allowed(name))

    def _allowed(self, name: str) -> str:
        if name != "spark.sql.shuffle.partitions":
            # Raise the error that a session raises for a setting that must not be changed.
            self._spark.conf.set("spark.sql.warehouse.dir", "elsewhere")
        return name


@pytest.mark.slow
@pytest.mark.needs_spark("Sail refuses no setting")
def test_a_session_that_refuses_our_settings_gives_the_same_numbers(spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", [row for n in range(3) for row in a_list([0, 1, 0, 1], f"u{n}")])
    before = spark.conf.get("spark.sql.shuffle.partitions")
    steps: list[str] = []
    plain = run(spark, config(log, tmp_path / "plain"))
    strict = config(log, tmp_path / "strict", spark={"spark.sql.shuffle.partitions": 3})
    done = run(Serverless(spark), strict, steps.append)  # type: ignore[arg-type]
    assert exact(done.experiment_metrics.collect()) == exact(plain.experiment_metrics.collect())
    assert plain.record["refused_settings"] == []
    assert done.record["refused_settings"] == list(SETTINGS_OF_RUNS)
    (note,) = (line for line in accounting(done.record) if line.startswith("note: going on without "))
    assert all(name in note for name in SETTINGS_OF_RUNS)
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


@pytest.mark.outcome(
    "a setting of Spark that cannot be changed, or with a value that it does not take",
    "exit 2: the setting; nothing is written",
    on_sail="no setting of Spark has an effect there; the terminal and the run record name it",
)
def test_a_setting_of_the_config_that_the_session_refuses_is_named(spark: SparkSession, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", a_list([1]))
    refused = {"spark.executor.memory": "4g", "spark.sql.shuffle.partitions": "many"}
    if engine_of(spark) == "sail":
        done = run(spark, config(log, tmp_path / "out", spark=refused))
        assert done.record["refused_settings"] == list(refused)
        (note,) = (line for line in accounting(done.record) if line.startswith("note: going on without "))
        assert all(name in note for name in refused)
        return
    before = [spark.conf.get(name) for name in SETTINGS_OF_RUNS]
    for name, value in refused.items():
        with pytest.raises(ConfigError, match=rf"spark: '{name}' cannot be '{value}' here: .*; allowed: settings"):
            run(spark, config(log, tmp_path / "out", spark={name: value}))
    assert [spark.conf.get(name) for name in SETTINGS_OF_RUNS] == before
    assert not (tmp_path / "out").exists()
    # What the session was started with needs no change.
    name = "spark.sql.warehouse.dir"
    assert run(spark, config(log, tmp_path / "out", spark={name: str(spark.conf.get(name))})).path


def test_whether_a_table_exists_is_known_without_opening_a_file(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "a[b]" / "checks"
    assert not reading.exists(spark, str(table))
    partition = table / "experiment_id=007" / f"evaluation_date={DATE}"
    partition.mkdir(parents=True)
    (partition / "part-0.parquet").write_bytes(b"no footer")
    assert reading.exists(spark, str(table))


def test_an_outcome_reads_its_rows_after_users_were_erased_and_its_dates_are_dates(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = [*a_list([0, 1], "u", "007"), *a_list([0, 1], "v", "007")]
    done = run(spark, config(parquet(tmp_path / "log", log), tmp_path / "out"))
    (tmp_path / "ids.txt").write_text("v")
    forget(spark, str(tmp_path / "out"), str(tmp_path / "ids.txt"))
    users = done.user_metrics
    assert {(row["user_id"], row["evaluation_date"]) for row in users.collect()} == {("u", date.fromisoformat(DATE))}
    kinds = {dict(table.dtypes)["evaluation_date"] for table in (users, done.experiment_metrics, done.checks)}
    assert (users.count(), kinds) == (1, {"date"})
    assert [row["user_id"] for row in read(spark, f"{done.path}/user_metrics").collect()] == ["u"]


class Catalog(sql_tables.CatalogSchema):
    """Tables as temporary views, which a server looks up each time that rows are read; one view for each version."""

    def pointers(self) -> dict[str, Pointer]:
        facts = {"user_metrics": {"rows": 1, "counted": [1], "version": 1}}
        return {DATE: Pointer(DATE, (Entry("first", ("a",), facts),))}

    def current(self, table: str) -> DataFrame:
        return self.spark.table(self.path)

    def version(self, table: str) -> int:
        return 1

    def at_version(self, table: str, version: int) -> DataFrame:
        return self.spark.table(f"{self.path}_{version}")


@pytest.mark.both_engines
def test_rows_of_a_table_are_those_of_the_version_that_was_looked_at(spark: SparkSession) -> None:
    def rows(name: str) -> DataFrame:
        return spark.createDataFrame([("a", DATE, name)], "experiment_id string, evaluation_date string, run_id string")

    rows("first").createOrReplaceTempView("versions_1")
    rows("first").createOrReplaceTempView("versions")
    table = Catalog(spark, "versions", "", "iceberg").existing("user_metrics")
    # Another run commits before the rows are read, and its pointer is not written yet.
    rows("second").createOrReplaceTempView("versions")
    assert table is not None and [tuple(row) for row in table.collect()] == [("a", DATE, "first")]


@pytest.mark.parametrize(("n_rows", "together"), [(500_000, True), (500_001, False)])
def test_queries_of_many_rows_run_one_after_the_other_where_they_share_memory(
    spark: SparkSession, n_rows: int, together: bool
) -> None:
    both, seen = threading.Event(), []
    together = together or engine_of(spark) == "spark"

    def first() -> str:
        seen.append(both.wait(20 if together else 0.1))
        return "first"

    def second() -> str:
        both.set()
        return "second"

    assert all_of(spark, [first, second], n_rows) == ["first", "second"]
    assert seen == [together]
