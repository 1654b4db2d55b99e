"""Firefox, driven over its own protocol (Marionette) with the standard library: playwright drives a later one only."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("firefox", "firefox-esr")
SETTINGS = {
    "marionette.port": 0, "app.update.enabled": False, "datareporting.policy.dataSubmissionEnabled": False,
    "browser.shell.checkDefaultBrowser": False, "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False, "browser.startup.page": 0, "browser.aboutwelcome.enabled": False,
}  # fmt: skip
ERRORS = """return Services.console.getMessageArray()
    .filter((each) => each instanceof Ci.nsIScriptError && each.sourceName.startsWith("file:"))
    .map((each) => each.errorMessage);"""


class Firefox:
    """A window of Firefox without a screen."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._n = 0
        self._receive()
        self.do("WebDriver:NewSession", capabilities={"alwaysMatch": {"pageLoadStrategy": "normal"}})

    def do(self, name: str, **arguments: Any) -> Any:
        """Send a command of the protocol, and return its answer."""
        self._n += 1
        text = json.dumps([0, self._n, name, arguments]).encode()
        self._socket.sendall(f"{len(text)}:".encode() + text)
        _, _, error, result = self._receive()
        if error:
            raise RuntimeError(f"{name}: {error['message']}")
        return result

    def open(self, file: Path, width: int, height: int = 900) -> None:
        """Open a page of the report in a view of this size, and wait until its charts are drawn.

        A window is never as narrow as a phone, so the view is a frame.
        """
        outside = file.with_suffix(".frame.html")
        style = f"position:fixed;inset:0;width:{width}px;height:{height}px;border:0"
        outside.write_text(f'<!doctype html><iframe style="{style}" src="{file.name}"></iframe>', encoding="utf-8")
        self.do("WebDriver:SetWindowRect", width=max(width, 500), height=height + 200)
        self.do("WebDriver:Navigate", url=outside.as_uri())
        self.do("WebDriver:SwitchToFrame", id=0)
        self.wait("return Boolean(document.documentElement.dataset.drawn)")

    def wait(self, script: str, seconds: float = 30) -> None:
        """Wait until a script of the page returns true."""
        end = time.monotonic() + seconds
        while not self.script(script):
            assert time.monotonic() < end, script
            time.sleep(0.05)

    def script(self, text: str, arguments: Sequence[Any] = ()) -> Any:
        """What a script of the page returns."""
        return self.do("WebDriver:ExecuteScript", script=text, args=[*arguments])["value"]

    def errors(self) -> list[str]:
        """What the scripts and styles of pages have reported."""
        self.do("Marionette:SetContext", value="chrome")
        result: list[str] = self.script(ERRORS)
        self.do("Marionette:SetContext", value="content")
        return result

    def picture(self) -> str:
        """What the window shows, as a PNG in base64."""
        return str(self.do("WebDriver:TakeScreenshot", full=False)["value"])

    def _receive(self) -> Any:
        """Each message stands behind its length."""
        head = b""
        while not head.endswith(b":"):
            head += self._read(1)
        size, body = int(head[:-1]), b""
        while len(body) < size:
            body += self._read(size - len(body))
        return json.loads(body)

    def _read(self, size: int) -> bytes:
        data = self._socket.recv(size)
        assert data, "Firefox has ended"
        return data


@contextmanager
def firefox(folder: Path) -> Iterator[Firefox]:
    """Start Firefox with an empty profile in this folder; it ends with the block."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program, "Firefox not found: apt install firefox-esr"
    lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in SETTINGS.items())
    (folder / "user.js").write_text("".join(lines))
    options = ["--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", str(folder)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([program, *options], env={"HOME": str(folder)}, **silent)
    try:
        port = folder / "MarionetteActivePort"
        end = time.monotonic() + 60
        while not (port.exists() and port.read_text()):
            assert process.poll() is None and time.monotonic() < end, "Firefox does not start"
            time.sleep(0.1)
        yield Firefox(int(port.read_text()))
    finally:
        process.terminate()
        process.wait(30)
