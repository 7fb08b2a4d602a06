"""Sequences of different lengths, concatenated in one tensor without padding.

The lengths are stored on the host, so that no operation synchronizes with a GPU.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.models.device import send
from aptool.text.tokenizer import Tokens

# Maximum ratio of lengths of texts that are padded together on a CPU.
SIMILAR = 1.5

# Smaller GEMMs use another kernel and round differently.
MIN_ROWS = 4
MIN_COLUMNS = 16

# Elements up to which the host computes indices for a GPU: one copy instead of up to ten launches.
HOST_INDICES = 1 << 14

# Widths of padded texts on a GPU; the width of a longer text is a power of two.
WIDTHS = np.array([32, 64, 96, 128, 192, 256, 384, 512])

# Tokens of a large and of a small batch on a GPU, padding included.
LARGE_BATCH, SMALL_BATCH = 1 << 15, 1 << 12


class Ragged(NamedTuple):
    """``n`` sequences: the i-th is ``values[offsets[i] : offsets[i + 1]]``."""

    values: Tensor  # (N, ...) elements of all sequences, N = offsets[-1]
    offsets: Tensor  # (n + 1,) int64, starting with 0, on the device of the values
    sizes: np.ndarray  # (n,) int64 lengths of the sequences, on the host

    @property
    def lengths(self) -> Tensor:
        """(n,) int64, on the device of the values."""
        return self.offsets.diff()

    @classmethod
    def of(cls, tokens: Tokens, device: torch.device | str = "cpu") -> "Ragged":
        """Copy token ids to a device, as int64 tensors."""
        # One transfer: the offsets, then the ids.
        sent = send(np.concatenate([tokens.offsets.astype(np.int32), tokens.ids]), device).long()
        count = len(tokens) + 1
        return cls(sent[count:], sent[:count], tokens.lengths)

    @classmethod
    def of_sizes(cls, values: Tensor, sizes: np.ndarray) -> "Ragged":
        """Interpret ``values`` as consecutive sequences of the given lengths."""
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
        return cls(values, send(offsets, values.device), sizes)

    @classmethod
    def join(cls, sequences: Sequence[Tensor]) -> "Ragged":
        """Concatenate separate sequences, each (length, ...)."""
        return cls.of_sizes(torch.cat(list(sequences)), np.array([len(values) for values in sequences]))

    @classmethod
    def concatenate(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """Concatenate the sequences of all parts."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.concatenate([part.sizes for part in parts])
        return cls.of_sizes(torch.cat([part.values for part in parts]), sizes)

    def with_values(self, values: Tensor) -> "Ragged":
        """Return the same sequences with other elements, such as states instead of token ids."""
        return self._replace(values=values)

    def padded(self) -> tuple[Tensor, Tensor]:
        """(n, T, ...) values, padded with zeros on the right, and a mask (n, T) bool, false on padding."""
        (dense,) = self.pad(self.values)
        mask = torch.arange(dense.shape[1], device=self.offsets.device) < self.lengths[:, None]
        return dense, mask

    def pad(self, *tensors: Tensor) -> list[Tensor]:
        """(n, T, ...) each tensor (N, ...) of values of these sequences, padded with zeros on the right."""
        count, longest = len(self.sizes), int(self.sizes.max())
        slots, dense = self.slots(longest), []
        for values in tensors:
            flat = values.new_zeros(count * longest, *values.shape[1:]).index_copy(0, slots, values)
            dense.append(flat.unflatten(0, (count, longest)))
        return dense

    def slots(self, width: int) -> Tensor:
        """(N,) int64 index of each element after padding to ``width`` and flattening."""
        if self.is_indexed_on_host(len(self.values)):
            return send(rows_of(np.arange(len(self.sizes)) * width, self.sizes), self.offsets.device)
        starts = torch.arange(len(self.sizes), device=self.offsets.device) * width
        return self.row_numbers() + self.spread(starts - self.offsets[:-1])

    def spread(self, values: Tensor) -> Tensor:
        """(N, ...): repeat the value (n, ...) of each sequence for its elements."""
        return values.index_select(0, self.owners())

    def owners(self) -> Tensor:
        """(N,) int64 index of the sequence of each element."""
        if self.is_indexed_on_host(len(self.values)):
            return send(np.repeat(np.arange(len(self.sizes)), self.sizes), self.offsets.device)
        return torch.repeat_interleave(self.lengths, output_size=len(self.values))

    def row_numbers(self) -> Tensor:
        """(N,) int64: 0 to N - 1."""
        return torch.arange(len(self.values), device=self.offsets.device)

    def rows(self, sequences: np.ndarray | Tensor) -> Tensor:
        """(K,) int64 indices into ``values`` of the elements of sequences, in the order of the sequences."""
        return self._rows(np.asarray(sequences))[0]

    def select(self, sequences: np.ndarray | Tensor) -> "Ragged":
        """Select sequences by indices on the host, in the order of the indices; an index may be repeated."""
        chosen = np.asarray(sequences)
        rows, offsets = self._rows(chosen)
        return Ragged(self.values.index_select(0, rows), offsets, self.sizes[chosen])

    def grouped(self, groups: Sequence[np.ndarray]) -> list["Ragged"]:
        """Split the sequences into groups of indices. A single group must have all sequences in order."""
        if len(groups) == 1:
            return [self]
        # A selection per group would have gradients as large as all values.
        sizes = [self.sizes[group] for group in groups]
        parts = self.select(np.concatenate(groups)).values.split([int(lengths.sum()) for lengths in sizes])
        return [Ragged.of_sizes(part, lengths) for part, lengths in zip(parts, sizes, strict=True)]

    def positions(self) -> tuple[Tensor, Tensor]:
        """(N,) int64 position of each element in its sequence, and (N,) int64 length of that sequence."""
        if self.is_indexed_on_host(len(self.values)):
            positions = rows_of(np.zeros_like(self.sizes), self.sizes)
            both = send(np.stack([positions, np.repeat(self.sizes, self.sizes)]), self.offsets.device)
            return both[0], both[1]
        owners = self.owners()
        return self.row_numbers() - self.offsets[owners], self.lengths[owners]

    def on_host(self) -> "Ragged":
        """Return the same sequences on the host, with uninitialized values, to compute indices."""
        return Ragged.of_sizes(torch.empty(len(self.values)), self.sizes)

    def is_indexed_on_host(self, indices: int) -> bool:
        """Whether the host computes so many indices for a GPU."""
        return self.offsets.is_cuda and indices <= HOST_INDICES

    def _rows(self, sequences: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the rows of the given sequences, and their offsets after concatenation."""
        device = self.offsets.device
        ends = np.cumsum(self.sizes[sequences])
        total = int(ends[-1]) if len(ends) else 0
        on_host = self.is_indexed_on_host(total)
        starts = np.cumsum(self.sizes) - self.sizes
        last = rows_of(starts[sequences], self.sizes[sequences]) if on_host else sequences
        sent = send(np.concatenate([np.zeros(1, dtype=np.int64), ends, last]), device)
        offsets, chosen = sent[: len(ends) + 1], sent[len(ends) + 1 :]
        if on_host:
            return chosen, offsets
        shift = self.offsets[:-1][chosen] - offsets[:-1]
        shifts = shift.repeat_interleave(offsets.diff(), output_size=total)
        return torch.arange(total, device=device) + shifts, offsets


def similar_lengths(sequences: Ragged) -> list[np.ndarray]:
    """Group sequences of similar length, to reduce padding; on a GPU, one group needs fewer launches."""
    sizes = sequences.sizes
    if sequences.values.is_cuda or not len(sizes):
        return [np.arange(len(sizes))]
    buckets = np.floor(np.log(sizes / sizes.min()) / np.log(SIMILAR))
    return [np.flatnonzero(buckets == bucket) for bucket in np.unique(buckets)]


class TextBatch(NamedTuple):
    """Consecutive texts of a list in ascending order of length."""

    texts: slice
    height: int  # number of texts, repetitions included
    width: int  # padded length; 0: the texts share one row

    @property
    def size(self) -> int:
        """The number of texts without repetitions."""
        return int(self.texts.stop - self.texts.start)

    @property
    def members(self) -> np.ndarray:
        """(height,) indices of the texts, then of repeated texts."""
        return np.resize(np.arange(self.texts.start, self.texts.stop), self.height)


def padded_batches(sizes: np.ndarray, widest: int = 1 << 30, *, share: bool) -> list[TextBatch]:
    """Split texts of ascending lengths (n,) into batches of few shapes, for a GPU.

    Each width has a large and a small count, so texts of up to 512 tokens have at most 16 shapes. Texts of
    several widths share a small batch, and with ``share`` a large one. ``widest`` is the maximum width.
    """
    longer = np.exp2(np.ceil(np.log2(np.maximum(sizes, 1)))).astype(np.int64)
    widths = np.where(sizes > WIDTHS[-1], longer, WIDTHS.take(np.searchsorted(WIDTHS, sizes), mode="clip"))
    widths = np.minimum(widths, np.maximum(widest, sizes))
    batches: list[TextBatch] = []
    end = len(sizes)
    while end:
        width = int(widths[end - 1])
        first = 0 if share else int(np.searchsorted(widths, width))  # of the texts of this width
        count = max(1, LARGE_BATCH // width)
        if end - first < count // 2:
            first, count = 0, max(1, SMALL_BATCH // width)
        begin = max(first, end - count)
        batches.append(TextBatch(slice(begin, end), count, width))
        end = begin
    return batches[::-1]


def rows_of(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(R,) int64: the row numbers ``starts[i]`` to ``starts[i] + counts[i] - 1`` of every i, in order."""
    return np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)


def product(rows: Tensor, matrix: Tensor, out: Tensor | None = None) -> Tensor:
    """(n, k) @ (k, m) on one core, m > 1; the rounding of a row does not depend on the number of rows."""
    count = rows.shape[0]  # ``len`` of a tensor takes a microsecond
    if count >= MIN_ROWS:
        return torch.mm(rows, matrix, out=out)
    padded = rows.new_zeros(MIN_ROWS, rows.shape[1])
    padded[:count] = rows
    result = (padded @ matrix)[:count]
    return result if out is None else out.copy_(result)


def inner_products(rows: Tensor, vectors: Tensor) -> Tensor:
    """(n, m) inner products of (n, k) and (m, k), on one core; the rounding depends only on the two rows."""
    count = vectors.shape[0]
    if count >= MIN_COLUMNS:
        return product(rows, vectors.T)
    return product(rows, F.pad(vectors, (0, 0, 0, MIN_COLUMNS - count)).T)[:, :count]
