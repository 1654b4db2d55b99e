"""Filters on Sail: expressions with other values than on Spark are rewritten or refused.

Some functions of Sail silently return other values than Spark's. ``REFUSED`` and ``REWRITTEN`` hold all that
``tests/spark/test_filters.py`` has seen; docs/engines.md is checked against them. A filter that is allowed here
keeps the same rows on both engines, or fails on both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rankmetrics_spark.config import FUNCTIONS, KNOWN, QUERY_WORDS, Token, tokens
from rankmetrics_spark.errors import InputError

Words: TypeAlias = Sequence[Token]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NUMBERS_AND_TIMES = _names("bigint boolean date double float int smallint string timestamp tinyint")
REFUSED = {
    "other roundings and overflows": "bround ceil ceiling floor rint width_bucket",
    "other last digits": "cbrt exp hypot ln log log10 log2 pow power",
    "other upper and lower case": "ilike initcap",
    "other patterns": "regexp regexp_count regexp_extract regexp_instr regexp_like regexp_replace regexp_substr rlike"
    " split",
    "other values for some arguments": "concat concat_ws date_part datepart hash left locate pmod right round substr"
    " substring trunc",
    "other nulls in arrays": "array array_contains arrays_overlap",
    "other readings of JSON and addresses": "from_json get_json_object json_array_length json_object_keys parse_url"
    " try_parse_url",
    "other seconds, texts and types": "base64 timestamp_seconds try_to_date typeof unix_seconds",
}
"""Difference -> functions that a filter may not call because of it."""
REWRITTEN = {
    ("isnan", 1): "coalesce(isnan({0}), false)",
    ("nullif", 2): "if({0} = {1}, null, {0})",
    ("nvl2", 3): "if({0} is not null, {1}, {2})",
    ("weekday", 1): "((dayofweek({0}) + 5) % 7)",
    **{(name, 1): f"cast({{0}} as {name})" for name in _NUMBERS_AND_TIMES},
}
"""Function and number of arguments -> its replacement on Sail."""
_OF_DAYS = ("date_add", "date_diff", "dateadd", "datediff")
_TIMES = _names(
    "convert_timezone current_timestamp date_trunc from_utc_timestamp make_timestamp now timestamp timestamp_micros"
    " timestamp_millis to_timestamp to_utc_timestamp try_to_timestamp"
)
_TEXT_FUNCTIONS = frozenset(FUNCTIONS["text"].split()) | {"string", "date_format", "coalesce", "if", "ifnull", "nvl"}
_WITH_TEXT = ("string", "int", "bigint", "smallint", "tinyint", "boolean", "date")
"""Types whose values have the same text on both engines."""
_OPERANDS_FOLLOW = _names(
    "all and any between case div else escape ilike in is like not or regexp rlike some then when"
)


def on_sail(path: str, where: str, types: Mapping[str, str]) -> str:
    """Rewrite a filter so that it keeps the same rows on Sail as ``where`` does on Spark.

    >>> on_sail("source.where", "not isnan(score) and score > 0.5", {"score": "double"})
    'not coalesce(isnan(score), false) and score > 0.5D'
    >>> on_sail("source.where", "n + 1 < 3", {"n": "int"})
    Traceback (most recent call last):
    rankmetrics_spark.errors.InputError: source.where holds '+', and the engine sail rounds and overflows \
