"""Runs one peer in a separate process: reads one JSON request per line, answers with one JSON line per run.

It imports only what the peer needs.
"""

import importlib
import json
import sys
import time


def main() -> None:
    module, _, function = sys.argv[1].partition(":")
    peer = importlib.import_module(f"tests.benchmarks.peers.{module}")
    work = getattr(peer, function or "run")
    answer, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(_answer(peer, work, json.loads(line))), file=answer, flush=True)


def _answer(peer, work, request: dict) -> dict:
    try:
        if request["do"] == "prepare":
            getattr(peer, "prepare", lambda path: None)(request["path"])
            return {}
        before = _jobs(peer)
        start, cpu = time.perf_counter(), time.process_time()
        values = work(request["path"])
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}
    listed = [[*key, value] for key, value in values.items()]
    answer = {"seconds": seconds, "cpu": cpu, "values": listed}
    return answer | {"jobs": _jobs(peer) - before, "population": _population(peer)}


def _jobs(peer) -> int:
    return peer.jobs() if hasattr(peer, "jobs") else 0


def _population(peer) -> str:
    return getattr(peer, "POPULATION", "all")


if __name__ == "__main__":
    main()
