"""What the digests of a run cost: CPU seconds of one digest over those of a run that computes none.

``python -m tests.benchmarks.digests [engine] [rows] [rounds] [judgements]`` runs a copy of the package in which each
digest is computed ``COPIES`` times, from the column that leaves Python to the sums, and a copy in which none is, in
turn. Other programs move a run by several percent, and the difference of so many copies by no more; it is divided by
their number. At most 0.02 is the goal. The interval is from the second to the last but one of the rounds.
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
ITEMS, COPIES = 10, 16
LIST_HASH = "mx.list_hashes(batch.list[at], batch.rank[at], batch.grade[at].view(np.int64), batch.size)"
REPEATED = {
    "schemas.py": {'DIGEST = "_digest"': 'DIGEST = "_digest"\nimport os\nCOPIES = range(int(os.environ["COPIES"]))'},
    "layouts/scores.py": {
        f"digest = {LIST_HASH}\n": "pass\n",
        "sch.N_GRADED, sch.DIGEST)": 'sch.N_GRADED, *(f"_digest{i}" for i in sch.COPIES))',
        "batch.n_graded, digest)": f"batch.n_graded, *({LIST_HASH} for _ in sch.COPIES))",
    },
    "gates/counts.py": {
        "of_list = F.xxhash64(*(name for name in read if name in columns))": (
            "of_list = [F.xxhash64(*(name for name in read if name in columns), f'_digest{i}') for i in sch.COPIES]"
        ),
        "outcome.withColumn(_HASH, F.when(F.col(sch.REJECTED).isNull(), of_list).otherwise(of_faulty))": (
            "outcome.select('*', *(F.when(F.col(sch.REJECTED).isNull(), each).otherwise(of_faulty).alias(f'_h{i}') "
            "for i, each in enumerate(of_list)))"
        ),
        "*road.sums_of_hashes(_HASH),": (
            "*(sum.alias(f'_s{i}{j}') for i in sch.COPIES for j, sum in enumerate(road.sums_of_hashes(f'_h{i}'))),"
        ),
        "road.digest_of(row)": "[row[f'_s{i}{j}'] for i in sch.COPIES for j in (0, 1)]",
    },
    "road/checking.py": {
        'F.count(F.lit(1)).alias("n"), grades)': (
            "F.count(F.lit(1)).alias('n'), *(F.expr(f'sum(hash({GRADE} + {i}D)) AS _g{i}') for i in sch.COPIES))"
        ),
        "pairs.withColumn(sch.DIGEST, F.xxhash64(*keys, GRADE))": (
            "pairs.select('*', *(F.xxhash64(*keys, f'_g{i}').alias(f'_h{i}') for i in sch.COPIES))"
        ),
        '*aggregates, F.expr(f"bit_xor({sch.DIGEST}) AS {sch.DIGEST}"))': (
            "*aggregates, *(F.expr(f'bit_xor(_h{i})').alias(f'_s{i}') for i in sch.COPIES))"
        ),
        'f"{groups[None][sch.DIGEST] % 2**64:016x}" if None in groups': "'' if None in groups",
    },
    "sinks/seals.py": {
        "def sha256_of(": (
            "def sha256_of(files, path):\n    import os\n    return ''.join(_of(files, path) for _ in range(int("
            "os.environ['COPIES'])))[:64]\n\n\ndef _of("
        )
    },
}
"""File -> what occurs once in it, and what stands there in the copy."""


def copy_to(folder: Path) -> None:
    """The package whose digests are computed as often as the environment says."""
    for name in ("rankmetrics_spark", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "data"))
    for name, changes in REPEATED.items():
        file = folder / "rankmetrics_spark" / name
        text = file.read_text(encoding="utf-8")
        for old, new in changes.items():
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")


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


def main(engine: str = "sail", rows: str = "4000000", rounds: str = "11", judged: str = "0", served: str = "") -> None:
    """Measure both sides in turn; the first two rounds do not count."""
    if served:
        return serve(engine, int(rows), int(judged), Path(served))
    with tempfile.TemporaryDirectory(prefix="digests-") as parent:
        copy_to(copy := Path(parent) / "copy")
        sides, pipe = [], subprocess.PIPE
        for copies in (COPIES, 0):
            (folder := Path(parent) / f"{copies}").mkdir()
            words = [sys.executable, "-m", "tests.benchmarks.digests", engine, rows, rounds, judged, str(folder)]
            env = os.environ | {"PYTHONPATH": str(copy), "COPIES": f"{copies}"}
            sides.append(subprocess.Popen(words, cwd=copy, env=env, stdin=pipe, stdout=pipe, text=True))
        shares = []
        for number in range(2 + int(rounds)):
            costs = [0.0, 0.0]
            for side in (0, 1) if number % 2 else (1, 0):
                asked, answers = sides[side].stdin, sides[side].stdout
                assert asked and answers
                print(file=asked, flush=True)
                costs[side] = float(answers.readline())
            shares.append((costs[0] / costs[1] - 1) / COPIES)
            print(f"round {number + 1}: {costs[0]:.2f} s with {COPIES}, {costs[1]:.2f} s without", flush=True)
        for process in sides:
            process.communicate()
    _, least, *_, most, _ = counted = sorted(shares[2:])
    print(f"a digest takes {statistics.median(counted):.2%} of a run ({least:.2%} to {most:.2%})")


if __name__ == "__main__":
    main(*sys.argv[1:])
