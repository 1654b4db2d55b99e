"""A difference between two experiments as people read it: in percent of the baseline where that tells the truth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rankmetrics_spark.report.figures import number

MINUS = "\N{MINUS SIGN}"
_MOST_DIGITS = 3
"""Digits after the point that a small percentage has at most."""


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
        """Digits after the point, the same for the difference and its bounds."""
        if not self.unit:
            return 1 if abs(self.value) >= 10 else 4
        small = math.ceil(-math.log10(abs(self.value))) if self.value else 0
        return small if 1 < small <= _MOST_DIGITS else 1

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
    def interval(self) -> str:
        """The interval in words; empty without one."""
        if self.low is None or self.high is None:
            return ""
        return f"{self._signed(self.low)} to {self._signed(self.high)}{self.unit}"

    @property
    def plain(self) -> str:
        """Difference and interval in ASCII.

        >>> Change(10, " %", 8, -12).plain, Change(0.05, "").plain
        ('+10.0 % [+8.0, -12.0]', '+0.0500')
        """
        d = self.digits
        bounds = "" if self.low is None or self.high is None else f" [{self.low:+.{d}f}, {self.high:+.{d}f}]"
        return f"{self.value:+.{d}f}{self.unit}{bounds}"

    def _signed(self, value: float) -> str:
        """A true minus, and no sign in front of a rounded 0."""
        rounded = round(value, self.digits) + 0.0
        return (f"{rounded:+.{self.digits}f}" if rounded else f"{0:.{self.digits}f}").replace("-", MINUS)


def change_of(row: Mapping[str, Any], in_percent: bool | None = None) -> Change | None:
    """The change that a row of ``comparisons`` shows; None where there is no difference.

    Args:
        row: A row of ``comparisons``.
        in_percent: Whether it is in percent; by default, wherever ``is_percentage``.
    """
    if is_percentage(row) if in_percent is None else in_percent:
        value, low, high = (number(row[f"relative_{name}"]) for name in ("difference", "ci_low", "ci_high"))
        factor, unit = 100, " %"
    else:
        value, low, high = (number(row[name]) for name in ("difference", "ci_low", "ci_high"))
        factor, unit = 1, ""
    if value is None:
        return None
    bounds = sorted(factor * bound for bound in (low, high) if bound is not None)
    first, last = bounds if len(bounds) == 2 else (None, None)
    return Change(factor * value, unit, first, last)


def is_percentage(row: Mapping[str, Any]) -> bool:
    """Whether a row of ``comparisons`` can be told in percent of its baseline.

    It cannot where the baseline's mean is not above 0. Nor can it where the interval of the ratio holds 0 and that of
    the difference does not, or the other way round: the delta method is an approximation, which few users with few
    hits are too much for, and the test is about the difference.
    """
    baseline = number(row["mean_baseline"])
    if baseline is None or baseline <= 0 or number(row["relative_difference"]) is None:
        return False
    return _excludes_zero(row, "ci") == _excludes_zero(row, "relative_ci")


def all_percentages(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether rows that stand on one axis can all be told in percent; those without a difference do not count."""
    return all(is_percentage(row) for row in rows if number(row["difference"]) is not None)


def _excludes_zero(row: Mapping[str, Any], name: str) -> bool | None:
    low, high = number(row[f"{name}_low"]), number(row[f"{name}_high"])
    return None if low is None or high is None else low > 0 or high < 0
