"""Encoded answers in a store: read by a scorer, added by an encoder.

The output of ``PairScorer.cache_answers`` is stored as bytes: fp32 unchanged, fp16 rounded, int8 followed by
the scale of the row.
"""

import time

import numpy as np
import torch
from torch import Tensor

from aptool.errors import InputError
from aptool.models.device import send
from aptool.models.ragged import Ragged, rows_of
from aptool.scoring.answer_store import AnswerStore, StoredPrecision
from aptool.scoring.encoded import text_keys
from aptool.text.subwords import pooled_rows
from aptool.text.tokenizer import Tokens

# New answers are written when they take this many bytes, or after this many seconds.
PART_BYTES = 64 << 20
PART_SECONDS = 60.0


class StoredAnswers:
    """The answers of a store. Several threads may read them; one thread adds answers."""

    def __init__(self, store: AnswerStore) -> None:
        self.store = store
        # Keys, row counts and rows of unwritten answers.
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._new_since = 0.0

    def check(self, answers: Tokens) -> None:
        """Raise if an answer is missing."""
        self._entries(answers)

    def new(self, answers: Tokens) -> tuple[np.ndarray, np.ndarray]:
        """Select the distinct texts that are missing: (m,) int64 rows of ``answers``, and (m, 2) keys."""
        keys = text_keys(answers)
        buffered = [entry[0] for entry in self._new]
        missing = np.flatnonzero(self.store.index.find(keys) < 0)
        if buffered:
            missing = missing[~np.isin(_scalars(keys[missing]), _scalars(np.concatenate(buffered)))]
        _, first = np.unique(keys[missing], axis=0, return_index=True)
        rows = missing[np.sort(first)]
        return rows, keys[rows]

    def encoded(self, answers: Tokens, multiple: int, device: torch.device) -> Ragged:
        """Return the stored representation of a batch of answers, on ``device``; raise if one is missing.

        ``multiple`` is ``PairScorer.row_multiple``.
        """
        stored = self.store.index.read(self._entries(answers), multiple)
        data = send(stored.rows, device)  # (R, w)
        if self.store.precision == "int8":
            scales = data[:, -8:].contiguous().view(torch.float64).float()
            values = data[:, :-8].view(torch.int8) * scales
        else:
            values = data.view(torch.float32 if self.store.precision == "fp32" else torch.float16).float()
        return Ragged.of_sizes(values, stored.counts)

    def put(self, keys: np.ndarray, answers: Tokens, encoded: Ragged, multiple: int) -> int:
        """Buffer n encoded answers until ``flush``; return the bytes of their rows.

        Rows that were repeated up to a ``multiple`` (``PairScorer.row_multiple``) are not stored.
        """
        lengths = pooled_rows(answers.ids, answers.offsets)[1]
        counts = encoded.sizes if multiple == 1 else np.minimum(encoded.sizes, lengths)
        distinct = rows_of(np.cumsum(encoded.sizes) - encoded.sizes, counts)
        rows = _packed(encoded.values[send(distinct, encoded.values.device)], self.store.precision)
        if not self._new:
            self._new_since = time.monotonic()
        self._new.append((keys, counts, rows))
        return rows.nbytes

    def flush(self, *, force: bool = True) -> None:
        """Write the buffer as parts; ``force`` also writes a small, recent buffer."""
        size = sum(rows.nbytes for _, _, rows in self._new)
        young = time.monotonic() - self._new_since < PART_SECONDS
        if not self._new or (not force and size < PART_BYTES and young):
            return
        keys, counts, rows = (np.concatenate(column) for column in zip(*self._new, strict=True))
        _, first = np.unique(keys, axis=0, return_index=True)
        # In scoring order: by length, then by key.
        order = first[np.argsort(counts[first], kind="stable")]
        starts = np.cumsum(counts) - counts
        part = (np.cumsum(counts[order]) - counts[order]) * rows.shape[1] // PART_BYTES
        for chosen in np.split(order, np.flatnonzero(np.diff(part)) + 1):
            self.store.add(keys[chosen], counts[chosen], rows[rows_of(starts[chosen], counts[chosen])])
        self._new = []

    def _entries(self, answers: Tokens) -> np.ndarray:
        """(n,) int64 entries of the answers in the index of the store."""
        entries = self.store.index.find(text_keys(answers))
        missing = int((entries < 0).sum())
        if missing:
            raise InputError(
                self.store.folder,
                problem=f"{missing:,} of {len(entries):,} answers of a row group are not in it",
                expected="all of them: encode them with `aptool encode`",
            )
        return entries


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
