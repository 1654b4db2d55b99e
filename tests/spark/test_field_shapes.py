"""Files as people of the field have them: each comes in right or is refused in one sentence, never wrong in silence."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.commands import Call

FIELD = Path(__file__).parent / "field"
EXPECTED: dict[str, Any] = {
    name: each["means"] for name, each in json.loads((FIELD / "expected.json").read_text()).items()
}
"""Shape -> experiment -> metric -> mean, by plain loops; null where there is no ranking."""
RIGHT = ""
RUNS, TABS = {"format": "trec_run", "path": "runs"}, {"sep": "\t"}
FIRST, CLICKS = (
    "its first line holds values ",
    "column 'request_id', which tells lists apart, so they look like the clicks",
)


def config(source: dict[str, Any], judgements: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"source": source, **({"judgements": judgements} if judgements else {}), **more}


def log(path: object, experiment: str | None = "", **columns: str | None) -> dict[str, Any]:
    return {"path": path, "columns": {**({} if experiment == "" else {"experiment": experiment}), **columns}}


def table(path: str, user: str, item: str, relevance: str, **options: Any) -> dict[str, Any]:
    columns = {"user": user, "item": item, "relevance": relevance}
    return {"path": path, "format": "csv", "options": {**TABS, **options}, "columns": columns}


RATED, SHOWN = log("recs.csv", "model", position="rank"), log("log", "variant", relevance="clicked") | {"format": "csv"}
IMPRESSIONS = log("impressions.csv", "variant", relevance=None)
JSON_RUNS = {"path": ["run_bm25.json", "run_dense.json"], "experiment_from": "file"}
FROM_3 = {"convention": {"relevant_from": 3}}
WAYS: list[Any] = [
    ("beir", ["runs", "--judgements", "qrels/test.tsv"], RIGHT),
    ("beir", config(RUNS, {"path": "qrels/test.tsv"}), "unknown column 'user'; did you mean 'query-id'"),
    ("beir_jsonl", ["runs", "--judgements", "qrels.jsonl"], RIGHT),
    ("trec_named_tsv", ["runs", "--judgements", "qrels.tsv"], RIGHT),
    ("trec_named_tsv", config(RUNS, {"path": "qrels.tsv"}), "its lines are those of TREC; allowed: format: trec_qrels"),
    ("trec_named_tsv", config(RUNS, table("qrels.tsv", "1001", "50037", "1")), "its lines are those of TREC"),
    ("trec_named_tsv", config(RUNS, table("qrels.tsv", "_c0", "_c2", "_c3", header=False)), RIGHT),
    ("bom_crlf", ["runs", "--judgements", "qrels.txt"], RIGHT),
    ("comment_and_header", ["runs", "--judgements", "qrels.txt"], RIGHT),
    ("comment_and_header", config(RUNS, {"format": "trec_qrels", "path": "qrels.txt"}), "60 of 120 rows are faulty"),
    ("u_data", ["recs.csv", "--judgements", "u.data", "--relevant-from", "3"], RIGHT),
    ("u_data", ["recs.csv", "--judgements", "u.data"], "so every rated item would be a hit; allowed: --relevant-from"),
    ("u_data", config(RATED, {"format": "trec_qrels", "path": "u.data"}, **FROM_3),
                 "it holds user, item, rating and time in each line, which are no qrels of TREC"),
    ("u_data", config(RATED, table("u.data", "1001", "50037", "3"), **FROM_3), FIRST),
    ("u_data", config(RATED, table("u.data", "_c0", "_c1", "_c2", header=False), **FROM_3), RIGHT),
    ("ratings_dat", ["recs.csv", "--judgements", "ratings.dat", "--relevant-from", "3"], RIGHT),
    ("ratings_dat", config(RATED, {"format": "trec_qrels", "path": "ratings.dat"}), 'options: {sep: "::", header'),
    ("recbole", ["recs.inter", "--judgements", "test.inter"], RIGHT),
    ("dict_json", ["run_*.json", "--judgements", "qrels.json"], RIGHT),
    ("dict_json", config(JSON_RUNS, {"path": "qrels.json"}, rank_by="score"), "allowed: format: json_document for one"),
    ("dict_json", config({"path": "qrels.json", "format": "letor", "options": {"rows": "run_bm25.json"}}),
     "row 1 is '{'; allowed: grade qid:QUERY features # DOCUMENT"),
    ("dict_json", config({"path": "no.json", "format": "json_document"}), "no such file"),
    ("msmarco", ["runs", "--judgements", "qrels.dev.tsv"], RIGHT),
    ("msmarco", config({**log("runs", user="1001", item="50005", position="1"), "format": "csv",
                        "options": TABS, "experiment_from": "file"},
                       {"format": "trec_qrels", "path": "qrels.dev.tsv"}), FIRST),
    ("msmarco", config({**log("runs/*.tsv", user="_c0", item="_c1", position="_c2"), "options": {"header": False},
                        "experiment_from": "file"}, {"format": "trec_qrels", "path": "qrels.dev.tsv"}), RIGHT),
    ("letor", ["test.txt"], RIGHT),
    ("letor", ["bm25.predictions", "--judgements", "test.txt"], RIGHT),
    ("letor", ["bm25.predictions"], "it holds a number per line, and no rows that they are for"),
    ("letor", config({"path": "bm25.predictions", "format": "letor"}), "source.options.rows is missing"),
    ("letor", config({"path": "test.txt", "format": "csv", "columns": {"user": "_c0"}}, rank_by="score"), "SVMlight"),
    ("arrays_jsonl", ["served.jsonl"], RIGHT),
    ("arrays_jsonl", config(log("served.jsonl", "model", item="items", relevance="clicked")), RIGHT),
    ("structs_jsonl", ["served.jsonl"], RIGHT),
    ("structs_jsonl", config(log("served.jsonl", "variant", items="results", item="id", relevance="clicked")), RIGHT),
    ("cells_csv", ["submissions", "--judgements", "solution.csv"], RIGHT),
    ("behaviors_tsv", ["behaviors.tsv", "--column", "user=_c1"], RIGHT),
    ("clicks_apart", ["impressions.csv", "--events", "clicks.csv"], RIGHT),
    ("events_one_table", ["events.csv"], RIGHT),
    ("ubi", ["ubi_queries.ndjson", "--events", "ubi_events.ndjson"], RIGHT),
    ("cells_csv", config({**log("submissions/*.csv", user="customer_id", items="prediction"), "packed": {},
                          "experiment_from": "file"},
                         {**log("solution.csv", user="customer_id", items="article_ids"), "packed": {}}), RIGHT),
    ("behaviors_tsv", config({**log("behaviors.tsv", None, user="_c1", items="_c4"), "options": {"header": False},
                              "packed": {"parts": ["item", "relevance"], "between": "-"}}), RIGHT),
    ("behaviors_tsv", ["behaviors.tsv"], FIRST),
    ("behaviors_tsv", config({"path": "behaviors.tsv"}), FIRST),
    ("clicks_apart", ["impressions.csv", "--judgements", "clicks.csv"], CLICKS),
    ("clicks_apart", ["impressions.csv", "--judgements", "ones.csv", "--column", "judgements.relevance=one"], CLICKS),
    ("clicks_apart", config(IMPRESSIONS, log("ones.csv", relevance="one")), CLICKS),
    ("clicks_apart", config(IMPRESSIONS | {"list": "request_id"}, log("ones.jsonl", relevance="one")), CLICKS),
    ("events_one_table", ["events.csv", "--column", "relevance=event"], "holds impression, click; a relevance is"),
    ("events_one_table", config({**log("events.csv", "variant", relevance=None), "where": "event = 'impression'"},
                                {**log("events.csv", relevance="position"), "where": "event = 'click'"}), CLICKS),
    ("ubi", ["ubi_queries.ndjson", "--judgements", "ubi_events.ndjson"], "looks like the item or the relevance"),
    ("clicks_apart", config({**log("impressions.csv", "variant"), "list": "request_id"},
                            events={"path": "clicks.csv", "columns": {"list": "request_id"}}), RIGHT),
    ("events_one_table", config({**log("events.csv", "variant", time="ts"), "list": "request_id",
                                 "rows": {"column": "event", "shown": "impression"}},
                                events={"columns": {"list": "request_id", "time": "ts"}, "grades": {"click": 1}}),
     RIGHT),
    ("ubi", config({**log("ubi_queries.ndjson", "application", user="client_id", item="query_response_hit_ids",
                          time="timestamp"), "list": "query_id"},
                   events={"path": "ubi_events.ndjson", "grades": {"click": 1}, "within": "1d",
                           "columns": {"list": "query_id", "user": "client_id", "kind": "action_name",
                                       "item": "event_attributes.object.object_id", "time": "timestamp"}}), RIGHT),
    ("search_log", ["train.csv"], RIGHT),
    ("compact_dates", ["log"], RIGHT),
    ("compact_dates", ["ymd"], RIGHT),
    ("compact_dates", config(SHOWN | {"where": "dt = '{date}'"}),
     "cannot filter by | the input is empty: no rows in "),  # the second one without ANSI mode, before Spark 4
    ("numbered_models", ["model*.csv"], RIGHT),
    ("numbered_models", ["."], RIGHT),
    ("numbered_models", ["folds"], "holds pop_fold0, pop_fold1, which look like folds of one experiment, or are"),
    ("numbered_models", ["model*.csv", "--judgements", "model2.csv"], "holds the judgements '"),
    ("nameless_index", ["log.csv"], RIGHT),
    *(("nameless_index", config(log("log.csv", "variant", item=name, relevance="clicked")), f"'{name}'; known: variant")
      for name in ("Unnamed: 0", "_c0")),
    ("stars", ["recs.csv"], "every value of 'stars' is above 0 (1, 2, 3, 4), so every rated item would be a hit"),
    ("stars", ["recs.csv", "--relevant-from", "4"], RIGHT),
    ("features_only", ["features.csv"], "or --column score=NAME; without either there is no ranking to evaluate"),
    ("features_only", config({"path": "features.csv", "columns": {"experiment": None, "user": "qid", "item": "doc_id",
                                                                   "relevance": "grade"}}),
     "without a rank or a score there is no ranking to "),
]  # fmt: skip


def placed(folder: Path, way: Any, is_file: bool = False) -> Any:
    """The same with the paths of its files in a folder."""
    if isinstance(way, dict):
        return {name: placed(folder, each, name == "path") for name, each in way.items()}
    if isinstance(way, list):
        return [placed(folder, each, is_file or each == "." or any(folder.glob(each))) for each in way]
    return str(folder / way) if is_file else way


def test_every_shape_is_tried() -> None:
    assert {way[0] for way in WAYS} == {*EXPECTED}


QUICK = ("beir", "dict_json", "letor", "msmarco", "ratings_dat", "stars")
BOTH = [
    ["ymd"],
    ["run_*.json", "--judgements", "qrels.json"],
    ["recs.csv", "--judgements", "ratings.dat", "--relevant-from", "3"],
]
"""What `make test` evaluates, and what it evaluates on both engines; of other shapes it looks at what is refused."""


@pytest.mark.parametrize(
    ("shape", "way", "said"),
    [pytest.param(*way, marks=pytest.mark.both_engines if way[1] in BOTH else [pytest.mark.slow] * (
        not way[2] and way[0] not in QUICK)) for way in WAYS],
)  # fmt: skip
def test_a_file_of_the_field_comes_in_right_or_is_refused(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str, way: Any, said: str
) -> None:
    shutil.copytree(FIELD / shape, tmp_path / "in")
    monkeypatch.chdir(tmp_path / "in")
    if shape == "compact_dates":
        for day in ("19", "20"):
            shutil.copytree(f"log/dt=202611{day}", f"ymd/year=2026/month=11/day={day}")
    if way == ["folds"]:
        Path("folds").mkdir()
        for at in (0, 1):
            shutil.copy("model1.csv", f"folds/pop_fold{at}.csv")
    if shape == "clicks_apart":  # as people make them judgements
        rows = [line.split(",") for line in Path("clicks.csv").read_text().splitlines()]
        Path("ones.csv").write_text(
            "".join(",".join([*row, "1" if at else "one"]) + "\n" for at, row in enumerate(rows))
        )
        ones = (json.dumps(dict(zip(rows[0], row, strict=True)) | {"one": 1}) for row in rows[1:])
        Path("ones.jsonl").write_text("\n".join(ones))
    way = placed(tmp_path / "in", way)  # a JVM has a folder of its own
    file, date = tmp_path / "c.yaml", "2026-11-20"
    code, err = 0, ""
    if isinstance(way, list):
        code, _, err = call("init", *way, "-o", file)
        assert "--date" not in err or f"--date {date}" in err
    else:
        file.write_text(yaml.safe_dump(way))
    if code == 0:
        of_all = next(iter((EXPECTED[shape] or {"": {}}).values()))
        settings = [f"metrics={','.join(of_all) or 'ap@5'}", *["convention.gain=linear"] * ("ndcg@5" in of_all)]
        changes = [word for setting in settings for word in ("--set", setting)]
        where = ("--date", date, "--output", tmp_path / "out", "--format", "json")
        code, out, err = call("evaluate", "--config", file, *changes, *where)
    if said:
        assert code in (2, 3, 4), (code, err)
        (sentence,) = re.findall(r"^rankmetrics: (.*)$", err, re.MULTILINE)
        assert any(part in sentence for part in said.split("| "))
        return
    assert code == 0, err
    means: dict[str, dict[str, Any]] = {}
    for row in json.loads(out)["means"]:
        means.setdefault(row["experiment_id"], {})[row["metric"]] = pytest.approx(row["mean"], rel=0, abs=1e-12)
    assert means == EXPECTED[shape]
