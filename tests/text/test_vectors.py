"""Reading and writing word vectors: each format from bytes written by hand, and exchange with gensim."""

import gzip
import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from recorded import recorded

from aptool.config import load_recipe
from aptool.errors import InputError
from aptool.models.initialization import TrainingTexts, make_vocabulary
from aptool.text.vectors import WordVectors, read_vectors, write_vectors

DATA = os.environ.get("APTOOL_DATA")

# Numbers that float32 and short decimals represent exactly.
EXPECTED = {"cat": [1.0, -2.0], "dog": [0.5, 0.25]}


def record(word: bytes, *numbers: float, end: bytes = b"") -> bytes:
    return word + b" " + struct.pack(f"<{len(numbers)}f", *numbers) + end


FORMATS = {
    "word2vec binary": b"2 2\n" + record(b"cat", 1, -2) + record(b"dog", 0.5, 0.25),
    "word2vec binary with newlines": b"2 2\n"
    + record(b"cat", 1, -2, end=b"\n")
    + record(b"dog", 0.5, 0.25, end=b"\n"),
    "word2vec text": b"2 2\ncat 1.0 -2.0\ndog 0.5 0.25\n",
    "GloVe": b"cat 1.0 -2.0\ndog 0.5 0.25\n",
    "fastText": b"2 2\ncat 1.0 -2.0 \ndog 0.5 0.25 \n",
    "with tabs": b"cat\t1.0\t-2.0\ndog\t0.5\t0.25\n",
    "with CRLF": b"2 2\r\ncat 1.0 -2.0\r\ndog 0.5 0.25\r\n",
    "with a BOM": b"\xef\xbb\xbfcat 1.0 -2.0\ndog 0.5 0.25\n",
    "with exponents and blank lines": b"cat 1e0 -2\n\ndog 5e-1 +.25\n\n",
}


@pytest.fixture
def file(tmp_path):
    def write(data: bytes, name: str = "v") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def as_dict(vectors: WordVectors) -> dict[str, list[float]]:
    assert vectors.matrix.dtype == np.float32
    return dict(zip(vectors.words, vectors.matrix.tolist(), strict=True))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("data", FORMATS.values(), ids=FORMATS)
def test_every_format_is_detected_by_its_bytes(file, data, packed):
    path = file(gzip.compress(data) if packed else data, "name-without-suffix")
    assert as_dict(read_vectors(path, EXPECTED)) == EXPECTED
    assert as_dict(read_vectors(path, ["dog", "bird"])) == {"dog": EXPECTED["dog"]}


def test_requested_words_keep_their_order_without_repetition(file):
    path = file(FORMATS["GloVe"])
    assert read_vectors(path, ["dog", "bird", "cat", "dog"]).words == ["dog", "cat"]
    assert read_vectors(path, []).matrix.shape == (0, 2)


def test_case_falls_back_from_exact_to_lower_to_title_to_upper(file):
    lines = b"apple 1\nApple 2\nParis 3\nNASA 4\nNasa 5\nUK 6\nnew-york 7\nNew-York 8\n"
    requested = ["apple", "Apple", "APPLE", "paris", "PARIS", "nasa", "NASA", "uk", "New-york"]
    # There is no row APPLE, so its lower case is read. For nasa, title case precedes upper case.
    assert as_dict(read_vectors(file(lines), requested)) == {
        "apple": [1],
        "Apple": [2],
        "APPLE": [1],
        "paris": [3],
        "PARIS": [3],
        "nasa": [5],
        "NASA": [4],
        "uk": [6],
        "New-york": [7],
    }


def test_duplicates_and_words_that_are_not_utf8_are_skipped(file):
    rows = (b"cat", 1, -2), (b"caf\xe9", 9, 9), (b"cat", 7, 7), (b"dog", 0.5, 0.25), (b"", 3, 3)
    path = file(b"5 2\n" + b"".join(record(*row) for row in rows))
    assert as_dict(read_vectors(path, ["cat", "dog", ""])) == EXPECTED


def test_words_with_spaces_as_in_glove_840b(file):
    path = file(b"the 1 2\n. . . 3 4\nat name@domain.com 5 6\nSt\xc3\xa9\xc2\xa0x 7 8\n")
    expected = {"the": [1, 2], ". . .": [3, 4], "at name@domain.com": [5, 6], "Sté\xa0x": [7, 8]}
    assert as_dict(read_vectors(path, expected)) == expected


