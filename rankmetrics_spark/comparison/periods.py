"""``user_metrics`` of several dates -> one row per (experiment, user) over all of them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, functions as F, types as T

from rankmetrics_spark import engines as eng, metrics as mx, schemas as sch
from rankmetrics_spark.comparison.measures import said
from rankmetrics_spark.comparison.table import REPEATED, UserTable, check_column, lists_of
from rankmetrics_spark.config import Days, dated, dates_in_words, day, refuse
from rankmetrics_spark.errors import ConfigError, InputError
from rankmetrics_spark.pointers import Pointer, Pointers, dates_without, newest_state

_COUNTS = (sch.N_LISTS, sch.N_SHOWN, sch.N_RELEVANT, sch.N_REPEATED)
_NEEDED = (sch.EXPERIMENT, sch.USER, sch.DATE, sch.N_LISTS, sch.N_RELEVANT)
_DAY, _PLACE, _PARTS, _WITHOUT = "_day", "_place", "_parts", "_without_"
#: Days that one whole number tells apart.
_BITS = 63
#: Returns the rows of a table that pointers name, with these columns; None if there are none.
Stored: TypeAlias = Callable[[str, Pointers, T.StructType], DataFrame | None]
#: Added to a date as a number, such as 20261121, where the user has no list: dates with a list come first.
_NO_LIST = 10**8


def first_and_last(dates: object) -> tuple[str, str]:
    """The two dates of a period.

    Raises:
        ConfigError: These are not two.
    """
    if isinstance(dates, (tuple, list)) and len(dates) == 2:
        return str(dates[0]), str(dates[1])
    raise refuse("dates", dates, "the first and the last date of a period, such as ('2026-11-08', '2026-11-21')")


def published_days(users: DataFrame, first: str, last: str, place: str = "dates") -> Days:
    """The days of a period that ``user_metrics`` holds; starts one small job.

    Args:
        users: One row per (experiment_id, user_id, evaluation_date).
        first: The first date.
        last: The last date.
        place: What messages call the period.

    Raises:
        ConfigError: A date is none, or the first is after the last.
        InputError: A column is missing, ``evaluation_date`` holds something else than dates, no date of the period is
            there, or its dates follow different conventions.
    """
    refuse_missing(users)
    convention = [sch.CONVENTION_HASH] * (sch.CONVENTION_HASH in users.columns)
    conventions: dict[str, set[str]] = {}
    for date, *digest in eng.few_rows(users.selectExpr(f"string({sch.DATE})", *convention).distinct()):
        conventions.setdefault(date, set()).update(map(str, digest))
    refuse_other_values(conventions)
    return period_days(conventions, first, last, place)


def period_days(conventions: Mapping[str, Iterable[str]], first: str, last: str, place: str = "dates") -> Days:
    """The days of a period, whose published dates all have to follow one convention.

    Args:
        conventions: Published date -> the hashes of its conventions.
        first: The first date.
        last: The last date.
        place: What messages call the period.

    Raises:
        ConfigError: A date is none, or the first is after the last.
        InputError: No date of the period is published, or its dates follow different conventions.
    """
    days = Days.of(first, last, conventions, place)
    newest = {*conventions[days.dates[-1]]}
    if len(newest) > 1:
        raise InputError(said("conventions_of_day", last=days.dates[-1]))
    others = [date for date in days.dates if {*conventions[date]} != newest]
    if others:
        raise InputError(said("conventions_of_days", place=place, others=dates_in_words(others), last=days.dates[-1]))
    return days


def without_unstored(table: UserTable, pointers: Mapping[str, Pointer], dates: Iterable[str]) -> UserTable:
    """The table without the metrics that no run of these dates has stored: other dates have given it their columns."""
    dates = [*dates]
    runs = [entry.columns for date in dates if date in pointers for entry in pointers[date].entries]
    if not all(runs) or not {*dates} <= {*pointers}:
        return table
    kept = tuple(metric for metric in table.metrics if any(metric.column in columns for columns in runs if columns))
    return replace(table, metrics=kept or table.metrics)


def uneven_columns(
    metrics: Iterable[mx.Metric], segments: Iterable[str], pointers: Mapping[str, Pointer], dates: Iterable[str]
) -> list[str]:
    """Metrics and segments that days were published without: a sentence for each.

    Args:
        metrics: The metrics that are compared.
        segments: Columns that split the users.
        pointers: Date -> what is published.
        dates: The days of the period, or one day.
    """
    dates = [*dates]
    labels = {**{name: name for name in segments}, **{metric.column: str(metric) for metric in metrics}}
    of_period = {date: pointers[date] for date in dates if date in pointers}
    lacking = {label: dates_without(column, "user_metrics", of_period) for column, label in labels.items()}
    return [
        f"{label} was not stored on {dates_in_words(without)}"
        + ("; it is that of the other days" if len(without) < len(dates) else "")
        for label, without in lacking.items()
        if without
    ]


#: Keys of a config that say what a value is; with others, the same log is read from another place.
_READING = ("source.columns", "source.where", "source.first_rank", "source.list", "source.ranks", "judgements.columns",
            "judgements.where", "rank_by")  # fmt: skip


def changed_settings(configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which settings say something else on some days of a period, whose values are then about two things.

    Args:
        configs: Date -> the config of its run, as a run record has it.

    Returns:
        A sentence for each setting.

    >>> clicks, sales = ({"source": {"columns": {"relevance": name}, "where": None}} for name in ("clicked", "bought"))
    >>> changed_settings({"2026-11-08": clicks, "2026-11-09": sales})
    ['source.columns.relevance differs between days: clicked on 2026-11-08, bought on 2026-11-09; the period has both']
    >>> where = "day >= '2026-11-0{}' AND day < '2026-11-0{}'"
    >>> of_days = {f"2026-11-0{n}": {"source": {"where": where.format(n, n + 1)}} for n in (7, 8)}
    >>> changed_settings(of_days)
    []
    >>> since = {day: {"source": {"where": "day >= '2026-11-08'"}} for day in ("2026-11-08", "2026-11-09")}
    >>> changed_settings(since)
    []
    """
    texts: dict[str, dict[str, str]] = {}
    for date, config in configs.items():
        for path in _READING:
            section, _, key = path.rpartition(".")
            value = ((config.get(section) or {}) if section else config).get(key)
            parts = {f".{part}": each for part, each in value.items()} if isinstance(value, Mapping) else {"": value}
            for part, each in parts.items():
                texts.setdefault(path + part, {})[date] = "null" if each is None else str(each)
    days: dict[str, dict[str, list[str]]] = {}
    for name, of_days in texts.items():
        for date, text in of_days.items():
            for word in ("{date}", "{date+1}", "{date-1}") if len({*of_days.values()}) > 1 else ():
                text = text.replace(dated(word, date), word)
            days.setdefault(name, {}).setdefault(text, []).append(date)
    return [
        f"{name} differs between days: "
        + ", ".join(f"{value} on {dates_in_words(dates)}" for value, dates in values.items())
        + f"; the period has {'both' if len(values) == 2 else 'all'}"
        for name, values in days.items()
        if len(values) > 1
    ]


