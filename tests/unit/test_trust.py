"""The checks of a report: how many people it is about, and what weakens its answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rankmetrics_spark.report import Figures, checks, figures_of, local_tables, page, without_relevant
from tests.helpers.figures import compared, mean
from tests.helpers.results import Output

# ---- people


def arms(*users: int, shared: dict[str, int], design: str = "independent", pairs: bool = False) -> Figures:
    """Experiments with so many users, 40 % of them with a relevant item; ``shared`` by their two names."""
    names = "abcdefgh"[: len(users)]
    means = [
        mean(name) | {"n_users": n, "n_users_with_relevant": n * 2 // 5} for name, n in zip(names, users, strict=True)
    ]
    compared_pairs = [(i, j) for i in range(len(users)) for j in range(i + 1, len(users)) if pairs or i == 0]
    rows = [
        compared(names[j], None, 0.0, baseline=names[i], design=design)
        | {"n_users_both": shared.get(names[i] + names[j], 0)}
        for i, j in compared_pairs
    ]
    return Figures(means, rows)


@pytest.mark.parametrize(
    ("figures", "users", "without"),
    [
        # The same people in all experiments are counted once.
        (
            arms(943, 943, 943, shared={"ab": 943, "ac": 943}, design="paired"),
            "943 users, the same in all 3 experiments (paired).",
            ", in each experiment: 566",
        ),
        # 500 + 400 - 100.
        (
            arms(500, 400, shared={"ab": 100}, design="paired"),
            "800 users in all, 400 to 500 in each experiment (paired).",
            ", in each experiment: 240 to 300",
        ),
        # b and c have no users beside those of a.
        (
            arms(500, 400, 300, shared={"ab": 400, "ac": 300}, design="paired"),
            "500 users in all, 300 to 500 in each experiment (paired).",
            ", in each experiment: 180 to 300",
        ),
        # Nobody knows whether b and c share users.
        (
            arms(500, 400, 300, shared={}),
            "300 to 500 users in each of 3 experiments (independent).",
            ", in each experiment: 180 to 300",
        ),
        # All pairs were compared, and share nobody: people can be added up.
        (
            arms(500, 400, 300, shared={}, pairs=True),
            "1,200 users in all, 300 to 500 in each experiment (independent).",
            ": 720",
        ),
        (arms(500, 400, shared={}), "900 users in all, 400 to 500 in each experiment (independent).", ": 540"),
        (Figures([mean("a"), mean("b")]), "1,000 users in each of 2 experiments.", ", in each experiment: 400"),
        (Figures([mean("a")]), "1,000 users.", ": 400"),
    ],
)
def test_a_person_is_counted_once(figures: Figures, users: str, without: str) -> None:
    texts = {check.title: check.text for check in checks(figures)}
    assert texts["Number of users"] == users
    assert ": ".join(without_relevant(figures)) == f"users without a relevant item{without}"


def test_users_without_a_relevant_item_are_said_with_how_they_count() -> None:
    def sentence(rule: str, **more: Any) -> str:
        record = {
            "rows": {"in": 1, "evaluated": 1, "quarantined": 0},
            "convention": {"text": f"standard;zero_relevant={rule};ties=best"},
            "experiments": {name: {"lists": 50, "no_relevant": 10} for name in ("a", "b")},
        }
        figures = Figures([mean(name) | {"mean_with_relevant": 0.8} | more for name in ("a", "b")], record=record)
        return {check.title: check.text for check in checks(figures)}["Users without a relevant item"]

    # 600 of 1,000 users have one, and the mean over them is 0.8 where it is 0.5 over all.
    assert sentence("zero") == (
        "40 % of the users of each experiment had no relevant item; they count as 0 "
        "(without them MAP@10 of a is 0.800 instead of 0.500)."
    )
    assert sentence("one", n_users_with_relevant=996).startswith(
        "0.4 % of the users of each experiment had no relevant item; they count as 1"
    )
    # Who is left out of the mean is not among the users; the lists are counted before.
    assert sentence("skip", n_users_with_relevant=1000) == (
        "20 % of the lists of each experiment had no relevant item; their users are left out of the mean."
    )


# ---- can it be trusted


def test_what_weakens_an_answer_is_a_warning() -> None:
    few = [mean("control") | {"n_users": 40, "n_users_with_relevant": 10}]
    counts = {"evaluated": 100, "tied": 30, "beyond_judgements": 2, "lists": 100, "judged_lists": 5}
    record = {
        "rows": {"in": 120, "evaluated": 100, "quarantined": 20},
        "experiments": {"control": counts},
        "config": {"rank_by": "score"},
        "judgements": {"rows": 3},
        "quality": {"warnings": ["ranks seem to start at 0"]},
    }
    rows = [compared("a", None, 0.1, sample_ratio_p=1e-9)]
    actual = {check.title: (check.level, check.text) for check in checks(Figures(few, rows, record=record))}
    assert {title for title, (level, _) in actual.items() if level == "warn"} == {
        "Number of users", "Users without a relevant item", "Split of the users", "Faulty rows", "Ties",
        "Judgements", "Judged lists", "Quality of the log",
    }  # fmt: skip
    assert actual["Faulty rows"][1] == "20 of 120 rows (16.67%) were faulty and are left out."
    assert actual["Ties"][1].startswith("30.0% of the rows")


def test_a_clean_run_has_no_warning() -> None:
    record = {"rows": {"in": 100, "evaluated": 100, "quarantined": 0}, "experiments": {}, "quality": {}}
    levels = {check.level for check in checks(Figures([mean("a")], record=record))}
    assert levels == {"ok", "none"}
    assert [check.title for check in checks(Figures([mean("a")]))][-1] == "Run record"


def test_the_page_says_the_checks_that_were_written_and_computes_none() -> None:
    pytest.importorskip("altair")

    def row(name: str, status: str, sentence: str, experiment: str = "b") -> dict[str, Any]:
        numbers = dict.fromkeys(("observed", "limit", "margin", "metric"))
        return {
            "experiment_id": experiment,
            "segment": "all",
            "name": name,
            "status": status,
            "sentence": sentence,
            **numbers,
        }

    written = [
        row("n_users", "ok", "12 users."),
        row("n_users", "ok", "12 users.", "a"),
        row("max_drop", "fail", "b fell"),
        row("min", "ok", "b is fine"),
        row("short_rate", "warn", "b: 50 % of the lists are shorter than the largest cut-off"),
        row("gap_rate", "not_checked", "no limit"),
        row("sample_ratio", "not_checked", "Not checked."),
        row("books_lists", "ok", "2 lists"),
    ]
    record = {"rows": {"in": 1, "evaluated": 1, "quarantined": 0}, "experiments": {}}
    figures = Figures([mean("a"), mean("b")], record=record, checks=written)
    assert [(check.level, check.title, check.text) for check in checks(figures)] == [
        ("fail", "Gates", "b fell."),
        ("warn", "Rates of the log", "b: 50 % of the lists are shorter than the largest cut-off."),
        ("ok", "Gates", "b is fine."),
        ("ok", "Books", "Every row and every list of the log is in a table, in each experiment."),
        ("ok", "Number of users", "12 users."),
        ("none", "Split of the users", "Not checked."),
    ]
    text = re.sub("<[^>]+>", "", page(Figures([mean("a"), mean("b")], checks=written)))
    assert "2 checks below weaken this answer." in text and "Not published" not in text


def test_of_two_small_experiments_the_other_one_is_one_more(tmp_path: Path) -> None:
    tables = local_tables(str(Output(tmp_path, ["a", "b"], users=60).write()))
    assert tables is not None
    (message,) = [check.text for check in checks(figures_of(tables)) if check.title == "Number of users"]
    assert message.startswith("a has only 60 users, so intervals are rough; 1 more has fewer than 100.")


def test_experiments_with_few_users_are_said_in_one_check(tmp_path: Path) -> None:
    tables = local_tables(str(Output(tmp_path, users=60).write()))
    assert tables is not None
    actual = [check.text for check in checks(figures_of(tables)) if check.title == "Number of users"]
    assert actual == [
        "candidate_a has only 60 users, so intervals are rough; 2 more have fewer than 100. 60 users in each of 3 "
        "experiments (independent)."
    ]
