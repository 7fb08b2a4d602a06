"""Word vectors: read from files, only for the words needed, and written as word2vec.

A file is a stream of rows: word2vec binary and text, GloVe, fastText .vec, and packed ones of these. The
format is detected by the first bytes of a file, never by its name. A few blocks of the file are in memory at
a time, and the numbers of a row are only parsed on request.
"""

import gzip
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain
from typing import IO, NamedTuple, TypeAlias

import numpy as np

from aptool.errors import InputError
from aptool.files import check_is_text, open_unpacked
from aptool.outputs import output_file
from aptool.paths import PathOrUrl

logger = logging.getLogger(__name__)


BLOCK = 1 << 20  # bytes read at a time
LONGEST_WORD = 1 << 16  # bytes; the original word2vec cuts words after 100
WIDEST = 1 << 16  # numbers in a row
LARGEST = 1e6  # magnitude of a number; larger ones come from bytes that are no vectors

_BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,18})\s*")
# A number, or one that is written as elsewhere: with a decimal comma, or joined to others by commas.
_NUMBER_LIKE = re.compile(rb"[+-]?[\d.,;][\d.,;eE+-]*")
_FOREIGN = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\xba\x16\x4f\x2f": "a fastText .bin model; use its .vec file",
}


# The number of a record or line, from 1, a word, and its numbers, unparsed.
Row: TypeAlias = tuple[int, bytes, bytes]


class VectorFile(NamedTuple):
    """An open file of word vectors."""

    kind: str  # description of its format
    dim: int  # dimension of the vectors
    rows: Iterator[Row]  # the rows in the file's order
    is_binary: bool  # records of float32 numbers, not lines of text


def _detect_format(path: PathOrUrl, file: BufferedReader) -> VectorFile:
    head = file.peek()
    if head.startswith(_BOM):
        file.read(len(_BOM))
        head = file.peek()
    if not head.strip():
        raise InputError(path, problem="an empty file", expected="word vectors")
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(path, problem=name, expected="word2vec, GloVe or fastText vectors")
    check_is_text(path, head)
    packing = " (packed)" if isinstance(file.raw, gzip.GzipFile) else ""
    first = file.readline()
    header = _HEADER.fullmatch(first)
    if header is None:
        dim = _width_of(path, first)
        rows = _text_rows(path, chain([first], file), dim, 1, None)
        return VectorFile(f"text without a header{packing}", dim, rows, is_binary=False)
    count, dim = int(header[1]), int(header[2])
    if not 1 <= dim <= WIDEST:
        expected = f"a count and a width of 1 to {WIDEST}"
        raise InputError(path, position="line 1", value=_shown(first), expected=expected)
    following = file.peek()
    if following and not _looks_like_text(following, dim):
        rows = _binary_rows(path, file, dim, count)
        return VectorFile(f"word2vec binary{packing}", dim, rows, is_binary=True)
    return VectorFile(f"word2vec text{packing}", dim, _text_rows(path, file, dim, 2, count), is_binary=False)


def _looks_like_text(rows: bytes, dim: int) -> bool:
    """Whether the first row after a header is text: at least half of its last fields look like numbers."""
    fields = rows.partition(b"\n")[0].split()[-dim:]
    numbers = sum(_is_number(field) or _NUMBER_LIKE.fullmatch(field) is not None for field in fields)
    return 2 * numbers >= len(fields) > 0


def _width_of(path: PathOrUrl, line: bytes) -> int:
    """Numbers per row, from the first line of a file without a header."""
    fields = line.split()
    numbers = 0
    while numbers < len(fields) and _is_number(fields[-1 - numbers]):
        numbers += 1
    if numbers == len(fields) and not line[:1].isspace():
        numbers -= 1  # the word itself is a number
    if not 1 <= numbers <= WIDEST:
        expected = "a word and its numbers, or a header with the count and width of the vectors"
        raise InputError(path, position="line 1", value=_shown(line), expected=expected)
    return numbers


def _binary_rows(path: PathOrUrl, file: IO[bytes], dim: int, count: int) -> Iterator[Row]:
    """Read records of a word, a space and ``dim`` little-endian float32, with or without a final newline."""
    width = 4 * dim
    data, offset = b"", 0
    for number in range(1, count + 1):
        position = f"record {number:,} of {count:,}"
        while (space := data.find(b" ", offset)) < 0 or len(data) < space + 1 + width:
            more = file.read(BLOCK)
            if not more:
                expected = f"a word, a space and {width:,} bytes"
                raise InputError(path, position=position, problem="the file ends here", expected=expected)
            data, offset = data[offset:] + more, 0
        word = data[offset:space].lstrip(b"\n")
        if len(word) > LONGEST_WORD or b"\0" in word:
            expected = f"a word and {dim} numbers in each record, as the header says"
            raise InputError(path, position=position, value=_shown(data[offset:]), expected=expected)
        offset = space + 1 + width
        yield number, word, data[space + 1 : offset]
    remainder = data[offset:] + file.read(BLOCK)
    if remainder.strip(b"\n"):
        position = f"after record {count:,}"
        expected = f"the end of the file, as its header announces {count:,} words of width {dim}"
        raise InputError(path, position=position, value=_shown(remainder), expected=expected)


