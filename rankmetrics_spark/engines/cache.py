"""Files that this package creates for itself, such as a script that starts Java; removed with the environment."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def cache_folder() -> Path:
    """Return a folder in the virtual environment, or a temporary one that is deleted at exit."""
    if sys.prefix != sys.base_prefix:
        path = Path(sys.prefix, "var", "rankmetrics")
        with suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                return path
    folder = Path(tempfile.mkdtemp(prefix="rankmetrics-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def write_cached(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write a file atomically, because other processes may read it; return its path."""
    content = text.encode("utf-8")
    if path.exists() and path.read_bytes() == content:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
        try:
            draft.write(content)
            draft.flush()
            os.chmod(draft.name, mode)
            os.replace(draft.name, path)
        except BaseException:  # leave no draft on a full disk
            os.unlink(draft.name)
            raise
    return path
