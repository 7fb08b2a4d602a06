"""The cache of encoded answers: bounded, the least recently used batch is evicted first."""

import numpy as np
import torch

from aptool.scoring.encoded import AnswerCache, EncodedAnswers, Workspace


def put(cache, *keys):
    """Add a batch in which each answer is one row of four bytes: its key."""
    rows = torch.tensor(keys, dtype=torch.float32)[:, None]
    cache.put(keys, rows, np.ones(len(keys), dtype=np.int64))


def look_up(cache, *keys):
    batches, batch, starts, counts = cache.get(keys)
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
    cache.put([4, 2], torch.arange(10.0).view(5, 2), np.array([2, 3]))
    cache.put([9], -torch.arange(4.0).view(2, 2), np.array([2]))

    batches, batch, starts, counts = cache.get([9, 2, 4, 9])

    rows = [batches[b][s : s + n].tolist() for b, s, n in zip(batch, starts, counts, strict=True)]
    last = [[-0.0, -1.0], [-2.0, -3.0]]
    assert rows == [last, [[4, 5], [6, 7], [8, 9]], [[0, 1], [2, 3]], last]


def test_the_least_recently_used_batch_is_evicted_first():
    cache = AnswerCache(16)  # room for four states
    for unit in range(2):
        cache.start_unit()
        put(cache, 2 * unit, 2 * unit + 1)
    cache.start_unit()
    look_up(cache, 0)

    cache.start_unit()
    put(cache, 4, 5)

    assert look_up(cache, 0, 1, 2, 3, 4, 5) == [0, 1, None, None, 4, 5]


def test_a_unit_does_not_evict_its_own_answers():
    # Otherwise a unit with more answers than fit would evict the answers of the next unit.
    cache = AnswerCache(16)
    put(cache, 0, 1, 2, 3)
    cache.start_unit()
    look_up(cache, 2)

    put(cache, 8, 9)

    assert look_up(cache, 0, 1, 2, 3, 8, 9) == [0, 1, 2, 3, None, None]


def test_the_cache_never_exceeds_its_capacity():
    cache = AnswerCache(10)
    put(cache, 0, 1, 2)
    assert look_up(cache, 0, 1, 2) == [None, None, None]

    put(cache, 0, 1)
    assert look_up(cache, 0, 1) == [0, 1]


def test_an_answer_in_two_batches_stays_until_both_are_evicted():
    cache = AnswerCache(16)
    for keys in ((1, 2), (2, 3), (4, 5)):
        cache.start_unit()
        put(cache, *keys)

    assert look_up(cache, 1, 2, 3) == [None, 2, 3]


def test_nothing_is_cached_without_capacity_or_key():
    for cache, key in ((AnswerCache(0), 3), (AnswerCache(100), None)):
        cache.put([key], torch.zeros(1, 1), np.ones(1, dtype=np.int64))
        assert look_up(cache, key) == [None]


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
