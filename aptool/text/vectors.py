"""Word vectors: read from files, only for the words needed, and written as word2vec.

A file is a stream of rows: word2vec binary and text, GloVe, fastText .vec, and gzip of these. The format is
detected by the first bytes of a file, never by its name. A few blocks of the file are in memory at a time,
and the numbers of a row are only parsed on request.
"""

import gzip
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, NamedTuple

import numpy as np

from aptool.errors import InputError
from aptool.files import check_is_text, open_unpacked
from aptool.outputs import output_file
from aptool.paths import PathOrUrl

logger = logging.getLogger(__name__)


BLOCK = 1 << 20  # bytes read at a time
LONGEST_WORD = 1 << 16  # bytes; the original word2vec cuts words after 100
LONGEST_LINE = 16 << 20  # bytes
WIDEST = 1 << 16  # numbers in a row
LARGEST = 1e6  # magnitude of a number; larger ones come from bytes that are no vectors

_BOM = b"\xef\xbb\xbf"
_HEADER = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,18})\s*")
# A number, or one that is written as elsewhere: with a decimal comma, or joined to others by commas.
_NUMBER_LIKE = re.compile(rb"[+-]?[\d.,;][\d.,;eE+-]*")
_FOREIGN = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\xba\x16\x4f\x2f": "a fastText .bin model; use its .vec file",
}


class Row(NamedTuple):
    """One word and its numbers, unparsed."""

    number: int  # number of the record or line, from 1
    word: bytes
    values: bytes


@dataclass(frozen=True)
class VectorFile:
    """An open file of word vectors."""

    kind: str  # description of its format
    dim: int  # dimension of the vectors
    rows: Iterator[Row]  # the rows in the file's order
    parse: Callable[[Row], np.ndarray]  # parses a row into its vector, (dim,) float32, finite


@contextmanager
def open_vectors(path: PathOrUrl) -> Iterator[VectorFile]:
    """Open a file or URL of word vectors; its rows are checked as they are read."""
    with open_unpacked(path) as file:
        yield _detect_format(path, file, " (gz)" if isinstance(file.raw, gzip.GzipFile) else "")


def _detect_format(path: PathOrUrl, file: IO[bytes], packing: str) -> VectorFile:
    head = _read_block(file).removeprefix(_BOM)
    if not head.strip():
        raise InputError(path, problem="an empty file", expected="word vectors")
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(path, problem=name, expected="word2vec, GloVe or fastText vectors")
    check_is_text(path, head)
    first, _, remaining = head.partition(b"\n")
    header = _HEADER.fullmatch(first)
    if header is None:
        dim = _width_of(path, first)
        lines = _text_rows(path, head, file, dim, 1, None)
        return VectorFile(f"text without a header{packing}", dim, lines, partial(_parse_text, path, dim))
    count, dim = int(header[1]), int(header[2])
    if not 1 <= dim <= WIDEST:
        expected = f"a count and a width of 1 to {WIDEST}"
        raise InputError(path, position="line 1", value=_shown(first), expected=expected)
    if remaining and not _looks_like_text(remaining, dim):
        if first.endswith(b"\r"):
            problem, expected = "a carriage return", "binary vectors without converted line ends"
            raise InputError(path, position="line 1", problem=problem, expected=expected)
        records = _binary_rows(path, remaining, file, dim, count)
        return VectorFile(f"word2vec binary{packing}", dim, records, partial(_parse_binary, path))
    lines = _text_rows(path, remaining, file, dim, 2, count)
    return VectorFile(f"word2vec text{packing}", dim, lines, partial(_parse_text, path, dim))


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


