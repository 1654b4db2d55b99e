"""What `make bench-small` says of CPU seconds, on contenders whose seconds are given; which commit it compares with."""

import itertools
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks import observe, regressions
from tests.benchmarks.contenders import Contender, Run
from tests.benchmarks.regressions import LEDGER, PAIRS, ROUNDS, WARM_UP, Kind


class Given(Contender):
    """A contender that takes the given CPU seconds, over and over, and less before they count."""

    def __init__(self, seconds: list[float]) -> None:
        super().__init__("given")
        self.seconds_of_rounds, self.cold, self.starts = itertools.cycle(seconds), 0, 0

    def prepare(self, path: str) -> None:
        self.cold, self.starts = WARM_UP, self.starts + 1

    def run(self, path: str) -> Run:
        self.cold -= 1
        return Run(1.0, 0.01 if self.cold >= 0 else next(self.seconds_of_rounds), {}, observe.Cost(), observe.Memory())


# Nobody knows the least seconds of a side whose rounds are far apart; and one process is no regression.
FAR_APART, ONE_PROCESS = [2.0, 3.0, 3.0, 4.0, 4.0, 4.0], [2.3] * ROUNDS + [2.0] * ROUNDS
SECONDS = [([2.0, 9.0, 2.0, 2.05, 7.0, 3.0], 1.0, 1), ([1.0], 0.5, 1), (FAR_APART, 1.0, 3), (ONE_PROCESS, 1.0, 2)]


@pytest.mark.parametrize(("mine", "ratio", "pairs"), [*SECONDS, ([2.3], 1.15, PAIRS), ([2.14], 1.07, PAIRS)])
def test_least_seconds_are_compared_in_new_processes_while_there_is_doubt(
    mine: list[float], ratio: float, pairs: int
) -> None:
    sides = (Given(mine), Given([2.0]))
    (kind := Kind("default")).measure(*sides, "")
    assert (kind.ratio, kind.is_slower) == (pytest.approx(ratio), ratio > 1.1)
    # Where the rounds of the accepted commit are far apart, nobody knows.
    assert not Kind("default", [2.3], [2.0, 2.2, 2.1]).is_slower
    assert [side.starts for side in sides] == [pairs, pairs] and len(kind.mine) == pairs * ROUNDS


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_accepted_commit_is_the_last_that_wrote_in_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(tmp_path, "init", "-q")
    for name in ("rankmetrics_spark/a.py", LEDGER, "rankmetrics_spark/b.py", "c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        git(tmp_path, "add", name)
        git(tmp_path, "commit", "-q", "-m", name)
    commit = regressions.accepted_commit(checkout=tmp_path)
    assert commit == git(tmp_path, "rev-parse", "HEAD~2")
    beside = regressions.put_beside(commit, tmp_path, tmp_path)
    assert [*beside.rglob("*.py")] == [beside / "rankmetrics_spark/a.py"]
    head = git(tmp_path, "rev-parse", "HEAD")
    assert regressions.accepted_commit("HEAD", tmp_path) == head and not capsys.readouterr().out
    git(tmp_path, "clone", "-q", "--depth", "1", tmp_path.as_uri(), "shallow")
    assert regressions.accepted_commit(checkout=tmp_path / "shallow") == head
    said = f"a shallow clone: the accepted commit may be older than {head[:12]}, the oldest here\n"
    assert capsys.readouterr().out == said


SLOW = "on Sail, job takes 1.15 of the CPU seconds of 0123456789ab, at most 1.1 is allowed"
ANSWERS = [("0123456789abcdef", "", [SLOW]), ("", "none", ["--against is 'none'; allowed: a commit"]), ("", "", [])]


@pytest.mark.parametrize(("commit", "ref", "wrong"), ANSWERS)
def test_kinds_of_runs_above_the_limit_are_named_and_nothing_is_compared_without_git(
    commit: str, ref: str, wrong: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def side(name: str, package: Path, **_: object) -> Given:
        mine = {"on Sail, job": 2.3, "on Spark, default": 2.18}.get(name, 2.0)
        return Given([2.0 if package == tmp_path else mine])

    monkeypatch.setattr(regressions, "accepted_commit", lambda ref: commit)
    monkeypatch.setattr(regressions, "put_beside", lambda commit, folder: folder)
    monkeypatch.setattr(regressions, "OutOfProcess", side)
    assert regressions.check(tmp_path, "", ref) == wrong
