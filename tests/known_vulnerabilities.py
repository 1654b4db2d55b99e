"""Look up known vulnerabilities of what environments hold: ``python -m tests.known_vulnerabilities .venv ...``.

pip-audit asks the package index for them. An index without such a list answers like one without a vulnerability, so
this says of how many packages the index knows anything. An outage is no fault of a change, so it passes, in CI too:
SECURITY.md says when the index last gave an answer.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

SECONDS = 300
PAGE = Path("SECURITY.md")
LAST = re.compile(r"(?<=<!-- last answer -->)[^<]*(?=<!-- /last answer -->)")
"""What the page says of the last answer."""
NOT_LOOKED_UP = "known vulnerabilities: not looked up, since the package index"


def main(environments: Sequence[str]) -> int:
    """Print what is known; return 1 if a package has a known vulnerability, also where others have no answer."""
    places = [str(path) for name in environments for path in Path(name).glob("lib/python3*/site-packages")]
    paths = [word for place in places for word in ("--path", place)]
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", *paths]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        # Without network nothing is known, which is no fault of a change.
        print(*with_last_answer([f"{NOT_LOOKED_UP} gives no answer"], PAGE), sep="\n", file=sys.stderr)
        return 0
    code, lines = summary(report)
    print(*with_last_answer(lines, PAGE), sep="\n", file=sys.stderr)
    return code


def with_last_answer(lines: Sequence[str], page: Path) -> list[str]:
    """The lines with what the page says of the last answer, where there is none today; else the page says this one."""
    text = page.read_text(encoding="utf-8")
    (last,) = LAST.findall(text)
    if lines[0].startswith(NOT_LOOKED_UP):
        return [*lines, f"{page.name}: {last}"]
    found = lines[0].removeprefix("known vulnerabilities: ").partition(";")[0]
    page.write_text(LAST.sub(f"Last answer: {datetime.now(timezone.utc):%Y-%m-%d}, {found}.", text), encoding="utf-8")
    return [*lines]


def summary(report: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Exit code and lines of a report of pip-audit.

    >>> summary({"dependencies": [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "?"}]})
    (0, ['known vulnerabilities: none in 1 of 2 packages; the package index knows nothing of the others'])
    """
    packages = report["dependencies"]
    known = [package for package in packages if "vulns" in package]
    affected = [package for package in known if package["vulns"]]
    others = "; the package index knows nothing of the others" if len(known) < len(packages) else ""
    count = len(affected) or "none"
    first = f"known vulnerabilities: {count} in {len(known)} of {len(packages)} packages{others}"
    if not known:
        first = f"{NOT_LOOKED_UP} knows nothing of {len(packages)} packages"
    lines = [
        f"{package['name']} {package['version']}: {each['id']}; mended in {', '.join(each['fix_versions']) or 'none'}"
        for package in affected
        for each in package["vulns"]
    ]
    return int(bool(affected)), [first, *lines]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
