"""From a system, the description of a model or baseline, to an open scorer; BM25 and random scores."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from typing_extensions import override

from aptool.arguments import check_choice
from aptool.data.pools import Answers, PoolBatch, Unit, read_pools
from aptool.progress import progress
from aptool.text.bm25 import K1, B, PostingsBuilder, WeightedPostings, inverse_document_frequency
from aptool.text.words import SPLITTERS

# Names of the untrained systems.
BASELINES = ("bm25", "random")


def baseline(name: str, *, seed: int = 0, words: str = "unicode") -> "System":
    """Return the untrained system with a name; ``seed`` is that of random scores, ``words`` those of BM25."""
    if name == "random":
        return RandomScores(seed)
    return Bm25(check_choice("words", words, list(SPLITTERS)))


@dataclass(frozen=True)
class System(ABC):
    """A description of something that scores pools: hashable, and small enough to send to workers."""

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

    @property
    def paths(self) -> tuple[str, ...]:
        """The files and folders that ``open`` reads."""
        return ()


class Scorer(ABC):
    """An open system. It scores pools in two steps, of which the first uses no accelerator."""

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

    def prepare(self, pools: PoolBatch) -> Any:
        """Return the input of ``score``."""
        return pools

    @abstractmethod
    def score(self, inputs: Any, progress: Callable[[int], None] = lambda pairs: None) -> np.ndarray:
        """Return (P,) float32 scores of all pairs, in the order of the pools.

        ``progress`` is called with the number of pairs of each scored block, if there are blocks.
        """

    def truncated(self, inputs: Any) -> int:
        """Return the number of truncated answers."""
        return 0


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
    def score(self, inputs: PoolBatch, progress: Callable[[int], None] = lambda pairs: None) -> np.ndarray:
        questions = inputs.question_ids.to_pylist()
        answers = inputs.answer_ids.to_pylist()
        pairs = zip(inputs.pair_question.tolist(), answers, strict=True)
        return np.array([self._number(questions[q], answer) for q, answer in pairs], dtype=np.float32)

    def _number(self, question_id: str, answer_id: str) -> float:
        digest = hashlib.blake2b(f"{self._seed}\t{question_id}\t{answer_id}".encode(), digest_size=3).digest()
        return int.from_bytes(digest, "big") / 2**24  # 24 bits: exact in float32


@dataclass(frozen=True)
class WordCounts:
    """The document frequencies of a corpus."""

    documents: int
    words: int
    fingerprint: str  # of the frequencies of all words
    # Only words of the questions affect scores; the others would take memory.
    frequencies: Mapping[str, int] = field(compare=False, repr=False)

    @classmethod
    def of(cls, corpus: Iterable[str], split: Callable[[str], list[str]]) -> "WordCounts":
        """Count the documents of each word, among the distinct texts of a corpus."""
        documents = words = 0
        frequencies: Counter[str] = Counter()
        seen: set[bytes] = set()
        for text in corpus:
            key = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if key in seen:
                continue
            seen.add(key)
            document = split(text)
            documents += 1
            words += len(document)
            frequencies.update(set(document))
        counts = [documents, words, sorted(frequencies.items())]
        digest = hashlib.sha256(json.dumps(counts).encode()).hexdigest()[:16]
        return cls(documents, words, digest, frequencies)

    @classmethod
    def of_pools(cls, units: Sequence[Unit], answers: Answers | None, words: str) -> "WordCounts":
        """Count over the distinct answers of pools; keep the frequencies of the words of questions."""
        query_words: set[str] = set()
        split = SPLITTERS[words]

        def texts() -> Iterator[str]:
            with progress("document frequencies", len(units), "units") as bar:
                for unit in units:
                    pools = read_pools(unit, answers)
                    query_words.update(
                        word for question in pools.questions.to_pylist() for word in split(question)
                    )
                    yield from pools.answers.to_pylist()
                    bar.update(1)

        counts = cls.of(texts(), split)
        kept = {word: number for word, number in counts.frequencies.items() if word in query_words}
        return replace(counts, frequencies=kept)


@dataclass(frozen=True)
class Bm25(System):
    """BM25; ``words`` is a key of `SPLITTERS`."""

    words: str = "unicode"
    counts: WordCounts | None = None  # None counts over the answers of the pools

    @override
    def open(
        self, units: Sequence[Unit] = (), answers: Answers | None = None, device: str | None = None
    ) -> "Bm25Scorer":
        counts = self.counts
        if counts is None:
            counts = WordCounts.of_pools(units, answers, self.words)
        return Bm25Scorer(replace(self, counts=counts), counts)


class Bm25Scorer(Scorer):
    """The scorer of ``Bm25``."""

    def __init__(self, system: Bm25, counts: WordCounts) -> None:
        self._words, self._counts = system.words, counts
        description: dict[str, Any] = {"name": "BM25", "k1": K1, "b": B, "documents": counts.documents}
        if system.words != "unicode":
            description["words"] = system.words
        settings = ["bm25", counts.fingerprint, system.words]
        super().__init__(system, "bm25", settings, description)

    @override
    def score(self, inputs: PoolBatch, progress: Callable[[int], None] = lambda pairs: None) -> np.ndarray:
        split, counts = SPLITTERS[self._words], self._counts
        queries = [split(question) for question in inputs.questions.to_pylist()]
        vocabulary_words = {word for query in queries for word in query if word in counts.frequencies}
        vocabulary = {word: number for number, word in enumerate(sorted(vocabulary_words))}
        builder = PostingsBuilder()
        for text in inputs.answers.to_pylist():
            document = split(text)
            builder.add([vocabulary[word] for word in document if word in vocabulary], len(document))
        frequencies = np.array([counts.frequencies[word] for word in vocabulary], dtype=np.int64)
        idf = inverse_document_frequency(frequencies, counts.documents)
        mean_length = counts.words / max(counts.documents, 1)
        weighted = WeightedPostings(builder.build(len(vocabulary)), idf, mean_length)
        scores = np.zeros(len(inputs.pair_answer), dtype=np.float32)
        for query, begin, end in zip(queries, inputs.offsets[:-1], inputs.offsets[1:], strict=True):
            numbers = [vocabulary[word] for word in query if word in vocabulary]
            scores[begin:end] = weighted.scores(numbers)[inputs.pair_answer[begin:end]]
        return scores
