"""Files that this package makes for itself, such as a script that starts Java; kept where they go with the package."""

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
    """A folder in the virtual environment, deleted with it; otherwise a private one that is deleted at exit."""
    if sys.prefix != sys.base_prefix:
        path = Path(sys.prefix, "var", "rankmetrics")
        with suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                return path
    private = Path(tempfile.mkdtemp(prefix="rankmetrics-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return private


def write_cached(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write a file in one step, because another process may read it at the same time; return its path."""
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
        except BaseException:  # a full disk keeps no draft
            os.unlink(draft.name)
            raise
    return path
