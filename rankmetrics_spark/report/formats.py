"""A run's result for programs: one JSON object, or one table as CSV, on stdout."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from unicodedata import category

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from rankmetrics_spark.errors import every_text_without_secrets
from rankmetrics_spark.schemas import DATE, NULL_PARTITION, RUN

Row = Mapping[str, Any]

RESULT_TABLES = ("means", "comparisons", "checks")
"""The tables of a result; CSV holds one of them."""
_COUNTS = ("rows", "experiments", "quarantine_reasons", "tables")
"""What the entry ``counts`` of a result has, under the names of the run record."""


def result_object(record: Row, tables: Mapping[str, Sequence[Row]], paths: Row) -> dict[str, Any]:
    """The result of a run as one object: what it found, what it counted, and where that is.

    Args:
        record: The run record.
        tables: Rows by the names of ``RESULT_TABLES``.
        paths: Name -> path.
    """
    return {
        **{name: record.get(name) for name in (RUN, DATE, "period")},
        **{name: tables.get(name, ()) for name in RESULT_TABLES if name != "checks"},
        "verdict": record.get("verdict", []),
        "counts": {name: record[name] for name in _COUNTS if name in record},
        "checks": tables.get("checks", ()),
        **{name: record.get(name) or [] for name in ("notes", "warnings")},
        "paths": every_text_without_secrets(paths),
    }


def print_json(value: Any) -> None:
    """A value as JSON, in one piece; what is no number is null.

    Where stdout and stderr are one file, a line of a log would else stand in the middle of it.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False, default=str)
    sys.stdout.flush()
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """The value without NaN and infinities, which JSON does not have.

    >>> _plain({"mean": float("nan"), "rows": ({"n": 1},), None: float("inf")})
    {'mean': None, 'rows': [{'n': 1}], '__HIVE_DEFAULT_PARTITION__': None}
    """
    if isinstance(value, Mapping):
        return {NULL_PARTITION if name is None else str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(_plain, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """One table with a header; without ``columns``, those of the first row."""
    names = columns or list(rows[0] if rows else ())
    writer = csv.DictWriter(sys.stdout, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)


_FORMULA = ("=", "+", "-", "@")
safe_cells: ContextVar[bool] = ContextVar("safe_cells", default=False)
"""Whether a text cell of CSV that a spreadsheet would compute gets an apostrophe in front."""


def _csv_cell(value: object) -> object:
    r"""A cell: texts without control characters, numbers as they are, nothing where there is no number.

    >>> _csv_cell("a\x1b[1m\nb"), _csv_cell(-0.13), _csv_cell("=1+1"), _csv_cell(float("nan"))
    ('a\\x1b[1m\\nb', -0.13, '=1+1', None)
    """
    if not isinstance(value, str):
        return _plain(value)
    text = "".join(c if category(c) not in _CONTROLS else c.encode("unicode_escape").decode() for c in value)
    return f"'{text}" if safe_cells.get() and text.startswith(_FORMULA) else text


_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")


DOCUMENT_STYLES = ("markdown", "latex")
document: ContextVar[str | None] = ContextVar("document", default=None)
"""The style in which tables and sentences are printed on stdout, one of ``DOCUMENT_STYLES``; None = for a terminal."""
RAISED = "italic"
"""Style of what a document raises above the line, such as the letters behind a mean."""
_LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "±": r"$\pm$",
        "→": r"$\rightarrow$",
        "▲": r"$\blacktriangle$",
        "▼": r"$\blacktriangledown$",
        "≈": r"$\approx$",
        "\N{MINUS SIGN}": "$-$",
    }
)


def sentence(text: str, style: str) -> str:
    """A sentence as a paragraph of Markdown, or as a comment of LaTeX."""
    return f"{_markdown(text)}\n\n" if style == "markdown" else f"% {text}\n"


def table(grid: Table, style: str) -> str:
    """The cells of a table; bold ones stay bold, its title and caption are paragraphs or comments.

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
    above, below = (_text(part).plain if part else "" for part in (grid.title, grid.caption))
    heads = [_text(column.header).plain for column in grid.columns]
    rows = list(zip(*([_text(cell) for cell in column.cells] for column in grid.columns), strict=True))
    sides = [column.justify for column in grid.columns]
    body = _markdown_table(heads, rows, sides) if style == "markdown" else _latex_table(heads, rows, sides)
    titles = [sentence(text, style) for text in (above, below) if text]
    return "".join([*titles[: bool(above)], *body, *(["\n"] if style == "markdown" and below else []),
                    *titles[bool(above) :]])  # fmt: skip


def _text(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


def _is_bold(cell: Text) -> bool:
    return "bold" in str(cell.style)


def _raised(cell: Text) -> tuple[str, str]:
    """What stands on the line, and what is raised above it; without needless spaces."""
    start = min((span.start for span in cell.spans if span.style == RAISED), default=len(cell.plain))
    on_line, above = cell.plain[:start], cell.plain[start:]
    return " ".join(on_line.split()), "".join(above.split())


def _markdown(text: str) -> str:
    r"""The text without meaning for Markdown.

    >>> print(_markdown("a|b *c* <d>"))
    a\|b \*c\* &lt;d>
    """
    for character in "\\|*`":
        text = text.replace(character, f"\\{character}")
    return text.replace("<", "&lt;")


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[Text]], sides: Sequence[JustifyMethod]) -> list[str]:
    def cell(text: Text) -> str:
        words, above = map(_markdown, _raised(text))
        words = f"**{words}**" if _is_bold(text) and words else words
        return f"{words}<sup>{above}</sup>" if above else words

    rule = ["---:" if side == "right" else ":---" for side in sides]
    lines = [f"| {' | '.join(map(_markdown, heads))} |", f"|{'|'.join(rule)}|"]
    return [f"{line}\n" for line in (*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows))]


def _latex_table(heads: Sequence[str], rows: Sequence[Sequence[Text]], sides: Sequence[JustifyMethod]) -> list[str]:
    def cell(text: Text) -> str:
        words, above = (part.translate(_LATEX) for part in _raised(text))
        words = f"\\textbf{{{words}}}" if _is_bold(text) and words else words
        return f"{words}$^{{\\mathrm{{{above}}}}}$" if above else words

    places = "".join("r" if side == "right" else "l" for side in sides)
    lines = [
        f"\\begin{{tabular}}{{{places}}}",
        "\\toprule",
        " & ".join(head.translate(_LATEX) for head in heads) + r" \\",
    ]
    lines += ["\\midrule", *(" & ".join(map(cell, row)) + r" \\" for row in rows), "\\bottomrule", "\\end{tabular}"]
    return [f"{line}\n" for line in lines]
