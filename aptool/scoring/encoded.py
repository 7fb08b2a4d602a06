"""Encoded answers, and the pairs to score from them: the input of kernels.

Answers stay in the tensor of the batch that encoded them. The host has their row ranges as arrays, so nothing
is done answer by answer and nothing waits for a GPU.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.models.device import send
from aptool.models.ragged import Ragged


class EncodedAnswers(NamedTuple):
    """n encoded answers: the i-th is ``batches[batch[i]][starts[i] : starts[i] + counts[i]]``."""

    batches: Sequence[Tensor]  # (R, ...) each
    batch: np.ndarray  # (n,) int64 into batches
    starts: np.ndarray  # (n,) int64 first row in the batch
    counts: np.ndarray  # (n,) int64 number of rows
    lengths: np.ndarray  # (n,) int64 number of tokens

    def rows(self, answer: int) -> Tensor:
        """The rows of one answer, a view."""
        return self.batches[self.batch[answer]].narrow(0, int(self.starts[answer]), int(self.counts[answer]))

    def select(self, chosen: np.ndarray) -> "EncodedAnswers":
        """Some of the answers, without a copy."""
        return EncodedAnswers(self.batches, *(part[chosen] for part in self[1:]))

    def joined(self) -> "EncodedAnswers":
        """The same answers in a single batch, copied only if they are in several."""
        if len(self.batches) == 1:
            return self
        order = np.argsort(self.batch, kind="stable")
        ends = np.cumsum(self.counts[order])
        starts = np.empty_like(self.starts)
        starts[order] = ends - self.counts[order]
        first = self.batches[0]
        values = first.new_empty(int(ends[-1]), *first.shape[1:])
        bounds = np.searchsorted(self.batch[order], np.arange(len(self.batches) + 1))
        for number, tensor in enumerate(self.batches):
            members = order[bounds[number] : bounds[number + 1]]
            if len(members):
                begin, end = int(starts[members[0]]), int(ends[bounds[number + 1] - 1])
                rows = rows_of(self.starts[members], self.counts[members])
                torch.index_select(tensor, 0, send(rows, tensor.device), out=values[begin:end])
        return EncodedAnswers([values], np.zeros_like(self.batch), starts, self.counts, self.lengths)

    def ragged(self) -> Ragged:
        """The rows of the answers in one tensor, answer by answer; copied only if needed."""
        single = self.joined()
        (values,) = single.batches
        first, ends = int(single.starts[0]), np.cumsum(self.counts)
        if np.array_equal(single.starts - first, ends - self.counts):
            values = values.narrow(0, first, int(ends[-1]))
        else:
            values = values.index_select(0, send(rows_of(single.starts, self.counts), values.device))
        return Ragged.of_sizes(values, self.counts)


class Pairs(NamedTuple):
    """Pairs of questions and encoded answers, sorted by answer."""

    questions: np.ndarray  # (P,) int64 the question of each pair
    counts: np.ndarray  # (n,) int64 the number of pairs per answer, at least 1
    scored: Callable[[int], None] = lambda pairs: None  # called per batch of a kernel with its pairs

    @property
    def answers(self) -> np.ndarray:
        """(P,) int64 the answer of each pair."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(P,) int64 the question and (P,) int64 the answer of each pair, on a device."""
        both = send(np.concatenate([self.questions, self.answers]), device)
        return both[: len(self.questions)], both[len(self.questions) :]


def rows_of(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(R,) int64 the rows ``starts[i]`` to ``starts[i] + counts[i] - 1`` of every i, in order."""
    return np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
