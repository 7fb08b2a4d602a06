"""Long candidates with and without passages: ``python long_answers.py examples/faq``.

Each candidate is a page of ten answers of the FAQ, longer than the 200 tokens that the model reads. A page
is relevant if one of its answers is the answer to the question. The questions are those of training, so the
figures show what truncation loses, not how well the model ranks new questions::

    truncated  MAP 0.3496
    max        MAP 0.6728
    top2       MAP 0.6354
    mean       MAP 0.3877
"""

import csv
import sys
from pathlib import Path

import aptool

ANSWERS_PER_PAGE = 10


def read(path: Path) -> list[tuple[str, str]]:
    """Return (question, answer) of each row."""
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["question"], row["answer"]) for row in csv.DictReader(file)]


def collection(folder: Path) -> aptool.Collection:
    """Return a collection in which every answer of a split is a candidate for each of its questions."""
    rows = {}
    for split in ("train", "dev"):
        table = read(folder / f"{split}.csv")
        answers = list(dict.fromkeys(answer for _, answer in table))
        rows[split] = [
            {"question": question, "answer": answer, "label": int(answer == right)}
            for question, right in table
            for answer in answers
        ]
    return aptool.Collection.from_rows(rows, "data/faq-passages")


def main(folder: str) -> None:
    """Train on short answers, then rank pages of answers in four ways."""
    table = read(Path(folder) / "train.csv")
    answers = list(dict.fromkeys(answer for _, answer in table))
    pages = {
        f"page{first}": [answers[(first + k) % len(answers)] for k in range(ANSWERS_PER_PAGE)]
        for first in range(len(answers))
    }
    texts = {page: " ".join(of_page) for page, of_page in pages.items()}
    pools = aptool.Pools({f"q{i}": (question, texts) for i, (question, _) in enumerate(table)})
    qrels = aptool.Qrels(
        {
            f"q{i}": {page: int(answer in of_page) for page, of_page in pages.items()}
            for i, (_, answer) in enumerate(table)
        }
    )
    options = {"training.epochs": 15, "encoder.features": 100}
    model = aptool.train(collection(Path(folder)), preset="ap-cnn", seed=0, set=options)

    runs = {
        "truncated": model.run(pools),
        "max": model.run(pools, passages="40:20"),
        "top2": model.run(pools, passages="40:20", aggregate="top2"),
        "mean": model.run(pools, passages="40:20", aggregate="mean"),
    }
    for name, run in runs.items():
        print(f"{name:10} MAP {aptool.evaluate(qrels, run, ['MAP']).means['MAP']:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
