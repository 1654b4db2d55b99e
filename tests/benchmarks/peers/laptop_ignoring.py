"""The project on the laptop engine: ``laptop.ignoring``."""

from tests.benchmarks.peers.laptop import ignoring as run
from tests.benchmarks.peers.laptop import prepare

__all__ = ["prepare", "run"]
