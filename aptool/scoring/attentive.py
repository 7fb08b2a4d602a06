"""The kernel of attentive pooling, and the table that gives each pooling its kernel.

On a CPU, the alignment of a text with all its partners is a single matrix product over the concatenated
states of the partners, without padding or masks. Pairs are therefore grouped by one of their texts: all pairs
of an answer, or all pairs of a question.

On a GPU, answers are batched with the tokens of all their questions (``kernels.score_padded``).
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from aptool.models.attention import AttentivePooling
from aptool.models.matching import MaxSimPooling, MeanMaxSimPooling
from aptool.models.pooling import MaxPooling, MeanPooling, Pooling, VectorPooling, segment_max
from aptool.models.ragged import Ragged, product
from aptool.scoring.encoded import EncodedAnswers, Pairs, Workspace
from aptool.scoring.kernels import (
    SHARED,
    IndependentKernel,
    Kernel,
    MatchKernel,
    PaddedPairs,
    PairwiseKernel,
    cosines,
    score_padded,
)

# Matrix products are fastest with multiples of this dimension, so the last state of an answer is repeated; a
# repeated state changes no maximum.
ALIGNED = 16

# Pairs per block: few enough that their vectors stay in the cache of a core until they are compared.
PAIRS_PER_BLOCK = 1024


class EncodedQuestions(NamedTuple):
    """Questions: their states, the rows of Qᵀ U, and the sharpness of the pooling."""

    states: Ragged  # values (N, c)
    projected: Tensor  # (N, c)
    sharpness: float


class AttentiveKernel(Kernel):
    """Equations 13 to 18 for every pair, from the states of both texts."""

    pooling: AttentivePooling

    def __init__(self, pooling: AttentivePooling) -> None:
        super().__init__(pooling)
        self._workspace = Workspace()

    @override
    def select_states(self, tokens: Ragged) -> tuple[Tensor, np.ndarray]:
        """Select all states; repeat the last one."""
        counts = (tokens.sizes + ALIGNED - 1) // ALIGNED * ALIGNED
        rows = Ragged.of_sizes(tokens.values.new_empty(int(counts.sum())), counts)
        owners = rows.owners()
        position = rows.row_numbers() - rows.offsets[owners]
        return tokens.offsets[owners] + torch.minimum(position, tokens.lengths[owners] - 1), counts

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        return states

    @override
    def prepare_questions(self, states: Ragged) -> EncodedQuestions:
        values = states.values.float()
        projected = product(values, self.pooling.U)
        return EncodedQuestions(states.with_values(values), projected, self.pooling.sharpness)

    @override
    def score_pairs(self, questions: EncodedQuestions, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        states, projected, sharpness = questions
        if projected.is_cuda:
            score = partial(_score_padded, states, sharpness)
            return score_padded(states.with_values(projected), answers, answers.lengths, pairs, score)
        if not pairs.by_answer:
            return _by_question(questions, answers.joined(self._workspace), pairs)
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(pairs.counts)])
        block = max(1, PAIRS_PER_BLOCK * len(pairs.counts) // len(pairs.questions))
        scores = []
        for first in range(0, len(pairs.counts), block):
            last = min(first + block, len(pairs.counts))
            block_pairs = Pairs(pairs.questions[bounds[first] : bounds[last]], pairs.counts[first:last])
            scores.append(_by_answer(questions, answers, first, block_pairs))
        return torch.cat(scores)

    @override
    def groups_by_answer(self, pair_answer: np.ndarray) -> bool:
        """Group pairs by answer where questions share answers."""
        return len(pair_answer) >= SHARED * int(np.count_nonzero(np.bincount(pair_answer)))


def _by_answer(questions: EncodedQuestions, answers: EncodedAnswers, first: int, pairs: Pairs) -> Tensor:
    """(P,) scores of the pairs of consecutive answers from answer ``first``.

    Each answer takes one product with the tokens of all its K questions.
    """
    states, projected, sharpness = questions
    rows = states.rows(pairs.questions)  # (S,) the question tokens of every pair, pair after pair
    sizes = states.sizes[pairs.questions]  # (P,) question tokens of each pair
    question_tokens = Ragged.of_sizes(rows, sizes)
    r_a = torch.empty(len(sizes), projected.shape[1])
    g_q = torch.empty(len(rows))
    lengths, pair, token = question_tokens.lengths, 0, 0
    for number, (count, tokens) in enumerate(
        zip(
            pairs.counts.tolist(),
            np.add.reduceat(sizes, np.cumsum(pairs.counts) - pairs.counts).tolist(),
            strict=True,
        )
    ):
        A = answers.rows(first + number).float()  # (L, c)
        length = int(answers.lengths[first + number])
        # Eq. 13 before its tanh: (s, L).
        G = product(projected.index_select(0, rows[token : token + tokens]), A.T)
        torch.amax(G, 1, out=g_q[token : token + tokens])  # eq. 14 before its tanh: (s,)
        # Eq. 15 before its tanh: (K, L).
        g_a = torch.segment_reduce(G, "max", lengths=lengths[pair : pair + count], axis=0, unsafe=True)
        sigma_a = _weights(g_a.tanh_(), sharpness)[:, :length]  # eq. 16 for the answer
        product(sigma_a, A[:length], out=r_a[pair : pair + count])  # eq. 18: (K, c)
        pair, token = pair + count, token + tokens
    sigma_q = _weights(g_q.tanh_(), sharpness)  # eq. 14 and 16: (S,)
    r_q = F.embedding_bag(
        rows, states.values, question_tokens.offsets[:-1], mode="sum", per_sample_weights=sigma_q
    )  # eq. 17: (P, c)
    return cosines(r_q, r_a)  # eq. 11


def _by_question(questions: EncodedQuestions, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
    """Compute one product per question, with the tokens of all its K answers, which are in one batch."""
    states, projected, sharpness = questions
    pair_answers = pairs.answers
    order = np.argsort(pairs.questions, kind="stable")
    present, firsts = np.unique(pairs.questions[order], return_index=True)
    offsets = states.sizes.cumsum()
    scores = torch.empty(len(order))
    for question, members in zip(present.tolist(), np.split(order, firsts[1:]), strict=True):
        end = int(offsets[question])
        begin = end - int(states.sizes[question])
        partners = pair_answers[members]
        A = answers.select(partners).ragged()  # values (S, c)
        A = A.with_values(A.values.float())
        lengths = torch.from_numpy(answers.lengths[partners])
        G = A.values @ projected[begin:end].T  # eq. 13 before its tanh, transposed: (S, M)
        g_q = segment_max(G, A).tanh()  # eq. 14: (K, M)
        sigma_q = (g_q * sharpness if sharpness != 1 else g_q).softmax(1)  # eq. 16: (K, M)
        r_q = sigma_q @ states.values[begin:end]  # eq. 17: (K, c)
        is_token = A.positions()[0] < A.spread(lengths)
        sigma_a = _weights(G.amax(1).tanh(), sharpness) * is_token  # eq. 15 and 16: (S,)
        r_a = F.embedding_bag(
            A.row_numbers(), A.values, A.offsets[:-1], mode="sum", per_sample_weights=sigma_a
        )  # eq. 18: (K, c)
        scores[torch.from_numpy(members)] = cosines(r_q, r_a)  # eq. 11
    return scores


def _weights(g: Tensor, sharpness: float) -> Tensor:
    """Eq. 16 without its divisor, in place: exp(g · sharpness).

    g is within [-1, 1], so exp needs no shift; a cosine does not depend on the divisor of a softmax.
    """
    return (g if sharpness == 1 else g.mul_(sharpness)).exp_()


def _score_padded(questions: Ragged, sharpness: float, batch: PaddedPairs) -> Tensor:
    """(P,) scores of a batch of pairs on a GPU; ``questions`` has the states (N, c)."""
    G, tokens = batch.products, batch.tokens  # eq. 13 before its tanh: (T, L)
    sigma_q = (G.amax(1).tanh() * sharpness).exp()  # eq. 14, and 16 without its divisor: (T,)
    sigma_a = (segment_max(G, tokens).tanh() * sharpness).exp() * batch.mask  # eq. 15 and 16: (P, L)
    r_q = F.embedding_bag(
        tokens.values, questions.values, tokens.offsets[:-1], mode="sum", per_sample_weights=sigma_q
    )  # eq. 17: (P, c)
    weights = batch.pairs.with_values(sigma_a)
    r_a = (weights.padded()[0] @ batch.answers).flatten(0, 1)  # eq. 18: (B · most, c)
    return cosines(r_q, r_a.index_select(0, weights.slots(int(weights.sizes.max()))))  # eq. 11


# By the exact type of a pooling. Any other one, also a subclass, is scored by its own ``score_pairs``.
KERNELS: dict[type[Pooling], type[Kernel]] = {
    AttentivePooling: AttentiveKernel,
    MaxPooling: IndependentKernel,
    MeanPooling: IndependentKernel,
    MaxSimPooling: MatchKernel,
    MeanMaxSimPooling: MatchKernel,
}


def kernel_for(pooling: Pooling) -> Kernel:
    """Return the kernel that scores pairs with a pooling, and with its similarity."""
    kernel = KERNELS.get(type(pooling), PairwiseKernel)
    similarity = pooling.similarity if isinstance(pooling, VectorPooling) else None
    if similarity is not None:
        # A cosine does not depend on the divisor of a softmax, which the kernel of equation 16 leaves out.
        computes = similarity.is_cosine if kernel is AttentiveKernel else similarity.has_matrix
        kernel = kernel if computes else PairwiseKernel
    return kernel(pooling)
