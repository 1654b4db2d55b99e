"""Publishing files, without Spark: killed at any step, the pointer names the old files or the new ones."""

import json
import os
import re
import shutil
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from rankmetrics_spark import sinks as sk
from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.job import Record
from rankmetrics_spark.pointers import RUN_ID, Entry, Pointer, newest, parse
from rankmetrics_spark.schemas import Check
from rankmetrics_spark.sinks import erasing, folders, swapping as sw
from rankmetrics_spark.sinks.claims import ClaimContent
from rankmetrics_spark.sinks.files import Reach
from rankmetrics_spark.sinks.folders import DeltaFolder
from rankmetrics_spark.sinks.sql_tables import CatalogSchema
from tests.helpers.kills import FullDisk, Killed, count_down
from tests.helpers.logs import config

DATE = "2026-11-20"
RUNS = [f"20261120T00000{i}-0000000{i}" for i in range(4)]
EXPERIMENTS = ("a", "b/c", None)
OLD = {"user_metrics": EXPERIMENTS, "quarantine": ("a", None), "user_states": EXPERIMENTS, "user_days": (None,),
       "lists": (None,)}  # fmt: skip
NEW = {"user_metrics": EXPERIMENTS, "experiment_metrics": EXPERIMENTS, "user_days": (None,), "lists": (None,)}


def output(folder: Path) -> sk.Files:
    folder.mkdir(parents=True, exist_ok=True)
    return sk.Files(fs.LocalFileSystem(), str(folder))


def stage(files: sk.Files, run: str, tables: dict[str, Any]) -> sw.Swap:
    staged: dict[str, list[sk.StagedFile]] = {}
    for table, names in tables.items():
        for number, name in enumerate(names):
            one = sk.StagedFile(name, f"part-{run}-{number}.parquet", 1)
            files.write(f"_staging/{run}/{table}/{one.name}", run)
            staged.setdefault(table, []).append(one)
    return sw.Swap(DATE, Entry(run, EXPERIMENTS), staged)


def seen(files: sk.Files) -> dict[str, list[tuple[str, str | None]]]:
    """Table -> (partition, text) of every file that the pointer names."""
    pointer = sw.pointer_of(files, DATE)
    known = {DATE: pointer} if pointer else {}
    result = {}
    for table in ("user_metrics", "experiment_metrics", "quarantine", "user_states", "user_days", "lists"):
        below = sk.Files(files.system, files.at(table))
        result[table] = sorted((path.rpartition("/")[0], below.read(path)) for path in sk.live_files(below, known))
    return result


def test_a_kill_leaves_old_or_new_files_and_needs_no_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    which = set()
    for after in range(100):
        files = output(tmp_path / str(after))
        sw.swap(files, stage(files, RUNS[0], OLD))
        sw.discard(files, RUNS[0])
        old = seen(files)
        assert {text for rows in old.values() for _, text in rows} == {RUNS[0]}
        change = stage(files, RUNS[1], NEW)
        with monkeypatch.context() as patched:
            count_down(patched, after)
            try:
                sw.swap(files, change)
                ended = True
            except Killed:
                ended = False
        now = seen(files)
        new = {table: [(folder, RUNS[1]) for folder, _ in rows] for table, rows in now.items()}
        for table in ("user_days", "lists"):
            assert [folder for folder, _ in now[table]] == [f"evaluation_date={DATE}"], after
        assert now == old or (now == new and len(now["user_metrics"]) == len(now["experiment_metrics"]) == 3), after
        which.add(now == old)
        # No partition is missing for a reader who only lists files.
        folders = [sw.folder_of("user_metrics", name, DATE) for name in EXPERIMENTS]
        assert all(files.files(folder) for folder in folders)
        sw.recover(files, RUNS[1], DATE, EXPERIMENTS)
        assert seen(files) == now
        runs = {path.name[5:29] for path in Path(files.root).rglob("part-*")}
        assert runs == {RUNS[0] if now == old else RUNS[1]}
        assert set(files.names("_staging")) <= {".gate"}
        if ended:
            break
    assert ended and after > 10 and which == {True, False}


