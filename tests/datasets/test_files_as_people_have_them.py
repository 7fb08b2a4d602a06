"""Files as spreadsheets and forums export them: imported at once, or with the option that the error names.

The fixture `imported` runs the command, and runs it again with the option that the error names.
"""

import bz2
import gzip
import json
import lzma
import pickle
import re

import pytest
from imported import labels_of

import aptool

OPTION = re.compile(r"--[a-z]+(?: [^\s;)]+)?")


@pytest.fixture
def imported(aptool, tmp_path):
    def run(kind, data, *, split="train", option=None, values=None):
        """The questions of a split with their candidates and labels.

        Args:
            kind: the format.
            data: bytes of the file.
            split: its split.
            option: option that the error of the first run names; None: the first run succeeds.
            values: value of the option; None: the value in the error.
        """
        path = tmp_path / f"data.{kind}"
        path.write_bytes(data)
        command = ("data", "import", kind, f"{split}={path}", "--output", tmp_path / "out")
        finished = aptool(*command)
        if option is not None:
            assert finished.code == 1
            assert len(finished.err) == 1
            assert not (tmp_path / "out").exists()
            named = [match.split() for match in OPTION.findall(finished.err[0])]
            chosen = next(words for words in named if words[0] == option)
            finished = aptool(*command, *(chosen if values is None else [option, values]))
        assert finished.code == 0, finished.err
        return labels_of(tmp_path / "out", split)

    return run


def test_csv_with_quotes_and_a_byte_order_mark(imported):
    """As a spreadsheet saves it: Windows line ends, doubled quotation marks, a line break in a field."""
    rows = (
        "question,answer,label",
        '"What is ""AP"", then?","A measure,\nby rank",1',
        'Why?,"No, it is",0',
        "",
    )
    data = ("\ufeff" + "\n".join(rows)).replace("\n", "\r\n").encode()
    assert imported("csv", data) == {
        'What is "AP", then?': {"A measure,\nby rank": 1},
        "Why?": {"No, it is": 0},
    }


def test_labels_in_words(imported):
    rows = (
        "q\tanswer\tlabel",
        "Visa?\tYes.\tGood",
        "Visa?\tAsk them.\tPotentiallyUseful",
        "Visa?\tLol.\tBad",
    )
    data = "\n".join(rows).replace("q\t", "question\t", 1).encode()
    labels = imported("tsv", data, option="--relevant", values="Good,PotentiallyUseful")
    assert labels == {"Visa?": {"Yes.": 1, "Ask them.": 1, "Lol.": 0}}


def test_indented_json_with_an_object_at_the_top(imported):
    faq = {
        "version": "1.0",
        "tags": [{"name": "money"}],
        "data": {
            "items": [
                {
                    "question": "What is a deductible?",
                    "candidates": [{"text": "Your own share.", "label": 1}, {"text": "A bill.", "label": 0}],
                },
                {"question": "When do I pay?", "candidates": ["On the first.", "Never."], "relevant": [0]},
            ]
        },
    }
    data = json.dumps(faq, indent=2).encode()
    assert imported("jsonl", data, option="--field") == {
        "What is a deductible?": {"Your own share.": 1, "A bill.": 0},
        "When do I pay?": {"On the first.": 1, "Never.": 0},
    }


@pytest.mark.parametrize("labels", [("1", "0", "1"), ("true", "false", "true")])
def test_a_table_without_a_header_line(imported, labels):
    rows = (("How far?", "Ten miles by road"), ("How far?", "Yes"), ("Which way do I go?", "Left"))
    data = "".join(f"{q}\t{a}\t{label}\n" for (q, a), label in zip(rows, labels, strict=True)).encode()
    assert imported("tsv", data, option="--columns") == {
        "How far?": {"Ten miles by road": 1, "Yes": 0},
        "Which way do I go?": {"Left": 1},
    }


def test_empty_candidates_are_left_out(imported):
    pools = (
        {"question": "Who?", "candidates": [{"text": "Me", "label": 1}, {"text": "", "label": 0}]},
        {"question": "Where?", "candidates": [{"text": None, "label": None}, {"text": "Here", "label": 0}]},
        {"question": "Why?", "candidates": []},
    )
    data = "\n".join(map(json.dumps, pools)).encode()
    assert imported("jsonl", data) == {"Who?": {"Me": 1}, "Where?": {"Here": 0}}


def test_the_error_of_contradictory_labels_names_the_option(imported):
    data = b"question,answer,label\nWho?,Me,1\nWho?,You,0\nWho?,Me,0\n"
    assert imported("csv", data, option="--conflicts") == {"Who?": {"Me": 1, "You": 0}}


@pytest.mark.parametrize("header", ["question,answer", "question,answer,label"])
def test_a_split_without_labels(imported, header):
    end = "," * (header.count(",") - 1)  # an empty label
    data = f"{header}\nWho?,Me{end}\nWho?,You{end}\n".encode()
    labels = imported("csv", data, split="test", option="--unlabelled")
    assert labels == {"Who?": {"Me": None, "You": None}}


