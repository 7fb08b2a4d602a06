"""Learning word vectors: the gradient against autograd, and texts with a simple structure."""

import numpy as np
import pytest
import torch

from aptool.text import skipgram
from aptool.text.skipgram import learn_vectors


def texts_of_topics(topics: int, words: int, texts: int, seed: int = 0):
    """Each text draws 12 words of one topic; ids of topic t are t * words and up."""
    draw = np.random.default_rng(seed)
    topic = draw.integers(topics, size=texts)
    ids = (topic[:, None] * words + draw.integers(words, size=(texts, 12))).astype(np.int32).ravel()
    return ids, np.arange(0, len(ids) + 1, 12), np.bincount(ids, minlength=topics * words)


def test_the_step_follows_the_gradient_of_the_objective(monkeypatch):
    """The gradient of one step equals autograd's on the objective, written as a sum over pairs."""
    torch.manual_seed(0)
    size, window, negatives, shared, dim = 4, 2, 3, 5, 6
    words = torch.tensor([0, 1, 2, 1, 3, 0, 4, 2])
    texts = torch.tensor([0, 0, 0, 1, 1, 1, 1, -1])  # the last is padding
    against = torch.tensor([[5, 6, 0, 1, 5], [2, 6, 6, 3, 4]])
    inner, outer = torch.randn(7, dim), torch.randn(7, dim)

    # Pairs at distance 1 count 2/2 and at distance 2 count 1/2; each comes with 3 of the 5 shared negatives.
    a, b = inner.clone().requires_grad_(), outer.clone().requires_grad_()
    loss = torch.zeros(())
    for i in range(8):
        for j in range(8):
            distance = abs(i - j)
            if texts[i] != texts[j] or texts[i] < 0 or distance not in (1, 2):
                continue
            weight = {1: 1.0, 2: 0.5}[distance]
            loss = loss - weight * torch.nn.functional.logsigmoid(a[words[i]] @ b[words[j]])
            for negative in against[i // size]:
                score = torch.nn.functional.logsigmoid(-a[words[i]] @ b[negative])
                loss = loss - weight * negatives / shared * score
    loss.backward()

    gradients = {}

    def descend(table, rows, gradient, rate):
        total = torch.zeros(7, dim).index_add_(0, rows, gradient)
        gradients["inner" if table.weight is inner else "outer"] = total

    monkeypatch.setattr(skipgram, "_BLOCK", size)
    monkeypatch.setattr(skipgram, "_descend", descend)
    tables = skipgram._Table(inner, torch.zeros(7)), skipgram._Table(outer, torch.zeros(7))
    skipgram._step(*tables, words, texts, against, skipgram._band(window), negatives, 0.1)
    torch.testing.assert_close(gradients["inner"], a.grad)
    torch.testing.assert_close(gradients["outer"], b.grad)


def test_words_of_one_topic_become_neighbours():
    ids, offsets, counts = texts_of_topics(topics=8, words=20, texts=2000)
    matrix = learn_vectors(ids, offsets, counts, dim=16, seed=1)
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1)
    assert (cosines.argmax(axis=1) // 20 == np.arange(160) // 20).all()


def test_windows_end_with_the_text():
    """Texts of a single word have no pairs, so vectors do not change."""
    ids = np.arange(50, dtype=np.int32) % 5
    start = learn_vectors(ids, np.arange(51), np.zeros(5, np.int64), dim=4, seed=3)
    after = learn_vectors(ids, np.arange(51), np.bincount(ids), dim=4, seed=3)
    assert np.array_equal(start, after)


def test_the_result_depends_on_the_seed_only():
    corpus = texts_of_topics(topics=4, words=10, texts=400)
    first = learn_vectors(*corpus, dim=8, epochs=2, seed=5)
    assert np.array_equal(first, learn_vectors(*corpus, dim=8, epochs=2, seed=5))
    assert not np.array_equal(first, learn_vectors(*corpus, dim=8, epochs=2, seed=6))
    assert first.shape == (40, 8)
    assert first.dtype == np.float32


def test_frequent_words_are_subsampled_as_in_word2vec():
    # t = 1e-4. At f = 0.01, t/f = 0.01 and sqrt(t/f) + t/f = 0.1 + 0.01; at f = t it is 2, so always.
    counts = np.array([1_000_000 - 10_000 - 100, 10_000, 100])
    keep = skipgram._keep_probability(counts)
    assert keep[1:] == pytest.approx([0.11, 1.0])
    assert keep[0] == pytest.approx((1e-4 / 0.9899) ** 0.5 + 1e-4 / 0.9899)


def test_empty_texts_and_absent_words_are_accepted():
    empty = learn_vectors(np.array([], np.int32), np.array([0]), np.zeros(3, np.int64), dim=4)
    assert empty.shape == (3, 4)
    # Texts without words in between, and a vocabulary with a word that never occurs.
    ids, offsets = np.array([0, 1, 0, 1], np.int32), np.array([0, 0, 2, 2, 4, 4])
    assert np.isfinite(learn_vectors(ids, offsets, np.array([2, 2, 0]), dim=4)).all()
