"""Reports of a folder: their figures are its rows, of what is published alone."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rankmetrics_spark import cli, sinks
from rankmetrics_spark.errors import InputError
from rankmetrics_spark.pointers import Entry, Pointer
from rankmetrics_spark.report import FolderTables, checks, difference_rows, figures_of, local_tables
from rankmetrics_spark.schemas import Check
from tests.helpers.packages import libraries_of_pages
from tests.helpers.results import Output

DATE = "2026-11-20"
RUNS = [f"20261120T00000{i}-0000000{i}" for i in range(2)]


def test_the_figures_of_a_folder_are_its_rows(tmp_path: Path) -> None:
    output = Output(tmp_path, ["007", "null", "a/b=c"], users=50).write()
    tables = local_tables(str(output))
    assert tables
    figures = figures_of(tables)
    assert set(figures.experiments) == {"007", "null", "a/b=c"}
    # Two candidates and three experiments, by three segments and four metrics.
    assert (figures.n_means, figures.n_comparisons, len(figures.means)) == (3 * 3 * 4, 2 * 3 * 4, 3 * 3 * 4)
    assert figures.record["run_id"] == "20261120T010203-0a1b2c3d" and figures.trend == []
    per_metric = {key: 0 for key in {(row["experiment_id"], row["metric"]) for row in figures.users}}
    for row in figures.users:
        per_metric[row["experiment_id"], row["metric"]] += row["users"]
    assert set(per_metric.values()) == {50} and len(per_metric) == 12
    with pytest.raises(InputError, match="published on 2020-01-01; the nearest dates that are published: 2026-11-20"):
        figures_of(tables, "2020-01-01")


def test_a_page_opens_each_file_once_and_none_it_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = local_tables(str(Output(tmp_path, users=20).write()))
    assert tables
    metrics = figures_of(tables).metrics
    edges = dict.fromkeys(map(str, metrics), (0.0, 1.0))
    opened: list[str] = []
    file_of = pq.ParquetFile

    def counted(file: Any, *more: Any, **options: Any) -> Any:
        opened.append(file.name.split("/")[-4] + "/" + file.name.split("/")[-3].partition("=")[2])
        return file_of(file, *more, **options)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    tables.rows("experiment_metrics", "2026-11-20", 100)
    assert sorted(opened) == [f"experiment_metrics/{name}" for name in ("candidate_a", "candidate_b", "control")]
    shown = [
        lambda: tables.users("2026-11-20", edges, metrics, ["candidate_a"]),
        lambda: tables.of_all("experiment_metrics", ["2026-11-20"], ["candidate_a"]),
        lambda: tables.of_all("comparisons", ["2026-11-20"], ["candidate_a"]),
        lambda: tables.changes("2026-11-20", edges, metrics, [("control", "candidate_a")]),
    ]
    names = [["user_metrics/candidate_a"], ["experiment_metrics/candidate_a"], ["comparisons/candidate_a"]]
    for look, expected in zip(shown, [*names, ["user_metrics/candidate_a", "user_metrics/control"]], strict=True):
        opened.clear()
        assert look()
        assert sorted(opened) == expected


def test_differences_of_dates_are_read_from_a_folder(tmp_path: Path) -> None:
    output = Output(tmp_path / "days")
    for day in ("2026-11-18", "2026-11-19"):
        output.write(day, seed=int(day[-2:]))
    tables = local_tables(str(output.path))
    assert tables is not None
    actual = figures_of(tables)
    assert actual.trend == [] and len(actual.over_time) == 2 * 2 * 4
    for row in actual.over_time:
        (file,) = output.path.glob(f"comparisons/*={row['experiment_id']}/*={row['label']}/*.parquet")
        expected = next(each for each in pq.read_table(file, partitioning=None).to_pylist()
                      if (each["segment"], each["metric"]) == ("all", row["metric"]))  # fmt: skip
        assert row["kind"] == "day" and row["difference"] == expected["difference"]
        assert row["relative_ci_high"] == expected["relative_ci_high"]
    of_period = difference_rows(
        [{**expected, "experiment_id": "b", "evaluation_date": "2026-11-19", "period_from": "2026-11-08"}]
    )
    assert of_period[0]["kind"] == "cumulative"


def written_by(folder: Path, run: str, date: str, users: int = 20) -> None:
    """A run's tables on a date, in place as a run puts them, without a pointer."""
    Output(folder, users=users).write(date, run_id=run)
    for file in folder.glob(f"*/*/evaluation_date={date}/part-0.parquet"):
        file.rename(file.with_name(f"part-{run}-0.parquet"))


def point_to(folder: Path, run: str, date: str, name: str = "{date}.json") -> None:
    pointer = Pointer(date).with_run(Entry(run, ("control", "candidate_a", "candidate_b")))
    sinks.files_of(str(folder)).write(f"published/{name.format(date=date)}", pointer.as_json())


