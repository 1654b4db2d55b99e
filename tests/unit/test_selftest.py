"""The self-test: one line per preset, and an exit code for scripts."""

import pytest
from click.testing import CliRunner

from rankmetrics_spark.cli import main
from rankmetrics_spark.metrics import PRESETS
from rankmetrics_spark.tools import selftest
from rankmetrics_spark.tools.golden import values


def test_every_preset_has_a_line_and_passes() -> None:
    result = CliRunner().invoke(main, ["selftest"])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert [line.split()[0] for line in lines] == list(PRESETS)
    assert all(line.endswith("ok") and int(line.split()[1]) > 0 for line in lines)


def test_a_line_says_which_values_need_other_knobs_than_the_preset() -> None:
    lines = {check.preset: check for check in selftest.golden_checks(selftest.by_kernels())}
    # pytrec_eval loses a repeated id before trec_eval can refuse it.
    assert lines["trec_eval"].changed == {"trec_eval(duplicates=best_rank)": lines["trec_eval"].n_values}
    assert "of them trec_eval(duplicates=best_rank)   ok" in str(lines["trec_eval"])
    assert not lines["replay"].changed and "of them" not in str(lines["replay"])
    for check in lines.values():
        golden = [value for value in values() if value.defect is None and value.convention.preset == check.preset]
        as_it_is = sum(value.convention == PRESETS[check.preset] for value in golden)
        assert check.n_values == as_it_is + sum(check.changed.values())


def test_a_line_says_how_many_values_no_system_has_printed() -> None:
    lines = {check.preset: check for check in selftest.golden_checks(selftest.by_kernels())}
    assert {name: dict(line.unprinted) for name, line in lines.items() if line.unprinted} == {
        "standard": {"computed from the definition": 16},
        "spark_mllib": {"computed from the published formula": 8},
        "torchmetrics": {"computed from the published formula": 8},
        "tfma": {"computed from the published formula": 8},
    }
    assert "8 of them computed from the published formula   ok" in str(lines["tfma"])


def test_a_wrong_value_fails_its_preset_only(monkeypatch: pytest.MonkeyPatch) -> None:
    right = selftest.by_kernels()
    wrong = {key: value + (key[1] == PRESETS["tfma"].digest()) * 1e-9 for key, value in right.items()}
    monkeypatch.setattr("rankmetrics_spark.tools.by_kernels", lambda: wrong)
    result = CliRunner().invoke(main, ["selftest"])
    failed = [line.split()[0] for line in result.stdout.splitlines() if line.endswith("FAILED")]
    assert (result.exit_code, failed) == (1, ["tfma"])


def test_a_missing_value_counts_as_a_failure() -> None:
    assert not any(check.ok for check in selftest.golden_checks({}))


def test_a_line_shows_the_largest_difference() -> None:
    (check,) = (one for one in selftest.golden_checks({}) if one.preset == "tfma")
    line = str(check._replace(difference=0.25, unprinted={}))
    assert line.split() == ["tfma", "16", "values", "largest", "difference", "2.5e-01", "FAILED"]
