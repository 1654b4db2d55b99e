"""Events and assignments in the first config: which columns they share with the log, which kinds and arms are there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rankmetrics_spark import config as cfg, errors as err
from rankmetrics_spark.tools.guessing import CONTROLS, NAMES, controls_first, named_like
from rankmetrics_spark.tools.log_sample import WORDS, LogSample

_EVENTS = WORDS["events"]
TIMES = _EVENTS["time"].split()
_MOST_KINDS = 30
_MOST_ARMS = 6
#: Role of a column of assignments -> the names that people give it.
_WHO = WORDS["assignments"]
_WHO = _WHO | {"user": f"{NAMES['user']} {_WHO['user']}", "time": f"{_WHO['time']} {_EVENTS['time']}"}


def named(rows: pd.DataFrame, words: Sequence[str]) -> str | None:
    """The column whose name, or the end of whose path, is one of these words; the first word counts most."""
    ends = {cfg.letters(str(name).rpartition(".")[2]): str(name) for name in reversed(list(rows))}
    return next((ends[word] for word in words if word in ends), None)


class EventSample(NamedTuple):
    """Events of a log.

    Attributes:
        columns: Role -> column.
        grades: Kind -> the grade that it may give.
        others: Kinds that give none, as far as names say.
        shown: The kind of impressions, where they are in the same table.
    """

    columns: Mapping[str, str]
    grades: Mapping[str, int]
    others: Sequence[str] = ()
    shown: str = ""

    @classmethod
    def of(cls, rows: pd.DataFrame, lists: Sequence[str], user: str | None) -> "EventSample":
        """Guess the roles of the columns of events; those of lists are called as in the log."""
        columns: dict[str, str] = {}
        if lists and {*lists} <= {*map(str, rows)}:
            columns["list"] = ", ".join(lists)
        users = [user] if user in rows else named_like(map(str, rows), "user")
        items = named_like(map(str, rows), "item") or [name for name in map(str, rows) if name.endswith("object_id")]
        found = {"user": next(iter(users), None), "item": next(iter(items), None)}
        found |= {"kind": named(rows, _EVENTS["kind"].split()), "time": named(rows, TIMES)}
        columns |= {role: name for role, name in found.items() if name}
        of_rows = rows[columns["kind"]].dropna().unique() if "kind" in columns else ()
        kinds = [str(kind) for kind in of_rows[:_MOST_KINDS]]
        known = _EVENTS["grades"]
        grades = {kind: known[kind.lower()] for kind in kinds if kind.lower() in known}
        shown = next((kind for kind in kinds if kind.lower() in _EVENTS["shown"].split()), "")
        return cls(columns, grades, [kind for kind in kinds if kind not in grades and kind != shown], shown)

    def lines(self, time: str | None) -> Iterator[str]:
        """What a config says of them below ``events``; ``time`` is the column of the log."""
        timed = {role: name for role, name in self.columns.items() if role != "time" or time}
        columns = (f"{role}: {f'[{name}]' if role == 'list' else name}" for role, name in timed.items())
        yield f"  columns: {{{', '.join(columns)}}}"
        if "kind" in self.columns:
            none = f"; without one: {', '.join(self.others[:6])}" if self.others else ""
            grades = ", ".join(f"{kind}: {grade}" for kind, grade in self.grades.items())
            yield f"  grades: {{{grades}}}  # a guess, by the names{none}"


class AssignmentSample(NamedTuple):
    """The first rows of a table of assignments.

    Attributes:
        log: The rows, and where they are.
        columns: Role -> column.
    """

    log: LogSample
    columns: Mapping[str, str]

    @classmethod
    def of(cls, log: LogSample, given: Mapping[str, str]) -> "AssignmentSample":
        """Guess the roles of the columns that are not given.

        Raises:
            ConfigError: There is no such role or column, or no column looks like the arm or the user.
        """
        columns, names = dict(given), [*map(str, log.rows)]
        for role, words in _WHO.items():
            name = named(log.rows.drop(columns=[*columns.values()], errors="ignore"), words.split())
            columns |= {role: name} if name and role not in given else {}
        if "arm" not in columns and "test" not in given and "test" in columns:
            columns["arm"] = columns.pop("test")  # of one test
        wrong = [f"{role}={name}" for role, name in columns.items() if role not in _WHO or name not in names]
        if missing := [role for role in ("arm", "user") if role not in columns] or wrong:
            allowed = " ".join(f"--column assignments.{role}=NAME" for role in ("arm", "user", "test", "time"))
            missed = " or the ".join(missing)
            raise err.ConfigError.of("no_column_for", path=log.path, missed=missed, names=names, allowed=allowed)
        return cls(log, columns)

    @property
    def arms(self) -> dict[str, list[str]]:
        """Test, or an empty text -> its arms, a likely baseline first."""
        tests = self.log.rows.assign(**{"": ""}).groupby(self.columns.get("test", ""))[self.columns["arm"]]
        return {str(test): controls_first(map(str, arms.dropna().unique())) for test, arms in tests}

    def baselines(self, given: str | None) -> dict[str, str]:
        """Test -> its baseline: what is given, or what its name says; without tests that have neither."""
        first = {test: given if given and given in arms else arms[0] for test, arms in self.arms.items()}
        return {test: arm for test, arm in first.items() if arm == given or arm.lower() in CONTROLS}

    def lines(self, timed: bool, baseline: str | None, scalar: Callable[[str], str]) -> Iterator[str]:
        """What a config says of them below their place, and of tests; ``timed`` is whether the log has times."""
        columns = {role: scalar(name) for role, name in self.columns.items()}
        if lacks_time := not timed and "time" in columns:
            columns["time"] = "null"
        why = f"; no column of the log looks like its time, as {self.columns['time']} needs" if lacks_time else ""
        yield f"  columns: {{{', '.join(map(': '.join, columns.items()))}}}  # a guess, by the names{why}"
        found = self.baselines(baseline)
        if len({*found.values()}) == 1 and len(found) == len(self.arms):
            yield f"comparison: {{baseline: {scalar(found.popitem()[1])}}}"
        elif "test" in columns:
            yield "tests:"
            for test, arms in self.arms.items():
                own = f"baseline: {scalar(found[test])}" if test in found else ""
                yield f"  {scalar(test)}: {{{own}}}  # of {', '.join(arms[:_MOST_ARMS])}"
