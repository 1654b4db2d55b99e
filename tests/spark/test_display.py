"""What a result holds and shows of itself: small tables, read once. Spark and PyArrow read the same report."""

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions as F

from rankmetrics_spark import compare, evaluate, pipeline, run, tools
from rankmetrics_spark.config import Config, Sink, Source
from rankmetrics_spark.errors import ConfigError, QualityError, QualityWarning
from rankmetrics_spark.report import figures_of, local_tables, periods, read, spark_tables
from tests.helpers import packages, readme
from tests.helpers.commands import QUICK, ROOT, ran
from tests.helpers.logs import DATE, Shown, a_list, config, impressions, parquet

WITHOUT_REPORT = """
import sys
import rankmetrics_spark
log = spark.createDataFrame([("u", 1, 1)], "user_id string, position int, relevance int")
result = rankmetrics_spark.evaluate(log, "ap", columns={"experiment": None, "item": None}, pairs="all")
result.comparisons, result.quarantine, dir(result), str(result)
print([name for name in sys.modules if name.startswith("rankmetrics_spark.report.")])
spark.stop()
"""
SESSIONS = {
    "sail": "from rankmetrics_spark import laptop_session\nspark = laptop_session(threads=1)",
    "spark": "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()",
}
COLUMNS = {"experiment": "variant", "position": "slot", "relevance": "clicked"}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tools.make_log(tmp_path_factory.mktemp("log"), users=2400).impressions)


