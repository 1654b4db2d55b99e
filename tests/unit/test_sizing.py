"""The model of what a cluster costs: scheduler and units by visible arithmetic, and what the command refuses."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import sizing, sizing_model as sm, sizing_runs
from tests.benchmarks.sizing_runs import Case, Measured, Task
from tests.helpers.messages import messages

READ = sm.Cost("position", "read", first=2, task=0.5, unit=3, shuffled=10, read=64 * sm.MIB)
LOOK = sm.Cost("position", "look", task=0.25, unit=1, fetched=10)
AGAIN = sm.Cost("position", "again", unit=2)
SCORE = sm.Cost("position", "score", first=1, unit=5, fetched=10, written=20, memory=400)
VALUES = sm.Cost("position", "values", unit=6)
USERS = sm.Cost("position", "users", unit=8, fetched=100)
DRIVER = sm.Cost("position", "driver", first=10, task=0.125, unit=4)
COSTS = {cost.stage: cost for cost in (READ, LOOK, AGAIN, SCORE, VALUES, USERS, DRIVER)}


class TestScheduler:
    def test_tasks_go_to_the_slot_that_is_free_first(self) -> None:
        # Slot 1: 3 s. Slot 2: 1 + 1 + 1 s; the last one starts when both are free, after 3 s.
        assert sm.makespan([sm.Work(3), sm.Work(1), sm.Work(1), sm.Work(1), sm.Work(5)], [1, 1]) == 3 + 5

    def test_first_task_of_a_kind_on_each_slot_takes_longer(self) -> None:
        assert sm.makespan([sm.Work(2, first=7)] * 4, [1, 1]) == 7 + 2 + 2
        assert sm.makespan([sm.Work(2, first=7, kind="a"), sm.Work(2, first=7, kind="b")], [1]) == 2 * (7 + 2)


class TestTasks:
    def test_large_files_are_cut_at_128_mib(self) -> None:
        assert sm.splits([3 * sm.SPLIT], 1) == [sm.SPLIT, sm.SPLIT, sm.SPLIT]

    def test_small_files_are_packed_with_the_price_of_opening_them(self) -> None:
        # Four files of 12 MiB and 4 MiB for opening each: 64 MiB, on two slots 32 each, so two files together.
        assert sm.splits([12 * sm.MIB] * 4, 2) == [24 * sm.MIB, 24 * sm.MIB]

    def test_small_partitions_are_merged_for_the_slots(self) -> None:
        # 40 MB on four slots: 10 MB for each task, which is two partitions of 5 MB.
        assert sm.coalesced([(1.0, 5.0)] * 8, 4) == [2.0] * 4


class TestPrediction:
    def test_one_slot_by_hand(self) -> None:
        # 25,000 lists; one file of less than 4 MiB in one task; 8 partitions of 0.03 MB merged into one.
        job = sm.Job(1_250_000, 8, files=(3.0,))
        run = sm.predict(job, sm.Cluster(1), COSTS)
        lists = 0.025
        read = 2 + 0.5 + 3 * 1.25
        look = 0.25 + lists
        again = 2 * 1.25 * (1 - math.exp(-25_000 / 22e6))
        score = 1 + 5 * lists + (0.25 + lists)
        values = 6 * lists
        driver = 10 + 0.125 * (1 + 1 + 1 + 2 + 3) + 4 * lists
        assert [step.stage for step in run.steps] == ["read", "look", "again", "score", "values"]
        assert [step.seconds for step in run.steps] == pytest.approx([read, look, again, score, values])
        assert run.seconds == pytest.approx(read + look + again + score + values + driver)

    def test_users_are_written_by_tasks_above_half_a_million_lists(self) -> None:
        job = sm.Job(30_000_000, 8, files=(400.0,))
        users = sm.predict(job, sm.Cluster(2), COSTS).steps[-1]
        # A partition of 150,000 lists and 15 MB for each of four experiments; two slots get two of them each.
        assert (users.stage, users.tasks, users.seconds) == ("users", 2, pytest.approx(2 * 0.15 * 8))

    def test_network_brings_what_lies_on_other_nodes(self) -> None:
        job = sm.Job(50_000_000, 2)
        fast, slow = (sm.predict(job, sm.Cluster(2, network=speed), COSTS).steps[1].seconds for speed in (0.0, 0.1))
        # A million lists of 10 MB, one half on each node, of which one half lies on the other; two nodes fetch at once.
        assert slow - fast == pytest.approx(0.5 * 10 * 0.5 / 0.1)
        alone = (sm.predict(job, sm.Cluster(1, network=speed), COSTS).seconds for speed in (0.0, 0.1))
        assert next(alone) == next(alone)

    @pytest.mark.parametrize("mode", ["position", "score"])
    @pytest.mark.parametrize("partitions", [2, 200, 2000])
    def test_more_nodes_never_take_longer_than_half_as_many(self, mode: str, partitions: int) -> None:
        costs = {name: replace(cost, mode=mode) for name, cost in COSTS.items()}
        costs = costs | {"driver": replace(DRIVER, task=0.0)}
        seconds = [sm.predict(sm.Job(1e9, partitions), sm.Cluster(n, 4), costs).seconds for n in (1, 2, 4, 8, 16, 32)]
        assert seconds == sorted(seconds, reverse=True)


class TestFit:
    def test_finds_the_coefficients_of_exact_observations(self) -> None:
        def observation(tasks: int, units: float, blocks: float) -> sm.Observation:
            seconds = 2 + 0.1 * tasks + 3 * units + 0.5 * blocks / 1e3
            return sm.Observation("score", "read", tasks, units, blocks, seconds, {"read": units})

        seen = [observation(*each) for each in ((2, 1, 16), (9, 1, 8000), (3, 10, 24), (4, 20, 100), (20, 2, 0))]
        (cost,) = sm.fit(seen)
        assert [cost.first, cost.task, cost.unit, cost.block] == pytest.approx([2, 0.1, 3, 0.5])
        assert (cost.mode, cost.stage, cost.read) == ("score", "read", 20)

    def test_file_keeps_the_coefficients_and_the_command(self, tmp_path: Path) -> None:
        path = tmp_path / "costs.csv"
        sm.write_costs(path, list(COSTS.values()), "the command")
        assert path.read_text().startswith("# the command\n")
        assert sm.costs_of(path, "position")["score"] == SCORE
        sm.write_costs(path, [*COSTS.values(), replace(SCORE, mode="score")], "the command")
        assert sm.costs_of(path, "score") == {"users": USERS, "score": replace(SCORE, mode="score")}
        with pytest.raises(ValueError, match="no coefficients for mode 'list'"):
            sm.costs_of(path, "list")


class TestCommand:
    def test_prints_stages_settings_and_what_breaks_first(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert sizing.main(["--rows", "1e10", "--nodes", "50"]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith(
            "10,000,000,000 rows in 200,000,000 lists by position; 50 nodes of 16 cores and 64 GB"
        )
        words = ("read", "score", "driver and small stages", "Recommended: ", "memory of a task", "files of a node")
        assert [word for word in words if word not in printed] == []

    @pytest.mark.parametrize(("arguments", "words"), messages("arguments of sizing"))
    def test_refuses_nonsense(self, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as error:
            sizing.main(arguments)
        assert error.value.code == 2
        assert words in capsys.readouterr().err


def task(stage: int, start: float, end: float, **more: float) -> Task:
    amounts = {name: 0 for name in ("rows", "fetched_rows", *sizing_runs.AMOUNTS)}
    return Task(**{"stage": stage, "start": start, "end": end, **amounts, **more})


class TestRuns:
    @pytest.mark.parametrize("case", [*sizing_runs.UNSEEN, Case(2_500_000, network=2.5)])
    def test_case_is_read_as_it_is_written(self, case: Case) -> None:
        assert sizing_runs.case_of(str(case)) == case

    @pytest.mark.parametrize("text", ["", "many", "3M,nodes=2", "3M,workers", "3M,workers=two", "3M,many_tasks"])
    def test_unknown_case_names_what_is_known(self, text: str) -> None:
        with pytest.raises(
            ValueError, match=f"unknown run '{text}'; write the rows, .* by_score, workers=, partitions="
        ):
            sizing_runs.case_of(text)

    def test_event_log_tells_times_and_amounts(self) -> None:
        sent = [{"Name": "data sent to Python workers", "Update": "3000000"}, {"Update": 7}]
        metrics = {
            "Shuffle Read Metrics": {"Total Records Read": 5, "Remote Bytes Read": 4e6, "Local Bytes Read": 2e6},
            "Shuffle Write Metrics": {"Shuffle Bytes Written": 8e6},
            "Input Metrics": {"Records Read": 11},
            "Output Metrics": {"Bytes Written": 9e6},
            "Peak Execution Memory": 1e6,
        }
        info = {"Launch Time": 12_000, "Finish Time": 15_500, "Accumulables": sent}
        ended = {"Event": "SparkListenerTaskEnd", "Stage ID": 3, "Task Info": info, "Task Metrics": metrics}
        run = sizing_runs.read_events(
            [
                {"Event": "SparkListenerApplicationStart", "Timestamp": 10_000},
                ended | {"Task End Reason": {"Reason": "Success"}},
                ended | {"Task End Reason": {"Reason": "ExceptionFailure"}},
                {"Event": "SparkListenerApplicationEnd", "Timestamp": 30_000},
            ]
        )
        assert (run.began, run.seconds) == (10, 20)
        assert run.tasks == [Task(3, 2, 5.5, 11, 5, 6, 8, 9, 3, 0, 1)]

    def test_tasks_are_told_apart_by_what_they_move(self) -> None:
        case = Case(1000, partitions=6)
        run = Measured(
            seconds=100,
            tasks=[
                task(0, 0, 1, rows=3),
                task(1, 1, 4, rows=600),
                task(1, 4, 6, rows=400),
                task(2, 6, 7, fetched_rows=20, fetched=4),
                task(3, 7, 12, fetched_rows=20, fetched=4, to_python=8, memory=2),
                task(3, 12, 13, fetched_rows=20, fetched=4),
                task(4, 13, 16, rows=20),
                task(5, 16, 18, rows=20),
                task(6, 18, 20, fetched_rows=20),
                task(7, 20, 24, fetched_rows=4),
            ],
        )
        seen = {each.stage: each for each in sizing_runs.observations(case, run)}
        counts = {stage: (each.tasks, each.units * 1e6, each.blocks) for stage, each in seen.items()}
        assert counts == {
            "read": (2, 1000, 2 * 6),
            "look": (2, 2 * 20, 2 * 2 * 6),
            "score": (1, 20, 2 * 6),
            "values": (2, 20, 0),
            "users": (1, 20, 0),
            "driver": (8, 20, 0),
        }
        assert seen["score"].seconds == 5
        assert seen["score"].amounts["fetched"] == seen["look"].amounts["fetched"] == pytest.approx(4 / 20e-6)
        # What the other kinds have not: 100 - (3 + 2 + 1 + 5 + 1 + 3 + 2 + 2).
        assert seen["driver"].seconds == 81