def test_a_first_word_that_is_a_number_is_a_word(file):
    expected = {"2000": [1, 2, 3], "1999": [4, 5, 6]}
    assert as_dict(read_vectors(file(b"2000 1 2 3\n1999 4 5 6\n"), expected)) == expected


ERRORS = {
    "empty": (b"", "an empty file"),
    "no vectors": (b"hello there\n", "line 1: 'hello there': expected a word and its numbers"),
    "short row": (b"a 1 2 3\nb 1 2\n", "line 2: 2 numbers after 'b'; expected 3 numbers"),
    "long row": (b"a 1 2 3\nb 1 2 3 4\n", "line 2: 4 numbers after 'b'; expected 3 numbers"),
    "other width than the header's": (b"2 3\na 1 2\nb 1 2\n", "line 2: 2 numbers after 'a'; expected 3"),
    "text for a number": (b"a 1 2\nb 1 x2\n", "line 2: 'x2': expected a number"),
    "Python's underscores": (b"a 1 2\nb 1_0 2\n", "line 2: '1_0': expected a number"),
    "NaN": (b"a 1 2\nb nan 2\n", "line 2: NaN, or a number beyond any vector's; expected numbers of"),
    "implausible": (b"a 1 2\nb 1e7 2\n", "line 2: NaN, or a number beyond any vector's"),
    "decimal commas": (b"2 2\ncat 0,5 0,25\ndog 1,5 2,5\n", "line 2: '0,5': expected a number"),
    "decimal commas without a header": (b"cat 0,5 0,25\n", "line 1: 'cat 0,5 0,25': expected a word and its"),
    "joined by commas": (b"1 2\ncat 0.5,0.25\n", "line 2: 0 numbers after 'cat'; expected 2 numbers"),
    "joined by commas and spaces": (b"1 3\ncat 0.5, 0.25, 1\n", "line 2: '0.5,': expected a number"),
    "binary implausible": (
        b"1 2\n" + record(b"a", 1e30, 1),
        "record 1: NaN, or a number beyond any vector's",
    ),
    "binary NaN": (b"1 2\n" + record(b"a", float("nan"), 1), "record 1: NaN"),
    "binary cut": (FORMATS["word2vec binary"][:-1], "record 2 of 2: the file ends here; expected a word"),
    "binary cut between records": (b"2 2\n" + record(b"a", 1, 2), "record 2 of 2: the file ends here"),
    "binary with more": (FORMATS["word2vec binary"] + b"x", "after record 2: 'x': expected the end"),
    "text with fewer": (b"3 2\na 1 2\nb 1 2\n", "end: 2 rows; expected 3 rows, as the header announces"),
    "width beyond reason": (b"1 99999999999\na 1\n", "line 1: '1 99999999999': expected a count and a width"),
    "no width": (b"1 0\na\n", "line 1: '1 0': expected a count and a width"),
    "UTF-16": ("cat 1 2\n".encode("utf-16"), "text in UTF-16; expected text in UTF-8"),
    "zip": (b"PK\x03\x04....", "a zip archive; unpack it first"),
    "fastText model": (b"\xba\x16\x4f\x2f\x0c\0\0\0", "a fastText .bin model;"),
    "pickle": (b"\x80\x04\x95\x00", "a Python pickle"),
}


