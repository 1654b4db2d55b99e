"""Evaluates skewed and large logs in a 2 GiB heap, each in a new process, and reports success, time and memory.

Each time is compared with an even log of the same number of rows. The largest Python worker must stay below 1 GiB.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import contenders, data, observe, run
from tests.benchmarks.peers import ours

WORKER_LIMIT = 1024.0
MILLION = 1_000_000


@dataclass(frozen=True)
class Case:
    """A log, the ranking mode, and the largest allowed ratio to the time of the even log, if there is a limit."""

    name: str
    log: data.Dataset
    rank_by: str = "position"
    bound: float | None = None


def cases(scale: float) -> list[Case]:
    """All cases; ``scale`` shrinks every size."""

    def size(rows: int) -> int:
        return max(1000, int(rows * scale))

    user = data.Dataset(size(10 * MILLION), variant="hot_user", big=size(5 * MILLION))
    giant = data.Dataset(size(2 * MILLION), variant="giant_list", big=size(MILLION))
    return [
        Case("40 M rows", data.Dataset(size(40 * MILLION))),
        Case("40 M rows, scattered", data.Dataset(size(40 * MILLION), "scattered")),
        Case("10 M rows, score", data.Dataset(size(10 * MILLION)), "score"),
        Case("a user with 5 M of 10 M rows", user, bound=2.0),
        Case("99 % of 10 M rows in one experiment", data.Dataset(size(10 * MILLION), variant="hot_experiment")),
        Case("a list of 1 M items", giant),
        Case("a list of 1 M items, score", giant, "score"),
        Case("100,000 experiments", data.Dataset(size(5 * MILLION), variant="many_experiments")),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.one:
        print(json.dumps(_measure(json.loads(options.one), Path(options.data).resolve(), options.generate)))
        return 0
    table = Table(title=f"2 GiB heap, local[2], sizes x {options.scale:g}")
    for head in ("case", "rows", "", "seconds", "even log s", "ratio", "JVM MB", "worker MB"):
        table.add_column(head)
    wrong: list[str] = []
    evens: dict[tuple[int, str, str], dict[str, float]] = {}
    for case in cases(options.scale):
        if options.only in case.name:
            table.add_row(case.name, f"{case.log.rows:,}", *_row(case, options, evens, wrong))
    Console(width=140).print(table)
    print("bench-memory: " + (f"FAIL: {'; '.join(wrong)}" if wrong else "PASS"), flush=True)
    return bool(wrong)


def _row(case: Case, options: argparse.Namespace, evens: dict, wrong: list[str]) -> list[str]:
    even = data.Dataset(case.log.rows, case.log.layout)
    key = (even.rows, even.layout, case.rank_by)
    if key not in evens:
        evens[key] = _process(even, case.rank_by, options)
    result = evens[key] if case.log == even else _process(case.log, case.rank_by, options)
    if "seconds" not in result:
        wrong.append(f"{case.name} does not finish")
        return ["fails", result["error"], "", "", "", ""]
    base = evens[key].get("seconds")
    ratio = result["seconds"] / base if base else None
    if result["worker"] >= WORKER_LIMIT:
        wrong.append(f"{case.name}: a Python worker takes {result['worker']:.0f} MB; limit: {WORKER_LIMIT:.0f} MB")
    if case.bound and ratio and ratio > case.bound:
        wrong.append(f"{case.name}: {ratio:.2f}x the time of an even log; allowed: at most {case.bound}x")
    times = [f"{value:.1f}" if value else "" for value in (result["seconds"], base)]
    return ["finishes", *times, f"{ratio:.2f}" if ratio else "", f"{result['jvm']:.0f}", f"{result['worker']:.0f}"]


def _process(log: data.Dataset, rank_by: str, options: argparse.Namespace) -> dict:
    """Generate the log in one process and evaluate it in another."""
    request = json.dumps({"log": vars(log), "rank_by": rank_by})
    call = [sys.executable, "-m", "tests.benchmarks.memory", "--data", options.data, "--one", request]
    print(f"  {log.name}, {rank_by} ...", file=sys.stderr, flush=True)
    try:
        subprocess.run([*call, "--generate"], cwd=contenders.ROOT, capture_output=True, text=True, check=True)
        done = subprocess.run(call, cwd=contenders.ROOT, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"error": f"> {options.limit:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {"error": f"no data: {(error.stderr.strip().splitlines() or ['no message'])[-1][:100]}"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:120]}
    return json.loads(done.stdout.splitlines()[-1])


def _measure(request: dict, folder: Path, generate: bool) -> dict[str, float]:
    spark = run.session()
    path = data.ensure(spark, folder, data.Dataset(**request["log"]))
    if generate:
        return {}
    ours.run(data.ensure(spark, folder, data.Dataset(200_000)), rank_by=request["rank_by"])
    with observe.memory() as memory:
        start = time.perf_counter()
        ours.run(path, rank_by=request["rank_by"])
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "jvm": memory.jvm, "worker": memory.worker}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="out/bench", help="folder for the data")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for all sizes")
    parser.add_argument("--limit", type=float, default=900.0, help="time limit of a case in seconds")
    parser.add_argument("--only", default="", help="run only cases whose name contains this text")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--generate", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
