"""What the digests of a run cost: CPU seconds of the checkout over those of a copy that computes none.

``python -m tests.benchmarks.digests [engine] [rows] [rounds]`` runs both in turn, each in a process of its own. At most
1.02 is the goal. Other programs add to CPU seconds by emptying caches, so the ratio of the least is printed too.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ITEMS = 10
WITHOUT = {
    "layouts/scores.py": (
        "digest = mx.list_hashes(batch.list[at], batch.rank[at], batch.grade[at].view(np.int64), batch.size)",
        "digest = np.zeros(batch.size, np.int64)",
    ),
    "gates/counts.py": ("F.expr(f\"xxhash64({', '.join(names)})\")", "F.lit(0).cast('long')"),
    "sinks/seals.py": ("digest = hashlib.sha256()\n    try:", "digest = hashlib.sha256()\n    return '0'\n    try:"),
}
"""File -> what computes a digest in it, which occurs once, and what stands there in the copy."""


def copy_without(folder: Path) -> None:
    """The package without digests."""
    for name in ("rankmetrics_spark", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    for name, (old, new) in WITHOUT.items():
        file = folder / "rankmetrics_spark" / name
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, name
        file.write_text(text.replace(old, new), encoding="utf-8")


def serve(engine: str, rows: int, folder: Path) -> None:
    """For each line of stdin, run the job and print its CPU seconds and a digest."""
    from rankmetrics_spark import laptop_session, run
    from rankmetrics_spark.engines.spark import local_session
    from tests.benchmarks import wide
    from tests.helpers.logs import config

    users = wide.np.arange(rows // ITEMS)
    wide._write_log(folder / "log", users % 2, users, ITEMS)
    spark = laptop_session(threads=2) if engine == "sail" else local_session("local[2]", "digests", {})
    settings = config(folder / "log", folder / "out", metrics=["ap@10", "ndcg@10"], comparison={"baseline": "e0"})
    for _ in sys.stdin:
        shutil.rmtree(folder / "out", ignore_errors=True)
        cpu = wide._cpu(lambda: run(spark, settings))
        (record,) = (folder / "out" / "runs").glob("*.json")
        print(cpu, json.loads(record.read_text())["experiments"]["e0"]["digest"], flush=True)
    spark.stop()


def main(engine: str = "sail", rows: str = "4000000", rounds: str = "11", served: str = "") -> None:
    """Measure both sides in turn; the first two rounds do not count."""
    if served:
        return serve(engine, int(rows), Path(served))
    with tempfile.TemporaryDirectory(prefix="digests-") as parent:
        copy_without(copy := Path(parent) / "copy")
        sides, pipe = [], subprocess.PIPE
        for name, root in {"with": ROOT, "without": copy}.items():
            (folder := Path(parent) / name).mkdir()
            words = [sys.executable, "-m", "tests.benchmarks.digests", engine, rows, rounds, str(folder)]
            env = os.environ | {"PYTHONPATH": str(root)}
            sides.append(subprocess.Popen(words, cwd=root, env=env, stdin=pipe, stdout=pipe, text=True))
        costs: tuple[list[float], list[float]] = [], []
        for number in range(2 + int(rounds)):
            for side in (0, 1) if number % 2 else (1, 0):
                asked, answers = sides[side].stdin, sides[side].stdout
                assert asked and answers
                print(file=asked, flush=True)
                cpu, digest = answers.readline().split()
                assert (int(digest, 16) == 0) == (side == 1), digest
                costs[side].append(float(cpu))
            print(f"round {number + 1}: {costs[0][-1]:.2f} s with, {costs[1][-1]:.2f} s without", flush=True)
        for process in sides:
            process.communicate()
    for what, of in {"median": statistics.median, "least": min}.items():
        a, b = (of(each[2:]) for each in costs)
        print(f"{what}: {a:.2f} CPU seconds with, {b:.2f} without, ratio {a / b:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
