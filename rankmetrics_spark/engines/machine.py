"""What this process may use of its machine: cores, memory, and a folder for temporary files where there is room.

A container has less than its machine. Its control groups say how much, in version 1 or 2, and so do those above them.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate
from operator import truediv
from pathlib import Path

#: Bytes that temporary files may take: a billion rows take 4 GB.
ROOM = 10 * 2**30


def cores(root: Path = Path("/")) -> int:
    """Cores that this process may keep busy; a part of one counts as one, as in Java."""
    version_1 = zip(_limits(root, "cpu.cfs_quota_us"), _limits(root, "cpu.cfs_period_us"), strict=False)
    quotas = [*_limits(root, "cpu.max"), *(quota + period for quota, period in version_1)]
    # A group without a quota has a period only.
    allowed = [math.ceil(quota[0] / quota[1]) for quota in quotas if len(quota) == 2]
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([own, *allowed]))


def memory(root: Path = Path("/")) -> int:
    """Bytes of memory that this process and those beside it may have."""
    of_groups = (_limits(root, name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes"))
    limits = [size for groups in of_groups for sizes in groups for size in sizes]
    # Windows does not tell.
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 * 2**30
    return min([own, *limits])


def _limits(root: Path, name: str) -> Iterator[list[int]]:
    """The numbers in this file of each control group of this process; ``max`` and -1 are none."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            for controller in controllers.split(","):  # version 2 has no name
                top = root / "sys/fs/cgroup" / controller
                # In a container, a group may have its name outside, where only the topmost is to be seen.
                for folder in accumulate(Path(group).parts[1:], truediv, initial=top):
                    with suppress(OSError):
                        yield [int(word) for word in (folder / name).read_text().split() if word.isdigit()]


def roomy_folder(root: Path = Path("/")) -> Path:
    """The folder for temporary files: $TMPDIR; without it /tmp, or /var/tmp if only that is on a disk with room."""
    usual = Path(tempfile.gettempdir())
    folders = [usual] if os.environ.get("TMPDIR") else [usual, Path("/var", "tmp")]
    return max(folders, key=lambda folder: min(ROOM, _room(folder, root)))


def _room(folder: Path, root: Path) -> int:
    """Free bytes of a folder; none where they would be memory, as in many a /tmp, or may not be used."""
    path, kinds = folder.resolve(), {}
    with suppress(OSError):
        mounts = (root / "proc/self/mounts").read_text().splitlines()
        kinds = {Path(point): kind for _, point, kind, *_ in map(str.split, mounts)}
    kind = next((kinds[each] for each in (path, *path.parents) if each in kinds), "")
    usable = kind not in ("tmpfs", "ramfs") and os.access(path, os.W_OK | os.X_OK)
    return shutil.disk_usage(path).free if usable else 0


def in_words(compute: str | int, amount: str, folder: Path) -> str:
    """What an engine takes of what there is, in a line."""
    free = f" ({shutil.disk_usage(folder).free / 2**30:.0f} GiB free)" if folder.is_dir() else ""
    has = f"{compute} of {cores()} threads, memory {amount} of {memory() / 2**30:.1f} GiB"
    return f"{has}, temporary files in {folder}{free}"
