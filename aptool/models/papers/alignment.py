"""Word alignment: how well some word of the other text matches each word (Wang and Ittycheriah 2015).

The encoder gives word vectors. A word's similarity to the other text is the greatest cosine with any of its
words; what is missing to 1 is its dissimilar part. Columns of a pair summarize both parts of both texts.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.models.similarity import unit

# A word is aligned from this cosine on.
_ALIGNED = 0.99


class AlignmentPooling(Pooling):
    """Columns from the greatest cosines of the words of both texts, for a small head."""

    many_columns = True

    @dataclass(frozen=True)
    class Options:
        """``alignment`` pooling has no options."""

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        # The importance of a word is a softmax over its text of v · x: zero at first, all words alike.
        self.v = nn.Parameter(torch.zeros(size))

    @property
    @override
    def columns(self) -> int:
        """Four of each text."""
        return 8

    @classmethod
    @override
    def max_weights(cls, size: int, options: Any) -> int:
        return size

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, 8), for the question and then the answer.

        The mean similarity of its words; the mean weighted by importance; the dissimilarity 1 − similarity
        of the words that are not aligned, over all words; that of its worst word.
        """
        best_q, mask_q, best_a, mask_a = self._best(questions, answers)
        columns = []
        for texts, best, mask in ((questions, best_q, mask_q), (answers, best_a, mask_a)):
            length = mask.sum(1)
            importance = texts.with_values(texts.values @ self.v).padded()[0]
            weights = importance.masked_fill(~mask, -torch.inf).softmax(1)
            apart = (1 - best) * mask
            columns += [
                (best * mask).sum(1) / length,
                (best * weights).sum(1),
                (apart * (best < _ALIGNED)).sum(1) / length,
                apart.amax(1),
            ]
        return torch.stack(columns, dim=1)

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L): each word's share of the similarity of its text."""
        best_q, mask_q, best_a, mask_a = self._best(questions, answers)
        shares = []
        for best, mask in ((best_q, mask_q), (best_a, mask_a)):
            positive = best.clamp_min(1e-6) * mask
            shares.append(positive / positive.sum(1, keepdim=True))
        return shares[0], shares[1]

    def alignment(self, questions: Tensor, answers: Tensor) -> Tensor:
        """(M, L) cosines of the word vectors (M, d) of a question and (L, d) of an answer."""
        return unit(questions) @ unit(answers).T

    def _best(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Greatest cosines (n, M) of the question's words and their mask, then (n, L) of the answer's."""
        Q, mask_q = questions.with_values(unit(questions.values)).padded()
        A, mask_a = answers.with_values(unit(answers.values)).padded()
        S = Q @ A.transpose(1, 2)  # (n, M, L)
        best_q = S.masked_fill(~mask_a[:, None], -1.0).amax(2)
        best_a = S.masked_fill(~mask_q[:, :, None], -1.0).amax(1)
        return best_q, mask_q, best_a, mask_a
