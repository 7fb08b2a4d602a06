"""A trained model as a system that scores pools, and the settings to load it."""

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from typing_extensions import override

from aptool.environment import available_memory
from aptool.formats.pools import PoolBatch
from aptool.models.checkpoints.load import load_any
from aptool.models.device import gpus_like, set_products, to_device
from aptool.models.model import LoadedModel
from aptool.scoring.answer_store import AnswerStore, StoredPrecision, open_store
from aptool.scoring.precision import pick_precision
from aptool.scoring.scorer import Precision, Scorer
from aptool.scoring.stored_answers import StoredAnswers
from aptool.scoring.systems import System
from aptool.scoring.tokenized import PoolTokenizer, TokenizedPools

# Limit of the cache of encoded answers on a CPU: InsuranceQA's 25,000 at 400 features take 3.9 GB.
CACHE_BYTES = 4 << 30


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
        store: AnswerStore | None = None,
        fill: bool = False,
    ) -> None:
        """Wrap a model.

        Args:
            model: the model, on the device.
            device: the device to score on.
            precision: the precision of encoding.
            tokens_per_batch: tokens encoded at one time; None is a default for the device.
            cache_bytes: limit of the cache of encoded answers; None is a quarter of a GPU's free memory, or
                of this machine's and at most ``CACHE_BYTES``.
            store: encoded answers, read instead of encoding them.
            fill: encode and add answers that the store lacks; otherwise they are an error.
        """
        self._model = model
        self._device = torch.device(device)
        self._precision = precision
        self._tokens_per_batch = tokens_per_batch
        self._cache_bytes = cache_bytes
        self._tokenizer = PoolTokenizer(model.tokenizer, model.recipe.text)
        self._store = store
        self._stored = StoredAnswers(store, fill=fill) if store is not None else None
        stored = store.precision if store is not None else None
        self.fingerprint = fingerprint(model.fingerprint, device, precision, tokens_per_batch, stored)
        self.tag = default_tag(model)
        self.max_answer_tokens = model.recipe.text.max_answer_tokens

    @cached_property
    def _scorer(self) -> Scorer:
        """Created on first use: a worker that only prepares pools does not need it."""
        return Scorer(
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
    def score(self, prepared: TokenizedPools) -> np.ndarray:
        return self.score_reporting(prepared, lambda pairs: None)

    @override
    def score_reporting(self, prepared: TokenizedPools, scored: Callable[[int], None]) -> np.ndarray:
        set_products(self._precision)
        scores = self._scorer.score(*prepared, scored)
        if self._stored is not None:
            self._stored.flush()
        return scores

    @override
    def copies(self, most: int) -> list[System]:
        """On ``cuda`` the model is copied to all GPUs; they share the tokenizer and the store."""
        return [self, *(self._on(device) for device in gpus_like(self._device)[1 : max(most, 1)])]

    def _on(self, device: torch.device) -> "ModelSystem":
        system = copy.copy(self)
        ranker = copy.deepcopy(self._model.ranker)
        to_device(ranker, device)
        system._model, system._device = self._model._replace(ranker=ranker), device
        system.__dict__.pop("_scorer", None)
        return system

    @override
    def truncated(self, prepared: TokenizedPools) -> int:
        return prepared.answers.truncated

    @override
    def describe(self) -> dict[str, Any]:
        described = describe_model(self._model, self._device, self._precision)
        if self._store is not None:
            described["encoded"] = {"store": str(self._store.folder), "precision": self._store.precision}
        return described


@dataclass(frozen=True)
class ModelLoader:
    """A model before it is loaded: the folder and the settings."""

    folder: str  # of aptool or of another library
    device: str = "auto"  # ``auto``, ``cpu``, ``cuda`` or a GPU such as ``cuda:1``
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"  # see ``pick_precision``
    tokens_per_batch: int | None = None  # see ``ModelSystem``
    cache_bytes: int | None = None  # see ``ModelSystem``
    kind: str = "auto"  # see ``load_any``
    encoded: str | None = None  # folder of an answer store; the precision is fp32 then
    fill: bool = False  # see ``ModelSystem``

    def load(self, device: torch.device | str, sample: Callable[[], Iterable[PoolBatch]]) -> ModelSystem:
        """Load the model on a device; ``sample`` reads some of the pools, see ``pick_precision``."""
        device = torch.device(device)
        model = load_any(self.folder, device, self.kind)
        store = open_store(self.encoded, model, self.folder) if self.encoded is not None else None
        precision = "fp32" if store else pick_precision(self.precision, model, device, sample)
        return ModelSystem(
            model,
            device,
            precision=precision,
            tokens_per_batch=self.tokens_per_batch,
            cache_bytes=self.cache_bytes,
            store=store,
            fill=self.fill,
        )


def fingerprint(
    model: str,
    device: torch.device | str,
    precision: Precision,
    tokens_per_batch: int | None,
    stored: StoredPrecision | None = None,
) -> str:
    """The fingerprint of a ``ModelSystem``; answers stored in fp32 do not change it."""
    rounded = [] if stored in (None, "fp32") else [stored]
    return json.dumps(["model", model, str(torch.device(device)), precision, tokens_per_batch, *rounded])


def describe_model(model: LoadedModel, device: torch.device | str, precision: Precision) -> dict[str, Any]:
    """A model and how it scores, see ``System.describe``."""
    return {
        "name": model.recipe.preset,
        "fingerprint": model.fingerprint,
        "device": str(torch.device(device)),
        "precision": precision,
        "training": model.config.get("training"),
        "recipe": model.config["recipe"],
        "versions": model.config["versions"],
    }


def default_tag(model: LoadedModel) -> str:
    """The default tag of a model's runs: its preset, as one word."""
    return "-".join(model.recipe.preset.split())


def _default_cache(device: torch.device) -> int:
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free // 4
    return min(CACHE_BYTES, available_memory() // 4)
