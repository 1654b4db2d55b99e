"""Ten minutes of runs by score on the laptop engine while other programs want both cores: ``make test-soak``."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.commands import ran
from tests.platforms.test_sail import LAPTOP, environment

SECONDS = int(os.environ.get("SOAK_SECONDS", "600"))
USERS, ITEMS = 3_000_000, 8


@pytest.fixture
def busy() -> Iterator[None]:
    """Two programs that compute all the time."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def log(folder: Path) -> Path:
    """24 million rows with scores, of two experiments: a query takes longer than Sail waits to ask."""
    rng = np.random.default_rng(5)
    user = np.repeat(np.arange(USERS), ITEMS)
    columns = {
        "experiment": pa.array(np.where(user % 2, "a", "b")),
        "user": pa.array(user).cast(pa.string()),
        "item": pa.array(np.tile(np.arange(ITEMS), USERS)).cast(pa.string()),
        "score": rng.random(len(user)),
        "relevance": rng.integers(0, 2, len(user)),
    }
    pq.write_table(pa.table(columns), folder / "log.parquet")
    return folder / "log.parquet"


RUN = """
import sys, time
from rankmetrics_spark import laptop_session, run
from rankmetrics_spark.config import from_mapping

path, out, seconds = sys.argv[1:]
columns = {name: name for name in ("experiment", "user", "item", "score", "relevance")}
document = {"source": {"path": path, "columns": columns}, "rank_by": "score", "metrics": "ap@10, ndcg@10, rr, r@10"}
spark, end, runs = laptop_session(threads=2, memory="4g"), time.monotonic() + float(seconds), 0
while time.monotonic() < end:
    start = time.monotonic()
    run(spark, from_mapping(document | {"sink": {"path": f"{out}/{runs}"}}))
    print(f"run {runs} took {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    runs += 1
print(runs)
"""


@pytest.mark.usefixtures("busy")
def test_runs_by_score_end_while_other_programs_want_every_core(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RUN)
    command = [LAPTOP / "python", "program.py", log(tmp_path), tmp_path / "out", SECONDS]
    done = ran(command, tmp_path, environment(), seconds=6 * SECONDS)
    print(done.stderr)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list(tmp_path.glob("out/*/published/*.json"))) == int(done.stdout) > 0
