"""Run the command line in the session of the test suite."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import cli, job
from rankmetrics_spark.cli import options, stored
from rankmetrics_spark.engines import Choice
from tests.helpers.commands import Call, Terminal, Typed


@pytest.fixture
def call(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run the command in this process: exit code, stdout, stderr.

    The session lives on, but as in a process of its own, no table can be read once the command has left it.
    """
    is_left, read_back = [False], job.Outcome._read_back

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        is_left[0] = False
        yield spark
        is_left[0] = True

    def read_in_session(outcome: job.Outcome, table: str) -> Any:
        assert not is_left[0], f"{table} is read after the session has ended"
        return read_back(outcome, table)

    monkeypatch.setattr(job.Outcome, "_read_back", read_in_session)
    for module in (cli, stored):
        monkeypatch.setattr(module, "choose", lambda engine, *_, **__: Choice("sail" if engine == "sail" else "spark"))
    for module in (cli, options):
        monkeypatch.setattr(module, "session_of", session)

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
