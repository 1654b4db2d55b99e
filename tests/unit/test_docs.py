"""The code in the docs gives what it shows, and the docs are built from pages that exist."""

import doctest
import importlib
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import rankmetrics_spark
from rankmetrics_spark.config import from_mapping, parse
from rankmetrics_spark.metrics import REGISTRY
from tests.cli_page import updated
from tests.helpers.commands import ROOT, ran
from tests.helpers.readme import README
from tests.mutants import mutants
from tests.mutants.__main__ import PARTS

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "CONTRIBUTING.md"])
WRITTEN = [ROOT / "README.md", *DOCS.glob("*.md")]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)

RUN_ELSEWHERE = {
    **dict.fromkeys(("tutorial.md", "guide-queries.md", "metrics.md"), "tests/spark/test_readme.py"),
    **dict.fromkeys(("publishing.md", "report.md", "comparing.md"), "tests/spark/test_docs_run.py"),
    **dict.fromkeys(("tasks.md", "guide-logs.md"), "tests/spark/test_guides.py"),
    **{f"guide-{n}.md": "tests/helpers/first_hour.py" for n in ("recommender", "search", "online-test", "platform")},
    "verifying.md": "tests/spark/test_registered.py",
    "position-bias.md": "tests/spark/test_off_policy.py",
    "interleaving.md": "tests/spark/test_interleaving.py",
    "platforms.md": "tests/platforms",
    "engines.md": "tests/platforms/test_sail.py",
    "tables.md": "tests/spark/test_tables.py",
    "install.md": "tests/platforms/test_packaging.py",
    "completion.md": "tests/spark/test_first_commands.py",
    # They take hours (make bench), or are the steps of a person.
    "performance.md": "tests/benchmarks",
    "CONTRIBUTING.md": "tests/unit/test_docs.py",
}
"""Page -> what runs or checks its blocks that are no doctests and no configs."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block of code."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_give_the_output_that_they_show(page: Path) -> None:
    known = set(REGISTRY)
    try:
        result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    finally:
        for name in set(REGISTRY) - known:
            del REGISTRY[name]
    assert not result.failed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_is_run(page: Path, tmp_path: Path) -> None:
    for language, text in blocks(page):
        # Commands of platforms that no test has; the page says so.
        if (page.name, language) == ("platforms.md", "text"):
            continue
        if (page.name, language) == ("CONTRIBUTING.md", "yaml"):
            (tmp_path / "example.yaml").write_text(text)
            assert mutants(tmp_path)
        elif language == "yaml":
            config: Any = parse(text)
            from_mapping({"source": {"path": "logs"}} | config)
        elif ">>> " not in text:
            assert reads(ROOT / RUN_ELSEWHERE[page.name], page.name.removesuffix(".md"))


def reads(tests: Path, page: str) -> bool:
    """Whether a file of tests, or one of a folder, takes what it runs from a page."""
    files = tests.rglob("*.py") if tests.is_dir() else [tests]
    return any(page in file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_what_people_write_has_short_paragraphs_and_cells(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"<!-- (\w+): (?:written|read).*?<!-- /\1 -->", "", text, flags=re.DOTALL)
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.|#+|\|) ?)", text)
    cells = [cell for part in parts if part.strip().startswith("|") for cell in part.split(" | ")]
    paragraphs = [part for part in parts if not part.strip().startswith("|")]
    assert [part for part in paragraphs if len(part.split()) > 80] == []
    assert [cell for cell in cells if len(cell.strip("| \n").split()) > 30] == []
    assert len(README.split()) <= 950


def test_a_version_of_the_changelog_has_at_most_40_lines() -> None:
    _, unreleased, *versions = re.split(r"^(?=## )", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    assert unreleased.startswith("## [Unreleased]")
    assert [version.splitlines()[0] for version in versions if len(version.splitlines()) > 40] == []
    assert versions[0].startswith(f"## [{rankmetrics_spark.__version__}] - ")


def test_the_page_of_commands_is_that_of_the_command() -> None:
    if version("click").startswith("8.0."):
        pytest.skip("Click 8.0 indents help otherwise")
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert updated(page) == page, "run make readme"


def test_platforms_without_a_test_are_named_as_not_checked() -> None:
    text = (DOCS / "platforms.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        assert ("```text" in section) <= ("Not checked: " in section)


def _lines_of(array: str, script: str) -> list[list[str]]:
    """The words of each line of an array of a script."""
    (lines,) = re.findall(rf"^{array}=\(\n(.*?)^\)", script, re.MULTILINE | re.DOTALL)
    return [line.strip().strip('"').split() for line in lines.splitlines()]


def test_ci_runs_every_platform_and_every_spark_in_one_of_the_turns_of_contributing() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (whole,) = re.findall(r"^whole=\((.*)\)$", ci, re.MULTILINE)
    turns = _lines_of("platforms", ci)
    assert 4 * len(turns) == 4 * len(whole.split()) == PARTS == 20
    assert f"turns=({{0..{PARTS - 1}}})" in ci and f"% {PARTS}))" in ci
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^(test-[a-z0-9]+):", makefile, re.MULTILINE)) - {"test-all"}
    assert re.search(r"^test-all: .*\n\t@CI_TURN=all \.ci/run\n\t@\$\(MAKE\) test-soak$", makefile, re.MULTILINE)
    always = {"test-long", "test-matrix", "test-slow", "test-spark", "test-verified"}
    by_hand = {"test-soak"}
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert {target for turn in turns for target in turn} | always | by_hand == targets
    assert all(f"`make {target}`" in contributing for target in by_hand)
    always |= {"lint", "audit", "test", "docs", "mutants", "bench-small"}
    assert all(re.search(rf"^ *make .*\b{target}\b", ci, re.MULTILINE) for target in always)
    suites = (ROOT / "tests" / "platforms" / "test_matrix.py").read_text(encoding="utf-8")
    (known,) = re.findall(r"^SUITES = (\{.*?^\})", suites, re.MULTILINE | re.DOTALL)
    others = set(re.findall(r"^ *make test-matrix .*CORE=(\w+)$", ci, re.MULTILINE))
    assert {*whole.split()} - {"main"} | others == {*re.findall(r'"(\w+)":', known)}
    # Between them, those that run everything have each file that adds rows, and each Python.
    (more,) = re.findall(r"^MORE_ROWS = (.*)$", suites, re.MULTILINE)
    assert {*re.findall(r'"(\w+)"', more)} <= {*re.findall(r'"(\w+)"', known)}
    pythons = dict(re.findall(r"^PYTHON_(\w+) := python(\S+)$", makefile, re.MULTILINE))
    with_unit = re.findall(r'"(\w+)": _suite\(.*unit=', known)
    assert {pythons[name] for name in with_unit} == {"3.10", "3.12", "3.13"} and {*with_unit} < {*whole.split()}
    table = re.findall(r"^\| (\d+ and \d+, \d+) \| [^|]+ \| ([^|]+) \|$", contributing, re.MULTILINE)
    message = [{f"test-{name.split()[0]}" for name in platforms.split(", ")} for _, platforms in table]
    assert message == [set(turn) for turn in turns]


def test_the_turns_count_the_changes_of_a_branch_and_not_their_commits(tmp_path: Path) -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (chosen,) = re.findall(r"^chosen\(\) \{.*?^\}", ci, re.MULTILINE | re.DOTALL)
    git = "git -c user.name=a -c user.email=a@example.com"
    commit = f"{git} commit -q --allow-empty -m"
    change = f"git checkout -q -b change && {commit} two && {commit} three && git checkout -q main"
    script = (
        f"git init -q -b main && {commit} one && {change} && {git} merge -q --no-ff -m four change\n{chosen}\nchosen"
    )
    done = ran(["bash", "-euc", script], tmp_path, os.environ)
    # The first commit, and a change of two commits.
    assert done.stdout == "2\n", done.stderr


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as mkdocs and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_every_page_is_in_the_navigation_and_its_links_lead_somewhere() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert sorted(re.findall(r"^ +- .*: (\S+\.md)$", navigation, re.M)) == sorted(p.name for p in DOCS.glob("*.md"))
    for page in (ROOT / "README.md", *PAGES):
        text = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", page.read_text(encoding="utf-8")))
        links = re.findall(r"\]\((?!https:)([^)#]*)#?([^)]*)\)|\bsrc(?:set)?=\"([^\"]+)\"", text)
        for file, anchor, picture in links:
            target = page.parent / (file or picture or page.name)
            assert target.exists(), (page.name, target)
            assert not anchor or anchor in anchors(target), (page.name, file, anchor)


def test_the_reference_names_every_public_function_where_it_is_defined() -> None:
    named = re.findall(r"^::: (rankmetrics_spark\.\S+)", (DOCS / "reference.md").read_text(encoding="utf-8"), re.M)
    assert set(rankmetrics_spark.__all__) <= {name.rpartition(".")[2] for name in named}
    for name in named:
        module, _, last = name.rpartition(".")
        home = importlib.import_module(module)
        # What is loaded on first use may need libraries that this environment lacks.
        assert last in getattr(home, "_HOMES", {}) or name == "rankmetrics_spark.errors" or hasattr(home, last), name


def test_tab_shows_every_public_name_and_no_other() -> None:
    public = [name for name in dir(rankmetrics_spark) if not name.startswith("_")]
    assert public == sorted(rankmetrics_spark.__all__)
    assert "__version__" in dir(rankmetrics_spark)


# ---- CONTRIBUTING.md: what it tells people to type, and the example of a new metric


def test_the_make_targets_of_readme_and_contributing_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", text + README, re.MULTILINE))
    assert {"run", "test", "lint", "docs", "wheel"} <= named <= targets
    files = set(re.findall(r"`((?:rankmetrics_spark|tests|docs|conf|jobs)/[\w./]+|\.ci/run)`", text))
    assert len(files) > 8 and [name for name in files if not (ROOT / name).exists()] == []


def test_the_metric_of_contributing_has_the_value_of_its_loop() -> None:
    from rankmetrics_spark.metrics import one_list

    kernel, oracle = (text for language, text in blocks(ROOT / "CONTRIBUTING.md") if language == "python")
    names: dict[str, Any] = {}
    try:
        exec(kernel + oracle, names)
        lists = one_list([0, 2, 0, 1])
        (value,) = names["first_gain"](lists, k=3).tolist()
    finally:
        REGISTRY.pop("first_gain", None)
    assert value == 2 == names["obvious"]([0, 2, 0, 1], 3)


def test_the_map_of_the_package_names_every_wing_and_every_file_beside_them() -> None:
    (tree,) = (text for language, text in blocks(ROOT / "CONTRIBUTING.md") if language == "text")
    named = set(re.findall(r"(?:^| {2,})(\w+(?:/|\.py))(?= {2,})", tree, re.MULTILINE))
    package = Path(rankmetrics_spark.__file__).parent
    wings = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    files = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    assert named == wings | files
