"""What the screens say of a difference, read back as numbers: the interval beside the words."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report import Figures, as_html, cards, payload_of, sentence

_BOUNDS = re.compile(r"\(?(?:interval )?([+-]?[\d.]+) to ([+-]?[\d.]+)")
_SHOWN, _OPEN = (" beats ", " loses to "), "no difference shown"


def contradictions(figures: Figures) -> Iterator[str]:
    """Sentences, cards and rows of the page whose interval says something else of 0 than the words beside it."""
    for row in figures.comparisons:
        text = sentence(row, parse(row["metric"])).replace("\N{MINUS SIGN}", "-")
        if _OPEN in text or any(verb in text for verb in _SHOWN):
            yield from _of_text(text, _OPEN not in text)
    for card in cards(figures):
        if card.change and card.change.interval and card.found.state != "doubtful":
            yield from _of_text(card.interval.replace("\N{MINUS SIGN}", "-"), card.found.state != "open")
    page = payload_of(figures)["compared"]
    for prefix in ("low high", "relLow relHigh"):
        low, high = (page[name] for name in prefix.split())
        for below, above, state in zip(low, high, page["state"], strict=True):
            if below is not None and state != "doubtful" and (below > 0 or above < 0) != (state != "open"):
                yield f"the page: {below} to {above}, {state}"


def _of_text(text: str, shown: bool) -> Iterator[str]:
    for low, high in _BOUNDS.findall(text):
        # A bound beside 0 is rounded to it.
        if (shown and float(low) < 0 < float(high)) or (not shown and (float(low) > 0 or float(high) < 0)):
            yield text


def units(figures: Figures) -> Sequence[set[bool]]:
    """Per metric of the notebook's table, whether its differences are in percent."""
    table: Any = re.findall(r"<tr>(.*?)</tr>", as_html(figures).partition("<table")[2])
    columns = zip(*(re.findall(r"<td[^>]*>(.*?)</td>", line)[2:] for line in table[1:]), strict=True)
    # A difference follows its mark; the margin of a mean has none.
    marked = (re.findall(r"[▲▼≈?] ([^<]*)<", "".join(column)) for column in columns)
    return [{"%" in difference for difference in differences} for differences in marked]
