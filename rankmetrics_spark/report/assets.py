"""What every page is made of, whatever its result: the scripts of Vega, the charts as Vega-Lite, words, colours."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from rankmetrics_spark import doors as doors, errors as err, words

said = words.sentences(doors.settings_of(__name__, "sentences"))
INSTALL_PAGE = err.installation("report")


def has_page_libraries() -> bool:
    """Whether the libraries of the extra ``report`` are there; nothing is imported."""
    return not _missing()


def check_page_libraries() -> None:
    """Refuse to begin a report that could not be written."""
    if missing := _missing():
        raise err.ConfigError(f"the HTML report needs {missing[0]}, which is not installed; run: {INSTALL_PAGE}")


def _missing() -> list[str]:
    return [name for name in ("jinja2", "vl_convert") if find_spec(name) is None]


@contextmanager
def importing() -> Iterator[None]:
    """Imports of the libraries of a page, which may be installed but broken."""
    try:
        yield
    except ImportError as error:
        raise err.ConfigError(said("broken_libraries", error=error, command=INSTALL_PAGE)) from error


def scripts() -> str:
    """The scripts of Vega, to stand in a ``<script>``; making them takes about a second, once in a process."""
    check_page_libraries()
    with importing():
        import vl_convert
    # Its Vega is the one that it was made for.
    newest = max(vl_convert.get_vegalite_versions(), key=lambda text: [int(part) for part in text.split(".")])
    bundle: Any = vl_convert.javascript_bundle  # its stub wants a script to add
    library: str = bundle(vl_version=newest)
    return library.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def charts() -> dict[str, dict[str, Any]]:
    """Name of a chart -> its specification without rows; dragging moves it, Shift and the wheel zoom."""
    specs = json.loads(file_text("charts.json"))
    config = specs.pop("config")
    return {name: {**spec, "config": config} for name, spec in specs.items()}


def file_text(name: str) -> str:
    """A file of this folder."""
    return files(__package__ or "rankmetrics_spark.report").joinpath(name).read_text(encoding="utf-8")


#: What people read in place of keys. ``page``: columns of a table of the page, and of the run's where named otherwise.
WORDS: dict[str, dict[str, str]] = json.loads(file_text("words.json"))
_COLOURS = json.loads(file_text("colours.json"))
#: The colours of pages, charts and pictures: the accent means better; everything else is ink on paper.
LIGHT, DARK = ({name: pair[at] for name, pair in _COLOURS.items()} for at in range(2))


def as_script(value: Any) -> str:
    r"""JSON that may stand in a script element: no name in it can end the element or open a comment.

    >>> as_script("</script><!--")
    '"\\u003c/script\\u003e\\u003c!--"'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # A lone surrogate has no UTF-8.
    return text.encode("utf-8", "backslashreplace").decode()


# ---- colours


def css(colours: dict[str, str]) -> str:
    """The colours as declarations of CSS variables.

    >>> css({"ink": "#000"})
    '--ink: #000;'
    """
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def titled(charts: str) -> str:
    """Charts as JSON, with titles in the words of now; a chart without its rows holds no data.

    >>> from rankmetrics_spark.words import counted_in
    >>> with counted_in("query"):
    ...     titled('{"field":"users","title":"value of a user"}')
    '{"field":"users","title":"value of a query"}'
    """
    return re.sub(r'"title": ?"[^"]*"', lambda match: words.worded(match[0]), charts)
