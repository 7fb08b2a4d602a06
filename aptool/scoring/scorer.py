"""The scorer: pairs of texts in, scores out, each distinct text encoded once.

Attentive pooling is late interaction: encoding a text does not depend on its partner, only the join does, and
the join is the far smaller part. Mining of negatives, dev evaluation, batch scoring and explanation all score
through this class.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from aptool.models.ragged import Ragged
from aptool.models.ranker import Ranker
from aptool.scoring.encoded import StateStore
from aptool.scoring.kernels import pair_scorer_for
from aptool.text.tokenizer import Tokens

Precision = Literal["fp32", "bf16"]
Work = Callable[[np.ndarray], None]

# Tokens encoded at one time: few enough that a core's caches help, enough to keep a GPU busy.
TOKENS_PER_BATCH = {"cpu": 8192, "cuda": 1 << 18}

# Where answers are not shared, they are joined in windows of so many batches: texts of like length can then
# be encoded together, and the pairs of one question still meet.
BATCHES_PER_WINDOW = 4

# On a CPU there are so many windows at least, as far as they do not get smaller than so many tokens.
WINDOWS, TOKENS_PER_WINDOW = 8, 2048


class Scorer:
    """Scores pairs with the weights that a ranker has now; make a new one after they change."""

    def __init__(
        self,
        ranker: Ranker,
        *,
        device: torch.device | str = "cpu",
        precision: Precision = "fp32",
        tokens_per_batch: int | None = None,
        store_bytes: int = 0,
        tokens: int | None = None,
    ) -> None:
        """Prepares to score.

        Args:
            ranker: the system, in evaluation mode and on the device.
            device: where it is.
            precision: what texts are encoded in; alignments, softmaxes and cosines are always in fp32.
            tokens_per_batch: tokens encoded at one time; None is a good number for the device.
            store_bytes: how much may be kept of encoded answers between calls of ``score``.
            tokens: how many will be encoded before the weights change, if known.
        """
        self._device = torch.device(device)
        self._batch = tokens_per_batch or TOKENS_PER_BATCH.get(self._device.type, 8192)
        self._store = StateStore(store_bytes)
        with torch.inference_mode():
            encoder, pooling = ranker.encoder, ranker.pooling
            if precision == "bf16":
                encoder, pooling = copy.deepcopy(encoder).bfloat16(), pooling.in_bf16()
            self._encode = encoder.inference_encoder(tokens)
            self._pair_scorer = pair_scorer_for(pooling)

    def forget(self) -> None:
        """Empties the store: from now on names may mean other answers."""
        self._store = StateStore(self._store.capacity)

    @torch.inference_mode()
    def score(
        self,
        questions: Tokens,
        answers: Tokens,
        pair_question: np.ndarray,
        pair_answer: np.ndarray,
        names: np.ndarray | None = None,
    ) -> np.ndarray:
        """Scores of pairs; peak memory does not grow with the number of answers, only by a few bytes a pair.

        Args:
            questions: token ids of distinct questions.
            answers: token ids of distinct answers.
            pair_question: (P,) which question each pair has.
            pair_answer: (P,) which answer each pair has.
            names: (answers,) a number for each answer that means the same text in every call, or -1: what is
                kept of encoded answers is found again under it.

        Returns:
            (P,) float32, equal to the pairwise definition within 1e-5 with fp32. The scores follow from the
            arguments alone, to the bit: not from the number of threads, nor from what is in the store.
        """
        scores = np.empty(len(pair_question), dtype=np.float32)
        if not len(scores):
            return scores
        self._store.begin()
        needed, order, starts = _by_answer(answers.lengths, pair_answer)
        batches = 1 if _shared(needed, pair_answer) else BATCHES_PER_WINDOW
        windows = _blocks(answers.lengths[needed], self._window(answers.lengths[needed], batches))

        with _cores(self._device, len(windows)) as each:
            asked = self._asked(questions)

            def work(window: np.ndarray) -> None:
                rows = needed[window]
                bounds = starts[window[0] : window[-1] + 2]
                members = order[bounds[0] : bounds[-1]]
                local = np.repeat(np.arange(len(window)), np.diff(bounds))
                pairs = torch.from_numpy(np.stack([pair_question[members], local])).to(self._device)
                lengths = torch.from_numpy(answers.lengths[rows]).to(self._device)
                kept = self._kept(answers, names, rows)
                scores[members] = self._pair_scorer.scores(asked, kept, lengths, pairs).cpu().numpy()

            each(work, windows)
        return scores

    def _window(self, lengths: np.ndarray, batches: int) -> int:
        """Tokens to a window: no more than so many batches, and where there is little, work for all cores."""
        largest = batches * self._batch
        if self._device.type != "cpu":
            return largest
        return min(largest, max(int(lengths.sum()) // WINDOWS, TOKENS_PER_WINDOW))

    def _asked(self, questions: Tokens) -> Any:
        parts = []
        by_length = np.argsort(questions.lengths, kind="stable")
        for block in _blocks(questions.lengths[by_length], self._batch):
            tokens = Ragged.of(questions.take(by_length[block]), self._device)
            parts.append(tokens.with_values(self._encode(tokens, Ragged.of_lengths(tokens.lengths).values)))
        back = torch.from_numpy(np.argsort(by_length, kind="stable")).to(self._device)
        return self._pair_scorer.prepare_questions(_concatenated(parts).select(back))

    def _kept(self, answers: Tokens, names: np.ndarray | None, rows: np.ndarray) -> Sequence[Tensor]:
        """What the join keeps of the answers at ``rows``: from the store, or encoded in like lengths."""
        numbers = [-1] * len(rows) if names is None else names[rows].tolist()
        kept: list[Any] = self._store.get(numbers)
        missing = np.array([place for place, states in enumerate(kept) if states is None], dtype=np.int64)
        missing = missing[np.argsort(answers.lengths[rows[missing]], kind="stable")]
        for block in _blocks(answers.lengths[rows[missing]], self._batch):
            places = missing[block].tolist()
            made = self._encoded(answers.take(rows[places]))
            for place, states in zip(places, made, strict=True):
                kept[place] = states
            self._store.put([numbers[place] for place in places], made)
        return kept

    def _encoded(self, texts: Tokens) -> Sequence[Tensor]:
        tokens = Ragged.of(texts, self._device)
        rows, counts = self._pair_scorer.select_states(tokens.lengths)
        return self._pair_scorer.cache_answers(
            Ragged.of_lengths(counts).with_values(self._encode(tokens, rows))
        )


def _by_answer(lengths: np.ndarray, pair_answer: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs sorted by answer.

    Where answers are shared by pools, those of like length come together: they fit each other's batches. Else
    they come in the order of the pairs: those of a pool fit each other's questions.

    Returns:
        The answers needed; pairs, those of the first such answer first; where each answer's pairs start.
    """
    order = np.argsort(pair_answer, kind="stable")
    needed, first, counts = np.unique(pair_answer, return_index=True, return_counts=True)
    turn = np.argsort(lengths[needed] if _shared(needed, pair_answer) else first, kind="stable")
    begins = (np.cumsum(counts) - counts)[turn]
    starts = np.concatenate([[0], np.cumsum(counts[turn])])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts[turn])
    return needed[turn], order[np.repeat(begins, counts[turn]) + within], starts


