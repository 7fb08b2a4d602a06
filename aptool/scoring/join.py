"""The pair part of a score, for many pairs that share texts.

What ``aptool.models.pooling`` defines pair by pair is computed here from states encoded once per text.
``keep`` says what of a text's states has to be kept for that, ``project`` what of the questions is worked out
once, and ``join`` scores pairs. A pooling takes part by registering these functions for its class.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import singledispatch

import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.models.pooling import EPSILON, AttentivePooling, MaxPooling, Pooling, unit
from aptool.models.ragged import Ragged

# One text and the pairs that it is part of.
Group = tuple[int, Tensor]

# What starting on a group costs, in tokens moved.
GROUP_TOKENS = 500


@singledispatch
def keep(pooling: Pooling, states: Ragged) -> Ragged:
    """What the pooling needs of each text, whatever it will be paired with.

    Args:
        pooling: the pooling.
        states: values (N, c), of n texts.

    Returns:
        Values (N', c) of the same n texts.
    """
    raise NotImplementedError(type(pooling).__name__)


@singledispatch
def project(pooling: Pooling, questions: Ragged) -> Ragged:
    """What else the pooling needs of the questions: worked out once, for however many joins.

    Args:
        pooling: the pooling.
        questions: what ``keep`` made of the questions' states.
    """
    return questions


@singledispatch
def join(pooling: Pooling, questions: Ragged, projected: Ragged, answers: Ragged, pairs: Tensor) -> Tensor:
    """Scores of pairs.

    Args:
        pooling: the pooling.
        questions: what ``keep`` made of the questions' states.
        projected: what ``project`` made of that.
        answers: what ``keep`` made of the answers' states.
        pairs: (2, P) int64, the question and the answer of each pair.

    Returns:
        (P,) fp32 scores, those of the pairwise definition.
    """
    raise NotImplementedError(type(pooling).__name__)


@keep.register
def _(pooling: MaxPooling, states: Ragged) -> Ragged:
    """One unit vector a text."""
    r = pooling.represent(states)  # (n, c)
    count = torch.arange(len(states.lengths) + 1, device=r.device)
    return Ragged(unit(r), count)


@join.register
def _(pooling: MaxPooling, questions: Ragged, projected: Ragged, answers: Ragged, pairs: Tensor) -> Tensor:
    """All inner products of blocks of questions and answers; the pairs asked for are picked out."""
    scores = torch.empty(pairs.shape[1], device=pairs.device)
    order = pairs[0].argsort(stable=True)
    for block in order.split(1 << 14):
        asked, q = pairs[0, block].unique(return_inverse=True)
        present, a = pairs[1, block].unique(return_inverse=True)
        if len(asked) * len(present) <= 64 * len(block):
            products = questions.values[asked] @ answers.values[present].T
            scores[block] = products[q, a]
        else:
            scores[block] = (questions.values[asked][q] * answers.values[present][a]).sum(1)
    return scores


@keep.register
def _(pooling: AttentivePooling, states: Ragged) -> Ragged:
    """The states themselves."""
    return states


@project.register
def _(pooling: AttentivePooling, questions: Ragged) -> Ragged:
    """The rows of Qᵀ U."""
    return questions.with_values(questions.values @ pooling.U)


@join.register
def _(
    pooling: AttentivePooling, questions: Ragged, projected: Ragged, answers: Ragged, pairs: Tensor
) -> Tensor:
    """Pairs grouped around the texts of one side: all pairs of a question, or all pairs of an answer.

    With one text held fixed its length is fixed as well: no padding, no mask, and the alignment with all its
    partners is a single matrix product over the partners' states put end to end. Putting them there costs
    most, so the side is chosen of whose partners fewer tokens are moved.
    """
    around_questions = answers.lengths[pairs[1]].sum() + GROUP_TOKENS * len(pairs[0].unique())
    around_answers = 2 * questions.lengths[pairs[0]].sum() + GROUP_TOKENS * len(pairs[1].unique())
    by_question = bool(around_questions <= around_answers)
    fixed, partner = pairs if by_question else pairs.flip(0)
    order = fixed.argsort(stable=True)
    centres, counts = fixed[order].unique_consecutive(return_counts=True)
    groups = list(zip(centres.tolist(), order.split(counts.tolist()), strict=True))
    scores = torch.empty(pairs.shape[1], device=pairs.device)

    def score(share: Sequence[Group]) -> None:
        for centre, members in share:
            if by_question:
                aligned, states, partners, raw = projected, questions, answers, answers
            else:
                aligned, states, partners, raw = answers, answers, projected, questions
            begin, end = int(aligned.offsets[centre]), int(aligned.offsets[centre + 1])
            scores[members] = _around(
                aligned.values[begin:end], states.values[begin:end], partners, raw, partner[members]
            )

    _in_threads(score, groups, pairs.device)
    return scores


def _around(aligned: Tensor, states: Tensor, partners: Ragged, raw: Ragged, members: Tensor) -> Tensor:
    """Scores of one text with K partners.

    Args:
        aligned: (T, c) its states for the alignment, projected by U if it is a question.
        states: (T, c) its states.
        partners: states for the alignment of the other side's texts.
        raw: states of the other side's texts.
        members: (K,) which of those texts are its partners.

    Returns:
        (K,) cosines.
    """
    rows = partners.rows(members)  # (S,) S tokens of all K partners
    lengths = partners.lengths[members]  # (K,)
    alignment = partners.values.index_select(0, rows) @ aligned.T  # (S, T), G before its tanh
    of_text = torch.segment_reduce(alignment, "max", lengths=lengths, axis=0).tanh()  # (K, T)
    r_text = of_text.softmax(1) @ states  # (K, c)
    # g is within [-1, 1], so exp needs no shift; the common factor of a softmax does not change the cosine.
    weights = alignment.amax(1).tanh().exp()  # (S,)
    r_partner = F.embedding_bag(
        rows, raw.values, lengths.cumsum(0) - lengths, mode="sum", per_sample_weights=weights
    )  # (K, c)
    return F.cosine_similarity(r_text, r_partner, eps=EPSILON)


def _in_threads(work: Callable[[Sequence[Group]], None], groups: list[Group], device: torch.device) -> None:
    """Shares groups among as many threads as torch has, each on one core.

    The products are too small for several cores to work on one; results do not depend on the number.
    """
    threads = torch.get_num_threads()
    if threads == 1 or device.type != "cpu" or len(groups) < 2 * threads:
        work(groups)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(torch.inference_mode()(work), [groups[i::threads] for i in range(threads)]))
    finally:
        torch.set_num_threads(threads)
