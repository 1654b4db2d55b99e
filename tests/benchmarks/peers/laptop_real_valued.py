"""The project on the laptop engine: ``laptop.real_valued``."""

from tests.benchmarks.peers.laptop import prepare
from tests.benchmarks.peers.laptop import real_valued as run

__all__ = ["prepare", "run"]
