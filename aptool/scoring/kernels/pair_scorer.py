"""The interface of kernels: the scores of many pairs that share texts.

``aptool.models.pooling`` defines the score of one pair. A ``PairScorer`` computes the same scores from texts
that were encoded once each: it defines which states of a text are needed, what is computed once per answer
and once per question, and what remains to be computed per pair.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from torch import Tensor

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
