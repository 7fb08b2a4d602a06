"""Damaged text files to import, and word vectors."""

import contextlib
import random
import struct
import unicodedata
from pathlib import Path
from typing import Any

import readers
from case import Case, content, packed, surface, unpacked
from mutators import mutate_bytes, mutate_lines


@surface(8)
def tables(case: Case) -> None:
    data = mutate_lines(case.random, content(case.world.folder / "x.tsv"), b"\t")
    name = packed(case, "x.tsv", data)
    imported = case.run("data", "import", "table", f"test={name}", "--output", "c", outputs=("c",))
    if imported is not None:
        same_pairs(readers.table(unpacked(name)))


def same_pairs(expected: list[tuple[str, str, int]]) -> None:
    """Compare an imported collection, read by pyarrow, with its source rows.

    Spellings of a question that differ in blanks or invisible characters only are one question.
    """
    import pyarrow.parquet as pq

    labels = readers.judgements(Path("c/test.qrels").read_bytes())
    shared = {}
    if Path("c/answers.parquet").is_file():
        rows = pq.read_table("c/answers.parquet").to_pylist()
        shared = {row["answer_id"]: row["text"] for row in rows}

    def text(candidate: dict[str, Any]) -> str:
        if candidate["text"] is not None:
            return candidate["text"]
        return shared[candidate.get("text_id") or candidate["answer_id"]]

    def comparable(question: str) -> str:
        visible = "".join(letter for letter in question if unicodedata.category(letter) != "Cf")
        return " ".join(unicodedata.normalize("NFC", visible).split())

    actual = {
        (comparable(row["question"]), text(candidate), labels[row["question_id"]][candidate["answer_id"]])
        for row in pq.read_table("c/test.pools.parquet").to_pylist()
        for candidate in row["candidates"]
    }
    stated = {(comparable(question), answer, label) for question, answer, label in expected}
    assert actual == stated, f"other pairs: {list(actual ^ stated)[:3]}"


@surface(8)
def vectors(case: Case) -> None:
    from aptool.errors import AptoolError
    from aptool.text.vectors import read_vectors

    kind = case.random.choice(("v.bin", "v.txt", "glove.txt"))
    data = content(case.world.folder / kind)
    mutate = mutate_bytes if kind == "v.bin" or case.random.random() < 0.5 else _mutate_words
    name = packed(case, kind, mutate(case.random, data))
    requested = ["river", "mountain", "Kitchen", "engine", "naïve", "the", "none"]
    try:
        actual = read_vectors(name, requested)
    except AptoolError as error:
        case.ended = str(error.exit_code)
        assert "\n" not in str(error)
        return
    case.ended = "0"
    data = unpacked(name)
    words: dict[str, Any] = {}
    with contextlib.suppress(ValueError, struct.error, MemoryError, OverflowError):
        if kind == "v.bin":
            words = {word.decode(): row for word, row in readers.binary_vectors(data).items()}
        else:
            words = readers.text_vectors(data, actual.matrix.shape[1])
    for word, row in zip(actual.words, actual.matrix.tolist(), strict=True):
        vector = next(
            (words[form] for form in (word, word.lower(), word.title(), word.upper()) if form in words), row
        )
        single = [struct.unpack("f", struct.pack("f", value))[0] for value in vector]
        assert row == single, f"other numbers of {word!r}"


def _mutate_words(random_: random.Random, data: bytes) -> bytes:
    return mutate_lines(random_, data, b" ")
