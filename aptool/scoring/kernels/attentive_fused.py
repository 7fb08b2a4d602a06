"""Attentive pooling on a GPU in one fused kernel, which writes only the scores.

A program of ``attentive_triton`` scores one answer with up to ``PAIRS`` of its questions. Texts of similar
length share a launch, padded to powers of two. ``attentive_batched`` scores pairs whose tile of G does not
fit in registers. The host plans all launches, sends them in one message and never waits for the device.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.environment import version_of
from aptool.models.device import has_tensor_cores, products_are_tf32, send
from aptool.models.ragged import Ragged
from aptool.scoring.encoded import EncodedAnswers, Pairs
from aptool.scoring.kernels.attentive_batched import score_batched

# Minimum padded tokens of a question and of an answer, and minimum pairs per program.
LEAST_SLOTS, LEAST_TOKENS, LEAST_PAIRS = 8, 16, 4

OLDEST_TRITON = (3, 7)  # that of PyTorch 2.13


class Tile(NamedTuple):
    """The compile-time constants of a launch."""

    pairs: int
    slots: int  # tokens of a question, padded
    tokens: int  # tokens of an answer, padded

    def options(self, dtype: torch.dtype, fp32: str = "tf32x3") -> dict[str, Any]:
        """Return the constants and launch options of the program, for answers in fp32 or bf16.

        A product in fp32 is computed as three in TF32 (``tf32x3``), which is as exact; a single one changes
        scores by more than 1e-5.
        """
        half = dtype == torch.bfloat16
        return {
            "PAIRS": self.pairs,
            "SLOTS": self.slots,
            "L": self.tokens,
            "K": 64 if half else 32 if self.tokens < 256 else 16,
            "CAST": False,
            "PRECISION": "ieee" if half else fp32,
            "num_warps": 8,
            "num_stages": 2,
            "enable_fp_fusion": True,
        }


def tile_of(slots: int, tokens: int, dtype: torch.dtype) -> Tile | None:
    """Return the tile for padded lengths of questions and answers; None if it does not fit in registers.

    Eight warps hold 32,768 numbers of G with products in bf16, and half as many with products in fp32, which
    need registers for both halves of each factor.
    """
    rows, numbers = (256, 1 << 15) if dtype == torch.bfloat16 else (128, 1 << 14)
    pairs = min(rows // slots, numbers // (slots * tokens))
    return Tile(pairs, slots, tokens) if pairs >= LEAST_PAIRS else None


def is_available(device: torch.device) -> bool:
    """Whether the GPU has tensor cores, and Triton is a version that the kernel is tested with."""
    version = version_of("triton")
    if version is None or tuple(map(int, version.split(".")[:2])) < OLDEST_TRITON:
        return False
    return has_tensor_cores(device)


def score_fused(
    questions: Ragged,
    projected: Tensor,
    answers: EncodedAnswers,
    pairs: Pairs,
    sharpness: float = 1.0,
) -> Tensor:
    """(P,) fp32 scores, as of ``score_batched``; answers in bf16 are multiplied in bf16, summed in fp32."""
    answers = answers.joined()
    (values,) = answers.batches
    device, count = values.device, len(pairs.questions)
    pair_answers = pairs.answers
    slots = _powers(questions.sizes, LEAST_SLOTS)[pairs.questions]  # (P,) exponents of two
    tokens = _powers(answers.lengths, LEAST_TOKENS)[pair_answers]
    kinds = (slots * 64 + tokens).astype(np.uint16)
    order = np.argsort(kinds, kind="stable")  # by kind, then by answer
    bounds = np.flatnonzero(np.diff(kinds[order], prepend=-1, append=-1))
    launches, tables, too_large = [], [], []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        kind = int(kinds[order[begin]])
        tile = tile_of(1 << kind // 64, 1 << kind % 64, values.dtype)
        if tile is None:
            too_large.append(order[begin:end])
            continue
        table = _blocks(answers, pair_answers[order[begin:end]], begin, tile.pairs)
        launches.append((tile, table.shape[1]))
        tables.append(table.reshape(-1))
    scores = torch.empty(count, device=device)
    if launches:
        fp32 = "tf32" if products_are_tf32() else "tf32x3"
        sent = send(np.concatenate([pairs.questions[order], order, *tables]).astype(np.int32), device)
        texts = projected.to(values.dtype), questions.values, questions.offsets, values
        at = 2 * count
        for tile, blocks in launches:
            program_table = sent[at : at + 4 * blocks]
            inputs = *texts, program_table, sent[:count], sent[count : 2 * count], scores, sharpness
            _launch(blocks, inputs, tile.options(values.dtype, fp32))
            at += 4 * blocks
    if too_large:
        rest = np.sort(np.concatenate(too_large))
        present, number = np.unique(pair_answers[rest], return_counts=True)
        long_answers, long_pairs = answers.select(present), Pairs(pairs.questions[rest], number)
        scores[send(rest, device)] = score_batched(
            questions, projected, long_answers, long_pairs, sharpness=sharpness
        )
    return scores


def _launch(programs: int, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Launch the program on the device of its inputs."""
    from aptool.scoring.kernels.attentive_triton import join

    with torch.cuda.device(inputs[0].device):
        join[(programs,)](*inputs, inputs[0].shape[1], **options)


def _powers(numbers: np.ndarray, least: int) -> np.ndarray:
    """(n,) int64: exponent of the smallest power of two of at least each number and ``least``."""
    return np.ceil(np.log2(np.maximum(numbers, least))).astype(np.int64)


def _blocks(answers: EncodedAnswers, pair_answers: np.ndarray, first: int, most: int) -> np.ndarray:
    """(4, B) the pairs of each program: ``blocks`` of ``attentive_triton.join``.

    ``pair_answers`` are the answers of consecutive pairs, ascending, from pair ``first``. A program has
    at most ``most`` pairs.
    """
    starts = np.flatnonzero(np.diff(pair_answers, prepend=-1))
    counts = np.diff(starts, append=len(pair_answers))
    programs = -(-counts // most)
    within = np.arange(programs.sum()) - np.repeat(np.cumsum(programs) - programs, programs)
    begins = np.repeat(starts, programs) + most * within
    sizes = np.minimum(most, np.repeat(counts, programs) - most * within)
    answer = pair_answers[begins]
    return np.stack([answers.starts[answer], answers.lengths[answer], first + begins, sizes])
