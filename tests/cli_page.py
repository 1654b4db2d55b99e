"""The page of the commands, their exit codes and errors: ``python -m tests.cli_page docs/cli.md`` writes it anew."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rankmetrics_spark import errors as err
from rankmetrics_spark.cli import main

INTRODUCTION = """\
# Every command

`rankmetrics COMMAND --help` prints the same; `make readme` writes this page from the code.
[Shell completion](completion.md) has what the shell does, and
[Python API](reference.md#what-the-command-prints-for-programs) what `--format json` holds.

## Exit codes

A mistake is one sentence on stderr, and the command ends with a code. Code 1 is also a report that cannot be written
after the tables are published. A scheduler tries 3 again, since a log may be late, and no other code.

| code | error in Python | what it means |
|---|---|---|
| 0 | | done |"""


def exit_codes() -> list[str]:
    """A line for each error that ends a command, by its code."""
    kinds = [kind for kind in vars(err).values() if isinstance(kind, type) and issubclass(kind, err.RankmetricsError)]
    lines = []
    for kind in sorted(kinds, key=lambda kind: kind.exit_code):
        meaning, _, _ = str(kind.__doc__).splitlines()[0].partition(" Exit code")
        lines.append(f"| {kind.exit_code} | `{kind.__name__}` | {meaning.replace('``', '`')} |")
    return lines


def usage(name: str, command: click.Command) -> list[str]:
    """What a command does, and a line for each of its options."""
    lines = ["", f"## {name}", "", str(command.help).strip(), "", "| option | what it does |", "|---|---|"]
    for option in command.params:
        allowed = ", ".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
        texts = [getattr(option, "help", None), f"One of {allowed}." if allowed else "", "Required." * option.required]
        lines.append(f"| `{', '.join(option.opts)}` | {' '.join(text for text in texts if text)} |")
    return lines


def markdown() -> str:
    """The page."""
    lines = [INTRODUCTION, *exit_codes()]
    for name, command in sorted(main.commands.items()):
        lines += usage(name, command)
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")