otherwise; allowed: date_add(x, 7) and date_sub(x, 7) for days, or --engine spark
    """
    return _Rewriter(path, where, types).rewrite(list(tokens(path, where)))


@dataclass(frozen=True)
class _Rewriter:
    path: str
    where: str
    types: Mapping[str, str]

    def rewrite(self, words: Words) -> str:
        """Return these words as Sail should get them."""
        parts: list[str] = []
        at, end = 0, words[0].start if words else 0
        while at < len(words):
            word = words[at]
            parts.append(self.where[end : word.start])
            opens = at + 1 < len(words) and (words[at + 1].kind, words[at + 1].text) == ("symbol", "(")
            is_call = opens and word.kind in ("word", "quoted") and word.text in KNOWN and not _is_qualified(words, at)
            if is_call and (close := _partner(words, at + 1)):
                parts.append(self._rewrite_call(word, words[at + 2 : close]))
                end, at = words[close].end, close + 1
                continue
            parts.append(self._rewrite_word(words, at))
            end, at = word.end, at + 1
        return "".join(parts)

    def _rewrite_call(self, word: Token, body: Words) -> str:
        """Rewrite a call of a function."""
        arguments = _split(body)
        for difference, names in REFUSED.items():
            if word.text in names.split():
                raise self._error(f"calls '{word.text}'", f"has {difference} there", "")
        if word.text in ("cast", "try_cast"):
            place = max((i for i, part in enumerate(body) if part.text == "as" and part.kind == "word"), default=0)
            self._check_conversion(word.text, "".join(part.text for part in body[place + 1 :]), body[:place])
        elif word.text == "binary":
            self._check_conversion("binary", "binary", body)
        elif word.text in _OF_DAYS and len(arguments) > 2:
            raise self._error(f"calls '{word.text}'", "counts otherwise with a unit", "two arguments, for whole days")
        template = REWRITTEN.get((word.text, len(arguments)))
        if template is None:
            return f"{word.text}({self.rewrite(body)})"
        if "cast(" in template:
            self._check_conversion(word.text, word.text, body)
        return template.format(*map(self.rewrite, arguments))

    def _rewrite_word(self, words: Words, at: int) -> str:
        """Rewrite a word that is no call."""
        word, text = words[at], self.where[words[at].start : words[at].end]
        before, after = words[at - 1] if at else None, words[at + 1] if at + 1 < len(words) else None
        if word.kind == "string" and before and before.kind == "string":
            raise self._error("holds two texts side by side", "reads them otherwise", 'a quote as in "it\'s"')
        if word.text in ("ilike", "regexp", "rlike") and word.kind == "word":
            raise self._error(f"holds {word.text.upper()}", "matches other texts", "LIKE, as in lower(x) LIKE 'a%'")
        if word.text == "::":
            raise self._error("holds '::'", "may convert it otherwise", "cast(x as type)")
        arrow = word.text == "-" and after is not None and after.text == ">"
        if word.kind == "symbol" and word.text in "+-*/%" and not arrow and not _is_unary(words, at):
            allowed = "date_add(x, 7) and date_sub(x, 7) for days" if text in "+-" else ""
            raise self._error(f"holds '{text}'", "rounds and overflows otherwise", allowed)
        if word.text == "|" and after and after.text == "|":
            raise self._error("holds '||'", "writes doubles and times otherwise", "")
        # Sail compares a double with a decimal as decimals of 15 digits after the point, Spark as doubles.
        return f"{text}D" if word.kind == "number" and "." in text and text[-1].isdigit() else text

    # ---- conversions

    def _check_conversion(self, name: str, target: str, body: Words) -> None:
        """Refuse conversions of times to numbers, and of doubles and times to texts."""
        kinds = [self.types.get(word.text, "") for word in body if word.kind in ("word", "quoted")]
        if target.startswith(("string", "char", "varchar")) and not all(_as_text(word, self.types) for word in body):
            allowed = "texts, whole numbers, dates and booleans"
            raise self._error(f"makes a text with '{name}'", "writes doubles and times otherwise", allowed)
        number = target.startswith(("bigint", "decimal", "double", "float", "int", "smallint", "tinyint"))
        times = any("timestamp" in kind for kind in kinds) or any(word.text in _TIMES for word in body)
        if number and times:
            raise self._error(f"makes a number of a time with '{name}'", "rounds it otherwise", "unix_micros(x)")
        if target == "binary" and any(kind not in ("string", "binary") for kind in kinds):
            raise self._error(f"makes bytes of a number with '{name}'", "does where Spark fails", "hex(x)")
        if number and "date" in kinds:
            raise self._error(f"makes a number of a date with '{name}'", "takes it for one", "unix_date(x)")
        texts = any(kind in ("string", "") for kind in kinds) or not kinds
        if name == "try_cast" and target.startswith(("decimal", "double", "float")) and texts:
            raise self._error("reads a number with 'try_cast'", "takes fewer texts for numbers", "cast(x as double)")

    def _error(self, holds: str, why: str, allowed: str) -> InputError:
        allowed = f"{allowed}, or --engine spark" if allowed else "--engine spark"
        return InputError(f"{self.path} {holds}, and the engine sail {why}; allowed: {allowed}")


def _as_text(word: Token, types: Mapping[str, str]) -> bool:
    """Whether a word has the same text on both engines: text, a whole number, or a column of such a type."""
    if word.kind in ("string", "symbol"):
        return True
    if word.kind == "number":
        return False
    return types.get(word.text, "") in _WITH_TEXT or word.text in _TEXT_FUNCTIONS or word.text.isdigit()


def _is_qualified(words: Words, at: int) -> bool:
    return at > 0 and words[at - 1].text == "." and words[at - 1].kind == "symbol"


def _is_unary(words: Words, at: int) -> bool:
    """Whether a sign has no operand on its left."""
    if at == 0:
        return True
    before = words[at - 1]
    if before.kind == "symbol":
        return before.text not in (")", "]")
    return before.kind == "word" and before.text in _OPERANDS_FOLLOW | QUERY_WORDS


def _partner(words: Words, at: int) -> int | None:
    """Return the index of the parenthesis that closes the one here; None if there is none."""
    depth = 0
    for place in range(at, len(words)):
        if words[place].kind == "symbol":
            depth += {"(": 1, ")": -1}.get(words[place].text, 0)
        if not depth:
            return place
    return None


def _split(words: Words) -> list[Words]:
    """Split the arguments of a call at its commas."""
    depth, start, arguments = 0, 0, list[Words]()
    for at, word in enumerate(words):
        if word.kind == "symbol":
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word.text, 0)
            if word.text == "," and not depth:
                arguments.append(words[start:at])
                start = at + 1
    return [*arguments, words[start:]] if words else []
