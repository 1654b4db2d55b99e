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
EXPECTED: dict[str, Any] = {n: e["means"] for n, e in json.loads((FIELD / "expected.json").read_text()).items()}
"""Shape -> experiment -> metric -> mean, by plain loops; null where there is no ranking."""
RIGHT = ""
WAYS: list[Any] = yaml.safe_load((FIELD / "ways.yaml").read_text(encoding="utf-8"))


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
        Path("ones.csv").write_text("".join(",".join([*r, "1" if at else "one"]) + "\n" for at, r in enumerate(rows)))
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