SEMEVAL = """<?xml version="1.0" encoding="UTF-8"?>
<xml><Thread THREAD_SEQUENCE="Q1_R1">
<RelQuestion RELQ_ID="Q1_R1"><RelQBody>Visa?</RelQBody></RelQuestion>
<RelComment RELC_ID="Q1_R1_C1" RELC_RELEVANCE2RELQ="Good"><RelCText>Yes.</RelCText></RelComment>
</Thread></xml>
"""
JACANA = (
    "<QApairs id='1'>\n<question>\nwho\t?\nNN\t.\nX\tX\n0\t1\n-\t-\n</question>\n"
    "<positive>\nme\nNN\nX\n0\n-\nx\n1\n</positive>\n<negative>\nyou\nNN\nX\n0\n-\n</negative>\n</QApairs>\n"
)


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "json"])
def test_xml_is_recognised(aptool, tmp_path, kind):
    path = tmp_path / "data.xml"
    path.write_text(SEMEVAL)
    finished = aptool("data", "import", kind, f"test={path}", "--output", tmp_path / "out")
    assert finished.code == 1
    expected = "a table or JSON; convert the file to one row per question and candidate"
    assert finished.err == [f"aptool: {path}: line 1: XML; expected {expected}"]


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_the_command_for_xml_of_trecqa_is_named(aptool, tmp_path, kind):
    path = tmp_path / "data.xml"
    path.write_text(JACANA)
    refused = aptool("data", "import", kind, f"test={path}", "--output", tmp_path / "out")
    assert refused.code == 1
    named = re.search("`aptool (data import [a-z]+)`", refused.err[0])[1]
    finished = aptool(*named.split(), f"test={path}", "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert labels_of(tmp_path / "out", "test") == {"who ?": {"me": 1, "you": 0}}


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "wikiqa", "trecqa"])
def test_device_is_refused_before_it_is_read(aptool, tmp_path, kind):
    finished = aptool("data", "import", kind, "train=/dev/zero", "--output", tmp_path / "out")

    assert finished.code == 1
    assert finished.err == ["aptool: /dev/zero: a device; expected a file"]
    assert not (tmp_path / "out").exists()


GERMAN = (
    "Ticket;question;answer;label\n"
    '1;"Mein Gerät\n\nist kaputt.";"Bitte, ""neu"" starten; danke.";1\n'
    '1;"Mein Gerät\n\nist kaputt.";"Größe prüfen";0\n'
)
GERMAN_LABELS = {
    "Mein Gerät\n\nist kaputt.": {'Bitte, "neu" starten; danke.': 1, "Größe prüfen": 0},
}


def test_the_separator_of_a_table_with_line_breaks_in_its_cells_is_recognised(imported):
    """Excel writes semicolons where a comma is the decimal sign."""
    data = GERMAN.replace("\n", "\r\n").encode("utf-8-sig")
    assert imported("csv", data) == GERMAN_LABELS


def test_the_separator_is_recognised_where_names_of_columns_have_commas(imported):
    assert imported("csv", GERMAN.replace("Ticket", "Ticket, Datum", 1).encode()) == GERMAN_LABELS


@pytest.mark.parametrize("cell", ['"Mein Gerät\n\nist kaputt."', '"Mein Gerät\nist kaputt."'])
def test_line_breaks_in_quoted_cells_of_a_table_with_tabs(imported, cell):
    data = f"question\tanswer\tlabel\n{cell}\tNeu starten\t1\n".encode()
    question = cell.strip('"')
    assert imported("tsv", data) == {question: {"Neu starten": 1}}


