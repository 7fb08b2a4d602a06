"""From a model folder to an open model that scores pools; the choice of its precision."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from typing_extensions import override

from aptool.config import TextOptions
from aptool.data.parquet import to_arrow
from aptool.data.pools import Answers, PoolBatch, Unit, read_pools
from aptool.environment import Backend, available_memory
from aptool.environment import Precision as RequestedPrecision
from aptool.errors import InputError, UsageError
from aptool.models.build import code_of
from aptool.models.device import check_precision, has_tensor_cores, pick_device
from aptool.models.hub import MODULES, find_folder, is_trained
from aptool.models.model import LoadedModel, load_model
from aptool.scoring.ranker_scorer import UNCACHED, Precision, RankerScorer
from aptool.scoring.systems import Scorer, System, Work
from aptool.text.tokenizer import TextTokenizer, Tokens, concatenated

if TYPE_CHECKING:
    from aptool.scoring.sentence_transformers import SentenceTransformers

# Limit of the cache of encoded answers on a CPU: InsuranceQA's 25,000 at 400 features take 3.9 GB.
CACHE_BYTES = 4 << 30

# Number of pools in the sample that decides the precision.
SAMPLE = 50


class TokenizedPools(NamedTuple):
    """The pools of a unit as token ids."""

    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray  # (pairs,) into questions
    pair_answer: np.ndarray  # (pairs,) into answers
    cache_keys: np.ndarray  # (answers,) int64 keys for ``AnswerCache``, or UNCACHED


class PoolTokenizer:
    """Tokenizes pools as in training; caches the token ids of shared answers."""

    def __init__(self, tokenizer: TextTokenizer, options: TextOptions) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._shared: Answers | None = None
        self._rows = np.empty(0, dtype=np.int64)  # (shared answers,) the row of each below, or -1
        self._tokens = Tokens(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
        self._truncated = np.empty(0, dtype=bool)
        self._first_key = 0  # of the shared answers; other ones have other keys
        self._lock = Lock()  # an actor of a cluster reads several units at a time

    def tokenize(self, pools: PoolBatch) -> TokenizedPools:
        """Encode the distinct texts of pools as token ids, truncated at the model's limits."""
        questions = self._tokenizer.encode(pools.questions, self._options.max_question_tokens)
        with self._lock:
            answers, keys = self._tokenize_answers(pools)
        return TokenizedPools(questions, answers, pools.pair_question, pools.pair_answer, keys)

    def _tokenize_answers(self, pools: PoolBatch) -> tuple[Tokens, np.ndarray]:
        """Return the token ids and the keys of the distinct answers."""
        is_shared = pools.shared_rows >= 0
        shared, own = np.flatnonzero(is_shared), np.flatnonzero(~is_shared)
        keys = np.full(len(is_shared), UNCACHED)
        tokens, truncated = self._encode(pools.answers.take(to_arrow(own)))
        number = int(truncated.sum())
        if len(shared):
            rows = self._cached_rows(pools, shared)
            number += int(self._truncated[rows].sum())
            tokens = concatenated([self._tokens.take(rows), tokens])
            tokens = tokens.take(np.argsort(np.concatenate([shared, own])))
            keys[shared] = self._first_key + pools.shared_rows[shared]
        return replace(tokens, truncated=number), keys

    def _cached_rows(self, pools: PoolBatch, indices: np.ndarray) -> np.ndarray:
        """Return the rows of shared answers in the cached tokens; tokenize those that are not cached."""
        assert pools.shared is not None
        if pools.shared is not self._shared:
            self._first_key += len(self._rows)
            self._shared, self._rows = pools.shared, np.full(len(pools.shared.texts), -1)
            self._tokens, self._truncated = (
                self._tokens.take(np.empty(0, dtype=np.int64)),
                self._truncated[:0],
            )
        shared_rows = pools.shared_rows[indices]
        missing = np.flatnonzero(self._rows[shared_rows] < 0)
        if len(missing):
            tokens, truncated = self._encode(pools.answers.take(to_arrow(indices[missing])))
            self._rows[shared_rows[missing]] = len(self._tokens) + np.arange(len(missing))
            self._tokens = concatenated([self._tokens, tokens])
            self._truncated = np.concatenate([self._truncated, truncated])
        return self._rows[shared_rows]

    def _encode(self, texts: pa.Array) -> tuple[Tokens, np.ndarray]:
        """Return token ids of texts, and (n,) whether each text was truncated."""
        limit = self._options.max_answer_tokens
        complete = self._tokenizer.encode(texts)
        return self._tokenizer.truncate(complete, limit), complete.lengths > limit


