"""The relay: carries bytes between the client's Unix socket and the engine's TCP port, in a process of its own.

Python steps keep the interpreter of the engine busy for seconds, and a user's program that of the client. A third
process passes on at once what either of them sends.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path

from rankmetrics_spark.engines.sail.port import connection_from

SOCKET = "socket"
"""The name of the Unix socket in its folder."""
_CHUNK = 2**20
_PEER = "iII"
"""Process, user and group of SO_PEERCRED."""


def unix_listener(folder: int) -> socket.socket:
    """A Unix socket that listens in a folder.

    Args:
        folder: A descriptor of the folder: its path may have more than the 107 characters of a Unix socket.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(socket_path(folder))
    listener.listen(16)
    return listener


def socket_path(folder: int) -> str:
    """The path of the Unix socket for a process that has the folder open."""
    return str(Path("/proc/self/fd", str(folder), SOCKET))


def fork_relay(listener: socket.socket, source: socket.socket) -> tuple[int, int]:
    """Start the relay; call it before this process has threads.

    Args:
        listener: Where clients connect; closed in this process.
        source: Holds the port from which the relay connects to the engine; closed in this process.

    Returns:
        The relay's process id, and a pipe: write the engine's port to it as text. The relay ends with the pipe.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        listener.close()
        source.close()
        return pid, writing
    try:
        # The parent of the engine waits for the end of these pipes.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(null, standard)
        os.close(writing)
        _serve(listener, source.getsockname()[1], reading)
    finally:
        os._exit(0)


def _serve(listener: socket.socket, source: int, pipe: int) -> None:
    """Relay each connection of this account, until the engine closes its end of the pipe."""
    port, number = int(os.read(pipe, 16) or 0), 0
    while port:
        ready, _, _ = select.select([listener.fileno(), pipe], [], [])
        if pipe in ready:
            return
        client, _ = listener.accept()
        if _user_of(client) != os.geteuid():
            client.close()
            continue
        try:
            engine = connection_from(source, number, port)
        except OSError:
            client.close()  # the client sees a lost connection, and its process says why
            continue
        number += 1
        for ends in ((client, engine), (engine, client)):
            threading.Thread(target=_pump, args=ends, daemon=True).start()


def _user_of(client: socket.socket) -> int:
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_PEER))
    return int(struct.unpack(_PEER, credentials)[1])


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes, until either end is closed."""
    chunk = memoryview(bytearray(_CHUNK))
    with suppress(OSError):
        while size := source.recv_into(chunk):
            target.sendall(chunk[:size])
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
