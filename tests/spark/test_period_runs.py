"""Runs with ``comparison.period``: the comparisons are those of one run over all rows of these days."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rankmetrics_spark import config as cfg, evaluate, sinks
from rankmetrics_spark.errors import ConfigError, MetricGateError
from rankmetrics_spark.report import figures_of_output, has_page_libraries
from tests.helpers.commands import Call, ok
from tests.helpers.days import DAYS, METRICS, OF_PERIOD, PERIOD, SCHEMA, Log, a_log, all_at_once, by_key, numbers
from tests.helpers.logs import a_list, config_file, parquet
from tests.helpers.messages import messages


def test_comparisons_of_a_period_are_those_of_one_run_over_all_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = a_log()
    log, runs = Log(spark, tmp_path, rows), {}
    for n, day in enumerate(DAYS, start=1):
        outcome = log.run(day)
        runs[day] = [outcome.run_id]
        so_far = [row for row in rows if row[0] <= day]
        assert numbers(log.rows(day)) == all_at_once(spark, so_far), day
        dates = f"{day} (1 day)" if n == 1 else f"{DAYS[0]} to {day} ({n} days)"
        assert outcome.record["verdict"][-1] == f"The comparisons are over {dates}"
        of_period = {tuple(row[name] for name in OF_PERIOD) for row in log.rows(day).values()}
        assert of_period == {(n, DAYS[0], day, n)}
    del runs[DAYS[3]]
    assert outcome.record["period"] == {
        "period_from": DAYS[0], "period_to": DAYS[3], "days": [*DAYS], "missing": [], "runs": runs
    }  # fmt: skip
    assert log.compared(DAYS[3]) == {"experiments": ["a", "b", "c"], "every_pair": False, "runs": runs}
    shown = outcome.summary().query("segment == 'all'").set_index(["experiment", "metric"])
    for (name, segment, metric), row in log.rows(DAYS[3]).items():
        assert segment != "all" or shown.loc[(name, metric), "mean"] == row["mean_candidate"]
    # The published means of a day stay those of the day.
    means = sinks.read(spark, str(log.out / "experiment_metrics")).where(f"evaluation_date = '{DAYS[3]}'")
    assert {row["n_users"] for row in means.collect()} < set(range(31)) - {30}


@pytest.mark.slow
def test_a_day_in_the_middle_that_is_run_again_counts_with_its_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = a_log(DAYS[:3])
    log = Log(spark, tmp_path, rows)
    for day in DAYS[:3]:
        log.run(day)
    first_answers = {day: numbers(log.rows(day)) for day in DAYS[:3]}
    # Half of the users of the second day were missing.
    mended = [row for row in rows if row[0] != DAYS[1] or int(row[2][1:]) % 2]
    log = Log(spark, tmp_path, mended)
    log.run(DAYS[1])
    up_to_then = [row for row in mended if row[0] <= DAYS[1]]
    assert numbers(log.rows(DAYS[1])) == all_at_once(spark, up_to_then) != first_answers[DAYS[1]]
    # The others are as they were, until they are run again. It is no further look: the earlier dates are the same.
    assert numbers(log.rows(DAYS[2])) == first_answers[DAYS[2]]
    log.run(DAYS[2])
    assert numbers(log.rows(DAYS[2])) == all_at_once(spark, mended)
    assert {row["look"] for row in log.rows(DAYS[2]).values()} == {3}
    # With an end that the config names, a day in the middle sees what is published after it.
    whole = log.run(DAYS[1], {"period": {"from": DAYS[0], "to": DAYS[3]}})
    assert numbers(log.rows(DAYS[1])) == all_at_once(spark, mended)
    assert whole.record["verdict"][-1] == f"The comparisons are over {DAYS[0]} to {DAYS[2]} (3 days)"


@pytest.mark.slow
def test_a_day_that_is_missing_is_named(spark: SparkSession, tmp_path: Path) -> None:
    rows = a_log(DAYS[:3])
    log = Log(spark, tmp_path, rows)
    log.run(DAYS[0])
    outcome = log.run(DAYS[2])
    assert numbers(log.rows(DAYS[2])) == all_at_once(spark, [row for row in rows if row[0] != DAYS[1]])
    assert outcome.record["verdict"][-1] == (
        f"The comparisons are over {DAYS[0]} to {DAYS[2]} (2 of 3 days); 1 of 3 days is not published: {DAYS[1]}"
    )
    assert outcome.record["period"]["missing"] == [DAYS[1]]
    of_period = {tuple(row[name] for name in OF_PERIOD) for row in log.rows(DAYS[2]).values()}
    assert of_period == {(2, DAYS[0], DAYS[2], 2)}
    assert any(line.startswith("This is look 2: the pairs were compared on 1 earlier date") for line in
               outcome.record["verdict"])  # fmt: skip


@pytest.mark.outcome(
    "a run over a period with a day that is published under another convention",
    "exit 2 before the log is read: the day, both conventions; nothing but a run record is written",
)
def test_a_day_under_another_convention_is_refused_before_anything_is_read(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(spark, tmp_path, a_log(DAYS[:2]))
    log.run(DAYS[0], {}, convention="trec_eval")
    before = sorted(log.out.rglob("user_metrics/**/*"))
    with pytest.raises(ConfigError) as error:
        log.run(DAYS[1], source={"path": str(tmp_path / "is not read")})
    assert str(error.value) == (
        f"comparison.period: {log.out}/user_metrics holds {DAYS[0]} under the convention 'trec_eval', and this run has "
        "'standard'; allowed: days of one convention"
    )
    assert sorted(log.out.rglob("user_metrics/**/*")) == before


def two_days(first: str, second: str) -> list[tuple[Any, ...]]:
    """Three users: their grades by rank on two days, as "baseline candidate"."""
    return [
        (day, name, f"u{user}", f"i{rank}", rank, int(grade), "de")
        for day, grades in zip(DAYS, (first, second), strict=False)
        for name, of in zip("ab", grades.split(), strict=True)
        for user in range(3)
        for rank, grade in enumerate(of, start=1)
    ]


@pytest.mark.slow
def test_a_gate_on_a_drop_is_about_the_period(spark: SparkSession, tmp_path: Path) -> None:
    # AP of b: 1 and 1/2, of a: 1/2 and 1. The second day alone drops by 1/2, both together by nothing.
    gate = [{"metric": "ap@5", "max_drop": 0.1}]
    log = Log(spark, tmp_path, two_days("01 10", "10 01"))
    log.run(DAYS[0])
    with pytest.raises(MetricGateError, match=r"MAP@5 of b fell by 0\.5000 \(1\.000 → 0\.500\) against a"):
        log.run(DAYS[1], {}, gates=gate)
    assert json.loads(min((log.out / "published").iterdir()).read_text())["evaluation_date"] == DAYS[0]
    log.run(DAYS[1], gates=gate)
    assert log.rows(DAYS[1])["b", "all", "ap@5"]["difference"] == 0
    # And the other way round: a good day does not hide a bad period.
    other = Log(spark, tmp_path / "other", two_days("10 00", "10 10"))
    other.run(DAYS[0])
    with pytest.raises(MetricGateError, match=r"MAP@5 of b fell by 0\.5000 \(1\.000 → 0\.500\) against a"):
        other.run(DAYS[1], gates=gate)
    assert [path.name for path in (other.out / "published").iterdir()] == [f"{DAYS[0]}.json"]


@pytest.mark.slow
def test_segments_are_those_of_the_period_where_users_have_one_list_a_day(spark: SparkSession, tmp_path: Path) -> None:
    rows = a_log(DAYS[:2])
    log = Log(spark, tmp_path, rows)
    for day in DAYS[:2]:
        log.run(day, source={"segments": ["country"]})
    assert numbers(log.rows(DAYS[1])) == all_at_once(spark, rows, segments="country")
    assert {key[1] for key in log.rows(DAYS[1])} == {"all", "country=de", "country=fr"}


@pytest.mark.slow
def test_if_users_have_several_lists_a_day_the_period_compares_all_users(spark: SparkSession, tmp_path: Path) -> None:
    # The country tells the lists of a user apart, and the item the segments: a user's lists may be in several.
    rows = [(*row[:6], "de" if row[4] % 2 else "fr") for row in a_log(DAYS[:2])]
    log = Log(spark, tmp_path, rows)
    source = {"list": ["country"], "segments": ["item_id"]}
    for day in DAYS[:2]:
        outcome = log.run(day, source=source, quality={"max_invalid_fraction": 1})
    actual = log.rows(DAYS[1])
    assert {key[1] for key in actual} == {"all"}
    result = evaluate(spark.createDataFrame(rows, SCHEMA), metrics=METRICS, list=["day", "country"], baseline="a")
    expected = by_key([row.asDict() for row in result.comparisons.collect()])
    assert actual.keys() == expected.keys()
    for key, row in expected.items():
        for name in ("mean_baseline", "difference", "ci_low", "p_value"):
            assert actual[key][name] == pytest.approx(row[name], rel=1e-12, abs=1e-12)
    assert any(note.startswith("the comparisons of a period are of all users") for note in outcome.record["notes"])
    with pytest.raises(ConfigError, match="allowed: a gate without a segment"):
        log.run(DAYS[1], source=source, gates=[{"metric": "ap@5", "max_drop": 1, "segment": "item_id=i1"}])


@pytest.mark.slow
def test_only_experiments_of_the_run_are_compared_and_new_metrics_noted(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row for row in a_log(DAYS[:2]) if (row[0], row[1]) != (DAYS[1], "c")]
    log = Log(spark, tmp_path, rows)
    first = log.run(DAYS[0])
    outcome = log.run(DAYS[1], metrics=["ap@5", "rr@5"])
    actual = log.rows(DAYS[1])
    assert {key[::2] for key in actual} == {("b", "ap@5"), ("b", "rr@5")}
    without_c = [row for row in rows if row[1] != "c"]
    both, second = (
        evaluate(spark.createDataFrame([row for row in without_c if row[0] in days], SCHEMA), metrics=["ap@5", "rr@5"],
                 list="day", baseline="a")
        for days in (DAYS[:2], DAYS[1:2])
    )  # fmt: skip
    for metric, result in (("ap@5", both), ("rr@5", second)):
        expected = by_key([row.asDict() for row in result.comparisons.collect()])["b", "all", metric]
        for name in ("n_users", "mean_baseline", "mean_candidate", "difference", "p_value"):
            assert actual["b", "all", metric][name] == expected[name], (metric, name)
    assert f"rr@5 was not stored on {DAYS[0]}; it is that of the other days" in outcome.record["notes"]
    runs = {DAYS[0]: [first.run_id]}
    assert log.compared(DAYS[1]) == {"experiments": ["a", "b"], "every_pair": False, "runs": runs}


@pytest.mark.slow
def test_compare_and_page_name_the_days_without_a_metric_and_count_looks_up_to_the_newest_day(
    call: Call, spark: SparkSession, tmp_path: Path
) -> None:
    log, page = Log(spark, tmp_path, a_log(DAYS[:3])), tmp_path / "page.html"
    log.run(DAYS[0], {}, source={"segments": ["country"]})
    for day in DAYS[1:3]:
        log.run(day, {}, metrics=["ap@5", "rr@5"])
    lacking = f"rr@5 was not stored on {DAYS[0]}; it is that of the other days"
    period = ("--input", log.out, "--from", DAYS[0], "--to", DAYS[3])
    request = ("compare", *period, "--baseline", "a", "--metrics", "ap@5,rr@5", "--format", "json")
    text, _ = ok(call, *request, "--segment", "country")
    answer = json.loads(text)
    # Nothing is published on the last day of the period, so this is still the look at the day before; rr@5 was not
    # compared on the first one.
    assert {(row["metric"], row["look"]) for row in answer["comparisons"]} == {("ap@5", 3), ("rr@5", 2)}
    assert [line for line in answer["verdict"] if "not stored" in line] == [
        f"country was not stored on {DAYS[1]}, {DAYS[2]}; it is that of the other days",
        lacking,
    ]
    for dates, lacks in ((("--from", DAYS[1]), f"{DAYS[1]}, {DAYS[2]}"), (("--date", DAYS[2]), DAYS[2])):
        alone = ("compare", "--input", log.out, *dates, "--baseline", "a", "--segment", "country", "--format", "json")
        answer = json.loads(call(*alone)[1])
        sentences = [line for line in answer["verdict"] if "country was" in line]
        assert sentences == [f"country was not stored on {lacks}"]
    planned = call(*request, "--set", "looks.planned=3")
    looks = {(row["metric"], row["looks"]) for row in json.loads(planned[1])["comparisons"]}
    assert looks == {("ap@5", "3 of 3, obrien_fleming"), ("rr@5", "2 of 3, obrien_fleming")}
    if not has_page_libraries():
        return
    ok(call, "report", *period, "--html", page)
    html = page.read_text(encoding="utf-8")
    text = " ".join(re.sub(r"<[^>]+>", " ", html[html.index("<header") : html.index("<script")]).split())
    # The record of the run, further down, holds the verdict of the run.
    trust = text.partition("Can this be trusted?")[2].partition("All checks as a table")[0]
    assert "The numbers are about the other days. ndcg@5 was not stored on" in text and f" {lacking}." in text
    looks = "This is look 3: the pairs were compared on 2 earlier dates. Each p-value is that of a single look"
    assert looks in trust


@pytest.mark.slow
def test_a_day_in_the_middle_run_again_has_the_look_of_data_it_compares(spark: SparkSession, tmp_path: Path) -> None:
    log, whole = Log(spark, tmp_path, a_log(DAYS[:3])), {"period": {"from": DAYS[0], "to": DAYS[2]}}
    for day, look in ((DAYS[0], 1), (DAYS[1], 2), (DAYS[2], 3), (DAYS[1], 3)):
        log.run(day, whole)
        assert {row["look"] for row in log.rows(day).values()} == {look}
    # The page of the last day is about the days as they are now, and not as they were compared.
    log.run(DAYS[0], whole, source={"where": f"day = '{DAYS[0]}' AND user_id > 'u2'"})
    shown = figures_of_output(spark, log.config(DAYS[2], whole).sink, DAYS[2])
    of_c = sinks.read(spark, str(log.out / "user_metrics")).where("experiment_id = 'c'")
    of_users = [row[1] for row in of_c.groupBy("user_id").agg({"ap_at_5": "avg"}).collect()]
    (row,) = (each.row for each in shown.compared if (each.candidate, each.metric) == ("c", "ap@5"))
    # Who is in a and c is compared: all of these users.
    assert row["mean_candidate"] == pytest.approx(sum(of_users) / len(of_users))
    assert log.rows(DAYS[2])["c", "all", "ap@5"]["mean_candidate"] != pytest.approx(row["mean_candidate"])
    # A run without a comparison asks for none, so there is none to show.
    alone = log.run(DAYS[2], {"baseline": None}, source={"where": f"day = '{DAYS[2]}' AND experiment_id = 'a'"})
    assert alone.record["notes"] == [f"b, c of {DAYS[2]} stay as earlier runs have published them: not in this log"]
    shown = figures_of_output(spark, log.config(DAYS[2], whole).sink, DAYS[2])
    assert not shown.compared and shown.uneven[-1] == (
        "Its comparisons are left out: later runs have replaced users that they are about. rankmetrics compare "
        f"--baseline a --from {DAYS[0]} --to {DAYS[2]} compares what is published"
    )


@pytest.mark.slow
def test_bootstrap_means_are_those_of_the_day_and_intervals_of_differences_of_the_period(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = a_log(DAYS[:2])
    log, bootstrap = Log(spark, tmp_path, rows), {"replicates": 99}
    log.run(DAYS[0])
    log.run(DAYS[1], PERIOD | {"bootstrap": bootstrap})
    alone = Log(spark, tmp_path / "alone", rows)
    alone.run(DAYS[1], {"bootstrap": bootstrap})
    result, expected = (
        {(row["experiment_id"], row["metric"]): (row["mean"], row["bootstrap_ci_low"]) for row in
         sinks.read(spark, str(each.out / "experiment_metrics")).where(f"evaluation_date = '{DAYS[1]}'").collect()}
        for each in (log, alone)
    )  # fmt: skip
    assert result == expected and len(expected) == 6
    once = Log(spark, tmp_path / "once", rows)
    once.run(DAYS[1], {"bootstrap": bootstrap}, source={"where": "true", "list": ["day"]})
    assert numbers(log.rows(DAYS[1])) == numbers(once.rows(DAYS[1]))


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"covariates": ["n_lists", "n_relevant"], "mean_over": "lists"}], ids=str)
def test_cuped_takes_values_from_before_the_period(spark: SparkSession, tmp_path: Path, more: dict[str, Any]) -> None:
    rows = a_log(DAYS[:3])
    log = Log(spark, tmp_path, rows)
    log.run(DAYS[0], {})
    assert {tuple(row[name] for name in OF_PERIOD) for row in log.rows(DAYS[0]).values()} == {(1, None, None, None)}
    for day in DAYS[1:3]:
        log.run(day, {"period": {"from": DAYS[1]}, "cuped": {"date": DAYS[0]}, **more})
    once = Log(spark, tmp_path / "once", rows)
    once.run(DAYS[0], {})
    in_period = f"day > '{DAYS[0]}'"
    once.run(DAYS[2], {"cuped": {"date": DAYS[0]}, **more}, source={"where": in_period, "list": ["day"]})
    assert numbers(log.rows(DAYS[2])) == numbers(once.rows(DAYS[2]))
    assert {row["look"] for row in log.rows(DAYS[2]).values()} == {2}
    assert any(row["cuped_variance_reduction"] for row in log.rows(DAYS[2]).values())
    # A page over all days has no earlier ones.
    page = figures_of_output(spark, cfg.Sink(path=str(log.out)), None, (DAYS[0], DAYS[2])).comparisons
    assert page and not any(row["cuped_difference"] for row in page)


def write_config(log: Log, **more: Any) -> Path:
    source = {"path": str(log.folder / "log"), "where": "day = '{date}'"}
    comparison = {"baseline": "a", "period": {"from": DAYS[0]}}
    document = {"source": source, "metrics": ["ap@5"], "sink": {"path": str(log.out)}, "comparison": comparison}
    file = log.folder / "config.yaml"
    file.write_text(json.dumps(document | more))
    return file


@pytest.mark.outcome(
    "a day of a backfill that fails (`evaluate --from --to`)",
    "the exit code of that day; the days before it stay published, and stderr names them",
)
@pytest.mark.slow
@pytest.mark.parametrize("days", [("--from", DAYS[0], "--to", DAYS[3]), ("--date", f"{DAYS[0]}..{DAYS[3]}")])
def test_a_day_that_fails_stops_a_backfill_after_naming_the_days_before(
    spark: SparkSession, tmp_path: Path, call: Call, days: tuple[str, ...]
) -> None:
    log = Log(spark, tmp_path, [row for row in a_log(DAYS) if row[0] != DAYS[2]])
    code, _, err = call("evaluate", "--config", write_config(log), *days)
    assert code == 3
    assert err.splitlines()[-2] == f"stopped at {DAYS[2]}; published: {DAYS[0]}, {DAYS[1]}"
    assert err.splitlines()[-1].startswith("rankmetrics: the input is empty")
    # The filter of that day is what left no row.
    assert err.splitlines()[-1].endswith(f"log that fulfil source.where \"day = '{DAYS[2]}'\"")
    assert sorted(path.name for path in (log.out / "published").iterdir()) == [f"{day}.json" for day in DAYS[:2]]
    # The next days, once more: the verdict names the one that is missing.
    code, out, err = call("evaluate", "--config", log.folder / "config.yaml", "--date", DAYS[3])
    assert code == 0 and f"(3 of 4 days); 1 of 4 days is not published: {DAYS[2]}" in out, err


def test_a_backfill_runs_the_days_before_one_whose_log_is_not_there_yet(call: Call, tmp_path: Path) -> None:
    parquet(tmp_path / DAYS[0], a_list([0, 1]))
    config_file(tmp_path / "{date}", tmp_path / "out", metrics=["ap@5"])
    for days, stopped in (
        (DAYS[:2], [f"stopped at {DAYS[1]}; published: {DAYS[0]}"]),
        # The first day is looked for before an engine is started.
        (DAYS[1:3], []),
    ):
        code, _, err = call("evaluate", "--config", tmp_path / "config.yaml", "--from", days[0], "--to", days[-1])
        assert code == 3 and err.splitlines()[-1].startswith(
            f"rankmetrics: cannot read parquet from '{tmp_path / DAYS[1]}': there is no such file or folder"
        )
        assert [line for line in err.splitlines() if line.startswith("stopped")] == stopped
    assert [path.name for path in (tmp_path / "out" / "published").iterdir()] == [f"{DAYS[0]}.json"]
    records = [json.loads(path.read_text()) for path in sorted((tmp_path / "out" / "runs").iterdir())]
    assert [(record["evaluation_date"], record["outcome"]) for record in records] == [
        (DAYS[0], "done"), (DAYS[1], "failed"), (DAYS[1], "failed"),
    ]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), messages("days"))
def test_days_that_cannot_be_evaluated_are_refused_before_the_first(
    tmp_path: Path, spark: SparkSession, call: Call, options: tuple[str, ...], message: str
) -> None:
    log = Log(spark, tmp_path, a_log(DAYS[:1], users=2))
    code, _, err = call("evaluate", "--config", write_config(log), *options)
    assert (code, err.splitlines()[-1]) == (2, f"rankmetrics: {message}")
    assert not log.out.exists()


@pytest.mark.parametrize("command", ["evaluate", pytest.param("report", marks=pytest.mark.slow)])
def test_the_table_and_the_page_of_a_run_show_the_means_of_its_period(
    spark: SparkSession, tmp_path: Path, call: Call, command: str
) -> None:
    log, page = Log(spark, tmp_path, a_log(DAYS[:3])), tmp_path / "page.html"
    of_run = ("--set", f"report={page}") if command == "evaluate" else ()
    out, err = ok(call, "evaluate", "--config", write_config(log), "--from", DAYS[0], "--to", DAYS[2], *of_run)
    assert f"mean over users of {DAYS[0]} to {DAYS[2]};" in out
    assert f"rows of {DAYS[2]}: " in err and "rows: " not in err
    if command == "report":
        ok(call, "report", "--input", log.out, "--html", page)
    html = page.read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", html[html.index("<header") : html.index("<script")])
    assert f"Period {DAYS[0]} to {DAYS[2]}" in text
    # The users of each pair are others, so the baseline has a mean for each; the table shows one of them.
    rows = [*log.rows(DAYS[2]).values()]
    assert [f"{row['mean_candidate']:.4f}" in out for row in rows] == [True, True]
    assert any(f"{row['mean_baseline']:.4f}   baseline" in out for row in rows)
    assert len({row["mean_baseline"] for row in rows}) == 2
    assert "a percentage is against the mean of a over the users of both experiments, which differs from pair to" in out
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    users = {row["n_users"] for key, row in log.rows(DAYS[2]).items() if key[1] == "all"}
    assert set(data["means"]["n"]) >= users
