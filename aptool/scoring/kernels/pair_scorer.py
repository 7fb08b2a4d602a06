"""The interface of kernels: the scores of many pairs that share texts.

``aptool.models.pooling`` defines the score of one pair. A ``PairScorer`` computes the same scores from texts
that were encoded once each: it defines which states of a text are needed, what is computed once per answer
and once per question, and what remains to be computed per pair.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aptool.models.ragged import Ragged
from aptool.models.similarity import EPSILON


class PairScorer(ABC):
    """Scores pairs of encoded texts with the weights that a pooling has when the kernel is created."""

    def __init__(self, pooling: Any) -> None:
        self.pooling = pooling

    @classmethod
    def suits(cls, pooling: Any) -> bool:
        """Whether this kernel computes the scores of a pooling of its class with the options it has."""
        return True

    def select_states(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The states of answers that ``cache_answers`` takes; by default every state.

        Args:
            lengths: (n,) int64 tokens of each of n texts, stored end to end.

        Returns:
            (R,) int64 rows of tokens, text by text; (n,) int64 number of rows of each text.
        """
        return torch.arange(int(lengths.sum()), device=lengths.device), lengths

    @abstractmethod
    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """What is computed once per answer: a tensor for each, from the selected states, values (R, c)."""

    @abstractmethod
    def prepare_questions(self, states: Ragged) -> Any:
        """What is computed once per question, from the states of all questions, values (N, c)."""

    @abstractmethod
    def score_pairs(
        self, questions: Any, answers: Sequence[Tensor], lengths: Tensor, pairs: Tensor
    ) -> Tensor:
        """Scores of pairs.

        Args:
            questions: the result of ``prepare_questions``.
            answers: results of ``cache_answers``, one of each of n answers.
            lengths: (n,) int64 tokens of each of these answers.
            pairs: (2, P) int64, the question and the answer of each pair; pairs of an answer are adjacent.

        Returns:
            (P,) fp32, equal to the pooling's own scores up to rounding.
        """


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """(n,) cosines of the rows of two (n, c), the first of which is overwritten.

    ``cosine_similarity`` would allocate (n, c) twice more.
    """
    lengths = first.norm(dim=1).clamp_min(EPSILON) * second.norm(dim=1).clamp_min(EPSILON)
    return first.mul_(second).sum(1) / lengths
