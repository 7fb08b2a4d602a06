"""Attentive pooling on a GPU: an answer's states are read once for all its questions, in batched products.

The scores are those of ``aptool.scoring.kernels.attentive``. On a GPU kernel launches are expensive and
padding is cheap: answers of similar length are batched, each with the tokens of all its questions. Padding
repeats the last state of a text, which changes no maximum; only the attention weights need a mask.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.models.ragged import Ragged
from aptool.scoring.kernels.pair_scorer import cosines

# Elements of G in one batch.
ALIGNMENTS = 1 << 28


def score_batched(
    questions: Ragged,
    projected: Tensor,
    answers: Sequence[Tensor],
    lengths: Tensor,
    pairs: Tensor,
    alignments: int = ALIGNMENTS,
    sharpness: float = 1.0,
    residual: float = 0.0,
) -> Tensor:
    """Scores of pairs.

    Args:
        questions: states of the questions, values (N, c).
        projected: (N, c) the rows of Qᵀ U.
        answers: states of each of n answers, (its length or more, c), the last one repeated.
        lengths: (n,) int64 tokens of each answer.
        pairs: (2, P) int64, the question and the answer of each pair; pairs of an answer are adjacent.
        alignments: elements of G in one batch.
        sharpness: factor of g before its softmax.
        residual: share of the weights that is uniform.

    Returns:
        (P,) fp32.
    """
    counts = torch.bincount(pairs[1], minlength=len(answers))  # (n,) questions of each answer
    ends = counts.cumsum(0)
    tokens = torch.zeros_like(lengths).index_add_(0, pairs[1], questions.lengths[pairs[0]])  # (n,)
    scores = []
    # Copied to the host once: the loop below would synchronize with the device at every step.
    sizes = list(zip(tokens.tolist(), lengths.tolist(), ends.tolist(), counts.tolist(), strict=True))
    first = 0
    while first < len(answers):
        last, widest, longest = first, 0, 0
        while last < len(answers):
            widest, longest = max(widest, sizes[last][0]), max(longest, sizes[last][1])
            if last > first and (last + 1 - first) * widest * longest > alignments:
                break
            last += 1
        begin, end = sizes[first][2] - sizes[first][3], sizes[last - 1][2]
        if end > begin:
            batch = slice(first, last)
            stored = Ragged.join([answer.float() for answer in answers[batch]])
            pair_question = pairs[0, begin:end]
            texts = lengths[batch], counts[batch]
            scores.append(_score(questions, projected, stored, *texts, pair_question, sharpness, residual))
        first = last
    return torch.cat(scores)


def _score(
    questions: Ragged,
    projected: Tensor,
    answers: Ragged,
    lengths: Tensor,
    counts: Tensor,
    pair_question: Tensor,
    sharpness: float,
    residual: float,
) -> Tensor:
    """(P,) scores of B answers, each with the next ``counts`` of the (P,) questions ``pair_question``."""
    device = lengths.device
    longest = int(lengths.max())
    place = torch.arange(longest, device=device)  # (L,)
    own = torch.minimum(place[None], lengths[:, None] - 1)  # (B, L)
    A = answers.values[answers.offsets[:-1].to(device)[:, None] + own]  # (B, L, c)

    pair_tokens = questions.lengths[pair_question]  # (P,)
    pair_answer = torch.arange(len(counts), device=device).repeat_interleave(counts)  # (P,)
    ends = pair_tokens.cumsum(0)
    per_answer = torch.zeros_like(counts).index_add_(0, pair_answer, pair_tokens)  # (B,)
    starts = per_answer.cumsum(0) - per_answer
    rows = Ragged(projected, questions.offsets).rows(pair_question)  # (T,) question tokens of all pairs
    widest = int(per_answer.max())
    slot = torch.minimum(torch.arange(widest, device=device)[None], (per_answer[:, None] - 1).clamp_min(0))
    Q = projected[rows[(starts[:, None] + slot).clamp_max(len(rows) - 1)]]  # (B, S, c)

    G = Q @ A.transpose(1, 2)  # (B, S, L), before tanh
    real = torch.arange(widest, device=device)[None] < per_answer[:, None]  # (B, S)
    G = G[real]  # (T, L)
    g_q = (G.amax(1).tanh() * sharpness).exp()  # (T,)
    g_a = torch.segment_reduce(G, "max", lengths=pair_tokens, axis=0).tanh()  # (P, L)
    g_a = (g_a * sharpness).exp()
    g_a = g_a * (place[None] < lengths[pair_answer][:, None])

    if residual:
        g_q = mixed(g_q, pair_tokens, pair_tokens, residual)
        uniform = residual / lengths[pair_answer][:, None]
        g_a = torch.where(g_a > 0, g_a * ((1 - residual) / g_a.sum(1, keepdim=True)) + uniform, 0.0)
    r_q = F.embedding_bag(
        rows, questions.values, ends - pair_tokens, mode="sum", per_sample_weights=g_q
    )  # (P, c)
    most = int(counts.max())
    within = torch.arange(len(pair_question), device=device) - (counts.cumsum(0) - counts)[pair_answer]
    weights = g_a.new_zeros(len(counts), most, longest)
    weights[pair_answer, within] = g_a
    r_a = (weights @ A)[pair_answer, within]  # (P, c)
    return cosines(r_q, r_a)


def mixed(weights: Tensor, counts: Tensor, lengths: Tensor, residual: float) -> Tensor:
    """Attention weights of texts stored end to end, mixed with uniform weights.

    Args:
        weights: (N,), not normalized.
        counts: (n,) int64 number of weights of each text.
        lengths: (n,) int64 number of states of each text over which uniform weights are spread.
        residual: share of the uniform weights.

    Returns:
        (N,) weights that sum to one over each text whose count equals its length.
    """
    sums = torch.segment_reduce(weights, "sum", lengths=counts, axis=0)
    normalized = weights * ((1 - residual) / sums).repeat_interleave(counts)
    return normalized + (residual / lengths).repeat_interleave(counts)
