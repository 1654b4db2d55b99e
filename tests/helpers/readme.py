"""The commands and code blocks of the README and of other pages."""

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.commands import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PLATFORMS = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
MANUAL = "\n".join([README, *(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))])


def section(title: str, page: str = MANUAL) -> str:
    """Return the text below a heading, up to the next heading of the same or a higher level."""
    result = re.search(rf"^(#+) {re.escape(title)}\n", page, re.MULTILINE)
    assert result, f"no section {title!r}"
    rest = page[result.end() :]
    end = re.search(rf"^#{{1,{len(result[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def names_after(program: str, **names: Any) -> dict[str, Any]:
    """The names that there are once a program of the docs has run, which may use these."""
    exec(program, names)
    return names


def commands(program: str, text: str = README) -> list[list[str]]:
    """Return the words of each shell command of a program, without comments."""
    lines = [line for block in blocks("sh", text) for line in block.replace("\\\n", " ").splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [shlex.split(part, comments=True) for part in parts if part.startswith(f"{program} ")]


def rename(words: list[str], names: dict[str, str]) -> list[str]:
    """Replace placeholder names in the words by real values; each name must occur."""
    joined = "\n".join(words)
    assert [name for name in names if name not in joined] == []
    for name, value in names.items():
        joined = joined.replace(name, value)
    return joined.split("\n")


def between(mark: str, text: str, page: str) -> str:
    """The page with a text between its two comments ``mark``, which code describes.

    Raises:
        ValueError: The page does not have them once.
    """
    start, end = f"<!-- {mark}: written by make readme -->", f"<!-- /{mark} -->"
    written, n = re.subn(f"{start}.*?{end}", lambda _: f"{start}\n{text}\n{end}", page, flags=re.DOTALL)
    if n != 1:
        raise ValueError(f"the text holds the markers {start} ... {end} {n} times; allowed: once")
    return written


def rewrite(updated: Callable[[str], str]) -> None:
    """Write the page that the command line names anew."""
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
