"""The queries that the benchmark measures as "the same work", against a brute-force evaluation of dirty logs."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict

import pytest
from scipy import stats

from rankmetrics_spark.metrics import parse
from tests.benchmarks.checks import SEEDS, write_dirty_log
from tests.benchmarks.peers import duckdb_same_work, polars_same_work, same_work
from tests.benchmarks.peers.common import COLUMNS
from tests.benchmarks.peers.same_work import Work
from tests.helpers.dirty_logs import Case, dirty_log, evaluated

WORKS = [same_work.DEFAULT, same_work.IGNORING, same_work.REAL_VALUED, same_work.BY_SCORE]
PEERS = [duckdb_same_work, polars_same_work]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_dirty_log(tmp_path_factory.mktemp("dirty") / "log")


def expected(work: Work) -> tuple[dict[tuple[str, str], float], Counter[tuple[str | None, str]]]:
    """The numbers of every experiment; and the rows left out, by experiment and reason."""
    rows = []
    for row in (row for seed in SEEDS for row in dirty_log(seed)):
        # Ranks are whole numbers in the log, grades too unless they are read from ``gain``.
        rank = None if row.position is None or not math.isfinite(row.position) else int(row.position)
        grade = row.relevance
        if work.relevance == "relevance":
            grade = None if grade is None or not math.isfinite(grade) else int(grade)
        rows.append(row._replace(position=rank, relevance=grade, session=None))
    case = Case(
        "same work",
        "score" if work.by_score else "position",
        repeated_items="relevant" if work.items else "ignore",
        metrics=COLUMNS,
        hashes=defaultdict(int),
    )
    result = evaluated(rows, [], case)
    left_out: Counter[tuple[str | None, str]] = Counter()
    for (experiment, _, reason), n in result.left_out.items():
        left_out[experiment, reason] += n
    numbers: dict[tuple[str, str], float] = {}
    for experiment in {name for name, _ in result.users}:
        users = [row for (name, _), row in result.users.items() if name == experiment]
        with_relevant = sum(row["n_relevant"] > 0 for row in users)
        numbers |= {(experiment, "n_users"): len(users), (experiment, "n_users relevant"): with_relevant}
        for name in COLUMNS:
            values = [row[parse(name).column] for row in users]
            numbers[experiment, name] = mean = statistics.fmean(values)
            if with_relevant:
                numbers[experiment, f"{name} relevant"] = math.fsum(values) / with_relevant
            if len(users) > 1:
                std = statistics.stdev(values)
                half = stats.t(len(users) - 1).ppf(0.975) * std / math.sqrt(len(users))
                numbers[experiment, f"{name} std"] = std
                if std:  # equal values have no interval
                    numbers |= {(experiment, f"{name} low"): mean - half, (experiment, f"{name} high"): mean + half}
    return numbers, left_out


@pytest.mark.parametrize("peer", PEERS, ids=["DuckDB", "Polars"])
@pytest.mark.parametrize(
    "work", [WORKS[0], *(pytest.param(work, marks=pytest.mark.slow) for work in WORKS[1:3]), WORKS[3]],
    ids=["default", "ignoring", "real-valued", "by score"],
)  # fmt: skip
def test_numbers_and_faulty_rows_are_those_of_the_brute_force_evaluation(log: str, peer: object, work: Work) -> None:
    result = peer.run(log, work)  # type: ignore[attr-defined]
    numbers, left_out = expected(work)
    repeats = {"duplicate_item", "repeated_position"}
    faulty = {key: n for key, n in left_out.items() if key[1] not in repeats}
    assert len({reason for _, reason in faulty}) >= 7
    assert {(key[0], key[1][7:]): n for key, n in result.items() if key[1].startswith("faulty ")} == faulty
    repeated = {key[0]: n for key, n in result.items() if key[1] == "n_repeated"}
    target = {name: sum(left_out[name, reason] for reason in repeats) for name in repeated}
    # By position, repeats among rows without a grade are looked for only where a rank may repeat.
    assert repeated == target if work.by_score else all(repeated[name] <= n for name, n in target.items())
    assert sum(repeated.values()) > 20
    rest = {key: n for key, n in result.items() if key[1] != "n_repeated" and not key[1].startswith("faulty ")}
    assert rest.keys() == numbers.keys()
    # The standard library's deviation of values that are equal but for rounding is not exactly 0.
    assert rest == pytest.approx(numbers, abs=2e-8)
    means = {key: n for key, n in numbers.items() if not key[1].endswith((" std", " low", " high"))}
    assert {key: rest[key] for key in means} == pytest.approx(means, abs=1e-12)
