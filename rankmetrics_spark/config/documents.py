"""Files that are parsed as a whole: one document of JSON, rows of SVMlight (LETOR) and their scores. No pyspark."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from rankmetrics_spark import errors as err, schemas as sch
from rankmetrics_spark.config.contents import ROWS_OF, is_by_columns, is_number, is_object, opened

_MOST_BYTES = 1 << 28


class Row(NamedTuple):
    """A row of a log or of judgements, as texts; what a file does not hold is None in every row."""

    user: str
    item: str
    position: str | None = None
    score: str | None = None
    relevance: str | None = None


PARSED_NAMES = dict(zip(Row._fields, (sch.USER, sch.ITEM, sch.POSITION, sch.SCORE, sch.RELEVANCE), strict=True))


class Shape(NamedTuple):
    """A shape of a document: whose it is, how it is known, and its rows, as a log or as judgements."""

    of: str
    fits: Callable[[Any], bool]
    rows: Callable[[Any, bool], Iterator[Row]]


def _number(value: object) -> str:
    """A number as it is written."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (bool, str)) and (isinstance(value, bool) or is_number(value))


def _are_values(document: Any) -> bool:
    """Whether a document has a number for each query and item."""
    inner = [*document.values()] if isinstance(document, dict) and not is_by_columns(document) else []
    return any(inner) and all(isinstance(each, dict) and all(map(_is_number, each.values())) for each in inner)


def _values(document: Any, is_log: bool) -> Iterator[Row]:
    for query, items in document.items():
        for item, value in items.items():
            yield Row(query, item, **{"score" if is_log else "relevance": _number(value)})


def _rated(of: str, entries: str, query: str, ratings: str, item: str) -> Shape:
    """A list of queries, each with a list of rated items, or with a grade for each item."""

    def rows(document: Any, is_log: bool) -> Iterator[Row]:
        """The grade of each item of each query."""
        for entry in document[entries]:
            rated = entry.get(ratings) or ()
            if isinstance(rated, dict):
                rated = [{item: name, "rating": grade} for name, grade in rated.items()]
            for each in rated:
                if each["rating"] is not None:
                    name = each[item] if item in each else entry[item]
                    yield Row(str(entry[query]), str(name), relevance=_number(each["rating"]))

    return Shape(of, lambda document: isinstance(document, dict) and _has(document.get(entries), query, ratings), rows)


def _has(entries: Any, *keys: str) -> bool:
    """Whether this is a list of objects of which one has these keys, and no object is without the first one."""
    objects = entries if isinstance(entries, list) and all(isinstance(each, dict) for each in entries) else []
    return any({*keys} <= each.keys() for each in objects) and all(keys[0] in each for each in objects)


def _has_details(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("details"), dict)


def _found(document: Any, is_log: bool) -> Iterator[Row]:
    """The hits of each query in their order; a hit without a rating counts as not relevant."""
    for query, detail in document["details"].items():
        for place, hit in enumerate(detail["hits"], start=1):
            grade = _number(0 if hit.get("rating") is None else hit["rating"])
            yield Row(query, str(hit["hit"]["_id"]), str(place) if is_log else None, relevance=grade)


#: The first one that fits counts.
SHAPES = (
    _rated("a rank_eval request of Elasticsearch", "requests", "id", "ratings", "_id"),
    Shape("a rank_eval response of Elasticsearch", _has_details, _found),
    _rated("judgements of OpenSearch", "judgmentRatings", "query", "ratings", "docId"),
    _rated("a case of Quepid", "queries", "query_text", "ratings", "doc_id"),
    _rated("a book of Quepid", "query_doc_pairs", "query_text", "judgements", "doc_id"),
    Shape("numbers by query and item", _are_values, _values),
)


def _document(file: Path) -> Any:
    """The document of a file, with numbers as they are written; what a search of OpenSearch returns is unpacked."""
    if file.stat().st_size > _MOST_BYTES:
        raise ValueError(err.said("document_too_large", most=_MOST_BYTES >> 20, other=ROWS_OF["json_document"]))
    with opened(file) as text:
        document = json.load(text, parse_float=str, parse_int=str)
    hits = document.get("hits") if isinstance(document, dict) else None
    found = hits.get("hits") if isinstance(hits, dict) else None
    return found[0].get("_source", document) if isinstance(found, list) and len(found) == 1 else document


def shape_of(file: Path) -> Shape | None:
    """The shape of the document that a file holds; None if it is no document of a known shape, or has one per line."""
    try:
        with opened(file) as text:
            if is_object(text.readline(_MOST_BYTES)) and text.readline(100).strip():
                return None
        document = _document(file)
    except (OSError, ValueError, RecursionError):
        return None
    return next((shape for shape in SHAPES if shape.fits(document)), None)


_ROW = re.compile(r"(?P<grade>\S+)\s+qid:(?P<query>\S+)(?P<features>[^#]*)(#\s*(doc\w*\s*[=:]?\s*)?(?P<item>\S+))?")


def _letor(file: Path, scores: Path | None) -> Iterator[Row]:
    """The rows of SVMlight, with the scores that another file has for them, line by line."""
    pairs = zip_longest(_lines(file), _lines(scores)) if scores else ((line, None) for line in _lines(file))
    for number, (line, score) in enumerate(pairs, start=1):
        if line is None or (scores and score is None):
            short, long = (file, scores) if line is None else (scores, file)
            raise ValueError(err.said("other_number_of_lines", short=short, n=number - 1, long=long))
        row = _ROW.match(line)
        if row is None or not (row["item"] or scores):
            raise ValueError(f"row {number:,} is {line[:60]!r}; allowed: grade qid:QUERY features # DOCUMENT")
        yield Row(row["query"], row["item"] or str(number), score=score, relevance=row["grade"])


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file without comments and empty ones."""
    if file.stat().st_size > 8 * _MOST_BYTES:
        raise ValueError(err.said("lines_too_large", file=file, most=_MOST_BYTES >> 27, other=ROWS_OF["letor"]))
    with opened(file) as text:
        yield from (line.strip() for line in text if line.strip() and line[0] != "#")


def parsed(file: Path, format: str, options: Mapping[str, str], is_log: bool) -> Iterable[Row]:
    """The rows of a file of the format ``json_document`` or ``letor``.

    Args:
        file: A file of this machine; of a log of ``letor``, one with a score per line.
        format: As a config calls it.
        options: Of the input: ``rows`` is the file of SVMlight that the scores belong to.
        is_log: Whether the rows are of a log.

    Raises:
        ConfigError: Scores have no rows.
        InputError: The file is not of the format, or too large.
    """
    rows = options.get("rows")
    if format == "letor" and is_log and not rows:
        raise err.ConfigError.of("scores_without_rows", file=file)
    try:
        if format == "letor":
            return [*(_letor(Path(rows), file) if is_log and rows else _letor(file, None))]
        document = _document(file)
        shape = next((shape for shape in SHAPES if shape.fits(document)), None)
        if shape is None:
            raise ValueError(f"it is no document of queries and items; allowed: {ROWS_OF['json_document']}")
        return [*shape.rows(document, is_log)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = str(error) if isinstance(error, (OSError, ValueError)) else f"its entries are incomplete ({error!r})"
        raise err.InputError(f"cannot read {format} from '{rows if rows else file}': {problem}") from error
