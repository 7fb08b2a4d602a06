"""Make every answer of a FAQ a candidate for every question: ``python3 candidates.py FAQ.csv LABELLED.csv``.

The input has the columns question and answer. The output has one row per question and candidate, and the
column label: 1 for the answers that the input has for the question, 0 for all others.
"""

import csv
import sys
from pathlib import Path


def main(source: str, target: str) -> None:
    """Write every pair of a question and an answer of ``source`` to ``target``."""
    relevant: dict[str, set[str]] = {}
    answers: dict[str, None] = {}  # in the order of the file, each once
    with Path(source).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            relevant.setdefault(row["question"], set()).add(row["answer"])
            answers[row["answer"]] = None
    with Path(target).open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["question", "answer", "label"])
        for question, right in relevant.items():
            table.writerows((question, text, int(text in right)) for text in answers)
    print(f"{target}: {len(relevant)} questions, {len(answers)} candidates per question")


if __name__ == "__main__":
    main(*sys.argv[1:])
