"""The child process of the laptop engine: serves Spark Connect to its parent's account until the parent ends."""

from __future__ import annotations

import os
import select
import shutil
import socket
import sys
import threading
from contextlib import suppress

from rankmetrics_spark.engines.sail.relay import (
    accepted_connections,
    close_to_others,
    fork_relay,
    listening_socket,
    reserved_port,
)
from rankmetrics_spark.errors import RankmetricsError

FOLDER, LISTENER = "RANKMETRICS_LAPTOP_FOLDER", "RANKMETRICS_LAPTOP_LISTENER"
"""Environment variables: the folder for temporary files, removed at the end; the descriptor of the Unix socket."""
READY, DISTURBED = "ready", "disturbed"
"""The first line on stdout: clients can connect; or somebody else may have connected before the port was closed."""


def serve() -> None:
    """Start the server, print on stdout whether it is ready, and wait until the parent closes stdin or is gone."""
    parent = os.getppid()
    source = reserved_port()
    source_port = source.getsockname()[1]
    relay, pipe = fork_relay(socket.socket(fileno=int(os.environ[LISTENER])), source)
    # Without a file, the client of Spark takes the main module for a run of its own doctests.
    sys.modules["__main__"].__file__ = __file__
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    before = accepted_connections()
    server.start(background=True)
    try:
        listening = listening_socket()
        close_to_others(listening, source_port)
    except RankmetricsError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    if accepted_connections() == before:
        os.write(pipe, str(listening.getsockname()[1]).encode())
        with suppress(BrokenPipeError):  # the parent has gone already
            print(READY, flush=True)
            threading.Thread(target=_load_steps, daemon=True).start()
            _wait_for_end_of(parent, relay)
    else:
        print(DISTURBED, flush=True)
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    # Not sys.exit: a query that still runs must not keep this process.
    os._exit(0)


def _load_steps() -> None:
    """Import what the first query's Python steps need while the parent is still planning it."""
    import pyspark.worker  # noqa: F401

    import rankmetrics_spark.road.aggregation
    import rankmetrics_spark.road.scoring  # noqa: F401


def _wait_for_end_of(parent: int, relay: int) -> None:
    """Return when nobody can write to stdin any more, when another process has become the parent, or without a relay.

    Stdin alone is not enough: a process that the parent has forked keeps its end of the pipe open.
    """
    while os.getppid() == parent and os.waitpid(relay, os.WNOHANG) == (0, 0):
        ready, _, _ = select.select([sys.stdin], [], [], 0.5)
        if ready and not os.read(sys.stdin.fileno(), 1):
            return
