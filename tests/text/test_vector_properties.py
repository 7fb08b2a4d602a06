"""Damaged vector files: reading gives the original vectors, or a one-line error that names the file."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import recorded
from safetensors.torch import save
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace

from aptool.errors import AptoolError
from aptool.text.vectors import WordVectors, read_vectors, write_vectors

KINDS = ("binary", "binary with newlines", "text", "GloVe", "fastText")

quick = settings(
    max_examples=60,
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


def header(made: WordVectors, words: int = 0, width: int = 0) -> bytes:
    return b"%d %d\n" % (len(made.words) + words, made.matrix.shape[1] + width)


def rows(made: WordVectors, kind: str, encoding: str = "utf-8") -> list[bytes]:
    coded = [word.encode(encoding, "replace") for word in made.words]
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


@quick
@given(made=vectors())
def test_written_vectors_are_read_exactly(path, made):
    write_vectors(path, made)
    result = read_vectors(path, made.words)
    assert result.words == made.words
    assert np.array_equal(result.matrix, made.matrix)


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


@pytest.mark.parametrize("kind", KINDS)
@settings(quick, max_examples=10)
@given(made=vectors())
def test_truncated_gz_files_are_refused(path, kind, made):
    packed = gzip.compress(as_bytes(made, kind))
    for end in range(2, len(packed), max(1, len(packed) // 8)):
        assert read(path, packed[:end], made.words)[0] is None


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), data=st.data())
def test_inserted_bytes_are_refused_or_change_one_word(path, kind, made, data):
    lines = rows(made, kind)
    row = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[row]) - 1))
    # A byte inserted into a binary record changes its numbers and shifts its last byte to the next word. The
    # format only detects this in the last record.
    is_undetected = kind.startswith("binary") and row < len(lines) - 1
    for byte in (b"\0", b"\xff", b"\x1b"):
        broken = [*lines[:row], lines[row][:at] + byte + lines[row][at:], *lines[row + 1 :]]
        result, _ = read(path, (b"" if kind == "GloVe" else header(made)) + b"".join(broken), made.words)
        assert result is None or agree(result, made, ignored=(made.words[row],) if is_undetected else ())


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors())
def test_windows_line_ends_are_read_in_text_and_refused_in_binary_files(path, kind, made):
    result, _ = read(path, as_bytes(made, kind).replace(b"\n", b"\r\n"), made.words)
    if kind.startswith("binary"):
        assert result is None  # a newline in a number gets a carriage return too
    else:
        assert result.words == made.words
        assert np.array_equal(result.matrix, made.matrix)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "GloVe"])
@quick
@given(made=vectors(), words=st.integers(-1, 1), width=st.integers(-1, 1))
def test_wrong_headers_are_refused_or_reported(path, kind, made, words, width):
    result, messages = read(path, header(made, words, width) + b"".join(rows(made, kind)), made.words)
    if (words, width) == (0, 0):
        assert result.words == made.words
    elif (words, width) == (-1, 0) and not kind.startswith("binary"):
        assert result.words == made.words
        assert any("the header announces" in line for line in messages)
    else:
        assert result is None


@pytest.mark.parametrize("kind", ["text", "GloVe", "fastText"])
@quick
@given(made=vectors(), data=st.data())
def test_a_row_of_another_width_is_refused(path, kind, made, data):
    lines = rows(made, kind)
    at = data.draw(st.integers(0, len(lines) - 1))
    fields = lines[at].split()
    lines[at] = b" ".join(fields[:-1] if data.draw(st.booleans()) else [*fields, b"1"]) + b"\n"
    result, _ = read(path, (b"" if kind == "GloVe" else header(made)) + b"".join(lines), made.words)
    # In a file without a header, the first row determines the width.
    assert result is None or (kind == "GloVe" and len(lines) == 1)


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), encoding=st.sampled_from(["latin-1", "cp1252", "shift_jis", "utf-16-be"]))
def test_words_in_other_encodings_do_not_change_the_other_words(path, kind, made, encoding):
    plain = WordVectors(["wplain", *made.words], np.insert(made.matrix, 0, 7, axis=0), "made")
    data = (
        (b"" if kind == "GloVe" else header(plain))
        + rows(plain, kind)[0]
        + b"".join(rows(made, kind, encoding))
    )
    result, _ = read(path, data, ["wplain"])
    assert result is None or (result.words, result.matrix.tolist()) == (
        ["wplain"],
        [[7.0] * made.matrix.shape[1]],
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1000, 100_000, 20_000_000])
def test_giant_words_are_skipped_or_refused(path, kind, size):
    made = WordVectors(["a", "w" * size, "b"], np.arange(6, dtype=np.float32).reshape(3, 2), "made")
    result, _ = read(path, as_bytes(made, kind), ["a", "b"])
    # Binary words beyond 64 KiB and lines beyond 16 MiB are signs of a damaged file.
    if size == 20_000_000 or (size == 100_000 and kind.startswith("binary")):
        assert result is None
    else:
        assert (result.words, result.matrix.tolist()) == (["a", "b"], [[0, 1], [4, 5]])


@settings(quick, max_examples=200)
@given(data=st.binary(max_size=80) | st.text("0123456789 .-e\n\tnaif\0", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(path, data):
    read(path, data, ["a", "1"])
    read(path, b"2 3\n" + data, ["a", "1"])


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), data=st.data())
def test_changed_bytes_are_read_or_refused(path, kind, made, data):
    content = bytearray(as_bytes(made, kind))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read(path, bytes(content), made.words)


def static_folder(folder: Path) -> tuple[bytes, bytes]:
    pieces = ["[UNK]", "the", "play", "##ing"]
    tokenizer = Tokenizer(WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    return save({"embeddings": torch.arange(8.0).view(4, 2)}), tokenizer.to_str().encode()


@settings(quick, max_examples=150)
@given(data=st.data())
def test_static_models_with_a_damaged_file_are_read_or_refused(path, data):
    pytest.importorskip("model2vec", reason="the extra `distill` is not installed")
    files = dict(zip(("model.safetensors", "tokenizer.json"), static_folder(path), strict=True))
    name = data.draw(st.sampled_from(sorted(files)))
    broken = bytearray(files[name])
    if data.draw(st.booleans()):
        broken = broken[: data.draw(st.integers(0, len(broken) - 1))]
        must_fail = True
    else:
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
        must_fail = False  # the new byte may belong to a number, or equal the old byte
    for file, content in files.items():
        (path / file).write_bytes(broken if file == name else content)
    try:
        read_vectors(path, ["the", "playing"])
    except AptoolError as error:
        check_line(error, path)
    else:
        assert not must_fail


def test_false_sizes_in_a_safetensors_header_are_refused(path):
    pytest.importorskip("model2vec", reason="the extra `distill` is not installed")
    _, tokenizer = static_folder(path)
    claim = json.dumps(
        {"embeddings": {"dtype": "F32", "shape": [2**40, 300], "data_offsets": [0, 2**42 * 300]}}
    )
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(claim)) + claim.encode())
    (path / "tokenizer.json").write_bytes(tokenizer)
    with pytest.raises(AptoolError, match="expected a static model"):
        read_vectors(path, ["the"])
