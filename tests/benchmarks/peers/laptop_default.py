"""The project on the laptop engine: ``laptop.default``."""

from tests.benchmarks.peers.laptop import default as run
from tests.benchmarks.peers.laptop import prepare

__all__ = ["prepare", "run"]
