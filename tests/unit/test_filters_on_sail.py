"""Filters on Sail: what is written in another way, and what is refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from rankmetrics_spark.config import KNOWN, Token, condition, tokens
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.sources.filters_on_sail import REFUSED, REWRITTEN, _Rewriter, on_sail
from tests.helpers.odd_rows import TYPES, expressions

ENGINES = Path(__file__).parents[2] / "docs" / "engines.md"
WRITTEN = [
    ("not isnan(d)", "not coalesce(isnan(d), false)"),
    ("weekday(dt) = 6", "((dayofweek(dt) + 5) % 7) = 6"),
    ("nullif(lower(s), 'a') IS NULL", "if(lower(s) = 'a', null, lower(s)) IS NULL"),
    ("nvl2(s, 1, 0) = 1", "if(s is not null, 1, 0) = 1"),
    ("bigint(s) = 1", "cast(s as bigint) = 1"),
    ("d > 0.5 and d in (1.5, 2e3, 1.5BD)", "d > 0.5D and d in (1.5D, 2e3, 1.5BD)"),
    ("exists(words, w -> isnan(d))", "exists(words, w -> coalesce(isnan(d), false))"),
    ("double(n) > 2 and -1 < n", "cast(n as double) > 2 and -1 < n"),
    ("dt >= date_sub(current_date(), 7) and ts > timestamp '2026-01-01' and s like 'a%'",) * 2,
]


@pytest.mark.parametrize(("where", "written"), WRITTEN)
def test_what_sail_reads_otherwise_is_written_in_another_way(where: str, written: str) -> None:
    assert on_sail("source.where", condition("source.where", where), TYPES) == written


NOT_WRITTEN = [
    ("n + 1 < 3", "holds '+', and the engine sail rounds and overflows otherwise"),
    ("n % 2 = 1", "holds '%'"),
    ("s = 'it''s'", "holds two texts side by side"),
    ("s ilike 'A%'", "holds ILIKE"),
    ("s rlike 'a'", "holds RLIKE, and the engine sail matches other texts"),
    ("string(d) = '1.0'", "makes a text with 'string'"),
    ("cast(ts as string) = 'x'", "makes a text with 'cast'"),
    ("s || d = 'a1.0'", "holds '||'"),
    ("bigint(ts) = 0", "makes a number of a time with 'bigint'"),
    ("cast(ts as double) > 0", "makes a number of a time with 'cast'"),
    ("int(dt) > 0", "makes a number of a date with 'int'"),
    ("try_cast(s as double) > 0", "reads a number with 'try_cast'"),
    ("n::bigint = 1", "holds '::'"),
    ("binary(n) = bin", "makes bytes of a number with 'binary'"),
    ("datediff(day, dt, ts) > 0", "calls 'datediff'"),
]


@pytest.mark.parametrize(("where", "message"), NOT_WRITTEN)
@pytest.mark.outcome("filters on Sail with {where}", "exit 3: {message}; on Spark it runs")
def test_what_sail_computes_otherwise_is_refused(where: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^source\\.where {re.escape(message)}.*; allowed: .*--engine spark$"):
        on_sail("source.where", condition("source.where", where), TYPES)


@pytest.mark.parametrize("name", sorted(" ".join(REFUSED.values()).split()))
def test_a_function_with_other_values_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"calls '{name}', and the engine sail has other "):
        on_sail("source.where", f"flag and {name.upper()}(s, t) = 'x'", TYPES)


def test_every_function_is_compared_or_refused() -> None:
    compared = {token.text for text in expressions() for token in tokens("source.where", text)}
    refused = {*" ".join(REFUSED.values()).split()}
    assert KNOWN - compared - refused == set()
    assert refused & compared == set()
    assert {name for name, _ in REWRITTEN} <= KNOWN & compared


def test_the_page_about_engines_names_what_is_refused_and_limited() -> None:
    page = ENGINES.read_text(encoding="utf-8")
    _, _, part = page.partition("## Filters on Sail")
    named = set(re.findall(r"`(\w+)`", part.partition("\n## ")[0]))
    assert {*" ".join(REFUSED.values()).split(), "isnan", "weekday"} <= named


def test_nested_calls_are_rewritten_once() -> None:
    # Twice for each call would be 2**30 times for the deepest filter that is allowed.
    where = "lower(" * 30 + "s" + ")" * 30 + " = 'a'"
    rewritten: list[int] = []

    class Counted(_Rewriter):
        def rewrite(self, words: Sequence[Token]) -> str:
            rewritten.append(len(words))
            assert len(rewritten) < 1000
            return super().rewrite(words)

    assert Counted("source.where", where, TYPES).rewrite([*tokens("source.where", where)]) == where
