"""The archive of Java's classes: its name, who uses it, and where it cannot be made. No test starts Spark."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankmetrics_spark.engines import cache, class_archive
from rankmetrics_spark.engines import spark as sessions
from rankmetrics_spark.engines.class_archive import ClassArchive
from rankmetrics_spark.tools import archive_classes

OPTIONS = "spark.driver.extraJavaOptions"
WRITES_AN_ARCHIVE = """\
for argument do
  case "$argument" in -XX:SharedArchiveFile=*) echo base >"${argument#*=}" ;; -Xshare:on) exit %d ;; esac
done
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment whose path has a space, and no options in the environment."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a venv"))
    monkeypatch.setattr(cache, "folder", cache.folder.__wrapped__)
    for name in class_archive.VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    """That of a Java with its own archive and of a Spark with two jars; it has not been made."""
    for name in ("jdk/bin/java", "spark/jars/a.jar", "spark/jars/b.jar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n" + WRITES_AN_ARCHIVE % 0)
    (tmp_path / "jdk/bin/java").chmod(0o755)
    return ClassArchive(tmp_path / "jdk/bin/java", 17, tmp_path / "spark")


def kept(archive: ClassArchive) -> list[str]:
    """What the folder holds, with the stem of this archive as a star."""
    assert archive.stem is not None
    return sorted(file.name.replace(archive.stem.name, "*") for file in archive.stem.parent.iterdir())


def placed(archive: ClassArchive, content: str = "classes", kind: str = "") -> Path:
    """A file that looks like a made one."""
    path = Path(f"{archive.stem}{kind}.{len(content)}.jsa")
    path.write_text(content)
    return path


def java_options(archive: ClassArchive, given: str = "") -> list[str]:
    return shlex.split(sessions._settings({OPTIONS: given}, archive)[OPTIONS])[1:]


@pytest.mark.parametrize(
    "change",
    [
        lambda spark, java: (spark / "jars/a.jar").write_text("another size"),
        lambda spark, java: os.utime(spark / "jars/a.jar", (1, 1)),
        lambda spark, java: (spark / "jars/b.jar").rename(spark / "jars/c.jar"),
        lambda spark, java: (spark / "jars/b.jar").unlink(),
        lambda spark, java: os.utime(java, (1, 1)),
        lambda spark, java: (java.parent.parent / "release").write_text('JAVA_VERSION="17.0.16"'),
    ],
    ids=["size of a jar", "date of a jar", "name of a jar", "number of jars", "java", "release"],
)
def test_another_java_or_other_jars_have_another_archive(
    archive: ClassArchive, change: Callable[[Path, Path], object]
) -> None:
    before = archive.stem
    assert before is not None and archive.stem == before
    change(archive.spark, archive.java)
    assert archive.stem != before


def test_a_link_to_a_java_has_the_archive_of_that_java(archive: ClassArchive, tmp_path: Path) -> None:
    link = tmp_path / "java"
    link.symlink_to(archive.java)
    assert ClassArchive(link, 17, archive.spark).stem == archive.stem


def test_a_launcher_has_the_archive_of_the_java_that_it_runs(archive: ClassArchive, tmp_path: Path) -> None:
    java = sessions.Java(archive.java, archive.major)
    script = sessions.launcher_home(java) / "bin" / "java"
    of_a_child = sessions._class_archive(archive.spark, sessions.Java(script, archive.major))
    assert of_a_child == sessions._class_archive(archive.spark, java) == archive


def test_without_a_file_there_are_no_options(archive: ClassArchive) -> None:
    assert archive.path is None and archive.options() == "" and java_options(archive) == []


def test_a_path_with_a_space_and_a_quote_is_one_option(
    archive: ClassArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "it's a venv"))
    path = placed(archive)
    assert " " in str(path) and "'" in str(path)
    assert java_options(archive, "-Xss4m") == [f"-XX:SharedArchiveFile={path}", "-Xlog:cds*=off", "-Xss4m"]


@pytest.mark.parametrize(("major", "silence"), [(17, "cds*=off"), (24, "cds*=off"), (25, "cds*=off,aot*=off")])
def test_the_messages_of_each_java_are_off(major: int, silence: str, archive: ClassArchive) -> None:
    assert ClassArchive(archive.java, major, archive.spark).silence == f"-Xlog:{silence}"


