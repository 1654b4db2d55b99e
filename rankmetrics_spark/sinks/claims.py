"""Claims of runs on partitions: two runs never write the same partition at the same time.

In a local folder, a claim is a file that its run keeps locked. The system unlocks it when the process ends, so a claim
without a lock is from a killed run.

Without locks (object stores, the disk of a Connect server), a claim names its process and when it was last renewed. A
run writes its claim, checks for competing claims, and only then proceeds: of two runs that start at the same moment, at
most one continues.
"""

import importlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.sinks import files as fl, partitions as pt

#: Seconds without a renewal after which a run counts as ended, unless its process is on this machine.
LEASE = 900.0
#: The same if each renewal is a Spark job, which may have to wait for free slots.
SLOW_LEASE = 3600.0
#: Renewals of a claim during its lease.
BEATS = 15
#: Seconds that a run waits for another one that claims at the same time.
PATIENCE = 60.0

Task = Callable[..., Any]


def write_claim(files: fl.Files, run: str, claim: dict[str, Any]) -> None:
    """Write the claim of a run, with the time."""
    files.write(f"{fl.STAGING}/{run}.claim", json.dumps(claim | {"beat": time.time()}))


def remove_claim(files: fl.Files, run: str) -> None:
    """Remove the claim of a run."""
    files.remove(f"{fl.STAGING}/{run}.claim")
    files.remove_if_empty(fl.STAGING, "")


def claims(files: fl.Files) -> list[str]:
    """The texts of all claims."""
    names = [name for name in files.names(fl.STAGING) if name.endswith(".claim") and not name.startswith(".")]
    return [text for text in files.for_each(lambda name: files.read(f"{fl.STAGING}/{name}"), names) if text]


@dataclass(frozen=True)
class ClaimContent:
    """The content of a claim.

    Attributes:
        run: Id of the run; empty if the claim has none.
        date: Evaluation date of its partitions; None while the run does not know them yet.
        experiments: Experiments of its partitions.
        state: Of a lease: ``asking`` or ``holding``; empty while it claims no partitions.
    """

    run: str = ""
    date: str | None = None
    experiments: tuple[str | None, ...] = ()
    state: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> "ClaimContent":
        """Parse a claim; a broken one is empty, because its run was killed while writing it."""
        content = fl.as_record(text)
        experiments = tuple(content.get("experiments") or ())
        return cls(content.get("run") or "", content.get("date"), experiments, content.get("state", ""))

    def shared(self, partitions: pt.Partitions) -> list[str | None]:
        """The experiments that some partitions have in common with this claim."""
        experiments = set(self.experiments) if self.date == partitions.date else set()
        return [name for name in partitions.experiments if name in experiments]


#: Cleans up after a killed run.
Recover = Callable[[ClaimContent], None]


class Lease:
    """The claim of one run on some partitions of an output without locks; see ``Claim``."""

    def __init__(self, do: Task, run_id: str, recover: Recover, lease: float = LEASE) -> None:
        """A claim on nothing."""
        self._do, self._run_id, self._recover, self._lease = do, run_id, recover, lease
        self._content: dict[str, Any] = {}
        self._stop = threading.Event()
        # A renewal must not restore a claim that was just released or changed.
        self._writing = threading.Lock()

    def open(self) -> bool:
        """Announce this run, and clean up after killed ones."""
        self._living()
        self._set_content({"run": self._run_id, "lease": self._lease, **process_identity()})
        threading.Thread(target=self._beat, daemon=True).start()
        return True

    def take(self, partitions: pt.Partitions, output: str) -> None:
        """Claim these partitions until ``release``."""
        claim = {"date": partitions.date, "experiments": partitions.experiments}
        end = time.monotonic() + PATIENCE
        self._set_content(self._content | claim | {"state": "asking"})
        while True:
            # The pointer of a date is read, changed and written without a lock, so a date has one writer.
            others = [other for other in self._living() if other.date == partitions.date]
            first = any(other.state == "holding" or other.run < self._run_id for other in others)
            if first or (others and time.monotonic() > end):
                unclaimed = {name: value for name, value in self._content.items() if name not in (*claim, "state")}
                self._set_content(unclaimed)
                raise OutputError.of("date_taken", date=partitions.date, output=output)
            if not others:
                return self._set_content(self._content | {"state": "holding"})
            # A later run claims too. It will withdraw, unless it holds the partitions already.
            time.sleep(0.5)

    def _set_content(self, claim: dict[str, Any]) -> None:
        with self._writing:
            self._content = claim
            self._do(write_claim, self._run_id, claim)

    def _beat(self) -> None:
        while not self._stop.wait(self._lease / BEATS):
            with suppress(Exception), self._writing:  # the run itself reports a store that does not answer
                if self._content:
                    self._do(write_claim, self._run_id, self._content)

    def _living(self) -> list[ClaimContent]:
        """Return claims of other running runs on partitions; clean up after killed ones."""
        living, dead = list[ClaimContent](), list[ClaimContent]()
        for text in self._do(claims):
            claim = ClaimContent.parse(text)
            if claim.run not in ("", self._run_id):
                (living if lives(fl.as_record(text)) else dead).append(claim)
        for claim in _left_by(dead, living):
            self._recover(claim)
            self._do(remove_claim, claim.run)
        return [claim for claim in living if claim.state]

    def release(self, complete: bool = True) -> None:
        """Release the partitions; see ``Claim.release``."""
        self._stop.set()
        with self._writing:
            claim, self._content = self._content, {}
            if claim and complete:
                self._do(remove_claim, self._run_id)
            elif claim:
                # Mark the process as ended, for this machine and others.
                self._do(write_claim, self._run_id, claim | {"start": "", "lease": 0})


