"""On which session a command runs, which sessions it stops, and how it ends. No test starts Spark."""

import os
import subprocess
import sys
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from types import ModuleType, SimpleNamespace

# Imported for real, before a stand-in takes the place of pyspark.sql.
import pyspark.errors
import pytest
from rich.console import Console

from rankmetrics_spark import cli, evaluate
from rankmetrics_spark.engines import choice as session_choice
from rankmetrics_spark.errors import ConfigError, RankmetricsError
from tests.helpers import messages, packages
from tests.helpers.commands import ROOT

SOCKET = "unix:///databricks/sparkconnect/grpc.sock;user_id=1;session_id=2"


class Session:
    """A session that knows where it comes from, and whether it was stopped."""

    def __init__(self, *origin: object) -> None:
        self.origin, self.stopped = origin, False

    def stop(self) -> None:
        self.stopped = True


class Builder:
    """Stands in for ``SparkSession.builder``.

    Attributes:
        platform: What there is without a name: the platform's session, or the error of its client.
    """

    def __init__(self) -> None:
        self.platform: Session | Exception = Session("platform")
        self.named = False

    def appName(self, name: str) -> "Builder":
        self.named = True
        return self

    def getOrCreate(self) -> Session:
        if self.named:
            return Session("spark-submit")
        if isinstance(self.platform, Exception):
            raise self.platform
        return self.platform


