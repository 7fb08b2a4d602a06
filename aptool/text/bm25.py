"""BM25 over documents in memory.

Lucene's variant (Kamphuis et al. 2020, *Which BM25 do you mean?*): the sum over the query's words of

    ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / mean length))

with k1 = 1.2 and b = 0.75. A word that occurs twice in the query counts twice. Words are those of
`text.words`, without stemming or stop words.

Each term of the sum is rounded to float32, and terms are added in the order of the query's words, so that a
score does not depend on the other documents that are scored.
"""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aptool.text.words import unicode_words

K1 = 1.2
B = 0.75

# The weights of a word in more than this share of the documents are stored as a row over all documents, which
# is added several times as fast as a list of postings.
_FREQUENT = 0.25

_BLOCKS_PER_HIT = 8


@dataclass(frozen=True)
class WordCounts:
    """The document frequencies of a corpus."""

    documents: int
    words: int
    fingerprint: str  # of the frequencies of all words
    # Only words of the queries affect scores; the others would take memory.
    frequencies: Mapping[str, int] = field(compare=False, repr=False)

    @classmethod
    def of(cls, corpus: Iterable[str]) -> "WordCounts":
        """Count the documents of each word, among the distinct texts of a corpus."""
        documents = running = 0
        frequencies: Counter[str] = Counter()
        seen: set[bytes] = set()
        for text in corpus:
            key = hashlib.blake2b(text.encode(), digest_size=16).digest()
            if key in seen:
                continue
            seen.add(key)
            document = unicode_words(text)
            documents += 1
            running += len(document)
            frequencies.update(set(document))
        counts = [documents, running, sorted(frequencies.items())]
        digest = hashlib.sha256(json.dumps(counts).encode()).hexdigest()[:16]
        return cls(documents, running, digest, frequencies)


class BM25:
    """An index over documents.

    With the ``counts`` of a corpus, its frequencies and mean length count, and only its words are indexed.
    """

    def __init__(self, documents: Iterable[str], counts: WordCounts | None = None) -> None:
        known = {} if counts is None else counts.frequencies
        self._vocabulary = {word: number for number, word in enumerate(known)}
        ids, sizes, lengths = array("i"), array("i"), array("i")  # all words indexed; per document
        for document in documents:
            split = unicode_words(document)
            indexed = split if counts is None else [word for word in split if word in known]
            ids.extend([self._vocabulary.setdefault(word, len(self._vocabulary)) for word in indexed])
            sizes.append(len(indexed))
            lengths.append(len(split))
        self._documents = len(lengths)
        # Postings: word w occurs in documents ``_posted[_starts[w] : _starts[w + 1]]``.
        size = max(self._documents, 1)
        owner = np.repeat(np.arange(self._documents), np.array(sizes, dtype=np.int64))
        pairs, occurrences = np.unique(np.array(ids, dtype=np.int64) * size + owner, return_counts=True)
        self._starts = np.searchsorted(pairs, np.arange(len(self._vocabulary) + 1) * size)
        self._posted = pairs % size
        postings = np.diff(self._starts)  # (V,) documents per word
        if counts is None:
            idf, mean_length = inverse_document_frequency(postings, self._documents), len(ids) / size
        else:
            frequencies = np.array(list(known.values()), dtype=np.int64)
            idf = inverse_document_frequency(frequencies, counts.documents)
            mean_length = counts.words / max(counts.documents, 1)
        norm = K1 * ((1 - B) + B * np.array(lengths, dtype=np.int64)[self._posted] / mean_length)
        rounded = np.repeat(idf.astype(np.float32), postings)
        self._weights = (rounded * (occurrences / (norm + occurrences))).astype(np.float32)
        frequent = np.flatnonzero(postings > _FREQUENT * self._documents)
        self._row = {int(number): row for row, number in enumerate(frequent)}
        self._rows = np.zeros((len(frequent), self._documents), dtype=np.float32)
        for number, row in self._row.items():
            part = slice(self._starts[number], self._starts[number + 1])
            self._rows[row, self._posted[part]] = self._weights[part]

    def scores(self, query: str) -> np.ndarray:
        """(documents,) float32: the score of every document, 0 without a common word."""
        scores = np.zeros(self._documents, dtype=np.float32)
        for number in [self._vocabulary[word] for word in unicode_words(query) if word in self._vocabulary]:
            row = self._row.get(number)
            if row is not None:
                scores += self._rows[row]
            else:
                part = slice(self._starts[number], self._starts[number + 1])
                scores[self._posted[part]] += self._weights[part]  # each document occurs once
        return scores

    def top(self, queries: Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """The ``k`` best documents of each query, best first, ties by index.

        Returns:
            (n, k) int64 indices and (n, k) float32 scores, with k at most the number of documents.
        """
        k = min(k, self._documents)
        indices = np.empty((len(queries), k), dtype=np.int64)
        best = np.empty((len(queries), k), dtype=np.float32)
        for row, query in enumerate(queries if k else ()):
            scores = self.scores(query)
            candidates = np.flatnonzero(scores >= _lower_bound(scores, k))
            indices[row] = candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
            best[row] = scores[indices[row]]
        return indices, best


def _lower_bound(scores: np.ndarray, k: int) -> float:
    """A lower bound of the k-th best score, close to it: the k-th best of block maxima.

    Partitioning the scores themselves would take longer than computing them.
    """
    size = max(len(scores) // (_BLOCKS_PER_HIT * k), 1)
    maxima = scores[: len(scores) // size * size].reshape(-1, size).max(axis=1)
    return float(np.partition(maxima, -k)[-k])


def inverse_document_frequency(frequencies: np.ndarray, documents: int) -> np.ndarray:
    """Lucene's ln(1 + (N - df + 0.5) / (df + 0.5)), float64, of words in df of N documents."""
    return np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5))
