"""An archive of Java's classes, made and used by the real Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.commands import QUICK, ROOT, ran
from tests.readme import commands

pytestmark = [pytest.mark.classic, pytest.mark.program, pytest.mark.slow]

COUNTS_ROWS = """\
import sys
from rankmetrics_spark.engines.spark import local_session
spark = local_session("local[1]", conf={"spark.driver.extraJavaOptions": sys.argv[1]})
print("rows:", spark.range(3).count())
spark.stop()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment of its own, with the packages of this one."""
    folder = tmp_path_factory.mktemp("archive") / "a venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    found = folder / "bin" / "python"
    place = subprocess.run(
        [found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # The checkout may lie in a path with a space, and Java archives no class of a jar there.
    installed, copied = Path(pyspark.__file__).parent, tmp_path_factory.getbasetemp() / "packages"
    shutil.copytree(installed, copied / "pyspark")
    Path(place, "more.pth").write_text(f"{copied}\n{installed.parent}\n")
    return found


def run(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return ran([python, *arguments], Path.cwd(), os.environ | {"PYTHONPATH": str(ROOT)})


def test_spark_takes_its_classes_from_an_archive_and_works_without_it(python: Path) -> None:
    ((_, *words),) = commands("python", (ROOT / "docs" / "engines.md").read_text(encoding="utf-8"))
    made = run(python, *words)
    assert (made.returncode, made.stderr) == (0, "")
    folder = python.parents[1] / "var" / "rankmetrics"
    (archive,) = (file for file in folder.glob("classes-*.jsa") if ".base." not in file.name)
    assert made.stdout.startswith(f"{archive}: an archive of Java's classes, ")

    used = run(python, "-c", COUNTS_ROWS, "-Xlog:class+load")
    assert used.returncode == 0 and "rows: 3" in used.stdout
    from_archive = [line for line in used.stdout.splitlines() if "shared objects file (top)" in line]
    assert sum("org.apache.spark" in line for line in from_archive) > 1000

    # Of the same size, so that Java reads it.
    archive.chmod(0o644)
    with open(archive, "r+b") as file:
        file.write(b"no archive")
    broken = run(python, "-c", COUNTS_ROWS, QUICK["JDK_JAVA_OPTIONS"])
    assert (broken.returncode, broken.stdout, broken.stderr) == (0, "rows: 3\n", "")