@pytest.mark.parametrize(("data", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_name_file_and_position(file, data, message):
    path = file(data, "mine.txt")
    with pytest.raises(InputError) as error:
        read_vectors(path, ["a", "b", "cat", "dog"])
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_only_the_width_of_other_rows_is_checked(file):
    path = file(b"a 1 2\nb nan x\nc 1 2\n")
    assert read_vectors(path, ["a", "c"]).words == ["a", "c"]
    with pytest.raises(InputError, match="line 2: 1 numbers after 'b'"):
        read_vectors(file(b"a 1 2\nb 1\nc 1 2\n"), ["a"])


def test_a_truncated_gz_file_is_refused(file):
    packed = gzip.compress(FORMATS["GloVe"] * 1000)
    with pytest.raises(InputError, match="expected a complete gzip file"):
        read_vectors(file(packed[:-20]), EXPECTED)


def test_a_last_line_without_newline_is_read_and_reported(file):
    path = file(b"cat 1 -2\ndog 0.5 0.25")
    with recorded() as log:
        assert as_dict(read_vectors(path, EXPECTED)) == EXPECTED
    assert log.messages[0] == f"{path}: no newline at the end; the last row may be truncated"


def test_more_rows_than_a_text_header_announces_are_read_and_reported(file):
    path = file(b"1 2\ncat 1 -2\ndog 0.5 0.25\n")
    with recorded() as log:
        assert as_dict(read_vectors(path, EXPECTED)) == EXPECTED
    assert log.messages[0] == f"{path}: the header announces 1 rows, the file has 2"


def test_memory_does_not_grow_with_the_file(file):
    row = b" " + struct.pack("<1024f", *range(1024))
    rows = 6000
    path = file(f"{rows} 1024\n".encode() + b"".join(b"w%d" % index + row for index in range(rows)))
    text = file(b"".join(b"w%d" % index + b" 0.125" * 1024 + b"\n" for index in range(rows)), "text")
    for large in (path, text):
        assert large.stat().st_size > 20 << 20
        tracemalloc.start()
        assert read_vectors(large, ["w7", "w5999"]).words == ["w7", "w5999"]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # A few blocks of 1 MiB, of a file of more than 20 MiB.
        assert peak < 8 << 20


WORDS = ["the", "naïve", "東京", "New_York", "�", "<unk>", "\xa0x", "x\u2028y"]


def test_gensim_and_aptool_write_the_same_bytes_and_read_the_files_of_the_other(tmp_path):
    keyed_vectors = pytest.importorskip("gensim.models").KeyedVectors
    matrix = np.random.default_rng(1).standard_normal((len(WORDS), 7)).astype(np.float32)
    matrix[0] = [0, -0.0, 1e-38, 1e6, 1 / 3, 1e-5, 123456.789]
    gensim_file, aptool_file = tmp_path / "gensim", tmp_path / "aptool"
    gensim_vectors = keyed_vectors(7)
    gensim_vectors.add_vectors(WORDS, matrix)
    gensim_vectors.save_word2vec_format(str(gensim_file), binary=True)
    write_vectors(aptool_file, WordVectors(WORDS, matrix, "test"))
    assert aptool_file.read_bytes() == gensim_file.read_bytes()

    read = read_vectors(gensim_file, WORDS)
    assert read.words == WORDS
    assert read.matrix.tobytes() == matrix.tobytes()
    again = keyed_vectors.load_word2vec_format(str(aptool_file), binary=True)
    assert again.index_to_key == WORDS
    assert again.vectors.tobytes() == matrix.tobytes()


def test_vectors_that_are_not_finite_are_not_written(tmp_path):
    with pytest.raises(InputError, match="'b': expected finite numbers for every word"):
        write_vectors(tmp_path / "v.bin", WordVectors(["a", "b"], np.array([[0], [np.inf]]), "test"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not DATA, reason="APTOOL_DATA is not set")
def test_the_published_google_news_vectors():
    path = Path(DATA) / "vectors" / "googlenews-8000x300.bin"
    exact = read_vectors(path, ["NASA", "in", "Paris"])
    assert exact.matrix.shape == (3, 300)
    # The first row of the file is of "in"; it begins with bytes bd ff 8f 3d, which are 0x3d8fffbd as a float.
    assert exact.matrix[1, 0] == np.frombuffer(bytes.fromhex("bdff8f3d"), "<f4")[0]
    # The file has NASA and Paris; words keep the requested spelling.
    some = read_vectors(path, ["nasa", "in", "zzzz", "paris"])
    assert some.words == ["nasa", "in", "paris"]
    assert (some.matrix == exact.matrix).all()


@pytest.mark.parametrize(
    ("train", "shares"),
    [("a b b", "50.0% of the distinct words|66.7%"), ("", "0.0% of the distinct words|0.0%")],
)
def test_shares_of_words_with_a_vector(tmp_path, train, shares):
    write_vectors(tmp_path / "words.vec", WordVectors(["b"], np.ones((1, 2), np.float32), "here"))
    recipe = load_recipe("ap-cnn", [f"vectors.source={tmp_path / 'words.vec'}"])

    with recorded() as log:
        make_vocabulary(recipe, TrainingTexts([train], lambda: iter(["b"]), seed=0))

    distinct, occurrences = shares.split("|")
    message = f"vectors for {distinct} of the training texts ({occurrences} of their occurrences)"
    assert message in log.messages
