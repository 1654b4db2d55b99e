"""The rows that come to this process: what a Python step of the package refuses is one sentence here too."""

from typing import Any

import pytest

from rankmetrics_spark import engines as eng, errors

TRACE = """[PYTHON_EXCEPTION] An exception was thrown:
Traceback (most recent call last):
  File "compared.py", line 37, in refuse_unknown
{}.ConfigError: unknown experiment 'contrl'; did you mean 'control'? known: a, control

\tat org.apache.spark.api.python.BasePythonRunner"""


class Table:
    """A lazy table whose action fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def collect(self) -> list[Any]:
        raise self.error


def test_an_error_of_a_python_step_is_its_sentence_with_the_words_of_the_engine_as_cause() -> None:
    engine = RuntimeError(TRACE.format(errors.__name__))
    table: Any = Table(engine)
    with pytest.raises(errors.ConfigError, match=r"^unknown experiment 'contrl'; did you mean 'control'\? ") as caught:
        eng.few_rows(table)
    assert caught.value.__cause__ is engine


def test_another_error_stays_what_it_is() -> None:
    table: Any = Table(RuntimeError("no space left"))
    with pytest.raises(RuntimeError, match=r"^no space left$"):
        eng.few_rows(table)
