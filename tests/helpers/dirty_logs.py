"""Random dirty logs, and a brute-force evaluation of them: plain Python, one row and one list at a time.

The evaluation follows the documentation, not the package: which rows are faulty, which of repeated rows stays, how ties
are settled, what the judgements mean. The values come from the loop definitions in ``tests/oracles.py``.
"""

import math
import random
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rankmetrics_spark.metrics import Convention, parse, resolve
from tests.oracles import One, by_definition, expected, m

NAN, INFINITE = math.nan, math.inf


class Row(NamedTuple):
    """One impression; any field may be faulty."""

    experiment_id: str | None
    user_id: str | None
    session: str | None
    item_id: str | None
    position: float | None
    score: float | None
    relevance: float | None


class Judged(NamedTuple):
    """One judgement; any field may be faulty."""

    user_id: str | None
    item_id: str | None
    relevance: float | None


@dataclass(frozen=True)
class Case:
    """How the logs are evaluated.

    Attributes:
        name: What the case is called.
        rank_by: ``position`` or ``score``.
        convention: As ``evaluate`` takes it.
        grades: Where grades come from: ``shown`` (no judgements), ``looked up``, or ``both`` (own relevance, judged
            pool).
        whole: Ranks and grades are whole numbers, as the layout ``masks`` needs them.
        session: A user has one list per session.
        layout: As ``evaluate`` takes it.
        repeated_items: As ``evaluate`` takes it.
        small: Only the logs of short lists, for oracles that go through every order of tied items.
        metrics: Their names.
        hashes: Item -> its hash: of two items with one grade at one rank, the smaller hash stays.
    """

    name: str
    rank_by: str = "position"
    convention: Any = "standard"
    grades: str = "shown"
    whole: bool = False
    session: bool = False
    layout: str = "auto"
    repeated_items: str = "relevant"
    small: bool = False
    metrics: Sequence[str] = field(default=())
    hashes: Mapping[str | None, int] = field(default_factory=dict, repr=False)

    @property
    def rule(self) -> Convention:
        """The convention with every knob."""
        return resolve(self.convention)

    @property
    def by_position(self) -> bool:
        return self.rank_by == "position"


# ---- logs


