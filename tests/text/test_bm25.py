"""BM25 over documents in memory, and retrieval from a streamed corpus with the same scores."""

import math

import numpy as np
import pytest

from aptool.text.bm25 import BM25


def test_scores_computed_by_hand():
    # N = 3 documents of 3, 2 and 1 words, mean length 2; 'a' is in two of them, 'c' in one.
    # idf(a) = ln(1 + 1.5 / 2.5), idf(c) = ln(1 + 2.5 / 1.5)
    # document 0: tf(a) = 2, 1.2 * (0.25 + 0.75 * 3 / 2) = 1.65    document 1: 1.2 * (0.25 + 0.75) = 1.2
    index = BM25(["a a b", "a c", "d"])
    idf_a, idf_c = math.log(1.6), math.log(1 + 2.5 / 1.5)
    expected = [idf_a * 2 / (2 + 1.65), idf_a / 2.2 + idf_c / 2.2, 0]
    np.testing.assert_allclose(index.scores("a C unknown"), expected, rtol=1e-6)
    # A word that occurs twice in the query counts twice.
    np.testing.assert_allclose(index.scores("a a"), [2 * idf_a * 2 / 3.65, 2 * idf_a / 2.2, 0], rtol=1e-6)


def test_scores_are_those_of_bm25s_to_the_bit():
    bm25s = pytest.importorskip("bm25s", reason="bm25s is not installed")
    draw = np.random.default_rng(2)
    words = np.array([f"w{number}" for number in range(300)])
    share = 1 / np.arange(1, 301)
    documents = [draw.choice(words, draw.integers(0, 60), p=share / share.sum()).tolist() for _ in range(400)]
    queries = [draw.choice(words, 6, p=share / share.sum()).tolist() for _ in range(50)]
    other = bm25s.BM25(method="lucene", k1=1.2, b=0.75, dtype="float32")
    vocabulary = {word: number for number, word in enumerate(sorted(set().union(*documents)))}
    numbers = [[vocabulary[word] for word in document] for document in documents]
    other.index((numbers, vocabulary), create_empty_token=False, show_progress=False)

    index = BM25(map(" ".join, documents))

    for query in queries:
        ids = [vocabulary[word] for word in query if word in vocabulary]
        assert index.scores(" ".join(query)).tolist() == other.get_scores_from_ids(ids).tolist()


def test_documents_with_equal_scores_keep_their_order():
    # Documents 1, 2 and 4 are one text; 0 and 3 share no word with the query.
    indices, scores = BM25(["x", "a b", "a b", "y", "a b"]).top(["a"], 4)
    assert indices.tolist() == [[1, 2, 4, 0]]
    assert scores[0, 0] == scores[0, 2] > scores[0, 3] == 0


@pytest.mark.parametrize("k", [1, 7, 100, 6000])
def test_top_is_the_start_of_a_full_stable_sort(k):
    # Few distinct words over many short documents: most scores are tied.
    draw = np.random.default_rng(0)
    documents = [" ".join(draw.choice(list("abcdefgh"), draw.integers(1, 6))) for _ in range(5000)]
    index = BM25(documents)
    queries = ["a", "b c", "h g a", "none of these words z"]
    indices, scores = index.top(queries, k)
    for row, query in enumerate(queries):
        all_scores = index.scores(query)
        expected = sorted(range(len(documents)), key=lambda document: (-all_scores[document], document))[:k]
        assert indices[row].tolist() == expected
        assert scores[row].tolist() == all_scores[expected].tolist()


def test_documents_without_a_common_word_have_score_zero():
    assert BM25(["", "..."]).scores("a").tolist() == [0, 0]
    assert BM25(["a"]).scores("").tolist() == [0]
    assert BM25([]).top(["a"], 3)[0].shape == (1, 0)
