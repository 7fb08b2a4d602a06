"""Word vectors: read from files, only for the words needed, and written as word2vec."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from aptool.errors import InputError
from aptool.outputs import output_file
from aptool.paths import PathOrUrl
from aptool.text.vector_files import VectorFile, open_vectors

logger = logging.getLogger(__name__)

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
