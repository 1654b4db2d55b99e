"""Long lists by score with judgements, like the runs of a TREC track: ``python -m tests.benchmarks.long_lists``.

The log is made from a seed: ``--runs`` runs of fifty topics with lists of a thousand items whose ids are text, and
1,400 judgements a topic, about as in round 5 of TREC-COVID (126 runs). ``--log`` reads a folder with ``log`` and
``judgements`` instead.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from tests.benchmarks.contenders import LAPTOP, OutOfProcess
from tests.benchmarks.peers.long_lists import METRICS
from tests.benchmarks.run import TOLERANCE, measure, table

TOPICS, LENGTH, ITEMS, JUDGED = 50, 1000, 20_000, 1400
CONTENDERS = {
    "ours on Sail": ("on_sail", str(LAPTOP)),
    "ours on Spark": ("on_spark", sys.executable),
    "DuckDB, same work": ("duckdb", sys.executable),
    "pytrec_eval, metric part only": ("trec_eval", sys.executable),
}


def made(folder: Path, runs: int, seed: int = 1) -> Path:
    """The folder of a log with this number of runs; scores have ties, as those of real runs."""
    path = folder / "data" / f"long-{runs}"
    if (path / "judgements" / "part-0.parquet").exists():
        return path
    rng = np.random.default_rng(seed)
    names = np.char.add("doc-", np.char.zfill(np.arange(ITEMS).astype(str), 8))
    for name in ("log", "judgements"):
        (path / name).mkdir(parents=True, exist_ok=True)
    closeness = rng.normal(0, 1, (TOPICS, ITEMS))
    for run in range(runs):
        scores = closeness + rng.normal(0, 0.5 + run / runs, (TOPICS, ITEMS))
        best = np.argsort(-scores, axis=1)[:, :LENGTH]
        columns = {
            "experiment": pa.array([f"run-{run}"] * TOPICS * LENGTH),
            "user": pa.array(np.repeat([f"topic-{topic}" for topic in range(TOPICS)], LENGTH)),
            "item": pa.array(names[best].ravel()),
            "score": pa.array(np.take_along_axis(scores, best, axis=1).ravel().round(3)),
        }
        pq.write_table(pa.table(columns), path / "log" / f"part-{run}.parquet")
    judged = np.argsort(-(closeness + rng.normal(0, 1, closeness.shape)), axis=1)[:, :JUDGED]
    grade = np.clip(np.take_along_axis(closeness, judged, axis=1).round(), 0, 2)
    columns = {
        "user": pa.array(np.repeat([f"topic-{topic}" for topic in range(TOPICS)], JUDGED)),
        "item": pa.array(names[judged].ravel()),
        "relevance": pa.array(grade.ravel().astype(np.int32)),
    }
    pq.write_table(pa.table(columns), path / "judgements" / "part-0.parquet")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="runs of 50,000 rows each; 126 in TREC-COVID")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log", type=Path, help="a folder with log (experiment, user, item, score) and judgements")
    parser.add_argument("--data", type=Path, default=Path("out/bench"), help="where generated logs are kept")
    given = parser.parse_args()
    path = str((given.log or made(given.data, given.runs)).resolve())
    given.data.mkdir(parents=True, exist_ok=True)
    contenders = [
        OutOfProcess(name, module=f"long_lists:{function}", python=python, folder=given.data.resolve())
        for name, (function, python) in CONTENDERS.items()
    ]
    lines = measure(contenders, path, given.rounds, rows=0)
    expected = lines[-1].runs[0].values
    differences = {}
    for line in lines:
        values = [run.values.get(key, np.inf) - value for run in line.runs for key, value in expected.items()]
        differences[line.contender.name] = off = max(map(abs, values), default=np.inf)
        line.verdict = "same" if off <= TOLERANCE else f"off by {off:.1e}"
    Console(width=180).print(table(lines, f"{len(expected) // len(METRICS)} runs, {path}"))
    return int(max(differences.values()) > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
