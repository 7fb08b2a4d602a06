"""The words of a synthetic collection, and their sampling.

A word is identified by its frequency rank. Function words have the first ranks, then come words of facets and
words of topics. Within its kind, word r has the weight 1 / (r + 2.7): the Zipf-Mandelbrot law.
"""

from typing import NamedTuple

import numpy as np

FUNCTION_WORDS = 200
FACETS, ASKING_WORDS, ANSWERING_WORDS = 24, 3, 12
NOT_OF_TOPICS = FUNCTION_WORDS + FACETS * (ASKING_WORDS + ANSWERING_WORDS)


class Words(NamedTuple):
    """Words of one kind in groups, sampled by their weights."""

    ids: np.ndarray  # (words,) sorted by group, then by frequency
    mass: np.ndarray  # (words + 1,) cumulative weights
    starts: np.ndarray  # (groups + 1,) offsets of the groups in ``ids``

    def draw(self, groups: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Sample a word per group by random numbers in [0, 1); return (n,) indices into ``ids``."""
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
        # All topics have the same number of words, of all ranks.
        topic = np.argsort(rng.random(len(content))) % topics
        self.function = _grouped(np.arange(FUNCTION_WORDS), np.zeros(FUNCTION_WORDS, dtype=np.int64), 1)
        self.asking = _grouped(asking, np.arange(len(asking)) % FACETS, FACETS)
        self.answering = _grouped(answering, np.arange(len(answering)) % FACETS, FACETS)
        self.topic = _grouped(content, topic, topics)
        self.texts = np.array([spelled(rank) for rank in range(vocabulary)], dtype=object)

    def synonyms(self, positions: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """The synonym of each word: the word of the next rank in its topic. The relation is symmetric."""
        start, end = self.topic.starts[groups], self.topic.starts[groups + 1]
        other = start + ((positions - start) ^ 1)
        return np.where(other < end, other, positions)


def _grouped(ids: np.ndarray, groups: np.ndarray, count: int) -> Words:
    order = np.lexsort((ids, groups))
    weights = 1 / (ids[order] + 2.7)
    starts = np.searchsorted(groups[order], np.arange(count + 1))
    return Words(ids[order], np.concatenate([[0.0], np.cumsum(weights)]), starts)


def spelled(rank: int) -> str:
    """A pronounceable, unique word for a rank; frequent words are short."""
    consonants, vowels = "bdfgklmnprstvz", "aeiou"
    syllables = len(consonants) * len(vowels)
    rank, word = rank + 1, ""
    while rank:
        rank, syllable = divmod(rank - 1, syllables)
        word = consonants[syllable // len(vowels)] + vowels[syllable % len(vowels)] + word
    return word
