"""Sees regressions: CPU seconds of the project over those of a query that does the same, against accepted ratios.

Both sides run in turn on the same log, so that a busy machine, a slow one or a cold cache is the same for both. CPU
seconds count instead of seconds, because other programs take a machine's time and not the work that a run does; and the
least of the rounds, because other programs can only add to them, by emptying caches.
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks import contenders
from tests.benchmarks.contenders import BARE, IGNORING, OURS, Contender

ACCEPTED = Path(__file__).parent / "accepted.csv"
ROWS = 1_000_000
ROUNDS, WARM_UP = 4, 2
PARTS_TO_ACCEPT = 3
"""Accepted ratios are measured so many times as long; the spread is that of the parts."""
LEAST_MARGIN = 0.5
"""A ratio up to this share above the accepted one passes: two measurements on one machine differ by up to a quarter,
and those of a quiet and a busy one, or of two kinds of processors, by more."""
SPREADS = 4
"""The margin is at least so many times the spread of the accepted parts ..."""
LARGEST_MARGIN = 0.7
"""... and never more than this."""

PAIRS = {
    **{
        f"on Sail, {kind} / DuckDB, same work": (f"ours on Sail, {kind}", f"DuckDB, same work{ending}")
        for kind, ending in contenders.SAME_WORK.items()
    },
    "on Sail, the job / its averages": ("ours on Sail, job", "ours on Sail, default"),
    "on Spark, default / Spark alone": (OURS, f"{BARE}clicks and items"),
    "on Spark, ignoring / Spark alone": (IGNORING, f"{BARE}clicks"),
    "on Spark, real-valued / Spark alone": ("ours, real-valued", f"{BARE}real values and items"),
    "on Spark, by score / Spark alone": ("ours, score", f"{BARE}scores and items"),
}
"""Ratio -> its contenders."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of the least CPU seconds: its median over parts of the rounds, and how far these are apart over it."""

    median: float
    spread: float

    @classmethod
    def of(cls, mine: Sequence[float], other: Sequence[float], parts: int) -> "Ratio":
        """From the CPU seconds of both sides in each round.

        >>> Ratio.of([3.0, 6.0, 4.0, 9.0], [2.0, 9.0, 2.0, 4.0], parts=2)
        Ratio(median=1.75, spread=0.2857142857142857)
        """
        pairs = zip(np.array_split(mine, parts), np.array_split(other, parts), strict=True)
        ratios = [float(a.min() / b.min()) for a, b in pairs]
        median = float(np.median(ratios))
        return cls(median, (max(ratios) - min(ratios)) / median)

    @property
    def limit(self) -> float:
        """The largest ratio that passes, where this is the accepted one."""
        return self.median * (1 + min(LARGEST_MARGIN, max(LEAST_MARGIN, SPREADS * self.spread)))


def measure(everyone: Sequence[Contender], path: str, names: Sequence[str], parts: int) -> dict[str, Ratio]:
    """The ratios with these names; contenders run in turn, ``ROUNDS`` for each part; the first turns do not count."""
    request = {name for ratio in names for name in PAIRS[ratio]}
    chosen = [contender for contender in everyone if contender.name in request]
    rounds = ROUNDS * parts
    seconds: dict[str, list[float]] = {contender.name: [] for contender in chosen}
    try:
        for contender in chosen:
            contender.prepare(path)
        for number in range(WARM_UP + rounds):
            print(f"  ratios, round {number + 1} of {WARM_UP + rounds} ...", file=sys.stderr, flush=True)
            for contender in chosen:
                cpu = contender.run(path).cpu
                if number >= WARM_UP:
                    seconds[contender.name].append(cpu)
    finally:
        for contender in chosen:
            contender.close()
    pairs = {name: PAIRS[name] for name in names if all(side in seconds for side in PAIRS[name])}
    return {name: Ratio.of(seconds[mine], seconds[other], parts) for name, (mine, other) in pairs.items()}


def slower(result: Mapping[str, Ratio], accepted: Mapping[str, Ratio]) -> list[str]:
    """The names of ratios beyond what was accepted."""
    return [name for name, ratio in result.items() if name in accepted and ratio.median > accepted[name].limit]


def check(everyone: Sequence[Contender], path: str) -> list[str]:
    """Print each ratio beside the accepted one; what is beyond it, also when measured a second time, is wrong."""
    accepted = read()
    now = measure(everyone, path, list(PAIRS), 1)
    if doubtful := slower(now, accepted):
        print(f"measured again: {', '.join(doubtful)}", flush=True)
        now |= measure(everyone, path, doubtful, 2)
    print("Ratios of CPU seconds, the least of the rounds, beside what was accepted")
    for name, ratio in now.items():
        known = accepted.get(name)
        beside = f"{known.median:.2f} (spread {known.spread:.0%}), at most {known.limit:.2f}" if known else "none"
        print(f"  {name}: {ratio.median:.2f}; accepted: {beside}")
    missing = [f"{name} was not measured" for name in accepted if name not in now]
    late = [f"{n} is {now[n].median:.2f}, at most {accepted[n].limit:.2f} is accepted" for n in slower(now, accepted)]
    return missing + late


def accept(everyone: Sequence[Contender], path: str) -> None:
    """Measure longer, and write the ratios as the accepted ones."""
    result = measure(everyone, path, list(PAIRS), PARTS_TO_ACCEPT)
    with ACCEPTED.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("ratio", "median", "spread"))
        writer.writerows((name, f"{ratio.median:.3f}", f"{ratio.spread:.3f}") for name, ratio in result.items())
    print(ACCEPTED.read_text())


def read() -> dict[str, Ratio]:
    with ACCEPTED.open(newline="") as file:
        return {row["ratio"]: Ratio(float(row["median"]), float(row["spread"])) for row in csv.DictReader(file)}
