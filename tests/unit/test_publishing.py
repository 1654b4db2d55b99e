"""Publishing files, without Spark: killed at any step, the pointer names the old files or the new ones."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyarrow import fs

from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.pointers import Entry, Pointer, newest, parse
from rankmetrics_spark.sinks import leases
from rankmetrics_spark.sinks.books import compare_books
from rankmetrics_spark.sinks.files import Files
from rankmetrics_spark.sinks.lakehouse import CatalogSchema, DeltaFolder
from rankmetrics_spark.sinks.leases import Lease
from rankmetrics_spark.sinks.locks import Claim, Held
from rankmetrics_spark.sinks.parquet import ParquetFolder
from rankmetrics_spark.sinks.partitions import Partitions, Written
from rankmetrics_spark.sinks.reaching import Reach
from rankmetrics_spark.sinks.reading import live_files, pointers_of
from rankmetrics_spark.sinks.records import previous_quality
from rankmetrics_spark.sinks.splitting import Staged
from rankmetrics_spark.sinks.swapping import Swap, discard, folder_of, pointer_of, recover, swap

DATE = "2026-11-20"
RUNS = [f"20261120T00000{i}-0000000{i}" for i in range(4)]
EXPERIMENTS = ("a", "b/c", None)
OLD = {"user_metrics": EXPERIMENTS, "quarantine": ("a", None)}
NEW = {"user_metrics": EXPERIMENTS, "experiment_metrics": EXPERIMENTS}


class Killed(BaseException):
    """Not an exception that code may catch by accident."""


def output(folder: Path) -> Files:
    folder.mkdir(parents=True, exist_ok=True)
    return Files(fs.LocalFileSystem(), str(folder))


def stage(files: Files, run: str, tables: dict[str, Any]) -> Swap:
    staged: dict[str, list[Staged]] = {}
    for table, names in tables.items():
        for number, name in enumerate(names):
            one = Staged(name, f"part-{run}-{number}.parquet", 1)
            files.write(f"_staging/{run}/{table}/{one.name}", run)
            staged.setdefault(table, []).append(one)
    return Swap(DATE, Entry(run, EXPERIMENTS), staged)


def seen(files: Files) -> dict[str, list[tuple[str, str | None]]]:
    """Table -> (partition, text) of every file that the pointer names."""
    pointer = pointer_of(files, DATE)
    known = {DATE: pointer} if pointer else {}
    found = {}
    for table in ("user_metrics", "experiment_metrics", "quarantine"):
        below = Files(files.system, files.at(table))
        found[table] = sorted((path.rpartition("/")[0], below.read(path)) for path in live_files(below, known))
    return found


def count_down(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], int]:
    """Kill the process, as far as the code can tell, after so many calls that change the output."""
    calls = [0]
    for name in ("put", "replace", "remove", "_filled", "remove_tree"):
        function = getattr(Files, name)

        def inner(*arguments: Any, function: Any = function) -> Any:
            calls[0] += 1
            if calls[0] > after:
                raise Killed
            return function(*arguments)

        monkeypatch.setattr(Files, name, inner)
    return lambda: calls[0]


def test_every_kill_leaves_the_old_or_the_new_files_and_needs_no_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = set()
    for after in range(100):
        files = output(tmp_path / str(after))
        swap(files, stage(files, RUNS[0], OLD))
        discard(files, RUNS[0])
        old = seen(files)
        assert {text for rows in old.values() for _, text in rows} == {RUNS[0]}
        change = stage(files, RUNS[1], NEW)
        with monkeypatch.context() as patched:
            count_down(patched, after)
            try:
                swap(files, change)
                ended = True
            except Killed:
                ended = False
        now = seen(files)
        new = {table: [(folder, RUNS[1]) for folder, _ in rows] for table, rows in now.items()}
        assert now == old or (now == new and len(now["user_metrics"]) == len(now["experiment_metrics"]) == 3), after
        which.add(now == old)
        # No partition is missing for a reader who only lists files.
        folders = [folder_of("user_metrics", name, DATE) for name in EXPERIMENTS]
        assert all(files.files(folder) for folder in folders)
        recover(files, RUNS[1], DATE, EXPERIMENTS)
        assert seen(files) == now
        runs = {path.name[5:29] for path in Path(files.root).rglob("part-*")}
        assert runs == {RUNS[0] if now == old else RUNS[1]}
        assert set(files.names("_staging")) <= {".gate"}
        if ended:
            break
    assert ended and after > 10 and which == {True, False}


def test_files_of_earlier_versions_of_the_package_count_until_they_are_replaced(tmp_path: Path) -> None:
    files = output(tmp_path)
    for name in ("a", "other"):
        files.write(f"{folder_of('user_metrics', name, DATE)}/part-00000-6f1c.c000.snappy.parquet", "early")
    assert [text for _, text in seen(files)["user_metrics"]] == ["early", "early"]
    swap(files, stage(files, RUNS[0], {"user_metrics": EXPERIMENTS}))
    assert sorted(str(text) for _, text in seen(files)["user_metrics"]) == [*[RUNS[0]] * 3, "early"]
    # What a run has put in place and not published does not count, even where there was nothing before.
    files.write(f"{folder_of('user_metrics', 'fresh', DATE)}/part-{RUNS[3]}-0.parquet", "killed")
    assert len(seen(files)["user_metrics"]) == 4


def test_a_pointer_knows_which_run_an_experiment_belongs_to() -> None:
    first = Pointer(DATE).with_run(Entry("r1", ("a", "b", None), convention={"name": "standard", "hash": "x"}))
    second = first.with_run(Entry("r2", ("b",)))
    assert second.run_of() == {"b": "r2", "a": "r1", None: "r1"}
    assert (first.sequence, second.sequence) == (1, 2)
    assert parse(second.as_json()) == second
    assert newest([second.as_json(), first.as_json(), None, "of yesterday", '{"run_id": "r0"}']) == {DATE: second}
    assert second.with_run(Entry("r3", ("a", "b", None))).run_of() == dict.fromkeys(("a", "b", None), "r3")


def test_a_run_cleans_up_after_killed_ones_and_leaves_living_ones_alone(tmp_path: Path) -> None:
    dead: list[Held] = []
    living, killed, mine = Claim("living"), Claim("killed"), Claim("mine", dead.append)
    living.take(tmp_path, Partitions(DATE, ["a"]), "out")
    killed.take(tmp_path, Partitions(DATE, ["b", "c"]), "out")
    # As the system does when a process ends: the lock goes, the file stays.
    killed._file.close()  # type: ignore[union-attr]
    mine.open(tmp_path)
    assert dead == [Held("killed", DATE, ("b", "c"))]
    assert sorted(path.name for path in tmp_path.glob("*.claim")) == ["living.claim", "mine.claim"]
    with pytest.raises(OutputError, match="another run is writing experiment 'a'"):
        mine.take(tmp_path, Partitions(DATE, ["a", "b"]), "out")
    mine.take(tmp_path, Partitions("2026-11-19", ["a"]), "out")


def test_where_there_are_no_locks_a_date_has_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, dead = output(tmp_path), list[Held]()

    def lease(run: str) -> Lease:
        made = Lease(lambda function, *rest: function(files, *rest), run, dead.append)
        made.open()
        return made

    first, second = lease("r1"), lease("r2")
    first.take(Partitions(DATE, ["a"]), "out")
    with pytest.raises(OutputError, match=f"^another run is writing {DATE} in out; run this again when it has ended$"):
        second.take(Partitions(DATE, ["b"]), "out")
    second.take(Partitions("2026-11-19", ["a"]), "out")
    assert dead == []
    # The process of the first run is gone: its number is free, or another process has it.
    monkeypatch.setattr("rankmetrics_spark.sinks.leases._start_of", lambda pid: "0")
    lease("r3").take(Partitions(DATE, ["a"]), "out")
    assert Held("r1", DATE, ("a",)) in dead
    # A run on another machine lives as long as it says so.
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    with pytest.raises(OutputError, match="another run is writing"):
        lease("r4").take(Partitions(DATE, ["a"]), "out")
    later = time.time() + leases.LEASE
    monkeypatch.setattr("time.time", lambda: later)
    lease("r5").take(Partitions(DATE, ["a"]), "out")


def test_books_that_do_not_add_up_are_one_sentence() -> None:
    partitions = Partitions(DATE, ["a"])

    def of(table: str, rows: int, total: int = 0) -> Written:
        return Written(table, None, partitions, (), {"a": rows}, {"a": total})  # type: ignore[arg-type]

    counts = {"a": {"lists": 5, "quarantined": 2}}
    good = (of("user_metrics", 3, 5), of("experiment_metrics", 2), of("quarantine", 2))
    compare_books(*good, counts, "lists")
    for place, wrong, said in (
        (0, of("user_metrics", 3, 4), "5 lists in the input and 4 in the tables"),
        (1, of("experiment_metrics", 0), "3 users with averages in the input and 0 in the tables"),
        (2, of("quarantine", 3), "2 rows left out in the input and 3 in the tables"),
    ):
        tables = [wrong if i == place else table for i, table in enumerate(good)]
        with pytest.raises(OutputError, match=f"experiment 'a' has {said}; nothing was published"):
            compare_books(*tables, counts, "lists")  # type: ignore[arg-type]


def test_a_killed_run_is_entered_in_its_record(tmp_path: Path) -> None:
    files = output(tmp_path)
    for run, outcome in ((RUNS[0], "publishing"), (RUNS[1], "running"), (RUNS[2], "failed")):
        files.write(f"runs/{run}.json", json.dumps({"outcome": outcome, "evaluation_date": DATE}))
    swap(files, stage(files, RUNS[0], OLD))
    for run in RUNS:
        recover(files, run, None, ())
    outcomes = [json.loads(str(files.read(f"runs/{run}.json")))["outcome"] for run in RUNS[:3]]
    assert outcomes == ["done", "killed", "failed"]


def test_cleaning_up_after_a_killed_run_leaves_the_files_of_delta_tables_alone(tmp_path: Path) -> None:
    files = output(tmp_path)
    path = f"{folder_of('user_metrics', 'a', DATE)}/part-00000-6f1c.c000.snappy.parquet"
    files.write(path, "of a version that a reader may ask for")
    files.write(f"published/{DATE}.json", Pointer(DATE).with_run(Entry(RUNS[0], ("a",))).as_json())
    for kind, left in ((DeltaFolder, True), (ParquetFolder, False)):
        store = kind(None, str(tmp_path), RUNS[1])  # type: ignore[arg-type]
        store._reach = Reach(files, None, here=True)  # type: ignore[arg-type]
        store._recovered(Held(RUNS[0], DATE, ("a",)))
        assert (files.read(path) is not None) == left


def test_a_pointer_that_a_killed_run_has_written_twice_is_read_and_tidied_up(tmp_path: Path) -> None:
    files = output(tmp_path)
    swap(files, stage(files, RUNS[0], OLD))
    path = f"published/{DATE}.json"
    text = files.read(path)
    # Spark writes a text as a folder. A run is killed when it has removed that folder, and its text is there already.
    files.remove(path)
    files.write(f"published/{DATE}.next.json", text or "")
    assert pointers_of(cast(Any, None), files.root, DATE)[DATE] == pointer_of(files, DATE) == parse(text)
    swap(files, stage(files, RUNS[1], NEW))
    assert files.names("published") == [f"{DATE}.json"]
    found = pointer_of(files, DATE)
    assert found is not None and found.entries[0].run_id == RUNS[1]


def test_only_records_are_read_as_records(tmp_path: Path) -> None:
    files = output(tmp_path)
    for run, outcome in zip(RUNS, ("done", "done", "failed"), strict=False):
        record = {"run_id": run, "outcome": outcome, "quality": {"rate": run}}
        files.write(f"runs/{run}.json", json.dumps(record))
    (tmp_path / "runs" / "z.parquet").write_bytes(b"\xff\xfe")
    store = ParquetFolder(cast(Any, None), str(tmp_path), "")
    assert previous_quality(store, needed=False) == {"rate": RUNS[1], "run_id": RUNS[1]}


def test_an_experiment_may_be_called_like_a_run(tmp_path: Path) -> None:
    files = output(tmp_path)
    run, name = "20261122T010203-0a1b2c3d", "model-20261121T120000-deadbeef"
    staged = {"user_metrics": [Staged(name, f"part-{run}-1.parquet", 1)]}
    files.write(f"_staging/{run}/user_metrics/part-{run}-1.parquet", "rows")
    swap(files, Swap("2026-11-22", Entry(run, (name,)), staged))
    recover(files, run, "2026-11-22", [name])
    (path,) = files.files(folder_of("user_metrics", name, "2026-11-22"))
    assert files.read(path) == "rows"


def test_containers_with_one_host_name_tell_their_runs_apart_by_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = leases.who() | {"beat": time.time()}
    assert leases.lives(claim, lease=0)
    assert not leases.lives(claim | {"start": "0"})
    own = os.readlink
    monkeypatch.setattr("os.readlink", lambda path: "pid:[1]" if path == "/proc/self/ns/pid" else own(path))
    # This process cannot look up the other container's, whatever their numbers are.
    assert leases.lives(claim | {"start": "0"})
    assert not leases.lives(claim, lease=0)


def test_a_catalog_that_keeps_staging_tables_does_not_fail_a_run_that_was_published() -> None:
    asked = []

    class Refusing:
        def sql(self, text: str) -> None:
            asked.append(text)
            raise ConnectionError("no answer")

    CatalogSchema(cast(Any, Refusing()), "lake.ranking", RUNS[0], "iceberg").discard()
    assert asked == ["SHOW TABLES IN lake.ranking LIKE 'staging_*'"] * 2


def test_a_sign_of_life_does_not_bring_back_a_claim_that_was_given_up(tmp_path: Path) -> None:
    files = output(tmp_path)

    def slowly(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is leases.write_claim:
            time.sleep(0.01)
        return function(files, *arguments)

    for number in range(20):
        lease = leases.Lease(slowly, f"run-{number}", lambda dead: None, lease=0.015)
        lease.open()
        time.sleep(0.005)
        lease.release()
    time.sleep(0.1)
    assert leases.claims(files) == []