def _binary_rows(path: PathOrUrl, start: bytes, file: IO[bytes], dim: int, count: int) -> Iterator[Row]:
    """Read records of a word, a space and ``dim`` little-endian float32, with or without a final newline."""
    width = 4 * dim
    data, offset, at_end = start, 0, False
    for number in range(1, count + 1):
        while True:
            space = data.find(b" ", offset)
            if (space >= 0 and len(data) >= space + 1 + width) or at_end:
                break
            if space < 0 and len(data) - offset > LONGEST_WORD:
                break
            more = _read_block(file)
            at_end = not more
            data, offset = data[offset:] + more, 0
        if at_end and (space < 0 or len(data) < space + 1 + width):
            position = f"record {number:,} of {count:,}"
            expected = f"a word, a space and {width:,} bytes"
            raise InputError(path, position=position, problem="the file ends here", expected=expected)
        word = data[offset:space].lstrip(b"\n") if space >= 0 else b"\0"
        if len(word) > LONGEST_WORD or b"\0" in word:
            position = f"record {number:,} of {count:,}"
            expected = f"a word and {dim} numbers in each record, as the header says"
            raise InputError(path, position=position, value=_shown(data[offset:]), expected=expected)
        offset = space + 1 + width
        yield Row(number, word, data[space + 1 : offset])
    remainder = data[offset:] or _read_block(file)
    if remainder.strip(b"\n") or _read_block(file):
        position = f"after record {count:,}"
        expected = f"the end of the file, as its header announces {count:,} words of width {dim}"
        raise InputError(path, position=position, value=_shown(remainder), expected=expected)


def _parse_binary(path: PathOrUrl, row: Row) -> np.ndarray:
    values = np.frombuffer(row.values, dtype="<f4")
    if not _are_plausible(values):
        raise _implausible(path, f"record {row.number:,}", row.word)
    return values


def _text_rows(
    path: PathOrUrl, start: bytes, file: IO[bytes], dim: int, first: int, count: int | None
) -> Iterator[Row]:
    """Read lines of a word, which may be empty or have spaces, as in GloVe, and ``dim`` numbers."""
    rows = 0
    for number, raw in enumerate(_lines(path, start, file, first), start=first):
        line = raw.rstrip(b" \t\r")
        if not line:
            continue
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
        yield Row(number, word, values)
    if count is not None and rows < count:
        expected = f"{count:,} rows, as the header announces"
        raise InputError(path, position="end", problem=f"{rows:,} rows", expected=expected)
    if count is not None and rows > count:
        logger.info(f"{path}: the header announces {count:,} rows, the file has {rows:,}")


def _parse_text(path: PathOrUrl, dim: int, row: Row) -> np.ndarray:
    fields = row.values.split()
    position = f"line {row.number:,}"
    if len(fields) != dim:
        raise InputError(path, position=position, problem=f"{len(fields)} numbers", expected=f"{dim} numbers")
    try:
        if b"_" in row.values:  # only Python allows such groups of digits
            raise ValueError(row.values)
        wide = np.array(list(map(float, fields)))
    except ValueError:
        bad = next(field for field in fields if not _is_number(field))
        raise InputError(path, position=position, value=_shown(bad), expected="a number") from None
    with np.errstate(over="ignore"):
        values = wide.astype(np.float32)
    if not _are_plausible(values):
        raise _implausible(path, position, row.word)
    return values


def _lines(path: PathOrUrl, start: bytes, file: IO[bytes], first: int) -> Iterator[bytes]:
    """Split blocks into lines without their newline."""
    number, block, unfinished = first, start, b""
    while block:
        *lines, unfinished = (unfinished + block).split(b"\n")
        yield from lines
        number += len(lines)
        if len(unfinished) > LONGEST_LINE:
            expected = f"a line of at most {LONGEST_LINE >> 20} MiB"
            raise InputError(path, position=f"line {number:,}", value=_shown(unfinished), expected=expected)
        block = _read_block(file)
    if unfinished.strip():
        logger.info(f"{path}: no newline at the end; the last row may be truncated")
        yield unfinished


def _read_block(file: IO[bytes]) -> bytes:
    """Read about ``BLOCK`` bytes, fewer only at the end: some streams return less at a time."""
    parts: list[bytes] = []
    missing = BLOCK
    while missing > 0 and (part := file.read(missing)):
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _are_plausible(values: np.ndarray) -> bool:
    return bool((np.abs(values) <= LARGEST).all())  # also false for NaN


def _implausible(path: PathOrUrl, position: str, word: bytes) -> InputError:
    expected = f"numbers of -{LARGEST:,.0f} to {LARGEST:,.0f} for the word {_shown(word)}"
    return InputError(
        path, position=position, problem="NaN, or a number beyond any vector's", expected=expected
    )


def _shown(data: bytes) -> str:
    return data[:40].decode("utf-8", "replace")


# Spellings of a word in order of precedence.
SPELLINGS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("as written", str),
    ("in lower case", str.lower),
    ("in title case", str.title),
    ("in upper case", str.upper),
)