@pytest.mark.parametrize("own", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=x"])
def test_an_option_of_the_user_wins(own: str, archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(archive)
    assert java_options(archive, own) == [own]
    by_default = sessions._settings({"spark.driver.defaultJavaOptions": own}, archive)
    assert "classes-" not in by_default[OPTIONS]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", own)
    assert java_options(archive) == []


@pytest.mark.parametrize("kind", ["", ".base"])
def test_a_file_that_was_cut_off_is_not_used(kind: str, archive: ClassArchive) -> None:
    placed(archive)
    path = placed(archive, "classes", kind)
    assert java_options(archive)
    path.write_text("class")
    assert java_options(archive) == []


@pytest.mark.parametrize("prefix", [sys.base_prefix, "/dev/null", "a:b"])
def test_outside_of_a_virtual_environment_or_with_a_colon_there_is_none(
    prefix: str, archive: ClassArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix if prefix.startswith("/") else str(tmp_path / prefix))
    monkeypatch.setattr(archive_classes, "class_archive", lambda: archive)
    assert archive.stem is archive.path is None
    with pytest.raises(SystemExit) as end:
        archive_classes.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert err == (
        "no archive of Java's classes: only a virtual environment can keep it, in a path without ':', with Spark in a "
        "path without spaces; Spark works without it\n"
    )


@pytest.mark.parametrize(("name", "there"), [("a spark", False), ("ä", False), ("100%", False), ("spark@4+x", True)])
def test_jars_whose_path_a_url_encodes_have_none(name: str, there: bool, archive: ClassArchive) -> None:
    assert (ClassArchive(archive.java, 17, archive.spark / name).stem is not None) == there


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The options of each training run; instead of it, the archive is written at once."""
    runs: list[list[str]] = []

    def train(options: list[str], _: Path) -> None:
        runs.append(options)
        Path(options[-1].partition("=")[2]).write_text("made")

    monkeypatch.setattr(archive_classes, "_train", train)
    return runs


def test_a_new_archive_replaces_all_others(archive: ClassArchive, demo: list[list[str]]) -> None:
    assert archive.stem is not None
    placed(archive, "old")
    (archive.stem.parent / "classes-0.base.1.jsa").touch()
    (archive.stem.parent / "classes-of-a-killed-process").mkdir()
    (archive.stem.parent / "page.json").touch()
    assert archive_classes.make(archive) == archive.path
    assert kept(archive) == ["*.4.jsa", "page.json"]
    assert [option.partition("=")[0] for option in demo[0]] == ["-Xlog:cds*", "-XX:ArchiveClassesAtExit"]


def test_a_java_without_an_archive_of_its_own_gets_one_first(archive: ClassArchive, demo: list[list[str]]) -> None:
    archive.java.write_text("#!/bin/sh\n" + WRITES_AN_ARCHIVE % 1)
    archive_classes.make(archive)
    assert kept(archive) == ["*.4.jsa", "*.base.5.jsa"]
    assert demo[0][0] == f"-XX:SharedArchiveFile={archive.stem}.base.5.jsa"


def fails(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("train", "said"),
    [(fails, "No space left on device"), (lambda *_: None, "this Java writes none, or the disk is full")],
    ids=["it fails", "nothing is written"],
)
def test_what_cannot_be_made_is_one_sentence_and_leaves_nothing(
    train: Any, said: str, archive: ClassArchive, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    archive.java.write_text("#!/bin/sh\n" + WRITES_AN_ARCHIVE % 1)
    monkeypatch.setattr(archive_classes, "class_archive", lambda: archive)
    monkeypatch.setattr(archive_classes, "_train", train)
    with pytest.raises(SystemExit) as end:
        archive_classes.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out, kept(archive)) == (1, "", [])
    assert said in err and err.count("\n") == 1 and "Traceback" not in err


def test_a_demo_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf "a step\\nthe reason: $SPARK_SUBMIT_OPTS\\n" >&2\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(archive_classes.RankmetricsError, match="the demo fails: the reason: -Xa '-Xb c'"):
        archive_classes._train(["-Xa", "-Xb c"], tmp_path)


@pytest.mark.parametrize(
    ("major", "option", "given"),
    [
        (21, "-XX:SharedArchiveFile=x y", "conf/:{0}/b.jar:{0}/a.jar:{0}/c.jar"),
        (21, "-XX:ArchiveClassesAtExit=x", "conf/:{0}/b.jar:{0}/a.jar:{0}/c.jar"),
        (21, "-Xss4m", "conf/:{0}/b.jar:{0}/*"),
        (17, "-XX:SharedArchiveFile=x", "conf/:{0}/b.jar:{0}/*"),
        (25, "-XX:SharedArchiveFile=x", "conf/:{0}/b.jar:{0}/*"),
    ],
)
def test_with_an_archive_the_java_that_needs_it_gets_each_jar_once(
    major: int, option: str, given: str, tmp_path: Path
) -> None:
    jars, java = tmp_path / "jars [of Spark]", tmp_path / "java"
    jars.mkdir()
    for name in ("a.jar", "b.jar", "c.jar", "folder"):
        (jars / name).touch()
    java.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    java.chmod(0o755)
    launcher = sessions.launcher_home(sessions.Java(java, major)) / "bin" / "java"
    arguments = ["-cp", f"conf/:{jars}/b.jar:{jars}/*", option, "a.Class", ""]
    printed = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed == [f"<{argument}>" for argument in ["-cp", given.format(jars), *arguments[2:]]]