def dirty_log(seed: int, small: bool = False) -> list[Row]:
    """A shuffled log of one experiment, with what real logs contain; users of different seeds have different ids."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for user in range(rng.randint(1, 4)):
        for session in range(rng.randint(1, 3)):
            rows += _dirty_list(rng, str(seed), f"{seed} user {user}", f"s{session}", small)
    rows += [row._replace(experiment_id=rng.choice([None, ""])) for row in rng.sample(rows, min(1, len(rows)))]
    rng.shuffle(rows)
    return rows


def _dirty_list(rng: random.Random, experiment: str, user: str, session: str, small: bool) -> list[Row]:
    length = rng.randint(0, 5) if small else rng.choice([0, 1, 1, 2, 3, 5, 8, 12, 12, 30, 70])
    grades = rng.choice([[0.0], [0, 1], [0, 0, 0, 1], [0, 1, 2, 3], [-2, -1, 0, 1], [0, 7, 8, 12], [0, 0.5, 1, 2.5]])
    scores = rng.choice([[0.5], [0.1, 0.1 + 1e-9, 0.3], [-0.0, 0.0, 1e-300], [INFINITE, 1e308, -INFINITE, 5], None])
    ranks = list(range(1, length + 1))
    if rng.random() < 0.3:
        ranks = sorted(rng.sample(range(1, 2 * length + 10), length))
    names = (
        [f"i{n}" for n in range(length)] if rng.random() < 0.6 else rng.choices(["i1", "i10", "i2", "ä", "é"], k=length)
    )
    rows = [
        Row(experiment, user, session, name, rank, rng.choice(scores) if scores else rng.random(), rng.choice(grades))
        for name, rank in zip(names, ranks, strict=True)
    ]
    again = rng.choices(rows, k=rng.choice([0, 0, 1, 3])) if rows else []
    rows += [_changed(rng, row, grades, length) for row in again]
    return [_spoiled(rng, row) for row in rows]


def _changed(rng: random.Random, row: Row, grades: Sequence[float], length: int) -> Row:
    """A second row of the same item or of the same rank, or the same row once more."""
    changes: list[dict[str, Any]] = [
        {},
        {"item_id": f"other {row.item_id}", "relevance": rng.choice(grades)},
        {"position": rng.randint(1, length + 5), "relevance": rng.choice(grades)},
        {"position": rng.randint(1, length + 5)},
        {"position": rng.randint(1, length + 5), "score": rng.choice([0.5, 0.1, 0.9, 0.0])},
    ]
    return row._replace(**rng.choice(changes))


FAULTS: list[dict[str, Any]] = [
    {"user_id": None},
    {"session": None},
    {"item_id": None},
    *({"position": value} for value in (None, NAN, 1.5, 0, -3, 2.0**31, INFINITE, -INFINITE)),
    *({"score": value} for value in (None, NAN)),
    *({"relevance": value} for value in (None, NAN, INFINITE, -INFINITE)),
]


def _spoiled(rng: random.Random, row: Row) -> Row:
    return row._replace(**rng.choice(FAULTS)) if rng.random() < 0.06 else row


def dirty_judgements(seed: int, log: Iterable[Row]) -> list[Judged]:
    """Judgements of most users of a log, with unseen items, repeats and faults, and of a user without a list."""
    rng = random.Random(seed + 1)
    shown: dict[str | None, set[str | None]] = defaultdict(set)
    for row in log:
        shown[row.user_id].add(row.item_id)
    shown[f"{seed} without a list"] = {"i1", "i2"}
    rows: list[Judged] = []
    for user in sorted(shown, key=str):
        grades = rng.choice([[0], [0, 1], [-1, 0, 1, 2, 3], [0, 0.5, 8]])
        known = [item for item in sorted(shown[user], key=str) if rng.random() < 0.6]
        unseen = [f"unseen {n}" for n in range(rng.choice([0, 0, 1, 4]))]
        result = [Judged(user, item, rng.choice(grades)) for item in known + unseen]
        rows += result + [row._replace(relevance=rng.choice([*grades, None, NAN, INFINITE])) for row in result[:2]]
    rows = [row for row in rows if row.user_id is None or rng.random() < 0.9 or "without" in row.user_id]
    rng.shuffle(rows)
    return rows


# ---- rows: which are faulty, which repeat


def typed(row: Row, whole: bool) -> Row:
    """The row as a table of whole ranks and grades can hold it: what is no whole number of 64 bits is missing."""
    if not whole:
        return row
    position, relevance = (None if v is None or not math.isfinite(v) else int(v) for v in (row.position, row.relevance))
    return row._replace(position=position, relevance=relevance)


def fault(row: Row, case: Case) -> str | None:
    """Why the row is set aside, or None."""
    result = _faulty_id(row, case)
    if result is None and case.by_position:
        result = _faulty_rank(row.position)
    if result is None and not case.by_position:
        result = _faulty_number("score", row.score)
    if result is None and case.grades != "looked up" and not (case.grades == "both" and row.relevance is None):
        result = _faulty_number("relevance", row.relevance)
        if result is None and math.isinf(row.relevance or 0):
            result = "infinite_relevance"
    return result


def _faulty_id(row: Row, case: Case) -> str | None:
    if row.experiment_id is None:
        return "null_experiment"
    if row.experiment_id == "":
        return "empty_experiment"
    if row.user_id is None:
        return "null_user"
    if case.session and row.session is None:
        return "null_session"
    # Without a search for repeats the item column is not read.
    return "null_item" if row.item_id is None and case.repeated_items != "ignore" else None


def _faulty_number(name: str, value: float | None) -> str | None:
    if value is None:
        return f"null_{name}"
    return f"nan_{name}" if math.isnan(value) else None


def _faulty_rank(rank: float | None) -> str | None:
    result = _faulty_number("position", rank)
    if result is not None or rank is None:
        return result
    if math.isfinite(rank) and rank != int(rank):
        return "fractional_position"
    if rank < 1:
        return "position_below_1"
    return "position_too_large" if rank > 2**31 - 1 else None


def grade_order(row: Row) -> float:
    """Sort key: the highest grade first, unjudged last."""
    return INFINITE if row.relevance is None or math.isnan(row.relevance) else -row.relevance


def rank_order(row: Row) -> tuple[bool, float]:
    """Sort key: the smallest rank first, what is missing or no number last, behind an infinite rank."""
    rank = NAN if row.position is None else row.position
    return (True, 0.0) if math.isnan(rank) else (False, rank)


def without_repeats(rows: list[Row], case: Case) -> tuple[list[Row], Counter[str]]:
    """The rows that stay, and how many repeat an item or a rank."""
    best: Callable[[Row], Any] = rank_order if case.by_position else score_order
    keys: tuple[Callable[[Row], Any], ...] = (grade_order, best, rank_order)
    if case.rule.duplicates == "best_rank":
        keys = (best, grade_order, rank_order)
    kept, lost = rows, Counter[str]()
    if case.rule.duplicates != "count" and case.repeated_items != "ignore":
        kept = _first_of_each(rows, lambda row: row.item_id, keys)
        lost["duplicate_item"] = len(rows) - len(kept)
    if case.by_position:
        before = len(kept)
        kept = _first_of_each(kept, lambda row: row.position, (grade_order, lambda row: case.hashes[row.item_id]))
        lost["repeated_position"] = before - len(kept)
    return kept, +lost


def _first_of_each(rows: list[Row], what: Callable[[Row], Any], keys: Sequence[Callable[[Row], Any]]) -> list[Row]:
    result: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda row: [key(row) for key in keys]):
        result.setdefault(what(row), row)
    return list(result.values())


def score_order(row: Row) -> float:
    """Sort key: the highest score first."""
    assert row.score is not None
    return -row.score


# ---- lists


def ranked(rows: list[Row], rule: Convention) -> list[Row]:
    """The rows by descending score, equal scores by the rule; where the rule leaves it open, by grade."""
    ties: dict[str, list[tuple[Callable[[Row], Any], bool]]] = {
        "item_desc": [(lambda row: row.item_id, True)],
        "item_asc": [(lambda row: row.item_id, False)],
        "position": [(rank_order, False), (lambda row: row.item_id, True)],
        "best": [(grade_order, False)],
        "worst": [(grade_order, True)],
        "expected": [],
    }
    result = sorted(rows, key=grade_order)
    for key, reverse in reversed([(score_order, False), *ties[rule.ties]]):
        result.sort(key=key, reverse=reverse)
    return result


def one_list(rows: list[Row], pool: dict[str, float] | None, case: Case) -> One:
    """The grades in rank order and those of the judged items, for the oracles; a rank without an item is unjudged."""
    shown = Counter(row.item_id for row in rows)
    judged = (
        None
        if pool is None
        else [g for i, g in pool.items() for _ in range(max(1, shown[i]) if case.rule.duplicates == "count" else 1)]
    )
    rows = _condensed(rows, case) if case.rule.unjudged == "removed" else rows
    if case.by_position:
        at = {row.position: _grade(row) for row in rows}
        grades = tuple(at.get(rank, NAN) for rank in range(1, int(max((r or 0 for r in at), default=0)) + 1))
        scores: tuple[float, ...] = ()
    else:
        order = ranked(rows, case.rule)
        grades, scores = tuple(map(_grade, order)), tuple(row.score or 0.0 for row in order)
    own = tuple(grade for grade in map(_grade, rows) if not math.isnan(grade))
    return One(grades, own if judged is None else tuple(judged), scores)


def _condensed(rows: list[Row], case: Case) -> list[Row]:
    """The judged rows; by rank, each moves up by the unjudged rows above it."""
    judged = [row for row in rows if not math.isnan(_grade(row))]
    if not case.by_position:
        return judged
    unjudged = [row.position or 0 for row in rows if math.isnan(_grade(row))]
    return [r._replace(position=(r.position or 0) - sum(rank < (r.position or 0) for rank in unjudged)) for r in judged]


def _grade(row: Row) -> float:
    return NAN if row.relevance is None else row.relevance


def value(name: str, one: One, rule: Convention) -> float | None:
    """One metric of one list; None where the convention leaves the list out."""
    metric = parse(name)
    # Unjudged rows are removed already; what is left without a grade is a gap in the ranks.
    rule = replace(rule, unjudged="not_relevant")
    if rule.ties == "expected" and one.scores:
        result = expected(metric.name, one, rule, **metric.arguments)
    else:
        result = by_definition(metric.name, one, rule, **metric.arguments)
    if not math.isnan(result):
        return result
    # The convention says what a list without relevant items is worth, not what an empty list is.
    return {"zero": 0.0, "one": 1.0, "skip": None}[rule.zero_relevant] if metric.definition.zero_policy else None


# ---- the evaluation


@dataclass
class Evaluated:
    """What a case makes of some logs.

    Attributes:
        users: (experiment, user) -> counts and metrics.
        left_out: (experiment, user, reason) -> how many rows.
        contradicts: Users who are shown more relevant items in a list, or higher grades, than the judgements hold.
    """

    users: dict[tuple[str, str], dict[str, Any]]
    left_out: Counter[tuple[str | None, str | None, str]]
    contradicts: set[tuple[str, str]]


def pools_of(judgements: Iterable[Judged]) -> dict[str, dict[str, float]]:
    """User -> item -> grade: of a repeated item the highest; rows without an id or a finite grade are left out."""
    pools: dict[str, dict[str, float]] = defaultdict(dict)
    for user, item, grade in judgements:
        if user is not None and item is not None and grade is not None and math.isfinite(grade):
            pools[user][item] = max(grade, pools[user].get(item, -INFINITE))
    return pools


def evaluated(log: Iterable[Row], judgements: Iterable[Judged], case: Case) -> Evaluated:
    """Evaluate a log of any number of experiments, one list at a time."""
    pools = None if case.grades == "shown" else pools_of(judgements)
    result = Evaluated({}, Counter(), set())
    lists: dict[tuple[str, str], dict[str | None, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for given in log:
        row = typed(given, case.whole)
        reason = fault(row, case)
        if reason is not None:
            result.left_out[row.experiment_id, row.user_id, reason] += 1
            continue
        assert row.experiment_id is not None and row.user_id is not None
        if case.grades == "looked up":
            row = row._replace(relevance=(pools or {}).get(row.user_id, {}).get(str(row.item_id)))
        if case.rule.score_precision == 32:
            row = row._replace(score=_as_float32(row.score))
        lists[row.experiment_id, row.user_id][row.session if case.session else None].append(row)
    if pools is not None and case.rule.population in ("judged", "either"):
        for experiment in {name for name, _ in lists}:
            for user in pools:
                lists.setdefault((experiment, user), {})
    for key, sessions in lists.items():
        if pools is None or case.rule.population in ("shown", "either") or key[1] in pools:
            result.users[key] = _user(key, sessions, None if pools is None else pools.get(key[1], {}), case, result)
    return result


def _user(
    key: tuple[str, str],
    sessions: dict[str | None, list[Row]],
    pool: dict[str, float] | None,
    case: Case,
    to: Evaluated,
) -> dict[str, Any]:
    ones, shown = [], 0
    for rows in sessions.values():
        kept, lost = without_repeats(rows, case)
        for reason, n in lost.items():
            to.left_out[(*key, reason)] += n
        ones.append(one_list(kept, pool, case))
        shown += len(kept)
    if any(_contradicts(one) for one in ones):
        to.contradicts.add(key)
    lists = ones or [One((), tuple((pool or {}).values()))]
    relevant = [m(one, case.rule) for one in lists]
    counts = {"n_lists": len(ones), "n_relevant": sum(relevant) if pool is None else max(relevant), "n_shown": shown}
    values = {name: [value(name, one, case.rule) for one in lists] for name in case.metrics}
    return counts | {parse(name).column: _mean(some) for name, some in values.items()}


def _contradicts(one: One) -> bool:
    """Whether some shown grades are above those of the best judged items."""
    shown, judged = (sorted((g for g in grades if g > 0), reverse=True) for grades in (one.grades, one.pool))
    return len(shown) > len(judged) or any(a > b for a, b in zip(shown, judged, strict=False))


def _mean(values: Sequence[float | None]) -> float | None:
    present = [result for result in values if result is not None]
    return math.fsum(present) / len(present) if present else None


def _as_float32(score: float | None) -> float | None:
    if score is None:
        return None
    try:
        return float(struct.unpack("f", struct.pack("f", score))[0])
    except OverflowError:
        return math.copysign(INFINITE, score)
