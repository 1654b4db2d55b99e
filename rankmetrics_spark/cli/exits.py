"""How a command of this package ends when it fails: one sentence on stderr, and the exit code of the error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from rich.console import Console

from rankmetrics_spark.errors import RankmetricsError, lost_engine, raised_by_python, root_cause

TRACE = "RANKMETRICS_TRACE"
"""Environment variable: any value shows the stack trace of an error of Spark."""


@contextmanager
def exit_codes(say: Console) -> Iterator[None]:
    """Report a user's mistake in one sentence and exit with its code.

    Args:
        say: Where the sentence goes; an error is said even if the console is quiet.
    """
    _mute()
    try:
        yield
    except RankmetricsError as error:
        _fail(say, error)
    except KeyboardInterrupt:
        _fail(say, RankmetricsError("interrupted"))
    except BrokenPipeError:  # the reader of our output has gone
        raise
    except OSError as error:
        if lost := lost_engine(error):
            _fail(say, lost)
        where = f" '{error.filename}'" if error.filename else ""
        _fail(say, RankmetricsError(f"cannot use the file or folder{where}: {error.strerror or error}"))
    except Exception as error:
        if ours := raised_by_python(error) or lost_engine(error):
            _fail(say, ours)
        if os.environ.get(TRACE) or not _of_spark(error):
            raise
        # Without Spark there is no error of Spark.
        from rankmetrics_spark.engines import name_of_engine

        failed = f"{name_of_engine()} failed: {root_cause(error)}"
        _fail(say, RankmetricsError(f"{failed}; set {TRACE}=1 to see its whole error"))


def _mute() -> None:
    """Keep pyspark from logging a Java stack trace for an error that we report in one sentence."""
    with suppress(ImportError):  # Spark 3.5 has no such logger
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def _fail(say: Console, error: RankmetricsError) -> NoReturn:
    say.quiet = False
    say.print(f"rankmetrics: {error}", markup=False, soft_wrap=True)
    sys.exit(error.exit_code)


def _of_spark(error: Exception) -> bool:
    """Whether Spark raised the error; one of our own code on its executors is a bug, and keeps its trace."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    ours = any(name.endswith(".PythonException") for name in kinds)
    return not ours and any(name.startswith(("pyspark.errors.", "py4j.")) for name in kinds)
