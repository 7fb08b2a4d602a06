"""Tables: rows of CSV, TSV, JSON Lines and Parquet in files, folders and globs, and wrong ones."""

import csv
import gzip
import json
import pickle

import polars as pl
import pytest
from imported import labels_of, pools_of

import aptool
from aptool.data.collection import Collection
from aptool.data.trec import read_qrels
from aptool.errors import InputError

ROWS = [
    {"question": 'Who, "me"?', "answer": "You,\nor me", "label": 1},
    {"question": 'Who, "me"?', "answer": "Nobody", "label": 0},
    {"question": "Größe?", "answer": "XL 😀", "label": 2},
]
LABELS = {'Who, "me"?': {"You,\nor me": 1, "Nobody": 0}, "Größe?": {"XL 😀": 2}}
PLAIN = "question,answer,label\nWho?,Me,1\nWho?,You,0\n"


def write_rows(path, rows, form="csv"):
    """Write rows with the writer of Python or polars for the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif form == "parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def table(aptool, tmp_path):
    """Imports the text of one table as the split train."""

    def run(data, *options, name="a.csv"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return aptool("data", "import", "table", f"train={path}", "--output", tmp_path / "out", *options)

    return run


def refusal(finished):
    assert finished.code in (1, 2), finished.out
    assert len(finished.err) == 1
    return finished.err[0]


@pytest.mark.parametrize(
    ("name", "form"), [("a.csv", "csv"), ("a.csv.gz", "csv"), ("a.json", "jsonl"), ("A.PARQUET", "parquet")]
)
def test_each_format_gives_the_same_pools(tmp_path, name, form):
    """Ids may be whole numbers."""
    rows = [{**row, "qid": 7 + number // 2, "aid": number} for number, row in enumerate(ROWS)]
    path = write_rows(tmp_path / name, rows, form)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    ids = {"question_id": "qid", "answer_id": "aid"}
    data = aptool.Collection.from_rows({"dev": path}, tmp_path / "out", columns=ids)
    assert labels_of(tmp_path / "out", "dev") == LABELS
    assert data.qrels("dev").to_dict() == {"7": {"0": 1, "1": 0}, "8": {"2": 2}}


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_quotation_marks_in_a_table_with_tabs_are_text(table, tmp_path, name):
    data = '\ufeffquestion\tanswer\tlabel\r\n"Who?"\t"Me\t1\r\n\r\n'
    options = ("--separator", "\\t") if name == "a.csv" else ()
    assert table(data, *options, name=name).code == 0
    assert labels_of(tmp_path / "out", "train") == {'"Who?"': {'"Me': 1}}


def test_separator_and_encoding_are_options(table, tmp_path):
    data = 'Nr;question;answer;label\n1;Größe?;"für 5 €; mehr";1\n'.encode("cp1252")
    assert "line 2, byte 5: b'\\xf6': expected text in UTF-8 (or --encoding" in refusal(table(data))
    assert table(data, "--separator", ";", "--encoding", "cp1252").code == 0
    assert labels_of(tmp_path / "out", "train") == {"Größe?": {"für 5 €; mehr": 1}}
    for options in (("--encoding", "no-such"), ("--encoding", "hex"), ("--separator", "::")):
        assert f"{options[0]} {options[1]!r}: expected" in refusal(table(data, *options))


@pytest.mark.parametrize(
    "other", ["ou\u0300 est le cafe\u0301?", " où est  le café? ", "où\u00a0est le\u200b café?"]
)
def test_a_question_in_two_spellings_is_one_without_ids(table, tmp_path, other):
    """Blanks, canonical equivalence and invisible characters do not make another question."""
    data = f"n,question,answer,label\n1,où est le café?,ici,1\n2,{other},là,0\n3,où est Paris?,ici,1\n"
    finished = table(data)
    assert "train: other spellings of a question joined: 1" in finished.err
    joined = {"où est le café?": {"ici": 1, "là": 0}, "où est Paris?": {"ici": 1}}
    assert labels_of(tmp_path / "out", "train") == joined
    assert table(data, "--question-id", "n", "--overwrite").code == 0
    assert len(labels_of(tmp_path / "out", "train")) == 3


@pytest.mark.parametrize("source", ["rows/", "rows/part*"])
def test_a_folder_of_spark_and_a_glob_are_one_table(tmp_path, source):
    """Spark writes part files, a mark of success, and hidden checksums."""
    for number, row in enumerate(ROWS):
        write_rows(tmp_path / "rows" / f"part-0000{number}.parquet", [row], "parquet")
        (tmp_path / "rows" / f".part-0000{number}.parquet.crc").touch()
    (tmp_path / "rows" / "_SUCCESS").touch()
    aptool.Collection.from_rows({"dev": f"{tmp_path}/{source}"}, tmp_path / "out")
    assert labels_of(tmp_path / "out", "dev") == LABELS
    with pytest.raises(InputError, match=r"none\*\.csv: .*expected a file, a glob that matches files"):
        aptool.Collection.from_rows({"dev": str(tmp_path / "none*.csv")}, tmp_path / "out")


def test_partitions_of_a_folder_are_splits(aptool, tmp_path):
    """DuckDB and Spark write a folder split=NAME per value of the column split."""
    for split in ("train", "test"):
        write_rows(tmp_path / "rows" / f"split={split}" / "data_0.parquet", ROWS, "parquet")
    command = ("data", "import", "table", tmp_path / "rows", "--output", tmp_path / "out")
    assert aptool(*command).code == 0
    assert Collection(tmp_path / "out").splits == ["test", "train"]
    assert labels_of(tmp_path / "out", "train") == labels_of(tmp_path / "out", "test") == LABELS
    (tmp_path / "rows" / "more.parquet").touch()
    assert "more.parquet: a file of no split; expected a file in a folder split=NAME" in refusal(
        aptool(*command)
    )


def test_a_file_of_another_format_in_a_folder_is_refused(aptool, tmp_path):
    write_rows(tmp_path / "rows" / "a.csv", ROWS)
    (tmp_path / "rows" / "b.xml").write_text("<a/>")
    command = ("data", "import", "table", f"dev={tmp_path / 'rows'}", "--output", tmp_path / "out")
    assert (
        f"{tmp_path / 'rows' / 'b.xml'}: unknown format; expected a name that ends in .csv, .tsv"
        in refusal(aptool(*command))
    )
    for name in ("a.csv", "b.xml"):
        (tmp_path / "rows" / name).unlink()
    assert "rows: a folder without a table; expected files that end in" in refusal(aptool(*command))


def test_the_error_of_a_row_in_a_folder_names_its_file(tmp_path):
    write_rows(tmp_path / "rows" / "a.parquet", ROWS, "parquet")
    write_rows(tmp_path / "rows" / "b.parquet", [{**ROWS[1], "label": 7.5}], "parquet")
    with pytest.raises(InputError, match=r"rows/b\.parquet: row 0: column 'label': 7\.5: expected a whole"):
        aptool.Collection.from_rows({"dev": str(tmp_path / "rows")}, tmp_path / "out")


def test_questions_without_ids_are_identified_by_their_text(table, tmp_path):
    assert table("label,question,answer\n1,who?,me\n0,why?,yes\n0,who?,yes\n1,who?,me\n").code == 0
    collection = Collection(tmp_path / "out")
    assert pools_of(collection) == [
        ("train-Q0", "who?", [("train-Q0-0", "me"), ("train-Q0-1", "yes")]),
        ("train-Q1", "why?", [("train-Q1-0", "yes")]),
    ]
    assert read_qrels(collection.qrels_file("train"))["relevance"].to_list() == [1, 0, 0]
    assert collection.manifest["policies"]["duplicate_candidates_dropped"] == {"train": 1}
    assert collection.manifest["details"]["read"]["train"] == {"questions": 2, "candidates": 4}


def test_empty_candidates_are_dropped_and_counted(table, tmp_path):
    finished = table("question,answer,label\nWho?,Me,1\nWho?, ,0\nWhy?,,\n")
    assert finished.code == 0, finished.err
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 1}}
    assert "train: empty candidates dropped: 2" in finished.err
    policies = Collection(tmp_path / "out").manifest["policies"]
    assert policies["questions_without_candidates_dropped"] == {"train": 1}


HEADER = "question\tanswer\tlabel"


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (
            ["question\tanswers\tlabel", "who?\tme\t1"],
            (),
            "column 'answer': not found among 'question', 'answers', 'label'; expected this column, "
            "or --answer NAME",
        ),
        (
            ["question\tanswer\tanswer\tlabel"],
            (),
            "column 'answer': 2 columns of this name; expected one",
        ),
        ([], (), "no line; expected a header line"),
        ([HEADER], (), "no row; expected at least one question"),
        (
            [HEADER, "who?\tme"],
            (),
            "line 2: 2 columns; expected 3 as in the header (question, answer, label)",
        ),
        (
            [HEADER, "who?\tme\t"],
            (),
            "line 2: column 'label': no value; expected a whole number (--unlabelled drop leaves such rows",
        ),
        (["question\tanswer", "who?\tme"], (), "or --label NAME, or --add-candidates all if each row is"),
        ([HEADER, "\tme\t1"], (), "line 2: column 'question': '': expected a text"),
        (
            [HEADER, "who?\tme\t1", "why?\tme\t1", "who?\tme\t0"],
            (),
            "line 4: column 'label': 0: expected the label 1 that candidate 'train-Q0-0' of this question "
            "has in line 2",
        ),
        ([HEADER, "who?\tme\t1", "", "why?\tme\t1"], (), "line 3: '': expected a row; only the end may be"),
        ([f"id\t{HEADER}", "a b\twho?\tme\t1"], ("--question-id", "id"), "line 2: column 'id': 'a b'"),
        (
            [f"id\t{HEADER}", "1\twho?\tme\t1", "1\twhy?\tme\t1"],
            ("--question-id", "id"),
            "line 3: column 'question': 'why?': expected the text that question '1' has in line 2",
        ),
    ],
)
def test_wrong_tables_are_refused(table, tmp_path, lines, options, message):
    error = refusal(table("".join(f"{line}\n" for line in lines), *options, name="a.tsv"))
    assert error.startswith(f"aptool: {tmp_path / 'a.tsv'}: ")
    assert message in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        # The unclosed quotation mark would make one field of all following lines.
        (["question,answer,label", 'who?,"me,1', "why?,no,0"], "line 2: unexpected end of data; "),
        (["question,answer,label", 'who?,"me"s,1'], "line 2: ',' expected after"),
        (["question,answer,label", '"a\nb",me,1', "why?,no,x"], "line 4: column 'label': 'x'"),
    ],
)
def test_wrong_quotation_marks_are_refused(table, lines, message):
    assert message in refusal(table("\n".join(lines)))


GOOD = '{"question": "who?", "answer": "me", "label": 1}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: Expecting property name enclosed in double quotes at character 2; "),
        ("[1]", "line 2: [1]: expected one JSON object per line"),
        (GOOD + GOOD, "line 2: Extra data"),
        (GOOD.replace("who?", "\\ud800"), "can't encode character '\\ud800'"),
        (GOOD.replace("who?", "\\u0000"), "column 'question': '\\x00': expected a text without NUL"),
        (GOOD.replace('"who?"', "7"), "line 2: column 'question': 7: expected a text"),
        (GOOD.replace("1}", "NaN}"), "line 2: NaN is not JSON; "),
        (GOOD.replace("1}", '1, "label": 0}'), "line 2: an object with the same key twice; "),
        ("[" * 100_000, "line 2: "),
    ],
)
def test_wrong_json_lines_are_refused(table, tmp_path, line, message):
    error = refusal(table(f"{GOOD}\n{line}\n", name="a.jsonl"))
    assert error.startswith(f"aptool: {tmp_path / 'a.jsonl'}: ")
    assert message in error


def test_device_is_refused_before_it_is_read(aptool, tmp_path):
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    path = tmp_path / "zero.csv"
    for kind in ("table", "wikiqa"):
        finished = aptool("data", "import", kind, f"train={path}", "--output", tmp_path / "out")
        assert refusal(finished) == f"aptool: {path}: a device; expected a file"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"PK\x03\x04\x14\0\x06\0", "an Excel workbook or a ZIP archive; expected text, such as the sheet"),
        (b"PAR1\x15\0", "a Parquet file; expected text"),
        (pickle.dumps(ROWS), "a Python pickle; expected text"),
    ],
)
def test_formats_that_are_not_text_are_named(table, data, name):
    assert name in refusal(table(data))


def test_a_table_without_a_split_is_refused_with_the_option_that_splits_it(aptool, tmp_path):
    (tmp_path / "a.csv").write_text(PLAIN)
    message = refusal(aptool("data", "import", "table", tmp_path / "a.csv", "--output", tmp_path / "out"))
    assert message.endswith("a.csv, or --split-ratio 80:10:10 to split one table")
