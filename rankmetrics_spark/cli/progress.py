"""The live progress of a command: the stage, how long it takes, and the stages that are done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from rankmetrics_spark.report import printable


@contextmanager
def live(console: Console) -> Iterator[Callable[[str], None]]:
    """Show stages on a terminal; print nothing elsewhere, where nobody watches.

    Args:
        console: Where to show them.

    Yields:
        A function that takes the words for the stage that begins.
    """
    if not console.is_terminal:
        yield lambda text: None
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
        self.text, self.since = printable(text), time.monotonic()
        self.progress.reset(self.task, description=self.text)

    def end(self) -> None:
        """Leave a line for the stage that is done."""
        if self.text:
            seconds = time.monotonic() - self.since
            self.progress.console.print(Text(f"  {self.text}  {seconds:.1f} s", style="dim"), soft_wrap=True)
        self.text = ""
