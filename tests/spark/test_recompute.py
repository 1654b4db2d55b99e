"""``sink.lists`` and ``rankmetrics recompute``: what follows from stored lists is what the log gives, to the bit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import read, run
from rankmetrics_spark.config import Sink
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.job import recompute, verify
from tests.helpers.kills import Killed, count_down
from tests.helpers.logs import DATE, config, exact, parquet, random_log

TABLES = ("user_metrics", "experiment_metrics", "comparisons", "checks", "quarantine", "lists")
OLD = ["ap@5", "ndcg@10", "rr"]
LAX: dict[str, Any] = {"quality": {"max_invalid_fraction": 1}, "comparison": {"baseline": "a"}, "metrics": OLD}
SCORES = {"rank_by": "score", "source": {"columns": {"score": "position"}}}
KINDS: dict[str, dict[str, Any]] = {
    "clicks by position": LAX,
    "by score": LAX | SCORES,
    "several lists and segments": LAX | {"source": {"list": ["item_id"], "segments": ["relevance"]}},
    "items without relevance": LAX | {"metrics": [*OLD, "bpref"]},
    "all repeats": LAX | {"quality": {"max_invalid_fraction": 1, "repeated_items": "all"}, "percentiles": [50]},
    "changed lists": LAX | {"comparison": {"baseline": "a", "only_changed": True}},
    "one file": LAX | {"sink": {"layout": "by_date"}},
}


def published(spark: SparkSession, log: Path, out: Path, kind: dict[str, Any], **more: Any) -> None:
    """A run that stores its lists."""
    sections = kind | more
    sink = {"path": str(out), "lists": True} | sections.get("sink", {})
    run(spark, config(log, out, **(sections | {"sink": sink})))


def same(spark: SparkSession, out: Path, other: Path) -> None:
    """Every table of both outputs holds the same rows, to the bit."""
    for table in TABLES:
        rows, others = (read(spark, place / table) for place in (out, other))
        names = [name for name in others.columns if name != "run_id"]
        assert sorted(rows.columns) == sorted(others.columns), table
        assert exact(rows.select(*names).collect()) == exact(others.select(*names).collect()), table


@pytest.mark.parametrize("kind", KINDS)
def test_a_metric_from_stored_lists_is_that_of_the_log(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    log, out, other = parquet(tmp_path / "log", random_log(11, users=8)), tmp_path / "out", tmp_path / "other"
    sections, added = KINDS[kind], ["err@5", "p@3"]
    published(spark, log, out, sections)
    published(spark, log, other, sections, metrics=[*sections["metrics"], *added])
    recompute(spark, Sink(path=str(out)), added, dates=(DATE, None))
    same(spark, out, other)
    # And the record is that of a run which the log gives again.
    assert verify(spark, Sink(path=str(out))).other == []


REFUSED: dict[str, tuple[list[str], str | None, str, str]] = {
    "known": (["ap@5"], None, DATE, f"--metrics is ap@5, which {DATE} has already"),
    "every item": (["bpref"], None, DATE, "metric 'bpref' reads items without relevance, which the lists stored on"),
    "repeats": ([], "tfma", DATE, "has another duplicates, and so reads repeated or tied items"),
    "no date": (["err@5"], None, "2026-11-19", "nothing is published on 2026-11-19"),
    "nothing": ([], None, DATE, "nothing to recompute; allowed: --metrics, --convention, or both"),
}


def test_what_stored_lists_do_not_hold_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    log, out, other = parquet(tmp_path / "log", random_log(3, users=8)), tmp_path / "out", tmp_path / "other"
    published(spark, log, out, LAX)
    run(spark, config(log, other, **LAX))
    for names, convention, date, sentence in REFUSED.values():
        with pytest.raises((ConfigError, InputError), match=re.escape(sentence)):
            recompute(spark, Sink(path=str(out)), names, convention, (date, None))
    with pytest.raises(InputError, match=f"{DATE} cannot be recomputed: the lists of all experiments are not stored"):
        recompute(spark, Sink(path=str(other)), ["err@5"])


@pytest.mark.parametrize("after", [3, 14])
def test_a_recompute_that_is_killed_leaves_a_date_as_it_was_or_new(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    log, out = parquet(tmp_path / "log", random_log(3, users=4)), tmp_path / "out"
    published(spark, log, out, LAX)

    def state() -> list[Any]:
        return [exact(read(spark, out / table).collect()) for table in TABLES]

    before = state()
    with monkeypatch.context() as killing, pytest.raises(Killed):
        count_down(killing, after)
        recompute(spark, Sink(path=str(out)), ["err@5"])
    assert state() == before or "err_at_5" in read(spark, out / "user_metrics").columns
    if state() == before:
        recompute(spark, Sink(path=str(out)), ["err@5"])
    assert "err_at_5" in read(spark, out / "user_metrics").columns
