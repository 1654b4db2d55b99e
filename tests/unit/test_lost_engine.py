"""The end of Spark's Java process: one sentence, whatever fails after it, and a record that says so."""

import json
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from socket import socket
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JNetworkError

from rankmetrics_spark import engines as eng, sinks
from rankmetrics_spark.cli.exit_codes import Folding, exit_codes
from rankmetrics_spark.config import Config, from_mapping
from rankmetrics_spark.errors import InputError, MetricGateError, RankmetricsError, lost_engine, raised_by_python
from rankmetrics_spark.job import Record, errors_in_words
from tests.helpers.packages import stand_in

ENDED = "Spark's Java process has ended, as it does when it runs out of memory or is killed; allowed: more memory"
HEAP = "An error occurred while calling o1.\n: java.lang.OutOfMemoryError: Java heap space\n\tat x"


def refused() -> ConnectionRefusedError:
    """What py4j raises once Java has ended."""
    return ConnectionRefusedError(111, "Connection refused")


def message(error: BaseException, capfd: pytest.CaptureFixture[str]) -> str:
    """What a command says that ends with this error, with exit code 1."""
    with pytest.raises(SystemExit) as caught, exit_codes(Folding(stderr=True, markup=False)):
        raise error
    assert caught.value.code == 1
    return capfd.readouterr().err.removeprefix("rankmetrics: ")


@pytest.mark.outcome(
    "Spark's Java process is killed, or runs out of memory", "exit 1; the record says `failed`", on_sail=""
)
def test_an_error_that_is_its_own_cause_ends_nothing() -> None:
    error = ValueError("a")
    error.__cause__ = error
    assert lost_engine(error) is None


def test_a_lost_connection_is_the_end_of_java(capfd: pytest.CaptureFixture[str]) -> None:
    for error in (refused(), ConnectionResetError(104, "reset"), Py4JNetworkError("Answer from Java side is empty")):
        assert message(error, capfd).startswith(ENDED)
    assert message(OSError(HEAP), capfd).startswith("Spark ran out of memory; allowed: more memory")
    assert message(FileNotFoundError(2, "No such file", "a"), capfd).startswith("cannot use the file or folder 'a'")


def test_what_fails_after_the_end_does_not_hide_its_cause(capfd: pytest.CaptureFixture[str]) -> None:
    def failing(first: BaseException) -> BaseException:
        try:
            try:
                raise first
            finally:
                raise refused()
        except ConnectionError as error:
            return error

    assert message(failing(OSError(HEAP)), capfd).startswith("Spark ran out of memory")
    assert str(lost_engine(failing(MetricGateError("b is below a")))) == "b is below a"
    assert lost_engine(ValueError("x")) is None and lost_engine(MetricGateError("b is below a")) is None


def test_an_input_that_java_could_not_read_before_its_end_is_not_to_blame(capfd: pytest.CaptureFixture[str]) -> None:
    def wrapped(cause: BaseException) -> InputError:
        try:
            raise InputError("cannot read parquet from 'log'") from cause
        except InputError as error:
            return error

    assert message(wrapped(Py4JNetworkError("Error while sending or receiving")), capfd).startswith(ENDED)
    assert lost_engine(wrapped(ValueError("it is broken"))) is None
    with pytest.raises(RankmetricsError, match=f"^{ENDED}"), errors_in_words(from_mapping({"source": {"path": "log"}})):
        raise wrapped(refused())


class Dead:
    """A session whose engine has ended."""

    def stop(self) -> NoReturn:
        raise refused()


def test_a_session_that_cannot_be_stopped_keeps_the_error_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = SimpleNamespace(appName=lambda name: SimpleNamespace(getOrCreate=Dead))
    fake = stand_in("pyspark.sql", SparkSession=SimpleNamespace(builder=builder))
    monkeypatch.setitem(sys.modules, "pyspark.sql", fake)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(OSError, match="Java heap space"), eng.session_of(eng.Choice("spark"), lambda text: None):
        raise OSError(HEAP)


def test_the_record_of_a_run_whose_engine_has_ended_says_failed(tmp_path: Path) -> None:
    config = Config.read({"source": {"path": "log"}, "sink": {"path": str(tmp_path)}})
    run_record = Record.open(config, "spark", {}, {})

    def no_engine(record: dict[str, Any]) -> NoReturn:
        raise refused()

    lost = lost_engine(refused())
    assert lost is not None
    run_record.fail(lost, no_engine, partial(sinks.refuse_on_disk, config.sink.path))
    record = json.loads((tmp_path / "runs" / f"{run_record.run_id}.json").read_text())
    assert (record["outcome"], record["error"]["exit_code"]) == ("failed", 1)
    assert record["error"]["message"].startswith(ENDED)


def test_a_server_that_was_never_there_has_not_ended() -> None:
    with closing(socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(RankmetricsError, match=f"^no Spark Connect session at '{address}': ") as caught:
            eng.session_of(eng.Choice("spark", f"sc://{address}"), lambda text: None).__enter__()
    assert lost_engine(caught.value) is None


def test_a_server_without_the_package_is_told_how_to_get_it() -> None:
    text = "pyspark.errors.exceptions.connect.PythonException: ModuleNotFoundError: No module named 'rankmetrics_spark'"
    error = raised_by_python(OSError(text))
    assert error is not None and str(error) == (
        "Spark's workers run another Python than this process: No module named 'rankmetrics_spark'; allowed: "
        "rankmetrics_spark.engines.spark.send_package(spark) once per session of a Spark Connect server, or the same "
        "packages on every worker"
    )
