"""Where the ``rankmetrics`` command starts: an interrupt while its modules are imported is one word too."""

from __future__ import annotations

import sys
from typing import Any


def main(*arguments: Any) -> Any:
    """Import the command and run it; ``arguments`` are those of ``cli.main``."""
    try:
        from rankmetrics_spark.cli import main as command
    except KeyboardInterrupt:
        # What ``cli.exit_codes`` says and returns, without its imports.
        print("rankmetrics: interrupted", file=sys.stderr)
        sys.exit(1)
    return command(*arguments)


if __name__ == "__main__":
    main()
