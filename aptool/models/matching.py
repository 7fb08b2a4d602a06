"""Late interaction: the score is a function of S (M, L), the cosines between the tokens of both texts.

All states of an answer are stored; a pair costs one matrix product and the reduction of S. ``match`` reduces
the similarities of each question token to the answer; ``score`` reduces over the tokens of the question.

- ``maxsim``: ColBERT (Khattab and Zaharia, 2020), the best answer token of each question token.
- ``mean-maxsim``: a weighted mean of ``maxsim`` and the cosine of the mean states.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from aptool.models.pooling import Pooling, StateOptions, segment_mean
from aptool.models.ragged import Ragged
from aptool.models.similarity import unit
from aptool.options import bounded

# The first argument of ``MatchPooling.reduce_blocks``.
Blocks: TypeAlias = Iterable[tuple[Tensor, np.ndarray]]


class MatchPooling(Pooling):
    """A pooling of the similarities between the tokens of both texts."""

    # Number of stored rows per text in addition to one per token.
    extra_rows: ClassVar[int] = 0
    Options = StateOptions

    def __init__(self, size: int, options: StateOptions) -> None:
        super().__init__()

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        return self.score_stored(self.stored_rows(questions), self.stored_rows(answers))

    def score_stored(self, questions: Ragged, answers: Ragged) -> Tensor:
        """(n,) scores of pairs from the result of ``stored_rows``; pair i is question i with answer i."""
        Q, A = questions.padded()[0], answers.padded()[0]  # (n, M, c), (n, L, c)
        return self.reduce(Q @ A.transpose(1, 2), questions, answers)

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

    def reduce(self, S: Tensor, questions: Ragged, answers: Ragged) -> Tensor:
        """(n,) scores of pairs from S (n, M, L), with any values on padding; the texts have the lengths."""
        _, M, L = S.shape
        mask = torch.arange(L, device=S.device) < answers.lengths[:, None]  # (n, L)
        matched = self.match(S, mask[:, None]).flatten(0, 1)  # (n M, k)
        return self.score(questions.with_values(matched.index_select(0, questions.slots(M))))

    def reduce_one(self, S: Ragged, mask: Tensor | None = None) -> Tensor:
        """(n,) scores of n questions, each with one answer, from S with values (N, L).

        ``mask`` (n, L) is false on the padding of the answers.
        """
        return self.score(S.with_values(self.match(S.values, None if mask is None else S.spread(mask))))

    def reduce_blocks(self, blocks: Blocks, question_sizes: np.ndarray) -> Tensor:
        """(P,) scores of pairs, in blocks of one question each, on a CPU, without gradients.

        Args:
            blocks: S (M, N) of a question, whose columns are the rows of n answers, and (n,) the first column
                of each answer.
            question_sizes: (P,) rows of the question of each pair.
        """
        matched = [self.match_answers(S, starts) for S, starts in blocks]
        return self.score(Ragged.of_sizes(torch.from_numpy(np.concatenate(matched)), question_sizes))

    def match_answers(self, S: Tensor, starts: np.ndarray) -> np.ndarray:
        """(n M, k) ``match`` of a question with each of n answers, from a block of ``reduce_blocks``."""
        return column_maxima(S, starts).T.reshape(-1, 1)

    def match(self, S: Tensor, mask: Tensor | None = None) -> Tensor:
        """(..., k) match of question tokens with an answer from S (..., L): by default the maximum, k = 1.

        ``mask`` broadcasts to S and is false on padding.
        """
        return best(S, mask)

    def partners(self, S: Tensor) -> Tensor:
        """(M, L) shares of the pairs of tokens in the score, from S (M, L); the shares sum to one.

        By default, each question token is paired with its best answer token.
        """
        return nearest(S) / len(S)

    def score(self, matched: Ragged) -> Tensor:
        """(n,) scores of n questions from the output of ``match`` for their tokens, values (N, k)."""
        return segment_mean(matched)[:, 0]

    @override
    def alignment(self, questions: Tensor, answers: Tensor) -> Tensor:
        """S (M, L) of one pair from its states (M, c) and (L, c)."""
        return unit(questions) @ unit(answers).T

    @override
    def attention(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, M) and (n, L) weights of the tokens of n pairs: sums of ``partners`` over the other text."""
        texts = zip(
            questions.values.split(questions.sizes.tolist()),
            answers.values.split(answers.sizes.tolist()),
            strict=True,
        )
        shares = [self.partners(self.alignment(Q, A)) for Q, A in texts]
        return (
            Ragged.join([share.sum(1) for share in shares]).padded()[0],
            Ragged.join([share.sum(0) for share in shares]).padded()[0],
        )


class MaxSimPooling(MatchPooling):
    """s = mean over the question's tokens m of max over the answer's tokens l of S_ml."""


class MeanMaxSimPooling(MatchPooling):
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


def nearest(S: Tensor) -> Tensor:
    """(M, L) one at the first maximum of each row of S (M, L), zero elsewhere."""
    return torch.zeros_like(S).scatter_(1, S.argmax(1, keepdim=True), 1.0)
