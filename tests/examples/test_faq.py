"""The data of examples/faq: counts as in its README, no leaks between splits."""

import csv
import re
from itertools import combinations
from pathlib import Path

import pytest

FAQ = Path(__file__).parents[2] / "examples" / "faq"
SPLITS = ("train", "dev", "test")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def faq() -> dict[str, list[dict[str, str]]]:
    return {split: rows_of(FAQ / f"{split}.csv") for split in SPLITS}


def words_of(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def test_the_counts_are_those_of_the_readme(faq):
    table = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \|$", (FAQ / "README.md").read_text("utf-8"), re.M)

    counted = [
        (split, str(len({row["answer"] for row in rows})), str(len(rows))) for split, rows in faq.items()
    ]
    assert table == counted


def test_each_answer_has_two_or_three_questions_in_a_single_split(faq):
    for rows in faq.values():
        answers = [row["answer"] for row in rows]
        assert {answers.count(text) for text in answers} == {2, 3}
    for first, second in combinations(faq.values(), 2):
        assert not {words_of(row["answer"]) for row in first} & {words_of(row["answer"]) for row in second}


def test_the_imported_splits_have_no_leaks(aptool, tmp_path):
    tables = [f"{split}={FAQ / split}.csv" for split in SPLITS]
    folder = tmp_path / "faq"
    aptool("data", "import", "table", *tables, "--add-candidates", "all", "--output", folder)

    checked = aptool("data", "check", folder, "--leaks")

    leaks = [line for line in checked.out if "near copy" in line]
    assert checked.code == 0
    assert len(leaks) == 3  # train and dev, train and test, dev and test
    assert all(line.count("(0 word for word)") == 2 for line in leaks)
    assert all(map(re.compile(r"^ *0 of \d+ questions .*, 0 of \d+ distinct relevant answers").search, leaks))
