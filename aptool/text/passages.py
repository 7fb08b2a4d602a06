"""Overlapping passages of long texts and pools, and the score of a text from the scores of its passages."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from threading import Lock
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from aptool.errors import UsageError
from aptool.formats.parquet import to_arrow
from aptool.formats.pools import PART_OF_SHARED, PoolBatch

Aggregate = Literal["max", "first", "mean", "top2"]
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)

# Chinese and Japanese are written without spaces: each character counts as a word.
_CHARACTERS = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(f"[{_CHARACTERS}]|[^\\s{_CHARACTERS}]+")
_SIZES = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


@dataclass(frozen=True)
class Passages:
    """How to cut candidates into passages, and how to score a candidate from its passages.

    A passage of ``words`` words starts every ``stride`` words. The last passage has ``words`` words, too, and
    ends with the text. A word is a run of characters without white space, or a Chinese or Japanese character.
    """

    words: int  # number of words per passage
    stride: int  # number of words between the starts of two passages, at most ``words``
    # The score of a candidate: ``max`` or ``mean`` of its passages, that of the ``first`` passage (only this
    # passage is scored), or ``top2``, the mean of the two best.
    aggregate: Aggregate = "max"

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return begin and end of each passage of a text, in characters; a short text is one passage."""
        whole = [(0, len(text))]
        if len(text) <= self.words * (2 if text.isascii() else 1):  # it has at most ``words`` words
            return whole
        words = [match.span() for match in _WORD.finditer(text)]
        last = len(words) - self.words
        if last <= 0:
            return whole
        starts = [0] if self.aggregate == "first" else [*range(0, last, self.stride), last]
        return [(words[start][0], words[start + self.words - 1][1]) for start in starts]

    def cut(self, text: str) -> list[str]:
        """Return the passages of a text."""
        return [text[begin:end] for begin, end in self.spans(text)]

    def aggregated(self, scores: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Score n texts from the (P,) scores of their passages, text by text, and their number per text.

        Returns:
            (n,) float32; NaN for a text with a passage whose score is not finite.
        """
        starts = np.cumsum(counts) - counts
        exact = scores.astype(np.float64)
        if self.aggregate == "first":
            result = exact[starts]
        elif self.aggregate == "max":
            result = np.maximum.reduceat(exact, starts)
        elif self.aggregate == "mean":
            result = np.add.reduceat(exact, starts) / counts
        else:
            best = exact[np.lexsort((-exact, np.repeat(np.arange(len(counts)), counts)))]
            result = (best[starts] + best[starts + np.minimum(counts - 1, 1)]) / 2
        is_finite = np.logical_and.reduceat(np.isfinite(exact), starts)
        return np.where(is_finite, result, np.nan).astype(np.float32)

    def check_limit(self, tokens: int | None) -> None:
        """Raise if every passage of full length exceeds the token limit of a model; None is no limit."""
        if tokens is not None and self.words > tokens:
            raise UsageError(
                f"passages '{self.words}:{self.stride}': expected at most {tokens} words: "
                f"the model reads {tokens} tokens of an answer"
            )

    def fingerprint(self, system: str) -> str:
        """Return the fingerprint of a system that scores passages; ``system`` is that of the model."""
        return json.dumps(["passages", self.words, self.stride, self.aggregate, system])

    def describe(self) -> dict[str, Any]:
        """Return the settings, as an entry of the metadata of a run."""
        return {"passages": asdict(self)}


def cut_texts(texts: Sequence[str], passages: Passages) -> tuple[list[str], np.ndarray]:
    """Return the passages of n texts, text by text, and (n,) int64 their number per text."""
    cut = [passages.cut(text) for text in texts]
    counts = np.fromiter(map(len, cut), dtype=np.int64, count=len(cut))
    return list(chain.from_iterable(cut)), counts


def parse_passages(passages: object, aggregate: object = None) -> Passages | None:
    """Return the options, from ``"WORDS:STRIDE"`` or a tuple of two integers; None if both are None."""
    if passages is None:
        if aggregate is not None:
            raise UsageError("aggregate: requires passages (--aggregate requires --passages)")
        return None
    match = _SIZES.fullmatch(passages) if isinstance(passages, str) else None
    sizes = tuple(map(int, match.groups())) if match else passages
    match sizes:
        case (int(words), int(stride)) if 1 <= stride <= words:
            pass
        case _:
            raise UsageError(
                f"passages {passages!r}: expected WORDS:STRIDE, two whole numbers with 1 <= STRIDE <= WORDS"
            )
    if aggregate is None:
        return Passages(words, stride)
    if aggregate not in AGGREGATES:
        raise UsageError(f"aggregate {aggregate!r}: expected one of {', '.join(AGGREGATES)}")
    return Passages(words, stride, aggregate)


def cut_pools(pools: PoolBatch, passages: Passages) -> tuple[PoolBatch, np.ndarray]:
    """Cut the candidates of pools into passages, a pair each; also return the passages per candidate."""
    whole = pools.answers.to_pylist()
    texts, per_answer = cut_texts(whole, passages)
    starts = np.cumsum(per_answer) - per_answer
    is_whole = np.array([texts[start] == text for start, text in zip(starts, whole, strict=True)], dtype=bool)
    if is_whole.all():
        return pools, np.ones(len(pools.pair_answer), dtype=np.int64)
    shared_rows = np.where(is_whole | (pools.shared_rows < 0), pools.shared_rows, PART_OF_SHARED)
    counts = per_answer[pools.pair_answer]
    ends = np.concatenate([[0], np.cumsum(counts)])
    first = starts[pools.pair_answer]
    pairs = np.repeat(np.arange(len(counts)), counts)
    return (
        replace(
            pools,
            offsets=ends[pools.offsets],
            answer_ids=pools.answer_ids.take(to_arrow(pairs)),
            answers=pa.array(texts, type=pools.answers.type),
            pair_answer=first[pairs] + np.arange(len(pairs)) - ends[pairs],
            shared_rows=np.repeat(shared_rows, per_answer),
        ),
        counts,
    )


def candidate_progress(counts: np.ndarray, progress: Callable[[int], None]) -> Callable[[int], None]:
    """Return a function of scored passages that calls ``progress`` with scored candidates; thread-safe.

    ``counts`` (n,) has the passages of each candidate.
    """
    candidates, total = len(counts), int(counts.sum())
    lock, done = Lock(), 0

    def passages_scored(number: int) -> None:
        nonlocal done
        with lock:
            before, done = done, min(done + number, total)
            scored = candidates * done // total - candidates * before // total
        progress(scored)

    return passages_scored
