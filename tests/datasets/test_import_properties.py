"""Damaged files of every format: an import reads every row, or fails with an error that names it.

The tests count the rows of a damaged text file independently of the importers, in its bytes: lines between
LFs, tags at the start of a line, labels in a field, entries of a list.
"""

import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imported import jacana_block

from aptool.datasets.importing import CANDIDATES_WITHOUT_TEXT
from aptool.datasets.insuranceqa import import_insuranceqa
from aptool.datasets.pairs import EMPTY_DROPPED
from aptool.datasets.table import import_table
from aptool.datasets.trecqa import import_trecqa
from aptool.datasets.wikiqa import import_wikiqa
from aptool.errors import AptoolError

EXAMPLES = 60


class Format(NamedTuple):
    """A small valid input: its files, its importer, and its number of candidates per split."""

    files: dict[str, bytes]
    run: Callable
    candidates: Callable[[dict[str, bytes]], dict[str, int]]


def text(*lines):
    return "".join(f"{line}\n" for line in lines).encode()


def decoded(data):
    return data.decode("utf-8-sig")


def rows(data):
    """Lines that are not blank."""
    return sum(bool(line.strip()) for line in decoded(data).split("\n"))


WIKIQA = Format(
    {
        "a.tsv": text(
            "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel",
            "Q1\thow are caves formed?\tD1\tCave\tD1-0\tA cave .\t0",
            'Q1\thow are caves formed?\tD1\tCave\tD1-1\t"Water" forms café .\t1',
            "Q2\twhat is lime?\tD2\tLime\tD2-0\tLime is\t0",
        )
    },
    lambda folder, out: import_wikiqa(out, {"train": f"{folder}/a.tsv"}),
    lambda files: {"train": rows(files["a.tsv"]) - 1},
)
TREC_LINES = Format(
    {
        "id.txt": text("7", "7", "8"),
        "a.toks": text("who ?", "who ?", "why ?"),
        "b.toks": text("me .", "café & you", "so ."),
        "sim.txt": text("1", "0", "0"),
    },
    lambda folder, out: import_trecqa(out, {"dev": folder}),
    lambda files: {"dev": rows(files["id.txt"])},
)


JACANA = Format(
    {
        "a.xml": text(
            "<QApairs id='1'>",
            *jacana_block("question", "who & why ?"),
            *jacana_block("positive", "café <me ."),
            *jacana_block("negative", "you ."),
            "</QApairs>",
            "<QApairs id='2'>",
            *jacana_block("question", "when ?"),
            *jacana_block("negative", "never"),
            "</QApairs>",
        )
    },
    lambda folder, out: import_trecqa(out, {"dev": f"{folder}/a.xml"}),
    lambda files: {
        "dev": sum(
            line.rstrip("\r") in ("<positive>", "<negative>") for line in decoded(files["a.xml"]).split("\n")
        )
    },
)
INSURANCEQA = Format(
    {
        "vocabulary": text("idx_1\twhat", "idx_2\tcafé"),
        "answers.label.token_idx": text("1\tidx_1", "2\tidx_2 idx_1", "3\tidx_2"),
        "question.train.token_idx.label": text("idx_1 idx_2\t1 2", "idx_1\t3"),
        "question.dev.label.token_idx.pool": text("1\tidx_2\t1 2 3 2", "2\tidx_1\t3 2"),
    },
    lambda folder, out: import_insuranceqa(out, folder),
    lambda files: {
        "train": labels(files["question.train.token_idx.label"], 1),
        "dev": labels(files["question.dev.label.token_idx.pool"], 2),
    },
)


def labels(data, column):
    lines = decoded(data).split("\n")
    return sum(len(line.split("\t")[column].split()) for line in lines if line.strip())


