"""What the digests of a run cost: CPU seconds of one digest over those of a run that computes none.

``python -m tests.benchmarks.digests [engine] [rows] [rounds] [judgements] [copies]`` runs a copy of the package in
which each digest is computed ``copies`` times, from the column that leaves Python to the sums (digests.yaml), and one
in which none is, in turn. Other programs move a run by several percent, the difference of 16 copies by no more; it is
divided by their number. At most 0.02 is the goal. The interval is from the second to the last but one of the rounds.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
ITEMS = 10
REPEATED: list[dict[str, str]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def copy_to(folder: Path) -> None:
    """The package whose digests are computed as often as the environment says."""
    for name in ("rankmetrics_spark", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    for change in REPEATED:
        text = (file := folder / "rankmetrics_spark" / change["file"]).read_text(encoding="utf-8")
        assert text.count(change["old"]) == 1, change
        file.write_text(text.replace(change["old"], change["new"]), encoding="utf-8")


def serve(engine: str, rows: int, judged: int, folder: Path) -> None:
    """For each line of stdin, run the job and print its CPU seconds."""
    from rankmetrics_spark import laptop_session, run
    from rankmetrics_spark.engines.spark import local_session
    from tests.benchmarks import wide
    from tests.helpers.logs import config

    users = wide.np.arange(rows // ITEMS)
    wide._write_log(folder / "log", users % 2, users, ITEMS)
    spark = laptop_session(threads=2) if engine == "sail" else local_session("local[2]", "digests", {})
    wide._write_log(folder / "judged", users[: judged // 10] % 2, users[: judged // 10], 10)
    more = {"judgements": {"path": str(folder / "judged")}} if judged else {}
    sections = {"metrics": ["ap@10", "ndcg@10"], "comparison": {"baseline": "e0"}} | more
    settings = config(folder / "log", folder / "out", **sections)
    for _ in sys.stdin:
        shutil.rmtree(folder / "out", ignore_errors=True)
        cpu = wide._cpu(lambda: run(spark, settings))
        (record,) = (folder / "out" / "runs").glob("*.json")
        digests = json.loads(record.read_text())["experiments"]["e0"]["digest"]
        assert digests == digests[:2] * int(os.environ["COPIES"]), digests
        print(cpu, flush=True)
    spark.stop()


def main(
    engine: str = "sail",
    rows: str = "4000000",
    rounds: str = "11",
    judged: str = "0",
    copies: str = "16",
    served: str = "",
) -> None:
    """Measure both sides in turn; the first two rounds do not count."""
    if served:
        return serve(engine, int(rows), int(judged), Path(served))
    asked = (engine, rows, rounds, judged, copies)
    with tempfile.TemporaryDirectory(prefix="digests-") as parent:
        copy_to(copy := Path(parent) / "copy")
        sides, pipe = [], subprocess.PIPE
        for n in (copies, 0):
            (folder := Path(parent) / f"{n}").mkdir()
            words = [sys.executable, "-m", "tests.benchmarks.digests", *asked, str(folder)]
            env = os.environ | {"PYTHONPATH": str(copy), "COPIES": f"{n}"}
            sides.append(subprocess.Popen(words, cwd=copy, env=env, stdin=pipe, stdout=pipe, text=True))
        shares = []
        for number in range(2 + int(rounds)):
            costs = [0.0, 0.0]
            for side in (0, 1) if number % 2 else (1, 0):
                goes, answers = sides[side].stdin, sides[side].stdout
                assert goes and answers
                print(file=goes, flush=True)
                costs[side] = float(answers.readline())
            shares.append((costs[0] / costs[1] - 1) / int(copies))
            print(f"round {number + 1}: {costs[0]:.2f} s with {copies}, {costs[1]:.2f} s without", flush=True)
        for process in sides:
            process.communicate()
    _, least, *_, most, _ = counted = sorted(shares[2:])
    print(f"a digest takes {statistics.median(counted):.2%} of a run ({least:.2%} to {most:.2%})")


if __name__ == "__main__":
    main(*sys.argv[1:])
