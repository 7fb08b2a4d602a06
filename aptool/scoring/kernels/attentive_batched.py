"""Attentive pooling on a GPU in batched products, which read an answer once for all its questions.

The scores are those of ``aptool.scoring.kernels.attentive``. On a GPU, launches are expensive and padding is
cheap: answers of similar length are batched, each with the tokens of all its questions. Padding repeats the
last state of a text, which changes no maximum; only the attention weights need a mask. The host plans the
batches and never waits for the device.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.models.device import send
from aptool.models.pooling import segment_max
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels.pair_scorer import cosines

# Maximum elements of a tensor of a batch: of G, the states of questions or the vectors of answers.
ELEMENTS = 1 << 28

# Number of answers that are planned together.
_PLANNED = 4096


def score_batched(
    questions: Ragged,
    projected: Tensor,
    answers: EncodedAnswers,
    pairs: Pairs,
    sharpness: float = 1.0,
) -> Tensor:
    """(P,) fp32 scores of pairs, from the states (N, c) of questions and the rows (N, c) of Qᵀ U.

    ``sharpness`` is the factor of g before the softmax.
    """
    answers = answers.joined()
    (values,) = answers.batches
    values = values.float()
    size = values.shape[1]
    # An answer with too many pairs for a batch is split into copies.
    largest = max(size, int(answers.lengths.max()))
    most = max(1, ELEMENTS // (largest * int(questions.sizes.max())))
    copies = -(-pairs.counts // most)
    answer = np.repeat(np.arange(len(copies)), copies)
    copy = np.arange(len(answer)) - np.repeat(np.cumsum(copies) - copies, copies)
    counts = np.minimum(most, pairs.counts[answer] - most * copy)
    ends = np.cumsum(counts)
    tokens = np.add.reduceat(questions.sizes[pairs.questions], ends - counts)  # (n,) question tokens
    scores = []
    for first, last in _batches(answers.lengths[answer], counts, tokens, size):
        batch_pairs = Pairs(pairs.questions[ends[first] - counts[first] : ends[last - 1]], counts[first:last])
        batch = answer[first:last]
        texts = answers.starts[batch], answers.lengths[batch]
        scores.append(_score(questions, projected, values, *texts, batch_pairs, sharpness))
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


def _score(
    questions: Ragged,
    projected: Tensor,
    values: Tensor,
    starts: np.ndarray,
    answer_lengths: np.ndarray,
    pairs: Pairs,
    sharpness: float,
) -> Tensor:
    """(P,) scores of the pairs of B answers, whose states start at rows ``starts`` of ``values``."""
    device = values.device
    longest = int(answer_lengths.max())
    position = torch.arange(longest, device=device)  # (L,)
    first, lengths = send(np.stack([starts, answer_lengths]), device)  # (B,)
    A = values[first[:, None] + torch.minimum(position, lengths[:, None] - 1)]  # (B, L, c)

    sizes = questions.sizes[pairs.questions]
    tokens = Ragged.of_sizes(
        questions.rows(pairs.questions), sizes
    )  # values (T,): question tokens of all pairs
    per_answer = np.add.reduceat(sizes, np.cumsum(pairs.counts) - pairs.counts)
    rows = Ragged.of_sizes(tokens.values, per_answer)  # values (T,), of B answers
    widest = int(per_answer.max())
    slot = torch.arange(widest, device=device)
    slots = rows.offsets[:-1, None] + torch.minimum(slot, rows.lengths[:, None] - 1)  # (B, S)
    Q = projected[rows.values[slots]]  # (B, S, c)

    G = (
        (Q @ A.transpose(1, 2)).flatten(0, 1).index_select(0, rows.slots(widest))
    )  # eq. 13 before its tanh: (T, L)
    sigma_q = (G.amax(1).tanh() * sharpness).exp()  # eq. 14, and 16 without its divisor: (T,)
    weights = Ragged.of_sizes(tokens.lengths, pairs.counts)  # of the pairs of B answers
    pair_lengths = weights.spread(lengths)  # (P,)
    is_token = position < pair_lengths[:, None]
    sigma_a = (segment_max(G, tokens).tanh() * sharpness).exp() * is_token  # eq. 15 and 16: (P, L)

    r_q = F.embedding_bag(
        tokens.values, questions.values, tokens.offsets[:-1], mode="sum", per_sample_weights=sigma_q
    )  # eq. 17: (P, c)
    weights = weights.with_values(sigma_a)
    r_a = (weights.padded()[0] @ A).flatten(0, 1)  # eq. 18: (B · most, c)
    return cosines(r_q, r_a.index_select(0, weights.slots(int(pairs.counts.max()))))  # eq. 11
