"""The same labels give the same judgements, whatever program wrote them and whatever format holds them."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from imported import labels_of

import aptool
from aptool.errors import InputError

EXPECTED = {"who?": {"me": 1, "you": 0, "both": 2}}
ANSWERS = list(EXPECTED["who?"])


def rows_with(labels):
    return [
        {"question": "who?", "answer": answer, "label": label}
        for answer, label in zip(ANSWERS, labels, strict=True)
    ]


@pytest.mark.parametrize(
    "labels",
    [
        ["1", " 0 ", "2.0"],
        ["1.00", "-0.0", "2.000000000000000000e+00"],
        [1.0, 0.0, 2.0],
        [Decimal("1.00"), Decimal(0), Decimal("2.0")],
        [True, False, 2],
        [np.float32(1), np.bool_(False), np.int8(2)],
    ],
)
def test_numbers_of_every_type(tmp_path, labels):
    aptool.Collection.from_rows({"dev": rows_with(labels)}, tmp_path / "out")
    assert labels_of(tmp_path / "out", "dev") == EXPECTED


@pytest.mark.parametrize("label", ["1.5", 1.5, Decimal("0.5"), float("inf"), "1e20", "1.0.0"])
def test_a_label_that_is_no_whole_number_is_refused(tmp_path, label):
    with pytest.raises(InputError, match=r"column 'label'.*expected a whole number"):
        aptool.Collection.from_rows({"dev": rows_with([label, 0, 1])}, tmp_path / "out")


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame])
def test_ids_that_are_floats_are_refused_with_the_way_out(tmp_path, frame):
    """pandas makes floats of whole numbers as soon as one is missing; a CSV file would have '1.0'."""
    rows = frame([{**row, "qid": 7.0} for row in rows_with([1, 0, 2])])
    with pytest.raises(InputError, match=r"column 'qid': 7.0: .*convert the column to integers or texts.* 7"):
        aptool.Collection.from_rows({"dev": rows}, tmp_path / "out", columns={"question_id": "qid"})
