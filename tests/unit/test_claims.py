"""Claims of runs on partitions: by locks, and where there are none."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankmetrics_spark.errors import OutputError
from rankmetrics_spark.sinks import Partitions, claims, files_of
from rankmetrics_spark.sinks.claims import Claim, ClaimContent, Lease

DATE = "2026-11-20"


def test_a_run_cleans_up_after_killed_ones_and_leaves_living_ones_alone(tmp_path: Path) -> None:
    dead: list[ClaimContent] = []
    living, killed, mine = (Claim(tmp_path, name, dead.append) for name in ("living", "killed", "mine"))
    living.take(Partitions(DATE, ["a"]), "out")
    killed.take(Partitions(DATE, ["b", "c"]), "out")
    # As the system does when a process ends: the lock goes, the file stays.
    killed._file.close()  # type: ignore[union-attr]
    mine.open()
    assert dead == [ClaimContent("killed", DATE, ("b", "c"))]
    assert sorted(path.name for path in tmp_path.glob("*.claim")) == ["living.claim", "mine.claim"]
    with pytest.raises(OutputError, match="another run is writing experiment 'a'"):
        mine.take(Partitions(DATE, ["a", "b"]), "out")
    mine.take(Partitions("2026-11-19", ["a"]), "out")


def test_where_there_are_no_locks_a_date_has_one_writer(tmp_path: Path) -> None:
    files, dead = files_of(str(tmp_path)), list[ClaimContent]()

    def lease(run: str) -> Lease:
        made = Lease(lambda function, *rest: function(files, *rest), run, dead.append)
        made.open()
        return made

    def change(run: str, **content: Any) -> None:
        """Change what the claim of a run says."""
        path = f"_staging/{run}.claim"
        files.write(path, json.dumps(json.loads(files.read(path) or "") | content))

    first, second = lease("r1"), lease("r2")
    first.take(Partitions(DATE, ["a"]), "out")
    with pytest.raises(OutputError, match=f"^another run is writing {DATE} in out; run this again when it has ended$"):
        second.take(Partitions(DATE, ["b"]), "out")
    second.take(Partitions("2026-11-19", ["a"]), "out")
    assert dead == []
    # The process of the first run is gone: its number is free, or another process has it.
    change("r1", start="0")
    lease("r3").take(Partitions(DATE, ["a"]), "out")
    assert ClaimContent("r1", DATE, ("a",)) in dead
    # A run on another machine lives as long as it says so.
    change("r3", host="another")
    with pytest.raises(OutputError, match="another run is writing"):
        lease("r4").take(Partitions(DATE, ["a"]), "out")
    # It says so each minute; after a quarter of an hour of silence, it counts as ended.
    change("r3", beat=time.time() - 14 * 60)
    with pytest.raises(OutputError, match="another run is writing"):
        lease("r5").take(Partitions(DATE, ["a"]), "out")
    change("r3", beat=time.time() - 15 * 60)
    lease("r5").take(Partitions(DATE, ["a"]), "out")


def test_containers_with_one_host_name_tell_their_runs_apart_by_signs_of_life() -> None:
    claim = claims.process_identity() | {"beat": time.time()}
    assert claims.lives(claim, lease=0)
    assert not claims.lives(claim | {"start": "0"})
    # This process cannot look up the other container's, whatever their numbers are.
    name, _, namespace = claim["host"].rpartition(" ")
    assert namespace == os.readlink("/proc/self/ns/pid")
    theirs = claim | {"host": f"{name} pid:[1]"}
    assert claims.lives(theirs | {"start": "0"})
    assert not claims.lives(theirs, lease=0)


def test_a_sign_of_life_does_not_bring_back_a_claim_that_was_given_up(tmp_path: Path) -> None:
    files = files_of(str(tmp_path))

    def slowly(function: Callable[..., Any], *arguments: Any) -> Any:
        if function is claims.write_claim:
            time.sleep(0.01)
        return function(files, *arguments)

    for number in range(20):
        lease = claims.Lease(slowly, f"run-{number}", lambda dead: None, lease=0.015)
        lease.open()
        time.sleep(0.005)
        lease.release()
    time.sleep(0.1)
    assert claims.claims(files) == []
