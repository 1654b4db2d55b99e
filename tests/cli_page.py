"""The page of the commands, their exit codes and errors: ``python -m tests.cli_page docs/cli.md`` writes it anew."""

import click

from rankmetrics_spark import cli, errors as err
from tests.helpers.readme import between, rewrite

HEAD = "| code | error in Python | what it means |\n|---|---|---|\n| 0 | | done |"


def updated(page: str) -> str:
    """The page with a line for each error by its code, and one for each option of each command."""
    lines = [HEAD]
    errors = [kind for kind in vars(err).values() if isinstance(kind, type) and issubclass(kind, err.RankmetricsError)]
    for kind in sorted(errors, key=lambda kind: kind.exit_code):
        meaning = str(kind.__doc__).partition(" Exit code")[0].replace("``", "`")
        lines.append(f"| {kind.exit_code} | `{kind.__name__}` | {meaning} |")
    for name, command in sorted(cli.main.commands.items()):
        lines += ["", f"## {name}", "", str(command.help).strip(), "", "| option | what it does |", "|---|---|"]
        for option in command.params:
            allowed = f"One of {', '.join(option.type.choices)}." if isinstance(option.type, click.Choice) else ""
            texts = (getattr(option, "help", None), allowed, "Required." * option.required)
            lines.append(f"| `{', '.join(option.opts)}` | {' '.join(text for text in texts if text)} |")
    return between("commands", "\n".join(lines), page)


if __name__ == "__main__":
    rewrite(updated)
