"""BM25 over a streamed corpus: memory grows with the queries, not with the corpus.

The corpus is read twice: first for document frequencies and lengths, then to score it block by block and keep
the best documents of each query. Scores are equal to those of `bm25.BM25` over the same documents.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from aptool.progress import get_progress
from aptool.text.bm25 import (
    Postings,
    PostingsBuilder,
    WeightedPostings,
    inverse_document_frequency,
    lower_bound,
    words,
)

# Limits of a block: documents, and words of queries in these documents.
BLOCK_DOCUMENTS = 1 << 16
BLOCK_WORDS = 1 << 21

Documents = Iterable[tuple[str, str]]


class Ranking(NamedTuple):
    """The best documents of a query, in trec_eval's order: by score, then by id, both descending.

    Attributes:
        ids: (n,) document ids.
        scores: (n,) float32, above 0.
    """

    ids: np.ndarray
    scores: np.ndarray


def retrieve(corpus: Callable[[], Documents], queries: Sequence[str], depth: int) -> list[Ranking]:
    """Retrieve the best documents of each query, only documents with a word of the query.

    Args:
        corpus: starts to read the documents, each an id and a text.
        queries: the texts of the queries.
        depth: maximum number of documents per query.
    """
    vocabulary: dict[str, int] = {}
    query_ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(query)] for query in queries]
    frequencies = np.zeros(len(vocabulary), dtype=np.int64)
    documents = total_length = 0
    for block in _blocks(corpus(), vocabulary):
        frequencies += block.postings.frequencies
        documents += len(block.ids)
        total_length += int(block.postings.lengths.sum())
    idf = inverse_document_frequency(frequencies, documents)
    best = [_Best(depth) for _ in queries]
    with get_progress().task("BM25") as update:
        done = 0
        update(0, documents, "documents")
        for block in _blocks(corpus(), vocabulary):
            weighted = WeightedPostings(block.postings, idf, total_length / documents)
            for query, kept in zip(query_ids, best, strict=True):
                kept.add(block, weighted.scores(query))
            done += len(block.ids)
            update(done, documents, "documents")
    return [kept.ranking() for kept in best]


class _Block:
    """D documents of the corpus, with their ids and postings."""

    def __init__(self, ids: list[str], postings: Postings) -> None:
        self.ids = np.array(ids, dtype=object)
        self.postings = postings

    @cached_property
    def ranks(self) -> np.ndarray:
        """(D,) the rank of each id in the block, in byte order."""
        ranks = np.empty(len(self.ids), dtype=np.int64)
        ranks[np.argsort(self.ids)] = np.arange(len(self.ids))
        return ranks


def _blocks(documents: Documents, vocabulary: dict[str, int]) -> Iterator[_Block]:
    ids: list[str] = []
    builder = PostingsBuilder()
    for name, text in documents:
        document = words(text)
        ids.append(name)
        builder.add([vocabulary[word] for word in document if word in vocabulary], len(document))
        if builder.documents >= BLOCK_DOCUMENTS or builder.words >= BLOCK_WORDS:
            yield _Block(ids, builder.build(len(vocabulary)))
            ids, builder = [], PostingsBuilder()
    if ids:
        yield _Block(ids, builder.build(len(vocabulary)))


class _Best:
    """The best documents of one query among those seen so far."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._ids = np.empty(0, dtype=object)
        self._scores = np.empty(0, dtype=np.float32)

    def add(self, block: _Block, scores: np.ndarray) -> None:
        """Add a block with the (D,) scores of its documents."""
        is_full = len(self._scores) == self._depth
        bound = self._scores.min() if is_full else lower_bound(scores, self._depth)
        # A document with an equal score may have a later id.
        rows = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
        rows = rows[_best(scores[rows], lambda indices: block.ranks[rows[indices]], self._depth)]
        ids = np.concatenate([self._ids, block.ids[rows]])
        all_scores = np.concatenate([self._scores, scores[rows]])
        kept = _best(all_scores, lambda indices: ids[indices], self._depth)
        self._ids, self._scores = ids[kept], all_scores[kept]

    def ranking(self) -> Ranking:
        """The kept documents, in order."""
        order = np.lexsort((self._ids, self._scores))[::-1]
        return Ranking(self._ids[order], self._scores[order])


def _best(scores: np.ndarray, keys: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray:
    """Select the ``size`` highest of (n,) scores; of equal scores at the end, those with the greatest keys.

    Args:
        scores: (n,).
        keys: returns the keys of scores, by their indices; only called for ties.
        size: maximum number of scores.
    """
    if len(scores) <= size:
        return np.arange(len(scores))
    last = np.partition(scores, -size)[-size]
    above = np.flatnonzero(scores > last)
    equal = np.flatnonzero(scores == last)
    free = size - len(above)
    if len(equal) > free:
        equal = equal[np.argsort(keys(equal))[::-1][:free]]
    return np.concatenate([above, equal])
