"""Answer stores: folders, on a disk or an object store, with the encoded answers of one model.

The key of an answer is a hash of its token ids, the only input of the model. A text that was changed, or that
another tokenizer splits differently, is another answer. ``encoded.json`` names the model. The answers are in
parts (``formats.answer_part``), which never change. A writer claims the store; readers do not.
"""

import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from aptool.config import Recipe
from aptool.documents import read_json
from aptool.errors import InputError, UsageError
from aptool.formats.answer_part import SUFFIX, AnswerPart, DamagedPartError, checksums, read_part, write_part
from aptool.formats.atomic import check_writable, remove_matching
from aptool.formats.claim import claimed_folder
from aptool.formats.location import Location, PathOrUrl, location, store_of, why_missing
from aptool.formats.schemas import check_document
from aptool.models.build import code_of
from aptool.models.model import LoadedModel
from aptool.models.ragged import rows_of
from aptool.plugins import differing_code

logger = logging.getLogger(__name__)

StoredPrecision = Literal["fp32", "fp16", "int8"]
PRECISIONS: tuple[StoredPrecision, ...] = get_args(StoredPrecision)

MANIFEST = "encoded.json"
_FORMAT = 1
_WRITER = "writer"  # the file by which a process claims the store
_PART = re.compile(rf"[0-9a-f]{{24}}{re.escape(SUFFIX)}")
_LEFTOVER = re.compile(rf"\.({_PART.pattern}|{MANIFEST}|{_WRITER})\.[a-z0-9_]{{8}}\.part")

# Largest gaps between answers that one request reads, as a further request takes longer; size of a request.
_GAP_ON_DISK, _GAP_REMOTE = 1 << 16, 1 << 20
_MOST_BYTES = 8 << 20
_CONCURRENT_REQUESTS = 16


class Stored(NamedTuple):
    """The rows of answers, concatenated."""

    rows: np.ndarray  # (R, w) uint8
    counts: np.ndarray  # (n,) int64 rows per answer


