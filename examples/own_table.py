"""Train on your tables and rank answers: ``python own_table.py train.csv dev.csv "May I change my plan?"``.

The tables have the columns question and answer, and may have label (1 relevant, 0 not). dev.csv selects the
best epoch. The candidates are all answers of train.csv. With the tables of examples/faq and "Do you accept
gifts of books?"::

    0.8622  We gladly accept gifts of books in good condition that are not older than five years, at most ...
    0.8312  Drinks in bottles that can be closed are allowed everywhere. Please eat in the café or in the ...
    ...
"""

import csv
import sys
from pathlib import Path

import aptool


def main(train: str, dev: str, question: str) -> None:
    """Train on the tables once, then rank the answers for the question."""
    if not Path("models/faq").is_dir():
        data = aptool.Collection.from_rows({"train": train, "dev": dev}, "data/faq", add_candidates="all")
        model = aptool.train(data, preset="qa-cnn", set={"training.epochs": 3})
        model.save("models/faq")

    with Path(train).open(newline="", encoding="utf-8") as file:
        answers = sorted({row["answer"] for row in csv.DictReader(file)})
    for index, score in aptool.load("models/faq").rank(question, answers)[:5]:
        print(f"{score:.4f}  {answers[index]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
