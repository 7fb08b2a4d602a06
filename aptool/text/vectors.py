"""Words with their vectors: read from any usual format, only the words needed, and written as word2vec."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aptool.errors import InputError
from aptool.formats.atomic import atomic_file
from aptool.formats.location import PathOrUrl
from aptool.formats.urls import is_remote
from aptool.text.vector_files import VectorFile, open_vectors

logger = logging.getLogger(__name__)

# How a word is looked up: the first spelling that has a vector is used.
SPELLINGS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("as written", str),
    ("in lower case", str.lower),
    ("in title case", str.title),
    ("in upper case", str.upper),
)

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILE_SUFFIXES = (".bin", ".txt", ".vec", ".gz", ".w2v", ".model", ".zip")


@dataclass(frozen=True)
class WordVectors:
    """Words with their vectors.

    Attributes:
        words: distinct.
        matrix: (words, d) float32, finite.
        source: the file, folder or name that they came from.
    """

    words: list[str]
    matrix: np.ndarray
    source: str


@dataclass(frozen=True)
class VectorCoverage:
    """How many words of a text have a vector.

    Attributes:
        types: distinct words.
        tokens: running words.
        unknown_types: distinct words without a vector.
        unknown_tokens: running words without one.
    """

    types: int
    tokens: int
    unknown_types: int
    unknown_tokens: int

    @property
    def type_share(self) -> float:
        """Share of the distinct words that have a vector; 0 where there are no words."""
        return 1 - self.unknown_types / self.types if self.types else 0.0

    @property
    def token_share(self) -> float:
        """Share of the running words that have a vector; 0 where there are no words."""
        return 1 - self.unknown_tokens / self.tokens if self.tokens else 0.0


def read_vectors(source: PathOrUrl, words: Iterable[str] | None = None) -> WordVectors:
    """Reads the vectors of the wanted words, in one pass and in memory for these alone.

    A file may be word2vec binary or text, GloVe text, fastText ``.vec``, or gz of any; its bytes tell which.
    A folder, or a name on the Hugging Face hub, is a static model for ``model2vec``. In a file, a wanted word
    is looked up as written, then in lower, title and upper case; the first of two rows of one word is used,
    and words that are not UTF-8 are skipped.

    Args:
        source: a file, a URL, a folder, or a hub name such as ``minishlab/potion-base-8M``.
        words: those wanted; None: all.

    Returns:
        The wanted words that have a vector, in the order given (all: in the file's), spelled as wanted.

    Raises:
        AptoolError: a static model is wanted and the ``model2vec`` package is not installed.
        InputError: naming line or record, for a file that is truncated, has rows of different widths, or has
            anything but finite numbers for a wanted word. Rows of other words are only checked for their
            width.
    """
    if _is_static_model(source):
        from aptool.text.static_models import read_static_model

        found, matrix = read_static_model(source, words)
        return WordVectors(found, matrix, str(source))
    return _read_file(source, words)


def write_vectors(path: PathOrUrl, vectors: WordVectors, *, binary: bool = True) -> None:
    """Writes a word2vec file, byte for byte as gensim writes it.

    Raises:
        InputError: a word is empty, repeated or contains white space, which the format cannot express, a
            number is not finite, or the file cannot be written.
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
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
        for word, row in zip(vectors.words, matrix, strict=True):
            file.write(word.encode() + b" ")
            file.write(row.tobytes() if binary else (" ".join(map(str, row)) + "\n").encode())


def coverage(vectors: WordVectors, counts: Mapping[str, int]) -> VectorCoverage:
    """How many words of a text, given as the counts of its words, have a vector."""
    known = set(vectors.words)
    unknown = [count for word, count in counts.items() if word not in known]
    return VectorCoverage(len(counts), sum(counts.values()), len(unknown), sum(unknown))


def _read_file(path: PathOrUrl, words: Iterable[str] | None) -> WordVectors:
    with open_vectors(path) as file:
        found = _all_rows(path, file) if words is None else _wanted_rows(path, file, words)
        named = "" if words is None else f", {len(found.words):,} of the words wanted"
        logger.info(f"{path}: {file.kind}, dimension {file.dim}{named}")
        return found


def _all_rows(path: PathOrUrl, file: VectorFile) -> WordVectors:
    kept = _GrowingMatrix(file.dim)
    words: dict[str, None] = {}
    odd: Counter[str] = Counter()
    for row in file.rows:
        word = _decoded(row.word)
        if not word:
            odd["without a word" if word == "" else "whose word is not UTF-8"] += 1
        elif word in words:
            odd["that repeat a word"] += 1
        else:
            words[word] = None
            kept.append(file.parse(row))
    _report_odd(path, odd)
    return WordVectors(list(words), kept.rows(), str(path))


def _wanted_rows(path: PathOrUrl, file: VectorFile, words: Iterable[str]) -> WordVectors:
    wanted = [word for word in dict.fromkeys(words) if word]
    spellings = _spellings(wanted)
    # For each word, the rank of the spelling that it was found in, and its row.
    best = np.full(len(wanted), len(SPELLINGS), dtype=np.int64)
    place = np.zeros(len(wanted), dtype=np.int64)
    kept = _GrowingMatrix(file.dim)
    met: set[bytes] = set()
    odd: Counter[str] = Counter()
    for row in file.rows:
        users = spellings.get(row.word)
        if users is None:
            # Nearly all words are ASCII; only the others have to be decoded.
            if not row.word.isascii() and _decoded(row.word) is None:
                odd["whose word is not UTF-8"] += 1
            elif not row.word:
                odd["without a word"] += 1
            continue
        if row.word in met:
            odd["that repeat a word"] += 1
            continue
        met.add(row.word)
        better = [(word, rank) for word, rank in users if rank < best[word]]
        if better:
            at = kept.append(file.parse(row))
            for word, rank in better:
                best[word], place[word] = rank, at
    _report_odd(path, odd)
    found = np.flatnonzero(best < len(SPELLINGS))
    for rank, (name, _) in enumerate(SPELLINGS[1:], start=1):
        if hits := int((best == rank).sum()):
            logger.info(f"{path}: found {name}: {hits:,}")
    return WordVectors([wanted[index] for index in found], kept.rows()[place[found]], str(path))


def _spellings(wanted: list[str]) -> dict[bytes, list[tuple[int, int]]]:
    """Bytes of a word in a file -> the wanted words it is a spelling of: their index, the spelling's rank."""
    found: dict[bytes, list[tuple[int, int]]] = {}
    for index, word in enumerate(wanted):
        for rank, (_, spell) in enumerate(SPELLINGS):
            users = found.setdefault(spell(word).encode("utf-8", "surrogatepass"), [])
            if not users or users[-1][0] != index:  # equal spellings: the first one's rank
                users.append((index, rank))
    return found


class _GrowingMatrix:
    """Rows appended one by one; nothing is allocated because a header announces it."""

    def __init__(self, dim: int) -> None:
        self._rows = np.empty((0, dim), dtype=np.float32)
        self._count = 0

    def append(self, row: np.ndarray) -> int:
        """Appends a row and returns its index."""
        if self._count == len(self._rows):
            larger = np.empty((max(1024, 2 * self._count), self._rows.shape[1]), dtype=np.float32)
            larger[: self._count] = self._rows
            self._rows = larger
        self._rows[self._count] = row
        self._count += 1
        return self._count - 1

    def rows(self) -> np.ndarray:
        """(rows, d) float32."""
        return self._rows[: self._count]


def _decoded(word: bytes) -> str | None:
    try:
        return word.decode()
    except UnicodeDecodeError:
        return None


def _report_odd(path: PathOrUrl, odd: Counter[str]) -> None:
    for what, rows in sorted(odd.items()):
        logger.info(f"{path}: {rows:,} rows {what}, skipped")


def _is_static_model(source: PathOrUrl) -> bool:
    """Whether a source is a local folder, or a name on the hub that is not just a mistyped path."""
    if is_remote(source):
        return False
    if isinstance(source, Path) or Path(str(source)).exists():
        return Path(str(source)).is_dir()
    source = str(source)
    return (
        _HUB_NAME.fullmatch(source) is not None
        and not source.endswith(_FILE_SUFFIXES)
        and not Path(source).parent.is_dir()
    )
