"""Word vectors: read from files and static models, only for the words needed, and written as word2vec."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aptool.errors import InputError, first_line
from aptool.formats.atomic import output_file
from aptool.formats.location import PathOrUrl, is_remote
from aptool.formats.outputs import Kind
from aptool.text.vector_files import VectorFile, open_vectors
from aptool.version import require

logger = logging.getLogger(__name__)

# Spellings of a word in order of precedence.
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
    """Words with their vectors."""

    words: list[str]  # distinct words
    matrix: np.ndarray  # (words, d) float32, finite
    source: str  # the file, folder or name that the vectors are from


def read_vectors(source: PathOrUrl, words: Iterable[str]) -> WordVectors:
    """Read word vectors in one pass; memory holds the vectors of the requested words.

    A file may be word2vec binary or text, GloVe text, fastText ``.vec``, or gz of any; its bytes determine
    the format. A folder, or a name on the Hugging Face hub, is a static model for ``model2vec``. In a file, a
    word is looked up as written, then in lower, title and upper case. The first of two rows of one word is
    used, and words that are not UTF-8 are skipped.

    Returns:
        The requested words that have a vector, in the order and spelling of ``words``.
    """
    if is_static_model(source):
        return _read_static_model(source, words)
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


def is_static_model(source: PathOrUrl) -> bool:
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


def _read_static_model(source: PathOrUrl, words: Iterable[str]) -> WordVectors:
    """Read a static model: a word's vector is the mean of its subword vectors."""
    library = require("model2vec", purpose=f"{source}: a static model", extra="distill")
    try:
        model = library.StaticModel.from_pretrained(source, force_download=False)
        model.embedding = np.asarray(model.embedding, dtype=np.float32)  # means of float16 would be rounded
        requested = [word for word in dict.fromkeys(words) if word]
        lengths = np.array([len(tokens) for tokens in model.tokenize(requested)], dtype=np.int64)
        encodable = [requested[index] for index in np.flatnonzero(lengths)]
        matrix = np.zeros((0, model.dim), dtype=np.float32)
        if encodable:
            matrix = model.encode(encodable, normalize=False, max_length=None, use_multiprocessing=False)
    except InputError:
        raise
    except Exception as error:  # a network, a hub and several file formats raise exceptions of their own
        expected = "a static model: its folder, or its name on the Hugging Face hub"
        raise InputError(source, problem=first_line(error), expected=expected) from error
    not_finite = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(not_finite):
        word = encodable[int(not_finite[0])]
        raise InputError(source, column=word, problem="NaN or infinity", expected="finite numbers")
    single = int((lengths == 1).sum())
    logger.info(
        f"{source}: static model, dimension {matrix.shape[1]}, {len(encodable):,} words found, "
        f"{single:,} as one token and {len(encodable) - single:,} as the mean of their subwords"
    )
    return WordVectors(encodable, matrix.astype(np.float32, copy=False), str(source))


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
    with output_file(path, Kind.VECTORS) as temporary, temporary.open("wb") as file:
        file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
        for word, row in zip(vectors.words, matrix, strict=True):
            file.write(word.encode() + b" ")
            file.write(row.tobytes())
