"""Texts of pools as token ids and as encoded answers, and the caches of both.

Answers stay in the tensor of the batch that encoded them. The host has their row ranges as arrays, so nothing
is done answer by answer and nothing waits for a GPU.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from threading import Lock, local
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from aptool.config import TextOptions
from aptool.data.parquet import to_arrow
from aptool.data.pools import Answers, PoolBatch
from aptool.data.shared_texts import text_hash
from aptool.models.device import send
from aptool.models.ragged import Ragged, rows_of
from aptool.text.tokenizer import TextTokenizer, Tokens, concatenated

# Unshared texts are cached on first sight up to this many bytes, then on their second occurrence: in most
# collections they occur once, and their tokens and encodings would waste memory.
BYTES_AT_ONCE = 1 << 20

# Number of texts whose second occurrence is recognized.
MOST_SEEN = 1 << 18

# Limit of the cached tokens of repeated texts; beyond it the cache is emptied.
MOST_TOKENS = 1 << 24


class TokenizedPools(NamedTuple):
    """The pools of a unit as token ids."""

    questions: Tokens
    answers: Tokens
    pair_question: np.ndarray  # (pairs,) into questions
    pair_answer: np.ndarray  # (pairs,) into answers
    cache_keys: np.ndarray  # (answers,) keys for ``AnswerCache``; the key None is not cached


class PoolTokenizer:
    """Tokenizes pools as in training; caches the token ids of shared and repeated answers."""

    def __init__(self, tokenizer: TextTokenizer, options: TextOptions) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._lock = Lock()  # several devices share one tokenizer
        self._seen: set[bytes] = set()  # hashes of texts that are not cached
        self._bytes_at_once = 0
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[bytes, int] = {}  # hash of a text -> its row in the arrays below
        self._tokens = Tokens(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
        self._truncated = np.empty(0, dtype=bool)
        self._keys = np.empty(0, dtype=object)
        self._shared: Answers | None = None
        self._shared_rows = np.empty(0, dtype=np.int64)  # (shared answers,) the row of each, or -1
        self._repeated_tokens = 0

    def tokenize(self, pools: PoolBatch) -> TokenizedPools:
        """Encode the distinct texts of pools as token ids, truncated at the model's limits."""
        questions = self._tokenizer.encode(pools.questions, self._options.max_question_tokens)
        with self._lock:
            answers, keys = self._tokenize_answers(pools)
        return TokenizedPools(questions, answers, pools.pair_question, pools.pair_answer, keys)

    def _tokenize_answers(self, pools: PoolBatch) -> tuple[Tokens, np.ndarray]:
        """Return token ids and keys of the distinct answers; the key of an uncached answer is None."""
        if self._repeated_tokens > MOST_TOKENS:
            self._clear()
        rows = self._cached_rows(pools)
        is_cached = rows >= 0
        cached, uncached = np.flatnonzero(is_cached), np.flatnonzero(~is_cached)
        tokens, truncated = self._encode(pools.answers.take(to_arrow(uncached)))
        joined = concatenated([self._tokens.take(rows[cached]), tokens]) if len(cached) else tokens
        if len(cached) and len(uncached):
            joined = joined.take(np.argsort(np.concatenate([cached, uncached])))
        keys = np.full(len(rows), None, dtype=object)
        keys[cached] = self._keys[rows[cached]]
        number = int(truncated.sum() + self._truncated[rows[cached]].sum())
        return replace(joined, truncated=number), keys

    def _cached_rows(self, pools: PoolBatch) -> np.ndarray:
        """(answers,) the row of each cached text, else -1; caches new texts that may repeat."""
        if pools.shared is not None and pools.shared is not self._shared:
            self._shared = pools.shared
            self._shared_rows = np.full(len(pools.shared.texts), -1, dtype=np.int64)
        is_shared = pools.shared_rows >= 0
        rows = np.full(len(is_shared), -1, dtype=np.int64)
        rows[is_shared] = self._shared_rows[pools.shared_rows[is_shared]]
        missing = np.flatnonzero(rows < 0)
        new: dict[bytes, int] = {}  # hash of a text -> its index in pools
        texts = pools.answers.take(to_arrow(missing)).to_pylist()
        for index, text in zip(missing.tolist(), texts, strict=True):
            key = text_hash(text)
            rows[index] = self._rows.get(key, -1)
            if rows[index] < 0 and (is_shared[index] or self._is_repeated(key, text)):
                new.setdefault(key, index)
        if new:
            indices = np.fromiter(new.values(), dtype=np.int64)
            rows[indices] = self._add(list(new), pools.answers.take(to_arrow(indices)))
            self._repeated_tokens += int(self._tokens.lengths[rows[indices][~is_shared[indices]]].sum())
        self._shared_rows[pools.shared_rows[is_shared]] = rows[is_shared]
        return rows

    def _is_repeated(self, key: bytes, text: str) -> bool:
        """Whether to cache an unshared text: it occurred before, or the cache is still small."""
        if key in self._seen:
            return True
        if self._bytes_at_once + len(text) <= BYTES_AT_ONCE:
            self._bytes_at_once += len(text)
            return True
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(key)
        return False

    def _add(self, hashes: list[bytes], texts: pa.Array) -> np.ndarray:
        """Tokenize and cache texts; return their rows."""
        tokens, truncated = self._encode(texts)
        rows = len(self._tokens) + np.arange(len(texts))
        self._rows.update(zip(hashes, rows.tolist(), strict=True))
        self._tokens = concatenated([self._tokens, tokens])
        self._truncated = np.concatenate([self._truncated, truncated])
        keys = np.empty(len(texts), dtype=object)
        keys[:] = _text_keys(tokens)
        self._keys = np.concatenate([self._keys, keys])
        return rows

    def _encode(self, texts: pa.Array) -> tuple[Tokens, np.ndarray]:
        """Return token ids of texts, and (n,) whether each text was truncated."""
        limit = self._options.max_answer_tokens
        complete = self._tokenizer.encode(texts)
        return self._tokenizer.truncate(complete, limit), complete.lengths > limit


