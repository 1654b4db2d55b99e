"""The commands and code blocks of the README and of other pages."""

from __future__ import annotations

import re
import shlex

from tests.helpers.commands import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PLATFORMS = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")


def section(title: str, page: str = README) -> str:
    """Return the text below a heading, up to the next heading of the same or a higher level."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", page, re.MULTILINE)
    assert found, f"no section {title!r}"
    rest = page[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(program: str, text: str = README) -> list[list[str]]:
    """Return the words of each shell command of a program, without comments."""
    lines = [line for block in blocks("sh", text) for line in block.replace("\\\n", " ").splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [shlex.split(part, comments=True) for part in parts if part.startswith(f"{program} ")]


def rename(words: list[str], names: dict[str, str]) -> list[str]:
    """Replace the README's placeholder names in the words by real values; each name must occur."""
    joined = "\n".join(words)
    assert [name for name in names if name not in joined] == []
    for name, value in names.items():
        joined = joined.replace(name, value)
    return joined.split("\n")
