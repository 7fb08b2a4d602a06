"""The systems that can score pools: a trained model, and the two baselines that need no training."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from aptool.formats.pools import Answers, Pools
from aptool.models.model import Model, load_model
from aptool.scoring.scorer import Precision, Scorer
from aptool.text.bm25 import BM25
from aptool.text.tokenizer import TextTokenizer, Tokens, concatenated, truncate

# Pools on which an encoding precision is tried.
SAMPLE = 50

# The most memory that encoded answers are kept in: InsuranceQA's 25,000 at 400 features take 3.9 GB.
STORE_BYTES = 4 << 30


class System(ABC):
    """Whatever gives every pair of some pools a score, in two steps that different machines may take."""

    fingerprint: str  # two systems that could score differently differ here
    tag: str  # the tag of its runs where none is given: one word
    max_answer_tokens: int | None = None  # where longer answers are truncated

    def prepare(self, pools: Pools) -> Any:
        """What ``score`` needs of pools, made with little memory and without an accelerator."""
        return pools

    @abstractmethod
    def score(self, prepared: Any) -> np.ndarray:
        """(pairs,) float32 finite scores of all pairs, in the order of the pools."""

    def truncated(self, prepared: Any) -> int:
        """How many answers were cut, being longer than the system takes."""
        return 0


class TokenizedPools(NamedTuple):
    """Pools as token ids: what a model scores."""

    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray  # (pairs,) into questions
    pair_answer: np.ndarray  # (pairs,) into answers
    names: np.ndarray  # (answers,) row of each in the shared answers; -1 for one that is not shared
    source: str | None  # the file of the shared answers


class ModelSystem(System):
    """A trained ranker over pools of texts."""

    def __init__(
        self,
        model: Model,
        device: torch.device | str = "cpu",
        *,
        precision: Precision = "fp32",
        tokens_per_batch: int | None = None,
        store_bytes: int | None = None,
    ) -> None:
        """A system around a model.

        Args:
            model: the model, on the device.
            device: what to score on.
            precision: what texts are encoded in.
            tokens_per_batch: tokens encoded at one time; None is a good number for the device.
            store_bytes: memory for encoded answers that pools share; None is a quarter of what there is, at
                most ``STORE_BYTES``.
        """
        self._model = model
        self._device = torch.device(device)
        self._precision = precision
        self._tokens_per_batch = tokens_per_batch
        self._store_bytes = store_bytes
        self.fingerprint = fingerprint(model.fingerprint, device, precision, tokens_per_batch)
        self.tag = "-".join(model.recipe.preset.split())
        self.max_answer_tokens = model.recipe.text.max_answer_tokens
        self._shared: SharedTokens | None = None
        self._source: str | None = None

    @cached_property
    def _scorer(self) -> Scorer:
        """Made when it is first needed: who only prepares has no use for it."""
        return Scorer(
            self._model.ranker,
            device=self._device,
            precision=self._precision,
            tokens_per_batch=self._tokens_per_batch,
            store_bytes=_room(self._device) if self._store_bytes is None else self._store_bytes,
        )

    def prepare(self, pools: Pools) -> TokenizedPools:
        """See ``System.prepare``. Texts that pools share are tokenised once for all units."""
        options, tokenizer = self._model.recipe.text, self._model.tokenizer
        questions = tokenizer.encode(pools.questions, options.max_question_tokens)
        if pools.shared is None:
            answers = tokenizer.encode(pools.answers, options.max_answer_tokens)
        else:
            if self._shared is None or self._shared.source is not pools.shared:
                self._shared = SharedTokens(pools.shared, tokenizer, options.max_answer_tokens)
            answers = self._shared.tokens(pools)
        source = pools.shared.path if pools.shared is not None else None
        return TokenizedPools(
            questions, answers, pools.pair_question, pools.pair_answer, pools.shared_rows, source
        )

    def score(self, prepared: TokenizedPools) -> np.ndarray:
        """See ``System.score``."""
        if prepared.source != self._source:
            self._scorer.forget()
            self._source = prepared.source
        return self._scorer.score(*prepared[:5])

    def truncated(self, prepared: TokenizedPools) -> int:
        """See ``System.truncated``."""
        return prepared.answers.truncated


def fingerprint(
    model: str, device: torch.device | str, precision: Precision, tokens_per_batch: int | None
) -> str:
    """The fingerprint of a ``ModelSystem``, told without making one, by that of its model."""
    return json.dumps(["model", model, str(torch.device(device)), precision, tokens_per_batch])


@dataclass(frozen=True)
class ModelLoader:
    """A trained model by its folder, and how it is to score; whoever scores loads it.

    Attributes:
        folder: of the model.
        device: ``auto``, ``cpu``, ``cuda`` or one such as ``cuda:1``.
        precision: see ``pick_precision``.
        tokens_per_batch: see ``ModelSystem``.
        store_bytes: see ``ModelSystem``.
    """

    folder: str
    device: str = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    tokens_per_batch: int | None = None
    store_bytes: int | None = None

    def load(self, device: torch.device | str, sample: Callable[[], Pools]) -> ModelSystem:
        """Loads the model on a device.

        Args:
            device: where it will score.
            sample: reads some of what is to be scored; see ``pick_precision``.

        Raises:
            AptoolError: the folder is not there, or is not a whole model.
        """
        place = torch.device(device)
        model = load_model(self.folder, place)
        return ModelSystem(
            model,
            place,
            precision=pick_precision(self.precision, model, place, sample),
            tokens_per_batch=self.tokens_per_batch,
            store_bytes=self.store_bytes,
        )


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


class SharedTokens:
    """Token ids of answers that pools share, each tokenised when it is first asked for."""

    def __init__(self, source: Answers, tokenizer: TextTokenizer, limit: int) -> None:
        self.source = source
        self._tokenizer = tokenizer
        self._limit = limit
        self._place = np.full(len(source.texts), -1, dtype=np.int64)  # of each answer in _known
        self._known = Tokens(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
        self._cut = np.empty(0, dtype=bool)

    def tokens(self, pools: Pools) -> Tokens:
        """Token ids of the distinct answers of pools that look up texts in ``source``."""
        rows = pools.shared_rows
        own = int((rows < 0).sum())
        new = np.flatnonzero(self._place[rows[own:]] < 0)
        if len(new):
            made, cut = self._made(pools.answers.slice(own).take(pa.array(new)))
            self._place[rows[own:][new]] = len(self._known) + np.arange(len(new))
            self._known = concatenated([self._known, made])
            self._cut = np.concatenate([self._cut, cut])
        mine, mine_cut = self._made(pools.answers.slice(0, own))
        places = self._place[rows[own:]]
        both = concatenated([mine, self._known.take(places)])
        return replace(both, truncated=int(mine_cut.sum() + self._cut[places].sum()))

    def _made(self, texts: pa.Array) -> tuple[Tokens, np.ndarray]:
        """Token ids, and which of the texts were cut."""
        whole = self._tokenizer.encode(texts)
        return truncate(whole, self._limit, self._tokenizer.tail), whole.lengths > self._limit


def _room(device: torch.device) -> int:
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        return min(STORE_BYTES, free // 4)
    return min(STORE_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)


class RandomSystem(System):
    """Scores that depend on nothing but a seed and the two ids: what ranking without reading gets."""

    tag = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.fingerprint = json.dumps(["random", seed])

    def score(self, prepared: Pools) -> np.ndarray:
        """See ``System.score``."""
        pools = prepared
        questions = [pools.question_ids[int(i)].as_py() for i in range(len(pools.question_ids))]
        answers = pools.answer_ids.to_pylist()
        pairs = zip(pools.pair_question.tolist(), answers, strict=True)
        return np.array([self._number(questions[q], answer) for q, answer in pairs], dtype=np.float32)

    def _number(self, question_id: str, answer_id: str) -> float:
        digest = hashlib.blake2b(f"{self._seed}\t{question_id}\t{answer_id}".encode(), digest_size=3).digest()
        return int.from_bytes(digest, "big") / 2**24  # 24 bits: exact in float32


class Bm25System(System):
    """BM25 of the question's words in the answer, with document frequencies over all answers given."""

    tag = "bm25"

    def __init__(self, answers: Sequence[str]) -> None:
        self._rows = {text: row for row, text in enumerate(dict.fromkeys(answers))}
        self._index = BM25(list(self._rows))
        corpus = hashlib.sha256("\0".join(self._rows).encode()).hexdigest()
        self.fingerprint = json.dumps(["bm25", corpus[:16]])

    def score(self, prepared: Pools) -> np.ndarray:
        """See ``System.score``."""
        pools = prepared
        rows = np.array([self._rows[text] for text in pools.answers.to_pylist()])
        documents = rows[pools.pair_answer]
        return self._index.score_pairs(pools.questions.to_pylist(), pools.pair_question, documents)