class Spark:
    """Stands in for ``SparkSession``."""

    def __init__(self) -> None:
        self.active: Session | None = None
        self.builder = Builder()

    def getActiveSession(self) -> Session | None:
        return self.active


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    """A machine where nothing is set, and where no session is started for real.

    It is not called spark: tests with that fixture wait for one another (tests/conftest.py).
    """
    for name in (session_choice.DATABRICKS, session_choice.SUBMITTED, "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    packages.install_sail(monkeypatch, tmp_path / "packages", works=False)
    for name in ("local_session", "connect_session"):
        monkeypatch.setattr(
            session_choice, name, lambda where, conf=None, kind=name: Session(kind.partition("_")[0], where)
        )
    fake = ModuleType("pyspark.sql")
    fake.SparkSession = Spark()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.sql", fake)
    return fake.SparkSession  # type: ignore[no-any-return]


def chosen(master: str | None = None, local: bool = False, engine: str | None = None) -> tuple[Session, list[str]]:
    """The session that a command gets, and the steps that it tells."""
    message: list[str] = []
    with session_choice.session_of(session_choice.choose(engine, master, local), message.append) as spark:
        assert isinstance(spark, Session) and not spark.stopped
    return spark, message


@pytest.mark.parametrize(("master", "variable", "origin"), messages.json_cases("a master and the environment"))
def test_the_master_comes_before_the_environment_variable(
    master: str | None, variable: str | None, origin: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("SPARK_REMOTE", variable)
    spark, message = chosen(master)
    said = ["starting Spark", "stopping Spark"]
    assert (spark.origin, spark.stopped, [text.partition(":")[0] for text in message]) == (tuple(origin), True, said)


def test_the_laptop_engine_has_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # By its name: looking at what is there would load the client.
    monkeypatch.setitem(vars(session_choice.sail), "laptop_session", lambda joins: Session("laptop"))
    monkeypatch.setitem(vars(session_choice.sail), "interrupts_end_engine", nullcontext)
    spark, message = chosen(engine="sail")
    assert (spark.origin, spark.stopped) == (("laptop",), True)
    assert message[0].startswith("starting Sail: ") and message[1:] == ["stopping Sail"]


def test_where_no_engine_is_the_sentence_says_how_to_get_one() -> None:
    with pytest.raises(RankmetricsError, match="no Spark session is running here; allowed: start one first"):
        evaluate([{"user_id": "u", "item_id": "i", "position": 1, "relevance": 1}])


def test_a_program_of_spark_submit_uses_its_session_and_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(session_choice.SUBMITTED, "4711")
    spark, _ = chosen()
    assert (spark.origin, spark.stopped) == (("spark-submit",), True)
    # A command that needs this machine, and an explicit master, start one of their own.
    assert chosen(local=True)[0].origin == ("local", "local[*]")
    assert chosen("local[2]")[0].origin == ("local", "local[2]")


@pytest.mark.parametrize(
    "environment",
    [
        {"DATABRICKS_RUNTIME_VERSION": "16.4"},
        {"DATABRICKS_RUNTIME_VERSION": "16.4", "PYSPARK_GATEWAY_PORT": "4711"},
        {"DATABRICKS_RUNTIME_VERSION": "client.5.7", "SPARK_REMOTE": SOCKET},
        {"SPARK_REMOTE": SOCKET},
    ],
)
def test_a_given_session_is_used_and_not_stopped(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for local in (False, True):
        spark, message = chosen(local=local)
        assert (spark.origin, spark.stopped) == (("platform",), False)
        assert message == ["using the session that is running here"]
    assert not session_choice.choose().here


def test_an_active_session_is_used_and_not_stopped(machine: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.active = active = Session("a notebook")
    # An address in the environment says where that session may have come from.
    monkeypatch.setenv("SPARK_REMOTE", "sc://a:1")
    assert (chosen()[0], active.stopped) == (active, False)
    with pytest.raises(ConfigError, match=r"^--master is 'sc://b:2', but a session is running here; allowed: no --mas"):
        chosen("sc://b:2")


def test_a_failure_leaves_a_given_session_running_and_stops_its_own(machine: Spark) -> None:
    for machine.active in (None, Session("a notebook")):
        choice = session_choice.choose()
        with pytest.raises(OSError), session_choice.session_of(choice, lambda text: None) as used:
            raise OSError("no disk")
        assert isinstance(used, Session) and used.stopped is (machine.active is None)


def test_a_platform_without_a_session_is_one_sentence(machine: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", SOCKET)
    for kind in (RuntimeError, pyspark.errors.PySparkException):
        machine.builder.platform = kind("[INVALID_CONNECT_URL] Invalid URL.\n  at x")
        with pytest.raises(RankmetricsError) as caught:
            chosen()
        assert str(caught.value) == "the platform gives no Spark session: [INVALID_CONNECT_URL] Invalid URL"


def test_a_master_that_is_no_address_is_refused_before_anything_else(machine: Spark) -> None:
    machine.active = Session("a notebook")
    with pytest.raises(ConfigError, match=r"^--master is 'foo'; allowed: an address such as local, spark://"):
        chosen("foo")


# ---- how a command ends


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["metrics"], ["selftest"], ["evaluate", "--help"]])
def test_success_ends_by_returning(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words, "rankmetrics") is None
    assert capsys.readouterr().out
    if words[0] == "evaluate":
        # What jobs/evaluate.py calls.
        assert cli.evaluate(words[1:]) is None


def test_failure_ends_with_its_exit_code(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("source: {path: log}\nmetrics: ndgc@10\n")
    for called, words in ((cli.main, ["evaluate"]), (cli.evaluate, [])):
        for more, code in ((["--config", str(config)], 2), (["--no-such-option"], 2)):
            with pytest.raises(SystemExit) as caught:
                called([*words, *more])
            assert caught.value.code == code


# ---- what spark-submit does to a program's stderr

# Stands in for spark-submit: a process of that name, whose child writes stdout and stderr to the parent's stdout.
PARENT = """
import subprocess, sys
child = subprocess.run([sys.executable, "-c", sys.argv[1]], stdout=sys.stdout, stderr=subprocess.STDOUT)
sys.exit(child.returncode)
"""
CHILD = """
from rankmetrics_spark import cli, evaluate
from rankmetrics_spark.errors import RankmetricsError

@cli.main.command("metrics")
def show(style):
    cli.opts.say.print("a step")
    print("[1]")
    raise RankmetricsError("no disk")

cli.main(["metrics", "--format", "STYLE"])
"""
SUBMIT, OTHER = "org.apache.spark.deploy.SparkSubmit", "another.Program"
ERROR = "rankmetrics: no disk\n"


@pytest.mark.parametrize(
    ("parent", "style", "stderr", "out", "err"),
    [
        (SUBMIT, "json", "pipe", "[1]\n", f"a step\n{ERROR}"),
        pytest.param(SUBMIT, "table", "pipe", "[1]\n", f"a step\n{ERROR}", marks=pytest.mark.slow),
        pytest.param(SUBMIT, "json", "a", "[1]\n", f"earlier\na step\n{ERROR}", marks=pytest.mark.slow),
        # A file that the program and spark-submit would overwrite for one another.
        (SUBMIT, "json", "r+", f"[1]\n{ERROR}", "earlier\n"),
        pytest.param(SUBMIT, "table", "r+", f"a step\n[1]\n{ERROR}", "earlier\n", marks=pytest.mark.slow),
        pytest.param(OTHER, "csv", "pipe", f"[1]\n{ERROR}", "", marks=pytest.mark.slow),
    ],
)
def test_stdout_of_a_submitted_program_holds_the_result_alone(
    parent: str, style: str, stderr: str, out: str, err: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-u", "-c", PARENT, CHILD.replace("STYLE", style), parent]
    environment = os.environ | {session_choice.SUBMITTED: "4711", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    log = tmp_path / "log"
    log.write_text("" if stderr == "pipe" else "earlier\n")
    with log.open("a" if stderr == "pipe" else stderr) as file:
        file.seek(0, os.SEEK_END)
        to = subprocess.PIPE if stderr == "pipe" else file
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=to, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, out), done.stderr
    assert (done.stderr or log.read_text()) == err


@pytest.mark.parametrize("works", [True, False], ids=["the JVM answers", "it does not"])
def test_where_stderr_is_a_file_the_jvm_of_spark_submit_writes_to_it(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    err = SimpleNamespace(write=lambda content, start, n: written.append(content[start:n]), flush=lambda: None)
    lang = SimpleNamespace(System=SimpleNamespace(err=err))
    gateway = SimpleNamespace(jvm=SimpleNamespace(java=SimpleNamespace(lang=lang if works else None)))
    gateways = packages.stand_in("pyspark.java_gateway", launch_gateway=lambda: gateway)
    monkeypatch.setitem(sys.modules, "pyspark.java_gateway", gateways)
    monkeypatch.setenv(session_choice.SUBMITTED, "1")
    with (tmp_path / "err").open("wb") as file:
        waits = [sys.executable, "-c", "print(flush=True); input()", "org.apache.spark.deploy.SparkSubmit"]
        with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file) as parent:
            # Until it has said something, its command line may be empty.
            assert parent.stdout is not None and parent.stdout.readline() == b"\n"
            monkeypatch.setattr(os, "getppid", lambda: parent.pid)
            with redirect_stderr(sys.stderr):
                assert session_choice.separate_output() == works
                if works:
                    print("rows: 4 in ± 1 \udcff", file=sys.stderr)
                    Console(stderr=True).print("a verdict")
            parent.kill()
    if works:
        assert b"".join(written) == "rows: 4 in ± 1 \\udcff\na verdict\n".encode()
    assert (tmp_path / "err").read_bytes() == b""


def test_a_spark_that_is_started_has_the_settings_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []
    monkeypatch.setattr(
        session_choice, "local_session", lambda where, conf: started.append(conf) or Session("local", where)
    )
    settings = {"spark.jars": "a.jar", "spark.log.level": "WARN"}
    others = {"spark.master": "yarn", "spark.sql.shuffle.partitions": "many"}
    with session_choice.session_of(session_choice.choose("spark", settings=settings | others), lambda text: None):
        assert started == [settings]

    def no_start(where: str, conf: dict[str, str]) -> Session:
        raise ValueError("spark.driver.memory should be a size")

    monkeypatch.setattr(session_choice, "local_session", no_start)
    choice = session_choice.choose("spark", settings={"spark.driver.memory": "many"})
    said = "^spark: Spark does not start with spark.driver.memory: .* should be a size; allowed: settings and values"
    with pytest.raises(ConfigError, match=said), session_choice.session_of(choice, lambda text: None):
        pass
