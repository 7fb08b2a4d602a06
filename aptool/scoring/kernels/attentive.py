"""Attentive pooling over encoded texts: late interaction.

With one text of a pair held fixed, the alignment with all its partners is a single matrix product over the
partners' states put end to end, without padding and without a mask. Pairs are therefore grouped around the
texts of one side: all pairs of an answer, or all pairs of a question.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.models.pooling import AttentivePooling
from aptool.models.ragged import Ragged
from aptool.scoring.kernels.attentive_batched import mixed, score_batched
from aptool.scoring.kernels.pair_scorer import PairScorer, cosines

# Matrix products are fastest when one side is a multiple of this: an answer's last state is repeated up to
# it. Repeating a state changes no maximum.
ALIGNED = 16

# Pairs whose vectors are held at one time: they stay in a core's cache until they are compared.
PAIRS_AT_ONCE = 1024

# What starting on a group costs, in tokens moved.
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
    """The states of both texts, and G (eq. 13 to 18) for every pair."""

    pooling: AttentivePooling

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

    def scores(
        self, asked: EncodedQuestions, kept: Sequence[Tensor], lengths: Tensor, pairs: Tensor
    ) -> Tensor:
        """See ``PairScorer.scores``. Groups are made around the side of whose partners fewer tokens are moved."""
        if asked.states.is_cuda:
            states = Ragged(asked.states, asked.offsets)
            return score_batched(
                states,
                asked.projected,
                kept,
                lengths,
                pairs,
                sharpness=asked.sharpness,
                residual=asked.residual,
            )
        question_tokens = asked.ragged.lengths[pairs[0]].sum()
        around_questions = lengths[pairs[1]].sum() + GROUP_TOKENS * len(pairs[0].unique())
        around_answers = 2 * question_tokens + GROUP_TOKENS * len(kept)
        if around_questions <= around_answers:
            return _by_question(asked, kept, lengths, pairs)
        return _by_answer(asked, kept, lengths, pairs)


def _by_answer(asked: EncodedQuestions, kept: Sequence[Tensor], lengths: Tensor, pairs: Tensor) -> Tensor:
    """For each answer, one product with the tokens of all its K questions."""
    answers, counts = pairs[1].unique_consecutive(return_counts=True)
    scores = []
    for some in torch.arange(len(answers)).split(max(1, PAIRS_AT_ONCE * len(answers) // pairs.shape[1])):
        first, last = int(some[0]), int(some[-1]) + 1
        begin, end = int(counts[:first].sum()), int(counts[:last].sum())
        own = [kept[answer] for answer in answers[first:last].tolist()]
        own_lengths = lengths[answers[first:last]].tolist()
        scores.append(_around_answers(asked, own, own_lengths, pairs[0, begin:end], counts[first:last]))
    return torch.cat(scores)


def _around_answers(
    asked: EncodedQuestions, answers: list[Tensor], lengths: list[int], questions: Tensor, counts: Tensor
) -> Tensor:
    """(P,) scores of answers, each with the next so many of (P,) questions."""
    rows = asked.ragged.rows(questions)  # (S,) the question tokens of every pair, pair after pair
    tokens = asked.ragged.lengths[questions]  # (P,) how many a pair has
    ends = tokens.cumsum(0)  # (P,)
    g_q = torch.empty(len(rows))
    r_a = torch.empty(len(tokens), asked.states.shape[1])
    pairs_each = counts.tolist()
    tokens_each = ends[counts.cumsum(0) - 1].diff(prepend=ends.new_zeros(1)).tolist()
    of_each = zip(
        *(part.split(tokens_each) for part in (rows, g_q)),
        *(part.split(pairs_each) for part in (tokens, r_a)),
        strict=True,
    )
    for kept, length, (own, g_own, own_tokens, r_own) in zip(answers, lengths, of_each, strict=True):
        states = kept.float()  # (L, c)
        alignment = asked.projected.index_select(0, own) @ states.T  # (s, L): G, no tanh
        torch.amax(alignment, 1, out=g_own)
        of_answer = torch.segment_reduce(alignment, "max", lengths=own_tokens, axis=0)  # (K, L)
        # g is within [-1, 1], so exp needs no shift; a cosine does not see the divisor of a softmax.
        weights = _weights(of_answer.tanh_(), asked.sharpness)[:, :length]
        if asked.residual:
            weights.mul_((1 - asked.residual) / weights.sum(1, keepdim=True)).add_(asked.residual / length)
        torch.mm(weights, states[:length], out=r_own)
    weights = _weights(g_q.tanh_(), asked.sharpness)
    if asked.residual:
        weights = mixed(weights, tokens, tokens, asked.residual)
    r_q = F.embedding_bag(rows, asked.states, ends - tokens, mode="sum", per_sample_weights=weights)  # (P, c)
    return cosines(r_q, r_a)


def _by_question(asked: EncodedQuestions, kept: Sequence[Tensor], lengths: Tensor, pairs: Tensor) -> Tensor:
    """For each question, one product with the tokens of all its K answers."""
    scores = torch.empty(pairs.shape[1])
    order = pairs[0].argsort(stable=True)
    questions, counts = pairs[0, order].unique_consecutive(return_counts=True)
    for question, members in zip(questions.tolist(), order.split(counts.tolist()), strict=True):
        begin, end = int(asked.offsets[question]), int(asked.offsets[question + 1])
        answers = pairs[1, members]
        parts = [kept[answer] for answer in answers.tolist()]
        states = torch.cat(parts).float()  # (S, c)
        stored = Ragged.of_lengths(torch.tensor([len(part) for part in parts]))
        alignment = states @ asked.projected[begin:end].T  # (S, M): G, no tanh
        of_question = torch.segment_reduce(alignment, "max", lengths=stored.lengths, axis=0)  # (K, M)
        g_q = of_question.tanh()
        weights = (g_q * asked.sharpness if asked.sharpness != 1 else g_q).softmax(1)  # (K, M)
        if asked.residual:
            weights.mul_(1 - asked.residual).add_(asked.residual / (end - begin))
        r_q = weights @ asked.states[begin:end]  # (K, c)
        weights = _weights(alignment.amax(1).tanh(), asked.sharpness)  # (S,)
        place = stored.positions()[0]
        inside = place < lengths[answers].repeat_interleave(stored.lengths)
        weights = weights * inside
        if asked.residual:
            weights = mixed(weights, stored.lengths, lengths[answers], asked.residual) * inside
        r_a = F.embedding_bag(
            torch.arange(len(states)), states, stored.offsets[:-1], mode="sum", per_sample_weights=weights
        )  # (K, c)
        scores[members] = cosines(r_q, r_a)
    return scores


def _weights(g: Tensor, sharpness: float) -> Tensor:
    """exp(g · sharpness), in place."""
    return (g if sharpness == 1 else g.mul_(sharpness)).exp_()
