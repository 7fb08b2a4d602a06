"""BM25 over a corpus that is streamed: what is held grows with the queries, not with the corpus.

The corpus is read twice. The first reading counts documents, their words, and the documents that have each
word of a query; the second scores block after block, and keeps the best documents of each query. Scores are
those of `bm25.BM25` over the same documents.
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

# A block of postings ends after so many documents, or so many words of queries in them.
BLOCK_DOCUMENTS = 1 << 16
BLOCK_WORDS = 1 << 21

Documents = Iterable[tuple[str, str]]


class Ranking(NamedTuple):
    """The best documents of a query, in trec_eval's order: by score, then by id, both descending.

    Attributes:
        ids: (n,) of the documents, str.
        scores: (n,) float32, all above 0.
    """

    ids: np.ndarray
    scores: np.ndarray


def retrieve(corpus: Callable[[], Documents], queries: Sequence[str], depth: int) -> list[Ranking]:
    """The best documents of each query; a document without a word of the query is not among them.

    Args:
        corpus: starts another reading of the documents, each an id and a text.
        queries: the texts of the queries.
        depth: at most so many documents of each query.
    """
    vocabulary: dict[str, int] = {}
    asked = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(query)] for query in queries]
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
            for query, kept in zip(asked, best, strict=True):
                kept.add(block, weighted.scores(query))
            done += len(block.ids)
            update(done, documents, "documents")
    return [kept.ranking() for kept in best]


class _Block:
    """Some documents of the corpus.

    Attributes:
        ids: (D,) str.
        postings: of the vocabulary.
    """

    def __init__(self, ids: list[str], postings: Postings) -> None:
        self.ids = np.array(ids, dtype=object)
        self.postings = postings

    @cached_property
    def ranks(self) -> np.ndarray:
        """(D,) the rank of each id among those of the block, from the first to the last in byte order."""
        ranks = np.empty(len(self.ids), dtype=np.int64)
        ranks[np.argsort(self.ids)] = np.arange(len(self.ids))
        return ranks


def _blocks(documents: Documents, vocabulary: dict[str, int]) -> Iterator[_Block]:
    """The corpus, block by block."""
    ids: list[str] = []
    builder = PostingsBuilder()
    for name, text in documents:
        found = words(text)
        ids.append(name)
        builder.add([vocabulary[word] for word in found if word in vocabulary], len(found))
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
        """Takes in a block and the (D,) scores of its documents."""
        full = len(self._scores) == self._depth
        bound = self._scores.min() if full else lower_bound(scores, self._depth)
        # An equal score may have a later id.
        among = np.flatnonzero(scores >= bound if bound > 0 else scores > 0)
        among = among[_best(scores[among], lambda rows: block.ranks[among[rows]], self._depth)]
        ids = np.concatenate([self._ids, block.ids[among]])
        together = np.concatenate([self._scores, scores[among]])
        kept = _best(together, lambda rows: ids[rows], self._depth)
        self._ids, self._scores = ids[kept], together[kept]

    def ranking(self) -> Ranking:
        """What was kept, in order."""
        order = np.lexsort((self._ids, self._scores))[::-1]
        return Ranking(self._ids[order], self._scores[order])


def _best(scores: np.ndarray, keys: Callable[[np.ndarray], np.ndarray], many: int) -> np.ndarray:
    """Which of (n,) scores are the highest ``many``; of equal ones at the end those with the greatest keys.

    Args:
        scores: (n,).
        keys: the keys of some of them, by their indices; asked for only where they decide.
        many: at most so many.
    """
    if len(scores) <= many:
        return np.arange(len(scores))
    last = np.partition(scores, -many)[-many]
    above = np.flatnonzero(scores > last)
    equal = np.flatnonzero(scores == last)
    free = many - len(above)
    if len(equal) > free:
        equal = equal[np.argsort(keys(equal))[::-1][:free]]
    return np.concatenate([above, equal])