@pytest.mark.parametrize("was_by_date", [False, True])
def test_every_kill_leaves_the_rows_of_all_experiments_in_the_files_of_a_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_by_date: bool
) -> None:
    tables, again = ("user_metrics", "experiment_metrics", "checks"), ("b/c", None)

    def staged(files: sk.Files, run: str, names: tuple[str | None, ...], by_date: bool) -> sw.Swap:
        """A row of each experiment, which names the run."""
        new: dict[str, list[sk.StagedFile]] = {table: [] for table in tables}
        for number, (table, name) in enumerate(product(tables, names)):
            new[table].append(sk.StagedFile(name, f"part-{run}-{number}.parquet", 1))
            files.write_table(f"_staging/{run}/{table}/part-{run}-{number}.parquet", pa.table({"run": [run]}))
        return sw.Swap(DATE, Entry(run, names), new, by_date)

    def rows(files: sk.Files) -> dict[tuple[str, str | None], str]:
        """(table, experiment) -> the run of its row, of each file that counts."""
        found: list[tuple[tuple[str, str | None], str]] = []
        for table in tables:
            below = sk.Files(files.system, files.at(table))
            for path in sk.live_files(below, {DATE: sw.pointer_of(files, DATE)}):  # type: ignore[dict-item]
                part = below.read_table(path).to_pylist()
                folder = sw.experiment_of(path.split("/")[0])
                found += [((table, row.get("experiment_id", folder)), row["run"]) for row in part]
        assert len(found) == len(dict(found))
        return dict(found)

    old = {(table, name): RUNS[0] for table in tables for name in EXPERIMENTS}
    new = old | {(table, name): RUNS[1] for table in tables for name in again}
    which, ended, after = set(), False, 0
    while not ended:
        files = output(tmp_path / str(after))
        sw.swap(files, staged(files, RUNS[0], EXPERIMENTS, was_by_date))
        sw.discard(files, RUNS[0])
        change = staged(files, RUNS[1], again, True)
        # Another run is about to publish here, too.
        other = f"checks/evaluation_date={DATE}/part-{RUNS[2]}-0.parquet"
        files.write(f"_staging/{RUNS[2]}.claim", "{}")
        with monkeypatch.context() as patched:
            count_down(patched, after)
            with suppress(Killed):
                sw.swap(files, change)
                ended = True
        now = rows(files)
        assert now in (old, new), after
        which.add(now == old)
        files.write(other, "")
        sw.recover(files, RUNS[1], DATE, again)
        assert rows(files) == now and files.read(other) == ""
        files.remove(other)
        left = [path.name[5:29] for path in Path(files.root).glob("[ce]*/**/part-*")]
        assert len({*left}) == 1 and len(left) == (2 if was_by_date or now == new else 6)
        after += 1
    assert after > 10 and which == {True, False}


def test_files_without_a_run_id_count_on_a_date_without_a_pointer(tmp_path: Path) -> None:
    files = output(tmp_path)
    for name in ("a", "other"):
        files.write(f"{sw.folder_of('user_metrics', name, DATE)}/part-00000-6f1c.c000.snappy.parquet", "early")
    assert [text for _, text in seen(files)["user_metrics"]] == ["early", "early"]
    sw.swap(files, stage(files, RUNS[0], {"user_metrics": EXPERIMENTS}))
    assert [text for _, text in seen(files)["user_metrics"]] == [RUNS[0]] * 3
    # What a run has put in place and not published does not count, even where there was nothing before.
    files.write(f"{sw.folder_of('user_metrics', 'fresh', DATE)}/part-{RUNS[3]}-0.parquet", "killed")
    assert len(seen(files)["user_metrics"]) == 3


