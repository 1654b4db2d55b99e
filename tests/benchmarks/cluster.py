"""The job on a standalone cluster with one and with two workers of one core each: compares result bits and time."""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.benchmarks import data
from tests.benchmarks.contenders import ROOT
from tests.benchmarks.peers.common import COLUMNS
from tests.benchmarks.run import session
from tests.helpers.commands import spark_environment
from tests.platforms.support import Running, built_wheel, exact_rows, standalone_cluster

WORKERS = (1, 2)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    spark = session()
    path = data.ensure(spark, Path(options.data).resolve(), data.Dataset(options.rows))
    spark.stop()
    with tempfile.TemporaryDirectory(prefix="cluster-") as name:
        folder = Path(name)
        _prepare(folder, path)
        seconds: dict[int, list[dict[str, float]]] = {number: [] for number in WORKERS}
        for round_ in range(options.rounds):
            for number in WORKERS:
                with standalone_cluster(number, cores=1, memory=options.memory) as cluster:
                    seconds[number].append(_submit(folder, cluster.url, folder / f"{number}-{round_}", options.memory))
        # The sums are exact, so a difference in the last bit of a single user would be visible.
        one, two = (exact_rows(folder / f"{number}-0" / "experiment_metrics") for number in WORKERS)
    verdict = "the same" if one == two else "DIFFERENT"
    print(f"{options.rows:,} rows, medians of {options.rounds} runs; means and intervals: {verdict} bits")
    steps = sorted({step for runs in seconds.values() for run in runs for step in run})
    for step in [*steps, "all"]:
        medians = [
            statistics.median(run.get(step, 0) if step != "all" else sum(run.values()) for run in seconds[number])
            for number in WORKERS
        ]
        print(f"{step:20} " + "  ".join(f"{n} worker(s): {m:6.2f} s" for n, m in zip(WORKERS, medians, strict=True)))
    return one != two


def _prepare(folder: Path, path: str) -> None:
    shutil.copy(built_wheel(folder / "dist"), folder / "rankmetrics_spark.zip")
    document = {
        "evaluation_date": "2026-11-20",
        "source": {"path": path, "columns": {"experiment": "experiment", "user": "user", "item": "item"}},
        "metrics": list(COLUMNS),
        "spark": {"spark.sql.shuffle.partitions": "8"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(document))


def _submit(folder: Path, master: str, out: Path, memory: str) -> dict[str, float]:
    """Run the job and return the seconds of each step from the run record."""
    environment = spark_environment()
    conf = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.ui.enabled=false")
    command = [
        *(f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", master, "--executor-memory", memory),
        *(word for setting in conf for word in ("--conf", setting)),
        # Wait until all executors are registered.
        *("--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"),
        *("--py-files", "rankmetrics_spark.zip", str(ROOT / "jobs" / "evaluate.py")),
        *("--config", "config.yaml", "--output", str(out)),
    ]
    job = Running.start(command, folder / f"{out.name}.log", environment, folder)
    try:
        if job.process.wait(900):
            raise RuntimeError(job.text()[-3000:])
    finally:
        job.stop()
    (record,) = (out / "runs").glob("*.json")
    result: dict[str, float] = json.loads(record.read_text())["seconds"]
    return result


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="impressions")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, each with a new cluster")
    parser.add_argument("--memory", default="2g", help="memory of each worker and of its executor")
    parser.add_argument("--data", default="out/bench", help="folder for the data")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
