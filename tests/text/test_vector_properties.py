"""Whatever happens to a file of vectors: right vectors, or one line that names the file."""

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
words = st.lists(st.text(letters, min_size=1, max_size=6), min_size=1, max_size=6, unique=True)


@st.composite
def vectors(draw):
    """Words that begin with a letter, so that no line of numbers alone can be meant by them."""
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


def right(found: WordVectors, made: WordVectors, besides: tuple[str, ...] = ()) -> bool:
    """Whether every word that both know has the same vector in both."""
    known = dict(zip(made.words, made.matrix, strict=True))
    return all(
        np.array_equal(known[word], row)
        for word, row in zip(found.words, found.matrix, strict=True)
        if word in known and word not in besides
    )


def check_line(error: AptoolError, path: Path) -> None:
    assert str(error).startswith(str(path))
    assert len(str(error).splitlines()) == 1


def read(path: Path, data: bytes, words: list[str] | None = None) -> tuple[WordVectors | None, list[str]]:
    """The vectors, or None, and the messages; the one-line error and the messages are checked here."""
    path.write_bytes(data)
    with recorded() as told:
        try:
            found = read_vectors(path, words)
        except AptoolError as error:
            check_line(error, path)
            return None, told.messages
    assert all(line.startswith(f"{path}: ") for line in told.messages)
    assert found.matrix.shape[0] == len(found.words) == len(set(found.words))
    assert np.isfinite(found.matrix).all()
    return found, told.messages


@pytest.fixture
def path(tmp_path):
    return tmp_path / "vectors"


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), bom=st.booleans(), packed=st.booleans())
def test_whole_files_are_read_as_they_were_made(path, kind, made, bom, packed):
    data = (b"\xef\xbb\xbf" if bom else b"") + as_bytes(made, kind)
    data = gzip.compress(data) if packed else data
    found, _ = read(path, data)
    assert found.words == made.words
    assert np.array_equal(found.matrix, made.matrix)
    some, _ = read(path, data, made.words[::2])
    assert some.words == made.words[::2]
    assert np.array_equal(some.matrix, made.matrix[::2])


@quick
@given(made=vectors(), binary=st.booleans())
def test_what_is_written_is_read(path, made, binary):
    write_vectors(path, made, binary=binary)
    found = read_vectors(path)
    assert found.words == made.words
    assert np.array_equal(found.matrix, made.matrix)


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), data=st.data())
def test_cut_files(path, kind, made, data):
    whole = as_bytes(made, kind)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    found, messages = read(path, cut)
    if found is None:
        return
    if kind.startswith("binary"):
        assert cut == whole.rstrip(b"\n")
    suspect = any("may be truncated" in line for line in messages)
    assert right(found, made, besides=tuple(found.words[-1:]) if suspect else ())
    if kind == "GloVe" or suspect:
        return  # nothing tells where these end, or it has been told
    assert found.words == made.words


@pytest.mark.parametrize("kind", KINDS)
@settings(quick, max_examples=10)
@given(made=vectors())
def test_cut_gz_files_are_errors(path, kind, made):
    packed = gzip.compress(as_bytes(made, kind))
    for end in range(2, len(packed), max(1, len(packed) // 8)):
        assert read(path, packed[:end])[0] is None


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), data=st.data())
def test_bytes_put_in_between(path, kind, made, data):
    lines = rows(made, kind)
    row = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[row]) - 1))
    # A byte among the numbers of a binary record makes others of them, and the one that no longer fits goes
    # to the next word. The format has nothing that could tell; it has for the last record.
    lost = kind.startswith("binary") and row < len(lines) - 1
    for byte in (b"\0", b"\xff", b"\x1b"):
        broken = [*lines[:row], lines[row][:at] + byte + lines[row][at:], *lines[row + 1 :]]
        found, _ = read(path, (b"" if kind == "GloVe" else header(made)) + b"".join(broken))
        assert found is None or right(found, made, besides=(made.words[row],) if lost else ())


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors())
def test_windows_line_ends(path, kind, made):
    whole = as_bytes(made, kind)
    found, _ = read(path, whole.replace(b"\n", b"\r\n"))
    if kind.startswith("binary"):
        assert found is None  # any byte of a number may be a newline, and a second one shifts what follows
    else:
        assert found.words == made.words
        assert np.array_equal(found.matrix, made.matrix)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "GloVe"])
