"""The files that four new users have, made from a seed, and the walks of their guides.

``python -m tests.helpers.first_hour`` times each command of each guide in a folder of its own, as a person types it.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from tests.helpers.commands import ROOT, command
from tests.helpers.readme import commands, section

WALK = "From your file to an answer"
"""The section of each guide whose commands are the walk."""
MOST_COMMANDS = 5
ANSWERS = {
    "guide-recommender": r"^bpr beats popularity on NDCG@10: 0\.\d+ → 0\.\d+, \+",
    "guide-search": r"^dense beats bm25 on NDCG@10: 0\.\d+ → 0\.\d+, \+",
    "guide-online-test": r"^treatment beats control on NDCG@10: 0\.\d+ → 0\.\d+, \+",
    "guide-platform": r"^treatment beats control on NDCG@10: 0\.\d+ → 0\.\d+, \+",
}
"""Guide -> the sentence that its walk prints; the files are made so that it is true."""


def page_of(guide: str) -> str:
    return (ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8")


def walk_of(guide: str) -> list[list[str]]:
    """The words of each command of a walk."""
    return commands("rankmetrics", section(WALK, page_of(guide)))


def recommender_files(folder: Path) -> None:
    """Recommendations of three models in one CSV file, and the ratings that were held out."""
    random = np.random.default_rng(1)
    shown, truth = [], []
    for user in range(400):
        liked = random.choice(200, 5, replace=False)
        truth += [(user, item, stars) for item, stars in zip(liked, random.integers(1, 6, 5), strict=True)]
        for model, hits in (("als", 0.14), ("bpr", 0.22), ("popularity", 0.07)):
            picks = np.where(random.random(20) < hits, random.choice(liked, 20), random.integers(0, 200, 20))
            items = list(dict.fromkeys(picks.tolist()))
            shown += [(model, user, item, round(1 - rank / 30, 4)) for rank, item in enumerate(items)]
    pd.DataFrame(shown, columns=["model", "userId", "movieId", "prediction"]).to_csv(folder / "recs.csv", index=False)
    pd.DataFrame(truth, columns=["userId", "movieId", "rating"]).to_csv(folder / "holdout.csv", index=False)


def search_files(folder: Path) -> None:
    """Two TREC runs in a folder, and their qrels: fifty topics with forty documents, fifteen of them with a grade."""
    random = np.random.default_rng(1)
    grades = random.integers(0, 4, (50, 15))
    lines = [f"{t + 301} 0 D{d} {grades[t, d] if d < 15 else 0}" for t in range(50) for d in range(40)]
    (folder / "qrels.txt").write_text("\n".join(lines) + "\n")
    (folder / "runs").mkdir()
    for tag, noise in (("bm25", 1.2), ("dense", 0.5)):
        run = []
        for topic in range(50):
            scores = (np.arange(40) < 15) + noise * random.normal(size=40)
            for rank, doc in enumerate(np.argsort(-scores)[:30], start=1):
                run.append(f"{topic + 301} Q0 D{doc} {rank} {scores[doc]:.4f} {tag}")
        (folder / "runs" / f"{tag}.run").write_text("\n".join(run) + "\n")


def online_files(folder: Path) -> None:
    """A log of two days in folders by day, with several requests per user; every second user has the treatment."""
    random = np.random.default_rng(1)
    for day in ("2026-11-19", "2026-11-20"):
        rows = []
        for user in range(600):
            arm, country = ("treatment" if user % 2 else "control"), ("DE", "FR", "US")[user % 3]
            for request in range(int(random.integers(1, 3))):
                clicked = random.random(10) < (0.2 if user % 2 else 0.12) / np.sqrt(np.arange(1, 11))
                key = f"{day}-{user}-{request}"
                rows += [
                    (arm, f"u{user}", key, f"i{item}", slot, bool(clicked[slot]), country)
                    for slot, item in enumerate(random.choice(1000, 10, replace=False))
                ]
        place = folder / "log" / f"dt={day}"
        place.mkdir(parents=True)
        names = ["ab_group", "visitor_id", "request_id", "sku", "slot", "clicked", "country"]
        pd.DataFrame(rows, columns=names).to_parquet(place / "part-0.parquet", index=False)


FILES: dict[str, Callable[[Path], None]] = {
    "guide-recommender": recommender_files,
    "guide-search": search_files,
    "guide-online-test": online_files,
    "guide-platform": online_files,
}
"""Guide -> what makes the files that its reader has."""


def main() -> int:
    """Time the walks; return 1 if one ends without its answer."""
    missing = 0
    for guide, make in FILES.items():
        with tempfile.TemporaryDirectory() as name:
            folder, answer, total = Path(name), "", 0.0
            make(folder)
            for words in walk_of(guide):
                start = time.monotonic()
                done = command(*words[1:], cwd=folder)
                seconds = time.monotonic() - start
                total += seconds
                result = re.search(ANSWERS[guide] + ".*$", done.stdout, re.MULTILINE)
                answer = result[0] if result else answer
                failed = f"  ends with {done.returncode}: {done.stderr[-500:]}" if done.returncode else ""
                print(f"{seconds:6.1f} s  {' '.join(words)}{failed}")
            print(f"{total:6.1f} s  {guide}: {answer or 'no answer'}\n")
            missing += not answer
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
