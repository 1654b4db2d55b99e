"""Make the archive of Java's classes with which Spark starts faster; run it with ``python -m``.

Java writes the archive at the end of a run: here, of a small demo.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rankmetrics_spark.engines.choice import SUBMITTED
from rankmetrics_spark.engines.class_archive import ClassArchive
from rankmetrics_spark.engines.spark import class_archive
from rankmetrics_spark.errors import RankmetricsError, first_sentence

USERS = 1000
"""Users of the demo. More of them load no other classes."""
_LONGEST = 900
"""Seconds for the demo, which takes less than one minute."""


def make(archive: ClassArchive) -> Path:
    """Make the archive and delete those of other Javas and Sparks.

    Args:
        archive: What to make; where it is there already, it is replaced.

    Returns:
        Its path.

    Raises:
        RankmetricsError: It cannot be made; then there is no part of it.
    """
    stem, files = archive.stem, list[Path]()
    if stem is None:
        raise RankmetricsError(
            "only a virtual environment can keep it, in a path without ':', with Spark in a path without spaces"
        )
    try:
        with tempfile.TemporaryDirectory(prefix="classes-", dir=stem.parent, ignore_cleanup_errors=True) as folder:
            draft = Path(folder, "draft")
            if _lacks_base(archive.java):
                _dump_base(archive.java, draft)
                # The archive names its base, which is in its place before.
                files.append(_placed(draft, f"{stem}.base"))
            options = [f"-XX:SharedArchiveFile={base}" for base in files]
            _train([*options, archive.silence, f"-XX:ArchiveClassesAtExit={draft}"], Path(folder, "demo"))
            files.append(_placed(draft, str(stem)))
    except (OSError, subprocess.SubprocessError, RankmetricsError) as error:
        for file in files:
            file.unlink(missing_ok=True)
        raise RankmetricsError(first_sentence(error)) from error
    _clean_up(files)
    return files[-1]


def _lacks_base(java: Path) -> bool:
    """Whether a Java comes without the archive of its own classes, on which others build."""
    return subprocess.run([java, "-Xshare:on", "-version"], capture_output=True, timeout=_LONGEST).returncode != 0


def _dump_base(java: Path, draft: Path) -> None:
    """Archive Java's own classes."""
    # A large heap has longer pointers, which would not fit a session's heap; by default it grows with the machine.
    options = ["-Xmx1g", "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"]
    subprocess.run([java, *options], capture_output=True, timeout=_LONGEST)


def _placed(draft: Path, stem: str) -> Path:
    """Move what Java has written to a name with its size, once it is on the disk.

    Raises:
        RankmetricsError: Java has written nothing.
    """
    if not draft.is_file():
        raise RankmetricsError("this Java writes none, or the disk is full")
    with open(draft, "rb") as written:
        os.fsync(written.fileno())
    return draft.replace(f"{stem}.{draft.stat().st_size}.jsa")


def _train(options: list[str], output: Path) -> None:
    """Run the demo in a process of its own, as a user does, and wait until its JVM has ended too."""
    demo = [sys.executable, "-m", "rankmetrics_spark", "demo", "--engine", "spark", "--users", str(USERS)]
    # The JVM outlives the command, but it holds the same pipes: run() returns when the last process has closed them.
    done = subprocess.run(
        [*demo, "--output", str(output)],
        env=_environment(options),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LONGEST,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RankmetricsError(f"the demo fails: {said[-1]}")


def _environment(options: list[str]) -> Mapping[str, str]:
    """The environment of the demo. The JVM of Spark takes this variable, and no other Java does."""
    kept = {name: value for name, value in os.environ.items() if name != SUBMITTED}
    return kept | {"SPARK_SUBMIT_OPTS": shlex.join(options)}


def _clean_up(kept: list[Path]) -> None:
    """Delete other archives, and drafts of a process that was killed."""
    for found in kept[0].parent.glob("classes-*"):
        if found.is_dir():
            shutil.rmtree(found, ignore_errors=True)
        elif found not in kept:
            found.unlink(missing_ok=True)


def main() -> None:
    """Make the archive and say so in one sentence; exit code 1 if it cannot be made."""
    try:
        path = make(class_archive())
    except RankmetricsError as error:
        print(f"no archive of Java's classes: {error}; Spark works without it", file=sys.stderr)
        sys.exit(1)
    print(f"{path}: an archive of Java's classes, {path.stat().st_size / 1e6:.0f} MB; Spark starts faster with it")


if __name__ == "__main__":
    main()
