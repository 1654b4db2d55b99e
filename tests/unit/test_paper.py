"""Tables and sentences for documents."""

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt
from rich.table import Table
from rich.text import Text

from rankmetrics_spark.cli import main
from rankmetrics_spark.metrics import reference
from rankmetrics_spark.report import document
from rankmetrics_spark.report.formats import sentence, table


@pytest.fixture(autouse=True)
def _terminal_afterwards() -> Iterator[None]:
    """The style is one of the process; a command of a test sets it."""
    yield
    document.set(None)


def grid() -> Table:
    result = Table(title="means")
    result.add_column("experiment")
    result.add_column(r"p\[1]", justify="right")
    result.add_row(Text("a_b|c"), Text("0.5   ± 0.1", style="bold"))
    result.add_row(Text("100% & $"), Text("-"))
    return result


def test_a_table_of_markdown_has_the_cells_below_its_title() -> None:
    assert table(grid(), "markdown") == (
        "means\n\n| experiment | p\\[1\\] |\n|:---|---:|\n| a_b\\|c | **0.5 ± 0.1** |\n| 100% & \\$ | - |\n"
    )


def test_a_table_of_latex_escapes_what_latex_reads() -> None:
    assert table(grid(), "latex") == (
        "% means\n"
        "\\begin{tabular}{lr}\n\\toprule\nexperiment & p{[}1] \\\\\n\\midrule\n"
        "a\\_b|c & \\textbf{0.5 $\\pm$ 0.1} \\\\\n"
        "100\\% \\& \\$ & - \\\\\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


@pytest.mark.parametrize(
    ("character", "text"),
    [("\\", r"\textbackslash{}"), ("^", r"\textasciicircum{}"), ("<", "$<$"), (">", "$>$"), ("[", "{[}"), ("*", "{*}")],
)
def test_what_latex_reads_is_escaped_once(character: str, text: str) -> None:
    one = Table("x")
    one.add_row(Text(f"a{character}b"))
    assert f"\na{text}b \\\\\n" in table(one, "latex")


def test_a_sentence_is_a_paragraph_or_a_comment() -> None:
    assert sentence("b beats a: 5 % *", "markdown") == "b beats a: 5 % \\*\n\n"
    assert sentence("b beats a: 5 %", "latex") == "% b beats a: 5 %\n"


@pytest.mark.parametrize(
    "name",
    [
        "[x](javascript:alert(1))",
        "![x](http://a.b/c)",
        "<javascript:alert(1)>",
        "https://a.b/c and www.a.b and me@a.b",
        "_a_ __b__ *c* **d** ~~e~~ `f` $g$",
        "a_b \\ &lt;b&gt; | c",
        *("# a", "> a", "- a", "+ a", "1. a", "2) a", "[a]: javascript:b", "<!-- a -->"),
    ],
)
@pytest.mark.outcome("an experiment called {name}, with `--format markdown`", "the name as it is, and no markup")
def test_a_name_is_no_markup_in_a_document(name: str) -> None:
    reader, one = MarkdownIt("commonmark").enable(["table", "strikethrough"]), Table("name")
    one.add_row(Text(name))
    for text in (sentence(name, "markdown"), table(one, "markdown")):
        # What GitHub makes a link by itself needs these signs one after the other.
        assert not re.search(r"(?<!\\)://|www\.|\w@", text)
        shown = [token for block in reader.parse(text) if block.children for token in block.children]
        assert {token.type for token in shown} == {"text"}
        assert "".join(token.content for token in shown).removeprefix("name") == name


def test_a_command_prints_its_table_for_a_document() -> None:
    shown = CliRunner().invoke(main, ["metrics", "--format", "markdown"], standalone_mode=False)
    head, rule, *rows = shown.stdout.strip().splitlines()
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in rows]
    first = next(iter(reference()[0]))
    assert [name.strip() for name in head.split("|")[1:-1]] == list(reference()[0])
    assert re.fullmatch(r"\|(:---\||---:\|)+", rule)
    assert [row[0].strip() for row in cells] == [str(row[first]) for row in reference()]
    assert {len(row) for row in cells} == {len(reference()[0])}


def test_a_later_command_prints_for_a_terminal_again() -> None:
    runner = CliRunner()
    runner.invoke(main, ["metrics", "--format", "latex"], standalone_mode=False)
    assert "\\begin" not in runner.invoke(main, ["metrics"], standalone_mode=False).stdout
