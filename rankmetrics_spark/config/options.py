"""What an evaluation is asked to do: one description for a config file, for Python and for the command line."""

# A section is frozen, so one default may serve every config.
# ruff: noqa: RUF009

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_type_hints

from rankmetrics_spark import errors as err, metrics as mx, schemas as sch, words
from rankmetrics_spark.config import fields as fd
from rankmetrics_spark.config.days import time_zone

#: ``auto`` chooses one of the layouts by the input; the others are the names in ``layouts``.
LayoutName: TypeAlias = Literal["auto", "masks", "relevant", "rows"]
DEFAULT_METRICS = ("ap@5", "ap@10", "ndcg@5", "ndcg@10")


def _read_metrics(path: str, value: object) -> tuple[mx.Metric, ...]:
    items = [value] if isinstance(value, mx.Metric) else fd.listed(path, value)
    if not items:
        raise fd.refuse(path, value, "at least one metric, such as ap@10")
    metrics: dict[mx.Metric, None] = {}
    for item in items:
        if not isinstance(item, (mx.Metric, str)):
            raise fd.refuse(path, item, "metric names such as ap@10")
        metrics[fd.parsed(path, mx.parse, item) if isinstance(item, str) else item] = None
    return tuple(metrics)


def _read_convention(path: str, value: object) -> mx.Convention:
    if not isinstance(value, (str, Mapping, mx.Convention)):
        raise fd.refuse(path, value, "a preset, or a mapping of knobs")
    return fd.parsed(path, mx.resolve, value)  # type: ignore[no-any-return]


def _combinations(path: str, value: object) -> tuple[tuple[str, ...], ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise fd.refuse(path, value, "a list of lists of segments, such as [[country, device]]")
    return tuple(dict.fromkeys(fd.names(f"{path}[{i}]", chosen) for i, chosen in enumerate(value)))


MOST_PERCENTILES = 20


def _read_percentiles(path: str, value: object) -> tuple[float, ...]:
    items = [value] if isinstance(value, (int, float)) else fd.listed(path, value)
    numbers: dict[float, None] = {}
    for item in items:
        size = mx.number_in(item)
        # Six digits after the point are as many as the name of a column shows.
        if not 0 < size < 100 or size != round(size, 6):
            raise fd.refuse(path, item, "numbers above 0 and below 100, such as 50 or 99.9")
        numbers[size] = None
    if len(numbers) > MOST_PERCENTILES:
        raise fd.refuse(path, value, f"at most {MOST_PERCENTILES} percentiles")
    return tuple(numbers)


PARTS = ("item", "position", "score", "relevance")


def _read_parts(path: str, value: object) -> tuple[str, ...]:
    parts = tuple(str(part) for part in fd.listed(path, value))
    err.check_known("part", parts, PARTS, path)
    if "item" not in parts or len({*parts}) < len(parts):
        raise fd.refuse(path, [*parts], f"each part once, item among them, out of {', '.join(PARTS)}")
    return parts


def _read_mark(path: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise fd.refuse(path, value, "a text of at least one character")
    return value


@dataclass(frozen=True)
class Packed(fd.Section, at="source.packed"):
    """How a cell of text holds several items: ``N1-1 N2-0`` has the separator ``" "`` and ``-`` between its parts.

    Attributes:
        separator: Between two items.
        parts: What an item consists of, in order.
        between: Between two parts; the first part may hold it too.
    """

    separator: str = fd.key(" ", _read_mark)
    parts: tuple[str, ...] = fd.key(("item",), _read_parts)
    between: str | None = fd.key(None, _read_mark)

    def __post_init__(self) -> None:
        """Checks the fields, then that parts can be told apart."""
        super().__post_init__()
        if (self.between is None) != (len(self.parts) == 1):
            raise self._refused("between", f"a text with several parts, and none with one; there are {len(self.parts)}")


@dataclass(frozen=True)
class PackedJudgements(Packed, at="judgements.packed"):
    """The same for judgements."""


EVENT_ROLES = ("list", *sch.EVENT_NAMES)


def _read_event_columns(path: str, value: object) -> dict[str, Any]:
    """Role -> column; those of lists are several."""
    if not isinstance(value, Mapping):
        raise fd.refuse(path, value, f"a mapping with keys out of {', '.join(EVENT_ROLES)}")
    if other := next((role for role in value if role not in EVENT_ROLES), None):
        raise err.ConfigError(f"{path}.{other}: {err.unknown('key', other, EVENT_ROLES)}")
    return {
        role: fd.names(f"{path}.list", column) if role == "list" else fd.text(f"{path}.{role}", column)
        for role, column in value.items()
        if column is not None
    }


_read_columns = fd.mapped(sch.LOG_ROLES, nullable=sch.LOG_ROLES.keys() - {"user", "items", "time"})
_read_assigned = fd.mapped({role: role for role in sch.ASSIGNMENT_NAMES}, nullable=("test", "time"))
_GRADE = fd.number(0, 1e6, inclusive=True)
_read_grades = fd.mapping("a mapping of kinds of events to grades, such as {click: 1, purchase: 3}", _GRADE)
_read_machine_grades = fd.mapping("a mapping of the machine's grades to people's, such as {2: 1}", _GRADE, key=_GRADE)


def _read_sample(path: str, value: object) -> str | Mapping[str, str]:
    names = ("column", "probability", "prompt")
    if isinstance(value, Mapping) and {"column"} <= {*value} <= {*names}:
        return {name: fd.text(f"{path}.{name}", value[name]) for name in names if name in value}
    if value != "random":
        raise fd.refuse(path, value, "random, or a mapping such as {column: drawn, probability: chance}")
    return "random"


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,6})\s*([smhd])")