@dataclass(frozen=True)
class State:
    """What the users had over several days, as one run has stored it: their ``period_sums``.

    Attributes:
        date: The date of the run.
        dates: The days that are in the sums.
        rows: One row per (experiment_id, user_id).
    """

    date: str
    dates: frozenset[str]
    rows: DataFrame

    @classmethod
    def of(
        cls, users: DataFrame, days: Days, pointers: Pointers, read: Stored, names: Collection[str | None] | None = None
    ) -> "State | None":
        """The state that spares most of the days of a period; None if there is none that holds.

        Args:
            users: One row per (experiment_id, user_id, evaluation_date), with the columns that are read.
            days: The dates.
            pointers: Date -> what is published, as the users are read.
            read: Returns the rows of a table that pointers name: ``days`` of a store.
            names: The experiments that are compared; by default all.
        """
        schema = period_sums(users, days).schema
        columns = {each.name: each.dataType.simpleString() for each in schema.fields if each.name not in sch.PARTITION}
        found = newest_state(pointers, days.dates, columns, names)
        if found is None or (rows := read(sch.USER_STATES, {found[0]: pointers[found[0]]}, schema)) is None:
            return None
        return cls(*found, rows if names is None else of_experiments(rows, names))


def of_experiments(rows: DataFrame, names: Collection[str | None]) -> DataFrame:
    """The rows of these experiments; None has no name."""
    texts, name = [each for each in names if each is not None], F.col(sch.EXPERIMENT)
    return rows.where(name.isin(texts) | name.isNull() if None in names else name.isin(texts))


