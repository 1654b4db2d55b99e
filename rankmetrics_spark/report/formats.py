"""What stdout holds: lines and tables for a terminal, Markdown or LaTeX; JSON and CSV for programs."""

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rankmetrics_spark import errors as err, schemas as sch
from rankmetrics_spark.report.assets import file_text

C = TypeVar("C")
#: Makes the table of some columns.
Build = Callable[[Sequence[C]], Table]

# ---- for programs

#: The tables of a result; CSV holds one of them.
RESULT_TABLES = ("means", "comparisons", "checks")
#: What the entry ``counts`` of a result has, under the names of the run record.
_COUNTS = ("rows", "experiments", "quarantine_reasons", "tables")


def result_object(record: sch.Row, tables: Mapping[str, Sequence[sch.Row]], paths: sch.Row) -> dict[str, Any]:
    """The result of a run as one object: what it found, what it counted, and where that is.

    Args:
        record: The run record.
        tables: Rows by the names of ``RESULT_TABLES``.
        paths: Name -> path.
    """
    return {
        **{name: record.get(name) for name in (sch.RUN, sch.DATE, "period")},
        **{name: tables.get(name, ()) for name in RESULT_TABLES if name != "checks"},
        "verdict": record.get("verdict", []),
        "counts": {name: record[name] for name in _COUNTS if name in record},
        "checks": tables.get("checks", ()),
        "notes": record.get("notes") or [],
        # Those about the log, then those about the run.
        "warnings": [*(record.get("quality") or {}).get("warnings", ()), *(record.get("warnings") or ())],
        "paths": err.every_text(paths, err.without_secrets),
    }


def print_json(value: Any) -> None:
    """A value as JSON, in one piece; what is no number is null.

    Where stdout and stderr are one file, a line of a log would else stand in the middle of it.
    """
    # A stream in ASCII has the escapes of JSON, not those of Python.
    in_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = err.printable_json(json.dumps(_plain(value), ensure_ascii=in_ascii, indent=2, allow_nan=False, default=str))
    sys.stdout.flush()
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """The value without NaN and infinities, which JSON does not have.

    >>> _plain({"mean": float("nan"), "rows": ({"n": 1},), None: float("inf")})
    {'mean': None, 'rows': [{'n': 1}], '__HIVE_DEFAULT_PARTITION__': None}
    """
    if isinstance(value, Mapping):
        return {sch.NULL_PARTITION if name is None else str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(_plain, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_FORMULA = ("=", "+", "-", "@")
#: Whether a text cell of CSV that a spreadsheet would compute gets an apostrophe in front.
safe_cells: ContextVar[bool] = ContextVar("safe_cells", default=False)

#: Whether every sentence of a verdict is printed.
details: ContextVar[bool] = ContextVar("details", default=False)


def print_csv(rows: Sequence[sch.Row]) -> None:
    r"""One table with a header: the columns of the first row.

    >>> print_csv([{"name": "a\x1b[1m\nb", "difference": -0.13, "formula": "=1+1", "mean": float("nan")}])
    name,difference,formula,mean
    a\x1b[1m\nb,-0.13,=1+1,
    """

    def cell(value: object) -> object:
        """Texts without control characters, numbers as they are, nothing where there is no number."""
        if not isinstance(value, str):
            return _plain(value)
        text = err.printable(value)
        return f"'{text}" if safe_cells.get() and text.startswith(_FORMULA) else text

    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0] if rows else ()), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)


# ---- in a document

DOCUMENT_STYLES = ("markdown", "latex")
#: The style in which tables and sentences are printed on stdout, one of ``DOCUMENT_STYLES``; None = for a terminal.
document: ContextVar[str | None] = ContextVar("document", default=None)
#: Style of what a document raises above the line, such as the letters behind a mean.
RAISED = "italic"
# Brackets in braces: behind a line break they would be its options.
_LATEX = str.maketrans(json.loads(file_text("latex.json")))
_MARKDOWN = re.compile(
    # Anywhere; at the edge of a word; an entity; what becomes a link by itself; what begins a list, heading or quote.
    r"[\\|*`\[\]~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)"
    r"|:(?=//)|(?i:(?<=\bwww)\.)|(?<=\w)@(?=[\w-]+\.\w)|^(?:#(?=#*\s)|[-+](?=\s)|>|\d{1,9}[.)](?=\s))"
)


def sentence(text: str, style: str) -> str:
    """A sentence as a paragraph of Markdown, or as a comment of LaTeX."""
    return f"{_escaped(text, style)}\n\n" if style == "markdown" else f"% {text}\n"


