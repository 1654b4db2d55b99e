"""A session on the laptop engine, whose failures are sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession as ConnectSession

from rankmetrics_spark.engines import note_laptop
from rankmetrics_spark.errors import ConfigError, RankmetricsError
from rankmetrics_spark.laptop import check_installed
from rankmetrics_spark.laptop.process import MEMORY, Engine, Limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_running: list[tuple[Engine, SparkSession]] = []
"""The engine of this process with its session, while it runs."""
_EXHAUSTED = ("Resources exhausted", "Failed to allocate additional", "used disk space during the spilling")
SETTINGS = {"spark.sql.session.timeZone": "UTC"}


def laptop_session(threads: int | None = None, memory: str | int | None = None) -> SparkSession:
    """A session on the laptop engine: Sail in a child process, without Java; the same one while it runs.

    ``spark.stop()`` ends the engine; so does the end of this process.

    Args:
        threads: Threads that compute; by default $RANKMETRICS_THREADS, or one for each core.
        memory: Size of the memory pool, such as ``4g``; by default $RANKMETRICS_MEMORY, or half of the machine's.

    Raises:
        ConfigError: An argument is wrong, or an engine with other limits is running.
        RankmetricsError: The engine is not installed or does not start.
    """
    check_installed()
    limits = Limits.of(threads, memory)
    for engine, session in _running:
        if engine.running:
            _check_same(engine.limits, limits)
            return session
    _running.clear()
    engine = Engine.start(limits)
    try:
        session = _session(engine)
    except BaseException:
        engine.stop()
        raise
    _running.append((engine, session))
    return session


def _check_same(running: Limits, asked: Limits) -> None:
    if running != asked:
        raise ConfigError(
            f"a laptop engine with {running.threads} threads and {running.memory:,} bytes is running, and others are "
            f"asked for: {asked.threads} and {asked.memory:,}; allowed: the same, or spark.stop() first"
        )


def _session(engine: Engine) -> SparkSession:
    builder = ConnectSession.builder.channelBuilder(_Channel(engine))
    spark: Any = builder.create()
    # The server is this machine's: a lost connection is the end of the engine, and trying again for minutes is useless.
    spark.client.set_retry_policies([])
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    note_laptop(spark)
    spark.stop = partial(_stop, spark.stop, engine)
    return spark  # type: ignore[no-any-return]


def _stop(stop_session: Callable[[], None], engine: Engine) -> None:
    try:
        if engine.running:
            stop_session()
    finally:
        engine.stop()


class _Channel(DefaultChannelBuilder):
    """A channel to the engine that says in a sentence why it is broken."""

    def __init__(self, engine: Engine) -> None:
        # gRPC would send even a call on loopback to the proxy of the environment.
        super().__init__(engine.url, channelOptions=[("grpc.enable_http_proxy", 0)])
        self._engine = engine

    def toChannel(self) -> Any:  # the name of pyspark
        return grpc.intercept_channel(super().toChannel(), _Sentences(self._engine))


class _Sentences(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Raises an error of ours where the engine has ended or has run out of its memory."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        call = continuation(details, request)
        error = call.exception()
        if error is not None:
            self._explain(error)
        return call

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Iterator[Any]:
        return self._stream(continuation(details, request))

    def _stream(self, call: Any) -> Iterator[Any]:
        try:
            yield from call
        except grpc.RpcError as error:
            self._explain(error)
            raise
        finally:
            call.cancel()

    def _explain(self, error: Any) -> None:
        """Raise the sentence for this error, if there is one.

        Raises:
            RankmetricsError: The engine has ended, or a query does not fit into its memory.
        """
        if error.code() is grpc.StatusCode.UNAVAILABLE and self._engine.wait_briefly():
            raise RankmetricsError(self._engine.end()) from None
        if any(sign in (error.details() or "") for sign in _EXHAUSTED):
            raise RankmetricsError(
                f"the laptop engine ran out of its {self._engine.limits.memory / 2**30:.1f} GiB of memory or of disk "
                f"for temporary files; allow it more with {MEMORY}=8g, or use --engine spark"
            ) from None
