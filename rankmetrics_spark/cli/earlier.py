"""What ``rankmetrics compare`` and ``runs`` read of earlier runs, and show."""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import DataFrame, SparkSession, functions as F

from rankmetrics_spark import comparison, config as cfg, engines as eng, metrics as mx, report as rep, sinks
from rankmetrics_spark.cli.options import told_of
from rankmetrics_spark.errors import ConfigError, InputError, OutputError, check_known, first_sentence, without_secrets
from rankmetrics_spark.pointers import History, unpublished
from rankmetrics_spark.schemas import BASELINE, CONVENTION_HASH, DATE, EXPERIMENT, METRIC, SEGMENT, TEST_NAME, Row, Rows

#: Date -> its experiments, each with the hash of its convention.
Partitions = dict[str, set[tuple[str, str]]]
#: Rows of users or of segments that are shown at most.
MOST_ROWS = 100_000
#: Keys that change nothing of what ``--over-time`` prints.
_NOT_OVER_TIME = ("primary", "guardrails", "margin", "effect", "families", "primary_share", "wilcoxon", "randomization",
                  "bootstrap", "aa_check", "shares", "power")  # fmt: skip


class CompareRequest(SimpleNamespace):
    """The options of ``rankmetrics compare``, under the names that its decorators give them."""

    @property
    def comparison(self) -> cfg.Comparison:
        """The section ``comparison`` that this describes.

        Raises:
            ConfigError: A key or value is not allowed, or nothing is compared.
        """
        document: Mapping[str, object] = {name: getattr(self, name) for name in ("baseline", "candidates", "pairs")}
        for assignment in self.overrides:
            document = cfg.override(document, assignment)
        section = cfg.Comparison.read(document)
        cfg.check_rules("CompareRequest", vars(self) | vars(section) | {"is_requested": section.is_requested}, {})
        of_users = {"--losses": self.losses, "--gains": self.gains, "--per-user": self.per_user}
        if not section.baseline and (flags := [name for name, value in of_users.items() if value]):
            raise ConfigError.of("without_baseline", flags=" and ".join(flags))
        others = {"--date": self.date, "--segment": self.segments, "--combine": self.combined,
                  **of_users, "--decompose": self.decomposed}  # fmt: skip
        if self.over_time and (flags := [name for name, value in others.items() if value]):
            raise ConfigError(f"--over-time is given with {' and '.join(flags)}; allowed: all users of several dates")
        usual = cfg.Comparison()
        unused = [name for name in _NOT_OVER_TIME if getattr(section, name) != getattr(usual, name)]
        if self.over_time and unused:
            raise ConfigError.of("not_over_time", given=" and ".join(map(section.path_of, unused)))
        return section


def comparison_of(spark: SparkSession, request: CompareRequest) -> rep.Compared:
    """Read ``user_metrics`` of a date, or of a period, and compare its experiments.

    Raises:
        ConfigError: A wrong argument, or an experiment that is not there.
        InputError: There is no such table or date, or its experiments follow different conventions.
    """
    section = request.comparison
    every_date, root = stored_users(spark, request.folder)
    partitions, of_tests = _partitions(every_date), TEST_NAME in every_date.columns
    every_date = comparison.of_one_test(every_date, section.baseline)
    days = None if request.first is None else _days(partitions, request.first, request.last)
    date = request.date or (days.last if days else max(partitions))
    dates = days.dates if days else (date,)
    pointers = sinks.pointers_of(spark, root)
    if days:
        place = cfg.Sink(path=root, format=next((each.format for each in pointers.values()), "parquet"))
        read = sinks.store_of(spark, place, "compare").days
        # Those of a test are a part of what a state has.
        state = None if of_tests else comparison.State.of(every_date, days, pointers, read)
        users = comparison.period_rows(every_date, days, state=state)
    else:
        users = _of_date(every_date, partitions, date, "--date")
    experiments = {name for each in dates for name, _ in partitions[each]}
    _refuse_unknown(sorted(experiments), section)
    cfg.check_cuped(section, days.first if days else date)
    before = _covariate(section, every_date, partitions)
    options = cfg.Options(segments=request.segments or None, segment_combinations=request.combined or None)
    table = comparison.UserTable.of(users, request.metrics, {name: name for name in options.segments}, before)
    # The newest date that is there, not a later end of the period: nobody has looked at more than that.
    looks = History.before(dates[-1], pointers, days.first if days else "")
    table = table if request.metrics else comparison.without_unstored(table, pointers, dates)
    of_days = comparison.days_of_experiments(every_date, days, table.metrics) if days else None
    table = replace(table, combinations=options.combined_segments, days=days, of_days=of_days, looks=looks)
    comparison.refuse_too_many_replicates(section, len(experiments), len(table.metrics))
    rows = comparison.comparisons(table, section).orderBy(BASELINE, EXPERIMENT, SEGMENT, METRIC)
    comparisons = [{DATE: date, **row.asDict()} for row in eng.few_rows(rows)]
    tables = {}
    if request.losses:
        tables["losses"] = comparison.largest_changes(table, section, request.losses, "loss")
    if request.gains:
        tables["gains"] = comparison.largest_changes(table, section, request.gains, "gain")
    if request.per_user:
        write_users(comparison.user_changes(table, section), Path(request.per_user))
    if column := request.decomposed:
        split = comparison.UserTable.of(users, request.metrics, {column: column})
        tables["decomposition"] = comparison.decomposition(split, section, column)
    shown = {name: [row.asDict() for row in eng.few_rows(each.limit(MOST_ROWS))] for name, each in tables.items()}
    more = rep.outlook_of(comparisons, every_date, days, section, table.metrics) if days else []
    uneven = comparison.uneven_columns(table.metrics, options.segments, pointers, dates)
    more += [*uneven, *sinks.unreadable_pointers(root)]
    more += rep.notes_of_runs(sinks.records_in(root) or [], pointers, dates, section)
    return rep.Compared(date, len(partitions), comparisons, shown, table.metrics, days, more)


