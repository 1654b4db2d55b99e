"""Every error that a user can fix, as one small tree; each class has its exit code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


class RankmetricsError(Exception):
    """Root of every error that this package raises on purpose. Exit code 1."""

    exit_code = 1


class ConfigError(RankmetricsError):
    """A wrong argument or config value. Exit code 2."""

    exit_code = 2


class InputError(RankmetricsError):
    """An input that cannot be read, is empty, or lacks a requested column. Exit code 3."""

    exit_code = 3


class OutputError(RankmetricsError):
    """A table that cannot be written. Exit code 1."""


class QualityError(RankmetricsError):
    """More faulty rows than the quality gate allows. Exit code 4."""

    exit_code = 4


class MetricGateError(RankmetricsError):
    """A metric below the limit of its gate. Exit code 5."""

    exit_code = 5


def unknown(what: str, value: object, known: Iterable[str]) -> str:
    """A message for an unknown name: the wrong value, the nearest known name if there is one, and all known names.

    Args:
        what: What kind of name it is, such as ``metric``.
        value: The unknown name.
        known: All allowed names, in the order of the message.

    >>> unknown("metric", "ndgc", ["ap", "ndcg"])
    "unknown metric 'ndgc'; did you mean 'ndcg'? known: ap, ndcg"
    """
    names = list(known)
    near = get_close_matches(str(value).lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return f"unknown {what} '{value}'{hint} known: {', '.join(names)}"


def first_sentence(error: Exception) -> str:
    r"""The first line of an error message from Spark, without Java class names, query plans and stack traces.

    >>> first_sentence(OSError("An error occurred while calling o1.save.\n: java.io.IOException: full.\n  at x"))
    'full'
    """
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("An error occurred while calling")]
    message = lines[0].split(" SQLSTATE")[0] if lines else type(error).__name__
    return re.sub(r"^:? ?[\w.$]*(Exception|Error): ", "", message).strip().rstrip(".;")
