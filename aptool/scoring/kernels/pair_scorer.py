"""The pair part of a score, for many pairs that share texts.

What ``aptool.models.pooling`` defines pair by pair is computed here from states encoded once per text. A
pooling has a ``PairScorer``: it says which states of a text are kept, what is worked out once about questions, and
scores pairs from that.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aptool.models.pooling import EPSILON
from aptool.models.ragged import Ragged


class PairScorer(ABC):
    """Scores pairs from encoded texts. Made for the pooling of a ranker, with the weights it has then."""

    def __init__(self, pooling: Any) -> None:
        self.pooling = pooling

    def select_states(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Which states of texts are wanted, and how many of each text.

        Args:
            lengths: (n,) int64 tokens of each of n texts that stand end to end.

        Returns:
            (R,) int64 rows of tokens, those of one text together; (n,) int64 how many rows a text has.
        """
        return torch.arange(int(lengths.sum()), device=lengths.device), lengths

    @abstractmethod
    def cache_answers(self, states: Ragged) -> Sequence[Tensor]:
        """What is kept of each text, from its states (R, c) in the layout asked for."""

    @abstractmethod
    def prepare_questions(self, states: Ragged) -> Any:
        """What pairs need to know of the questions, from their states (N, c), one a token."""

    @abstractmethod
    def scores(self, asked: Any, kept: Sequence[Tensor], lengths: Tensor, pairs: Tensor) -> Tensor:
        """Scores of pairs.

        Args:
            asked: what ``ask`` made of the questions.
            kept: what ``keep`` made of some answers.
            lengths: (n,) int64 tokens of each of these answers.
            pairs: (2, P) int64, the question and the answer of each pair; an answer's pairs are adjacent.

        Returns:
            (P,) fp32, those of the pairwise definition.
        """


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """(n,) cosines of the rows of two (n, c), the first of which is overwritten.

    ``cosine_similarity`` writes (n, c) twice more to get there.
    """
    lengths = first.norm(dim=1).clamp_min(EPSILON) * second.norm(dim=1).clamp_min(EPSILON)
    return first.mul_(second).sum(1) / lengths
