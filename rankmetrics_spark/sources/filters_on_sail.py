"""Filters on Sail: expressions with other values than on Spark are rewritten or refused.

Some functions of Sail silently return other values than Spark's. ``REFUSED``, ``REWRITTEN`` and ``LIMITED`` hold all
that ``tests/spark/test_filters.py`` has seen; docs/engines.md is checked against them. A filter that is allowed here
keeps the same rows on both engines, or fails on both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
    "other patterns": "regexp_count regexp_extract regexp_instr regexp_replace regexp_substr split",
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
    ("substr", 2): "substring({0}, {1})",
    ("substr", 3): "substring({0}, {1}, {2})",
    ("weekday", 1): "((dayofweek({0}) + 5) % 7)",
    **{(name, 1): f"cast({{0}} as {name})" for name in _NUMBERS_AND_TIMES},
}
"""Function and number of arguments -> its replacement on Sail."""
_DATE_FIELDS = _names(
    "year y years yr yrs quarter qtr month mon mons months week w weeks day d days doy hour h hours hr hrs minute m min"
    " mins second s sec seconds secs"
)
_DATE_UNITS = _names("year yyyy yy quarter month mon mm week")
_TIMES = _names(
    "convert_timezone current_timestamp date_trunc from_utc_timestamp make_timestamp now timestamp timestamp_micros"
    " timestamp_millis to_timestamp to_utc_timestamp try_to_timestamp"
)
_TEXT_FUNCTIONS = frozenset(FUNCTIONS["text"].split()) | {"string", "date_format", "coalesce", "if", "ifnull", "nvl"}
_WITH_TEXT = ("string", "int", "bigint", "smallint", "tinyint", "boolean", "date")
"""Types whose values have the same text on both engines."""
_DOUBLES = frozenset(["double", "float", "sqrt"])
_OPERANDS_FOLLOW = _names(
    "all and any between case div else escape ilike in is like not or regexp rlike some then when"
)
_PLAIN = re.compile(r"\d+")


@dataclass(frozen=True)
class _Call:
    """A function with its arguments, and the types of the columns."""

    name: str
    arguments: Sequence[Words]
    types: Mapping[str, str]

    def literal(self, at: int) -> str | None:
        """Return an argument that is one literal, in lower case; else None."""
        words = self.arguments[at] if at < len(self.arguments) else ()
        return words[0].text.strip("'\"") if len(words) == 1 and words[0].kind in ("string", "word", "number") else None

    def plain(self, at: int) -> bool:
        """Whether an argument is a whole number above 0."""
        value = self.literal(at)
        return value is not None and _PLAIN.fullmatch(value) is not None and int(value) > 0

    def texts(self) -> bool:
        """Whether every argument has the same text on both engines."""
        return all(_as_text(word, self.types) for words in self.arguments for word in words)


LIMITED: Mapping[str, tuple[Callable[[_Call], bool], str]] = {
    **dict.fromkeys(["left", "right"], (lambda call: call.plain(1), "a length that is a number above 0")),
    **dict.fromkeys(
        ["substr", "substring"],
        (lambda call: len(call.arguments) < 3 or call.plain(1), "a start that is a number above 0"),
    ),
    "locate": (lambda call: len(call.arguments) < 3 or call.plain(2), "a start that is a number above 0"),
    "pmod": (lambda call: call.plain(1), "a divisor that is a whole number above 0"),
    "round": (lambda call: len(call.arguments) == 1, "round to whole numbers"),
    **dict.fromkeys(
        ["date_part", "datepart"],
        (lambda call: call.literal(0) in _DATE_FIELDS, "the fields year to second, week and doy, in quotes"),
    ),
    "trunc": (lambda call: call.literal(1) in _DATE_UNITS, "the units year, quarter, month and week, in quotes"),
    **dict.fromkeys(
        ["date_add", "date_diff", "dateadd", "datediff"],
        (lambda call: len(call.arguments) < 3, "two arguments, for whole days"),
    ),
    "hash": (
        lambda call: (
            not any(
                w.kind == "number" or "decimal" in call.types.get(w.text, "") for words in call.arguments for w in words
            )
        ),
        "arguments other than decimals",
    ),
    **dict.fromkeys(["concat", "concat_ws"], (_Call.texts, "texts, whole numbers, dates and booleans")),
}
"""Function -> a check of its call, and what is allowed."""


def on_sail(path: str, where: str, types: Mapping[str, str]) -> str:
    """Rewrite a filter so that it keeps the same rows on Sail as ``where`` does on Spark.

    >>> on_sail("source.where", "not isnan(score) and score > 0.5", {"score": "double"})
    'not coalesce(isnan(score), false) and score > 0.5D'
    >>> on_sail("source.where", "n + 1 < 3", {"n": "int"})
    Traceback (most recent call last):
    rankmetrics_spark.errors.InputError: source.where holds 'n + 1', and the engine sail wraps whole numbers around \