def test_a_pointer_knows_which_run_an_experiment_belongs_to() -> None:
    first = Pointer(DATE).with_run(Entry("r1", ("a", "b", None), convention={"name": "standard", "hash": "x"}))
    second = first.with_run(Entry("r2", ("b",)))
    assert second.run_of() == {"b": "r2", "a": "r1", None: "r1"}
    assert (first.sequence, second.sequence) == (1, 2)
    assert parse(second.as_json()) == second
    assert newest([second.as_json(), first.as_json(), None, "of yesterday", '{"run_id": "r0"}']) == {DATE: second}
    assert second.with_run(Entry("r3", ("a", "b", None))).run_of() == dict.fromkeys(("a", "b", None), "r3")


def test_books_that_do_not_add_up_are_one_sentence() -> None:
    partitions = sk.Partitions(DATE, ["a"])

    def of(table: str, rows: int, total: int = 0) -> sk.Written:
        return sk.Written(table, None, partitions, (), {"a": rows}, {"a": total})  # type: ignore[arg-type]

    counts = {"a": {"lists": 6, "lists_outside": 1, "quarantined": 2}}
    good = (of("user_metrics", 3, 5), of("experiment_metrics", 2), of("quarantine", 2))
    sk.check_row_counts(*good, counts)
    for place, wrong, message in (
        (0, of("user_metrics", 3, 4), "5 lists of users with judgements in the input and 4 in the tables"),
        (1, of("experiment_metrics", 0), "3 users with averages in the input and 0 in the tables"),
        (2, of("quarantine", 3), "2 rows left out in the input and 3 in the tables"),
    ):
        tables = [wrong if i == place else table for i, table in enumerate(good)]
        with pytest.raises(OutputError, match=f"experiment 'a' has {message}; nothing was published"):
            sk.check_row_counts(*tables, counts)  # type: ignore[arg-type]


def test_a_killed_run_is_entered_in_its_record(tmp_path: Path) -> None:
    files = output(tmp_path)
    for run, outcome in ((RUNS[0], "publishing"), (RUNS[1], "running"), (RUNS[2], "failed")):
        files.write(f"runs/{run}.json", json.dumps({"outcome": outcome, "evaluation_date": DATE}))
    sw.swap(files, stage(files, RUNS[0], OLD))
    for run in RUNS:
        sw.recover(files, run, None, ())
    outcomes = [json.loads(str(files.read(f"runs/{run}.json")))["outcome"] for run in RUNS[:3]]
    assert outcomes == ["done", "killed", "failed"]


def test_cleaning_up_after_a_killed_run_leaves_the_files_of_delta_tables_alone(tmp_path: Path) -> None:
    files = output(tmp_path)
    path = f"{sw.folder_of('user_metrics', 'a', DATE)}/part-00000-6f1c.c000.snappy.parquet"
    files.write(path, "of a version that a reader may ask for")
    files.write(f"published/{DATE}.json", Pointer(DATE).with_run(Entry(RUNS[0], ("a",))).as_json())
    for kind, left in ((DeltaFolder, True), (sk.ParquetFolder, False)):
        store = kind(None, str(tmp_path), RUNS[1])  # type: ignore[arg-type]
        store._reach = Reach(files, None, here=True)  # type: ignore[arg-type]
        store._recover(ClaimContent(RUNS[0], DATE, ("a",)))
        assert (files.read(path) is not None) == left


def test_of_many_checks_a_record_keeps_what_failed() -> None:
    rows = [Check("min", said, f"{said} {i}", "a") for i in range(4_000) for said in ("not_checked", "ok", "warn")]
    record = Record({})
    record.add_checks([*rows, Check("min", "fail", "the last one", "a")])
    kept = record.entries["checks"]
    assert len(kept) == 10_000 and kept[0]["sentence"] == "the last one"
    assert Counter(row["status"] for row in kept) == {"fail": 1, "warn": 4_000, "ok": 4_000, "not_checked": 1_999}