@pytest.mark.parametrize(
    ("encoding", "question", "answer"),
    [
        ("cp1252", "Größe?", "“XL” für 5 €"),
        ("cp1252", "Où est l’imprimante ?", "Au deuxième étage, à côté du café"),
        ("cp1250", "Gdzie jest drukarka?", "Na drugim piętrze, obok kuchni; żółta łódź płynie źle"),
        ("cp1251", "Как изменить пароль?", "Нажмите «Забыли пароль» на главном экране"),
        ("cp932", "パスワードを変更するには?", "ログイン画面でお忘れの方を押してください"),
        ("utf-16-le", "Größe?", "XL 😀"),
    ],
)
def test_an_encoding_is_recognised_and_shown(aptool, tmp_path, encoding, question, answer):
    path = tmp_path / "x.csv"
    path.write_bytes(f'question,answer,label\n{question},"{answer}",1\n'.encode(encoding))
    finished = aptool("data", "import", "csv", f"train={path}", "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert labels_of(tmp_path / "out", "train") == {question: {answer: 1}}
    assert finished.err[0] == f"train: {path}: read with --encoding {encoding}"


def test_a_wrong_byte_in_utf_8_is_refused_not_read_in_another_encoding(aptool, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes("question,answer,label\nGröße?,für 5 €,1\nWho?,".encode() + b"\xe4,1\n")
    finished = aptool("data", "import", "csv", f"train={path}", "--output", tmp_path / "out")
    assert finished.code == 1
    expected = "expected text in UTF-8 (or --encoding NAME, such as cp1252)"
    assert finished.err == [f"aptool: {path}: line 3, byte 6: b'\\xe4': {expected}"]


EXPORT = (
    "Ticketexport vom 01.02.2026;;;;\r\n"
    "\r\n"
    "Nummer;Betreff;Beschreibung;Antwort;Stunden\r\n"
    '1;Drucker;"Er druckt\r\n\r\nnicht.";"Kabel; dann ""neu"" starten";1,5\r\n'
    ";;;;\r\n"
    "2;Maus;Sie klemmt.;Neue Maus;0,25\r\n"
    ";;;;\r\n"
)


@pytest.mark.parametrize("mark", ["\t", ";", "|"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig", "utf-16"])
def test_titles_above_the_header_of_an_export(aptool, tmp_path, mark, encoding):
    """By hand: one title, a blank line, the header in line 3, rows of separators only; commas in numbers."""
    path = tmp_path / "x.csv"
    path.write_bytes(EXPORT.replace(";", mark).encode(encoding))
    columns = ("--question", "Beschreibung", "--answer", "Antwort", "--add-candidates", "all")
    finished = aptool("data", "import", "csv", f"train={path}", *columns, "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    shown = "\\t" if mark == "\t" else mark
    quotes = " --quotes csv" if mark == "\t" else ""
    format_line = f"read with --delimiter '{shown}'{quotes}, the names of the columns are in line 3"
    assert finished.err[0] == f"train: {path}: {format_line}"
    cable, mouse = f'Kabel{mark} dann "neu" starten', "Neue Maus"
    assert labels_of(tmp_path / "out", "train") == {
        "Er druckt\n\nnicht.": {cable: 1, mouse: 0},
        "Sie klemmt.": {mouse: 1, cable: 0},
    }
    named = aptool("data", "import", "csv", f"train={path}", "--output", tmp_path / "other")
    assert "line 3: column 'question': not found among 'Nummer', 'Betreff'" in named.err[-1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_utf_16_is_read_by_its_byte_order_mark(imported, kind, encoding):
    """Excel's "Unicode text" is a table with tabs in UTF-16."""
    text = "question\tanswer\tlabel\r\nGröße?\tXL 😀\t1\r\n"
    if kind == "jsonl":
        text = '{"question": "Größe?", "answer": "XL 😀", "label": 1}\n'
    mark = "" if encoding == "utf-16" else "\ufeff"
    assert imported(kind, (mark + text).encode(encoding)) == {"Größe?": {"XL 😀": 1}}


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (
            b"PK\x03\x04\x14\0\x06\0",
            "an Excel workbook or a ZIP archive; expected text, such as the sheet",
        ),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
            "an Excel workbook; expected text, such as the sheet",
        ),
        (b"PAR1\x15\0", "a Parquet file; expected text"),
        (b"\x28\xb5\x2f\xfd\0", "zstd data; expected text, or gzip, bzip2 or xz data"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_formats_that_are_not_text_are_named(aptool, tmp_path, kind, start, name):
    path = tmp_path / "x"
    path.write_bytes(start + b"\0" * 99)
    finished = aptool("data", "import", kind, f"train={path}", "--output", tmp_path / "out")
    assert finished.code == 1
    assert len(finished.err) == 1
    assert finished.err[0].startswith(f"aptool: {path}: {name}")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "wikiqa"])
def test_a_pickle_of_any_protocol_is_named(aptool, tmp_path, kind, protocol):
    path = tmp_path / "x"
    path.write_bytes(pickle.dumps([{"question": "Who?", "answer": "Me", "label": 1}], protocol))
    finished = aptool("data", "import", kind, f"test={path}", "--output", tmp_path / "out")
    assert finished.err == [f"aptool: {path}: a Python pickle; expected text"]


@pytest.mark.parametrize("encoding", ["no-such", "hex", ""])
def test_an_unknown_encoding_is_wrong_usage(aptool, tmp_path, encoding):
    (tmp_path / "x.csv").write_text("question,answer,label\nWho?,Me,1\n")
    command = ("data", "import", "csv", f"train={tmp_path / 'x.csv'}", "--output", tmp_path / "out")
    finished = aptool(*command, "--encoding", encoding)
    assert finished.code == 2
    assert finished.err == [
        f"aptool: --encoding {encoding!r}: expected a text encoding of Python, such as cp1252"
    ]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_packed_tables_are_read_by_the_name_of_the_table(tmp_path, suffix):
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    (tmp_path / f"x.csv{suffix}").write_bytes(pack(b"question,answer,label\nWho?,Me,1\n"))
    aptool.Collection.from_rows({"dev": tmp_path / f"x.csv{suffix}"}, tmp_path / "out")
    assert labels_of(tmp_path / "out", "dev") == {"Who?": {"Me": 1}}
