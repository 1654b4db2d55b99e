"""Measures the project and its peers in turn, on the same data, in one run, and prints the results as tables."""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from rankmetrics_spark.engines import SETTINGS_OF_RUNS
from rankmetrics_spark.engines.spark import local_session
from tests.benchmarks import checks, contenders, data, regressions
from tests.benchmarks.contenders import BARE, COUNT, IGNORING, OURS, Contender, Run, TooSlowError, Values
from tests.benchmarks.peers import common, ours, settings

_PROFILED = (IGNORING, OURS, "ours, real-valued", "ours, score")

_MOVED = {
    **{OURS: "clicks and items", IGNORING: "clicks", "ours, grades 0-3": "grades and items"},
    **{"ours, real-valued": "real values and items", "ours, score": "scores and items"},
}
_PEERS = (contenders.RANKING_EVALUATOR, "RankingEvaluator, 12 numbers, lists cached")
_PEERS += ("recommenders", "RePlay", "applyInPandas per user")
# Title, contender, reference contender, upper bound of the ratio of medians, matching "Spark alone" contender.
GOALS = (
    *((f"{mine} / Spark alone", mine, f"{BARE}{moved}", 1.3, "") for mine, moved in _MOVED.items()),
    *(
        (f"{mine} / Spark SQL, same work", mine, f"{contenders.SPARK_SQL}{ending}", 1.0, "")
        for mine, ending in zip(
            (OURS, IGNORING, "ours, real-valued", "ours, score"), contenders.SAME_WORK.values(), strict=True
        )
    ),
    ("a row per list / a row per item", "ours, nested", OURS, 0.6, ""),
    ("a row per list / a row per item and its list", "ours, nested", "ours, requests", 0.6, ""),
    ("a row per list / explode and group", "ours, nested", contenders.EXPLODED, 0.3, ""),
    ("events / ready relevance", "ours, events", "ours, requests", 1.6, ""),
    ("100 tests, ten of each user / one test", "ours, 100 tests", "ours, one test", 1.5, ""),
    ("labels of people and of a machine / one pool", "ours, two pools", "ours, one pool", 1.25, ""),
    ("12 metric columns / 2", OURS, "ours, 2 metric columns", 1.25, ""),
    *((f"ours / {peer}", OURS, peer, 1 / 20, "clicks") for peer in _PEERS),
    *(
        (f"ours on Sail, {mine} / {peer}, same work", f"ours on Sail, {mine}", f"{peer}, same work{ending}", 1.0, "")
        for mine, ending in contenders.SAME_WORK.items()
        for peer in contenders.DOING_THE_SAME
    ),
    ("ours on Sail: the job / its averages", "ours on Sail, job", "ours on Sail, default", 1.3, ""),
)


@dataclass
class Line:
    """The runs of a contender, the error that stopped it, and the result of the value check."""

    contender: Contender
    runs: list[Run] = field(default_factory=list)
    trouble: str = ""
    verdict: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(run.seconds for run in self.runs) if self.runs else None


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    spark = session()
    console = Console(width=180)
    folder = Path(options.data).resolve()
    dataset = data.Dataset(options.rows, options.layout)
    path = data.ensure(spark, folder, dataset)
    lines = measure(_chosen(options, folder), path, options.rounds, options.rows)
    wrong = agreement(lines, path)
    title = f"{options.rows:,} rows, {options.layout.replace('_', ' ')}, Spark {spark.version} local[2], 2 GB heap"
    console.print(table(lines, title))
    if not options.small:
        console.print(profile(lines))
        console.print(goals(lines))
    _keep(folder / f"results-{dataset.name}.json", lines)
    if options.small:
        wrong += checks.plan(spark, path, options.rows)
        wrong += checks.same_work_on_dirty_log(spark, folder)
        larger = data.ensure(spark, folder, data.Dataset(regressions.ROWS))
    name = "bench-small" if options.small else "bench"
    spark.stop()
    if options.small:
        wrong += regressions.check(folder, larger, options.against)
    print(f"{name}: " + (f"FAIL: {'; '.join(wrong)}" if wrong else "PASS"), flush=True)
    return bool(wrong)


def every_contender(folder: Path, limit: float) -> list[Contender]:
    """Every contender of the table, those that take long last."""
    return [
        *contenders.floor_contenders(),
        *contenders.our_contenders(),
        *contenders.light_peers(folder),
        *contenders.same_work_contenders(folder),
        *contenders.laptop_contenders(folder),
        *contenders.heavy_peers(folder, limit),
    ]


def session() -> SparkSession:
    """The Spark session of the benchmark, with the settings of the project's job."""
    spark = local_session("local[2]", "benchmark", settings.SETTINGS | SETTINGS_OF_RUNS)
    spark.range(1).count()
    return spark


