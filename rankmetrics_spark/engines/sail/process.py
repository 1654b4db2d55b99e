"""Starting, watching and stopping the child process of the laptop engine."""

from __future__ import annotations

import atexit
import gc
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from rankmetrics_spark.doors import settings_of
from rankmetrics_spark.engines import machine
from rankmetrics_spark.engines.sail.server import DISTURBED, FOLDER, LISTENER, READY, SOCKET, socket_path, unix_listener
from rankmetrics_spark.errors import ConfigError, RankmetricsError, said

#: Environment variables: threads of the engine, and the size of its memory pool, such as ``4g``.
THREADS, MEMORY = "RANKMETRICS_THREADS", "RANKMETRICS_MEMORY"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SMALLEST = 64 * 2**20
#: Most memory unless it is asked for: with more, aggregations of a billion rows keep groups that are complete, and take
#: 1.5 times as long. Without tables that are joined, so much for each of two or more threads is enough, and faster.
_LARGEST, _OF_THREAD = 4 * 2**30, 2**29
#: Seconds for the start; it takes less than one.
_START = 60
#: Attempts to start; in each, other accounts can queue at the port for less than a millisecond.
_STARTS = 5
#: Name of the folder for temporary files.
SPILL = "spill"
#: Seconds to wait for the child to end, before it is killed.
_STOP = 5
#: Threads of the engine in addition to those that two stages of a query can keep busy.
#:
#: Sail pings its client each minute and disconnects after 10 seconds without a reply. A busy thread checks the
#: connection only after 61 steps, which can take longer if they call Python; an idle thread checks at once.
_SPARE = 4
# The child has this process's import path, without its own working folder.
_CODE = "import sys; sys.path[:] = sys.argv[1:]; from rankmetrics_spark.engines.sail.server import serve; serve()"


