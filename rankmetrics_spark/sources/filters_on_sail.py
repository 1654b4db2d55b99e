"""Filters on Sail: what keeps the same rows as on Spark is allowed, and everything else is refused.

Comparisons, IN, BETWEEN, LIKE, CASE, AND, OR and NOT, and the few functions of ``ALLOWED``. Many others of Sail return
other values than Spark's without a word. ``tests/spark/test_filters.py`` compares what is allowed over odd rows.
"""

from collections.abc import Mapping, Sequence

from rankmetrics_spark.config import KNOWN, QUERY_WORDS, Token, tokens
from rankmetrics_spark.doors import data_of
from rankmetrics_spark.errors import InputError

_WORDS = data_of(__name__, "sail")
#: Functions that a filter may call on Sail, beside ``cast`` of a column.
ALLOWED: dict[str, str] = _WORDS["allowed"]
_CALLS = frozenset(" ".join(ALLOWED.values()).split())
# isnan of a null is null on Sail, which lacks the function date. Without the sum, Sail passes over groups of rows by
# their statistics, which leave NaN out.
_REWRITTEN = {"isnan": "equal_null(double('NaN'), 0D + ", "date": "to_date("}
#: Words and symbols with other values on Sail: it rounds and overflows otherwise, and matches other texts.
_REFUSED = frozenset(_WORDS["refused"].split())
#: Function -> what it may be called of: a column, a text, or what gives one.
_TAKES = dict.fromkeys(("date", "to_date", "to_timestamp"), "text or time") | {"isnan": "number"}
_TEXTS_AND_TIMES = frozenset(_WORDS["texts and times"].split())
_INTEGERS = "int bigint smallint tinyint"
#: Types of a column -> what it may be converted to.
_CAST: dict[str, str] = _WORDS["cast"]
_OPERANDS_FOLLOW = frozenset(_WORDS["before operands"].split())


def on_sail(path: str, where: str, types: Mapping[str, str]) -> str:
    """Rewrite a filter so that it keeps the same rows on Sail as ``where`` does on Spark.

    >>> on_sail("source.where", "not isnan(score) and score > 0.5", {"score": "double"})
    "not equal_null(double('NaN'), 0D + score) and score > 0.5D"
    >>> on_sail("source.where", "n + 1 < 3", {"n": "int"})
    Traceback (most recent call last):
    rankmetrics_spark.errors.InputError: source.where holds '+', which Sail may compute otherwise than Spark; \
allowed: comparisons, IN, BETWEEN, LIKE, CASE, cast of a column, lower, to_date and a few more functions \
(docs/engines.md), or --engine spark
    """
    parts, end = list[str](), 0
    words = list(tokens(path, where))
    for at, word in enumerate(words):
        if word.start < end:
            continue
        parts.append(where[end : word.start])
        text, end = where[word.start : word.end], word.end
        before, after = words[at - 1] if at else None, words[at + 1] if at + 1 < len(words) else None
        if word.kind in ("word", "quoted") and word.text in KNOWN and after and after.text == "(":
            if word.text == "cast":
                _check_cast(path, words[at + 2 : at + 5], types)
            elif word.text not in _CALLS:
                raise _refused(path, f"calls '{word.text}'")
            if word.text in _TAKES and not _takes(word.text, words[at + 2 : at + 3], types):
                raise _refused(path, f"calls '{word.text}' of what is no {_TAKES[word.text]}")
            if word.text in _REWRITTEN:
                text, end = _REWRITTEN[word.text], after.end
        elif word.kind in ("word", "symbol") and word.text in _REFUSED and not _is_sign(word, before):
            raise _refused(path, f"holds '{text}'")
        elif word.kind == "string" and before and before.kind == "string":
            raise _refused(path, "holds two texts side by side")
        # Sail compares a double with a decimal as decimals of 15 digits after the point, Spark as doubles.
        parts.append(f"{text}D" if word.kind == "number" and "." in text and text[-1].isdigit() else text)
    return "".join(parts)


def _check_cast(path: str, words: Sequence[Token], types: Mapping[str, str]) -> None:
    """Refuse conversions of more than a column or text, and those that Sail makes otherwise or where Spark fails."""
    column, _, target = (*(word.text for word in words), "", "", "")[:3]
    kind = "string" if words and words[0].kind == "string" else types.get(column, "")
    allowed = {to for kinds, targets in _CAST.items() if kind in kinds.split() for to in targets.split()}
    if len(words) < 3 or words[1].text != "as":
        raise _refused(path, "converts no column")
    if target not in allowed:
        raise _refused(path, f"converts {column!r} to {target!r}")


def _takes(function: str, words: Sequence[Token], types: Mapping[str, str]) -> bool:
    """Whether a function is called of what it computes as Spark does, by the first word of its argument."""
    kind = types.get(words[0].text, "") if words else ""
    if function == "isnan":
        return kind in ("double", "float", *_INTEGERS.split())
    given = bool(words) and (words[0].kind == "string" or words[0].text in _TEXTS_AND_TIMES)
    return given or kind in ("string", "date", "timestamp")


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
        "cast of a column, lower, to_date and a few more functions (docs/engines.md), or --engine spark"
    )
