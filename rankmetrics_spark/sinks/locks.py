"""Claims of runs on the partitions of a folder: two runs never write the same partition at the same time.

A claim is a file that its run keeps locked. The system unlocks it when the run ends, however it ends, so a claim that
is not locked is left over from a run that was killed.
"""

from __future__ import annotations

import importlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.sinks.partitions import Partitions

# Windows has no such locks; there, nothing is claimed.
_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None

_GATE = ".gate"
"""Locked for the moment in which a run looks at all claims and makes its own."""


class Claim:
    """The claim of one run on some partitions of a folder."""

    def __init__(self) -> None:
        """A claim on nothing."""
        self._file: IO[str] | None = None

    def take(self, folder: Path, partitions: Partitions, output: str) -> None:
        """Claim these partitions until ``release``.

        Args:
            folder: Where the claims of all runs are.
            partitions: What the run is about to write.
            output: What messages call the output.

        Raises:
            OutputError: Another run has claimed some of them.
        """
        self.release()
        with _gate(folder) as supported:
            if not supported:
                return
            for other in sorted(folder.glob("*.claim")):
                _refuse_shared(other, partitions, output)
            self._file = (folder / f"{uuid.uuid4().hex}.claim").open("w", encoding="utf-8")
            _lock(self._file, wait=False)
            json.dump({"date": partitions.date, "experiments": partitions.experiments}, self._file)
            self._file.flush()

    def release(self) -> None:
        """Give the partitions back; nothing happens where none were claimed."""
        if self._file is None:
            return
        file, self._file = self._file, None
        claim = Path(file.name)
        claim.unlink(missing_ok=True)
        file.close()
        with suppress(OSError):
            if not any(claim.parent.glob("*.claim")):
                (claim.parent / _GATE).unlink()


def _refuse_shared(other: Path, partitions: Partitions, output: str) -> None:
    """Refuse partitions that the claim of another run holds; remove a claim whose run has ended."""
    with suppress(FileNotFoundError), other.open("r+", encoding="utf-8") as file:
        if _lock(file, wait=False):
            other.unlink(missing_ok=True)
            return
        held: dict[str, Any] = json.loads(file.read() or "{}")
        shared = [name for name in partitions.experiments if name in held.get("experiments", ())]
        if held.get("date") == partitions.date and shared:
            what = "rows without an experiment" if shared[0] is None else f"experiment '{shared[0]}'"
            raise OutputError(
                f"another run is writing {what} of {partitions.date} in {output}; run this again when it has ended"
            )


@contextmanager
def _gate(folder: Path) -> Iterator[bool]:
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
