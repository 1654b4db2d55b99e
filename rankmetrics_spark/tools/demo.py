"""A seeded impression log of an A/B test with a known answer: the best ranker and the true grades."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from rankmetrics_spark.metrics import Floats, Ints

# A ranker sees the true affinity of a user to an item plus noise of this size: the less noise, the better it ranks.
NOISE = {"control": 1.0, "candidate_a": 0.5, "candidate_b": 2.0}
BEST_FIRST = tuple(sorted(NOISE, key=NOISE.__getitem__))

DAY = date(2026, 11, 20)
ITEMS, CANDIDATES, SLOTS, TASTES = 400, 20, 10, 8
# Grades 1, 2 and 3 start at these affinities; 14 %, 7 % and 4 % of the candidates have these grades.
GRADES = (0.6, 1.15, 1.75)
CLICK_IF_SEEN = np.array([0.02, 0.20, 0.50, 0.85])
COUNTRIES = {"DE": 0.30, "FR": 0.25, "GB": 0.20, "PL": 0.15, "SE": 0.10}
DEVICES = {"mobile": 0.62, "desktop": 0.30, "tablet": 0.08}
FILES = 4
FAULTS = 40
"""Rows of each kind of fault."""
USERS_PER_FAULT = 200


@dataclass(frozen=True)
class DemoLog:
    """Where a log was written, and what it contains.

    Attributes:
        impressions: Folder of Parquet files: event_date, variant, user_id, item_id, slot, model_score, clicked,
            country, device.
        judgements: Folder of Parquet files: user_id, item_id, grade (0 to 3), for every candidate, shown or not.
        rows: Number of impressions, faulty ones included.
        faulty: Number of faulty impressions that were added on purpose.
        config: YAML config that evaluates the clicks.
        best_first: The experiments from the best to the worst ranker, that is, from the least to the most noise.
    """

    impressions: Path
    judgements: Path
    rows: int
    faulty: int
    config: Path
    best_first: tuple[str, ...] = BEST_FIRST


def make_log(path: str | PathLike[str], users: int = 24_000, seed: int = 7, day: date = DAY) -> DemoLog:
    """Write the impressions of one day, ``SLOTS`` per user, and the judgements that the clicks depend on.

    Each user is in one experiment, chosen by a hash of the user. A click follows the position-based model:
    P(click) = P(the user sees the slot) * P(the user clicks | the grade), the same in every experiment.
    """
    rng = np.random.default_rng(seed)
    items = _candidates(rng, users)
    affinity = _affinity(rng, items)
    grades = np.digitize(affinity, GRADES)
    experiments = _experiments(users, seed)
    scores = affinity + np.array(list(NOISE.values()))[experiments, None] * rng.standard_normal(affinity.shape)
    top = np.argsort(-scores, axis=1)[:, :SLOTS]
    clicks = _clicks(rng, np.take_along_axis(grades, top, axis=1))
    impressions = _impressions(rng, day, experiments, _pick(items, top), _pick(scores, top), clicks)
    # In a small log fewer, so that no experiment has more than a run allows.
    faults = min(FAULTS, users // USERS_PER_FAULT)
    impressions = _add_faults(rng, impressions, faults)
    root = Path(path)
    return DemoLog(
        impressions=_write(impressions, root / "impressions"),
        judgements=_write(_judgements(items, grades), root / "judgements"),
        rows=impressions.num_rows,
        faulty=5 * faults,
        config=_config(root),
    )


def _candidates(rng: np.random.Generator, users: int) -> Ints:
    """(users, CANDIDATES) distinct items per user, sampled without replacement; popular items are more likely."""
    popularity = -0.6 * np.log(np.arange(1, ITEMS + 1))
    items = np.empty((users, CANDIDATES), np.int64)
    # A few users at a time, whose keys stay in the processor's cache.
    for start in range(0, users, 500):
        part = items[start : start + 500]
        keys = popularity + rng.gumbel(size=(len(part), ITEMS))
        part[:] = np.argpartition(-keys, CANDIDATES, axis=1)[:, :CANDIDATES]
    return items


def _affinity(rng: np.random.Generator, items: Ints) -> Floats:
    """(users, CANDIDATES) affinities: tastes of the user times qualities of the item, with a variance of about 1."""
    users = rng.standard_normal((len(items), TASTES))
    qualities = rng.standard_normal((ITEMS, TASTES)) / np.sqrt(TASTES)
    return np.take_along_axis(users @ qualities.T, items, axis=1)


def _experiments(users: int, seed: int) -> Ints:
    hashes = [zlib.crc32(f"{seed}/{name}".encode()) for name in _user_names(users)]
    return np.array(hashes, dtype=np.int64) % len(NOISE)


def _clicks(rng: np.random.Generator, grades: Ints) -> npt.NDArray[np.bool_]:
    sees_slot = 1 / np.arange(1, SLOTS + 1) ** 0.7
    clicks: npt.NDArray[np.bool_] = rng.random(grades.shape) < sees_slot * CLICK_IF_SEEN[grades]
    return clicks


def _impressions(
    rng: np.random.Generator, day: date, experiments: Ints, items: Ints, scores: Floats, clicks: npt.NDArray[np.bool_]
) -> pa.Table:
    users = len(items)
    order = rng.permutation(users)
    rows = np.repeat(order, SLOTS)
    country, device = (rng.choice(len(part), users, p=list(part.values())) for part in (COUNTRIES, DEVICES))
    columns = {
        "event_date": pa.array([day] * len(rows), pa.date32()),
        "variant": pa.array(list(NOISE)).take(pa.array(experiments[rows])),
        "user_id": pa.array(_user_names(users)).take(pa.array(rows)),
        "item_id": pa.array(_item_names()).take(pa.array(items[order].ravel())),
        "slot": pa.array(np.tile(np.arange(1, SLOTS + 1), users), pa.int32()),
        "model_score": pa.array(scores[order].ravel()),
        "clicked": pa.array(clicks[order].ravel(), pa.int32()),
        "country": pa.array(list(COUNTRIES)).take(pa.array(country[rows])),
        "device": pa.array(list(DEVICES)).take(pa.array(device[rows])),
    }
    return pa.table(columns)


def _add_faults(rng: np.random.Generator, log: pa.Table, faults: int) -> pa.Table:
    """Add the faults of real logs: missing ids, labels and scores, a slot 0, and rows that were delivered twice."""
    faulty = rng.choice(log.num_rows, (5, faults), replace=False)
    log = _overwrite(log, "item_id", faulty[0], None)
    log = _overwrite(log, "clicked", faulty[1], None)
    log = _overwrite(log, "model_score", faulty[2], float("nan"))
    log = _overwrite(log, "slot", faulty[3], 0)
    return pa.concat_tables([log, log.take(pa.array(faulty[4]))])


def _overwrite(log: pa.Table, column: str, rows: Ints, value: Any) -> pa.Table:
    field = log.schema.field(column)
    mask = np.zeros(log.num_rows, dtype=bool)
    mask[rows] = True
    values = pc.if_else(pa.array(mask), pa.scalar(value, field.type), log.column(column))
    return log.set_column(log.schema.get_field_index(column), field, values)


def _judgements(items: Ints, grades: Ints) -> pa.Table:
    users = np.repeat(np.arange(len(items)), CANDIDATES)
    columns = {
        "user_id": pa.array(_user_names(len(items))).take(pa.array(users)),
        "item_id": pa.array(_item_names()).take(pa.array(items.ravel())),
        "grade": pa.array(grades.ravel(), pa.int32()),
    }
    return pa.table(columns)


def _write(table: pa.Table, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // FILES)
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), folder / f"part-{number}.parquet")
    return folder


def _config(root: Path) -> Path:
    columns = {
        "experiment": "variant",
        "user": "user_id",
        "item": "item_id",
        "position": "slot",
        "score": "model_score",
        "relevance": "clicked",
    }
    path = str(root / "impressions")
    source = {"format": "parquet", "path": path, "columns": columns, "segments": ["country", "device"]}
    # Every row, on whatever date the demo runs: the log holds one day.
    source["where"] = "true"
    metrics = ["ap@5", "ap@10", "ndcg@5", "ndcg@10"]
    config = {"source": source, "metrics": metrics, "comparison": {"baseline": "control"}}
    file = root / "config.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return file


def _pick(values: npt.NDArray[Any], positions: Ints) -> npt.NDArray[Any]:
    return np.take_along_axis(values, positions, axis=1)


def _user_names(users: int) -> list[str]:
    return [f"user-{number:06d}" for number in range(users)]


def _item_names() -> list[str]:
    return [f"item-{number:04d}" for number in range(ITEMS)]
