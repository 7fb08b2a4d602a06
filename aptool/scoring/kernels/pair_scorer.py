"""The interface of kernels: the scores of many pairs that share texts.

``aptool.models.pooling`` defines the score of one pair. A ``PairScorer`` computes the same scores from texts
that were encoded once each: it defines which states of a text are needed, what is computed once per answer
and once per question, and what remains to be computed per pair.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from aptool.models.device import send
from aptool.models.matching import MatchPooling
from aptool.models.pooling import IndependentPooling, Pooling
from aptool.models.ragged import Ragged
from aptool.models.similarity import EPSILON
from aptool.scoring.encoded import EncodedAnswers, Pairs


class PairScorer(ABC):
    """Scores pairs of encoded texts with the weights that a pooling has when the kernel is created."""

    # In memory the number of rows of an answer is a multiple of this: the last row is repeated.
    row_multiple = 1

    def __init__(self, pooling: Any) -> None:
        self.pooling = pooling

    @classmethod
    def suits(cls, pooling: Any) -> bool:
        """Whether this kernel computes the scores of a pooling with these options."""
        return True

    def select_states(self, tokens: Ragged) -> tuple[Tensor, np.ndarray]:
        """The states of answers that ``cache_answers`` takes; by default every state.

        Args:
            tokens: token ids of n answers.

        Returns:
            (R,) int64 rows of tokens, text by text; (n,) int64 number of rows of each text.
        """
        return tokens.row_numbers(), tokens.sizes

    @abstractmethod
    def cache_answers(self, states: Ragged) -> Ragged:
        """The stored representation of answers: any rows per answer, from the selected states, values (R, c).

        A row depends on its own answer alone. Rows may be in bf16, as the states are.
        """

    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        """(n,) int64 rows that ``cache_answers`` gives answers with (n,) tokens, without repetitions."""
        return lengths

    @abstractmethod
    def prepare_questions(self, states: Ragged) -> Any:
        """The representation of all questions, from their states, values (N, c)."""

    @abstractmethod
    def score_pairs(self, questions: Any, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """Score of pairs.

        Args:
            questions: the result of ``prepare_questions``.
            answers: n answers, with the rows that ``cache_answers`` gave them.
            pairs: the pairs, sorted by answer; each answer has at least one.

        Returns:
            (P,) fp32, equal to the pooling's own scores up to rounding.
        """


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """(n,) cosines of the rows of two (n, c), the first of which is overwritten.

    ``cosine_similarity`` would allocate (n, c) twice more.
    """
    lengths = first.norm(dim=1).clamp_min(EPSILON) * second.norm(dim=1).clamp_min(EPSILON)
    return first.mul_(second).sum(1) / lengths


class IndependentPairScorer(PairScorer):
    """Similarities of vectors, one per text."""

    pooling: IndependentPooling

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        """One row per answer."""
        vectors = self.pooling.represent(states).float()
        rows = self.pooling.similarity.prepare_answers(vectors)
        return Ragged.of_sizes(rows, np.ones_like(states.sizes))

    @override
    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        return np.ones_like(lengths)

    @override
    def prepare_questions(self, states: Ragged) -> Tensor:
        return self.pooling.similarity.prepare_questions(self.pooling.represent(states).float())

    @override
    def score_pairs(self, questions: Tensor, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """From one matrix product, or row by row where that is less work."""
        similarity, device = self.pooling.similarity, questions.device
        vectors = answers.ragged().values  # (n, c)
        q, a = pairs.on(device)
        present, turn = np.unique(pairs.questions, return_inverse=True)
        if len(present) * len(vectors) <= 64 * len(turn):
            return similarity.matrix(questions[send(present, device)], vectors)[send(turn, device), a]
        return similarity.pairs(questions[q], vectors[a])


class FirstPairScorer(IndependentPairScorer):
    """The same for a pooling that reads only the first state of a text."""

    @override
    def select_states(self, tokens: Ragged) -> tuple[Tensor, np.ndarray]:
        return tokens.offsets[:-1], np.ones_like(tokens.sizes)


class PairwisePairScorer(PairScorer):
    """The pooling's own ``score_pairs``, for any pooling; pairs of similar length share a batch."""

    pooling: Pooling
    # Tokens of pairs in one batch.
    tokens_per_batch = 1 << 14

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        """The states of each answer, or its token ids."""
        return states

    @override
    def prepare_questions(self, states: Ragged) -> Ragged:
        """The states, or the token ids."""
        return _in_fp32(states)

    @override
    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        joined, pair_answers = answers.ragged(), pairs.answers
        tokens = questions.sizes[pairs.questions] + answers.lengths[pair_answers]  # (P,)
        order = np.argsort(tokens, kind="stable")
        batch_of = (np.cumsum(tokens[order]) - 1) // self.tokens_per_batch
        scores = []
        for batch in np.split(order, np.flatnonzero(np.diff(batch_of)) + 1):
            some = questions.select(pairs.questions[batch])
            scores.append(self.score_batch(some, _in_fp32(joined.select(pair_answers[batch]))))
            pairs.scored(len(batch))
        return torch.cat(scores)[send(np.argsort(order), questions.values.device)]

    def score_batch(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n,) scores of n pairs, from what ``prepare_questions`` and ``cache_answers`` gave."""
        return self.pooling.score_pairs(questions, answers)


class CrossPairScorer(PairwisePairScorer):
    """One pass of the network per pair; "states" are token ids, so that more of them fit in a batch."""

    tokens_per_batch = 1 << 18


def _in_fp32(states: Ragged) -> Ragged:
    """States in fp32, which poolings compute in; token ids as they are."""
    return states.with_values(states.values.float()) if states.values.is_floating_point() else states


class MatchPairScorer(PairwisePairScorer):
    """Similarities of tokens, whose states are scaled to unit length once."""

    pooling: MatchPooling

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        """The representation that the pooling defines."""
        kept = self.pooling.kept(states.with_values(states.values.float()))
        return kept.with_values(kept.values.to(states.values.dtype))

    @override
    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        return lengths + self.pooling.more_rows

    @override
    def prepare_questions(self, states: Ragged) -> Ragged:
        """The representation that the pooling defines."""
        return self.pooling.kept(states.with_values(states.values.float()))

    @override
    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """On a GPU, where launches are expensive, pairs are batched."""
        if questions.values.is_cuda:
            return super().score_pairs(questions, answers, pairs)
        rows = questions.rows(pairs.questions)  # the tokens of every pair's question, pair after pair
        sizes = questions.sizes[pairs.questions]
        ends = np.cumsum(pairs.counts)
        tokens = np.add.reduceat(sizes, ends - pairs.counts)  # (n,) question tokens of each answer's pairs
        products = (
            questions.values.index_select(0, tokens_of_pairs) @ answers.rows(answer).float().T  # (s, L)
            for answer, tokens_of_pairs in enumerate(rows.split(tokens.tolist()))
        )
        if self.pooling.one_way:
            return self.pooling.score(
                Ragged.of_sizes(torch.cat([self.pooling.match(S) for S in products]), sizes)
            )
        sizes_of = np.split(sizes, ends[:-1])
        return torch.cat(
            [
                self.pooling.reduce_one(Ragged.of_sizes(S, pair_sizes))
                for S, pair_sizes in zip(products, sizes_of, strict=True)
            ]
        )

    @override
    def score_batch(self, questions: Ragged, answers: Ragged) -> Tensor:
        return self.pooling.score_kept(questions, answers)