@quick
@given(made=vectors(), words=st.integers(-1, 1), width=st.integers(-1, 1))
def test_headers_that_lie(path, kind, made, words, width):
    found, messages = read(path, header(made, words, width) + b"".join(rows(made, kind)))
    if (words, width) == (0, 0):
        assert found.words == made.words
    elif (words, width) == (-1, 0) and not kind.startswith("binary"):
        assert found.words == made.words
        assert any("the header announces" in line for line in messages)
    else:
        assert found is None


@pytest.mark.parametrize("kind", ["text", "GloVe", "fastText"])
@quick
@given(made=vectors(), data=st.data())
def test_a_row_of_another_width(path, kind, made, data):
    lines = rows(made, kind)
    at = data.draw(st.integers(0, len(lines) - 1))
    fields = lines[at].split()
    lines[at] = b" ".join(fields[:-1] if data.draw(st.booleans()) else [*fields, b"1"]) + b"\n"
    found, _ = read(path, (b"" if kind == "GloVe" else header(made)) + b"".join(lines))
    # A file without a header and with one row has whatever width that row has.
    assert found is None or (kind == "GloVe" and len(lines) == 1)


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), encoding=st.sampled_from(["latin-1", "cp1252", "shift_jis", "utf-16-be"]))
def test_other_encodings(path, kind, made, encoding):
    plain = WordVectors(["wplain", *made.words], np.insert(made.matrix, 0, 7, axis=0), "made")
    data = (
        (b"" if kind == "GloVe" else header(plain))
        + rows(plain, kind)[0]
        + b"".join(rows(made, kind, encoding))
    )
    found, _ = read(path, data, ["wplain"])
    assert found is None or (found.words, found.matrix.tolist()) == (
        ["wplain"],
        [[7.0] * made.matrix.shape[1]],
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1000, 100_000, 20_000_000])
def test_giant_words(path, kind, size):
    made = WordVectors(["a", "w" * size, "b"], np.arange(6, dtype=np.float32).reshape(3, 2), "made")
    found, _ = read(path, as_bytes(made, kind), ["a", "b"])
    # A binary word beyond 64 KiB, or a line beyond 16 MiB, is no word but a file gone wrong.
    if size == 20_000_000 or (size == 100_000 and kind.startswith("binary")):
        assert found is None
    else:
        assert (found.words, found.matrix.tolist()) == (["a", "b"], [[0, 1], [4, 5]])


@settings(quick, max_examples=200)
@given(data=st.binary(max_size=80) | st.text("0123456789 .-e\n\tnaif\0", max_size=60).map(str.encode))
def test_any_bytes_at_all(path, data):
    read(path, data)
    read(path, b"2 3\n" + data)
    read(path, data, ["a", "1"])


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(made=vectors(), data=st.data())
def test_bytes_changed(path, kind, made, data):
    whole = bytearray(as_bytes(made, kind))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    read(path, bytes(whole))


def static_folder(folder: Path) -> tuple[bytes, bytes]:
    pieces = ["[UNK]", "the", "play", "##ing"]
    tokenizer = Tokenizer(WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    return save({"embeddings": torch.arange(8.0).view(4, 2)}), tokenizer.to_str().encode()


@settings(quick, max_examples=150)
@given(data=st.data())
def test_folders_with_a_file_cut_or_changed(path, data):
    pytest.importorskip("model2vec", reason="the extra `distill` is not installed")
    files = dict(zip(("model.safetensors", "tokenizer.json"), static_folder(path), strict=True))
    name = data.draw(st.sampled_from(sorted(files)))
    broken = bytearray(files[name])
    if data.draw(st.booleans()):
        broken = broken[: data.draw(st.integers(0, len(broken) - 1))]
        certain = True
    else:
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
        certain = False  # the change may be to a number, or be none
    for each, whole in files.items():
        (path / each).write_bytes(broken if each == name else whole)
    try:
        read_vectors(path, ["the", "playing"])
        read_vectors(path)
    except AptoolError as error:
        check_line(error, path)
    else:
        assert not certain


def test_the_sizes_that_a_safetensors_header_claims_are_not_believed(path):
    pytest.importorskip("model2vec", reason="the extra `distill` is not installed")
    _, tokenizer = static_folder(path)
    claim = json.dumps(
        {"embeddings": {"dtype": "F32", "shape": [2**40, 300], "data_offsets": [0, 2**42 * 300]}}
    )
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(claim)) + claim.encode())
    (path / "tokenizer.json").write_bytes(tokenizer)
    with pytest.raises(AptoolError, match="expected a static model"):
        read_vectors(path)
