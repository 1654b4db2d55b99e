"""What the job costs on a cluster of Spark: a model of its stages, tasks and slots, with coefficients from a few runs.

A task takes its overhead, the time of its rows and the time of its bytes; its stage takes as long as the last of its
tasks, which are given to free slots in their order. What the driver does alone is added.
"""

import csv
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

MIB = 1024.0**2 / 1e6
"""MB of a MiB; sizes are in MB, which are millions of bytes."""
SPLIT, OPEN, SMALLEST, ADVISED = 128 * MIB, 4 * MIB, 1 * MIB, 64 * MIB
"""Spark's spark.sql.files.maxPartitionBytes and openCostInBytes, and sizes of a coalesced partition."""
EXACT_PARTITIONS = 2000
"""Up to so many partitions, the driver keeps a byte for each block of a shuffle; above, a bit."""
FEW_LISTS = 500_000
"""Up to so many lists, one task writes the users' values (``MOST_ROWS`` of the sinks); above, one for each file."""
LISTS_PER_FILE = 1_000_000
FLAGGED = 1 / 22e6
"""Share of lists that look as if an item repeats (50 items, 8 % relevant): one of them makes the log be read again."""
AGAIN = 0.5
"""Seconds of a row that is read again over those of its first reading: 13.8 of 27.9 CPU s in a run of 100 M rows."""
READS = 3
"""How often the scored lists are read: they are counted, written as users' values, and added up."""


@dataclass(frozen=True)
class Cost:
    """What a kind of task costs, as ``sizing.csv`` has it.

    A unit is a million rows in ``read``, ``again``, and by score ``look`` and ``score``; otherwise a million lists.

    Attributes:
        mode: ``position`` or ``score``.
        stage: The kind of task; ``driver`` for all that is none of the others.
        first: Seconds that the first task of a slot takes in addition: loading, compiling, starting Python.
        task: Seconds of each task.
        unit: Seconds per unit.
        block: Seconds per thousand blocks (map task x partition) that a task writes or fetches.
        several: Seconds that a run with several executors takes in addition: only one of them is warm from reading
            schemas, and on one machine they share its cores with the driver.
        read, fetched, shuffled, to_python, from_python, written: MB per unit.
        memory: MB that a task holds at most in Spark's execution memory, per unit.
    """

    mode: str
    stage: str
    first: float = 0.0
    task: float = 0.0
    unit: float = 0.0
    block: float = 0.0
    several: float = 0.0
    read: float = 0.0
    fetched: float = 0.0
    shuffled: float = 0.0
    to_python: float = 0.0
    from_python: float = 0.0
    written: float = 0.0
    memory: float = 0.0


Costs = Mapping[str, Cost]
"""Kind of task -> its cost, for one mode."""


@dataclass(frozen=True)
class Job:
    """What is evaluated.

    Attributes:
        rows: Impressions.
        partitions: Shuffle partitions.
        list_length: Rows per list.
        experiments: Experiments, which share the lists evenly.
        files: MB of each input file; empty = files of 128 MiB.
        hot: Rows of one list; 0 = all are equal.
        stored: MB of a million rows in the files, with the columns that are not read.
    """

    rows: float
    partitions: int
    list_length: float = 50.0
    experiments: int = 4
    files: tuple[float, ...] = ()
    hot: float = 0.0
    stored: float = 13.4

    @property
    def lists(self) -> float:
        return (self.rows - self.hot) / self.list_length + bool(self.hot)


@dataclass(frozen=True)
class Cluster:
    """Where it runs.

    Attributes:
        nodes: Machines; each has one executor.
        cores: Cores, so tasks at the same time, of each.
        memory: MB of an executor's heap.
        network: MB/s that a node receives; 0 = no limit.
        disk: MB/s of input that a node reads; 0 = no limit.
        slow: Speed of the last node; 1 = that of the others.
    """

    nodes: int
    cores: int = 1
    memory: float = 1536.0
    network: float = 0.0
    disk: float = 0.0
    slow: float = 1.0

    @property
    def slots(self) -> int:
        return self.nodes * self.cores

    @property
    def speeds(self) -> list[float]:
        """Speed of each slot; tasks go to one node after the other."""
        return [self.slow if number % self.nodes == self.nodes - 1 else 1.0 for number in range(self.slots)]


@dataclass(frozen=True)
class Work:
    """A task: seconds of a core at full speed, seconds that it waits for bytes, and what its slot's first one adds."""

    seconds: float
    waits: float = 0.0
    first: float = 0.0
    kind: str = ""


@dataclass(frozen=True)
class Step:
    """What one kind of task takes in a run: their number and units, the seconds of the phase that they share.

    ``of_tasks`` are the seconds of all tasks together.
    """

    stage: str
    tasks: int
    units: float
    seconds: float
    of_tasks: float
    cost: Cost


