"""Column names of every table, and which columns the impressions have. No pyspark.

Names without an underscore at the front are public: they appear in the input after renaming, or in the output tables.
Names that start with ``_`` exist only between two steps. A user's own columns (list, segments) never travel under
their own name: they are ``_list_0``, ``_segment_0``, ... from the first step to the last, so no name can collide.
"""

import json
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias

#: What messages, or roles, call a column -> its name in a table; None = the table has none.
ColumnMap: TypeAlias = Mapping[str, str | None]
#: A row of a table by the names of its columns, and a few rows of one.
Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = list[dict[str, Any]]


def columns(words: str) -> dict[str, str]:
    """Column -> its type, of a table in words.

    >>> columns("string: user_id item_id; long: n")
    {'user_id': 'string', 'item_id': 'string', 'n': 'long'}
    """
    groups = (group.partition(":") for group in words.split(";"))
    return {name: kind.strip() for kind, _, names in groups for name in names.split()}


EXPERIMENT = "experiment_id"
USER = "user_id"
ITEM = "item_id"
POSITION = "position"
SCORE = "score"
RELEVANCE = "relevance"
INTENTS = "intents"

#: What a config calls a column -> its canonical name.
ROLES = {name.removesuffix("_id"): name for name in (EXPERIMENT, USER, ITEM, POSITION, SCORE, RELEVANCE, INTENTS)}
ITEMS = "items"
TIME = "time"
#: The same with the column of lists, if a row of the log is a list, and that of the time at which it was shown.
LOG_ROLES = {**ROLES, ITEMS: ITEMS, TIME: TIME}
#: Role of a column of the events -> the names that it may have without being named.
EVENT_NAMES = {
    "user": (USER, "user"), "item": (ITEM, "item"), "kind": ("event", "kind", "event_type", "action"), "time": (TIME,)
}  # fmt: skip
#: The same of the assignments; they need neither a test nor a time.
ASSIGNMENT_NAMES = {"test": ("test",), "arm": ("arm",), "user": (USER, "user"), "time": (TIME,)}
TEST_NAME = "test_name"
#: Between a test and its arm, in the name of the experiment.
NAME_OF_ARM = ":"
#: SQL: the test of an experiment that is an arm of one.
TEST_OF = f"substring_index({EXPERIMENT}, '{NAME_OF_ARM}', 1)"
N_ASSIGNED = "n_assigned"
#: Of a part of a user's day: its first instant, and the one before which its lists were shown, in microseconds.
SINCE, UNTIL = "since", "until"
MATCHED = "matched"
#: What becomes of an event; the first four are the graded ones.
EVENT_STATES = (MATCHED, "event_without_impression", "event_before_impression", "event_after_window",
                "event_of_earlier_day", "event_of_later_day", "kind_without_grade", "faulty_event")  # fmt: skip
#: The grade that events give to a shown item.
GRADE_OF_EVENTS = "_grade_of_events"
#: What each item of a list has of its own.
OF_ITEM = (ITEM, POSITION, SCORE, RELEVANCE, INTENTS)
#: What pandas and others write for a missing id, and what reads back as the text of one.
MISSING = ("NA", "nan", "NaN", "None", "null", "NULL", "<NA>")
JUDGEMENT_ROLES = {role: ROLES[role] for role in ("user", "item", "relevance", "intents")}
#: The same with the column of lists, if a row of the judgements holds several items, and of a machine's grades.
JUDGED_ROLES = {**JUDGEMENT_ROLES, ITEMS: ITEMS, "machine": "machine"}

MACHINE_ROLES = {role: ROLES[role] for role in ("user", "item", "relevance")}

REASON = "reason"
N_LISTS = "n_lists"
N_SHOWN = "n_shown"
N_RELEVANT = "n_relevant"
N_REPEATED = "n_repeated"
N_USERS = "n_users"
N_USERS_WITH_RELEVANT = "n_users_with_relevant"
N_USERS_WITHOUT_LIST = "n_users_without_list"

N_DAYS = "n_days"
FIRST_DATE = "first_date"

