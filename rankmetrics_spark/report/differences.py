"""Differences as people read them: by how much, from which value to which; and the order of experiments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

from rankmetrics_spark import schemas as sch
from rankmetrics_spark.metrics import Metric, parse
from rankmetrics_spark.report.figures import label_of

Row = Mapping[str, Any]

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
        bounds = [f"{bound:+.{self.digits_of(bound)}f}" for bound in (self.low, self.high) if bound is not None]
        return f"{self.value:+.{self.digits}f}{self.unit}" + (f" ({' to '.join(bounds)})" if len(bounds) == 2 else "")

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


def change_of(row: Mapping[str, Any], in_percent: bool | None = None) -> Change | None:
    """The change that a row of ``comparisons`` shows, by the test that decides; None where there is no difference."""
    if is_percentage(row) if in_percent is None else in_percent:
        value, low, high = sch.shown_numbers(row, sch.RELATIVE)
        factor, unit = 100, " %"
    else:
        value, low, high = sch.shown_numbers(row, ("difference", "ci_low", "ci_high"))
        factor, unit = 1, ""
    if value is None:
        return None
    bounds = sorted(factor * bound for bound in (low, high) if bound is not None)
    lower, upper = bounds if len(bounds) == 2 else (None, None)
    return Change(factor * value, unit, lower, upper)


def widened(row: Row) -> bool:
    """Whether the interval that a row shows is wider than that of the same test alone.

    >>> row = {"test": "welch", "ci_low": 0.05, "ci_high": 0.15, "adjusted_ci_low": -0.01}
    >>> widened(row), widened(row | {"adjusted_ci_low": 0.05}), widened({"ci_low": 0.05, "ci_high": 0.15})
    (True, False, False)
    """
    low = sch.number(row.get("adjusted_ci_low"))
    alone = None if low is None else sch.number(sch.of_test(row, "ci_low"))
    return alone is not None and low is not None and low < alone


def movement(row: Row) -> str:
    """The means of a row of ``comparisons``, or with CUPED the difference: the means are those without it.

    >>> movement({"mean_baseline": 0.4388, "mean_candidate": 0.5477, "test": "welch"})
    '0.439 \N{RIGHTWARDS ARROW} 0.548'
    >>> movement({"test": sch.CUPED, "cuped_difference": 0.0123})
    '+0.0123'
    """
    if row.get("test") == sch.CUPED:
        difference = sch.number(sch.of_test(row, "difference"))
        return "" if difference is None else Change(difference, "").plain
    means = means_of(row)
    return f"{means[0]} \N{RIGHTWARDS ARROW} {means[1]}" if means else ""


def means_of(row: Row) -> tuple[str, str] | None:
    """The means of baseline and candidate, with the digits that show how they differ."""
    before, after = sch.number(row.get("mean_baseline")), sch.number(row.get("mean_candidate"))
    if before is None or after is None:
        return None
    digits = next((n for n in range(3, 7) if abs(after - before) >= 10.0 ** (1 - n)), 3 if before == after else 6)
    return f"{before:.{digits}f}", f"{after:.{digits}f}"


def is_percentage(row: Mapping[str, Any]) -> bool:
    """Whether a row of ``comparisons`` can be told in percent of its baseline.

    It cannot where the baseline's mean is not above 0. Nor can it where the difference has an interval and the ratio
    has none, or one that says something else of 0.
    """
    baseline = sch.number(row["mean_baseline"])
    if baseline is None or baseline <= 0 or sch.number(sch.of_test(row, "relative_difference")) is None:
        return False
    return _excludes_zero(row, "ci") == _excludes_zero(row, "relative_ci")


def all_percentages(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether rows that stand on one axis can all be told in percent; those without a difference do not count."""
    return all(is_percentage(row) for row in rows if sch.number(row["difference"]) is not None)


def _excludes_zero(row: Mapping[str, Any], name: str) -> bool | None:
    low, high = sch.shown_numbers(row, (f"{name}_low", f"{name}_high"))
    return None if low is None or high is None else low > 0 or high < 0


FEWEST = 3
"""Fewer experiments are one pair, whose sentence says it all."""
MOST_NAMED = 6
"""Experiments that have a part of a sentence of their own, and that such a part names."""