TSV = Format(
    {"a.tsv": text("question\tanswer\tlabel", "who?\tmé\t1", 'who?\t"you\t0', "why?\tso\t2")},
    lambda folder, out: import_table(out, {"train": f"{folder}/a.tsv"}),
    lambda files: {"train": rows(files["a.tsv"]) - 1},
)
JSONL = Format(
    {
        "a.jsonl": text(
            '{"question": "who?", "answer": "mé", "label": 1}',
            '{"question": "who?", "answer": "you", "label": 0}',
            '{"question": "why?", "answer": "so", "label": 0}',
        )
    },
    lambda folder, out: import_table(out, {"train": f"{folder}/a.jsonl"}),
    lambda files: {"train": rows(files["a.jsonl"])},
)
TEXT_FORMATS = {
    "wikiqa": WIKIQA,
    "trecqa lines": TREC_LINES,
    "trecqa jacana": JACANA,
    "insuranceqa": INSURANCEQA,
    "tsv": TSV,
    "jsonl": JSONL,
}
every_format = pytest.mark.parametrize("form", TEXT_FORMATS.values(), ids=TEXT_FORMATS)


def run(form, files):
    """Import the files in a temporary folder; return the manifest, or the message of the error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        folder.mkdir()
        for file, data in files.items():
            (folder / file).write_bytes(data)
        try:
            return form.run(str(folder), Path(name) / "out").manifest
        except AptoolError as error:
            message = str(error)
            assert str(folder) in message
            assert "\n" not in message
            assert not (Path(name) / "out").exists()
            return message


def cut_lines(data, draw):
    lines = data.split(b"\n")
    start = draw(st.integers(0, len(lines) - 1))
    return b"\n".join(lines[:start] + lines[start + draw(st.integers(1, 3)) :])


def repeat_line(data, draw):
    lines = data.split(b"\n")
    index = draw(st.integers(0, len(lines) - 1))
    lines.insert(draw(st.integers(0, len(lines))), lines[index])
    return b"\n".join(lines)


def cut_bytes(data, draw):
    start = draw(st.integers(0, len(data)))
    return data[:start] + data[start + draw(st.integers(1, 40)) :]


def cut_end(data, draw):
    return data[: draw(st.integers(0, len(data)))]


def swap_columns(data, draw):
    """Exchange two columns, in all lines or in one line."""
    lines = [line.split(b"\t") for line in data.split(b"\n")]
    first, second = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    only = draw(st.none() | st.integers(0, len(lines) - 1))
    for index, fields in enumerate(lines):
        if max(first, second) < len(fields) and only in (None, index):
            fields[first], fields[second] = fields[second], fields[first]
    return b"\n".join(b"\t".join(fields) for fields in lines)


def insert(data, draw):
    pieces = [b"\0", b"\xff", b"\r", b"\n", b"\t", b'"', b" ", b"<", b"\x85"]
    pieces += [b"\xef\xbb\xbf", b"\xe2\x80\xa8"]
    position = draw(st.integers(0, len(data)))
    return data[:position] + draw(st.sampled_from(pieces) | st.binary(max_size=4)) + data[position:]


def giant_field(data, draw):
    position = draw(st.integers(0, len(data)))
    return data[:position] + b"x" * 300_000 + data[position:]


def other_encoding(data, draw):
    return data.decode(errors="replace").encode(
        draw(st.sampled_from(["utf-16", "latin-1", "utf-32"])), "replace"
    )


MUTATIONS = [cut_lines, repeat_line, cut_bytes, cut_end, swap_columns, insert, giant_field, other_encoding]


@every_format
@settings(max_examples=EXAMPLES, deadline=None)
@given(draws=st.data())
def test_a_damaged_file_is_refused_or_read_in_full(form, draws):
    files = dict(form.files)
    for _ in range(draws.draw(st.integers(1, 3))):
        name = draws.draw(st.sampled_from(sorted(files)))
        files[name] = draws.draw(st.sampled_from(MUTATIONS))(files[name], draws.draw)
    result = run(form, files)
    if isinstance(result, str):
        return
    read = {split: counts["candidates"] for split, counts in result["details"]["read"].items()}
    assert read == form.candidates(files)
    for split, counts in result["splits"].items():
        dropped = result["policies"]["duplicate_candidates_dropped"][split]
        for policy in (CANDIDATES_WITHOUT_TEXT, EMPTY_DROPPED):
            dropped += result["policies"].get(policy, {}).get(split, 0)
        assert read[split] == counts["candidates"] + dropped
        without = result["policies"].get("questions_without_candidates_dropped", {}).get(split, 0)
        assert result["details"]["read"][split]["questions"] == counts["questions"] + without


@every_format
@settings(max_examples=EXAMPLES, deadline=None)
@given(draws=st.data(), bad=st.sampled_from([b"\0", b"\xff", b"\xc3\n"]))
def test_the_error_of_an_invalid_byte_names_the_line(form, draws, bad):
    name = draws.draw(st.sampled_from(sorted(form.files)))
    data = form.files[name]
    # At the start of a line, as inside a line the byte could complete another character.
    starts = [0, *(index + 1 for index, byte in enumerate(data[:-1]) if byte == ord("\n"))]
    position = draws.draw(st.sampled_from(starts))
    result = run(form, {**form.files, name: data[:position] + bad + data[position:]})
    assert isinstance(result, str)
    line = data[:position].count(b"\n") + 1
    assert f"{name}: line {line}, byte 1: " in result


@every_format
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
        lambda data: data.removesuffix(b"\n"),
        lambda data: data + b"\n\n",
        gzip.compress,
    ],
    ids=["CRLF", "BOM", "BOM and CRLF", "no newline at the end", "blank lines at the end", "gzip"],
)
def test_line_ends_and_compression_do_not_change_the_collection(form, change):
    plain = run(form, form.files)
    assert run(form, {name: change(data) for name, data in form.files.items()})["files"] == plain["files"]


PARQUET_ROWS = {
    "question_id": ["Q1", "Q1", "Q2"],
    "question": ["why?", "why?", "who?"],
    "document_title": ["Why", "Why", "Who"],
    "answer": ["so", "no", "mé"],
    "label": [1, 0, 0],
}
VALUES = {
    "question_id": st.sampled_from(["Q1", "Q2", "", "Q 1", "#1", None]),
    "question": st.sampled_from(["why?", "who?", "", None]),
    "document_title": st.none() | st.text(max_size=3),
    "answer": st.none() | st.text(max_size=3) | st.just("x" * 300_000),
    "label": st.sampled_from([0, 1, 2, -1, None]),
}


@settings(max_examples=EXAMPLES, deadline=None)
@given(draws=st.data())
def test_changed_parquet_files_are_refused_or_read_in_full(draws):
    columns = {name: list(values) for name, values in PARQUET_ROWS.items()}
    for _ in range(draws.draw(st.integers(1, 3))):
        name = draws.draw(st.sampled_from(sorted(columns)))
        change = draws.draw(st.sampled_from(["value", "rows", "column"]))
        if change == "value":
            columns[name][0:1] = [draws.draw(VALUES[name])]
        elif change == "rows":
            size = draws.draw(st.integers(0, 3))
            columns = {key: values[:size] or [None] for key, values in columns.items()}
        elif change == "column" and len(columns) > 1:
            del columns[name]
    as_text = draws.draw(st.none() | st.sampled_from(sorted(columns)))
    if as_text:
        columns[as_text] = [str(value) for value in columns[as_text]]
    table = pa.table(columns)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    form = WIKIQA._replace(
        run=lambda folder, out: import_wikiqa(out, {"train": f"{folder}/a.parquet"}),
    )
    result = run(form, {"a.parquet": buffer.getvalue()})
    if not isinstance(result, str):
        assert result["details"]["read"]["train"]["candidates"] == table.num_rows
        assert result["splits"]["train"]["candidates"] == table.num_rows  # derived ids never repeat


@settings(max_examples=EXAMPLES, deadline=None)
@given(share=st.floats(0, 0.999))
def test_parquet_cut_short_is_an_error(share):
    buffer = io.BytesIO()
    pq.write_table(pa.table(PARQUET_ROWS), buffer)
    data = buffer.getvalue()
    form = WIKIQA._replace(run=lambda folder, out: import_wikiqa(out, {"train": f"{folder}/a.parquet"}))
    assert isinstance(run(form, {"a.parquet": data[: int(share * len(data))]}), str)