@dataclass(frozen=True)
class Prediction:
    """A run: its steps, and the seconds of the driver."""

    steps: tuple[Step, ...]
    driver: float

    @property
    def seconds(self) -> float:
        return self.driver + sum(step.seconds for step in self.steps)


def makespan(tasks: Iterable[Work], speeds: Sequence[float]) -> float:
    """Seconds until the last task ends, if each task in turn goes to the slot that is free first.

    >>> makespan([Work(3), Work(1), Work(1), Work(1)], [1, 1])
    3.0
    """
    free = [(0.0, slot) for slot in range(len(speeds))]
    warm: set[tuple[int, str]] = set()
    end = 0.0
    for task in tasks:
        start, slot = heapq.heappop(free)
        first = 0.0 if (slot, task.kind) in warm else task.first
        warm.add((slot, task.kind))
        done = start + (task.seconds + first) / speeds[slot] + task.waits
        end = max(end, done)
        heapq.heappush(free, (done, slot))
    return end


def splits(files: Sequence[float], slots: int) -> list[float]:
    """MB of each task that reads files: Spark cuts files into chunks and packs chunks, the largest first.

    >>> [round(size) for size in splits([100, 10, 10], 2)]
    [66, 54]
    """
    most = min(SPLIT, max(OPEN, sum(size + OPEN for size in files) / max(slots, 2)))
    chunks = [min(most, size - most * number) for size in files for number in range(math.ceil(size / most))]
    result: list[float] = []
    opened = math.inf
    for chunk in sorted(chunks, reverse=True):
        if opened + chunk > most:
            result.append(0.0)
            opened = 0.0
        result[-1] += chunk
        opened += chunk + OPEN
    return result


def coalesced(partitions: Sequence[tuple[float, float]], slots: float) -> list[float]:
    """Units of each task of a shuffle after adaptive execution has merged small neighbours.

    Args:
        partitions: Units and MB of each partition.
        slots: Tasks that Spark wants at least.
    """
    most = min(ADVISED, max(SMALLEST, sum(mb for _, mb in partitions) / max(slots, 1)))
    result, held = [0.0], 0.0
    for units, mb in partitions:
        if held and held + mb > most:
            result.append(0.0)
            held = 0.0
        result[-1] += units
        held += mb
    return result


def predict(job: Job, cluster: Cluster, costs: Costs) -> Prediction:
    """What a job takes on a cluster: its phases one after the other, and the driver."""
    unit = job.rows / 1e6 if costs["score"].mode == "score" else job.lists / 1e6
    again = replace(costs["read"], stage="again", unit=AGAIN * costs["read"].unit, block=0.0, shuffled=0.0)
    costs = {"again": again, **costs}
    maps = splits(files_of(job), cluster.slots)
    read = [job.rows / 1e6 * mb / sum(maps) for mb in maps]
    partitions = partitions_of(job, unit, costs["score"].fetched)
    # Spark wants two tasks even of one slot; two kinds that are read together share them.
    fewest = max(cluster.slots, 2)
    blocks = len(maps) * job.partitions
    score = coalesced(partitions, fewest / 2)
    phases = [[("read", read, blocks)]]
    if costs["score"].mode == "position":
        # Lists that the layout cannot hold are looked for before they are scored.
        phases.append([("look", coalesced(partitions, fewest), blocks)])
        phases.append([("again", read, 0)])
    # They are looked for again beside the scoring, for what is read a second time.
    phases.append([("score", score, blocks), ("look", score, blocks)])
    staged = splits([units * costs["score"].written for units in score], cluster.slots)
    values = [job.lists / 1e6 * mb / sum(staged) for mb in staged]
    phases.append([("values", [units / READS for units in values] * READS, 0)])
    if job.lists > FEW_LISTS:
        files = job.experiments * math.ceil(job.lists / job.experiments / LISTS_PER_FILE)
        each = job.lists / 1e6 / files
        phases.append([("users", coalesced([(each, each * costs["users"].fetched)] * files, fewest), 0)])
    likely = {"again": second_read(job)}
    steps = tuple(_step(phase, cluster, costs, likely.get(phase[0][0], 1.0)) for phase in phases)
    here = job.lists / 1e6 if job.lists <= FEW_LISTS else 0.0
    n_tasks, driver = sum(step.tasks for step in steps), costs["driver"]
    several = driver.several if cluster.nodes > 1 else 0.0
    return Prediction(steps, _seconds(driver, n_tasks, here, 0.0) + driver.first + several)


def second_read(job: Job) -> float:
    """The probability that some list needs a second read of the log (by position).

    >>> second_read(Job(1.1e9, 1)) == 1 - math.exp(-1)
    True
    """
    return 1 - math.exp(-job.lists * FLAGGED)


