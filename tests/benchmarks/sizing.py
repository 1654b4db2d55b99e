"""What the job costs on a cluster of Spark: stages, seconds, settings, and what breaks first.

``python -m tests.benchmarks.sizing --rows 1e10 --nodes 50`` prints what a day costs, ``--check`` compares the model
with runs that it has not seen, and ``--calibrate`` measures its coefficients again (``sizing.csv``).
"""

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import sizing_model as model
from tests.benchmarks.sizing_model import MIB, Cluster, Costs, Job, costs_of, predict

COEFFICIENTS = Path(__file__).parent / "sizing.csv"
MARGIN = 0.2
"""The largest relative error of a prediction that ``--check`` lets pass."""


def recommended(job: Job, cluster: Cluster, costs: Costs) -> int:
    """The fewest partitions whose tasks fit into memory and whose predicted time is within 1 % of the shortest."""
    choices = sorted({max(1, round(cluster.slots * share)) for share in (0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)})
    fitting = [n for n in choices if task_memory(replace(job, partitions=n), costs) <= slot_memory(cluster)]
    if not fitting:
        return math.ceil(task_memory(replace(job, partitions=1), costs) / slot_memory(cluster))
    times = {n: predict(replace(job, partitions=n), cluster, costs).seconds for n in fitting}
    return next(n for n in fitting if times[n] <= 1.01 * min(times.values()))


def slot_memory(cluster: Cluster) -> float:
    """MB of execution memory of a task: Spark's share of the heap (spark.memory.fraction), by the cores."""
    return max(cluster.memory - 300 * MIB, 0.0) * 0.6 / cluster.cores


def task_memory(job: Job, costs: Costs) -> float:
    """MB of execution memory of the task with the largest partition, before partitions are merged."""
    cost = costs["score"]
    unit = job.rows / 1e6 if cost.mode == "score" else job.lists / 1e6
    return max(size for size, _ in model.partitions_of(job, unit, 0.0)) * cost.memory


@dataclass(frozen=True)
class Limit:
    """Where something ends: what it is here and may be at most, the ratio of both, and what reaches it."""

    what: str
    here: str
    most: str
    headroom: float
    reached: str


def limits(job: Job, cluster: Cluster, costs: Costs, driver_memory: float) -> list[Limit]:
    """What breaks with more rows, partitions or longer lists; the first to break first."""
    maps = len(model.splits(model.files_of(job), cluster.slots))
    statuses = maps * job.partitions * (1.0 if job.partitions <= model.EXACT_PARTITIONS else 0.125) / 1e6
    room, memory = slot_memory(cluster), task_memory(job, costs)
    of_driver, score = driver_memory * 0.1, costs["score"]
    block = job.rows / 1e6 * costs["read"].shuffled / (maps * job.partitions) * 1e3
    result = [
        Limit("memory of a task", f"{memory:,.0f} MB", f"{room:,.0f} MB", room / memory,
              f"{job.rows * room / memory:.1e} rows with these partitions"),
        Limit("driver: sizes of all blocks, 10 % of its heap", f"{statuses:,.1f} MB", f"{of_driver:,.0f} MB",
              of_driver / statuses, f"{maps * of_driver / statuses:,.0f} map tasks with these partitions"),
        Limit("shuffle: size of a block", f"{block:,.1f} kB", "1 kB or more", block,
              f"{job.partitions * block:,.0f} partitions; requests then cost more than bytes"),
        Limit("shuffle: files of a node", f"{2 * maps / cluster.nodes:,.0f}", "100,000",
              50_000 * cluster.nodes / maps, f"{job.rows * 50_000 * cluster.nodes / maps:.1e} rows"),
    ]  # fmt: skip
    if score.mode == "score":
        long = max(job.hot, job.list_length)
        most = room / score.memory * 1e6
        reached = f"a list of {most:,.0f} rows"
        result.append(Limit("skew: rows of the longest list", f"{long:,.0f}", f"{most:,.0f}", most / long, reached))
    return sorted(result, key=lambda limit: limit.headroom)


