"""The words of a synthetic collection, and how they are drawn.

A word is known by its rank; the kinds of words take their ranks in the order of how frequent they are in
English: function words, words of facets, words of topics. Within its kind, word r has the weight
1 / (r + 2.7), which is Zipf's law as Mandelbrot has it.
"""

from typing import NamedTuple

import numpy as np

FUNCTION_WORDS = 200
FACETS, ASKING_WORDS, ANSWERING_WORDS = 24, 3, 12
NOT_OF_TOPICS = FUNCTION_WORDS + FACETS * (ASKING_WORDS + ANSWERING_WORDS)


class Words(NamedTuple):
    """Words of one kind: drawn by a number in [0, 1) within the stretch of ``mass`` of a group."""

    ids: np.ndarray  # (words,) grouped, the frequent ones of a group first
    mass: np.ndarray  # (words + 1,) running sum of weights
    starts: np.ndarray  # (groups + 1,) into ids

    def draw(self, groups: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """One word of each group, (n,) places in ``ids``."""
        low, high = self.mass[self.starts[groups]], self.mass[self.starts[groups + 1]]
        positions = np.searchsorted(self.mass, low + numbers * (high - low), side="right") - 1
        return np.clip(positions, self.starts[groups], self.starts[groups + 1] - 1)


class Lexicon:
    """The words of a collection; a word's number is its rank."""

    def __init__(self, vocabulary: int, topics: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 0])
        self.topics = topics
        facet_words = np.arange(FUNCTION_WORDS, NOT_OF_TOPICS)
        rng.shuffle(facet_words)
        asking, answering = np.split(facet_words, [FACETS * ASKING_WORDS])
        content = np.arange(NOT_OF_TOPICS, vocabulary)
        # Every topic gets as many words as the next, of all ranks.
        topic = np.argsort(rng.random(len(content))) % topics
        self.function = _grouped(np.arange(FUNCTION_WORDS), np.zeros(FUNCTION_WORDS, dtype=np.int64), 1)
        self.asking = _grouped(asking, np.arange(len(asking)) % FACETS, FACETS)
        self.answering = _grouped(answering, np.arange(len(answering)) % FACETS, FACETS)
        self.topic = _grouped(content, topic, topics)
        self.texts = np.array([spelled(rank) for rank in range(vocabulary)], dtype=object)

    def synonyms(self, positions: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """The word of the same topic of the neighboring rank; its synonym in turn is the first."""
        start, end = self.topic.starts[groups], self.topic.starts[groups + 1]
        other = start + ((positions - start) ^ 1)
        return np.where(other < end, other, positions)


def _grouped(ids: np.ndarray, groups: np.ndarray, count: int) -> Words:
    order = np.lexsort((ids, groups))
    weights = 1 / (ids[order] + 2.7)
    starts = np.searchsorted(groups[order], np.arange(count + 1))
    return Words(ids[order], np.concatenate([[0.0], np.cumsum(weights)]), starts)


def spelled(rank: int) -> str:
    """A pronounceable word for each rank, all different, short for the frequent ones."""
    consonants, vowels = "bdfgklmnprstvz", "aeiou"
    syllables = len(consonants) * len(vowels)
    rank, word = rank + 1, ""
    while rank:
        rank, syllable = divmod(rank - 1, syllables)
        word = consonants[syllable // len(vowels)] + vowels[syllable % len(vowels)] + word
    return word