def _text_rows(
    path: PathOrUrl, lines: Iterable[bytes], dim: int, first: int, count: int | None
) -> Iterator[Row]:
    """Read lines of a word, which may be empty or have spaces, as in GloVe, and ``dim`` numbers."""
    rows = 0
    for number, raw in enumerate(lines, start=first):
        line = raw.rstrip(b" \t\r\n")
        if not line:
            continue
        if not raw.endswith(b"\n"):
            logger.info(f"{path}: no newline at the end; the last row may be truncated")
        rows += 1
        word, _, values = line.partition(b" ")
        if values.count(b" ") != dim - 1 or not values or not word or b"\t" in word:
            fields = line.split()
            extra = len(fields) - dim + line[:1].isspace()  # fields of the word, which may be empty
            inner = fields[1 : len(fields) - dim]
            # Additional numbers mean another width; additional words, a word with spaces.
            if extra < 1 or any(map(_is_number, inner)):
                numbers = sum(map(_is_number, fields[1:]))
                problem = f"{numbers} numbers after {_shown(fields[0])!r}"
                raise InputError(
                    path, position=f"line {number:,}", problem=problem, expected=f"{dim} numbers"
                )
            word, values = b" ".join(fields[:-dim]), b" ".join(fields[-dim:])
        yield number, word, values
    if count is not None and rows < count:
        expected = f"{count:,} rows, as the header announces"
        raise InputError(path, position="end", problem=f"{rows:,} rows", expected=expected)
    if count is not None and rows > count:
        logger.info(f"{path}: the header announces {count:,} rows, the file has {rows:,}")


def _parse(path: PathOrUrl, file: VectorFile, row: Row) -> np.ndarray:
    """(dim,) float32 finite numbers of a row."""
    number, word, data = row
    position = f"{'record' if file.is_binary else 'line'} {number:,}"
    if file.is_binary:
        values = np.frombuffer(data, dtype="<f4")
    else:
        fields = data.split()
        if len(fields) != file.dim:
            problem, expected = f"{len(fields)} numbers", f"{file.dim} numbers"
            raise InputError(path, position=position, problem=problem, expected=expected)
        bad = [field for field in fields if not _is_number(field)]
        if bad:
            raise InputError(path, position=position, value=_shown(bad[0]), expected="a number")
        with np.errstate(over="ignore"):
            values = np.array(list(map(float, fields))).astype(np.float32)
    if not (np.abs(values) <= LARGEST).all():  # also false for NaN
        problem = "NaN, or a number beyond any vector's"
        expected = f"numbers of -{LARGEST:,.0f} to {LARGEST:,.0f} for the word {_shown(word)}"
        raise InputError(path, position=position, problem=problem, expected=expected)
    return values


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field  # only Python allows such groups of digits


def _shown(data: bytes) -> str:
    return data[:40].rstrip(b"\r\n").decode("utf-8", "replace")


# Spellings of a word in order of precedence: as written, then in lower, title and upper case.
SPELLINGS: tuple[Callable[[str], str], ...] = (str, str.lower, str.title, str.upper)


@dataclass(frozen=True)
class WordVectors:
    """Words with their vectors."""

    words: list[str]  # distinct words
    matrix: np.ndarray  # (words, d) float32, finite
    source: str  # the file, folder or name that the vectors are from


def read_vectors(source: PathOrUrl, words: Iterable[str]) -> WordVectors:
    """Read word vectors in one pass; memory holds the vectors of the requested words.

    A file may be word2vec binary or text, GloVe text, fastText ``.vec``, or a packed file of any; its bytes
    determine the format. A word is looked up as written, then in lower, title and upper case. The first of
    two rows of one word is used.

    Returns:
        The requested words that have a vector, in the order and spelling of ``words``.
    """
    requested = [word for word in dict.fromkeys(words) if word]
    spellings = _spellings(requested)
    # Per word: the rank of the best spelling so far, and the row of its vector.
    best = np.full(len(requested), len(SPELLINGS), dtype=np.int64)
    row_of = np.zeros(len(requested), dtype=np.int64)
    found: list[np.ndarray] = []
    with open_unpacked(source) as opened:
        file = _detect_format(source, opened)
        for row in file.rows:
            users = spellings.pop(row[1], ())  # a second row of the word is not read
            better = [(word, rank) for word, rank in users if rank < best[word]]
            if better:
                for word, rank in better:
                    best[word], row_of[word] = rank, len(found)
                found.append(_parse(source, file, row))
    with_vector = np.flatnonzero(best < len(SPELLINGS))
    logger.info(f"{source}: {file.kind}, dimension {file.dim}, {len(with_vector):,} of the requested words")
    matrix = np.array(found, dtype=np.float32).reshape(-1, file.dim)[row_of[with_vector]]
    return WordVectors([requested[index] for index in with_vector], matrix, str(source))


def _spellings(words: list[str]) -> dict[bytes, list[tuple[int, int]]]:
    """Map the bytes of a spelling to its words: their index, and the rank of the spelling."""
    spellings: dict[bytes, list[tuple[int, int]]] = {}
    for index, word in enumerate(words):
        for rank, spell in enumerate(SPELLINGS):
            users = spellings.setdefault(spell(word).encode("utf-8", "surrogatepass"), [])
            if not users or users[-1][0] != index:  # of equal spellings, the first rank counts
                users.append((index, rank))
    return spellings


def write_vectors(path: PathOrUrl, vectors: WordVectors) -> None:
    """Write a binary word2vec file, byte for byte as gensim does. Words have no white space."""
    matrix = np.ascontiguousarray(vectors.matrix, dtype="<f4")
    is_finite = np.isfinite(matrix).all(axis=1)
    if not is_finite.all():
        word = vectors.words[int(np.argmin(is_finite))]
        raise InputError(path, column="word", value=word, expected="finite numbers for every word")
    with output_file(path) as temporary, temporary.open("wb") as file:
        file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
        for word, row in zip(vectors.words, matrix, strict=True):
            file.write(word.encode() + b" ")
            file.write(row.tobytes())
