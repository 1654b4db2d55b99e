"""Which day is evaluated: a date, or a number of days before today in a time zone; the days of a period; looks."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import ClassVar
from zoneinfo import ZoneInfo

from rankmetrics_spark.config.fields import Section, choice, count, day, key, refuse, section, text
from rankmetrics_spark.errors import ConfigError, InputError

WORDS = {"today": 0, "yesterday": -1}
#: Days back at most: a hundred years.
LONGEST = 36_500
ALLOWED = "a date as YYYY-MM-DD, today, yesterday, or a number of days back such as -2"
_BACK = re.compile(r"-[0-9]{1,6}|0")


def evaluation_day(path: str, value: object) -> str:
    """A date as YYYY-MM-DD, or a day before today: ``today``, ``yesterday``, ``-2``; or before a moment in UTC.

    >>> evaluation_day("evaluation_date", -2), evaluation_day("evaluation_date", "Yesterday@2026-11-21T06:00:00Z")
    ('-2', '-1@2026-11-21T06:00:00+00:00')
    >>> evaluation_day("evaluation_date", "2026-11-21")
    '2026-11-21'
    """
    word, at, moment = str(value).strip().lower().partition("@")
    back = str(WORDS.get(word, word))
    try:
        if _BACK.fullmatch(back) and -int(back) <= LONGEST:
            # As schedulers write it, with a Z that Python 3.10 does not read.
            return f"{back}@{datetime.fromisoformat(moment.replace('z', '+00:00')).isoformat()}" if at else back
        return day(path, value)
    except (ConfigError, ValueError):
        raise refuse(path, value, ALLOWED) from None


def time_zone(path: str, value: object) -> str:
    """The name of a time zone.

    >>> time_zone("time_zone", "Europe/Berlin")
    'Europe/Berlin'
    """
    word = text(path, value)
    try:
        _zone(word)
    except (KeyError, ValueError, OSError):
        raise refuse(path, value, "the name of a time zone, such as UTC or Europe/Berlin") from None
    return word


def resolved(chosen: str, zone: str) -> str:
    """The date that ``evaluation_day`` has read, as YYYY-MM-DD; days back are counted from today in the time zone.

    >>> resolved("-1@2026-11-21T06:00:00", "Asia/Tokyo"), resolved("-1@2026-11-21T06:00:00", "America/Los_Angeles")
    ('2026-11-20', '2026-11-19')
    """
    back, _, moment = chosen.partition("@")
    if not _BACK.fullmatch(back):
        return chosen
    start = datetime.fromisoformat(moment) if moment else None
    return (today(zone, start) + timedelta(days=int(back))).isoformat()


def today(zone: str, moment: datetime | None = None) -> date:
    """The date of this moment, or of another in UTC, in a time zone."""
    if moment is None:
        return datetime.now(_zone(zone)).date()
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(_zone(zone)).date()


def _zone(name: str) -> tzinfo:
    # A machine without a database of time zones knows UTC all the same.
    return timezone.utc if name == "UTC" else ZoneInfo(name)


#: Days of a period: ten years. A longer one begins and ends with the dates that are published in it.
MOST_DAYS = 3_660
#: Dates, or runs of dates, that a sentence names; it counts the others.
MOST_DATES_IN_WORDS = 5


@dataclass(frozen=True)
class Days:
    """The days of a period, and which of them are published.

    Attributes:
        first: The first date, as YYYY-MM-DD.
        last: The last date.
        dates: The dates from the first to the last that are published, ascending; at least one.
    """

    first: str
    last: str
    dates: tuple[str, ...]

    def __post_init__(self) -> None:
        """Leaves out of a long period the days before the first published date and after the last one.

        >>> Days("0001-01-01", "9999-12-31", ("2026-11-08", "2026-11-10")).text
        '2026-11-08 to 2026-11-10 (2 of 3 days)'
        """
        if self.dates and self.length > MOST_DAYS:
            object.__setattr__(self, "first", self.dates[0])
            object.__setattr__(self, "last", self.dates[-1])
            self.refuse_too_long("dates")

    def refuse_too_long(self, place: str) -> None:
        """Refuse more days than a period can have."""
        if self.length > MOST_DAYS:
            raise ConfigError.of("too_many_days", place=place, days=self, most=MOST_DAYS)

    @classmethod
    def of(cls, first: str, last: str, published: Iterable[str], place: str = "dates") -> "Days":
        """The days from the first date to the last.

        Args:
            first: The first date.
            last: The last date.
            published: Every date that there is.
            place: What messages call the period.

        Raises:
            ConfigError: A date is none, or the first is after the last.
            InputError: No date of the period is published.
        """
        first, last = day(place, first), day(place, last)
        if first > last:
            raise ConfigError.of("period_backwards", place=place, first=first, last=last)
        known = sorted({*published})
        dates = tuple(each for each in known if first <= each <= last)
        if not dates:
            others = f"the dates that are published: {dates_in_words(known)}" if known else "no date is published"
            raise InputError(f"{place}: nothing is published from {first} to {last}; {others}")
        return cls(first, last, dates)

    @property
    def length(self) -> int:
        """How many days the period has, published or not."""
        return (date.fromisoformat(self.last) - date.fromisoformat(self.first)).days + 1

    @property
    def missing(self) -> tuple[str, ...]:
        """The dates that are not published, ascending."""
        return tuple(sorted({*self.calendar} - {*self.dates}))

    @property
    def calendar(self) -> tuple[str, ...]:
        """Every date of the period, published or not, ascending.

        >>> Days("2026-11-30", "2026-12-01", ()).calendar
        ('2026-11-30', '2026-12-01')
        """
        start = date.fromisoformat(self.first)
        return tuple((start + timedelta(days=i)).isoformat() for i in range(self.length))

    @property
    def text(self) -> str:
        """The dates and their number.

        >>> Days("2026-11-08", "2026-11-21", ("2026-11-08", "2026-11-21")).text
        '2026-11-08 to 2026-11-21 (2 of 14 days)'
        >>> Days("2026-11-08", "2026-11-08", ("2026-11-08",)).text
        '2026-11-08 (1 day)'
        """
        if self.length == 1:
            return f"{self.first} (1 day)"
        n = f"{len(self.dates)} of {self.length}" if self.missing else f"{self.length}"
        return f"{self.first} to {self.last} ({n} days)"

    @property
    def gap(self) -> str:
        """A sentence part that names the missing dates; empty if there are none.

        >>> Days("2026-11-08", "2026-11-10", ("2026-11-08", "2026-11-10")).gap
        '1 of 3 days is not published: 2026-11-09'
        """
        n = len(self.missing)
        verb = "is" if n == 1 else "are"
        return f"{n} of {self.length} days {verb} not published: {self.missing_text}" if n else ""

    @property
    def missing_text(self) -> str:
        """The missing dates in words; the template of a page says them too."""
        return dates_in_words(self.missing)

    @property
    def sentence_part(self) -> str:
        """The dates, their number, and the missing ones if there are any.

        >>> Days("2026-11-08", "2026-11-09", ("2026-11-08",)).sentence_part
        '2026-11-08 to 2026-11-09 (1 of 2 days); 1 of 2 days is not published: 2026-11-09'
        """
        return "; ".join(filter(None, (self.text, self.gap)))


def dates_in_words(dates: Iterable[str]) -> str:
    """Dates in a sentence: days in a row as a range, and not more than a few of them.

    >>> dates_in_words(["2026-11-08", "2026-11-09", "2026-11-10", "2026-11-12"])
    '2026-11-08 to 2026-11-10, 2026-11-12'
    >>> dates_in_words([f"2026-11-0{i}" for i in (1, 3, 5, 7, 9)] + ["2026-11-11", "2026-11-12"])
    '2026-11-01, 2026-11-03, 2026-11-05, 2026-11-07, 2026-11-09 and 2 more'
    """
    runs: list[list[date]] = []
    for each in sorted(map(date.fromisoformat, dates)):
        if runs and each - runs[-1][-1] == timedelta(days=1):
            runs[-1].append(each)
        else:
            runs.append([each])
    shown = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    left = sum(map(len, runs[MOST_DATES_IN_WORDS:]))
    return ", ".join(shown[:MOST_DATES_IN_WORDS]) + (f" and {left} more" if left else "")


#: What stands for the evaluation date in a config.
DATE_OF_RUN = "{date}"


def _day_of_period(path: str, value: object) -> str:
    """A date as YYYY-MM-DD, or what stands for the evaluation date."""
    # Without quotes, YAML reads {date} as a mapping.
    if value in (DATE_OF_RUN, {"date": None}):
        return DATE_OF_RUN
    try:
        return day(path, value)
    except ConfigError:
        raise refuse(path, value, f"a date as YYYY-MM-DD, or {DATE_OF_RUN} for the evaluation date") from None


@dataclass(frozen=True)
class Period(Section, at="comparison.period"):
    """The dates whose users are compared as one: each user counts with their mean over these days.

    >>> Period.read({"from": "2026-11-08"}).on("2026-11-21").last
    '2026-11-21'

    Attributes:
        first: First date of the period.
        last: Last date of the period; ``{date}`` is the evaluation date.
    """

    words: ClassVar[Mapping[str, str]] = {"first": "from", "last": "to"}

    first: str = key(None, _day_of_period)
    last: str = key(DATE_OF_RUN, _day_of_period)

    def __post_init__(self) -> None:
        """Checks the fields, then that the first date is not after the last one."""
        super().__post_init__()
        if DATE_OF_RUN not in (self.first, self.last) and self.first > self.last:
            raise self._refused("first", f"a date up to {self.path_of('last')}, {self.last}")

    def on(self, date: str) -> "Period":
        """The period of the run of a date.

        Raises:
            ConfigError: The date is not in the period.
        """
        first, last = (day.replace(DATE_OF_RUN, date) for day in (self.first, self.last))
        if date < first:
            raise ConfigError.of("date_before_period", at=self.path_of("first"), first=first, date=date)
        if date > last:
            raise ConfigError.of("date_after_period", at=self.path_of("last"), last=last, date=date)
        return Period(first, last)


MOST_LOOKS = 100


@dataclass(frozen=True)
class PlannedLooks(Section, at="comparison.looks"):
    """A number of looks that is planned before the first one.

    Attributes:
        planned: How many looks are planned.
        spending: How much of the error is spent early: little, more, or as much as of the information.
        look: Number of this look; a run counts the dates that are published.
    """

    planned: int = key(None, count(1, MOST_LOOKS))
    spending: str = key("obrien_fleming", choice("obrien_fleming", "pocock", "linear"))
    look: int | None = key(None, count(1, MOST_LOOKS))


def looks(path: str, value: object) -> str | PlannedLooks:
    """``one``, ``any``, or a plan."""
    if isinstance(value, (Mapping, PlannedLooks)):
        return section(PlannedLooks)(path, value)  # type: ignore[return-value]
    if isinstance(value, str) and value.lower() in ("one", "any"):
        return value.lower()
    raise refuse(path, value, "one, any, or a plan such as {planned: 14, spending: obrien_fleming}")
