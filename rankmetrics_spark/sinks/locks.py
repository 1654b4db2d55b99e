"""Claims of runs on the partitions of a folder: two runs never write the same partition at the same time.

A claim is a file that its run keeps locked. The system unlocks it when the run ends, however it ends, so a claim that
is not locked is left over from a run that was killed.
"""

from __future__ import annotations

import importlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.sinks.partitions import Partitions

# Windows has no such locks; there, nothing is claimed.
_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

_GATE = ".gate"
"""Locked for the moment in which a run looks at all claims and makes its own."""


@dataclass(frozen=True)
class Held:
    """What a claim says.

    Attributes:
        run: Id of the run; empty if the claim does not say.
        date: Evaluation date of its partitions; None while the run does not know them yet.
        experiments: Experiments of its partitions.
    """

    run: str = ""
    date: str | None = None
    experiments: tuple[str | None, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Held:
        """What a text says; nothing if it is broken, since its run was killed while writing it."""
        try:
            found = json.loads(text or "{}")
            return cls(found.get("run", ""), found.get("date"), tuple(found.get("experiments", ())))
        except (ValueError, AttributeError, TypeError):
            return cls()

    def shared(self, partitions: Partitions) -> list[str | None]:
        """The experiments that some partitions have in common with this claim."""
        held = set(self.experiments) if self.date == partitions.date else set()
        return [name for name in partitions.experiments if name in held]


Recover = Callable[[Held], None]
"""Cleans up after a run that was killed."""


class Claim:
    """The claim of one run on some partitions of a folder. As long as it is open, the run counts as living."""

    def __init__(self, run_id: str = "", recover: Recover = lambda dead: None) -> None:
        """A claim on nothing.

        Args:
            run_id: Id of the run.
            recover: Called for each killed run that is found, with what no living run has claimed since.
        """
        self._run_id, self._recover = run_id, recover
        self._file: IO[str] | None = None

    def open(self, folder: Path) -> bool:
        """Say that this run lives, and clean up after those that do not; False where there are no locks."""
        with gate(folder) as supported:
            if supported and self._file is None:
                self._living(folder)
                # In one step: a claim that is not locked belongs to a killed run.
                self._file = (folder / f"{self._run_id or uuid.uuid4().hex}.claim").open("w", encoding="utf-8")
                _lock(self._file, wait=False)
            return supported

    def take(self, folder: Path, partitions: Partitions, output: str) -> None:
        """Claim these partitions until ``release``.

        Args:
            folder: Where the claims of all runs are.
            partitions: What the run is about to write.
            output: What messages call the output.

        Raises:
            OutputError: Another run has claimed some of them.
        """
        if not self.open(folder) or self._file is None:
            return
        with gate(folder):
            for other in self._living(folder):
                refuse_shared(other, partitions, output)
            self._file.seek(0)
            self._file.truncate()
            held = {"run": self._run_id, "date": partitions.date, "experiments": partitions.experiments}
            json.dump(held, self._file)
            self._file.flush()

    def _living(self, folder: Path) -> list[Held]:
        """The claims of other runs that live; what killed runs have left is cleaned up."""
        living: list[tuple[Path, Held]] = []
        dead: list[tuple[Path, Held]] = []
        for path in sorted(folder.glob("*.claim")):
            if self._file is None or Path(self._file.name) != path:
                with suppress(FileNotFoundError), path.open("r+", encoding="utf-8") as file:
                    ended = _lock(file, wait=False)
                    (dead if ended else living).append((path, Held.parse(file.read())))
        for path, held in dead:
            taken = {name for _, other in living if other.date == held.date for name in other.experiments}
            left = tuple(name for name in held.experiments if name not in taken)
            self._recover(replace(held, run=held.run or path.stem, experiments=left))
            path.unlink(missing_ok=True)
        return [held for _, held in living]

    def release(self, complete: bool = True) -> None:
        """Give the partitions back; nothing happens where none were claimed.

        Args:
            complete: Whether the run leaves nothing to be done. Otherwise its claim stays as that of a killed run, and
                the next run does the rest.
        """
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


def refuse_shared(held: Held, partitions: Partitions, output: str) -> None:
    """Refuse partitions that the claim of another run holds.

    Raises:
        OutputError: Names one of them.
    """
    shared = held.shared(partitions)
    if shared:
        what = "rows without an experiment" if shared[0] is None else f"experiment '{shared[0]}'"
        raise OutputError(
            f"another run is writing {what} of {partitions.date} in {output}; run this again when it has ended"
        )


@contextmanager
def gate(folder: Path) -> Iterator[bool]:
    """Hold the gate of a folder; False where the file system has no locks."""
    file = _opened_gate(folder)
    try:
        yield file is not None
    finally:
        if file is not None:
            file.close()


def _opened_gate(folder: Path) -> IO[str] | None:
    path = folder / _GATE
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        # Another run may remove the folder or the gate at any time; then start again.
        with suppress(FileNotFoundError):
            file = path.open("a", encoding="utf-8")
            if not _lock(file, wait=True):
                file.close()
                path.unlink(missing_ok=True)
                return None
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
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
