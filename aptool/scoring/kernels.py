"""Kernels, which score many pairs of encoded texts, and the table that gives each pooling its kernel.

``aptool.models.pooling`` defines the score of one pair. A ``Kernel`` computes the same scores, with each
text encoded once: it selects the states that it needs, and divides the work into steps per answer, per
question and per pair.

On a CPU, attentive pooling aligns a text with all its partners in a single matrix product over the
concatenated states of the partners, without padding them to one length. Pairs are therefore grouped by one of
their texts: all pairs of an answer, or all pairs of a question.

On a GPU, launches are expensive and padding is cheap (``score_padded``): answers of similar length are
batched, each with the tokens of all its questions. Padding repeats the last row of a text, which changes no
maximum. The host plans the batches and never waits for the device.

Encoded answers stay in the tensor of the batch that encoded them. The host has their row ranges as arrays, so
nothing is done answer by answer and nothing waits for a GPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from threading import local
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from aptool.models.attention import AttentivePooling
from aptool.models.device import batch_sizes, multiplies_bf16, send
from aptool.models.matching import MaxSimPooling, MeanMaxSimPooling
from aptool.models.pooling import (
    EPSILON,
    IndependentPooling,
    MaxPooling,
    MeanPooling,
    Pooling,
    VectorPooling,
    segment_max,
)
from aptool.models.ragged import Ragged, inner_products, product, rows_of

# Pairs per answer from which grouping by answer is faster.
SHARED = 2

# Rows of answers per product with a question: few enough that the similarities stay in the cache of a core.
ROWS_PER_BLOCK = 2048

# Maximum elements of a tensor of a batch: of the products, the rows of questions or a vector per pair.
ELEMENTS = 1 << 28

# Matrix products are fastest with multiples of this dimension, so the last state of an answer is repeated; a
# repeated state changes no maximum.
ALIGNED = 16

# A product of bf16 is prepared per shape on a CPU, so question tokens are padded to multiples of this number.
SHAPE = 64

# Pairs per block: few enough that their vectors stay in the cache of a core until they are compared.
PAIRS_PER_BLOCK = 1024

# Rows of answers per block of questions: enough questions to share the operations after their products.
ROWS_OF_QUESTIONS = 8192

# Number of answers that are planned together.
_PLANNED = 4096


class EncodedAnswers(NamedTuple):
    """n encoded answers: the i-th is ``batches[batch[i]][starts[i] : starts[i] + counts[i]]``."""

    batches: Sequence[Tensor]  # (R, ...) each
    batch: np.ndarray  # (n,) int64 into batches
    starts: np.ndarray  # (n,) int64 first row in the batch
    counts: np.ndarray  # (n,) int64 number of rows
    lengths: np.ndarray  # (n,) int64 number of tokens

    def rows(self, answer: int) -> Tensor:
        """Return a view of the rows of one answer."""
        return self.batches[self.batch[answer]].narrow(0, int(self.starts[answer]), int(self.counts[answer]))

    def select(self, chosen: np.ndarray) -> "EncodedAnswers":
        """Select answers, without a copy."""
        return EncodedAnswers(self.batches, *(part[chosen] for part in self[1:]))

    def joined(self, workspace: "Workspace | None" = None) -> "EncodedAnswers":
        """Join all batches into one; copies only if there are several, to the workspace if there is one."""
        if len(self.batches) == 1:
            return self
        order = np.argsort(self.batch, kind="stable")
        ends = np.cumsum(self.counts[order])
        starts = np.empty_like(self.starts)
        starts[order] = ends - self.counts[order]
        first = self.batches[0]
        values = (workspace or Workspace()).rows(int(ends[-1]), first)
        bounds = np.searchsorted(self.batch[order], np.arange(len(self.batches) + 1))
        for number, tensor in enumerate(self.batches):
            members = order[bounds[number] : bounds[number + 1]]
            if len(members):
                begin, end = int(starts[members[0]]), int(ends[bounds[number + 1] - 1])
                rows = rows_of(self.starts[members], self.counts[members])
                torch.index_select(tensor, 0, send(rows, tensor.device), out=values[begin:end])
        return EncodedAnswers([values], np.zeros_like(self.batch), starts, self.counts, self.lengths)

    def ragged(self) -> Ragged:
        """Return the rows of the answers in one tensor, answer by answer; copies only if needed."""
        single = self.joined()
        (values,) = single.batches
        first, ends = int(single.starts[0]), np.cumsum(self.counts)
        if np.array_equal(single.starts - first, ends - self.counts):
            values = values.narrow(0, first, int(ends[-1]))
        else:
            values = values.index_select(0, send(rows_of(single.starts, self.counts), values.device))
        return Ragged.of_sizes(values, self.counts)


class Workspace(local):
    """A tensor per thread, which each call reuses: the kernel clears the pages of a new large tensor."""

    _values: Tensor | None = None

    def rows(self, number: int, like: Tensor) -> Tensor:
        """Return (number, ...) uninitialized rows as those of ``like``, valid until the next call."""
        values = self._values
        if values is None or len(values) < number or values.dtype != like.dtype:
            values = self._values = like.new_empty(number, *like.shape[1:])
        return values[:number]


class Pairs(NamedTuple):
    """Pairs of questions and encoded answers, sorted by answer."""

    questions: np.ndarray  # (P,) int64 the question of each pair
    counts: np.ndarray  # (n,) int64 the number of pairs per answer, at least 1
    by_answer: bool = True  # the result of ``Kernel.groups_by_answer``

    @property
    def answers(self) -> np.ndarray:
        """(P,) int64 the answer of each pair."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


