"""The readme that a package index shows: README.md, whose links and pictures are addresses of the source repository."""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def with_addresses(readme: str, source: str) -> str:
    """Replace each relative link by the address of the file; a package index shows no files beside the readme."""
    pictures = re.sub(r"(!\[[^\]]*\]\()(?![a-z]+:|#)", rf"\1{source}/raw/main/", readme)
    pictures = re.sub(r'(\b(?:src|srcset)=")(?![a-z]+:)', rf"\1{source}/raw/main/", pictures)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?![a-z]+:|#)", rf"\1{source}/blob/main/", pictures)


if __name__ == "__main__":
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    source = re.search(r'^Source = "(.+)"$', project, re.MULTILINE)
    setup(
        long_description=with_addresses((ROOT / "README.md").read_text(encoding="utf-8"), source[1]),
        long_description_content_type="text/markdown",
    )
