"""BM25 over documents in memory: a baseline for the neural systems.

Lucene's variant (Kamphuis et al. 2020, *Which BM25 do you mean?*): the sum over the query's words of

    ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / mean length))

with k1 = 1.2 and b = 0.75. A word that occurs twice in the query counts twice. Words are runs of letters,
digits and underscores, lower-cased; there is no stemming and there are no stop words.

Each term of the sum is rounded to float32, and terms are added in the order of the query's words, so that a
score does not depend on what else is scored. `first_stage` retrieves from a corpus that is only streamed.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from aptool.text.postings import PostingsBuilder, WeightedPostings, inverse_document_frequency

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