def period_rows(
    users: DataFrame, days: Days, find_repeats: bool = False, daily: bool = False, state: State | None = None
) -> DataFrame:
    """One row per (experiment, user) over the dates of a period. Lazy: starts no job.

    A value is the mean over the user's lists of all dates: each date counts with its lists that have a value. A user
    who has lists on some dates is described by these only. The bits of the result depend on the rows only, not on their
    order or on the engine, nor on a state.

    Args:
        users: One row per (experiment_id, user_id, evaluation_date); other dates than those of the period are left out.
        days: The dates.
        find_repeats: Whether a column more says whether the user has two rows of one date.
        daily: Whether each date keeps a row of its own, of the parts of a user's day.
        state: The users over some of these dates, which are not read then; with neither of the two before.

    Returns:
        experiment_id, user_id; every column that is no metric and no count (segments, covariate) with its value of the
        user's first date, and a flag (boolean) with whether it is set on any; n_lists, n_shown, n_relevant and
        n_repeated added up; n_days, the dates on which the user has a list; first_date, the first of them; the metrics,
        and the lists with a value of each, as n_lists_ap_at_10. Users who have no list at all (judged, but nothing was
        shown to them) keep the value that they have on each date.

    Raises:
        InputError: A column is missing, or has a name that the rows of a period need.
    """
    return period_means(period_sums(users, days, find_repeats, daily, state))


def period_sums(
    users: DataFrame, days: Days, find_repeats: bool = False, daily: bool = False, state: State | None = None
) -> DataFrame:
    """The exact sums that ``period_means`` makes the rows of a period of; see ``period_rows``."""
    refuse_missing(users)
    columns = users.columns
    metrics = [name for name in columns if mx.metric_of_column(name) is not None]
    computed = {*sch.USER_COLUMNS, *metrics, *map(sch.lists_with_value, metrics)}
    described = [name for name in columns if name not in computed and mx.hashed_cut(name) is None]
    for name in {sch.N_DAYS, sch.FIRST_DATE} & {*described}:
        raise InputError(f"user_metrics has a column {name}, which the rows of a period need; rename it")
    counts = [name for name in _COUNTS if name in columns]
    lists = {name: f"_lists_{name}" for name in metrics}
    # A day of one part keeps the bits of its value, as a user without a list does.
    keys = [sch.EXPERIMENT, sch.USER, *[sch.DATE] * daily]
    is_kept = "true" if daily else f"{sch.N_LISTS} = 0"
    # No list of dates is empty in SQL.
    dates = [date for date in days.dates if state is None or date not in state.dates] or [""]
    rows = users.where(F.col(sch.DATE).cast("string").isin(dates)).selectExpr(
        *(sch.quoted(name) for name in (*keys, *described)),
        *(f"bigint({name}) AS {name}" for name in counts),
        f"CASE WHEN {sch.N_LISTS} > 0 THEN 1L ELSE 0L END AS {sch.N_DAYS}",
        f"bigint(replace(string({sch.DATE}), '-', '')) "
        f"+ CASE WHEN {sch.N_LISTS} > 0 THEN 0 ELSE {_NO_LIST} END AS {_DAY}",
        *metrics,
        *(f"CASE WHEN {is_kept} THEN {name} END AS {_WITHOUT}{name}" for name in metrics),
        *(f"{lists_of(name, columns)} AS {weight}" for name, weight in lists.items()),
        *[f"datediff(date({sch.DATE}), date'{days.first}') AS {_PLACE}"] * find_repeats,
    )
    flags = {field.name for field in users.schema.fields if isinstance(field.dataType, T.BooleanType)}
    own = {name: sch.quoted(name) for name in described}
    aggregates = [
        *(f"{f'max({sql})' if name in flags else f'min_by({sql}, {_DAY})'} AS {sql}" for name, sql in own.items()),
        *(f"sum({name}) AS {name}" for name in (*counts, sch.N_DAYS)),
        f"min({_DAY}) AS {_DAY}",
        *(f"max({_WITHOUT}{name}) AS {_WITHOUT}{name}" for name in metrics),
        *[_repeated(days)] * find_repeats,
        *[f"count(1) AS {_PARTS}"] * daily,
    ]
    return eng.group_sums(rows, keys, lists, aggregates, state.rows if state else None)


