"""Matrix products of each answer with the tokens of all its questions, on a CPU."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from aptool.environment import processor_flags
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs

# Multiplications per answer from which oneDNN is faster, although it copies an operand and the result.
LEAST_WORK = 1 << 22

# oneDNN compiles a kernel per shape, which takes half a millisecond: the dimensions are rounded up.
MULTIPLE = 32


def answer_products(questions: Ragged, answers: EncodedAnswers, pairs: Pairs) -> Iterator[Tensor]:
    """Yield the inner products (s, L) of the question tokens of each answer's pairs with its rows."""
    sizes = questions.sizes[pairs.questions]
    tokens = np.add.reduceat(sizes, np.cumsum(pairs.counts) - pairs.counts)  # (n,) s per answer
    work = int(tokens @ answers.counts) * questions.values.shape[1]
    uses_onednn = has_wider_onednn() and work >= LEAST_WORK * len(tokens)
    multiple = MULTIPLE if uses_onednn else 1
    heights = _round_up(tokens, multiple)
    rows = F.pad(questions.rows(pairs.questions), (0, multiple))
    firsts = np.cumsum(tokens) - tokens
    starts = np.where(_are_consecutive(rows.numpy(), firsts, tokens), rows.numpy()[firsts], -1)
    starts[starts + heights > len(questions.values)] = -1
    plan = zip(firsts.tolist(), starts.tolist(), heights.tolist(), tokens.tolist(), strict=True)
    for answer, (first, start, height, size) in enumerate(plan):
        if start < 0:
            Q = questions.values.index_select(0, rows.narrow(0, first, height))
        else:
            Q = questions.values.narrow(0, start, height)
        A = _answer_rows(answers, answer, multiple).float()
        S = F.linear(A.to_mkldnn(), Q).to_dense().T if uses_onednn else Q @ A.T
        yield S[:size, : answers.counts[answer]]


@cache
def has_wider_onednn() -> bool:
    """Whether oneDNN multiplies 512 bits at once and MKL 256: on AMD's processors from Zen 5."""
    is_wide = torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return is_wide and {"sse4a", "avx512_vp2intersect"} <= processor_flags()


def _round_up(numbers: np.ndarray, multiple: int) -> np.ndarray:
    return -(-numbers // multiple) * multiple


def _are_consecutive(rows: np.ndarray, firsts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(n,) whether ``rows[firsts[i] : firsts[i] + counts[i]]`` ascend by one, for adjacent groups."""
    is_next = rows[1:] == rows[:-1] + 1
    is_next[firsts + counts - 1] = True  # the next row is of another group
    return np.logical_and.reduceat(is_next, firsts)


def _answer_rows(answers: EncodedAnswers, answer: int, multiple: int) -> Tensor:
    """Return the rows of an answer and any further rows, up to a multiple of rows."""
    rows = answers.batches[answers.batch[answer]]
    start, count = int(answers.starts[answer]), int(answers.counts[answer])
    missing = -count % multiple
    if start + count + missing <= rows.shape[0]:
        return rows.narrow(0, start, count + missing)
    return F.pad(rows.narrow(0, start, count), (0, 0, 0, missing))
