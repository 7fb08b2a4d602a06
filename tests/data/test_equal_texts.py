"""Every importer stores the text of several questions once."""

import csv

import pytest
from imported import labels_of

import aptool

SPELLINGS = [
    "où est le café?",
    "ou\u0300 est le cafe\u0301?",
    " où est  le café? ",
    "où\u00a0est le\u200b café?",
]


@pytest.mark.parametrize("other", SPELLINGS[1:])
def test_a_question_in_two_spellings_is_one(aptool, tmp_path, other):
    """Blanks, canonical equivalence and invisible characters do not make another question."""
    rows = [(SPELLINGS[0], "ici", 1), (other, "là", 0), (other, "non", 0), ("où est Paris?", "ici", 1)]
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("question", "answer", "label"), *rows])
    finished = aptool("data", "import", "table", f"dev={path}", "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert "dev: other spellings of a question joined: 1" in finished.err
    assert labels_of(tmp_path / "out", "dev") == {
        SPELLINGS[0]: {"ici": 1, "là": 0, "non": 0},
        "où est Paris?": {"ici": 1},
    }


def test_questions_with_ids_stay_apart(tmp_path):
    rows = [{"id": str(n), "question": text, "answer": "ici", "label": 1} for n, text in enumerate(SPELLINGS)]
    aptool.Collection.from_rows({"dev": rows}, tmp_path / "out", columns={"question_id": "id"})
    assert set(labels_of(tmp_path / "out", "dev")) == set(SPELLINGS)


@pytest.mark.parametrize("copy", ["Jane did.", "Jane  did. ", "Jane\u00a0did."])
def test_equal_answers_with_two_labels_are_counted(aptool, tmp_path, copy):
    rows = [
        ("q1", "a1", "Jane did.", 1),
        ("q1", "a2", copy, 0),
        ("q2", "a1", "Jane did.", 1),
        ("q2", "a3", "No.", 0),
    ]
    path = tmp_path / "x.csv"
    with path.open("w", newline="") as file:
        lines = [(q, f"{q}?", a, text, label) for q, a, text, label in rows]
        csv.writer(file).writerows([("qid", "question", "aid", "answer", "label"), *lines])
    ids = ("--question-id", "qid", "--answer-id", "aid")
    imported = aptool("data", "import", "table", f"dev={path}", *ids, "--output", tmp_path / "out")
    checked = aptool("data", "check", tmp_path / "out")
    expected = (
        "dev: warning: 1 of 2 questions have one text as a relevant and as a non-relevant candidate, "
        "which no model can tell apart"
    )
    for command in (imported, checked):
        assert command.code == 0, command.err
        assert expected in command.err