def by_metric(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Metric -> its rows, in one pass; with one for each of hundreds of metrics, work grows with their square."""
    of_metrics: dict[str, list[Row]] = {}
    for row in rows:
        of_metrics.setdefault(row[sch.METRIC], []).append(row)
    return of_metrics


def losers_of(rows: Iterable[Row], metric: str) -> dict[str, list[str]]:
    """Experiment -> those that it is better than on a metric, of all users, by the corrected tests.

    Args:
        rows: Of ``comparisons``.
        metric: Its name.

    Returns:
        Every compared experiment, in the order of the rows; an empty list where it is better than none. Empty where
        fewer than three are compared with one another.

    >>> pairs = [("a", "b", "candidate"), ("a", "c", None), ("b", "c", "baseline")]
    >>> rows = [{"baseline": x, "experiment_id": y, "metric": "ap", "segment": "all", "better": better}
    ...         for x, y, better in pairs]
    >>> losers_of(rows, "ap"), losers_of(rows[:1], "ap"), losers_of(rows[:2], "ap")
    ({'a': [], 'b': ['a', 'c'], 'c': []}, {}, {})
    """
    losers: dict[str, list[str]] = {}
    baselines = set()
    for row in rows:
        if row[sch.METRIC] == metric and row[sch.SEGMENT] == sch.EVERYONE:
            baseline, candidate = row[sch.BASELINE], row[sch.EXPERIMENT]
            baselines.add(baseline)
            for name in (baseline, candidate):
                losers.setdefault(name, [])
            if row["better"] == "candidate":
                losers[candidate].append(baseline)
            elif row["better"] == "baseline":
                losers[baseline].append(candidate)
    return losers if len(losers) >= FEWEST and len(baselines) > 1 else {}


def letters_of(names: Sequence[str]) -> dict[str, str]:
    """Experiment -> its letter, in this order; none where there are more experiments than letters.

    >>> letters_of(["new", "old"]), letters_of(["x"] * 27)
    ({'new': 'a', 'old': 'b'}, {})
    """
    return dict(zip(names, ascii_lowercase, strict=False)) if len(names) <= len(ascii_lowercase) else {}


def raised(losers: Iterable[str], letters: Mapping[str, str]) -> str:
    """The letters of the experiments that one is better than, in their order.

    >>> raised(["old", "older"], {"new": "a", "older": "b", "old": "c"})
    'bc'
    """
    return "".join(sorted(letters[name] for name in losers if name in letters))


def sentences_of_order(rows: Sequence[Row], metrics: Iterable[Metric]) -> list[str]:
    """Which experiments are above which on each metric, where every pair of at least three is compared.

    Args:
        rows: Of ``comparisons``, of all users.
        metrics: Those that have a sentence.

    >>> from rankmetrics_spark.metrics import parse
    >>> pairs = [("a", "b", "candidate"), ("a", "c", "candidate"), ("a", "d", None), ("b", "c", None),
    ...          ("b", "d", "baseline"), ("c", "d", None)]
    >>> rows = [{"baseline": x, "experiment_id": y, "metric": "ndcg@10", "segment": "all", "better": better,
    ...          "p_adjusted": 0.01} for x, y, better in pairs]
    >>> sentences_of_order(rows, [parse("ndcg@10")])
    ['NDCG@10: b is above a, d; c is above a; no other pair of the 4 experiments differs clearly']
    >>> sentences_of_order([row | {"better": None} for row in rows], [parse("ndcg@10")])
    ['NDCG@10: no pair of the 4 experiments differs clearly']
    """
    lines = []
    of_metrics = by_metric(rows)
    for metric in metrics:
        name = str(metric)
        of_metric = of_metrics.get(name, [])
        losers = losers_of(of_metric, name)
        tested = [row for row in of_metric if not sch.is_unknown(row["p_adjusted"]) and not sch.doubt_of(row)]
        if not losers or not tested or metric.higher_is_better is None:
            continue
        winners = sorted((name for name in losers if losers[name]), key=lambda name: -len(losers[name]))
        verb = "is above" if metric.higher_is_better else "is better, so lower, than"
        parts = []
        for winner in winners[:MOST_NAMED]:
            beaten, more = losers[winner], len(losers[winner]) - MOST_NAMED
            some = ", ".join([*beaten[:MOST_NAMED], *([f"{more:,} more"] if more > 0 else [])])
            parts.append(f"{winner} {verb} {f'all {len(beaten):,} others' if len(beaten) == len(losers) - 1 else some}")
        more = len(winners) - len(parts)
        parts += [f"{more:,} more {'is' if more == 1 else 'are'} above others"] if more else []
        n_losers = sum(map(len, losers.values()))
        if n_losers < len(tested) or not parts:
            other, n_pairs = "no other pair" if parts else "no pair", len(of_metric)
            untested = f"{n_pairs - len(tested):,} of {n_pairs:,}"
            some = "" if len(tested) == n_pairs else f", and {untested} have no verdict"
            parts.append(f"{other} of the {len(losers):,} experiments differs clearly{some}")
        lines.append(f"{label_of(metric)}: {'; '.join(parts)}")
    return lines


def p_value(row: Row, name: str = "p_adjusted") -> str:
    """A p-value in words, by default the corrected one.

    >>> p_value({"p_adjusted": 0.0496, "confidence": 0.95}), p_value({"p_adjusted": 1e-9, "confidence": 0.95})
    ('p = 0.0496', 'p < 0.001')
    """
    text = p_text(row[name], 1 - row["confidence"])
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def p_text(p: float, level: float) -> str:
    """A p-value with as many digits as it takes to see on which side of the level it is, and three at least.

    A small p-value below the level needs no more digits.

    >>> p_text(0.3, 0.05), p_text(0.0496, 0.05), p_text(0.0503, 0.05), p_text(0.0004, 0.05), p_text(1e-9, 0.0001)
    ('0.300', '0.0496', '0.0503', '< 0.001', '< 0.0001')
    """
    level = round(level, 12)  # 1 - 0.95 is 0.05 and a little
    least = min(0.001, 10.0 ** math.floor(math.log10(level)))
    if p < least:
        return f"< {least:.10g}"
    for digits in range(3, 13):
        text = f"{p:.{digits}f}"
        if (float(text) < level) == (p < level) and float(text) not in (0.0, level):
            return text
    return f"{p:.3g}"


def surest_first(row: Row) -> tuple[Any, ...]:
    """Sort key of rows of ``comparisons``: those of all users first, then by p-value, those without one last."""
    return (
        row[sch.SEGMENT] != sch.EVERYONE,
        p_or_last(row),
        str(row[sch.EXPERIMENT]),
        str(row.get(sch.BASELINE)),
        row[sch.METRIC],
    )


def p_or_last(row: Row) -> float:
    """The p-value, or a number above every p-value where there is none."""
    p: float | None = row.get("p_adjusted")
    return 2.0 if p is None or sch.is_unknown(p) else p


def change_in_words(row: Row) -> str:
    """From which value to which, by how much, and how sure that is."""
    change = change_of(row)
    parts = [movement(row), change.plain if change else "-"]
    if row.get("test") == sch.CUPED:
        # Without a percentage, the difference is said once.
        parts = [*parts[: 1 if change and change.unit else 0], f"{parts[1]} with CUPED"]
    return ", ".join(filter(None, parts))


def detectable(row: Row, in_percent: bool | None = None) -> str:
    """The change that the corrected test finds with its power, never rounded down; empty where it is unknown."""
    effect = sch.number(row.get("adjusted_minimum_detectable_effect"))
    if not effect:  # Without a spread, what the test could find is unknown.
        return ""
    if is_percentage(row) if in_percent is None else in_percent:
        effect, unit = 100 * effect / row["mean_baseline"], " %"
    else:
        unit = ""
    digits = Change(effect, unit).digits
    return f"{math.ceil(round(effect * 10**digits, 6)) / 10**digits:.{digits}f}{unit}"


def with_power(power: object) -> str:
    """How likely a test finds what it can find; empty where that is not stored.

    >>> with_power(0.8), with_power(None)
    (' with a probability of 80 %', '')
    """
    known = sch.number(power)
    return "" if known is None else f" with a probability of {100 * known:.3g} %"


def sentence_of_dilution(row: Row) -> str:
    """What a change among the users whose lists differ is over all users; empty where all users are tested.

    Its interval is that of one plain test. Where something else decides the row, the sentence says so.

    >>> row = {"experiment_id": "b", "baseline": "a", "metric": "ndcg@10", "share_changed": 0.1, "n_users_both": 12000,
    ...        "diluted_difference": 0.004, "diluted_ci_low": 0.001, "diluted_ci_high": 0.007, "confidence": 0.95}
    >>> sentence_of_dilution(row)
    'Over all 12,000 users, b changes NDCG@10 by +0.0040 (+0.0010 to +0.0070) from a: same lists count as no change'
    >>> corrected = row | {"looks": "any", "test": "cuped", "correction": "holm", "n_comparisons": 4}
    >>> sentence_of_dilution(corrected).partition(" from ")[0]
    'Over all 12,000 users, b changes NDCG@10 by +0.0040 (+0.0010 to +0.0070; one look, not corrected, without CUPED)'
    >>> sentence_of_dilution(row | {"share_changed": 0.0})
    'Every user of both a and b gets the same lists in each: there is no change to test'
    >>> sentence_of_dilution(row | {"diluted_difference": None}), sentence_of_dilution({})
    ('', '')
    """
    value, low, high = (sch.number(row.get(name)) for name in sch.DILUTED)
    changed = sch.number(row.get(sch.SHARE_CHANGED))
    if changed is None or value is None:
        return ""
    if not changed:
        pair = f"{row[sch.BASELINE]} and {row[sch.EXPERIMENT]}"
        return f"Every user of both {pair} gets the same lists in each: there is no change to test"
    is_corrected = (row.get("n_comparisons") or 1) > 1 and row.get("correction") != "none"
    limits = ["one look"] if row.get(sch.LOOKS) is not None else []
    limits += ["not corrected"] if is_corrected or widened(row) else []
    limits += ["without CUPED"] if row.get("test") == sch.CUPED else []
    name, size = label_of(parse(row[sch.METRIC])), Change(value, "", low, high).plain
    if limits:
        size = f"{size[:-1]}; " if size.endswith(")") else f"{size} ("
        size += f"{', '.join(limits)})"
    who = f"Over all {row['n_users_both']:,} users, {row[sch.EXPERIMENT]}"
    return f"{who} changes {name} by {size} from {row[sch.BASELINE]}: same lists count as no change"
