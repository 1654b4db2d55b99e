"""What comparisons and bootstrap intervals add to the time of a job: ``python -m tests.benchmarks.answer``.

Each kind of run in turn, as ``rankmetrics evaluate`` in a process of its own and as ``run`` in one warm session.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from rankmetrics_spark import run
from rankmetrics_spark.config import load
from rankmetrics_spark.engines import SETTINGS_OF_RUNS
from rankmetrics_spark.engines.spark import local_session
from tests.benchmarks.data import Dataset, ensure

GOALS = {"with comparisons": 10, "and 1,000 bootstrap replicates": 30}
COLUMNS = {"experiment_id": "experiment", "user_id": "user", "item_id": "item"}
KINDS = {
    "averages only": {},
    "with comparisons": {"baseline": "exp-0"},
    "and 1,000 bootstrap replicates": {"baseline": "exp-0", "bootstrap": True},
}


def timed(rounds: int, work: Callable[[Path], None], configs: dict[str, Path]) -> dict[str, list[float]]:
    """Seconds of each kind in each round, after a round that does not count."""
    result: dict[str, list[float]] = {kind: [] for kind in configs}
    for number in range(rounds + 1):
        for kind, config in configs.items():
            start = time.monotonic()
            work(config)
            if number:
                result[kind].append(time.monotonic() - start)
    return result


def in_a_process(config: Path) -> None:
    command = [sys.executable, "-m", "rankmetrics_spark", "evaluate", "--engine", "spark", "--master", "local[2]"]
    subprocess.run([*command, "--config", str(config)], check=True, capture_output=True)


def printed(title: str, result: dict[str, list[float]]) -> None:
    base = result["averages only"]
    print(f"{title}, {len(base)} rounds; ratio of the medians, and of the rounds")
    for kind, seconds in result.items():
        more = [100 * (b / a - 1) for a, b in zip(base, seconds, strict=True)]
        ratio = statistics.median(seconds) / statistics.median(base)
        goal = f" (goal: at most {GOALS[kind]} %)" if kind in GOALS else ""
        print(f"  {kind}: {statistics.median(seconds):.1f} s, {100 * (ratio - 1):+.0f} % "
              f"({min(more):+.0f} to {max(more):+.0f}){goal}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path("out/bench"), help="where generated logs are kept")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="answer-"))
    spark = local_session("local[2]", "answer", SETTINGS_OF_RUNS)
    try:
        log = ensure(spark, given.data.absolute(), Dataset(given.rows))
        configs = {}
        for kind, comparison in KINDS.items():
            configs[kind] = folder / f"{len(configs)}.yaml"
            document = {
                "source": {"path": log, "columns": COLUMNS},
                "metrics": ["ap@10", "ndcg@10", "precision@10", "recall@10"],
                "comparison": comparison,
                "sink": {"path": str(folder / f"out {len(configs)}")},
            }
            configs[kind].write_text(yaml.safe_dump(document))
        printed("a warm session, run", timed(given.rounds, lambda config: run(spark, load(config)) and None, configs))
        spark.stop()
        printed("a new process, rankmetrics evaluate", timed(given.rounds, in_a_process, configs))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
