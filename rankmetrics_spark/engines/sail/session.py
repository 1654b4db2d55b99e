"""A session on the laptop engine, with readable errors."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
from pyspark.sql.connect.client import ChannelBuilder
from pyspark.sql.connect.client.retries import RetryPolicy, RetryPolicyState
from pyspark.sql.connect.session import SparkSession as ConnectSession

from rankmetrics_spark.engines.sail import check_installed
from rankmetrics_spark.engines.sail.process import MEMORY, THREADS, Engine, Limits
from rankmetrics_spark.engines.sessions import note_laptop
from rankmetrics_spark.errors import ConfigError, RankmetricsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_running: list[tuple[Engine, SparkSession]] = []
"""The running engine of this process with its session."""
_newest: list[Engine] = []
"""The engine that was started last; it may not have a session yet."""
_EXHAUSTED = ("Resources exhausted", "Failed to allocate additional", "used disk space during the spilling")
_BROKEN_OFF = ("operation not found", "task context not found")
"""Errors of Sail if a query cannot continue over a new connection."""
_LOST = (
    "the laptop engine, Sail, lost its connection to this process, as happens when nobody has time to answer it for 10 "
    f"seconds; start again with less work beside it or with {THREADS}=1, or use --engine spark"
)
SETTINGS = {"spark.sql.session.timeZone": "UTC"}


def laptop_session(threads: int | None = None, memory: str | int | None = None) -> SparkSession:
    """A session on the laptop engine: Sail in a child process, without Java; the same one while it runs.

    ``spark.stop()`` ends the engine; so does the end of this process.

    Args:
        threads: Threads that compute; by default $RANKMETRICS_THREADS, or one for each core.
        memory: Size of the memory pool, such as ``4g``; by default $RANKMETRICS_MEMORY, or half of the
            machine's up to 4 GiB.

    Raises:
        ConfigError: An argument is wrong, or an engine with other limits is running.
        RankmetricsError: The engine is not installed or does not start.
    """
    check_installed()
    limits = Limits.of(threads, memory)
    for engine, session in _running:
        if engine.running:
            if engine.limits != limits:
                raise ConfigError(
                    f"a laptop engine with {engine.limits.threads} threads and {engine.limits.memory:,} bytes is "
                    f"running, and others are asked for: {limits.threads} and {limits.memory:,}; allowed: the same, or "
                    "spark.stop() first"
                )
            return session
    _running.clear()
    engine = Engine.start(limits)
    _newest[:] = [engine]
    try:
        session = _session(engine)
    except BaseException:
        engine.stop()
        raise
    _running.append((engine, session))
    return session


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
        if not any(engine.running for engine in _newest):
            raise KeyboardInterrupt
        _newest[0].interrupt()

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, default)
    if any(engine.interrupted for engine in _newest):
        raise KeyboardInterrupt  # no call was waiting


def _session(engine: Engine) -> SparkSession:
    channel: Any = _Channel(engine)
    spark: Any = ConnectSession.builder.channelBuilder(channel).create()
    spark.client.set_retry_policies([_Reconnection()])
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    note_laptop(spark)
    stop_session = spark.stop

    def stop() -> None:
        """Stop the session, and the engine with it."""
        try:
            if engine.running:
                stop_session()
        finally:
            engine.stop()

    spark.stop = stop
    return spark  # type: ignore[no-any-return]


class _Channel(ChannelBuilder):
    """A channel to the engine with readable errors."""

    def __init__(self, engine: Engine) -> None:
        # gRPC would use the proxy of the environment even for local calls, and send the path of the Unix socket as
        # the server's name, which Sail refuses.
        options = [("grpc.enable_http_proxy", 0), ("grpc.default_authority", self.host)]
        super().__init__(channelOptions=options)
        self._engine = engine

    @property
    def host(self) -> str:
        return "localhost"

    def toChannel(self) -> Any:  # the name of pyspark
        return grpc.intercept_channel(self._insecure_channel(self._engine.address), _ErrorMessages(self._engine))


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
            raise RankmetricsError(_LOST) from None
        return wait


class _ErrorMessages(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Raise a ``RankmetricsError`` if the engine has ended, has run out of memory, or has failed without an error."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._logged: dict[str, int] = {}
        """Running query -> the size of the log at its start."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        call = continuation(details, request)
        error = call.exception()
        if error is not None:
            self._explain(error)
        return call

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Iterator[Any]:
        query = request.operation_id
        self._logged.setdefault(query, self._engine.log_size())
        call = continuation(details, request)

        def responses() -> Iterator[Any]:
            """The responses; in place of the one that says the result is complete, an error if rows may be missing."""
            try:
                for response in call:
                    # The client may ask for the end again, over another connection.
                    size = self._logged.pop(query, None) if response.HasField("result_complete") else None
                    if size is not None and (panic := self._engine.panic_since(size)):
                        raise RankmetricsError(
                            f"the laptop engine, Sail, failed inside ({panic}), and rows may be missing; use --engine "
                            "spark"
                        )
                    yield response
            except grpc.RpcError as error:
                self._explain(error)
                raise
            finally:
                call.cancel()

        return responses()

    def _explain(self, error: Any) -> None:
        """Raise a readable error for this one, if its cause is known."""
        if self._engine.interrupted and not self._engine.stopped:
            raise KeyboardInterrupt from None
        if error.code() is grpc.StatusCode.UNAVAILABLE and self._engine.wait_briefly():
            raise RankmetricsError(self._engine.end()) from None
        details = error.details() or ""
        if any(text in details for text in _BROKEN_OFF):
            raise RankmetricsError(_LOST) from None
        if any(text in details for text in _EXHAUSTED):
            raise RankmetricsError(
                f"the laptop engine ran out of its {self._engine.limits.memory / 2**30:.1f} GiB of memory or of disk "
                f"for temporary files; allow it more with {MEMORY}=8g, or use --engine spark"
            ) from None
