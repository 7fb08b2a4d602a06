"""Scoring of pairs of texts; each distinct text is encoded once.

Attentive pooling is late interaction: only the pooling depends on both texts, and it is the smaller part of
the work. Hard-negative mining, evaluation on dev, scoring of pools and explanation use ``RankerScorer``.

Work on a CPU has one core per thread, so that results do not depend on the number of threads
(``one_core_per_thread``).
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from threading import Barrier, Lock
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from aptool.errors import AptoolError
from aptool.models.device import batch_sizes, is_out_of_memory, memory_for
from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.scoring.attentive import kernel_for
from aptool.scoring.encoded import AnswerCache, EncodedAnswers, Pairs
from aptool.text.tokenizer import Tokens

# Maps a function over items, in order.
ForEach: TypeAlias = Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]


class _Cores:
    """The number of cores per operation before any thread of this process set it to one.

    torch has this number for each thread, and a default for new threads; ``torch.set_num_threads`` sets both.
    Several threads may score at the same time: the last one must not restore another's temporary value.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._number = 1

    def enter(self) -> int:
        """Set the calling thread to one core; return the number of cores to restore."""
        with self._lock:
            number = torch.get_num_threads()
            if self._users == 0:
                self._number = number
            if number == 1:  # the default of a new thread while another thread scores
                number = self._number
            self._users += 1
            if number > 1:
                torch.set_num_threads(1)
            return number

    def leave(self, number: int) -> None:
        """Restore the number of cores of the calling thread and of new threads."""
        with self._lock:
            self._users -= 1
            if number > 1:
                torch.set_num_threads(number)


_CORES = _Cores()
_POOLS: dict[int, ThreadPoolExecutor] = {}
_POOLS_LOCK = Lock()


