"""Filters and table names: Spark reads both as SQL, so they are checked before Spark sees them.

A filter may compute with the columns of its own row, and nothing else. This module builds no syntax tree, because only
Spark's own grammar decides what a text means. It splits a filter into the tokens of Spark's lexer, and refuses each
token and each function that it does not know. In that grammar a function is always a name in front of a parenthesis,
and a subquery always holds one of a few words.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from math import prod
from typing import NamedTuple

from rankmetrics_spark.config.fields import text
from rankmetrics_spark.doors import data_of, text_of
from rankmetrics_spark.errors import ConfigError

#: Functions that a filter may call: they compute with the values of one row, and with the clock at most.
FUNCTIONS = {what: " ".join(names) for what, names in data_of(__name__, "functions").items()}

KNOWN = frozenset(" ".join(FUNCTIONS.values()).split())
_WORDS = {what: frozenset(words.split()) for what, words in data_of(__name__, "words").items()}
#: Every query in Spark's grammar holds one of these words, as ``(SELECT ...)``, ``(TABLE t)`` or ``(FROM t)``.
QUERY_WORDS = _WORDS["query"]
#: Names that Spark reads as functions of the session if no column has them.
SESSION_WORDS = _WORDS["session"]
#: Spark replaces ``${env:NAME}`` and ``${setting}`` before it reads SQL, also inside texts and quoted names.
SUBSTITUTED = "${"

MOST_CHARACTERS, MOST_UNLISTED, LONGEST_TEXT = 1_000_000, 100_000, 1_000
#: Limits of a filter, far above what people write; beyond them, an engine crashes, or takes minutes or all memory.
#:
#: Both engines nest a OR b OR c, and a + b + c: 400 in a row run on both, and 500 end Sail. No list after IN is nested.
MOST_IN_A_ROW, MOST_OPERATORS, DEEPEST, MOST_WORK = 400, 4_000, 30, 10_000
_SYMBOLS = frozenset(".-+*/%&|^~!<>=([") | {"::"}
_JOINTS = _WORDS["joints"]
#: Function -> how much work or text a call of it makes of its arguments; nested calls multiply.
_WORK = {name: times for what, times in (("twice", 2), ("three times", 3), ("ten times", 10)) for name in _WORDS[what]}
#: Functions that make as much text as the longest text of the filter; a column counts as ten characters.
_OF_TEXT = _WORDS["of text"]

_TOKEN = re.compile(text_of(__name__, "tokens.txt"), re.VERBOSE | re.ASCII | re.DOTALL)
PLACEHOLDER = "{date}"
_BARE_DATE = re.compile(r"[{]date[}]|(?<!\w)\d{4}-\d{1,2}-\d{1,2}(?!\w)")
_PART = r"(?:\w+|`(?:[^`/:\x00-\x1f]|``)+`)"
_TABLE_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")


class Token(NamedTuple):
    """A token of a filter, and its place there."""

    kind: str
    #: In lower case; a quoted name without its backquotes.
    text: str
    start: int
    end: int


def condition(path: str, value: object) -> str:
    """A filter that can do no more than compute with the columns of a row.

    Raises:
        ConfigError: One sentence with the part that is not allowed.

    >>> condition("source.where", "lower(surface) = 'search' AND day >= '{date}'")
    "lower(surface) = 'search' AND day >= '{date}'"
    >>> condition("source.where", "java_method('java.lang.System', 'exit', 1) IS NULL")
    Traceback (most recent call last):
    rankmetrics_spark.errors.ConfigError: source.where calls 'java_method'; allowed: functions of the values of a row, \