def files_of(job: Job) -> Sequence[float]:
    """MB of each file of the log."""
    return job.files or [SPLIT] * math.ceil(job.stored * job.rows / 1e6 / SPLIT)


def partitions_of(job: Job, unit: float, mb: float) -> list[tuple[float, float]]:
    """Units and MB of each shuffle partition; the one in the middle has the hot list."""
    hot = job.hot / job.rows * unit if job.hot else 0.0
    each = (unit - hot) / job.partitions
    sizes = [each] * job.partitions
    sizes[job.partitions // 2] += hot
    return [(size, size * mb) for size in sizes]


def _seconds(cost: Cost, tasks: float, units: float, blocks: float) -> float:
    return cost.task * tasks + cost.unit * units + cost.block * blocks / 1e3


def _step(phase: Sequence[tuple[str, Sequence[float], int]], cluster: Cluster, costs: Costs, likely: float) -> Step:
    """Schedule the tasks of a phase; its seconds are expected ones. The first kind gives it its name."""
    works = []
    for stage, sizes, blocks in phase:
        cost, total = costs[stage], sum(sizes) or 1.0
        for units in sizes:
            share = blocks / len(sizes) if stage == "read" else blocks * units / total
            works.append(
                Work(
                    _seconds(cost, 1, units, share),
                    _waits(cost, units, cluster),
                    cost.first * (stage == phase[0][0]),
                    stage,
                )
            )
    stage, sizes, _ = phase[0]
    seconds = makespan(works, cluster.speeds)
    of_tasks = sum(work.seconds for work in works) + costs[stage].first * min(len(sizes), cluster.slots)
    return Step(stage, len(works), sum(sizes) * likely, seconds * likely, of_tasks * likely, costs[stage])


def _waits(cost: Cost, units: float, cluster: Cluster) -> float:
    """Seconds that a task waits for its bytes, if all cores of its node do so at the same time."""
    remote = units * cost.fetched * (cluster.nodes - 1) / cluster.nodes
    network = remote * cluster.cores / cluster.network if cluster.network else 0.0
    return network + (units * cost.read * cluster.cores / cluster.disk if cluster.disk else 0.0)


@dataclass(frozen=True)
class Observation:
    """All tasks of one kind in a run on one worker of one core.

    Attributes:
        mode, stage: As in ``Cost``.
        tasks, units, blocks: Their number, and what they did together.
        seconds: Of all of them together.
        amounts: Column of ``Cost`` -> MB per unit.
    """

    mode: str
    stage: str
    tasks: int
    units: float
    blocks: float
    seconds: float
    amounts: Mapping[str, float]


def fit(observations: Sequence[Observation]) -> list[Cost]:
    """The coefficients whose squared relative errors are least, none below zero; the amounts of the largest run."""
    from scipy.optimize import nnls

    result = []
    for mode, stage in sorted({(each.mode, each.stage) for each in observations}):
        seen = [each for each in observations if (each.mode, each.stage) == (mode, stage)]
        largest = max(seen, key=lambda each: each.units)
        # No more coefficients than runs: the most important ones first.
        names = ("first", "task", "unit") if stage == "driver" else ("unit", "first", "task", "block")
        names = names[: len(seen)]
        values = [{"first": 1, "task": x.tasks, "unit": x.units, "block": x.blocks / 1e3} for x in seen]
        matrix = [[row[name] / x.seconds for name in names] for x, row in zip(seen, values, strict=True)]
        actual, _ = nnls(matrix, [1.0] * len(seen))
        result.append(Cost(mode, stage, **dict(zip(names, map(float, actual), strict=True)), **largest.amounts))
    return result


def costs_of(path: Path, mode: str) -> Costs:
    """Read the coefficients of a mode.

    Raises:
        ValueError: The file has none.
    """
    with path.open() as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    words = {"mode", "stage"}
    costs = [Cost(**{name: value if name in words else float(value) for name, value in row.items()}) for row in rows]
    result = by_stage(costs, mode)
    if not result:
        raise ValueError(f"no coefficients for mode {mode!r} in {path}")
    return result


def by_stage(costs: Sequence[Cost], mode: str) -> dict[str, Cost]:
    """The costs of a mode, by kind of task; empty if there are none."""
    result = {cost.stage: cost for cost in costs if cost.mode == mode}
    # The users' values are written in the same way in both modes, but only by a run with many lists.
    users = {cost.stage: cost for cost in costs if cost.stage == "users"}
    return users | result if result else {}


def write_costs(path: Path, costs: Sequence[Cost], command: str) -> None:
    """Write the coefficients, and the command that did."""
    names = [field.name for field in fields(Cost)]
    with path.open("w", newline="") as lines:
        lines.write(f"# {command}\n")
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(names)
        for cost in costs:
            values = [getattr(cost, name) for name in names]
            writer.writerow([value if isinstance(value, str) else f"{value:.4g}" for value in values])
