"""Tables with a question and its answer per row: answers of other questions as candidates, splits."""

import pytest
from imported import labels_of

import aptool

ROWS = [
    {"question": "How do I pay?", "answer": "By card."},
    {"question": "Where are you?", "answer": "At the old bridge."},
    {"question": "Is cash accepted?", "answer": "By  card."},  # the first answer, with another blank
    {"question": "Is cash accepted?", "answer": "No cash at the desk."},
]


def test_all_answers_of_a_split_are_candidates_and_equal_ones_are_relevant_for_each_question(tmp_path):
    aptool.Collection.from_rows({"dev": ROWS}, tmp_path / "faq", add_candidates="all")

    card, bridge, cash = "By card.", "At the old bridge.", "No cash at the desk."
    assert labels_of(tmp_path / "faq", "dev") == {
        "How do I pay?": {card: 1, bridge: 0, cash: 0},
        "Where are you?": {card: 0, bridge: 1, cash: 0},
        "Is cash accepted?": {card: 1, bridge: 0, cash: 1},
    }


def test_candidates_are_of_the_same_split(tmp_path):
    splits = {"train": ROWS[:2], "dev": ROWS[2:]}
    data = aptool.Collection.from_rows(splits, tmp_path / "faq", add_candidates="all")

    assert {split: set(data.pools(split).frame["answer"]) for split in splits} == {
        "train": {"By card.", "At the old bridge."},
        "dev": {"By  card.", "No cash at the desk."},
    }


def test_labels_of_a_labelled_table_are_kept(tmp_path):
    rows = [{**row, "label": label} for row, label in zip(ROWS, (1, 0, 0, 1), strict=True)]
    aptool.Collection.from_rows({"dev": rows}, tmp_path / "x", add_candidates="all")

    labels = labels_of(tmp_path / "x", "dev")
    assert labels["Where are you?"] == {"By card.": 0, "At the old bridge.": 0, "No cash at the desk.": 0}
    assert labels["Is cash accepted?"] == {"By card.": 0, "At the old bridge.": 0, "No cash at the desk.": 1}


def test_rows_of_a_divided_table_are_counted_in_the_split_of_their_question(tmp_path):
    rows = [{"question": f"Topic{i}", "answer": f"Answer {i}"} for i in range(6)]
    rows += [{"question": f"Topic{i}", "answer": " "} for i in range(6)]
    data = aptool.Collection.from_rows(rows, tmp_path / "x", add_candidates="all", split_ratio="1:1:1")

    manifest = data.manifest
    each_two = {"train": 2, "dev": 2, "test": 2}
    assert {split: counts["questions"] for split, counts in manifest["splits"].items()} == each_two
    assert manifest["policies"]["empty_candidates_dropped"] == each_two
    assert {counts["candidates"] for counts in manifest["details"]["read"].values()} == {4}


def test_answers_keep_the_ids_of_the_table(tmp_path):
    rows = [{**row, "doc": f"D{i}"} for i, row in enumerate(ROWS)]
    data = aptool.Collection.from_rows(
        rows, tmp_path / "x", columns={"answer_id": "doc"}, add_candidates="all"
    )

    assert data.qrels("train").to_dict()["train-Q2"] == {"D0": 1, "D1": 0, "D3": 1}


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {"add_candidates": "all", "columns": {"label": "right"}}, "column 'right': not found"),
        (
            [{**ROWS[0], "id": "D1"}, {**ROWS[1], "id": "D1"}],
            {"add_candidates": "all", "columns": {"answer_id": "id"}},
            "'At the old bridge.': expected the text that answer 'D1' has in another question",
        ),
        (
            [{**ROWS[0], "label": 1}, {**ROWS[0], "answer": "By  card.", "label": 0}],
            {"add_candidates": "all"},
            "'By  card.': expected one label, not 1 and 0",
        ),
        (
            ROWS,
            {"split_ratio": "80"},
            "--split-ratio '80': expected TRAIN:DEV or TRAIN:DEV:TEST, such as 80:10:10",
        ),
        ({"a": ROWS, "b": ROWS}, {"split_ratio": "8:2"}, "--split-ratio: expected one table, not a, b"),
        (ROWS[:1], {"split_ratio": "8:2", "add_candidates": "all"}, "1 question, near copies kept together"),
    ],
)
def test_wrong_options_and_rows_are_refused_before_anything_is_written(rows, options, message, tmp_path):
    with pytest.raises(aptool.AptoolError) as error:
        aptool.Collection.from_rows(rows, tmp_path / "x", **options)

    assert message in str(error.value)
    assert not (tmp_path / "x").exists()


def test_near_copies_are_in_one_split(tmp_path):
    topics = ("bill", "printer", "monitor", "leave", "access", "phone", "server", "licence", "mouse", "desk")
    rows = [
        {"question": f"{words} {topic}{mark}", "answer": f"See {topic}.", "label": 1}
        for topic in topics
        for words, mark in (("Where do I find the", "?"), ("Where do I find  the", ""))
    ]
    data = aptool.Collection.from_rows(rows, tmp_path / "x", split_ratio="60:20:20")

    questions = {split: data.pools(split).frame["question"].to_list() for split in data.splits}
    assert {split: len(found) for split, found in questions.items()} == {"train": 12, "dev": 4, "test": 4}
    found = [{question.rstrip("?").split()[-1] for question in found} for found in questions.values()]
    assert sum(map(len, found)) == len(topics)