def _text_keys(texts: Tokens) -> list[bytes]:
    """Return the key of each text, 128 bits of BLAKE2b of its token ids."""
    data = memoryview(texts.ids.astype("<i4").tobytes())
    bounds = (4 * texts.offsets).tolist()
    return [hashlib.blake2b(data[begin:end], digest_size=16).digest() for begin, end in pairwise(bounds)]


class EncodedAnswers(NamedTuple):
    """n encoded answers: the i-th is ``batches[batch[i]][starts[i] : starts[i] + counts[i]]``."""

    batches: Sequence[Tensor]  # (R, ...) each
    batch: np.ndarray  # (n,) int64 into batches
    starts: np.ndarray  # (n,) int64 first row in the batch
    counts: np.ndarray  # (n,) int64 number of rows
    lengths: np.ndarray  # (n,) int64 number of tokens

    def rows(self, answer: int) -> Tensor:
        """Return a view of the rows of one answer."""
        return self.batches[self.batch[answer]].narrow(0, int(self.starts[answer]), int(self.counts[answer]))

    def select(self, chosen: np.ndarray) -> "EncodedAnswers":
        """Select answers, without a copy."""
        return EncodedAnswers(self.batches, *(part[chosen] for part in self[1:]))

    def joined(self, workspace: "Workspace | None" = None) -> "EncodedAnswers":
        """Join all batches into one; copies only if there are several, to the workspace if there is one."""
        if len(self.batches) == 1:
            return self
        order = np.argsort(self.batch, kind="stable")
        ends = np.cumsum(self.counts[order])
        starts = np.empty_like(self.starts)
        starts[order] = ends - self.counts[order]
        first = self.batches[0]
        values = (workspace or Workspace()).rows(int(ends[-1]), first)
        bounds = np.searchsorted(self.batch[order], np.arange(len(self.batches) + 1))
        for number, tensor in enumerate(self.batches):
            members = order[bounds[number] : bounds[number + 1]]
            if len(members):
                begin, end = int(starts[members[0]]), int(ends[bounds[number + 1] - 1])
                rows = rows_of(self.starts[members], self.counts[members])
                torch.index_select(tensor, 0, send(rows, tensor.device), out=values[begin:end])
        return EncodedAnswers([values], np.zeros_like(self.batch), starts, self.counts, self.lengths)

    def ragged(self) -> Ragged:
        """Return the rows of the answers in one tensor, answer by answer; copies only if needed."""
        single = self.joined()
        (values,) = single.batches
        first, ends = int(single.starts[0]), np.cumsum(self.counts)
        if np.array_equal(single.starts - first, ends - self.counts):
            values = values.narrow(0, first, int(ends[-1]))
        else:
            values = values.index_select(0, send(rows_of(single.starts, self.counts), values.device))
        return Ragged.of_sizes(values, self.counts)


