"""Prints the cells of one system as JSON, from its own environment: ``python -m tests.compared.prove ranx``.

Reads the features, name to words, from stdin.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> None:
    if sys.argv[1] == "Ours":
        from ours import Ours as kind
    else:
        import peers

        kind = getattr(peers, sys.argv[1])
    peer = kind()
    features = json.load(sys.stdin)
    answer, sys.stdout = sys.stdout, sys.stderr
    cells = {name: peer.cell(name, words) for name, words in features.items()}
    result = {"version": peer.version(), "documentation": peer.documentation, "how": peer.how, "cells": cells}
    print(json.dumps({peer.title: result}), file=answer)


if __name__ == "__main__":
    main()
