"""Periods whose experiments are about different days: what is doubted, and what is not."""

from collections.abc import Mapping

import numpy as np
import pytest

from rankmetrics_spark.comparison import Key, Totals, doubts_of_days

DATES = [f"2026-11-{day:02}" for day in range(8, 18)]
EVEN = dict.fromkeys(DATES, (300, 120))


def doubt(control: Mapping[str, tuple[int, int]], new: Mapping[str, tuple[int, int]]) -> str:
    """What is said of a pair whose experiments have so many users, and so many with a relevant item, on each date."""
    totals = Totals()
    for name, days in (("control", control), ("new", new)):
        for date, counts in days.items():
            totals.add(Key("day", "", name, date, ""), np.array(counts, np.int64))
    return doubts_of_days(totals, [("control", "new")]).get(("control", "new"), "")


def test_an_experiment_that_began_later_is_compared_from_there_on() -> None:
    later = {date: EVEN[date] for date in DATES[4:]}
    why = "new has no users on 4 of the 10 days of control (2026-11-08 to 2026-11-11): compare 2026-11-12 to 2026-11-17"
    assert doubt(EVEN, later) == why
    assert doubt(later, EVEN) == why.replace("new", "x").replace("control", "new").replace("x", "control")
    # A day in the middle leaves no period of common days.
    gap = {date: EVEN[date] for date in DATES if date != DATES[3]}
    assert doubt(EVEN, gap) == (
        "new has no users on 1 of the 10 days of control (2026-11-11): compare a period on whose days both have users"
    )
    # A row of judged users without a list is no user who came.
    assert doubt(EVEN, EVEN | {DATES[0]: (0, 0)}) == doubt(EVEN, {date: EVEN[date] for date in DATES[1:]})
    assert "compare 2026-11-17" in doubt(EVEN, {DATES[9]: EVEN[DATES[9]]})


def test_experiments_on_the_same_days_are_not_doubted() -> None:
    assert doubt(EVEN, EVEN) == ""
    assert doubt(EVEN, {}) == "", "it has no users at all, which another sentence says"
    assert doubt({DATES[0]: (3, 0)}, {DATES[0]: (5, 2)}) == ""
    rng = np.random.default_rng(1)
    for _ in range(50):
        control, new = ({date: (int(n), int(n) // 3) for date, n in zip(DATES, rng.poisson(mean, 10), strict=True)}
                        for mean in (3000, 300))  # fmt: skip
        assert doubt(control, new) == "", "a split of 10 to 1, with what chance does to it"


def test_days_without_any_relevant_item_are_named() -> None:
    broken = EVEN | {DATES[5]: (300, 0), DATES[6]: (290, 0)}
    assert doubt(EVEN, broken) == (
        "no user of new has a relevant item on 2026-11-13, 2026-11-14, while users of control do; these values count "
        "as 0: compare a period without these days"
    )
    assert doubt(broken, EVEN).startswith("no user of control has a relevant item on 2026-11-13, 2026-11-14, while")
    # (1 - 120 / 300)**20 is 4e-5: it can happen to 20 users; to 40 it does not (1e-9).
    assert doubt(EVEN, {DATES[0]: (20, 0)}).startswith("new has no users"), "the days come first"
    assert doubt({DATES[0]: (300, 120)}, {DATES[0]: (20, 0)}) == ""
    assert doubt({DATES[0]: (300, 120)}, {DATES[0]: (40, 0)}).endswith("compare a period without this day")
    assert doubt(broken, broken) == "", "a day on which nobody has one is the same for both"


def test_a_ramp_is_named_with_the_days_of_an_even_split() -> None:
    ramp = EVEN | dict.fromkeys(DATES[:4], (15, 6))
    said = doubt(EVEN, ramp)
    assert said == (
        "new has 4.8 % of the users of the two on 2026-11-08 and 50 % on 2026-11-12, so their means are about "
        "different days: compare a period with an even split, such as 2026-11-12 to 2026-11-17"
    )
    assert doubt(ramp, EVEN).startswith("new has 95 % of the users of the two on 2026-11-08 and 50 % on 2026-11-12")
    # The smaller side may be the baseline: it doubles from 5 to 10 %, while the candidate changes by a twentieth only.
    large = dict.fromkeys(DATES, (9_500, 3_800)) | dict.fromkeys(DATES[4:], (9_000, 3_600))
    small = dict.fromkeys(DATES, (500, 200)) | dict.fromkeys(DATES[4:], (1_000, 400))
    assert doubt(small, large) == (
        "new has 95 % of the users of the two on 2026-11-08 and 90 % on 2026-11-12, so their means are about "
        "different days: compare a period with an even split, such as 2026-11-12 to 2026-11-17"
    )
    # More users on weekends, in both.
    weekend = EVEN | dict.fromkeys(DATES[6:8], (900, 360))
    assert doubt(weekend, weekend) == ""
    # With many users, a split that moves by a fifth is sure, and harmless.
    many = dict.fromkeys(DATES, (1_000_000, 400_000))
    assert doubt(many, many | {DATES[0]: (850_000, 340_000)}) == ""
    assert doubt(many, many | {DATES[0]: (600_000, 240_000)}) != ""


@pytest.mark.parametrize("kind", ["arm", "shared"])
def test_sums_of_other_kinds_are_no_days(kind: str) -> None:
    totals = Totals()
    totals.add(Key(kind, "", "control", DATES[0], ""), np.array([300, 120], np.int64))
    totals.add(Key("day", "", "new", DATES[1], ""), np.array([300, 120], np.int64))
    assert doubts_of_days(totals, [("control", "new")]) == {}
