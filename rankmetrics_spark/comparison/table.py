"""``user_metrics`` as a comparison reads it: the rows of each user together."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import DataFrame, Window, functions as F, types as T

from rankmetrics_spark import engines as eng, pointers, schemas as sch
from rankmetrics_spark.comparison.measures import said
from rankmetrics_spark.config import Comparison, Days, listed, refuse
from rankmetrics_spark.errors import ConfigError, InputError, unknown
from rankmetrics_spark.metrics import Metric, cut_of, hashed_cut, list_hash, metric_of_column, parse
from rankmetrics_spark.words import UNITS

#: Two hashes of a user id, 128 bits: whole numbers sort faster than texts, and no two users share both.
HASHES = ("_user_hash", "_user_check")
#: The same of the user of a row whose unit is a cluster.
MEMBER_HASHES = ("_member_hash", "_member_check")
#: Column of the rows of a period: whether the user has two rows of one experiment and date.
REPEATED = "_repeated"
#: The hashes of a user id that is null: ``xxhash64`` leaves the seed as it is.
NAMELESS = (42, -6698625589789238999)
BEFORE = "_before_"
#: Prefixes of columns with earlier values: of the user, and of the user in the experiment of the row.
BEFORE_OWN = "_before_own_"
#: Prefix of columns with the number of a user's lists that have a value of a metric.
LISTS = "_lists_"
#: Prefix of columns with the share of a user's lists that have no value of a metric.
WITHOUT = "_without_"
TO_JUDGE, CHANCE, SHOWN = sch.TO_JUDGE, sch.CHANCE, sch.N_SHOWN
#: What rows of users have of each metric -> the prefix of its columns.
OF_METRICS = {"before": BEFORE, "before_own": BEFORE_OWN, "lists": LISTS, "without": WITHOUT, "machine": sch.MACHINE}
#: Column with a hash of the lists of a user.
LISTS_HASH = "_lists_hash"
#: Columns of a row of a cluster: the hash of its user, and whether the user has no cluster.
MEMBER, IS_ALONE = "_member", "_alone"
#: Column of a row: the stratum of the user.
STRATUM = "_stratum"
#: Prefix of columns with the cap of a metric.
CAP = "_cap_"
#: Column of a row: whether the user is triggered.
TRIGGERED = "_triggered"
#: Bits of a user's hash that choose the block of users in which Sail sorts: 4,096 blocks.
_BLOCKS = 12


def _hashed(names: str, aliases: Sequence[str] = HASHES) -> tuple[str, ...]:
    """SQL: the hashes of users, or of what else these columns name."""
    return f"xxhash64({names}) AS {aliases[0]}", f"xxhash64({names}, 1) AS {aliases[1]}"


#: The users within one segment: a row per (experiment_id, user_id, value of the segment), and its column.
Within = tuple[DataFrame, str]


@dataclass(frozen=True)
class UserTable:
    """``user_metrics`` and what is read of it.

    Attributes:
        rows: One row per (experiment_id, user_id).
        metrics: Each has a column.
        segments: How a segment is called -> its column.
        before: ``user_metrics`` of an earlier date, or the name of a column that holds an earlier value, or None.
        covariates: Columns of ``before``, or of the rows, that explain the values too.
        combinations: Indices of segments that split the users together.
        within: How a segment is called -> a table in which a user has a row for each value of this segment, over the
            lists with this value; for segments in which the lists of a user may differ.
        days: The days of the period, where a row is about one.
        of_days: ``days_of_experiments`` of the users of these days.
        cluster: The column of the cluster, where users of one value are a unit.
        trigger: The column with a flag of who is compared, where not all users are.
        alike: Columns in which all rows have to have one value; see ``refuse_several``.
        by_test: Whether experiments are arms of tests, and only arms of one test are compared.
        assigned: The users who are assigned to each experiment, as sums by key; None where that is not known.
        looks: (baseline, candidate, metric) -> the number of this look; empty where no earlier one is known.
    """

    rows: DataFrame
    metrics: tuple[Metric, ...]
    segments: Mapping[str, str]
    before: DataFrame | str | None = None
    combinations: tuple[tuple[int, ...], ...] = ()
    within: Mapping[str, Within] = field(default_factory=dict)
    looks: pointers.LookNumbers = field(default_factory=pointers.unknown_looks)
    days: Days | None = None
    of_days: DataFrame | None = None
    cluster: str | None = None
    trigger: str | None = None
    covariates: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    by_test: bool = False
    assigned: DataFrame | None = None

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        metrics: str | Sequence[str | Metric] | None = None,
        segments: Mapping[str, str] | None = None,
        before: DataFrame | str | None = None,
    ) -> "UserTable":
        """A table with the metrics asked for, or with all that it has.

        Raises:
            ConfigError: A metric has no column.
            InputError: A column of the users or of a segment is missing.
        """
        kinds = {field.name: field.dataType for field in rows.schema.fields}
        columns, segments = [*kinds], segments or {}
        for name in (sch.EXPERIMENT, sch.USER, sch.N_RELEVANT, *segments.values()):
            check_column(columns, name)
        if metrics is None:
            of_columns = (metric_of_column(name) for name in columns if name not in segments.values())
            found = [metric for metric in of_columns if metric is not None]
            nothing = "metrics: user_metrics has no column of a known metric; allowed: such as ap_at_10"
        else:
            found = [each if isinstance(each, Metric) else parse(str(each)) for each in listed("metrics", metrics)]
            nothing = "metrics is an empty list; allowed: metrics such as ap@10, or None for all"
        if not found:
            raise ConfigError(nothing)
        chosen = tuple(dict.fromkeys(found))
        for metric in chosen:
            if metric.column not in columns:
                raise ConfigError(said("no_metric", metric=metric, hint=unknown("column", metric.column, columns)))
            if not isinstance(kinds[metric.column], T.NumericType | T.BooleanType | T.NullType):
                kind = kinds[metric.column].simpleString()
                raise InputError(f"user_metrics has values of {metric} of type {kind}; allowed: numbers")
        if isinstance(before, str):
            if before not in kinds:
                raise InputError(f"cuped.column: {unknown('column', before, [*kinds])}")
            if not isinstance(kinds[before], T.NumericType):
                raise InputError(f"cuped.column is {before}, of type {kinds[before].simpleString()}; allowed: numbers")
        elif before is not None:
            if sch.USER not in before.columns:
                raise InputError(said("no_earlier_user", hint=unknown("column", sch.USER, before.columns)))
            if not {metric.column for metric in chosen} & {*before.columns}:
                names = ", ".join(metric.column for metric in chosen)
                raise InputError(f"the user_metrics of the earlier date have none of the columns {names}")
        return cls(rows, chosen, segments, before)


def check_column(columns: Iterable[str], name: str, needed_by: str = "") -> None:
    """Refuse ``user_metrics`` without a column."""
    if name not in columns:
        why = f", which {needed_by} needs" if needed_by else ""
        raise InputError(f"user_metrics has no column {name}{why}: {unknown('column', name, columns)}")


def of_one_test(users: DataFrame, baseline: str | None) -> DataFrame:
    """The users of the test of the baseline, since arms of different tests are not compared.

    Raises:
        ConfigError: The users are of tests, and there is no baseline that says of which.
    """
    if sch.TEST_NAME not in users.columns:
        return users
    if baseline is None:
        raise ConfigError(said("no_arm"))
    test, mark, _ = baseline.partition(sch.NAME_OF_ARM)
    return users.where(F.col(sch.TEST_NAME).eqNullSafe(F.lit(test if mark else None))).drop(sch.TEST_NAME)


def parts(table: UserTable) -> list[UserTable]:
    """The table itself, and one for each segment in which the lists of a user may differ."""
    whole = replace(table, within={})
    split = (
        replace(whole, rows=rows, segments={name: column}, combinations=())
        for name, (rows, column) in table.within.items()
    )
    return [whole, *split]


def by_user(table: UserTable, *more: str) -> DataFrame:
    """The rows of each user together in one partition, one after the other; ``more`` are further columns, as SQL."""
    kinds, engine = {}, eng.engine_of(table.rows.sparkSession)
    if table.segments or table.cluster is not None:
        kinds = {field.name: field.dataType for field in table.rows.schema.fields}

    def text(column: str) -> str:
        """SQL: the values of a column as names."""
        return eng.as_text(sch.quoted(column), kinds[column], engine)

    labels = (f"{text(column)} AS _segment_{i}" for i, column in enumerate(table.segments.values()))
    # Read back without a schema, Spark takes the folders of some experiments for numbers.
    experiment = f"string({sch.EXPERIMENT}) AS {sch.EXPERIMENT}"
    relevant = f"{sch.N_RELEVANT} > 0 AS _relevant"
    # A user of several tests is one user in each: no row of one test meets one of another.
    test = f", {sch.TEST_OF}" if table.by_test else ""
    hashed = _hashed(f"{sch.USER}{test}")
    if table.cluster is not None:
        # The users of a cluster together; who has none is a cluster of their own.
        check_column(kinds, table.cluster, "cluster")
        name = text(table.cluster)
        # Seeds of their own: a user may be called like a cluster.
        hashed = tuple(
            f"if({name} IS NULL, xxhash64({sch.USER}, {seed + 2}{test}), xxhash64({name}, {seed}{test})) AS {alias}"
            for seed, alias in enumerate(HASHES)
        )
        hashed = (*hashed, f"xxhash64({sch.USER}) AS {MEMBER}", f"{name} IS NULL AS {IS_ALONE}")
        hashed = (*hashed, *_hashed(f"{sch.USER}{test}", MEMBER_HASHES))
    columns = [metric.column for metric in table.metrics]
    if isinstance(table.before, str):
        # A column of earlier values serves every metric.
        value = f"nullif(double({sch.quoted(table.before)}), double('NaN'))"
        columns += [f"{value} AS {prefix}{name}" for prefix in (BEFORE, BEFORE_OWN) for name in columns]
    own = _covariates(table)[0]
    columns += [f"{sql} AS {prefix}{name}" for prefix in (BEFORE, BEFORE_OWN) for name, sql in own.items()]
    rows = table.rows.selectExpr(*hashed, experiment, relevant, *labels, *columns, *more)
    if table.before is not None and not isinstance(table.before, str):
        # The rows with what their users had on the earlier date; a user who was not there keeps the row. Independent
        # rows are adjusted by what a user had whatever the experiment, paired ones by the difference of what the user
        # had in the two.
        user = HASHES if table.cluster is None else MEMBER_HASHES
        rows = rows.join(_earlier_means(table, user, BEFORE), list(user), "left")
        if sch.EXPERIMENT in table.before.columns:
            keys = (*user, sch.EXPERIMENT)
            rows = rows.join(_earlier_means(table, keys, BEFORE_OWN), list(keys), "left")
    rows = rows.drop(*MEMBER_HASHES)
    return eng.in_order(rows, [HASHES[0]], HASHES, [F.shiftright(HASHES[0], 64 - _BLOCKS)])


def lists_by_metric(table: UserTable) -> Iterator[str]:
    """Columns for ``by_user``: the lists of a user that have a value, or the cap of the metric if that is lower."""
    for metric in table.metrics:
        lists, cap = _weight(table, metric), f"{CAP}{metric.column}"
        yield f"{f'least({lists}, {cap})' if cap in table.rows.columns else lists} AS {LISTS}{metric.column}"


def _weight(table: UserTable, metric: Metric) -> str:
    """SQL: the lists of a user that have a value, at least one: nothing shown is an empty list."""
    check_column(table.rows.columns, sch.N_LISTS, "mean_over: lists")
    # A machine has judged every list, and people a sample.
    rated = bool(machine_columns(table))
    lists = f"bigint({sch.N_LISTS})" if rated else lists_of(metric.column, table.rows.columns)
    return f"double(greatest({lists}, 1L))"


def capped(table: UserTable, request: Comparison) -> UserTable:
    """The table with the cap of each metric as a column: of lists, or of values, which are no larger then.

    It is the same for all experiments and segments: a quantile of all users with a value, or the number that is given.

    Raises:
        ConfigError: There is nothing to cap.
    """
    if request.cap is None:
        return table
    of_lists = request.mean_over == "lists"
    metrics = [metric for metric in table.metrics if of_lists or math.isinf(metric.definition.range[1])]
    if not metrics:
        allowed = "null, mean_over: lists, or metrics without an upper bound, such as cg@5"
        raise refuse(request.path_of("cap"), request.cap, f"{allowed}, since each metric has one")
    caps = {}
    for metric in metrics:
        known = f"nullif(double({metric.column}), double('NaN'))"
        value = f"if({known} IS NULL, NULL, {_weight(table, metric)})" if of_lists else known
        quantile = f"percentile_disc({request.cap!r}D) WITHIN GROUP (ORDER BY {value})"
        caps[metric.column] = f"double({request.cap!r})" if request.cap > 1 else quantile
    of_all = table.rows if request.cap < 1 else table.rows.sparkSession.range(1)
    caps_of_all = of_all.selectExpr(*(f"{cap} AS {CAP}{name}" for name, cap in caps.items()))

    def with_caps(rows: DataFrame) -> DataFrame:
        """The rows with the caps."""
        joined = rows.crossJoin(caps_of_all)
        least = {name: F.expr(f"if({name} > {CAP}{name}, {CAP}{name}, {name})") for name in caps}
        return joined if of_lists else joined.withColumns(least)

    within = {name: (with_caps(rows), column) for name, (rows, column) in table.within.items()}
    return replace(table, rows=with_caps(table.rows), within=within)


def machine_columns(table: UserTable) -> list[str]:
    """The columns of metrics under the labels of a machine, where there are some."""
    names = [f"{sch.MACHINE}{metric.column}" for metric in table.metrics]
    present = {*table.rows.columns}
    return [name for name in (*names, TO_JUDGE, CHANCE, SHOWN) if name in present and not present.isdisjoint(names)]


def shares_without(table: UserTable) -> Iterator[str]:
    """Columns for ``by_user``: the share of a user's lists that have no value, where it is stored which have one."""
    columns = table.rows.columns
    for metric in table.metrics:
        stored = sch.lists_with_value(metric.column)
        if stored in columns and sch.N_LISTS in columns:
            with_value = f"double(coalesce({stored}, {sch.N_LISTS}))"
            share = f"1D - least({with_value} / double(greatest({sch.N_LISTS}, 1)), 1D)"
            yield f"CASE WHEN {sch.N_LISTS} > 0 THEN {share} ELSE 0D END AS {WITHOUT}{metric.column}"


