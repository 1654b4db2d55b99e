"""The colours of pages, charts and pictures: one accent; everything else is ink on paper."""

from __future__ import annotations

from typing import Any

LIGHT = {
    "paper": "#ffffff",
    "surface": "#f6f7f9",
    "line": "#e2e5eb",
    "grid": "#eceef2",
    "ink": "#171a21",
    "soft": "#59616f",
    "faint": "#8a93a3",
    "quiet": "#667080",
    "accent": "#2557d6",
    "wash": "#e9effd",
}
DARK = {
    "paper": "#12151b",
    "surface": "#1a1e26",
    "line": "#2c323d",
    "grid": "#252a34",
    "ink": "#eceff5",
    "soft": "#a7b0bf",
    "faint": "#78828f",
    "quiet": "#929cab",
    "accent": "#8fb0ff",
    "wash": "#1d2942",
}


def css(colours: dict[str, str]) -> str:
    """The colours as declarations of CSS variables.

    >>> css({"ink": "#000"})
    '--ink: #000;'
    """
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def with_colours(spec: Any, colours: dict[str, str]) -> Any:
    """A chart's specification with plain colours in place of CSS variables, which only the page has.

    >>> with_colours({"fill": "var(--ink)", "size": 3}, {"ink": "#000"})
    {'fill': '#000', 'size': 3}
    """
    if isinstance(spec, dict):
        return {key: with_colours(value, colours) for key, value in spec.items()}
    if isinstance(spec, list):
        return [with_colours(value, colours) for value in spec]
    if isinstance(spec, str) and spec.startswith("var(--"):
        return colours[spec[6:-1]]
    return spec
