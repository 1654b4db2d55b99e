"""The child process of the laptop engine: serves Spark Connect to its parent's account until the parent ends."""

from __future__ import annotations

import os
import select
import shutil
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module

from rankmetrics_spark.doors import LOADED_AHEAD
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
"""The first line on stdout: clients can connect; or another account may have connected before the port was closed."""


def serve() -> None:
    """Start the server, print its status on stdout, and wait until the parent closes stdin or ends."""
    parent = os.getppid()
    source = reserved_port()
    source_port = source.getsockname()[1]
    relay, pipe = fork_relay(socket.socket(fileno=int(os.environ[LISTENER])), source)
    # If the main module has no file, Spark's client would run its own doctests.
    sys.modules["__main__"].__file__ = __file__
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    n_before = accepted_connections()
    server.start(background=True)
    try:
        listener = listening_socket()
        close_to_others(listener, source_port)
    except RankmetricsError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    if accepted_connections() == n_before:
        os.write(pipe, str(listener.getsockname()[1]).encode())
        with suppress(BrokenPipeError):  # the parent has ended
            print(READY, flush=True)
            # While the parent still plans the first query.
            threading.Thread(target=lambda: [*map(import_module, LOADED_AHEAD)], daemon=True).start()
            _wait_for_end_of(parent, relay)
    else:
        print(DISTURBED, flush=True)
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    # Not sys.exit: a query that still runs must not keep this process.
    os._exit(0)


def _wait_for_end_of(parent: int, relay: int) -> None:
    """Return when stdin is closed, the parent has ended, or the relay has ended.

    Stdin alone is not enough: a process that the parent has forked keeps the pipe open.
    """
    while os.getppid() == parent and os.waitpid(relay, os.WNOHANG) == (0, 0):
        ready, _, _ = select.select([sys.stdin], [], [], 0.5)
        if ready and not os.read(sys.stdin.fileno(), 1):
            return