@dataclass(frozen=True)
class Limits:
    """Limits on the resources of the engine.

    Attributes:
        threads: Threads that compute.
        memory: Bytes of the pool that aggregations, sorts and joins share; beyond it, they use temporary files. Memory
            of Python steps is not included.
    """

    threads: int
    memory: int

    @classmethod
    def of(cls, threads: int | None = None, memory: str | int | None = None, joins: bool = True) -> Limits:
        """Return these limits; by default the environment's, then every core, and half of the memory up to 4 GiB.

        Without ``joins`` of the log with other tables, the default is half a GiB for each of two or more threads.
        """
        n_threads = threads if threads is not None else os.environ.get(THREADS) or machine.cores()
        if not re.fullmatch(r"[1-9]\d{0,3}", str(n_threads)):
            raise ConfigError(f"{THREADS} is '{n_threads}'; allowed: a number of threads from 1 on")
        most = _LARGEST if joins else min(_LARGEST, max(2, int(n_threads)) * _OF_THREAD)
        enough = max(_SMALLEST, min(machine.memory() // 2, most))
        size = memory if memory is not None else os.environ.get(MEMORY) or enough
        match = re.fullmatch(r"(\d{1,18})\s*([kmgt]?)i?b?", str(size).strip().lower())
        n_bytes = int(match[1]) * _UNITS[match[2]] if match else 0
        if n_bytes < _SMALLEST:
            raise ConfigError(f"{MEMORY} is '{size}'; allowed: a size from 64m on, such as 4g")
        return cls(int(n_threads), n_bytes)


def _unlock_properties() -> None:
    """Give cached properties other locks: another thread of the parent may have computed one, and held its lock."""
    for each in gc.get_objects():
        if type(each) is cached_property:
            vars(each)["lock"] = threading.RLock()


if sys.version_info < (3, 12):  # later ones have no locks
    os.register_at_fork(after_in_child=_unlock_properties)


@dataclass
class Engine:
    """A running child process.

    Attributes:
        limits: Its resources.
        address: Address for clients: a Unix socket in a folder of this account.
        is_of_other_process: Whether this process was forked from the one that started the child.
        stopped: Whether this process has stopped it.
        interrupted: Whether an interrupt has ended it.
        log: What the child writes to its standard error.
    """

    limits: Limits
    address: str
    _process: subprocess.Popen[bytes]
    _folder: Path
    _descriptor: int
    is_of_other_process: bool = False
    stopped: bool = False
    _end: str = ""
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.log = self._folder / "log"
        os.register_at_fork(after_in_child=partial(setattr, self, "is_of_other_process", True))

    @classmethod
    def start(cls, limits: Limits, given_up: Callable[[], bool] = lambda: False) -> Engine:
        """Start the child and wait until it can be reached.

        Args:
            limits: Its resources.
            given_up: Whether an interrupt has come while there was no child that it could end.
        """
        for _ in range(_STARTS):
            launched[:] = [engine := cls._launch(limits)]
            if given_up():
                engine.interrupt()
            if engine._read_status() == READY:
                return engine
            engine.stop()
        raise RankmetricsError.of("port_taken", starts=_STARTS)

    @classmethod
    def _launch(cls, limits: Limits) -> Engine:
        folder = Path(tempfile.mkdtemp(prefix="rankmetrics-laptop-", dir=machine.roomy_folder()))
        # Keep the descriptor open: clients may connect again.
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        process = _child(folder, descriptor, limits)
        engine = cls(limits, f"unix:{socket_path(descriptor)}", process, folder, descriptor)
        atexit.register(engine.stop)
        return engine

    def renew(self) -> None:
        """Start another child at the same address, so that clients connect to it; nothing may run on the old one."""
        for _ in range(_STARTS):
            # At its own end, it would remove the folder.
            self._process.kill()
            self._close()
            for name in (SPILL, SOCKET):
                each = self._folder / name
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            self._process = _child(self._folder, self._descriptor, self.limits)
            if self._read_status() == READY:
                return
        raise RankmetricsError.of("port_taken", starts=_STARTS)

    def resident(self) -> int:
        """Bytes of memory that the child has; 0 where the system does not tell."""
        with suppress(OSError, ValueError):
            return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def _close(self) -> None:
        """Close the pipes to the child, at which it ends, and wait for it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The id of the child process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the child can still answer."""
        return not self.stopped and not self.is_of_other_process and self._process.poll() is None

    def end(self) -> str:
        """Return why the child has ended, for an error message."""
        if self.is_of_other_process:
            return said("engine_of_other_process")
        if self._end:
            return self._end
        code = self._process.poll()
        if code is None:
            return "the laptop engine was stopped; start another session"
        if code == -signal.SIGKILL:
            return said("engine_killed", variable=MEMORY, size=max(_SMALLEST, self.limits.memory // 2) >> 20)
        ending = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        reason = f" ({line})" if (line := self._last_log_line()) else ""
        return f"the laptop engine ended {ending}{reason}; start another, or use --engine spark"

    def stop(self) -> None:
        """End the child and remove its temporary files; do nothing the second time, or in a forked process."""
        if self.stopped or self.is_of_other_process:
            return
        self._end, self.stopped = self.end(), True
        atexit.unregister(self.stop)
        self._close()
        os.close(self._descriptor)
        shutil.rmtree(self._folder, ignore_errors=True)

    def interrupt(self) -> None:
        """Kill the child from a signal handler; calls to it fail."""
        self.interrupted = True
        self._process.kill()

    def wait_briefly(self) -> bool:
        """Return whether the child has ended; wait half a second, because its connection breaks first."""
        end = time.monotonic() + 0.5
        while self.running and time.monotonic() < end:
            threading.Event().wait(0.01)
        return not self.running

    def _read_status(self) -> str:
        """Wait for the first line of the child's output."""
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], _START)
        status = stdout.readline().decode().strip() if ready else ""
        if status in (READY, DISTURBED):
            return status
        self._process.kill()
        self._process.wait()
        reason = self._last_log_line()
        self.stop()
        raise RankmetricsError(f"the laptop engine did not start{f': {reason}' if reason else ''}; use --engine spark")

    def _last_log_line(self) -> str:
        with suppress(OSError):
            lines = self.log.read_text("utf-8", "replace").strip().splitlines()
            return lines[-1].strip().rstrip(".") if lines else ""
        return ""


def _child(folder: Path, descriptor: int, limits: Limits) -> subprocess.Popen[bytes]:
    """Start a child that listens in a folder."""
    with open(folder / "log", "wb") as log, unix_listener(descriptor) as listener:
        return subprocess.Popen(  # this Python, with a program of ours
            [sys.executable, "-c", _CODE, *(os.path.abspath(path) for path in sys.path)],
            env={**_environment(folder, limits), LISTENER: str(listener.fileno())},
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # An interrupt at the terminal goes to the command only, which then stops the engine.
            start_new_session=True,
        )


#: The engine of this process that was started last; it may not have a session yet.
launched: list[Engine] = []


def _environment(folder: Path, limits: Limits) -> Mapping[str, str]:
    """Return the environment of the child: its limits, a log of errors only, one thread per Python step."""
    foreign = ("SAIL_", "PYTHON", "SPARK_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    spill = folder / SPILL
    spill.mkdir()
    usual, fixed = (settings_of(__name__, name) for name in ("usual", "fixed"))
    return {
        **usual,
        **inherited,
        **fixed,
        FOLDER: str(folder),
        "SAIL_RUNTIME__MEMORY_POOL__FAIR__MAX_SIZE": str(limits.memory),
        "SAIL_RUNTIME__TEMPORARY_FILES__PATHS": f'["{spill}"]',
        "SAIL_EXECUTION__DEFAULT_PARALLELISM": str(limits.threads),
        "TOKIO_WORKER_THREADS": str(2 * limits.threads + _SPARE),
    }
