"""Retrieval from a corpus that is streamed: the scores of BM25 over all of it, ties by id, bounded memory."""

import tracemalloc

import numpy as np
import pytest

from aptool.text import first_stage
from aptool.text.bm25 import BM25
from aptool.text.first_stage import retrieve


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of at most 64 documents, which hold about 40 words of the queries."""
    monkeypatch.setattr(first_stage, "BLOCK_DOCUMENTS", 64)
    monkeypatch.setattr(first_stage, "BLOCK_WORDS", 40)


def corpus(seed, documents):
    """Few words, some of them frequent, in short documents: many scores are equal. Ids are in no order."""
    draw = np.random.default_rng(seed)
    words, share = list("abcdefghijklmnop"), 1 / np.arange(1, 17)
    ids = [f"{number}é" if number % 7 == 0 else f"d{number}" for number in draw.permutation(documents)]
    lengths = draw.integers(0, 7, documents)
    return [
        (name, " ".join(draw.choice(words, length, p=share / share.sum())))
        for name, length in zip(ids, lengths, strict=True)
    ]


@pytest.mark.parametrize("depth", [1, 3, 50, 2000])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("small_blocks")
def test_rankings_are_a_full_sort_of_all_scores(seed, depth):
    documents = corpus(seed, 1000)
    queries = ["a", "p o", "a b a", "k l m n", "nothing of it", "", "c zzz"]
    index = BM25([text for _, text in documents])

    rankings = retrieve(lambda: iter(documents), queries, depth)

    for query, ranking in zip(queries, rankings, strict=True):
        scored = [
            (float(score), name)
            for score, (name, _) in zip(index.scores(query), documents, strict=True)
            if score > 0
        ]
        # As trec_eval: scores descending, of equal ones the id that is later in byte order first.
        expected = sorted(scored, key=lambda one: (one[0], one[1].encode()), reverse=True)[:depth]
        assert list(zip(ranking.scores.tolist(), ranking.ids.tolist(), strict=True)) == expected


@pytest.mark.usefixtures("small_blocks")
def test_equal_documents_at_the_end_are_those_with_the_latest_ids():
    documents = [(f"{number:03}", "same words") for number in range(200)]

    for read in (documents, documents[::-1]):
        (ranking,) = retrieve(lambda read=read: iter(read), ["same"], 3)
        assert ranking.ids.tolist() == ["199", "198", "197"]


@pytest.mark.parametrize("documents", [[], [("a", ""), ("b", "...")]])
def test_nothing_is_retrieved_where_there_is_no_word(documents):
    (ranking,) = retrieve(lambda: iter(documents), ["a"], 5)

    assert (ranking.ids.tolist(), ranking.scores.tolist()) == ([], [])


def test_memory_does_not_grow_with_the_corpus(monkeypatch):
    monkeypatch.setattr(first_stage, "BLOCK_DOCUMENTS", 500)
    words = [f"w{number}" for number in range(50)]

    def streamed(many):
        draw = np.random.default_rng(0)
        for number in range(many):
            yield f"document {number}", " ".join(words[place] for place in draw.integers(0, 50, 8))

    def peak(many):
        tracemalloc.start()
        try:
            retrieve(lambda: streamed(many), ["w1 w2 w3", "w4"], 20)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)  # what is loaded once is not counted
    assert peak(10_000) < 1.2 * peak(1_000)
