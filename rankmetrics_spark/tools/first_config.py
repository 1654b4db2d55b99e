"""A first config for a log: the text of a config, with what was guessed of the columns."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from rankmetrics_spark import config as cfg, doors, errors as err, schemas as sch
from rankmetrics_spark.tools import guessing, lists_of_rows, log_sample
from rankmetrics_spark.tools.event_sample import TIMES, AssignmentSample, EventSample, named

ROLES = ("experiment", "user", "item", "position", "score", "relevance")
_SHOWN_VALUES = 4


@dataclass(frozen=True)
class FirstConfig:
    """A config for a log, with what is known of its columns.

    Attributes:
        log: The sample.
        columns: Role -> its column; without ``list`` and ``date`` where there is none.
        judged: Role -> its column of the judgements, as the user says; others are guessed.
        baseline: The experiment that the others are compared with, or None.
        relevant_from: The smallest relevant grade, where it is not the smallest above 0.
        judgements: File of judgements, or None.
        split_by: Columns of segments, as the user says; others are suggested in a comment.
        events: File of events, or None.
        found: What was found of the events, of that file or among the rows of the log.
        assigned: Who is in which test, or None; the log names no experiments then.
    """

    log: log_sample.LogSample
    columns: Mapping[str, guessing.Guess]
    baseline: str | None = None
    relevant_from: float | None = None
    judgements: str | None = None
    judged: Mapping[str, str] = field(default_factory=dict)
    split_by: Sequence[str] = ()
    events: str | None = None
    found: EventSample | None = None
    assigned: AssignmentSample | None = None

    def __post_init__(self) -> None:
        """With assignments, no column of the log is the experiment."""
        if self.assigned:
            columns = {role: guess for role, guess in self.columns.items() if role != "experiment"}
            object.__setattr__(self, "columns", columns)

    def _cells(self, role: str) -> pd.Series:
        """The cells of the column of a role in the log; none without one."""
        guess = self.columns.get(role)
        return pd.Series(dtype=object) if guess is None else self.log.rows[guess.column]

    @property
    def experiments(self) -> list[str]:
        """Their names in the sample, the likely baseline first."""
        values = self._cells("experiment").dropna().unique()
        # An engine writes true where Python writes True.
        texts = (str(each).lower() if isinstance(each, (bool, np.bool_)) else str(each) for each in values)
        return guessing.controls_first(texts)

    @property
    def named_by(self) -> str:
        """``file`` or ``folder`` where its name tells the experiment of a row, and no column does."""
        guess = self.columns.get("experiment")
        is_column = guess is None or guess.column != sch.EXPERIMENT or self.log.ranked_by_format
        return "" if is_column or self.log.experiment_from == "tag" else self.log.experiment_from

    @property
    def likely_baseline(self) -> str | None:
        """The experiment whose name says so."""
        first = self.experiments[:1]
        return first[0] if len(self.experiments) > 1 and first[0].lower() in guessing.CONTROLS else None

    @cached_property
    def truth(self) -> log_sample.LogSample | None:
        """The first rows of the judgements, if there are any."""
        return None if self.judgements is None else log_sample.sample(self.judgements, log_sample.JUDGEMENTS)

    @cached_property
    def judged_columns(self) -> Mapping[str, guessing.Guess]:
        """Role -> its column of the judgements; the format of qrels says it."""
        if self.truth is None:
            return {}
        columns = guessing.guesses(self.truth.rows, self.judged, placed=self.truth.roles)
        # As in files of BEIR, a score of judgements is the grade.
        return {"relevance": columns["score"], **columns} if "score" in columns else columns

    @property
    def guessed_experiment(self) -> str | None:
        """The column of the experiments, if only its values say so."""
        guess = self.columns.get("experiment")
        return guess.column if guess and guess.reason.startswith("a guess, by its values") else None

    @property
    def grades(self) -> list[float]:
        """The different grades in the sample: of the judgements where there are any."""
        rows, columns = (self.log.rows, self.columns) if self.truth is None else (self.truth.rows, self.judged_columns)
        guess = columns.get("relevance")
        return [] if guess is None else sorted(guessing.numbers(rows[guess.column]).dropna().unique())

    @property
    def all_relevant(self) -> str:
        """The column of ratings, if the smallest one would be a hit and nobody has said which is; else empty."""
        sampled, columns = (self.log, self.columns) if self.truth is None else (self.truth, self.judged_columns)
        name = columns["relevance"].column if "relevance" in columns else ""
        are_ratings = "_c2" in sampled.roles.values() or {"rating", "stars"} & log_sample.words_of(name)
        several = len(self.grades) > 1 and min(self.grades) > 0
        return name if several and are_ratings and self.relevant_from is None else ""

    @property
    def likely_hit(self) -> float:
        """The smallest grade that is a hit, as a question suggests it: of ratings, which know no 0, the upper ones.

        >>> [FirstConfig(log_sample.LogSample("", "csv", pd.DataFrame({"x": grades})), {"relevance": guess}).likely_hit
        ...  for guess in [guessing.Guess("x", "")] for grades in ([1, 2, 3, 4, 5], [0, 1, 2])]
        [4.0, 1.0]
        """
        grades = self.grades
        return float(next(grade for grade in grades if grade > 0 and (min(grades) <= 0 or grade >= 0.8 * grades[-1])))

    @property
    def dates(self) -> list[str]:
        """The dates in the sample, in order, as YYYY-MM-DD."""
        return sorted(self._days.dropna().unique())

    @property
    def _days(self) -> pd.Series:
        """The date of each row; 20261120 is 2026-11-20. Nothing if no column has dates."""
        days = self._cells("date").dropna().astype(str)
        return days.str.replace(r"^(\d{4})(\d{2})(\d{2})$", r"\1-\2-\3", regex=True)

    @property
    def rank_by(self) -> str:
        """By position where there is one."""
        return "position" if "position" in self.columns and self.log.format != "trec_run" else "score"

    @property
    def first_rank(self) -> int:
        """0 if about as many rows have the position 0 as 1; a few of them are faulty rows."""
        positions = guessing.numbers(self._cells("position"))
        return 0 if 2 * (positions == 0).sum() > (positions == 1).sum() else 1

    @property
    def has_several_lists(self) -> bool:
        """Whether a user of an experiment has a rank, or an item, more than once on a date."""
        return guessing.repeats(self.log.rows, self.columns, ())

    @cached_property
    def parts_in_words(self) -> str:
        """What to do about the pages of a list on which ranks start anew; empty if there are none."""
        parts = guessing.parts_of_lists(self.log.rows, self.columns)
        if not parts:
            return ""
        ranks = self.columns["position"].column if "position" in self.columns else "the order"
        return err.said("parts_of_lists", part=parts[0], ranks=ranks)

    @property
    def segments(self) -> list[str]:
        """Columns of text with few values and no role, whose names say no experiment."""
        taken = {self.time, *(name for guess in self.columns.values() for name in guess.columns)}
        return [
            str(name)
            for name in self.log.rows.columns
            if name not in taken and not guessing.named_like([str(name)], "experiment")
            and 2 <= self.log.rows[name].astype(str).nunique() <= 30
            and not isinstance(self.log.rows[name].iloc[0], date) and guessing.numbers(self.log.rows[name]).isna().all()
        ]  # fmt: skip

    @property
    def rows(self) -> pd.DataFrame:
        """The rows that ``part`` names, as they are in the log."""
        rows = self.log.rows if self.log.raw is None else self.log.raw
        return rows.loc[self._days.index[self._days == self.dates[-1]].unique()] if self.dates else rows

    @property
    def part(self) -> str:
        """Which rows are evaluated: of a log with dates, those of the last one."""
        rows = f"the rows of {self.dates[-1]}" if self.dates else "all rows"
        first = f"the first {len(self.log.rows):,} rows: a trial, not a result"
        return rows if self.log.whole else f"{rows} among {first}" if self.dates else first

    def missing(self) -> list[str]:
        """What a run needs and cannot be guessed, such as the column of the user, or ``judgements`` of a TREC run."""
        judged = [role for role in ("user", "item", "relevance") if self.judgements and role not in self.judged_columns]
        if self.truth and self.truth.nested:  # items without grades are relevant
            judged = [role for role in judged if role != "relevance"]
        of_judgements = [f"judgements.{role}" for role in judged]
        if self.log.ranked_by_format:
            return of_judgements if self.judgements or "relevance" in self.columns else ["judgements"]
        needed = ["user", *([] if self.judgements or self.found else ["relevance"])]
        if "position" not in self.columns:
            # Equal scores are put in order by the item.
            needed.append("item" if "score" in self.columns else "position")
        return [*(role for role in needed if role not in self.columns), *of_judgements]

    def unsettled(self) -> list[str]:
        """What only the user knows and has not said: the experiment, the baseline, and which grades are relevant."""
        open_ones = []
        if name := self.guessed_experiment:
            out = f"--column experiment={name} if so, --column list={name} if it tells lists of one experiment apart"
            open_ones.append(f"whether {name} is the experiment ({out})")
        if self.assigned and (of_none := [*self.assigned.arms.keys() - self.assigned.baselines(self.baseline).keys()]):
            others = f"nothing is compared; --baseline ARM, one of {_some(self.assigned.arms[of_none[0]])}"
            open_ones.append(f"which arm of {of_none[0] or 'the assignments'} is the baseline ({others})")
        if self.baseline is None and len(self.experiments) > 1:
            others = f"nothing is compared; --baseline {self.experiments[0]}, or another of {_some(self.experiments)}"
            open_ones.append(f"which experiment is the baseline ({others})")
        if self.relevant_from is None and len([grade for grade in self.grades if grade > 0]) > 1:
            shown = _some([f"{grade:g}" for grade in self.grades])
            open_ones.append(f"which grades are relevant (all above 0 of {shown}; --relevant-from)")
        return open_ones

    def notes(self) -> list[str]:
        """What is odd in the rows and stops no run, a sentence each."""
        out = "if nobody is known there, source.where leaves them out"
        empty = [f"{self._empty_user}: {out}"] if self._empty_user else []
        return [*self.log.notes, *(self.truth.notes if self.truth else ()), *empty]

    def in_words(self) -> str:
        """The columns that were chosen, each with how sure that is."""
        judged = [f"judgements.{role} = {guess.column} ({guess.sureness})"
                  for role, guess in self.judged_columns.items() if role in (self.truth.roles if self.truth else ())
                  and guess.column != role]  # fmt: skip
        if kind := self.log.ranked_by_format:
            return ", ".join([f"{kind} {_some(self.experiments) or 'one experiment'}", *judged])
        by_column = {role: guess for role, guess in self.columns.items() if role != "experiment" or not self.named_by}
        named = [f"experiment = name of the {self.named_by} (a guess)"] if self.named_by else []
        named += [f"{role} = {' and '.join(guess.columns)} ({guess.sureness})" for role, guess in by_column.items()]
        return ", ".join([*named, *judged])

    def text(self) -> str:
        """The YAML text, with a comment beside each guess."""
        of_day = f" --date {self.dates[-1]}" if self.dates else ""
        head = doors.text_of(__name__, "head.txt").format(schema=cfg.SCHEMA_FILE, of_day=of_day)
        return head + "\n".join([*self._source(), *self._rest()]) + "\n"

    def _source(self) -> Iterator[str]:
        yield "source:"
        yield from _place(self.log)
        if self.log.ranked_by_format:
            if self.log.experiment_from != "tag":
                of_trec = self.log.format == "trec_run"
                why = "several files have the same tag, or none" if of_trec else "a guess, by its names"
                yield f"  experiment_from: {self.log.experiment_from}  # {why}"
            yield f"  # experiments: {_some(self.experiments)}"
            return
        if self.named_by:
            names = f"the names of the {self.named_by}s: {_some(self.experiments)}"
            yield f"  experiment_from: {self.named_by}  # a guess, by {names}"
        yield from _lists(self.log, "  # a row per list: the rank is the place in it")
        for role in ROLES:
            guess = self.columns.get(role)
            if (role == "experiment" and self.named_by) or (guess and _is_written(self.log, guess)):
                continue
            if guess is not None:
                yield f"{_column(self.log, role, guess)}; {self._values(role)}"
            elif role == "experiment" and self.assigned:
                if named(self.log.rows, ("experimentid", "experiment")):
                    yield "    experiment: null  # the assignments say who is in which test"
            elif role == "experiment":
                yield "    experiment: null  # no column looks like one: the log is a single experiment, called all"
            elif role == "item":
                yield "    item: null  # no column looks like one: repeated items are not detected"
            elif role == "relevance":
                yield f"    relevance: null  # the {'events' if self.found else 'judgements'} have it"
        if self.time:
            yield f"    time: {_scalar(self.time)}"
        if self.first_rank == 0:
            yield "  first_rank: 0  # lists of the sample start at 0"
        if self.dates:
            dates = " to ".join(dict.fromkeys((self.dates[0], self.dates[-1])))
            yield f'  where: "{self._of_day}"  # the sample: {dates}'
        if self.found and self.found.shown:
            yield f"  rows: {{column: {_scalar(self.found.columns['kind'])}, shown: {_scalar(self.found.shown)}}}"
        of_events = self.found is not None and "list" in self.found.columns
        if of_events or (self.has_several_lists and not (self.log.nested and "list" not in self.columns)):
            seen = f"; {self.parts_in_words}" if self.parts_in_words else ""
            if guess := self.columns.get("list"):
                names = ", ".join(map(_scalar, guess.columns))
                yield f"  list: [{names}]  # {guess.reason}; users have several lists in the sample{seen}"
            else:
                which = "users have a rank more than once: which column tells their lists apart?"
                yield f"  # list: [COLUMN]  # {which}{seen}"
        if self.split_by:
            yield f"  segments: [{', '.join(map(_scalar, self.split_by))}]  # a mean for each value of each column"
        elif self.segments:
            yield f"  # segments: [{', '.join(map(_scalar, self.segments))}]  # a mean for each value of each column"

    @property
    def _of_day(self) -> str:
        """The filter for a day, in a log with dates."""
        name = self.columns["date"].column
        if name == log_sample.DAYS:
            parts = zip(self.log.days, ("year", "month", "day"), strict=True)
            return " AND ".join(f"{column} = {part}('{{date}}')" for column, part in parts)
        is_compact = "-" not in str(self.log.rows[name].dropna().iloc[0])
        return f"{name} = " + ("replace('{date}', '-', '')" if is_compact else "'{date}'")

    @property
    def time(self) -> str | None:
        """The column with the time of an impression, if events or assignments have one."""
        timed = (part is not None and "time" in part.columns for part in (self.found, self.assigned))
        return named(self.log.rows, TIMES) if any(timed) else None

    def _rest(self) -> Iterator[str]:
        if self.found:
            yield "events:"
            if self.events:
                yield from _place(log_sample.sample(self.events, log_sample.EVENTS))
            yield from self.found.lines(self.time)
        if self.truth:
            if self.truth.format in ("trec_qrels", *cfg.ROWS_OF):
                yield f"judgements: {{format: {self.truth.format}, path: {_scalar(self.truth.path)}}}"
            else:
                yield "judgements:"
                yield from _place(self.truth)
                yield from _lists(self.truth)
                for role in ("user", "item", "relevance"):
                    chosen = self.judged_columns.get(role)
                    if chosen and not _is_written(self.truth, chosen):
                        yield _column(self.truth, role, chosen)
        column = self.columns["user"].column if "user" in self.columns else ""
        if self.log.ranked_by_format or re.match("(query|qid|topic)", cfg.letters(column)):
            yield "unit: query  # texts call users so: a guess, by the format or the name of the column"
        yield f"rank_by: {self.rank_by}"
        of_trec = self.log.format in ("trec_run", "json_document")
        yield f"metrics: [ndcg@10, {'ap' if of_trec else 'ap@10'}, p@10, rr]"
        preset = "trec_eval" if of_trec else "standard"
        if self.relevant_from is not None:
            yield f"convention: {{preset: {preset}, relevant_from: {self.relevant_from:g}}}"
        elif of_trec:
            yield "convention: trec_eval  # the numbers of trec_eval; all grades above 0 are relevant"
        elif len([grade for grade in self.grades if grade > 0]) > 1:
            grades = ", ".join(f"{grade:g}" for grade in self.grades[:_SHOWN_VALUES])
            yield f"# convention: {{relevant_from: 2}}  # grades are {grades}, ...: by default all above 0 are relevant"
        if self.assigned:
            yield from ("assignments:", *_place(self.assigned.log))
            yield from self.assigned.lines(self.time is not None, self.baseline, _scalar)
        elif self.baseline is not None:
            yield f"comparison: {{baseline: {_scalar(self.baseline)}}}  # of {_some(self.experiments)}"
        elif len(self.experiments) > 1:
            yield f"# comparison: {{baseline: {_scalar(self.experiments[0])}}}  # one of {_some(self.experiments)}"
        places = [Path(name).resolve() for name in (self.log.path, "out")]
        # A run refuses an output that is around its input.
        yield f"sink: {{path: {'out/first' if places[0].is_relative_to(places[1]) else 'out'}}}"

    def _values(self, role: str) -> str:
        column = self._cells(role)
        if role in ("position", "score"):
            return f"{guessing.numbers(column).min():g} to {guessing.numbers(column).max():g}"
        if role == "relevance":
            return "values " + _some([f"{grade:g}" for grade in self.grades])
        if role == "experiment":
            return _some(self.experiments)
        seen = f"{column.nunique():,} values in the sample"
        return f"{seen}; {self._empty_user}" if role == "user" and self._empty_user else seen

    @property
    def _empty_user(self) -> str:
        """That an empty text is the user of more than a few rows; empty if it is not."""
        users = self._cells("user")
        empty = int((users.astype(str) == "").sum())
        rows = f"an empty text is the user of {empty:,} of {len(users):,} rows"
        return rows if empty > 0.01 * len(users) else ""


def _place(rows: log_sample.LogSample) -> Iterator[str]:
    """Format, place and options of an input."""
    yield f"  format: {rows.format}"
    yield f"  {'table' if rows.format == 'table' else 'path'}: {_scalar(rows.path)}"
    if rows.options:
        yield f"  options: {json.dumps(dict(rows.options))}"


def _lists(rows: log_sample.LogSample, comment: str = "") -> Iterator[str]:
    """How cells hold lists, above the columns."""
    if rows.nested and rows.nested.packed:
        yield f"  packed: {rows.nested.packed}"
    yield "  columns:"
    if rows.nested and rows.nested.items:
        yield f"    items: {_scalar(rows.nested.items)}{comment}"


def _column(rows: log_sample.LogSample, role: str, guess: guessing.Guess) -> str:
    name = rows.nested.written(guess.column) if rows.nested else guess.column
    return f"    {role}: {_scalar(name)}  # {guess.reason}"


def _is_written(log: log_sample.LogSample, guess: guessing.Guess) -> bool:
    """Whether the shape of a log of lists says what a role is."""
    lists = log.nested
    if lists is None:
        return False
    is_part = bool(lists.packed) and guess.column in lists.chosen
    return is_part or guess.column in (lists_of_rows.PLACE, lists.items)


def _some(values: Sequence[str]) -> str:
    more = len(values) - _SHOWN_VALUES
    return ", ".join(values[:_SHOWN_VALUES]) + (f" and {more:,} more" if more > 0 else "")


def _scalar(text: str) -> str:
    """The text in YAML, with quotes where it needs them.

    >>> _scalar("logs/2026"), _scalar("no: 1"), _scalar("null")
    ('logs/2026', '"no: 1"', '"null"')
    """
    # YAML reads these words as something else than a text.
    is_word = text.lower() in ("null", "true", "false", "yes", "no", "on", "off")
    plain = re.fullmatch(r"[A-Za-z_./][\w./-]*", text) and not is_word
    return text if plain else json.dumps(text, ensure_ascii=False)