def table(grid: Table, style: str) -> str:
    """The cells of a table; bold ones stay bold, its title is a paragraph or a comment.

    >>> grid = Table("experiment", "mean")
    >>> grid.add_row("a_b", Text("0.5", style="bold"))
    >>> print(table(grid, "markdown"), end="")
    | experiment | mean |
    |:---|:---|
    | a_b | **0.5** |
    >>> print(table(grid, "latex"), end="")
    \\begin{tabular}{ll}
    \\toprule
    experiment & mean \\\\
    \\midrule
    a\\_b & \\textbf{0.5} \\\\
    \\bottomrule
    \\end{tabular}
    """
    head, *cells = cells_of(grid)
    heads = [_escaped(cell.plain, style) for cell in head]
    rows = [[_marked(cell, style) for cell in row] for row in cells]
    is_right = [column.justify == "right" for column in grid.columns]
    if style == "markdown":
        rule = "|".join("---:" if right else ":---" for right in is_right)
        lines = [f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
    else:
        places = "".join("r" if right else "l" for right in is_right)
        lines = [f"\\begin{{tabular}}{{{places}}}", "\\toprule", " & ".join(heads) + r" \\", "\\midrule"]
        lines += [*(" & ".join(row) + r" \\" for row in rows), "\\bottomrule", "\\end{tabular}"]
    title = sentence(_text(grid.title).plain, style) if grid.title else ""
    return "".join([title, *(f"{line}\n" for line in lines)])


def cells_of(grid: Table) -> list[tuple[Text, ...]]:
    """The lines of a table, its head first."""
    return [*zip(*(map(_text, (column.header, *column.cells)) for column in grid.columns), strict=True)]


def _text(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def _marked(cell: Text, style: str) -> str:
    """A cell in the markup of a document: what stands on the line, and what is raised, without needless spaces."""
    start = min((span.start for span in cell.spans if span.style == RAISED), default=len(cell.plain))
    words, above = _escaped(" ".join(cell.plain[:start].split()), style), "".join(cell.plain[start:].split())
    bold, raised = ("**%s**", "%s<sup>%s</sup>") if style == "markdown" else (r"\textbf{%s}", r"%s$^{\mathrm{%s}}$")
    whole = (span.style for span in cell.spans if span.start == 0 and span.end == len(cell.plain))
    if words and any("bold" in str(style) for style in (cell.style, *whole)):
        words = bold % words
    return raised % (words, _escaped(above, style)) if above else words


def _escaped(text: str, style: str) -> str:
    r"""The text without meaning for Markdown, or for LaTeX.

    >>> print(_escaped("a|b *c* <d>", "markdown"))
    a\|b \*c\* &lt;d>
    """
    if style == "latex":
        return text.translate(_LATEX)
    return _MARKDOWN.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", text).replace("<", "&lt;")


# ---- for people

#: Characters in a line where the output is no terminal.
ANY_WIDTH = 1_000_000
#: Characters of a table of metrics in a pipe or a file; a wider one is printed in blocks.
PIPE_WIDTH = 160


def print_fitting(build: Build[C], columns: Sequence[C], *titles: str) -> None:
    """Print a table on stdout; where it is too wide, as several tables that share the labels of their rows."""
    console = _stdout()
    print_lines(titles)
    width = PIPE_WIDTH if not (sys.stdout.isatty() or document.get()) else console.width
    for block in blocks(build, columns, console, width):
        _print(build(block), console)


def print_sentence(line: str, is_result: bool = True) -> None:
    """Print a sentence on stdout, as part of a document where tables are; on stderr beside a result for programs."""
    if is_result:
        print_lines([line])
    else:
        sys.stderr.write(err.printable(line) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print sentences on stdout, folded at spaces to the width of a terminal."""
    console, style = _stdout(), document.get()
    for line in lines:
        text = err.printable(line)
        if style:
            sys.stdout.write(sentence(text, style))
        else:
            sys.stdout.write(folded(text, console.width) + "\n")


def folded(text: str, width: int) -> str:
    """The text with line breaks at spaces; a word that is longer than a line stays whole, so that it can be copied.

    >>> print(folded("candidate_a beats a_control_with_a_name", 20))
    candidate_a beats
    a_control_with_a_name
    """
    lines: list[str] = []
    for word in text.split(" "):
        if lines and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def blocks(build: Build[C], columns: Sequence[C], console: Console, width: int | None = None) -> list[list[C]]:
    """The columns in their order, in as few blocks as fit into a width; at least one block.

    A column that does not fit beside the labels has a block of its own.

    Args:
        build: Some of the columns -> their table.
        columns: All of them.
        console: Measures tables.
        width: Characters of a line; by default those of the console.
    """
    line = width or console.width
    if line == ANY_WIDTH or _width(build(columns), console) <= line:
        return [list(columns)]
    # Labels that are longer are folded.
    alone = _width(build([]), console)
    labels = min(alone, line // 2)
    groups: list[list[C]] = []
    room = 0
    for column in columns:
        needed = _width(build([column]), console) - alone
        if not groups or needed > room:
            groups.append([])
            room = line - labels
        groups[-1].append(column)
        room -= needed
    return groups or [[]]


def print_texts(texts: Sequence[Mapping[str, str]], left: Collection[str], title: str | None = None) -> None:
    """Print a table with a line for each record, or one record after another where that is too wide.

    Args:
        texts: Records, all with the same names.
        left: The names that are no numbers.
        title: Above the table.
    """
    print_records(texts, grid_of(texts, left, title))


def grid_of(texts: Sequence[Mapping[str, str]], left: Collection[str], title: str | None = None) -> Table:
    """A table with a line for each record, numbers on the right."""
    grid = Table(title=title, title_justify="left", title_style="")
    for name in texts[0] if texts else ():
        grid.add_column(name, justify="left" if name in left else "right")
    for text in texts:
        grid.add_row(*(Text(err.printable(value)) for value in text.values()))
    return grid


def print_records(records: Sequence[Mapping[str, str]], whole: Table) -> None:
    """Print ``whole`` where it fits, else the name and text of each field of a record, one record after another."""
    console = _stdout()
    if console.width == ANY_WIDTH or _width(whole, console) <= console.width:
        _print(whole, console)
        return
    for record in records:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for name, value in record.items():
            grid.add_row(Text(name), Text(err.printable(value)))
        console.print(grid, "", sep="\n")


def _stdout() -> Console:
    return Console(width=ANY_WIDTH if document.get() or not sys.stdout.isatty() else None)


def _print(grid: Table, console: Console) -> None:
    if style := document.get():
        sys.stdout.write(table(grid, style) + "\n")
    else:
        console.print(grid)


def _width(table: Any, console: Console) -> int:
    return Measurement.get(console, console.options.update_width(ANY_WIDTH), table).maximum
