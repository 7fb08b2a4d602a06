"""From a model folder to an open model that scores pools; the choice of its precision."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from typing_extensions import override

from aptool.data.pools import Answers, PoolBatch, Unit, read_pools
from aptool.environment import Backend, ScorePrecision, available_memory
from aptool.environment import Precision as RequestedPrecision
from aptool.errors import InputError, UsageError
from aptool.models.build import code_of
from aptool.models.device import (
    check_precision,
    gpus_like,
    has_tensor_cores,
    pick_device,
    set_products,
    to_device,
)
from aptool.models.hub import MODULES, find_folder, is_trained
from aptool.models.model import LoadedModel, load_model
from aptool.scoring.encoded import PoolTokenizer, TokenizedPools
from aptool.scoring.ranker_scorer import Precision, RankerScorer
from aptool.scoring.systems import Scorer, System

# Limit of the cache of encoded answers on a CPU: InsuranceQA's 25,000 at 400 features take 3.9 GB.
CACHE_BYTES = 4 << 30

# Number of pools in the sample that decides the precision, and the maximum from one of several units.
SAMPLE, SAMPLE_PER_UNIT = 50, 10

# Multiples of the golden ratio, modulo 1, are spread evenly.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class ModelSystem(System):
    """A model: its folder, and the settings of its scores."""

    folder: str
    device: str = "auto"  # ``auto``, ``cpu``, ``cuda`` or a GPU such as ``cuda:1``
    precision: RequestedPrecision = "auto"  # of encoding; ``auto``: ``pick_precision``
    tokens_per_batch: int | None = None  # of the encoder; None is a default for the device
    cache_bytes: int | None = None  # limit of the cache of encoded answers; None: ``_default_cache``
    # The model, if it is already loaded on the device.
    model: LoadedModel | None = field(default=None, compare=False, repr=False)

    @override
    def open(
        self, units: Sequence[Unit] = (), answers: Answers | None = None, device: str | None = None
    ) -> "ModelScorer":
        """Open the model; the units decide the precision ``auto``."""
        target = pick_device(self.device) if device is None else torch.device(device)
        model = self.model or load_model(self.folder, target)
        sample = sample_units(units)
        precision = pick_precision(self.precision, model, target, lambda: sampled_pools(sample, answers))
        return ModelScorer(self, model, target, precision)

    @property
    @override
    def paths(self) -> tuple[str, ...]:
        return (self.folder,)


def model_system(
    folder: str,
    *,
    device: str = "auto",
    precision: ScorePrecision = "auto",
    backend: Backend = "torch",
    tokens_per_batch: int | None = None,
) -> System:
    """Return the system of a model: of aptool, or a checkpoint of another library."""
    if precision == "int8" and backend != "openvino":
        raise UsageError("precision 'int8': requires the backend openvino (--backend openvino)")
    if backend == "openvino" and device not in ("auto", "cpu"):
        raise UsageError(f"device {device!r}: expected auto or cpu with the backend openvino")
    found = find_folder(folder)
    has_modules = isinstance(found, Path) and (found / MODULES).is_file()
    if is_trained(found) and not (has_modules and backend == "openvino"):
        if precision == "int8" or backend == "openvino":
            expected = "a checkpoint of another library, or a model with mean pooling"
            raise InputError(folder, problem="a model that OpenVINO cannot convert", expected=expected)
        return ModelSystem(folder, device, precision, tokens_per_batch)
    from aptool.scoring.sentence_transformers import SentenceTransformers

    return SentenceTransformers(folder, device, precision, tokens_per_batch, backend)


class ModelScorer(Scorer):
    """An open model."""

    system: ModelSystem

    def __init__(
        self,
        system: ModelSystem,
        model: LoadedModel,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
    ) -> None:
        """Wrap a model on a device, with a precision."""
        self.max_answer_tokens = model.recipe.text.max_answer_tokens
        self.device = str(device)
        self._model, self._precision = model, precision
        self._tokenizer = PoolTokenizer(model.tokenizer, model.recipe.text)
        description = {
            "name": model.recipe.preset,
            "fingerprint": model.fingerprint,
            "device": self.device,
            "precision": precision,
            "training": model.config.get("training"),
            "recipe": model.config["recipe"],
            "versions": model.config["versions"],
        }
        code = code_of(model.recipe)
        self.prepare_fingerprint = json.dumps([model.fingerprint, code], sort_keys=True)
        settings = ["model", model.fingerprint, code, self.device, precision, system.tokens_per_batch]
        system = replace(system, precision=precision, model=None)
        super().__init__(system, "-".join(model.recipe.preset.split()), settings, description)

    @cached_property
    def _ranker_scorer(self) -> RankerScorer:
        """The scorer of pairs; a worker that only prepares pools does not create it."""
        system, device = self.system, torch.device(self.device)
        return RankerScorer(
            self._model.ranker,
            device=device,
            precision=self._precision,
            tokens_per_batch=system.tokens_per_batch,
            cache_bytes=_default_cache(device) if system.cache_bytes is None else system.cache_bytes,
        )

    @override
    def prepare(self, pools: PoolBatch) -> TokenizedPools:
        return self._tokenizer.tokenize(pools)

    @override
    def score(
        self, inputs: TokenizedPools, progress: Callable[[int], None] = lambda pairs: None
    ) -> np.ndarray:
        set_products(self._precision)
        return self._ranker_scorer.score(*inputs, progress)

    @override
    def copies(self, most: int) -> list[Scorer]:
        """On ``cuda``, copy the model to all GPUs; the copies share the tokenizer."""
        scorers: list[Scorer] = [self]
        for device in gpus_like(torch.device(self.device))[1 : max(most, 1)]:
            scorer = copy.copy(self)
            ranker = copy.deepcopy(self._model.ranker)
            to_device(ranker, device)
            scorer._model, scorer.device = self._model._replace(ranker=ranker), str(device)
            scorer.__dict__.pop("_ranker_scorer", None)
            scorers.append(scorer)
        return scorers

    @override
    def truncated(self, inputs: TokenizedPools) -> int:
        return inputs.answers.truncated


def _default_cache(device: torch.device) -> int:
    """Return a quarter of the free memory of a GPU, or of this machine and at most ``CACHE_BYTES``."""
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free // 4
    return min(CACHE_BYTES, available_memory() // 4)


def pick_precision(
    requested: RequestedPrecision,
    model: LoadedModel,
    device: torch.device,
    sample: Callable[[], Iterable[PoolBatch]],
) -> Precision:
    """Return the precision of encoding; ``sample`` is called only if the rankings of its pools decide.

    ``auto`` is bf16 on a GPU with native bf16 support if bf16 and fp32 rank every pool of the sample alike,
    else fp32. A CPU always uses fp32: encoding takes little of the time there, and results should not depend
    on the instruction set of the processor.
    """
    if requested == "auto":
        has_bf16 = device.type == "cuda" and has_tensor_cores(device)
        is_exact = has_bf16 and all(same_rankings(model, device, pools) for pools in sample())
        return "bf16" if is_exact else "fp32"
    check_precision("--precision", requested, device)
    return requested


def sample_units(units: Sequence[Unit]) -> list[Unit]:
    """Select at most ``SAMPLE`` units, spread evenly."""
    order = np.argsort(np.arange(len(units)) * _GOLDEN % 1, kind="stable")
    return [units[number] for number in order[:SAMPLE].tolist()]


def sampled_pools(units: Sequence[Unit], answers: Answers | None) -> Iterator[PoolBatch]:
    """Yield ``SAMPLE`` pools of the units, or all if there are fewer; deterministic."""
    remaining, most = SAMPLE, max(SAMPLE_PER_UNIT, -(-SAMPLE // len(units)))
    for unit in units:
        if not remaining:
            return
        pools = read_pools(unit, answers)
        count = len(pools.question_ids)
        rows = np.unique(np.linspace(0, count - 1, min(most, remaining, count)).astype(np.int64))
        remaining -= len(rows)
        yield pools.select(rows)


def same_rankings(model: LoadedModel, device: torch.device, pools: PoolBatch) -> bool:
    """Whether bf16 and fp32 rank the candidates of each pool alike."""
    set_products("fp32")
    texts = PoolTokenizer(model.tokenizer, model.recipe.text).tokenize(pools)
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    rankings = []
    for precision in precisions:
        scorer = RankerScorer(model.ranker, device=device, precision=precision)
        scores = scorer.score(texts.questions, texts.answers, texts.pair_question, texts.pair_answer)
        rankings.append(np.lexsort((-scores, texts.pair_question)))
    return bool((rankings[0] == rankings[1]).all())
