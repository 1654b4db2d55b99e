"""What a newcomer does: clone and `make run`, without Java, with an empty home; then the same without network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.commands import ROOT, ran, succeeded
from tests.helpers.readme import blocks
from tests.platforms.support import rows_of

# What the machine itself needs to reach its package index. Nothing else of the user's environment is kept.
KEPT = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CONFIG_FILE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
NETWORK = (*KEPT, "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clone of the last commit, an empty home, and a PATH without Java."""
    folder = tmp_path_factory.mktemp("a new machine")
    (folder / "home").mkdir()
    (folder / "bin").mkdir()
    for program in programs():
        link = folder / "bin" / program.name
        if not program.name.startswith(("java", "python", "pip")) and not link.is_symlink():
            link.symlink_to(program)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "my clone")], check=True, timeout=60)
    return folder


def programs() -> Iterator[Path]:
    for place in os.get_exec_path():
        if Path(place).is_dir() and "shims" not in place:
            yield from Path(place).iterdir()


def make(newcomer: Path, target: str, **more: str) -> str:
    """Run a make target in the clone; what it wrote to stdout and stderr."""
    kept = {name: os.environ[name] for name in NETWORK if name in os.environ}
    environment = {"HOME": str(newcomer / "home"), "PATH": str(newcomer / "bin"), "LANG": "C.UTF-8"} | kept | more
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    done = succeeded(ran(["make", target, f"PYTHON={python}"], newcomer / "my clone", environment, seconds=1500))
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def first(newcomer: Path) -> str:
    assert not (newcomer / "bin" / "java").exists()
    return make(newcomer, "run")


def test_make_run_sets_itself_up_and_prints_the_verdict(newcomer: Path, first: str) -> None:
    assert "Installing .venvs/laptop" in first and not (newcomer / "my clone" / ".venv").exists()
    assert "candidate_a beats control on" in first and "MAP@10" in first
    clone = newcomer / "my clone"
    means = {
        row["experiment_id"]: row["mean"]
        for row in rows_of(clone / "out" / "demo" / "experiment_metrics")
        if (row["metric"], row["segment"]) == ("ndcg@10", "all")
    }
    assert sorted(means, key=lambda name: -means[name]) == ["candidate_a", "control", "candidate_b"]
    # Everything is in the clone, and git ignores what was made.
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert status.stdout == ""


def test_the_second_run_needs_no_network_and_gives_the_same(newcomer: Path, first: str) -> None:
    broken = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_INDEX": "1"}
    again = make(newcomer, "run", **NO_NETWORK, **broken)
    assert "Installing" not in again
    assert [line for line in again.splitlines() if "candidate_a beats" in line] == [
        line for line in first.splitlines() if "candidate_a beats" in line
    ]


def test_the_other_blocks_of_the_readme_go_on_from_there(newcomer: Path, first: str) -> None:
    script = "\n".join([*blocks("sh")[1:], f"python - <<'END'\n{blocks('python')[0]}\nEND"])
    environment = {"HOME": str(newcomer / "home"), "PATH": str(newcomer / "bin"), "LANG": "C.UTF-8"}
    done = succeeded(ran(["bash", "-euc", script], newcomer / "my clone", environment, seconds=600))
    assert blocks("text")[0] in done.stdout
