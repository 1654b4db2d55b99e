"""A package that the index does not know may still have a vulnerability."""

import re
from pathlib import Path
from typing import Any

from tests.helpers.commands import ROOT
from tests.known_vulnerabilities import LAST, summary, with_last_answer

CLEAN: dict[str, Any] = {"name": "a", "version": "1.0", "vulns": []}
UNKNOWN: dict[str, Any] = {"name": "b", "skip_reason": "not found"}
AFFECTED: dict[str, Any] = {
    "name": "c",
    "version": "2.0",
    "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}, {"id": "CVE-2", "fix_versions": []}],
}


def test_an_index_without_a_list_of_vulnerabilities_is_no_clean_bill() -> None:
    sentence = "known vulnerabilities: not looked up, since the package index knows nothing of 2 packages"
    assert summary({"dependencies": [UNKNOWN, UNKNOWN]}) == (0, [sentence])
    others = "the package index knows nothing of the others"
    assert summary({"dependencies": [CLEAN, UNKNOWN]}) == (
        0,
        [f"known vulnerabilities: none in 1 of 2 packages; {others}"],
    )
    assert summary({"dependencies": [CLEAN]}) == (0, ["known vulnerabilities: none in 1 of 1 packages"])


def test_a_package_with_a_known_vulnerability_fails_and_is_named() -> None:
    code, (first, *lines) = summary({"dependencies": [CLEAN, AFFECTED]})
    assert (code, first) == (1, "known vulnerabilities: 1 in 2 of 2 packages")
    assert lines == ["c 2.0: CVE-1; mended in 2.1", "c 2.0: CVE-2; mended in none"]


def test_the_page_says_when_the_index_last_gave_an_answer(tmp_path: Path) -> None:
    page = tmp_path / "SECURITY.md"
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    _, silent = summary({"dependencies": [UNKNOWN]})
    assert with_last_answer(silent, page) == [*silent, f"SECURITY.md: {LAST.findall(text)[0]}"]
    assert page.read_text(encoding="utf-8") == text, "nothing was looked up"
    for packages, found in (([CLEAN, UNKNOWN], "none in 1 of 2 packages"), ([AFFECTED], "1 in 1 of 1 packages")):
        _, lines = summary({"dependencies": packages})
        assert with_last_answer(lines, page) == lines
        (last,) = LAST.findall(page.read_text(encoding="utf-8"))
        assert re.fullmatch(rf"Last answer: \d{{4}}-\d\d-\d\d, {found}\.", last)
    assert with_last_answer(silent, page)[-1] == f"SECURITY.md: {last}"
