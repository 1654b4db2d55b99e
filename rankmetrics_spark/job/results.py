"""Results of a run about its experiments: averages, comparisons, the verdict, and what was checked.

The rows of ``checks``, the gates on metrics, and the numbers of a run that fails one.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark import comparison, engines as eng, errors as err, pipeline, report as rep, road, schemas as sch
from rankmetrics_spark.config import Comparison, Config, check_experiments, of_test
from rankmetrics_spark.gates import PAST_CHECKS, Counts, gate_checks, totals
from rankmetrics_spark.job import record as rec
from rankmetrics_spark.job.earlier import Earlier, Parts, has_user_days
from rankmetrics_spark.pointers import Compared, Pointer, Pointers
from rankmetrics_spark.sinks import Partitions, Store, Written

#: Rows of a table that are read for the verdict and for the checks.
MOST_ROWS = 100_000
#: Experiments of other runs that a note names.
MOST_NAMED = 5


def refuse_comparison(config: Config, counts: Counts, published: Callable[[], Pointers], by_test: bool = False) -> None:
    """Refuse names of experiments without lists, incomplete shares, and too many replicates.

    Args:
        config: The config.
        counts: What was counted, per experiment.
        published: Returns what is published, by date; called where an experiment has no lists.
        by_test: Whether experiments are arms of tests, whose names the assignments have settled.
    """
    request = Comparison() if by_test else config.comparison
    experiments = [str(name) for name, count in counts.items() if count["lists"]]
    roles: dict[str | None, str] = {gate.experiment: "which gates name" for gate in config.gates}
    roles |= dict.fromkeys(request.shares or (), "which comparison.shares names")
    roles |= dict.fromkeys(request.candidates, "which comparison.candidates names")
    roles |= {request.baseline: "the baseline"}
    absent = {name: role for name, role in roles.items() if name is not None and name not in experiments}
    if absent and not experiments:
        n = totals(counts)["rows"]
        raise err.QualityError(f"all {n:,} rows are faulty, so no experiment has a result to compare")
    # Those that this log or an earlier run knows are late, or all their rows are faulty; other names are unknown.
    seen: set[str | None] = {*counts}
    seen.update(*(pointer.run_of() for pointer in (published() if absent else {}).values()))
    late = {name: role for name, role in absent.items() if name in seen}
    known = [*experiments, *late]
    check_experiments(request, known)
    for gate in config.gates:
        if gate.experiment is not None and gate.experiment not in known:
            raise err.ConfigError(f"gates: {err.unknown('experiment', gate.experiment, sorted(known))}")
    if late:
        names = " and of ".join(f"{name}, {role}" for name, role in late.items())
        raise err.InputError(f"the log has no valid row of {names}; run this again when it has")
    if request.is_requested:
        comparison.refuse_too_many_replicates(request, len(experiments), len(config.metrics))


def kept_beside(pointer: Pointer | None, partitions: Partitions) -> list[str]:
    """What stays on this date as earlier runs have published it, since this run does not have it: a sentence."""
    own = {*partitions.experiments}
    kept = sorted(str(name) for name in (pointer.run_of() if pointer else ()) if name not in own)
    if not kept:
        return []
    names = ", ".join(kept[:MOST_NAMED]) + (f" and {more:,} more" if (more := len(kept) - MOST_NAMED) > 0 else "")
    stay = "stays as an earlier run has" if len(kept) == 1 else "stay as earlier runs have"
    return [f"{names} of {partitions.date} {stay} published {'it' if len(kept) == 1 else 'them'}: not in this log"]


def compared_of(request: Comparison, counts: Counts, earlier: Earlier, by_test: bool = False) -> Compared | None:
    """Return which experiments a run compares, and from which other runs; None if there is no pair."""
    names = [name for both in _pairs(request, counts, by_test) for name in dict.fromkeys([*both[0], *both[1]])]
    if not (request.is_requested and names):
        return None
    # Nobody asks for a pair of two tests.
    return Compared(tuple(names), by_test or request.pairs == "all", earlier.runs(counts))


def parts_of(request: Comparison, counts: Counts, by_test: bool) -> Parts:
    """What a run compares."""
    names = [name for name, count in counts.items() if count["lists"]]
    if not by_test:
        return {"": (request, names)}
    of_tests: dict[str, list[str]] = {}
    for name in names:
        of_tests.setdefault(_test_of(name), []).append(name)
    return {test: (of_test(request, test), arms) for test, arms in of_tests.items()}


def _pairs(request: Comparison, counts: Counts, by_test: bool) -> Iterator[list[list[str]]]:
    """The baselines of the pairs of each part, and their candidates."""
    for own, known in parts_of(request, counts, by_test).values():
        yield [[known[place] for place in part.tolist()] for part in comparison.pairs_of(own, known)]


def reads_users_again(config: Config) -> bool:
    """Whether a comparison reads the users twice, or gates limit segments that are too small to be published."""
    compared = config.comparison
    limited = any(gate.compares and gate.segment != sch.EVERYONE for gate in config.every_gate)
    return compared.wilcoxon or (compared.cap or 1) < 1 or bool(compared.min_users and limited)


@dataclass(frozen=True)
class Users:
    """The users of a run, as averages and comparisons read them.

    Attributes:
        table: Their values of the day.
        compared: Their values as comparisons read them: of the period, if there is one.
        request: Which comparisons the config asks for.
        sums: The sums of all experiments and pairs of the day, if the bootstrap or a cluster needs them.
    """

    table: comparison.UserTable
    compared: comparison.UserTable
    request: Comparison
    sums: DataFrame | None = None

    @classmethod
    def of(cls, context: rec.Context) -> "Users":
        """Return the users of the day of a run."""
        tables, config = context.tables, context.config
        # The values for CUPED, as a column's name or a table: see ``comparison.UserTable``.
        before = tables.plan.public_covariate or cuped_rows(context.store, config, tables)
        table = replace(pipeline.compared_users(tables, before), looks=context.earlier.looks)
        return cls(table, table, config.comparison)

    def over(self, earlier: Earlier, tables: road.Tables, stage: road.Keep = lambda rows, name: rows) -> "Users":
        """Return the same users with those of the period, to be compared; ``stage`` keeps rows under a name."""
        assert earlier.users is not None and earlier.dated is not None and earlier.days is not None
        plan = tables.plan
        # The lists of a user may be in different segments, which the rows of users do not tell.
        split = {} if plan.columns.list else plan.public_segments
        combined = () if plan.columns.list else plan.options.combined_segments
        rows = stage(earlier.users, "period")
        of_days = stage(comparison.days_of_experiments(earlier.dated, earlier.days, self.table.metrics), "days")
        users = replace(self.table, rows=rows, segments=split, combinations=combined, within={})
        compared = replace(users, days=earlier.days, of_days=of_days)
        return replace(self, compared=compared)


def averages(users: Users, tables: road.Tables) -> DataFrame:
    """Return ``experiment_metrics``, with bootstrap intervals of the means if the config has them."""
    means = tables.experiment_metrics
    means = comparison.with_cluster_intervals(means, users.table, users.request, users.sums)
    if users.request.bootstrap is None or users.sums is None:
        return means
    return comparison.with_bootstrap_intervals(means, users.request, users.sums)


def stage_comparisons(context: rec.Context, users: Users) -> Written:
    """Stage ``comparisons``; nothing is published."""
    pairs = _pairs(users.request, context.counts, users.table.by_test)
    candidates_with_lists = {name for _, named in pairs for name in named}
    counts_by_name = {name: {"compared": int(name in candidates_with_lists)} for name in context.counts}
    sums = users.sums if users.compared is users.table else None
    rows = comparison.comparisons(users.compared, users.request, sums)
    return context.store.write("comparisons", rows, context.partitions("compared", counts=counts_by_name))


def stage_states(context: rec.Context) -> dict[str, Written]:
    """Stage ``user_states``, if this run stores them; nothing is published."""
    if (sums := context.earlier.sums) is None:
        return {}
    n = [row["count"] for row in eng.few_rows(sums.groupBy(sch.EXPERIMENT).count())]
    partitions = context.partitions("lists", max(n, default=1), sum(n) < MOST_ROWS)
    return {sch.USER_STATES: context.store.write(sch.USER_STATES, sums, partitions)}


def cuped_rows(store: Store, config: Config, tables: road.Tables | None = None) -> DataFrame | None:
    """Return ``user_metrics`` of the CUPED date, or those from before each exposure; refuse a date without users."""
    cuped = config.comparison.cuped
    if cuped is None or not config.comparison.is_requested:
        return None
    if cuped.before and tables and tables.assigned:
        day = config.evaluation_date
        parts = tables.user_days.withColumn(sch.DATE, F.lit(day))
        stored = {date: each for date, each in store.pointers().items() if date < day and has_user_days(each)}
        fields = [field for field in parts.schema.fields if field.name not in sch.PARTITION]
        if (earlier := store.days(sch.USER_DAYS, stored, T.StructType(fields))) is not None:
            parts = parts.unionByName(earlier.select(*parts.columns))
        before = tables.assigned.before(parts, (*stored, day), cuped.days).drop(sch.DATE)
        metrics = [metric.column for metric in tables.plan.scoring.metrics]
        weights = {name: comparison.lists_of(name, parts.columns) for name in metrics}
        return eng.group_means(before, (sch.EXPERIMENT, sch.USER), weights).select(sch.EXPERIMENT, sch.USER, *metrics)
    if cuped.date is None:
        return None
    user_metrics = store.existing("user_metrics")
    rows = None if user_metrics is None else user_metrics.where(F.col(sch.DATE) == cuped.date)
    if rows is None or rows.isEmpty():
        raise err.InputError.of("no_earlier_users", date=cuped.date, table=store.name_of("user_metrics"))
    return rows


def verdict_sentences(comparisons: Written | None, plan: road.Plan, config: Config, earlier: Earlier) -> list[str]:
    """Return one sentence per comparison of all users, those on primary metrics first, then what a period adds."""
    if comparisons is None or not comparisons.partitions.filled:
        return [*rep.facts(rep.Figures((), days=earlier.days), "record")]
    rows, n_more = comparisons.rows_here(), 0
    if rows is None:
        everyone = comparisons.rows.where(F.col(sch.SEGMENT) == sch.EVERYONE)
        order = (F.col(sch.ROLE) != sch.PRIMARY, F.col("better").isNull(), F.col("p_adjusted").asc_nulls_last())
        first = everyone.orderBy(*order)
        rows = [row.asDict() for row in eng.few_rows(first.limit(MOST_ROWS))]
        n_more = everyone.count() - len(rows) if len(rows) == MOST_ROWS else 0
    metrics, outlook = plan.scoring.metrics, []
    if earlier.days is not None and earlier.dated is not None:
        outlook = rep.outlook_of(rows, earlier.dated, earlier.days, config.comparison, metrics)
    known = rep.Figures((), rows, order=[*map(str, metrics)], outlook=outlook, days=earlier.days, n_unread=n_more)
    return [*rep.facts(known, "record")]


# ---- checks

#: Rows of a table in the record of a run that fails its gates, those of all users first.
MOST_KEPT = 2_000


@dataclass(frozen=True)
class Staged:
    """The staged tables of a run, as the checks read them.

    Attributes:
        context: What the steps of the run share.
        written: Table -> what was staged.
        users: The users, for comparisons that the staged ones lack.
    """

    context: rec.Context
    written: dict[str, Written]
    users: Users

    def rows(self, table: str, segments: set[str], baseline: str | None = None) -> sch.Rows:
        """The rows of some segments, against one baseline or all; none if there is no such table."""
        written = self.written.get(table)
        if written is None or not written.partitions.filled:
            return []
        if (here := written.rows_here()) is not None:
            return [row for row in here if row[sch.SEGMENT] in segments and baseline in (None, row.get(sch.BASELINE))]
        return _read(written.rows, segments, baseline)

    def checks(self, record: rec.Record, earlier: Sequence[sch.Check]) -> tuple[list[sch.Check], list[sch.Check]]:
        """The rows of ``checks`` of the gates of tests, then all others.

        These are gates first, then the ``earlier`` ones, then what the tables say about themselves.

        Means are those of the day, drops those of the comparisons: of the period, if there is one. Every experiment
        with lists must meet every limit of a gate. An experiment without a row, for example without users in the
        segment, fails.
        """
        config, counts = self.context.config, self.context.counts
        gates, request = config.every_gate, config.comparison
        segments = {gate.segment for gate in gates}
        names = [str(name) for name, count in counts.items() if count["lists"]]
        by_test = self.users.table.by_test
        candidates = [
            arm
            for own, arms in parts_of(request, counts, by_test).values()
            for arm in own.candidates or map(str, arms)
            if arm != own.baseline and (own.is_requested or not by_test)
        ]
        baseline = None if by_test else request.baseline
        means = self.rows("experiment_metrics", segments) if any(gate.min is not None for gate in gates) else []
        compared: sch.Rows = []
        if comparing := [gate for gate in gates if gate.compares]:
            compared = self.rows("comparisons", segments, baseline)
            key = itemgetter(sch.SEGMENT, sch.METRIC, sch.EXPERIMENT)
            known = set(map(key, compared))
            limited = {(gate.segment, str(gate.metric), name) for gate in comparing
                       for name in ([gate.experiment] if gate.experiment else candidates)}  # fmt: skip
            if request.min_users and any(segment != sch.EVERYONE for segment, _, _ in limited - known):
                # A gate may limit a segment that is too small to be published. Its correction counts every pair too.
                every = replace(request, min_users=0, wilcoxon=False, randomization=None, bootstrap=None, aa_check=None)
                rows = _read(comparison.comparisons(self.users.compared, every), segments, baseline)
                compared += [row for row in rows if key(row) not in known]
        of_gates = gate_checks(config.gates, means, compared, names, candidates)
        of_tests: list[sch.Check] = []
        for test, own in config.tests.items():
            limits = [replace(gate, experiment=gate.experiment and f"{test}:{gate.experiment}") for gate in own.gates]
            arms, pairs = ([name for name in known if _test_of(name) == test] for known in (names, candidates))
            of_arms = [[row for row in every if row[sch.EXPERIMENT] in arms] for every in (means, compared)]
            of_tests += gate_checks(limits, of_arms[0], of_arms[1], arms, pairs or arms) if arms else []
        of_tables = rep.check_rows(self.figures(record), earlier)
        # One of several tests is no reason to withhold the others: it has no verdict, and its rows say why.
        if config.quality.on_broken_split == "fail" and not by_test:
            of_tables = [replace(row, status=sch.FAIL) if _is_broken_split(row) else row for row in of_tables]
        return of_tests, [*of_gates, *earlier, *of_tables]

    def figures(self, record: rec.Record) -> rep.Figures:
        """Means and comparisons of all users, with the record so far."""
        means, compared = (self.rows(table, {sch.EVERYONE}) for table in ("experiment_metrics", "comparisons"))
        days = self.context.earlier.days
        return rep.Figures(rep.period_means(means, compared), compared, record=record.entries, days=days)

    def add_numbers(self, record: rec.Record, arms: Collection[str] = ()) -> None:
        """Put means and comparisons, of all experiments or these, and of the segments of gates, into the record."""
        segments = {sch.EVERYONE, *(gate.segment for gate in self.context.config.every_gate)}
        for name, table in (("means", "experiment_metrics"), ("comparisons", "comparisons")):
            rows = sorted(self.rows(table, segments), key=sch.is_of_segment)
            rows = [row for row in rows if not arms or row[sch.EXPERIMENT] in arms]
            record.entries[name] = sch.finite(rows[:MOST_KEPT])
        # A plan counts the looks that are published, and these numbers are not.
        for row in record.entries["comparisons"]:
            if row.get(sch.LOOKS) not in (None, "any"):
                row[sch.LOOKS] = f"? of {row[sch.LOOKS].partition(' of ')[2]}"
        record.entries["verdict"] = [getattr(one, "withheld", one) for one in record.entries.get("verdict", ())]


def _read(rows: DataFrame, segments: set[str], baseline: str | None) -> sch.Rows:
    rows = rows.where(F.col(sch.SEGMENT).isin([*segments]))
    if baseline is not None:
        rows = rows.where(F.col(sch.BASELINE) == baseline)
    # As the rows that are here: sentences name the experiments in their order.
    found = [row.asDict() for row in eng.few_rows(rows.limit(MOST_ROWS))]
    keys = (sch.EXPERIMENT, sch.BASELINE, sch.SEGMENT, sch.METRIC)
    return sorted(found, key=lambda row: [str(row.get(key)) for key in keys])


def _is_broken_split(check: sch.Check) -> bool:
    return check.name == "sample_ratio" and check.status in (sch.WARN, sch.FAIL)


def refuse_failed_gates(checks: Sequence[sch.Check], config: Config) -> None:
    """Raise an error if the log is unlike earlier days, a metric beyond the limit of a gate, or the split off."""
    # First, since half a log explains the others.
    if past := [*dict.fromkeys(row.sentence for row in checks if row.name in PAST_CHECKS and row.status == sch.FAIL)]:
        more = f"; and {len(past) - MOST_NAMED:,} more" if len(past) > MOST_NAMED else ""
        raise err.QualityError("; ".join(past[:MOST_NAMED]) + f"{more}; nothing was published")
    metrics = {str(gate.metric) for gate in config.gates}
    # What fails for all experiments is said once.
    failed = dict.fromkeys(check.sentence for check in checks if check.status == sch.FAIL and check.metric in metrics)
    if failed:
        raise err.MetricGateError("; ".join(failed) + " (gates; nothing was published)")
    path = config.quality.path_of("on_broken_split")
    if split := next((check for check in checks if _is_broken_split(check) and check.status == sch.FAIL), None):
        raise err.QualityError.of("no_verdict", first=split.fact[:1].lower(), rest=split.fact[1:], path=path)


def _test_of(experiment: str | None) -> str:
    return str(experiment).partition(sch.NAME_OF_ARM)[0]


def withheld_arms(checks: Sequence[sch.Check], counts: Counts) -> tuple[set[str], err.MetricGateError | None]:
    """The experiments of tests whose own gates have failed, and the error that says so.

    Raises:
        MetricGateError: No other experiment has lists.
    """
    failed: dict[str, dict[str, None]] = {}
    for check in checks:
        if check.status == sch.FAIL:
            failed.setdefault(_test_of(check.experiment), {})[check.sentence] = None
    arms = {str(name) for name in counts if name and _test_of(name) in failed}
    text = "; ".join(f"{'; '.join(sentences)} (tests.{test}.gates)" for test, sentences in failed.items())
    if failed and arms >= {name for name, count in counts.items() if count["lists"]}:
        raise err.MetricGateError(f"{text}; nothing was published")
    what = f"{', '.join(failed)} {'is' if len(failed) == 1 else 'are'} not published, the other tests are"
    return arms, err.MetricGateError(f"{text}; {what}") if failed else None


def stage_checks(context: rec.Context, rows: DataFrame, checks: Sequence[sch.Check]) -> Written:
    """Stage the table ``checks``; nothing is published.

    Args:
        context: What the steps of the run share.
        rows: Any table of the run, for its session.
        checks: The rows.
    """
    names = {check.experiment for check in checks}
    filled = {name: {"checks": int(name in names and bool(name))} for name in context.counts}
    of_experiments = [check for check in checks if check.experiment in filled and check.experiment]
    values = [[*row.values()] for row in sch.rows_of(of_experiments)]
    kinds = {"string": T.StringType(), "double": T.DoubleType()}
    schema = T.StructType([T.StructField(name, kinds[kind]) for name, kind in sch.CHECK_COLUMNS.items()])
    table = rows.sparkSession.createDataFrame(values, schema)
    return context.store.write("checks", table, context.partitions("checks", max(1, len(values)), counts=filled))


def write_unpublished(error: err.RankmetricsError, context: rec.Context) -> None:
    """Give the error its record, and write the page of what was not published, if its libraries are there.

    The record is written by now, and nothing else is: a run that is killed here has lost at most this page, or its
    digest.
    """
    error.record = entries = context.record.entries
    if entries["outcome"] == "done":  # its verdict is about the tests that are published
        error.record = entries | {"verdict": []}
    with suppress(Exception):  # the gate that failed is what matters
        if rep.has_page_libraries():
            means, compared = entries["means"], entries["comparisons"]
            without = {name: entry for name, entry in entries.items() if name not in ("means", "comparisons", "checks")}
            without["outcome"] = "failed"  # also of a run that has published other tests
            figures = rep.Figures(rep.period_means(means, compared), compared, record=without, checks=entries["checks"])
            path = context.store.write_page(rep.page(figures).encode("utf-8", "backslashreplace").decode("utf-8"))
            if path is None and (file := context.config.report.file):
                error.page = str(rep.write_page(figures, Path(file).with_suffix(".not_published.html")))
            elif path:
                error.page = path
                context.store.record(entries)  # again, with the digest of the page