@pytest.mark.outcome("a report of a date whose run was killed before it published", "exit 3, with the nearest dates")
def test_a_report_shows_what_is_published_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries_of_pages(monkeypatch)
    written_by(tmp_path, RUNS[0], "2026-11-19")
    written_by(tmp_path, RUNS[1], DATE)
    refused = ("report", "--input", str(tmp_path), "--html", str(tmp_path / "page.html"))
    for dates, message in (
        ((), f"'{tmp_path}' holds nothing that is published; allowed: the output of a run that ended"),
        ((DATE,), f"nothing is published on {DATE}; the nearest dates that are published: 2026-11-19"),
    ):
        with pytest.raises(SystemExit) as caught:
            cli.main([*refused, *(word for date in dates for word in ("--date", date))], "rankmetrics")
        assert caught.value.code == 3 and message in capfd.readouterr().err
        point_to(tmp_path, RUNS[0], "2026-11-19")
    tables = local_tables(str(tmp_path))
    assert tables is not None
    figures = figures_of(tables)
    assert {row["evaluation_date"] for row in figures.means} == {"2026-11-19"} and figures.trend == []
    assert figures.record["run_id"] == RUNS[0]
    # A killed run has written the new pointer beside the earlier one, which it was about to replace.
    point_to(tmp_path, RUNS[1], DATE, "{date}.next.json")
    figures = figures_of(tables)
    assert {row["evaluation_date"] for row in figures.means} == {DATE} and len(figures.over_time) == 2 * 2 * 4
    assert figures.record["run_id"] == RUNS[1]


def test_a_report_that_is_read_while_a_run_publishes_shows_one_result(tmp_path: Path) -> None:
    written_by(tmp_path, RUNS[0], DATE, users=20)
    point_to(tmp_path, RUNS[0], DATE)
    tables = local_tables(str(tmp_path))
    assert isinstance(tables, FolderTables)
    n = [0]

    class Meanwhile(FolderTables):
        """After the means of the first look are read, another run publishes."""

        def rows(self, table: str, date: str, most: int) -> Any:
            result = super().rows(table, date, most)
            n[0] += 1
            if n[0] == 1:
                for file in tmp_path.glob(f"*/*/*/part-{RUNS[0]}-0.parquet"):
                    file.unlink()
                written_by(tmp_path, RUNS[1], DATE, users=30)
                pointer = Pointer(DATE, (), 1).with_run(Entry(RUNS[1], ("control", "candidate_a", "candidate_b")))
                sinks.files_of(str(tmp_path)).write(f"published/{DATE}.json", pointer.as_json())
            return result

    figures = figures_of(Meanwhile(tables.disk, tables.known))
    assert {mean.n_users for mean in figures.everyone} == {30}
    assert sum(row["users"] for row in figures.users) == 3 * 4 * 30


def test_a_date_of_two_runs_has_no_comparison_with_users_that_were_replaced(tmp_path: Path) -> None:
    written_by(tmp_path, RUNS[0], DATE)
    Output(tmp_path, ("control", "new"), users=30, effects={"new": 0.0}).write(DATE, run_id=RUNS[1])
    for file in tmp_path.glob(f"*/*/evaluation_date={DATE}/part-0.parquet"):
        file.rename(file.with_name(f"part-{RUNS[1]}-0.parquet"))
    for run in RUNS:
        text = (tmp_path / "runs" / "20261120T010203-0a1b2c3d.json").read_text().replace(RUNS[1], run)
        record = json.loads(text)
        record["quarantine_reasons"] = {"null_user": 10}
        if run == RUNS[0]:
            count = record["experiments"]["control"]
            record["experiments"] = {name: count | {"rows": 50} for name in ("control", "candidate_a", "candidate_b")}
        (tmp_path / "runs" / f"{run}.json").write_text(json.dumps(record))
    pointer = Pointer(DATE).with_run(Entry(RUNS[0], ("control", "candidate_a", "candidate_b")))
    pointer = pointer.with_run(Entry(RUNS[1], ("control", "new")))
    sinks.files_of(str(tmp_path)).write(f"published/{DATE}.json", pointer.as_json())
    tables = local_tables(str(tmp_path))
    assert tables is not None
    figures = figures_of(tables)
    assert {row["experiment_id"] for row in figures.comparisons} == {"new"}
    assert figures.n_comparisons == len(figures.comparisons) == 3 * 4
    # Each experiment has the counts of its own run: 4010 rows, or 50 for those of the first one.
    assert figures.record["run_id"] == RUNS[1] and figures.record["rows"]["in"] == 2 * 4010 + 2 * 50
    (said,) = [check for check in checks(figures) if check.topic == "Comparisons"]
    assert (said.level, str(said)) == (
        "warn",
        f"candidate_a against control, candidate_b against control are left out: a later run of {DATE} has other users "
        f"of control. rankmetrics compare --baseline control --date {DATE} compares what is published.",
    )
    # Nobody knows how many of the reasons of the first run are about users who were replaced.
    assert figures.record["quarantine_reasons"] == {}
    # So are its gates against these users; what limits one experiment alone holds.
    gates = [("max_drop", "candidate_a"), ("min", "candidate_a"), ("max_drop", "new"), ("trusted", "candidate_b")]

    class WithGates(FolderTables):
        """The tables of runs that have checked gates."""

        def checks(self, date: str) -> Any:
            return [Check(name, "fail", f"{name} of {experiment}", experiment) for name, experiment in gates]

    result = figures_of(WithGates(tables.disk, tables.known)).checks
    of_gates = [row["sentence"] for row in result if row["name"] in ("min", "max_drop", "trusted")]
    assert of_gates == ["min of candidate_a", "max_drop of new"]
    # Of the days of a page, this one has what is current alone as well.
    written_by(tmp_path, "20261119T000000-00000002", "2026-11-19")
    point_to(tmp_path, "20261119T000000-00000002", "2026-11-19")
    of_days = {(row["experiment_id"], row["label"]) for row in figures_of(tables).over_time}
    assert of_days == {("candidate_a", "2026-11-19"), ("candidate_b", "2026-11-19"), ("new", DATE)}
