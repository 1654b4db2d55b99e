"""The checks of a report: how many people it is about, and what weakens its answer."""

import re
from pathlib import Path
from typing import Any

import pytest

from rankmetrics_spark import report as rep
from tests.helpers import messages, results
from tests.helpers.figures import compared, mean

# ---- people


def arms(*users: int, shared: dict[str, int], design: str = "independent", pairs: bool = False) -> rep.Figures:
    """Experiments with so many users, 40 % of them with a relevant item; ``shared`` by their two names."""
    names = "abcdefgh"[: len(users)]
    means = [mean(e) | {"n_users": n, "n_users_with_relevant": n * 2 // 5} for e, n in zip(names, users, strict=True)]
    compared_pairs = [(i, j) for i in range(len(users)) for j in range(i + 1, len(users)) if pairs or i == 0]
    rows = [
        compared(names[j], None, 0.0, baseline=names[i], design=design)
        | {"n_users_both": shared.get(names[i] + names[j], 0)}
        for i, j in compared_pairs
    ]
    return rep.Figures(means, rows)


@pytest.mark.parametrize(("users", "more", "text"), messages.cases("numbers of users"))
def test_a_person_is_counted_once(users: list[int], more: dict[str, Any], text: str) -> None:
    assert users_of(arms(*users, **more)) == text


def test_without_comparisons_nobody_knows_who_is_in_several_experiments() -> None:
    assert users_of(rep.Figures([mean("a"), mean("b")])) == "1,000 users in each of 2 experiments."
    assert users_of(rep.Figures([mean("a")])) == "1,000 users."


def users_of(figures: rep.Figures) -> str:
    return next(str(check) for check in rep.checks(figures) if check.topic == "Number of users")


def test_a_terminal_and_a_page_say_what_a_machine_overrates(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {"mean_machine": 0.6, "n_judged": 50, "bias_machine": -0.0123, "p_bias_machine": 0.0412}
    likeness = {"p_sample_values": 0.00012, "p_sample_shown": 0.5, "p_sample_segments": None}
    figures = rep.Figures([mean("a") | numbers | likeness])
    rates = "a: the machine rates MAP@10 0.0123 lower than people (p = 0.041)"
    both, rows = "users that people judged and the others", rep.check_rows(figures)
    assert [(row.name, row.status, row.sentence) for row in rows if row.name.startswith(("judge_", "sample_"))] == [
        ("sample_ratio", "not_checked", rows[1].sentence),
        ("judge_bias", "ok", rates),
        ("sample_values", "warn", f"a: {both} differ in the machine's MAP@10 (p < 0.001). There is no verdict."),
        ("sample_shown", "ok", f"a: {both} are alike in the length of their lists (p = 0.500), which proves nothing"),
        ("sample_segments", "not_checked", f"a: not known whether {both} are alike in segments"),
    ]
    rep.print_result(figures)
    assert f"people judged 50 of 1,000 users, and a machine all: {rates}" in " ".join(capsys.readouterr().out.split())


def test_users_without_a_relevant_item_are_said_with_how_they_count() -> None:
    def sentence(rule: str, **more: Any) -> str:
        record = {
            "rows": {"in": 1, "evaluated": 1, "quarantined": 0},
            "convention": {"text": f"standard;zero_relevant={rule};ties=best"},
            "experiments": {name: {"lists": 50, "no_relevant": 10} for name in ("a", "b")},
        }
        figures = rep.Figures([mean(name) | {"mean_with_relevant": 0.8} | more for name in ("a", "b")], record=record)
        return {check.topic: str(check) for check in rep.checks(figures)}["Users without a relevant item"]

    # 600 of 1,000 users have one, and the mean over them is 0.8 where it is 0.5 over all.
    assert sentence("zero") == (
        "40 % of the users of each experiment had no relevant item; they count as 0 "
        "(without them MAP@10 of a is 0.800 instead of 0.500)."
    )
    some = "0.4 % of the users of each experiment had no relevant item; they count as 1"
    assert sentence("one", n_users_with_relevant=996).startswith(some)
    # Who is left out of the mean is not among the users; the lists are counted before.
    assert sentence("skip", n_users_with_relevant=1000) == (
        "20 % of the lists of each experiment had no relevant item; their users are left out of the mean."
    )
    rows = [mean(name) | {"n_users_with_relevant": n} for name, n in (("a", 846), ("b", 829))]
    text = {check.topic: str(check) for check in rep.checks(rep.Figures(rows))}["Users without a relevant item"]
    assert text == "15 to 17 % of the users of each experiment had no relevant item."


def of_clusters(a: int, b: int, both: int, **more: Any) -> rep.Figures:
    """600 users a side, in so many clusters."""
    means = [mean(name) | {"n_users": 600, "n_users_with_relevant": 600} for name in "ab"]
    counts = {"cluster": "house", "n_users_baseline": a, "n_users_candidate": b, "n_users_both": both}
    counts |= {"n_users": both or a + b, "n_members_baseline": 600, "n_members_candidate": 600}
    row = compared("b", None, 0.0, baseline="a", design="paired" if both else "independent", **counts | more)
    config = {"comparison": {"shares": {"a": 0.5, "b": 0.5}}}
    record = {"config": config, "rows": {"in": 1, "quarantined": 0}}
    return rep.Figures(means, [row], record=record)


def test_clusters_are_not_people() -> None:
    # 150 households whose users are on both sides: 1,200 other users, and nothing says how many are on both.
    figures = of_clusters(150, 150, 150)
    texts = {check.topic: str(check) for check in rep.checks(figures)}
    assert texts["Number of users"] == "600 users in each of 2 experiments (paired, 150 clusters of house in each)."
    assert texts["Split of the users"].startswith("Not checked: the same clusters of house are in")
    status = [*map(str, rep.status_line(figures))]
    assert status[::2] == ["600 users in each experiment", "same clusters of house on both sides"]
    (card,) = rep.cards(figures)
    assert card.users == "paired, 150 clusters of house"
    assert rep.payload_of(figures)["units"] == "clusters"


def test_the_split_of_clusters_is_that_of_clusters() -> None:
    # 900 of 1,500 households are 60 %, and 600 of 1,200 users are 50 %.
    figures = of_clusters(900, 600, 0, sample_ratio_p=1e-14)
    texts = {check.topic: str(check) for check in rep.checks(figures)}
    off = "The split of the clusters of house is off: 60.0 / 40.0 % instead of 50 / 50 % (p < 0.001)."
    assert texts["Split of the users"].startswith(off)
    status = [(item.level, str(item)) for item in rep.status_line(figures)]
    assert ("fail", "split of clusters of house is off (p < 0.001)") in status
    seen = {check.topic: str(check) for check in rep.checks(of_clusters(900, 600, 0))}["Split of the users"]
    assert seen.endswith("Seen: 60.0 / 40.0 % of the clusters of house.")


@pytest.mark.parametrize(("clusters", "level"), [(5, "warn"), (19, "warn"), (20, "ok")])
def test_few_clusters_are_a_warning(clusters: int, level: str) -> None:
    (check,) = [each for each in rep.checks(of_clusters(clusters, 600, 0)) if each.topic == "Number of users"]
    rough = f"a has only {clusters} clusters of house, so intervals are rough. "
    assert check.level == level and str(check).startswith(rough if level == "warn" else "600 users in each")


def test_the_means_of_a_period_are_of_people() -> None:
    (row,) = of_clusters(50, 50, 0, period_from="2026-11-20", period_to="2026-11-21").comparisons
    rows = rep.period_means([{"convention": "standard"}], [row])
    assert [each["n_users"] for each in rows] == [600, 600]


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
    actual = {check.topic: (check.level, str(check)) for check in rep.checks(rep.Figures(few, rows, record=record))}
    assert {title for title, (level, _) in actual.items() if level == "warn"} == {
        "Number of users", "Users without a relevant item", "Split of the users", "Faulty rows", "Ties",
        "Judgements", "Judged lists", "Quality of the log",
    }  # fmt: skip
    assert actual["Faulty rows"][1] == "20 of 120 rows (16.67%) were faulty and are left out."
    assert actual["Ties"][1].startswith("30.0% of the rows")


def test_a_clean_run_has_no_warning() -> None:
    record = {"rows": {"in": 100, "evaluated": 100, "quarantined": 0}, "experiments": {}, "quality": {}}
    levels = {check.level for check in rep.checks(rep.Figures([mean("a")], record=record))}
    assert levels == {"ok", "none"}
    assert [check.topic for check in rep.checks(rep.Figures([mean("a")]))][-1] == "Run record"


def test_the_page_says_the_checks_that_were_written_and_computes_none() -> None:
    pytest.importorskip("altair")

    def row(name: str, status: str, sentence: str, experiment: str = "b") -> dict[str, Any]:
        texts = {"experiment_id": experiment, "segment": "all", "name": name, "status": status, "sentence": sentence}
        return texts | dict.fromkeys(("observed", "limit", "margin", "metric"))

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
    figures = rep.Figures([mean("a"), mean("b")], record=record, checks=written)
    assert [(check.level, check.topic, str(check)) for check in rep.checks(figures)] == [
        ("fail", "Gates", "b fell."),
        ("warn", "Rates of the log", "b: 50 % of the lists are shorter than the largest cut-off."),
        ("ok", "Gates", "b is fine."),
        ("ok", "Books", "Every row and every list of the log is in a table, in each experiment."),
        ("ok", "Number of users", "12 users."),
        ("none", "Split of the users", "Not checked."),
    ]
    text = rep.page(rep.Figures([mean("a"), mean("b")], checks=written))
    assert ">Rates of the log weakens the answer</a>" in text and "Not published" not in text


@pytest.mark.parametrize("note", ["not trustworthy: 1 of 4 days is missing", "not tested, since this is look 3 of 2"])
def test_checks_that_did_not_pass_are_named_and_what_is_in_doubt_has_a_card_without_numbers(note: str) -> None:
    pytest.importorskip("altair")
    names = {"experiment_id": "b", "segment": "all", "status": "warn", "sentence": "5 users."}
    warned = [{**names, "name": name} for name in ("n_users", "tied_rate")]
    rows = [compared("b", None, 0.1) | {"note": note, "p_adjusted": None}]
    text = rep.page(rep.Figures([mean("control"), mean("b")], rows, checks=warned))
    assert ">Number of users and Ties did not pass</a>" in text and "weaken" not in text
    card = text[text.index('class="card ') : text.index('id="checks"')]
    is_doubtful = note.startswith("not trustworthy")
    assert (re.search(r"\d %|0\.\d", card) is None) == is_doubtful and note in card


@pytest.mark.parametrize(("names", "others"), [("ab", "1 more has"), ("abc", "2 more have")])
def test_experiments_with_few_users_are_said_in_one_check(tmp_path: Path, names: str, others: str) -> None:
    tables = rep.local_tables(str(results.Output(tmp_path, [*names], users=60).write()))
    assert tables is not None
    actual = [str(check) for check in rep.checks(rep.figures_of(tables)) if check.topic == "Number of users"]
    assert len(actual) == 1
    assert actual[0].startswith(f"a has only 60 users, so intervals are rough; {others} fewer than 100. ")