class PaddedPairs(NamedTuple):
    """The P pairs of B answers, whose questions have T tokens."""

    answers: Tensor  # (B, L, c) fp32 rows of each answer; the last one is repeated
    pairs: Ragged  # values (P,) int64 question tokens per pair, of B answers
    tokens: Ragged  # values (T,) int64 rows of the question tokens, of P pairs
    products: Tensor  # (T, L) inner products of each question token with the rows of its answer
    mask: Tensor  # (P, L) bool, false on repeated rows


class Kernel(ABC):
    """Scores pairs of encoded texts, with the weights of a pooling at creation."""

    # Whether an answer is stored as the states of its tokens, not as one vector.
    stores_states = True

    def __init__(self, pooling: Any) -> None:
        self.pooling = pooling

    def select_states(self, tokens: Ragged) -> tuple[Tensor, np.ndarray]:
        """Select states of n answers, by default all: (R,) row numbers of tokens, and (n,) rows per text."""
        return tokens.row_numbers(), tokens.sizes

    def cache_answers(self, states: Ragged) -> Ragged:
        """Return the stored representation of answers: rows per answer, from the selected states (R, c).

        A row depends only on its answer. Rows may be in bf16, as the states, which they are by default.
        """
        return states

    def row_counts(self, lengths: np.ndarray) -> np.ndarray:
        """(n,) int64: rows that ``cache_answers`` returns for answers of (n,) tokens, without repetitions."""
        return lengths if self.stores_states else np.ones_like(lengths)

    def prepare_questions(self, states: Ragged) -> Any:
        """Return the representation of all questions, from their states (N, c): by default these in fp32."""
        return _in_fp32(states)

    def groups_by_answer(self, pair_answer: np.ndarray) -> bool:
        """Whether ``score_pairs`` groups pairs by answer on a CPU; fp32 scores then depend on no other pair.

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


class IndependentKernel(Kernel):
    """Similarities of vectors, one per text."""

    pooling: IndependentPooling
    stores_states = False

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        """Return one row per answer."""
        vectors = self.pooling.represent(states).float()
        rows = self.pooling.similarity.prepare_answers(vectors)
        return Ragged.of_sizes(rows, np.ones_like(states.sizes))

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


class PairwiseKernel(Kernel):
    """``score_pairs`` of any pooling; pairs of similar length share a batch."""

    pooling: Pooling

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
        return torch.cat(scores)[send(np.argsort(order), device)]


def _in_fp32(states: Ragged) -> Ragged:
    """Convert states to fp32, the precision of poolings."""
    return states.with_values(states.values.float())


class MatchKernel(Kernel):
    """Similarities of tokens; states are scaled to unit length once."""

    pooling: MaxSimPooling

    @override
    def cache_answers(self, states: Ragged) -> Ragged:
        rows = self.pooling.stored_rows(_in_fp32(states))
        return rows.with_values(rows.values.to(states.values.dtype))

    @override
    def row_counts(self, lengths: np.ndarray) -> np.ndarray:
        return lengths + self.pooling.extra_rows

    @override
    def prepare_questions(self, states: Ragged) -> Ragged:
        return self.pooling.stored_rows(_in_fp32(states))

    @override
    def score_pairs(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        """Compute a product per answer or per question; on a GPU, one for many answers."""
        if questions.values.is_cuda:
            return score_padded(questions, answers, answers.counts, pairs, self._score_padded)
        if len(pairs.questions) < SHARED * len(pairs.counts):
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

    def _score_padded(self, batch: PaddedPairs) -> Tensor:
        return self.pooling.reduce_one(batch.tokens.with_values(batch.products), batch.mask)

    def _by_question(self, questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        order = np.argsort(pairs.questions, kind="stable")
        question, chosen = pairs.questions[order], answers.joined().select(pairs.answers[order])
        blocks = _question_blocks(questions, chosen, question)
        matched = np.concatenate([self.pooling.match_answers(S, starts) for S, starts in blocks])
        scores = self.pooling.score(Ragged.of_sizes(torch.from_numpy(matched), questions.sizes[question]))
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


def score_padded(
    questions: Ragged,
    answers: EncodedAnswers,
    lengths: np.ndarray,
    pairs: Pairs,
    score: Callable[[PaddedPairs], Tensor],
) -> Tensor:
    """(P,) scores of pairs, batch by batch.

    Args:
        questions: values (N, c) fp32.
        answers: rows (R, c).
        lengths: (n,) int64: the number of rows of each answer, without repetitions.
        pairs: pairs of both.
        score: function from a batch to its scores.
    """
    answers = answers.joined()
    (values,) = answers.batches
    values = values.float()
    size = values.shape[1]
    # An answer with too many pairs for a batch is split into copies.
    largest = max(size, int(lengths.max()))
    most = max(1, ELEMENTS // (largest * int(questions.sizes.max())))
    copies = -(-pairs.counts // most)
    answer = np.repeat(np.arange(len(copies)), copies)
    copy = np.arange(len(answer)) - np.repeat(np.cumsum(copies) - copies, copies)
    counts = np.minimum(most, pairs.counts[answer] - most * copy)
    ends = np.cumsum(counts)
    tokens = np.add.reduceat(questions.sizes[pairs.questions], ends - counts)  # (n,) question tokens
    scores = []
    for first, last in _batches(lengths[answer], counts, tokens, size):
        batch_pairs = Pairs(pairs.questions[ends[first] - counts[first] : ends[last - 1]], counts[first:last])
        batch = answer[first:last]
        scores.append(score(_padded(questions, values, answers.starts[batch], lengths[batch], batch_pairs)))
    return torch.cat(scores)


def _batches(
    lengths: np.ndarray, counts: np.ndarray, tokens: np.ndarray, size: int
) -> Iterator[tuple[int, int]]:
    """Yield the first and last (excluded) of the consecutive answers of each batch, at least one."""
    first = 0
    while first < len(lengths):
        planned = slice(first, first + _PLANNED)
        widest, longest, most = (np.maximum.accumulate(sizes[planned]) for sizes in (tokens, lengths, counts))
        each = np.maximum(widest * np.maximum(longest, size), most * size)
        fits = np.searchsorted(each * np.arange(1, len(each) + 1), ELEMENTS, side="right")
        last = first + max(1, int(fits))
        yield first, last
        first = last


def _padded(
    questions: Ragged, values: Tensor, starts: np.ndarray, answer_lengths: np.ndarray, pairs: Pairs
) -> PaddedPairs:
    """Compute the products of B answers, whose rows start at rows ``starts`` of ``values``."""
    device = values.device
    longest = int(answer_lengths.max())
    position = torch.arange(longest, device=device)  # (L,)
    first, lengths = send(np.stack([starts, answer_lengths]), device)  # (B,)
    A = values[first[:, None] + torch.minimum(position, lengths[:, None] - 1)]  # (B, L, c)

    tokens = questions.with_values(questions.row_numbers()).select(pairs.questions)
    per_answer = np.add.reduceat(tokens.sizes, np.cumsum(pairs.counts) - pairs.counts)
    rows = Ragged.of_sizes(tokens.values, per_answer)  # values (T,), of B answers
    widest = int(per_answer.max())
    slot = torch.arange(widest, device=device)
    slots = rows.offsets[:-1, None] + torch.minimum(slot, rows.lengths[:, None] - 1)  # (B, S)
    Q = questions.values[rows.values[slots]]  # (B, S, c)

    products = (Q @ A.transpose(1, 2)).flatten(0, 1).index_select(0, rows.slots(widest))  # (T, L)
    pairs_of_answers = Ragged.of_sizes(tokens.lengths, pairs.counts)
    mask = position < pairs_of_answers.spread(lengths)[:, None]
    return PaddedPairs(A, pairs_of_answers, tokens, products, mask)


class EncodedQuestions(NamedTuple):
    """Questions: their states, the rows of Qᵀ U, and the sharpness of the pooling."""

    states: Ragged  # values (N, c)
    projected: Tensor  # (N, c) fp32
    rounded: Tensor  # (N, c) in the precision of products with shared answers on a CPU
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
    def prepare_questions(self, states: Ragged) -> EncodedQuestions:
        values = states.values.float()
        projected = product(values, self.pooling.U)
        rounded = projected
        if not values.is_cuda and multiplies_bf16():
            rounded = projected.to(states.values.dtype)
        return EncodedQuestions(states.with_values(values), projected, rounded, self.pooling.sharpness)

    @override
    def score_pairs(self, questions: EncodedQuestions, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
        states, projected, _, sharpness = questions
        if projected.is_cuda:
            score = partial(_score_padded, states, sharpness)
            return score_padded(states.with_values(projected), answers, answers.lengths, pairs, score)
        if not pairs.by_answer:
            return _by_question(questions, answers.joined(self._workspace), pairs)
        bounds = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(pairs.counts)])
        # A block has answers of one number of rows, whose similarities are in one tensor.
        block = bounds[:-1] // PAIRS_PER_BLOCK
        cuts = np.flatnonzero(np.diff(answers.counts) | np.diff(block)) + 1
        scores = []
        for first, last in pairwise([0, *cuts.tolist(), len(pairs.counts)]):
            block_pairs = Pairs(pairs.questions[bounds[first] : bounds[last]], pairs.counts[first:last])
            scores.append(_by_answer(questions, answers.select(np.arange(first, last)), block_pairs))
        return torch.cat(scores)

    @override
    def groups_by_answer(self, pair_answer: np.ndarray) -> bool:
        """Group pairs by answer where questions share answers."""
        return len(pair_answer) >= SHARED * int(np.count_nonzero(np.bincount(pair_answer)))


def _by_answer(questions: EncodedQuestions, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
    """(P,) scores of the pairs of n answers of L rows each.

    Each answer takes one product with the S tokens of all its K questions.
    """
    states, counts = questions.states, pairs.counts
    sizes = states.sizes[pairs.questions]  # (P,) question tokens of each pair
    ends = np.cumsum(counts)  # (n,)
    tokens = np.add.reduceat(sizes, ends - counts)  # (n,) question tokens of each answer
    stored = answers.ragged().values.unflatten(0, (len(counts), -1))  # (n, L, c)
    A = stored.float()
    is_rounded = questions.rounded.dtype == torch.bfloat16
    factors = (stored if is_rounded else A).mT.unbind()
    padding = -tokens % (SHAPE if is_rounded else 1)  # (n,)
    # The last question of an answer repeats its last token, which changes no maximum.
    padded = sizes.copy()
    padded[ends - 1] += padding
    first = (np.cumsum(states.sizes) - states.sizes)[pairs.questions]
    rows = torch.from_numpy(np.minimum(rows_of(first, padded), np.repeat(first + sizes - 1, padded)))
    splits = (tokens + padding).tolist()
    G = torch.empty(len(rows), A.shape[1], dtype=factors[0].dtype)  # eq. 13 before its tanh
    for of_answer, factor, result in zip(rows.split(splits), factors, G.split(splits), strict=True):
        product(questions.rounded.index_select(0, of_answer), factor, out=result)
    G = G.float()
    is_token = torch.from_numpy(rows_of(np.cumsum(padded) - padded, sizes))
    sigma_q = _weights(G.amax(1)[is_token].tanh_(), questions.sharpness)  # eq. 14 and 16: of every token
    g_a = segment_max(G, Ragged.of_sizes(G, padded))
    sigma_a = _weights(g_a.tanh_(), questions.sharpness)  # eq. 15 and 16: (P, L)
    sigma_a *= torch.arange(A.shape[1]) < torch.from_numpy(np.repeat(answers.lengths, counts))[:, None]
    r_a = torch.empty(len(sizes), A.shape[2])
    splits = counts.tolist()
    for weights, factor, result in zip(sigma_a.split(splits), A.unbind(), r_a.split(splits), strict=True):
        product(weights, factor, out=result)  # eq. 18: (K, c)
    offsets = torch.from_numpy(np.cumsum(sizes) - sizes)
    r_q = F.embedding_bag(
        rows[is_token], states.values, offsets, mode="sum", per_sample_weights=sigma_q
    )  # eq. 17: (P, c)
    return cosines(r_q, r_a)  # eq. 11


def _by_question(questions: EncodedQuestions, answers: EncodedAnswers, pairs: Pairs) -> Tensor:
    """(P,) scores of pairs, in blocks of questions; the answers are in one batch."""
    order = np.argsort(pairs.questions, kind="stable")
    question, chosen = pairs.questions[order], answers.select(pairs.answers[order])
    firsts = np.flatnonzero(np.diff(question, prepend=-1))  # the first pair of each question
    rows = np.add.reduceat(chosen.counts, firsts)  # of the answers of each question
    cuts = firsts[1:][np.diff((np.cumsum(rows) - rows) // ROWS_OF_QUESTIONS) > 0]
    scores = [
        _of_questions(questions, chosen.select(np.arange(first, last)), question[first:last])
        for first, last in pairwise([0, *cuts.tolist(), len(order)])
    ]
    return torch.cat(scores)[torch.from_numpy(np.argsort(order))]


def _of_questions(questions: EncodedQuestions, answers: EncodedAnswers, question: np.ndarray) -> Tensor:
    """(P,) scores of P answers, each with one of n questions, in ascending order of the questions.

    Each question takes one product with the rows of all its K answers; other operations are shared.
    """
    states, projected, _, sharpness = questions
    present, counts = np.unique(question, return_counts=True)  # (n,), (n,) answers per question
    sizes = states.sizes[present]
    tokens = list(zip((states.sizes.cumsum()[present] - sizes).tolist(), sizes.tolist(), strict=True))
    A = answers.ragged()  # values (S, c): the rows of all answers
    A = A.with_values(A.values.float())
    # Eq. 13 before its tanh, transposed: (S, M); -inf beyond the tokens of a question changes no maximum.
    G = torch.full((len(A.values), int(sizes.max())), -torch.inf)
    splits = np.add.reduceat(A.sizes, np.cumsum(counts) - counts).tolist()
    for (first, size), rows, result in zip(tokens, A.values.split(splits), G.split(splits), strict=True):
        torch.mm(rows, projected.narrow(0, first, size).T, out=result.narrow(1, 0, size))
    g_q = segment_max(G, A).tanh_()  # eq. 14: (P, M)
    r_q = torch.empty(len(question), states.values.shape[1])
    splits = counts.tolist()
    for (first, size), g, result in zip(tokens, g_q.split(splits), r_q.split(splits), strict=True):
        sigma_q = (g.narrow(1, 0, size) * sharpness).softmax(1)  # eq. 16: (K, M)
        torch.mm(sigma_q, states.values.narrow(0, first, size), out=result)  # eq. 17: (K, c)
    is_token = A.positions()[0] < A.spread(torch.from_numpy(answers.lengths))
    sigma_a = _weights(G.amax(1).tanh_(), sharpness) * is_token  # eq. 15 and 16: (S,)
    r_a = F.embedding_bag(
        A.row_numbers(), A.values, A.offsets[:-1], mode="sum", per_sample_weights=sigma_a
    )  # eq. 18: (P, c)
    return cosines(r_q, r_a)  # eq. 11


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
    (weights,) = batch.pairs.pad(sigma_a)  # (B, most, L)
    r_a = (weights @ batch.answers).flatten(0, 1)  # eq. 18: (B · most, c)
    return cosines(r_q, r_a.index_select(0, batch.pairs.slots(weights.shape[1])))  # eq. 11


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
