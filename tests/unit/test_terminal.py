"""What is printed of a result on a terminal and to a pipe."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
from rich.console import Console

from rankmetrics_spark.cli.exit_codes import live
from rankmetrics_spark.report import Figures, print_result
from tests.helpers.commands import Terminal
from tests.helpers.figures import compared, mean


def test_a_table_on_the_terminal_goes_through_its_rows_as_often_for_many_experiments_as_for_few(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Rows(list[Any]):
        passes = 0

        def __iter__(self) -> Any:
            self.passes += 1
            return super().__iter__()

    def passes(n: int) -> int:
        result = Figures([mean(f"e{i}") for i in range(n)], order=["ap@10"])
        rows = vars(result)["everyone"] = Rows(result.everyone)
        print_result(result)
        assert f"e{n - 1} " in capsys.readouterr().out
        return rows.passes

    assert 0 < passes(40) == passes(4)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Print a result to a terminal of a width, or to a pipe."""

    def shown(result: Figures, width: int | None, every_segment: bool = False) -> str:
        for name, value in {"COLUMNS": str(width or 80), "TERM": "xterm-256color"}.items():
            monkeypatch.setenv(name, value)
        screen = Terminal() if width else io.StringIO()
        with redirect_stdout(screen):
            print_result(result, every_segment)
        return screen.getvalue()

    return shown


def result() -> Figures:
    segments = ["country=DE", "country=FR", "country=GB", "country=PL"]
    rows = [mean("control"), mean("a", value=0.6), mean("b[/b]", value=0.4)]
    rows += [mean(name, segment=segment) for name in ("control", "a", "b[/b]") for segment in segments]
    changes = {"country=DE": 0.1, "country=FR": 0.3, "country=GB": 0.12, "country=PL": -0.05}
    differences = [compared("a", "candidate", 0.1), compared("b[/b]", "baseline", -0.1)]
    p = {"country=DE": 0.8, "country=FR": 0.0001, "country=GB": 0.9, "country=PL": 0.0499}
    rest = {"rest_difference": 0.05, "rest_relative_difference": 0.1}
    differences += [
        compared("a", "candidate", change) | rest | {"segment": name, "p_rest": p[name] / 4, "p_rest_adjusted": p[name]}
        for name, change in changes.items()
    ]
    return Figures(rows, differences)


def test_a_pipe_gets_a_line_per_experiment_with_difference_and_differing_segments(printed: Callable[..., str]) -> None:
    text = printed(result(), None).replace("\u2212", "-")
    lines = [re.sub(r"\s+", " ", line).strip(" │") for line in text.splitlines() if line.startswith("│")]
    assert lines[:3] == [
        "a │ 1,000 │ 0.6000 ± 0.0100 ▲ +20.0 %",
        "control │ 1,000 │ 0.5000 ± 0.0100 baseline",
        "b[/b] │ 1,000 │ 0.4000 ± 0.0100 ▼ -20.0 %",
    ]
    assert text.splitlines()[-4:] == [
        "The effect of a on MAP@10 differs in country=FR: +0.3000 (+60.0 %) against +0.0500 (+10.0 %) elsewhere "
        "(p < 0.001)",
        "The effect of a on MAP@10 differs in country=PL: -0.0500 (-10.0 %) against +0.0500 (+10.0 %) elsewhere "
        "(p = 0.0499)",
        "No sign that the effect of a on MAP@10 differs in the other 2 segments of country",
        "--segments prints the means of all segments",
    ]
    assert "\x1b" not in text


def test_without_comparisons_the_segments_are_printed_on_request(printed: Callable[..., str]) -> None:
    text = printed(Figures([mean("a"), mean("a", segment="country=DE")]), None)
    assert text.splitlines()[-1] == "--segments prints the means of all segments" and "country" not in text


def test_every_segment_is_printed_on_request(printed: Callable[..., str]) -> None:
    text = printed(result(), None, every_segment=True)
    assert sum(line.startswith("│") for line in text.splitlines()) == 3 * 5


def test_there_are_colours_unless_no_color_is_set(printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;32m" in printed(result(), 100)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3[0-9]", printed(result(), 100))


def test_stages_are_timed_on_a_terminal_and_are_plain_lines_elsewhere() -> None:
    pipe, screen = io.StringIO(), io.StringIO()
    with live(Console(file=pipe, width=20)) as progress:
        progress("evaluating [/b] (10 rows)")
        assert pipe.getvalue() == "evaluating [/b] (10 rows) ...\n", "said as the stage begins"
        progress("writing")
    assert pipe.getvalue().splitlines()[1:] == ["writing ..."]
    with live(Console(file=screen, force_terminal=True, width=80)) as progress:
        progress("evaluating [/b] (10 rows)")
        progress("writing")
    assert re.search(r"evaluating \[/b\] \(10 rows\)  \d+\.\d s", screen.getvalue())