where Spark fails; allowed: arithmetic on doubles, such as double(n) + 1, or --engine spark
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
            if is_call and (close := _partner(words, at + 1, 1)):
                parts.append(self._rewrite_call(word, words[at + 2 : close]))
                end, at = words[close].end, close + 1
                continue
            parts.append(self._rewrite_word(words, at))
            end, at = word.end, at + 1
        return "".join(parts)

    def _rewrite_call(self, word: Token, body: Words) -> str:
        """Rewrite a call of a function."""
        call = _Call(word.text, _split(body), self.types)
        for difference, names in REFUSED.items():
            if word.text in names.split():
                raise self._error(f"calls '{word.text}'", f"has {difference} there", "")
        if word.text in ("cast", "try_cast"):
            place = max((i for i, part in enumerate(body) if part.text == "as" and part.kind == "word"), default=0)
            self._check_conversion(word.text, "".join(part.text for part in body[place + 1 :]), body[:place])
        elif word.text == "binary":
            self._check_conversion("binary", "binary", body)
        elif word.text in LIMITED and not LIMITED[word.text][0](call):
            raise self._error(f"calls '{word.text}'", "gives other values for some arguments", LIMITED[word.text][1])
        elif word.text in ("regexp", "regexp_like", "rlike"):
            text, *pattern = call.arguments or [()]
            return f"{word.text}({self.rewrite(text)}, {self._pattern(pattern[0] if len(pattern) == 1 else ())})"
        template = REWRITTEN.get((word.text, len(call.arguments)))
        if template is None:
            return f"{word.text}({self.rewrite(body)})"
        if "cast(" in template:
            self._check_conversion(word.text, word.text, body)
        return template.format(*map(self.rewrite, call.arguments))

    def _rewrite_word(self, words: Words, at: int) -> str:
        """Rewrite a word that is no call."""
        word, text = words[at], self.where[words[at].start : words[at].end]
        before, after = words[at - 1] if at else None, words[at + 1] if at + 1 < len(words) else None
        if word.kind == "string" and before and before.kind == "string":
            raise self._error("holds two texts side by side", "reads them otherwise", 'a quote as in "it\'s"')
        if word.text == "ilike" and word.kind == "word":
            raise self._error("holds ILIKE", "has other upper and lower case there", "lower(x) LIKE 'text'")
        if before and before.kind == "word" and before.text in ("regexp", "rlike"):
            return self._pattern(words[at : at + 1 + bool(after and after.text in ("|", "::"))])
        if word.text == "::":
            if words[at - 1].kind == "symbol":
                raise self._error("holds '::' after a parenthesis", "may convert it otherwise", "cast(x as type)")
            target = words[at + 1].text if at + 1 < len(words) else ""
            self._check_conversion("::", target, words[at - 1 : at])
        arrow = word.text == "-" and after is not None and after.text == ">"
        if word.kind == "symbol" and word.text in "+-*/%" and not arrow and not _is_unary(words, at):
            self._check_arithmetic(words, at)
        if word.text == "|" and after and after.text == "|":
            left, right = words[at - 1], words[at + 2] if at + 2 < len(words) else words[at]
            opening = _partner(words, at - 1, -1) if left.text == ")" else None
            left = words[opening - 1] if opening else left
            if not (_as_text(left, self.types) and _as_text(right, self.types)):
                allowed = "texts, whole numbers, dates and booleans"
                raise self._error("holds '||'", "writes doubles and times otherwise", allowed)
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

    # ---- operators

    def _check_arithmetic(self, words: Words, at: int) -> None:
        left, right = self._operand(words, at - 1), self._operand(words, at + 1)
        if "double" in (left, right):
            return
        expression = self.where[words[max(at - 1, 0)].start : words[min(at + 1, len(words) - 1)].end]
        if "decimal" in (left, right):
            allowed = "arithmetic on doubles, such as double(x) / 3"
            raise self._error(f"holds '{expression}'", "keeps other digits of decimals", allowed)
        days = left in ("date", "timestamp") and right in ("days", "interval")
        if words[at].text in "+-*" and not days:
            allowed = "arithmetic on doubles, such as double(n) + 1"
            raise self._error(f"holds '{expression}'", "wraps whole numbers around where Spark fails", allowed)

    def _operand(self, words: Words, at: int) -> str:
        """Return the type of an operand, as far as the word next to the operator tells."""
        if not 0 <= at < len(words):
            return ""
        word = words[at]
        if word.kind == "number":
            return "decimal" if "." in word.text and word.text[-1].isdigit() and "e" not in word.text else "double"
        callee = word
        if word.text == ")":
            opening = _partner(words, at, -1)
            callee = words[opening - 1] if opening else word
            cast = callee.text in ("cast", "try_cast") and words[at - 1].text in _DOUBLES
            return "double" if cast or callee.text in _DOUBLES else "date" if callee.text in _DATES else ""
        after = words[at + 1].text if at + 1 < len(words) else ""
        if after in ("::", ".", "[") or _is_qualified(words, at):
            return ""
        if after == "(":
            return "double" if word.text in _DOUBLES else ""
        if word.kind == "string" and at and words[at - 1].text in ("date", "timestamp"):
            return words[at - 1].text
        if word.kind == "word" and word.text == "interval":
            return "interval"
        if _PLAIN.fullmatch(word.text):
            return "days"
        kind = "date" if word.text == "current_date" else self.types.get(word.text, "")
        return "double" if kind == "float" else kind.partition("(")[0]

    # ---- patterns

    def _pattern(self, words: Words) -> str:
        """Translate a pattern of Java to Rust."""
        literal = self.where[words[0].start : words[0].end] if len(words) == 1 and words[0].kind == "string" else ""
        pattern = _unescaped(literal)
        rust = None if pattern is None else rust_pattern(pattern)
        if rust is None:
            allowed = r"a pattern in quotes of characters, classes, groups, quantifiers, \d, \w, \s, ^ and a final $"
            raise self._error(f"holds the pattern {literal or 'of a column'}", "may read it otherwise", allowed)
        return "'" + rust.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def _error(self, holds: str, why: str, allowed: str) -> InputError:
        allowed = f"{allowed}, or --engine spark" if allowed else "--engine spark"
        return InputError(f"{self.path} {holds}, and the engine sail {why}; allowed: {allowed}")