def lists_of(metric: str, columns: Iterable[str]) -> str:
    """SQL of the lists of a user that have a value; all lists where the user was stored without their number."""
    stored = sch.lists_with_value(metric)
    return f"coalesce({stored}, {sch.N_LISTS})" if stored in columns else f"bigint({sch.N_LISTS})"


def flag_of(table: UserTable, trigger: str) -> str:
    """A column for ``by_user``: whether the user is triggered; a user without a flag is not."""
    check_column(table.rows.columns, trigger, "trigger")
    if not isinstance(kind := table.rows.schema[trigger].dataType, T.BooleanType):
        raise InputError(f"trigger is {trigger}, of type {kind.simpleString()} in user_metrics; allowed: a boolean")
    return f"coalesce({sch.quoted(trigger)}, false) AS {TRIGGERED}"


def stratum_of(table: UserTable, request: Comparison) -> str:
    """A column for ``by_user``: the values of all strata of the user as one text."""
    parts, kinds = [], {field.name: field.dataType for field in table.rows.schema.fields}
    for name in request.strata:
        column = table.segments.get(name, name)
        if name == "date" and name not in kinds:
            column = sch.FIRST_DATE
            if column not in kinds:
                raise refuse(request.path_of("strata"), name, f"date for a period, since these {UNITS} are of one date")
        check_column(kinds, column, f"strata: {name}")
        text = eng.as_text(sch.quoted(column), kinds[column], eng.engine_of(table.rows.sparkSession))
        parts.append(f"coalesce(concat('=', {text}), '')")
    return f"concat_ws(' & ', {', '.join(parts)}) AS {STRATUM}"


