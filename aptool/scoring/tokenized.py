"""Pools as token ids, and the cache of encoded answers; repeated texts are tokenized and encoded once."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from torch import Tensor

from aptool.config import TextOptions
from aptool.formats.pools import Answers, PoolBatch
from aptool.formats.shared_texts import text_hash
from aptool.scoring.answer_store import text_keys
from aptool.text.tokenizer import TextTokenizer, Tokens, concatenated, truncate

# Unshared texts are kept on first sight up to this many bytes, then on their second occurrence: in most
# collections they occur once, and their tokens and encodings would waste memory.
BYTES_AT_ONCE = 1 << 20

# Number of texts whose second occurrence is recognized.
MOST_SEEN = 1 << 18

# Limit of the kept tokens of repeated texts; beyond it all kept texts are dropped.
MOST_TOKENS = 1 << 24


class TokenizedPools(NamedTuple):
    """The pools of one row group as token ids."""

    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray  # (pairs,) into questions
    pair_answer: np.ndarray  # (pairs,) into answers
    cache_keys: np.ndarray | None = None  # see ``Scorer.score``


class PoolTokenizer:
    """Tokenizes pools as in training, and keeps the token ids of repeated answers."""

    def __init__(self, tokenizer: TextTokenizer, options: TextOptions) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._cache = _TextCache(tokenizer, options.max_answer_tokens)
        self._lock = Lock()  # several devices share one tokenizer

    def tokenize(self, pools: PoolBatch) -> TokenizedPools:
        """Token ids of the distinct texts of pools, truncated at the model's limits."""
        questions = self._tokenizer.encode(pools.questions, self._options.max_question_tokens, "question")
        with self._lock:
            answers, keys = self._cache.tokens(pools)
        return TokenizedPools(questions, answers, pools.pair_question, pools.pair_answer, keys)


