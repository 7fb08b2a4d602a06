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

from aptool.models.device import send
from aptool.models.matching import MatchPooling
from aptool.models.pooling import IndependentPooling, Pooling
from aptool.models.ragged import Ragged
from aptool.models.similarity import EPSILON
from aptool.scoring.encoded import EncodedAnswers, Pairs


class PairScorer(ABC):
    """Scores pairs of encoded texts with the weights that a pooling has when the kernel is created."""

    # In memory an answer has a multiple of so many rows: the last one is repeated.
    row_multiple = 1

    def __init__(self, pooling: Any) -> None:
        self.pooling = pooling

    @classmethod
    def suits(cls, pooling: Any) -> bool:
        """Whether this kernel computes the scores of a pooling of its class with the options it has."""
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
        """What is computed once per answer: any rows for each, from the selected states, values (R, c).

        A row depends on its own answer alone. Rows may be in bf16, as the states are.
        """

    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        """(n,) int64 rows that ``cache_answers`` gives answers with (n,) tokens, without repeated ones."""
        return lengths

    @abstractmethod
    def prepare_questions(self, states: Ragged) -> Any:
        """What is computed once per question, from the states of all questions, values (N, c)."""

    @abstractmethod
    def score_pairs(self, questions: Any, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """Scores of pairs.

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

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: one row per answer."""
        vectors = self.pooling.represent(states).float()
        rows = self.pooling.similarity.prepare_answers(vectors)
        return Ragged.of_sizes(rows, np.ones_like(states.sizes))

    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        """See ``PairScorer.kept_rows``."""
        return np.ones_like(lengths)

    def prepare_questions(self, states: Ragged) -> Tensor:
        """See ``PairScorer.prepare_questions``: (n, c)."""
        return self.pooling.similarity.prepare_questions(self.pooling.represent(states).float())

    def score_pairs(self, questions: Tensor, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """See ``PairScorer.score_pairs``: from one matrix product, or row by row where that is less work."""
        similarity, device = self.pooling.similarity, questions.device
        vectors = answers.ragged().values  # (n, c)
        q, a = pairs.on(device)
        present, turn = np.unique(pairs.questions, return_inverse=True)
        if len(present) * len(vectors) <= 64 * len(turn):
            return similarity.matrix(questions[send(present, device)], vectors)[send(turn, device), a]
        return similarity.pairs(questions[q], vectors[a])


class FirstPairScorer(IndependentPairScorer):
    """The same for a pooling that reads only the first state of a text."""

    def select_states(self, tokens: Ragged) -> tuple[Tensor, np.ndarray]:
        """See ``PairScorer.select_states``."""
        return tokens.offsets[:-1], np.ones_like(tokens.sizes)


class PairwisePairScorer(PairScorer):
    """The pooling's own ``score_pairs``, pairs of similar length in one batch: for any pooling."""

    pooling: Pooling
    # Tokens of pairs in one batch.
    tokens_per_batch = 1 << 14

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: the states of each answer, or its token ids."""
        return states

    def prepare_questions(self, states: Ragged) -> Ragged:
        """See ``PairScorer.prepare_questions``: the states, or the token ids."""
        return _in_fp32(states)

    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """See ``PairScorer.score_pairs``."""
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

    def cache_answers(self, states: Ragged) -> Ragged:
        """See ``PairScorer.cache_answers``: what the pooling keeps of each answer."""
        found = self.pooling.kept(states.with_values(states.values.float()))
        return found.with_values(found.values.to(states.values.dtype))

    def kept_rows(self, lengths: np.ndarray) -> np.ndarray:
        """See ``PairScorer.kept_rows``."""
        return lengths + self.pooling.more_rows

    def prepare_questions(self, states: Ragged) -> Ragged:
        """See ``PairScorer.prepare_questions``: what the pooling keeps."""
        return self.pooling.kept(states.with_values(states.values.float()))

    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """See ``PairScorer.score_pairs``. On a GPU, where launches are expensive, pairs are batched."""
        if questions.values.is_cuda:
            return super().score_pairs(questions, answers, pairs)
        rows = questions.rows(pairs.questions)  # the tokens of every pair's question, pair after pair
        sizes = questions.sizes[pairs.questions]
        ends = np.cumsum(pairs.counts)
        tokens = np.add.reduceat(sizes, ends - pairs.counts)  # (n,) question tokens of each answer's pairs
        products = (
            questions.values.index_select(0, asked) @ answers.rows(answer).float().T  # (s, L)
            for answer, asked in enumerate(rows.split(tokens.tolist()))
        )
        if self.pooling.one_way:
            return self.pooling.score(
                Ragged.of_sizes(torch.cat([self.pooling.match(S) for S in products]), sizes)
            )
        own = np.split(sizes, ends[:-1])
        return torch.cat(
            [self.pooling.reduce_one(Ragged.of_sizes(S, some)) for S, some in zip(products, own, strict=True)]
        )

    def score_batch(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``PairwisePairScorer.score_batch``."""
        return self.pooling.score_kept(questions, answers)