def hash_of_lists(table: UserTable) -> str:
    """A column for ``by_user``: the hash of a user's lists, down to the smallest cut-off that holds all metrics."""
    if table.days is not None:
        raise ConfigError(said("changed_over_days", first=table.days.first, last=table.days.last))
    cut_by_name = {name: hashed_cut(name) for name in table.rows.columns}
    cuts = {cut: name for name, cut in cut_by_name.items() if cut is not None}
    needed = max(map(cut_of, table.metrics))
    if fits := [cut for cut in cuts if cut >= needed]:
        return f"bigint({cuts[min(fits)]}) AS {LISTS_HASH}"
    raise InputError(said("no_hash_column", column=list_hash(None if math.isinf(needed) else int(needed))))


def _earlier_means(table: UserTable, keys: Sequence[str], prefix: str) -> DataFrame:
    """One row per user (of a test), or per user and experiment: the mean of what they had on the earlier date."""
    before = table.before
    assert before is not None and not isinstance(before, str)
    shared = {name: name for name in sorted({metric.column for metric in table.metrics} & {*before.columns})}
    shared |= _covariates(table)[1]
    # Added in the order of their size, so that the order of a user's experiments changes no bit.
    values = (f"aggregate(array_sort(collect_list({name})), 0D, (added, value) -> added + value) / "
              f"nullif(count({name}), 0) AS {name}" for name in (f"{prefix}{name}" for name in shared))  # fmt: skip
    experiment = [f"string({sch.EXPERIMENT}) AS {sch.EXPERIMENT}"] if sch.EXPERIMENT in keys else []
    user = f"{sch.USER}, {sch.TEST_OF}" if table.by_test else sch.USER
    named = (f"{sql} AS {prefix}{name}" for name, sql in shared.items())
    return before.selectExpr(*_hashed(user, keys), *experiment, *named).groupBy(*keys).agg(*map(F.expr, values))


