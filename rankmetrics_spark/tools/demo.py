"""A seeded impression log of an A/B test with a known answer: the best ranker, the true grades, the true difference."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from rankmetrics_spark.metrics import Array, Bools, Floats, Ints
from rankmetrics_spark.schemas import ROLES

# A ranker sees the true affinity of a user to an item plus noise of this size: the less noise, the better it ranks.
NOISE = {"control": 1.0, "candidate_a": 0.5, "candidate_b": 2.0}
BEST_FIRST = tuple(sorted(NOISE, key=NOISE.__getitem__))

#: The rankers of a log of several days: one is a little better, which one day rarely shows; one ranks as control.
NOISE_OF_DAYS = {"control": 1.0, "candidate_a": 0.8, "candidate_b": 1.0}

DAY = date(2026, 11, 20)
#: The first day of a log of several days.
FIRST_DAY = date(2026, 11, 8)
#: Each user has their own chance of a visit per day. Chances follow this beta distribution, with a mean of 0.2.
ACTIVITY = (0.6, 2.4)
ITEMS, CANDIDATES, SLOTS, TASTES = 400, 20, 10, 8
# Grades 1, 2 and 3 start at these affinities; 14 %, 7 % and 4 % of the candidates have these grades.
GRADES = (0.6, 1.15, 1.75)
CLICK_IF_SEEN = np.array([0.02, 0.20, 0.50, 0.85])
COUNTRIES = {"DE": 0.30, "FR": 0.25, "GB": 0.20, "PL": 0.15, "SE": 0.10}
DEVICES = {"mobile": 0.62, "desktop": 0.30, "tablet": 0.08}
FILES = 4
#: Rows of each kind of fault.
FAULTS = 40
USERS_PER_FAULT = 200


@dataclass(frozen=True)
class DemoLog:
    """Where a log was written, and what it contains.

    Attributes:
        impressions: Folder of Parquet files: event_date, variant, user_id, item_id, slot, model_score, clicked,
            country, device. In a log of several days, each day has its own folder ``event_date=...``.
        judgements: Folder of Parquet files: user_id, item_id, grade (0 to 3), for every candidate, shown or not.
        rows: Number of impressions, faulty ones included.
        faulty: Number of faulty impressions that were added on purpose.
        config: YAML config that evaluates the clicks.
        best_first: The experiments from the best to the worst ranker, that is, from the least to the most noise.
        days: The days of a log of several days, as YYYY-MM-DD; its config evaluates one of them.
        true_differences: In a log of several days, candidate -> true relative difference of NDCG@10 to control: every
            user of the log is shown what both rank. The mean is over users, each with the mean of their lists.
    """

    impressions: Path
    judgements: Path
    rows: int
    faulty: int
    config: Path
    best_first: tuple[str, ...] = BEST_FIRST
    days: tuple[str, ...] = ()
    true_differences: Mapping[str, float] = field(default_factory=dict)

    @property
    def known(self) -> str:
        """What an evaluation should come to, in words."""
        if not self.days:
            return f"known order of its rankers: {' > '.join(self.best_first)}"
        differences = ", ".join(f"{name} {100 * value:+.1f} %" for name, value in self.true_differences.items())
        return f"{self.days[0]} to {self.days[-1]}; true difference of NDCG@10 to control: {differences}"


def make_log(
    path: str | PathLike[str], users: int = 24_000, seed: int = 7, day: date | None = None, days: int = 1
) -> DemoLog:
    """Write the impressions of one day or of several, ``SLOTS`` per list, and the judgements that the clicks depend on.

    Each user is in one experiment, chosen by a hash of the user. A click follows the position-based model:
    P(click) = P(the user sees the slot) * P(the user clicks | the grade), the same in every experiment.

    On one day, every user has a list. In a log of several days each user has their own chance of a visit per day, so
    that some come back every day, others once or never, and the rankers are those of ``NOISE_OF_DAYS``.

    Args:
        path: Folder of the log; an earlier log there is replaced.
        users: Users of one day; in a log of several days those who may come.
        seed: Another seed makes another log.
        day: The first day; by default ``DAY``, and ``FIRST_DAY`` for several days.
        days: Number of days.
    """
    rng = np.random.default_rng(seed)
    # (users, CANDIDATES) distinct items per user, sampled without replacement; popular items are more likely.
    popularity = -0.6 * np.log(np.arange(1, ITEMS + 1))
    items = np.empty((users, CANDIDATES), np.int64)
    # A few users at a time, whose keys stay in the processor's cache.
    for start in range(0, users, 500):
        part = items[start : start + 500]
        keys = popularity + rng.gumbel(size=(len(part), ITEMS))
        part[:] = np.argpartition(-keys, CANDIDATES, axis=1)[:, :CANDIDATES]
    # (users, CANDIDATES) affinities: tastes of the user times qualities of the item, with a variance of about 1.
    of_users = rng.standard_normal((len(items), TASTES))
    qualities = rng.standard_normal((ITEMS, TASTES)) / np.sqrt(TASTES)
    affinity = np.take_along_axis(of_users @ qualities.T, items, axis=1)
    hashes = np.array([zlib.crc32(f"{seed}/{name}".encode()) for name in _user_names(users)], np.int64)
    people = _People(items, affinity, np.digitize(affinity, GRADES), hashes % len(NOISE))
    root = Path(path)
    for earlier in (*root.glob("impressions/part-*.parquet"), *root.glob("impressions/event_date=*/part-*.parquet")):
        earlier.unlink()
    first, written = (day or DAY, _one_day) if days == 1 else (day or FIRST_DAY, _all_days)
    log = written(rng, people, root, [first + timedelta(number) for number in range(days)])
    judged = np.repeat(np.arange(users), CANDIDATES)
    judgements = {
        "user_id": pa.array(_user_names(users)).take(pa.array(judged)),
        "item_id": pa.array(_item_names()).take(pa.array(items.ravel())),
        "grade": pa.array(people.grades.ravel(), pa.int32()),
    }
    _write(pa.table(judgements), log.judgements)
    return log


class _People(NamedTuple):
    """The users of a log.

    Attributes:
        items: (users, CANDIDATES) items that a ranker chooses from.
        affinity: (users, CANDIDATES) of the user to these items.
        grades: (users, CANDIDATES) of these items for the user.
        experiments: (users,) positions in ``NOISE``.
    """

    items: Ints
    affinity: Floats
    grades: Ints
    experiments: Ints


class _Lists(NamedTuple):
    """The lists of one day, one per user who came.

    Attributes:
        users: (n,) positions of the users.
        items: (n, SLOTS) items shown.
        scores: (n, SLOTS) scores of the ranker.
        clicks: (n, SLOTS).
        country: (n,) positions in ``COUNTRIES``.
        device: (n,) positions in ``DEVICES``.
    """

    users: Ints
    items: Ints
    scores: Floats
    clicks: Bools
    country: Ints
    device: Ints


def _one_day(rng: np.random.Generator, people: _People, root: Path, days: list[date]) -> DemoLog:
    """Write the impressions of a day on which every user has a list."""
    noise, users = np.array(list(NOISE.values())), len(people.items)
    draws = rng.standard_normal(people.affinity.shape), rng.random((users, SLOTS))
    top, scores, clicks = _ranked(people, np.arange(users), noise[people.experiments], *draws)
    order = rng.permutation(users)
    country, device = (_drawn(rng, parts, users) for parts in (COUNTRIES, DEVICES))
    shown = _pick(people.items, top)[order], scores[order], clicks[order]
    impressions = _impressions(people, _Lists(order, *shown, country[order], device[order]), list(NOISE))
    dates = pa.array([days[0]] * impressions.num_rows, pa.date32())
    # In a small log fewer, so that no experiment has more than a run allows.
    faults = min(FAULTS, users // USERS_PER_FAULT)
    impressions = _add_faults(rng, impressions.add_column(0, "event_date", dates), faults)
    return DemoLog(
        impressions=_write(impressions, root / "impressions"),
        judgements=root / "judgements",
        rows=impressions.num_rows,
        faulty=5 * faults,
        # Every row, on whatever date the demo runs: the log holds one day.
        config=_config(root, "true", ["ap@5", "ap@10", "ndcg@5", "ndcg@10"], {}),
    )


def _all_days(rng: np.random.Generator, people: _People, root: Path, days: list[date]) -> DemoLog:
    """Write the impressions of days on which each user comes with their own chance, a folder per day."""
    users, levels = len(people.items), np.array(list(NOISE_OF_DAYS.values()))
    chances = rng.beta(*ACTIVITY, users)
    country, device = (_drawn(rng, parts, users) for parts in (COUNTRIES, DEVICES))
    sums, n_lists, rows, faulty = np.zeros((len(levels), users)), np.zeros(users), 0, 0
    for day in days:
        came = rng.permutation(np.flatnonzero(rng.random(users) < chances))
        noise, seen = rng.standard_normal((len(came), CANDIDATES)), rng.random((len(came), SLOTS))
        # One visit in ten is on another device than the user's own.
        own = rng.random(len(came)) < 0.9
        used = np.where(own, device[came], _drawn(rng, DEVICES, len(came)))
        top, scores, clicks = _ranked(people, came, levels[people.experiments[came]], noise, seen)
        lists = _Lists(came, _pick(people.items[came], top), scores, clicks, country[came], used)
        faults = min(FAULTS, len(came) // USERS_PER_FAULT)
        impressions = _add_faults(rng, _impressions(people, lists, list(NOISE_OF_DAYS)), faults)
        _write(impressions, root / "impressions" / f"event_date={day}", files=1)
        rows, faulty = rows + impressions.num_rows, faulty + 5 * faults
        n_lists[came] += 1
        for experiment, level in enumerate(levels):
            sums[experiment, came] += _ndcg(_ranked(people, came, np.full(len(came), level), noise, seen)[2])
    means = (sums[:, n_lists > 0] / n_lists[n_lists > 0]).mean(axis=1)
    return DemoLog(
        impressions=root / "impressions",
        judgements=root / "judgements",
        rows=rows,
        faulty=faulty,
        config=_config(root, "event_date = '{date}'", ["ndcg@10", "ap@10"], {"period": {"from": str(days[0])}}),
        best_first=tuple(sorted(NOISE_OF_DAYS, key=NOISE_OF_DAYS.__getitem__)),
        days=tuple(map(str, days)),
        true_differences=dict(zip([*NOISE_OF_DAYS][1:], (means[1:] / means[0] - 1).tolist(), strict=True)),
    )


def _ranked(people: _People, came: Ints, level: Floats, noise: Floats, seen: Floats) -> tuple[Ints, Floats, Bools]:
    """What rankers with these levels of noise show to users: positions of the candidates, their scores, the clicks."""
    scores = people.affinity[came] + level[:, None] * noise
    top = np.argsort(-scores, axis=1)[:, :SLOTS]
    return top, _pick(scores, top), _clicks(seen, _pick(people.grades[came], top))


def _ndcg(clicks: Bools) -> Floats:
    """(n,) NDCG@10 of clicks: their discounts, 1 / log2(1 + rank), over those of as many first ranks; 0 without any."""
    discounts = 1 / np.log2(np.arange(2, SLOTS + 2))
    ideal = np.cumsum([0.0, *discounts])[clicks.sum(axis=1)]
    return np.asarray(clicks @ discounts / np.where(ideal > 0, ideal, 1.0))


def _clicks(draws: Floats, grades: Ints) -> Bools:
    """(n, SLOTS) clicks from as many draws out of [0, 1)."""
    sees_slot = 1 / np.arange(1, SLOTS + 1) ** 0.7
    return np.asarray(draws < sees_slot * CLICK_IF_SEEN[grades])


def _drawn(rng: np.random.Generator, parts: Mapping[str, float], n: int) -> Ints:
    """(n,) positions of names, drawn with their shares."""
    return rng.choice(len(parts), n, p=list(parts.values()))


def _impressions(people: _People, lists: _Lists, experiments: list[str]) -> pa.Table:
    rows = np.repeat(np.arange(len(lists.users)), SLOTS)
    users = lists.users[rows]
    columns = {
        "variant": pa.array(experiments).take(pa.array(people.experiments[users])),
        "user_id": pa.array(_user_names(len(people.items))).take(pa.array(users)),
        "item_id": pa.array(_item_names()).take(pa.array(lists.items.ravel())),
        "slot": pa.array(np.tile(np.arange(1, SLOTS + 1), len(lists.users)), pa.int32()),
        "model_score": pa.array(lists.scores.ravel()),
        "clicked": pa.array(lists.clicks.ravel(), pa.int32()),
        "country": pa.array(list(COUNTRIES)).take(pa.array(lists.country[rows])),
        "device": pa.array(list(DEVICES)).take(pa.array(lists.device[rows])),
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


def _write(table: pa.Table, folder: Path, files: int = FILES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"part-{number}.parquet")
    return folder


def _config(root: Path, where: str, metrics: list[str], comparison: Mapping[str, Any]) -> Path:
    columns = dict(zip(ROLES, ("variant", "user_id", "item_id", "slot", "model_score", "clicked"), strict=False))
    path = str(root / "impressions")
    source = {"format": "parquet", "path": path, "columns": columns, "segments": ["country", "device"], "where": where}
    # The folder around the log, as the command has it; an output may be around an input of this name alone.
    sink = {"path": str(root.parent if root.name == "input" else root / "results")}
    config = {"source": source, "metrics": metrics, "comparison": {"baseline": "control", **comparison}, "sink": sink}
    file = root / "config.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return file


def _pick(values: Array, positions: Ints) -> Array:
    return np.take_along_axis(values, positions, axis=1)


def _user_names(users: int) -> list[str]:
    return [f"user-{number:06d}" for number in range(users)]


def _item_names() -> list[str]:
    return [f"item-{number:04d}" for number in range(ITEMS)]
