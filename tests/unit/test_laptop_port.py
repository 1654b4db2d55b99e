"""The way into the laptop engine without starting it: who reaches its port, what the relay carries, what is refused."""

import importlib.metadata
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from rankmetrics_spark.engines.sail import process, server, session
from rankmetrics_spark.engines.sail.process import Engine, Limits
from rankmetrics_spark.errors import RankmetricsError
from tests.helpers.commands import as_stranger

MESSAGE = bytes(range(256)) * 4096


@pytest.fixture
def closed() -> Iterator[tuple[socket.socket, int]]:
    """A listening socket that only connections from the reserved source port reach."""
    with socket.create_server(("127.0.0.1", 0)) as listening, server.reserved_port() as source:
        server.close_to_others(listening, source.getsockname()[1])
        yield listening, source.getsockname()[1]


def test_a_closed_port_answers_the_reserved_source_port_only(closed: tuple[socket.socket, int]) -> None:
    listening, source = closed
    number = listening.getsockname()[1]
    with socket.socket() as stranger:
        stranger.settimeout(0.3)
        with pytest.raises(TimeoutError):
            stranger.connect(("127.0.0.1", number))
    # A connection that is lost is followed by others, while the first may linger.
    for i in range(3):
        with server.connection_from(source, i, number) as ours:
            other_end, _ = listening.accept()
            with other_end:
                ours.sendall(b"ping")
                assert other_end.recv(4) == b"ping"


BIND = """
import errno, socket, sys
for address in ("0.0.0.0", "127.0.0.1", "127.0.0.2", "::", "::ffff:127.0.0.3"):
    for options in ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as other:
            for option in options:
                other.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                other.bind((address, int(sys.argv[1])))
                print("bound", address, options)
            except OSError as error:
                print(errno.errorcode[error.errno])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_no_other_account_can_use_the_reserved_port(closed: tuple[socket.socket, int]) -> None:
    done = as_stranger(BIND, closed[1])
    assert set(done.stdout.split()) <= {"EADDRINUSE", "EAFNOSUPPORT", "EADDRNOTAVAIL"} and "EADDRINUSE" in done.stdout


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "127.0.0.2"])
def test_no_socket_uses_the_reserved_port_by_reusing_addresses(address: str, closed: tuple[socket.socket, int]) -> None:
    # SO_REUSEADDR asks for no account, unlike SO_REUSEPORT.
    for options in ((), (socket.SO_REUSEADDR,)):
        with socket.socket() as other:
            for option in options:
                other.setsockopt(socket.SOL_SOCKET, option, 1)
            with pytest.raises(OSError, match="Address already in use"):
                other.bind((address, closed[1]))


STARTING = """
import errno, os, socket, struct, sys
from rankmetrics_spark.engines.sail import server

stranger, other = socket.socket(), socket.socket()
engine = []

def start():
    engine.append(listening := socket.create_server(("127.0.0.1", 0)))
    # A connection to another program does not count.
    other.connect(("127.0.0.1", int(sys.argv[2])))
    if sys.argv[1] != "nobody":
        stranger.connect(listening.getsockname())
        if sys.argv[1] == "reset":
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stranger.close()
            os.dup(0)  # in the place of its descriptor
        try:
            listening.accept()
        except OSError as error:
            print(errno.errorcode[error.errno])

port = server.start_closed(start, 1)
print(port == engine[0].getsockname()[1], port)
"""


@pytest.mark.parametrize("who", ["nobody", "open", "reset"])
def test_nobody_is_accepted_before_the_port_is_closed_and_who_waits_is_seen(who: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        arguments = [who, str(elsewhere.getsockname()[1])]
        done = subprocess.run([sys.executable, "-c", STARTING, *arguments], capture_output=True, text=True, check=True)
    said = done.stdout.split()
    assert said[-2] == "True" if who == "nobody" else said == ["EMFILE", "False", "0"], done


class Sandbox:
    """A socket of a system without filters, which refuses or ignores them."""

    def __init__(self, refuses: bool) -> None:
        self.refuses = refuses

    def setsockopt(self, *_: object) -> None:
        if self.refuses:
            raise OSError(92, "Protocol not available")

    def getsockopt(self, *_: object) -> bytes:
        return b""


@pytest.mark.parametrize(("refuses", "why"), [(True, "Protocol not available"), (False, "the filter is not there")])
def test_a_system_without_filters_is_refused(refuses: bool, why: str) -> None:
    sandbox: Any = Sandbox(refuses)
    with pytest.raises(RankmetricsError, match=rf"^its port cannot be closed to other accounts here \(.*{why}\)$"):
        server.close_to_others(sandbox, 1)


LISTENING = """
import socket
from rankmetrics_spark.errors import RankmetricsError
from rankmetrics_spark.engines.sail.server import listening_socket
held = [socket.socket(socket.AF_UNIX), socket.socket(), open("/dev/null")]
for _ in range(3):
    try:
        print(listening_socket().getsockname() == held[-1].getsockname())
    except RankmetricsError as error:
        print(error)
    held.append(socket.create_server(("127.0.0.1", 0)))