def _read_duration(path: str, value: object) -> str:
    match = _DURATION.fullmatch(str(value).strip().lower())
    if match is None or not int(match[1]):
        raise fd.refuse(path, value, "a number of seconds, minutes, hours or days, such as 90s, 30m, 1h or 7d")
    return f"{match[1]}{match[2]}"


def microseconds(duration: str) -> int:
    """How long a duration is.

    >>> microseconds("1h")
    3600000000
    """
    return int(duration[:-1]) * _UNITS[duration[-1]] * 10**6


@dataclass(frozen=True)
class Options(fd.Section):
    """Everything an evaluation is asked to do; nothing here depends on the schema of the input.

    Every field has a default, and ``None`` stands for it. Each value is checked when the options are made, and so is
    every combination of fields. The fields are the keywords of ``evaluate``, with the same meaning.

    >>> options = Options("MAP@10, nDCG@10", columns={"user_id": "uid"}, list="request_id")
    >>> [str(metric) for metric in options.metrics], options.columns, options.list, options.rank_by
    (['ap@10', 'ndcg@10'], {'user': 'uid'}, ('request_id',), 'position')
    >>> Options(rank_by="scores")
    Traceback (most recent call last):
    rankmetrics_spark.errors.ConfigError: rank_by: unknown value 'scores'; did you mean 'score'? known: position, score

    Attributes:
        metrics: Names such as ``ap@10`` or ``ndcg@10``; each metric once.
        convention: A preset, or a mapping with ``preset`` and overrides.
        rank_by: By a column of ranks, or by score: the highest first.
        columns: Role -> column of the impressions.
        judgement_columns: Role -> column of the judgements.
        machine_columns: Role -> column of the machine's judgements.
        human_sample: How users whom people judged were drawn: ``random``, or ``{column: drawn, probability: chance}``.
        machine_grades: The machine's grade -> people's, if the scales differ.
        packed: How cells of text hold the items of a list.
        judgement_packed: How cells of text hold the items of a list.
        event_columns: Role (list, user, item, kind, time) -> column of the events.
        grades: Kind of event -> the grade that it gives to its impression.
        within: How long after its impression an event counts, such as ``1h``.
        assignment_columns: Role (test, arm, user, time) -> column of the assignments.
        time_zone: Where today starts and ends, and of times without an offset.
        list: Columns that tell a user's lists apart; a user's value is the mean over their lists.
        segments: Columns whose values split the averages.
        segment_combinations: Segments that split the averages together.
        covariate: A column with a number of each user from before the experiment.
        first_rank: What the column of ranks calls the first rank.
        confidence: Confidence level of the intervals.
        mean_over: Every user counts once (``users``), or every list (``lists``); errors are by user in both.
        cluster: A column whose values, such as households, were assigned as a whole: they are the units of errors, not
            users.
        only_changed: Compare only users whose lists differ between the two experiments; the effect over all users is
            shown too.
        trigger: A flag of the log, set where lists could differ: only users who have it are compared.
        percentiles: Percentiles of each metric over the users, such as ``[50, 90]``.
        unit: What one user stands for: ``query`` where a log has queries; texts say so.
        repeated_items: Which repeated items are found: ``relevant`` = those that could change a value, ``all``,
            ``ignore`` = none.
        layout: How lists travel; the values are the same, the cost is not.
        text_numbers: Numbers may come as text; text that is no number is a fault of its row.
        judged: Whether judgements are given.
        with_machine: Whether judgements of a machine are given in a table of their own.
        with_events: Whether events are given.
        with_assignments: Whether assignments are given.
    """

    metrics: tuple[mx.Metric, ...] = fd.key(DEFAULT_METRICS, _read_metrics, path="metrics")
    convention: mx.Convention = fd.key("standard", _read_convention, path="convention")
    rank_by: str = fd.key("position", fd.choice("position", "score"), path="rank_by")
    columns: Mapping[str, str | None] = fd.key({}, _read_columns, path="source.columns")
    judgement_columns: Mapping[str, str] = fd.key({}, fd.mapped(sch.JUDGED_ROLES), path="judgements.columns")
    machine_columns: Mapping[str, str] = fd.key({}, fd.mapped(sch.MACHINE_ROLES), path="machine_judgements.columns")
    human_sample: str | Mapping[str, str] | None = fd.key(None, _read_sample, path="judgements.human_sample")
    machine_grades: Mapping[float, float] = fd.key({}, _read_machine_grades, path="judgements.machine_grades")
    packed: Packed | None = fd.key(None, fd.section(Packed), path="source.packed")
    judgement_packed: PackedJudgements | None = fd.key(None, fd.section(PackedJudgements), path="judgements.packed")
    event_columns: Mapping[str, Any] = fd.key({}, _read_event_columns, path="events.columns")
    grades: Mapping[str, float] = fd.key({}, _read_grades, path="events.grades")
    within: str | None = fd.key(None, _read_duration, path="events.within")
    assignment_columns: Mapping[str, str | None] = fd.key({}, _read_assigned, path="assignments.columns")
    time_zone: str = fd.key("UTC", time_zone, path="time_zone")
    list: tuple[str, ...] = fd.key((), fd.names, path="source.list")
    segments: tuple[str, ...] = fd.key((), fd.names, path="source.segments")
    segment_combinations: tuple[tuple[str, ...], ...] = fd.key((), _combinations, path="source.segment_combinations")
    covariate: str | None = fd.key(None, fd.text, path="comparison.cuped.column")
    first_rank: int = fd.key(1, fd.count(0, 1), path="source.first_rank")
    confidence: float = fd.key(0.95, fd.number(0, 1, inclusive=False), path="comparison.confidence")
    mean_over: str = fd.key("users", fd.choice("users", "lists"), path="comparison.mean_over")
    cluster: str | None = fd.key(None, fd.text, path="comparison.cluster")
    only_changed: bool = fd.key(False, fd.flag, path="comparison.only_changed")
    trigger: str | None = fd.key(None, fd.text, path="comparison.trigger")
    percentiles: tuple[float, ...] = fd.key((), _read_percentiles, path="percentiles")
    unit: str = fd.key("user", fd.choice(*words.NOUNS), path="unit")
    repeated_items: str = fd.key("relevant", fd.choice("relevant", "all", "ignore"), path="quality.repeated_items")
    layout: str = fd.key("auto", fd.choice(*get_args(LayoutName)))
    text_numbers: bool = fd.key(False, fd.flag)
    judged: bool = fd.key(False, fd.flag)
    with_machine: bool = fd.key(False, fd.flag)
    with_events: bool = fd.key(False, fd.flag)
    with_assignments: bool = fd.key(False, fd.flag)
    #: Field -> what messages call it; by default a field is called by its own name.
    paths: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    #: What is read of the log to be stored: scores, intents; see ``sink.lists``.
    reads: tuple[str, ...] = ()

    if TYPE_CHECKING:
        # A field is stricter than what may be passed for it; ``evaluate`` has the types of its keywords.
        def __init__(self, metrics: object = None, **fields: object) -> None: ...

    def __post_init__(self) -> None:
        """Checks each field, then the combinations of fields.

        Raises:
            ConfigError: One sentence with the field, its value and what is allowed.
        """
        rule: object = self.convention
        super().__post_init__()
        if scored := [metric for metric in self.metrics if metric.needs == "scores" and self.lacks("score")]:
            at, columns = map(self.path_of, ("metrics", "columns"))
            raise err.ConfigError.of("metric_without_scores", at=at, metric=scored[0], columns=columns)
        _check_segments(self)
        _check_knobs(self, rule)
        fd.check_rules("labels", self, self.paths_of_fields())
        mx.check(self.metrics, self.convention)

    @property
    def combined_segments(self) -> tuple[tuple[int, ...], ...]:
        """``segment_combinations`` as indices of ``segments``."""
        return tuple(tuple(self.segments.index(name) for name in chosen) for chosen in self.segment_combinations)

    @property
    def machine(self) -> bool:
        """Whether a machine has judged all users, and people a sample of them."""
        return self.with_machine or "machine" in self.judgement_columns

    @cached_property
    def readers(self) -> tuple[tuple[str, str], ...]:
        """What messages call each metric, and each key of what is stored; and what it needs."""
        stored = ((f"sink.lists.{need}", need) for need in self.reads)
        return (*((f"metric '{each}'", each.needs) for each in self.metrics), *stored)

    @property
    def not_judged_twice(self) -> str:
        """The first metric that a machine does not judge, or that leaves lists out by their labels; empty if none."""
        return next((str(each) for each in self.metrics if {each.needs, each.name} & {*_NOT_JUDGED_TWICE}), "")

    @property
    def own_relevance(self) -> bool:
        """Whether the impressions are said to carry their relevance themselves."""
        return self.columns.get("relevance") not in (None, sch.GRADE_OF_EVENTS)

    @property
    def drawn_by(self) -> Mapping[str, str]:
        """Columns of users: ``column`` is true for whom people were to judge, with this ``probability``, and ``prompt``
        for whom the machine's prompt or grades were made with; as far as there are any.
        """
        return self.human_sample if isinstance(self.human_sample, Mapping) else {}

    def paths_of_fields(self) -> Mapping[str, str]:
        """Each field -> the name that the reader of a message wrote."""
        return {name: self.paths.get(name, name) for name in fd.field_names(type(self))}

    def lacks(self, role: str) -> bool:
        """Whether ``columns`` says that the impressions have no such column; one that is not mapped may be there.

        >>> options = Options(columns={"experiment": None})
        >>> options.lacks("experiment"), options.lacks("item")
        (True, False)
        """
        return self.columns.get(role, role) is None


