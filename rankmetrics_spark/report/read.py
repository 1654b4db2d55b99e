"""Figures of what earlier runs have published, read with Arrow or through a session, with users counted in steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Row, SparkSession, functions as F

from rankmetrics_spark import config as cfg, engines as eng, findings as fd, schemas as sch, sinks
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.pointers import FOLDER as POINTERS, Pointer, unpublished
from rankmetrics_spark.report import assets, reruns, trust
from rankmetrics_spark.report.figures import STEPS, Figures
from rankmetrics_spark.report.over_time import difference_rows


def figures_of(tables: Tables, date: str | None = None, place: str = "--date") -> Figures:
    """Read what a report shows."""
    return sinks.settled(tables.name, tables.pointers, lambda known: _figures(tables.at(known), date, place))


def _figures(tables: Tables, requested_date: str | None, place: str) -> Figures:
    """What a report shows by the pointers that are known."""
    dates, pointers = tables.dates(), tables.known
    if not dates:
        raise InputError(f"'{tables.name}' holds nothing that is published; allowed: the output of a run that ended")
    date = requested_date or max(dates)
    if date not in dates:
        raise InputError(f"{place}: {unpublished(date, dates)}")
    means = tables.rows("experiment_metrics", date, MOST_ROWS)
    records = [*tables.records()]
    checks = tables.checks(date)
    compared, replaced = reruns.parted(tables.rows("comparisons", date, MOST_ROWS), pointers)
    draft = Figures(
        means=means,
        comparisons=compared,
        record=reruns.record_of_date(records, date, pointers.get(date)),
        history=[*newest_of(records).values()][-MOST_DATES:],
        n_means=tables.size("experiment_metrics", date),
        n_comparisons=tables.size("comparisons", date) - len(replaced),
    )
    if date in pointers and len(pointers[date].entries) > 1:
        checks = reruns.checks_of_runs(checks, trust.check_rows(draft), replaced)
    draft, trend, over_time = with_users(tables, date, replace(draft, checks=sch.rows_of(checks))), [], []
    if len(dates) > 1:
        shown, experiments = dates[-MOST_DATES:], draft.experiments[:MOST_EXPERIMENTS]
        over_time = difference_rows(reruns.parted(tables.of_all("comparisons", shown, experiments), pointers)[0])
        trend = [] if over_time else tables.of_all("experiment_metrics", shown, experiments)
    return replace(draft, trend=trend, over_time=over_time)


def with_users(tables: Tables, date: str, figures: Figures) -> Figures:
    """The figures with their users, counted by value and by how much it changes between two experiments."""
    metrics = figures.metrics
    # The steps of a metric begin and end at its range, or at the values where it has none.
    unbounded = [metric for metric in metrics if not np.isfinite(metric.definition.range).all()]
    ends = tables.ends(date, unbounded) if unbounded else {}
    edges = {str(metric): ends.get(str(metric), metric.definition.range) for metric in metrics}
    users = tables.users(date, edges, metrics, figures.experiments[:MOST_EXPERIMENTS])
    changes = tables.changes(date, edges, metrics, paired_of(figures))
    return replace(figures, users=users, user_changes=changes)


def newest_of(records: Iterable[sch.Row]) -> dict[str, sch.Row]:
    """Date -> the record of its newest run, by date; the records are the oldest first."""
    return dict(sorted({str(record.get(sch.DATE)): record for record in records}.items()))


def plain(row: Row) -> dict[str, Any]:
    """A row whose date is a text, as in folders and records."""
    values: dict[str, Any] = row.asDict()
    return values | {sch.DATE: str(values[sch.DATE])} if values.get(sch.DATE) is not None else values


# ---- where the tables are


def local_tables(folder: str) -> Tables | None:
    """The tables of a folder on this machine; None if it holds none that PyArrow can read."""
    disk = sinks.of_disk(folder.rstrip("/") or "/")
    # A Delta table has files of earlier versions beside those that count.
    if disk is None or format_of(folder) == "delta":
        return None
    has_tables = any(map(disk.is_folder, ("experiment_metrics", POINTERS)))
    return FolderTables(disk, sinks.pointers_of(None, disk.root)) if has_tables else None


def format_of(folder: str) -> str:
    """The format of the tables, as far as this machine can see it."""
    path = cfg.local_path(folder)
    return "delta" if path is not None and any(path.glob("experiment_metrics/_delta_log")) else "parquet"


def spark_tables(spark: SparkSession, sink: cfg.Sink, place: str = "--input") -> SparkTables:
    """The tables of an output that Spark can read."""
    store = sinks.store_of(spark, sink, "report")
    if not store.exists("experiment_metrics"):
        raise InputError(assets.said("no_output", place=place, path=store.path))
    return SparkTables(store, store.pointers())


@dataclass(frozen=True)
class FolderTables:
    """Parquet tables in a folder on this machine; nothing but PyArrow reads them.

    Attributes:
        disk: Output folder of the runs.
        known: Date -> its pointer; as everywhere, it says which files count.
    """

    disk: sinks.Files
    known: Mapping[str, Pointer]

    @property
    def name(self) -> str:
        return self.disk.root

    def pointers(self) -> Mapping[str, Pointer]:
        """Date -> what is published there, as it is now."""
        return sinks.pointers_of(None, self.disk.root)

    def at(self, known: Mapping[str, Pointer]) -> FolderTables:
        """The tables as these pointers name them."""
        return replace(self, known=known)

    def dates(self) -> list[str]:
        """The evaluation dates that are published, ascending."""
        without_pointer = self._files("experiment_metrics", lambda date: date not in self.known)
        return sorted({*self.known, *(date for _, date, _ in without_pointer)})

    def _files(self, table: str, is_chosen: Callable[[str], bool]) -> Iterator[tuple[str | None, str, str]]:
        """(experiment, date, path) of each file that counts; no experiment where it holds the rows of all."""
        for path in sinks.live_files(sinks.Files(self.disk.system, self.disk.at(table)), self.known, is_chosen):
            *of, date, _ = path.split("/")
            experiment = str(sinks.experiment_of(of[0])) if of else None
            yield experiment, date.partition("=")[2], self.disk.at(f"{table}/{path}")

    def _tables(self, table: str, dates: Sequence[str], columns: Names, experiments: Names = None) -> Iterable[Any]:
        """(experiment, date, Arrow table) of each file, of all experiments or of some."""
        for experiment, date, file in self._files(table, {*dates}.__contains__):
            if experiment is None or experiments is None or experiment in experiments:
                # Opened once: each experiment has a file of its own, and there may be thousands. PyArrow 8 closes none.
                with open(file, "rb") as opened:
                    parquet = pq.ParquetFile(opened)
                    stored = parquet.schema_arrow.names
                    if names := stored if columns is None else [name for name in columns if name in stored]:
                        rows = parquet.read(names)
                        parts = [(experiment, rows)] if experiment is not None else sinks.by_experiment(rows)
                        named = ((str(name), date, part) for name, part in parts)
                        yield from (part for part in named if experiments is None or part[0] in experiments)

    def rows(self, table: str, date: str, most: int) -> sch.Rows:
        """All rows of all users, then at most so many of the largest segments; empty if there is no such table."""
        return everyone_and_largest([*self._read(table, [date])], most)

    def _read(self, table: str, dates: Sequence[str], experiments: Names = None) -> Iterator[Any]:
        """The rows of each file; those of all users only where experiments are chosen."""
        for experiment, date, rows in self._tables(table, dates, None, experiments):
            if experiments is not None:
                rows = rows.filter(pc.equal(rows.column(sch.SEGMENT), sch.EVERYONE))
            yield from ({**row, sch.EXPERIMENT: experiment, sch.DATE: date} for row in rows.to_pylist())

    def size(self, table: str, date: str) -> int:
        """Number of rows."""
        return sum(pq.read_metadata(file).num_rows for _, _, file in self._files(table, {date}.__contains__))

    def checks(self, date: str) -> list[sch.Check]:
        """What was checked; nothing where an earlier version has published the date."""
        # The names of the files are random.
        return sorted(sch.checks_of(self._read("checks", [date])), key=lambda check: str(check.experiment))

    def of_all(self, table: str, dates: Sequence[str], experiments: Sequence[str]) -> sch.Rows:
        """The rows of all users on these dates."""
        return [*self._read(table, dates, {*experiments})]

    def ends(self, date: str, metrics: fd.Metrics) -> Edges:
        """Lowest and highest value of users."""
        ends: dict[str, tuple[float, float]] = {}
        for _, name, values in self._values(date, metrics):
            low, high = ends.get(name, (0.0, 0.0))
            ends[name] = float(values.min(initial=low)), float(values.max(initial=high))
        return ends

    def _values(self, date: str, metrics: fd.Metrics, experiments: Names = None) -> Iterable[tuple[str, str, Any]]:
        """(experiment, metric, values of its users) of each file."""
        columns = {metric.column: str(metric) for metric in metrics}
        for experiment, _, table in self._tables("user_metrics", [date], columns, experiments):
            for column in table.column_names:
                values = table[column].drop_null().to_numpy()
                yield experiment, columns[column], values[np.isfinite(values)]

    def users(self, date: str, edges: Edges, metrics: fd.Metrics, experiments: Sequence[str]) -> sch.Rows:
        """Users per (experiment_id, metric, step)."""
        counts: dict[tuple[str, str], Any] = {}
        for experiment, name, values in self._values(date, metrics, {*experiments}):
            counts[experiment, name] = counts.get((experiment, name), 0) + counted(values, *edges[name])
        steps = ((*key, step - 1, int(n)) for key, numbers in counts.items() for step, n in enumerate(numbers) if n)
        return [step_row(*step, edges) for step in steps]

    def changes(self, date: str, edges: Edges, metrics: fd.Metrics, pairs: Pairs) -> sch.Rows:
        """Users per (experiment_id, baseline, metric, step) who are in both, by the change of their value."""
        columns = {metric.column: str(metric) for metric in metrics}
        names = {name for pair in pairs for name in pair}
        tables = {each: rows for each, _, rows in self._tables("user_metrics", [date], (sch.USER, *columns), names)}
        here = [pair for pair in pairs if {*pair} <= {*tables}]
        return [row for pair in here for row in change_rows(pair, tables, columns, edges)]

    def records(self) -> Iterable[Mapping[str, Any]]:
        """The run records, oldest first."""
        return [*reversed(sinks.records_in(self.disk.root) or [])]


@dataclass(frozen=True)
class SparkTables:
    """Tables that Spark reads: on another file system, or in a catalog.

    Attributes:
        store: Where the runs wrote; each read of it follows the pointers of its own time.
        known: Date -> its pointer, of one time.
        period_users: The users of a period, which are read in place of those of a date: a row per experiment and user.
    """

    store: sinks.Store
    known: Mapping[str, Pointer]
    period_users: DataFrame | None = None

    def read(self, table: str) -> DataFrame | None:
        return self.store.existing(table)

    @property
    def name(self) -> str:
        return self.store.path

    def pointers(self) -> Mapping[str, Pointer]:
        return self.store.pointers()

    def at(self, known: Mapping[str, Pointer]) -> SparkTables:
        return replace(self, known=known)

    def dates(self) -> list[str]:
        table = self.read("experiment_metrics")
        rows = [] if table is None else eng.few_rows(table.select(sch.DATE).distinct())
        return sorted({*self.known, *(str(date) for (date,) in rows)})

    def rows(self, table: str, date: str, most: int) -> sch.Rows:
        if (of_date := self.of_date(table, date)) is None:
            return []
        of_segment = F.col(sch.SEGMENT) != sch.EVERYONE
        surest = [F.col("p_adjusted").asc_nulls_last()] * ("p_adjusted" in of_date.columns)
        size = F.col(sch.N_USERS).desc()
        largest = of_date.where(of_segment).orderBy(size, *surest, *sch.PARTITION, sch.METRIC).limit(most)
        rows = [plain(row) for part in (of_date.where(~of_segment), largest) for row in eng.few_rows(part)]
        return everyone_and_largest(rows, most)

    def of_date(self, table: str, date: str) -> DataFrame | None:
        """The rows of a table; None where there is no such table."""
        if table == "user_metrics" and self.period_users is not None:
            return self.period_users
        rows = self.read(table)
        return None if rows is None else rows.where(F.col(sch.DATE) == date)

    def size(self, table: str, date: str) -> int:
        rows = self.of_date(table, date)
        return 0 if rows is None else rows.count()

    def checks(self, date: str) -> list[sch.Check]:
        rows = self.of_date("checks", date)
        found = [] if rows is None else eng.few_rows(rows.limit(MOST_ROWS))
        return sorted(sch.checks_of(row.asDict() for row in found), key=lambda check: str(check.experiment))

    def of_all(self, name: str, dates: Sequence[str], experiments: Sequence[str]) -> sch.Rows:
        """The rows of all users on these dates."""
        if (table := self.read(name)) is None:
            return []
        is_chosen = F.col(sch.DATE).isin([*dates]) & F.col(sch.EXPERIMENT).isin([*experiments])
        rows = table.where((F.col(sch.SEGMENT) == sch.EVERYONE) & is_chosen)
        newest = eng.few_rows(rows.orderBy(F.col(sch.DATE).desc(), sch.EXPERIMENT, sch.METRIC).limit(MOST_ROWS))
        return sorted(map(plain, newest), key=itemgetter(sch.DATE, sch.EXPERIMENT, sch.METRIC))

    def _users(self, date: str, metrics: fd.Metrics) -> tuple[Any, fd.Metrics]:
        """The users of a date, and those of the metrics that they have."""
        users = self.of_date("user_metrics", date)
        return users, [metric for metric in metrics if users is not None and metric.column in users.columns]

    def ends(self, date: str, metrics: fd.Metrics) -> Edges:
        users, stored = self._users(date, metrics)
        if not stored:
            return {}
        ends = iter(users.agg(*(end(F.col(each.column)) for each in stored for end in (F.min, F.max))).first() or ())
        pairs = zip(stored, ends, ends, strict=True)
        return {str(metric): (min(0.0, low or 0.0), max(0.0, high or 0.0)) for metric, low, high in pairs}

    def users(self, date: str, edges: Edges, metrics: fd.Metrics, experiments: Sequence[str]) -> sch.Rows:
        users, stored = self._users(date, metrics)
        if not stored:
            return []
        steps = {str(each): step_column(each.column, *edges[str(each)]) for each in stored}
        return step_rows(users.where(F.col(sch.EXPERIMENT).isin([*experiments])), steps, edges, first=-1)

    def changes(self, date: str, edges: Edges, metrics: fd.Metrics, pairs: Pairs) -> sch.Rows:
        users, stored = self._users(date, metrics)
        of_baseline = fd.grouped(pairs if stored else (), lambda pair: pair[1]).items()
        sides = ((baseline, [experiment for experiment, _ in some]) for baseline, some in of_baseline)
        return [row for side in sides for row in changes_between(users, *side, stored, edges)]

    def records(self) -> Iterable[Mapping[str, Any]]:
        return [*reversed(sinks.run_records(self.store))]


#: Metric -> lowest and highest value of its steps.
Edges = Mapping[str, tuple[float, float]]
#: Experiment and baseline.
Pairs = Sequence[tuple[str, str]]
#: Experiments, or columns; None = all.
Names = Collection[str] | None

#: Rows of segments that are read at most, and rows of a history; the page shows fewer.
MOST_ROWS = 20_000
#: Experiments whose users are counted and whose history is shown.
MOST_EXPERIMENTS = 200
MOST_DATES = 90


#: The tables of an output, by whatever reader.
Tables = FolderTables | SparkTables


def everyone_and_largest(rows: sch.Rows, most: int) -> sch.Rows:
    """All rows of all users, the surest first, then at most so many of segments, the largest first."""
    parts = fd.grouped(sorted(rows, key=fd.surest_first), sch.is_of_segment)
    return [*parts.get(False, ()), *sorted(parts.get(True, ()), key=itemgetter(sch.N_USERS), reverse=True)[:most]]


# ---- users counted in steps of a metric: by their value, and by how much it changes between two experiments

#: Pairs of experiments whose users are compared one by one.
MOST_PAIRED = 12


def paired_of(figures: Figures) -> list[tuple[str, str]]:
    """The pairs (experiment, baseline) that the same users see, those of the better experiments first."""
    pairs = {found.pair for found in figures.compared if found.design == "paired"}
    place = figures.places
    return sorted(pairs, key=lambda pair: [place.get(name, len(place)) for name in pair])[:MOST_PAIRED]


def counted(values: Any, low: float, high: float) -> Any:
    """(STEPS + 1,) users at the lowest value, and in each step up to and with its upper edge.

    >>> counted(np.array([0.0, 0.05, 0.051, 1.0]), 0.0, 1.0).tolist()[:3]
    [1, 1, 1]
    """
    steps = np.ceil(np.round((values - low) / ((high - low) or 1.0) * STEPS, 9)).astype(np.int64)
    return np.bincount(np.clip(steps, 0, STEPS), minlength=STEPS + 1)


def change_steps(values: Any, low: float, high: float) -> tuple[Any, Any]:
    """The steps of changes, and how many there are of each: 0 = no change, 1 = a rise of up to one step.

    >>> [part.tolist() for part in change_steps(np.array([0.0, 0.05, -0.051, 0.04]), 0.0, 1.0)]
    [[-2, 0, 1], [1, 1, 2]]
    """
    sizes = np.ceil(np.round(np.abs(values) / ((high - low) or 1.0) * STEPS, 9)).astype(np.int64)
    steps = np.where(values == 0, 0, np.sign(values) * np.clip(sizes, 1, STEPS))
    return np.unique(steps.astype(np.int64), return_counts=True)


def step_row(experiment: str, metric: str, step: int, users: int, edges: Edges) -> dict[str, Any]:
    low, high = edges[metric]
    return {sch.EXPERIMENT: experiment, sch.METRIC: metric, "step": step, "low": low, "high": high, "users": users}


def change_rows(pair: tuple[str, str], tables: Mapping[str, Any], columns: Mapping[str, str], edges: Edges) -> sch.Rows:
    """Users per metric and step who are in both Arrow tables of a pair, by the change of their value.

    Args:
        pair: Experiment and baseline.
        tables: Experiment -> its users.
        columns: Column of a metric -> its name.
        edges: Where the steps of each metric begin and end.
    """
    experiment, baseline = pair
    mine, theirs = tables[experiment], tables[baseline]
    partners = theirs.take(pc.index_in(mine[sch.USER], value_set=theirs[sch.USER].combine_chunks()))
    rows = []
    for column in sorted({*mine.column_names} & {*theirs.column_names} & {*columns}):
        name, (low, high) = columns[column], edges[columns[column]]
        values = pc.subtract(mine[column], partners[column]).drop_null().to_numpy()
        steps, sizes = change_steps(values[np.isfinite(values)], low, high)
        for step, n in zip(steps, sizes, strict=True):
            rows.append({**step_row(experiment, name, int(step), int(n), edges), sch.BASELINE: baseline})
    return rows


def step_column(column: str, low: float, high: float) -> Column:
    """The step of a user's value, as ``counted`` has it."""
    step = F.ceil(F.round((F.col(column) - low) / ((high - low) or 1.0) * STEPS, 9))
    finite = F.col(column).isNotNull() & ~F.isnan(column) & (F.abs(column) != float("inf"))
    return F.when(finite, F.least(F.greatest(step, F.lit(0)), F.lit(STEPS)).cast("int"))