def measure(all_contenders: Sequence[Contender], path: str, rounds: int, rows: int) -> list[Line]:
    """Measure the contenders in turn: A B C, A B C, ..., after one warm-up round. Slow contenders join fewer rounds.

    A contender that joins all rounds runs twice in each turn, and only the second run counts. The first run starts
    Python workers that must import its modules, and compiles generated code that the others pushed out of the cache.
    """
    lines = [Line(contender) for contender in all_contenders if rows <= contender.max_rows]
    for line in lines:
        if not line.contender.rounds:
            _attempt(line, path, warm_up=True)
    for number in range(rounds):
        for line in lines:
            if not line.contender.rounds or number < line.contender.rounds:
                _attempt(line, path, first=number == 0 and line.contender.rounds > 0)
    for line in lines:
        line.contender.close()
    return lines


def _attempt(line: Line, path: str, warm_up: bool = False, first: bool = False) -> None:
    """Run a contender once. A contender that has failed does not run again."""
    if line.trouble:
        return
    print(f"  {line.contender.name}{' (warm-up)' if warm_up else ''} ...", file=sys.stderr, flush=True)
    try:
        if warm_up or first:
            line.contender.prepare(path)
        if not line.contender.rounds:
            line.contender.run(path)
        if not warm_up:
            line.runs.append(line.contender.run(path))
    except TooSlowError as error:
        line.trouble = str(error)
    except Exception as error:
        line.trouble = f"{type(error).__name__}: {error}".split("\n")[0][:160]


def agreement(lines: Sequence[Line], path: str) -> list[str]:
    """Compare all values with those of the ``rows`` layout, which shares no aggregation with the other layouts."""
    reference = {kind: _with_everything(ours.run(path, layout="rows", relevance=column)) for kind, column in _KINDS}
    wrong = []
    for line in lines:
        kind = line.contender.compared
        if not kind or not line.runs:
            continue
        differences = [_difference(run, reference[kind]) for run in line.runs]
        worst = max(differences)
        line.verdict = "same" if worst <= checks.TOLERANCE else f"off by {worst:.1e}"
        if worst > checks.TOLERANCE:
            wrong.append(f"{line.contender.name} differs by {worst:.1e}")
    broken = [line for line in lines if line.trouble and not line.trouble.startswith(">")]
    return wrong + [f"{line.contender.name}: {line.trouble}" for line in broken if not line.contender.may_fail]


_KINDS = (("clicks", "relevance"), ("grade", "grade"), ("gain", "gain"))


def _with_everything(values: Values) -> Values:
    """Add the means over all experiments, weighted by users, under the experiment name ``EVERYTHING``."""
    totals: Values = {}
    for (experiment, metric), value in values.items():
        if "@" in metric and not metric.endswith((" std", " low", " high")):
            kind = " relevant" if metric.endswith(" relevant") else ""
            weight = values[experiment, f"n_users{kind}"]
            totals[common.EVERYTHING, metric] = totals.get((common.EVERYTHING, metric), 0.0) + value * weight
    users = {kind: sum(v for (_, name), v in values.items() if name == f"n_users{kind}") for kind in ("", " relevant")}
    means = {key: total / users[" relevant" * key[1].endswith(" relevant")] for key, total in totals.items()}
    return values | means


def _difference(run: Run, reference: Values) -> float:
    suffix = " relevant" if run.population == "relevant" else ""
    compared = {key: value for key, value in run.values.items() if (key[0], key[1] + suffix) in reference}
    if not compared or len(compared) < len(run.values):
        return float("inf")
    return max(abs(value - reference[key[0], key[1] + suffix]) for key, value in compared.items())


def table(lines: Sequence[Line], title: str) -> Table:
    result = Table(title=title)
    seconds = ("median s", "min s", "CPU s", "x count()", "ours is")
    amounts = ("jobs", "shuffle MB", "read rows", "JVM MB", "worker MB")
    for head in ("contender", "runs", *seconds, *amounts, "values"):
        result.add_column(head, justify="left" if head in ("contender", "values") else "right")
    medians = {line.contender.name: line.median for line in lines}
    for line in lines:
        result.add_row(line.contender.name, *_cells(line, medians))
    return result


def _cells(line: Line, medians: dict[str, float | None]) -> list[str]:
    if not line.runs:
        return ["0", line.trouble or "-", *[""] * 9, ""]
    run, seconds = line.runs[-1], line.median
    assert seconds
    floor, mine = medians.get(COUNT), medians.get(OURS)
    inside = run.cost.input_rows > 0
    outside = isinstance(line.contender, contenders.OutOfProcess)
    return [
        str(len(line.runs)),
        f"{seconds:.2f}",
        f"{min(run.seconds for run in line.runs):.2f}",
        f"{statistics.median(run.cpu for run in line.runs):.2f}",
        f"{seconds / floor:.2f}" if floor else "",
        f"{seconds / mine:.2f}x faster" if mine else "",
        str(run.cost.jobs or ""),
        f"{run.cost.shuffle_bytes / 1e6:.1f}" if inside else "",
        f"{run.cost.input_rows:,}" if inside else "",
        f"{max(r.memory.jvm for r in line.runs):.0f}",
        f"{max(r.memory.total if outside else r.memory.worker for r in line.runs):.0f}",
        f"{line.verdict} {line.trouble}".strip(),
    ]


