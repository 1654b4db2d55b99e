"""The project on the laptop engine: ``laptop.by_score``."""

from tests.benchmarks.peers.laptop import by_score as run
from tests.benchmarks.peers.laptop import prepare

__all__ = ["prepare", "run"]
