"""A trained model as a system that scores pools, and the settings to load it."""

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

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
        """Wraps a model.

        Args:
            model: the model, on the device.
            device: the device to score on.
            precision: the precision that texts are encoded in.
            tokens_per_batch: tokens encoded at one time; None is a default for the device.
            cache_bytes: limit of the cache of encoded answers; None is a quarter of a GPU's free
                memory, or of this machine's and at most ``CACHE_BYTES``.
            store: answers that the model encoded before, read in place of encoding them.
            fill: encode answers that the store lacks, and add them; otherwise they are an error.
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

    def prepare(self, pools: PoolBatch) -> TokenizedPools:
        """See ``System.prepare``.

        Raises:
            InputError: answers are not in the store, which is not to be filled.
        """
        tokenized = self._tokenizer.tokenize(pools)
        if self._stored is not None:
            self._stored.check(tokenized.answers)
        return tokenized

    def score(self, prepared: TokenizedPools) -> np.ndarray:
        """See ``System.score``."""
        return self.score_reporting(prepared, lambda pairs: None)

    def score_reporting(self, prepared: TokenizedPools, scored: Callable[[int], None]) -> np.ndarray:
        """See ``System.score_reporting``."""
        set_products(self._precision)
        scores = self._scorer.score(*prepared, scored)
        if self._stored is not None:
            self._stored.flush()
        return scores

    def copies(self, most: int) -> list[System]:
        """See ``System.copies``: a model on ``cuda`` is copied to all GPUs of the machine.

        They share the tokenizer and the store.

        Raises:
            AptoolError: one of them has too little memory.
        """
        return [self, *(self._on(device) for device in gpus_like(self._device)[1 : max(most, 1)])]

    def _on(self, device: torch.device) -> "ModelSystem":
        there = copy.copy(self)
        ranker = copy.deepcopy(self._model.ranker)
        to_device(ranker, device)
        there._model, there._device = self._model._replace(ranker=ranker), device
        there.__dict__.pop("_scorer", None)
        return there

    def truncated(self, prepared: TokenizedPools) -> int:
        """See ``System.truncated``."""
        return prepared.answers.truncated

    def describe(self) -> dict[str, Any]:
        """See ``System.describe``."""
        described = describe_model(self._model, self._device, self._precision)
        if self._store is not None:
            described["encoded"] = {"store": str(self._store.folder), "precision": self._store.precision}
        return described


@dataclass(frozen=True)
class ModelLoader:
    """A model as a system, before it is loaded: the folder and the settings.

    Attributes:
        folder: the model folder, of aptool or of another library.
        device: ``auto``, ``cpu``, ``cuda`` or one such as ``cuda:1``.
        precision: see ``pick_precision``.
        tokens_per_batch: see ``ModelSystem``.
        cache_bytes: see ``ModelSystem``.
        kind: what the folder holds, where it could be several things; see ``load_any``.
        encoded: folder of a store of answers that the model encoded before; ``precision`` is fp32 then.
        fill: see ``ModelSystem``.
    """

    folder: str
    device: str = "auto"
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"
    tokens_per_batch: int | None = None
    cache_bytes: int | None = None
    kind: str = "auto"
    encoded: str | None = None
    fill: bool = False

    def load(self, device: torch.device | str, sample: Callable[[], Iterable[PoolBatch]]) -> ModelSystem:
        """Loads the model on a device.

        Args:
            device: the device to score on.
            sample: reads some of the pools to be scored; see ``pick_precision``.

        Raises:
            AptoolError: the folder is missing or is not a complete model.
        """
        device = torch.device(device)
        model = load_any(self.folder, device, self.kind)
        store = None
        if self.encoded is not None:
            store = open_store(self.encoded, model, self.folder)
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
    """The fingerprint of a ``ModelSystem`` from that of its model, without creating the system.

    Stored answers in fp32 change no score, others do.
    """
    rounded = [] if stored in (None, "fp32") else [stored]
    return json.dumps(["model", model, str(torch.device(device)), precision, tokens_per_batch, *rounded])


def describe_model(model: LoadedModel, device: torch.device | str, precision: Precision) -> dict[str, Any]:
    """A model and how it scores: ``name`` (its preset), ``fingerprint``, ``recipe`` and more."""
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
    """The tag of a model's runs if none is given: its preset, as one word."""
    return "-".join(model.recipe.preset.split())


def _default_cache(device: torch.device) -> int:
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return free // 4
    return min(CACHE_BYTES, available_memory() // 4)