def goals(lines: Sequence[Line]) -> Table:
    """The performance goals. A contender that reached its time limit counts with the limit, which is a lower bound.

    "Spark alone" is a query that only moves the data that the metrics need (``peers.floors``); beside a peer, its ratio
    to that peer. If this ratio exceeds the goal, no query that moves data in this way can reach the goal.
    """
    known = {line.contender.name: line for line in lines}
    result = Table(title="Goals (ratios of medians)")
    for head in ("what", "goal", "measured", "Spark alone", ""):
        result.add_column(head)
    for what, left, right, bound, bare in GOALS:
        mine, other = _seconds(known.get(left)), _seconds(known.get(right))
        alone = _seconds(known.get(f"{BARE}{bare}"))
        if mine and other:
            met = "met" if mine / other <= bound else "not met"
            if met != "met" and alone and alone / other > bound:
                met += ", Spark alone exceeds it"
            least = f"{alone / other:.3g}" if alone else ""
            result.add_row(what, f"<= {bound:.3g}", f"{mine / other:.3g}", least, met)
    return result


def profile(lines: Sequence[Line]) -> Table:
    """The stages of the project's own runs, each for the run with the median time (or the one just below)."""
    result = Table(title="Stages of a run of median time (seconds from its start)")
    for head in ("contender", "stage", "from", "to", "CPU s", "rows read", "shuffled in", "MB shuffled out"):
        result.add_column(head, justify="left" if head in ("contender", "stage") else "right")
    for line in lines:
        if line.contender.name in _PROFILED and line.runs:
            run = sorted(line.runs, key=lambda run: run.seconds)[(len(line.runs) - 1) // 2]
            for stage in run.cost.stages:
                times = (f"{stage.start:.2f}", f"{stage.end:.2f}", f"{stage.cpu_seconds:.2f}")
                counts = (f"{stage.input_rows:,}", f"{stage.fetched_rows:,}", f"{stage.shuffle_bytes / 1e6:.1f}")
                result.add_row(line.contender.name, stage.kind, *times, *counts)
            result.add_row(line.contender.name, "all", "0.00", f"{run.seconds:.2f}", f"{run.cost.cpu_seconds:.2f}")
            result.add_section()
    return result


def _seconds(line: Line | None) -> float | None:
    if line is None:
        return None
    return line.contender.limit if line.trouble.startswith(">") else line.median


def _chosen(options: argparse.Namespace, folder: Path) -> list[Contender]:
    chosen = every_contender(folder, options.limit)
    if options.small:
        slow = [*contenders.laptop_contenders(folder), *contenders.heavy_peers(folder, options.limit)]
        chosen = [c for c in chosen if c.name not in {each.name for each in slow}]
    if options.only:
        chosen = [c for c in chosen if c.name in (OURS, COUNT) or any(part in c.name for part in options.only)]
    return chosen


def _keep(path: Path, lines: Sequence[Line]) -> None:
    rows = [
        {"name": line.contender.name, "trouble": line.trouble, "verdict": line.verdict}
        | {"runs": [{"seconds": r.seconds, "cpu": r.cpu} | asdict(r.cost) | asdict(r.memory) for r in line.runs]}
        for line in lines
    ]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, help="impressions (2,000,000; with --small 200,000)")
    parser.add_argument("--rounds", type=int, help="measured rounds (5; with --small 1)")
    parser.add_argument("--layout", choices=data.LAYOUTS, default="in_order")
    parser.add_argument("--data", default="out/bench", help="folder for data, results and the peers' environments")
    parser.add_argument("--limit", type=float, default=300.0, help="time limit of a slow peer in seconds")
    parser.add_argument(
        "--only",
        nargs="+",
        default=(),
        help="run only contenders whose name contains one of these texts; ours and the count floor always run",
    )
    parser.add_argument("--against", default="", help="with --small, the commit to compare with (the accepted one)")
    parser.add_argument("--small", action="store_true", help="check values and the plan; fail on any difference")
    options = parser.parse_args(arguments)
    options.rows = options.rows or (200_000 if options.small else 2_000_000)
    options.rounds = options.rounds or (1 if options.small else 5)
    return options


if __name__ == "__main__":
    sys.exit(main())
