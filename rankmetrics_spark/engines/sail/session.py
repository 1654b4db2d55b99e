"""A session on the laptop engine, with readable errors."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import grpc
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import ChannelBuilder
from pyspark.sql.connect.client.retries import RetryPolicy, RetryPolicyState
from pyspark.sql.connect.session import SparkSession as ConnectSession

from rankmetrics_spark.engines.sail import check_installed
from rankmetrics_spark.engines.sail.process import MEMORY, THREADS, Engine, Limits, launched
from rankmetrics_spark.engines.sessions import note_laptop
from rankmetrics_spark.errors import ConfigError, RankmetricsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The running engine of this process with its session.
_running: list[tuple[Engine, _Session]] = []
#: Held while an engine starts: threads that start together get the same one.
_LOCK = threading.Lock()
#: Attempts to start an engine that has its settings.
_STARTS = 3
#: What the engine writes to its log where its own code fails, and why.
_PANIC = re.compile(r"^thread .* panicked at .*:\n(.*)$", re.MULTILINE)
_EXHAUSTED = ("Resources exhausted", "Failed to allocate additional", "used disk space during the spilling")
#: Errors of Sail if a query cannot continue over a new connection.
_BROKEN_OFF = ("operation not found", "task context not found")
SETTINGS = {"spark.sql.session.timeZone": "UTC"}
#: A setting that ``createDataFrame`` reads. If Sail cannot ask its Python for the version of pyspark, it takes the
#: settings of Spark 3.5 without a word, which lack this one.
_NEEDED = "spark.sql.session.localRelationSizeLimit"


#: The engine is started anew between two calls once it has this much memory, after so many calls: each SQL text that it
#: reads leaves about 45 kB in it, because its parser is never freed, and each evaluation about 10 MB.
GROWN, MOST_CALLS = 2**30, 500


def laptop_session(threads: int | None = None, memory: str | int | None = None, *, joins: bool = True) -> SparkSession:
    """A session on the laptop engine: Sail in a child process, without Java; the same one while it runs.

    ``spark.stop()`` ends the engine; so does the end of this process.

    Args:
        threads: Threads that compute; by default $RANKMETRICS_THREADS, or one for each core.
        memory: Size of the memory pool, such as ``4g``; by default $RANKMETRICS_MEMORY, or half of the
            machine's up to 4 GiB.
        joins: Whether logs are joined with other tables, such as judgements or events. If not, the default of memory is
            0.5 GiB a thread at most, and 1 GiB for one thread: very large logs take less time and memory then.

    Raises:
        ConfigError: An argument is wrong, or an engine with other limits is running.
        RankmetricsError: The engine is not installed or does not start.
    """
    check_installed()
    for engine in launched:
        if engine.is_of_other_process and not engine.stopped:
            raise RankmetricsError(engine.end())
    with _interrupts_wait() as is_interrupted, _LOCK:
        session = _running_session(threads, memory)
        if session is None:
            limits = Limits.of(threads, memory, joins)
            for _, ended in _running:
                ended.stop()
            _running.clear()
            session = _start(limits, is_interrupted)
        session.register()
    return session  # type: ignore[return-value]


def _running_session(threads: int | None, memory: str | int | None) -> _Session | None:
    """The session of the running engine; refuse one that has other limits than those that are asked for."""
    for engine, session in _running:
        if engine.running:
            has = engine.limits
            asked = Limits.of(has.threads if threads is None else threads, has.memory if memory is None else memory)
            if has != asked:
                raise ConfigError.of("other_limits", has=has, asked=asked)
            return session
    return None


def _start(limits: Limits, is_interrupted: Callable[[], bool]) -> _Session:
    """Start an engine that has its settings, and a session on it."""
    for _ in range(_STARTS):
        engine = Engine.start(limits, is_interrupted)
        try:
            session = _Session(engine)
            if session.has_settings():
                _running.append((engine, session))
                return session
        except BaseException:
            engine.stop()
            raise
        session.stop()
    raise RankmetricsError.of("setting_lacking", starts=_STARTS, setting=_NEEDED)


@contextmanager
def _interrupts_wait() -> Iterator[Callable[[], bool]]:
    """In this block, an interrupt ends the engine that is starting, and is raised when nothing is half made."""
    handler = signal.getsignal(signal.SIGINT)
    held: list[FrameType | None] = []
    # Other threads get no interrupts, and handlers that are not of Python stay.
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield lambda: False
        return

    def hold(_number: int, frame: FrameType | None) -> None:
        held.append(frame)
        for engine in launched:
            if all(engine is not other for other, _ in _running):
                engine.interrupt()

    signal.signal(signal.SIGINT, hold)
    try:
        yield lambda: bool(held)
    finally:
        for engine in launched:
            if engine.interrupted:
                engine.stop()
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(signal.SIGINT, held[0])


@contextmanager
def interrupts_end_engine() -> Iterator[None]:
    """In this block, an interrupt ends the engine, and the call that waits for it raises ``KeyboardInterrupt``.

    If it were raised at once, gRPC could be left with a lock or a call that no thread serves, and the process would
    never end. A second interrupt is raised at once.
    """
    default = signal.default_int_handler
    # A command in the background of a shell ignores interrupts.
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not default:
        yield
        return

    def end(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, default)
        if not any(engine.running for engine in launched):
            raise KeyboardInterrupt
        launched[0].interrupt()

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, default)
    if any(engine.interrupted for engine in launched):
        raise KeyboardInterrupt  # no call was waiting


class _Session(ConnectSession):
    """A session that ends with its engine: the client gives no other code a session that is stopped."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._held = engine, _Held()
        channel: Any = _Channel(engine, self._held)
        super().__init__(connection=channel)
        self.client.set_retry_policies([_Reconnection()])
        note_laptop(self)  # type: ignore[arg-type]

    @property
    def client(self) -> Any:
        """The connection, through which every call goes: after its end, nothing else refuses one in a sentence."""
        if self._engine.stopped:
            raise RankmetricsError(self._engine.end())
        if self._held.calls >= MOST_CALLS and self._engine.resident() >= GROWN:
            self._renew()
        return super().client

    def _renew(self) -> None:
        """Start the engine anew, with the settings of this session, where nobody would notice; others wait for it."""
        with self._held.lock:
            if self._held.calls < MOST_CALLS or self._held.anything:
                return
            self._held.calls = 0
            self._engine.renew()
            self._client._server_session_id = None
            for name, value in {**self._held.settings}.items():
                self.conf.set(name, value)

    @property
    def is_stopped(self) -> bool:
        return not self._engine.running

    def has_settings(self) -> bool:
        """Set what this package needs; whether the engine knows its own settings."""
        for name, value in SETTINGS.items():
            self.conf.set(name, value)
        try:
            self.conf.get(_NEEDED)
        except PySparkException as error:
            if _NEEDED not in str(error):
                raise
            return False
        return True

    def register(self) -> None:
        """Become the session of this thread, and of the process, unless there is one that runs."""
        for owner, name in ((ConnectSession, "_default_session"), (ConnectSession._active_session, "session")):
            other = getattr(owner, name, None)
            if other is None or other.is_stopped:
                setattr(owner, name, self)

    def stop(self) -> None:
        """Stop the session, and the engine with it."""
        if self._engine.stopped or self._engine.is_of_other_process:
            return
        self.release_session_on_close = self._engine.running
        try:
            super().stop()
        finally:
            self._engine.stop()


