"""Who is in which arm of which test, since when: the lists of a log as those of experiments.

A list is scored once. It belongs to each test that its user is in, from the user's first exposure on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from rankmetrics_spark import config as cfg, schemas as sch
from rankmetrics_spark.engines import AnyTable, Batches, few_rows, in_one_step, rows_of, table_of
from rankmetrics_spark.errors import ConfigError, InputError, unknown
from rankmetrics_spark.road import checking, events

_TEST, _ARM, _USER, _SINCE, _UNTIL = "_test", "_arm", "_member", "_since", "_until"
_FAULTY, _OTHER_ARM, _N, _OF_ARM = "_no_assignment", "_other_arm", "_n", "_experiment"
_ARMS = {
    **{_TEST: "string", _ARM: "string", sch.EXPERIMENT: "string", _FAULTY: "long"},
    **dict.fromkeys((sch.N_ASSIGNED, _N, "_from", _UNTIL, "_high", "_low"), "long"),
}


@dataclass(frozen=True)
class Asked:
    """What is asked of assignments: which arms are compared, on which day; whether they name tests, and times."""

    compared: cfg.Comparison
    zone: str
    day: str | None
    by_test: bool
    timed: bool


#: Stores rows under a name, and reads them back.
Keep: TypeAlias = Callable[[DataFrame, str], DataFrame]


def with_assignments(
    log: DataFrame, assignments: AnyTable, options: cfg.Options, compared: cfg.Comparison, day: str | None, keep: Keep
) -> "tuple[cfg.Options, Assigned]":
    """The users of the tests, and the options of a log that names no experiments.

    Args:
        log: Its impressions.
        assignments: A row per user and arm; the first exposure of several counts.
        options: What is asked for.
        compared: Which arms are compared.
        day: The day of the log; later assignments do not count. None = all do.
        keep: Stores rows under a name.

    Raises:
        InputError: A column is missing, or a time is none; the impressions name experiments too.
        ConfigError: The assignments have times, and the log has none.
    """
    named, usual, path = options.assignment_columns, sch.ASSIGNMENT_NAMES, options.path_of("assignment_columns")
    table = table_of(assignments, "assignments", named.values(), sum(usual.values(), ()), log)
    columns = options.path_of("columns")
    if "experiment" not in options.columns and (own := events.first_of(log, (sch.EXPERIMENT, "experiment"))):
        raise InputError.of("two_assignments", own=own, columns=columns)
    role = {name: named[name] if name in named else events.first_of(table, names) for name, names in usual.items()}
    at = role[sch.TIME]
    asked = Asked(compared, options.time_zone, day, role["test"] is not None, at is not None)
    if at and not options.columns.get(sch.TIME):
        raise ConfigError.of("time_of_log_missing", columns=columns, at=at, path=path)
    if asked.by_test and options.cluster:
        raise ConfigError.of("cluster_in_arms", at=options.path_of("cluster"), path=path)
    if (cuped := compared.cuped) and cuped.before and not at:
        raise ConfigError.of("no_time_of_exposure", at=cuped.path_of("before"), path=path)
    days = [name for name, own in compared.tests.items() if own.first or own.last]
    for wrong, what in ((compared.tests and not asked.by_test, "test"), (days and not at and day is None, "time")):
        if wrong:
            name = "tests is" if what == "test" else f"the days of tests.{days[0]} are"
            raise ConfigError(f"{name} given, and the assignments have no column of {what}s; allowed: a {path}.{what}")
    ids = [role["test"]] * asked.by_test + [role["arm"] or "arm", role["user"] or sch.USER]
    found = events.aligned(table, [name for name in ids if name], at, asked.zone, "assignments")
    sql = dict(zip((_SINCE, _USER, _ARM, _TEST), found[::-1], strict=False))
    faulty = [f"{_SINCE} IS NULL"] * asked.timed + [f"coalesce({name}, '') = ''" for name in sql if name != _SINCE]
    sql.setdefault(_TEST, "string(null)")
    rows = table.selectExpr(*(f"{each} AS {name}" for name, each in sql.items()))
    rows = rows.selectExpr("*", f"{' OR '.join(faulty)} AS {_FAULTY}")
    if asked.timed and day is not None:
        rows = rows.where(f"{_FAULTY} OR {_SINCE} < {cfg.start_of(day, asked.zone, 1)}L")
    return replace(options, columns={**options.columns, "experiment": None}), Assigned.of(rows, asked, keep)


@dataclass(frozen=True)
class Assigned:
    """The users of the tests.

    Attributes:
        arms: A row per test and arm with its users, their number, and the days of the test; without an arm, the users
            of several arms of the test; and the faulty assignments. Reading it refuses what cannot be compared.
        experiments: The arms that are experiments of the day.
        members: A row per test and user of one arm: experiment, user, first exposure.
        asked: What is asked of them.
    """

    arms: DataFrame
    experiments: DataFrame
    members: DataFrame
    asked: Asked

    @classmethod
    def of(cls, rows: DataFrame, asked: Asked, keep: Keep) -> "Assigned":
        """The users of typed assignments; ``keep`` stores rows under a name."""
        # Faulty rows are one group, without a user. Arms are numbers, since Spark sorts to find the smallest text. No
        # user is null: to look for null would keep Spark from reading one exchange for arms and members.
        seen = rows.where(f"NOT {_FAULTY}").groupBy(_TEST, _ARM).agg(F.expr(f"count(1) AS {_N}"))
        named = partial(in_one_step, body=partial(_arms, asked=asked), kinds=_ARMS)
        keys = {_TEST: _TEST, _USER: _USER, _ARM: f"xxhash64({_ARM})"}
        keys = {name: f"CASE WHEN NOT {_FAULTY} THEN {sql} END" for name, sql in keys.items()}
        keys |= {_USER: f"coalesce({keys[_USER]}, '')", _SINCE: _SINCE}
        first = {_ARM: f"min({_ARM})", _OTHER_ARM: f"max({_ARM})", _SINCE: f"min({_SINCE})", _N: "count(1)"}
        # Without tests, the test is null; by <=>, Sail would compare each user with every arm of the same name.
        of_arm = f"coalesce({_TEST}, '') AS _test_of_arm", f"xxhash64({_ARM}) AS _hash_of_arm"
        same_arm = F.expr(f"coalesce({_TEST}, '') = _test_of_arm AND {_ARM} = _hash_of_arm")
        of_one_arm = f"{_ARM} = {_OTHER_ARM}"

        def users_of(*read: str) -> DataFrame:
            """A row per test and user; those of a user lie together, as the lists that they are joined to will."""
            by_user = rows.selectExpr(*(f"{sql} AS {name}" for name, sql in keys.items()), *read).repartition(_USER)
            firsts = (F.expr(f"{sql} AS {name}") for name, sql in first.items())
            return by_user.groupBy(_TEST, _USER).agg(*firsts, *(checking.sums_of_hashes(sch.DIGEST) if read else ()))

        def arms_of(users: DataFrame) -> DataFrame:
            """A row per test and arm; it reads all columns of the exchange, as members do."""
            own = f"CASE WHEN {of_one_arm} THEN {_ARM} END AS {_ARM}"
            sums = [name for name in (_N, "_high", "_low") if name in users.columns]
            by_arm = users.selectExpr(f"bigint({_USER} = '') AS {_FAULTY}", _TEST, own, _SINCE, *sums)
            counts = {sch.N_ASSIGNED: "count(1)", _SINCE: f"max({_SINCE})", **{name: f"sum({name})" for name in sums}}
            counted = by_arm.groupBy(_FAULTY, _TEST, _ARM).agg(*(F.expr(f"{sql} AS {n}") for n, sql in counts.items()))
            names = F.broadcast(seen.selectExpr(*of_arm, f"{_ARM} AS _name_of_arm"))
            others = [name for name in counted.columns if name != _ARM]
            return named(counted.join(names, same_arm, "left").selectExpr(*others, f"_name_of_arm AS {_ARM}"))

        users = keep(users_of(f"{checking.hash_of((_TEST, _USER, _ARM, _SINCE))} AS {sch.DIGEST}"), "assigned")
        arms = known = experiments = keep(counted := arms_of(users), "arms")
        if arms is counted:
            # Nothing is stored: names come from the rows, which no query groups once more, or digests, for them.
            users = users_of()
            experiments = arms_of(users)
            known = named(seen.selectExpr(f"0L AS {_FAULTY}", _TEST, _ARM, f"0L AS {sch.N_ASSIGNED}", _N))
        experiments, known = (table.where(f"{sch.EXPERIMENT} IS NOT NULL") for table in (experiments, known))
        known = F.broadcast(known.selectExpr(*of_arm, f"{sch.EXPERIMENT} AS {_OF_ARM}", "_from", _UNTIL))
        # The few arms first: Sail looks up the rows of the second table in a hash table of the first.
        members = known.join(users.where(of_one_arm), same_arm)
        since = f"greatest({_SINCE}, _from) AS {_SINCE}"
        return cls(arms, experiments, members.selectExpr(_OF_ARM, _USER, since, _UNTIL), asked)

    @property
    def users(self) -> DataFrame:
        """The experiment and the user of each membership."""
        return self.members.selectExpr(f"{_OF_ARM} AS {sch.EXPERIMENT}", f"{_USER} AS {sch.USER}")

    def of_arms(self, lists: DataFrame) -> DataFrame:
        """Lists, and groups of faulty rows, as those of experiments: one in several tests is there for each.

        Without an experiment are those of users who are in no test, or not yet. A faulty row counts for all tests of
        its user, since it may have no time.
        """
        is_time = f"{sch.TIME} >= {_SINCE} AND {sch.TIME} < {_UNTIL}" if sch.TIME in lists.columns else "true"
        is_faulty = f"{sch.REJECTED} IS NOT NULL OR " if sch.REJECTED in lists.columns else ""
        joined = lists.join(self.members, F.expr(f"{sch.USER} = {_USER} AND ({is_faulty}({is_time}))"), "left")
        names = (f"{_OF_ARM} AS {sch.EXPERIMENT}" if name == sch.EXPERIMENT else name for name in lists.columns)
        return joined.selectExpr(*names)

    def of_all_arms(self, lists: DataFrame) -> DataFrame:
        """Lists that are in an arm, each once, with an array of the experiments that it counts in."""
        own = f"collect_list(struct({_OF_ARM}, {_SINCE}, {_UNTIL})) AS {_OF_ARM}"
        joined = lists.join(self.members.groupBy(_USER).agg(F.expr(own)), F.expr(f"{sch.USER} = {_USER}"))
        is_time = f"{sch.TIME} >= arm.{_SINCE} AND {sch.TIME} < arm.{_UNTIL}"
        of_arm = f"filter({_OF_ARM}, arm -> {is_time})" if sch.TIME in lists.columns else _OF_ARM
        own = f"transform({of_arm}, arm -> arm.{_OF_ARM}) AS {sch.EXPERIMENT}"
        return joined.selectExpr(*(own if name == sch.EXPERIMENT else name for name in lists.columns))

    def parted(self, lists: DataFrame) -> DataFrame:
        """The lists of the day, not later ones; as experiment, when their part starts and ends: exposures, midnight."""
        assert self.asked.day is not None
        starts, ends = (cfg.start_of(self.asked.day, self.asked.zone, n) for n in (0, 1))
        of_day = self.members.where(f"{_SINCE} > {starts}L AND {_SINCE} < {ends}L").groupBy(_USER)
        exposures = of_day.agg(F.expr(f"collect_set({_SINCE}) AS _exposures"))
        joined = lists.where(f"{sch.TIME} < {ends}L").join(exposures, F.expr(f"{sch.USER} = {_USER}"), "left")
        last, following = (f"array_{end}(filter(_exposures, exposure -> exposure {so} {sch.TIME}))"
                           for end, so in (("max", "<="), ("min", ">")))  # fmt: skip
        part = f"concat(coalesce({last}, {starts}L), ' ', coalesce({following}, {ends}L)) AS {sch.EXPERIMENT}"
        return joined.selectExpr(*(part if name == sch.EXPERIMENT else name for name in lists.columns))

    def before(self, parts: DataFrame, dates: Iterable[str], days: int) -> DataFrame:
        """The parts of ``user_days`` from so many days before the exposure of their user to each test, with the arm."""
        last = (f"WHEN '{date}' THEN {cfg.start_of(date, self.asked.zone, days + 1)}L" for date in dates)
        return self._of_tests(parts, f"{sch.UNTIL} <= {_SINCE} AND {_SINCE} < CASE {sch.DATE} {' '.join(last)} END")

    def since_exposure(self, parts: DataFrame) -> DataFrame:
        """The parts of ``user_days`` from the exposure of their user to each test on, with the arm."""
        return self._of_tests(parts, f"{sch.SINCE} >= {_SINCE} AND {sch.SINCE} < {_UNTIL}")

    def _of_tests(self, parts: DataFrame, when: str) -> DataFrame:
        joined = parts.join(self.members, F.expr(f"{sch.USER} = {_USER} AND {when}"))
        columns = (sch.quoted(name) for name in parts.columns if name not in (sch.EXPERIMENT, sch.SINCE, sch.UNTIL))
        return joined.selectExpr(f"{_OF_ARM} AS {sch.EXPERIMENT}", *columns)

    def with_counts(self, means: DataFrame) -> DataFrame:
        """``experiment_metrics`` with the test and the number of assigned users."""
        counts = self.experiments.selectExpr(f"{sch.EXPERIMENT} AS {_OF_ARM}", _TEST, sch.N_ASSIGNED)
        joined = means.join(F.broadcast(counts), F.expr(f"{sch.EXPERIMENT} = {_OF_ARM}"), "left")
        return joined.selectExpr(*map(sch.quoted, means.columns), f"{_TEST} AS {sch.TEST_NAME}", sch.N_ASSIGNED)

    def counts(self) -> "AssignmentCounts":
        """What was counted of the assignments, in a small job."""
        tests: dict[str | None, dict[str, Any]] = {}
        rows = sorted(few_rows(self.arms), key=lambda row: (row[_TEST] or "", row[_ARM] or ""))
        faulty = sum(row[_N] for row in rows if row[_FAULTY])
        for row in (row for row in rows if not row[_FAULTY]):
            test = tests.setdefault(row[_TEST], {"mixed": 0, "arms": {}})
            if row[_ARM] is None:
                test["mixed"] = int(row[sch.N_ASSIGNED])
            else:
                test["arms"][row[sch.EXPERIMENT]] = int(row[sch.N_ASSIGNED])
        n = sum(row[_N] for row in rows)
        again = sum(row[_N] - row[sch.N_ASSIGNED] for row in rows if row[_ARM] is not None)
        return AssignmentCounts(int(n), int(faulty), int(again), tests, checking.digest_of(*rows))


@dataclass(frozen=True)
class AssignmentCounts:
    """What was counted of the assignments.

    Attributes:
        rows: All that count for the day, faulty ones too.
        faulty: Rows without a test, an arm, a user or a time.
        repeated: Rows of a user in an arm once more.
        tests: Test, or None where there are only arms -> ``mixed``, the users of several arms, and ``arms``, the users
            of each experiment.
        digest: The sum of the hashes of the rows: test, user, arm and time.
    """

    rows: int
    faulty: int
    repeated: int
    tests: Mapping[str | None, Mapping[str, Any]]
    digest: str = ""

    @property
    def mixed_rate(self) -> float | None:
        """Share of the users of tests who are in several arms of theirs; None without users."""
        mixed = sum(test["mixed"] for test in self.tests.values())
        total = mixed + sum(sum(test["arms"].values()) for test in self.tests.values())
        return mixed / total if total else None

    def as_record(self) -> dict[str, Any]:
        """The entry of the run record."""
        tests = {test or "": counts for test, counts in self.tests.items()}
        return {"rows": self.rows, "faulty": self.faulty, "repeated": self.repeated, "tests": tests}


def _arms(batches: Batches, asked: Asked) -> Iterator[pa.RecordBatch]:
    """The arms with their experiments; refuses names and settings that do not fit them."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    arms: dict[str | None, list[str]] = {}
    for row in (row for row in rows if not row[_FAULTY]):
        for what, name in (("test", row[_TEST]), ("arm", row[_ARM])):
            if asked.by_test and name is not None and sch.NAME_OF_ARM in name:
                raise InputError.of("colon_in_name", what=what, name=name)
        arms.setdefault(row[_TEST], []).extend([row[_ARM]] if row[_ARM] is not None else [])
    _refuse_names(arms, asked.compared, asked.by_test, asked.day)
    own = {name: asked.compared.tests.get(name or "", cfg.OfTest()) for name in arms}
    rows = [row for row in rows if row[_FAULTY] or own[row[_TEST]].is_on(asked.day)]
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in _ARMS}
    for at, row in enumerate(rows):
        if row[_ARM] is not None:
            prefix = "" if row[_TEST] is None else row[_TEST] + sch.NAME_OF_ARM
            columns[sch.EXPERIMENT][at] = prefix + row[_ARM]
        # Without times, the day of the run alone says whether a test is on.
        test = own.get(row[_TEST]) if asked.timed else None
        columns["_from"][at] = cfg.start_of(test.first, asked.zone) if test and test.first else -(2**62)
        columns[_UNTIL][at] = cfg.start_of(test.last, asked.zone, 1) if test and test.last else 2**62
    yield from rows_of(columns, _ARMS)


