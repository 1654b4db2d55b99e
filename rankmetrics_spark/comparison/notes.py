"""What a reader of a row of ``comparisons`` has to know: who is left out, who is counted twice, and CUPED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankmetrics_spark.comparison.adjusted import SMALL_EARLIER_P
from rankmetrics_spark.comparison.totals import (
    ALONE,
    ARM_SUMS,
    BASELINE,
    CANDIDATE,
    arm,
    of_arm,
    of_pair,
    sum_table,
)
from rankmetrics_spark.schemas import EVERYONE

if TYPE_CHECKING:
    from rankmetrics_spark.comparison.compared import Compared


def notes(rows: Compared) -> list[str | None]:
    """(g,) what a reader of each row has to know; first why it has no test, or why its test cannot be trusted."""
    return [
        "; ".join(filter(None, (doubt, _left_out_of_all(rows, i)))) if doubt else _remarks(rows, i)
        for i, doubt in enumerate(rows.doubts)
    ]


def _remarks(rows: Compared, i: int) -> str | None:
    """What a reader of the test has to know."""
    if rows.paired[i]:
        parts = _all_but(rows, i, int(rows.n_both[i]))
        of_users = f"without {' and '.join(parts)}, who are not in both experiments" if parts else None
    else:
        of_users = _overlap(rows, i)
    said = [of_users, _left_out_of_all(rows, i)]
    alone = []
    for place in (BASELINE, CANDIDATE):
        sums = rows.totals.sums.get(arm(rows.keys[i], place)._replace(kind=ALONE, segment=EVERYONE))
        if sums is not None:
            n = int(sums[0])
            alone.append(f"{n:,} user{'' if n == 1 else 's'} of {rows.keys[i][place]}")
    if alone:
        has = f"without one value of {rows.rules.cluster} count as clusters of their own"
        said.append(f"{' and '.join(alone)} {has}")
    if rows.rules.cuped and not rows.decided_by_cuped[i]:
        cuped, paired = rows.adjusted, rows.paired[i]
        if not cuped.n_before[i]:
            why = "no user has an earlier value" + (" in both experiments" if paired else "")
        elif not cuped.spread[i] > 0:
            same = "a user has the same earlier value in both experiments"
            why = same if paired else "all earlier values are equal"
        elif cuped.earlier_p[i] < SMALL_EARLIER_P:
            why = f"the experiments differed before already (p = {cuped.earlier_p[i]:.2g})"
        else:
            why = "too few users"
        said.append(f"CUPED is not used: {why}")
    said.append(rows.rules.days.gap if rows.rules.days else None)
    return "; ".join(filter(None, said)) or None


def _left_out_of_all(rows: Compared, i: int) -> str | None:
    """How many users of each experiment are left out because they are in another one too."""
    parts = []
    for place in (BASELINE, CANDIDATE):
        key = arm(rows.keys[i], place)._replace(segment=EVERYONE)
        if n := rows.left_out(key):
            users = int(of_arm(sum_table(rows.totals, [key], len(ARM_SUMS)), "users")[0])
            parts.append(f"{n:,} of the {n + users:,} {_of(rows)} {rows.keys[i][place]}")
    return f"without {' and '.join(parts)}, who are in more than one experiment" if parts else None


def _all_but(rows: Compared, i: int, both: int) -> list[str]:
    """How many users each experiment has beside so many, where it has some."""
    sizes = {place: rows.count(i, place, "n") for place in (BASELINE, CANDIDATE)}
    return [f"{n - both:,} of the {n:,} {_of(rows)} {rows.keys[i][place]}" for place, n in sizes.items() if n > both]


def _of(rows: Compared) -> str:
    """The units of an experiment whose name follows."""
    return "users of" if rows.rules.cluster is None else f"{rows.rules.units} in"


def _overlap(rows: Compared, i: int) -> str | None:
    """How many users a test of independent users takes for different ones, and what that does to it."""
    shared = int(of_pair(rows.both, "both")[i])
    if not shared:
        return None
    unit = rows.rules.units
    one = "user" if rows.rules.cluster is None else unit.replace("clusters", "cluster", 1)
    who = f"1 {one} is" if shared == 1 else f"{shared:,} {unit} are"
    covariance = float(rows.pair.covariance[i])
    width = "too wide" if covariance > 0 else "too narrow" if covariance < 0 else ""
    text = f"{who} in both experiments and counted as different ones" + (f": the interval is {width}" if width else "")
    # Where most users of a side are in both, the others may be why the means differ. Where experiments share a few
    # users only, everybody else is in one of them.
    sizes, parts = [rows.count(i, place, "n") for place in (BASELINE, CANDIDATE)], _all_but(rows, i, shared)
    if not parts or 2 * shared < min(sizes):
        return text
    who = f"{' and '.join(parts)} {'is' if sum(sizes) == 2 * shared + 1 else 'are'} in one experiment only"
    return f"{text}; {who}, which may be why the means differ (design: paired leaves them out)"
