"""Every error that a user can fix, as one small tree; each class has its exit code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from rankmetrics_spark.redaction import without_secrets

LONGEST_WORD = 300
"""Characters without a space that a message shows in full; a longer name is cut."""
LONGEST_MESSAGE = 2_000
"""Characters of a message; a longer one loses its middle, so that its end still says what is allowed."""
_LONGEST_CHECKED = 2_000
_SPACE = re.compile(r"[\s\x1c-\x1f\x85\u2028\u2029]+")


class RankmetricsError(Exception):
    """Root of every error that this package raises on purpose; no message holds a password. Exit code 1.

    A message is one line of bounded length, whatever a name in a config or in the data holds: see ``one_line``.
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        """An error with its one sentence, without the secrets that a path or a setting in it may hold."""
        super().__init__(one_line(str(message)))


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


class QualityWarning(UserWarning):
    """What is odd about a log, but stops nothing."""


class MetricGateError(RankmetricsError):
    """A metric below the limit of its gate. Exit code 5."""

    exit_code = 5


def one_line(message: str) -> str:
    r"""The message in one line of bounded length: line breaks become spaces, control characters are escaped.

    Names that are too long are cut, and the secrets of addresses are hidden.

    >>> one_line("unknown column 'a\nb\x1b[1m'")
    "unknown column 'a b\\x1b[1m'"
    >>> one_line("unknown column '" + "x" * 100_000 + "'; known: a").replace("x" * 150, "xxx")
    "unknown column 'xxx... (100,000 characters)'; known: a"
    """
    line = _SPACE.sub(" ", message).strip()
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    # The patterns of secrets take long on a long word. What is left of it must not hold a part of a secret.
    line = _cut_words(line, _LONGEST_CHECKED, re.compile("[^:=@]*"))
    line = _cut_words(without_secrets(line), LONGEST_WORD, re.compile(".*"))
    if len(line) <= LONGEST_MESSAGE:
        return line
    return f"{line[: LONGEST_MESSAGE - 600]} ... ({len(line):,} characters) ... {line[-500:]}"


def _cut_words(line: str, longest: int, head: re.Pattern[str]) -> str:
    """The line with each longer word cut to what ``head`` matches at its start, at most half of ``LONGEST_WORD``."""

    def cut(word: re.Match[str]) -> str:
        opening = word[0][0] if word[0][0] in "'\"(" else ""
        text = word[0][len(opening) :].rstrip("'\");:,.") or word[0]
        kept = head.match(text[: LONGEST_WORD // 2])
        closing = word[0][len(opening) + len(text) :]
        return f"{opening}{kept[0] if kept else ''}... ({len(text):,} characters){closing[:10]}"

    return re.sub(rf"\S{{{longest},}}", cut, line)


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
    return _plain(lines[0].split(" SQLSTATE")[0]) if lines else type(error).__name__


def root_cause(error: Exception) -> str:
    r"""The innermost message of an error from Spark, without Java class names, tasks and stack traces.

    >>> root_cause(OSError("[TASK_WRITE_FAILED] Failed.\n\tat x\nCaused by: java.io.IOException: No space left\n"))
    'No space left'
    >>> root_cause(OSError("Lost task 0.0 in stage 1.0 (TID 2) (localhost executor driver): java.io.IOException: No"))
    'No'
    """
    causes = [line.removeprefix("Caused by: ") for line in str(error).splitlines() if line.startswith("Caused by: ")]
    return _plain(causes[-1]) if causes else first_sentence(error)


def _plain(line: str) -> str:
    line = re.sub(r"^.*?Lost task [^()]*\([^()]*\) \([^()]*\): ", "", line)
    return re.sub(r"^:? ?([\w.$]*(Exception|Error): )+", "", line).strip().rstrip(".;")


def raised_by_python(error: Exception) -> RankmetricsError | None:
    r"""The error of this package that ended a Python function of Spark, from the trace that Spark hands on.

    >>> trace = "Traceback (most recent call last):\n  File x\n{}.ConfigError: a is 1\n\n\tat org.x".format(__name__)
    >>> raised_by_python(OSError(trace))
    ConfigError('a is 1')
    """
    found = re.search(rf"^{re.escape(__name__)}\.(\w+): (.*)$", str(error), re.MULTILINE)
    kind = globals().get(found[1]) if found else None
    return kind(found[2]) if found and isinstance(kind, type) and issubclass(kind, RankmetricsError) else None


def no_file_system(place: str, error: Exception) -> str | None:
    """What to say where a session lacks the file system of a path; None if the error is about something else.

    >>> no_file_system("foo://a/b", OSError('UnsupportedFileSystemException: No FileSystem for scheme "foo"'))
    "this session has no file system for 'foo'; start it with the jar of one, or use another path"
    """
    if not re.search(r"No FileSystem for scheme|Class [\w.$]*(FileSystem|\.fs\.)[\w.$]* not found", str(error)):
        return None
    scheme = place.partition(":")[0]
    return f"this session has no file system for '{scheme}'; start it with the jar of one, or use another path"