SEGMENT = "segment"
METRIC = "metric"
CONVENTION = "convention"
CONVENTION_HASH = "convention_hash"
DATE = "evaluation_date"
#: Tables of a few rows per experiment, which may have one file per date.
SMALL_TABLES = ("experiment_metrics", "comparisons", "checks")
USER_DAYS = "user_days"
#: Exact sums of users over the days of a period, which ``sink.user_states`` stores.
USER_STATES = "user_states"
#: Lists as they were scored, which ``sink.lists`` stores.
LISTS = "lists"
#: The tables of no experiment, whose folders are dates; a pointer has them with the rows without an experiment.
OF_DATES = (USER_DAYS, LISTS)
#: Ranks, grades and 64-bit hashes of the items of a stored list, and its experiment.
RANKS, GRADES, ITEM_HASHES, ARM = "ranks", "grades", "item_hashes", "experiment"
#: Scores of these items, and how many items of an equal score are directly above; places of their ids as text.
SCORES, TIED_ABOVE, ITEM_PLACES = "scores", "tied_above", "item_places"
PARTITION = (EXPERIMENT, DATE)
RUN = "run_id"
#: Key of a record: how many users were erased from what the run has published.
ERASED = "erased_users"
#: Folder name of a null partition value. "null" would not do: an experiment may have that name.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
EVERYONE = "all"
ROLE = "role"
MEAN_OVER = "mean_over"
#: The column whose values are the units of errors, in a row of ``comparisons``.
CLUSTER = "cluster"
PERIOD_FROM, PERIOD_TO = "period_from", "period_to"
#: Roles of a metric in the answer.
PRIMARY, GUARDRAIL, SECONDARY = "primary", "guardrail", "secondary"

#: Columns of ``user_metrics`` beside the segments and the metrics.
USER_COLUMNS = (EXPERIMENT, USER, CONVENTION_HASH, N_LISTS, N_SHOWN, N_RELEVANT, N_REPEATED, DATE, RUN)
#: Columns of ``quarantine`` beside those that tell a user's lists apart.
QUARANTINE_COLUMNS = (*(name for name in ROLES.values() if name != INTENTS), REASON, DATE, RUN)

#: Struct of a row's mapped columns as text, as they came.
RAW = "_raw"
BASELINE = "baseline"
#: The test of a row of ``comparisons`` that CUPED, or strata, decide; its numbers have this prefix.
CUPED, STRATA = "cuped", "strata"
#: Such a test -> what its numbers are, and what those of the plain test are.
ADJUSTED_BY = {CUPED: ("with CUPED", "without CUPED"), STRATA: ("within strata", "without strata")}
SPARSE = "sparse"
#: The tests of a row of ``comparisons`` that decide where t does not hold; their numbers have this prefix.
SPARSE_TESTS = ("permutation", "sign flips", "boschloo", "hall")
RELATIVE = ("relative_difference", "relative_ci_low", "relative_ci_high")
#: Bounds of intervals that hold over several looks have this prefix.
SEQUENTIAL = "sequential"
#: Bounds of intervals that agree with the corrected p-value have this prefix.
ADJUSTED = "adjusted"
LOOKS = "looks"
#: Which looks a row of ``comparisons`` holds for; null or absent where it is a single one.
POWER = "power"
#: Share of the users of a pair whose lists differ, where only these are tested.
SHARE_CHANGED = "share_changed"
#: The difference over all users of a pair, with its interval, where only users with changed lists are tested.
DILUTED = ("diluted_difference", "diluted_ci_low", "diluted_ci_high")
#: The difference among the users who are not in the segment of a row of ``comparisons``.
REST = ("rest_difference", "rest_relative_difference")
#: How the difference of a segment differs from that of the rest, with its interval.
FROM_REST = ("from_rest", "from_rest_ci_low", "from_rest_ci_high")
#: Bounds of the intervals of a row of ``comparisons``.
BOUNDS = ("ci_low", "ci_high", "relative_ci_low", "relative_ci_high")

