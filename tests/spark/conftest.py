"""Run the command line in the session of the test suite."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import cli
from rankmetrics_spark.cli import options, stored
from rankmetrics_spark.engines import Choice
from tests.helpers.commands import Call, Terminal, Typed


@pytest.fixture
def call(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run the command in this process: exit code, stdout, stderr."""
    for module in (cli, stored):
        monkeypatch.setattr(module, "choose", lambda engine, *_, **__: Choice("sail" if engine == "sail" else "spark"))
    for module in (cli, options):
        monkeypatch.setattr(module, "session_of", lambda *_: nullcontext(spark))

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        code: object = None
        try:
            cli.main([str(argument) for argument in arguments], "rankmetrics")
        except SystemExit as end:
            code = end.code
            assert code != 0, "success ends by returning"
        out, err = capfd.readouterr()
        return int(code or 0), out, err  # type: ignore[call-overload]

    return call


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Let what follows read this text from stdin, which may be a terminal."""

    def typed(text: str, terminal: bool = False) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(text) if terminal else io.StringIO(text))

    return typed
