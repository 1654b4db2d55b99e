"""How often comparisons of hard data are wrong, over users, zeros, arms and lists; prints a table for the docs.

    python -m tests.benchmarks.hard [draws] [data ...]

Each test is a metric of its own. Values and lists come from a few cells, so that a draw is how many users are in each:
the sums, which are exact, are those of the users (``tests/spark/test_hard_data_simulated.py``). Permutations draw 1,024
times, others in each test. Cells whose first tests are near the limits get more of them; what is printed is of all.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, product
from typing import Any

import numpy as np

from rankmetrics_spark import comparison, comparison as cmp, config as cfg, schemas as sch, statistics as st
from rankmetrics_spark.comparison.measures import KINDS, Key
from rankmetrics_spark.statistics import sparse
from tests.helpers.users import question

USERS, ZEROS, TIMES = (5, 20, 100, 400, 1000, 5000), (0.0, 0.5, 0.9, 0.98), (1, 4, 9, 19)
"""Users of the smaller experiment, the baseline; share of users without a hit; times as many in the candidate."""
PAIRED, CAPPED = "paired", "Pareto lists, capped"
DATA = ("values like AP", "0 or 1", "light lists", "Pareto lists", PAIRED, CAPPED)
COLUMNS = ("names", "test", "p_adjusted", "better", "adjusted")
LIFT, MOST_LISTS = 0.5, 10_000
MOST_USERS = 3 * 10**6
"""Of a cell whose users are drawn one by one, in all tests together."""


def cells_of(data: str) -> tuple[Any, Any, Any]:
    """(c,) values other than 0, lists and probabilities of the cells of users with a hit; 0 has the same lists."""
    values, lists = np.array([1.0]) if data == "0 or 1" else 1 / np.arange(1.0, 11), np.ones(1)
    chance = np.ones(1)
    if "lists" in data:
        lists = np.arange(1.0, 4 if data == "light lists" else MOST_LISTS)
        chance = np.ones(len(lists)) if len(lists) == 3 else lists**-1.5 - (lists + 1) ** -1.5
    chance = np.outer(np.ones(len(values)) / len(values), chance / chance.sum())
    return np.repeat(values, len(lists)), np.tile(lists, len(values)), chance.ravel()


def drawn(data: str, n: int, rate: float, draws: int, rng: Any) -> list[tuple[Any, Any, Any]]:
    """Of each draw, the values, the lists and the number of users of each cell that has some."""
    values, lists, chance = cells_of(data)
    values, lists = np.r_[values, 0 * values], np.r_[lists, lists]
    if len(chance) < 100:
        counts = rng.multinomial(n, np.r_[rate * chance, (1 - rate) * chance], draws)
        return [(values, lists, count) for count in counts]
    result = []
    for hits in rng.binomial(n, rate, draws):
        cell = rng.choice(len(chance), n, p=chance) + len(chance) * (np.arange(n) >= hits)
        cell, count = np.unique(cell, return_counts=True)
        result.append((values[cell], lists[cell], count))
    return result


def pairs_of(rates: tuple[float, float]) -> tuple[Any, Any, Any]:
    """(c,) values of both experiments and probabilities of users: half of them have the same one if rates are equal."""
    one = np.r_[0, cells_of(PAIRED)[0]]
    apart = [np.r_[1 - rate, np.full(len(one) - 1, rate / (len(one) - 1))] for rate in rates]
    same = np.diag(np.r_[1 - rates[1], apart[0][1:]])
    same[0, 1:] = apart[1][1:] - apart[0][1:]
    return np.repeat(one, len(one)), np.tile(one, len(one)), ((same + np.outer(*apart)) / 2).ravel()


@dataclass
class Cells:
    """The sums of a metric, of users of whom so many are in each cell."""

    totals: cmp.Totals
    metric: str
    count: Any

    def add(self, kind: str, names: tuple[str, str], counts: Any, **of: Any) -> None:
        each = np.stack([*KINDS[kind].cells(counts, **of)], axis=-1).astype(np.int64)
        self.totals.add(Key(kind, *names, sch.EVERYONE, self.metric), self.count @ each)

    def keep(self, kind: str, names: tuple[str, str], some: Any, *columns: Any) -> None:
        """Keep these columns of the users of some cells, as far as they are kept."""
        rows = np.repeat(np.stack(columns, axis=-1), np.where(some, self.count, 0), axis=0)
        self.totals.add(Key(kind, *names, sch.EVERYONE, self.metric), rows.view(np.int64).ravel())

    def add_arm(self, name: str, values: Any, lists: Any, by_lists: bool) -> None:
        """The sums of an experiment."""
        one, nothing, names = np.ones(len(values)), np.zeros(len(values)), ("", name)
        self.add("arm", names, (one, one, values > 0, nothing, values != 0, values != 1), v=values)
        if by_lists:
            self.add("arm_lists", names, [one], y=values * lists, n=lists)
            self.keep("arm_units", names, one > 0, values * lists, lists)
        else:
            self.keep("arm_values", names, values != 0, values)

    def add_pair(self, x: Any, y: Any) -> None:
        """The sums of users who are in both experiments."""
        self.add("pair", ("a", "b"), (np.ones(len(x)), y > x, y < x), x=x, y=y, d=y - x)
        self.keep("pair_values", ("a", "b"), x != y, y - x)


def rows_of(data: str, n: tuple[int, int], rates: tuple[float, float], draws: int, seed: int) -> tuple[Any, Any]:
    """The rows of comparisons of so many tests, column by column, and the users of each."""
    rng, totals, by_lists = np.random.default_rng(seed), cmp.Totals(), "lists" in data
    metrics = [f"m{draw}" for draw in range(draws)]
    design = "paired" if data == PAIRED else "auto"
    request = cfg.Comparison("a", correction="none", design=design, mean_over="lists" if by_lists else "users")
    if data == PAIRED:
        *values, chance = pairs_of(rates)
        counts = rng.multinomial(n[0], chance, draws)
        arms = [[(of, np.ones(len(of)), count) for count in counts] for of in values]
    else:
        arms = [drawn(data, size, rate, draws, rng) for size, rate in zip(n, rates, strict=True)]
    for metric, both in zip(metrics, zip(*arms, strict=True), strict=True):
        pooled = np.concatenate([np.repeat(lists, count) for _, lists, count in both]) if data == CAPPED else [np.inf]
        cap = np.quantile(pooled, 0.99, method="inverted_cdf")
        for name, (values, lists, count) in zip("ab", both, strict=True):
            Cells(totals, metric, count).add_arm(name, values, np.minimum(lists, cap), by_lists)
        if data == PAIRED:
            Cells(totals, metric, both[0][2]).add_pair(both[0][0], both[1][0])
    asked = replace(question(request, metrics), ranges=dict.fromkeys(metrics, (0.0, 1.0)))
    return cmp.comparison_rows(totals, asked, [comparison.STATISTICS[name] for name in COLUMNS]), arms


def summary(data: str, n: int, times: int, zeros: float, draws: int, seed: int, lift: float = 0.0) -> dict[str, Any]:
    """What so many tests of a cell say, with a true difference where there is a lift."""
    rates = (1 - zeros) / (1 + lift), 1 - zeros
    rows, arms = rows_of(data, (n, n * times), rates, draws, seed)
    values, lists, chance = cells_of(data)
    mean = float((values * lists * chance).sum() / (lists * chance).sum())
    truth = (rates[1] - rates[0]) * mean
    found = np.array([better is not None for better in rows["better"]])

    def wrong(name: str, value: float) -> Any:
        """The share of all tests whose interval does not hold the true value."""
        low, high = (np.array(rows[f"{name}_{end}"], float) for end in ("low", "high"))
        return np.mean((low > value + 1e-9) | (high < value - 1e-9))

    result = {
        "rule": Counter(str(test) for test in rows["test"]).most_common(1)[0][0],
        "found": found.mean(),
        "wrong": wrong("adjusted_ci", truth),
        "wrong share": wrong("adjusted_relative_ci", lift),
        "none": np.mean(np.isnan(np.array(rows["p_adjusted"], float))),
        "no interval": np.mean(np.isnan(np.array(rows["adjusted_ci_low"], float))),
        "expected": (1 - zeros) * n,
    }
    if data == PAIRED:
        x, y, chance = pairs_of(rates)
        result["expected"] = n * chance[x != y].sum()
    if lift and "lists" not in data and data != PAIRED:
        hits = [[np.repeat(v, count * (v != 0)) for v, _, count in arm] for arm in arms]
        result["permuted"] = np.mean([st.permuted_p(*of, (n, n * times)) < 0.05 for of in zip(*hits, strict=True)])
    return result


drawn_once = cache(lambda place, of=sparse._chances: next(of(place, 1, 2**14, 0)))
windows, at = cycle(range(0, 15 * 2**10, 331)), [0]
"""Each test has other ones of these random numbers, which are drawn once."""


def chances(first: int, places: int, draws: int, start: int) -> Iterator[Any]:
    """In place of those of ``sparse``, which are the same in all tests; the first place begins a test."""
    at[0] = at[0] if first else next(windows)
    return (drawn_once(place)[at[0] : at[0] + draws] for place in range(first, first + places))


def main(draws: int, *chosen: str) -> None:
    """Print every cell, and a table of each kind of data, by default of all, and rule."""
    sparse.DRAWS, sparse._chances = (2**10,), chances
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for data, n, times, zeros in product(chosen or DATA, USERS, TIMES, ZEROS):
        if data == PAIRED and times > 1:
            continue
        tests = draws // (16 if "lists" in data else 4)
        cell = summary(data, n, times, zeros, tests, 1)
        is_exact = cell["rule"] in ("permutation", "sign flips", "boschloo")
        least, most = 0.038 * (cell["expected"] >= 20 and not is_exact), 0.075 if is_exact else 0.059
        users = n * (times + 1) if "Pareto" in data else 1
        for seed, more in ((2, draws), (3, 4 * draws)):
            if (seed == 2 and not is_exact) or not least <= cell["found"] <= most:
                more = min(more, MOST_USERS // users)
                again = summary(data, n, times, zeros, more, seed)
                for name in ("found", "wrong", "wrong share", "none", "no interval"):
                    cell[name] = (cell[name] * tests + again[name] * more) / (tests + more)
                tests += more
        if cell["expected"] >= 20 and (data in (PAIRED, CAPPED) or cell["expected"] * times <= 500):
            lifted = summary(data, n, times, zeros, draws // 4, 4, LIFT)
            cell |= {"lost": lifted.get("permuted", np.nan) - lifted["found"], "power": lifted["found"]}
            cell |= {f"{name} with one": lifted[name] for name in ("wrong", "wrong share")}
        shown = {name: value if isinstance(value, str) else round(float(value), 4) for name, value in cell.items()}
        print(data, n, times, zeros, shown, file=sys.stderr, flush=True)
        lines.setdefault((data, cell["rule"]), []).append(cell)
    print("| data | rule | cells | error at most | at least, from 20 hits on | wrong intervals | none | power lost |")
    for (data, rule), cells in lines.items():
        least = min((cell["found"] for cell in cells if cell["expected"] >= 20), default=np.nan)
        wrong = max(cell.get(name, 0) for cell in cells for name in ("wrong", "wrong with one", "wrong share with one"))
        most, none, lost = (np.nanmax([cell.get(name, np.nan) for cell in cells]) for name in ("found", "none", "lost"))
        numbers = " | ".join(f"{100 * each:.1f}" for each in (most, least, wrong, none, lost))
        print(f"| {data} | {rule} | {len(cells)} | {numbers} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, *sys.argv[2:])