#: Struct of a faulty row's values as text, with its reason; null for a sound row.
REJECTED = "_rejected"
#: Whether a row is faulty; null for some sound rows.
IS_FAULTY = "_is_faulty"
#: Number of the row of a log whose rows are lists of their own; it tells the lists of a user apart.
ROW = "_row"
#: Why a row that is a list is faulty as a whole, or null.
LIST_FAULT = "_list_fault"
#: The faulty items that came with a list, as ``_rejected`` has them.
REJECTED_ITEMS = "_rejected_items"
#: Whether a row is a list, and not only what was rejected beside none.
IS_LIST = "_is_list"
N_ROWS = "_rows"
#: The last rank of a list, if ranks are given.
TOP = "_top"
#: A number that each user had before the experiment, if there is such a column.
COVARIATE = "_covariate"
#: The cluster of each user, such as a household, if there is such a column.
CLUSTER_OF_USER = "_cluster"
#: Whether a row says that its user's lists could differ between experiments, if there is such a column.
TRIGGERED = "_triggered"
#: Whether the rows of a list differ in a segment, if there are segments.
MIXED = "_mixed"
#: Hash of the item id.
HASH = "_hash"
#: Array of structs: the rows of a list that travel one by one.
ENTRIES = "_entries"
#: The packed form may be wrong for this list; recompute it from its rows.
FLAGGED = "_flagged"
RANK_MAY_REPEAT = "_rank_may_repeat"
#: Python has read every row of the list, not only its relevant rows.
ALL_ROWS_SEEN = "_all_rows_seen"
N_TIED = "_tied"
#: Relevant items shown beyond those that the judgements hold.
N_UNKNOWN = "_unknown"
#: Shown items of a list that have a judgement.
N_KNOWN = "_known"
#: The same of the first ranks alone; see ``Scoring.top``.
N_KNOWN_TOP = "_known_top"
#: Judgements of the user of a list with a grade of 0 or less.
N_REFUTED = "_refuted"
#: Shown and judged items of a list with a grade above 0 that is not 1.
N_GRADED = "_graded"
#: Sum of the hashes of rank and grade of the relevant rows of a list, as they are scored.
DIGEST = "_digest"
#: Rows of a list with a grade below 0.
N_NEGATIVE = "_negative"
#: Whether the judgements know the user.
JUDGED = "_judged"
#: Index of the convention among those of the run.
CONVENTION_INDEX = "_convention"
POOL_GRADE = "_pool_grade"
POOL_HASH = "_pool_hash"
#: The same of the items that a machine has judged.
MACHINE_GRADE, MACHINE_HASH = "_machine_grade", "_machine_hash"
OF_MACHINE = {POOL_GRADE: MACHINE_GRADE, POOL_HASH: MACHINE_HASH}
#: Hash of each intent of each judged item, hash of that item, and the grade for that intent: arrays of equal length.
POOL_INTENT, POOL_INTENT_ITEM, POOL_INTENT_GRADE = "_pool_intent", "_pool_intent_item", "_pool_intent_grade"


@dataclass(frozen=True)
class Columns:
    """What the impressions hold, under their canonical names.

    Attributes:
        list: The user's names of the columns that tell a user's lists apart.
        segments: The user's names of the columns whose values split the averages.
        covariate: The user's name of the column with a number of each user from before the experiment.
        cluster: The user's name of the column whose values are the units of errors; None where it is a segment too.
        trigger: The user's name of the column that says whether lists could differ between experiments.
        intents: Where the intents of shown items come from: ``shown`` (their own column), ``judged`` (looked up in the
            judgements), or empty where no metric reads them.
        item: Whether item ids are there.
        item_text: Whether the ids themselves are read, and not only their hashes, even if ranks are given.
        position: Whether a rank column is there.
        score: Whether a score column is there.
        relevance: Whether the impressions carry their own relevance.
        by_score: Whether lists are ranked by score; a rank column then breaks ties at most.
        first_rank: What the rank column calls the first rank: 1 or 0.
        list_hash: The column of ``user_metrics`` with the hash of the user's lists, if it is asked for.
        time_zone: Of the times of lists that have no offset; None where no time is read.
    """

    list: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    item: bool = True
    position: bool = True
    score: bool = False
    relevance: bool = True
    by_score: bool = False
    first_rank: int = 1
    covariate: str | None = None
    cluster: str | None = None
    trigger: str | None = None
    intents: Literal["", "shown", "judged"] = ""
    item_text: bool = False
    list_hash: str | None = None
    time_zone: str | None = None

    @cached_property
    def timed(self) -> tuple[str, ...]:
        """The column of the time at which a list was shown, in microseconds, if it is read."""
        return (TIME,) if self.time_zone else ()

    @cached_property
    def list_columns(self) -> tuple[str, ...]:
        """Internal names of the list columns."""
        return tuple(f"_list_{i}" for i in range(len(self.list)))

    @cached_property
    def segment_columns(self) -> tuple[str, ...]:
        """Internal names of the segment columns."""
        return tuple(f"_segment_{i}" for i in range(len(self.segments)))

    @cached_property
    def of_user(self) -> tuple[str, ...]:
        """Internal names of the columns that describe the user: segments, covariate, cluster and trigger."""
        names = {COVARIATE: self.covariate, CLUSTER_OF_USER: self.cluster, TRIGGERED: self.trigger}
        return (*self.segment_columns, *(name for name, column in names.items() if column))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The key of one ranked list, in internal names."""
        return (EXPERIMENT, USER, *self.list_columns)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The canonical value columns that are there."""
        has = {ITEM: self.item, POSITION: self.position, SCORE: self.score, RELEVANCE: self.relevance}
        return tuple(name for name, present in has.items() if present)


