"""Plant each bug of tests/mutants/*.yaml in a copy of the checkout: its tests pass without it and fail with it."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.mutants import ENGINES, Copy, Mutant, mutants

COPIES = min(2, os.cpu_count() or 1)
"""Bugs that are tried at the same time, each in its own copy."""
PARTS = 20  # one for each turn of .ci/run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="AREA", action="append", help="the bugs of one list, tests/mutants/AREA.yaml")
    parser.add_argument("--part", type=int, help=f"every {PARTS}th bug from this one on, 0 to {PARTS - 1}")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES, help="bugs whose tests start these")
    parser.add_argument("--list", action="store_true", help="print the bugs and plant none")
    options = parser.parse_args()
    try:
        every = mutants()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if unknown := set(options.only or ()) - {mutant.area for mutant in every}:
        print(f"there is no list {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    areas = options.only or {mutant.area for mutant in every}
    chosen = [mutant for mutant in every if mutant.area in areas and mutant.starts in options.engines]
    chosen = chosen if options.part is None else chosen[options.part :: PARTS]
    if options.list:
        print(*(f"{mutant} ({mutant.file})" for mutant in chosen), sep="\n")
        return 0
    return _tried(chosen)


def _tried(chosen: Sequence[Mutant]) -> int:
    """Try each bug; return the exit code: 1 if a test fails without a bug, or a bug is not caught."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted bugs ") as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(COPIES)]
        for engine in ENGINES:
            tests = {test: None for bug in chosen if bug.starts == engine for test in bug.tests}
            if tests and (message := _failure(copies[0], [*tests], engine)):
                print(message, "these tests fail without a planted bug", sep="\n")
                return 1
        caught = 0
        for bug, is_caught, message, seconds in _outcomes(chosen, copies):
            caught += is_caught
            print(f"{'caught  ' if is_caught else 'SURVIVED'} {bug} ({seconds:.0f} s)", flush=True)
            if not is_caught:
                print(f"         {bug.file}: {bug.old!r} -> {bug.new!r}", *bug.tests, message[-2000:], sep="\n")
    print(f"{caught} of {len(chosen)} planted bugs are caught ({time.monotonic() - began:.0f} s)")
    return int(caught < len(chosen))


def _failure(copy: Copy, tests: Sequence[str], engine: str) -> str | None:
    """What pytest printed, unless all of the tests pass."""
    code, message = copy.run(tests, engine)
    return None if code == pytest.ExitCode.OK else message


def _outcomes(chosen: Sequence[Mutant], copies: Sequence[Copy]) -> Iterator[tuple[Mutant, bool, str, float]]:
    """Try each bug in the next copy that is free; in the order of the list."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def tried(mutant: Mutant) -> tuple[Mutant, bool, str, float]:
        """Try one bug."""
        copy, began = free.get(), time.monotonic()
        try:
            return mutant, *copy.catches(mutant), time.monotonic() - began
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        yield from pool.map(tried, chosen)


if __name__ == "__main__":
    sys.exit(main())
