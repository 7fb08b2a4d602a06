"""Attentive pooling for a GPU: many answers in one product each step, an answer's states read once.

The scores are those that ``aptool.scoring.kernels.attentive`` computes answer by answer on a core. Launches slow a
GPU, padding does not: answers of like length are laid out side by side, each with all its questions' tokens.
Padding repeats a text's last state, which changes no maximum; only the weights need a mask.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from aptool.models.ragged import Ragged
from aptool.scoring.kernels.pair_scorer import cosines

# Numbers of G that are held at one time.
ALIGNMENTS = 1 << 28


def score_batched(
    questions: Ragged,
    projected: Tensor,
    kept: Sequence[Tensor],
    lengths: Tensor,
    pairs: Tensor,
    alignments: int = ALIGNMENTS,
    sharpness: float = 1.0,
    residual: float = 0.0,
) -> Tensor:
    """Scores of pairs.

    Args:
        questions: states, values (N, c), of the questions.
        projected: (N, c) the rows of Qᵀ U.
        kept: states of each answer, (its length or more, c), the last one repeated.
        lengths: (n,) int64 tokens of each answer.
        pairs: (2, P) int64, the question and the answer of each pair; an answer's pairs are adjacent.
        alignments: numbers of G that may be held at one time.
        sharpness: what g is multiplied by before its softmax.
        residual: share of a text's weight that its states have alike.

    Returns:
        (P,) fp32.
    """
    counts = torch.bincount(pairs[1], minlength=len(kept))  # (n,) questions of each answer
    ends = counts.cumsum(0)
    tokens = torch.zeros_like(lengths).index_add_(0, pairs[1], questions.lengths[pairs[0]])  # (n,)
    scores = []
    # Host copies once: the loop below would wait for the device at every step.
    sizes = list(zip(tokens.tolist(), lengths.tolist(), ends.tolist(), counts.tolist(), strict=True))
    first = 0
    while first < len(kept):
        last, widest, longest = first, 0, 0
        while last < len(kept):
            widest, longest = max(widest, sizes[last][0]), max(longest, sizes[last][1])
            if last > first and (last + 1 - first) * widest * longest > alignments:
                break
            last += 1
        begin, end = sizes[first][2] - sizes[first][3], sizes[last - 1][2]
        if end > begin:
            some = slice(first, last)
            parts = kept[some]
            stored = Ragged.join([part.float() for part in parts])
            asked = pairs[0, begin:end]
            texts = lengths[some], counts[some]
            scores.append(_score(questions, projected, stored, *texts, asked, sharpness, residual))
        first = last
    return torch.cat(scores)


def _score(
    questions: Ragged,
    projected: Tensor,
    stored: Ragged,
    lengths: Tensor,
    counts: Tensor,
    asked: Tensor,
    sharpness: float,
    residual: float,
) -> Tensor:
    """(P,) scores of B answers, each with the next ``counts`` of the (P,) questions ``asked``."""
    device = lengths.device
    longest = int(lengths.max())
    place = torch.arange(longest, device=device)  # (L,)
    own = torch.minimum(place[None], lengths[:, None] - 1)  # (B, L)
    A = stored.values[stored.offsets[:-1].to(device)[:, None] + own]  # (B, L, c)

    pair_tokens = questions.lengths[asked]  # (P,)
    answer = torch.arange(len(counts), device=device).repeat_interleave(counts)  # (P,)
    ends = pair_tokens.cumsum(0)
    per_answer = torch.zeros_like(counts).index_add_(0, answer, pair_tokens)  # (B,)
    starts = per_answer.cumsum(0) - per_answer
    rows = Ragged(projected, questions.offsets).rows(asked)  # (T,) question tokens of all pairs
    widest = int(per_answer.max())
    slot = torch.minimum(torch.arange(widest, device=device)[None], (per_answer[:, None] - 1).clamp_min(0))
    Q = projected[rows[(starts[:, None] + slot).clamp_max(len(rows) - 1)]]  # (B, S, c)

    G = Q @ A.transpose(1, 2)  # (B, S, L), before tanh
    real = torch.arange(widest, device=device)[None] < per_answer[:, None]  # (B, S)
    G = G[real]  # (T, L)
    g_q = (G.amax(1).tanh() * sharpness).exp()  # (T,)
    g_a = torch.segment_reduce(G, "max", lengths=pair_tokens, axis=0).tanh()  # (P, L)
    g_a = (g_a * sharpness).exp()
    g_a = g_a * (place[None] < lengths[answer][:, None])

    if residual:
        g_q = mixed(g_q, pair_tokens, pair_tokens, residual)
        even = residual / lengths[answer][:, None]
        g_a = torch.where(g_a > 0, g_a * ((1 - residual) / g_a.sum(1, keepdim=True)) + even, 0.0)
    r_q = torch.nn.functional.embedding_bag(
        rows, questions.values, ends - pair_tokens, mode="sum", per_sample_weights=g_q
    )  # (P, c)
    most = int(counts.max())
    within = torch.arange(len(asked), device=device) - (counts.cumsum(0) - counts)[answer]
    weights = g_a.new_zeros(len(counts), most, longest)
    weights[answer, within] = g_a
    r_a = (weights @ A)[answer, within]  # (P, c)
    return cosines(r_q, r_a)


def mixed(weights: Tensor, counts: Tensor, lengths: Tensor, residual: float) -> Tensor:
    """Weights of texts that stand end to end, mixed with even ones.

    Args:
        weights: (N,) with any sum.
        counts: (n,) int64 how many of them belong to each text.
        lengths: (n,) int64 states of each text, among which even weights are shared.
        residual: the share of the even ones.

    Returns:
        (N,) weights that sum to one over each text where ``counts`` are ``lengths``.
    """
    sums = torch.segment_reduce(weights, "sum", lengths=counts, axis=0)
    shares = weights * ((1 - residual) / sums).repeat_interleave(counts)
    return shares + (residual / lengths).repeat_interleave(counts)
