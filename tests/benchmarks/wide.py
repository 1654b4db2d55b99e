"""Measures how the cost of whole jobs grows with their rows and with the width of a request.

``python -m tests.benchmarks.wide [--engine sail] [--of rows segments days]`` prints CPU seconds of all
processes for many rows, experiments, values of a segment, metric columns, stored days, and rows that are logged twice,
of ten million. It runs where only Sail is.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import laptop_session, run
from rankmetrics_spark.cli import compare
from rankmetrics_spark.cli.earlier import CompareRequest, comparison_of
from rankmetrics_spark.engines import in_order
from rankmetrics_spark.engines.spark import local_session
from rankmetrics_spark.report import figures_of, local_tables, write_page
from tests.benchmarks import observe
from tests.helpers.logs import config

SIZES = {
    "rows": (1_000_000, 3_000_000, 10_000_000),
    "experiments": (1_000, 3_000, 10_000),
    "segments": (200, 600, 2_000),
    "metrics": (30, 100, 300),
    "days": (14, 30, 90),
    "repeats": (0, 1, 1_000, 100_000),
}
"""What grows -> its sizes."""
FIRST = date(2026, 1, 1)
WIDE = ("ap", "ndcg", "p", "r", "f1", "hit_rate", "rr", "cg", "dcg", "idcg")
"""Metrics of the widest request: at 30 cut-offs each, 300 columns."""
LISTS, ITEMS, LONG = 4, 10, 50
"""Lists of each of many experiments, and items of a list; of a list of a stored day."""
COLUMNS = ("ap_at_10", "ndcg_at_10")
"""Metrics of a stored day."""
BYTES = {"rows": 100, "experiments": 100_000, "segments": 12_000, "metrics": 300_000, "days": 100, "repeats": 5_000}
"""Of disk for one more of each, at most; of ``days`` for each user and day."""


@dataclass(frozen=True)
class Cost:
    """CPU seconds of all processes of one size."""

    axis: str
    size: int
    parts: dict[str, float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what each size costs; refuse before anything is written if the disk has no room for it."""
    options = _options(arguments)
    chosen = {axis: options.sizes or SIZES[axis] for axis in options.of}
    if options.sizes and len(chosen) > 1:
        raise SystemExit("--sizes with more than one --of; allowed: --of with one of " + ", ".join(SIZES))
    parent = Path(options.data).resolve()
    parent.mkdir(parents=True, exist_ok=True)
    needed, free = room_for(chosen, options.users), shutil.disk_usage(parent).free
    sentence = f"{needed / 1e9:,.1f} GB of disk are needed in {parent}, and {free / 1e9:,.1f} GB are free"
    if needed > free:
        raise SystemExit(f"{sentence}; allowed: smaller --sizes or --users, or a --data with more room")
    print(sentence, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="wide-", dir=parent))
    settings = {"spark.driver.memory": "2g"}
    spark = laptop_session() if options.engine == "sail" else local_session("local[2]", "growth", settings)
    try:
        for axis, sizes in chosen.items():
            measure = {"days": _days, "repeats": _repeats}.get(axis, _request)
            measure(spark, folder, axis, min(20, *sizes), min(2_000, options.users))  # a warm-up
            costs: list[Cost] = []
            for size in sizes:
                costs.append(measure(spark, folder, axis, size, options.users))
                print("\n".join(_lines(options.engine, costs)), flush=True)
            print()
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def room_for(chosen: dict[str, Sequence[int]], users: int) -> int:
    """Bytes that the largest of these sizes takes on disk, since one follows another and each is removed.

    >>> room_for({"metrics": [30, 300]}, 1), room_for({"days": [90]}, 1_000) > 90 * 2 * 1_000 * BYTES["days"]
    (90000000, True)
    """
    most = {axis: max(sizes) * BYTES[axis] for axis, sizes in chosen.items()}
    if "days" in most:
        most["days"] = BYTES["days"] * 2 * users * (max(chosen["days"]) + LONG)
    return max(most.values())


