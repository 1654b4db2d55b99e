"""Filters on Sail: what keeps the same rows as on Spark is allowed, and everything else is refused.

Comparisons, IN, BETWEEN, LIKE, CASE, AND, OR and NOT, and the functions of dates in ``ALLOWED``. Many others of Sail
return other values than Spark's without a word. ``tests/spark/test_filters.py`` compares what is allowed over odd rows.
"""

from collections.abc import Mapping, Sequence

from rankmetrics_spark.config import KNOWN, QUERY_WORDS, Token, tokens
from rankmetrics_spark.errors import InputError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Functions that a filter may call on Sail: those of dates and times.
ALLOWED = _names(
    "add_months current_date current_timestamp date date_sub day dayofmonth dayofweek dayofyear hour last_day minute "
    "month now quarter second to_date to_timestamp weekofyear year"
)
#: Words and symbols with other values on Sail: it rounds and overflows otherwise, and matches other texts.
_REFUSED = _names("div ilike regexp rlike :: + - * / % | & ^ ~")
#: Functions that are called of a text or a time alone, and those that give one.
_OF_TIMES = _names("date to_date to_timestamp")
_TIMES = _names("add_months current_date current_timestamp date_sub now to_date")
_OPERANDS_FOLLOW = _names("all and any between case else escape in is like not or some then when")


def on_sail(path: str, where: str, types: Mapping[str, str]) -> str:
    """Rewrite a filter so that it keeps the same rows on Sail as ``where`` does on Spark.

    >>> on_sail("source.where", "date(time) = '2026-11-20' and score > 0.5", {"time": "timestamp", "score": "double"})
    "to_date(time) = '2026-11-20' and score > 0.5D"
    >>> on_sail("source.where", "n + 1 < 3", {"n": "int"})
    Traceback (most recent call last):
    rankmetrics_spark.errors.InputError: source.where holds '+', which Sail may compute otherwise than Spark; \
allowed: comparisons, IN, BETWEEN, LIKE, CASE, to_date and other functions of dates (docs/engines.md), or --engine spark
    """
    parts, end = list[str](), 0
    words = list(tokens(path, where))
    for at, word in enumerate(words):
        parts.append(where[end : word.start])
        text, end = where[word.start : word.end], word.end
        before, after = words[at - 1] if at else None, words[at + 1] if at + 1 < len(words) else None
        if word.kind in ("word", "quoted") and word.text in KNOWN and after and after.text == "(":
            if word.text not in ALLOWED:
                raise _refused(path, f"calls '{word.text}'")
            if word.text in _OF_TIMES and not _is_time(words[at + 2 : at + 3], types):
                raise _refused(path, f"calls '{word.text}' of what is no text or time")
            text = "to_date" if word.text == "date" else text  # which Sail lacks
        elif word.kind in ("word", "symbol") and word.text in _REFUSED and not _is_sign(word, before):
            raise _refused(path, f"holds '{text}'")
        elif word.kind == "string" and before and before.kind == "string":
            raise _refused(path, "holds two texts side by side")
        # Sail compares a double with a decimal as decimals of 15 digits after the point, Spark as doubles.
        parts.append(f"{text}D" if word.kind == "number" and "." in text and text[-1].isdigit() else text)
    return "".join(parts)


def _is_time(words: Sequence[Token], types: Mapping[str, str]) -> bool:
    """Whether an argument is a text or a time, by its first word."""
    given = bool(words) and (words[0].kind == "string" or words[0].text in _TIMES)
    return given or bool(words and types.get(words[0].text) in ("string", "date", "timestamp"))


def _is_sign(word: Token, before: Token | None) -> bool:
    """Whether a plus or minus has no operand on its left."""
    if word.text not in "+-" or before is None:
        return word.text in "+-"
    if before.kind == "symbol":
        return before.text not in (")", "]")
    return before.kind == "word" and before.text in _OPERANDS_FOLLOW | QUERY_WORDS


def _refused(path: str, holds: str) -> InputError:
    return InputError(
        f"{path} {holds}, which Sail may compute otherwise than Spark; allowed: comparisons, IN, BETWEEN, LIKE, CASE, "
        "to_date and other functions of dates (docs/engines.md), or --engine spark"
    )
