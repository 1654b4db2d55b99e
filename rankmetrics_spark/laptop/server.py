"""The child process of the laptop engine: serves Spark Connect on loopback until its parent ends."""

from __future__ import annotations

import os
import select
import shutil
import sys
import threading
from contextlib import suppress

FOLDER = "RANKMETRICS_LAPTOP_FOLDER"
"""Environment variable: the folder for temporary files, removed at the end."""


def serve() -> None:
    """Start the server, print its port on stdout, and wait until the parent closes stdin or is gone."""
    parent = os.getppid()
    # Without a file, the client of Spark takes the main module for a run of its own doctests.
    sys.modules["__main__"].__file__ = __file__
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    address = server.listening_address
    with suppress(BrokenPipeError):  # the parent has gone already
        print(address[1] if address else "", flush=True)
        threading.Thread(target=_load_steps, daemon=True).start()
        _wait_for_end_of(parent)
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    # Not sys.exit: a query that still runs must not keep this process.
    os._exit(0)


def _load_steps() -> None:
    """Import what the first query's Python steps need while the parent is still planning it."""
    import pyspark.worker  # noqa: F401

    import rankmetrics_spark.aggregation
    import rankmetrics_spark.scoring  # noqa: F401


def _wait_for_end_of(parent: int) -> None:
    """Return when nobody can write to stdin any more, or when another process has become the parent.

    Stdin alone is not enough: a process that the parent has forked keeps its end of the pipe open.
    """
    while os.getppid() == parent:
        ready, _, _ = select.select([sys.stdin], [], [], 0.5)
        if ready and not os.read(sys.stdin.fileno(), 1):
            return
