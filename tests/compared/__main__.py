"""``python -m tests.compared docs/compared.md`` writes the table; with ``--prove`` it tries every system first."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks import contenders
from tests.compared import FEATURES, RESULTS, peers, updated

ENVIRONMENTS = {name: name.lower() for name in ("RePlay", "Recommenders", "RecTools", "Torchmetrics")}
"""System -> the list of packages of its environment, in ``tests/benchmarks/peers``; the others are in this one."""


def proved(system: str, python: str) -> dict[str, dict]:
    """The cells of a system, tried in an environment that has it."""
    features = json.dumps({feature.name: feature.words for feature in FEATURES})
    command = [python, str(Path(__file__).parent / "prove.py"), system]
    done = subprocess.run(
        command, input=features, capture_output=True, text=True, env=contenders.peer_environment(python), check=False
    )
    if done.returncode:
        raise RuntimeError(f"{system}: {done.stderr.strip().splitlines()[-1]}")
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument(
        "--prove", action="store_true", help="try every system; installs those that need an environment"
    )
    parser.add_argument("--data", default="out/bench", help="folder of the environments, shared with the benchmark")
    given = parser.parse_args()
    if given.prove:
        result: dict[str, dict] = {}
        for system in ("Ours", *(peer.__name__ for peer in peers.PEERS)):
            packages = ENVIRONMENTS.get(system)
            result |= proved(system, contenders.environment(Path(given.data), packages) if packages else sys.executable)
        RESULTS.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    given.page.write_text(updated(given.page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
