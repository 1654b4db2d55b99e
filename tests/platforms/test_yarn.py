"""YARN and HDFS on one node: the recipe of docs/platforms.md, in cluster mode and in client mode."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rankmetrics_spark.engines import QUICK_JAVA
from tests.helpers.commands import command, succeeded
from tests.helpers.logs import DATE, parquet, random_log
from tests.helpers.messages import messages
from tests.helpers.readme import PLATFORMS, commands, rename, section
from tests.platforms.hadoop import JARS, Hadoop, hadoop
from tests.platforms.support import Running, exact_rows, hadoop_of_spark, job_files, packed_python, wait_for

RECIPE = section("YARN", PLATFORMS)
LOG = random_log(1, users=100)
CONFIG = {
    "evaluation_date": DATE,
    # A path of HDFS.
    "source": {"path": "/log"},
    "metrics": ["ap@5", "rr"],
    "quality": {"max_invalid_fraction": 1, "repeated_items": "all"},
    "comparison": {"baseline": "a"},
    "spark": {"spark.sql.shuffle.partitions": "2"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the recipe names: the zip, the job, an archive with a Python, and a config; and a log."""
    folder = tmp_path_factory.mktemp("yarn")
    job_files(folder)
    packed_python(folder)
    parquet(folder / "log", LOG)
    (folder / "first.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


@pytest.fixture(scope="module")
def shown(folder: Path) -> list[str]:
    """What the same evaluation in local mode, with its results in ``local``, prints."""
    log, out = f"source.path={folder / 'log'}", folder / "local"
    done = succeeded(command("evaluate", "--config", folder / "first.yaml", "--set", log, "--output", out))
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[Hadoop]:
    with hadoop(folder / "hadoop") as node:
        node.run("fs.FsShell", "-put", folder / "log", "/log")
        yield node


def submit(node: Hadoop, folder: Path, names: dict[str, str], *more: str) -> tuple[int, str]:
    """Run the recipe with other names and more arguments; return spark-submit's exit code and output."""
    environment = node.environment
    home = environment["SPARK_HOME"]
    settings = {
        # Not 400 MB of uploads.
        "spark.yarn.jars": f"local:{home}/jars/*",
        # Drivers and executors on the node listen on loopback too; the executors inherit it.
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executor.instances": "1",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
    }
    # The recipe alone chooses the Python.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        del environment[name]
    (words,) = commands("spark-submit", RECIPE)
    spark_submit, *arguments = rename(words, names)
    given = (part for name, value in settings.items() for part in ("--conf", f"{name}={value}"))
    command = [f"{home}/bin/{spark_submit}", *given, *arguments, *more]
    job = Running.start(command, folder / "job.log", environment, folder)
    try:
        return job.process.wait(400), job.text()
    finally:
        job.stop()


def said_on_the_node(node: Hadoop, text: str) -> str:
    """What the recipe's ``yarn logs`` prints about the application that spark-submit has started."""
    application = re.findall(r"Submitted application (\S+)", text)[0]
    # The node deletes its copy once the log is in HDFS.
    wait_for(lambda: not (node.folder / "logs" / application).exists(), 60, f"log of {application} in HDFS")
    (words,) = commands("yarn", RECIPE)
    assert words[:2] == ["yarn", "logs"]
    return node.run("yarn.client.cli.LogsCLI", *rename(words[2:], {"APPLICATION": application}))


def assert_same_bits(node: Hadoop, results: str, folder: Path) -> None:
    node.run("fs.FsShell", "-get", results, folder)
    for table in ("user_metrics", "experiment_metrics", "comparisons", "quarantine"):
        result = exact_rows(folder / Path(results).name / table)
        assert result and result == exact_rows(folder / "local" / table), table


def test_the_jars_match_the_hadoop_version_of_this_spark() -> None:
    assert (JARS / f"hadoop-client-minicluster-{hadoop_of_spark()}.jar").exists()


def test_cluster_mode_gives_the_same_bits_as_local_mode(node: Hadoop, folder: Path, shown: list[str]) -> None:
    code, text = submit(node, folder, {})
    assert code == 0, text[-3000:]
    message = said_on_the_node(node, text)
    assert "b against a on MAP@5: " in message
    assert [line for line in shown if line not in message.splitlines()] == []
    # The Python of the archive has run in the folders of two containers, the driver's and an executor's.
    places = set((folder / "used").read_text().split())
    assert {re.sub(".*/application_\\d+_\\d+/container_.*_", "", place) for place in places} == {"000001", "000002"}
    assert_same_bits(node, "/results", folder)


def test_client_mode_answers_where_the_command_is_typed(node: Hadoop, folder: Path, shown: list[str]) -> None:
    code, text = submit(node, folder, {"cluster": "client", "hdfs:///results": "hdfs:///client"})
    assert code == 0, text[-3000:]
    assert [line for line in shown if line not in text.splitlines()] == []
    assert_same_bits(node, "/client", folder)


@pytest.mark.parametrize(("mistake", "sentence"), messages("mistakes on a node"))
def test_a_mistake_is_one_sentence_in_the_log_of_one_attempt(
    node: Hadoop, folder: Path, mistake: str, sentence: str
) -> None:
    code, text = submit(node, folder, {}, "--set", mistake)
    assert code == 1, text[-3000:]
    message = said_on_the_node(node, text)
    # Each attempt would say it once.
    assert message.count(sentence) == 1 and "Traceback" not in message


def test_client_mode_ends_with_the_exit_code_of_the_command(node: Hadoop, folder: Path) -> None:
    code, text = submit(node, folder, {"cluster": "client"}, "--set", "metrics=[nosuch@5]")
    assert code == 2, text[-3000:]
    assert "unknown metric 'nosuch@5'" in text and "Traceback" not in text