def process_identity() -> dict[str, Any]:
    """Identify this process, so that others on this machine can see whether it still runs."""
    return {"host": _machine(), "pid": os.getpid(), "start": _start_of(os.getpid())}


def _machine() -> str:
    """Identify the machine or container in which process ids are unique; containers may share a host name."""
    names = [socket.gethostname()]
    with suppress(OSError):  # a system without /proc
        names.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        names.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(names)


def _start_of(pid: int) -> str | None:
    """Return the start time of a process; None if it does not run or the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def lives(claim: dict[str, Any], lease: float = LEASE) -> bool:
    """Whether the process of a claim still runs; on another machine, whether it renewed the claim within its lease."""
    if claim.get("host") == _machine() and claim.get("start") is not None:
        return _start_of(int(claim["pid"])) == str(claim["start"])
    return time.time() - float(claim.get("beat", 0)) < float(claim.get("lease", lease))


# Windows has no such locks; there, nothing is claimed.
_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

#: Locked while a run reads all claims and writes its own.
_GATE = ".gate"


class Claim:
    """The claim of one run on some partitions of a folder. As long as it is open, the run counts as living."""

    def __init__(self, folder: Path, run_id: str = "", recover: Recover = lambda dead: None) -> None:
        """A claim on nothing."""
        self._folder, self._run_id, self._recover = folder, run_id, recover
        self._file: IO[str] | None = None

    def open(self) -> bool:
        """Announce this run, and clean up after killed ones; return False if there are no locks."""
        with gate(self._folder) as supported:
            if supported and self._file is None:
                self._living()
                # In one step: a claim that is not locked belongs to a killed run.
                self._file = (self._folder / f"{self._run_id or uuid.uuid4().hex}.claim").open("w", encoding="utf-8")
                _lock(self._file, wait=False)
            return supported

    def take(self, partitions: pt.Partitions, output: str) -> None:
        """Claim these partitions until ``release``."""
        if not self.open() or self._file is None:
            return
        with gate(self._folder):
            for other in self._living():
                refuse_shared(other, partitions, output)
            self._file.seek(0)
            self._file.truncate()
            content = {"run": self._run_id, "date": partitions.date, "experiments": partitions.experiments}
            json.dump(content, self._file)
            self._file.flush()

    def _living(self) -> list[ClaimContent]:
        """Return claims of other running runs; clean up after killed ones."""
        living, dead = list[ClaimContent](), list[ClaimContent]()
        for path in sorted(self._folder.glob("*.claim")):
            if self._file is None or Path(self._file.name) != path:
                with suppress(FileNotFoundError), path.open("r+", encoding="utf-8") as file:
                    is_dead = _lock(file, wait=False)
                    claim = replace(ClaimContent.parse(file.read()), run=path.stem)
                    (dead if is_dead else living).append(claim)
        for claim in _left_by(dead, living):
            self._recover(claim)
            (self._folder / f"{claim.run}.claim").unlink(missing_ok=True)
        return living

    def release(self, complete: bool = True) -> None:
        """Release the partitions; do nothing if none were claimed."""
        if self._file is None:
            return
        file, self._file = self._file, None
        claim = Path(file.name)
        if complete:
            claim.unlink(missing_ok=True)
        file.close()
        with suppress(OSError):
            if not any(claim.parent.glob("*.claim")):
                (claim.parent / _GATE).unlink()


def ways(run_id: str, recover: Recover, folder: Path | None, do: Task, lease: float = LEASE) -> Iterator[Claim | Lease]:
    """The ways to claim, of which the first counts that opens: a lock in a folder of this machine, else a lease."""
    if folder is not None:
        yield Claim(folder, run_id, recover)
    yield Lease(do, run_id, recover, lease)


def _left_by(dead: Sequence[ClaimContent], living: Sequence[ClaimContent]) -> Iterator[ClaimContent]:
    """The claims of killed runs, without the experiments that living runs claim on the same date."""
    for claim in dead:
        taken = {name for other in living if other.date == claim.date for name in other.experiments}
        yield replace(claim, experiments=tuple(name for name in claim.experiments if name not in taken))


def refuse_shared(claim: ClaimContent, partitions: pt.Partitions, output: str) -> None:
    """Refuse partitions that the claim of another run holds."""
    shared = claim.shared(partitions)
    if shared:
        rows = "rows without an experiment" if shared[0] is None else f"experiment '{shared[0]}'"
        raise OutputError.of("partition_taken", rows=rows, date=partitions.date, output=output)


@contextmanager
def gate(folder: Path) -> Iterator[bool]:
    """Lock the gate of a folder; yield False if the file system has no locks."""
    path = folder / _GATE
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        # Another run may remove the folder or the gate at any time; then start again.
        with suppress(FileNotFoundError):
            file = path.open("a", encoding="utf-8")
            supported = _lock(file, wait=True)
            if not supported:
                file.close()
                path.unlink(missing_ok=True)
                break
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
            file.close()
    try:
        yield supported
    finally:
        file.close()


def _lock(file: IO[str], wait: bool) -> bool:
    """Lock a file; False if another run has locked it, or the file system has no locks."""
    if _fcntl is None:
        return False
    try:
        _fcntl.flock(file, _fcntl.LOCK_EX if wait else _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except OSError:
        return False
    return True
