"""The report as one HTML file that loads nothing. Needs the extra ``report``."""

import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from rankmetrics_spark import __version__, engines as eng, errors as err, findings as fd, metrics as mx, schemas as sch
from rankmetrics_spark.report import assets, console, overview, payload, story
from rankmetrics_spark.report.figures import Examples, Figures, UserChange, in_words, seconds_of
from rankmetrics_spark.words import STATES, UNIT, UNITS, WHO, Change, counted, percent, worded

#: Size of a page.
MOST_BYTES = 1_990_000
#: Rows of a table, and digits of the numbers of segments; the next are tried where a page is too large.
MOST_ROWS = ((4_000, None), (4_000, 9), (3_000, 9), (2_000, 9), (1_000, 9), (500, 9), (200, 9), (50, 9))
#: The parts of the script of a page, in their order; they share one scope.
SCRIPTS = ("page", "page.sections", "page.controls")
#: Candidates with a card each; more of them are lines of a table.
MOST_CARDS = 3
#: Lines of the table of candidates.
MOST_CANDIDATES = 400
MOST_PERCENTILES = 200
#: Experiments whose rows are listed.
MOST_COUNTED = 40
LONGEST_NAME = 60
_LETTER = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff"
#: Letters of scripts that are written from right to left, and what is between them.
_RIGHT_TO_LEFT = re.compile(f"[{_LETTER}](?:[^A-Za-z<>&]*[{_LETTER}])?")
#: What tells a page of this package from any other file; the template has it in its first lines.
PAGE_MARK = b'<meta name="generator" content="rankmetrics_spark">'
#: Where the data stand, until it is known how much room they have.
_DATA = f"the data of the page {uuid4()}"
#: Bytes of a file in which the mark of a page stands.
_HEAD = 200


@in_words
def page(figures: Figures) -> str:
    """The report as HTML: its sentences are about all rows, its charts and tables hold as many as fit."""
    if len(figures.tests) > 1:
        return index(figures.tests, overview.title_of_tests(figures))
    (figures,) = figures.tests.values() or (figures,)
    script = "\n".join(assets.file_text(f"{name}.js") for name in SCRIPTS)
    # Our own files, and JSON that ``as_script`` has made safe.
    safe = {
        "library": assets.scripts(),
        "charts": assets.titled(assets.as_script(assets.charts())),
        "examples": block(figures.drawn),
        "data": _DATA,
        "script": f'(() => {{\n"use strict";\n{script}\n}})();',
    }
    text = _rendered("page.html", _context(figures), safe)
    room = MOST_BYTES - len(text.encode("utf-8", "replace"))
    for most, digits in MOST_ROWS:
        data = assets.as_script(err.every_text(payload.payload_of(figures.drawn, most, digits), err.printable))
        if len(data.encode("utf-8", "replace")) <= room:
            break
    return text.replace(_DATA, data, 1)


def index(parts: Mapping[str, Figures], title: str, page: str = "", lost: Mapping[str, str] = {}) -> str:
    """The page of several tests, or days; see ``lines_of``."""
    return _rendered("index.html", {"title": title, "lines": overview.lines_of(parts, page, lost)}, {})


def _rendered(template: str, context: Mapping[str, Any], safe: dict[str, str]) -> str:
    """A template with texts, which it escapes, and with ``safe`` texts, which it takes as they are."""
    with assets.importing():
        import jinja2
        from markupsafe import Markup, escape

    def as_text(value: Any) -> Any:
        """What stands between tags: control characters are seen, and words from right to left stay among themselves."""
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        text = str(escape(err.printable(value)))
        return Markup(_RIGHT_TO_LEFT.sub(r"<bdi>\g<0></bdi>", text))  # noqa: S704

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=as_text)
    environment.tests["name"] = lambda part: isinstance(part, story.Id)
    # Of an attribute and of the title, which hold no tags.
    environment.filters["bare"] = lambda value: escape(err.printable(str(value)))

    def breakable(name: str) -> Markup:
        """A name that may continue on the next line after a sign between its words."""
        return Markup("<wbr>").join(re.findall(r"[^_/.\-]*[_/.\-]*", shortened(name)))

    environment.filters["breakable"] = breakable
    look = {"style": assets.file_text("page.css"), "light": assets.css(assets.LIGHT), "dark": assets.css(assets.DARK)}
    markup = {name: Markup(text) for name, text in (safe | look).items()}  # noqa: S704
    return environment.from_string(assets.file_text(template)).render({**context, **markup})


