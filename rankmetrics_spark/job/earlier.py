"""What the comparisons of a run read of other days: users of its period, how often pairs were compared, a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date as day_of, datetime, timezone
from typing import Any, ClassVar, TypeAlias, TypeVar

from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from rankmetrics_spark import comparison, config as cfg, pointers as ptr, road, schemas as sch, sinks
from rankmetrics_spark.config import Comparison, Config, Days, OfTest, dates_in_words, key, tests
from rankmetrics_spark.errors import ConfigError, said
from rankmetrics_spark.gates import Counts
from rankmetrics_spark.pointers import History, LookNumbers, Pointer, Pointers
from rankmetrics_spark.schemas import OK, PRIMARY, WARN, Check
from rankmetrics_spark.words import UNIT, UNITS

Result = TypeVar("Result")
#: How often a period is read again because runs publish its days meanwhile.
ATTEMPTS = 4


@dataclass(frozen=True)
class Earlier:
    """What other runs have published that the comparisons of this run read.

    Attributes:
        days: The days that are compared as one, with that of this run; None = the day of this run alone.
        looks: (baseline, candidate, metric) -> the number of this look.
        users: One row per experiment and user over these days; None before ``with_users``, and without a period.
        dated: One row per experiment, user and date of them; None like ``users``.
        published: The rows of ``dated`` that other runs have stored; None if there are none.
        sums: What ``users`` are made of; stored where ``sink.user_states`` asks for it.
        state: What another run has stored of some of these days, if it holds.
        pointers: What is published on these days, without that of this run.
        seen: The other days that are published, as far as anything of this run reads them.
    """

    days: Days | None = None
    looks: LookNumbers = field(default_factory=ptr.unknown_looks)
    users: DataFrame | None = None
    dated: DataFrame | None = None
    published: DataFrame | None = None
    sums: DataFrame | None = None
    state: comparison.State | None = None
    pointers: Pointers = field(default_factory=dict)
    seen: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: sinks.Store, config: Config) -> Earlier:
        """What is published now.

        Raises:
            ConfigError: A day of the period is published under another convention, or a gate needs a segment that the
                period does not have.
        """
        request, date, period = config.comparison, config.evaluation_date, config.comparison.period
        if not request.is_requested:
            return cls()
        pointers = store.pointers()
        seen = sorted(day for day in pointers if day < date)
        if period is None:
            return cls(looks=History.before(date, pointers), seen=tuple(seen))
        # The assignments of a run are those up to its day, and so are the days that it compares.
        last = date if config.assignments else period.last
        others = {day: pointers[day] for day in pointers if period.first <= day <= last and day != date}
        own = config.convention
        under: dict[str, list[str]] = {}
        for day, pointer in others.items():
            names = {each.convention["name"] for each in pointer.entries if each.convention["hash"] != own.digest()}
            for name in names:
                under.setdefault(name, []).append(day)
        for name, other_days in under.items():
            table, dates = store.name_of("user_metrics"), dates_in_words(other_days)
            raise ConfigError.of("days_of_two_conventions", table=table, dates=dates, name=name, own=own.name)
        for gate in config.every_gate:
            if gate.compares and gate.segment != sch.EVERYONE and config.source.list:
                raise ConfigError.of("gate_on_segment_of_period", metric=gate.metric, segment=gate.segment, units=UNITS)
        used = sorted({date, *others})
        # Days that have not come yet are not missing.
        days = Days(period.first, used[-1], tuple(used))
        # A day in the middle is compared with what later days have looked at already, run again or not.
        looks = History.before(days.last, pointers, period.first, own=date)
        return cls(days, looks, pointers=others, seen=tuple(sorted({*seen, *others})))

    def with_users(
        self, store: sinks.Store, tables: road.Tables, rows: DataFrame, config: Config, counts: Counts
    ) -> Earlier:
        """The users of the period, lazily: those of the published days, and ``rows`` for the day of the run.

        Only experiments of this run are compared; what is published of them on its day is about to be replaced. With
        assignments that have times, the lists of a stored day count in each test as the assignments are now.
        """
        assert self.days is not None
        plan = tables.plan
        weights = [sch.lists_with_value(metric.column) for metric in plan.scoring.metrics]
        own = self._of_day(plan, rows, config)
        fields = [field for field in own.schema.fields if field.name not in (*sch.PARTITION, *weights)]
        schema = T.StructType([*fields, *(T.StructField(name, T.LongType()) for name in weights)])
        names = [name for name in _names(counts) if name is not None]
        parted: dict[str, Pointer] = {}
        if tables.assigned and tables.assigned.asked.timed:
            parted = {date: each for date, each in self.pointers.items() if has_user_days(each, names)}
        others = {date: each for date, each in self.pointers.items() if date not in parted}
        published = store.days("user_metrics", others, schema)
        if published is not None:
            published = comparison.of_experiments(published, _names(counts))
            if tables.assigned:
                published = published.join(tables.assigned.users, [sch.EXPERIMENT, sch.USER], "left_semi")
        times = [T.StructField(name, T.LongType()) for name in (sch.SINCE, sch.UNTIL)]
        parts = store.days(sch.USER_DAYS, parted, T.StructType([*schema.fields, *times]))
        if parts is not None and tables.assigned:
            of_arms = tables.assigned.since_exposure(parts).where(F.col(sch.EXPERIMENT).isin(names))
            days = comparison.period_rows(of_arms, self.days, daily=True).drop(sch.N_DAYS, sch.FIRST_DATE)
            published = days if published is None else days.unionByName(published, allowMissingColumns=True)
        earlier, state = replace(self, published=published).with_day(plan, rows, config), None
        assert earlier.dated is not None
        if not config.assignments:
            state = comparison.State.of(earlier.dated, self.days, self.pointers, store.days, _names(counts))
        sums = comparison.period_sums(earlier.dated, self.days, state=state)
        if has_state := self.has_state(config):
            sums = store.stage(sums, "states")
        users = comparison.period_means(sums)
        return replace(earlier, users=users, state=state, sums=sums if has_state else None)

    def has_state(self, config: Config) -> bool:
        """Whether this run stores what its users had over the period: on every n-th day of it."""
        every, days = config.sink.user_states, self.days
        return every is not None and days is not None and replace(days, last=config.evaluation_date).length % every == 0

    def with_day(self, plan: road.Plan, rows: DataFrame, config: Config) -> Earlier:
        """The same published days, with these rows for the day of the run."""
        own = self._of_day(plan, rows, config)
        if self.published is None:
            return replace(self, dated=own)
        return replace(self, dated=own.unionByName(self.published, allowMissingColumns=True))

    @staticmethod
    def _of_day(plan: road.Plan, rows: DataFrame, config: Config) -> DataFrame:
        """What comparisons read of the day of the run."""
        metrics = [metric.column for metric in plan.scoring.metrics]
        described = (*plan.public_segments.values(), plan.public_covariate, plan.public_cluster, plan.public_trigger)
        read = {sch.EXPERIMENT, sch.USER, sch.N_LISTS, sch.N_RELEVANT, *described, *metrics}
        read |= {*map(sch.lists_with_value, metrics)}
        # As other readers of the period need them.
        read |= {sch.N_SHOWN, sch.N_REPEATED} if config.sink.user_states else {*()}
        own = rows.select(*(sch.quoted(name) for name in rows.columns if name in read))
        return own.withColumn(sch.DATE, F.lit(config.evaluation_date))

    def runs(self, counts: Counts) -> dict[str, tuple[str, ...]]:
        """Date -> the other runs with experiments of this run, or the days of users; empty without a period."""
        runs: dict[str, tuple[str, ...]] = {}
        for date, pointer in sorted(self.pointers.items()):
            names = {*_names(counts), *[None] * has_user_days(pointer, _names(counts))}
            runs[date] = tuple(entry.run_id for entry in pointer.entries if names & {*entry.experiments})
        return {date: ids for date, ids in runs.items() if ids}

    def settled(self, store: sinks.Store, config: Config, work: Callable[[Earlier], Result]) -> Result:
        """What is computed from these days.

        If a run replaces a day while it is read, reading fails, since the earlier files are gone. The work is then
        repeated with what is published now. A day that is replaced after it was read counts as it was.
        """
        earlier = self
        for _ in range(ATTEMPTS):
            try:
                return work(earlier)
            except Exception:  # each kind of session has a class of its own for a file that is gone
                now = Earlier.of(store, config)
                if now.pointers == earlier.pointers:
                    raise
                earlier = now
        return work(earlier)

    def notes(self, plan: road.Plan) -> list[str]:
        """What a reader of the comparisons has to know of the period."""
        notes: list[str] = []
        if self.days is None:
            return []
        if plan.columns.list and plan.columns.segments:
            notes.append(said("period_of_all", unit=UNIT, units=UNITS))
        described = () if plan.columns.list else plan.public_segments.values()
        return [*notes, *comparison.uneven_columns(plan.scoring.metrics, described, self.pointers, self.days.dates)]

    def as_record(self, counts: Counts) -> dict[str, Any]:
        """The period for the run record; empty without one."""
        if self.days is None:
            return {}
        days, runs = self.days, {date: [*ids] for date, ids in self.runs(counts).items()}
        period = {sch.PERIOD_FROM: days.first, sch.PERIOD_TO: days.last, "days": [*days.dates]}
        state = {"state": self.state.date} if self.state else {}
        return period | {"missing": [*days.missing], "runs": runs} | state


def has_user_days(pointer: Pointer, names: Iterable[str | None] = ()) -> bool:
    """Whether what is published on a date holds the values of users whatever their tests.

    Of another run they may be those of another log, so they do not count for the experiments of this date.
    """
    entries = (each for each in pointer.entries if None in each.experiments)
    run = next((each.run_id for each in entries if each.tables.get(sch.USER_DAYS, {}).get("rows")), None)
    run_of = pointer.run_of()
    return run is not None and all(run_of.get(name, run) == run for name in names)


def _names(counts: Counts) -> list[str | None]:
    """The experiments with lists, as a pointer and a partition have them."""
    return [name or None for name, count in counts.items() if count["lists"]]


# ---- a plan that was written down before the first look: what was to decide, and how a run differs from it

#: Test -> what is compared in it, and its experiments that have lists; all are of "" where there are no tests.
Parts: TypeAlias = Mapping[str, tuple[Comparison, list[str]]]


@dataclass(frozen=True)
class _Plan(Comparison):
    """The keys of ``comparison``, and what else a plan says."""

    at: ClassVar[str] = ""

    end: str | None = key(None, cfg.day, "Last day of the log.")
    segments: tuple[str, ...] = key((), cfg.names, "Columns whose values split the users.")
    exclusions: str | None = key(None, cfg.text, "The filter of the log, as ``source.where`` has it.")
    tests: Mapping[str, OfTest] = key({}, tests, "Name of a test -> what it has of its own, as a config has it.")


def register(plan: Mapping[str, Any], output: str) -> dict[str, Any]:
    """Write down what will decide the comparisons of an output; return what was written.

    Args:
        plan: Keys of ``comparison``, ``convention``, ``metrics`` and others of a config, and ``end``, ``segments``,
            ``exclusions``, ``tests``; what it leaves out binds nobody.
        output: Folder of the runs.

    Raises:
        ConfigError: A key or a value is not allowed, it has no primary metric, or the output has a plan.
    """
    section = _Plan.read(plan)
    open_tests = [f"the test '{name}' of the plan" for name, own in section.tests.items() if not own.primary]
    for what in () if section.primary else open_tests or ["the plan"] * (not section.tests):
        raise ConfigError(f"{what} has no primary metric; allowed: such as primary: [ndcg@10]")
    begins = [section.period.first] if section.period else [own.first or "" for own in section.tests.values()]
    if any((section.end or "~") < first < "{" for first in begins):  # {date} is any day
        raise cfg.refuse("end", section.end, f"a day from {max(begins)} on, the first one of what is compared")
    known, files = cfg.as_dict(section), sinks.files_of(output)
    given = {name: own or {} for name, own in (plan.get("tests") or {}).items()}
    known["tests"] = {name: {each: known["tests"][name][each] for each in own} for name, own in given.items()}
    if (earlier := files.read(ptr.PLAN)) is not None:
        raise ConfigError.of("plan_is_there", output=output, day=json.loads(earlier)["registered"][:10])
    pointers = sinks.pointers_of(None, files.root) if files.local else {}
    looks = sorted(each for each, pointer in pointers.items() if any(entry.compared for entry in pointer.entries))
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    document = {"registered": now, "looks_before": looks, "plan": {name: known[name] for name in plan}}
    files.write(ptr.PLAN, ptr.sealed(document))
    return document


def checks_of_plan(spark: SparkSession, config: Config, started: str, looks: LookNumbers, parts: Parts) -> list[Check]:
    """Whether a run decides as was registered: a row for each experiment with lists; none without a plan.

    Args:
        spark: The session.
        config: The config.
        started: When the run has started: a plan that came later is none of the run.
        looks: The numbers of the looks.
        parts: What is compared.
    """
    texts = sinks.plan_texts(spark, config.sink.path, started) if config.comparison.is_requested else []
    if not texts:
        return []
    document, on, before = json.loads(texts[0]) if ptr.is_sealed(texts[0]) else None, "", []
    if document:
        on = f" on {document['registered'][:10]}"
        before = [f"the plan came after the first published look, of {day}" for day in document["looks_before"][:1]]
    checks = []
    for test, (own, experiments) in parts.items():
        found = [f"{ptr.PLAN} is not as it was written"]
        if document:
            found = [*before, *_deviations(document["plan"], test, config, own, looks, experiments)]
        sentence = f"not as registered{on}: {'; '.join(found)}" if found else f"as registered{on}"
        sentence = f"{test}: {sentence}" if test else f"{sentence[0].upper()}{sentence[1:]}"
        checks += [Check(ptr.REGISTERED, WARN if found else OK, sentence, name) for name in experiments if name]
    return checks


def _deviations(
    plan: Mapping[str, Any], test: str, config: Config, own: Comparison, looks: LookNumbers, experiments: list[str]
) -> Iterator[str]:
    whole = cfg.as_dict(config)
    now = whole | whole["comparison"] | {"segments": [*config.source.segments], "exclusions": config.source.where}
    if test:
        if test not in plan.get("tests", {test: {}}):
            yield "the plan has no test of this name"
        plan = {**plan, **plan.get("tests", {}).get(test, {})}
        now |= {name: value for name, value in whole["tests"].get(test, {}).items() if value is not None}
    elif "tests" in plan:
        yield "the plan is one of tests, and the run has none"
    deciding = [*map(str, own.primary)] or [name for name, role in own.roles(config.metrics).items() if role == PRIMARY]
    now["primary"] = deciding
    for name, value in plan.items():
        filled = cfg.dated(value, config.evaluation_date) if name in ("exclusions", "period") else value
        pair = filled, now.get(name)
        # Lists say the same in any order.
        both = (sorted(each, key=str) if isinstance(each, list) else each for each in pair)
        if name == "shares":  # in any unit
            both = (each and {arm: round(of / sum(each.values()), 9) for arm, of in each.items()} for each in pair)
        then, here = (json.dumps(each, ensure_ascii=False, sort_keys=True) for each in both)
        if then != here and name not in ("end", "tests"):
            what = "another metric decides: " if name == "primary" else ""
            yield f"{what}{name} is {here}, registered is {then}"
    planned = plan.get("looks", "any")
    pairs = [(base, name) for base in ([own.baseline] if own.baseline else experiments) for name in experiments]
    numbers = (looks.get((str(base), name, metric)) or 1 for base, name in pairs for metric in deciding)
    most = 1 if planned == "one" else planned["planned"] if isinstance(planned, dict) else None
    more = max(numbers, default=1) - most if most else -1
    if more > 0:
        yield f"{more} look{'s' * (more > 1)} more than the {most} registered"
    if end := plan.get("end") or plan.get("to"):
        last = config.evaluation_date
        days = (day_of.fromisoformat(last) - day_of.fromisoformat(end)).days
        if days > 0 or (days < 0 and more >= 0):  # the last look
            by = f"{abs(days)} day{'s' * (abs(days) > 1)} {'after' if days > 0 else 'before'}"
            yield f"it ends on {last}, {by} the registered end, {end}"