such as lower, date_trunc and coalesce
    """
    sql = text(path, value)
    refuse_substitution(path, sql)
    if len(sql) > MOST_CHARACTERS:
        raise ConfigError(f"{path} has {len(sql):,} characters; allowed: at most {MOST_CHARACTERS:,}")
    # The date is filled in later; a word of the same length keeps every token in its place.
    words = list(tokens(path, sql.replace(PLACEHOLDER, "0" * len(PLACEHOLDER))))
    # A date outside quotes is arithmetic: 2026-11-20 is 1995.
    quoted = [word for word in words if word.kind in ("string", "quoted")]
    starts, ends = [word.start for word in quoted], [word.end for word in quoted]
    unquoted = "''".join(sql[a:b] for a, b in zip([0, *ends], [*starts, len(sql)], strict=True))
    if bare_date := _BARE_DATE.search(unquoted):
        raise ConfigError.of("bare_date", path=path, date=bare_date[0])
    before = [None, *words]
    for token, last, last_but_one in zip(words, before, [None, *before], strict=False):
        if token.text == "(" and token.kind == "symbol":
            _check_parenthesis(path, last, last_but_one)
        else:
            _check_word(path, token, last, last_but_one)
    _check_size(path, words)
    return sql


def table_name(path: str, value: object) -> str:
    """The name of a table: parts with dots between them, each one a word or in backquotes.

    Raises:
        ConfigError: The text is something else, such as a query or the path of a file.

    >>> table_name("source.table", "main.`click logs`.impressions")
    'main.`click logs`.impressions'
    """
    sql = text(path, value)
    refuse_substitution(path, sql)
    if not _TABLE_NAME.fullmatch(sql):
        raise ConfigError.of("no_table_name", path=path, sql=_cut(sql))
    return sql


def column_names(at: str, names: Iterable[str]) -> None:
    """Refuse a name of a column in which Spark would replace something, since columns are named in SQL too.

    Raises:
        ConfigError: A name holds ``${``.
    """
    for name in names:
        refuse_substitution(f"{at}: the column {_cut(name)!r}", name)


def refuse_substitution(path: str, sql: str) -> None:
    """Refuse a text in which Spark would replace something when it reads the text in SQL.

    Raises:
        ConfigError: The text holds ``${``.
    """
    if SUBSTITUTED in sql:
        raise ConfigError.of("substitution", path=path, mark=SUBSTITUTED)


def tokens(path: str, sql: str) -> Iterator[Token]:
    """The tokens of a filter.

    Raises:
        ConfigError: The filter holds something else, such as a comment.

    >>> [(token.kind, token.text) for token in tokens("source.where", "Score >= 1.5e-3")]
    [('word', 'score'), ('symbol', '>'), ('symbol', '='), ('number', '1.5e-3')]
    """
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        kind = match.lastgroup if match else None
        if match is None or kind is None or kind == "refused":
            raise ConfigError.of("no_token", path=path, part=_cut(match[0] if match else sql[at]), at=at + 1)
        if kind == "quoted":
            yield Token(kind, match[0][1:-1].replace("``", "`").lower(), at, match.end())
        elif kind != "space":
            yield Token(kind, match[0].lower(), at, match.end())
        at = match.end()


def _check_parenthesis(path: str, last: Token | None, last_but_one: Token | None) -> None:
    """Refuse a parenthesis that calls anything but a known function."""
    if last is None or (last.kind == "symbol" and last.text not in ")]"):
        return
    qualified = last_but_one is not None and last_but_one.text == "."
    if last.kind == "word" and last.text in _WORDS["before groups"] and not qualified:
        return
    if last.kind in ("word", "quoted") and last.text in KNOWN and not qualified:
        return
    name = f".{last.text}" if qualified else last.text
    near = [] if qualified else get_close_matches(name, KNOWN, n=1, cutoff=0.8)
    hint = f" did you mean '{near[0]}'?" if near else ""
    raise ConfigError.of("unknown_function", path=path, name=_cut(name), hint=hint)


def _check_word(path: str, token: Token, last: Token | None, last_but_one: Token | None) -> None:
    """Refuse the words of a query, and names that stand for a function of the session."""
    if token.kind in ("word", "quoted") and token.text in SESSION_WORDS:
        raise ConfigError(f"{path} reads {token.text} of the session; allowed: the columns of the input")
    if token.kind != "word" or token.text not in QUERY_WORDS:
        return
    words = [word.text for word in (last_but_one, last) if word]
    if token.text == "from" and words in (["is", "distinct"], ["not", "distinct"]):
        return
    raise ConfigError.of("word_of_query", path=path, word=token.text.upper())


def _check_amount(path: str, words: Sequence[Token]) -> None:
    """Refuse too many operators in a row or in all, and too many characters, but for the values of lists."""
    joined = n = n_unlisted = 0
    # Of each open parenthesis: whether a list is in it, the operators of its operand so far, and the most of one.
    levels = [[0, 0, 0]]
    for last, word in zip([None, *words], words, strict=False):
        before, symbol = last.text if last else "", word.kind == "symbol"
        text = word.text if symbol or word.kind == "word" else ""
        is_value = word.kind in ("string", "number") or text[:1].isdigit() or text == ","
        if levels[-1][0] and (is_value or (text == "-" and before in "(,")):
            continue
        n_unlisted += word.end - word.start
        counts = text in (_SYMBOLS if symbol else _WORDS["operators"]) and not (text == "=" and before in (*"<>!=",))
        n += counts
        # A row of AND, OR and WHEN is as deep as it is long; so is one of other operators. BETWEEN has an AND too.
        joined += (text in _JOINTS) - (text == "between")
        if text in _JOINTS or text in ("then", "else", ","):
            levels[-1][1] = 0
        elif counts and text not in ("(", "case"):
            levels[-1][1] += 1
        if symbol and text in "([":
            levels.append([before == "in", 0, 0])
        elif symbol and text in ")]" and len(levels) > 1:
            inner = levels.pop()
            levels[-1][1] += inner[2]
        levels[-1][2] = max(levels[-1][1:])
    in_a_row = joined + max(level[2] for level in levels)
    for amount, most, what in (
        (in_a_row, MOST_IN_A_ROW, "operators in a row"),
        (n, MOST_OPERATORS, "operators and parentheses"),
        (n_unlisted, MOST_UNLISTED, "characters outside of lists"),
    ):
        if amount > most:
            raise ConfigError(f"{path} has {amount:,} {what}; allowed: at most {most:,}, and more in x IN ('a', 'b')")


def _check_size(path: str, words: Sequence[Token]) -> None:
    """Refuse a filter on which an engine crashes, or takes minutes or all memory."""
    longest = max((word.end - word.start for word in words if word.kind == "string"), default=0)
    if longest > LONGEST_TEXT:
        raise ConfigError(f"{path} holds a text of {longest:,} characters; allowed: at most {LONGEST_TEXT:,}")
    _check_amount(path, words)
    inside: list[int] = []
    signs = 0
    for at, word in enumerate(words):
        signs = signs + 1 if word.kind in ("symbol", "word") and word.text in _WORDS["signs"] else 0
        opens = (word.kind == "symbol" and word.text in "([") or (word.kind, word.text) == ("word", "case")
        if opens:
            name = word if word.text == "case" else words[at - 1] if at else word
            inside.append(max(longest, 10) if name.text in _OF_TEXT else _WORK.get(name.text, 1))
        elif inside and (word.kind, word.text) in (("symbol", ")"), ("symbol", "]"), ("word", "end")):
            inside.pop()
        if len(inside) + signs > DEEPEST:
            raise ConfigError(f"{path} is nested more than {DEEPEST} deep; allowed: at most {DEEPEST}")
        if opens and prod(inside) > MOST_WORK:
            raise ConfigError.of("too_much_work", path=path, most=MOST_WORK, name=name.text)


def _cut(part: str) -> str:
    return part if len(part) <= 60 else f"{part[:60]}..."