def _request(spark: SparkSession, folder: Path, axis: str, size: int, users: int) -> Cost:
    """A job with comparisons, its verdict and its tables; then the page from the stored tables."""
    log, out = folder / "log", folder / "out"
    several = size if axis == "experiments" else 2
    n = {"experiments": several * LISTS, "rows": size // ITEMS}.get(axis, max(4_000, 10 * size))
    values = size if axis == "segments" else 1
    _write_log(log, np.arange(n) % several, np.arange(n), ITEMS, np.arange(n) // several % values)
    names = [f"{metric}@{k}" for k in range(1, 1 + size) for metric in WIDE][:size]
    metrics = names if axis == "metrics" else ["ap@10", "ndcg@10"]
    source = {"source": {"segments": ["country"]}} if axis == "segments" else {}
    settings = config(log, out, metrics=metrics, comparison={"baseline": "e0"}, **source)
    job = _cpu(lambda: run(spark, settings))
    page = _cpu(lambda: write_page(figures_of(local_tables(str(out))), folder / "page.html"))
    for each in (log, out):
        shutil.rmtree(each)
    return Cost(axis, size, {"job": job, "page": page})


def _repeats(spark: SparkSession, folder: Path, axis: str, size: int, users: int) -> Cost:
    """A job over a log in which some rows are there twice."""
    log, out, n = folder / "log", folder / "out", SIZES["rows"][-1] // LONG
    _write_log(log, np.arange(n) % 2, np.arange(n), LONG, repeats=size)
    job = _warm_cpu(lambda: run(spark, config(log, out, metrics=["ap@10"], quality={"max_invalid_fraction": 0.05})))
    for each in (log, out):
        shutil.rmtree(each)
    return Cost(axis, size, {"job": job})


def _days(spark: SparkSession, folder: Path, axis: str, size: int, users: int) -> Cost:
    """The evaluation of one day, then the comparison of so many stored days, each with half of all users.

    Then again where the run of the fourth last day has stored states: the oldest one with ``sink.user_states: 4``.
    """
    log, out = folder / "log", folder / "out"
    _write_log(log, np.arange(2 * users) % 2, np.arange(2 * users), LONG)
    settings = config(log, out, evaluation_date=FIRST.isoformat(), metrics=["ap@10", "ndcg@10"])

    def evaluate() -> None:
        shutil.rmtree(out, ignore_errors=True)
        run(spark, settings)

    day = _warm_cpu(evaluate)
    days = [(FIRST + timedelta(days=n)).isoformat() for n in range(size)]
    store_days(out, days, users)
    asked = ["--input", str(out), "--baseline", "e0", "--from", days[0], "--to", days[-1]]
    request = CompareRequest(**compare.make_context("compare", asked).params)
    compared = _warm_cpu(lambda: comparison_of(spark, request))
    grouped = _warm_cpu(lambda: _grouped(spark, out))
    moved = _warm_cpu(lambda: _moved(spark, out))
    of_run = {"comparison": {"baseline": "e0", "period": {"from": days[0]}}, "metrics": ["ap@10", "ndcg@10"]}
    stored, later = (
        _warm_cpu(lambda sink=sink, date=date: run(spark, config(log, out, evaluation_date=date, sink=sink, **of_run)))
        for sink, date in (({"path": str(out), "user_states": 1}, days[-4:][0]), ({"path": str(out)}, days[-1]))
    )
    with_states = _warm_cpu(lambda: comparison_of(spark, request))
    size_of = sum(file.stat().st_size for file in (out / "user_states").rglob("*.parquet"))
    rows = sum(pq.read_metadata(file).num_rows for file in (out / "user_states").rglob("*.parquet"))
    print(f"{size:,} days: a state of {rows:,} users takes {size_of / 1e6:,.1f} MB")
    for each in (log, out):
        shutil.rmtree(each)
    parts = {"day": day, "compared": compared, "engine alone": grouped, "engine, to Python": moved}
    return Cost(axis, size, parts | {"with states": with_states, "run that stores": stored, "run that reads": later})


def _means(spark: SparkSession, out: Path) -> DataFrame:
    """Each user's means, of sums of doubles."""
    users = spark.read.parquet(str(out / "user_metrics")).groupBy("experiment_id", "user_id")
    return users.agg(*(F.expr(f"sum({name} * n_lists) / sum(n_lists) AS {name}") for name in COLUMNS))


def _moved(spark: SparkSession, out: Path) -> None:
    """The least for statistics in Python: each user's means, in order of the users, counted there."""
    hashes = ("xxhash64(user_id) AS first", "xxhash64(user_id, 1) AS second")
    users = _means(spark, out).selectExpr(*hashes, "experiment_id", *COLUMNS)
    rows = in_order(users, ["first"], ["first", "second"], [F.shiftright("first", 52)])
    rows.mapInArrow(_counted, "n long").collect()


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})