@in_words
def write_page(figures: Figures, file: str | Path) -> Path:
    """Write the page of a report: to a new file, or in place of an earlier page; nothing else is overwritten."""
    if len(figures.tests) > 1:
        return write_index(figures.tests, overview.title_of_tests(figures), file)
    return _written(Path(file), page(figures))


def write_index(parts: Mapping[str, Figures], title: str, file: str | Path, lost: Mapping[str, str] = {}) -> Path:
    """Write the page of each part beside the file, and their index to it; see ``index``."""
    path = Path(file)
    for name, own in parts.items():
        write_page(own, path.with_name(overview.name_of_page(path.name, name)))
    return _written(path, index(parts, title, path.name, lost))


def _written(path: Path, text: str) -> Path:
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    try:
        if problem := _problem_with(path):
            raise err.OutputError(f"cannot write the report to '{path}': {problem}")
        if path.exists():
            mode = stat.S_IMODE(path.stat().st_mode)
        else:
            # The mask can only be read by setting it.
            mask = os.umask(0o077)
            os.umask(mask)
            mode = 0o666 & ~mask
        eng.write_cached(path, text, mode)
    except OSError as error:
        raise err.OutputError(assets.said("no_page", path=path, problem=error.strerror or error)) from error
    return path


def check_page_file(place: str, file: str | Path) -> None:
    """Refuse, before anything is computed, a file that a page must not replace."""
    # A place that cannot be looked at cannot be written either, and says so in its own words when it is.
    with suppress(OSError, ValueError):
        if problem := _problem_with(Path(file)):
            raise err.ConfigError(f"{place} is '{file}': {problem}")


def _problem_with(path: Path) -> str | None:
    """Why a page must not be written there; None for a new file and for an earlier page."""
    try:
        kind = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(kind):
        problem = "it is a link, and no link is followed"
    elif not stat.S_ISREG(kind):
        problem = "it is a folder or a device"
    else:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        if head.startswith(b"<!doctype html>") and PAGE_MARK in head:
            return None
        problem = "it is there, and it is no page of this package"
    return f"{problem}; allowed: a new file, or an earlier page"


def shortened(name: str) -> str:
    r"""A name as it is shown in a sentence: without control characters, and without the middle of a long one.

    >>> shortened("a\x00b"), len(shortened("x" * 10_000))
    ('a\\x00b', 57)
    """
    text = err.printable(str(name))
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 20]}…{text[-16:]}"


# ---- what the template shows


def _context(figures: Figures) -> dict[str, Any]:
    said = fd.grouped(overview.facts(figures, "page"), lambda fact: fact.part)
    record, test, answer = figures.record, figures.config.get("report") or {}, {it.topic: it for it in said["answer"]}
    title = f"{test.get('title') or 'Ranking report'}: {''.join(map(shortened, answer['title'].words))}"
    return {
        "said": said,
        "answer": answer,
        "status": overview.facts(figures, "status"),
        "title": f"Not published: {title}" if "refused" in said else title,
        "test": test,
        "date": record.get(sch.DATE) or next((str(row.get(sch.DATE, "")) for row in figures.means), ""),
        "days": figures.days,
        "version": __version__,
        "licences": assets.file_text("page.licences.md"),
        "units": f"{UNITS}",
        "Units": f"{UNITS:C}",
        "percentiles": console.percentile_texts(figures.drawn.everyone)[:MOST_PERCENTILES],
        "n_percentiles": len(figures.drawn.everyone),
        **_candidates(figures.drawn),
        "boards": _boards(figures.drawn),
        **(_of_record(figures) if record else {}),
    }


def _candidates(figures: Figures) -> dict[str, Any]:
    """The cards, and what other metrics and other tests say of the candidates."""
    cards, of_pairs = story.cards(figures), len(figures.baselines) > 1
    center = (story.leader(figures) or figures.experiments[0]) if of_pairs else ""
    cards = story.of_one(cards, center) if of_pairs else cards
    is_table = len(cards) > MOST_CARDS
    shown = [card.seen_from(center) if of_pairs and is_table else card for card in cards[:MOST_CANDIDATES]]
    changes = [card.change for card in shown if card.change]
    ends = [0.0, *(end for change in changes for end in (change.value, change.low, change.high) if end is not None)]
    (low, width, axis), unit = _axis(ends), changes[0].unit if changes else ""
    return {
        "cards": shown,
        "n_cards": len(cards),
        "is_table": is_table,
        "center": story.Id(center),
        "level": percent(cards[0].found.confidence) if cards else "",
        # Of a table: what stands at the ends of the scale.
        "scale": {end: Change(end, unit).text for end in ends if end in (low, low + width) and abs(end) > width / 8},
        "several": of_pairs,
        "states": STATES,
        # The same for all candidates, with 0 inside.
        "axis": axis,
        "primary": fd.label_of(figures.primary) if figures.primary else "",
    }


