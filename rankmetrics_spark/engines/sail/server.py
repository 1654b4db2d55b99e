"""The child process of the laptop engine, which only this account reaches.

Its TCP port is closed, and connections are relayed to it from a private Unix socket.

Sail listens on TCP without a password. A filter on its listening socket therefore drops every packet that does not come
from one source port. Other accounts cannot use that port while this account holds it (``SO_REUSEPORT`` shares a port
among sockets of one account). Neither needs a privilege.

The relay is a separate process: Python steps keep the engine's interpreter busy for seconds, and a user's program keeps
the client's interpreter busy.
"""

import ctypes
import os
import resource
import select
import shutil
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from rankmetrics_spark import doors, errors as err

ANYWHERE = "0.0.0.0"  # noqa: S104  nothing listens there: holding a port on every address keeps others from each of them
_SO_ATTACH_FILTER = 26
_INSTRUCTION = "HBBI"
#: Instructions of a classic BPF program.
_LOAD_HALF, _EQUALS, _RETURN = 0x28, 0x15, 0x06
#: Where TCP_INFO has the length of the queue of a socket that listens.
_BACKLOG = 24


def reserved_port() -> socket.socket:
    """Return a socket that reserves a source port on every local address for this account."""
    return _shared_socket((ANYWHERE, 0))


def connection_from(source: int, number: int, port: int) -> socket.socket:
    """Connect to a port on loopback from a reserved source port."""
    address = socket.inet_ntoa(struct.pack("!I", (127 << 24) + 2 + number % 2**20))
    connection = _shared_socket((address, source))
    connection.connect(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _shared_socket(address: tuple[str, int]) -> socket.socket:
    shared = socket.socket()
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind(address)
    return shared


@contextmanager
def one_descriptor_left() -> Iterator[int]:
    """In this block, this process can open one more file or socket, of the number that is given.

    What listens on it accepts no connection: the system looks for a free descriptor first.
    """
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    held = [os.dup(0)]
    while held[-1] <= highest:
        held.append(os.dup(0))
    left = held.pop()
    os.close(left)
    resource.setrlimit(resource.RLIMIT_NOFILE, (left + 1, limits[1]))
    try:
        yield left
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in held:
            os.close(descriptor)


def waiting_connections(listener: socket.socket) -> int:
    """Count the connections that nobody has accepted yet, also those that the other end has closed."""
    state = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BACKLOG + 4)
    return int(struct.unpack_from("I", state, _BACKLOG)[0])


def listening_socket() -> socket.socket:
    """Return the one TCP socket on which this process listens."""
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    listeners = [descriptor for descriptor in descriptors if _listens(descriptor)]
    if len(listeners) != 1:
        raise err.RankmetricsError(f"it listens on {len(listeners)} ports, which cannot be closed to other accounts")
    return socket.socket(fileno=os.dup(listeners[0]))


def _listens(descriptor: int) -> bool:
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                is_inet = connection.family in (socket.AF_INET, socket.AF_INET6)
                is_tcp = is_inet and connection.type == socket.SOCK_STREAM
                return is_tcp and bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False


def close_to_others(listener: socket.socket, source: int) -> None:
    """Drop every packet to a listening socket, and to the connections that it accepts, except from a source port."""
    program = [(_LOAD_HALF, 0, 0, 0), (_EQUALS, 0, 1, source), (_RETURN, 0, 0, 2**32 - 1), (_RETURN, 0, 0, 0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack(_INSTRUCTION, *instruction) for instruction in program))
    try:
        pointer = struct.pack("HP", len(program), ctypes.addressof(code))
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
        # Some sandboxes ignore unknown options. The length of a filter is its number of instructions.
        size = len(program) * struct.calcsize(_INSTRUCTION)
        if len(listener.getsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, size)) != len(program):
            raise OSError("the filter is not there")
    except OSError as error:
        raise err.RankmetricsError(f"its port cannot be closed to other accounts here ({error})") from None


