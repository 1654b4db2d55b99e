"""Errors of Spark and of the file system while an output is written -> one sentence that says what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rankmetrics_spark.errors import OutputError, RankmetricsError, no_file_system

_READING = re.compile(r"while reading file|CANNOT_READ_FILE|FAILED_READ_FILE", re.IGNORECASE)
"""The job that writes also reads the input; such an error is about the input."""
_CAUSES = {
    r"No space left on device|Disk quota exceeded": "the disk is full, here or where Spark keeps temporary files; "
    "allowed: a place with more space",
    r"Read-only file system": "its file system is read-only; allowed: a folder that this user may write to",
    r"Permission ?denied|AccessDenied|AccessControlException|Operation not permitted|Mkdirs failed to create": "this "
    "user may not write there; allowed: a folder that they may write to",
    r"ParentNotDirectoryException|not a directory|FileAlreadyExistsException|File exists": "it, or a folder above it, "
    "is a file; allowed: a folder, or a new path",
    r"UnknownHostException": "its host is not known; allowed: a path on a file system that this session reaches",
    r"URISyntaxException|Wrong FS": "it is no address that Spark can read; allowed: a path such as out or s3a://bucket/out",
}
_GONE = re.compile(
    r"FileNotFoundException|FILE_NOT_EXIST|DOES_NOT_EXIST|PATH_NOT_FOUND|does not exist|No such file", re.IGNORECASE
)


def output_failure(path: str, error: Exception) -> OutputError | None:
    """The sentence for an output that cannot be written; None if the error is about something else.

    Args:
        path: The output, as the user named it.
        error: What Spark or the file system raised.

    >>> print(output_failure("out", OSError("java.io.IOException: No space left on device")))
    cannot write to 'out': the disk is full, here or where Spark keeps temporary files; allowed: a place with more space
    """
    text = str(error)
    if _READING.search(text):
        return None
    if lacking := no_file_system(path, error):
        return OutputError(f"cannot write to '{path}': {lacking}")
    for pattern, sentence in _CAUSES.items():
        if re.search(pattern, text, re.IGNORECASE):
            return OutputError(f"cannot write to '{path}': {sentence}")
    return None


@contextmanager
def writing(path: str, tables: bool = False) -> Iterator[None]:
    """Report what a user can fix about the output in one sentence; other errors pass.

    Args:
        path: The output, as the user named it.
        tables: Tables are written that other runs may write too: a file that vanishes was theirs.
    """
    try:
        yield
    except RankmetricsError:
        raise
    except Exception as error:  # classic sessions raise a class of py4j
        found = output_failure(path, error)
        if found is None and tables and _GONE.search(str(error)):
            found = OutputError(
                f"cannot write to '{path}': files vanished while they were written, probably because another run "
                "writes the same partitions; run this again when it has ended"
            )
        if found is None:
            raise
        raise found from error
