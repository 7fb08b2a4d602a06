"""Encoded answers from a store; missing answers are encoded and added.

The output of ``PairScorer.cache_answers`` is stored as bytes: fp32 unchanged, fp16 rounded, int8 followed by
the scale of the row. A newly encoded answer is rounded in the same way as a stored one, so scores do not
depend on the content of the store.
"""

import time
from collections.abc import Callable
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from aptool.errors import InputError
from aptool.models.device import send
from aptool.models.ragged import Ragged, rows_of
from aptool.scoring.answer_store import AnswerStore, Stored, StoredPrecision
from aptool.scoring.encoded import text_keys
from aptool.text.subwords import pooled_rows
from aptool.text.tokenizer import Tokens

# New answers are written when they take this many bytes, or after this many seconds.
PART_BYTES = 64 << 20
PART_SECONDS = 60.0


class StoredAnswers:
    """The answers of a store, for a scorer; thread-safe. ``fill`` encodes and adds missing answers."""

    def __init__(self, store: AnswerStore, *, fill: bool = False) -> None:
        self.store = store
        self._fill = fill
        self._lock, self._writing = Lock(), Lock()
        # Keys, row counts and rows of unwritten answers.
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._new_since = 0.0

    def check(self, answers: Tokens) -> None:
        """Raise if an answer is missing, unless missing answers are encoded."""
        if not self._fill:
            self._check(self.store.index.find(text_keys(answers)))

    def new(self, answers: Tokens) -> tuple[np.ndarray, np.ndarray]:
        """Select the distinct texts that are missing: (m,) int64 rows of ``answers``, and (m, 2) keys."""
        keys = text_keys(answers)
        with self._lock:
            buffered = [entry[0] for entry in self._new]
        missing = np.flatnonzero(self.store.index.find(keys) < 0)
        if buffered:
            missing = missing[~np.isin(_scalars(keys[missing]), _scalars(np.concatenate(buffered)))]
        _, first = np.unique(keys[missing], axis=0, return_index=True)
        rows = missing[np.sort(first)]
        return rows, keys[rows]

    def encoded(
        self, answers: Tokens, encode: Callable[[Tokens], Ragged], multiple: int, device: torch.device
    ) -> Ragged:
        """Return the stored representation of a batch of answers; missing answers are encoded and buffered.

        ``multiple`` is ``PairScorer.row_multiple``; the result is on ``device``.
        """
        keys, index = text_keys(answers), self.store.index
        entries = index.find(keys)
        is_stored = entries >= 0
        if is_stored.all():
            return _unpacked(index.read(entries, multiple), self.store.precision, device)
        if not self._fill:
            self._check(entries)
        missing = answers.take(np.flatnonzero(~is_stored))
        counts, rows = self.put(keys[~is_stored], missing, encode(missing), multiple)
        parts = [_unpacked(_repeated(rows, counts, multiple), self.store.precision, device)]
        if is_stored.any():
            parts.append(_unpacked(index.read(entries[is_stored], multiple), self.store.precision, device))
        order = np.argsort(is_stored, kind="stable")  # newly encoded answers come first
        return Ragged.concatenate(parts).select(np.argsort(order))

    def put(
        self, keys: np.ndarray, answers: Tokens, encoded: Ragged, multiple: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Buffer n encoded answers until ``flush``; return their (n,) numbers of stored rows, and the rows.

        Rows that were repeated up to a ``multiple`` (``PairScorer.row_multiple``) are not stored.
        """
        lengths = pooled_rows(answers.ids, answers.offsets)[1]
        counts = encoded.sizes if multiple == 1 else np.minimum(encoded.sizes, lengths)
        distinct = rows_of(np.cumsum(encoded.sizes) - encoded.sizes, counts)
        rows = _packed(encoded.values[send(distinct, encoded.values.device)], self.store.precision)
        with self._lock:
            if not self._new:
                self._new_since = time.monotonic()
            self._new.append((keys, counts, rows))
        return counts, rows

    def flush(self, *, force: bool = True) -> None:
        """Write the buffer as parts; ``force`` also writes a small, recent buffer."""
        with self._lock:
            size = sum(rows.nbytes for _, _, rows in self._new)
            young = time.monotonic() - self._new_since < PART_SECONDS
            if not self._new or (not force and size < PART_BYTES and young):
                return
            new, self._new = self._new, []
        with self._writing:
            self._write(new)

    def _write(self, new: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
        keys, counts, rows = (np.concatenate(column) for column in zip(*new, strict=True))
        _, first = np.unique(keys, axis=0, return_index=True)
        # In scoring order: by length, then by key.
        order = first[np.argsort(counts[first], kind="stable")]
        starts = np.cumsum(counts) - counts
        part = (np.cumsum(counts[order]) - counts[order]) * rows.shape[1] // PART_BYTES
        for chosen in np.split(order, np.flatnonzero(np.diff(part)) + 1):
            self.store.add(keys[chosen], counts[chosen], rows[rows_of(starts[chosen], counts[chosen])])

    def _check(self, entries: np.ndarray) -> None:
        missing = int((entries < 0).sum())
        if missing:
            raise InputError(
                self.store.folder,
                problem=f"{missing:,} of {len(entries):,} answers of a row group are not in it",
                expected="all of them: encode them with `aptool encode`, or here with --fill",
            )


def _scalars(keys: np.ndarray) -> np.ndarray:
    """(n,): each key of (n, 2) uint64 as one value, for comparisons."""
    return np.ascontiguousarray(keys).view("u8,u8").reshape(-1)


def _packed(rows: Tensor, precision: StoredPrecision) -> np.ndarray:
    """(R, w) uint8: (R, c) rows, rounded and as bytes."""
    if precision == "int8":
        scales = rows.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
        integers = (rows / scales).round().to(torch.int8)
        # The scales are fp64, as checksums are faster for rows of 8-byte words.
        return np.concatenate([_bytes(integers), _bytes(scales.double())], axis=1)
    if precision == "fp16":
        largest = torch.finfo(torch.float16).max
        return _bytes(rows.clamp(-largest, largest).half())
    return _bytes(rows)


def _bytes(values: Tensor) -> np.ndarray:
    """(R, bytes per row) uint8."""
    return values.contiguous().cpu().numpy().view(np.uint8)


def _repeated(rows: np.ndarray, counts: np.ndarray, multiple: int) -> Stored:
    """Repeat the last row of each answer as ``AnswerIndex.read`` does; ``counts`` is (n,) rows per answer."""
    padded = -(-counts // multiple) * multiple
    within = rows_of(np.zeros_like(padded), padded)
    starts = np.repeat(np.cumsum(counts) - counts, padded)
    return Stored(rows[starts + np.minimum(within, np.repeat(counts - 1, padded))], padded)


def _unpacked(stored: Stored, precision: StoredPrecision, device: torch.device | str) -> Ragged:
    """Return the rows of answers in fp32."""
    data = send(stored.rows, device)  # (R, w)
    if precision == "int8":
        scales = data[:, -8:].contiguous().view(torch.float64).float()
        values = data[:, :-8].view(torch.int8) * scales
    else:
        values = data.view(torch.float32 if precision == "fp32" else torch.float16).float()
    return Ragged.of_sizes(values, stored.counts)
