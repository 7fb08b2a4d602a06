"""`Collection.from_rows` with paths, dicts and data frames."""

import os
import subprocess
import sys
from pathlib import Path

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


def write_csv(path):
    path.write_text("question,answer,label\nwho?,me,1\nwho?,you,0\nwhy?,so,0\n")
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: ROWS,
        lambda folder: write_csv(folder / "a.csv"),
        lambda folder: str(write_csv(folder / "a.csv")),
        lambda folder: {"train": ROWS},
    ],
)
def test_every_kind_of_rows_gives_the_same_pools(make, tmp_path):
    data = aptool.Collection.from_rows(make(tmp_path), tmp_path / "out")

    assert data.splits == ["train"]
    assert data.pools("train").to_dict() == POOLS
    assert data.qrels("train").to_dict() == QRELS
    assert data.name == "out"


def test_options_have_the_effect_of_the_command(tmp_path):
    rows = [
        {"id": 7, "q": "who?", "text": "me", "grade": True},
        {"id": 7, "q": "who?", "text": "you", "grade": False},
        {"id": 8, "q": "who?", "text": "me", "grade": False},
    ]
    names = {"question": "q", "question_id": "id", "answer": "text", "label": "grade"}
    data = aptool.Collection.from_rows(rows, tmp_path / "out", questions="answerable", columns=names)

    assert data.qrels("train").to_dict() == {"7": {"7-0": 1, "7-1": 0}}


@pytest.mark.parametrize("missing", [None, "", float("nan")])
def test_rows_without_a_label_are_refused_or_dropped_and_counted(tmp_path, missing):
    rows = [*ROWS, {**ROWS[0], "answer": "unjudged", "label": missing}]

    with pytest.raises(aptool.AptoolError, match=r"row 3: column 'label': .*--unlabelled drop"):
        aptool.Collection.from_rows(rows, tmp_path / "out")
    data = aptool.Collection.from_rows(rows, tmp_path / "out", unlabelled="drop")

    assert data.pools("train").to_dict() == POOLS
    assert data.manifest["policies"]["rows_without_a_label_dropped"] == {"train": 1}
    assert data.manifest["details"]["read"]["train"]["candidates"] == len(rows)


def test_missing_values_of_a_frame_are_empty_candidates(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([*ROWS, {"question": "who?", "answer": None, "label": 0}])
    data = aptool.Collection.from_rows(frame, tmp_path / "out")
    assert data.pools("train").to_dict() == POOLS


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "rows of 'train': no row; expected at least one question"),
        (pl.scan_csv("nowhere.csv"), {}, "rows of 'train': .*expected a frame that polars reads"),
        ({}, {}, "rows: {}: expected"),
        (7, {}, "rows of 'train': 7: expected a path, a data frame, a list of dicts"),
        ([7], {}, "rows of 'train': row 0: 7: expected a dict"),
        ({"a b": ROWS}, {}, "split 'a b': expected a name"),
        ("rows.docx", {}, "rows.docx: unknown format; expected a name that ends in .csv"),
        (
            [{"question": "q", "answer": "a"}],
            {},
            "rows of 'train': column 'label': not found among 'question', ",
        ),
        ([{"question": "q", "answer": 7, "label": 1}], {}, "row 0: column 'answer': 7: expected a text"),
        ([*ROWS, {**ROWS[0], "label": 0}], {}, "row 3: column 'label': 0: expected the label 1"),
        (
            ROWS,
            {"columns": {"id": "x"}},
            "columns: 'id': expected one of question, answer, label, question_id",
        ),
        (ROWS, {"questions": "some"}, "questions policy 'some'"),
        (ROWS, {"unlabelled": "test"}, "--unlabelled 'test': expected refuse or drop"),
    ],
)
def test_error_is_one_line(tmp_path, rows, options, message):
    with pytest.raises(aptool.AptoolError, match=message) as error:
        aptool.Collection.from_rows(rows, tmp_path / "out", **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_temporary_folder_lives_until_python_exits():
    code = (
        "import aptool\n"
        f"pools = aptool.Collection.from_rows({ROWS!r}).pools('train')\n"
        "import gc; gc.collect()\n"
        "assert len(pools.to_dict()) == 2\n"
        "print(aptool.Collection.from_rows("
        f"{ROWS!r}).path)\n"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "error::ResourceWarning"}
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)

    assert finished.returncode == 0, finished.stderr
    assert not Path(finished.stdout.strip()).exists()
    assert "ResourceWarning" not in finished.stderr