@dataclass(frozen=True)
class WordVectors:
    """Words with their vectors."""

    words: list[str]  # distinct words
    matrix: np.ndarray  # (words, d) float32, finite
    source: str  # the file, folder or name that the vectors are from


def read_vectors(source: PathOrUrl, words: Iterable[str]) -> WordVectors:
    """Read word vectors in one pass; memory holds the vectors of the requested words.

    A file may be word2vec binary or text, GloVe text, fastText ``.vec``, or gz of any; its bytes determine
    the format. A word is looked up as written, then in lower, title and upper case. The first of two rows of
    one word is used, and words that are not UTF-8 are skipped.

    Returns:
        The requested words that have a vector, in the order and spelling of ``words``.
    """
    with open_vectors(source) as file:
        vectors = _requested_rows(source, file, words)
        share = f"{len(vectors.words):,} of the requested words"
        logger.info(f"{source}: {file.kind}, dimension {file.dim}, {share}")
        return vectors


def _requested_rows(path: PathOrUrl, file: VectorFile, words: Iterable[str]) -> WordVectors:
    requested = [word for word in dict.fromkeys(words) if word]
    spellings = _spellings(requested)
    # Per word: the rank of the best spelling so far, and the row of its vector.
    best = np.full(len(requested), len(SPELLINGS), dtype=np.int64)
    row_of = np.zeros(len(requested), dtype=np.int64)
    rows = bytearray()
    seen: set[bytes] = set()
    skipped: Counter[str] = Counter()
    for row in file.rows:
        users = spellings.get(row.word)
        if users is None:
            # Nearly all words are ASCII; only the other words have to be decoded.
            if not row.word.isascii() and not _is_utf_8(row.word):
                skipped["whose word is not UTF-8"] += 1
            elif not row.word:
                skipped["without a word"] += 1
            continue
        if row.word in seen:
            skipped["that repeat a word"] += 1
            continue
        seen.add(row.word)
        better = [(word, rank) for word, rank in users if rank < best[word]]
        if better:
            for word, rank in better:
                best[word], row_of[word] = rank, len(rows) // (4 * file.dim)
            rows += file.parse(row).tobytes()
    for reason, count in sorted(skipped.items()):
        logger.info(f"{path}: {count:,} rows {reason}, skipped")
    with_vector = np.flatnonzero(best < len(SPELLINGS))
    for rank, (name, _) in enumerate(SPELLINGS[1:], start=1):
        if hits := int((best == rank).sum()):
            logger.info(f"{path}: found {name}: {hits:,}")
    matrix = np.frombuffer(rows, dtype=np.float32).reshape(-1, file.dim)[row_of[with_vector]]
    return WordVectors([requested[index] for index in with_vector], matrix, str(path))


def _spellings(words: list[str]) -> dict[bytes, list[tuple[int, int]]]:
    """Map the bytes of a spelling to its words: their index, and the rank of the spelling."""
    spellings: dict[bytes, list[tuple[int, int]]] = {}
    for index, word in enumerate(words):
        for rank, (_, spell) in enumerate(SPELLINGS):
            users = spellings.setdefault(spell(word).encode("utf-8", "surrogatepass"), [])
            if not users or users[-1][0] != index:  # of equal spellings, the first rank counts
                users.append((index, rank))
    return spellings


def _is_utf_8(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def write_vectors(path: PathOrUrl, vectors: WordVectors) -> None:
    """Write a binary word2vec file, byte for byte as gensim does.

    Words that are empty, repeated or contain white space are refused, as the format cannot express them.
    """
    matrix = np.ascontiguousarray(vectors.matrix, dtype="<f4")
    if matrix.ndim != 2 or len(matrix) != len(vectors.words):
        raise ValueError(f"{len(vectors.words)} words with a matrix of shape {matrix.shape}")
    repeated = Counter(vectors.words)
    for word, row in zip(vectors.words, matrix, strict=True):
        if not word or re.search(r"[ \t\r\n]", word):
            raise InputError(path, column="word", value=word, expected="a word without white space")
        if repeated[word] > 1:
            raise InputError(path, column="word", value=word, expected="each word once")
        if not np.isfinite(row).all():
            raise InputError(path, column="word", value=word, expected="finite numbers for every word")
    with output_file(path) as temporary, temporary.open("wb") as file:
        file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
        for word, row in zip(vectors.words, matrix, strict=True):
            file.write(word.encode() + b" ")
            file.write(row.tobytes())
