"""Run the command line in the session of the test suite."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import cli
from tests.commands import Call


class Shared:
    """The session of the test suite; the command cannot stop it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Do nothing: other tests still need the session."""


@pytest.fixture
def call(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run the command in this process: exit code, stdout, stderr."""
    monkeypatch.setattr(cli, "_session", lambda choice: Shared(spark))

    def call(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments], "rankmetrics")
        out, err = capfd.readouterr()
        return int(caught.value.code or 0), out, err

    return call
