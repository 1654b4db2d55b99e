"""The project on the laptop engine: ``laptop.job``."""

from tests.benchmarks.peers.laptop import job as run
from tests.benchmarks.peers.laptop import prepare

__all__ = ["prepare", "run"]