def _covariates(table: UserTable) -> tuple[dict[str, str], dict[str, str]]:
    """Number of each covariate -> its values as SQL: of those that are columns of the users, and of the earlier ones.

    Raises:
        InputError: There is no such column of numbers; what follows from the lists of the test is none.
    """
    known, found = dict[str, int](), (dict[str, str](), dict[str, str]())
    sides = [table.rows] if table.before is None or isinstance(table.before, str) else [table.rows, table.before]
    for side, users in enumerate(sides if table.covariates else ()):
        for name in (each.name for each in users.schema.fields if isinstance(each.dataType, T.NumericType)):
            of_test = metric_of_column(name.removeprefix(sch.lists_with_value(""))) or hashed_cut(name) is not None
            if side or not (of_test or name in (*sch.USER_COLUMNS, sch.N_DAYS)):
                known[name] = side
    named = {str(metric_of_column(name) or name): name for name in known} | {name: name for name in known}
    for i, name in enumerate(table.covariates):
        with suppress(ConfigError):
            name = name if name in named else str(parse(name))
        if name not in named:
            raise InputError(f"covariates: {unknown('column of numbers', name, named)}")
        column = named[name]
        found[known[column]][str(i)] = f"nullif(double({sch.quoted(column)}), double('NaN'))"
    return found


