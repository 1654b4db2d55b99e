"""Compaction: many files of a partition become few, and a reader sees the same rows at every moment."""

import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from rankmetrics_spark.pointers import Compared, Entry, Pointer, newest, run_in_name

# The reason: a merge is killed and met by a run at each of its steps.
from rankmetrics_spark.sinks import DatePruned, Files, files_of, live_files, prune, pruning, swapping
from rankmetrics_spark.sinks.claims import Claim
from rankmetrics_spark.sinks.swapping import pointer_of
from tests.helpers.kills import Killed, count_down
from tests.unit.test_pruning import call

DATE = "2026-11-20"
RUN, OTHER = "20261120T010000-0a1b2c3d", "20261120T020000-0a1b2c3d"
TABLES = ("user_metrics", "experiment_metrics")
NAMES = ("a/b", None)
FOLDERS = {"a/b": "a%2Fb", None: "__HIVE_DEFAULT_PARTITION__", "z": "z"}
# A NaN with a payload, the negative zero, and a number without a short form.
VALUES = [struct.unpack("<d", struct.pack("<Q", 0x7FF800000000BEEF))[0], -0.0, 0.1 + 0.2, None]


def put(root: Path, table: str, name: str | None, file: str, rows: int = 4, date: str = DATE) -> str:
    """A file of a partition; its users tell it from all others."""
    of = "" if table == "user_days" else f"experiment_id={FOLDERS[name]}/"
    path = f"{table}/{of}evaluation_date={date}/{file}.parquet"
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    users = [f"{table} {name} {file} {n}" for n in range(rows)]
    pq.write_table(pa.table({"user_id": users, "ap": pa.array((VALUES * rows)[:rows], pa.float64())}), root / path)
    return path


