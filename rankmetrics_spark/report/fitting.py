"""Wide tables: whole where the output is a file or a pipe, in blocks of columns on a terminal that is too narrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

C = TypeVar("C")

ANY_WIDTH = 1_000_000
"""Characters in a line where nobody looks at a screen."""


def printable(text: str) -> str:
    r"""The text with its control characters escaped, so that an id can neither break a line nor colour the terminal.

    >>> printable("a\nb\x1b[1m")
    'a\\nb\\x1b[1m'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_fitting(build: Callable[[Sequence[C]], Table], columns: Sequence[C], *titles: str) -> None:
    """Print a table on stdout; on a narrow terminal as several tables that share the labels of their rows.

    Args:
        build: Makes the table of the labels and of some columns.
        columns: What tells the columns apart.
        titles: Lines above the first table.
    """
    console = _stdout()
    for title in titles:
        console.print(Text(printable(title)), soft_wrap=console.width == ANY_WIDTH)
    for block in blocks(build, columns, console):
        console.print(build(block))


def blocks(build: Callable[[Sequence[C]], Table], columns: Sequence[C], console: Console) -> list[list[C]]:
    """The columns in their order, in as few blocks as fit into the width of the console; at least one block.

    A column that does not fit beside the labels has a block of its own.
    """
    if console.width == ANY_WIDTH or _width(build(columns), console) <= console.width:
        return [list(columns)]
    # Labels that are longer are folded.
    labels = min(_width(build([]), console), console.width // 2)
    found: list[list[C]] = []
    left = 0
    for column in columns:
        width = _width(build([column]), console) - _width(build([]), console)
        if not found or width > left:
            found.append([])
            left = console.width - labels
        found[-1].append(column)
        left -= width
    return found or [[]]


def print_records(records: Sequence[Mapping[str, str]], whole: Table) -> None:
    """Print ``whole`` where it fits, else the name and text of each field of a record, one record after another."""
    console = _stdout()
    if console.width == ANY_WIDTH or _width(whole, console) <= console.width:
        console.print(whole)
        return
    for record in records:
        made = Table.grid(padding=(0, 2))
        made.add_column(no_wrap=True, style="bold")
        made.add_column(overflow="fold")
        for name, value in record.items():
            made.add_row(Text(name), Text(printable(value)))
        console.print(made, "", sep="\n")


def _stdout() -> Console:
    return Console(width=None if sys.stdout.isatty() else ANY_WIDTH)


def _width(table: Any, console: Console) -> int:
    return Measurement.get(console, console.options.update_width(ANY_WIDTH), table).maximum