def check_new_file(file: str, choice: eng.Choice) -> None:
    """Refuse, before anything is computed, a file that is there or that the engine would write on another machine."""
    if Path(file).exists() or Path(file).is_symlink():
        raise ConfigError(f"--per-user '{file}' is there; allowed: a new file")
    if not Path(file).resolve().parent.is_dir():
        raise ConfigError(f"--per-user '{file}' is in no folder; allowed: a new file in a folder that is there")
    if not choice.here:
        raise ConfigError.of("engine_elsewhere", file=file)


def write_users(rows: DataFrame, file: Path) -> None:
    """Write ``user_changes`` as one file of CSV on this machine: the engine writes it, so no user passes through here.

    Raises:
        OutputError: The file cannot be written.
    """
    order = rows.columns[: rows.columns.index("value_baseline")]
    folder = Path(tempfile.mkdtemp(prefix=f".{file.name}.", dir=file.resolve().parent))
    try:
        ordered = rows.repartition(1).sortWithinPartitions(*order)
        ordered.write.csv(str(folder / "csv"), header=True, quoteAll=False, escape='"', nullValue="")
        (part,) = (folder / "csv").glob("*.csv")
        part.replace(file)
    except OSError as error:
        raise OutputError(f"cannot write --per-user '{file}': {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _days(partitions: Partitions, first: str, last: str | None) -> cfg.Days:
    """The days of a period, which ends on the last date there is unless it is said where."""
    return comparison.period_days(_conventions(partitions), first, last or max(max(partitions), first), "--from")


def _conventions(partitions: Partitions) -> dict[str, set[str]]:
    """Date -> the hashes of its conventions."""
    return {date: {digest for _, digest in pairs} for date, pairs in partitions.items()}


def _covariate(section: cfg.Comparison, every_date: DataFrame, partitions: Partitions) -> DataFrame | str | None:
    """The earlier values for CUPED: a column, or the users of an earlier date."""
    if section.cuped is None or section.cuped.date is None:
        return section.cuped.column if section.cuped else None
    return _of_date(every_date, partitions, section.cuped.date, "cuped.date")


def development_of(spark: SparkSession, request: CompareRequest) -> tuple[cfg.Days, Rows, Sequence[mx.Metric]]:
    """Read ``user_metrics`` of a period, by default of all dates, and compare its experiments over time.

    Dates before the period tell whether the users differed before. Returns the dates of the users, the rows of
    ``effect_over_time``, and the metrics that are compared, in the order of the request or of the run.

    Raises:
        ConfigError: A wrong argument, or an experiment that is not there.
        InputError: There is no such table or date, or its dates follow different conventions.
    """
    section = request.comparison
    every_date, root = stored_users(spark, request.folder)
    partitions = _partitions(every_date)
    every_date = comparison.of_one_test(every_date, section.baseline)
    days = _days(partitions, request.first or min(partitions), request.last)
    _refuse_unknown(sorted({name for date in days.dates for name, _ in partitions[date]}), section)
    cfg.check_cuped(section, days.first)
    before = _covariate(section, every_date, partitions)
    conventions = _conventions(partitions)
    newest = conventions[days.dates[-1]]
    earlier = [date for date in partitions if date < days.first and conventions[date] == newest]
    users = every_date.where(F.col(DATE).cast("string").isin([*earlier, *days.dates]))
    table = comparison.UserTable.of(users, request.metrics, None, before)
    if not request.metrics:
        table = comparison.without_unstored(table, sinks.pointers_of(spark, root), days.dates)
    rows = eng.few_rows(comparison.development(table, section, (days.first, days.last)))
    return days, [row.asDict() for row in rows], table.metrics


def stored_users(spark: SparkSession, folder: str) -> tuple[DataFrame, str]:
    """Return ``user_metrics`` of an output folder, and this folder; that of the table itself will do."""
    path, errors = folder.rstrip("/"), []
    for root, place in ((path, f"{path}/user_metrics"), (path.rpartition("/")[0] or ".", path)):
        try:
            table = sinks.read(spark, place)
        except Exception as error:  # Spark has a class of its own for each kind of session
            errors.append(error)
            continue
        if EXPERIMENT in table.columns and CONVENTION_HASH in table.columns:
            told_of(eng.unit_of(table))
            return table, root
    cause = f" ({first_sentence(errors[0])})" if errors else ""
    raise InputError(f"--input '{folder}' holds no user_metrics; allowed: the output folder of an earlier run{cause}")


def _partitions(users: DataFrame) -> Partitions:
    """Return date -> its experiments, each with the hash of its convention.

    Raises:
        InputError: The table has no rows.
    """
    partitions: Partitions = {}
    for row in eng.few_rows(users.select(DATE, EXPERIMENT, CONVENTION_HASH).distinct()):
        partitions.setdefault(str(row[0]), set()).add((str(row[1]), str(row[2])))
    if not partitions:
        raise InputError("--input holds a user_metrics without rows; allowed: the output folder of an earlier run")
    return partitions


def _of_date(users: DataFrame, partitions: Partitions, date: str, option: str) -> DataFrame:
    """Return the rows of a date; raise an error that names the option if there are none, or under two conventions."""
    if date not in partitions:
        raise InputError(f"{option}: {unpublished(date, partitions)}")
    if len({digest for _, digest in partitions[date]}) > 1:
        raise InputError(f"the experiments of {date} follow different conventions; their values cannot be compared")
    return users.where(F.col(DATE) == date)


def users_of_date(users: DataFrame, date: str | None) -> DataFrame:
    """The rows of ``--to``, by default of the newest date; InputError if there are none."""
    partitions = _partitions(users)
    return _of_date(users, partitions, date or max(partitions), "--to")


def _refuse_unknown(experiments: Sequence[str], section: cfg.Comparison) -> None:
    check_known("experiment", (section.baseline, *section.candidates, *(section.shares or ())), experiments)


def records_of(sink: cfg.Sink, on_spark: Callable[[Callable[[SparkSession], Rows]], Rows]) -> Rows:
    """Return the records of all runs of an output, newest first.

    Args:
        sink: Where the runs write.
        on_spark: Runs a function on a session; called only if this process cannot read the records.

    Raises:
        InputError: There are none.
    """
    records = sinks.records_in(sink.path) if sink.path else None
    if records is None:
        records = on_spark(lambda spark: sinks.run_records(sinks.store_of(spark, sink, "")))
    if not records:
        raise InputError(f"'{sink.path or sink.table}' has no run records; allowed: the output of an earlier run")
    return records


def summaries(records: Sequence[Row]) -> Rows:
    """Return one flat row per run: outcome, date, counts, seconds, and the error of one that failed.

    >>> row = summaries([{"run_id": "r", "rows": {"in": 3, "evaluated": 2, "quarantined": 1}, "outcome": "done"}])[0]
    >>> row["outcome"], row["rows"], row["quarantined"], row["error"]
    ('done', 3, 1, None)
    """
    return [
        {
            "run_id": record["run_id"],
            "date": record.get("evaluation_date"),
            **{name: record.get(name) for name in ("started", "outcome")},
            "experiments": len(record["experiments"]) if "experiments" in record else None,
            "rows": (rows := record.get("rows", {})).get("in"),
            **{name: rows.get(name) for name in ("evaluated", "quarantined")},
            "seconds": rep.seconds_of(record),
            # Rows of earlier versions hide less.
            "error": without_secrets(record.get("error", {}).get("message") or "") or None,
        }
        for record in records
    ]
