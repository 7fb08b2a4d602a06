"""The interface of kernels, which score many pairs of encoded texts, and the kernels of most poolings.

``aptool.models.pooling`` defines the score of one pair. A ``PairScorer`` computes the same scores, with each
text encoded once: it selects the states that it needs, and divides the work into steps per answer, per
question and per pair.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from aptool.models.device import batch_sizes, send
from aptool.models.pooling import IndependentPooling, Pooling
from aptool.models.ragged import Ragged, inner_products, rows_of
from aptool.models.similarity import EPSILON
from aptool.plugins import redefines
from aptool.scoring.encoded import EncodedAnswers, Pairs

# Pairs per answer from which grouping by answer is faster.
SHARED = 2

# Rows of answers per product with a question: few enough that the similarities stay in the cache of a core.
ROWS_PER_BLOCK = 2048

if TYPE_CHECKING:
    from aptool.models.matching import MatchPooling
    from aptool.scoring.kernels.padded import PaddedPairs


class PairScorer(ABC):
    """Scores pairs of encoded texts, with the weights of a pooling at creation."""

    # Whether an answer is stored as the states of its tokens, not as one vector.
    stores_states = True

    def __init__(self, pooling: Any) -> None:
        self.pooling = pooling

    @classmethod
    def suits(cls, pooling: Any) -> bool:
        """Whether this kernel computes the scores of a pooling, whose class may redefine methods."""
        return True

    def select_states(self, tokens: Ragged) -> tuple[Tensor, np.ndarray]:
        """Select states of n answers, by default all: (R,) row numbers of tokens, and (n,) rows per text."""
        return tokens.row_numbers(), tokens.sizes

    @abstractmethod
    def cache_answers(self, states: Ragged) -> Ragged:
        """Return the stored representation of answers: rows per answer, from the selected states (R, c).

        A row depends only on its answer. Rows may be in bf16, as the states.
        """

    def row_counts(self, lengths: np.ndarray) -> np.ndarray:
        """(n,) int64: rows that ``cache_answers`` returns for answers of (n,) tokens, without repetitions."""
        return lengths

    @abstractmethod
    def prepare_questions(self, states: Ragged) -> Any:
        """Return the representation of all questions, from their states (N, c)."""

    def groups_by_answer(self, pair_answer: np.ndarray) -> bool:
        """Whether ``score_pairs`` groups pairs by answer on a CPU; the scores then depend on no other pair.

        If it does for several sets of pairs, it does for their union.
        """
        return False

    @abstractmethod
    def score_pairs(self, questions: Any, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """(P,) fp32 scores of pairs, sorted by answer, equal to those of the pooling up to rounding.

        ``questions`` is the result of ``prepare_questions``. ``answers`` has the rows of ``cache_answers``;
        each answer has at least one pair.
        """


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """(n,) cosines of the rows of two (n, c); overwrites the first.

    ``cosine_similarity`` would allocate two more (n, c).
    """
    lengths = first.norm(dim=1).clamp_min(EPSILON) * second.norm(dim=1).clamp_min(EPSILON)
    return first.mul_(second).sum(1) / lengths


class IndependentPairScorer(PairScorer):
    """Similarities of vectors, one per text."""

    pooling: IndependentPooling
    stores_states = False

    @override
    @classmethod
    def suits(cls, pooling: Any) -> bool:
        is_redefined = redefines(pooling, IndependentPooling, "score_pairs", "forward")
        return pooling.similarity.has_matrix and not is_redefined

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        """Return one row per answer."""
        vectors = self.pooling.represent(states).float()
        rows = self.pooling.similarity.prepare_answers(vectors)
        return Ragged.of_sizes(rows, np.ones_like(states.sizes))

    @override
    def row_counts(self, lengths: np.ndarray) -> np.ndarray:
        return np.ones_like(lengths)

    @override
    def prepare_questions(self, states: Ragged) -> Tensor:
        return self.pooling.similarity.prepare_questions(self.pooling.represent(states).float())

    @override
    def score_pairs(self, questions: Tensor, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """Compute one matrix product, or row by row if that is less work."""
        similarity, device = self.pooling.similarity, questions.device
        vectors = answers.ragged().values  # (n, c)
        q, a = send(np.stack([pairs.questions, pairs.answers]), device)
        present, row = np.unique(pairs.questions, return_inverse=True)
        if len(present) * len(vectors) <= 64 * len(row):
            return similarity.matrix(questions[send(present, device)], vectors)[send(row, device), a]
        return similarity.pairs(questions[q], vectors[a])


class PairwisePairScorer(PairScorer):
    """``score_pairs`` of any pooling; pairs of similar length share a batch."""

    pooling: Pooling

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        return states

    @override
    def prepare_questions(self, states: Ragged) -> Ragged:
        return _in_fp32(states)

    @override
    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        joined, pair_answers = answers.ragged(), pairs.answers
        tokens = questions.sizes[pairs.questions] + answers.lengths[pair_answers]  # (P,)
        order = np.argsort(tokens, kind="stable")
        device = questions.values.device
        batch_of = (np.cumsum(tokens[order]) - 1) // batch_sizes(device).pairs
        scores = []
        for batch in np.split(order, np.flatnonzero(np.diff(batch_of)) + 1):
            batch_questions = questions.select(pairs.questions[batch])
            batch_answers = _in_fp32(joined.select(pair_answers[batch]))
            scores.append(self.pooling.score_pairs(batch_questions, batch_answers))
            pairs.scored(len(batch))
        return torch.cat(scores)[send(np.argsort(order), device)]


def _in_fp32(states: Ragged) -> Ragged:
    """Convert states to fp32, the precision of poolings."""
    return states.with_values(states.values.float())


class MatchPairScorer(PairScorer):
    """Similarities of tokens; states are scaled to unit length once."""

    pooling: "MatchPooling"

    @override
    @classmethod
    def suits(cls, pooling: "MatchPooling") -> bool:
        return pooling.has_reduce_one

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        rows = self.pooling.stored_rows(states.with_values(states.values.float()))
        return rows.with_values(rows.values.to(states.values.dtype))

    @override
    def row_counts(self, lengths: np.ndarray) -> np.ndarray:
        return lengths + self.pooling.extra_rows

    @override
    def prepare_questions(self, states: Ragged) -> Ragged:
        return self.pooling.stored_rows(states.with_values(states.values.float()))

    @override
    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """Compute a product per answer or per question; on a GPU, one for many answers."""
        if questions.values.is_cuda:
            from aptool.scoring.kernels.padded import score_padded

            return score_padded(questions, answers, answers.counts, pairs, self._score_padded)
        if self.pooling.has_reduce_blocks and len(pairs.questions) < SHARED * len(pairs.counts):
            return self._by_question(questions, answers, pairs)
        rows = questions.rows(pairs.questions)  # the tokens of every pair's question, pair after pair
        sizes = questions.sizes[pairs.questions]
        ends = np.cumsum(pairs.counts)
        tokens = np.add.reduceat(sizes, ends - pairs.counts)  # (n,) question tokens of each answer's pairs
        products = (
            questions.values.index_select(0, tokens_of_pairs) @ answers.rows(answer).float().T  # (s, L)
            for answer, tokens_of_pairs in enumerate(rows.split(tokens.tolist()))
        )
        matched = torch.cat([self.pooling.match(S) for S in products])
        return self.pooling.score(Ragged.of_sizes(matched, sizes))

    def _score_padded(self, batch: "PaddedPairs") -> Tensor:
        return self.pooling.reduce_one(batch.tokens.with_values(batch.products), batch.mask)

    def _by_question(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        order = np.argsort(pairs.questions, kind="stable")
        question, chosen = pairs.questions[order], answers.joined().select(pairs.answers[order])
        blocks = _question_blocks(questions, chosen, question)
        scores = self.pooling.reduce_blocks(blocks, questions.sizes[question])
        return scores[torch.from_numpy(np.argsort(order))]


def _question_blocks(
    questions: Ragged, answers: EncodedAnswers, question: np.ndarray
) -> Iterator[tuple[Tensor, np.ndarray]]:
    """Yield the inner products (M, N) of one question and n answers, and (n,) the first column per answer.

    The answers are in one tensor; ``question`` has the question of each answer, in ascending order.
    """
    (values,) = answers.batches
    starts, counts = answers.starts, answers.counts
    columns = np.cumsum(counts) - counts  # if all answers were side by side
    is_adjacent = starts[1:] == starts[:-1] + counts[:-1]
    cuts = np.flatnonzero(np.diff(question) | np.diff(columns // ROWS_PER_BLOCK)) + 1
    first_rows = np.cumsum(questions.sizes) - questions.sizes
    for first, last in pairwise([0, *cuts.tolist(), len(counts)]):
        # A view per block: a window has few of the questions.
        number = question[first]
        Q = questions.values.narrow(0, int(first_rows[number]), int(questions.sizes[number]))
        if is_adjacent[first : last - 1].all():
            rows = values[starts[first] : starts[last - 1] + counts[last - 1]]
        else:
            rows = values.index_select(0, torch.from_numpy(rows_of(starts[first:last], counts[first:last])))
        yield inner_products(Q, rows.float()), columns[first:last] - columns[first]
