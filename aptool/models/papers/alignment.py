"""Word alignment: the best match of each word in the other text (Wang and Ittycheriah 2015).

The encoder gives word vectors. A word's similarity to the other text is the greatest cosine with its words;
the dissimilarity is 1 minus that. The columns of a pair summarize both for both texts.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.models.similarity import unit

# Minimum cosine of an aligned word.
_ALIGNED = 0.99


class AlignmentPooling(Pooling):
    """Columns from the greatest cosines of the words of both texts, for a small head."""

    many_columns = True

    @dataclass(frozen=True)
    class Options:
        """``alignment`` pooling has no options."""

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        # The importance of a word is a softmax of v · x over its text; initially uniform.
        self.v = nn.Parameter(torch.zeros(size))

    @property
    @override
    def columns(self) -> int:
        return 8  # four per text

    @classmethod
    @override
    def max_weights(cls, size: int, options: Any) -> int:
        return size

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n, 8) columns, four for the question and four for the answer.

        Mean similarity; mean similarity weighted by importance; sum of the dissimilarity of words that are
        not aligned, divided by the length; greatest dissimilarity.
        """
        best_q, mask_q, best_a, mask_a = self._best(questions, answers)
        columns = []
        for texts, best, mask in ((questions, best_q, mask_q), (answers, best_a, mask_a)):
            length = mask.sum(1)
            importance = texts.with_values(texts.values @ self.v).padded()[0]
            weights = importance.masked_fill(~mask, -torch.inf).softmax(1)
            dissimilarity = (1 - best) * mask
            columns += [
                (best * mask).sum(1) / length,
                (best * weights).sum(1),
                (dissimilarity * (best < _ALIGNED)).sum(1) / length,
                dissimilarity.amax(1),
            ]
        return torch.stack(columns, dim=1)

    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L) shares of the words in the similarity of their text."""
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
        """(n, M) greatest cosines of the question's words and their mask, then (n, L) of the answer's."""
        Q, mask_q = questions.with_values(unit(questions.values)).padded()
        A, mask_a = answers.with_values(unit(answers.values)).padded()
        S = Q @ A.transpose(1, 2)  # (n, M, L)
        best_q = S.masked_fill(~mask_a[:, None], -1.0).amax(2)
        best_a = S.masked_fill(~mask_q[:, :, None], -1.0).amax(1)
        return best_q, mask_q, best_a, mask_a
