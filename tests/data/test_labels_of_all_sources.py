"""The same labels give the same judgements, whatever program wrote them and whatever format holds them."""

import csv
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
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
        ["1", "0", "2"],
        ["1.0", "0.0", "2.0"],
        [" 1 ", "-0.0", "2.00"],
        ["1.000000000000000000e+00", "0.000000000000000000e+00", "2.000000000000000000e+00"],
    ],
)
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_numbers_as_texts(tmp_path, kind, labels):
    path, rows = tmp_path / f"x.{kind}", rows_with(labels)
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    aptool.Collection.from_rows({"dev": path}, tmp_path / "out")
    assert labels_of(tmp_path / "out", "dev") == EXPECTED


@pytest.mark.parametrize(
    "labels",
    [
        [1, 0, 2],
        [1.0, 0.0, 2.0],
        [Decimal("1.00"), Decimal(0), Decimal("2.0")],
        [b"1", b"0", b"2.0"],
        [True, False, 2],
        [np.float32(1), np.bool_(False), np.int8(2)],
    ],
)
def test_numbers_of_other_types(tmp_path, labels):
    aptool.Collection.from_rows({"dev": rows_with(labels)}, tmp_path / "out")
    assert labels_of(tmp_path / "out", "dev") == EXPECTED


@pytest.mark.parametrize("kind", [pa.decimal128(3, 2), pa.float16(), pa.uint8(), pa.binary()])
def test_types_of_parquet(tmp_path, kind):
    values = [b"1", b"0", b"2"] if kind == pa.binary() else [1, 0, 2]
    if kind == pa.decimal128(3, 2):
        values = [Decimal(value) for value in values]
    if kind == pa.float16():
        values = [np.float16(value) for value in values]
    table = pa.table({"question": ["who?"] * 3, "answer": ANSWERS, "label": pa.array(values, kind)})
    pq.write_table(table, tmp_path / "x.parquet")
    aptool.Collection.from_rows({"dev": tmp_path / "x.parquet"}, tmp_path / "out")
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
