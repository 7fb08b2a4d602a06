"""The kernel of attentive pooling: late interaction.

With one text of a pair fixed, the alignment with all its partners is a single matrix product over the
partners' states, stored end to end, without padding and without a mask. Pairs are therefore grouped by the
text of one side: all pairs of an answer, or all pairs of a question.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.models.attention import AttentivePooling
from aptool.models.ragged import Ragged
from aptool.models.similarity import Cosine
from aptool.scoring.kernels.attentive_batched import mixed, score_batched
from aptool.scoring.kernels.pair_scorer import PairScorer, cosines

# Matrix products are fastest when a dimension is a multiple of this, so the last state of an answer is
# repeated up to it. A repeated state changes no maximum.
ALIGNED = 16

# Pairs whose vectors are held at one time, so that they are still in a core's cache when they are compared.
PAIRS_PER_BLOCK = 1024

# The fixed cost of a group, in tokens moved.
GROUP_TOKENS = 500


class EncodedQuestions(NamedTuple):
    """Questions: their states, the rows of Qᵀ U, and where each question's tokens are."""

    states: Tensor  # (N, c)
    projected: Tensor  # (N, c)
    offsets: Tensor  # (n + 1,)
    sharpness: float
    residual: float

    @property
    def ragged(self) -> Ragged:
        """The projected states with their offsets."""
        return Ragged(self.projected, self.offsets)