def test_only_what_has_had_no_claim_for_a_day_is_tidied_up(tmp_path: Path) -> None:
    # A server may go on writing for hours after its client was killed.
    files, now = output(tmp_path), datetime.now(timezone.utc)
    runs = {hours: f"{now - timedelta(hours=hours):%Y%m%dT%H%M%S}-0000000a" for hours in (2, 23, 25, 26)}
    for hours, run in runs.items():
        for path in (f"_staging/{run}/part-0.parquet", f"runs/.{run}.json.7"):
            files.write(path, "{}")
            os.utime(tmp_path / path, (now.timestamp() - hours * 3600,) * 2)
    files.write(f"_staging/{runs[26]}.claim", "{}")
    sw.remove_unclaimed(files)
    assert {p.name for p in (tmp_path / "_staging").iterdir()} == {*(runs[h] for h in (2, 23, 26)), f"{runs[26]}.claim"}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {f".{runs[hours]}.json.7" for hours in (2, 23)}


def test_a_pointer_that_a_killed_run_has_written_twice_is_read_and_tidied_up(tmp_path: Path) -> None:
    files = output(tmp_path)
    sw.swap(files, stage(files, RUNS[0], OLD))
    path = f"published/{DATE}.json"
    text = files.read(path)
    # Spark writes a text as a folder. A run is killed when it has removed that folder, and its text is there already.
    files.remove(path)
    files.write(f"published/{DATE}.next.json", text or "")
    assert sk.pointers_of(cast(Any, None), files.root, DATE)[DATE] == sw.pointer_of(files, DATE) == parse(text)
    sw.swap(files, stage(files, RUNS[1], NEW))
    assert files.names("published") == [f"{DATE}.json"]
    result = sw.pointer_of(files, DATE)
    assert result is not None and result.entries[0].run_id == RUNS[1]


def test_only_records_are_read_as_records(tmp_path: Path) -> None:
    files = output(tmp_path)
    for run, outcome in zip(RUNS, ("done", "done", "failed"), strict=False):
        record = {"run_id": run, "outcome": outcome, "quality": {"rates": {"a": {"tie_rate": float(run[-1])}}}}
        files.write(f"runs/{run}.json", json.dumps(record))
    (tmp_path / "runs" / "z.parquet").write_bytes(b"\xff\xfe")
    store = sk.ParquetFolder(cast(Any, None), str(tmp_path), "")
    assert sk.previous_quality(store, ["a"], needed=False) == {"rates": {"a": {"tie_rate": 1.0}}, "run_id": RUNS[1]}


def test_each_experiment_is_held_against_the_newest_run_that_has_it(tmp_path: Path) -> None:
    files = output(tmp_path)
    # On the second day b is late, and the last run is another job's, whose log names no experiment.
    of_runs: list[dict[str | None, float]] = [{"a": 0.1, "b": 0.2}, {"a": 0.3}, {None: 0.4}]
    for run, rates in zip(RUNS, of_runs, strict=False):
        quality = {"rates": {name: {"tie_rate": rate} for name, rate in rates.items()}, "overall": {"of": run}}
        files.write(f"runs/{run}.json", sk.as_json({"run_id": run, "outcome": "done", "quality": quality}))
    store = sk.ParquetFolder(cast(Any, None), str(tmp_path), "")

    def previous(*names: str | None) -> tuple[dict[str | None, float], str]:
        """Experiment -> its rate, and the run whose rates of the whole log count."""
        result = sk.previous_quality(store, names, needed=True)
        assert result["run_id"] == result["overall"]["of"]
        return {name: result["rates"][name]["tie_rate"] for name in result["rates"]}, result["run_id"]

    assert previous("a", "b", "new") == ({"a": 0.3, "b": 0.2}, RUNS[1])
    assert previous("b") == ({"b": 0.2}, RUNS[0])
    assert previous(None) == ({None: 0.4}, RUNS[2])
    assert sk.previous_quality(store, ["new"], needed=True) == {}


