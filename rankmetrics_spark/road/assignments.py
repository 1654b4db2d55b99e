"""Who is in which arm of which test, since when: the lists of a log as those of experiments.

A list is scored once. It belongs to each test that its user is in, from the user's first exposure on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from rankmetrics_spark import config as cfg
from rankmetrics_spark import schemas as sch
from rankmetrics_spark.engines import Batches, few_rows, in_one_step, rows_of
from rankmetrics_spark.errors import ConfigError, InputError, unknown
from rankmetrics_spark.road.events import aligned, first_of

_TEST, _ARM, _USER, _SINCE, _UNTIL = "_test", "_arm", "_member", "_since", "_until"
_FAULTY, _OTHER_ARM, _N, _OF_ARM = "_no_assignment", "_other_arm", "_n", "_experiment"
_ARMS = {
    **{_TEST: "string", _ARM: "string", sch.EXPERIMENT: "string", _FAULTY: "long"},
    **dict.fromkeys((sch.N_ASSIGNED, _N, "_from", _UNTIL), "long"),
}
_SAME_ARM = f"{_TEST} <=> _test_of_arm AND {_ARM} = _name_of_arm"


@dataclass(frozen=True)
class Assigned:
    """The users of the tests.

    Attributes:
        arms: A row per test and arm with its users, their number, and the days of the test; without an arm, the users
            of several arms of the test; and the faulty assignments. Whoever reads it reads only what may be compared.
        members: A row per test and user of one arm: experiment, user, first exposure.
        by_test: Whether there are tests, and not only arms.
        timed: Whether there are times of exposures.
    """

    arms: DataFrame
    members: DataFrame
    by_test: bool
    timed: bool

    @classmethod
    def of(
        cls,
        table: DataFrame,
        options: cfg.Options,
        compared: cfg.Comparison,
        day: str | None = None,
        keep: Callable[[DataFrame, str], DataFrame] = lambda rows, name: rows,
    ) -> Assigned:
        """The users of a table of assignments.

        Args:
            table: A row per user and arm; the first exposure of several counts.
            options: What is asked for.
            compared: Which arms are compared.
            day: The day of the log; later assignments do not count. None = all do.
            keep: Stores rows under a name.

        Raises:
            InputError: A column is missing, or a time is none.
            ConfigError: The assignments have times, and the log has none.
        """
        named, path = options.assignment_columns, options.path_of("assignment_columns")
        role = {
            name: named[name] if name in named else first_of(table, usual)
            for name, usual in sch.ASSIGNMENT_NAMES.items()
        }
        by_test, timed = role["test"] is not None, role[sch.TIME] is not None
        if timed and not options.columns.get(sch.TIME):
            raise ConfigError(
                f"{options.path_of('columns')}.time is missing, and the assignments have the column '{role[sch.TIME]}';"
                f" allowed: the times of both tables, or {path}.time: null, where every list counts"
            )
        if compared.tests and not by_test:
            raise ConfigError(f"tests is given, and the assignments have no column of tests; allowed: a {path}.test")
        days = [name for name, own in compared.tests.items() if own.first or own.last]
        if days and not timed and day is None:
            raise ConfigError(
                f"tests.{days[0]} has a first or a last day, and the assignments have no times; allowed: the times of "
                f"both tables, as columns.time and {path}.time"
            )
        ids = [role["test"]] * by_test + [role["arm"] or "arm", role["user"] or sch.USER]
        *names, at = aligned(table, list(map(str, ids)), role[sch.TIME], options.time_zone, "assignments")
        test, arm, user = names if by_test else ["string(null)", *names]
        rows = table.selectExpr(f"{test} AS {_TEST}", f"{arm} AS {_ARM}", f"{user} AS {_USER}", f"{at} AS {_SINCE}")
        needed = ([_TEST] * by_test) + [_ARM, _USER]
        faulty = " OR ".join([*(f"coalesce({name}, '') = ''" for name in needed), *[f"{_SINCE} IS NULL"] * timed])
        rows = rows.selectExpr("*", f"{faulty} AS {_FAULTY}")
        if timed and day is not None:
            rows = rows.where(f"{_FAULTY} OR {_SINCE} < {cfg.start_of(day, options.time_zone, 1)}L")
        # Faulty rows are one group.
        keys = [f"CASE WHEN NOT {_FAULTY} THEN {name} END AS {name}" for name in (_TEST, _USER)]
        grouped = rows.selectExpr(*keys, _ARM, _SINCE, _FAULTY).groupBy(_FAULTY, _TEST, _USER)
        first = {_ARM: f"min({_ARM})", _OTHER_ARM: f"max({_ARM})", _SINCE: f"min({_SINCE})", _N: "count(1)"}
        users = keep(grouped.agg(*(F.expr(f"{sql} AS {name}") for name, sql in first.items())), "assigned")
        own = f"CASE WHEN NOT {_FAULTY} AND {_ARM} = {_OTHER_ARM} THEN {_ARM} END AS {_ARM}"
        by_arm = users.selectExpr(_FAULTY, _TEST, own, _N).groupBy(_FAULTY, _TEST, _ARM)
        counts = by_arm.agg(F.expr(f"count(1) AS {sch.N_ASSIGNED}"), F.expr(f"sum({_N}) AS {_N}"))
        body = partial(_arms, compared=compared, by_test=by_test, timed=timed, zone=options.time_zone, day=day)
        arms = in_one_step(counts.withColumn(_FAULTY, F.col(_FAULTY).cast("bigint")), body, _ARMS)
        arms = keep(arms, "arms")
        compared_arms = arms.where(f"{sch.EXPERIMENT} IS NOT NULL")
        renamed = compared_arms.selectExpr(
            f"{_TEST} AS _test_of_arm", f"{_ARM} AS _name_of_arm", f"{sch.EXPERIMENT} AS {_OF_ARM}", "_from", _UNTIL
        )
        of_one_arm = users.where(f"NOT {_FAULTY} AND {_ARM} = {_OTHER_ARM}")
        since = f"greatest({_SINCE}, _from) AS {_SINCE}"
        members = of_one_arm.join(F.broadcast(renamed), F.expr(_SAME_ARM))
        return cls(arms, members.selectExpr(_OF_ARM, _USER, since, _UNTIL), by_test, timed)

    @property
    def experiments(self) -> DataFrame:
        """The arms that are experiments of the day."""
        return self.arms.where(f"{sch.EXPERIMENT} IS NOT NULL")

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

    def with_counts(self, means: DataFrame) -> DataFrame:
        """``experiment_metrics`` with the test and the number of assigned users."""
        counts = self.experiments.selectExpr(f"{sch.EXPERIMENT} AS {_OF_ARM}", _TEST, sch.N_ASSIGNED)
        joined = means.join(F.broadcast(counts), F.expr(f"{sch.EXPERIMENT} = {_OF_ARM}"), "left")
        return joined.selectExpr(*map(sch.quoted, means.columns), f"{_TEST} AS {sch.TEST_NAME}", sch.N_ASSIGNED)

    def counts(self) -> AssignmentCounts:
        """What was counted of the assignments, in a small job."""
        tests: dict[str | None, dict[str, Any]] = {}
        rows = sorted(few_rows(self.arms), key=lambda row: (row[_TEST] or "", row[_ARM] or ""))
        faulty = sum(row[_N] for row in rows if row[_FAULTY])
        for row in (row for row in rows if not row[_FAULTY]):
            test = tests.setdefault(row[_TEST], {"mixed": 0, "arms": {}})
            if row[_ARM] is None:
                test["mixed"] = int(row[sch.N_ASSIGNED])
            else:
                test["arms"][row[sch.EXPERIMENT] or cfg.name_of_arm(row[_TEST], row[_ARM])] = int(row[sch.N_ASSIGNED])
        n = sum(row[_N] for row in rows)
        again = sum(row[_N] - row[sch.N_ASSIGNED] for row in rows if row[_ARM] is not None)
        return AssignmentCounts(int(n), int(faulty), int(again), tests)


@dataclass(frozen=True)
class AssignmentCounts:
    """What was counted of the assignments.

    Attributes:
        rows: All that count for the day, faulty ones too.
        faulty: Rows without a test, an arm, a user or a time.
        repeated: Rows of a user in an arm once more.
        tests: Test, or None where there are only arms -> ``mixed``, the users of several arms, and ``arms``, the users
            of each experiment.
    """

    rows: int
    faulty: int
    repeated: int
    tests: Mapping[str | None, Mapping[str, Any]]

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


def _arms(
    batches: Batches, compared: cfg.Comparison, by_test: bool, timed: bool, zone: str, day: str | None
) -> Iterator[pa.RecordBatch]:
    """The arms with their experiments; refuses names and settings that do not fit them."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    arms: dict[str | None, list[str]] = {}
    for row in rows:
        if row[_FAULTY]:
            continue
        for what, name in (("test", row[_TEST]), ("arm", row[_ARM])):
            if by_test and name is not None and sch.NAME_OF_ARM in name:
                raise InputError(
                    f"the {what} '{name}' of the assignments has a colon in its name, and experiments are called "
                    "test:arm; allowed: names without one, such as those of a column replace(name, ':', '-')"
                )
        arms.setdefault(row[_TEST], [])
        arms[row[_TEST]] += [row[_ARM]] if row[_ARM] is not None else []
    _refuse_names(arms, compared, by_test)
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in _ARMS}
    for at, row in enumerate(rows):
        test = compared.tests.get(row[_TEST] or "", cfg.OfTest())
        if row[_ARM] is not None and test.is_on(day):
            columns[sch.EXPERIMENT][at] = cfg.name_of_arm(row[_TEST], row[_ARM])
        # Without times, the day of the run alone says whether a test is on.
        columns["_from"][at] = cfg.start_of(test.first, zone) if test.first and timed else -(2**62)
        columns[_UNTIL][at] = cfg.start_of(test.last, zone, 1) if test.last and timed else 2**62
    yield from rows_of(columns, _ARMS)


def _refuse_names(arms: Mapping[str | None, list[str]], compared: cfg.Comparison, by_test: bool) -> None:
    """Refuse a test or an arm that is named and not there, and an arm that its planned shares leave out."""
    for name in compared.tests:
        if name not in arms:
            raise ConfigError(f"tests: {unknown('test', name, sorted(map(str, arms)))}")
    for test, known in sorted(arms.items(), key=lambda pair: pair[0] or ""):
        if not known:
            continue
        own = compared.tests.get(test or "", cfg.OfTest())
        at, of = (f"tests.{test}", f"the test '{test}'") if by_test else (compared.at, "the assignments")
        shares = own.shares or compared.shares or {}
        for key, names in (("baseline", [own.baseline or compared.baseline]), ("shares", [*shares])):
            if missing := [arm for arm in names if arm is not None and arm not in known]:
                said = f"{at if getattr(own, key) else compared.at}.{key}"
                raise ConfigError(
                    f"{of} has no arm '{missing[0]}', which {said} names; allowed in {at}.{key}: "
                    f"{', '.join(sorted(known))}"
                )
        if shares and (left := sorted({*known} - {*shares})):
            raise ConfigError(f"{at}.shares has no share of the arm '{left[0]}'; allowed: one of each arm of {of}")
