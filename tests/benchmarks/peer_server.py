"""Runs one peer in a separate process: reads one JSON request per line, answers with one JSON line per run.

It imports only what the peer needs.
"""

import importlib
import json
import sys
import time


def main() -> None:
    peer = importlib.import_module(f"tests.benchmarks.peers.{sys.argv[1]}")
    answer, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(_answer(peer, json.loads(line))), file=answer, flush=True)


def _answer(peer, wanted: dict) -> dict:
    try:
        if wanted["do"] == "prepare":
            getattr(peer, "prepare", lambda path: None)(wanted["path"])
            return {}
        before = _jobs(peer)
        start = time.perf_counter()
        values = peer.run(wanted["path"])
        seconds = time.perf_counter() - start
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}
    listed = [[*key, value] for key, value in values.items()]
    return {"seconds": seconds, "values": listed, "jobs": _jobs(peer) - before, "population": _population(peer)}


def _jobs(peer) -> int:
    return peer.jobs() if hasattr(peer, "jobs") else 0


def _population(peer) -> str:
    return getattr(peer, "POPULATION", "all")


if __name__ == "__main__":
    main()
