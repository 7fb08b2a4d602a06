"""BM25 on ``bm25s``: the first stage that retrieves pools, and a baseline for the neural systems.

Lucene's variant (Kamphuis et al. 2020, *Which BM25 do you mean?*): the sum over the query's words of

    ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / mean length))

with k1 = 1.2 and b = 0.75. A word that occurs twice in the query counts twice. Words are runs of letters,
digits and underscores, lower-cased; there is no stemming and there are no stop words.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

K1 = 1.2
B = 0.75

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
        ids = [
            [self._vocabulary.setdefault(word, len(self._vocabulary)) for word in words(document)]
            for document in documents
        ]
        self._documents = len(ids)
        self._index = None
        if self._vocabulary:
            import bm25s  # only here: scoring with a network does not need it

            self._index = bm25s.BM25(method="lucene", k1=K1, b=B, dtype="float32")
            self._index.index((ids, self._vocabulary), create_empty_token=False, show_progress=False)

    def __len__(self) -> int:
        return self._documents

    def scores(self, query: Text) -> np.ndarray:
        """(documents,) float32: the score of every document, 0 where they share no word."""
        ids = [self._vocabulary[word] for word in words(query) if word in self._vocabulary]
        if self._index is None or not ids:
            return np.zeros(self._documents, dtype=np.float32)
        return np.asarray(self._index.get_scores_from_ids(ids))

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
            among = np.flatnonzero(scores >= _lower_bound(scores, k)) if k else np.empty(0, np.int64)
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


def _lower_bound(scores: np.ndarray, k: int) -> np.float32:
    """A value that at least ``k`` of the scores reach, near the k-th best: the k-th best of block maxima.

    Partitioning the scores themselves would take longer than computing them, and which of several equal
    scores a partition keeps depends on the processor.
    """
    size = max(len(scores) // (_BLOCKS_PER_HIT * k), 1)
    maxima = scores[: len(scores) // size * size].reshape(-1, size).max(axis=1)
    return np.partition(maxima, -k)[-k]
