"""Sequences of different lengths, concatenated in one tensor.

Encoders take and give these, without padding, so padding cannot leak into what they compute.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from aptool.text.tokenizer import Tokens


class Ragged(NamedTuple):
    """``n`` sequences: the i-th is ``values[offsets[i] : offsets[i + 1]]``.

    Attributes:
        values: (N, ...) elements of all sequences, N = offsets[-1].
        offsets: (n + 1,) int64, starting with 0.
    """

    values: Tensor
    offsets: Tensor

    @property
    def lengths(self) -> Tensor:
        """(n,) int64."""
        return self.offsets.diff()

    @classmethod
    def of(cls, tokens: Tokens, device: torch.device | str = "cpu") -> "Ragged":
        """Token ids as int64 tensors on a device."""
        ids = torch.from_numpy(tokens.ids).to(device, torch.int64)
        return cls(ids, torch.from_numpy(tokens.offsets).to(device))

    @classmethod
    def join(cls, sequences: list[Tensor]) -> "Ragged":
        """Concatenates separate sequences, each (length, ...)."""
        values = torch.cat(sequences)
        lengths = torch.tensor([0, *(len(sequence) for sequence in sequences)])
        return cls(values, lengths.cumsum(0).to(values.device))

    @classmethod
    def of_lengths(cls, lengths: Tensor) -> "Ragged":
        """Sequences of the given lengths whose elements are their own row numbers, 0 to N - 1."""
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return cls(torch.arange(int(offsets[-1]), device=lengths.device), offsets)

    def with_values(self, values: Tensor) -> "Ragged":
        """Other elements for the same sequences, such as the states of token ids."""
        return Ragged(values, self.offsets)

    def padded(self) -> tuple[Tensor, Tensor]:
        """(n, T, ...) values, padded with zeros on the right, and a mask (n, T) bool, false on padding."""
        lengths = self.lengths
        longest = int(lengths.max())
        mask = torch.arange(longest, device=lengths.device) < lengths[:, None]  # (n, T)
        slots = mask.flatten().nonzero().squeeze(1)  # (N,)
        flat = self.values.new_zeros(len(lengths) * longest, *self.values.shape[1:])
        dense = flat.index_copy(0, slots, self.values)
        return dense.view(len(lengths), longest, *self.values.shape[1:]), mask

    def rows(self, sequences: Tensor) -> Tensor:
        """(K,) int64 row numbers in ``values`` of the elements of the given sequences, in that order."""
        lengths = self.lengths[sequences]
        ends = lengths.cumsum(0)
        shift = self.offsets[:-1][sequences] - (ends - lengths)
        total = int(ends[-1]) if len(ends) else 0
        return torch.arange(total, device=ends.device) + shift.repeat_interleave(lengths)

    def select(self, sequences: Tensor) -> "Ragged":
        """The given sequences, in that order; a sequence may be repeated."""
        lengths = self.lengths[sequences]
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return Ragged(self.values.index_select(0, self.rows(sequences)), offsets)

    def positions(self) -> tuple[Tensor, Tensor]:
        """(N,) int64 position of each element in its sequence, and (N,) int64 length of that sequence."""
        lengths = self.lengths
        starts = self.offsets[:-1].repeat_interleave(lengths)
        return torch.arange(len(starts), device=starts.device) - starts, lengths.repeat_interleave(lengths)
