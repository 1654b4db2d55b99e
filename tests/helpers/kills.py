"""Runs that are killed, or meet an error, at any step that changes their output."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from rankmetrics_spark.sinks import Files


class Killed(BaseException):
    """Not an exception that code may catch by accident."""


class FullDisk(OSError):
    """A disk that is full."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, "No space left on device")


def count_down(
    monkeypatch: pytest.MonkeyPatch, after: int, error: type[BaseException] = Killed, lasting: bool = True
) -> Callable[[], int]:
    """Kill the process, as far as the code can tell, after so many calls that change the output; or raise an error."""
    calls = [0]
    for name in ("put", "replace", "remove", "_write_stream", "remove_tree"):
        function = getattr(Files, name)

        def inner(*arguments: Any, function: Any = function) -> Any:
            calls[0] += 1
            if calls[0] > after and (lasting or calls[0] == after + 1):
                raise error
            return function(*arguments)

        monkeypatch.setattr(Files, name, inner)
    return lambda: calls[0]