class Workspace(local):
    """A tensor per thread, which each call reuses: the kernel clears the pages of a new large tensor."""

    _values: Tensor | None = None

    def rows(self, number: int, like: Tensor) -> Tensor:
        """Return (number, ...) uninitialized rows as those of ``like``, valid until the next call."""
        values = self._values
        if values is None or len(values) < number or values.dtype != like.dtype:
            values = self._values = like.new_empty(number, *like.shape[1:])
        return values[:number]


class Pairs(NamedTuple):
    """Pairs of questions and encoded answers, sorted by answer."""

    questions: np.ndarray  # (P,) int64 the question of each pair
    counts: np.ndarray  # (n,) int64 the number of pairs per answer, at least 1
    scored: Callable[[int], None] = lambda pairs: None  # a kernel passes the number of pairs per batch
    by_answer: bool = True  # the result of ``Kernel.groups_by_answer``

    @property
    def answers(self) -> np.ndarray:
        """(P,) int64 the answer of each pair."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


_ABSENT = (-1, -1, -1)


class AnswerCache:
    """LRU cache of encoded answers by key, in the batches that encoded them; thread-safe.

    Answers with the key None are not cached. Batches used since ``start_unit`` are never evicted, so a unit
    with more answers than fit does not evict those of the next unit.
    """

    def __init__(self, capacity: int) -> None:
        """Create an empty cache of at most ``capacity`` bytes; 0 caches nothing."""
        self.capacity = capacity
        self._bytes = 0
        self._index: dict[Hashable, tuple[int, int, int]] = {}  # key -> batch, first row, number of rows
        self._batches: OrderedDict[int, tuple[list[Hashable], Tensor]] = OrderedDict()  # (keys, rows) by LRU
        self._in_use: set[int] = set()  # batches used since ``start_unit``
        self._batch_numbers = count()
        self._lock = Lock()

    def start_unit(self) -> None:
        """Start a unit of work: any batch may be evicted until it is used again."""
        self._in_use.clear()

    def get(self, keys: Sequence[Hashable]) -> tuple[list[Tensor], np.ndarray, np.ndarray, np.ndarray]:
        """Look up n keys: batches, and ``batch``, ``starts`` and ``counts`` as in ``EncodedAnswers``.

        ``batch`` is -1 for an answer that is not cached.
        """
        with self._lock:
            if not self._index:
                zeros = np.zeros(len(keys), dtype=np.int64)
                return [], zeros - 1, zeros, zeros.copy()
            entries = [self._index.get(key, _ABSENT) for key in keys]
            positions = np.array(entries, dtype=np.int64).reshape(-1, 3).T
            numbers, batch = np.unique(positions[0], return_inverse=True)
            absent = int(len(numbers) > 0 and numbers[0] < 0)
            batches = []
            for number in numbers[absent:].tolist():
                self._in_use.add(number)
                self._batches.move_to_end(number)
                batches.append(self._batches[number][1])
        return batches, batch - absent, positions[1].copy(), positions[2].copy()

    def put(self, keys: Sequence[Hashable], rows: Tensor, counts: np.ndarray) -> None:
        """Add a batch of n encoded answers if it fits, or if enough batches can be evicted.

        ``rows`` are the (R, ...) rows of the answers, end to end; ``counts`` are the rows per answer.
        """
        size = rows.nbytes
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
        self._bytes -= rows.nbytes