class AnswerIndex:
    """The locations of the answers of several parts: about 40 bytes per answer. Immutable."""

    def __init__(self, parts: list[AnswerPart]) -> None:
        self.parts = parts
        number = np.repeat(np.arange(len(parts)), [len(part.counts) for part in parts])
        keys = np.concatenate([np.empty((0, 2), np.uint64), *(part.keys for part in parts)])
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        self._first, self._second = keys[order, 0], keys[order, 1]
        self._part = number[order].astype(np.int32)
        self._starts, self._counts, self._sums = (
            np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)])[order]
            for name, kind in (("starts", np.int64), ("counts", np.int64), ("sums", np.uint64))
        )

    def __len__(self) -> int:
        return len(self._first)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """(n,) int64: the entry of each key (n, 2); -1 for a key that is not in the store."""
        entries = np.full(len(keys), -1, dtype=np.int64)
        candidate = np.searchsorted(self._first, keys[:, 0])
        pending = np.arange(len(keys))
        while len(pending):  # more than once only if two answers share half of their hash
            pending = pending[candidate[pending] < len(self)]
            pending = pending[self._first[candidate[pending]] == keys[pending, 0]]
            is_match = self._second[candidate[pending]] == keys[pending, 1]
            entries[pending[is_match]] = candidate[pending[is_match]]
            pending = pending[~is_match]
            candidate[pending] += 1
        return entries

    def read(self, entries: np.ndarray, multiple: int = 1) -> Stored:
        """Read the rows of (n,) entries; repeat the last row of each answer up to a multiple of rows."""
        if not len(entries):
            return Stored(np.empty((0, 0), np.uint8), np.empty(0, np.int64))
        width = self.parts[0].width
        order = np.lexsort((self._starts[entries], self._part[entries]))
        arrays = self._part, self._starts, self._counts, self._sums
        part, begin, counts, sums = (values[entries[order]] for values in arrays)
        padded = -(-self._counts[entries] // multiple) * multiple
        target = (np.cumsum(padded) - padded)[order]
        rows = np.empty((int(padded.sum()), width), np.uint8)
        self._fill(rows, part, begin, counts, target)
        changed = np.flatnonzero(checksums(rows, target, counts) != sums)
        if len(changed):
            raise DamagedPartError(self.parts[part[changed[0]]].path, "changed since it was written")
        missing = padded[order] - counts
        rows[rows_of(target + counts, missing)] = rows[np.repeat(target + counts - 1, missing)]
        return Stored(rows, padded)

    def _fill(
        self, rows: np.ndarray, part: np.ndarray, begin: np.ndarray, counts: np.ndarray, target: np.ndarray
    ) -> None:
        """Read answers, sorted by part and offset, into the rows that start at ``target``."""
        width = rows.shape[1]
        end = begin + counts * width
        gap = _GAP_ON_DISK if isinstance(self.parts[0].path, Path) else _GAP_REMOTE
        gaps = np.append(begin[1:] - end[:-1], 0).tolist()
        discarded = memoryview(bytearray(max((size for size in gaps if 0 < size <= gap), default=0)))
        data = rows.data.cast("B")
        bounds = zip((target * width).tolist(), ((target + counts) * width).tolist(), strict=True)
        answers = [data[first:last] for first, last in bounds]
        requests: dict[int, list[tuple[int, list[memoryview]]]] = {}  # offset and buffers, per part
        for first, last in _requests(part, begin, end, gap):
            buffers = [answers[first]]
            for number in range(first + 1, last):
                if gaps[number - 1]:
                    buffers.append(discarded[: gaps[number - 1]])
                buffers.append(answers[number])
            requests.setdefault(int(part[first]), []).append((int(begin[first]), buffers))
        for number, ranges in requests.items():
            path = self.parts[number].path
            store, key = store_of(path)
            try:
                is_complete = store.read_into(key, ranges)
            except FileNotFoundError:
                is_complete = False
            if not is_complete:
                raise DamagedPartError(path, "truncated")


class AnswerStore:
    """An answer store of one model; ``refresh`` reads its index, as ``open_store`` does."""

    def __init__(self, folder: Location, precision: StoredPrecision, fingerprint: str) -> None:
        self.folder = folder
        self.precision = precision
        self._fingerprint = fingerprint
        self._owner = f"{fingerprint} {precision}"
        self.index = AnswerIndex([])

    def refresh(self, *, repair: bool = False) -> None:
        """Read the index of new parts; ``repair`` removes damaged parts, so that they are encoded again."""
        store, key = store_of(self.folder)
        indexed = {part.path.name for part in self.index.parts}
        names = [name for name in store.names(key) if _PART.fullmatch(name) and name not in indexed]

        def read(name: str) -> AnswerPart | None:
            try:
                return read_part(self.folder / name, self._owner)
            except DamagedPartError as error:
                if not repair:
                    raise
                logger.info(f"{error}: its answers are encoded again")
                store.delete([store_of(self.folder / name)[1]])
                return None

        with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
            new = [part for part in pool.map(read, names) if part is not None]
        if new:
            self.index = AnswerIndex([*self.index.parts, *new])

    def add(self, keys: np.ndarray, counts: np.ndarray, rows: np.ndarray) -> None:
        """Add answers as a part: keys (n, 2) uint64, counts (n,) int64 and concatenated rows (R, w) uint8."""
        name = write_part(self.folder, keys, counts, rows, self._owner)
        if name not in {part.path.name for part in self.index.parts}:
            self.index = AnswerIndex([*self.index.parts, read_part(self.folder / name, self._owner)])

    def write_manifest(self, recipe: Recipe) -> None:
        """Write the manifest of a new store of a model with this recipe."""
        manifest = {
            "format": _FORMAT,
            "model": {"name": recipe.preset, "fingerprint": self._fingerprint},
            "precision": self.precision,
            "code": code_of(recipe),
        }
        path = self.folder / MANIFEST
        check_document("encoded", manifest, path)
        store, key = store_of(path)
        store.create(key, (json.dumps(manifest, indent=2) + "\n").encode())


def open_store(folder: PathOrUrl, model: LoadedModel, model_folder: object) -> AnswerStore:
    """Open a store to read or add answers of a model."""
    precision = stored_precision(folder, model, model_folder)
    store = AnswerStore(location(folder).absolute(), precision, model.fingerprint)
    store.refresh()
    return store


def stored_precision(folder: PathOrUrl, model: LoadedModel, model_folder: object) -> StoredPrecision:
    """Return the precision of the numbers in a store; raise unless it is a store of this model."""
    expected = f"a store that `aptool encode ANSWERS --model {model_folder} --output STORE` makes"
    path = location(folder) / MANIFEST
    if not path.is_file():
        raise InputError(folder, problem=why_missing(location(folder), MANIFEST), expected=expected)
    manifest: dict[str, Any] = read_json(path)
    check_document("encoded", manifest, path)
    owner = manifest["model"]
    if owner["fingerprint"] != model.fingerprint:
        problem = (
            f"encoded by {owner['name']} with fingerprint {owner['fingerprint']}, not by "
            f"{model.recipe.preset} with fingerprint {model.fingerprint}"
        )
        raise InputError(folder, problem=problem, expected=expected)
    if differ := differing_code(manifest["code"], code_of(model.recipe)):
        problem = f"encoded with other code ({differ})"
        expected = "the code that encoded it, or a new store"
        raise InputError(folder, problem=problem, expected=expected)
    precision: StoredPrecision = manifest["precision"]
    return precision


def precision_for(
    folder: PathOrUrl, model: LoadedModel, model_folder: object, requested: StoredPrecision | None
) -> StoredPrecision:
    """Return the requested precision; None is that of the store, or fp32 for a new store."""
    store, key = store_of(location(folder))
    names = store.names(key)
    check_writable(location(folder) / MANIFEST)
    if MANIFEST not in names:
        if not all(name == _WRITER or _LEFTOVER.fullmatch(name) for name in names):
            expected = "encoded answers, or a new path"
            raise InputError(folder, problem=f"no {MANIFEST} in it", expected=expected)
        return requested or "fp32"
    existing = stored_precision(folder, model, model_folder)
    if requested not in (None, existing):
        raise UsageError(
            f"--precision {requested}: {folder} holds {existing}; expected {existing}, or another --output"
        )
    return existing


@contextmanager
def writing_to(folder: PathOrUrl) -> Iterator[None]:
    """Claim a store for this process and its workers, while the block runs."""
    path = location(folder)
    with claimed_folder(path, folder, _WRITER):
        remove_matching(path, _LEFTOVER)
        yield


def _requests(part: np.ndarray, begin: np.ndarray, end: np.ndarray, gap: int) -> list[tuple[int, int]]:
    """Return the first and last (excluded) of the consecutive answers of each request.

    Answers are sorted by part and first byte; a repeated answer starts a new request. ``gap`` is the largest
    gap in bytes between two answers of a request.
    """
    gaps = begin[1:] - end[:-1]
    is_split = (part[1:] != part[:-1]) | (gaps < 0) | (gaps > gap)
    bounds = [0, *(np.flatnonzero(is_split) + 1).tolist(), len(part)]
    requests: list[tuple[int, int]] = []
    for first, last in pairwise(bounds):
        block = (begin[first:last] - begin[first]) // _MOST_BYTES
        inner = [first, *(first + 1 + np.flatnonzero(np.diff(block))).tolist(), last]
        requests += pairwise(inner)
    return requests
