"""The systems that can score pools: a trained model, and the two baselines that need no training."""

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import torch

from aptool.errors import UsageError
from aptool.formats.pools import Pools
from aptool.models.checkpoint import Model
from aptool.scoring.scorer import Scorer
from aptool.scoring.shards import System
from aptool.text.bm25 import BM25


class ModelSystem(System):
    """A trained ranker over pools of texts."""

    def __init__(self, model: Model, device: torch.device | str = "cpu") -> None:
        self._model = model
        self._scorer = Scorer(model.ranker, device=device)
        self.fingerprint = json.dumps(["model", model.fingerprint, str(torch.device(device))])
        self.name = model.recipe.preset
        self.max_answer_tokens = model.recipe.text.max_answer_tokens
        self.truncated = 0  # answers cut at that limit so far

    def score(self, pools: Pools) -> np.ndarray:
        """See ``System.score``."""
        options, tokenizer = self._model.recipe.text, self._model.tokenizer
        questions = tokenizer.encode(pools.questions, options.max_question_tokens)
        answers = tokenizer.encode(pools.answers, options.max_answer_tokens)
        self.truncated += answers.truncated
        return self._scorer.score(questions, answers, pools.pair_question, pools.pair_answer)


def pick_device(name: str) -> torch.device:
    """The device of a name; ``auto`` is a GPU where there is one.

    Raises:
        UsageError: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"--device {name!r}: {reason}: expected auto, cpu or a GPU such as cuda") from error
    return device


class RandomSystem(System):
    """Scores that depend on nothing but a seed and the two ids: what ranking without reading gets."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.fingerprint = json.dumps(["random", seed])

    def score(self, pools: Pools) -> np.ndarray:
        """See ``System.score``."""
        questions = [pools.question_ids[int(i)].as_py() for i in range(len(pools.question_ids))]
        answers = pools.answer_ids.to_pylist()
        pairs = zip(pools.pair_question.tolist(), answers, strict=True)
        return np.array([self._number(questions[q], answer) for q, answer in pairs], dtype=np.float32)

    def _number(self, question_id: str, answer_id: str) -> float:
        digest = hashlib.blake2b(f"{self._seed}\t{question_id}\t{answer_id}".encode(), digest_size=3).digest()
        return int.from_bytes(digest, "big") / 2**24  # 24 bits: exact in float32


class Bm25System(System):
    """BM25 of the question's words in the answer, with document frequencies over all answers given."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._rows = {text: row for row, text in enumerate(dict.fromkeys(answers))}
        self._index = BM25(list(self._rows))
        corpus = hashlib.sha256("\0".join(self._rows).encode()).hexdigest()
        self.fingerprint = json.dumps(["bm25", corpus[:16]])

    def score(self, pools: Pools) -> np.ndarray:
        """See ``System.score``."""
        rows = np.array([self._rows[text] for text in pools.answers.to_pylist()])
        documents = rows[pools.pair_answer]
        return self._index.score_pairs(pools.questions.to_pylist(), pools.pair_question, documents)
