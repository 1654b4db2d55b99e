"""What limits the trust in a result: a check each, with what was found in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rankmetrics_spark.report.figures import Figures, Row, number
from rankmetrics_spark.schemas import EXPERIMENT, N_USERS, N_USERS_WITH_RELEVANT

FEW_USERS = 100
"""Below so many users in an experiment, a person is warned."""
MANY_FAULTY = MANY_TIED = 0.01
"""Above this share of faulty rows or of tied scores, a person is warned."""
FEW_JUDGED = 0.1
SMALL_RATIO_P = 0.001


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        level: ``ok``, ``warn`` (the answer may be wrong) or ``none`` (not looked at).
        title: What was looked at.
        text: What was found.
    """

    level: Literal["ok", "warn", "none"]
    title: str
    text: str


def checks(figures: Figures) -> list[Check]:
    """What was looked at, what weakens the answer first."""
    order = ("warn", "ok", "none")
    return sorted(_all(figures), key=lambda check: order.index(check.level))


def _all(figures: Figures) -> Iterator[Check]:
    yield from _users(figures)
    yield _split(figures)
    if not figures.record:
        yield Check("none", "Run record", "There is none, so the rows that came in are not known.")
        return
    yield _rows(figures.record)
    yield from _ties(figures.record)
    yield from _judged(figures.record)
    for warning in (figures.record.get("quality") or {}).get("warnings", ()):
        yield Check("warn", "Quality of the log", _sentence(warning))


def _users(figures: Figures) -> Iterator[Check]:
    users: dict[str, int] = {}
    with_relevant: dict[str, int] = {}
    for row in figures.everyone:
        users[row[EXPERIMENT]] = max(users.get(row[EXPERIMENT], 0), row[N_USERS])
        with_relevant[row[EXPERIMENT]] = row[N_USERS_WITH_RELEVANT]
    if not users:
        return
    fewest = min(users, key=users.__getitem__)
    few = [name for name, n in users.items() if n < FEW_USERS]
    if few:
        yield Check("warn", "Number of users", f"{fewest} has only {users[fewest]:,} users; intervals are rough.")
    else:
        yield Check("ok", "Number of users", f"{sum(users.values()):,} in all; at least {users[fewest]:,} in each.")
    without = 1 - sum(with_relevant.values()) / max(1, sum(users.values()))
    level: Literal["ok", "warn"] = "warn" if without > 0.5 else "ok"
    yield Check(
        level, "Users without a relevant item", f"{without:.1%} of the users; the convention says how they count."
    )


def _split(figures: Figures) -> Check:
    title = "Split of the users"
    ratio = next((number(row.get("sample_ratio_p")) for row in figures.compared), None)
    if ratio is None:
        return Check("none", title, "Not checked: comparison.shares says how users should be split.")
    if ratio < SMALL_RATIO_P:
        return Check("warn", title, f"Users are not split as planned (p = {ratio:.2g}). There is no verdict.")
    return Check("ok", title, f"As planned (p = {ratio:.2f}).")


def _rows(record: Row) -> Check:
    rows = record["rows"]
    share = rows["quarantined"] / max(1, rows["in"])
    if not rows["quarantined"]:
        return Check("ok", "Faulty rows", f"None of {rows['in']:,}.")
    found = f"{rows['quarantined']:,} of {rows['in']:,} rows ({share:.2%}) were faulty and are left out."
    return Check("warn" if share > MANY_FAULTY else "ok", "Faulty rows", found)


def _ties(record: Row) -> Iterator[Check]:
    counts = [count for count in record.get("experiments", {}).values() if count.get("evaluated")]
    tied = sum(count.get("tied", 0) for count in counts) / max(1, sum(count["evaluated"] for count in counts))
    by_score = record.get("config", {}).get("rank_by") == "score"
    if tied > 0:
        text = f"{tied:.1%} of the rows share their score with another of their list."
        yield Check("warn" if tied > MANY_TIED else "ok", "Ties", text)
    elif by_score:
        yield Check("ok", "Ties", "No two items of a list have the same score.")


def _judged(record: Row) -> Iterator[Check]:
    counts: list[dict[str, Any]] = list(record.get("experiments", {}).values())
    beyond = sum(count.get("beyond_judgements", 0) for count in counts)
    if beyond:
        text = f"{beyond:,} lists show more relevant items than the judgements hold; their values stop at 1."
        yield Check("warn", "Judgements", text)
    if not record.get("judgements"):
        return
    lists, judged = (sum(count[name] for count in counts) for name in ("lists", "judged_lists"))
    share = judged / max(1, lists)
    level: Literal["ok", "warn"] = "warn" if share < FEW_JUDGED else "ok"
    yield Check(level, "Judged lists", f"{share:.1%} of the lists belong to a user with judgements.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
