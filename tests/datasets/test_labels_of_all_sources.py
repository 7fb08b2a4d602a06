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
from aptool.datasets.huggingface import import_huggingface
from aptool.datasets.import_options import ColumnNames, ImportPolicies
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


def test_relevant_labels_may_be_numbers_in_another_notation(tmp_path):
    aptool.Collection.from_rows({"dev": rows_with(["1.0", "0.0", "2.0"])}, tmp_path / "out", relevant=["2"])
    assert labels_of(tmp_path / "out", "dev") == {"who?": {"me": 0, "you": 0, "both": 1}}


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame])
def test_ids_that_are_floats_are_refused_with_the_way_out(tmp_path, frame):
    """pandas makes floats of whole numbers as soon as one is missing; a CSV file would have '1.0'."""
    rows = frame([{**row, "qid": 7.0} for row in rows_with([1, 0, 2])])
    with pytest.raises(InputError, match=r"column 'qid': 7.0: .*convert the column to integers or texts.* 7"):
        aptool.Collection.from_rows({"dev": rows}, tmp_path / "out", question_id="qid")


def hub_folder(folder, names, labels, *, in_card):
    """A data set of the hub whose labels are classes, named in the card or in the schema of the file."""
    table = pa.table({"question": ["who?"] * len(labels), "answer": ANSWERS[: len(labels)], "label": labels})
    card = ""
    if in_card:
        lines = [f"          '{number}': '{name}'" for number, name in enumerate(names)]
        head = ["---", "dataset_info:", "  features:", "  - name: label", "    dtype:", "      class_label:"]
        card = "\n".join([*head, "        names:", *lines, "---", ""])
    else:
        info = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(info)})
    (folder / "data").mkdir(parents=True)
    pq.write_table(table, folder / "data" / "validation-00000-of-00001.parquet")
    (folder / "README.md").write_text(card)
    return folder


def import_hub(folder, relevant=None):
    policies = ImportPolicies(relevant=relevant)
    import_huggingface(folder / "out", str(folder), ColumnNames(), name="mine", policies=policies)
    return list(labels_of(folder / "out", "dev")["who?"].values())


@pytest.mark.parametrize("in_card", [True, False])
@pytest.mark.parametrize(
    ("names", "grades"),
    [
        (["entailment", "not_entailment"], [1, 0]),
        (["not_entailment", "entailment"], [0, 1]),
        (["Correct", "Incorrect"], [1, 0]),
        (["pos", "neg"], [1, 0]),
        (["neg", "pos"], [0, 1]),
        (["True", "False"], [1, 0]),
        (["0", "1"], [0, 1]),
        (["1", "0"], [1, 0]),
        (["2", "0", "1"], [2, 0, 1]),
    ],
)
def test_names_of_classes_decide_relevance(tmp_path, names, grades, in_card):
    assert import_hub(hub_folder(tmp_path, names, list(range(len(names))), in_card=in_card)) == grades


@pytest.mark.parametrize("in_card", [True, False])
@pytest.mark.parametrize(
    ("names", "relevant", "grades"),
    [
        (["entailment", "neutral", "contradiction"], ("entailment",), [1, 0, 0]),
        (["A", "B"], ("A",), [1, 0]),
        (["notable", "common"], ("common",), [0, 1]),
        (["no", "not_sure"], ("not_sure",), [0, 1]),
        (["A", "B"], ("1",), [0, 1]),
    ],
)
def test_other_names_of_classes_are_asked_for(tmp_path, names, relevant, grades, in_card):
    folder = hub_folder(tmp_path, names, list(range(len(names))), in_card=in_card)
    with pytest.raises(InputError, match=f"column 'label'.*{names[0]!r}.*expected --relevant LABEL,LABEL"):
        import_hub(folder)
    assert import_hub(folder, relevant) == grades


def test_a_class_without_name_marks_a_split_without_labels(tmp_path):
    with pytest.raises(InputError, match="--unlabelled dev"):
        import_hub(hub_folder(tmp_path, ["no", "yes"], [-1, -1], in_card=False))


def test_lists_in_a_struct_are_a_list_of_candidates(tmp_path):
    """The hub stores a Sequence of dict, such as the passages of MS MARCO, as a dict of lists."""
    passages = {"is_selected": [0, 1], "passage_text": ["A river.", "Jane did."], "url": ["u1", "u2"]}
    rows = [{"query": "who?", "passages": passages}]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / "train-0.parquet")
    names = ColumnNames("query", "passage_text", "is_selected", candidates="passages")
    import_huggingface(tmp_path / "out", str(tmp_path / "in"), names, name="mine")
    assert labels_of(tmp_path / "out", "train") == {"who?": {"A river.": 0, "Jane did.": 1}}


def test_lists_of_unequal_length_in_a_struct_are_refused():
    rows = [{"question": "who?", "candidates": {"text": ["a", "b"], "label": [1]}}]
    with pytest.raises(InputError, match=r"column 'candidates'.*expected a list of candidates"):
        aptool.Collection.from_rows(rows)


@pytest.mark.parametrize("table", [pl.DataFrame, pl.LazyFrame, pd.DataFrame, pa.Table.from_pylist, list])
def test_a_dict_of_tables_has_the_tables_of_splits(tmp_path, table):
    rows = rows_with([1, 0, 2])
    collection = aptool.Collection.from_rows({"dev": table(rows), "test": table(rows)}, tmp_path / "out")
    assert collection.splits == ["dev", "test"]
    assert labels_of(tmp_path / "out", "dev") == EXPECTED
