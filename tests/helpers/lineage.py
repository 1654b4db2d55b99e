"""An OpenLineage endpoint on this machine: it keeps what it is sent, and ends with its block."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Endpoint:
    """What was sent to an endpoint: the events in their order, and how many it refused; ``status`` is its answer."""

    url: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    status: int = 201
    refused: int = 0

    @property
    def kinds(self) -> list[str]:
        return [event["eventType"] for event in self.events]


@contextmanager
def lineage_endpoint(status: int = 201) -> Iterator[Endpoint]:
    """Serve on a free port of 127.0.0.1."""
    endpoint = Endpoint(status=status)

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/api/v1/lineage"
            endpoint.refused += endpoint.status >= 400
            if endpoint.status < 400:
                endpoint.events.append(content)
            self.send_response(endpoint.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
