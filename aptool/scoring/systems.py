"""Systems that score pools: their interface, and the untrained baselines random scores and BM25."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from aptool.formats.pools import Answers, PoolBatch, Unit, read_pools
from aptool.progress import get_progress
from aptool.text.bm25 import K1, B, PostingsBuilder, WeightedPostings, inverse_document_frequency
from aptool.text.words import code_of_splitter, word_splitter

# Names of the untrained systems.
BASELINES = ("bm25", "random")


class System:
    """Scores all pairs of pools in two steps, which may run on different machines.

    A system implements ``score`` or ``score_reporting``.
    """

    fingerprint: str  # systems whose scores may differ have different fingerprints
    tag: str  # default tag of its runs, one word
    max_answer_tokens: int | None = None  # longer answers are truncated
    scored_texts: str = "answers"  # the noun of the texts that are truncated, for messages

    def prepare(self, pools: PoolBatch) -> Any:
        """Return the input of ``score``; uses little memory and no accelerator."""
        return pools

    def score(self, prepared: Any) -> np.ndarray:
        """Return the (pairs,) finite float32 scores of all pairs, in the order of the pools."""
        return self.score_reporting(prepared, lambda pairs: None)

    def score_reporting(self, prepared: Any, scored: Callable[[int], None]) -> np.ndarray:
        """Return the scores of ``score``; call ``scored`` with the number of pairs of each block, if any."""
        return self.score(prepared)

    def is_joinable(self, prepared: Any) -> bool:
        """Whether ``join`` accepts this input: its scores do not depend on the pairs scored together."""
        return False

    def join(self, prepared: Sequence[Any]) -> Any:
        """Join inputs of ``score``; the scores follow each other. Shared answers then take less work."""
        raise NotImplementedError

    def copies(self, most: int) -> "list[System]":
        """Return this system, then its copies on further devices: at most ``most`` systems."""
        return [self]

    def truncated(self, prepared: Any) -> int:
        """Return the number of truncated answers."""
        return 0

    def describe(self) -> dict[str, Any]:
        """Return ``name`` and the settings of the system, as plain values."""
        return {"name": self.tag}


class RandomSystem(System):
    """Random scores that depend only on the seed and the two ids."""

    tag = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.fingerprint = json.dumps(["random", seed])

    @override
    def score(self, prepared: PoolBatch) -> np.ndarray:
        questions = prepared.question_ids.to_pylist()
        answers = prepared.answer_ids.to_pylist()
        pairs = zip(prepared.pair_question.tolist(), answers, strict=True)
        return np.array([self._number(questions[q], answer) for q, answer in pairs], dtype=np.float32)

    @override
    def describe(self) -> dict[str, Any]:
        return {"name": "random scores", "seed": self._seed}

    def _number(self, question_id: str, answer_id: str) -> float:
        digest = hashlib.blake2b(f"{self._seed}\t{question_id}\t{answer_id}".encode(), digest_size=3).digest()
        return int.from_bytes(digest, "big") / 2**24  # 24 bits: exact in float32


class Bm25System(System):
    """BM25 with the document frequencies of a corpus; small enough to be sent to other processes."""

    tag = "bm25"

    def __init__(self, corpus: Iterable[str], words: str = "unicode") -> None:
        """Count the documents of each word, among the distinct texts of a corpus; see `word_splitter`."""
        self._words, split = words, word_splitter(words)
        self._documents = self._length = 0
        self._frequencies: Counter[str] = Counter()
        seen: set[bytes] = set()
        for text in corpus:
            key = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if key in seen:
                continue
            seen.add(key)
            document = split(text)
            self._documents += 1
            self._length += len(document)
            self._frequencies.update(set(document))
        counts = [self._documents, self._length, sorted(self._frequencies.items())]
        self._digest = hashlib.sha256(json.dumps(counts).encode()).hexdigest()[:16]
        self._set_fingerprint()

    def _set_fingerprint(self) -> None:
        self.fingerprint = json.dumps(["bm25", self._digest, self._words, code_of_splitter(self._words)])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; another process may have other code of the word splitter."""
        self.__dict__.update(state)
        self._set_fingerprint()

    @classmethod
    def of(cls, units: Sequence[Unit], answers: Answers | None, words: str = "unicode") -> "Bm25System":
        """Use the distinct answers of pools as the corpus; ``words`` as for `word_splitter`."""
        query_words: set[str] = set()
        split = word_splitter(words)

        def texts() -> Iterator[str]:
            with get_progress().task("document frequencies") as update:
                for number, unit in enumerate(units):
                    update(number, len(units), "row groups")
                    pools = read_pools(unit, answers)
                    query_words.update(
                        word for question in pools.questions.to_pylist() for word in split(question)
                    )
                    yield from pools.answers.to_pylist()

        system = cls(texts(), words)
        # Only words of the questions affect scores; the others would take memory.
        system._frequencies = Counter({w: n for w, n in system._frequencies.items() if w in query_words})
        return system

    @override
    def describe(self) -> dict[str, Any]:
        described = {"name": "BM25", "k1": K1, "b": B, "documents": self._documents}
        return {**described, **({"words": self._words} if self._words != "unicode" else {})}

    @override
    def score(self, prepared: PoolBatch) -> np.ndarray:
        split = word_splitter(self._words)
        queries = [split(question) for question in prepared.questions.to_pylist()]
        vocabulary_words = {word for query in queries for word in query if word in self._frequencies}
        vocabulary = {word: number for number, word in enumerate(sorted(vocabulary_words))}
        builder = PostingsBuilder()
        for text in prepared.answers.to_pylist():
            document = split(text)
            builder.add([vocabulary[word] for word in document if word in vocabulary], len(document))
        frequencies = np.array([self._frequencies[word] for word in vocabulary], dtype=np.int64)
        idf = inverse_document_frequency(frequencies, self._documents)
        mean_length = self._length / max(self._documents, 1)
        weighted = WeightedPostings(builder.build(len(vocabulary)), idf, mean_length)
        scores = np.zeros(len(prepared.pair_answer), dtype=np.float32)
        for query, begin, end in zip(queries, prepared.offsets[:-1], prepared.offsets[1:], strict=True):
            numbers = [vocabulary[word] for word in query if word in vocabulary]
            scores[begin:end] = weighted.scores(numbers)[prepared.pair_answer[begin:end]]
        return scores


@dataclass(frozen=True)
class BaselineLoader:
    """The name of an untrained system, to be created when the pools are known."""

    name: str  # one of ``BASELINES``
    seed: int = 0  # of random scores
    words: str = "unicode"  # of BM25, as for ``word_splitter``

    def load(self, units: Sequence[Unit], answers: Answers | None) -> System:
        """Create the system for these row groups and shared answers."""
        if self.name == "bm25":
            return Bm25System.of(units, answers, self.words)
        return RandomSystem(self.seed)
