"""Encoded answers, and the pairs to score from them: what a kernel reads.

Answers are encoded in batches, and stay in the tensor of their batch. Which rows of it an answer has is known
to the host as arrays, so that nothing here is done answer by answer and nothing waits for a GPU.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.models.device import send
from aptool.models.ragged import Ragged


class EncodedAnswers(NamedTuple):
    """n encoded answers: the i-th is ``batches[batch[i]][starts[i] : starts[i] + counts[i]]``.

    Attributes:
        batches: tensors (R, ...) of any number of rows.
        batch: (n,) int64 which of them an answer is in.
        starts: (n,) int64 its first row there.
        counts: (n,) int64 the number of its rows.
        lengths: (n,) int64 the number of its tokens.
    """

    batches: Sequence[Tensor]
    batch: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray

    def rows(self, answer: int) -> Tensor:
        """The rows of one answer, not copied."""
        return self.batches[self.batch[answer]].narrow(0, int(self.starts[answer]), int(self.counts[answer]))

    def select(self, chosen: np.ndarray) -> "EncodedAnswers":
        """Some of the answers, not copied."""
        return EncodedAnswers(self.batches, *(part[chosen] for part in self[1:]))

    def joined(self) -> "EncodedAnswers":
        """The same answers in a single batch, copied only if they are in several."""
        if len(self.batches) == 1:
            return self
        turns = np.argsort(self.batch, kind="stable")
        ends = np.cumsum(self.counts[turns])
        starts = np.empty_like(self.starts)
        starts[turns] = ends - self.counts[turns]
        first = self.batches[0]
        values = first.new_empty(int(ends[-1]), *first.shape[1:])
        bounds = np.searchsorted(self.batch[turns], np.arange(len(self.batches) + 1))
        for number, tensor in enumerate(self.batches):
            members = turns[bounds[number] : bounds[number + 1]]
            if len(members):
                begin, end = int(starts[members[0]]), int(ends[bounds[number + 1] - 1])
                rows = rows_of(self.starts[members], self.counts[members])
                torch.index_select(tensor, 0, send(rows, tensor.device), out=values[begin:end])
        return EncodedAnswers([values], np.zeros_like(self.batch), starts, self.counts, self.lengths)

    def ragged(self) -> Ragged:
        """The rows of the answers in one tensor, answer by answer; copied only if they stand elsewhere."""
        single = self.joined()
        (values,) = single.batches
        first, ends = int(single.starts[0]), np.cumsum(self.counts)
        if np.array_equal(single.starts - first, ends - self.counts):
            values = values.narrow(0, first, int(ends[-1]))
        else:
            values = values.index_select(0, send(rows_of(single.starts, self.counts), values.device))
        return Ragged.of_sizes(values, self.counts)


class Pairs(NamedTuple):
    """Pairs of questions and encoded answers, sorted by answer.

    Attributes:
        questions: (P,) int64 the question of each pair.
        counts: (n,) int64 the number of pairs of each answer, at least 1.
        scored: a kernel calls it with the number of pairs of each of its batches, if it has several.
    """

    questions: np.ndarray
    counts: np.ndarray
    scored: Callable[[int], None] = lambda pairs: None

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