"""


def test_the_engine_listens_on_one_port_or_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", LISTENING], capture_output=True, text=True, check=True)
    refused = "it listens on {} ports, which cannot be closed to other accounts"
    assert done.stdout.splitlines() == [refused.format(0), "True", refused.format(2)]


# ---- the relay


@pytest.fixture
def relayed(closed: tuple[socket.socket, int]) -> Iterator[Path]:
    """A Unix socket whose relay leads to an echo."""
    listening, source = closed
    reading, writing = os.pipe()
    # Not tmp_path: other accounts have to get as far as this folder.
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    descriptor = os.open(folder, os.O_PATH)
    os.write(writing, str(listening.getsockname()[1]).encode())
    with server.unix_listener(descriptor) as listener:
        serving = threading.Thread(target=server._serve, args=(listener, source, reading))
        serving.start()
        threading.Thread(target=echo, args=(listening,), daemon=True).start()
        yield folder / server.SOCKET
        os.close(writing)
        serving.join(5)
        assert not serving.is_alive()
    os.close(descriptor)
    shutil.rmtree(folder)


def echo(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=server._forward, args=(connection, connection), daemon=True).start()


def test_the_relay_carries_every_byte_of_several_connections(relayed: Path) -> None:
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
            for client in (one, other):
                client.settimeout(10)
                client.connect(str(relayed))
                threading.Thread(target=client.sendall, args=(MESSAGE,)).start()
            for client in (one, other):
                with client.makefile("rb") as answer:
                    assert answer.read(len(MESSAGE)) == MESSAGE


CONNECT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.settimeout(5)
    try:
        client.connect(sys.argv[1])
        client.sendall(b"x")
        print("answer", client.recv(1))
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_another_account_gets_no_answer_even_where_the_folder_is_open(relayed: Path) -> None:
    assert as_stranger(CONNECT, relayed).stdout.strip() == "PermissionError"
    relayed.parent.chmod(0o755)
    relayed.chmod(0o777)
    assert as_stranger(CONNECT, relayed).stdout.strip() in {"answer b''", "ConnectionResetError", "BrokenPipeError"}
    ours = subprocess.run([sys.executable, "-c", CONNECT, relayed], capture_output=True, text=True, check=True)
    assert ours.stdout.strip() == "answer b'x'"


# ---- the start


class Child(Engine):
    """A child that says a word and is stopped."""

    words: list[str]

    def __init__(self, words: list[str]) -> None:
        self.words, self.stops = words, 0

    def _read_status(self) -> str:
        return self.words.pop(0)

    def stop(self) -> None:
        self.stops += 1


@pytest.mark.parametrize("disturbed", [0, 1, 4, 5])
def test_an_engine_that_somebody_may_have_reached_is_given_up(disturbed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child([server.DISTURBED] * disturbed + [server.READY])
    monkeypatch.setattr(Engine, "_launch", lambda _limits: child)
    if disturbed < 5:
        assert Engine.start(Limits(1, 2**30)) is child
    else:
        with pytest.raises(
            RankmetricsError, match=r"^the laptop engine did not start: in each of 5 attempts some prog"
        ):
            Engine.start(Limits(1, 2**30))
    assert child.stops == disturbed


SERVING = """
import os, socket, sys, types

class Server:
    def __init__(self, *address):
        pass

    def start(self, background):
        if sys.argv[1:]:
            raise OSError("Too many open files (os error 24)")
        print(getattr(sys.modules.get("pyspark"), "__version__", None), flush=True)
        os._exit(0)

