"""WikiQA: the published counts, and small files in both layouts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from imported import DATA, candidates_of, counts_of, labels_of, needs_data

from aptool.data.trec import read_qrels
from aptool.data.wikiqa import import_wikiqa
from aptool.errors import InputError

HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"
ROWS = [
    "Q1\thow are caves formed?\tD1\tCave\tD1-0\tA cave .\t0",
    'Q1\thow are caves formed?\tD1\tCave\tD1-1\t"Water" forms them .\t1',
    'Q2\twhat is "lime"?\tD2\tLime\tD2-0\t"Lime is an old word\t0',
    'Q2\twhat is "lime"?\tD2\tLime\tD2-1\tfor glue" .\t0',
]


def write_tsv(path, rows, header=HEADER):
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8", newline="\n")
    return str(path)


def texts_of(collection, split):
    return [text for pool in candidates_of(collection, split).values() for text in pool.values()]


@needs_data
@pytest.mark.parametrize(
    ("questions", "train", "dev"),
    [
        # Questions and pairs as in the README of the data set, and in table 1 of the paper.
        ("all", (2118, 20360, 1040), (296, 2733, 140)),
        ("answerable", (873, 8672, 1040), (126, 1130, 140)),
    ],
)
def test_published_counts(tmp_path, questions, train, dev):
    files = {split: f"{DATA}/wikiqa/WikiQA-{split}.tsv" for split in ("train", "dev")}
    collection = import_wikiqa(tmp_path / "wikiqa", files, questions=questions)
    counted = counts_of(collection)
    assert counted == {"train": train, "dev": dev}
    dropped = collection.manifest["policies"].get("questions_dropped_not_answerable", {"train": 0, "dev": 0})
    assert {split: counted[split][0] + dropped[split] for split in counted} == {"train": 2118, "dev": 296}


def test_quotation_marks_are_text(tmp_path):
    # A CSV reader would join rows 3 and 4, and remove their quotation marks.
    collection = import_wikiqa(tmp_path / "out", {"train": write_tsv(tmp_path / "a.tsv", ROWS)})
    assert texts_of(collection, "train") == [
        "A cave .",
        '"Water" forms them .',
        '"Lime is an old word',
        'for glue" .',
    ]
    assert collection.manifest["splits"]["train"] == {"questions": 2, "candidates": 4, "positives": 1}


def test_hub_parquet_has_the_same_pools_under_derived_ids(tmp_path):
    columns = ["question_id", "question", "document_title", "answer", "label"]
    cells = [row.split("\t") for row in ROWS]
    rows = [(r[0], r[1], r[3], r[5], int(r[6])) for r in cells]
    table = pa.table(dict(zip(columns, zip(*rows, strict=True), strict=True)))
    pq.write_table(table, tmp_path / "train-00000.parquet", row_group_size=3)
    from_hub = import_wikiqa(tmp_path / "hub", {"train": str(tmp_path / "train-00000.parquet")})
    from_tsv = import_wikiqa(tmp_path / "tsv", {"train": write_tsv(tmp_path / "a.tsv", ROWS)})
    assert from_hub.manifest["splits"] == from_tsv.manifest["splits"]
    assert texts_of(from_hub, "train") == texts_of(from_tsv, "train")
    qrels = read_qrels(from_hub.qrels_file("train")).rows()
    assert qrels == [("Q1", "Q1-0", 0), ("Q1", "Q1-1", 1), ("Q2", "Q2-0", 0), ("Q2", "Q2-1", 0)]


def test_parquet_parts_of_a_split(tmp_path):
    columns = ["question_id", "question", "document_title", "answer", "label"]
    for part, answer in enumerate(["no", "yes"]):
        values = [[value] for value in ("Q1", "why?", "Why", answer, part)]
        pq.write_table(pa.table(dict(zip(columns, values, strict=True))), tmp_path / f"{part}.parquet")
    for path in (f"{tmp_path}/*.parquet", str(tmp_path)):
        collection = import_wikiqa(tmp_path.parent / "out-of-parts", {"train": path})
        assert texts_of(collection, "train") == ["no", "yes"]


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (HEADER, [ROWS[0], ROWS[1][:-1] + "2"], "line 3: column 'Label': 2: expected 0 or 1"),
        (HEADER.replace("Sentence\t", "Sentences\t"), ROWS, "column 'Sentence': not found among"),
        (HEADER, [ROWS[0], ROWS[0][:-1] + "1"], "expected the label 0 that candidate 'D1-0'"),
        (HEADER, [ROWS[0], ROWS[0].replace("A cave", "The cave")], "the text that candidate 'D1-0'"),
        (HEADER, [ROWS[0].replace("Q1", "Q 1")], "line 2: column 'QuestionID': 'Q 1': expected an id"),
    ],
)
def test_errors_name_the_line(tmp_path, header, rows, message):
    path = write_tsv(tmp_path / "a.tsv", rows, header)
    with pytest.raises(InputError) as error:
        import_wikiqa(tmp_path / "out", {"train": path})
    assert str(error.value).startswith(path)
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer": ["yes", None]}, "row 1: column 'answer': None: expected a text"),
        ({"label": [0, 3]}, "row 1: column 'label': 3: expected 0 or 1"),
    ],
)
def test_wrong_parquet_files_are_refused(tmp_path, changes, message):
    columns = {"question_id": ["Q1", "Q1"], "question": ["why?"] * 2, "answer": ["a", "b"], "label": [0, 1]}
    columns = {name: values for name, values in {**columns, **changes}.items() if values is not None}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError) as error:
        import_wikiqa(tmp_path / "out", {"train": str(tmp_path / "a.parquet")})
    assert message in str(error.value)


def test_a_folder_with_the_published_names_needs_no_splits(aptool, tmp_path):
    header = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
    for split in ("train", "dev", "test"):
        (tmp_path / f"WikiQA-{split}.tsv").write_text(f"{header}Q1\twhy?\tD1\tWhy\tD1-0\t{split}\t1\n")
    finished = aptool("data", "import", "wikiqa", tmp_path, "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert labels_of(tmp_path / "out", "dev") == {"why?": {"dev": 1}}
    assert labels_of(tmp_path / "out", "test") == {"why?": {"test": 1}}
