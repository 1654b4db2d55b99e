"""Users who lost and gained most, as a part of the page: what it shows of each."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from rankmetrics_spark.config import EXAMPLES, Config, as_dict, example_text, from_mapping
from rankmetrics_spark.errors import ConfigError
from rankmetrics_spark.report import Examples, Figures, ListedItem, UserChange, block, data_of, page

HOSTILE = "</script><script>alert(1)</script>"


def change(user: str, before: float, after: float, kind: str = "loss", metric: str = "ap@10") -> UserChange:
    return UserChange(metric, "b", user, before, after, abs(after - before), kind)


def ranked(user: str, experiment: str, items: str) -> list[ListedItem]:
    """A list of items of one letter; capitals are relevant."""
    return [
        ListedItem(experiment, user, "", 1, 40, rank, item, float(item.isupper()), item.isupper())
        for rank, item in enumerate(items, start=1)
    ]


def examples(**more: Any) -> Examples:
    changes = [change("u", 1.0, 0.25), change(HOSTILE, 0.0, 1.0, "gain")]
    lists = [*ranked("u", "a", "Xy"), *ranked("u", "b", "yX"), *ranked(HOSTILE, "a", "z")]
    return Examples(changes, **{"n_changes": 2, "lists": lists, "baseline": "a"} | more)


def figures(result: Examples | None) -> Figures:
    keys = {"segment": "all", "metric": "ap@10", "confidence": 0.95, "note": None, "correction": "holm"}
    counts = {"n_users": 9, "n_users_with_relevant": 9, "n_comparisons": 1, "convention": "standard"}
    shared = {**keys, **counts, "ci_low": 0.05, "ci_high": 0.15}
    means = [{**shared, "experiment_id": name, "mean": 0.1} for name in "ab"]
    values = {"mean_baseline": 0.0, "mean_candidate": 0.1, "difference": 0.1, "p_adjusted": 0.001}
    relative = dict.fromkeys(("relative_difference", "relative_ci_low", "relative_ci_high"))
    row = {**shared, **values, **relative, "experiment_id": "b", "baseline": "a", "better": "candidate"}
    return Figures(means, [row], examples=result)


def data_in(text: str) -> Any:
    """The data of the section, as the browser reads them."""
    (result,) = re.findall(r'<script type="application/json" id="examples-data">(.*?)</script>', text, re.DOTALL)
    return json.loads(result)


def test_a_page_without_examples_has_no_such_section() -> None:
    pytest.importorskip("altair")
    assert block(figures(None)) == "" and 'id="examples"' not in page(figures(None))


def test_a_page_of_paired_users_without_examples_says_how_to_get_them() -> None:
    pytest.importorskip("altair")
    steps = {"experiment_id": "b", "baseline": "a", "metric": "ap@10", "step": 1, "low": 0.0, "high": 1.0, "users": 9}
    shown = replace(figures(None), user_changes=[steps])
    assert "<code>rankmetrics report --examples 20</code> reads them from the log" in page(shown)
    assert "--examples 20" not in page(replace(shown, examples=examples()))


def test_a_section_without_changes_says_why() -> None:
    data = data_in(block(figures(Examples((), note="Each user has seen one experiment."))))
    assert (data["note"], data["changes"]) == ("Each user has seen one experiment.", [])


def test_the_lists_of_both_experiments_are_there_with_rank_item_and_relevance() -> None:
    data = data_in(block(figures(examples())))
    texts = data["texts"]
    assert (texts[data["baseline"]], data["total"]) == ("a", 2)
    read = [(texts[e], texts[u], before, after, kind) for _, e, u, before, after, _, kind in data["changes"]]
    assert read == [("b", "u", 1.0, 0.25, "loss"), ("b", HOSTILE, 0.0, 1.0, "gain")]
    lists = {
        tuple(texts[int(place)] for place in key.split()): [
            (rank, texts[item], grade, relevant) for rank, item, grade, relevant in result[0]["rows"]
        ]
        for key, result in data["lists"].items()
    }
    assert lists["a", "u"] == [(1, "X", 1.0, 1), (2, "y", 0.0, 0)]
    assert lists["b", "u"] == [(1, "y", 0.0, 0), (2, "X", 1.0, 1)]
    assert {result[0]["size"] for result in data["lists"].values()} == {40}


def test_a_name_that_looks_like_markup_stays_data() -> None:
    pytest.importorskip("altair")
    assert HOSTILE not in page(figures(examples()))


def test_the_section_is_about_queries_where_the_users_are_queries() -> None:
    assert "Users that lost and gained most" in block(figures(examples()))
    assert "Queries that lost and gained most" in block(figures(examples(of_queries=True)))


def test_a_section_that_is_too_large_loses_the_smaller_changes_and_says_so() -> None:
    users = [f"u{place:03d}" for place in range(40)]
    many = [change(user, 1.0, place / 100) for place, user in enumerate(users)]
    rows = [row for user in users for row in ranked(user, "a", 20 * "x")]
    lists = [row._replace(item=f"{row.user_id} {row.rank} " + 999 * "x") for row in rows]
    data = data_in(block(figures(Examples(many, len(many), lists))))
    assert 1 < len(data["changes"]) < 40 == data["total"]
    assert [data["texts"][row[2]] for row in data["changes"]] == users[: len(data["changes"])]


def test_missed_items_and_topics_are_of_their_user() -> None:
    missed = [("u", "M", 2.0, 7), ("v", "N", 1.0, 1)]
    topics = [change(user, 0.5, 0.5 + size)._replace(size=size) for user, size in (("v", -0.25), ("u", 0.5))]
    data = data_of(examples(missed=missed, topics=topics), 2)
    (only,) = data["missed"].items()
    assert (data["texts"][only[0]], only[1]["n"], data["texts"][only[1]["items"][0][0]]) == ("u", 7, "M")
    assert [(data["texts"][row[2]], row[5]) for row in data["topics"]] == [("v", -0.25), ("u", 0.5)]


# ---- the key of the config


def config(report: Any, source: dict[str, Any] | None = None) -> Config:
    judgements = {"format": "trec_qrels", "path": "qrels"}
    more = {"judgements": judgements} if source else {}
    return from_mapping({"source": source or {"path": "log"}, "report": report, "evaluation_date": "2026-11-20"} | more)


def test_a_report_is_a_file_or_a_section() -> None:
    assert config("r-{date}.html").report.file == "r-2026-11-20.html"
    request = config({"file": "r.html", "examples": 5}).report
    assert (request.file, request.examples) == ("r.html", 5)
    assert (config(None).report.file, config(None).report.examples) == (None, 0)


def test_people_are_no_examples_unless_asked_for_and_queries_are() -> None:
    assert config("r.html").report.examples == 0
    trec = {"format": "trec_run", "path": "runs"}
    assert config("r.html", trec).report.examples == 20
    assert config({"file": "r.html", "examples": 0}, trec).report.examples == 0


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_config_is_read_back_from_a_run_record(name: str) -> None:
    document = {**yaml.safe_load(example_text(name)), "evaluation_date": "2026-11-20"}
    stored = as_dict(from_mapping(document))
    assert as_dict(from_mapping(json.loads(json.dumps(stored)))) == stored


@pytest.mark.parametrize("report", [5, ["r.html"], {"file": "r.html", "exampels": 1}, {"examples": 101}])
@pytest.mark.outcome("a config with `report: {report}`", "exit 2: one sentence with the key")
def test_another_report_is_refused(report: Any) -> None:
    with pytest.raises(ConfigError, match=r"^report(\.ex\w+)?( is|:) .*(allowed|known): "):
        config(report)
