"""BM25 over documents in memory.

Lucene's variant (Kamphuis et al. 2020, *Which BM25 do you mean?*): the sum over the query's words of

    ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / mean length))

with k1 = 1.2 and b = 0.75. A word that occurs twice in the query counts twice. Words are those of
`text.words`, without stemming or stop words.

Each term of the sum is rounded to float32, and terms are added in the order of the query's words, so that a
score does not depend on the other documents that are scored.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from aptool.text.words import unicode_words

Text = str | Sequence[str]

K1 = 1.2
B = 0.75

# The weights of a word in more than this share of the documents are stored as a row over all documents, which
# is added several times as fast as a list of postings.
_FREQUENT = 0.25

_BLOCKS_PER_HIT = 8


def words(text: Text) -> list[str]:
    """Split a text into normalized words; a sequence of words is returned unchanged."""
    return unicode_words(text) if isinstance(text, str) else list(text)


class BM25:
    """An index over documents, each a text or a sequence of words."""

    def __init__(self, documents: Iterable[Text]) -> None:
        self._vocabulary: dict[str, int] = {}
        builder = PostingsBuilder()
        for document in documents:
            ids = [self._vocabulary.setdefault(w, len(self._vocabulary)) for w in words(document)]
            builder.add(ids, len(ids))
        self._documents = builder.documents
        postings = builder.build(len(self._vocabulary))
        idf = inverse_document_frequency(postings.frequencies, self._documents)
        self._weighted = WeightedPostings(postings, idf, builder.words / max(self._documents, 1))

    def scores(self, query: Text) -> np.ndarray:
        """(documents,) float32: the score of every document, 0 without a common word."""
        return self._weighted.scores([self._vocabulary[w] for w in words(query) if w in self._vocabulary])

    def top(self, queries: Sequence[Text], k: int) -> tuple[np.ndarray, np.ndarray]:
        """The ``k`` best documents of each query, best first, ties by index.

        Returns:
            (n, k) int64 indices and (n, k) float32 scores, with k at most the number of documents.
        """
        k = min(k, self._documents)
        indices = np.empty((len(queries), k), dtype=np.int64)
        best = np.empty((len(queries), k), dtype=np.float32)
        for row, query in enumerate(queries):
            scores = self.scores(query)
            indices[row] = _top(scores, k, _lower_bound(scores, k))
            best[row] = scores[indices[row]]
        return indices, best


def _top(scores: np.ndarray, k: int, bound: float) -> np.ndarray:
    """The indices of the ``k`` best scores that are at least ``bound``, best first, ties by index."""
    candidates = np.flatnonzero(scores >= bound)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]


def _lower_bound(scores: np.ndarray, k: int) -> float:
    """A lower bound of the k-th best score, close to it: the k-th best of block maxima; 0 for fewer scores.

    Partitioning the scores themselves would take longer than computing them, and the processor would decide
    between equal scores.
    """
    if not 0 < k <= len(scores):
        return 0.0
    size = max(len(scores) // (_BLOCKS_PER_HIT * k), 1)
    maxima = scores[: len(scores) // size * size].reshape(-1, size).max(axis=1)
    return float(np.partition(maxima, -k)[-k])


class Postings(NamedTuple):
    """The documents in which each word occurs, with counts."""

    starts: np.ndarray  # (V + 1,) int64: word w has the postings ``starts[w]`` to ``starts[w + 1]``
    documents: np.ndarray  # (P,) int64 document of each posting
    counts: np.ndarray  # (P,) int64 occurrences of the word in the document
    lengths: np.ndarray  # (D,) int64 words per document, words without postings included

    @property
    def frequencies(self) -> np.ndarray:
        """(V,) documents per word."""
        return np.diff(self.starts)


class PostingsBuilder:
    """Collects documents, as word ids, for `Postings`."""

    def __init__(self) -> None:
        self._words = array("i")
        self._counts = array("i")
        self._lengths = array("i")

    @property
    def documents(self) -> int:
        """The number of documents."""
        return len(self._lengths)

    @property
    def words(self) -> int:
        """The number of running words with postings."""
        return len(self._words)

    def add(self, words: Sequence[int], length: int) -> None:
        """Add a document: the ids of its words that get postings, and the number of all its words."""
        self._words.extend(words)
        self._counts.append(len(words))
        self._lengths.append(length)

    def build(self, vocabulary: int) -> Postings:
        """Build the postings of the words 0 to ``vocabulary`` - 1."""
        size = max(self.documents, 1)
        document = np.repeat(np.arange(self.documents), np.array(self._counts, dtype=np.int64))
        occurrences = np.array(self._words, dtype=np.int64) * size + document
        pairs, counts = np.unique(occurrences, return_counts=True)  # (P,) sorted by word, then by document
        starts = np.searchsorted(pairs, np.arange(vocabulary + 1) * size)
        return Postings(starts, pairs % size, counts, np.array(self._lengths, dtype=np.int64))


class WeightedPostings:
    """Postings with their BM25 weights."""

    def __init__(self, postings: Postings, idf: np.ndarray, mean_length: float) -> None:
        """Compute the weights; ``idf`` is (V,), and ``mean_length`` is over all documents of the corpus."""
        documents, counts, frequencies = postings.documents, postings.counts, postings.frequencies
        self._starts = postings.starts
        self._documents = documents
        self._number = len(postings.lengths)
        word = np.repeat(np.arange(len(idf)), frequencies)  # (P,)
        norm = K1 * ((1 - B) + B * postings.lengths[documents] / mean_length)  # (P,)
        rounded = idf.astype(np.float32)
        self._weights = (rounded[word] * (counts / (norm + counts))).astype(np.float32)
        frequent = np.flatnonzero(frequencies > _FREQUENT * self._number)
        self._row = {int(number): row for row, number in enumerate(frequent)}
        self._rows = np.zeros((len(frequent), self._number), dtype=np.float32)
        for number, row in self._row.items():
            part = slice(self._starts[number], self._starts[number + 1])
            self._rows[row, documents[part]] = self._weights[part]

    def scores(self, query: Sequence[int]) -> np.ndarray:
        """(D,) float32: the score of every document for the word ids of a query."""
        scores = np.zeros(self._number, dtype=np.float32)
        for word in query:
            row = self._row.get(word)
            if row is not None:
                scores += self._rows[row]
            else:
                part = slice(self._starts[word], self._starts[word + 1])
                scores[self._documents[part]] += self._weights[part]  # each document occurs once
        return scores


def inverse_document_frequency(frequencies: np.ndarray, documents: int) -> np.ndarray:
    """Lucene's ln(1 + (N - df + 0.5) / (df + 0.5)), float64, of words in df of N documents."""
    return np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))
