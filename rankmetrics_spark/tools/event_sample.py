"""Events in the first config: which columns they share with the log, and which kinds are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from rankmetrics_spark.config import letters
from rankmetrics_spark.tools.guessing import named_like

TIMES = (
    *("time", "timestamp", "ts", "at", "eventtime", "eventtimestamp"),
    *("servertime", "servedat", "shownat", "createdat"),
)
_KINDS = ("event", "kind", "eventtype", "eventname", "action", "actionname", "actiontype")
_SHOWN = ("impression", "impressions", "shown", "view_item_list", "served", "exposure")
_GRADES = {"click": 1, "clicked": 1, "select_item": 1, "item_click": 1, "click_through": 1, "add_to_cart": 2, "cart": 2,
           "purchase": 3, "buy": 3, "order": 3, "conversion": 3}  # fmt: skip
_MOST_KINDS = 30


def named(rows: pd.DataFrame, words: Sequence[str]) -> str | None:
    """The column whose name, or the end of whose path, is one of these words; the first word counts most."""
    ends = {letters(str(name).rpartition(".")[2]): str(name) for name in reversed(list(rows))}
    return next((ends[word] for word in words if word in ends), None)


@dataclass(frozen=True)
class EventSample:
    """Events of a log.

    Attributes:
        columns: Role -> column.
        grades: Kind -> the grade that it may give.
        others: Kinds that give none, as far as names say.
        shown: The kind of impressions, where they are in the same table.
    """

    columns: Mapping[str, str]
    grades: Mapping[str, int]
    others: Sequence[str] = ()
    shown: str = ""

    @classmethod
    def of(cls, rows: pd.DataFrame, lists: Sequence[str], user: str | None) -> EventSample:
        """Guess the roles of the columns of events; those of lists are called as in the log."""
        columns: dict[str, str] = {}
        if lists and {*lists} <= {*map(str, rows)}:
            columns["list"] = ", ".join(lists)
        if user in rows:
            columns["user"] = str(user)
        elif users := named_like(map(str, rows), "user"):
            columns["user"] = users[0]
        items = named_like(map(str, rows), "item") or [name for name in map(str, rows) if name.endswith("object_id")]
        columns |= {"item": items[0]} if items else {}
        found = {"kind": named(rows, _KINDS), "time": named(rows, TIMES)}
        columns |= {role: name for role, name in found.items() if name}
        kinds = (
            [str(kind) for kind in rows[columns["kind"]].dropna().unique()[:_MOST_KINDS]] if "kind" in columns else []
        )
        grades = {kind: _GRADES[kind.lower()] for kind in kinds if kind.lower() in _GRADES}
        shown = next((kind for kind in kinds if kind.lower() in _SHOWN), "")
        return cls(columns, grades, [kind for kind in kinds if kind not in grades and kind != shown], shown)

    def lines(self, time: str | None) -> Iterator[str]:
        """What a config says of them below ``events``; ``time`` is the column of the log."""
        timed = [role for role in self.columns if role != "time" or time]
        columns = (
            f"{role}: {'[' + self.columns[role] + ']' if role == 'list' else self.columns[role]}" for role in timed
        )
        yield f"  columns: {{{', '.join(columns)}}}"
        if "kind" in self.columns:
            none = f"; without one: {', '.join(self.others[:6])}" if self.others else ""
            grades = ", ".join(f"{kind}: {grade}" for kind, grade in self.grades.items())
            yield f"  grades: {{{grades}}}  # a guess, by the names{none}"