class AttentivePairScorer(PairScorer):
    """G and what follows from it (eq. 13 to 18) for every pair, from the states of both texts."""

    pooling: AttentivePooling

    @classmethod
    def suits(cls, pooling: Any) -> bool:
        """See ``PairScorer.suits``: the vectors are compared by their cosine, which no divisor changes."""
        return isinstance(pooling.similarity, Cosine)

    def select_states(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """See ``PairScorer.select_states``: every state, the last one repeated."""
        counts = (lengths + ALIGNED - 1) // ALIGNED * ALIGNED
        place = Ragged.of_lengths(counts).positions()[0]
        last = lengths.cumsum(0).repeat_interleave(counts) - 1
        first = (lengths.cumsum(0) - lengths).repeat_interleave(counts)
        return torch.minimum(first + place, last), counts

    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """See ``PairScorer.cache_answers``: the states of each answer, (multiple of ALIGNED, c)."""
        return self.pooling.normalize_states(states).values.split(states.lengths.tolist())

    def prepare_questions(self, states: Ragged) -> EncodedQuestions:
        """See ``PairScorer.prepare_questions``."""
        values = self.pooling.normalize_states(states).values.float()
        options = self.pooling.sharpness, self.pooling.residual
        return EncodedQuestions(values, values @ self.pooling.U, states.offsets, *options)

    def score_pairs(
        self, questions: EncodedQuestions, answers: Sequence[Tensor], lengths: Tensor, pairs: Tensor
    ) -> Tensor:
        """See ``PairScorer.score_pairs``. On a CPU pairs are grouped by the side that moves fewer tokens."""
        if questions.states.is_cuda:
            return score_batched(
                Ragged(questions.states, questions.offsets),
                questions.projected,
                answers,
                lengths,
                pairs,
                sharpness=questions.sharpness,
                residual=questions.residual,
            )
        question_tokens = questions.ragged.lengths[pairs[0]].sum()
        by_question = lengths[pairs[1]].sum() + GROUP_TOKENS * len(pairs[0].unique())
        by_answer = 2 * question_tokens + GROUP_TOKENS * len(answers)
        if by_question <= by_answer:
            return _by_question(questions, answers, lengths, pairs)
        return _by_answer(questions, answers, lengths, pairs)


def _by_answer(
    questions: EncodedQuestions, answers: Sequence[Tensor], lengths: Tensor, pairs: Tensor
) -> Tensor:
    """For each answer, one product with the tokens of all its K questions; blocks of answers at a time."""
    present, counts = pairs[1].unique_consecutive(return_counts=True)
    scores = []
    for block in torch.arange(len(present)).split(max(1, PAIRS_PER_BLOCK * len(present) // pairs.shape[1])):
        first, last = int(block[0]), int(block[-1]) + 1
        begin, end = int(counts[:first].sum()), int(counts[:last].sum())
        block_answers = [answers[answer] for answer in present[first:last].tolist()]
        block_lengths = lengths[present[first:last]].tolist()
        scores.append(
            _score_block(questions, block_answers, block_lengths, pairs[0, begin:end], counts[first:last])
        )
    return torch.cat(scores)


def _score_block(
    questions: EncodedQuestions,
    answers: list[Tensor],
    lengths: list[int],
    pair_question: Tensor,
    counts: Tensor,
) -> Tensor:
    """(P,) scores of answers, each with the next ``counts`` of the (P,) questions ``pair_question``."""
    rows = questions.ragged.rows(pair_question)  # (S,) the question tokens of every pair, pair after pair
    tokens = questions.ragged.lengths[pair_question]  # (P,) question tokens of each pair
    ends = tokens.cumsum(0)  # (P,)
    g_q = torch.empty(len(rows))
    r_a = torch.empty(len(tokens), questions.states.shape[1])
    pairs_each = counts.tolist()
    tokens_each = ends[counts.cumsum(0) - 1].diff(prepend=ends.new_zeros(1)).tolist()
    of_each = zip(
        *(part.split(tokens_each) for part in (rows, g_q)),
        *(part.split(pairs_each) for part in (tokens, r_a)),
        strict=True,
    )
    for answer, length, (own_rows, own_g_q, own_tokens, own_r_a) in zip(
        answers, lengths, of_each, strict=True
    ):
        A = answer.float()  # (L, c)
        G = questions.projected.index_select(0, own_rows) @ A.T  # (s, L), before tanh
        torch.amax(G, 1, out=own_g_q)
        g_a = torch.segment_reduce(G, "max", lengths=own_tokens, axis=0)  # (K, L), before tanh
        # g is within [-1, 1], so exp needs no shift; a cosine does not depend on the divisor of a softmax.
        weights = _weights(g_a.tanh_(), questions.sharpness)[:, :length]
        if questions.residual:
            weights.mul_((1 - questions.residual) / weights.sum(1, keepdim=True)).add_(
                questions.residual / length
            )
        torch.mm(weights, A[:length], out=own_r_a)
    weights = _weights(g_q.tanh_(), questions.sharpness)
    if questions.residual:
        weights = mixed(weights, tokens, tokens, questions.residual)
    r_q = F.embedding_bag(
        rows, questions.states, ends - tokens, mode="sum", per_sample_weights=weights
    )  # (P, c)
    return cosines(r_q, r_a)


def _by_question(
    questions: EncodedQuestions, answers: Sequence[Tensor], lengths: Tensor, pairs: Tensor
) -> Tensor:
    """For each question, one product with the tokens of all its K answers."""
    scores = torch.empty(pairs.shape[1])
    order = pairs[0].argsort(stable=True)
    present, counts = pairs[0, order].unique_consecutive(return_counts=True)
    for question, members in zip(present.tolist(), order.split(counts.tolist()), strict=True):
        begin, end = int(questions.offsets[question]), int(questions.offsets[question + 1])
        own_answers = pairs[1, members]
        parts = [answers[answer] for answer in own_answers.tolist()]
        A = torch.cat(parts).float()  # (S, c)
        stored = Ragged.of_lengths(torch.tensor([len(part) for part in parts]))
        G = A @ questions.projected[begin:end].T  # (S, M), before tanh
        g_q = torch.segment_reduce(G, "max", lengths=stored.lengths, axis=0).tanh()  # (K, M)
        weights = (g_q * questions.sharpness if questions.sharpness != 1 else g_q).softmax(1)  # (K, M)
        if questions.residual:
            weights.mul_(1 - questions.residual).add_(questions.residual / (end - begin))
        r_q = weights @ questions.states[begin:end]  # (K, c)
        weights = _weights(G.amax(1).tanh(), questions.sharpness)  # (S,)
        place = stored.positions()[0]
        inside = place < lengths[own_answers].repeat_interleave(stored.lengths)
        weights = weights * inside
        if questions.residual:
            weights = mixed(weights, stored.lengths, lengths[own_answers], questions.residual) * inside
        r_a = F.embedding_bag(
            torch.arange(len(A)), A, stored.offsets[:-1], mode="sum", per_sample_weights=weights
        )  # (K, c)
        scores[members] = cosines(r_q, r_a)
    return scores


def _weights(g: Tensor, sharpness: float) -> Tensor:
    """exp(g · sharpness), in place."""
    return (g if sharpness == 1 else g.mul_(sharpness)).exp_()
