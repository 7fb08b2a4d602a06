"""The precision that texts are encoded in: bf16 only where it changes no ranking of a sample."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch

from aptool.formats.pools import Pools
from aptool.models.model import LoadedModel
from aptool.scoring.scorer import Precision, Scorer
from aptool.scoring.tokenized import PoolTokenizer

# Number of pools in the sample.
SAMPLE = 50


def pick_precision(
    requested: Literal["auto", "fp32", "bf16"],
    model: LoadedModel,
    device: torch.device,
    sample: Callable[[], Pools],
) -> Precision:
    """The precision to encode texts in.

    Args:
        requested: ``auto`` is bf16 on a GPU with native bf16 support if every pool of a sample is ranked as
            in fp32; else fp32. On a CPU it is always fp32: encoding takes little of the time there, and
            results should not depend on the instruction set of the processor.
        model: the model, on the device.
        device: the device.
        sample: reads some of the pools to be scored; called only if a trial is needed.
    """
    if requested != "auto":
        return requested
    if device.type != "cuda" or not torch.cuda.is_bf16_supported(including_emulation=False):
        return "fp32"
    return "bf16" if same_rankings(model, device, sample()) else "fp32"


def same_rankings(model: LoadedModel, device: torch.device, pools: Pools) -> bool:
    """Whether bf16 and fp32 rank each of the first ``SAMPLE`` pools alike."""
    texts = PoolTokenizer(model.tokenizer, model.recipe.text).tokenize(pools)
    sampled = texts.pair_question < SAMPLE
    pairs = texts.pair_question[sampled], texts.pair_answer[sampled]
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    rankings = []
    for precision in precisions:
        scorer = Scorer(model.ranker, device=device, precision=precision)
        scores = scorer.score(texts.questions, texts.answers, *pairs)
        rankings.append(np.lexsort((-scores, pairs[0])))
    return bool((rankings[0] == rankings[1]).all())
