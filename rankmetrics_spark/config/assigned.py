"""Who is in which test: the table of assignments, and what a test has of its own."""

# A section is frozen, so one default may serve every config.
# ruff: noqa: RUF009

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from rankmetrics_spark import errors as err, metrics as mx, schemas as sch
from rankmetrics_spark.config import fields as fd, sections as sec
from rankmetrics_spark.config.comparing import Comparison, Gate, check_gates, check_machine, gates
from rankmetrics_spark.config.options import Options, SectionWithOptions, option


@dataclass(frozen=True)
class Assignments(sec.Input, SectionWithOptions, at="assignments"):
    """A row per user and arm: who is in which test, since when.

    Attributes:
        format: How to read it; as for ``source``.
    """

    columns: Mapping[str, str | None] = option("assignment_columns")

    def required_columns(self) -> tuple[str, ...]:
        """The columns of the assignments that may be read."""
        unmapped = (names for role, names in sch.ASSIGNMENT_NAMES.items() if role not in self.columns)
        named = filter(None, self.columns.values())
        return tuple(dict.fromkeys([*named, *(name for names in unmapped for name in names)]))


def _own(name: str, help: str = "") -> Any:
    """A key of ``comparison`` as one of a test; what a test does not say is that of the comparison."""
    spec = Comparison.__dataclass_fields__[name].metadata
    return fd.key(None, spec["read"], help or f"As ``comparison.{name}``, of this test.")


@dataclass(frozen=True)
class OfTest(fd.Section, at="tests.NAME"):
    """What a test has of its own; all else is as ``comparison`` says.

    Attributes:
        first: First day of the test.
        last: Last day of the test.
        gates: Limits beside ``gates``, whose ``experiment`` is an arm; one that fails withholds this test alone.
    """

    words: ClassVar[Mapping[str, str]] = {"first": "from", "last": "to"}

    baseline: str | None = _own("baseline", "The arm that the others are compared with.")
    primary: tuple[mx.Metric, ...] = _own("primary")
    guardrails: tuple[mx.Metric, ...] = _own("guardrails")
    margin: Mapping[str, float | str] | None = _own("margin")
    effect: Mapping[str, float | str] | float | str | None = _own("effect")
    shares: Mapping[str, float] | None = _own("shares", "Planned share of the users of each arm.")
    first: str | None = fd.key(None, fd.day)
    last: str | None = fd.key(None, fd.day)
    looks: Any = _own("looks")
    tuning_users: int = _own("tuning_users")
    gates: tuple[Gate, ...] = fd.key((), gates)

    @property
    def compared(self) -> dict[str, Any]:
        """Field of ``Comparison`` -> its value, of those that are given."""
        names = (name for name in fd.field_names(type(self)) if name in Comparison.__dataclass_fields__)
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def is_on(self, day: str | None) -> bool:
        """Whether the test runs on a day; one that is not known is one of its days."""
        return day is None or (self.first or day) <= day <= (self.last or day)


def tests(path: str, value: object) -> dict[str, OfTest]:
    """Name of a test -> what it has of its own."""
    if not isinstance(value, Mapping):
        raise fd.refuse(path, value, "a mapping of tests to what they have of their own")
    found, read = {}, fd.section(OfTest)
    for name, own in value.items():
        try:
            found[fd.text(path, name)] = read(f"{path}.{name}", {} if own is None else own)
        except err.ConfigError as error:
            raise _of_test(error, name) from None
    return found  # type: ignore[return-value]


def _of_test(error: err.ConfigError, name: str) -> err.ConfigError:
    """The error of a key, with the name of the test that has it."""
    at = f"tests.{name}"
    text = str(error).replace(OfTest.at, at).replace(f"{Comparison.at}.", f"{at}.", 1)
    return err.ConfigError(f"{at}.{text}" if text.startswith(Gate.at) else text)


def check_tests(comparison: Comparison, options: Options) -> None:
    """Refuse what does not go with assignments or labels of a machine, and metrics of tests that are not computed.

    Raises:
        ConfigError: Names the key.
    """
    check_machine(comparison, options.machine)
    fd.check_rules("tests", vars(options) | vars(comparison), comparison.paths_of_fields())
    for name, own in comparison.tests.items():
        try:
            compared = of_test(comparison, name)
            compared.roles(options.metrics)
            check_gates(own.gates, options.metrics, compared)
        except err.ConfigError as error:
            raise _of_test(error, name) from None


def of_test(request: Comparison, name: str) -> Comparison:
    """What is compared in one test, whose arms have the names that their experiments have."""
    of, prefix = request.tests.get(name, OfTest()), name + sch.NAME_OF_ARM
    own = replace(request, **of.compared, tests={}, period=None)
    limits = (replace(gate, experiment=gate.experiment and prefix + gate.experiment) for gate in of.gates)
    return replace(
        own,
        baseline=own.baseline and prefix + own.baseline,
        candidates=tuple(prefix + arm for arm in own.candidates),
        shares=own.shares and {prefix + arm: share for arm, share in own.shares.items()},
        gates=(*request.gates, *limits),
    )


def start_of(day: str, zone: str, after: int = 0) -> int:
    """When a day starts, or the one so many days after it, in microseconds.

    >>> start_of("2026-11-20", "Europe/Berlin", 1) - start_of("2026-11-20", "UTC")
    82800000000
    """
    of_day = date.fromisoformat(day) + timedelta(days=after)
    return int(datetime(of_day.year, of_day.month, of_day.day, tzinfo=ZoneInfo(zone)).timestamp()) * 10**6