#: What a user has in the baseline and in the candidate.
_VALUES = ("value_baseline", "value_candidate")


def user_changes(table: UserTable, request: Comparison) -> DataFrame:
    """What each user who is in both experiments has in each: one row per (candidate, metric, user); grows with users.

    Args:
        table: The users.
        request: The baseline, and the candidates if not all are meant.

    Returns:
        experiment_id, baseline, metric, user_id, value_baseline, value_candidate, difference.
    """
    values = ", ".join(f"'{metric}', {metric.column}" for metric in table.metrics)
    stacked = f"stack({len(table.metrics)}, {values}) AS ({sch.METRIC}, value)"
    long = table.rows.selectExpr(sch.EXPERIMENT, sch.USER, stacked)
    of_baseline = F.col(sch.EXPERIMENT).eqNullSafe(F.lit(request.baseline))
    ours = long.where(of_baseline).select(sch.USER, sch.METRIC, F.col("value").alias("value_baseline"))
    theirs = long.where(~of_baseline).withColumnRenamed("value", "value_candidate")
    if request.candidates:
        theirs = theirs.where(F.col(sch.EXPERIMENT).isin(*request.candidates))
    joined = theirs.join(ours, [sch.USER, sch.METRIC]).withColumn(sch.BASELINE, F.lit(request.baseline))
    difference = f"{_VALUES[1]} - {_VALUES[0]} AS difference"
    return joined.selectExpr(sch.EXPERIMENT, sch.BASELINE, sch.METRIC, sch.USER, *_VALUES, difference)


def largest_changes(table: UserTable, request: Comparison, n: int, kind: Literal["loss", "gain"] = "loss") -> DataFrame:
    """The users who lost or gained most against the baseline, for each candidate and metric.

    Args:
        table: The users.
        request: The baseline, and the candidates if not all are meant.
        n: How many users per candidate and metric.
        kind: Which of the two; a metric of which lower is better is lost where it rises.

    Returns:
        experiment_id, metric, user_id, value_baseline, value_candidate, and the size as ``loss`` or ``gain``; the
        largest first.
    """
    lower = [str(metric) for metric in table.metrics if metric.higher_is_better is False]
    sign = F.when(F.col(sch.METRIC).isin(lower), -1.0).otherwise(1.0) if lower else F.lit(1.0)
    size = sign * F.col("difference") if kind == "gain" else sign * (F.col("value_baseline") - F.col("value_candidate"))
    changed = user_changes(table, request).withColumn(kind, size).where(F.col(kind) > 0)
    place = F.row_number().over(Window.partitionBy(sch.EXPERIMENT, sch.METRIC).orderBy(F.desc(kind), sch.USER))
    first = changed.withColumn("_place", place).where(f"_place <= {n}").orderBy(sch.EXPERIMENT, sch.METRIC, "_place")
    return first.select(sch.EXPERIMENT, sch.METRIC, sch.USER, *_VALUES, kind)