def step_rows(rows: DataFrame, steps: Mapping[str, Column], edges: Edges, first: int = 0) -> sch.Rows:
    """Users per (experiment_id, metric, step), which begin with ``first``; ``steps`` has those of each metric."""
    parts = (F.struct(F.lit(name).alias(sch.METRIC), step.alias("step")) for name, step in steps.items())
    known = rows.select(sch.EXPERIMENT, F.inline(F.array(*parts))).where("step IS NOT NULL")
    groups = sorted(eng.few_rows(known.groupBy(sch.EXPERIMENT, sch.METRIC, "step").count()), key=str)
    return [step_row(experiment, metric, first + step, n, edges) for experiment, metric, step, n in groups]


def changes_between(
    users: DataFrame, baseline: str, experiments: Sequence[str], metrics: fd.Metrics, edges: Edges
) -> sch.Rows:
    """Users per (experiment_id, metric, step) who are also in the baseline, by the step of ``change_steps``."""
    columns = [F.col(metric.column).alias(f"_b{i}") for i, metric in enumerate(metrics)]
    theirs = users.where(F.col(sch.EXPERIMENT) == baseline).select(sch.USER, *columns)
    both = users.where(F.col(sch.EXPERIMENT).isin([*experiments])).join(theirs, sch.USER)
    steps = {}
    for i, metric in enumerate(metrics):
        low, high = edges[str(metric)]
        change = F.col(metric.column) - F.col(f"_b{i}")
        size = F.ceil(F.round(F.abs(change) / ((high - low) or 1.0) * STEPS, 9))
        step = F.signum(change) * F.least(F.greatest(size, F.lit(1)), F.lit(STEPS))
        finite = change.isNotNull() & ~F.isnan(change) & (F.abs(change) != float("inf"))
        steps[str(metric)] = F.when(finite, F.when(change == 0, 0).otherwise(step).cast("int"))
    return [{**row, sch.BASELINE: baseline} for row in step_rows(both, steps, edges)]