def _grouped(spark: SparkSession, out: Path) -> None:
    """The least that the engine needs: each user's means, and their sums and squares in each experiment."""
    means = _means(spark, out)
    sums = (
        F.expr(f"{sql} AS {alias}")
        for name in COLUMNS
        for sql, alias in ((f"sum({name})", name), (f"sum({name} * {name})", f"{name}_2"))
    )
    means.groupBy("experiment_id").agg(*sums).collect()


def store_days(out: Path, days: Sequence[str], users: int) -> None:
    """Store the users of the first day under the other dates too, as runs would: other users, the same values."""
    for folder in [*out.glob(f"user_metrics/*/evaluation_date={days[0]}")]:
        # A large day has several files of an experiment; each other date gets one, so nobody is drawn twice.
        files = sorted(folder.glob("*.parquet"))
        table = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
        place = table.column_names.index("user_id")
        for number, day in enumerate(days[1:], start=1):
            drawn = np.random.default_rng(number).choice(2 * users, len(table), replace=False)
            target = folder.parent / f"evaluation_date={day}"
            target.mkdir()
            # Of all users of the experiment, among them those of the first day.
            names = pa.array(np.char.add("u", (2 * drawn + int(folder.parent.name[-1])).astype(str)))
            pq.write_table(table.set_column(place, table.schema.field(place), names), target / files[0].name)
    pointer = (out / "published" / f"{days[0]}.json").read_text(encoding="utf-8")
    for day in days[1:]:
        (out / "published" / f"{day}.json").write_text(pointer.replace(days[0], day), encoding="utf-8")


def _write_log(folder: Path, experiment: Any, user: Any, items: int, country: Any = None, repeats: int = 0) -> None:
    """One list of each user, with 20 % of its items relevant; ``repeats`` rows are there twice."""
    rng, n = np.random.default_rng(1), len(user)
    columns = {
        "experiment_id": np.char.add("e", experiment.astype(str)).repeat(items),
        "user_id": np.char.add("u", user.astype(str)).repeat(items),
        "item_id": np.tile([f"i{k}" for k in range(items)], n),
        "position": np.tile(np.arange(1, items + 1), n),
        "relevance": rng.integers(0, 5, n * items) // 4,
    }
    if country is not None:
        columns["country"] = np.char.add("c", country.astype(str)).repeat(items)
    folder.mkdir()
    places = np.sort(np.append(np.arange(n * items), np.arange(repeats) * (n * items // max(1, repeats))))
    table = pa.table(columns)
    pq.write_table(table.take(places) if repeats else table, folder / "part.parquet")


def _cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process and of all that it has started: other programs add nothing."""
    start = observe.cpu_seconds_of_all()
    work()
    return observe.cpu_seconds_of_all() - start


def _warm_cpu(work: Callable[[], object]) -> float:
    """The lower of two runs: the first one warms up."""
    return min(_cpu(work) for _ in range(2))


def _lines(engine: str, costs: Sequence[Cost]) -> list[str]:
    """The line of the newest size, below the head of its table if it is the first one.

    Its last columns say how much more it costs than its share of the smallest size, or than one day's evaluation.
    """
    first, newest = costs[0], costs[-1]
    parts, of_days = [*newest.parts], newest.axis == "days"
    times = newest.size / first.size if first.size else 1
    growth = [f"{newest.parts[part] / first.parts[part] / times:.2f}" for part in parts]
    beside = [part for part in parts if part != "compared"]
    more = [f"{newest.parts['compared'] / newest.parts[part]:.2f}" for part in beside] if of_days else growth
    cells = [f"{newest.size:,}", *(f"{each:.2f}" for each in newest.parts.values()), *more]
    grown = "growth / linear" if first.size else "growth"
    heads = [f"compared / {part}" for part in beside] if of_days else [f"{part}, {grown}" for part in parts]
    heads = [f"{newest.axis}, on {engine}", *(f"{part}, CPU s" for part in parts), *heads]
    lines = [heads, ["---:"] * len(heads), cells] if len(costs) == 1 else [cells]
    return [f"| {' | '.join(line)} |" for line in lines]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["spark", "sail"], default="spark")
    parser.add_argument("--of", nargs="+", choices=[*SIZES], default=[*SIZES], help="what grows")
    parser.add_argument("--sizes", type=int, nargs="+", help="with one --of: other sizes")
    parser.add_argument("--users", type=int, default=20_000, help="of an experiment on a stored day")
    parser.add_argument("--data", default="out/bench", help="folder for the data, which are removed at the end")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
