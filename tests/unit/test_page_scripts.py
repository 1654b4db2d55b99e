"""The scripts and libraries of a page: made once, kept, absent or broken."""

import json
import re
import resource
import sys
from pathlib import Path

import pytest

from rankmetrics_spark.engines import write_cached
from rankmetrics_spark.errors import ConfigError, every_text
from rankmetrics_spark.report import Figures, assets, figures_of, html, local_tables
from tests.helpers.figures import mean
from tests.helpers.packages import libraries_of_pages, quick_vega
from tests.helpers.results import Output


def test_a_page_names_the_licences_of_the_scripts_that_it_embeds() -> None:
    pytest.importorskip("vl_convert")
    text = html.page(Figures([mean("a")]))
    footer = text[text.index("<footer>") : text.index("</footer>")]
    for name in ("Vega", "Vega-Lite", "Vega-Embed", "BSD-3-Clause", "d3 (ISC)", "Redistributions in binary form"):
        assert name in footer
    assert "University of Washington Interactive Data Lab" in footer and "Mike Bostock" in footer


def test_a_page_has_the_name_of_its_test_and_what_was_tried(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    test = {"title": "Two towers <b>", "description": "Embeddings recall"}
    Output(tmp_path, ["control", "new"], [], 60).write("2026-11-20", config={"report": test})
    text = html.page(figures_of(local_tables(str(tmp_path)), "2026-11-20"))
    assert '<p class="test">Two towers &lt;b&gt;</p>' in text and "Embeddings recall</p>" in text
    assert "<title>Two towers &lt;b&gt;: new " in text
    assert '<p class="test">' not in html.page(Figures([mean("a")]))


HEBREW = "\u05e2\u05d1\u05e8\u05d9\u05ea 2"


@pytest.mark.outcome(
    "experiments and segments whose names turn a text around, or hold control characters, on the page",
    "each is escaped where it stands, in sentences and titles too; names from right to left are set apart",
)
@pytest.mark.parametrize("date", ["2026-11-20"])
def test_no_name_turns_a_sentence_or_a_title_of_the_page_around(tmp_path: Path, date: str) -> None:
    pytest.importorskip("vl_convert")
    signs = "\u202e\u2066\x9b\x1b[1m\u2028\u200f"
    names = ["control", f"{signs}gnp.exe", HEBREW, f"{signs}x"]
    # Every sentence that a name gets into: verdict, checks, segments, the days of runs, the record.
    further = {"wins": 9, "losses": 5, "ties": 1, "p_wilcoxon": 0.2, "design": "paired", "note": f"{signs} is late"}
    output = Output(tmp_path, names, [f"s={signs}a", f"s={HEBREW}"], 60, further=further)
    output.write(date, quality={"warnings": [f"{signs} has no lists"]}, error=f"{signs} failed", notes=[signs])
    output.write("2026-11-21")
    text = html.page(figures_of(local_tables(str(tmp_path)), date))
    shown = text.replace(assets.scripts(), "").replace(assets.as_script(assets.charts()), "")
    assert {c for c in shown if not (c.isprintable() or c == "\n")} == set()
    data = json.loads(re.findall(r'id="data">(.*?)</script>', shown, re.DOTALL)[0])
    strings: list[str] = []
    every_text(data, lambda each: strings.append(each) or each)
    assert all(map(str.isprintable, strings))
    assert r"\u202e\u2066\x9b\x1b[1m\u2028\u200fgnp.exe" in strings
    body = shown[shown.index("<main>") : shown.index("</main>")]
    outside = re.sub(r"<bdi\b[^>]*>.*?</bdi>|<pre.*?</pre>", "", body, flags=re.DOTALL)
    assert "\u05e2" in body and "\u05e2" not in outside
    assert len(re.findall("gnp.exe", body)) > 5


def test_without_its_libraries_the_report_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries_of_pages(monkeypatch, missing=["vl_convert"])
    with pytest.raises(ConfigError, match=r"needs vl_convert, .* pip install 'altair>="):
        assets.check_page_libraries()
    assert not assets.has_page_libraries()


def test_the_scripts_of_a_page_are_those_of_the_newest_vega(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert")
    assert "</script" not in assets.scripts()
    quick_vega(monkeypatch)
    assert assets.scripts() == "library of 6.1"


def test_libraries_of_a_page_that_cannot_be_imported_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    monkeypatch.setattr(assets, "_missing", list)
    with pytest.raises(ConfigError, match=r"cannot be imported: .*vl_convert.*; run: pip install"):
        assets.scripts()


def test_a_file_that_cannot_be_written_leaves_no_draft(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_cached(tmp_path / "page.json", "text")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [*tmp_path.iterdir()]


TABLE = (Path(assets.__file__).parent / "page.js").read_text(encoding="utf-8")


def pattern_behind(text: str) -> re.Pattern[str]:
    """A regular expression of the script of tables, which Python reads as browsers do."""
    found = re.search(rf"{re.escape(text)}/(.+?)/u?[;.]", TABLE)
    assert found
    return re.compile(found[1])


def test_a_filter_of_a_table_compares_as_it_is_written() -> None:
    condition = pattern_behind("const CONDITION = ")
    for name, sign, limit in (("p", "<=", "0.05"), ("p", "<", "0.05"), ("users", ">=", "1000"), ("p", ">", "-2"),
                              ("p", "=", "1")):  # fmt: skip
        for end in ("", "%"):
            found = condition.match(f"{name}{sign}{limit}{end}")
            assert found and found.groups() == (name, sign, limit)
    compared = dict(re.findall(r'"([<>=]+)": x (\S+) limit', TABLE))
    assert compared == {"<": "<", ">": ">", "<=": "<=", ">=": ">=", "=": "==="}


def test_a_spreadsheet_computes_no_cell_of_a_table_that_is_taken_along() -> None:
    computed = pattern_behind("const harmless = (text) => ")
    assert all(map(computed.match, ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1")))
    assert not any(map(computed.match, ("a=1", "candidate-a", "a@b", "1", "")))