class _Held(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """What the engine holds for a session, by its requests.

    Attributes:
        calls: Requests since its start.
        settings: Those that were set, with their values.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.settings: dict[str, str] = {}
        # Held while the engine is started anew: calls of other threads begin after it.
        self.lock = threading.RLock()
        self._kept = False
        self._open: set[str] = set()

    @property
    def anything(self) -> bool:
        """Whether a call is open, or something was kept that no other engine would have, such as a view."""
        return self._kept or bool(self._open)

    def _begin(self, name: str) -> None:
        with self.lock:
            self.calls += 1
            self._open.add(name)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        self._begin(request.operation_id)  # until it is released
        self._kept |= type(request).__name__ == "ExecutePlanRequest" and _keeps(request.plan)
        return continuation(details, request)

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self._begin(name := str(uuid4()))
        try:
            call, kind = continuation(details, request), type(request).__name__
        finally:
            self._open.discard(name)
        if kind == "ReleaseExecuteRequest" and request.HasField("release_all"):
            self._open.discard(request.operation_id)
        elif kind == "ConfigRequest":
            self.settings |= {pair.key: pair.value for pair in request.operation.set.pairs}
            for name in request.operation.unset.keys:
                self.settings.pop(name, None)
        self._kept |= kind == "AnalyzePlanRequest" and request.HasField("persist")
        return call


def _keeps(plan: Any) -> bool:
    """Whether an engine that has run a plan has something that another one would not have."""
    if plan.HasField("root"):
        return bool(plan.root.HasField("catalog"))
    kind = plan.command.WhichOneof("command_type")
    if kind == "sql_command":
        words = plan.command.sql_command.input.sql.query or plan.command.sql_command.sql
        return not words.lstrip().upper().startswith("SELECT")
    return kind != "write_operation" or not plan.command.write_operation.path


class _Channel(ChannelBuilder):
    """A channel to the engine with readable errors."""

    def __init__(self, engine: Engine, held: _Held) -> None:
        # gRPC would use the proxy of the environment even for local calls, and send the path of the Unix socket as
        # the server's name, which Sail refuses.
        options = [("grpc.enable_http_proxy", 0), ("grpc.default_authority", self.host)]
        super().__init__(channelOptions=options)
        self._engine, self._held = engine, held

    @property
    def host(self) -> str:
        return "localhost"

    def toChannel(self) -> Any:  # the name of pyspark
        channel = self._insecure_channel(self._engine.address)
        return grpc.intercept_channel(channel, _ErrorMessages(self._engine), self._held)


class _Reconnection(RetryPolicy):
    """Reconnect if the engine still runs: it disconnects clients while it is too busy.

    Queries and writes continue in the engine, and the client resumes reading their results. If the engine has ended,
    the error is a ``RankmetricsError``, which is not retried.
    """

    def __init__(self) -> None:
        super().__init__(max_retries=10, initial_backoff=50, max_backoff=1000, backoff_multiplier=2)

    def can_retry(self, exception: BaseException) -> bool:
        return isinstance(exception, grpc.RpcError) and exception.code() is grpc.StatusCode.UNAVAILABLE

    def to_state(self) -> RetryPolicyState:
        return _Attempts(self)


class _Attempts(RetryPolicyState):
    """The attempts of one call; after the last one, raise a readable error."""

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        wait: int | None = super().next_attempt(exception)
        if wait is None:
            raise RankmetricsError.of("connection_lost", variable=THREADS) from None
        return wait


class _ErrorMessages(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Raise a ``RankmetricsError`` if the engine has ended, has run out of memory, or has failed without an error."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Running query -> the size of the log at its start.
        self._logged: dict[str, int] = {}

    def _refuse(self) -> None:
        """Refuse a call that would fail without a reason, or wait for a lock or a thread that a fork has not copied."""
        if self._engine.stopped or self._engine.is_of_other_process:
            raise RankmetricsError(self._engine.end())

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self._refuse()
        call = continuation(details, request)
        error = call.exception()
        if error is not None:
            self._explain(error)
        return call

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Iterator[Any]:
        self._refuse()
        query = request.operation_id
        self._logged.setdefault(query, self._log_size())
        call = continuation(details, request)

        def responses() -> Iterator[Any]:
            """The responses; in place of the one that says the result is complete, an error if rows may be missing."""
            try:
                for response in call:
                    # The client may ask for the end again, over another connection.
                    size = self._logged.pop(query, None) if response.HasField("result_complete") else None
                    if size is not None and (panic := self._panic_since(size)):
                        raise RankmetricsError.of("engine_panicked", panic=panic)
                    yield response
            except grpc.RpcError as error:
                self._explain(error)
                raise
            finally:
                call.cancel()

        return responses()

    def _log_size(self) -> int:
        """Bytes that the child has written to its log so far; 0 once it is stopped, and the log is gone."""
        with suppress(OSError):
            return self._engine.log.stat().st_size
        return 0

    def _panic_since(self, size: int) -> str | None:
        """What failed inside the engine after its log had this size, if anything did.

        Sail ends the input of a Python step without an error where its own code panics above it, so that the step
        would see no row, or some of them.
        """
        if self._log_size() == size:
            return None
        panic = _PANIC.search(self._engine.log.read_bytes()[size:].decode("utf-8", "replace"))
        return panic and panic[1].strip()

    def _explain(self, error: Any) -> None:
        """Raise a readable error for this one, if its cause is known."""
        if self._engine.interrupted and not self._engine.stopped:
            raise KeyboardInterrupt from None
        if error.code() is grpc.StatusCode.UNAVAILABLE and self._engine.wait_briefly():
            raise RankmetricsError(self._engine.end()) from None
        details = error.details() or ""
        if any(text in details for text in _BROKEN_OFF):
            raise RankmetricsError.of("connection_lost", variable=THREADS) from None
        if any(text in details for text in _EXHAUSTED):
            gib = self._engine.limits.memory / 2**30
            raise RankmetricsError.of("laptop_out_of_memory", gib=gib, variable=MEMORY) from None
