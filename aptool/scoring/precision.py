"""The precision of encoding: bf16 only if it changes no ranking of a sample."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from aptool.errors import UsageError
from aptool.formats.pools import Answers, PoolBatch, Unit, read_pools
from aptool.models.device import has_tensor_cores, set_products

if TYPE_CHECKING:
    from aptool.models.model import LoadedModel
    from aptool.scoring.scorer import Precision

# Number of pools in the sample, and the most from one of several row groups.
SAMPLE, SAMPLE_PER_UNIT = 50, 10

# Multiples of the golden ratio, modulo 1, are spread evenly.
_GOLDEN = (5**0.5 - 1) / 2


def pick_precision(
    requested: Literal["auto", "fp32", "tf32", "bf16"],
    model: "LoadedModel",
    device: torch.device,
    sample: Callable[[], Iterable[PoolBatch]],
) -> "Precision":
    """The precision to encode texts in.

    ``auto`` is bf16 on a GPU with native bf16 support if it ranks every pool of the sample as fp32 does, else
    fp32. A CPU always uses fp32: encoding takes little of the time there, and results should not depend on
    the processor's instruction set. ``sample`` is called only if it is needed.

    Raises:
        UsageError: the GPU cannot compute in this precision.
    """
    is_supported = device.type != "cuda" or requested == "fp32" or has_tensor_cores(device)
    if requested != "auto":
        if not is_supported:
            name = torch.cuda.get_device_name(device)
            raise UsageError(
                f"--precision {requested}: {name} cannot compute in it; "
                "expected fp32, or a GPU of compute capability 8.0 or later"
            )
        return requested
    if device.type != "cuda" or not is_supported:
        return "fp32"
    return "bf16" if all(same_rankings(model, device, pools) for pools in sample()) else "fp32"


def sample_units(units: Sequence[Unit]) -> list[Unit]:
    """The row groups of the sample: at most ``SAMPLE``, spread over all row groups."""
    order = np.argsort(np.arange(len(units)) * _GOLDEN % 1, kind="stable")
    return [units[number] for number in order[:SAMPLE].tolist()]


def sampled_pools(units: Sequence[Unit], answers: Answers | None) -> Iterator[PoolBatch]:
    """The sample: ``SAMPLE`` pools, or all if there are fewer, the same ones for the same input."""
    left, most = SAMPLE, max(SAMPLE_PER_UNIT, -(-SAMPLE // len(units)))
    for unit in units:
        if not left:
            return
        pools = read_pools(unit, answers)
        count = len(pools.question_ids)
        rows = np.unique(np.linspace(0, count - 1, min(most, left, count)).astype(np.int64))
        left -= len(rows)
        yield pools.select(rows)


def same_rankings(model: "LoadedModel", device: torch.device, pools: PoolBatch) -> bool:
    """Whether bf16 and fp32 rank the candidates of each pool alike."""
    from aptool.scoring.scorer import Scorer
    from aptool.scoring.tokenized import PoolTokenizer

    texts = PoolTokenizer(model.tokenizer, model.recipe.text).tokenize(pools)
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    rankings = []
    set_products("fp32")
    for precision in precisions:
        scorer = Scorer(model.ranker, device=device, precision=precision)
        scores = scorer.score(texts.questions, texts.answers, texts.pair_question, texts.pair_answer)
        rankings.append(np.lexsort((-scores, texts.pair_question)))
    return bool((rankings[0] == rankings[1]).all())
