"""Show the doctests of docstrings as code: an extension of griffe, which reads docstrings for the user guide."""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"(?:^>>> .*\n?(?:^(?![ \t]*$).+\n?)*)", re.MULTILINE)
"""Lines from a prompt up to the next empty line."""


class Doctests(griffe.Extension):
    """Put doctests between fences; without them, Markdown reads prompts as quotations and lists as links."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its doctests as blocks of code.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nMore."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    More.
    """
    return _DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)
