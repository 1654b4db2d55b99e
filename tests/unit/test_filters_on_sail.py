"""Filters on Sail: what is written in another way, and what is refused in one sentence."""

import re
from pathlib import Path

import pytest

from rankmetrics_spark.config import KNOWN, condition, tokens
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.sources.on_sail import ALLOWED, filter_on_sail
from tests.helpers.messages import messages
from tests.helpers.odd_rows import TYPES, expressions

ENGINES = Path(__file__).parents[2] / "docs" / "engines.md"
CALLS = {*" ".join(ALLOWED.values()).split()}
WRITTEN = [
    ("not isnan(d)", "not equal_null(double('NaN'), 0D + d)"),
    ("date(ts) = '2026-11-20' and date '2026-01-01' < dt", "to_date(ts) = '2026-11-20' and date '2026-01-01' < dt"),
    ("d > 0.5 and d in (1.5, 2e3, 1.5BD)", "d > 0.5D and d in (1.5D, 2e3, 1.5BD)"),
    ("cast(s as double) > 2 and -1 < n and (n) not in (-2)",) * 2,
    ("dt >= date_sub(current_date(), 7) and ts > timestamp '2026-01-01' and s like 'a%'",) * 2,
]


@pytest.mark.parametrize(("where", "written"), WRITTEN)
def test_what_sail_reads_otherwise_is_written_in_another_way(where: str, written: str) -> None:
    assert filter_on_sail("source.where", condition("source.where", where), TYPES) == written


@pytest.mark.parametrize(("where", "message"), messages("filters that Sail may compute otherwise"))
@pytest.mark.outcome("filters on Sail with {where}", "exit 3: {message}; on Spark it runs")
def test_what_sail_may_compute_otherwise_is_refused(where: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^source\\.where {re.escape(message)}, which Sail .*--engine spark$"):
        filter_on_sail("source.where", condition("source.where", where), TYPES)


def test_a_function_that_is_not_allowed_is_refused() -> None:
    for where in ("cast(s", "cast()", "cast(s)"):
        with pytest.raises(InputError, match="converts no column, which Sail "):
            filter_on_sail("source.where", where, TYPES)
    with pytest.raises(InputError, match="calls 'to_date' of what is no text or time, which Sail "):
        filter_on_sail("source.where", "to_date(", TYPES)
    for name in KNOWN - CALLS - {"cast"}:
        with pytest.raises(InputError, match=f"calls '{name}', which Sail "):
            filter_on_sail("source.where", f"flag and {name.upper()}(s, t) = 'x'", TYPES)


def test_every_function_that_is_allowed_is_compared_and_on_the_page_of_engines() -> None:
    assert KNOWN & {token.text for text in expressions() for token in tokens("source.where", text)} >= CALLS
    _, _, part = ENGINES.read_text(encoding="utf-8").partition("## Filters on Sail")
    assert set(re.findall(r"`(\w+)`", part.partition("\n## ")[0])) >= CALLS
