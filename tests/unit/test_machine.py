"""What an engine may use: limits of control groups in both versions, and a folder on a disk with room."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankmetrics_spark import cli
from rankmetrics_spark.engines import Choice, choice, machine, spark
from rankmetrics_spark.engines.sail.process import MEMORY, THREADS, Limits

GIB = 2**30
V1 = {"memory/d/x/memory.limit_in_bytes": f"{2 * GIB}", "memory/memory.limit_in_bytes": "9223372036854771712"}
V1 |= {"cpu/d/x/cpu.cfs_quota_us": "150000", "cpu/d/x/cpu.cfs_period_us": "100000"}
V1_NONE = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
V2_NONE = {"memory.max": "max", "memory.high": "max", "cpu.max": "max 100000"}
LIMITS = [
    ("0::/", {"memory.max": f"{2 * GIB}", "cpu.max": "100000 100000"}, 1, 2),
    # The tightest of a group and those above it; one and a half cores are two threads, a tenth of one is one.
    ("0::/a/b", {"a/memory.max": f"{GIB}", "a/b/memory.max": "max", "a/cpu.max": "150000 100000"}, 2, 1),
    ("0::/a/b", {"a/b/memory.max": f"{3 * GIB}", "a/b/memory.high": f"{GIB}", "a/b/cpu.max": "10000 100000"}, 1, 1),
    ("4:memory:/d/x\n3:cpu,cpuacct:/d/x\n1:name=systemd:/d/x\n0::/", V1, 2, 2),
    # A container may see only its own group, at the top, and yet have its name outside.
    ("4:memory:/d/x\n0::/d/x", {"memory/memory.limit_in_bytes": f"{GIB}"}, 4, 1),
    ("0::/../x", {"memory.max": f"{GIB}"}, 4, 1),
    ("4:memory:/\n3:cpu:/\n0::/", V1_NONE | V2_NONE | {"cpu.max": "900000 100000"}, 4, 16),
    ("", {}, 4, 16),
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with four cores, 16 GiB and a disk."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5, 7})
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 16 * GIB // 4096)
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(("groups", "files", "cores", "gib"), LIMITS)
def test_cores_and_memory_are_the_least_of_the_machine_and_of_its_control_groups(
    groups: str, files: dict[str, str], cores: int, gib: int, root: Path
) -> None:
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        (root / "sys/fs/cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys/fs/cgroup" / name).write_text(f"{text}\n")
    assert (machine.cores(root), machine.memory(root)) == (cores, gib * GIB)


# Where /tmp is in memory, free GiB of /tmp and /var/tmp, $TMPDIR, where temporary files go.
FOLDERS = [("", 11, 90, "", "/tmp"), ("", 9, 9, "", "/tmp"), ("", 1, 2, "", "/var/tmp"), ("/", 90, 95, "", "/tmp")]
FOLDERS += [("/tmp", 90, 2, "", "/var/tmp"), ("/tmp", 90, 2, "/tmp", "/tmp")]


@pytest.mark.parametrize(("in_memory", "usual", "other", "given", "folder"), FOLDERS)
def test_temporary_files_go_to_a_disk_with_room_unless_the_user_names_a_folder(
    in_memory: str, usual: int, other: int, given: str, folder: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"/tmp": usual, "/var/tmp": other}
    monkeypatch.setenv("TMPDIR", given)
    monkeypatch.setattr(machine.tempfile, "gettempdir", lambda: "/tmp")
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: SimpleNamespace(free=free[str(path)] * GIB))
    in_ram = f"tmpfs {in_memory} tmpfs rw 0 0\n" * bool(in_memory)
    (root / "proc/self/mounts").write_text(f"disk / ext4 rw 0 0\n{in_ram}")
    assert machine.roomy_folder(root) == Path(folder)


def test_engines_take_their_share_of_a_container_or_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (THREADS, MEMORY, choice.SUBMITTED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "cores", lambda: 1)
    monkeypatch.setattr(machine, "memory", lambda: 2 * GIB)
    monkeypatch.setattr(machine, "roomy_folder", lambda: Path("/nowhere"))
    assert Limits.of() == Limits(1, GIB)
    names = ("driver.memory", "local.dir", "sql.shuffle.partitions")
    assert [spark.local_settings({})[f"spark.{name}"] for name in names] == ["1024m", "/nowhere", "8"]
    of_all = "of 2.0 GiB, temporary files in /nowhere"
    assert choice._starting(Choice("sail")) == f"starting Sail: 1 of 1 threads, memory 1.0 GiB {of_all}"
    assert choice._starting(Choice("spark")) == f"starting Spark: local[*] of 1 threads, memory 1024m {of_all}"
    monkeypatch.setattr(machine, "memory", lambda: 16 * GIB)
    assert (Limits.of().memory, spark.local_settings({})["spark.driver.memory"]) == (4 * GIB, "2048m")
    assert [Limits.of(n, joins=False).memory / GIB for n in (1, 2, 3, 8, 64)] == [1, 1, 1.5, 4, 4]
    monkeypatch.setenv(THREADS, "3")
    assert choice._starting(Choice("sail", joins=False)).startswith("starting Sail: 3 of 1 threads, memory 1.5 GiB of ")
    monkeypatch.setenv(MEMORY, "1g")
    assert Limits.of() == Limits(3, GIB) == Limits.of(joins=False)


PERIOD = ["comparison.period={from: 2026-11-01, to: '{date}'}", "comparison.baseline=a"]


@pytest.mark.parametrize(
    ("inputs", "joins"), [([], False), (["judgements.path=j"], True), (["events.path=e"], True), (PERIOD, True)]
)
def test_evaluate_says_whether_the_log_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: list[str], joins: bool
) -> None:
    chosen = list[Choice]()
    monkeypatch.setattr(cli, "_evaluate", lambda days, style, choice, *more: chosen.append(choice))
    (tmp_path / "c.yaml").write_text(f"source: {{path: log}}\nsink: {{path: {tmp_path}/out}}\n")
    with pytest.raises(TypeError):  # there is no result
        sets = (part for each in inputs for part in ("--set", each))
        cli.main(["evaluate", "--config", f"{tmp_path}/c.yaml", "--engine", "sail", *sets], standalone_mode=False)
    assert [each.joins for each in chosen] == [joins]
