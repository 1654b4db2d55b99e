"""Tables and sentences for documents: Markdown, and LaTeX with booktabs."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

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
    above, below = (_plain(part).plain if part else "" for part in (grid.title, grid.caption))
    heads = [_plain(column.header).plain for column in grid.columns]
    rows = list(zip(*([_plain(cell) for cell in column.cells] for column in grid.columns), strict=True))
    sides = [column.justify for column in grid.columns]
    body = _markdown_table(heads, rows, sides) if style == "markdown" else _latex_table(heads, rows, sides)
    titles = [sentence(text, style) for text in (above, below) if text]
    return "".join([*titles[: bool(above)], *body, *(["\n"] if style == "markdown" and below else []),
                    *titles[bool(above) :]])  # fmt: skip


def _plain(cell: object) -> Text:
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