def report(job: Job, cluster: Cluster, costs: Costs, driver_memory: float) -> Iterable[Table | str]:
    """What is printed: the stages, the total, recommended settings, and what breaks first."""
    run = predict(job, cluster, costs)
    yield (
        f"{job.rows:,.0f} rows in {job.lists:,.0f} lists by {costs['score'].mode}; {cluster.nodes} nodes of "
        f"{cluster.cores} cores and {cluster.memory / MIB / 1024:g} GB; {job.partitions:,} shuffle partitions"
    )
    table = Table()
    sizes = ("read", "shuffled", "fetched", "to and from Python", "written")
    heads = ("tasks", "s of all tasks", *(f"GB {size}" for size in sizes))
    for head in ("stage", *heads, "seconds"):
        table.add_column(head, justify="left" if head == "stage" else "right")
    for step in run.steps:
        mb = {name: step.units * getattr(step.cost, name) for name in (*VOLUMES, "from_python")}
        mb["to_python"] += mb["from_python"]
        volumes = (f"{mb[name] / 1e3:,.1f}" for name in VOLUMES)
        cells = (f"{step.tasks:,}", f"{step.of_tasks:,.0f}", *volumes, f"{step.seconds:.1f}")
        table.add_row(step.stage, *cells)
    table.add_row("driver and small stages", *[""] * len(heads), f"{run.driver:.1f}")
    n_tasks, of_tasks = (sum(getattr(step, name) for step in run.steps) for name in ("tasks", "of_tasks"))
    table.add_row("all", f"{n_tasks:,}", f"{of_tasks:,.0f}", *[""] * len(sizes), f"{run.seconds:.0f}")
    yield table
    best = recommended(job, cluster, costs)
    better = predict(replace(job, partitions=best), cluster, costs).seconds
    heap = task_memory(replace(job, partitions=best), costs) * cluster.cores / 0.6 + 300 * MIB
    yield f"Recommended: {best:,} partitions ({better:.0f} s); a heap of {max(heap, 1e3) / 1e3:.1f} GB or more per node"
    twice = predict(job, replace(cluster, nodes=2 * cluster.nodes), costs).seconds
    yield f"With twice the nodes: {twice:.0f} s; the {run.driver:.0f} s of the driver stay"
    table = Table(title="Where it breaks, the nearest first")
    for head in ("what", "here", "at most", "headroom", "reached with"):
        table.add_column(head, justify="left" if head in ("what", "reached with") else "right")
    for limit in limits(job, cluster, costs, driver_memory):
        table.add_row(limit.what, limit.here, limit.most, f"{limit.headroom:,.1f}x", limit.reached)
    yield table


VOLUMES = ("read", "shuffled", "fetched", "to_python", "written")


def calibrate(folder: Path, into: Path) -> None:
    """Measure the calibration runs and write the coefficients."""
    from tests.benchmarks import sizing_runs as runs

    paths = runs.ensured(folder, [*runs.CALIBRATION, *runs.OF_SEVERAL])
    seen = []
    for case in runs.CALIBRATION:
        run = runs.measured(case, paths[case])
        print(f"{case}: {run.seconds:.1f} s", flush=True)
        seen += [runs.with_read(each, paths[case]) for each in runs.observations(case, run)]
    costs = model.fit(seen)
    for case in runs.OF_SEVERAL:
        seconds = runs.measured(case, paths[case]).seconds
        print(f"{case}: {seconds:.1f} s", flush=True)
        known = model.by_stage(costs, case.mode)
        more = seconds - predict(runs.job_of(case, paths[case]), runs.cluster_of(case), known).seconds
        driver = replace(known["driver"], several=max(more, 0.0))
        costs = [driver if cost is known["driver"] else cost for cost in costs]
    model.write_costs(into, costs, "python -m tests.benchmarks.sizing --calibrate")


