"""The cache of encoded answers, which is bounded."""

import numpy as np
import torch

from aptool.scoring.kernels import EncodedAnswers, Workspace
from aptool.scoring.ranker_scorer import UNCACHED, AnswerCache


def put(cache, *keys):
    """Add a batch in which each answer is one row of four bytes: its key."""
    rows = torch.tensor(keys, dtype=torch.float32)[:, None]
    cache.put(np.array(keys), rows, np.ones(len(keys), dtype=np.int64))


def look_up(cache, *keys):
    batches, batch, starts, counts = cache.get(np.array(keys))
    rows = [
        None if b < 0 else batches[b][s : s + n].flatten().tolist()
        for b, s, n in zip(batch, starts, counts, strict=True)
    ]
    return [row if row is None else row[0] for row in rows]


def test_an_answer_is_cached_by_its_key():
    cache = AnswerCache(100)

    put(cache, 7, 3)

    assert look_up(cache, 3, 5, 7, 100) == [3, None, 7, None]


def test_an_answer_has_all_of_its_rows_in_any_batch():
    cache = AnswerCache(1000)
    cache.put(np.array([4, 2]), torch.arange(10.0).view(5, 2), np.array([2, 3]))
    cache.put(np.array([9]), -torch.arange(4.0).view(2, 2), np.array([2]))

    batches, batch, starts, counts = cache.get(np.array([9, 2, 4, 9]))

    rows = [batches[b][s : s + n].tolist() for b, s, n in zip(batch, starts, counts, strict=True)]
    last = [[-0.0, -1.0], [-2.0, -3.0]]
    assert rows == [last, [[4, 5], [6, 7], [8, 9]], [[0, 1], [2, 3]], last]


def test_the_cache_never_exceeds_its_capacity():
    cache = AnswerCache(10)
    put(cache, 0, 1, 2)
    assert look_up(cache, 0, 1, 2) == [None, None, None]

    put(cache, 0, 1)
    put(cache, 2)
    assert look_up(cache, 0, 1, 2) == [0, 1, None]


def test_nothing_is_cached_without_capacity_or_key():
    for cache, key in ((AnswerCache(0), 3), (AnswerCache(100), UNCACHED)):
        put(cache, key)
        assert look_up(cache, key) == [None]


def test_keys_may_arrive_in_any_order():
    cache = AnswerCache(100)
    put(cache, 5, UNCACHED, 1)
    put(cache, 90)

    assert look_up(cache, 90, 1, UNCACHED, 5, 89) == [90, 1, None, 5, None]


def test_joined_answers_are_the_same_in_a_workspace_that_is_used_again():
    workspace = Workspace()
    for sizes in ([3, 2], [1, 1], [4, 7]):  # the second one needs less memory, the third one more
        batches = [torch.rand(size, 5) for size in sizes]
        batch, starts, counts = (
            np.array([1, 0, 0]),
            np.array([0, 0, sizes[0] - 1]),
            np.array([sizes[1], 1, 1]),
        )
        answers = EncodedAnswers(batches, batch, starts, counts, counts)

        joined = answers.joined(workspace)

        assert len(joined.batches) == 1
        for number in range(3):
            assert torch.equal(joined.rows(number), answers.rows(number))
