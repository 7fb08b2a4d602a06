"""`Collection.from_rows` with paths, dicts and data frames."""

import pandas as pd
import polars as pl
import pytest

import aptool

ROWS = [
    {"question": "who?", "answer": "me", "label": 1},
    {"question": "who?", "answer": "you", "label": 0},
    {"question": "why?", "answer": "so", "label": 0},
]
POOLS = {
    "train-Q0": ("who?", {"train-Q0-0": "me", "train-Q0-1": "you"}),
    "train-Q1": ("why?", {"train-Q1-0": "so"}),
}
QRELS = {"train-Q0": {"train-Q0-0": 1, "train-Q0-1": 0}, "train-Q1": {"train-Q1-0": 0}}


@pytest.mark.parametrize("form", ["rows", "frame", "path", "dict"])
def test_every_kind_of_rows_gives_the_same_pools(form, tmp_path):
    """A missing answer is an empty candidate, which is dropped."""
    rows = [*ROWS, {"question": "who?", "answer": None, "label": 0}]
    (tmp_path / "a.csv").write_text("question,answer,label\nwho?,me,1\nwho?,you,0\nwhy?,so,0\nwho?,,0\n")
    source = {"rows": rows, "frame": pd.DataFrame(rows), "path": tmp_path / "a.csv", "dict": {"train": rows}}

    data = aptool.Collection.from_rows(source[form], tmp_path / "out")

    assert data.splits == ["train"]
    assert data.pools("train").to_dict() == POOLS
    assert data.qrels("train").to_dict() == QRELS
    assert data.name == "out"


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_rows_without_a_label_are_refused_or_dropped_and_counted(tmp_path, missing):
    rows = [*ROWS, {**ROWS[0], "answer": "unjudged", "label": missing}]

    with pytest.raises(aptool.AptoolError, match=r"row 3: column 'label': .*--unlabelled drop"):
        aptool.Collection.from_rows(rows, tmp_path / "out")
    data = aptool.Collection.from_rows(rows, tmp_path / "out", unlabelled="drop")

    assert data.pools("train").to_dict() == POOLS
    assert data.manifest["policies"]["rows_without_a_label_dropped"] == {"train": 1}
    assert data.manifest["details"]["read"]["train"]["candidates"] == len(rows)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "rows of 'train': no row; expected at least one question"),
        (pl.scan_csv("nowhere.csv"), {}, "rows of 'train': .*expected a frame that polars reads"),
        ({}, {}, "rows: {}: expected"),
        (7, {}, "rows of 'train': 7: expected a path, a data frame, a list of dicts"),
        ([7], {}, "rows of 'train': row 0: 7: expected a dict"),
        ({"a b": ROWS}, {}, "split 'a b': expected a name"),
        (
            ROWS,
            {"columns": {"id": "x"}},
            "columns: 'id': expected one of question, answer, label, question_id",
        ),
        (ROWS, {"questions": "some"}, "questions: 'some': expected one of all, answerable, both-labels"),
        (ROWS, {"unlabelled": "test"}, "unlabelled: 'test': expected one of refuse, drop"),
    ],
)
def test_error_is_one_line(tmp_path, rows, options, message):
    with pytest.raises(aptool.AptoolError, match=message) as error:
        aptool.Collection.from_rows(rows, tmp_path / "out", **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()
