"""From a system, the description of a model or baseline, to an open scorer; BM25 and random scores."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from typing_extensions import override

from aptool.data.pools import Answers, PoolBatch, Unit, read_pools
from aptool.progress import progress
from aptool.text.bm25 import BM25, K1, B, WordCounts
from aptool.text.words import unicode_words

# Counts further pairs that are scored.
Count: TypeAlias = Callable[[int], object]

# Names of the untrained systems.
BASELINES = ("bm25", "random")


def baseline(name: str, *, seed: int = 0) -> "System":
    """Return the untrained system with a name; ``seed`` is that of random scores."""
    return RandomScores(seed) if name == "random" else Bm25()


@dataclass(frozen=True)
class System(ABC):
    """A description of something that scores pools: hashable, and small enough to send to workers."""

    has_network: ClassVar[bool] = False  # its scorer computes with PyTorch, on any device

    @abstractmethod
    def open(
        self, units: Sequence[Unit] = (), answers: Answers | None = None, device: str | None = None
    ) -> "Scorer":
        """Open the system in this process.

        Args:
            units: the units to score; some settings depend on them.
            answers: the shared answers of the pools.
            device: a device that exists; None is that of the description.
        """


class Work(NamedTuple):
    """Pools that are ready to be scored."""

    score: Callable[..., np.ndarray]  # of a ``Count``; (P,) float32 scores, in the order of the pools
    truncated: int = 0  # answers truncated at the model's limit


class Scorer:
    """An open system. A subclass has its own ``score``, or a ``prepare`` that returns other work."""

    max_answer_tokens: int | None = None  # longer answers are truncated
    device: str = "cpu"

    def __init__(
        self, system: System, tag: str, settings: Sequence[Any], description: Mapping[str, Any]
    ) -> None:
        """Set what identifies a scorer.

        Args:
            system: the description that opens an equal scorer without the pools.
            tag: default tag of its runs, one word.
            settings: JSON values on which the scores depend.
            description: ``name`` and settings, for the metadata of a run.
        """
        self.system = system
        self.tag = tag
        self.fingerprint = json.dumps(settings, sort_keys=True)  # differs if scores may differ
        self.description = dict(description)

    def prepare(self, pools: PoolBatch) -> Work:
        """Prepare pools, such as tokenize them, without an accelerator."""
        return Work(partial(self.score, pools))

    def score(self, pools: PoolBatch, count: Count = lambda pairs: None) -> np.ndarray:
        """Return (P,) float32 scores of all pairs; call ``count`` with the number of pairs of each block."""
        raise NotImplementedError(type(self).__name__)


@dataclass(frozen=True)
class RandomScores(System):
    """Random scores that depend only on the seed and the two ids."""

    seed: int = 0

    @override
    def open(
        self, units: Sequence[Unit] = (), answers: Answers | None = None, device: str | None = None
    ) -> "RandomScorer":
        return RandomScorer(self)


class RandomScorer(Scorer):
    """The scorer of ``RandomScores``."""

    def __init__(self, system: RandomScores) -> None:
        self._seed = system.seed
        description = {"name": "random scores", "seed": self._seed}
        super().__init__(system, "random", ["random", self._seed], description)

    @override
    def score(self, pools: PoolBatch, count: Count = lambda pairs: None) -> np.ndarray:
        questions, answers = pools.question_ids.to_pylist(), pools.answer_ids.to_pylist()
        pairs = zip(pools.pair_question.tolist(), answers, strict=True)
        scores = np.array([self._number(questions[q], answer) for q, answer in pairs], dtype=np.float32)
        count(len(scores))
        return scores

    def _number(self, question_id: str, answer_id: str) -> float:
        digest = hashlib.blake2b(f"{self._seed}\t{question_id}\t{answer_id}".encode(), digest_size=3).digest()
        return int.from_bytes(digest, "big") / 2**24  # 24 bits: exact in float32


@dataclass(frozen=True)
class Bm25(System):
    """BM25, by default with the document frequencies of the distinct answers of the pools."""

    counts: WordCounts | None = None

    @override
    def open(
        self, units: Sequence[Unit] = (), answers: Answers | None = None, device: str | None = None
    ) -> "Bm25Scorer":
        return Bm25Scorer(self.counts if self.counts is not None else _count_words(units, answers))


class Bm25Scorer(Scorer):
    """The scorer of ``Bm25``."""

    def __init__(self, counts: WordCounts) -> None:
        self._counts = counts
        description = {"name": "BM25", "k1": K1, "b": B, "documents": counts.documents}
        super().__init__(Bm25(counts), "bm25", ["bm25", counts.fingerprint], description)

    @override
    def score(self, pools: PoolBatch, count: Count = lambda pairs: None) -> np.ndarray:
        queries = pools.questions.to_pylist()
        known = self._counts.frequencies
        asked = {word: known[word] for query in queries for word in unicode_words(query) if word in known}
        index = BM25(pools.answers.to_pylist(), replace(self._counts, frequencies=asked))
        scores = np.zeros(len(pools.pair_answer), dtype=np.float32)
        for query, begin, end in zip(queries, pools.offsets[:-1], pools.offsets[1:], strict=True):
            scores[begin:end] = index.scores(query)[pools.pair_answer[begin:end]]
            count(int(end - begin))
        return scores


def _count_words(units: Sequence[Unit], answers: Answers | None) -> WordCounts:
    """Count over the distinct answers of pools; keep the frequencies of the words of questions."""
    query_words: set[str] = set()

    def texts() -> Iterator[str]:
        with progress("document frequencies", len(units), "units") as bar:
            for unit in units:
                pools = read_pools(unit, answers)
                query_words.update(*map(unicode_words, pools.questions.to_pylist()))
                yield from pools.answers.to_pylist()
                bar.update(1)

    counts = WordCounts.of(texts())
    kept = {word: number for word, number in counts.frequencies.items() if word in query_words}
    return replace(counts, frequencies=kept)