def _shared(needed: np.ndarray, pair_answer: np.ndarray) -> bool:
    """Whether an answer stands in several pools as a rule."""
    return len(pair_answer) >= 2 * len(needed)


def _blocks(lengths: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Consecutive runs of texts of about so many tokens together."""
    if not len(lengths):
        return []
    block = (np.cumsum(lengths) - lengths) // tokens
    return np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(block)) + 1)


@contextmanager
def _cores(device: torch.device, pieces: int) -> Iterator[Callable[[Work, list[np.ndarray]], object]]:
    """Shares pieces of work among as many threads as torch has, each on one core.

    Most products are too small for several cores to work on one. As a piece is worked on by one core always,
    its result does not depend on how many there are.
    """
    if device.type != "cpu":
        yield lambda work, windows: deque(map(work, windows), maxlen=0)
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if min(threads, pieces) == 1:
            yield lambda work, windows: deque(map(work, windows), maxlen=0)
            return
        pool = _pool(threads)
        yield lambda work, windows: deque(pool.map(torch.inference_mode()(work), windows), maxlen=0)
    finally:
        torch.set_num_threads(threads)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: each new one would begin a heap of its own, and memory would grow call by call."""
    return ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))


def _concatenated(parts: list[Ragged]) -> Ragged:
    if len(parts) == 1:
        return parts[0]
    lengths = torch.cat([part.lengths for part in parts])
    return Ragged.of_lengths(lengths).with_values(torch.cat([part.values for part in parts]))
