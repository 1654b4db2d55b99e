"""One small log in shapes of warehouses, trackers and libraries: each comes in right or is refused in one sentence."""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark.engines import engine_of
from tests.helpers import commands, messages

SERVED = {
    ("control", "ann", "r1"): [("hat", 0), ("cap", 1), ("tie", 0)],
    ("control", "bob", "r2"): [("tie", 1), ("hat", 0), ("bow", 1)],
    ("new", "ann", "r3"): [("cap", 1), ("hat", 0), ("tie", 0)],
    ("new", "bob", "r4"): [("bow", 1), ("tie", 1), ("hat", 0)],
}
"""Experiment, user and request -> the items in their order, and whether they were clicked."""
MEANS = {"control": (1 / 2 + (1 / 1 + 2 / 3) / 2) / 2, "new": (1 + 1) / 2}
"""Experiment -> mean of AP@3."""
ROWS = [
    {"variant": of, "user_id": user, "request_id": request, "rank": rank, "item_id": item, "clicked": clicked}
    for (of, user, request), items in SERVED.items()
    for rank, (item, clicked) in enumerate(items, start=1)
]
FLAT = pd.DataFrame(ROWS)
LISTS = [
    {"variant": of, "user_id": user, "items": [item for item, _ in items], "clicks": [n for _, n in items]}
    for (of, user, _), items in SERVED.items()
]
SHOWN_AT, CLICKED_AT = 1_795_176_000_000_000, 1_795_176_030_000_000
"""Microseconds since 1970 on 2026-11-20, as GA4 writes them."""


def csv(frame: pd.DataFrame = FLAT, name: str = "log.csv", **options: Any) -> str:
    frame.to_csv(name, **{"index": False, **options})
    return name


def parquet(table: Any, name: str = "log.parquet") -> str:
    pq.write_table(table if isinstance(table, pa.Table) else pa.Table.from_pandas(table), name)
    return name


def lines(rows: Iterable[Any], name: str = "log.jsonl") -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def named(**names: str) -> pd.DataFrame:
    return FLAT.rename(columns=names)


def split(folder: str, key: str = "{}", **drop: str) -> str:
    for name, part in FLAT.groupby("variant"):
        file = Path(folder, key.format(name))
        file.parent.mkdir(parents=True, exist_ok=True)
        csv(part.drop(columns="variant"), str(file))
    return folder


def ga4(nested: bool = False) -> list[str]:
    """Flat, or as BigQuery exports it: the items of an event in an array, and events of other kinds."""
    rows: list[dict[str, Any]] = []
    for (of, user, request), items in SERVED.items():
        same = {"variant": of, "user_pseudo_id": user, "page_view_id": request, "event_timestamp": SHOWN_AT}
        shown = [{"item_id": item, "index": at} for at, (item, _) in enumerate(items, start=1)]
        clicks = [[one] for one, (_, clicked) in zip(shown, items, strict=True) if clicked]
        events = [("page_view", SHOWN_AT, []), ("view_item_list", SHOWN_AT, shown)]
        for name, at, of_event in [*events, *(("select_item", CLICKED_AT, click) for click in clicks)]:
            event = same | {"event_name": name, "event_timestamp": at}
            rows += [event | {"items": of_event}] if nested else [event | one for one in of_event or [{}]]
    return [parquet(pa.Table.from_pylist(rows if nested else [{"item_id": None, "index": None} | row for row in rows]))]


def apart() -> list[str]:
    clicks = FLAT[FLAT["clicked"] == 1].assign(event="click")[["request_id", "item_id", "event"]]
    return [parquet(FLAT.drop(columns="clicked")), "--events", csv(clicks, "clicks.csv")]


def partitions() -> list[str]:
    for name, part in FLAT.groupby("variant"):
        Path(f"log/variant={name}").mkdir(parents=True)
        parquet(part.drop(columns="variant"), f"log/variant={name}/part.parquet")
    return ["log"]


def packed(of: Callable[[list[Any]], str], name: str = "log.csv", **options: Any) -> list[str]:
    frame = pd.DataFrame(LISTS)
    return [csv(frame.assign(items=frame["items"].map(of), clicks=frame["clicks"].map(of)), name, **options)]


def orc() -> list[str]:
    pa.orc.write_table(pa.Table.from_pandas(FLAT, preserve_index=False), "log.orc")
    return ["log.orc"]