#: Option -> its path in a config, if a config has it.
PATHS: Mapping[str, str] = {spec.name: spec.metadata["path"] for spec in fields(Options) if spec.metadata.get("path")}


def option(name: str) -> Any:
    """An option as a key of the section that its path is in."""
    return fd.key(**Options.__dataclass_fields__[name].metadata)


class SectionWithOptions(fd.Section):
    """A section that has the options whose paths are in it, declared or not."""

    def __init_subclass__(cls, at: str | None = None) -> None:
        super().__init_subclass__(at)
        for name, path in PATHS.items():
            at, _, last = path.rpartition(".")
            if at == cls.at and last not in vars(cls):
                cls.__annotations__[last] = get_type_hints(Options)[name]
                setattr(cls, last, option(name))


#: What metrics need that leave lists out by their labels, or that no machine judges; and such metrics.
_NOT_JUDGED_TWICE = ("intents", "shown_intents", "scores", "judged", "average_rank")


def _check_segments(options: Options) -> None:
    """Refuse segments that split the lists of a user, and combinations of other columns."""
    in_list = {name.lower() for name in options.list}
    if both := [name for name in options.segments if name.lower() in in_list]:
        at, lists = map(options.path_of, ("segments", "list"))
        raise err.ConfigError.of("segment_in_list", at=at, name=both[0], lists=lists)
    path = options.path_of("segment_combinations")
    for chosen in options.segment_combinations:
        if len(chosen) < 2:
            raise fd.refuse(path, list(chosen), "combinations of at least two segments")
        err.check_known("segment", chosen, options.segments, path)


def _check_knobs(options: Options, given: object) -> None:
    """Refuse knobs that were chosen, as ``given``, and that have no effect on this input."""
    # A knob that only its preset sets may have none.
    usual = mx.PRESETS.get(options.convention.preset, mx.STANDARD)
    chosen = {knob.name for knob in mx.knobs() if getattr(options.convention, knob.name) != getattr(usual, knob.name)}
    chosen |= set(given) if isinstance(given, Mapping) else set()
    values = {knob: getattr(options.convention, knob) for knob in chosen}
    path = options.path_of("convention")
    facts = {"rank_by": options.rank_by, "judged": options.judged}
    fd.check_rules("knobs", values | facts, {knob: f"{path}.{knob}" for knob in values})
