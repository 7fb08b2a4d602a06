"""Parts of an answer store: safetensors files, from which single rows can be read.

A part holds n answers. Rows are stored as bytes for any precision:

    counts  (n,) uint64   rows of each answer
    keys    (n, 2) uint64 hash of the token ids of each answer, see ``text_keys``
    sums    (n,) uint64   checksum of the rows of each answer
    rows    (R, w) uint8  the rows of all answers, end to end

The first three precede the rows, so that two requests read them. Answers are sorted by length, as for
scoring, so that the answers of a batch are adjacent.
"""

import hashlib
import struct
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save

from aptool.documents import parse_json
from aptool.errors import InputError
from aptool.formats.location import Location, store_of

SUFFIX = ".safetensors"

# Bytes of the first request: the header, and the index of some hundred answers.
_HEAD_BYTES = 1 << 16

_LENGTH = struct.Struct("<Q")
_EXPECTED = "a part that `aptool encode` wrote; remove it and encode again"


class DamagedPartError(InputError):
    """A part is damaged."""

    def __init__(self, path: object, problem: str) -> None:
        super().__init__(path, problem=problem, expected=_EXPECTED)


class AnswerPart(NamedTuple):
    """The index of a part."""

    path: Location
    keys: np.ndarray  # (n, 2) uint64
    counts: np.ndarray  # (n,) int64 rows per answer
    sums: np.ndarray  # (n,) uint64 checksums of the rows
    starts: np.ndarray  # (n,) int64 offset of the first row in the file
    width: int  # bytes per row


def write_part(folder: Location, keys: np.ndarray, counts: np.ndarray, rows: np.ndarray, owner: str) -> str:
    """Add a part to a folder atomically, unless a part with the same answers exists; return its name."""
    sums = checksums(rows, np.cumsum(counts) - counts, counts)
    index = {"counts": counts.astype(np.uint64), "keys": keys, "sums": sums}
    name = hashlib.sha256(keys.tobytes()).hexdigest()[:24] + SUFFIX
    metadata = {"owner": owner, "sha256": _digest(index, rows.shape[1], owner)}
    store, key = store_of(folder / name)
    store.create(key, save({**index, "rows": rows}, metadata))
    return name


def read_part(path: Location, owner: str) -> AnswerPart:
    """Read the index of a part; raise if the part is damaged or has another ``owner``."""
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
        metadata, width = header["__metadata__"], int(header["rows"]["shape"][1])
        first, last = map(int, header["rows"]["data_offsets"])
    except (InputError, ValueError, OverflowError, KeyError, TypeError, IndexError) as error:
        raise DamagedPartError(path, "not such a file") from error
    if begin + last != size:
        raise DamagedPartError(path, "truncated")
    if begin + first > len(head):
        head += store.read(key, len(head), begin + first)
    try:
        index = {}
        for name in ("counts", "keys", "sums"):
            start, end = header[name]["data_offsets"]
            index[name] = np.frombuffer(head[begin + start : begin + end], np.uint64)
        index["keys"] = index["keys"].reshape(len(index["counts"]), 2)
        counts, digest = index["counts"].astype(np.int64), _digest(index, width, metadata["owner"])
        is_complete = metadata["sha256"] == digest and last - first == counts.sum() * width
    except (ValueError, OverflowError, KeyError, TypeError, IndexError) as error:
        raise DamagedPartError(path, "not such a file") from error
    if not is_complete:
        raise DamagedPartError(path, "changed since it was written")
    if metadata["owner"] != owner:
        raise InputError(path, problem="a part of another answer store", expected=_EXPECTED)
    starts = begin + first + (np.cumsum(counts) - counts) * width
    return AnswerPart(path, index["keys"], counts, index["sums"], starts, width)


def checksums(rows: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """A checksum per answer, (n,) uint64, which any flipped bit changes; it is faster than a CRC."""
    width = rows.shape[1]
    word = next(kind for kind in (np.uint64, np.uint32, np.uint16, np.uint8) if width % kind().itemsize == 0)
    sums = rows.view(word).sum(axis=1, dtype=np.uint64)  # (R,)
    ends = np.cumsum(counts)
    position = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    factors = (2 * position + 1).astype(np.uint64)
    return np.add.reduceat(sums[position + np.repeat(starts, counts)] * factors, ends - counts)


def _digest(index: dict[str, np.ndarray], width: int, owner: str) -> str:
    """Hash of the index, the row width and the owner."""
    arrays = b"".join(index[name].tobytes() for name in sorted(index))
    return hashlib.sha256(f"{owner} {width} ".encode() + arrays).hexdigest()
