"""A copy of the package with changes to its text, programs that use it, and environments with other packages."""

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

import rankmetrics_spark
from rankmetrics_spark.engines import sail
from tests.helpers.commands import ROOT, ran, succeeded

HALF_FLOATS = int(pa.__version__.split(".")[0]) >= 15
"""Whether this PyArrow casts numbers of 16 bits, and writes them to Parquet."""
Changes = Mapping[str, Mapping[str, str]]
"""File of the package -> text that stands there once -> text in its place."""


def run_with(changes: Changes, program: str, folder: Path, *arguments: str | Path) -> None:
    """Change a copy of the package and run a program with it; its first argument is the folder of the copy."""
    package = Path(rankmetrics_spark.__file__).parent
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, replacements in changes.items():
        file = folder / package.name / name
        text = file.read_text(encoding="utf-8")
        for old, new in replacements.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    (folder / "use.py").write_text(program, encoding="utf-8")
    # The folder of the program comes first: the changed package, with the tests of this checkout.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    succeeded(ran([sys.executable, folder / "use.py", folder, *arguments], folder, environment))


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, **versions: str) -> None:
    """Make an environment in which these packages are installed, before those that are there."""
    for name, version in versions.items():
        information = folder / f"{name}-{version}.dist-info"
        information.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (information / "METADATA").write_text(text)
    monkeypatch.syspath_prepend(folder)


def install_sail(monkeypatch: pytest.MonkeyPatch, folder: Path, works: bool = True) -> None:
    """Make an environment that can run the laptop engine, or one whose client is of another version."""
    install(monkeypatch, folder, pysail="0.6.5", pyspark_client=sail.CLIENT if works else "4.1.0")
    for module in ("pysail", *(() if find_spec("grpc") else ("grpc",))):
        (folder / f"{module}.py").touch()


def libraries_of_pages(monkeypatch: pytest.MonkeyPatch, missing: Iterable[str] = ()) -> None:
    """Make an environment with the libraries of pages but some; those that are there stay."""
    for name in ("altair", "jinja2", "vl_convert"):
        if name in missing:
            monkeypatch.setitem(sys.modules, name, None)
        elif find_spec(name) is None:
            monkeypatch.setitem(sys.modules, name, stand_in(name))


def quick_vega(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace vl_convert, which takes seconds to make its scripts; return the versions that it is asked for."""
    made: list[str] = []

    def bundle(vl_version: str) -> str:
        made.append(vl_version)
        return f"library of {vl_version}"

    monkeypatch.setitem(
        sys.modules,
        "vl_convert",
        stand_in("vl_convert", get_vegalite_versions=lambda: ["5.8", "6.1", "5.20"], javascript_bundle=bundle),
    )
    return made


def stand_in(name: str, **content: object) -> ModuleType:
    """A module that counts as installed."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(content)
    return module
