"""The notebook, run cell by cell in a real kernel; the asset bundle, checked with the models of Databricks' tool."""

import json
import math
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import nbformat
import pytest
import yaml
from databricks.bundles.jobs import Job
from databricks.bundles.schemas import Schema
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from rankmetrics_spark import cli, engines as eng
from rankmetrics_spark.config import days
from tests.helpers.commands import ROOT, ran, spark_environment, succeeded
from tests.helpers.logs import a_list, parquet
from tests.helpers.messages import messages
from tests.platforms.support import built_wheel, rows_of

NOTEBOOK = ROOT / "jobs" / "databricks_notebook.py"
BUNDLE = ROOT / "conf" / "databricks.yml"
REFERENCE = r"\$\{(.+?)\}"
COLUMNS = "{experiment: variant, user: user_id, item: item_id, position: slot, relevance: clicked}"
EARLIER, DATE = "2026-11-19", "2026-11-20"
# Six in the morning in Tokyo, where the 20th is over; in UTC it is not.
TRIGGERED = "2026-11-20T21:00:00Z"
GIVEN = ("config", "overrides", "output", "date", "where")

# Stand-ins for what Databricks provides to a notebook: widgets that take the job's parameters, and display.
SHIMS = """
class Widgets:
    given, defaults = {}, {}

    def text(self, name, defaultValue, label=None):
        self.defaults[name] = defaultValue

    def combobox(self, name, defaultValue, choices, label=None):
        assert defaultValue in choices
        self.defaults[name] = defaultValue

    def get(self, name):
        return {**self.defaults, **self.given}[name]


class dbutils:
    widgets = Widgets()


def display(table):
    from IPython.display import display
    display(table)


def displayHTML(text):
    from IPython.display import HTML, display
    display(HTML(text))


import os
from pyspark.sql import SparkSession
"""

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    # The run is short: the optimizing compiler saves no time, and generated code saves little.
    "spark.driver.extraJavaOptions": f"{eng.QUICK_JAVA} -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.workspaceUrl": "dbc-1.cloud.databricks.com",
    # A second catalog, so that three-level table names work. Derby comes with Spark.
    "spark.sql.catalog.main": "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
    "spark.sql.catalog.main.url": "jdbc:derby:memory:main;create=true",
    "spark.sql.catalog.main.driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    # Derby cannot compare long strings, so Spark compares them.
    "spark.sql.catalog.main.pushDownPredicate": "false",
}
DELTA = {
    "spark.jars": ",".join(map(str, sorted((ROOT / ".jars" / "lakehouse").glob("delta-*.jar")))),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Otherwise Delta reads its log in fifty tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
}

# Stands in for a cluster with Databricks Runtime 17: a classic Spark 4.0 session with Delta.
CLUSTER = f"""
builder = SparkSession.builder.master("local[2]")
for name, value in {SETTINGS | DELTA!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""

# Stands in for serverless compute: it uses Connect, allows access to a few settings only, and cannot cache.
SERVERLESS = f"""
from pyspark.errors import AnalysisException
from pyspark.sql.connect.dataframe import DataFrame

builder = SparkSession.builder.remote("local[2]")
for name, value in {SETTINGS!r}.items():
    builder = builder.config(name, value)


class Conf:
    def __init__(self, conf):
        self.conf = conf

    def __getattr__(self, method):
        def checked(name, *rest):
            if name not in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions"):
                raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {{name}} is not available.")
            return getattr(self.conf, method)(name, *rest)
        return checked


class Session:
    def __init__(self, session):
        self.session, self.conf = session, Conf(session.conf)

    def __getattr__(self, name):
        return getattr(self.session, name)


spark = Session(builder.getOrCreate())


def refused(self, *rest):
    raise AnalysisException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute.")