def start_closed(start: Callable[[], object], source: int) -> int:
    """Let this process listen, and close its port to others before it can accept one of them.

    Returns:
        The port; 0 if somebody has connected to it before it was closed.
    """
    with one_descriptor_left() as descriptor:
        start()
        listener = socket.socket(fileno=descriptor)
        close_to_others(listener, source)
        somebody = waiting_connections(listener) > 0
        port: int = listener.getsockname()[1]
        listener.detach()
        if somebody:
            return 0
    listening_socket().close()
    return port


#: The name of the Unix socket in its folder.
SOCKET = "socket"
_CHUNK = 2**20
#: Process, user and group of SO_PEERCRED.
_PEER = "iII"


def unix_listener(folder: int) -> socket.socket:
    """Listen on a Unix socket in a folder."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(socket_path(folder))
    listener.listen(16)
    return listener


def socket_path(folder: int) -> str:
    """Return the path of the Unix socket for a process that has the folder open."""
    return str(Path("/proc/self/fd", str(folder), SOCKET))


def fork_relay(listener: socket.socket, source: socket.socket) -> tuple[int, int]:
    """Start the relay, before this process has threads; return its id, and a pipe for the engine's port as text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reader)
        listener.close()
        source.close()
        return pid, writer
    try:
        # The engine's parent waits until these pipes are closed.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(null, stream)
        os.close(writer)
        _serve(listener, source.getsockname()[1], reader)
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
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_PEER))
        if struct.unpack(_PEER, credentials)[1] != os.geteuid():
            client.close()
            continue
        try:
            engine = connection_from(source, number, port)
        except OSError:
            client.close()  # the client sees a lost connection and reports why the engine ended
            continue
        number += 1
        for pair in ((client, engine), (engine, client)):
            threading.Thread(target=_forward, args=pair, daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    """Forward bytes until either end is closed."""
    chunk = memoryview(bytearray(_CHUNK))
    with suppress(OSError):
        while size := source.recv_into(chunk):
            target.sendall(chunk[:size])
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


#: Environment variables: the folder for temporary files, removed at the end; the descriptor of the Unix socket.
FOLDER, LISTENER = "RANKMETRICS_LAPTOP_FOLDER", "RANKMETRICS_LAPTOP_LISTENER"
#: The first line on stdout: clients can connect; or it may have been too late to close the port.
READY, DISTURBED = "ready", "disturbed"


def serve() -> None:
    """Start the server, print its status on stdout, and wait until the parent closes stdin or ends."""
    parent = os.getppid()
    source = reserved_port()
    source_port = source.getsockname()[1]
    relay, pipe = fork_relay(socket.socket(fileno=int(os.environ[LISTENER])), source)
    # If the main module has no file, Spark's client would run its own doctests.
    sys.modules["__main__"].__file__ = __file__
    from pysail.spark import SparkConnectServer

    # The engine asks for its version when a session begins. While a thread still loads it, there may be none, and the
    # engine would take the settings of Spark 3.5.
    import_module("pyspark")
    server = SparkConnectServer("127.0.0.1", 0)
    try:
        port = start_closed(lambda: server.start(background=True), source_port)
    except err.RankmetricsError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    except OSError as error:  # another thread of the engine had a file open, in the place of the socket
        print(error, file=sys.stderr, flush=True)
        port = 0
    if port:
        os.write(pipe, str(port).encode())
        with suppress(BrokenPipeError):  # the parent has ended
            print(READY, flush=True)
            # While the parent still plans the first query.
            threading.Thread(target=lambda: [*map(import_module, doors.LOADED_AHEAD)], daemon=True).start()
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
    # A copy, since the descriptor itself was once found closed, by something else that runs in this process.
    stdin = os.dup(sys.stdin.fileno())
    while os.getppid() == parent and os.waitpid(relay, os.WNOHANG) == (0, 0):
        ready, _, _ = select.select([stdin], [], [], 0.5)
        if ready and not os.read(stdin, 1):
            return