sys.modules["pysail"] = types.ModuleType("pysail")
sys.modules["pysail.spark"] = types.SimpleNamespace(SparkConnectServer=Server)
from rankmetrics_spark.engines.sail import server
os.environ[server.FOLDER] = "no folder"
os.environ[server.LISTENER] = str(socket.socket(socket.AF_UNIX).detach())
server.serve()
"""


def test_the_engine_can_ask_for_the_version_of_its_client_before_anybody_asks_it() -> None:
    # Sail reads settings by that version, and those of Spark 3.5 where its import fails beside another one.
    done = subprocess.run([sys.executable, "-c", SERVING], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == importlib.metadata.version("pyspark")
    # Where another thread has taken the one descriptor that is left, another engine is started.
    done = subprocess.run([sys.executable, "-c", SERVING, "busy"], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr.strip()) == (server.DISTURBED, "Too many open files (os error 24)")


class Settings:
    """The settings of an engine, of which it may lack one."""

    def __init__(self, lacks: str) -> None:
        self.lacks = lacks

    def set(self, _name: str, _value: str) -> None:
        pass

    def get(self, name: str) -> str:
        if name in self.lacks:
            raise PySparkException(f"configuration not found: {self.lacks}")
        return "1"


@pytest.mark.parametrize("bare", [0, 1, 3])
def test_an_engine_that_lacks_its_settings_is_started_again(bare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = ["spark.sql.session.localRelationSizeLimit"] * bare + [""]

    class Session(session._Session):
        def __init__(self, engine: Any) -> None:
            self._engine = engine
            self.settings = Settings(lacking.pop(0))

        @property
        def conf(self) -> Any:
            return self.settings

        def stop(self) -> None:
            self._engine.stop()

        def __del__(self) -> None:
            pass

    started: list[Child] = []

    def start(*_: object) -> Child:
        started.append(Child([]))
        return started[-1]

    monkeypatch.setattr(session, "_Session", Session)
    monkeypatch.setattr(Engine, "start", start)
    monkeypatch.setattr(session, "_running", running := [])
    limits = Limits(1, 2**30)
    if bare < 3:
        assert session._start(limits, lambda: False) is running[0][1]
    else:
        with pytest.raises(RankmetricsError, match=r"did not start: 3 times it lacked the setting spark\.sql\.session"):
            session._start(limits, lambda: False)
    assert [child.stops for child in started] == [1] * bare + [0] * (bare < 3)


# ---- the session


class Ending(Engine):
    """An engine without a child, which ends when a test says so."""

    def __init__(self) -> None:
        process: Any = SimpleNamespace(poll=lambda: self.code, kill=lambda: setattr(self, "code", -9))
        super().__init__(Limits(1, 2**30), "unix:/nowhere", process, Path("/nowhere"), -1)
        self.code: int | None = None

    def stop(self) -> None:
        self._end, self.stopped = self.end(), True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Ending]]:
    """The engines that ``laptop_session`` has started; each takes a moment."""
    engines: list[Ending] = []
    process.launched.clear()

    def start(_limits: Limits, given_up: Any) -> Ending:
        engines.append(Ending())
        process.launched[:] = engines[-1:]
        time.sleep(0.05)
        if given_up():
            engines[-1].interrupt()
        return engines[-1]

    monkeypatch.setattr(session, "check_installed", lambda: None)
    monkeypatch.setattr(Engine, "start", start)
    monkeypatch.setattr(session._Session, "has_settings", lambda self: True)
    yield engines
    for engine in engines:
        engine.code = engine.code or 0
    for _, left in session._running:
        left.stop()
    session._running.clear()
    process.launched.clear()


def test_a_session_whose_engine_was_killed_is_given_out_no_more(started: list[Ending]) -> None:
    first = session.laptop_session(1, "1g")
    assert session.laptop_session() is first is session.ConnectSession.getActiveSession() and len(started) == 1
    started[0].code = -9
    assert session.ConnectSession.getActiveSession() is None
    second = session.laptop_session()
    assert second is not first and second is session.ConnectSession.getActiveSession() and len(started) == 2
    with pytest.raises(RankmetricsError, match=r"^the laptop engine was killed, as systems do when"):
        first.range(1).count()
    # A thread keeps an active session of its own.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(session.laptop_session).result() is second
        started[1].code = -9
        new = session.laptop_session()
        assert (
            pool.submit(lambda: session.laptop_session() and session.ConnectSession.getActiveSession()).result() is new
        )


def test_threads_that_start_together_get_one_engine(started: list[Ending]) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(lambda _: session.laptop_session(), range(4))}) == len(started) == 1


def test_a_fork_is_refused_before_it_waits_for_a_lock(started: list[Ending], monkeypatch: pytest.MonkeyPatch) -> None:
    given = session.laptop_session()
    monkeypatch.setattr(session, "_LOCK", None)  # another thread of the parent may hold it for good
    if not (child := os.fork()):
        try:
            for call in (session.laptop_session, lambda: given.range(1).count()):
                with pytest.raises(RankmetricsError, match=r"^this process was forked from one with a laptop engine"):
                    call()
            os._exit(given.stop() or started[0].stopped)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_process_waits_for_no_property_that_a_thread_computes() -> None:
    class Result:
        wait: Any = int
        table = cached_property(lambda self: self.wait())

    entered, ended, busy = threading.Event(), threading.Event(), Result()
    busy.wait = lambda: entered.set() or ended.wait(60)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: busy.table)
        assert entered.wait(60)
        if not (child := os.fork()):
            signal.alarm(10)
            os._exit(Result().table)
        ended.set()
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", ["note_laptop", "_running_session"])
def test_an_interrupt_of_the_start_is_raised_when_nothing_is_half_made(
    name: str, started: list[Ending], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(session, name)

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(session, name, interrupted)
        session.laptop_session()
    assert [engine.stopped for engine in started] == [True]
    assert session.laptop_session() is session.ConnectSession.getActiveSession()


def test_threads_stay_idle_to_answer_the_client_whatever_computes(tmp_path: Path) -> None:
    # Two stages of a query compute at a time, each with the threads that are asked for.
    for threads in (1, 2, 8):
        (folder := tmp_path / str(threads)).mkdir()
        environment = process._environment(folder, Limits(threads, 2**30))
        assert environment["SAIL_EXECUTION__DEFAULT_PARALLELISM"] == str(threads)
        assert int(environment["TOKIO_WORKER_THREADS"]) >= 2 * threads + 4