def test_ids_of_runs_are_in_the_order_of_the_runs() -> None:
    ids = [Record.open(config("log", "out"), "sail", {}, {}).run_id for _ in range(40)]
    assert ids == sorted(ids) and all(re.fullmatch(RUN_ID, run_id) for run_id in ids)


def test_an_experiment_may_be_called_like_a_run(tmp_path: Path) -> None:
    files = output(tmp_path)
    run, name = "20261122T010203-0a1b2c3d", "model-20261121T120000-deadbeef"
    staged = {"user_metrics": [sk.StagedFile(name, f"part-{run}-1.parquet", 1)]}
    files.write(f"_staging/{run}/user_metrics/part-{run}-1.parquet", "rows")
    sw.swap(files, sw.Swap("2026-11-22", Entry(run, (name,)), staged))
    sw.recover(files, run, "2026-11-22", [name])
    (path,) = files.files(sw.folder_of("user_metrics", name, "2026-11-22"))
    assert files.read(path) == "rows"


def test_a_catalog_that_keeps_staging_tables_does_not_fail_a_run_that_was_published() -> None:
    request = []

    class Refusing:
        def sql(self, text: str) -> None:
            request.append(text)
            raise ConnectionError("no answer")

    CatalogSchema(cast(Any, Refusing()), "lake.ranking", RUNS[0], "iceberg").discard()
    assert request == ["SHOW TABLES IN lake.ranking LIKE 'staging_*'"] * 2


class Process:
    """One run of an output, from its first record to the end of its claim; ``end`` as the system ends a process."""

    def __init__(self, folder: Path, run: str) -> None:
        self.store = sk.ParquetFolder(cast(Any, None), str(folder), run)
        self.store._reach = Reach(output(folder), cast(Any, None), here=True)
        self.run = run

    def publish(self, tables: dict[str, Any], date: str = DATE) -> list[str]:
        """What ``job.run`` does with a store; returns the warnings on record."""
        record: dict[str, Any] = {"run_id": self.run, "evaluation_date": date}
        try:
            self.store.note(record | {"outcome": "running"})
            partitions = sk.Partitions(date, EXPERIMENTS)
            self.store.claim(partitions)
            staged = stage(output(Path(self.store.path)), self.run, tables).staged
            rows = SimpleNamespace(schema=SimpleNamespace(fields=[]))
            written = [sk.Written(name, cast(Any, rows), partitions, tuple(files)) for name, files in staged.items()]
            self.store.note(record | {"outcome": "publishing"})
            run_record = Record(record)
            run_record.finish(self.store, sk.publish(self.store, written, Entry(self.run, ()), partitions), None, ())
            self.store.discard()
            return list(record["warnings"])
        finally:
            if not isinstance(sys.exc_info()[1], Killed):
                self.store.release()

    def end(self) -> None:
        if self.store._claim is not None:
            self.store._claim._file.close()  # type: ignore[union-attr]


def test_threads_that_stage_at_once_have_one_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, reach, ways = threading.Barrier(2), Reach(output(tmp_path), cast(Any, None), here=True), folders.ways

    def meet(*about: Any) -> Any:
        """Claim after the other thread, where both are about to at once."""
        with suppress(threading.BrokenBarrierError):
            time.sleep(0.2 * both.wait(0.2))
        return ways(*about)

    monkeypatch.setattr(folders, "ways", meet)
    for name in ("likely_reach", "reach_of"):
        monkeypatch.setattr(f"rankmetrics_spark.sinks.files.{name}", lambda *_: reach)
    store = sk.ParquetFolder(cast(Any, MagicMock()), str(tmp_path), RUNS[0])
    rows = cast(Any, MagicMock())
    rows.write.mode().parquet.side_effect = lambda path: reach.files.write(f"{path[len(str(tmp_path)) + 1 :]}/part", "")
    with ThreadPoolExecutor() as threads:
        [*threads.map(lambda name: store.stage(rows, name), ("a", "b"))]
    assert [path.name for path in (tmp_path / "_staging").glob("*.claim")] == [f"{RUNS[0]}.claim"]
    assert {path.name for path in (tmp_path / "_staging" / RUNS[0]).iterdir()} == {"a", "b"}