@contextmanager
def one_core_per_thread(device: torch.device, items: int) -> Iterator[ForEach]:
    """Yield a function that maps work over items, on one thread per core of torch.

    Most matrix products are too small to be split among cores, and an item that one core computes does not
    depend on the number of threads. On a GPU, items are computed one after the other.
    """
    if device.type != "cpu":
        yield map
        return
    number = _CORES.enter()

    def for_each(work: Callable[[Any], Any], inputs: list[Any]) -> Iterator[Any]:
        if min(number, items, len(inputs)) <= 1:
            return map(work, inputs)
        return _pool(number).map(torch.inference_mode()(work), inputs)

    try:
        yield for_each
    finally:
        _CORES.leave(number)


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a reused pool: every new thread allocates an arena, so new pools would take ever more memory."""
    with _POOLS_LOCK:
        if threads not in _POOLS:
            # All threads start now, while the default for new threads is known.
            started = Barrier(threads + 1)
            _POOLS[threads] = ThreadPoolExecutor(threads, initializer=_start_thread)
            for _ in range(threads):
                _POOLS[threads].submit(started.wait)
            started.wait()
        return _POOLS[threads]


def _start_thread() -> None:
    """Set a thread of a pool to one core, after torch has set its default."""
    torch.get_num_threads()
    torch.set_num_threads(1)


Precision = Literal["fp32", "tf32", "bf16"]

T = TypeVar("T")

# If pools do not share answers, a window of pairs has this many batches: answers of similar length are
# encoded together, and the pairs of a question stay together.
BATCHES_PER_WINDOW = 4

MEMORY_HINT = "a device with more free memory, or --device cpu"

# Windows on a CPU: this many, or fewer of at most this many tokens.
WINDOWS, TOKENS_PER_WINDOW = 8, 2048

# The same for windows of questions, which are short.
TOKENS_OF_QUESTIONS = 128


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

        ``precision`` is that of encoding; alignments, softmaxes and cosines are always in fp32, with TF32
        products for ``tf32`` after ``set_products``. ``cache_bytes`` limits the cache of encoded answers
        between calls of ``score``; on a CPU, states that are looked up in a table are not cached.
        ``expected_tokens`` is the number of tokens to encode before the weights change, if known.
        """
        self._device = torch.device(device)
        self._batch = tokens_per_batch or batch_sizes(self._device).encoder
        with torch.inference_mode(), memory_for("preparing the model", MEMORY_HINT):
            cast = ranker.in_bf16() if precision == "bf16" else ranker
            self._encode = cast.inference_encoder(expected_tokens)
            self._kernel = kernel_for(cast.pooling)
        looks_up = ranker.reads_table and self._kernel.stores_states and self._device.type == "cpu"
        self._cache = AnswerCache(0 if looks_up else cache_bytes)
        self._ranker = ranker

    def clear_cache(self) -> None:
        """Remove all encoded answers."""
        self._cache = AnswerCache(self._cache.capacity)

    @memory_for("scoring", MEMORY_HINT)
    @torch.inference_mode()
    def score(
        self,
        questions: Tokens,
        answers: Tokens,
        pair_question: np.ndarray,
        pair_answer: np.ndarray,
        cache_keys: np.ndarray | None = None,
        progress: Callable[[int], None] = lambda pairs: None,
    ) -> np.ndarray:
        """Score pairs; peak memory grows by a few bytes per pair, not with the number of answers.

        On a GPU the host waits once, for the scores.

        Args:
            questions: token ids of distinct questions.
            answers: token ids of distinct answers.
            pair_question: (P,) the question of each pair.
            pair_answer: (P,) the answer of each pair.
            cache_keys: (answers,) a hashable value that identifies the token ids of an answer in all calls;
                None: the answer is not cached.
            progress: called with the number of pairs of each block, from any thread. If memory runs out, some
                pairs are counted twice.

        Returns:
            (P,) float32, equal to the pairwise definition within 1e-5 in fp32. The scores are equal to the
            bit for any number of threads and any content of the cache. If memory runs out, the work is split
            in halves, which may change the last bits.

        Raises:
            AptoolError: memory runs out with a single text, or before the first text.
        """
        scores = np.empty(len(pair_question), dtype=np.float32)
        if not len(scores):
            return scores
        lengths = answers.lengths
        self._cache.start_unit()
        present, order, starts = group_by_answer(lengths, pair_answer)
        by_answer = self._kernel.groups_by_answer(pair_answer)
        pair_question = pair_question[order]
        batches = 1 if is_shared(present, pair_answer) else BATCHES_PER_WINDOW
        windows = blocks_of(lengths[present], self._window(lengths[present], batches))

        with one_core_per_thread(self._device, len(windows)) as for_each:
            prepared_questions = self._prepare_questions(questions, for_each)
            features_of = self._ranker.features_of(questions, answers)

            def score_window(window: np.ndarray) -> Tensor:
                bounds = starts[window[0] : window[-1] + 2]
                unreported = int(bounds[-1] - bounds[0])

                def batch_scored(number: int) -> None:
                    nonlocal unreported
                    unreported -= number
                    progress(number)

                questions_of = pair_question[bounds[0] : bounds[-1]]
                pairs = Pairs(questions_of, np.diff(bounds), batch_scored, by_answer)
                encoded = self._encoded_answers(answers, cache_keys, present[window])
                columns = self._kernel.score_pairs(prepared_questions, encoded, pairs)
                answer_of = present[window][pairs.answers]
                progress(unreported)
                return self._ranker.from_columns(columns, features_of(pairs.questions, answer_of))

            done = for_each(partial(self._in_halves, score_window), windows)
            scores[order] = torch.cat(list(chain.from_iterable(done))).cpu().numpy()
        return scores

    @torch.inference_mode()
    def bytes_per_answer(self, answers: Tokens) -> float:
        """Return the mean bytes per encoded answer, of at least one answer."""
        row = self._encode_answers(answers.take(np.zeros(1, dtype=np.int64))).values[0]
        return float(np.mean(self._kernel.row_counts(answers.lengths))) * row.nbytes

    def _in_halves(self, work: Callable[[np.ndarray], T], texts: np.ndarray) -> list[T]:
        """Return the results of ``work`` for parts of the texts: one, or more if memory runs out."""
        try:
            return [work(texts)]
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(texts) == 1:
                problem = f"out of memory with a single text; expected {MEMORY_HINT}"
                raise AptoolError(f"{self._device}: {problem}") from error
        # Outside the handler, as the error keeps the tensors of the attempt alive.
        self.clear_cache()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        half = len(texts) // 2
        return [*self._in_halves(work, texts[:half]), *self._in_halves(work, texts[half:])]

    def _window(self, lengths: np.ndarray, batches: int, least: int = TOKENS_PER_WINDOW) -> int:
        """Return the tokens per window: at most ``batches`` batches; on a CPU, few enough for all cores."""
        largest = batches * self._batch
        return min(largest, even_window(lengths, least)) if self._device.type == "cpu" else largest

    def _prepare_questions(self, questions: Tokens, for_each: ForEach) -> Any:
        """Encode questions, in batches of similar length, on all cores."""
        by_length = np.argsort(questions.lengths, kind="stable")
        lengths = questions.lengths[by_length]
        window = self._window(lengths, 1, TOKENS_OF_QUESTIONS)

        def encode(block: np.ndarray) -> Ragged:
            tokens = Ragged.of(questions.take(by_length[block]), self._device)
            return tokens.with_values(self._encode(tokens, tokens.row_numbers()))

        encoded = for_each(partial(self._in_halves, encode), blocks_of(lengths, window))
        joined = Ragged.concatenate(list(chain.from_iterable(encoded)))
        order = np.argsort(by_length, kind="stable")
        return self._kernel.prepare_questions(joined.select(order))

    def _encoded_answers(
        self, answers: Tokens, cache_keys: np.ndarray | None, rows: np.ndarray
    ) -> EncodedAnswers:
        """Return the encoded answers at ``rows``; encode missing ones in batches of similar length."""
        keys = np.full(len(rows), None) if cache_keys is None else cache_keys[rows]
        lengths = answers.lengths[rows]
        batches, batch, starts, counts = self._cache.get(keys.tolist())
        missing = np.flatnonzero(batch < 0)
        missing = missing[np.argsort(lengths[missing], kind="stable")]
        for block in blocks_of(lengths[missing], self._batch):
            positions = missing[block]
            encoded = self._encode_answers(answers.take(rows[positions]))
            batch[positions] = len(batches)
            batches.append(encoded.values)
            counts[positions] = encoded.sizes
            starts[positions] = np.cumsum(encoded.sizes) - encoded.sizes
            self._cache.put(keys[positions].tolist(), encoded.values, encoded.sizes)
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
