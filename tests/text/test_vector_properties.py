"""Damaged vector files: reading gives the original vectors, or a one-line error that names the file."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import recorded

from aptool.errors import AptoolError
from aptool.text.vectors import WordVectors, read_vectors

KINDS = ("binary", "binary with newlines", "text", "GloVe", "fastText")

quick = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
letters = st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"])
# No word is another one in other case, which would be read where the word is missing.
words = st.lists(
    st.text(letters, min_size=1, max_size=6),
    min_size=1,
    max_size=6,
    unique_by=lambda word: word.upper().casefold(),
)


@st.composite
def vectors(draw):
    """Vectors of words that begin with a letter, so that no row looks like a line of numbers."""
    named = [f"w{word}" for word in draw(words)]
    width = draw(st.integers(2, 5))
    numbers = st.floats(-1e6, 1e6, width=32).map(lambda number: number or 0.0)
    rows = draw(
        st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=len(named), max_size=len(named))
    )
    return WordVectors(named, np.array(rows, dtype=np.float32), "made")


def header(made: WordVectors) -> bytes:
    return b"%d %d\n" % (len(made.words), made.matrix.shape[1])


def rows(made: WordVectors, kind: str) -> list[bytes]:
    coded = [word.encode() for word in made.words]
    if kind.startswith("binary"):
        end = b"\n" if kind.endswith("newlines") else b""
        return [
            word + b" " + row.astype("<f4").tobytes() + end
            for word, row in zip(coded, made.matrix, strict=True)
        ]
    end = b" \n" if kind == "fastText" else b"\n"
    return [
        word + b" " + b" ".join(str(number).encode() for number in row) + end
        for word, row in zip(coded, made.matrix, strict=True)
    ]


def as_bytes(made: WordVectors, kind: str) -> bytes:
    return (b"" if kind == "GloVe" else header(made)) + b"".join(rows(made, kind))


def agree(result: WordVectors, made: WordVectors, ignored: tuple[str, ...] = ()) -> bool:
    """Whether all common words have the same vectors, except the ignored words."""
    expected = dict(zip(made.words, made.matrix, strict=True))
    return all(
        np.array_equal(expected[word], row)
        for word, row in zip(result.words, result.matrix, strict=True)
        if word in expected and word not in ignored
    )


def check_line(error: AptoolError, path: Path) -> None:
    assert str(error).startswith(str(path))
    assert len(str(error).splitlines()) == 1


def read(path: Path, data: bytes, words: list[str]) -> tuple[WordVectors | None, list[str]]:
    """Read a file; return the vectors, or None after an error, and the log. Check the error and the log."""
    path.write_bytes(data)
    with recorded() as log:
        try:
            result = read_vectors(path, words)
        except AptoolError as error:
            check_line(error, path)
            return None, log.messages
    assert all(line.startswith(f"{path}: ") for line in log.messages)
    assert result.matrix.shape[0] == len(result.words) == len(set(result.words))
    assert np.isfinite(result.matrix).all()
    return result, log.messages


@pytest.fixture
def path(tmp_path):
    return tmp_path / "vectors"


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), bom=st.booleans(), packed=st.booleans())
def test_intact_files_are_read_exactly(path, kind, made, bom, packed):
    data = (b"\xef\xbb\xbf" if bom else b"") + as_bytes(made, kind)
    data = gzip.compress(data) if packed else data
    result, _ = read(path, data, made.words)
    assert result.words == made.words
    assert np.array_equal(result.matrix, made.matrix)
    some, _ = read(path, data, made.words[::2])
    assert some.words == made.words[::2]
    assert np.array_equal(some.matrix, made.matrix[::2])


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), data=st.data())
def test_truncated_files_are_refused_or_reported(path, kind, made, data):
    content = as_bytes(made, kind)
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    result, messages = read(path, cut, made.words)
    if result is None:
        return
    if kind.startswith("binary"):
        assert cut == content.rstrip(b"\n")
    suspect = any("may be truncated" in line for line in messages)
    assert agree(result, made, ignored=tuple(result.words[-1:]) if suspect else ())
    if kind == "GloVe" or suspect:
        return  # such a file does not announce its number of rows, or the log reports the damage
    assert result.words == made.words


@settings(quick, max_examples=100)
@given(data=st.binary(max_size=80) | st.text("0123456789 .-e\n\tnaif\0", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(path, data):
    read(path, data, ["a", "1"])
    read(path, b"2 3\n" + data, ["a", "1"])