_DATES = _names("current_date curdate date date_add date_sub last_day make_date next_day to_date trunc")


def _as_text(word: Token, types: Mapping[str, str]) -> bool:
    """Whether a word has the same text on both engines: text, a whole number, or a column of such a type."""
    if word.kind in ("string", "symbol"):
        return True
    if word.kind == "number":
        return False
    return types.get(word.text, "") in _WITH_TEXT or word.text in _TEXT_FUNCTIONS or bool(_PLAIN.fullmatch(word.text))


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


def _partner(words: Words, at: int, step: int) -> int | None:
    """Return the index of the parenthesis that closes (step 1) or opens (-1) the one here; None if there is none.

    One that the first word opens is none: it follows no function.
    """
    depth = 0
    for place in range(at, len(words) if step > 0 else 0, step):
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


def _unescaped(literal: str) -> str | None:
    r"""Return the text of a literal; None if it has other escapes than those of quotes and backslashes.

    >>> print(_unescaped(r"'\\d'"), _unescaped(r"r'\d'"), _unescaped(r"'\n'"))
    \d \d None
    """
    if literal[:1] in ("r", "R"):
        return literal[2:-1]
    body = re.fullmatch(r"""(?:[^\\]|\\[\\'"])*""", literal[1:-1], re.DOTALL) if literal else None
    return re.sub(r"\\(.)", r"\1", body[0]) if body else None


_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0B\f\r"}
_LINE_END = r"\n\r\x{85}\x{2028}\x{2029}"
_PATTERN_PART = re.compile(
    r"""
      (?P<class>\\[dwsDWS])
    | (?P<escaped>\\[-.*+?()\[\]{}|^$\\/])
    | (?P<set>\[\^?(?:\\[dws]|\\[-.*+?()\[\]{}|^$\\/]|(?!&&|--|~~)[^\\\[\]])+\])
    | (?P<group>\((?:\?:)?(?!\?))
    | (?P<count>(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![+*?]))
    | (?P<end>\$(?=\)*\Z))
    | (?P<any>\.)
    | (?P<plain>[^\\\[\](){}*+?$.])
    | (?P<close>\))
    """,
    re.VERBOSE,
)


def rust_pattern(pattern: str) -> str | None:
    r"""Translate a regular expression of Java to one that matches the same texts in Rust; None if unsure.

    In Rust, classes include all of Unicode, ``.`` excludes one line end only, and ``$`` matches before none.

    >>> print(rust_pattern(r"^\d+[\w-]$"))
    ^[0-9]+[a-zA-Z0-9_-](?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z
    >>> print(rust_pattern("(?i)a"), rust_pattern("a(?=b)"), rust_pattern("a*+"))
    None None None
    """
    rust, at, depth = "", 0, 0
    while at < len(pattern):
        part = _PATTERN_PART.match(pattern, at)
        if part is None or part.lastgroup is None:
            return None
        depth += {"group": 1, "close": -1}.get(part.lastgroup, 0)
        if depth < 0:
            return None
        text = part[0]
        if part.lastgroup == "class":
            text = f"[{'^' * text[1].isupper()}{_CLASSES[text[1].lower()]}]"
        elif part.lastgroup == "set":
            text = re.sub(r"\\([dws])", lambda match: _CLASSES[match[1]], text)
        elif part.lastgroup == "end":
            text = rf"(?:\r\n|[{_LINE_END}])?\z"
        elif part.lastgroup == "any":
            text = rf"[^{_LINE_END}]"
        rust, at = rust + text, part.end()
    return None if depth else rust
