"""Retention: old dates go as a whole, and what a pointer names stays, whatever happens meanwhile."""

import inspect
import json
import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import fs

from rankmetrics_spark.cli import main
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.pointers import Compared, Entry, Pointer, newest
from rankmetrics_spark.sinks import DatePruned, Files, Partitions, files_of, live_files, prune, pruning

# The reason: a prune and a run exclude each other by the claims of runs.
from rankmetrics_spark.sinks.claims import ways
from tests.helpers import kills, messages

TABLES = ("user_metrics", "experiment_metrics")
DAYS = ("2026-08-01", "2026-08-02", "2026-11-01", "2026-11-02")
OLD = DAYS[:2]


def run_of(date: str) -> str:
    return f"{date.replace('-', '')}T010000-0a1b2c3d"


def put(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": [1]}), root / path)


def publish(root: Path, date: str, compared: Iterable[str] = (), **entry: Any) -> None:
    """What a run leaves on a date: a file in each partition, its pointer and its record."""
    run = run_of(date)
    for table in TABLES:
        for name in ("a%2Fb", "__HIVE_DEFAULT_PARTITION__"):
            put(root, f"{table}/experiment_id={name}/evaluation_date={date}/part-{run}-0.parquet")
    for table in ("user_days", "lists"):
        put(root, f"{table}/evaluation_date={date}/part-{run}-0.parquet")
    runs = Compared((), False, {day: (run_of(day),) for day in compared})
    pointer = Pointer(date, (Entry(run, ("a/b", None), compared=runs, **entry),))
    (root / "published").mkdir(exist_ok=True)
    (root / "published" / f"{date}.json").write_text(pointer.as_json())
    record(root, run, date)


def record(root: Path, run: str, date: str, **more: str) -> None:
    (root / "runs").mkdir(exist_ok=True)
    (root / "runs" / f"{run}.json").write_text(
        json.dumps({"run_id": run, "evaluation_date": date, "outcome": "done"} | more)
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An output of two old dates and two new ones."""
    for date in DAYS:
        publish(tmp_path, date)
    return tmp_path


def tree(root: Path) -> set[str]:
    """The files of a folder, apart from the gate of the claims."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".gate"}


def of_dates(paths: Iterable[str], *dates: str) -> set[str]:
    return {path for path in paths if any(date in path or run_of(date) in path for date in dates)}


def actions(rows: Iterable[DatePruned]) -> dict[str, str]:
    return {row.date: row.action for row in rows}


def pruned(root: Path, keep: int = 90, **options: Any) -> list[DatePruned]:
    return prune(files_of(str(root)), str(root), keep, **options)


def test_old_dates_go_with_their_pointers_and_records_and_nothing_else_changes(root: Path) -> None:
    before = tree(root)
    size = sum((root / path).stat().st_size for path in of_dates(before, OLD[0]) if path.endswith(".parquet"))
    rows = pruned(root)
    assert rows == [DatePruned(date, "removed", "older than what is kept", 6, size, 1) for date in OLD]
    assert tree(root) == before - of_dates(before, *OLD)
    # Folders of dates that are gone would still be listed by those who look for partitions.
    assert not [path for path in root.rglob("evaluation_date=2026-08*")]
    assert pruned(root) == []


@pytest.mark.parametrize(("keep", "gone"), [(1, DAYS[:3]), (2, OLD), (92, OLD), (93, DAYS[:1]), (94, ()), (9999, ())])
def test_days_count_back_from_the_newest_date_which_stays(root: Path, keep: int, gone: tuple[str, ...]) -> None:
    # From 2 August to 2 November are 30 + 30 + 31 + 2 = 93 days, both included.
    assert actions(pruned(root, keep)) == dict.fromkeys(gone, "removed")


def test_a_trial_says_the_same_and_removes_nothing(root: Path) -> None:
    before = tree(root)
    trial = pruned(root, dry=True)
    assert tree(root) == before
    assert trial == pruned(root)


def test_dates_that_a_kept_comparison_names_stay(root: Path) -> None:
    publish(root, "2026-11-02", compared=[OLD[1]])
    # Of what the old date itself was compared with, only the record of the run does.
    publish(root, OLD[1], compared=[OLD[0]])
    before = tree(root)
    rows = pruned(root)
    assert rows[1] == DatePruned(OLD[1], "kept", "the comparison of 2026-11-02 names its runs")
    assert tree(root) == before - of_dates(before, OLD[0]) | {f"runs/{run_of(OLD[0])}.json"}


def test_files_that_no_pointer_names_go_on_every_date(root: Path) -> None:
    killed, folder = "20261101T020000-00000000", "user_metrics/experiment_id=c/evaluation_date"
    for path in (f"{folder}={DAYS[2]}/part-{killed}-0.parquet", f"{folder}=2026-10-01/part-{killed}-1.parquet"):
        put(root, path)
    # Written by Spark itself: on a date that is published it does not count, on another one it does.
    put(root, f"{folder}={DAYS[3]}/part-0.parquet")
    put(root, f"{folder}=2026-10-02/part-0.parquet")
    put(root, f"{folder}={OLD[0]}/part-0.parquet")
    rows = pruned(root)
    tidied = [row for row in rows if row.action == "tidied"]
    assert [(row.date, row.files, row.why) for row in tidied] == [
        (date, 1, "files that its pointer does not name") for date in ("2026-10-01", *DAYS[2:])
    ]
    assert {path for path in tree(root) if "=c/" in path} == {f"{folder}=2026-10-02/part-0.parquet"}


def test_records_of_old_runs_go_unless_they_go_on_or_a_pointer_names_them(root: Path) -> None:
    # A run of an old date that failed, one of a date that has no pointer, one that goes on, and one of a kept date.
    names = {
        "20260801T020000-00000001": {"date": OLD[0], "outcome": "failed"},
        "20260715T020000-00000002": {"date": "2026-07-15", "outcome": "killed"},
        "20260801T030000-00000003": {"date": OLD[0], "outcome": "running"},
        "20261101T020000-00000004": {"date": DAYS[2], "outcome": "failed"},
    }
    for run, more in names.items():
        record(root, run, more.pop("date"), **more)
    (root / "runs" / "20260801T020000-00000001.html").write_text("page")
    checks = [f"refused_checks/run={run}/part-{run}.parquet" for run in (*names, "none")]
    for path in checks:
        put(root, path)
    rows = {row.date: row for row in pruned(root)}
    assert (rows[OLD[0]].runs, rows[OLD[1]].runs, rows["2026-07-15"].runs) == (2, 1, 1)
    assert rows["2026-07-15"].why == "runs that published nothing"
    assert {path.removeprefix("runs/") for path in tree(root) if path.startswith("runs")} == {
        f"{run}.json" for run in (*map(run_of, DAYS[2:]), *list(names)[2:])
    }
    assert {path for path in tree(root) if path.startswith("refused_checks/")} == {*checks[2:]}


def readable(root: Path) -> None:
    """Check that each date is there as a whole, or not at all."""
    texts = [path.read_text() for path in (root / "published").glob("*.json")]
    pointers = newest(texts)
    for table in TABLES:
        result = live_files(files_of(f"{root}/{table}"), pointers)
        assert sorted(result) == sorted(
            f"experiment_id={name}/evaluation_date={date}/part-{run_of(date)}-0.parquet"
            for date in pointers
            for name in ("a%2Fb", "__HIVE_DEFAULT_PARTITION__")
        )


@pytest.mark.parametrize("moment", range(40))
def test_prunes_killed_at_any_time_leave_whole_dates(root: Path, moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, f"user_metrics/experiment_id=a%2Fb/evaluation_date={OLD[0]}/part-0.parquet")
    # A run that was killed has left its earlier pointer beside the one that counts.
    earlier = Pointer(OLD[0], (Entry("20260731T010000-0a1b2c3d", ("a/b",)),), sequence=-1)
    (root / "published" / f"{OLD[0]}.next.json").write_text(earlier.as_json())
    left, remove = [moment], Files.remove

    def remove_or_die(files: Files, path: str) -> None:
        """Remove a file, until the process is killed."""
        if not left[0]:
            raise kills.Killed
        left[0] -= 1
        remove(files, path)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "remove", remove_or_die)
        try:
            pruned(root)
        except kills.Killed:
            readable(root)
        else:
            # Files, pointers with their copies, and records: fewer calls than moments.
            assert moment > 12
    pruned(root)
    readable(root)
    assert of_dates(tree(root), *OLD) == set()
    assert not (root / "_staging").exists()


def exit_before(call: str, moment: int) -> None:
    """End this process for good before the next call of a method of files."""
    function, left = getattr(Files, call), [moment]

    def or_die(*arguments: Any) -> Any:
        left[0] -= 1
        return function(*arguments) if left[0] >= 0 else os._exit(9)

    setattr(Files, call, or_die)


@pytest.mark.parametrize("call", ["remove", "remove_if_empty", "remove_tree"])
def test_the_next_prune_finishes_what_a_killed_one_began(root: Path, call: str) -> None:
    """The process is killed for good, before each step in turn: no clean-up of its own runs, its claim stays."""
    untouched = tree(root) - of_dates(tree(root), *OLD)
    for moment in range(100):
        for date in OLD:
            publish(root, date)
        if child := os.fork():
            ended = os.waitpid(child, 0)[1]
        else:
            exit_before(call, moment)
            pruned(root)
            os._exit(0)
        pruned(root)
        assert tree(root) == untouched and not (root / "_staging").exists()
        assert not [*root.rglob("evaluation_date=2026-08*")]
        if not ended:
            break
    assert moment > 1


def store_of(root: Path) -> Files:
    """The output as on a store without locks and renames; a store has no folders that have to be made."""
    (root / "_staging").mkdir()
    files = Files(fs.SubTreeFileSystem(str(root.parent), fs.LocalFileSystem()), root.name)
    assert not files.local and not files.renames
    return files


def test_an_object_store_is_pruned_with_claims_that_expire(root: Path) -> None:
    before = tree(root)
    assert actions(prune(store_of(root), "s3a://bucket/out", 90)) == dict.fromkeys(OLD, "removed")
    assert tree(root) == before - of_dates(before, *OLD)


@pytest.mark.parametrize("locks", [True, False])
def test_what_a_run_is_writing_stays(root: Path, locks: bool) -> None:
    before = tree(root)
    # A backfill of another experiment of the first date, and one of the same experiment of the second date.
    files = files_of(str(root)) if locks else store_of(root)
    run, do = "20261103T010000-00000001", lambda do, *values: do(files, *values)
    claim = next(ways(run, lambda dead: None, root / "_staging" if locks else None, do))
    claim.open()
    claim.take(Partitions(OLD[1], ["a/b" if locks else "z"]), "out")
    try:
        rows = prune(files, "out", 90)
    finally:
        claim.release()
    assert actions(rows) == {OLD[0]: "removed", OLD[1]: "kept"}
    assert rows[1].why.startswith("another run is writing ") and OLD[1] in rows[1].why
    assert tree(root) == before - of_dates(before, OLD[0])


@pytest.mark.parametrize("date", [OLD[0], DAYS[2]])
def test_a_date_that_is_published_meanwhile_stays(root: Path, date: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries, run = Files.entries, "20261103T010000-00000002"
    # Its file is there before its pointer, which is read first.
    put(root, f"user_metrics/experiment_id=z/evaluation_date={date}/part-{run}-0.parquet")

    def with_another_run(files: Files, folder: str, recursive: bool = False) -> list[fs.FileInfo]:
        """The files, after another run has published on the old date."""
        path = root / "published" / f"{date}.json"
        if recursive and '"sequence": 0' in path.read_text():
            path.write_text(newest([path.read_text()])[date].with_run(Entry(run, ("z",))).as_json())
        return entries(files, folder, recursive)

    before = tree(root)
    monkeypatch.setattr(Files, "entries", with_another_run)
    rows = {row.date: row for row in pruned(root)}
    assert rows[date] == DatePruned(date, "kept", "a run has published it meanwhile")
    assert tree(root) == before - of_dates(before, *(old for old in OLD if old != date))


def test_a_file_of_all_experiments_that_a_run_will_publish_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    date, run = DAYS[2], "20261103T010000-00000002"
    path, pointer = f"checks/evaluation_date={date}/part-{run}-0.parquet", root / "published" / f"{date}.json"
    put(root, path)

    def behind_the_other_run(files: Files) -> Any:
        """The gate, once the run that has placed the file has written its pointer."""
        known = newest([pointer.read_text()])[date].with_run(Entry(run, ("z",)))
        pointer.write_text(replace(known, by_date=run).as_json())
        return nullcontext()

    monkeypatch.setattr(pruning.swapping, "pointer_gate", behind_the_other_run)
    rows = {row.date: row for row in pruned(root)}
    assert (rows[date].why, (root / path).exists()) == ("a run has published it meanwhile", True)


def test_files_behind_a_link_and_files_without_the_id_of_a_run_stay(root: Path, tmp_path_factory: Any) -> None:
    publish(root, OLD[1], named=False)
    other = tmp_path_factory.mktemp("other")
    partition = root / "user_metrics" / "experiment_id=a%2Fb" / f"evaluation_date={OLD[0]}"
    os.rename(partition, other / "of_somebody")
    partition.symlink_to(other / "of_somebody")
    rows = pruned(root)
    assert rows[0].files == 5 and len(list((other / "of_somebody").iterdir())) == 1
    assert (rows[1].action, rows[1].why) == ("tidied", "its files do not carry the id of their run")


def call(*words: object) -> tuple[int, str, str]:
    # Before Click 8.2, a runner mixes stderr into stdout unless it is told not to.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    done = CliRunner(**apart).invoke(main, ["prune", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_says_what_it_removed_and_ends_with_the_codes_of_the_contract(root: Path) -> None:
    code, out, err = call("--output", root, "--keep", "13w", "--dry-run", "--format", "json")
    assert (code, [(row["date"], row["action"]) for row in json.loads(out)]) == (0, [(d, "removed") for d in OLD])
    assert err.startswith("would remove 12 files of 0.0 MB and 2 run records; dates removed: 2026-08-01, 2026-08-02")
    code, out, err = call("-o", root, "--keep", "90d", "--format", "csv")
    assert (code, out.splitlines()[0]) == (0, "date,action,why,files,bytes,runs")
    assert err.startswith("removed 12 files of 0.0 MB and 2 run records")
    for keep in ("90d", "all"):
        assert call("--output", root, "--keep", keep) == (0, "", "nothing to remove\n")


@pytest.mark.parametrize(("words", "code", "message"), messages.cases("mistakes of prune"))
def test_a_mistake_is_one_sentence(root: Path, words: tuple[str, ...], code: int, message: str) -> None:
    before = tree(root)
    output = () if {"--output", "--table"} & {*words} else ("--output", root)
    result, out, err = call(*words, *output)
    assert (result, out, err.startswith(f"rankmetrics: {message}")) == (code, "", True), err
    assert tree(root) == before


@pytest.mark.parametrize("text", ["", "{", '{"evaluation_date": "2026-11-01", "format": 9}'])
def test_nothing_is_removed_where_a_pointer_cannot_be_read(root: Path, text: str) -> None:
    (root / "published" / "2026-11-01.json").write_text(text)
    before = tree(root)
    with pytest.raises(InputError, match=r"/published/2026-11-01.json' is no pointer that this version reads; nothing"):
        pruned(root)
    assert tree(root) == before


def test_other_formats_are_refused(root: Path) -> None:
    pointer = Pointer("2026-11-03", (Entry("r", ("a",)),), 0, "delta")
    (root / "published" / "2026-11-03.json").write_text(pointer.as_json())
    with pytest.raises(ConfigError, match=r"holds .* tables; allowed: tables in Parquet"):
        pruned(root)
    with pytest.raises(InputError, match="nothing is published"):
        pruned(root / "runs")
