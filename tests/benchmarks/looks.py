"""How often 14 daily looks find a difference: where there is none, and where there is one. Prints a table for the docs.

    python -m tests.benchmarks.looks [draws]

A user has a level of their own and each day a value around it, with the same standard deviation. At each look the value
of a user is the mean over the days so far, as in a comparison with a period.
"""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from rankmetrics_spark.statistics import AnyLook, Estimate, Looks, PlannedLook, over_looks

Floats = npt.NDArray[np.float64]

DAYS, USERS, LEVEL = 14, 300, 0.05
VISITS = ("one day", "any day", "from a first day on")
"""Each user comes on one day; on any day with probability 0.35; or on a first day, then daily with probability 0.5."""
SETTINGS = ("one", "any", "obrien_fleming", "pocock", "linear")
EFFECTS = {False: 0.27, True: 0.13}
"""Paired or not -> an effect that the last look alone finds in about 85 of 100 tests."""
AT_ONCE = 50


def rule_of(setting: str, look: int, tuning_users: int) -> Looks | None:
    """The rule of a look; None = the test of a single look."""
    if setting == "one":
        return None
    return AnyLook(tuning_users, LEVEL) if setting == "any" else PlannedLook(look, DAYS, setting, LEVEL)


def seen(visits: str, tests: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """(tests, users, days) whether a user comes."""
    days, first = np.arange(DAYS), rng.integers(0, DAYS, (tests, USERS, 1))
    if visits == "one day":
        return np.asarray(days == first)
    if visits == "any day":
        return np.asarray(rng.random((tests, USERS, DAYS)) < 0.35)
    return np.asarray((days == first) | ((days > first) & (rng.random((tests, USERS, DAYS)) < 0.5)))


def experiment(present: npt.NDArray[np.bool_], level: Floats, rng: np.random.Generator) -> Floats:
    """(tests, users, days) means of the users over the days so far; NaN before the first visit."""
    values = np.where(present, level + rng.normal(0, 1, present.shape), 0.0)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.cumsum(values, axis=2) / np.cumsum(present, axis=2))


def looks_at(
    visits: str, paired: bool, effect: float, tests: int, rng: np.random.Generator
) -> list[tuple[Estimate, Any]]:
    """The test of a single look on each day, with its users; paired users visit both sides on the same days."""
    present, level = seen(visits, tests, rng), rng.normal(0, 1, (tests, USERS, 1))
    a = experiment(present, level, rng)
    if not paired:
        present, level = seen(visits, tests, rng), rng.normal(0, 1, (tests, USERS, 1))
    b = experiment(present, level + effect, rng)
    result = []
    for day in range(DAYS):
        sides = [b[..., day] - a[..., day]] if paired else [b[..., day], a[..., day]]
        n = [np.count_nonzero(~np.isnan(side), axis=1) for side in sides]
        means = [np.nanmean(side, axis=1) for side in sides]
        errors = [np.nanvar(side, axis=1, ddof=1) / count for side, count in zip(sides, n, strict=True)]
        df = sum(errors) ** 2 / sum(e**2 / (k - 1) for e, k in zip(errors, n, strict=True))  # Welch; n - 1 if paired
        difference = means[0] - (0 if paired else means[1])
        result.append((Estimate.of(difference, np.sqrt(sum(errors)), df, 1 - LEVEL), sum(n)))
    return result


def first_finds(
    visits: str, paired: bool, effect: float, draws: int, seed: int = 1
) -> dict[str, npt.NDArray[np.int64]]:
    """Setting -> (draws,) the first look that finds a difference, 0 = none; and ``last look alone``."""
    rng, tuning_users = np.random.default_rng(seed), USERS if paired else 2 * USERS
    result: dict[str, list[Any]] = {setting: [] for setting in (*SETTINGS, "last look alone")}
    for _ in range(draws // AT_ONCE):
        looks = looks_at(visits, paired, effect, AT_ONCE, rng)
        for setting in SETTINGS:
            p = []
            for number, (single, n) in enumerate(looks, start=1):
                rule = rule_of(setting, number, tuning_users)
                p.append((over_looks(single, n, rule, 1 - LEVEL) if rule else single).p_value)
            passed = np.array(p) < LEVEL
            result[setting].append(np.where(passed.any(axis=0), passed.argmax(axis=0) + 1, 0))
        result["last look alone"].append(np.where(looks[-1][0].p_value < LEVEL, DAYS, 0))
    return {setting: np.concatenate(each) for setting, each in result.items()}


def main(draws: int) -> None:
    """Print the table."""
    designs = [(visits, paired) for paired in (False, True) for visits in VISITS]
    labels = [f"{'paired' if paired else 'independent'}, {visits}" for visits, paired in designs]
    none = [first_finds(visits, paired, 0.0, draws) for visits, paired in designs]
    some = [first_finds(visits, paired, EFFECTS[paired], draws) for visits, paired in designs[1::3]]
    print(f"| looks | {' | '.join(labels)} | power, independent | power, paired |")
    print("|---" * (len(labels) + 3) + "|")
    for setting in ("last look alone", *SETTINGS):
        shares = [f"{100 * np.mean(each[setting] > 0):.1f} %" for each in none]
        for each in some:
            hits = each[setting][each[setting] > 0]
            shares.append(f"{100 * np.mean(each[setting] > 0):.0f} %, on day {np.median(hits) if len(hits) else 0:.0f}")
        print(f"| {setting} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
