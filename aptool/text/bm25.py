"""BM25 over documents in memory: a baseline for the neural systems.

Lucene's variant (Kamphuis et al. 2020, *Which BM25 do you mean?*): the sum over the query's words of

    ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / mean length))

with k1 = 1.2 and b = 0.75. A word that occurs twice in the query counts twice. Words are runs of letters,
digits and underscores, lower-cased; there is no stemming and there are no stop words.

Each term of the sum is rounded to float32, and terms are added in the order of the query's words, so that a
score does not depend on what else is scored. `first_stage` retrieves from a corpus that is only streamed.
"""

import re
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

Text = str | Sequence[str]

_WORD = re.compile(r"\w+")
_BLOCKS_PER_HIT = 8


def words(text: Text) -> list[str]:
    """The lower-cased words of a text; a sequence of words is returned as it is."""
    return _WORD.findall(text.lower()) if isinstance(text, str) else list(text)


class BM25:
    """An index over documents, each a text or a sequence of words."""

    def __init__(self, documents: Iterable[Text]) -> None:
        self._vocabulary: dict[str, int] = {}
        builder = PostingsBuilder()
        for document in documents:
            found = words(document)
            known = [self._vocabulary.setdefault(word, len(self._vocabulary)) for word in found]
            builder.add(known, len(found))
        self._documents = builder.documents
        postings = builder.build(len(self._vocabulary))
        idf = inverse_document_frequency(postings.frequencies, self._documents)
        self._weighted = WeightedPostings(postings, idf, builder.words / max(self._documents, 1))

    def __len__(self) -> int:
        return self._documents

    def scores(self, query: Text) -> np.ndarray:
        """(documents,) float32: the score of every document, 0 where they share no word."""
        return self._weighted.scores([self._vocabulary[w] for w in words(query) if w in self._vocabulary])

    def top(self, queries: Sequence[Text], k: int) -> tuple[np.ndarray, np.ndarray]:
        """The ``k`` best documents of each query, best first, ties by index.

        Returns:
            (n, k) int64 indices and (n, k) float32 scores; k is at most the number of documents.
        """
        k = min(k, self._documents)
        indices = np.empty((len(queries), k), dtype=np.int64)
        best = np.empty((len(queries), k), dtype=np.float32)
        for row, query in enumerate(queries):
            scores = self.scores(query)
            among = np.flatnonzero(scores >= lower_bound(scores, k))
            indices[row] = among[np.argsort(-scores[among], kind="stable")[:k]]
            best[row] = scores[indices[row]]
        return indices, best

    def score_pairs(
        self, queries: Sequence[Text], query_index: np.ndarray, document_index: np.ndarray
    ) -> np.ndarray:
        """The scores of given pairs, equal to those of ``top``.

        Args:
            queries: n queries.
            query_index: (pairs,) the query of each pair.
            document_index: (pairs,) its document.

        Returns:
            (pairs,) float32.
        """
        result = np.zeros(len(query_index), dtype=np.float32)
        order = np.argsort(query_index, kind="stable")
        distinct, starts = np.unique(np.asarray(query_index)[order], return_index=True)
        for query, pairs in zip(distinct, np.split(order, starts[1:]), strict=True) if len(order) else ():
            result[pairs] = self.scores(queries[query])[document_index[pairs]]
        return result


def lower_bound(scores: np.ndarray, k: int) -> float:
    """A value that at least ``k`` of the scores reach, near the k-th best: the k-th best of block maxima.

    Partitioning the scores themselves would take longer than computing them, and which of several equal
    scores a partition keeps depends on the processor. It is 0 where there are fewer than ``k`` scores.
    """
    if not 0 < k <= len(scores):
        return 0.0
    size = max(len(scores) // (_BLOCKS_PER_HIT * k), 1)
    maxima = scores[: len(scores) // size * size].reshape(-1, size).max(axis=1)
    return float(np.partition(maxima, -k)[-k])


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
