"""A part of a store of encoded answers: a safetensors file of which only the rows that are needed are read.

It holds n answers. The rows of each are kept as bytes, so that a part is the same whatever the numbers are:

    counts  (n,) uint64   rows of each answer
    keys    (n, 2) uint64 the text of each answer, see ``Tokens`` and ``text_keys``
    sums    (n,) uint64   a checksum of the rows of each answer
    rows    (R, w) uint8  the rows of all answers, end to end

The format puts the first three before the rows: two requests read all that has to be known of a part. Answers
stand in the order of their length, in which answers are scored, so that those of a batch are close together.
"""

import hashlib
import struct
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save

from aptool.documents import parse_json
from aptool.errors import InputError
from aptool.formats.location import Location
from aptool.formats.stores import store_of

SUFFIX = ".safetensors"

# Bytes that are read first: the header, and the index of a part of some hundred answers.
_HEAD_BYTES = 1 << 16

_LENGTH = struct.Struct("<Q")
_EXPECTED = "a part that `aptool encode` wrote; remove it and encode again"


class DamagedPartError(InputError):
    """A part does not hold what was written."""

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(path, problem=problem, expected=_EXPECTED)


class AnswerPart(NamedTuple):
    """What is known of a part before its rows are read.

    Attributes:
        path: the file.
        keys: (n, 2) uint64.
        counts: (n,) int64 rows of each answer.
        sums: (n,) uint64 checksums of them.
        starts: (n,) int64 byte of the file at which they begin.
        width: bytes of a row.
    """

    path: Location
    keys: np.ndarray
    counts: np.ndarray
    sums: np.ndarray
    starts: np.ndarray
    width: int


def write_part(folder: Location, keys: np.ndarray, counts: np.ndarray, rows: np.ndarray, owner: str) -> str:
    """Adds a part to a folder, whole or not at all; one with the same answers stays.

    Args:
        folder: the store's.
        keys: (n, 2) uint64.
        counts: (n,) int64.
        rows: (R, w) uint8.
        owner: what the rows are of; see ``read_part``.

    Returns:
        The name of the part, which follows from the answers.

    Raises:
        InputError: it cannot be written.
    """
    sums = checksums(rows, np.cumsum(counts) - counts, counts)
    index = {"counts": counts.astype(np.uint64), "keys": keys, "sums": sums}
    name = hashlib.sha256(keys.tobytes()).hexdigest()[:24] + SUFFIX
    facts = {"owner": owner, "sha256": _digest(index, rows.shape[1], owner)}
    store, key = store_of(folder / name)
    store.create(key, save({**index, "rows": rows}, facts))
    return name


def read_part(path: Location, owner: str) -> AnswerPart:
    """Reads all of a part but its rows.

    Args:
        path: the file.
        owner: what its rows must be of.

    Raises:
        DamagedPartError: it is truncated or changed.
        InputError: it is of another owner, or cannot be read.
    """
    store, key = store_of(path)
    size = store.stat(key).size
    head = store.read(key, 0, min(size, _HEAD_BYTES))
    begin = _LENGTH.size + (_LENGTH.unpack_from(head)[0] if len(head) >= _LENGTH.size else size)
    if begin > size:
        raise DamagedPartError(path, "truncated")
    if begin > len(head):
        head += store.read(key, len(head), begin)
    try:
        header = parse_json(head[_LENGTH.size : begin].decode(), path)
        facts, width = header["__metadata__"], int(header["rows"]["shape"][1])
        first, last = map(int, header["rows"]["data_offsets"])
    except (InputError, ValueError, OverflowError, KeyError, TypeError, IndexError) as error:
        raise DamagedPartError(path, "not such a file") from error
    if begin + last != size:
        raise DamagedPartError(path, "truncated")
    if begin + first > len(head):
        head += store.read(key, len(head), begin + first)
    try:
        index = {name: _array(header[name], head[begin:]) for name in ("counts", "keys", "sums")}
        index["keys"] = index["keys"].reshape(len(index["counts"]), 2)
        counts, digest = index["counts"].astype(np.int64), _digest(index, width, facts["owner"])
        whole = facts["sha256"] == digest and last - first == counts.sum() * width
    except (ValueError, OverflowError, KeyError, TypeError, IndexError) as error:
        raise DamagedPartError(path, "not such a file") from error
    if not whole:
        raise DamagedPartError(path, "changed since it was written")
    if facts["owner"] != owner:
        raise InputError(path, problem="a part of another store", expected=_EXPECTED)
    starts = begin + first + (np.cumsum(counts) - counts) * width
    return AnswerPart(path, index["keys"], counts, index["sums"], starts, width)


def checksums(rows: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(n,) uint64: the words of a row are added up, and the sums of an answer's rows with odd factors.

    No single changed bit leaves that as it was. A CRC would take longer than reading.
    """
    width = rows.shape[1]
    word = next(kind for kind in (np.uint64, np.uint32, np.uint16, np.uint8) if width % kind().itemsize == 0)
    sums = rows.view(word).sum(axis=1, dtype=np.uint64)  # (R,)
    ends = np.cumsum(counts)
    place = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    factors = (2 * place + 1).astype(np.uint64)
    return np.add.reduceat(sums[place + np.repeat(starts, counts)] * factors, ends - counts)


def _array(entry: dict[str, Any], data: bytes) -> np.ndarray:
    begin, end = entry["data_offsets"]
    return np.frombuffer(data[begin:end], np.uint64)


def _digest(index: dict[str, np.ndarray], width: int, owner: str) -> str:
    """A checksum of all that is known of a part but where its rows begin, which their number tells."""
    arrays = b"".join(index[name].tobytes() for name in sorted(index))
    return hashlib.sha256(f"{owner} {width} ".encode() + arrays).hexdigest()
