"""Postings of some documents, and their BM25 scores for a query."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

K1 = 1.2
B = 0.75

# A word that is in more than this share of the documents has its weights in a row of all documents, which is
# added several times as fast as a list of postings.
_FREQUENT = 0.25


class Postings(NamedTuple):
    """In which of some documents each word occurs, and how often.

    Attributes:
        starts: (V + 1,) int64: word w has the postings ``starts[w]`` to ``starts[w + 1]``.
        documents: (P,) int64 the document of each posting, ascending for each word.
        counts: (P,) int64 how often the word occurs in it.
        lengths: (D,) int64 words of each document, with those that have no postings.
    """

    starts: np.ndarray
    documents: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray

    @property
    def frequencies(self) -> np.ndarray:
        """(V,) how many of the documents have each word."""
        return np.diff(self.starts)


class PostingsBuilder:
    """Documents as numbers of words, of which postings are made."""

    def __init__(self) -> None:
        self._words = array("i")
        self._words_kept = array("i")
        self._lengths = array("i")

    @property
    def documents(self) -> int:
        """How many documents were added."""
        return len(self._lengths)

    @property
    def words(self) -> int:
        """How many words were added."""
        return len(self._words)

    def add(self, words: Sequence[int], length: int) -> None:
        """Adds a document.

        Args:
            words: those of its words that get postings.
            length: how many words it has in all.
        """
        self._words.extend(words)
        self._words_kept.append(len(words))
        self._lengths.append(length)

    def build(self, vocabulary: int) -> Postings:
        """The postings of the words 0 to ``vocabulary`` - 1."""
        many = max(self.documents, 1)
        document = np.repeat(np.arange(self.documents), np.array(self._words_kept, dtype=np.int64))
        pairs, counts = np.unique(
            np.array(self._words, dtype=np.int64) * many + document, return_counts=True
        )  # (P,) sorted by word, then by document
        starts = np.searchsorted(pairs, np.arange(vocabulary + 1) * many)
        return Postings(starts, pairs % many, counts, np.array(self._lengths, dtype=np.int64))


class WeightedPostings:
    """Postings with what each of them adds to the score of its document."""

    def __init__(self, postings: Postings, idf: np.ndarray, mean_length: float) -> None:
        """Computes the weights.

        Args:
            postings: of D documents.
            idf: (V,) inverse document frequencies.
            mean_length: words of a document, over the whole corpus.
        """
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
        """(D,) float32: the score of every document for the words of a query; 0 where they share none."""
        scores = np.zeros(self._number, dtype=np.float32)
        for word in query:
            row = self._row.get(word)
            if row is not None:
                scores += self._rows[row]
            else:
                part = slice(self._starts[word], self._starts[word + 1])
                scores[self._documents[part]] += self._weights[part]  # a document is there once
        return scores


def inverse_document_frequency(frequencies: np.ndarray, documents: int) -> np.ndarray:
    """Lucene's: ln(1 + (N - df + 0.5) / (df + 0.5)), float64, of words that are in df of N documents."""
    return np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))
