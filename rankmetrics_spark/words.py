"""Numbers in words: changes with their intervals, p-values, levels, states of a comparison, and what users are called.

No pyspark.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Literal, NamedTuple, TypeVar

MINUS = "\N{MINUS SIGN}"
#: Digits after the point that a small percentage has at most.
_MOST_DIGITS = 3


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
NOUNS: dict[str, dict[str, str]] = {"user": {}, "query": {"user": "query", "users": "queries", "who": "which"}}
NOUNS["query"] |= {word.capitalize(): noun.capitalize() for word, noun in NOUNS["query"].items()}
"""Statistical unit of a log -> the words of a sentence about users that it changes."""
_UNIT: ContextVar[str] = ContextVar("unit", default="user")
#: What the texts that are made now are about: ``user`` or ``query``.
unit_now = _UNIT.get


@contextmanager
def counted_in(unit: str) -> Iterator[None]:
    """In this block, texts are about users, or about queries.

    >>> with counted_in("query"):
    ...     f"{counted(2)}, {counted(1)}, {UNITS:C}", worded("a user's list: users who saw 'superuser'")
    ('2 queries, 1 query, Queries', "a query's list: queries which saw 'superuser'")
    >>> f"{counted(2_000)}, {counted(1)}, {UNIT:C}", worded("a user's list")
    ('2,000 users, 1 user, User', "a user's list")
    """
    token = _UNIT.set(unit)
    try:
        yield
    finally:
        _UNIT.reset(token)


def _called_in(unit: str, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    with counted_in(unit):
        return function(*arguments, **options)


def bound(function: Callable[..., T]) -> Callable[..., T]:
    """The function, with the words of now wherever and whenever it is called, as in another process."""
    return partial(_called_in, unit_now(), function)


def about(told: Callable[..., str]) -> Callable[[F], F]:
    """Makes a function whose texts are about what ``told`` says of its arguments: ``user`` or ``query``."""

    def made(function: F) -> F:
        """The function, in these words."""
        said: Any = wraps(function)(lambda *given, **more: _called_in(told(*given, **more), function, *given, **more))
        return said  # type: ignore[no-any-return]

    return made


def worded(text: str) -> str:
    """A text of this package with the words of now; never one that holds names or other data."""

    nouns = NOUNS[unit_now()]
    return re.sub(r"\b(?:[Uu]sers?|[Ww]ho)\b", lambda match: nouns.get(match[0], match[0]), text)


class Noun:
    """A word that is chosen where it is shown, so that what holds data is never searched for it."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __str__(self) -> str:
        return worded(self.word)

    def __format__(self, spec: str) -> str:
        return str(self).capitalize() if spec == "C" else str(self)


#: What people call the statistical units: a user, users, who do something; or a query.
UNIT, UNITS, WHO = Noun("user"), Noun("users"), Noun("who")


def counted(n: float) -> str:
    """So many users, or queries."""
    return f"{n:,} {UNIT if n == 1 else UNITS}"


def sentences(texts: Mapping[str, str]) -> Callable[..., str]:
    """What makes sentences: name of a text, and values for its fields -> the text, about users or queries as of now.

    >>> said = sentences({"few": "only {n:,} {UNITS} {WHO} click"})
    >>> with counted_in("query"):
    ...     said("few", n=1_200)
    'only 1,200 queries which click'
    """
    return lambda name, /, **values: texts[name].format(UNIT=UNIT, UNITS=UNITS, WHO=WHO, **values)


class State(NamedTuple):
    """What a comparison says of its candidate.

    Attributes:
        word: On a card.
        one: What one candidate or metric does; of what is open, it says what is not shown.
        many: What several do.
        mark: In a table.
        colour: On a terminal.
    """

    word: str
    one: str
    many: str
    mark: str
    colour: str

    def says(self, n: int, what: str = "clear difference") -> str:
        """What so many candidates or metrics do.

        >>> STATES["open"].says(1), STATES["open"].says(2, "difference"), STATES["worse"].says(2)
        ('shows no clear difference', 'show no difference', 'are worse')
        """
        return (self.one if n == 1 else self.many).format(what)


Level = Literal["ok", "warn", "fail", "none"]


class Fact(str):
    """A sentence of a run: of its verdict, of the status line, or about something that was looked at.

    Attributes:
        level: ``ok``, ``warn`` (the answer may be wrong), ``fail`` or ``none`` (not looked at, or not tested).
        topic: What was looked at.
        brief: The same for people who read once how p-values and intervals are corrected; empty where that is all.
        withheld: The same of a run that publishes nothing, so that its look is none of the plan.
        words: The same in its parts, some of which are names from the data.
        part: What it belongs to of all that a run says.
        where: Where people read it: ``status``, ``headline``, ``terminal``, ``page``, ``notebook``, ``record``.
    """

    level: Level
    topic: str
    brief: str
    withheld: str
    words: tuple[str, ...]
    part: str
    where: Sequence[str]

    def __new__(cls, text: str | tuple[str, ...], level: Level = "ok", topic: str = "", **more: Any) -> "Fact":
        it = super().__new__(cls, "".join(text))
        usual = {"brief": str(it), "withheld": str(it), "words": (text,) if isinstance(text, str) else text}
        vars(it).update({**usual, "part": "", "where": (), **more}, level=level, topic=topic)
        return it


#: The states of a comparison, the most welcome first.
STATES = {
    "better": State("better", "is better", "are better", "▲", "green"),
    "worse": State("worse", "is worse", "are worse", "▼", "red"),
    "open": State("no difference shown", "shows no {}", "show no {}", "≈", "dim"),
    "doubtful": State("no verdict", "has no verdict", "have no verdict", "?", "dim"),
}


