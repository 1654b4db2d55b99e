"""What every page holds besides its figures: the scripts of Vega, and the charts as Vega-Lite. Needs ``report``.

Both depend on nothing but the installed libraries and this package. Making them takes two to three seconds, so they are
kept for the next page, where ``cache.cache_folder`` outlives the process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from rankmetrics_spark.engines import cache_folder, write_cached
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.report.payload import as_script

INSTALL_PAGE = "pip install 'rankmetrics-spark[report]'"
_OWN = ("charts", "palette", "payload", "scripts")
"""Modules that the scripts come from."""


def has_page_libraries() -> bool:
    """Whether the libraries of the extra ``report`` are there; nothing is imported."""
    return not _missing()


def check_page_libraries() -> None:
    """Refuse to begin a report that could not be written.

    Raises:
        ConfigError: The libraries of the extra ``report`` are not installed.
    """
    if missing := _missing():
        raise ConfigError(f"the HTML report needs {missing[0]}, which is not installed; run: {INSTALL_PAGE}")


def _missing() -> list[str]:
    return [name for name in ("altair", "jinja2", "vl_convert") if find_spec(name) is None]


def scripts() -> tuple[str, str]:
    """The scripts of Vega, and the charts, each to stand in a ``<script>``.

    Raises:
        ConfigError: The libraries of the extra ``report`` are not installed.
    """
    check_page_libraries()
    made_of, file = _made_of(), cache_folder() / "page.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["made_of"] == made_of:
            return str(kept["library"]), str(kept["charts"])
    library, charts = _made()
    if made_of:
        with suppress(OSError):
            write_cached(file, json.dumps({"made_of": made_of, "library": library, "charts": charts}))
    return library, charts


def _made_of() -> str | None:
    """A digest of all that the scripts depend on; None where an installation does not say."""
    own = files(__package__ or "rankmetrics_spark.report")
    try:
        parts = [version(name) for name in ("altair", "vl-convert-python")]
        parts += [own.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in _OWN]
    except (PackageNotFoundError, OSError):
        return None
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@contextmanager
def importing() -> Iterator[None]:
    """Imports of the libraries of a page, which may be installed but broken.

    Raises:
        ConfigError: One of them cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"the HTML report needs libraries that cannot be imported: {error}; run: {INSTALL_PAGE}"
        ) from error


def _made() -> tuple[str, str]:
    with importing():
        import altair
        import vl_convert

        from rankmetrics_spark.report import charts
    of_vega_lite = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundle: Any = vl_convert.javascript_bundle  # its stub asks for a script that is to be added
    library: str = bundle(vl_version=of_vega_lite)
    return library.replace("</script", "<\\/script").replace("<!--", "<\\!--"), as_script(charts.templates())
