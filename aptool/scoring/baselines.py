"""Untrained systems to compare trained ones with: random scores and BM25."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aptool.formats.pools import Answers, PoolBatch, Unit, read_pools
from aptool.progress import get_progress
from aptool.scoring.systems import System
from aptool.text.bm25 import K1, B, PostingsBuilder, WeightedPostings, inverse_document_frequency, words


class RandomSystem(System):
    """Scores that depend only on a seed and the two ids: the level of chance."""

    tag = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.fingerprint = json.dumps(["random", seed])

    def score(self, prepared: PoolBatch) -> np.ndarray:
        """See ``System.score``."""
        pools = prepared
        questions = pools.question_ids.to_pylist()
        answers = pools.answer_ids.to_pylist()
        pairs = zip(pools.pair_question.tolist(), answers, strict=True)
        return np.array([self._number(questions[q], answer) for q, answer in pairs], dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        """See ``System.describe``."""
        return {"name": "random scores", "seed": self._seed}

    def _number(self, question_id: str, answer_id: str) -> float:
        digest = hashlib.blake2b(f"{self._seed}\t{question_id}\t{answer_id}".encode(), digest_size=3).digest()
        return int.from_bytes(digest, "big") / 2**24  # 24 bits: exact in float32


class Bm25System(System):
    """BM25 of each candidate for its question; document frequencies are those of a given corpus.

    Only the statistics of the corpus are kept, so that other processes can score with them.
    """

    tag = "bm25"

    def __init__(self, corpus: Iterable[str]) -> None:
        """Counts the words of a corpus.

        Args:
            corpus: the texts of all answers that will be scored; repeated texts count once.
        """
        self._documents = self._length = 0
        self._frequencies: Counter[str] = Counter()
        seen: set[bytes] = set()
        for text in corpus:
            digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if digest in seen:
                continue
            seen.add(digest)
            found = words(text)
            self._documents += 1
            self._length += len(found)
            self._frequencies.update(set(found))
        counts = [self._documents, self._length, sorted(self._frequencies.items())]
        self.fingerprint = json.dumps(["bm25", hashlib.sha256(json.dumps(counts).encode()).hexdigest()[:16]])

    @classmethod
    def of(cls, units: Sequence[Unit], answers: Answers | None) -> "Bm25System":
        """BM25 whose corpus is the distinct answers of some pools.

        Args:
            units: the row groups of the pools.
            answers: the shared answers; None if the pools have their own texts.

        Raises:
            InputError: a file cannot be read.
        """
        asked: set[str] = set()

        def texts() -> Iterator[str]:
            with get_progress().task("document frequencies") as update:
                for number, unit in enumerate(units):
                    update(number, len(units), "row groups")
                    pools = read_pools(unit, answers)
                    asked.update(word for question in pools.questions.to_pylist() for word in words(question))
                    yield from pools.answers.to_pylist()

        system = cls(texts())
        # Other words add nothing to a score; without them a cluster's workers are sent little.
        system._frequencies = Counter({w: n for w, n in system._frequencies.items() if w in asked})
        return system

    def describe(self) -> dict[str, Any]:
        """See ``System.describe``."""
        return {"name": "BM25", "k1": K1, "b": B, "documents": self._documents}

    def score(self, prepared: PoolBatch) -> np.ndarray:
        """See ``System.score``."""
        pools = prepared
        queries = [words(question) for question in pools.questions.to_pylist()]
        known = {word for query in queries for word in query if word in self._frequencies}
        vocabulary = {word: number for number, word in enumerate(sorted(known))}
        builder = PostingsBuilder()
        for text in pools.answers.to_pylist():
            document = words(text)
            builder.add([vocabulary[word] for word in document if word in vocabulary], len(document))
        frequencies = np.array([self._frequencies[word] for word in vocabulary], dtype=np.int64)
        idf = inverse_document_frequency(frequencies, self._documents)
        mean_length = self._length / max(self._documents, 1)
        weighted = WeightedPostings(builder.build(len(vocabulary)), idf, mean_length)
        scores = np.zeros(len(pools.pair_answer), dtype=np.float32)
        for query, begin, end in zip(queries, pools.offsets[:-1], pools.offsets[1:], strict=True):
            numbers = [vocabulary[word] for word in query if word in vocabulary]
            scores[begin:end] = weighted.scores(numbers)[pools.pair_answer[begin:end]]
        return scores


# The untrained systems by name, in commands, the library and experiment matrices alike: each made from a
# seed, the row groups to score and the shared answers.
BASELINES: dict[str, Callable[[int, Sequence[Unit], Answers | None], System]] = {
    "bm25": lambda seed, units, answers: Bm25System.of(units, answers),
    "random": lambda seed, units, answers: RandomSystem(seed),
}


@dataclass(frozen=True)
class BaselineLoader:
    """An untrained system before it has seen the pools.

    Attributes:
        name: one of ``BASELINES``.
        seed: of random scores.
    """

    name: str
    seed: int = 0

    def load(self, units: Sequence[Unit], answers: Answers | None) -> System:
        """The system for these row groups and shared answers.

        Raises:
            InputError: a file cannot be read.
        """
        return BASELINES[self.name](self.seed, units, answers)
