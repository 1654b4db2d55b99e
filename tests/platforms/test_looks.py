"""The table of docs/comparing.md: what 14 daily looks find, simulated anew with other random numbers."""

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.looks import EFFECTS, SETTINGS, VISITS, first_finds

DRAWS, DRAWS_OF_THE_DOCS = 1_500, 4_000
DOCS = Path(__file__).resolve().parents[2] / "docs" / "comparing.md"
LABELS = {"last look alone": "one, only on day 14", "one": "one, but every day"}
"""Setting of the simulation -> how the table calls it; all others have one name."""


def documented() -> dict[str, list[str]]:
    """Setting -> the cells of its line: six shares of tests without a difference, two of tests with one."""
    table = DOCS.read_text(encoding="utf-8").partition("| looks | each user one day |")[2].partition("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {name.strip("`"): cells for name, *cells in lines}


def stated_share(setting: str, column: int) -> float:
    """What a cell of the table says, such as 4.9 (of 100 tests), or 84 on day 14."""
    cell = documented()[LABELS.get(setting, setting)][column]
    return float(cell.partition(",")[0]) / 100


@pytest.fixture(scope="module", params=[(visits, paired) for paired in (False, True) for visits in VISITS],
                ids=lambda design: f"{design[0]}, {'paired' if design[1] else 'independent'}")  # fmt: skip
def design(request: pytest.FixtureRequest) -> tuple[int, dict[str, float]]:
    """The column of the table, and setting -> how often a test without a difference finds one at some look."""
    visits, paired = request.param
    result = first_finds(visits, paired, 0.0, DRAWS, seed=20)
    column = VISITS.index(visits) + len(VISITS) * paired
    return column, {setting: float(np.mean(each > 0)) for setting, each in result.items()}


def test_any_number_of_looks_is_wrong_in_at_most_5_of_100_tests(design: tuple[int, dict[str, float]]) -> None:
    assert design[1]["any"] <= 0.05
    assert abs(design[1]["last look alone"] - 0.05) <= 4 * np.sqrt(0.05 * 0.95 / DRAWS)


def test_the_docs_state_the_false_positives_of_every_setting(design: tuple[int, dict[str, float]]) -> None:
    column, result = design
    for setting in ("last look alone", *SETTINGS):
        stated = stated_share(setting, column)
        error = np.sqrt(stated * (1 - stated) * (1 / DRAWS + 1 / DRAWS_OF_THE_DOCS))
        assert abs(result[setting] - stated) <= 4 * error + 0.0005, (setting, result[setting], stated)


@pytest.mark.parametrize("paired", [False, True])
def test_the_docs_state_the_power_of_every_setting_that_is_valid(paired: bool) -> None:
    result = first_finds("any day", paired, EFFECTS[paired], DRAWS, seed=21)
    for setting in ("last look alone", *SETTINGS):
        if setting == "one":
            continue
        stated = stated_share(setting, 6 + paired)
        error = np.sqrt(stated * (1 - stated) * (1 / DRAWS + 1 / DRAWS_OF_THE_DOCS))
        power = float(np.mean(result[setting] > 0))
        assert abs(power - stated) <= 4 * error + 0.005, (setting, power, stated)