@dataclass(frozen=True)
class Change:
    """A difference and its interval.

    Attributes:
        value: The difference.
        unit: `` %`` of the baseline's mean, or empty.
        low: Lower bound; None without an interval.
        high: Upper bound.
    """

    value: float
    unit: str
    low: float | None = None
    high: float | None = None

    @property
    def digits(self) -> int:
        """Digits after the point of the difference, and of bounds that do not need more."""
        if not self.unit:
            return 1 if abs(self.value) >= 10 else 4
        small = _places(self.value)
        return small if 1 < small <= _MOST_DIGITS else 1

    def digits_of(self, value: float) -> int:
        """Digits after the point of a bound: enough to show that it is not 0, so on which side of 0 it is.

        >>> change = Change(6.4, " %", 0.02, 13.3)
        >>> change.digits_of(change.high), change.digits_of(change.low), change.digits_of(1e-9)
        (1, 2, 1)
        """
        enough = _places(value)
        return enough if value and not round(value, self.digits) and enough <= self.digits + 2 else self.digits

    @property
    def text(self) -> str:
        """The difference with its sign and unit.

        >>> Change(20.94, " %").text, Change(-0.043, " %").text.replace(MINUS, "-")
        ('+20.9 %', '-0.04 %')
        >>> Change(1e-9, " %").text, Change(-0.00123, "").text.replace(MINUS, "-")
        ('0.0 %', '-0.0012')
        """
        return self._signed(self.value) + self.unit

    @property
    def unsigned(self) -> str:
        """Its size with its unit."""
        return f"{abs(self.value):.{self.digits}f}{self.unit}"

    @property
    def interval(self) -> str:
        """The interval in words; empty without one."""
        if self.low is None or self.high is None:
            return ""
        return f"{self._signed(self.low)} to {self._signed(self.high)}{self.unit}"

    @property
    def plain(self) -> str:
        """Difference and interval in ASCII.

        >>> Change(10, " %", 8, -12).plain, Change(0.05, "").plain
        ('+10.0 % (+8.0 to -12.0)', '+0.0500')
        """
        return self.limited()

    def limited(self, *limits: str) -> str:
        """The same, with what limits it.

        >>> Change(10, " %", 8, 12).limited("one look", "not corrected"), Change(0.05, "").limited("one look")
        ('+10.0 % (+8.0 to +12.0; one look, not corrected)', '+0.0500 (one look)')
        """
        bounds = [f"{bound:+.{self.digits_of(bound)}f}" for bound in (self.low, self.high) if bound is not None]
        known = "; ".join(filter(None, (" to ".join(bounds) if len(bounds) == 2 else "", ", ".join(limits))))
        return f"{self.value:+.{self.digits}f}{self.unit}" + (f" ({known})" if known else "")

    def _signed(self, value: float) -> str:
        """A true minus, and no sign in front of a rounded 0."""
        digits = self.digits_of(value)
        number_shown = round(value, digits) + 0.0
        return (f"{number_shown:+.{digits}f}" if number_shown else f"{0:.{digits}f}").replace("-", MINUS)


def _places(value: float) -> int:
    """The place after the point of a number's first digit that is not 0; 0 for 0.

    >>> _places(0.02), _places(0.5), _places(6.4), _places(0.0)
    (2, 1, 0, 0)
    """
    return max(0, math.ceil(-math.log10(abs(value)))) if value else 0


def p_value(p: float, level: float) -> str:
    """A p-value in words.

    >>> p_value(0.0496, 0.05), p_value(1e-9, 0.05)
    ('p = 0.0496', 'p < 0.001')
    """
    text = p_text(p, level)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def least_p(level: float) -> float:
    """A p-value below this one is shown as such."""
    return min(0.001, 10.0 ** math.floor(math.log10(round(level, 12))))


def p_text(p: float, level: float) -> str:
    """A p-value with as many digits as it takes to see on which side of the level it is, and three at least.

    A small p-value below the level needs no more digits.

    >>> p_text(0.3, 0.05), p_text(0.0496, 0.05), p_text(0.0503, 0.05), p_text(0.0004, 0.05), p_text(1e-9, 0.0001)
    ('0.300', '0.0496', '0.0503', '< 0.001', '< 0.0001')
    """
    level = round(level, 12)  # 1 - 0.95 is 0.05 and a little
    if p < (least := least_p(level)):
        return f"< {least:.10g}"
    for digits in range(3, 13):
        text = f"{p:.{digits}f}"
        if (float(text) < level) == (p < level) and float(text) not in (0.0, level):
            return text
    return f"{p:.3g}"


def judged_apart(k: int | None, shares: Mapping[str, float]) -> str:
    """That experiments differ in how much of their top k is judged.

    >>> judged_apart(4, {"a": 1.0, "b": 0.5})
    'the judged share of the top 4 differs: 1.00 in a, 0.50 in b'
    """
    (low, least), (high, most) = (end((share, str(name)) for name, share in shares.items()) for end in (min, max))
    return f"the judged share of the top {k} differs: {high:.2f} in {most}, {low:.2f} in {least}"


def range_text(numbers: Iterable[int]) -> str:
    """Lowest to highest, or the one number that all are.

    >>> range_text([1200, 900]), range_text([5, 5])
    ('900 to 1,200', '5')
    """
    low, high = min(numbers := [*numbers]), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def percent(share: float) -> str:
    """A level of confidence as people write it.

    >>> percent(0.95), percent(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * share:.10g} %"