Status = Literal["ok", "warn", "fail", "not_checked"]
OK: Status = "ok"
WARN: Status = "warn"
FAIL: Status = "fail"
#: What a check says; ``not_checked`` = there was nothing to judge, or no limit to judge it by.
NOT_CHECKED: Status = "not_checked"
#: Columns of ``checks`` beside the date -> their types.
CHECK_COLUMNS = columns(
    "string: experiment_id name segment metric; double: observed limit margin; string: status sentence"
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at in one experiment: a row of ``checks``.

    Attributes:
        name: What was looked at: a rate, the limit of a gate, ...
        status: What came out.
        sentence: What was found, in words.
        experiment: The experiment.
        observed: The number that was judged.
        limit: The limit that it was judged by.
        margin: How far the number is on the right side of its limit; negative where it is beyond.
        segment: The label of a segment, or ``all``.
        metric: The metric of a gate.
        fact: Of a sentence that says what to do as well: what was found.
    """

    name: str
    status: Status
    sentence: str
    experiment: str | None = None
    observed: float | None = None
    limit: float | None = None
    margin: float | None = None
    segment: str = EVERYONE
    metric: str | None = None
    fact: str = ""

    def as_row(self) -> dict[str, Any]:
        """The row of the table ``checks``."""
        cells = vars(self) | {EXPERIMENT: self.experiment}
        return {name: number(cells[name]) if kind == "double" else cells[name] for name, kind in CHECK_COLUMNS.items()}


def checks_of(rows: Iterable[Row]) -> list[Check]:
    """The checks of rows of the table ``checks``."""
    names = {*CHECK_COLUMNS, "experiment"} - {EXPERIMENT}
    return [Check(**cells) for _, cells in typed(rows, names, {EXPERIMENT: "experiment"})]


def rows_of(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """The rows of the table ``checks``."""
    return [check.as_row() for check in checks]


def public_names(names: Iterable[str], taken: Iterable[str]) -> tuple[str, ...]:
    """Names of a user's columns in an output table: their own, with ``_input`` where the table has such a column.

    Upper and lower case are the same to Spark.

    >>> public_names(["country", "Reason"], taken=["reason"])
    ('country', 'Reason_input')
    """
    lower_names, result = {name.lower() for name in taken}, []
    for name in names:
        while name.lower() in lower_names:
            name += "_input"
        lower_names.add(name.lower())
        result.append(name)
    return tuple(result)


def segment_label(column: str, value: str | None) -> str:
    """What a segment is called in the result; no two segments or combinations (``a=1 & b=2``) share a name.

    A ``=`` or ``&`` in the column's name is escaped. A text that looks like a null, like a quoted text or like a
    combination is quoted.

    >>> segment_label("device", "mobile"), segment_label("device", None), segment_label("device", "null")
    ('device=mobile', 'device=null', 'device="null"')
    >>> segment_label("a=b", "c"), segment_label("a", "b=c"), segment_label("a", "b & c")
    ('a\\\\=b=c', 'a=b=c', 'a="b & c"')
    """
    name = column.replace("\\", "\\\\").replace("=", "\\=").replace("&", "\\&")
    if value is None:
        return f"{name}=null"
    ambiguous = value == "null" or value.startswith('"') or " & " in value
    return f"{name}={json.dumps(value, ensure_ascii=False) if ambiguous else value}"


_PART = re.compile(r'(?:^| & )((?:[^\\=&]|\\.)+)=("(?:[^"\\]|\\.)*"|(?:(?! & ).)*)', re.DOTALL)


@lru_cache
def segment_columns(label: str) -> str:
    """The columns of a segment's label, as a label names them; ``all`` for all users.

    >>> segment_columns("country=de"), segment_columns("country=de & device=web"), segment_columns("all")
    ('country', 'country & device', 'all')
    >>> segment_columns(segment_label("a", "b & c=d")), segment_columns(segment_label("a=b", "c"))
    ('a', 'a\\\\=b')
    """
    return " & ".join(part[1] for part in _PART.finditer(label)) or label


def is_unknown(value: float | None) -> bool:
    """Whether a cell of an output table holds no number: null, or NaN."""
    return value is None or math.isnan(value)


def number(value: Any) -> float | None:
    """Return a cell as a number; None for null, and for NaN and infinities, which JSON does not have."""
    return None if value is None or not math.isfinite(value) else float(value)


def finite(rows: Iterable[Row]) -> Rows:
    """Rows with None for NaN and infinities, as JSON can hold them.

    >>> finite([{"label": "x", "mean": float("nan"), "std": 1.0}])
    [{'label': 'x', 'mean': None, 'std': 1.0}]
    """
    return [{name: number(cell) if isinstance(cell, float) else cell for name, cell in row.items()} for row in rows]


def columns_of(rows: Sequence[Row], names: Iterable[str]) -> dict[str, list[Any]]:
    """Column -> its cells; None where a row has none.

    >>> columns_of([{"mean": 0.5, "n": 3}, {"mean": 0.25}], ["n", "mean"])
    {'n': [3, None], 'mean': [0.5, 0.25]}
    """
    return {name: [row.get(name) for row in rows] for name in names}


def is_of_segment(row: Row) -> bool:
    """Whether a row of a table is about a segment, and not about all users."""
    return bool(row[SEGMENT] != EVERYONE)


def typed(rows: Iterable[Row], names: Container[str], renamed: Mapping[str, str] = {}) -> list[tuple[Row, Row]]:
    """Each row, ``finite``, and field -> its cell, without nulls.

    Args:
        rows: Of a table.
        names: The fields.
        renamed: Column -> the field that has another name.

    >>> typed([{"label": "x", "mean": 0.5, "n": None}], ("at", "mean", "n"), {"label": "at"})
    [({'label': 'x', 'mean': 0.5, 'n': None}, {'at': 'x', 'mean': 0.5})]
    """
    found: list[tuple[Row, Row]] = []
    for row in finite(rows):
        cells = ((renamed.get(name, name), cell) for name, cell in row.items() if cell is not None)
        found.append((row, {name: cell for name, cell in cells if name in names}))
    return found


def share(value: float) -> str:
    """A share as people write it: with the digits that they can use.

    >>> [share(value) for value in (0.3811, 0.0047, 0.0002, 0.0, 1.0, 0.99999)]
    ['38 %', '0.5 %', '0.02 %', '0 %', '100 %', '100 %']
    """
    percent = 100 * value
    if percent >= 10 or not value:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if percent >= 0.1 else f"{percent:.1g} %"


#: Begins the note of a row whose numbers cannot be trusted; the reason follows.
NOT_TRUSTED = "not trustworthy"


#: Is in the note of a row whose experiments have a value for different shares of their users.
OTHERS_LEFT_OUT = "the others are left out, so"
#: Below this p-value, the users do not follow the planned shares, and no verdict is given.
SMALL_RATIO_P = 0.001


def quoted(name: str) -> str:
    """A column name as SQL wants it, whatever characters it holds.

    >>> quoted("page.id"), quoted("a`b")
    ('`page.id`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"


#: Gives the column of ``user_metrics`` with the number of a user's lists that have a value of the metric of a column.
lists_with_value = f"{N_LISTS}_{{}}".format
#: Start of the columns of ``user_metrics`` with values under the labels of a machine.
MACHINE = "machine_"
#: Columns of ``user_metrics`` where a machine has judged all users: whether people have judged this one, and how many
#: items at the first ranks of a judged user have no judgement of people; the probability that people were to judge.
HAS_LABELS, TO_JUDGE, CHANCE = "judged", "n_to_judge", "judged_probability"
#: Ends of the columns of a percentile: itself, and its interval.
PERCENTILE_PARTS = ("", "_ci_low", "_ci_high")


def percentile_column(percentile: float) -> str:
    """The column of ``experiment_metrics`` with a percentile.

    >>> percentile_column(50), percentile_column(99.9)
    ('percentile_50', 'percentile_99_9')
    """
    return f"percentile_{percentile:.10g}".replace(".", "_")


def percentiles_in(columns: Iterable[str]) -> dict[str, str]:
    """Column of a percentile -> what people call it, of those among some columns.

    >>> percentiles_in(["mean", "percentile_50", "percentile_50_ci_low", "percentile_99_9"])
    {'percentile_50': '50 %', 'percentile_99_9': '99.9 %'}
    """
    matches = ((name, re.fullmatch(r"percentile_(\d+)(?:_(\d+))?", name)) for name in columns)
    return {name: f"{'.'.join(filter(None, each.groups()))} %" for name, each in matches if each}


def only_value(name: str) -> str:
    """SQL: the value that a column has in every row of a group; null if there are several."""
    return f"CASE WHEN min({name}) = max({name}) AND count({name}) = count(1) THEN min({name}) END"
