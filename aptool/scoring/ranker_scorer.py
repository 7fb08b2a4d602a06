"""Scoring of pairs of texts; each distinct text is encoded once.

Attentive pooling is late interaction: only the pooling depends on both texts, and it is the smaller part of
the work. Hard-negative mining, evaluation on dev, scoring of pools and explanation use ``RankerScorer``.

Work on a CPU has one core per thread, so that results do not depend on the number of threads (``for_each``).
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier, Lock
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from aptool.models.build import Ranker
from aptool.models.device import batch_sizes, exact_products, memory_for
from aptool.models.ragged import Ragged
from aptool.scoring.kernels import EncodedAnswers, Pairs, kernel_for
from aptool.text.tokenizer import Tokens

Precision = Literal["fp32", "bf16"]

T = TypeVar("T")
R = TypeVar("R")

# If pools do not share answers, and encoding pads them, a window of pairs has this many batches: answers of
# similar length are encoded together, and the pairs of a question stay together.
BATCHES_PER_WINDOW = 4

# The key of an answer that is not cached.
UNCACHED = -1

MEMORY_HINT = "fewer --tokens-per-batch of aptool score, a device with more free memory, or --device cpu"

# Maximum bytes of the states of a batch on a CPU. The C library returns larger tensors to the kernel, which
# clears the pages of new ones.
STATES_PER_BATCH = 16 << 20

# Windows on a CPU: this many, or fewer of at most this many tokens.
WINDOWS, TOKENS_PER_WINDOW = 8, 2048

# The same for windows of questions, which are short.
TOKENS_OF_QUESTIONS = 128


def for_each(device: torch.device, work: Callable[[T], R], items: list[T]) -> Iterator[R]:
    """Map work over items, in order: on a CPU on one thread per core of torch, on a GPU one after the other.

    Most matrix products are too small to be split among cores, and an item that one core computes does not
    depend on the number of threads.
    """
    if device.type != "cpu":
        return map(work, items)
    return _threads(torch.get_num_threads()).map(torch.inference_mode()(work), items)


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    """Start threads of one core each; every new thread allocates an arena, so threads are used again."""
    started = Barrier(number + 1)

    def start() -> None:
        torch.get_num_threads()  # after it, torch sets no default in this thread
        torch.set_num_threads(1)
        started.wait()

    threads = ThreadPoolExecutor(number, initializer=start)
    for _ in range(number):
        threads.submit(int)
    started.wait()
    torch.set_num_threads(number)  # of new threads, which the other threads have set to one
    return threads


class AnswerCache:
    """Encoded answers by key, in the batches that encoded them, until memory is full; thread-safe."""

    def __init__(self, capacity: int) -> None:
        """Create an empty cache of at most ``capacity`` bytes; 0 caches nothing."""
        self.capacity = capacity
        self._bytes = 0
        self._batches: list[Tensor] = []
        self._index = np.empty((3, 0), dtype=np.int64)  # by key: batch or -1, first row, number of rows
        self._lock = Lock()

    def get(self, keys: np.ndarray) -> tuple[list[Tensor], np.ndarray, np.ndarray, np.ndarray]:
        """Look up (n,) keys: batches, and ``batch``, ``starts`` and ``counts`` as in ``EncodedAnswers``.

        ``batch`` is -1 for an answer that is not cached.
        """
        found = np.full((3, len(keys)), -1)
        with self._lock:
            is_known = (keys >= 0) & (keys < self._index.shape[1])
            found[:, is_known] = self._index[:, keys[is_known]]
            numbers, batch = np.unique(found[0], return_inverse=True)
            absent = int(len(numbers) > 0 and numbers[0] < 0)
            return [self._batches[number] for number in numbers[absent:]], batch - absent, found[1], found[2]

    def put(self, keys: np.ndarray, rows: Tensor, counts: np.ndarray) -> None:
        """Add a batch of n encoded answers if it fits.

        ``rows`` are the (R, ...) rows of the answers, end to end; ``counts`` are the rows per answer.
        """
        is_cached = keys >= 0
        with self._lock:
            if self._bytes + rows.nbytes > self.capacity or not is_cached.any():
                return
            missing = int(keys.max()) + 1 - self._index.shape[1]
            if missing > 0:  # at least twice as many, as keys arrive in any order
                more = max(missing, self._index.shape[1])
                self._index = np.concatenate([self._index, np.full((3, more), -1)], axis=1)
            starts = np.cumsum(counts) - counts
            entries = np.stack([np.full(len(keys), len(self._batches)), starts, counts])
            self._index[:, keys[is_cached]] = entries[:, is_cached]
            self._batches.append(rows)
            self._bytes += rows.nbytes


class RankerScorer:
    """Scores pairs with the weights of a ranker at creation; create a new scorer when they change."""

    def __init__(
        self,
        ranker: Ranker,
        *,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
        tokens_per_batch: int | None = None,
        cache_bytes: int = 0,
        expected_tokens: int | None = None,
    ) -> None:
        """Create a scorer of a ranker in evaluation mode, on its device.

        ``precision`` is that of encoding and, on CPUs that multiply bf16, of the alignment with shared
        answers; other alignments, softmaxes and cosines are always in fp32.
        ``cache_bytes`` limits the cache of encoded answers between calls of ``score``; on a CPU, states that
        are looked up in a table are not cached.
        ``expected_tokens`` is the number of tokens to encode before the weights change, if known.
        """
        exact_products()
        self._device = torch.device(device)
        self._batch = tokens_per_batch or self._tokens_per_batch(ranker, 2 if precision == "bf16" else 4)
        with torch.inference_mode(), memory_for("preparing the model", MEMORY_HINT):
            cast = ranker.in_bf16() if precision == "bf16" else ranker
            self._encode = cast.inference_encoder(expected_tokens)
            self._kernel = kernel_for(cast.pooling)
        self._looks_up = ranker.reads_table and self._kernel.stores_states and self._device.type == "cpu"
        self._cache = AnswerCache(0 if self._looks_up else cache_bytes)
        self._ranker = ranker

    @memory_for("scoring", MEMORY_HINT)
    @torch.inference_mode()
    def score(
        self,
        questions: Tokens,
        answers: Tokens,
        pair_question: np.ndarray,
        pair_answer: np.ndarray,
        cache_keys: np.ndarray | None = None,
        progress: Callable[[int], object] = lambda pairs: None,
    ) -> np.ndarray:
        """Score pairs; peak memory grows by a few bytes per pair, not with the number of answers.

        On a GPU the host waits once, for the scores.

        Args:
            questions: token ids of distinct questions.
            answers: token ids of distinct answers.
            pair_question: (P,) the question of each pair.
            pair_answer: (P,) the answer of each pair.
            cache_keys: (answers,) small integers that identify the token ids of an answer in all calls, or
                ``UNCACHED``; None caches no answer.
            progress: called with the number of pairs of each window.

        Returns:
            (P,) float32, equal to the pairwise definition within 1e-5 in fp32. The scores are equal to the
            bit for any number of threads and any content of the cache.

        Raises:
            AptoolError: memory runs out.
        """
        scores = np.empty(len(pair_question), dtype=np.float32)
        if not len(scores):
            return scores
        lengths = answers.lengths
        present, order, starts = group_by_answer(lengths, pair_answer)
        by_answer = self._kernel.groups_by_answer(pair_answer)
        pair_question = pair_question[order]
        batches = 1 if self._looks_up or is_shared(present, pair_answer) else BATCHES_PER_WINDOW
        windows = blocks_of(lengths[present], self._window(lengths[present], batches))
        prepared_questions = self._prepare_questions(questions)
        features_of = self._ranker.features_of(questions, answers)

        def score_window(window: np.ndarray) -> Tensor:
            bounds = starts[window[0] : window[-1] + 2]
            pairs = Pairs(pair_question[bounds[0] : bounds[-1]], np.diff(bounds), by_answer)
            encoded = self._encoded_answers(answers, cache_keys, present[window])
            columns = self._kernel.score_pairs(prepared_questions, encoded, pairs)
            features = features_of(pairs.questions, present[window][pairs.answers])
            return self._ranker.from_columns(columns, features)

        done: list[Tensor] = []
        scored = for_each(self._device, score_window, windows)
        for window, of_window in zip(windows, scored, strict=True):
            done.append(of_window)
            progress(int(starts[window[-1] + 1] - starts[window[0]]))
        scores[order] = torch.cat(done).cpu().numpy()
        return scores

    @torch.inference_mode()
    def bytes_per_answer(self, answers: Tokens) -> float:
        """Return the mean bytes per encoded answer, of at least one answer."""
        row = self._encode_answers(answers.take(np.zeros(1, dtype=np.int64))).values[0]
        return float(np.mean(self._kernel.row_counts(answers.lengths))) * row.nbytes

    def _tokens_per_batch(self, ranker: Ranker, width: int) -> int:
        """Return the tokens that are encoded together, of ``width`` bytes per feature of a state."""
        tokens = batch_sizes(self._device).encoder
        if self._device.type != "cpu":
            return tokens
        return min(tokens, STATES_PER_BATCH // (ranker.encoder.size * width))

    def _window(self, lengths: np.ndarray, batches: int, least: int = TOKENS_PER_WINDOW) -> int:
        """Return the tokens per window: at most ``batches`` batches; on a CPU, few enough for all cores."""
        largest = batches * self._batch
        return min(largest, even_window(lengths, least)) if self._device.type == "cpu" else largest

    def _prepare_questions(self, questions: Tokens) -> Any:
        """Encode questions, in batches of similar length, on all cores."""
        by_length = np.argsort(questions.lengths, kind="stable")
        lengths = questions.lengths[by_length]
        window = self._window(lengths, 1, TOKENS_OF_QUESTIONS)

        def encode(block: np.ndarray) -> Ragged:
            tokens = Ragged.of(questions.take(by_length[block]), self._device)
            return tokens.with_values(self._encode(tokens, tokens.row_numbers()))

        def prepare(encoded: list[Ragged]) -> Any:
            order = np.argsort(by_length, kind="stable")
            return self._kernel.prepare_questions(Ragged.concatenate(encoded).select(order))

        encoded = list(for_each(self._device, encode, blocks_of(lengths, window)))
        return next(for_each(self._device, prepare, [encoded]))

    def _encoded_answers(
        self, answers: Tokens, cache_keys: np.ndarray | None, rows: np.ndarray
    ) -> EncodedAnswers:
        """Return the encoded answers at ``rows``; encode missing ones in batches of similar length."""
        keys = np.full(len(rows), UNCACHED) if cache_keys is None else cache_keys[rows]
        lengths = answers.lengths[rows]
        batches, batch, starts, counts = self._cache.get(keys)
        missing = np.flatnonzero(batch < 0)
        if not self._looks_up:  # looking up pads nothing, and answers in order are not copied
            missing = missing[np.argsort(lengths[missing], kind="stable")]
        for block in blocks_of(lengths[missing], self._batch):
            positions = missing[block]
            encoded = self._encode_answers(answers.take(rows[positions]))
            batch[positions] = len(batches)
            batches.append(encoded.values)
            counts[positions] = encoded.sizes
            starts[positions] = np.cumsum(encoded.sizes) - encoded.sizes
            self._cache.put(keys[positions], encoded.values, encoded.sizes)
        return EncodedAnswers(batches, batch, starts, counts, lengths)

    def _encode_answers(self, answers: Tokens) -> Ragged:
        """Encode a batch of answers as the kernel caches them."""
        tokens = Ragged.of(answers, self._device)
        rows, counts = self._kernel.select_states(tokens)
        states = self._encode(tokens, rows)
        return self._kernel.cache_answers(Ragged.of_sizes(states, counts))


def group_by_answer(
    lengths: np.ndarray, pair_answer: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group (P,) pairs by answer, with (answers,) lengths.

    Shared answers are sorted by length, so that batches have answers of similar length. Other answers stay in
    the order of the pairs, so that the pairs of a question stay together.

    Returns:
        The answers with pairs; the indices of the pairs, grouped by answer; the first pair of each answer.
    """
    counts = np.bincount(pair_answer, minlength=len(lengths))
    present = np.flatnonzero(counts)
    if is_shared(present, pair_answer):
        sort_key = lengths
    else:
        sort_key = np.empty(len(lengths), dtype=np.int64)
        sort_key[pair_answer[::-1]] = np.arange(len(pair_answer))[::-1]  # the first pair of each answer
    present = present[np.argsort(sort_key[present], kind="stable")]
    position = np.empty(len(lengths), dtype=np.int64)
    position[present] = np.arange(len(present))
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts[present])])
    return present, _counting_order(position[pair_answer]), starts


def _counting_order(keys: np.ndarray) -> np.ndarray:
    """(P,): the stable order of non-negative numbers, by a radix sort, which numpy has for 16 bits."""
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    most, shift = int(keys.max()), 16
    while most >> shift:
        order = order[np.argsort(((keys >> shift) & 0xFFFF).astype(np.uint16)[order], kind="stable")]
        shift += 16
    return order


def is_shared(present: np.ndarray, pair_answer: np.ndarray) -> bool:
    """Whether an answer is in at least two pools on average."""
    return len(pair_answer) >= 2 * len(present)


def even_window(lengths: np.ndarray, tokens: int) -> int:
    """Tokens per window for ``WINDOWS`` windows of equal size, or fewer of at most ``tokens`` tokens."""
    total = int(lengths.sum())
    return -(-total // min(WINDOWS, -(-total // tokens))) if total else tokens


def blocks_of(lengths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Split texts into consecutive blocks of about ``tokens`` tokens each."""
    if not len(lengths):
        return []
    block = (np.cumsum(lengths) - lengths) // tokens
    return np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(block)) + 1)
