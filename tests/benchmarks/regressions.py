"""Sees regressions: CPU seconds of this checkout over those of the accepted commit, whose package is put beside it.

The accepted commit is the branch's last one that wrote in ``accepted.md``, as a change does that is meant to cost more.
The least CPU seconds of many short rounds in turns count, because other programs can only add to them. New processes
replace both while the answer is in doubt: some have less luck with their memory than others for their whole life.
"""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.contenders import LAPTOP, ROOT, Contender, OutOfProcess

LEDGER = "tests/benchmarks/accepted.md"
ROWS = 2_000_000
ROUNDS, WARM_UP = 6, 1
"""Of each side, in one pair of processes."""
PAIRS = 8
"""At most so many pairs of processes for each kind of run ..."""
FINE, NEAR = 1.05, 1.03
"""... until the ratio is at most this, and of each side three rounds are within this of its least one."""
LIMIT = 1.10
"""Runs fail whose least seconds are more than this over the third least of the accepted commit. So 15 % is seen where
rounds are near to one another, and a machine too busy for that gives no false alarm."""

ON_SAIL = ("default", "ignoring", "real_valued", "by_score", "job")
KINDS = {f"on Sail, {kind}": (f"laptop:{kind}", str(LAPTOP)) for kind in ON_SAIL}
KINDS |= {"on Spark, default": ("ours:run", sys.executable), "on Spark, by_score": ("ours:by_score", sys.executable)}
"""Kind of run -> module and function in ``peers``, and the Python that runs it."""


@dataclass
class Kind:
    """CPU seconds of one kind of run in each round that counts, of this checkout and of the accepted commit."""

    name: str
    mine: list[float] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return min(self.mine) / min(self.accepted)

    @property
    def is_slower(self) -> bool:
        """Whether more is sure than what is allowed."""
        return min(self.mine) > LIMIT * sorted(self.accepted)[2]

    @property
    def in_doubt(self) -> bool:
        """Whether more rounds could give another answer."""
        return self.ratio > FINE or any(sorted(each)[2] > NEAR * min(each) for each in (self.mine, self.accepted))

    def measure(self, mine: Contender, accepted: Contender, path: str) -> None:
        """Run both sides in turns (A B B A ...), until there is no doubt."""
        sides = [(mine, self.mine), (accepted, self.accepted)]
        for _ in range(PAIRS):
            try:
                for contender, _ in sides:
                    contender.prepare(path)
                for number in range(WARM_UP + ROUNDS):
                    for contender, seconds in sides:
                        cpu = contender.run(path).cpu
                        seconds += [cpu] if number >= WARM_UP else []
                    sides.reverse()
            finally:
                for contender, _ in sides:
                    contender.close()
            if not self.in_doubt:
                break
        seen = f"{min(self.mine):.3f} s, accepted {min(self.accepted):.3f} s, {len(self.mine)} rounds"
        print(f"  {self.name}: {self.ratio:.3f} ({seen})", flush=True)


def check(folder: Path, path: str, ref: str = "") -> list[str]:
    """Print the ratio of each kind of run; what is above the limit is wrong."""
    commit = accepted_commit(ref)
    if not commit:
        print("CPU seconds are not compared: git knows no accepted commit here", flush=True)
        return [f"--against is '{ref}'; allowed: a commit"] if ref else []
    of_accepted = f"of the CPU seconds of {commit[:12]}, at most {LIMIT} is allowed"
    print(f"Runs of the accepted commit beside this one: ratios {of_accepted}", flush=True)
    beside, wrong = put_beside(commit, folder), []
    for name, (module, python) in KINDS.items():
        sides = [OutOfProcess(name, module=module, python=python, folder=folder, package=p) for p in (ROOT, beside)]
        try:
            (kind := Kind(name)).measure(*sides, path)
        except RuntimeError as error:
            wrong.append(f"{name}: {error}")
        else:
            wrong += [f"{name} takes {kind.ratio:.2f} {of_accepted}"] if kind.is_slower else []
    return wrong


def accepted_commit(ref: str = "", checkout: Path = ROOT) -> str:
    """The commit to compare with: ``ref``, or the last one that wrote in the ledger; none without git."""
    asked = ["rev-parse", "--verify", f"{ref}^{{commit}}"]
    last = ["log", "-1", "--first-parent", "--format=%H", "--", LEDGER]
    commit = _git(checkout, *(asked if ref else last)).decode().strip()
    if not ref and _git(checkout, "rev-parse", "--is-shallow-repository").strip() == b"true":
        print(f"a shallow clone: the accepted commit may be older than {commit[:12]}, the oldest here", flush=True)
    return commit


def put_beside(commit: str, folder: Path, checkout: Path = ROOT) -> Path:
    """A folder with the package as it is in a commit."""
    beside = folder / f"accepted-{commit[:12]}"
    beside.mkdir(exist_ok=True)
    package = _git(checkout, "archive", commit, "rankmetrics_spark")
    subprocess.run(["tar", "-x", "-C", beside], input=package, check=True)
    return beside


def _git(checkout: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=checkout, capture_output=True).stdout