@dataclass(frozen=True)
class ModelSystem(System):
    """A model: its folder, and the settings of its scores."""

    has_network = True
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
        precision = pick_precision(self.precision, model, target, units, answers)
        return ModelScorer(self, model, target, precision)


def model_system(
    folder: str,
    *,
    device: str = "auto",
    precision: RequestedPrecision = "auto",
    backend: Backend = "torch",
    tokens_per_batch: int | None = None,
) -> "ModelSystem | SentenceTransformers":
    """Return the system of a model: of aptool, or a checkpoint of another library."""
    if backend == "openvino":
        if device not in ("auto", "cpu"):
            raise UsageError(f"device {device!r}: expected auto or cpu with the backend openvino")
        device = "cpu"
    found = find_folder(folder)
    has_modules = isinstance(found, Path) and (found / MODULES).is_file()
    if is_trained(found) and not (has_modules and backend == "openvino"):
        if backend == "openvino":
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
        self.model, self._precision = model, precision
        self._tokenizer = PoolTokenizer(model.tokenizer, model.recipe.text)
        self._lock = Lock()
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
        settings = ["model", model.fingerprint, code, self.device, precision, system.tokens_per_batch]
        system = replace(system, precision=precision, model=None)
        super().__init__(system, "-".join(model.recipe.preset.split()), settings, description)

    @cached_property
    def _ranker_scorer(self) -> RankerScorer:
        """The scorer of pairs."""
        system, device = self.system, torch.device(self.device)
        return RankerScorer(
            self.model.ranker,
            device=device,
            precision=self._precision,
            tokens_per_batch=system.tokens_per_batch,
            cache_bytes=_default_cache(device) if system.cache_bytes is None else system.cache_bytes,
        )

    @override
    def prepare(self, pools: PoolBatch) -> Work:
        texts = self._tokenizer.tokenize(pools)
        with self._lock:  # one thread opens the scorer of pairs
            score = self._ranker_scorer.score
        return Work(partial(score, *texts), texts.answers.truncated)

    def score_texts(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        pair_question: np.ndarray,
        pair_answer: np.ndarray,
    ) -> np.ndarray:
        """(P,) float32 scores of pairs of distinct questions and answers."""
        tokenizer, limits = self.model.tokenizer, self.model.recipe.text
        question_tokens = tokenizer.encode(questions, limits.max_question_tokens)
        answer_tokens = tokenizer.encode(answers, limits.max_answer_tokens)
        return self._ranker_scorer.score(question_tokens, answer_tokens, pair_question, pair_answer)


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
    units: Sequence[Unit],
    answers: Answers | None = None,
) -> Precision:
    """Return the precision of encoding for units of pools, with the shared answers.

    ``auto`` is bf16 on a GPU with native bf16 support if bf16 and fp32 rank the first ``SAMPLE`` pools alike,
    else fp32. A CPU always uses fp32: encoding takes little of the time there, and results should not
    depend on the instruction set of the processor.
    """
    if requested != "auto":
        check_precision("--precision", requested, device)
        return requested
    if device.type != "cuda" or not has_tensor_cores(device) or not units:
        return "fp32"
    return "bf16" if same_rankings(model, device, read_pools(units[0], answers)) else "fp32"


def same_rankings(model: LoadedModel, device: torch.device, pools: PoolBatch) -> bool:
    """Whether bf16 and fp32 rank the candidates of each of the first ``SAMPLE`` pools alike."""
    sample = pools.head(min(SAMPLE, len(pools.question_ids)))
    texts = PoolTokenizer(model.tokenizer, model.recipe.text).tokenize(sample)
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    rankings = []
    for precision in precisions:
        scorer = RankerScorer(model.ranker, device=device, precision=precision)
        scores = scorer.score(texts.questions, texts.answers, texts.pair_question, texts.pair_answer)
        rankings.append(np.lexsort((-scores, texts.pair_question)))
    return bool((rankings[0] == rankings[1]).all())
