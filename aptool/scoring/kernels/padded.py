"""Padded batches of pairs for kernels on a GPU, where launches are expensive and padding is cheap.

Answers of similar length are batched, each with the tokens of all its questions. Padding repeats the last row
of a text, which changes no maximum. The host plans the batches and never waits for the device.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.models.device import send
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs

# Maximum elements of a tensor of a batch: of the products, the rows of questions or a vector per pair.
ELEMENTS = 1 << 28

# Number of answers that are planned together.
_PLANNED = 4096


class PaddedPairs(NamedTuple):
    """The P pairs of B answers, whose questions have T tokens."""

    answers: Tensor  # (B, L, c) fp32 rows of each answer; the last one is repeated
    pairs: Ragged  # values (P,) int64 question tokens per pair, of B answers
    tokens: Ragged  # values (T,) int64 rows of the question tokens, of P pairs
    products: Tensor  # (T, L) inner products of each question token with the rows of its answer
    mask: Tensor  # (P, L) bool, false on repeated rows


def score_padded(
    questions: Ragged,
    answers: EncodedAnswers,
    lengths: np.ndarray,
    pairs: Pairs,
    score: Callable[[PaddedPairs], Tensor],
) -> Tensor:
    """(P,) scores of pairs, batch by batch.

    Args:
        questions: values (N, c) fp32.
        answers: rows (R, c).
        lengths: (n,) int64: the number of rows of each answer, without repetitions.
        pairs: pairs of both.
        score: function from a batch to its scores.
    """
    answers = answers.joined()
    (values,) = answers.batches
    values = values.float()
    size = values.shape[1]
    # An answer with too many pairs for a batch is split into copies.
    largest = max(size, int(lengths.max()))
    most = max(1, ELEMENTS // (largest * int(questions.sizes.max())))
    copies = -(-pairs.counts // most)
    answer = np.repeat(np.arange(len(copies)), copies)
    copy = np.arange(len(answer)) - np.repeat(np.cumsum(copies) - copies, copies)
    counts = np.minimum(most, pairs.counts[answer] - most * copy)
    ends = np.cumsum(counts)
    tokens = np.add.reduceat(questions.sizes[pairs.questions], ends - counts)  # (n,) question tokens
    scores = []
    for first, last in _batches(lengths[answer], counts, tokens, size):
        batch_pairs = Pairs(pairs.questions[ends[first] - counts[first] : ends[last - 1]], counts[first:last])
        batch = answer[first:last]
        scores.append(score(_padded(questions, values, answers.starts[batch], lengths[batch], batch_pairs)))
    return torch.cat(scores)


def _batches(
    lengths: np.ndarray, counts: np.ndarray, tokens: np.ndarray, size: int
) -> Iterator[tuple[int, int]]:
    """Yield the first and last (excluded) of the consecutive answers of each batch, at least one."""
    first = 0
    while first < len(lengths):
        planned = slice(first, first + _PLANNED)
        widest, longest, most = (np.maximum.accumulate(sizes[planned]) for sizes in (tokens, lengths, counts))
        each = np.maximum(widest * np.maximum(longest, size), most * size)
        fits = np.searchsorted(each * np.arange(1, len(each) + 1), ELEMENTS, side="right")
        last = first + max(1, int(fits))
        yield first, last
        first = last


def _padded(
    questions: Ragged, values: Tensor, starts: np.ndarray, answer_lengths: np.ndarray, pairs: Pairs
) -> PaddedPairs:
    """Compute the products of B answers, whose rows start at rows ``starts`` of ``values``."""
    device = values.device
    longest = int(answer_lengths.max())
    position = torch.arange(longest, device=device)  # (L,)
    first, lengths = send(np.stack([starts, answer_lengths]), device)  # (B,)
    A = values[first[:, None] + torch.minimum(position, lengths[:, None] - 1)]  # (B, L, c)

    tokens = questions.with_values(questions.row_numbers()).select(pairs.questions)
    per_answer = np.add.reduceat(tokens.sizes, np.cumsum(pairs.counts) - pairs.counts)
    rows = Ragged.of_sizes(tokens.values, per_answer)  # values (T,), of B answers
    widest = int(per_answer.max())
    slot = torch.arange(widest, device=device)
    slots = rows.offsets[:-1, None] + torch.minimum(slot, rows.lengths[:, None] - 1)  # (B, S)
    Q = questions.values[rows.values[slots]]  # (B, S, c)

    products = (Q @ A.transpose(1, 2)).flatten(0, 1).index_select(0, rows.slots(widest))  # (T, L)
    pairs_of_answers = Ragged.of_sizes(tokens.lengths, pairs.counts)
    mask = position < pairs_of_answers.spread(lengths)[:, None]
    return PaddedPairs(A, pairs_of_answers, tokens, products, mask)
