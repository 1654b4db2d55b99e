"""What a command prints on stderr: live progress, and one sentence with the exit code of an error."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NoReturn

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from rankmetrics_spark import errors as err, report as rep

#: Whether each stage is printed with its seconds, and the stack trace of an error of Spark.
verbose: ContextVar[bool] = ContextVar("verbose", default=False)


class Folding(Console):
    """Breaks sentences at spaces on a terminal, which would break them anywhere; a path stays whole."""

    def lines(self, *texts: str) -> None:
        """Print sentences, each on a line of its own."""
        for text in texts:
            self.print(rep.folded(text, self.width) if self.is_terminal else text, soft_wrap=True)


@contextmanager
def exit_codes(say: Folding) -> Iterator[None]:
    """Report a user's mistake in one sentence and exit with its code.

    Args:
        say: Console for the sentence; a quiet console prints it too.
    """
    with suppress(ImportError):  # Spark 3.5 has no such logger
        from pyspark.logger import PySparkLogger

        # It would log a stack trace of Java for an error that is reported in one sentence.
        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    try:
        yield
    except err.RankmetricsError as error:
        _fail(say, err.lost_engine(error) or error)
    except KeyboardInterrupt:
        _fail(say, err.RankmetricsError("interrupted"))
    except BrokenPipeError:  # the reader of the output has closed it
        raise
    except UnicodeEncodeError as error:  # an old locale has no name for this file
        text = f"'{error.object[: err.LONGEST_WORD]}' cannot be written in {error.encoding}"
        _fail(say, err.ConfigError(f"{text}; allowed: UTF-8, as with PYTHONUTF8=1"))
    except OSError as error:
        if lost := err.lost_engine(error):
            _fail(say, lost)
        where = f" '{error.filename}'" if error.filename else ""
        _fail(say, err.RankmetricsError(f"cannot use the file or folder{where}: {error.strerror or error}"))
    except Exception as error:
        if ours := err.raised_by_python(error) or err.lost_engine(error):
            _fail(say, ours)
        kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
        # An error of our own code on executors is a bug and keeps its trace.
        of_our_code = any(name.endswith(".PythonException") for name in kinds)
        of_spark = not of_our_code and any(name.startswith(("pyspark.errors.", "py4j.")) for name in kinds)
        if verbose.get() or os.environ.get(err.TRACE) or not of_spark:
            raise
        # An error of Spark means that pyspark is installed.
        from rankmetrics_spark.engines import name_of_engine

        failed = f"{name_of_engine()} failed: {err.root_cause(error)}"
        _fail(say, err.RankmetricsError(f"{failed}; -v, or {err.TRACE}=1, shows its whole error"))


def _fail(say: Folding, error: err.RankmetricsError) -> NoReturn:
    say.quiet = False
    say.lines(f"rankmetrics: {error}")
    sys.exit(error.exit_code)


@contextmanager
def live(console: Console) -> Iterator[Callable[[str], None]]:
    """Show stages on a terminal; elsewhere print a line for each as it begins, or as it ends with ``-v``.

    Args:
        console: Where to show them.

    Yields:
        A function that takes the words for the stage that begins.
    """
    if console.quiet:
        yield lambda text: None
        return
    if not (console.is_terminal or verbose.get()):
        yield lambda text: console.print(Text(f"{err.printable(text)} ..."), soft_wrap=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description} ...", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        stages = _Stages(progress, progress.add_task("", start=False))
        yield stages.begin
        stages.end()


@dataclass
class _Stages:
    progress: Progress
    task: TaskID
    text: str = ""
    since: float = field(default_factory=time.monotonic)

    def begin(self, text: str) -> None:
        self.end()
        self.text, self.since = err.printable(text), time.monotonic()
        self.progress.reset(self.task, description=self.text)

    def end(self) -> None:
        """Print a line for the completed stage."""
        if self.text:
            seconds = time.monotonic() - self.since
            self.progress.console.print(Text(f"  {self.text}  {seconds:.1f} s", style="dim"), soft_wrap=True)
        self.text = ""
