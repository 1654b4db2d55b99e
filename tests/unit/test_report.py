"""What a report says in words, on the terminal, in a notebook and to MLflow."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from rankmetrics_spark import cache
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.pointers import Entry, Pointer
from rankmetrics_spark.report import mlflow, notebook, scripts, terminal
from rankmetrics_spark.report.figures import Figures
from rankmetrics_spark.report.payload import payload
from rankmetrics_spark.report.progress import live
from rankmetrics_spark.report.story import answer, cards
from rankmetrics_spark.report.trust import checks
from rankmetrics_spark.tools.report import figures_of, local_tables
from tests.results import Output


def mean(experiment: str, metric: str = "ap@10", value: float = 0.5, segment: str = "all") -> dict[str, Any]:
    counts = {"n_users": 1000, "n_users_with_relevant": 600, "confidence": 0.95, "convention": "standard"}
    bounds = {"mean": value, "ci_low": value - 0.01, "ci_high": value + 0.01}
    return {"experiment_id": experiment, "segment": segment, "metric": metric, **counts, **bounds}


def compared(
    candidate: str, better: str | None, change: float, baseline: str = "control", **more: Any
) -> dict[str, Any]:
    """A difference of ``change`` to a mean of 0.5, with an interval of 0.02 to either side."""
    names = {"experiment_id": candidate, "baseline": baseline, "segment": "all", "metric": "ap@10"}
    bounds = {"difference": change, "ci_low": change - 0.02, "ci_high": change + 0.02}
    relative = {"relative_difference": 2 * change, "relative_ci_low": 2 * change - 0.04}
    words = {"better": better, "note": None, "correction": "holm", "n_comparisons": 3, "confidence": 0.95}
    more = {"relative_ci_high": 2 * change + 0.04, "mean_baseline": 0.5, "mean_candidate": 0.5 + change, **more}
    return {**names, **bounds, **relative, **words, "p_adjusted": 0.0001, "n_users": 2000, **more}


def title(*rows: dict[str, Any], names: str = "control a b") -> str:
    return "".join(answer(Figures([mean(name) for name in names.split()], rows, n_experiments=3)).title)


# ---- the answer in words


def test_the_title_says_who_won() -> None:
    better, worse, open_ = compared("a", "candidate", 0.1), compared("b", "baseline", -0.1), compared("b", None, 0.01)
    assert title(better, worse) == "a beats control"
    assert title(better, compared("b", "candidate", 0.2)) == "b beats control"
    assert title(worse, open_ | {"experiment_id": "a"}) == "No candidate beats control"
    assert title(open_) == "No difference shown between b and control"
    assert title(worse) == "b loses to control"
    assert title(worse, compared("a", "baseline", -0.2)) == "Every candidate loses to control"
    assert title() == "a has the highest MAP@10"
    note = {"note": "not trustworthy: the users do not follow the planned shares (p = 1e-9)"}
    assert title(better | note, worse | note) == "No verdict: these numbers are not to be trusted"


def test_of_all_pairs_the_one_that_nobody_beats_is_ahead() -> None:
    rows = [
        compared("b", "candidate", 0.1, baseline="a"),
        compared("control", "baseline", -0.1, baseline="a"),
        compared("control", "baseline", -0.2, baseline="b"),
    ]
    assert title(*rows) == "b beats every other experiment"
    open_ = [row | {"better": None} for row in rows]
    assert title(*open_) == "No experiment is ahead of all others"
    assert title(rows[0], *open_[1:]) == "b beats 1 of 2 others"


def test_the_answer_says_how_large_and_how_sure_the_difference_is() -> None:
    found = answer(Figures([mean("control"), mean("a")], [compared("a", "candidate", 0.1)]))
    assert found.change == "+20.0 %"
    assert "".join(found.detail) == "on MAP@10, interval +16.0 to +24.0 %"
    assert "".join(found.sure) == (
        "By chance alone, a difference of this size is very rare (p < 0.001 after Holm over 3 comparisons)."
    )


def test_where_lower_is_better_the_lowest_mean_comes_first() -> None:
    rows = [mean("a", "softmax_loss(t=1)", 2.0), mean("b", "softmax_loss(t=1)", 1.0)]
    figures = Figures(rows)
    assert figures.experiments == ["b", "a"]
    assert "".join(answer(figures).title) == "b has the lowest SOFTMAX_LOSS(t=1)"


def test_the_metric_of_the_first_gate_decides_else_the_largest_cut_off_of_the_first_metric() -> None:
    rows = [mean("a", metric) for metric in ("ndcg@10", "ap@5", "ap@10")]
    config = {"metrics": ["ap@5", "ap@10", "ndcg@10"]}
    assert str(Figures(rows, record={"config": config}).primary) == "ap@10"
    gated = config | {"gates": [{"metric": "ndcg@10", "max_drop": 0.1}]}
    assert str(Figures(rows, record={"config": gated}).primary) == "ndcg@10"


def test_a_card_without_a_relative_difference_shows_the_difference_itself() -> None:
    (card,) = cards(Figures([mean("a")], [compared("a", "candidate", 0.1, mean_baseline=0.0)]))
    assert card.change
    assert (card.said, card.change.interval) == ("+0.1000", "+0.0800 to +0.1200")
    nan = float("nan")
    (card,) = cards(
        Figures([mean("a")], [compared("a", None, nan, mean_baseline=nan, p_adjusted=nan, note="no users")])
    )
    assert (card.state, card.said, card.change, card.note) == ("doubtful", "-", None, "no users")


def test_cards_share_an_axis_so_they_share_a_unit() -> None:
    means = [mean("a"), mean("b")]
    both = cards(Figures(means, [compared("a", "candidate", 0.1), compared("b", "candidate", 0.1, mean_baseline=0.0)]))
    assert [card.said for card in both] == ["+0.1000", "+0.1000"]


# ---- can it be trusted


def test_what_weakens_an_answer_is_a_warning() -> None:
    few = [mean("control") | {"n_users": 40, "n_users_with_relevant": 10}]
    counts = {"evaluated": 100, "tied": 30, "beyond_judgements": 2, "lists": 100, "judged_lists": 5}
    record = {
        "rows": {"in": 120, "evaluated": 100, "quarantined": 20},
        "experiments": {"control": counts},
        "config": {"rank_by": "score"},
        "judgements": {"rows": 3},
        "quality": {"warnings": ["ranks seem to start at 0"]},
    }
    rows = [compared("a", None, 0.1, sample_ratio_p=1e-9)]
    found = {check.title: (check.level, check.text) for check in checks(Figures(few, rows, record=record))}
    assert {title for title, (level, _) in found.items() if level == "warn"} == {
        "Number of users", "Users without a relevant item", "Split of the users", "Faulty rows", "Ties",
        "Judgements", "Judged lists", "Quality of the log",
    }  # fmt: skip
    assert found["Faulty rows"][1] == "20 of 120 rows (16.67%) were faulty and are left out."
    assert found["Ties"][1].startswith("30.0% of the rows")


def test_a_clean_run_has_no_warning() -> None:
    record = {"rows": {"in": 100, "evaluated": 100, "quarantined": 0}, "experiments": {}, "quality": {}}
    levels = {check.level for check in checks(Figures([mean("a")], record=record))}
    assert levels == {"ok", "none"}
    assert [check.title for check in checks(Figures([mean("a")]))][-1] == "Run record"


# ---- reading a folder


def test_the_figures_of_a_folder_are_its_rows(tmp_path: Path) -> None:
    output = Output(tmp_path, ["007", "null", "a/b=c"], users=50).write()
    tables = local_tables(str(output))
    assert tables
    figures = figures_of(tables)
    assert set(figures.experiments) == {"007", "null", "a/b=c"}
    assert (figures.n_experiments, figures.n_comparisons, len(figures.means)) == (3, 8, 3 * 3 * 4)
    assert figures.record["run_id"] == "20261120T010203-0a1b2c3d" and figures.trend == []
    per_metric = {key: 0 for key in {(row["experiment_id"], row["metric"]) for row in figures.users}}
    for row in figures.users:
        per_metric[row["experiment_id"], row["metric"]] += row["users"]
    assert set(per_metric.values()) == {50} and len(per_metric) == 12
    with pytest.raises(InputError, match="unknown evaluation date '2020-01-01'"):
        figures_of(tables, "2020-01-01")


def test_a_pointer_says_which_files_count(tmp_path: Path) -> None:
    output = Output(tmp_path, users=20).write()
    runs = {"old": "20261120T010203-00000000", "new": "20261120T020304-11111111"}
    for file in output.glob("*/*/*/part-0.parquet"):
        file.rename(file.with_name(f"part-0-{runs['old']}-0.parquet"))
    other = Output(tmp_path / "other", users=30).write()
    for file in other.glob("*/*/*/part-0.parquet"):
        target = output / file.relative_to(other)
        target.with_name(f"part-0-{runs['new']}-0.parquet").write_bytes(file.read_bytes())
    pointer = Pointer("2026-11-20").with_run(Entry(runs["old"], ("control", "candidate_a", "candidate_b")))
    pointer = pointer.with_run(Entry(runs["new"], ("candidate_a",)))
    (output / "published").mkdir()
    (output / "published" / "2026-11-20.json").write_text(pointer.as_json())
    tables = local_tables(str(output))
    assert tables
    users = {row["experiment_id"]: row["n_users"] for row in figures_of(tables).everyone}
    assert users == {"control": 20, "candidate_a": 30, "candidate_b": 20}


def test_the_payload_of_a_page_has_no_nan_and_no_row_of_an_unknown_experiment() -> None:
    nan = float("nan")
    figures = Figures([mean("a", value=nan)], [compared("gone", None, 0.1)], users=[])
    found = payload(figures)
    assert found["means"]["mean"] == [None] and found["compared"]["e"] == []
    json.dumps(found, allow_nan=False)


def test_without_its_libraries_the_report_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the others were there, also where the suite runs without them.
    monkeypatch.setattr(scripts, "find_spec", lambda name: None if name == "vl_convert" else name)
    with pytest.raises(ConfigError, match=r"needs vl_convert, .* pip install 'rankmetrics-spark\[report\]'"):
        scripts.check_installed()
    assert not scripts.is_installed()


def test_the_scripts_of_a_page_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    made = scripts.scripts()
    with monkeypatch.context() as patched:
        patched.setattr(scripts, "_made", lambda: pytest.fail("made again"))
        assert scripts.scripts() == made
    assert "</script" not in made[0] and set(json.loads(made[1])) == {"forest", "cutoffs", "distribution", "trend"}
    # Those of other libraries, or what was left of a file, are replaced.
    monkeypatch.setattr(scripts, "_made", lambda: ("new library", "new charts"))
    for spoilt in (b'{"made_of": "others", "library": "", "charts": ""}', b"{", b"[]", b'{"made_of": 1}', b"\xff"):
        (tmp_path / "page.json").write_bytes(spoilt)
        assert scripts.scripts() == ("new library", "new charts")
        assert json.loads((tmp_path / "page.json").read_text())["library"] == "new library"


def test_the_theme_of_a_notebook_does_not_get_into_the_pages_of_others() -> None:
    altair = pytest.importorskip("altair")
    from rankmetrics_spark.report import charts

    def looks() -> list[Any]:
        return [chart["config"] for chart in charts.templates().values()]

    usual = looks()
    with altair.theme.enable("dark"):
        assert looks() == usual


def test_libraries_of_a_page_that_cannot_be_imported_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ConfigError, match=r"cannot be imported: .*vl_convert.*; run: pip install"):
        scripts._made()


def test_scripts_of_libraries_that_do_not_say_their_version_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vl_convert")

    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(scripts, "version", unknown)
    monkeypatch.setattr(cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(scripts, "_made", lambda: ("library", "charts"))
    assert scripts.scripts() == ("library", "charts") and not [*tmp_path.iterdir()]


def test_a_file_that_cannot_be_written_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        cache.written(tmp_path / "page.json", "text")
    assert not [*tmp_path.iterdir()]


def test_a_page_needs_no_folder_to_keep_its_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    occupied = tmp_path / "a file, not a folder"
    occupied.touch()
    monkeypatch.setattr(cache, "folder", lambda: occupied)
    monkeypatch.setattr(scripts, "_made", lambda: ("library", "charts"))
    assert scripts.scripts() == ("library", "charts")


# ---- the terminal


class Terminal(io.StringIO):
    """A stdout that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Print a result to a terminal of a width, or to a pipe."""

    def shown(result: terminal.Shown, width: int | None, every_segment: bool = False) -> str:
        for name, value in {"COLUMNS": str(width or 80), "TERM": "xterm-256color"}.items():
            monkeypatch.setenv(name, value)
        screen = Terminal() if width else io.StringIO()
        with redirect_stdout(screen):
            terminal.print_result(result, every_segment)
        return screen.getvalue()

    return shown


def result() -> terminal.Shown:
    segments = ["country=DE", "country=FR", "country=GB", "country=PL"]
    rows = [mean("control"), mean("a", value=0.6), mean("b[/b]", value=0.4)]
    rows += [mean(name, segment=segment) for name in ("control", "a", "b[/b]") for segment in segments]
    changes = {"country=DE": 0.1, "country=FR": 0.3, "country=GB": 0.12, "country=PL": -0.05}
    differences = [compared("a", "candidate", 0.1), compared("b[/b]", "baseline", -0.1)]
    differences += [compared("a", "candidate", change) | {"segment": name} for name, change in changes.items()]
    return terminal.Shown(rows, differences)


def test_a_pipe_gets_one_line_per_experiment_with_its_difference_and_the_telling_segments(
    printed: Callable[..., str],
) -> None:
    text = printed(result(), None).replace("\u2212", "-")
    lines = [re.sub(r"\s+", " ", line).strip(" │") for line in text.splitlines() if line.startswith("│")]
    assert lines[:3] == [
        "a │ 1,000 │ 0.6000 ± 0.0100 ▲ +20.0 %",
        "control │ 1,000 │ 0.5000 ± 0.0100 baseline",
        "b[/b] │ 1,000 │ 0.4000 ± 0.0100 ▼ -20.0 %",
    ]
    # Half widths of 0.02 around 0.1: France is 10 away, Poland 7.5, Great Britain 1, Germany 0.
    assert [line.split(" │ ")[0] for line in lines[3:]] == ["country=FR", "country=PL", "country=GB"]
    assert "3 of 4 segments" in text and "\x1b" not in text


def test_every_segment_is_printed_on_request(printed: Callable[..., str]) -> None:
    text = printed(result(), None, every_segment=True)
    assert sum(line.startswith("│") for line in text.splitlines()) == 3 * 5


def test_a_terminal_has_colours_unless_no_color_is_set(
    printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;32m" in printed(result(), 100)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3[0-9]", printed(result(), 100))


def test_a_narrow_terminal_gets_lines_that_fit(printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = re.sub(r"\x1b\[[\d;]*m", "", printed(result(), 60))
    assert max(map(len, text.splitlines())) <= 60
    assert "b[/b]" in text and "+20.0 %" in text


def test_stages_are_shown_on_a_terminal_and_nowhere_else() -> None:
    quiet, screen = io.StringIO(), io.StringIO()
    with live(Console(file=quiet)) as progress:
        progress("evaluating [/b] (10 rows)")
    assert quiet.getvalue() == ""
    with live(Console(file=screen, force_terminal=True, width=80)) as progress:
        progress("evaluating [/b] (10 rows)")
        progress("writing")
    assert re.search(r"evaluating \[/b\] \(10 rows\)  \d+\.\d s", screen.getvalue())


# ---- the notebook and MLflow


def test_a_notebook_shows_the_answer_and_names_as_text() -> None:
    figures = Figures([mean("control"), mean("<b>x", value=0.6)], [compared("<b>x", "candidate", 0.1)])
    shown = notebook.as_html(figures)
    assert "<bdi>&lt;b&gt;x</bdi> beats <bdi>control</bdi>" in shown and "<b>x" not in shown
    assert "0.6000" in shown and "&#9650; +20.0 %" in shown


def test_the_summary_is_tidy_and_says_the_differences() -> None:
    rows = [mean("control"), mean("a", value=0.6), mean("a", value=0.7, segment="s=1")]
    frame = notebook.summary(Figures(rows, [compared("a", "candidate", 0.1)]))
    assert list(frame.columns) == [
        "experiment", "segment", "metric", "users", "mean", "ci_low", "ci_high",
        "baseline", "difference", "relative_difference", "p_adjusted", "better",
    ]  # fmt: skip
    assert frame["experiment"].tolist() == ["control", "a", "a"]
    assert frame["segment"].tolist() == ["all", "all", "s=1"]
    assert np.isnan(frame["difference"][0]) and frame["difference"][1] == 0.1
    assert len(notebook.summary(Figures(rows)).columns) == 7


def test_a_plot_of_a_metric_that_was_not_computed_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown metric 'ndgc'"):
        notebook.plot(Figures([mean("a", "ndcg@10")]), "ndgc")


def test_mlflow_gets_means_and_differences_under_keys_that_it_takes() -> None:
    figures = Figures([mean("control"), mean("a(1)", value=0.6)], [compared("a(1)", "candidate", 0.1)])
    assert mlflow.values(figures) == {
        "ap_at_10/control": 0.5,
        "ap_at_10/a_1_": 0.6,
        "ap_at_10_difference/a_1_": 0.1,
        "ap_at_10_p_adjusted/a_1_": 0.0001,
    }
    assert mlflow.parameters(figures) == {"convention": "standard", "baseline": "control"}
