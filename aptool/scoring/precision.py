"""Whether encoding in bf16 is harmless: tried on a sample, with the model and the pools at hand."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch

from aptool.formats.pools import Pools
from aptool.models.checkpoint import Model
from aptool.scoring.scorer import Precision, Scorer
from aptool.scoring.systems import ModelSystem

SAMPLE = 50  # pools


def pick_precision(
    asked: Literal["auto", "fp32", "bf16"], model: Model, device: torch.device, sample: Callable[[], Pools]
) -> Precision:
    """The precision to encode in.

    Args:
        asked: ``auto`` is bf16 on a GPU that computes in it, if every one of the first pools comes out in the
            same order as with fp32; else fp32. On a CPU it is always fp32: encoding is not what takes the
            time there, and a figure should not depend on which instructions a processor has.
        model: the model, on the device.
        device: where it is.
        sample: reads some of what is to be scored; called only if there is something to try.
    """
    if asked != "auto":
        return asked
    if device.type != "cuda" or not torch.cuda.is_bf16_supported(including_emulation=False):
        return "fp32"
    return "bf16" if harmless(model, device, sample()) else "fp32"


def harmless(model: Model, device: torch.device, pools: Pools) -> bool:
    """Whether encoding in bf16 leaves the first ``SAMPLE`` pools in the order that fp32 gives them."""
    texts = ModelSystem(model, device, store_bytes=0).prepare(pools)
    some = texts.pair_question < SAMPLE
    pairs = texts.pair_question[some], texts.pair_answer[some]
    both: list[Precision] = ["fp32", "bf16"]
    orders = []
    for precision in both:
        scorer = Scorer(model.ranker, device=device, precision=precision)
        scores = scorer.score(texts.questions, texts.answers, *pairs)
        orders.append(np.lexsort((-scores, pairs[0])))
    return bool((orders[0] == orders[1]).all())
