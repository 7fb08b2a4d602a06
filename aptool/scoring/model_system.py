"""A trained model as a system that scores pools, the settings to load it, and its precision."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from typing_extensions import override

from aptool.environment import available_memory
from aptool.errors import UsageError
from aptool.formats.pools import Answers, PoolBatch, Unit, read_pools
from aptool.models.build import code_of
from aptool.models.checkpoints import ScoreTokens, load_any
from aptool.models.device import gpus_like, has_tensor_cores, pick_device, set_products, to_device
from aptool.models.model import LoadedModel
from aptool.scoring.encoded import PoolTokenizer, TokenizedPools, joined_pools
from aptool.scoring.ranker_scorer import Precision, RankerScorer
from aptool.scoring.systems import System

if TYPE_CHECKING:
    from aptool.scoring.answer_store import AnswerStore

# Limit of the cache of encoded answers on a CPU: InsuranceQA's 25,000 at 400 features take 3.9 GB.
CACHE_BYTES = 4 << 30

# Number of pools in the sample that decides the precision, and the maximum from one of several row groups.
SAMPLE, SAMPLE_PER_UNIT = 50, 10

# Multiples of the golden ratio, modulo 1, are spread evenly.
_GOLDEN = (5**0.5 - 1) / 2


class ModelSystem(System):
    """A trained model as a system."""

    def __init__(
        self,
        model: LoadedModel,
        device: torch.device | str = "cpu",
        *,
        precision: Precision = "fp32",
        tokens_per_batch: int | None = None,
        cache_bytes: int | None = None,
        store: "AnswerStore | None" = None,
        fill: bool = False,
    ) -> None:
        """Wrap a model on a device.

        Args:
            model: the model, on ``device``.
            device: the device to score on.
            precision: the precision of encoding.
            tokens_per_batch: tokens per batch of the encoder; None is a default for the device.
            cache_bytes: limit of the cache of encoded answers; None is a quarter of the free memory of the
                GPU, or of this machine and at most ``CACHE_BYTES``.
            store: answers to read instead of encoding them.
            fill: encode missing answers and add them to the store; otherwise they are an error.
        """
        self._model = model
        self._device = torch.device(device)
        self._precision = precision
        self._tokens_per_batch = tokens_per_batch
        self._cache_bytes = cache_bytes
        self._tokenizer = PoolTokenizer(model.tokenizer, model.recipe.text)
        self._store, self._stored = store, None
        rounding: list[str] = []  # answers stored in fp32 do not change the scores
        if store is not None:
            from aptool.scoring.stored_answers import StoredAnswers

            self._stored = StoredAnswers(store, fill=fill)
            rounding = [store.precision] if store.precision != "fp32" else []
        settings = [str(self._device), precision, tokens_per_batch, *rounding]
        self.fingerprint = json.dumps(["model", model.fingerprint, code_of(model.recipe), *settings])
        self.tag = "-".join(model.recipe.preset.split())
        self.max_answer_tokens = model.recipe.text.max_answer_tokens

    @cached_property
    def _scorer(self) -> RankerScorer:
        """The scorer; a worker that only prepares pools does not create it."""
        return RankerScorer(
            self._model.ranker,
            device=self._device,
            precision=self._precision,
            tokens_per_batch=self._tokens_per_batch,
            cache_bytes=_default_cache(self._device) if self._cache_bytes is None else self._cache_bytes,
            stored=self._stored,
        )

    @override
    def prepare(self, pools: PoolBatch) -> TokenizedPools:
        tokenized = self._tokenizer.tokenize(pools)
        if self._stored is not None:
            self._stored.check(tokenized.answers)
        return tokenized

    @override
    def score_reporting(self, prepared: TokenizedPools, scored: Callable[[int], None]) -> np.ndarray:
        set_products(self._precision)
        scores = self._scorer.score(*prepared, scored)
        if self._stored is not None:
            self._stored.flush()
        return scores

    @override
    def is_joinable(self, prepared: TokenizedPools) -> bool:
        if self._device.type != "cpu" or None in prepared.cache_keys.tolist():
            return False
        return self._scorer.is_joinable(prepared.pair_answer)

    @override
    def join(self, prepared: Sequence[TokenizedPools]) -> TokenizedPools:
        return joined_pools(prepared)

    @override
    def copies(self, most: int) -> list[System]:
        """On ``cuda``, copy the model to all GPUs; the copies share the tokenizer and the store."""
        systems: list[System] = [self]
        for device in gpus_like(self._device)[1 : max(most, 1)]:
            system = copy.copy(self)
            ranker = copy.deepcopy(self._model.ranker)
            to_device(ranker, device)
            system._model, system._device = self._model._replace(ranker=ranker), device
            system.__dict__.pop("_scorer", None)
            systems.append(system)
        return systems

    @override
    def truncated(self, prepared: TokenizedPools) -> int:
        return prepared.answers.truncated

    @override
    def describe(self) -> dict[str, Any]:
        model = self._model
        described = {
            "name": model.recipe.preset,
            "fingerprint": model.fingerprint,
            "device": str(self._device),
            "precision": self._precision,
            "training": model.config.get("training"),
            "recipe": model.config["recipe"],
            "versions": model.config["versions"],
        }
        if self._store is not None:
            described["encoded"] = {"store": str(self._store.folder), "precision": self._store.precision}
        return described


@dataclass(frozen=True)
class ModelLoader:
    """The folder and the settings of a model, to be loaded when the pools are known."""

    folder: str  # of aptool or of another library
    device: str = "auto"  # ``auto``, ``cpu``, ``cuda`` or a GPU such as ``cuda:1``
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"  # of encoding; ``auto``: ``pick_precision``
    tokens_per_batch: int | None = None  # of ``ModelSystem``, as are cache_bytes and fill
    cache_bytes: int | None = None
    kind: str = "auto"  # checkpoint type
    tokens: ScoreTokens | None = None  # of ``load_any``
    encoded: str | None = None  # folder of an answer store; requires fp32
    fill: bool = False

    def load(self, units: Sequence[Unit], answers: Answers | None, device: str | None = None) -> ModelSystem:
        """Load the model to score row groups, which decide the precision ``auto``.

        ``device`` exists; None checks and uses that of the settings.
        """
        target = pick_device(self.device) if device is None else torch.device(device)
        model = load_any(self.folder, target, self.kind, self.tokens)
        store: AnswerStore | None = None
        precision: Precision = "fp32"
        if self.encoded is not None:
            from aptool.scoring.answer_store import open_store

            store = open_store(self.encoded, model, self.folder)
        else:
            sample = sample_units(units)
            precision = pick_precision(self.precision, model, target, lambda: sampled_pools(sample, answers))
        return ModelSystem(
            model,
            target,
            precision=precision,
            tokens_per_batch=self.tokens_per_batch,
            cache_bytes=self.cache_bytes,
            store=store,
            fill=self.fill,
        )


def _default_cache(device: torch.device) -> int:
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free // 4
    return min(CACHE_BYTES, available_memory() // 4)


def pick_precision(
    requested: Literal["auto", "fp32", "tf32", "bf16"],
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
    if device.type == "cuda" and requested != "fp32" and not has_tensor_cores(device):
        name = torch.cuda.get_device_name(device)
        raise UsageError(
            f"--precision {requested}: {name} cannot compute in it; "
            "expected fp32, or a GPU of compute capability 8.0 or later"
        )
    return requested


def sample_units(units: Sequence[Unit]) -> list[Unit]:
    """Select at most ``SAMPLE`` row groups, spread evenly."""
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
    texts = PoolTokenizer(model.tokenizer, model.recipe.text).tokenize(pools)
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    rankings = []
    set_products("fp32")
    for precision in precisions:
        scorer = RankerScorer(model.ranker, device=device, precision=precision)
        scores = scorer.score(texts.questions, texts.answers, texts.pair_question, texts.pair_answer)
        rankings.append(np.lexsort((-scores, texts.pair_question)))
    return bool((rankings[0] == rankings[1]).all())