def period_means(sums: DataFrame) -> DataFrame:
    """The rows of a period, from their ``period_sums``."""
    metrics = [name.removeprefix(_WITHOUT) for name in sums.columns if name.startswith(_WITHOUT)]
    means = eng.means_of(sums, metrics)
    described = means.columns[: means.columns.index(_DAY)]
    first = f"string({_DAY} % {_NO_LIST})"
    parts = ", ".join(f"substr({first}, {start}, {length})" for start, length in ((1, 4), (5, 2), (7, 2)))
    only_one = f"{_PARTS} = 1" if _PARTS in means.columns else f"{sch.N_LISTS} = 0"
    return means.selectExpr(
        *map(sch.quoted, described),
        f"concat_ws('-', {parts}) AS {sch.FIRST_DATE}",
        *(f"CASE WHEN {only_one} THEN {_WITHOUT}{name} ELSE {name} END AS {name}" for name in metrics),
        *(f"{eng.weight_of(name)} AS {sch.lists_with_value(name)}" for name in metrics),
        *[REPEATED] * (REPEATED in means.columns),
    )


def _repeated(days: Days) -> str:
    """SQL of whether a group has two rows of one day: its rows are more than its days, a bit of a number each."""
    numbers = (
        f"bit_or(CASE WHEN {_PLACE} div {_BITS} = {i} THEN shiftleft(1L, {_PLACE} % {_BITS}) ELSE 0L END)"
        for i in range(-(-days.length // _BITS))
    )
    return f"count(*) > {' + '.join(f'bit_count({number})' for number in numbers)} AS {REPEATED}"


def refuse_missing(users: DataFrame) -> None:
    """Refuse ``user_metrics`` without a column that a period needs."""
    for name in _NEEDED:
        check_column(users.columns, name, "a period")
    refuse_other_types(users)


def refuse_other_types(users: DataFrame) -> None:
    """Refuse a column of dates of another type, such as a timestamp: its texts are those of no date."""
    kind = users.schema[sch.DATE].dataType
    if not isinstance(kind, (T.DateType, T.StringType)):
        found = kind.simpleString()
        raise InputError(f"{sch.DATE} of user_metrics is of type {found}; allowed: dates, or texts such as 2026-11-01")


def refuse_other_values(texts: Iterable[object]) -> None:
    """Refuse texts of the column of dates that are none, and null."""
    try:
        for text in texts:
            day(sch.DATE, text)
    except ConfigError as error:
        raise InputError(f"user_metrics: {error}") from None