def _refuse_names(
    arms: Mapping[str | None, list[str]], compared: cfg.Comparison, by_test: bool, day: str | None
) -> None:
    """Refuse a test of the day or an arm that is named and not there, and an arm that its planned shares leave out."""
    for name, own in compared.tests.items():
        if name not in arms and own.is_on(day):
            later = f"; of one that starts later, tests.{name}.from says when"
            raise ConfigError(f"tests: {unknown('test', name, sorted(map(str, arms)))}{later}")
    every = sorted({arm for known in arms.values() for arm in known})
    if absent := [name for name in compared.candidates if every and name not in every]:
        raise ConfigError(f"{compared.path_of('candidates')}: {unknown('arm', absent[0], every)}")
    for test, known in sorted(arms.items(), key=lambda pair: pair[0] or ""):
        own = compared.tests.get(test or "", cfg.OfTest())
        if not known or not own.is_on(day):
            continue
        at, of = (f"tests.{test}", f"the test '{test}'") if by_test else (compared.at, "the assignments")
        shares = own.shares or compared.shares or {}
        named = ("baseline", [own.baseline or compared.baseline]), ("shares", [*shares])
        for key, names in (*named, ("gates", [gate.experiment for gate in own.gates])):
            if gone := [arm for arm in names if arm is not None and arm not in known]:
                said = f"{at if getattr(own, key) else compared.at}.{key}"
                raise ConfigError.of("no_such_arm", of=of, arm=gone[0], said=said, at=f"{at}.{key}", arms=sorted(known))
        if shares and (left := sorted({*known} - {*shares})):
            raise ConfigError(f"{at}.shares has no share of the arm '{left[0]}'; allowed: one of each arm of {of}")
