"""Pools as token ids, the input of a trained model; answers that pools share are tokenized once."""

from dataclasses import replace
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from aptool.config import TextOptions
from aptool.formats.pools import Answers, Pools
from aptool.text.tokenizer import TextTokenizer, Tokens, concatenated, truncate


class TokenizedPools(NamedTuple):
    """The pools of one row group as token ids."""

    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray  # (pairs,) into questions
    pair_answer: np.ndarray  # (pairs,) into answers
    cache_keys: np.ndarray  # (answers,) row of each in the shared answers; -1 for one that is not shared
    shared: str | None  # path of the shared answers


class PoolTokenizer:
    """Tokenizes pools as a model was trained, and remembers the token ids of shared answers."""

    def __init__(self, tokenizer: TextTokenizer, options: TextOptions) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._shared: _SharedTokens | None = None
        self._lock = Lock()  # several devices share what is known of shared answers

    def tokenize(self, pools: Pools) -> TokenizedPools:
        """Token ids of the distinct texts of pools, truncated at the model's limits."""
        questions = self._tokenizer.encode(pools.questions, self._options.max_question_tokens, "question")
        limit = self._options.max_answer_tokens
        if pools.shared is None:
            answers = self._tokenizer.encode(pools.answers, limit)
        else:
            with self._lock:
                if self._shared is None or self._shared.shared is not pools.shared:
                    self._shared = _SharedTokens(pools.shared, self._tokenizer, limit)
                answers = self._shared.tokens(pools)
        shared = pools.shared.path if pools.shared is not None else None
        return TokenizedPools(
            questions, answers, pools.pair_question, pools.pair_answer, pools.shared_rows, shared
        )


class _SharedTokens:
    """Token ids of shared answers, each tokenized when a pool first refers to it."""

    def __init__(self, shared: Answers, tokenizer: TextTokenizer, limit: int) -> None:
        self.shared = shared
        self._tokenizer = tokenizer
        self._limit = limit
        self._index = np.full(len(shared.texts), -1, dtype=np.int64)  # row of each answer in _known
        self._known = Tokens(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
        self._truncated = np.empty(0, dtype=bool)

    def tokens(self, pools: Pools) -> Tokens:
        """Token ids of the distinct answers of pools: those with their own text, then the shared ones."""
        rows = pools.shared_rows
        own = int((rows < 0).sum())
        new = np.flatnonzero(self._index[rows[own:]] < 0)
        if len(new):
            tokens, truncated = self._tokenize(pools.answers.slice(own).take(pa.array(new)))
            self._index[rows[own:][new]] = len(self._known) + np.arange(len(new))
            self._known = concatenated([self._known, tokens])
            self._truncated = np.concatenate([self._truncated, truncated])
        own_tokens, own_truncated = self._tokenize(pools.answers.slice(0, own))
        index = self._index[rows[own:]]
        tokens = concatenated([own_tokens, self._known.take(index)])
        return replace(tokens, truncated=int(own_truncated.sum() + self._truncated[index].sum()))

    def _tokenize(self, texts: pa.Array) -> tuple[Tokens, np.ndarray]:
        """Token ids of texts, and which of the texts were truncated."""
        whole = self._tokenizer.encode(texts)
        return truncate(whole, self._limit, self._tokenizer.suffix_length), whole.lengths > self._limit
