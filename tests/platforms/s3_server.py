"""An S3 server on loopback, and a bucket that is read and written without Spark."""

import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.helpers.commands import ROOT, spark_environment
from tests.platforms.support import Running


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server, accessed without Spark."""

    server: str
    name: str

    @property
    def settings(self) -> dict[str, str]:
        """What Spark needs to read and write it; the server takes any key."""
        return {
            "fs.s3a.endpoint": self.server,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": "somebody",
            "fs.s3a.secret.key": "something",
        }

    def ask(self, path: str, method: str = "GET", data: bytes | None = None) -> bytes:
        # Without a content type the server treats a request as form data; without credentials, as anonymous.
        key = "AWS4-HMAC-SHA256 Credential=somebody/20261120/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        headers = {"Content-Type": "application/octet-stream", "Authorization": key}
        request = urllib.request.Request(f"{self.server}/{self.name}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def objects(self, prefix: str) -> dict[str, tuple[str, int]]:
        """Key -> (content hash and modification time, size)."""
        listing = ElementTree.fromstring(self.ask(f"?list-type=2&prefix={prefix}"))
        assert listing.findtext("{*}IsTruncated") == "false"
        return {
            str(one.findtext("{*}Key")): (
                f"{one.findtext('{*}ETag')} {one.findtext('{*}LastModified')}",
                int(str(one.findtext("{*}Size"))),
            )
            for one in listing.iterfind("{*}Contents")
        }

    def download(self, prefix: str, folder: Path) -> Path:
        """Download everything below a prefix; keys that end with ``/`` become empty folders."""
        shutil.rmtree(folder, ignore_errors=True)
        for key in self.objects(prefix):
            place = folder / key.removeprefix(prefix).lstrip("/")
            (place if key.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
            if not key.endswith("/"):
                place.write_bytes(self.ask(f"/{urllib.request.quote(key)}"))
        return folder


@contextmanager
def s3_server(folder: Path) -> Iterator[Bucket]:
    """A server in a process of its own, with an empty bucket; its log goes to ``folder``."""
    command = [str(ROOT / ".venvs" / "s3" / "bin" / "python"), "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = Running.start(command, folder / "server.log", spark_environment(), folder)
    try:
        address = server.wait_for(r"Running on (http://127\.0\.0\.1:\d+)", 60)[1]
        bucket = Bucket(address, "lake")
        bucket.ask("", "PUT", b"")
        yield bucket
    finally:
        server.stop()
