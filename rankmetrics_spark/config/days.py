"""Which day is evaluated: a date, or a number of days before today in a time zone."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from rankmetrics_spark.config.fields import day, refuse, text
from rankmetrics_spark.errors import ConfigError

WORDS = {"today": 0, "yesterday": -1}
LONGEST = 36_500
"""Days back at most: a hundred years."""
ALLOWED = "a date as YYYY-MM-DD, today, yesterday, or a number of days back such as -2"
_BACK = re.compile(r"-[0-9]{1,6}|0")


def evaluation_day(path: str, value: object) -> str:
    """A date as YYYY-MM-DD, or a day before today: ``today``, ``yesterday``, ``-2``.

    >>> evaluation_day("evaluation_date", -2), evaluation_day("evaluation_date", "Yesterday")
    ('-2', '-1')
    >>> evaluation_day("evaluation_date", "2026-11-21")
    '2026-11-21'
    """
    given = str(value).strip().lower()
    back = str(WORDS.get(given, given))
    if _BACK.fullmatch(back) and -int(back) <= LONGEST:
        return back
    try:
        return day(path, value)
    except ConfigError:
        raise refuse(path, value, ALLOWED) from None


def time_zone(path: str, value: object) -> str:
    """The name of a time zone.

    >>> time_zone("time_zone", "Europe/Berlin")
    'Europe/Berlin'
    """
    given = text(path, value)
    try:
        _zone(given)
    except (KeyError, ValueError, OSError):
        raise refuse(path, value, "the name of a time zone, such as UTC or Europe/Berlin") from None
    return given


def resolved(chosen: str, zone: str) -> str:
    """The date that ``evaluation_day`` has read, as YYYY-MM-DD; days back are counted from today in the time zone."""
    if not _BACK.fullmatch(chosen):
        return chosen
    return (today(zone) + timedelta(days=int(chosen))).isoformat()


def today(zone: str) -> date:
    """The date of this moment in a time zone."""
    return datetime.now(_zone(zone)).date()


def _zone(name: str) -> tzinfo:
    # A machine without a database of time zones knows UTC all the same.
    return timezone.utc if name == "UTC" else ZoneInfo(name)
