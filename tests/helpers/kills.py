"""Runs that are killed, or meet an error, at any step that changes their output."""

from collections.abc import Callable
from typing import Any

import pytest

from rankmetrics_spark.sinks import Files


class Killed(BaseException):
    """Not an exception that code may catch by accident."""


def count_down(
    monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException | None = None, lasting: bool = True
) -> Callable[[], int]:
    """Kill the process, as far as the code can tell, after so many calls that change the output; or raise an error."""
    calls = [0]
    for name in ("put", "replace", "remove", "_write_stream", "remove_tree"):
        function = getattr(Files, name)

        def inner(*arguments: Any, function: Any = function) -> Any:
            calls[0] += 1
            if calls[0] > after and (lasting or calls[0] == after + 1):
                raise error or Killed
            return function(*arguments)

        monkeypatch.setattr(Files, name, inner)
    return lambda: calls[0]