class _TextCache:
    """Token ids of shared answers, and of answers that occur in several row groups."""

    def __init__(self, tokenizer: TextTokenizer, limit: int) -> None:
        self._tokenizer = tokenizer
        self._limit = limit
        self._seen: set[bytes] = set()  # hashes of texts that are not kept
        self._bytes_at_once = 0
        self._forget()

    def _forget(self) -> None:
        self._rows: dict[bytes, int] = {}  # hash of a text -> its row in the arrays below
        self._tokens = Tokens(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
        self._truncated = np.empty(0, dtype=bool)
        self._keys = np.empty(0, dtype=object)
        self._shared: Answers | None = None
        self._shared_rows = np.empty(0, dtype=np.int64)  # (shared answers,) the row of each; -1 for none
        self._repeated_tokens = 0

    def tokens(self, pools: PoolBatch) -> tuple[Tokens, np.ndarray]:
        """Token ids of the distinct answers of pools, and their cache keys; None if not worth caching."""
        if self._repeated_tokens > MOST_TOKENS:
            self._forget()
        rows = self._kept_rows(pools)
        is_kept = rows >= 0
        kept, rest = np.flatnonzero(is_kept), np.flatnonzero(~is_kept)
        tokens, truncated = self._tokenize(pools.answers.take(pa.array(rest)))
        joined = concatenated([self._tokens.take(rows[kept]), tokens]) if len(kept) else tokens
        if len(kept) and len(rest):
            joined = joined.take(np.argsort(np.concatenate([kept, rest])))
        keys = np.full(len(rows), None, dtype=object)
        keys[kept] = self._keys[rows[kept]]
        number = int(truncated.sum() + self._truncated[rows[kept]].sum())
        return replace(joined, truncated=number), keys

    def _kept_rows(self, pools: PoolBatch) -> np.ndarray:
        """(answers,) the row of each kept text, else -1; keeps new texts that may repeat."""
        if pools.shared is not None and pools.shared is not self._shared:
            self._shared = pools.shared
            self._shared_rows = np.full(len(pools.shared.texts), -1, dtype=np.int64)
        is_shared = pools.shared_rows >= 0
        rows = np.full(len(is_shared), -1, dtype=np.int64)
        rows[is_shared] = self._shared_rows[pools.shared_rows[is_shared]]
        missing = np.flatnonzero(rows < 0)
        new: dict[bytes, int] = {}  # hash of a text -> its index in pools
        texts = pools.answers.take(pa.array(missing)).to_pylist()
        for index, text in zip(missing.tolist(), texts, strict=True):
            key = text_hash(text)
            rows[index] = self._rows.get(key, -1)
            if rows[index] < 0 and (is_shared[index] or self._is_repeated(key, text)):
                new.setdefault(key, index)
        if new:
            indices = np.fromiter(new.values(), dtype=np.int64)
            rows[indices] = self._keep(list(new), pools.answers.take(pa.array(indices)))
            self._repeated_tokens += int(self._tokens.lengths[rows[indices][~is_shared[indices]]].sum())
        self._shared_rows[pools.shared_rows[is_shared]] = rows[is_shared]
        return rows

    def _is_repeated(self, key: bytes, text: str) -> bool:
        """Whether to keep an unshared text: it occurred before, or few bytes are kept so far."""
        if key in self._seen:
            return True
        if self._bytes_at_once + len(text) <= BYTES_AT_ONCE:
            self._bytes_at_once += len(text)
            return True
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(key)
        return False

    def _keep(self, hashes: list[bytes], texts: pa.Array) -> np.ndarray:
        """Tokenize and keep texts; return their rows."""
        tokens, truncated = self._tokenize(texts)
        rows = len(self._tokens) + np.arange(len(texts))
        self._rows.update(zip(hashes, rows.tolist(), strict=True))
        self._tokens = concatenated([self._tokens, tokens])
        self._truncated = np.concatenate([self._truncated, truncated])
        keys = np.empty(len(texts), dtype=object)
        keys[:] = [key.tobytes() for key in text_keys(tokens)]
        self._keys = np.concatenate([self._keys, keys])
        return rows

    def _tokenize(self, texts: pa.Array) -> tuple[Tokens, np.ndarray]:
        """Token ids of texts, and which of the texts were truncated."""
        whole = self._tokenizer.encode(texts)
        return truncate(whole, self._limit, self._tokenizer.suffix_length), whole.lengths > self._limit


class CachedAnswers(NamedTuple):
    """Positions of n answers in the cache."""

    batches: list[Tensor]
    batch: np.ndarray  # (n,) int64 into batches; -1 for an answer that is not cached
    starts: np.ndarray  # (n,) int64 first row in the batch
    counts: np.ndarray  # (n,) int64 number of rows


_ABSENT = (-1, -1, -1)


class AnswerCache:
    """LRU cache of encoded answers by key, in the batches that encoded them; thread-safe.

    Answers with the key None are not cached. Batches used since ``start_unit`` are never evicted, so a unit
    with more answers than fit does not evict those of the next unit.
    """

    def __init__(self, capacity: int) -> None:
        """An empty cache of at most ``capacity`` bytes; 0 caches nothing."""
        self.capacity = capacity
        self._bytes = 0
        self._index: dict[Hashable, tuple[int, int, int]] = {}  # key -> batch, first row, number of rows
        self._batches: OrderedDict[int, tuple[list[Hashable], Tensor]] = OrderedDict()  # (keys, rows) by LRU
        self._in_use: set[int] = set()  # batches used since ``start_unit``
        self._batch_numbers = count()
        self._lock = Lock()

    def start_unit(self) -> None:
        """Start a unit of work: every batch may be evicted until it is used again."""
        self._in_use.clear()

    def get(self, keys: Sequence[Hashable]) -> CachedAnswers:
        """Look up answers by key."""
        with self._lock:
            entries = [self._index.get(key, _ABSENT) for key in keys]
            positions = np.array(entries, dtype=np.int64).reshape(-1, 3).T
            numbers, batch = np.unique(positions[0], return_inverse=True)
            absent = int(len(numbers) > 0 and numbers[0] < 0)
            batches = []
            for number in numbers[absent:].tolist():
                self._in_use.add(number)
                self._batches.move_to_end(number)
                batches.append(self._batches[number][1])
        return CachedAnswers(batches, batch - absent, positions[1].copy(), positions[2].copy())

    def put(self, keys: Sequence[Hashable], rows: Tensor, counts: np.ndarray) -> None:
        """Add a batch of encoded answers if it fits, or if enough batches can be evicted.

        Args:
            keys: of n answers; all None if the batch is not to be cached.
            rows: (R, ...) rows of the answers, end to end.
            counts: (n,) int64 rows per answer.
        """
        size = _bytes(rows)
        if size > self.capacity or all(key is None for key in keys):
            return
        with self._lock:
            while self._bytes + size > self.capacity:
                oldest = next(iter(self._batches))
                if oldest in self._in_use:
                    return
                self._evict(oldest)
            batch = next(self._batch_numbers)
            starts = np.cumsum(counts) - counts
            for key, start, number in zip(keys, starts.tolist(), counts.tolist(), strict=True):
                if key is not None:
                    self._index[key] = batch, start, number
            self._batches[batch] = list(keys), rows
            self._in_use.add(batch)
            self._bytes += size

    def _evict(self, batch: int) -> None:
        keys, rows = self._batches.pop(batch)
        for key in keys:
            if self._index.get(key, _ABSENT)[0] == batch:  # another batch may have the same answer
                del self._index[key]
        self._bytes -= _bytes(rows)


def _bytes(rows: Tensor) -> int:
    return rows.numel() * rows.element_size()