def left(folder: Path) -> set[str]:
    """What a run should not leave: claims, stagings, drafts."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".gate"]
    return {path.name for path in files if path.name.startswith(".") or "_staging" in path.parts}


def outcomes(folder: Path) -> dict[str, str]:
    return {path.stem: json.loads(path.read_text())["outcome"] for path in (folder / "runs").glob("[0-9]*.json")}


def test_after_a_kill_at_any_step_the_next_run_removes_drafts_and_closes_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, drafts = set(), 0
    for after in range(100):
        folder = tmp_path / str(after)
        assert Process(folder, RUNS[0]).publish(OLD) == []
        killed = Process(folder, RUNS[1])
        with monkeypatch.context() as patched:
            count_down(patched, after)
            try:
                killed.publish(NEW)
            except Killed:
                killed.end()
            else:
                break
        drafts += any(name.startswith(".") for name in left(folder))
        published = {text for rows in seen(output(folder)).values() for _, text in rows} == {RUNS[1]}
        # A run of another date cleans up too.
        Process(folder, RUNS[2]).publish(OLD, "2026-11-21")
        assert left(folder) == set(), after
        result = outcomes(folder)
        ends.add(result.get(RUNS[1]))
        assert result.get(RUNS[1]) in (("done",) if published else ("killed", None)), after
    assert after > 15 and drafts >= 3 and ends == {"done", "killed", None}


@pytest.mark.parametrize(
    "lasting", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one error", "a disk that stays full"]
)
def test_an_error_after_the_pointer_is_a_warning_of_a_run_that_is_done(
    lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = set()
    for after in range(100):
        folder = tmp_path / str(after)
        Process(folder, RUNS[0]).publish(OLD)
        run = Process(folder, RUNS[1])
        with monkeypatch.context() as patched:
            calls = count_down(patched, after, FullDisk, lasting)
            try:
                warnings: list[str] | None = run.publish(NEW)
            except OSError:
                warnings = None
            except OutputError as error:
                assert "the disk is full" in str(error)
                warnings = None
            n = calls()
        published = {text for rows in seen(output(folder)).values() for _, text in rows} == {RUNS[1]}
        assert published == (warnings is not None), after
        kinds.add("failed" if warnings is None else " ".join(sorted(text[:22] for text in warnings)))
        Process(folder, RUNS[2]).publish({"user_metrics": ()})
        assert left(folder) == set(), after
        assert outcomes(folder).get(RUNS[1]) in (("done",) if published else ("killed", None)), after
        if n <= after:
            break
    with_record = "published, but without published; an error fo" if lasting else "published; an error fo"
    assert kinds == {"failed", "", "published, but without", with_record}


def test_the_disk_has_all_files_before_the_pointer_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, steps = output(tmp_path), list[str]()
    sync, replace = os.fsync, sk.Files.replace

    def synced(handle: int) -> None:
        steps.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), tmp_path))
        sync(handle)

    def replaced(self: sk.Files, source: str, target: str) -> None:
        replace(self, source, target)
        steps.append(f"-> {target}")

    change = stage(files, RUNS[0], NEW)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(sk.Files, "replace", replaced)
    sw.swap(files, change)
    pointer = steps.index(f"-> published/{DATE}.json")
    new = {path.relative_to(tmp_path) for path in tmp_path.glob("*/**/part-*")}
    assert len(new) == 8
    names = {str(path) for path in new} | {str(folder) for path in new for folder in path.parents}
    assert names | {f"published/.{DATE}.json.{os.getpid()}"} == {*steps[:pointer]}
    assert steps[pointer + 1 :] == ["published"]


@pytest.mark.outcome("a partition of the output that is a link to another folder", "exit 1; what is there stays")
def test_a_run_replaces_nothing_behind_a_link(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    Process(out, RUNS[0]).publish(OLD)
    for step in ("", "/evaluation_date=2026-11-20"):
        link = out / f"user_metrics/experiment_id=a{step}"
        theirs = other / str(len(step)) / ("" if step else "evaluation_date=2026-11-20")
        theirs.mkdir(parents=True)
        (theirs / "part-of-theirs.parquet").write_text("theirs")
        shutil.move(link, tmp_path / "aside")
        link.symlink_to(other / str(len(step)))
        with pytest.raises(
            OutputError, match=f"'{link.relative_to(out)}' is a link, and a run replaces no files behind"
        ):
            Process(out, RUNS[1]).publish(NEW)
        sw.recover(output(out), RUNS[1], DATE, EXPERIMENTS)
        sw.swap(output(out), sw.Swap(DATE, Entry(RUNS[2], EXPERIMENTS), {}))
        assert [path.read_text() for path in other.rglob("part-*")] == ["theirs"] * (1 + bool(step))
        link.unlink()
        shutil.move(tmp_path / "aside", link)


def test_a_table_that_is_not_there_is_not_read(tmp_path: Path) -> None:
    # Reading it, Spark logs a stack trace.
    spark: Any = SimpleNamespace(conf={"spark.sql.warehouse.dir": "file:/warehouse"})
    assert sk.reading.existing(spark, str(tmp_path / "new"), {}) is None
    with pytest.raises(AttributeError, match="read"):
        sk.reading.existing(spark, str(tmp_path), {})


def test_a_file_of_few_rows_has_no_dictionaries(tmp_path: Path) -> None:
    disk = sk.Files(fs.LocalFileSystem(), str(tmp_path))

    def encodings(n: int) -> tuple[str, ...]:
        rows = pa.table({"metric": ["ap@10"] * n})
        disk.write_table(f"{n}.parquet", rows)
        assert pq.read_table(tmp_path / f"{n}.parquet") == rows
        return tuple(pq.read_metadata(tmp_path / f"{n}.parquet").row_group(0).column(0).encodings)

    assert not any("DICTIONARY" in name for name in encodings(32))
    assert any("DICTIONARY" in name for name in encodings(33))


def test_a_run_that_publishes_while_users_are_erased_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, place = output(tmp_path), sw.place
    sw.swap(files, stage(files, RUNS[0], OLD))
    before, pointer = seen(files), sw.pointer_of(files, DATE)
    assert pointer
    (entry,), staged = pointer.entries, stage(files, RUNS[2], OLD).staged

    def with_another_run(files: sk.Files, change: sw.Swap) -> list[str]:
        """Put the files in place, and publish another experiment."""
        old = place(files, change)
        sw.write_pointer(files, pointer.with_run(Entry(RUNS[1], ("z",))))
        return old

    monkeypatch.setattr(sw, "place", with_another_run)
    assert not erasing.switch(files, pointer, [erasing.Erased(entry, entry, staged, {})], RUNS[2])
    assert seen(files) == before and not [*tmp_path.rglob(f"*{RUNS[2]}*")]
    now = sw.pointer_of(files, DATE)
    assert now and now.run_of() == dict.fromkeys(EXPERIMENTS, RUNS[0]) | {"z": RUNS[1]}


@pytest.mark.parametrize("path", ["out.v1/user_days", "main.ranking.user_days"])
def test_a_table_of_days_has_no_experiments_wherever_it_is(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    rows = SimpleNamespace(drop=lambda name: f"without {name}")
    monkeypatch.setattr("rankmetrics_spark.sinks.stores._read", lambda *_: (rows, {}))
    assert sk.read(cast(Any, None), path, "iceberg") == "without experiment_id"