def test_a_result_reads_what_it_shows_once(spark: SparkSession, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, rows_of = [], periods.shown_rows
    monkeypatch.setattr(periods, "shown_rows", lambda table: tables.append(table) or rows_of(table))
    result = evaluate(spark.read.parquet(log), ["ap@10", "dcg@10"], columns=COLUMNS, baseline="control")
    assert tables == [], "nothing is computed before somebody looks"
    shown = result._repr_html_()
    assert "<bdi>candidate_a</bdi> beats <bdi>control</bdi>" in shown
    frame = result.summary()
    assert frame["experiment"].tolist() == ["control", "candidate_a", "candidate_b"] * 2
    assert frame["users"].sum() == 2 * 2400
    assert set(frame["better"].dropna()) == {"candidate", "baseline"}
    assert len(tables) == 2
    (mean,) = frame[(frame["experiment"] == "candidate_a") & (frame["metric"] == "ap@10")]["mean"]
    assert f"{mean:.4f}" in shown


def test_of_many_segments_the_largest_are_shown(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"all": 60, "s=1": 10, "s=2": 30, "s=3": 20}
    rows = [("a", DATE, name, "ap", n) for name, n in sizes.items()]
    names = "experiment_id string, evaluation_date string, segment string, metric string, n_users bigint"
    table = spark.createDataFrame(rows, names)
    monkeypatch.setattr(periods, "MOST_ROWS_OF_FRAMES", 2)
    shown, n_rows = periods.shown_rows(table)
    assert ({row["segment"] for row in shown}, n_rows) == ({"all", "s=2", "s=3"}, 4)
    stored = read.SparkTables(SimpleNamespace(existing=lambda name: table), {})  # type: ignore[arg-type]
    assert [row["segment"] for row in stored.rows("experiment_metrics", DATE, 2)] == ["all", "s=2", "s=3"]


def of_ranks(spark: SparkSession, first: int, length: int, faulty: int = 0) -> pipeline.Result:
    """Thirty users with lists of a length, whose ranks begin with ``first``; some of them have no rank at the end."""
    rows = [
        Shown(name, f"u{i}", f"i{rank}", None if i < faulty and rank == length - 1 else first + rank, int(rank in best))
        for i in range(30)
        for name, best in (("control", (0, length - 1)), ("new", (1 + i % 2,)))
        for rank in range(length)
    ]
    return evaluate(impressions(spark, rows), "rr", baseline="control")


def text_of(shown: str) -> str:
    return unescape(re.sub("<[^>]+>", "", shown))


def test_a_result_says_what_the_command_would_refuse(spark: SparkSession, tmp_path: Path) -> None:
    # Ranks from 0: the first result of every list is gone, and new, which is worse, seems to be the better one.
    result = of_ranks(spark, first=0, length=8)
    shown = text_of(result._repr_html_())
    assert "new beats control" in shown
    refused = (
        "A run would stop: 60 of 480 rows are faulty (12.50%, allowed 1.00%: quality.max_invalid_fraction is 0.01); "
        "reasons: position_below_1 60; if your ranks start at 0, set first_rank to 0; check() says more"
    )
    assert f"Faulty rows: {refused}." in shown
    with pytest.warns(QualityWarning, match=f"^{re.escape(refused)}$") as caught:
        result.summary()
    assert caught[0].filename == __file__
    with pytest.raises(QualityError, match=re.escape(refused.split(": ", 1)[1].rpartition(";")[0])):
        result.check()
    assert "new loses to control" in text_of(of_ranks(spark, first=1, length=8)._repr_html_())


def test_long_lists_whose_ranks_begin_with_0_are_named_below_the_limit_of_faulty_rows_too(spark: SparkSession) -> None:
    shown = text_of(of_ranks(spark, first=0, length=128)._repr_html_())
    assert "Quality of the log: A run would stop: 60 rows have a rank below 1, and there are 60 lists" in shown
    assert "the ranks seem to start at 0; set first_rank to 0" in shown


def test_a_result_counts_the_few_rows_that_it_leaves_out(spark: SparkSession, recwarn: pytest.WarningsRecorder) -> None:
    result = of_ranks(spark, first=1, length=30, faulty=3)
    assert "; 6 of 1,800 rows (0.33%) were faulty and are left out" in text_of(result._repr_html_())
    result.summary()
    assert not any(issubclass(warning.category, QualityWarning) for warning in recwarn.list)
    shown = text_of(of_ranks(spark, first=1, length=30)._repr_html_())
    assert "left out" not in shown and "Faulty rows" not in shown and "check()" not in shown


def test_the_page_of_a_log_that_the_command_would_refuse_says_so(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    of_ranks(spark, first=0, length=8).write_report(tmp_path / "page.html")
    shown = " ".join(text_of((tmp_path / "page.html").read_text(encoding="utf-8")).split())
    assert "Faulty rows and Number of users weaken the answer" in shown
    assert "A run would stop: 60 of 480 rows are faulty" in shown


@pytest.mark.slow
@pytest.mark.program
def test_a_lazy_evaluation_loads_no_module_of_the_report(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    program = SESSIONS[pytestconfig.getoption("engine")] + WITHOUT_REPORT
    done = ran([sys.executable, "-c", program], tmp_path, os.environ | {"PYTHONPATH": str(ROOT), **QUICK})
    assert done.stdout.strip() == "[]", done.stderr


def documented(kind: str) -> set[str]:
    """What docs/reference.md says that a result or an outcome holds."""
    page = readme.section("What a result holds", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| `(\w+)[^|]*\| `?(\w+)`? \|", page, re.MULTILINE)
    return {name for name, of in rows if of in (kind, "both")}


def hooks(of: object) -> set[str]:
    """What Tab does not show by itself."""
    return {name for name in dir(of) if name.startswith("_")}


def test_a_result_holds_what_the_docs_say_and_its_text_says_what_was_asked(spark: SparkSession) -> None:
    result = evaluate(impressions(spark, a_list([1])), ["ap@10", "rr"], baseline="a b\n")
    assert {*dir(result)} - hooks(result) == documented("Result") >= {"user_metrics", "check", "plot"}
    assert str(result) == repr(result)
    assert str(result) == (
        "Result of ap@10, rr by position under the convention standard, every experiment compared with 'a b\\n'; "
        "user_metrics, experiment_metrics, comparisons and quarantine are computed when they are read"
    )
    assert all(name.endswith("_") for name in hooks(result)) and "_repr_html_" in hooks(result)
    result = evaluate(impressions(spark, a_list([1])), "ap", convention="trec_eval")
    assert str(result) == (
        "Result of ap by position under the convention trec_eval, nothing compared; "
        "user_metrics, experiment_metrics and quarantine are computed when they are read"
    )


def test_the_text_of_a_result_reads_no_row(spark: SparkSession) -> None:
    broken = impressions(spark, a_list([1])).withColumn("user_id", F.expr("raise_error(user_id)").cast("string"))
    result = evaluate(broken, "ap", pairs="all")
    assert "every pair of experiments compared" in f"{result} {result!r}"
    with pytest.raises(Exception, match="u"):
        result.check()


def test_an_outcome_holds_what_the_docs_say_and_its_text_what_it_counted(spark: SparkSession, tmp_path: Path) -> None:
    log = [*a_list([0, 1]), *a_list([1], experiment="b"), *a_list([None], "v", "b")]
    lenient = {"max_invalid_fraction": 1}
    done = run(spark, config(parquet(tmp_path / "log", log), tmp_path / "out", metrics=["ap"], quality=lenient))
    assert {*dir(done)} - hooks(done) == documented("Outcome") >= {"user_metrics", "record", "plot"}
    assert str(done) == repr(done)
    assert str(done) == (
        f"Outcome of run {done.run_id}: 3 rows evaluated, 1 left out, experiments: 2; rows written to {done.path}: "
        f"user_metrics 2, quarantine 1, experiment_metrics 2, checks {done.checks.count()}"
    )


class Tracking(ModuleType):
    """The calls of MLflow that the package makes, and what they were given."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.metrics: dict[str, float] = {}
        self.params: dict[str, str] = {}
        self.pages: list[str] = []
        self.ended: list[str] = []

    def active_run(self) -> None:
        return None

    def log_metrics(self, metrics: dict[str, float]) -> None:
        self.metrics = metrics

    def log_params(self, params: dict[str, str]) -> None:
        self.params = params

    def log_artifact(self, path: str) -> None:
        self.pages.append(Path(path).read_text(encoding="utf-8"))

    @contextmanager
    def start_run(self) -> Iterator[None]:
        yield
        self.ended.append("FINISHED")


@pytest.mark.parametrize("baseline", ["control", None])
def test_a_lazy_result_writes_its_page_and_goes_to_mlflow(
    spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, baseline: str | None
) -> None:
    # An environment with only the base dependencies cannot write a page.
    pytest.importorskip("altair")
    store: Any = Tracking()
    monkeypatch.setitem(sys.modules, "mlflow", store)
    result = evaluate(spark.read.parquet(log), ["ndcg@10", "ap@10"], columns=COLUMNS, baseline=baseline)
    result.write_report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    # A long name may continue on the next line.
    assert "candidate_a</bdi> beats" in page.replace("<wbr>", "") or baseline is None
    # The metric that decides is the first that was asked for, not the first by name.
    frame = result.summary()
    assert [*frame["metric"].unique()] == ["ndcg@10", "ap@10"]
    assert "There is none: these numbers were not published by a run." in page
    result.log_to_mlflow()
    means = {f"{row.metric.replace('@', '_at_')}/{row.experiment}": row.mean for row in frame.itertuples()}
    assert store.metrics.items() >= means.items() and len(means) == 6
    assert store.params == {"convention": "standard"} | ({"baseline": baseline} if baseline else {})
    assert store.pages == [page] and store.ended == ["FINISHED"]


@pytest.mark.outcome(
    "names an unknown baseline in `evaluate`",
    "`ConfigError` from `check`, `summary`, `plot`, `write_report` and the actions of a table: one sentence",
)
def test_an_unknown_baseline_is_one_sentence_from_python_too(spark: SparkSession, log: str, tmp_path: Path) -> None:
    result = evaluate(spark.read.parquet(log), "ap@10", columns=COLUMNS, baseline="contrl")
    sentence = "unknown experiment 'contrl'; did you mean 'control'? known: candidate_a, candidate_b, control"
    with pytest.raises(ConfigError, match=f"^{re.escape(f'comparison.baseline: {sentence}')}$"):
        result.check()
    for call in (result.summary, result._repr_html_, lambda: result.write_report(tmp_path / "page.html")):
        with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$") as caught:
            call()
        # What the engine says stays at hand.
        assert caught.value.__cause__ is not None and sentence in str(caught.value.__cause__)


class Shell:
    """What ``explain_in_notebooks``, and Spark for its messages, ask of IPython."""

    execution_count = 1

    def __init__(self) -> None:
        self.custom_exceptions: tuple[type[Exception], ...] = ()
        self.explain: Any = None
        self.shown: list[str] = []

    def set_custom_exc(self, kinds: tuple[type[Exception], ...], handler: Any) -> None:
        self.custom_exceptions, self.explain = kinds, handler

    def showtraceback(self, error: Any, tb_offset: int | None = None) -> None:
        self.shown.append(f"trace of {error[0].__name__}")

    def _showtraceback(self, kind: type[Exception], error: Exception, lines: list[str]) -> None:
        self.shown += lines


def test_in_a_notebook_a_lazy_error_is_its_sentence_and_comparisons_show_themselves(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell()
    # Spark looks where IPython is, to leave its frames out of a trace.
    python = packages.stand_in("IPython", get_ipython=lambda: shell, __file__="/IPython/__init__.py")
    monkeypatch.setitem(sys.modules, "IPython", python)
    rows = [*a_list([1, 0], "u"), *a_list([0, 1], "v"), *a_list([1], "u", "b"), *a_list([0, 1], "v", "b")]
    result = evaluate(impressions(spark, rows), "ap@2", baseline="nobody")
    with pytest.raises(shell.custom_exceptions) as caught:
        result.comparisons.groupBy("metric").count().collect()
    shell.explain(shell, caught.type, caught.value, caught.tb)
    assert shell.shown == ["ConfigError: unknown experiment 'nobody'; known: a, b"]
    with pytest.raises(shell.custom_exceptions) as caught:
        spark.sql("SELECT nonsense").count()
    shell.explain(shell, caught.type, caught.value, caught.tb)
    assert shell.shown[1:] == [f"trace of {caught.type.__name__}"]
    # A handler of the user's own stays.
    shell.custom_exceptions, own = (OSError,), shell.explain
    compared = compare(result.user_metrics, baseline="a")
    assert shell.explain is own
    assert isinstance(compared, type(compared.limit(1))), "still a DataFrame of the session"
    assert "b against a on MAP@2: no difference shown" in compared._repr_html_()
    assert compared.to_pandas()["experiment_id"].tolist() == ["b"]


def test_spark_reads_the_figures_that_pyarrow_reads(spark: SparkSession, log: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    source = Source(path=log, columns=COLUMNS, segments=["device"])
    request = Config(source=source, metrics="ap@10,dcg@10", sink=Sink(path=out), evaluation_date="2026-11-20")
    run(spark, replace(request, comparison=replace(request.comparison, baseline="control")))
    mine, theirs = figures_of(local_tables(out)), figures_of(spark_tables(spark, Sink(path=out)))
    for name in ("means", "comparisons", "users"):
        one, other = (
            sorted(({key: row[key] for key in sorted(row)} for row in getattr(each, name)), key=repr)
            for each in (mine, theirs)
        )
        assert one == other and one
    sizes = mine.n_means, mine.n_comparisons
    # Three experiments and two candidates, two metrics, all users and each device.
    assert sizes == (theirs.n_means, theirs.n_comparisons) == (len(mine.means), len(mine.comparisons))
    assert 2 * sizes[0] == 3 * sizes[1] and mine.record == theirs.record
    steps = [row for row in mine.users if row["experiment_id"] == "control" and row["metric"] == "dcg@10"]
    # DCG has no upper bound, so its steps end at the largest value.
    assert sum(row["users"] for row in steps) == mine.record["experiments"]["control"]["lists"]
    assert max(row["step"] for row in mine.users if row["metric"] == "dcg@10") == 19


def test_changes_of_paired_users_are_those_of_stored_users_on_both_readers(spark: SparkSession, tmp_path: Path) -> None:
    # Each user has one relevant item: reciprocal ranks 1, 1/2, 1/3, 1/4 in a; one rank worse, the same or better in b.
    ranks = {f"u{i}": (1 + i % 4, 1 + (i + i // 4) % 4) for i in range(12)}
    rows = [
        row
        for user, result in ranks.items()
        for rank, name in zip(result, "ab", strict=True)
        for row in a_list([int(rank == place) for place in range(1, 5)], user, name)
    ]
    out, log = tmp_path / "out", parquet(tmp_path / "log", rows)
    run(spark, config(log, out, metrics=["rr"], comparison={"baseline": "a"}))
    readers = (local_tables(str(out)), spark_tables(spark, Sink(path=str(out))))
    mine, theirs = (figures_of(each).user_changes for each in readers)
    steps = Counter()
    for before, after in ranks.values():
        change = 1 / after - 1 / before
        steps[0 if before == after else math.copysign(math.ceil(round(abs(change) * 20, 9)), change)] += 1
    for rows in (mine, theirs):
        assert {(row["experiment_id"], row["baseline"], row["metric"]) for row in rows} == {("b", "a", "rr")}
        assert {row["step"]: row["users"] for row in rows} == steps and len(steps) > 4