def check(folder: Path, texts: Sequence[str], coefficients: Path) -> int:
    """Run cases, print predicted and measured seconds, and return how many are off by more than ``MARGIN``."""
    from tests.benchmarks import sizing_runs as runs

    cases = [runs.case_of(text) for text in texts] or runs.UNSEEN
    paths = runs.ensured(folder, cases)
    wrong = 0
    print(f"{'run':44} {'predicted':>9} {'measured':>9} {'error':>7}")
    for case in cases:
        costs = costs_of(coefficients, case.mode)
        predicted = predict(runs.job_of(case, paths[case]), runs.cluster_of(case), costs).seconds
        seconds = runs.measured(case, paths[case]).seconds
        error = predicted / seconds - 1
        wrong += abs(error) > MARGIN
        print(f"{case!s:44} {predicted:9.1f} {seconds:9.1f} {error:+7.1%}", flush=True)
    print(f"sizing: {'FAIL' if wrong else 'PASS'}: {len(cases) - wrong} of {len(cases)} within {MARGIN:.0%}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    folder = Path(options.data).resolve()
    if options.calibrate:
        calibrate(folder, options.coefficients)
        return 0
    if options.check is not None:
        try:
            return int(check(folder, options.check, options.coefficients) > 0)
        except ValueError as error:
            parser.error(str(error))
    try:
        costs = costs_of(options.coefficients, "score" if options.by_score else "position")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    cluster = Cluster(options.nodes, options.cores, options.memory, options.network, options.disk, options.slow)
    job = Job(options.rows, options.partitions or 1, options.list_length, options.experiments)
    job = replace(job, hot=options.hot, stored=options.stored)
    if job.hot > job.rows:
        parser.error(f"--hot: a list of {job.hot:g} rows is longer than the log of {job.rows:g}")
    job = replace(job, partitions=options.partitions or recommended(job, cluster, costs))
    console = Console(width=180)
    for part in report(job, cluster, costs, options.driver_memory):
        console.print(part, highlight=False)
    return 0


def positive(text: str) -> float:
    """A finite number above zero."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return number


def count(text: str) -> int:
    """A whole number above zero, also as 1e3."""
    number = positive(text)
    if number != int(number):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number")
    return int(number)


def share(text: str) -> float:
    """A number above 0, at most 1."""
    if (number := positive(text)) > 1:
        raise argparse.ArgumentTypeError(f"{text} is above 1")
    return number


def megabytes(text: str) -> float:
    """MB of a size as Spark writes it: 512m, 64g.

    >>> megabytes("1g")
    1073.741824
    """
    scale = {"m": MIB, "g": 1024 * MIB, "t": 1024**2 * MIB}.get(text[-1:].lower())
    if scale is None:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 512m or 64g")
    return positive(text[:-1]) * scale


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.benchmarks.sizing", description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add("--rows", type=positive, default=1e10, help="impressions (1e10)")
    add("--nodes", type=count, default=50, help="machines with one executor each (50)")
    add("--cores", type=count, default=16, help="cores of each (16)")
    add("--memory", type=megabytes, default="64g", help="heap of each executor (64g)")
    add("--driver-memory", type=megabytes, default="4g", help="heap of the driver (4g)")
    add("--partitions", type=count, help="shuffle partitions (the best that fit)")
    add("--by-score", action="store_true", help="rank by score: every row is shuffled")
    add("--list-length", type=positive, default=50.0, help="rows of a list (50)")
    add("--experiments", type=count, default=4, help="experiments (4)")
    add("--stored", type=positive, default=13.4, help="MB of a million rows in the files, all columns (13.4)")
    add("--hot", type=positive, default=0.0, help="rows of one long list")
    add("--network", type=positive, default=1250.0, help="MB/s that a node receives (1250: 10 Gbit/s)")
    add("--disk", type=positive, default=400.0, help="MB/s of input that a node reads from its disk or a store (400)")
    add("--slow", type=share, default=1.0, help="speed of one node beside the others (1)")
    add("--coefficients", type=Path, default=COEFFICIENTS, help="the measured coefficients (sizing.csv)")
    add("--calibrate", action="store_true", help="measure the coefficients on this machine, and write them")
    add("--check", nargs="*", metavar="RUN", help="compare with runs: all, or for example 30M,workers=2,partitions=200")
    add("--data", default="out/bench", help="folder for the data of --calibrate and --check")
    return parser


if __name__ == "__main__":
    sys.exit(main())