def publish(root: Path, *entries: Entry, date: str = DATE) -> None:
    (root / "published").mkdir(exist_ok=True)
    (root / "published" / f"{date}.json").write_text(Pointer(date, entries, 3).as_json())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An output whose users are in three files each, and whose means are in one."""
    for name in NAMES:
        for n in range(3):
            put(tmp_path, TABLES[0], name, f"part-{RUN}-{n}")
        put(tmp_path, TABLES[1], name, f"part-{RUN}-0", 1)
    facts = {"user_metrics": {"rows": 24, "files": 6}, "experiment_metrics": {"rows": 2, "files": 2}}
    compared = Compared(NAMES, runs={"2026-11-19": (OTHER,)})
    publish(tmp_path, Entry(RUN, NAMES, facts, {"name": "standard", "hash": "x"}, compared=compared))
    return tmp_path


def seen(root: Path) -> dict[str, list[tuple[str, str, bytes]]]:
    """Table -> (partition, user, bits of the value) of every row that the pointers name."""
    pointers = newest(path.read_text() for path in (root / "published").glob("*.json"))
    result: dict[str, list[tuple[str, str, bytes]]] = {}
    for table in (*TABLES, "user_days"):
        for path in live_files(files_of(f"{root}/{table}"), pointers):
            rows = pq.ParquetFile(root / table / path).read()
            assert rows.column_names == ["user_id", "ap"]
            bits = [b"" if value is None else struct.pack("<d", value) for value in rows["ap"].to_pylist()]
            result.setdefault(table, []).extend(
                (path.rpartition("/")[0], user, value)
                for user, value in zip(rows["user_id"].to_pylist(), bits, strict=True)
            )
    return {table: sorted(rows) for table, rows in result.items()}


def files_in(root: Path, table: str = TABLES[0]) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / table).rglob("*.parquet"))


def compacted(root: Path, **options: Any) -> list[DatePruned]:
    return prune(files_of(str(root)), str(root), None, compact=True, **options)


def pointer(root: Path) -> Pointer:
    result = pointer_of(files_of(str(root)), DATE)
    assert result
    return result


def merged_row(files: int, into: int) -> DatePruned:
    return DatePruned(DATE, "merged", "small files", merged=files, into=into)


def test_the_files_of_a_partition_become_one_with_the_same_rows_and_the_same_run(root: Path) -> None:
    before, stored = seen(root), pointer(root)
    assert compacted(root) == [merged_row(6, 2)]
    assert seen(root) == before
    assert [len(before[table]) for table in TABLES] == [24, 2]
    assert (len(files_in(root)), len(files_in(root, TABLES[1]))) == (2, 2)
    now = pointer(root)
    (entry,), (was,) = now.entries, stored.entries
    assert (now.sequence, entry.run_id, entry.compared, entry.convention) == (4, RUN, was.compared, was.convention)
    assert {run_in_name(path) for table in TABLES for path in files_in(root, table)} == {entry.merged} != {RUN}
    assert entry.tables == {"user_metrics": {"rows": 24, "files": 2}, "experiment_metrics": {"rows": 2, "files": 2}}
    # Nothing is left to do, and nothing is left lying about.
    assert compacted(root) == []
    assert pointer(root) == now and not (root / "_staging").exists()


def test_a_trial_says_the_same_and_changes_nothing(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    trial = compacted(root, dry=True)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".gate"} == before
    assert trial == compacted(root)


@pytest.mark.parametrize(("sizes", "most", "rows"), [((9, 4, 4, 2), 10, [9, 10]), ((12, 3, 6), 10, [12, 9]),
                                                     ((6, 6), 10, [6, 6])])  # fmt: skip
def test_files_are_filled_up_to_what_a_run_writes_into_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int], most: int, rows: list[int]
) -> None:
    monkeypatch.setattr(swapping, "ROWS_PER_FILE", most)
    for n, size in enumerate(sizes):
        put(tmp_path, TABLES[0], "z", f"part-{RUN}-{n}", size)
    publish(tmp_path, Entry(RUN, ("z",)))
    before = seen(tmp_path)
    compacted(tmp_path)
    assert sorted(pq.read_metadata(tmp_path / path).num_rows for path in files_in(tmp_path)) == sorted(rows)
    assert seen(tmp_path) == before
    assert compacted(tmp_path) == []


def test_only_the_runs_that_have_small_files_change(root: Path) -> None:
    put(root, TABLES[0], "z", f"part-{OTHER}-0")
    publish(root, Entry(OTHER, ("z",)), *pointer(root).entries)
    put(root, TABLES[0], "z", f"part-{OTHER}-0", date="2026-11-21")
    publish(root, Entry(OTHER, ("z",)), date="2026-11-21")
    kept = {path: (root / path).stat().st_mtime_ns for path in files_in(root) if "=z/" in path}
    before = seen(root)
    assert compacted(root) == [merged_row(6, 2)]
    assert seen(root) == before
    assert kept == {path: (root / path).stat().st_mtime_ns for path in files_in(root) if "=z/" in path}
    assert pointer(root).entries[0] == Entry(OTHER, ("z",))


def test_every_kill_leaves_the_old_or_the_new_files_and_the_next_prune_tidies_up(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2):
        put(root, "user_days", None, f"part-{RUN}-{n}")
    before, which, after, ended = seen(root), set[bool](), 0, False
    assert len(before["user_days"]) == 8
    while not ended:
        place = tmp_path_factory.mktemp("killed") / "out"
        shutil.copytree(root, place)
        with monkeypatch.context() as patched:
            count_down(patched, after)
            # As the system does when a process ends: the lock goes, the file stays.
            patched.setattr(Claim, "release", lambda claim: claim._file.close())
            patched.setattr(pruning.swapping, "discard", lambda files, run: None)
            try:
                compacted(place)
                ended = True
            except Killed:
                pass
        assert seen(place) == before, after
        which.add(bool(pointer(place).entries[0].merged))
        prune(files_of(str(place)), str(place), 90, compact=True)
        assert seen(place) == before, after
        (current,) = {*pointer(place).file_run_of().values()}
        paths = [path for table in (*TABLES, "user_days") for path in files_in(place, table)]
        assert {*map(run_in_name, paths)} == {current} != {RUN}
        assert (len(files_in(place)), len(files_in(place, "user_days"))) == (2, 1)
        # The next writer of the output removes the rest.
        with pruning._claimed(pruning.Output(files_of(str(place)), "out"), DATE):
            pass
        assert seen(place) == before and not (place / "_staging").exists()
        after += 1
    assert after > 15 and which == {True, False}


def test_an_error_of_the_disk_leaves_the_old_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, stored = seen(root), pointer(root)
    with monkeypatch.context() as patched:
        count_down(patched, 3, OSError(28, "No space left on device"), lasting=False)
        code, _, err = call("--output", root, "--compact")
    assert (code, err.startswith(f"rankmetrics: cannot write to '{root}': the disk is full")) == (1, True), err
    assert (seen(root), pointer(root)) == (before, stored)
    assert len(files_in(root)) == 6 and not (root / "_staging").exists()


def test_a_run_that_publishes_meanwhile_wins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = swapping.place

    def with_another_run(files: Files, change: Any) -> list[str]:
        """Put the files in place, and publish another experiment."""
        old = function(files, change)
        put(root, TABLES[0], "z", f"part-{OTHER}-0")
        text = pointer(root).with_run(Entry(OTHER, ("z",))).as_json()
        (root / "published" / f"{DATE}.json").write_text(text)
        return old

    monkeypatch.setattr(swapping, "place", with_another_run)
    assert compacted(root) == [DatePruned(DATE, "kept", "a run has published it meanwhile")]
    assert {entry.run_id: entry.merged for entry in pointer(root).entries} == {OTHER: "", RUN: ""}
    assert len(seen(root)[TABLES[0]]) == 28 and len(files_in(root)) == 7


def test_a_later_run_replaces_merged_files_of_its_experiments_only(root: Path) -> None:
    compacted(root)
    merged = pointer(root).entries[0].merged
    later = pointer(root).with_run(Entry(OTHER, (None,)))
    assert later.file_run_of() == {None: OTHER, "a/b": merged}
    assert later.run_of() == {None: OTHER, "a/b": RUN}


def test_files_of_sparks_own_writer_get_an_id(tmp_path: Path) -> None:
    for n in range(3):
        put(tmp_path, TABLES[0], "z", f"part-0000{n}-6f1c.c000.snappy")
    publish(tmp_path, Entry(RUN, ("z",), named=False))
    before = seen(tmp_path)
    assert compacted(tmp_path) == [merged_row(3, 1)]
    assert seen(tmp_path) == before
    assert len(files_in(tmp_path)) == 1


def test_files_behind_a_link_stay(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "of_somebody"
    partition = root / TABLES[0] / "experiment_id=a%2Fb" / f"evaluation_date={DATE}"
    os.rename(partition, other)
    partition.symlink_to(other)
    assert compacted(root) == []
    assert len([*other.iterdir()]) == 3


def test_an_object_store_is_compacted_with_claims_that_expire(root: Path) -> None:
    (root / "_staging").mkdir()
    files = Files(fs.SubTreeFileSystem(str(root.parent), fs.LocalFileSystem()), root.name)
    assert not files.local
    for folder in ("user_metrics", "experiment_metrics"):
        (root / "_staging" / folder).mkdir()
    before = seen(root)
    # A store has no folders that have to be made.
    make, Files.make_folder = Files.make_folder, lambda files, folder: files.system.create_dir(files.at(folder))  # type: ignore[method-assign,assignment]
    try:
        assert prune(files, "s3a://bucket/out", None, compact=True) == [merged_row(6, 2)]
    finally:
        Files.make_folder = make  # type: ignore[method-assign]
    assert seen(root) == before and len(files_in(root)) == 2


def test_the_command_says_what_it_merged(root: Path) -> None:
    assert call("--output", root, "--compact", "--dry-run", "--format", "csv")[2] == "would merge 6 files into 2\n"
    code, out, err = call("--output", root, "--keep", "90d", "--compact", "--format", "json")
    assert (code, '"merged": 6' in out, err) == (0, True, "merged 6 files into 2\n")
    assert call("--output", root, "--compact") == (0, "", "nothing to remove\n")
