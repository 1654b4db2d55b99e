"""Users who lost and gained most, as a part of the page: the lists of baseline and candidate side by side."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from rankmetrics_spark.metrics import parse
from rankmetrics_spark.report.figures import Examples, Figures, Row
from rankmetrics_spark.report.payload import as_script
from rankmetrics_spark.schemas import EXPERIMENT, METRIC, USER, number

MOST_BYTES = 500_000
"""Size of this part of the page; with more, the smaller changes have no lists."""
HINT = """<p class="fine">The users who lost and gained most, with both of their lists side by side:
<code>rankmetrics report --examples 20</code> reads them from the log; the page has ids and items of the log then.</p>
"""
"""How to get this part, on a page of paired users without it."""


def block(figures: Figures) -> str:
    """The section with its style, data and script, or how to get it. Names are data, never markup."""
    examples = figures.examples
    if figures.primary is None or (examples is None and not figures.user_changes):
        return ""
    if examples is None:
        return HINT
    n_users = len(dict.fromkeys(row[USER] for row in examples.changes))
    while True:
        data = as_script(data_of(examples, n_users))
        if len(data.encode()) <= MOST_BYTES or n_users <= 1:
            break
        n_users = n_users * 3 // 4
    texts = {name: files(__package__ or "rankmetrics_spark.report").joinpath(f"examples.{name}").read_text("utf-8")
             for name in ("html", "css", "js")}  # fmt: skip
    one, many = ("Query", "Queries") if examples.of_queries else ("User", "Users")
    page = texts["html"].replace("UNITS", many).replace("UNIT", one)
    return page.replace("/* style */", texts["css"]).replace("/* data */", data).replace("/* script */", texts["js"])


def data_of(examples: Examples, n_users: int) -> dict[str, Any]:
    """The numbers of the section, with the lists of so many users; every text once.

    Args:
        examples: What is shown.
        n_users: Users whose lists are there, those with the largest changes on the metric that decides first.
    """
    texts: dict[str, int] = {}

    def place(text: Any) -> int:
        """Of a text, among all of them."""
        return texts.setdefault(str(text), len(texts))

    users = [*dict.fromkeys(row[USER] for row in examples.changes)][:n_users]
    changes = [row for row in examples.changes if row[USER] in {*users}]
    metrics = [*dict.fromkeys(row[METRIC] for row in (*examples.changes, *examples.topics))]
    lists: dict[str, dict[int, dict[str, Any]]] = {}
    for row in examples.lists:
        if row[USER] in {*users}:
            of_user = lists.setdefault(f"{place(row[EXPERIMENT])} {place(row[USER])}", {})
            shown = of_user.setdefault(row["_which"], {"list": place(row["list"]), "size": row["size"], "rows": []})
            shown["rows"].append([row["rank"], place(row["item"]), number(row["grade"]), int(row["relevant"])])
    missed: dict[int, dict[str, Any]] = {}
    for row in examples.missed:
        if row[USER] in {*users}:
            left = missed.setdefault(place(row[USER]), {"n": row["n"], "items": []})
            left["items"].append([place(row["item"]), number(row["grade"])])
    return {
        "baseline": place(examples.baseline),
        "others": examples.others,
        "ahead": examples.is_ahead,
        "note": examples.note,
        "unit": "Query" if examples.of_queries else "User",
        "metrics": [metric_of(name) for name in metrics],
        "changes": [[*_key(row, metrics, place), row["size"], row["kind"]] for row in changes],
        "total": max(examples.n_changes, len(examples.changes)),
        "topics": [[*_key(row, metrics, place), row["difference"]] for row in examples.topics],
        "lists": {key: [*of_user.values()] for key, of_user in lists.items()},
        "missed": missed,
        "texts": [*texts],
    }


def metric_of(name: str) -> dict[str, Any]:
    """What the section says of a metric.

    >>> metric_of("ndcg@10")
    {'label': 'NDCG@10', 'lower': False}
    """
    metric = parse(name)
    return {"label": metric.headline.removeprefix("mean "), "lower": metric.higher_is_better is False}


def _key(row: Row, metrics: Sequence[str], place: Any) -> list[Any]:
    return [metrics.index(row[METRIC]), place(row[EXPERIMENT]), place(row[USER]),
            row["value_baseline"], row["value_candidate"]]  # fmt: skip
