"""The Python examples in the docs give the output that they show."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from rankmetrics_spark.metrics import REGISTRY

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_the_examples_of_a_page_give_the_output_that_they_show(page: Path) -> None:
    known = set(REGISTRY)
    try:
        result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    finally:
        for name in set(REGISTRY) - known:
            del REGISTRY[name]
    assert not result.failed
