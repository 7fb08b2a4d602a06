"""Two untrained systems to compare trained ones with: random scores and BM25."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from aptool.formats.location import PathOrUrl
from aptool.formats.pools import Pools, Unit, read_answers, read_pools
from aptool.scoring.systems import System
from aptool.text.bm25 import BM25
from aptool.text.postings import K1, B


class RandomSystem(System):
    """Scores that depend only on a seed and the two ids: the level of chance."""

    tag = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.fingerprint = json.dumps(["random", seed])

    def score(self, prepared: Pools) -> np.ndarray:
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
    """BM25 of each candidate for its question; document frequencies are those of a given corpus."""

    tag = "bm25"

    def __init__(self, corpus: Sequence[str]) -> None:
        """Builds the index.

        Args:
            corpus: the texts of all answers that will be scored; repeated texts count once.
        """
        self._rows = {text: row for row, text in enumerate(dict.fromkeys(corpus))}
        self._index = BM25(list(self._rows))
        digest = hashlib.sha256("\0".join(self._rows).encode()).hexdigest()
        self.fingerprint = json.dumps(["bm25", digest[:16]])

    def describe(self) -> dict[str, Any]:
        """See ``System.describe``."""
        return {"name": "BM25", "k1": K1, "b": B, "documents": len(self._rows)}

    @classmethod
    def of(cls, units: Sequence[Unit], answers: PathOrUrl | None) -> "Bm25System":
        """BM25 whose corpus is the answers of some pools.

        Args:
            units: the row groups of the pools.
            answers: the file with the texts of shared answers; None if they have their own.

        Raises:
            InputError: a file cannot be read.
        """
        shared = read_answers(answers) if answers is not None else None
        return cls([text for unit in units for text in read_pools(unit, shared).answers.to_pylist()])

    def score(self, prepared: Pools) -> np.ndarray:
        """See ``System.score``."""
        pools = prepared
        rows = np.array([self._rows[text] for text in pools.answers.to_pylist()])
        documents = rows[pools.pair_answer]
        return self._index.score_pairs(pools.questions.to_pylist(), pools.pair_question, documents)
