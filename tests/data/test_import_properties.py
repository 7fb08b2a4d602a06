"""Files with random faults: an import reads them as `csv` and `json` do, or refuses them in one line."""

import csv
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imported import pools_of

from aptool.data.collection import Collection
from aptool.data.table import import_table
from aptool.data.trec import read_qrels
from aptool.errors import InputError

MARK = b"\xef\xbb\xbf"
PIECES = [
    b"\0",
    b"\xff",
    b"\r",
    b"\n",
    b"\t",
    b'"',
    b",",
    b" ",
    b"\x85",
    MARK,
    b"\xe2\x80\xa8",
    b"x" * 300_000,
]
NAMES = ["question_id", "question", "answer_id", "answer", "label"]
VALUES = {
    "question_id": ["Q1", "Q2", "Q3", "", "Q 1", "#1"],
    "question": ["why?", "who, me?", " ", "", "é\u00a0so"],
    "answer_id": ["a", "b", "c", "", "a b"],
    "answer": ["so", 'a "b", c', "two\nlines", "", " ", "mé"],
    "label": ["0", "1", "2", "1.0", "true", "-1", "", "yes", "0.5"],
}


def lines(*rows):
    return "".join(f"{row}\n" for row in rows).encode()


def imported(run, files):
    """Manifest, pools and judgements of an imported split "train"; or the error."""
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name) / "in", Path(name) / "out"
        folder.mkdir()
        for file, data in files.items():
            (folder / file).write_bytes(data)
        try:
            collection = run(out, str(folder))
        except InputError as error:
            message = str(error)
            assert str(folder) in message
            assert len(message.splitlines()) == 1
            assert not out.exists()
            return message
        return collection.manifest, pools_of(collection), read_qrels(collection.qrels_file("train")).rows()


@st.composite
def damaged(draw, data):
    """The bytes of a file after some random changes."""
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["insert", "cut", "lines"]))
        if change == "insert":
            data = data[:place] + draw(st.sampled_from(PIECES)) + data[place:]
        elif change == "cut":
            data = data[:place] + data[place + draw(st.integers(1, 40)) :]
        else:
            rows = data.split(b"\n")
            number = draw(st.integers(0, len(rows)))
            again = draw(st.lists(st.sampled_from(rows), max_size=2))
            rows[number : number + draw(st.integers(0, 2))] = again
            data = b"\n".join(rows)
    return data


@st.composite
def tables(draw):
    """Rows of texts, valid or with a few faults."""
    questions, answers = {"Q1": "why?", "Q2": "who, me?"}, {"a": "so", "b": 'a "b", c', "c": "mé"}
    ids = st.tuples(st.sampled_from(sorted(questions)), st.sampled_from(sorted(answers)))
    pairs = draw(st.lists(ids, max_size=5))
    label = {pair: draw(st.sampled_from(VALUES["label"][:5])) for pair in sorted(set(pairs))}
    rows = [dict(zip(NAMES, (q, questions[q], a, answers[a], label[q, a]), strict=True)) for q, a in pairs]
    for row in rows[: draw(st.integers(0, 2))]:
        name = draw(st.sampled_from(NAMES))
        row[name] = draw(st.sampled_from(VALUES[name]))
    return rows


def written(kind, rows):
    """The rows as the bytes of a file."""
    if kind == "parquet":
        buffer, schema = io.BytesIO(), pa.schema([(name, pa.string()) for name in NAMES])
        pq.write_table(pa.Table.from_pylist(rows, schema), buffer)
        return buffer.getvalue()
    if kind == "jsonl":
        return lines(*map(json.dumps, rows))
    text = io.StringIO()
    if kind == "csv":
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([NAMES, *([row[name] for name in NAMES] for row in rows)])
        return text.getvalue().encode()
    return lines("\t".join(NAMES), *("\t".join(row.values()).replace("\n", " ") for row in rows))


def require(condition):
    if not condition:
        raise ValueError("a fault of the file")


def parsed(kind, data):
    """The rows of a file of text."""
    text = data.removeprefix(MARK).decode().replace("\r\n", "\n").removesuffix("\r")
    require("\0" not in text and "\r" not in text)
    if kind == "jsonl":
        rows = [json.loads(line, object_pairs_hook=distinct) for line in text.split("\n") if line.strip()]
        require(all(isinstance(row, dict) for row in rows))
        return rows
    if kind == "csv":
        table = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    else:
        table = [line.split("\t") if line.strip() else [] for line in text.split("\n")]
    while table and not table[-1]:
        del table[-1]
    require(table and all(table))
    header, *rows = table
    require(all(len(row) == len(header) for row in rows))
    require(all(header.count(name) == 1 for name in header if name))
    return [dict(zip(header, row, strict=True)) for row in rows]


def distinct(entries):
    require(len(dict(entries)) == len(entries))
    return dict(entries)


def pools(rows, *, with_ids):
    """The pools of rows: id, question, and text and label of each candidate by its id."""
    result = {}
    for row in rows:
        names = NAMES if with_ids else ["question", "answer", "label"]
        row = {"answer": "", "label": "", **row}  # a key that a row lacks is a null
        require(all(isinstance(row.get(name), str) for name in names))
        question, text, label = row["question"], row["answer"], row["label"]
        key, name = (row["question_id"], row["answer_id"]) if with_ids else (" ".join(question.split()), text)
        require(question.strip() and (not with_ids or (is_id(key) and key[0] != "#")))
        first, candidates = result.setdefault(key, (question, {}))
        require(first == question or not with_ids)
        if label or text.strip():
            number = {"true": 1, "false": 0}.get(label.lower()) if label.isalpha() else whole(label)
            require(number is not None)
        if text.strip():
            require(not with_ids or is_id(name))
            require(candidates.setdefault(name, (text, number)) == (text, number))
    kept = [(key, first, candidates) for key, (first, candidates) in result.items() if candidates]
    require(kept)
    return kept


def is_id(text):
    return bool(text) and text.isprintable() and not any(c.isspace() for c in text)


def whole(label):
    number = float(label)
    require(number.is_integer())
    return int(number)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@settings(max_examples=20)
@given(rows=tables(), with_ids=st.booleans(), draws=st.data())
def test_a_table_is_read_as_a_plain_parser_reads_it_or_refused(kind, rows, with_ids, draws):
    data = written(kind, rows)
    if kind != "parquet":
        data = draws.draw(damaged(data))
    names = {name: name for name in ("question_id", "answer_id")} if with_ids else {}
    try:
        expected = pools(rows if kind == "parquet" else parsed(kind, data), with_ids=with_ids)
    except (ValueError, csv.Error):
        expected = None

    file = f"x.{kind}"
    result = imported(
        lambda out, folder: import_table({"train": f"{folder}/{file}"}, out, names) or Collection(out),
        {file: data},
    )

    assert isinstance(result, str) == (expected is None), result
    if expected is None:
        return
    _, read, judgements = result
    labels = {(question, answer): label for question, answer, label in judgements}
    read = [(q, text, [(a, t, labels[q, a]) for a, t in candidates]) for q, text, candidates in read]
    expected = [(q, text, [(a, *c) for a, c in candidates.items()]) for q, text, candidates in expected]
    if not with_ids:  # the ids are numbers
        read, expected = (
            [(text, [c[1:] for c in cs]) for _, text, cs in pools] for pools in (read, expected)
        )
    assert read == expected