DataFrame.cache = DataFrame.persist = refused
"""


def cells(source: str) -> Iterator[nbformat.NotebookNode]:
    """The cells of a notebook in Databricks' source format."""
    first, rest = source.split("\n", 1)
    assert first == "# Databricks notebook source"
    for text in rest.split("\n# COMMAND ----------\n"):
        lines = [line for line in text.strip().splitlines() if line]
        if not any(line.startswith("# MAGIC") for line in lines):
            yield nbformat.v4.new_code_cell(text.strip())
            continue
        # In Databricks either every line of a cell is magic, or none.
        assert all(line == "# MAGIC" or line.startswith("# MAGIC ") for line in lines)
        magic = "\n".join(line[8:] for line in lines)
        markdown = magic.startswith("%md\n")
        yield nbformat.v4.new_markdown_cell(magic[4:]) if markdown else nbformat.v4.new_code_cell(magic)


class Kernel:
    """A running kernel with a Spark session, and the cells that ran in it."""

    def __init__(self, client: NotebookClient) -> None:
        self.client = client
        self.installed = False

    def do(self, cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
        """Run a cell and return it with its outputs."""
        done = self.client.nb["cells"]
        done.append(cell)
        return self.client.execute_cell(cell, len(done) - 1)

    def ask(self, expression: str) -> Any:
        """The value of an expression, which must be JSON-serializable."""
        cell = self.do(nbformat.v4.new_code_cell(f"import json; print(json.dumps({expression}))"))
        return json.loads("".join(output["text"] for output in cell["outputs"]))

    def run(self, **widgets: object) -> list[nbformat.NotebookNode]:
        """Run the notebook with these parameters and return its cells with outputs."""
        self.do(nbformat.v4.new_code_cell(f"dbutils.widgets.given = {dict(widgets)!r}"))
        present = list(cells(NOTEBOOK.read_text(encoding="utf-8")))
        # pip takes seconds and its packages stay installed, so it runs only once per kernel.
        done = [self.do(cell) for cell in present if not (self.installed and cell["source"].startswith("%pip "))]
        self.installed = True
        return done

    def means(self) -> dict[tuple[str, str], float]:
        """(experiment, metric) -> mean over all users, as written by the run."""
        got = self.ask('[r[:] for r in outcome.experiment_metrics.select("experiment_id", "metric", "mean").collect()]')
        return {(experiment, metric): mean for experiment, metric, mean in got}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the bundle uploads to a workspace: the notebook and the wheel."""
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "jobs").mkdir()
    shutil.copy(NOTEBOOK, folder / "jobs")
    (folder / "dist").mkdir()
    shutil.copy(built_wheel(tmp_path_factory.mktemp("build")), folder / "dist")
    return folder


def expanded(target: str = "prod", **variables: str) -> dict[str, Any]:
    """The bundle with every reference replaced, and with the names that the Databricks tool gives in a target.

    In ``mode: development`` the tool puts ``[dev USER] `` before the names of jobs and ``dev_USER_`` before those of
    schemas (ApplyPresets in its source code).
    """
    text = BUNDLE.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    defaults = {name: variable["default"] for name, variable in document["variables"].items()}
    jobs, schemas = document["resources"]["jobs"], document["resources"]["schemas"]
    if document["targets"][target]["mode"] == "development":
        for resources, prefix in ((jobs, "[dev jane_doe] "), (schemas, "dev_jane_doe_")):
            for resource in resources.values():
                resource["name"] = prefix + resource["name"]
    values = {
        "bundle.name": document["bundle"]["name"],
        "bundle.target": target,
        "workspace.file_path": "/Workspace/files",
        **{f"var.{name}": value for name, value in (defaults | variables).items()},
        **{f"resources.schemas.{key}.name": schema["name"] for key, schema in schemas.items()},
    }
    assert values.keys() == set(re.findall(REFERENCE, text)), "a reference has no value, or a variable is not used"
    return replaced(document, values)


def replaced(part: Any, values: Mapping[str, str]) -> Any:
    if isinstance(part, str):
        if whole := re.fullmatch(r"\$\{([^}]+)\}", part):  # keeps its type
            return values[whole[1]]
        return re.sub(REFERENCE, lambda match: values[match[1]], part)
    if isinstance(part, list):
        return [replaced(item, values) for item in part]
    return {key: replaced(value, values) for key, value in part.items()} if isinstance(part, dict) else part


def words_of(task: Mapping[str, Any], date: str) -> list[str]:
    """The command-line words of a wheel task, with the paths of this machine and the given date."""
    date = date.replace("{{job.trigger.time.iso_datetime}}", TRIGGERED)
    words = [word.replace("{{job.parameters.date}}", date) for word in task["python_wheel_task"]["parameters"]]
    return [word.replace("/Workspace/files", str(ROOT)) for word in words]


@contextmanager
def kernel(workspace: Path, folder: Path, shims: str, **more: str) -> Iterator[Kernel]:
    """A kernel whose pip installs into its own folder, which is first on the import path.

    ``more`` holds further environment variables.
    """
    installed = folder / "installed"
    installed.mkdir()
    env = spark_environment(
        PIP_TARGET=str(installed),
        # The dependencies of the wheel are installed already; on Databricks they come from the runtime or an index.
        PIP_NO_DEPS="1",
        PIP_NO_INDEX="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        IPYTHONDIR=str(folder / "ipython"),
        MPLCONFIGDIR=str(folder / "matplotlib"),
    )
    env |= more | {"PYTHONPATH": os.pathsep.join([str(installed), more.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=300, kernel_name="python3")
    with client.setup_kernel(cwd=str(workspace / "jobs"), env=env):
        made = Kernel(client)
        made.do(nbformat.v4.new_code_cell(SHIMS + shims))
        yield made


def spark40(folder: Path) -> dict[str, str]:
    """Environment variables that select Spark 4.0, which Delta supports, together with this environment's packages."""
    (package,) = (ROOT / ".venvs" / "spark40").glob("lib/python*/site-packages/pyspark")
    folder.mkdir()
    (folder / "pyspark").symlink_to(package)
    return {"PYTHONPATH": str(folder), "SPARK_HOME": str(package)}


def log(kernel: Kernel, table: str, rows: str) -> None:
    """Insert rows (variant, user, item, slot, clicked, date), given as a Python expression, into a catalog table."""
    columns = "variant string, user_id string, item_id string, slot bigint, clicked bigint, event_date string"
    kernel.do(
        nbformat.v4.new_code_cell(f"""
spark.sql("create namespace if not exists {table.rpartition(".")[0]}")
spark.sql("create table if not exists {table} ({columns})")
rows = spark.createDataFrame(list({rows}), "{columns}")
rows.writeTo("{table}").append() if {table.startswith("main.")} else rows.write.insertInto("{table}")
""")
    )


# Every user sees two items. Users of 'a' clicked the second one, users of 'b' the first one.
BOTH = f"""(
    (variant, f"u{{n}}", f"i{{slot}}", slot, int(slot == (2 if variant == "a" else 1)), "{DATE}")
    for variant in "ab" for n in range(20) for slot in (1, 2)
)"""
# Five more users of 'a' saw one item each and clicked it.
MORE = f'(("a", f"v{{n}}", "i1", 1, 1, "{DATE}") for n in range(5))'
AT_TWO = 1 / math.log2(1 + 2)


UDF_VALUES = [["a", 1 / 2, pytest.approx(AT_TWO, rel=1e-12)], ["b", 1, 1]]


def udf_values(kernel: Kernel, table: str) -> list[list[Any]]:
    """Distinct (variant, AP@5, NDCG@5) of the users of a log, by the pandas UDFs from Python and from SQL."""
    kernel.do(
        nbformat.v4.new_code_cell(f"""
from rankmetrics_spark import ap_at, ndcg_at, register_udfs
per_user = spark.table("{table}").groupBy("variant", "user_id").agg(
    ap_at(5)("slot", "clicked", "item_id").alias("ap"), ndcg_at(5)("slot", "clicked").alias("ndcg")
)
register_udfs(spark)
same = spark.sql("select variant, user_id, ap_at_5(slot, clicked) as ap, ndcg_at_5(slot, clicked) as ndcg from {table} "
                 "group by variant, user_id")
assert sorted(map(tuple, per_user.collect())) == sorted(map(tuple, same.collect()))
""")
    )
    return kernel.ask("sorted({(row[0], row[2], row[3]) for row in per_user.collect()})")  # type: ignore[no-any-return]


def shown_page(run: list[nbformat.NotebookNode]) -> dict[str, Any]:
    """The numbers of the page that a run shows."""
    (page,) = re.findall(r'id="data">(.*?)</script>', texts(run), re.DOTALL)
    result: dict[str, Any] = json.loads(page)
    return result


def steps_of(page: Mapping[str, Any], metric: str) -> list[list[Any]]:
    """(experiment, step, users) of a metric."""
    users, names = page["users"], [each["name"] for each in page["metrics"]]
    rows = zip(users["e"], users["m"], users["counts"], strict=True)
    # The first number is that of a value at the lower end, which is in no step.
    return sorted(
        [page["experiments"][e], step, n]
        for e, m, counts in rows
        if names[m] == metric
        for step, n in enumerate(counts, start=-1)
        if n
    )


def partitions(out: Path, table: str) -> dict[str, list[str]]:
    """Partition folder -> file names. A rewritten partition has new file names."""
    folders = (out / table).glob("experiment_id=*/evaluation_date=*")
    return {str(folder.relative_to(out / table)): sorted(os.listdir(folder)) for folder in folders}


def sentence(caught: CellExecutionError) -> str:
    """Error class and message, which must be one line without internals of the package."""
    assert "site-packages" not in str(caught) and "/rankmetrics_spark/" not in str(caught)
    assert "\n" not in caught.evalue
    return f"{caught.ename}: {caught.evalue}"


def texts(run: list[nbformat.NotebookNode]) -> str:
    """Everything the cells of a run print or display, except stderr and images."""
    outputs = [output for cell in run for output in cell.get("outputs", []) if output.get("name") != "stderr"]
    return "".join(output.get("text", "") + output.get("data", {}).get("text/html", "") for output in outputs)


def test_the_notebook_on_a_cluster(workspace: Path, tmp_path: Path) -> None:
    widgets = {"source": "main.logs.impressions", "columns": COLUMNS, "output": "spark_catalog.ranking", "date": DATE}
    written = 'sorted({tuple(row) for row in spark.table("spark_catalog.ranking.%s").selectExpr(%s).collect()})'
    with kernel(workspace, tmp_path, CLUSTER, **spark40(tmp_path / "spark40")) as notebook:
        log(notebook, "main.logs.impressions", BOTH)
        notebook.do(nbformat.v4.new_code_cell('spark.sql("create schema spark_catalog.ranking")'))
        run = notebook.run(**widgets)
        assert notebook.ask("__import__('rankmetrics_spark').__file__").startswith(str(tmp_path / "installed"))
        assert notebook.ask("spark.version").startswith("4.0.")
        at_two = {"ap@5": 1 / 2, "ap@10": 1 / 2, "ndcg@5": AT_TWO, "ndcg@10": AT_TWO}
        expected = {("a", metric): mean for metric, mean in at_two.items()} | {("b", metric): 1.0 for metric in at_two}
        assert notebook.means() == pytest.approx(expected, rel=1e-12)
        assert "rows: 80 read = 80 evaluated + 0 left out" in texts(run)
        assert "run record: spark_catalog.ranking.runs" in texts(run)
        assert texts(run).count("<th>ci_low</th>") == 1
        explorer = "https://dbc-1.cloud.databricks.com/explore/data/spark_catalog/ranking"
        assert f'<td>40</td><td><a href="{explorer}/user_metrics" target="_blank">' in texts(run)
        assert "<bdi>b</bdi> has the highest MAP@10" in texts(run)
        # Twenty steps between 0 and 1: step 9 ends at 1/2, and step 19 is the last.
        assert steps_of(shown_page(run), "ap@10") == [["a", 9, 20], ["b", 19, 20]]
        users = notebook.ask(written % ("user_metrics", '"experiment_id", "user_id", "ap_at_10"'))
        assert users == sorted([name, f"u{n}", 1 / 2 if name == "a" else 1.0] for name in "ab" for n in range(20))
        first = notebook.ask("outcome.run_id")
        assert udf_values(notebook, "main.logs.impressions") == UDF_VALUES

        # A second run with more users of 'a' only. The partitions of 'b' keep the result of the first run.
        log(notebook, "main.logs.impressions", MORE)
        notebook.run(**widgets | {"metrics": "ap@5", "where": "event_date = '{date}' and variant = 'a'"})
        assert notebook.means() == {("a", "ap@5"): pytest.approx((20 * 1 / 2 + 5 * 1) / 25, rel=1e-12)}
        second = notebook.ask("outcome.run_id")
        for table in ("user_metrics", "experiment_metrics"):
            writers = notebook.ask(written % (table, '"experiment_id", "string(evaluation_date)", "run_id"'))
            assert writers == [["a", DATE, second], ["b", DATE, first]]

        for wrong, message in messages("mistakes in a notebook"):
            with pytest.raises(CellExecutionError) as caught:
                notebook.run(**widgets | wrong)
            assert sentence(caught.value).startswith(message)
        done = """spark.table("spark_catalog.ranking.runs").where("get_json_object(record, '$.outcome') = 'done'")"""
        # Runs that failed have records too, but none of them is done.
        assert notebook.ask(f'sorted(row["run_id"] for row in {done}.collect())') == sorted([first, second])
        assert {row[0] for row in notebook.ask(written % ("user_metrics", '"run_id"'))} == {first, second}


def test_the_notebook_on_serverless_compute(workspace: Path, tmp_path: Path) -> None:
    with kernel(workspace, tmp_path, SERVERLESS) as notebook:
        log(notebook, "spark_catalog.logs.impressions", BOTH)
        # The widgets that are empty leave what the config says.
        (tmp_path / "ours.yaml").write_text('{metrics: ["softmax_loss(t=1)", ndcg@5, dcg@5], source: {path: other}}')
        run = notebook.run(
            config=str(tmp_path / "ours.yaml"),
            source="spark_catalog.logs.impressions",
            columns=COLUMNS.replace("}", ", score: slot}"),
            output=str(tmp_path / "out"),
            date="yesterday@2026-11-21T06:00:00.000",
        )
        # The score is the slot, so the clicked item has the higher of two scores for 'a' and the lower one for 'b'.
        losses = {
            ("a", "softmax_loss(t=1)"): math.log(1 + math.exp(-1)),
            ("b", "softmax_loss(t=1)"): math.log(1 + math.e),
        }
        gains = {("a", "ndcg@5"): AT_TWO, ("a", "dcg@5"): AT_TWO, ("b", "ndcg@5"): 1.0, ("b", "dcg@5"): 1.0}
        assert notebook.means() == pytest.approx(losses | gains, rel=1e-12)
        # The first metric decides, and its lowest loss is the best.
        assert "<bdi>a</bdi> has the lowest Softmax loss (t = 1)" in texts(run)
        shown = re.findall(r"<td>([ab])</td>\s*<td>all</td>\s*<td>(dcg|ndcg|softmax)", texts(run))
        assert shown == [(name, metric) for metric in ("softmax", "ndcg", "dcg") for name in "ab"]
        assert udf_values(notebook, "spark_catalog.logs.impressions") == UDF_VALUES
        assert shown_page(run)["experiments"] == ["a", "b"]
        assert notebook.ask("outcome.record['refused_settings']") == list(eng.SETTINGS_OF_RUNS)
        assert partitions(tmp_path / "out", "user_metrics").keys() == {
            f"experiment_id={name}/evaluation_date={DATE}" for name in "ab"
        }


@pytest.fixture(scope="module")
def bundle() -> dict[str, Any]:
    return expanded()


def test_the_databricks_tool_knows_every_field_of_the_bundle(bundle: dict[str, Any]) -> None:
    for key, job in bundle["resources"]["jobs"].items():
        made = Job.from_dict(job).as_dict()
        # A notebook prunes nothing.
        keys = ["evaluate"] if key == "notebook" else ["evaluate", "prune"]
        assert [task["task_key"] for task in made["tasks"]] == keys
        # The tool refuses unknown fields and missing required fields.
        for bad in (job | {"tasks": [{**job["tasks"][0], "clutser": "a"}]}, job | {"tasks": [{"timeout_seconds": 1}]}):
            with pytest.raises((ValueError, TypeError), match=r"clutser|task_key"):
                Job.from_dict(bad)
    for schema in bundle["resources"]["schemas"].values():
        assert Schema.from_dict(schema).name == "rankmetrics"


def test_a_task_names_a_cluster_or_an_environment_that_its_job_has(bundle: dict[str, Any]) -> None:
    serverless, cluster, notebook = (bundle["resources"]["jobs"][key] for key in ("serverless", "cluster", "notebook"))
    assert serverless["tasks"][0]["environment_key"] == serverless["environments"][0]["environment_key"]
    assert "job_clusters" not in serverless
    assert cluster["tasks"][0]["job_cluster_key"] == cluster["job_clusters"][0]["job_cluster_key"]
    # A notebook on serverless compute gets its packages only from %pip.
    assert notebook["tasks"][0].keys().isdisjoint({"environment_key", "job_cluster_key"})
    # No task is tried again by default: a try repeats a failed gate too.
    tasks = [task for job in (serverless, cluster, notebook) for task in job["tasks"]]
    assert [task["max_retries"] for task in tasks] == [0] * 5
    assert [task.get("disable_auto_optimization") for task in tasks] == [True, True, None, None, True]
    where = ("environment_key", "job_cluster_key", "libraries")
    for evaluate, prune in (serverless["tasks"], cluster["tasks"]):
        assert [prune.get(key) for key in where] == [evaluate.get(key) for key in where]
        assert prune["depends_on"] == [{"task_key": evaluate["task_key"]}]
    assert {job["schedule"]["quartz_cron_expression"] for job in (serverless, cluster)} == {"0 0 6 * * ?"}
    assert [job["schedule"].get("pause_status") for job in (serverless, cluster)] == [None, "PAUSED"]


def test_every_file_that_the_bundle_names_exists(bundle: dict[str, Any], workspace: Path) -> None:
    jobs = bundle["resources"]["jobs"]
    notebook = jobs["notebook"]["tasks"][0]["notebook_task"]
    assert (BUNDLE.parent / notebook["notebook_path"]).resolve() == NOTEBOOK
    (wheel,) = (workspace / "dist").iterdir()
    globs = [
        *jobs["serverless"]["environments"][0]["spec"]["dependencies"],
        *(library["whl"] for library in jobs["cluster"]["tasks"][0]["libraries"]),
        *bundle["sync"]["include"],
    ]
    for pattern in globs:
        assert pattern.startswith("../dist/") and wheel.match(pattern.removeprefix("../"))
    # Uploaded files keep their paths of the checkout below file_path.
    uploaded = [(BUNDLE.parent / path).resolve() for path in bundle["sync"]["paths"]]
    assert uploaded == [ROOT / "conf", ROOT / "jobs", ROOT / "dist"]
    assert notebook["base_parameters"]["package"] == "/Workspace/files/dist"
    assert '"package", "../dist"' in NOTEBOOK.read_text(encoding="utf-8")
    artifact = bundle["artifacts"]["package"]
    assert (BUNDLE.parent / artifact["path"]).resolve() == ROOT
    assert re.search(rf"^{artifact['build'].removeprefix('make ')}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_parameters_of_a_notebook_are_its_widgets(bundle: dict[str, Any]) -> None:
    task = bundle["resources"]["jobs"]["notebook"]["tasks"][0]["notebook_task"]
    named = set(re.findall(r'dbutils\.widgets\.\w+\("(\w+)",', NOTEBOOK.read_text(encoding="utf-8")))
    given = {*task["base_parameters"], *(p["name"] for p in bundle["resources"]["jobs"]["notebook"]["parameters"])}
    assert given | {"convention"} == named
    assert re.search(r"^KEYS = \{(.*?)^\}", NOTEBOOK.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("name", ["serverless", "cluster"])
def test_the_wheel_has_the_command_that_a_job_calls(bundle: dict[str, Any], workspace: Path, name: str) -> None:
    task = bundle["resources"]["jobs"][name]["tasks"][0]
    (wheel,) = (workspace / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        (points,) = (file for file in archive.namelist() if file.endswith("entry_points.txt"))
        line = f"\n{task['python_wheel_task']['entry_point']} = rankmetrics_spark.__main__:main\n"
        assert line in archive.read(points).decode()
    assert wheel.name.startswith(f"{task['python_wheel_task']['package_name']}-")
    words = words_of(task, DATE)
    assert not any("{{" in word or "${" in word for word in words)
    context = cli.evaluate.make_context("evaluate", words[1:])
    names = ("master", "engine", "style", "segments", "first", "last", "keep_going")
    chosen = {name: context.params.pop(name) for name in names}
    assert words[0] == "evaluate" and [*chosen.values()] == [None, None, "table", False, None, None, True]
    config = cli.opts.loaded(**context.params)
    assert (config.source.table, config.source.where) == ("main.default.impressions", f"event_date = '{DATE}'")
    assert config.source.columns["experiment"] == "experiment_id"
    assert [str(metric) for metric in config.metrics] == ["ap@5", "ap@10", "ndcg@5", "ndcg@10"]
    assert (config.sink.format, config.sink.path, config.sink.table) == ("delta", None, "main.rankmetrics")
    assert config.evaluation_date == DATE
    assert (config.comparison.baseline, config.comparison.period) == (None, None)
    # What is kept is all, and is that of the variable otherwise.
    for given, keep in (({}, "all"), ({"keep": "90d"}, "90d")):
        _, task = expanded("prod", **given)["resources"]["jobs"][name]["tasks"]
        words = task["python_wheel_task"]["parameters"]
        params = cli.main.commands[words[0]].make_context(words[0], words[1:]).params
        assert (params["table"], params["sink_format"], params["keep"]) == ("main.rankmetrics", "delta", keep)


@pytest.mark.parametrize("name", ["serverless", "cluster"])
def test_a_job_takes_what_its_variables_say(name: str) -> None:
    given = {"gates": "[{metric: ap@5, max_drop: 0.01}]", "segments": "[device]", "period": "{from: 2026-11-08}"}
    given |= {"config": "conf/ab_test.yaml", "baseline": "control", "where": "null"}
    job = expanded("prod", **given)["resources"]["jobs"][name]
    context = cli.evaluate.make_context("evaluate", words_of(job["tasks"][0], DATE)[1:])
    config = cli.opts.loaded(**{name: context.params[name] for name in GIVEN})
    assert config.comparison.baseline == "control" and config.comparison.period is not None
    assert (config.comparison.period.first, config.comparison.period.last) == ("2026-11-08", DATE)
    assert [(str(gate.metric), gate.max_drop) for gate in config.gates] == [("ap@5", 0.01)]
    assert config.options.segments == ("device",)
    # What no variable says is that of the config, also its filter.
    assert (config.quality.on_invalid, config.source.where) == ("fail", "surface = 'search'")


@pytest.mark.parametrize("name", ["serverless", "cluster"])
@pytest.mark.parametrize("target", ["dev", "prod"])
def test_a_scheduled_job_evaluates_the_day_that_is_over_in_its_time_zone(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = expanded(target, time_zone="Asia/Tokyo", where="log_date = '{date}' and surface = 'search'")
    job = job["resources"]["jobs"][name]
    schedule, (date,) = job["schedule"], job["parameters"]
    assert (schedule["timezone_id"], date["name"]) == ("Asia/Tokyo", "date")
    seconds, minutes, hours = map(int, schedule["quartz_cron_expression"].split()[:3])
    start = datetime(2026, 11, 21, hours, minutes, seconds, tzinfo=ZoneInfo(schedule["timezone_id"]))
    assert f"{start.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}" == TRIGGERED

    class Clock(datetime):
        """The run is repaired two days later."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return (start + timedelta(days=2)).astimezone(tz)

    monkeypatch.setattr(days, "datetime", Clock)
    context = cli.evaluate.make_context("evaluate", words_of(job["tasks"][0], date["default"])[1:])
    config = cli.opts.loaded(**{name: context.params[name] for name in GIVEN})
    assert config.evaluation_date == DATE
    assert config.source.where == f"log_date = '{DATE}' and surface = 'search'"
    assert config.sink.table == {"dev": "main.dev_jane_doe_rankmetrics", "prod": "main.rankmetrics"}[target]


# Runs in a process whose session stands in for the platform's: each kind of task in turn, as the platform runs it.
TASKS = f"""
import json, os, runpy, sys
from importlib.metadata import entry_points
from pyspark.sql import SparkSession
import rankmetrics_spark
from rankmetrics_spark import job

where, script, config, answer = sys.argv[1:]
builder = SparkSession.builder
builder = builder.remote("local[2]") if where == "connect" else builder.master("local[2]")
for name, value in {SETTINGS!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
os.environ["DATABRICKS_RUNTIME_VERSION"] = "client.5.7" if where == "connect" else "16.4"
if where == "connect":
    os.environ["SPARK_REMOTE"] = "unix:///databricks/sparkconnect/grpc.sock;user_id=1;session_id=2"


def stop(self):
    raise AssertionError("the session of the platform was stopped")


type(spark).stop = stop


real, used = job.run, []


def run(session, *more):
    used.append(session is spark)
    return real(session, *more)


job.run = run


def wheel_task(*words):
    (point,) = entry_points(group="console_scripts", name="rankmetrics")
    sys.argv = ["rankmetrics", "evaluate", *words]
    point.load()()


def python_task(*words):
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")


def notebook(*words):
    from rankmetrics_spark.cli import main

    main(["evaluate", *words])


def ended(task, *words):
    try:
        task("--config", config, "--output", f"{{answer}}.out/{{task.__name__}}", *words)
    except SystemExit as end:
        return f"SystemExit: {{end.code}}"
    return "returned"


found = {{task.__name__: ended(task, "--date", "{DATE}") for task in (wheel_task, python_task, notebook)}}
found["gate"] = ended(wheel_task, "--set", "gates=[{{metric: ap@5, min: 0.9}}]")
found["master"] = ended(python_task, "--master", "local[1]")
found["rows"] = spark.range(3).count()
found["package"] = rankmetrics_spark.__file__
found["used"] = used
with open(answer, "w") as file:
    json.dump(found, file)
"""


@pytest.mark.parametrize("where", ["classic", "connect"])
def test_each_kind_of_task_uses_the_platform_session_and_returns(where: str, workspace: Path, tmp_path: Path) -> None:
    log = parquet(tmp_path / "log", [*a_list([0, 1], "u", "a"), *a_list([1, 0], "u", "b")])
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"source": {"path": str(log)}, "metrics": ["ap@5"]}))
    (wheel,) = (workspace / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    script, answer = ROOT / "jobs" / "evaluate.py", tmp_path / "answer.json"
    environment = spark_environment(PYTHONPATH=str(tmp_path / "installed"))
    done = succeeded(ran([sys.executable, "-c", TASKS, where, script, config, answer], tmp_path, environment))
    result = json.loads(answer.read_text())
    assert result.pop("package").startswith(str(tmp_path / "installed"))
    refused = {"gate": "SystemExit: 5", "master": "SystemExit: 2"}
    tasks = ("wheel_task", "python_task", "notebook")
    assert result == dict.fromkeys(tasks, "returned") | refused | {"rows": 3, "used": [True] * 4}
    for task in tasks:
        rows = rows_of(tmp_path / "answer.json.out" / task / "experiment_metrics")
        assert {row["experiment_id"]: row["mean"] for row in rows} == {"a": 1 / 2, "b": 1}
    assert "Traceback" not in done.stderr
