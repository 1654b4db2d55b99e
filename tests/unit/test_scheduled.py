"""What a task of a scheduler knows of a run: its exit code, its process, what it has published. Without Airflow."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rankmetrics_spark import tools
from rankmetrics_spark.errors import ConfigError
from tests.helpers.messages import json_cases

CODES = dict(json_cases("what operators say of an exit code"))
"""What an operator says -> the exit code of its run."""


def test_the_exit_code_says_whether_a_retry_can_help() -> None:
    assert {said: tools.exit_code_in(said) for said in CODES} == CODES
    # As docs/cli.md and errors.py have them: wrong arguments, a gate of the log, a gate of the metrics.
    assert {*tools.PERMANENT} == {2, 4, 5} and tools.LATE == 3


def test_a_late_log_is_awaited_until_an_hour_of_the_day_after() -> None:
    for date, zone, until in (
        ("2026-11-20", "UTC", "2026-11-21T09:00:00+00:00"),
        ("2026-11-20..2026-12-31", "Asia/Tokyo", "2027-01-01T09:00:00+09:00"),
    ):
        assert tools.waits_until(date, "09:00", zone).isoformat() == until
    for hour, zone in (("9:00", "UTC"), ("09:00", "Mars/City")):
        with pytest.raises(ConfigError, match=f"late_until is '{hour}' and its time zone '{zone}'; allowed: an hour"):
            tools.waits_until("2026-11-20", hour, zone)


def until(look: Callable[[], object]) -> object:
    end = time.monotonic() + 30
    while (found := look()) is None and time.monotonic() < end:
        time.sleep(0.05)
    return found


def test_a_process_outlives_its_task_and_leaves_log_and_exit_code(tmp_path: Path) -> None:
    folder, program = tmp_path / "a job", "echo $WORD; echo wrong >&2; exit 4"
    tools.start(folder, ["sh", "-c", program], {**os.environ, "WORD": "said"})
    assert until(tools.Watch(folder).code) == 4
    assert (folder / "log").read_text() == "said\nwrong\n"


def test_a_process_is_followed_to_its_end_where_no_sign_of_life_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    tools.start(folder, ["sh", "-c", f"rm -f '{folder}/alive'; mkdir '{folder}/alive'; sleep 2.5; exit 4"], os.environ)
    assert until(tools.Watch(folder).code) == 4


def test_a_process_is_ended_from_any_machine_with_all_that_it_has_started(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    # Its child would write this file if it went on.
    tools.start(folder, ["sh", "-c", f"(sleep 5; touch {tmp_path}/went_on) & sleep 60"], os.environ)
    watch = tools.Watch(folder)
    assert until(lambda: (folder / "alive").exists() or None) and watch.code() is None
    (folder / "stop").touch()
    assert until(watch.code) == 128 + 15
    time.sleep(5)
    assert not (tmp_path / "went_on").exists()


def test_a_process_of_which_nothing_is_heard_is_lost(tmp_path: Path) -> None:
    alive, watch = tmp_path / "alive", tools.Watch(tmp_path, silence=0.5)
    for beat in range(1, 4):  # of a clock that is years behind
        alive.touch()
        os.utime(alive, (beat, beat))
        assert watch.code() is None
        time.sleep(0.3)
    assert until(watch.code) == tools.LOST


def test_what_is_announced_is_the_partition_the_counts_and_the_verdict() -> None:
    partitions = [{"experiment_id": "a", "evaluation_date": "2026-11-20"}]
    pointer = {"evaluation_date": "2026-11-20", "run_id": "r", "record": "runs/r.json", "partitions": partitions}
    rows = {"in": 7, "evaluated": 6, "quarantined": 1}
    record = {"rows": rows, "quality": {"warnings": ["half a day"]}, "verdict": [f"{n}" for n in range(30)]}
    assert tools.announcement(pointer | {"sequence": 2, "tables": {}}, record) == pointer | {
        "rows": rows, "warnings": 1, "verdict": [f"{n}" for n in range(20)]
    }  # fmt: skip
    # A record that Airflow cannot read.
    assert tools.announcement(pointer, {}) == pointer | {"rows": None, "warnings": 0, "verdict": []}
