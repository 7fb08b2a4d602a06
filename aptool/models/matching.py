"""Late interaction: the score is a function of S (M, L), the cosines between the tokens of both texts.

All states of an answer are stored; a pair costs one matrix product and the reduction of S. ``match`` reduces
the similarities of each question token to the answer; ``score`` reduces over the tokens of the question.

- ``maxsim``: ColBERT (Khattab and Zaharia, 2020), the best answer token of each question token.
- ``mean-maxsim``: a weighted mean of ``maxsim`` and the cosine of the mean states.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from aptool.config import bounded
from aptool.models.pooling import Pooling, StateOptions, segment_mean, unit
from aptool.models.ragged import Ragged


class MaxSimPooling(Pooling):
    """s = mean over the question's tokens m of max over the answer's tokens l of S_ml.

    Other poolings of S are subclasses.
    """

    # Number of stored rows per text in addition to one per token.
    extra_rows: ClassVar[int] = 0
    Options = StateOptions

    def __init__(self, size: int, options: StateOptions) -> None:
        super().__init__()

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        questions, answers = self.stored_rows(questions), self.stored_rows(answers)
        (Q,) = questions.pad(questions.values)  # (n, M, c)
        A, mask = answers.padded()  # (n, L, c), (n, L)
        matched = self.match(Q @ A.transpose(1, 2), mask[:, None]).flatten(0, 1)  # (n M, k)
        return self.score(questions.with_values(matched.index_select(0, questions.slots(Q.shape[1]))))

    @override
    def score_matrix(self, questions: Ragged, answers: Ragged) -> Tensor:
        if type(self) not in (MaxSimPooling, MeanMaxSimPooling):  # a subclass has its own definition
            return super().score_matrix(questions, answers)
        Q, A = self.stored_rows(questions), self.stored_rows(answers)
        if Q.values.is_cuda:
            n, k = len(Q.sizes), len(A.sizes)
            dense, mask = A.padded()  # (k, L, c), (k, L)
            S = Q.values @ dense.transpose(1, 2)  # (k, N, L)
            every_pair = Ragged.of_sizes(S.flatten(0, 1), np.tile(Q.sizes, k))
            return self.reduce_one(every_pair, mask.repeat_interleave(n, 0)).view(k, n).T
        parts = A.values.split(A.sizes.tolist())
        return torch.stack([self.reduce_one(Q.with_values(Q.values @ A.T)) for A in parts], 1)

    def stored_rows(self, states: Ragged) -> Ragged:
        """Rows to store per text, whose inner products are S: by default the states at unit length."""
        return normalized(states)

    def reduce_one(self, S: Ragged, mask: Tensor | None = None) -> Tensor:
        """(n,) scores of n questions, each with one answer, from S with values (N, L).

        ``mask`` (n, L) is false on the padding of the answers.
        """
        return self.score(S.with_values(self.match(S.values, None if mask is None else S.spread(mask))))

    def match_answers(self, S: Tensor, starts: np.ndarray) -> np.ndarray:
        """(n M, k) ``match`` of a question with each of n answers, on a CPU, without gradients.

        S (M, N) has the rows of all answers as columns, ``starts`` (n,) the first column of each.
        """
        return column_maxima(S, starts).T.reshape(-1, 1)

    def match(self, S: Tensor, mask: Tensor | None = None) -> Tensor:
        """(..., k) match of question tokens with an answer from S (..., L): by default the maximum, k = 1.

        ``mask`` broadcasts to S and is false on padding.
        """
        return best(S, mask)

    def score(self, matched: Ragged) -> Tensor:
        """(n,) scores of n questions from the output of ``match`` for their tokens, values (N, k)."""
        return segment_mean(matched)[:, 0]

    @override
    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L) weights of the tokens of n pairs.

        Each question token is paired with its best answer token; a weight is a share of the pairs.
        """
        texts = zip(
            questions.values.split(questions.sizes.tolist()),
            answers.values.split(answers.sizes.tolist()),
            strict=True,
        )
        shares = []
        for Q, A in texts:
            S = unit(Q) @ unit(A).T  # (M, L)
            shares.append(torch.zeros_like(S).scatter_(1, S.argmax(1, keepdim=True), 1 / len(S)))
        return (
            Ragged.join([share.sum(1) for share in shares]).padded()[0],
            Ragged.join([share.sum(0) for share in shares]).padded()[0],
        )


class MeanMaxSimPooling(MaxSimPooling):
    """s = w cos(q̄, ā) + (1 - w) mean over m of max over l of S_ml, where q̄ and ā are the mean states.

    COIL (Gao et al., 2021) adds the product of two vectors to the matches of tokens; this pooling adds the
    cosine of the mean states. The first row and column of S (1 + M, 1 + L) belong to the means.
    """

    extra_rows = 1

    @dataclass(frozen=True)
    class Options(StateOptions):
        """Options of ``mean-maxsim`` pooling.

        Attributes:
            share: w, the share of the means in the score.
        """

        share: float = bounded(0.5, below=1)

    def __init__(self, size: int, options: Options) -> None:
        super().__init__(size, options)
        self.share = options.share

    @override
    def stored_rows(self, states: Ragged) -> Ragged:
        """(N + n, c): the mean state of each text, then its states, at unit length."""
        count, size = states.values.shape
        rows = Ragged.of_sizes(states.values.new_empty(count + len(states.sizes), size), states.sizes + 1)
        rows.values.index_copy_(0, rows.offsets[:-1], segment_mean(states))
        rows.values.index_copy_(0, states.row_numbers() + states.owners() + 1, states.values)
        return normalized(rows)

    @override
    def match(self, S: Tensor, mask: Tensor | None = None) -> Tensor:
        """(..., 2): the similarity to the mean of the answer, and the maximum over its tokens."""
        maximum = best(S[..., 1:], None if mask is None else mask[..., 1:])
        return torch.cat([S[..., :1], maximum], -1)

    @override
    def match_answers(self, S: Tensor, starts: np.ndarray) -> np.ndarray:
        # The mean of an answer, then its tokens.
        maxima = column_maxima(S, (starts[:, None] + np.arange(2)).ravel())
        return maxima.reshape(len(S), -1, 2).transpose(1, 0, 2).reshape(-1, 2)

    @override
    def score(self, matched: Ragged) -> Tensor:
        means = matched.offsets[:-1]  # the first row of each question
        token_means = segment_mean(matched.with_values(matched.values[:, 1].index_fill(0, means, 0)))
        maxsim = token_means * matched.lengths / (matched.lengths - 1)
        cosine = matched.values[:, 0].index_select(0, means)
        return self.share * cosine + (1 - self.share) * maxsim


def normalized(states: Ragged) -> Ragged:
    """States (N, c) scaled to unit length."""
    return states.with_values(unit(states.values))


def best(S: Tensor, mask: Tensor | None) -> Tensor:
    """(..., 1) maximum of S (..., L) where ``mask`` is true."""
    return (S if mask is None else S.masked_fill(~mask, -torch.inf)).amax(-1, keepdim=True)


def column_maxima(S: Tensor, starts: np.ndarray) -> np.ndarray:
    """(M, n) maxima of n groups of consecutive columns of S (M, N), from the first column of each group."""
    # ``torch.segment_reduce`` takes three to ten times as long.
    return np.maximum.reduceat(S.numpy(), starts, axis=1)