RIGHT, ON_SPARK = "", "the engine sail has no reader for it; use --engine spark"
SHAPES: dict[str, tuple[Callable[[], list[str]], str]] = {
    "semicolons": (lambda: [csv(sep=";")], RIGHT),
    "tabs, compressed": (lambda: [csv(name="log.tsv.gz", sep="\t")], RIGHT),
    "words with spaces": (lambda: [csv(named(user_id="User ID", item_id="Item ID", rank="Rank"))], RIGHT),
    "byte order mark": (lambda: [csv(encoding="utf-8-sig")], RIGHT),
    "UTF-16": (lambda: [csv(encoding="utf-16")], "its text is UTF-16; allowed: UTF-8"),
    "quoted, with commas": (lambda: [csv(FLAT.assign(item_id=FLAT["item_id"] + ", red"), quoting=1)], RIGHT),
    "yes and no": (lambda: [csv(FLAT.assign(clicked=FLAT["clicked"].map({0: "no", 1: "yes"})))],
                   "column 'clicked' holds no, yes; a relevance is a number, or true and false: map it first"),
    "True and False": (lambda: [csv(FLAT.assign(clicked=FLAT["clicked"] == 1))], RIGHT),
    "ranks from 0": (lambda: [csv(FLAT.assign(rank=FLAT["rank"] - 1))], RIGHT),
    "index of pandas": (lambda: [parquet(FLAT.set_index("request_id"))], RIGHT),
    "partitions": (partitions, RIGHT),
    "orc": (orc, ON_SPARK),
    "a file for each": (lambda: [split("logs", "{}.csv")], RIGHT),
    "clicks left out": (lambda: [lines({k: v for k, v in row.items() if k != "clicked" or v} for row in ROWS)],
                        "reasons: null_relevance 6"),
    "array of documents": (lambda: [lines([ROWS], "log.json")], RIGHT),
    "ids inside": (lambda: [lines({**row, "user_id": {"id": row["user_id"]}} for row in ROWS)], "user"),
    "parallel arrays": (lambda: [parquet(pd.DataFrame(LISTS))], RIGHT),
    "structs": (lambda: [parquet(pa.Table.from_pylist([
        {"variant": of, "customer": user, "results": [{"sku": item, "purchased": n == 1} for item, n in items]}
        for (of, user, _), items in SERVED.items()]))], RIGHT),
    "lists of JSON in cells": (lambda: packed(json.dumps), "df['clicks'].map(ast.literal_eval)).explode('clicks')"),
    "clicked items beside": (lambda: [parquet(pa.Table.from_pylist([
        {"variant": of, "user_id": user, "shown": [i for i, _ in items], "clicked": [i for i, n in items if n]}
        for (of, user, _), items in SERVED.items()]))],
        "columns of lists (clicked), which need a row per item of a list"),
    "GA4": (ga4, RIGHT),
    "GA4 of BigQuery": (lambda: ga4(nested=True), RIGHT),
    "clicks apart": (apart, RIGHT),
    "one row per list and click": (lambda: [csv(FLAT.drop(columns="rank"))], "rank"),
}  # fmt: skip


QUICK = ("GA4", "GA4 of BigQuery", "structs")


@pytest.mark.parametrize("shape", [shape if shape in QUICK else messages.slow(shape) for shape in SHAPES])
def test_a_shape_comes_in_right_or_is_refused(
    call: commands.Call, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make, said = SHAPES[shape]
    words = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in make()]
    code, out, err = call("init", *words, "-o", tmp_path / "c.yaml")
    if code == 0:
        to = ("--set", "metrics=ap@3", "--date", "2026-11-20", "--output", tmp_path / "out", "--format", "json")
        code, out, err = call("evaluate", "--config", tmp_path / "c.yaml", *to)
    if said and (said != ON_SPARK or engine_of(spark) == "sail"):
        assert code in (2, 3, 4), (code, out)
        (sentence,) = re.findall(r"^rankmetrics: (.*)$", err, re.MULTILINE)
        assert said in sentence
        return
    assert code == 0, err
    means = {row["experiment_id"]: row["mean"] for row in json.loads(out)["means"]}
    assert means == {name: pytest.approx(mean, abs=1e-12) for name, mean in MEANS.items()}
