"""The page of the commands, their exit codes and errors: ``python -m tests.cli_page docs/cli.md`` writes it anew."""

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
after the tables are published. A scheduler may try 3 again, since a log may be late; 2, 4 and 5 need a person.

| code | error in Python | what it means |
|---|---|---|
| 0 | | done |"""


def markdown() -> str:
    """A line for each error by its code, and one for each option of each command."""
    lines = [INTRODUCTION]
    errors = [kind for kind in vars(err).values() if isinstance(kind, type) and issubclass(kind, err.RankmetricsError)]
    for kind in sorted(errors, key=lambda kind: kind.exit_code):
        meaning = str(kind.__doc__).partition(" Exit code")[0].replace("``", "`")
        lines.append(f"| {kind.exit_code} | `{kind.__name__}` | {meaning} |")
    for name, command in sorted(main.commands.items()):
        lines += ["", f"## {name}", "", str(command.help).strip(), "", "| option | what it does |", "|---|---|"]
        for option in command.params:
            allowed = f"One of {', '.join(option.type.choices)}." if isinstance(option.type, click.Choice) else ""
            texts = (getattr(option, "help", None), allowed, "Required." * option.required)
            lines.append(f"| `{', '.join(option.opts)}` | {' '.join(text for text in texts if text)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")
