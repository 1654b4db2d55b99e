"""Starting, watching and stopping the child process of the laptop engine."""

from __future__ import annotations

import atexit
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rankmetrics_spark.engines.sail.relay import socket_path, unix_listener
from rankmetrics_spark.engines.sail.server import DISTURBED, FOLDER, LISTENER, READY
from rankmetrics_spark.errors import ConfigError, RankmetricsError

THREADS, MEMORY = "RANKMETRICS_THREADS", "RANKMETRICS_MEMORY"
"""Environment variables: threads of the engine, and the size of its memory pool, such as ``4g``."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SMALLEST = 64 * 2**20
_START = 60
"""Seconds for the start; it takes less than one."""
_STARTS = 5
"""Attempts to start; the engine's port is open to other accounts for less than a millisecond of each."""
_STOP = 5
"""Seconds for a proper end, before the child is killed."""
_SPARE = 4
"""Threads of the engine beyond those that two stages of a query can keep busy.

Sail asks its client for an answer each minute and hangs up after 10 seconds without one. A thread that computes looks
at the connection after every 61 steps only, and with Python in them these can take longer; an idle one looks at once.
"""
# The child finds what this process finds, and nothing in the folder that it happens to start in.
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from rankmetrics_spark.engines.sail.server import serve; serve()"


@dataclass(frozen=True)
class Limits:
    """What the engine may take of the machine.

    Attributes:
        threads: Threads that compute.
        memory: Bytes of the pool that aggregations, sorts and joins share; beyond it, they use temporary files. What
            Python steps hold comes on top.
    """

    threads: int
    memory: int

    @classmethod
    def of(cls, threads: int | None = None, memory: str | int | None = None) -> Limits:
        """The limits asked for, else those of the environment variables, else every core and half of the memory."""
        asked = threads if threads is not None else os.environ.get(THREADS) or len(os.sched_getaffinity(0))
        size = memory if memory is not None else os.environ.get(MEMORY) or _half_of_memory()
        if not re.fullmatch(r"[1-9]\d{0,3}", str(asked)):
            raise ConfigError(f"{THREADS} is '{asked}'; allowed: a number of threads from 1 on")
        return cls(int(asked), _bytes(size))


def _bytes(size: str | int) -> int:
    """The bytes of a size such as ``4g``."""
    found = re.fullmatch(r"(\d{1,18})\s*([kmgt]?)i?b?", str(size).strip().lower())
    found_bytes = int(found[1]) * _UNITS[found[2]] if found else 0
    if found_bytes < _SMALLEST:
        raise ConfigError(f"{MEMORY} is '{size}'; allowed: a size from 64m on, such as 4g")
    return found_bytes


def _half_of_memory() -> int:
    return max(_SMALLEST, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


@dataclass
class Engine:
    """A running child process.

    Attributes:
        limits: What it may take of the machine.
        address: Where a client reaches it: a Unix socket in a folder of this account.
        stopped: Whether this process has stopped it.
        interrupted: Whether an interrupt has ended it.
    """

    limits: Limits
    address: str
    _process: subprocess.Popen[bytes]
    _folder: Path
    _descriptor: int
    _owner: int = field(default_factory=os.getpid)
    stopped: bool = False
    interrupted: bool = False

    @classmethod
    def start(cls, limits: Limits) -> Engine:
        """Start the child and wait until it can be reached."""
        for _ in range(_STARTS):
            engine = cls._started(limits)
            if engine._first_word() == READY:
                return engine
            engine.stop()
        raise RankmetricsError(
            f"the laptop engine did not start: in each of {_STARTS} attempts some program of this machine accepted a "
            "connection while the engine's port was not closed to other accounts yet; try again, or use --engine spark"
        )

    @classmethod
    def _started(cls, limits: Limits) -> Engine:
        folder = Path(tempfile.mkdtemp(prefix="rankmetrics-laptop-"))
        # The descriptor stays open as long as this process: clients may connect again.
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        with open(folder / "log", "wb") as log, unix_listener(descriptor) as listener:
            process = subprocess.Popen(  # this Python, with a program of ours
                [sys.executable, "-c", _CODE, *(os.path.abspath(path) for path in sys.path)],
                env={**_environment(folder, limits), LISTENER: str(listener.fileno())},
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # An interrupt at the terminal is for the command; it stops the engine in its own time.
                start_new_session=True,
            )
        engine = cls(limits, f"unix:{socket_path(descriptor)}", process, folder, descriptor)
        atexit.register(engine.stop)
        return engine

    @property
    def pid(self) -> int:
        """The id of the child process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the child can still answer."""
        return not self.stopped and self._process.poll() is None

    def end(self) -> str:
        """How the child has ended, as part of a sentence."""
        code = self._process.poll()
        if self.stopped or code is None:
            return "the laptop engine was stopped; start another session"
        if code == -signal.SIGKILL:
            return (
                "the laptop engine was killed, as systems do when memory runs out; allow it less with "
                f"{MEMORY}=1g, or use --engine spark"
            )
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        last = self._last_words()
        return f"the laptop engine ended {how}{f' ({last})' if last else ''}; start another, or use --engine spark"

    def stop(self) -> None:
        """End the child and remove its temporary files; does nothing where it has been done, or in a forked process."""
        if self.stopped or os.getpid() != self._owner:
            return
        self.stopped = True
        atexit.unregister(self.stop)
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._descriptor)
        shutil.rmtree(self._folder, ignore_errors=True)

    def interrupt(self) -> None:
        """End the child at once, from a signal handler; calls to it fail."""
        self.interrupted = True
        self._process.kill()

    def wait_briefly(self) -> bool:
        """Whether the child has ended; a broken connection is seen a moment before the end of its process."""
        end = time.monotonic() + 0.5
        while self.running and time.monotonic() < end:
            threading.Event().wait(0.01)
        return not self.running

    def _first_word(self) -> str:
        """What the child says once it has started."""
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], _START)
        word = stdout.readline().decode().strip() if ready else ""
        if word in (READY, DISTURBED):
            return word
        self._process.kill()
        self._process.wait()
        reason = self._last_words()
        self.stop()
        raise RankmetricsError(f"the laptop engine did not start{f': {reason}' if reason else ''}; use --engine spark")

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = (self._folder / "log").read_text("utf-8", "replace").strip().splitlines()
            return lines[-1].strip().rstrip(".") if lines else ""
        return ""


def _environment(folder: Path, limits: Limits) -> Mapping[str, str]:
    """The environment of the child: its limits, no log below errors, and one thread for each Python step."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("SAIL_", "PYTHON", "SPARK_"))
    }
    spill = folder / "spill"
    spill.mkdir()
    return inherited | {
        FOLDER: str(folder),
        "SAIL_MODE": "local",
        "SAIL_RUNTIME__MEMORY_POOL__TYPE": "fair",
        "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(limits.memory),
        "SAIL_RUNTIME__TEMPORARY_FILES__PATHS": f'["{spill}"]',
        "SAIL_EXECUTION__DEFAULT_PARALLELISM": str(limits.threads),
        # A notebook may be left alone over a weekend; the child ends with its process anyway.
        "SAIL_SPARK__SESSION_TIMEOUT_SECS": str(30 * 24 * 3600),
        "TOKIO_WORKER_THREADS": str(2 * limits.threads + _SPARE),
        "RUST_LOG": "error",
        "TZ": "UTC",
        # Its Python steps run side by side already.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": os.environ.get("ARROW_DEFAULT_MEMORY_POOL", "system"),
    }
