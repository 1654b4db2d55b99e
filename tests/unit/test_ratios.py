"""What `make bench-small` says of ratios of CPU seconds, on contenders whose seconds are given."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks import ratios
from tests.benchmarks.contenders import Contender, Run
from tests.benchmarks.observe import Cost, Memory
from tests.benchmarks.ratios import ROUNDS, WARM_UP, Ratio

NAME = "on Spark, default / Spark alone"
MINE, OTHER = ratios.PAIRS[NAME]


class Given(Contender):
    """A contender that takes the given CPU seconds."""

    def __init__(self, name: str, seconds: Iterator[float]) -> None:
        super().__init__(name)
        self.seconds_of_rounds, self.open = seconds, False

    def prepare(self, path: str) -> None:
        self.open = True

    def run(self, path: str) -> Run:
        assert self.open
        return Run(1.0, next(self.seconds_of_rounds), {}, Cost(), Memory())

    def close(self) -> None:
        self.open = False


def both(mine: list[float], other: list[float]) -> list[Given]:
    return [Given(MINE, itertools.cycle(mine)), Given(OTHER, itertools.cycle(other))]


@pytest.fixture
def accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """1.6 was accepted, and nothing else."""
    file = tmp_path / "accepted.csv"
    file.write_text(f'ratio,median,spread\n"{NAME}",1.600,0.020\n')
    monkeypatch.setattr(ratios, "ACCEPTED", file)
    return file


def test_accepted_ratios_are_those_of_the_pairs_and_their_limit_is_above_them() -> None:
    known = ratios.read()
    assert known.keys() == ratios.PAIRS.keys()
    assert all(0 < ratio.median < ratio.limit < 1.75 * ratio.median for ratio in known.values())


def test_ratio_is_that_of_the_least_seconds_after_the_warm_up() -> None:
    turns = WARM_UP * [9.0]
    result = ratios.measure(both([*turns, 7, 3, 6, 30], [*turns, 2.5, 2, 4, 20]), "", [NAME], 1)
    assert result == {NAME: Ratio(1.5, 0.0)}


def test_margin_is_four_spreads_but_neither_tiny_nor_huge() -> None:
    assert Ratio(2.0, 0.01).limit == pytest.approx(3.0)
    assert Ratio(2.0, 0.15).limit == pytest.approx(3.2)
    assert Ratio(2.0, 0.3).limit == pytest.approx(3.4)


def test_small_differences_pass(accepted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everyone = both([2.0], [1.0])
    assert ratios.check(everyone, "") == []
    assert f"{NAME}: 2.00; accepted: 1.60 (spread 2%), at most 2.40" in capsys.readouterr().out
    assert not any(contender.open for contender in everyone)


def test_regression_fails_if_it_is_there_the_second_time_too(accepted: Path) -> None:
    assert ratios.check(both([2.5], [1.0]), "") == [f"{NAME} is 2.50, at most 2.40 is accepted"]
    once = [2.5] * (WARM_UP + ROUNDS) + [1.5] * (WARM_UP + 2 * ROUNDS)
    assert ratios.check(both(once, [1.0]), "") == []


def test_ratio_that_was_not_measured_fails(accepted: Path) -> None:
    assert ratios.check(both([1.5], [1.0])[:1], "") == [f"{NAME} was not measured"]


def test_accepting_writes_what_is_read(accepted: Path) -> None:
    accepted.unlink()
    ratios.accept(both([3.0], [2.0]), "")
    assert ratios.read() == {NAME: Ratio(1.5, 0.0)}