def _axis(ends: Sequence[float]) -> tuple[float, float, Callable[[float], float]]:
    """The lowest value, the range of all, and what makes percent of the width of a value."""
    low, width = min(ends), (max(ends) - min(ends)) or 1.0
    return low, width, lambda value: round(4 + 92 * (value - low) / width, 2)


def _boards(figures: Figures) -> list[dict[str, Any]]:
    """Of each primary metric whose ranks are known, its experiments, the best mean first."""
    names, boards = fd.primary_names(figures.found) or {figures.primary_name}, []
    ranks: dict[str, dict[str, tuple[int, int]]] = {}
    for found in figures.compared:
        if found.metric in names and found.ranks:
            ranks.setdefault(found.metric, {}).update(found.ranks)
    for metric in (metric for metric in figures.metrics if str(metric) in ranks):
        of, means = ranks[str(metric)], (mean for mean in figures.everyone if mean.metric == str(metric))
        known = [mean for mean in means if mean.mean is not None and mean.experiment_id in of]
        known.sort(key=lambda mean: mean.mean or 0.0, reverse=metric.higher_is_better is not False)
        lines = [
            (mean.experiment_id, of[mean.experiment_id], fd.Numbers(mean.mean, mean.ci_low, mean.ci_high))
            for mean in known
        ]
        shown = lines[: MOST_CANDIDATES // len(ranks)]
        ends = [end for *_, drawn in shown for end in drawn if end is not None]
        boards.append({"label": fd.label_of(metric), "lines": shown, "n": len(lines), "axis": _axis(ends or [0.0])[2]})
    return boards


def _of_record(figures: Figures) -> dict[str, Any]:
    """The rows that came in, the convention in words, and the run."""
    record, config = figures.record, figures.config
    of_each, baselines = record["experiments"].items(), figures.baselines
    counts = sorted(of_each, key=lambda pair: (baselines != [pair[0]], -pair[1]["rows"], str(pair[0])))
    versions, convention = record["versions"], record["convention"]
    names = sorted({metric.name for metric in figures.metrics})
    by_score, has_judgements = config.get("rank_by") == "score", bool(config.get("judgements"))
    engine = f"Spark {versions['spark']}"
    if "sail" in versions:
        engine = f"Sail {versions['sail']}, with the client of {engine}"
    several = figures.days is not None
    about = [
        *([("runs", f"{record['n_runs']:,}")] if several else []),
        ("last run" if several else "run", record["run_id"]),
        ("started", f"{record['started'][:19].replace('T', ' ')} UTC"),
        ("took in all" if several else "took", f"{seconds_of(record) or 0:.0f} s"),
        *([("erased", counted(n))] if (n := record.get(sch.ERASED)) else []),
        ("versions", f"rankmetrics_spark {versions['rankmetrics_spark']}, {engine}"),
    ]
    shown = err.values_without_secrets(record.get("last_record", record))
    as_text = json.dumps(shown, indent=2, ensure_ascii=False, default=str)
    return {
        "rows": record["rows"],
        "counts": counts[:MOST_COUNTED],
        "n_counts": len(counts),
        "reasons": sorted(record["quarantine_reasons"].items(), key=lambda pair: (-pair[1], pair[0])),
        "rules": rules(convention["text"], names, by_score, has_judgements),
        "convention": f"{convention['name']} ({convention['hash']})",
        "about": about,
        "record": "\n".join(map(err.printable, as_text.split("\n"))),
    }


# ---- what a convention means

#: Knob of a convention -> its value -> what it means, in the order of the sentences.
_WORDS: dict[str, dict[str, str]] = json.loads(assets.file_text("sentences.json"))
_USED_BY = {"ap_denominator": "ap", "gain": "ndcg", "ideal_pool": "ndcg"}
_WITHOUT_JUDGEMENTS = {"judged": "NDCG compares with the best order of the items that were shown."}


def rules(text: str, metrics: list[str], by_score: bool, has_judgements: bool) -> list[str]:
    """What a convention means for these metrics.

    >>> rules("standard;gain=linear;zero_relevant=zero;ties=best;relevant_from=2.0", ["ndcg"], False, False)[1:3]
    ['A grade of 2 or more is relevant.', 'A user without a relevant item counts 0.']
    >>> rules("standard;unjudged=removed", ["ap"], False, True)[-1]
    'Shown items without a judgement are removed, and the items below move up.'
    >>> for knob in ("ideal_pool=shown", "ap_denominator=hits", "ideal_pool=judged"):
    ...     print(rules(f"standard;zero_relevant=skip;{knob}", ["r"], False, True)[2])
    A user who was shown no relevant item is left out of every mean, even if one was judged.
    A user who was shown no relevant item is left out of every mean, even if one was judged.
    A user without a relevant item is left out of the mean.
    """
    chosen = dict(part.partition("=")[::2] for part in text.split(";")[1:])
    grade = float(chosen.get("relevant_from", 0))
    origin = assets.said("judged") if has_judgements else assets.said("only_shown")
    relevant = f"A grade of {grade:g} or more is relevant." if grade else "Any grade above 0 is relevant; a click is 1."
    only_shown = chosen.get("ideal_pool") == "shown" or chosen.get("ap_denominator") == "hits"
    lines = []
    for knob, words_of in _WORDS.items():
        value = chosen.get(knob, "")
        is_relevant = _USED_BY.get(knob) in (None, *metrics) and (by_score or knob != "ties")
        words = worded(words_of.get(value, ""))
        if knob == "ideal_pool" and not has_judgements:
            words = _WITHOUT_JUDGEMENTS.get(value, words)
        if (knob, value, has_judgements) == ("zero_relevant", "skip", True) and only_shown:
            words = f"A {UNIT} {WHO} was shown no relevant item is left out of every mean, even if one was judged."
        if is_relevant and words and (has_judgements or knob != "relevant_pool"):
            lines.append(words)
    return [origin, relevant, *lines]


# ---- single users

#: Size of this part of the page; with more, the smaller changes have no lists.
MOST_BYTES_OF_LISTS = 500_000


@in_words
def block(figures: Figures) -> str:
    """The section with its style, data and script, or how to get it. Names are data, never markup."""
    examples = figures.examples
    if figures.primary is None or (examples is None and not figures.user_changes):
        return ""
    if examples is None:
        # How to get this part, on a page of paired users without it.
        return worded(assets.file_text("examples.hint.html"))
    n_users = len(examples.users)
    while True:
        data = assets.as_script(err.every_text(data_of(examples, n_users), err.printable))
        if len(data.encode()) <= MOST_BYTES_OF_LISTS or n_users <= 1:
            break
        n_users = n_users * 3 // 4
    texts = {name: assets.file_text(f"examples.{name}") for name in ("html", "css", "js")}
    page = texts["html"].replace("UNITS", "Queries" if examples.of_queries else f"{UNITS:C}")
    return page.replace("/* style */", texts["css"]).replace("/* data */", data).replace("/* script */", texts["js"])


def data_of(examples: Examples, n_users: int) -> dict[str, Any]:
    """The numbers of the section, with the lists of so many users; every text once.

    Args:
        examples: What is shown.
        n_users: Users whose lists are there, those with the largest changes on the metric that decides first.
    """
    texts: dict[str, int] = {}

    def place(text: Any) -> int:
        """Of a text, among all of them."""
        return texts.setdefault(str(text), len(texts))

    def line(change: UserChange) -> list[Any]:
        metric, experiment, user, *values = change
        return [metrics.index(metric), place(experiment), place(user), *values]

    users = {*examples.users[:n_users]}
    metrics = [*dict.fromkeys(change.metric for change in (*examples.changes, *examples.topics))]
    lists: dict[str, dict[int, dict[str, Any]]] = {}
    for each in (each for each in examples.lists if each.user_id in users):
        of_user = lists.setdefault(f"{place(each.experiment_id)} {place(each.user_id)}", {})
        shown = of_user.setdefault(each.which, {"list": place(each.label), "size": each.size, "rows": []})
        shown["rows"].append([each.rank, place(each.item), sch.number(each.grade), int(each.relevant)])
    missed: dict[int, dict[str, Any]] = {}
    for user, item, grade, n in examples.missed:
        if user in users:
            missed.setdefault(place(user), {"n": n, "items": []})["items"].append([place(item), sch.number(grade)])
    return {
        "baseline": place(examples.baseline),
        "others": examples.others,
        "ahead": examples.is_ahead,
        "note": examples.note,
        "unit": "Query" if examples.of_queries else f"{UNIT:C}",
        "metrics": [{"label": fd.label_of(of), "lower": of.higher_is_better is False} for of in map(mx.parse, metrics)],
        "changes": [line(change) for change in examples.changes if change.user_id in users],
        "total": max(examples.n_changes, len(examples.changes)),
        "topics": [line(topic)[:-1] for topic in examples.topics],
        "lists": {key: [*of_user.values()] for key, of_user in lists.items()},
        "missed": missed,
        "texts": [*texts],
    }
