"""Measures how cost grows with rows, metric columns and experiments; writes a CSV and plots for the docs."""

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import matplotlib
from pyspark.sql import SparkSession

from tests.benchmarks import data, observe
from tests.benchmarks.peers import floors, ours
from tests.benchmarks.run import session

matplotlib.use("Agg")
from matplotlib import pyplot

METRICS = ("ap", "ndcg", "p", "r", "f1", "hit_rate")
LABELS = {"rows": "impressions", "columns": "metric columns", "experiments": "experiments"}


@dataclass(frozen=True)
class Point:
    """One measured point: the axis that varies, its sizes, and the medians over the rounds."""

    axis: str
    rows: int
    columns: int
    experiments: int
    seconds: float
    floor_seconds: float
    jobs: int
    shuffle_bytes: int
    cpu_seconds: float

    @property
    def x(self) -> int:
        return int(getattr(self, self.axis))


def columns(count: int) -> tuple[str, ...]:
    """The first ``count`` of ap@1, ndcg@1, ..., hit_rate@10."""
    return tuple(f"{metric}@{k}" for k in range(10, 0, -1) for metric in METRICS)[:count]


def points(sizes: Sequence[int], base: int) -> list[tuple[str, int, int, int]]:
    """(axis, rows, columns, experiments) of each point. One size varies at a time."""
    rows = [("rows", size, 12, 4) for size in sizes]
    return rows + [("columns", base, n, 4) for n in (2, 12, 60)] + [("experiments", base, 12, n) for n in (2, 16, 128)]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    spark, folder = session(), Path(options.data).resolve()
    measured = []
    for axis, rows, count, experiments in points(options.rows, options.base):
        path = data.ensure(spark, folder, data.Dataset(rows, experiments=experiments))
        measured.append(_measure(spark, path, options.rounds, (axis, rows, count, experiments)))
        print(measured[-1], flush=True)
    docs = Path(options.docs)
    _write_csv(docs / "pictures" / "growth.csv", measured)
    for axis in LABELS:
        _picture(docs / "pictures" / f"growth_{axis}.png", [p for p in measured if p.axis == axis])
    spark.stop()
    return 0


def _measure(spark: SparkSession, path: str, rounds: int, what: tuple[str, int, int, int]) -> Point:
    times: list[float] = []
    bare: list[float] = []
    for number in range(rounds + 1):
        start = time.perf_counter()
        floors.count(path)
        middle = time.perf_counter()
        with observe.cost(spark) as cost:
            start_ours = time.perf_counter()
            ours.run(path, metrics=columns(what[2]))
            end = time.perf_counter()
        if number:
            bare.append(middle - start)
            times.append(end - start_ours)
    seconds = statistics.median(times), statistics.median(bare)
    return Point(*what, *(round(s, 3) for s in seconds), cost.jobs, cost.shuffle_bytes, round(cost.cpu_seconds, 3))


def _write_csv(path: Path, measured: Sequence[Point]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Point)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(point) for point in measured)


def _picture(path: Path, measured: Sequence[Point]) -> None:
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    xs = [point.x for point in measured]
    axes.plot(xs, [point.seconds for point in measured], "o-", label="evaluate")
    axes.plot(xs, [point.floor_seconds for point in measured], "s--", color="grey", label="groupBy().count()")
    axes.set(xscale="log", xlabel=LABELS[measured[0].axis], ylabel="seconds", ylim=(0, None))
    axes.set_xticks(xs, [f"{x:,}" for x in xs])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    million = 1_000_000
    sizes = [million, 3 * million, 10 * million, 30 * million]
    parser.add_argument("--rows", type=int, nargs="+", default=sizes, help="numbers of rows for the first curve")
    parser.add_argument("--base", type=int, default=10 * million, help="number of rows for the other curves")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds")
    parser.add_argument("--data", default="out/bench", help="folder for the data")
    parser.add_argument("--docs", default="docs", help="folder in whose pictures/ the plots and the CSV go")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
