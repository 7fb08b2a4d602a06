"""The cache of encoded answers: bounded, the least recently used batch is evicted first."""

import torch

from aptool.scoring.answer_cache import AnswerCache


def states(*values):
    """One state of four bytes for each value."""
    return [torch.tensor([value], dtype=torch.float32) for value in values]


def found(cache, *keys):
    return [None if answer is None else answer.item() for answer in cache.get(keys)]


def test_what_was_put_is_found_under_its_key():
    cache = AnswerCache(100)

    cache.put([7, 3], states(0.7, 0.3))

    assert found(cache, 3, 5, 7) == [torch.tensor(0.3).item(), None, torch.tensor(0.7).item()]
    assert (cache.hits, cache.misses) == (2, 1)


def test_the_least_recently_used_batch_is_evicted_first():
    cache = AnswerCache(16)  # room for four states
    for unit in range(2):
        cache.start_unit()
        cache.put([2 * unit, 2 * unit + 1], states(2 * unit, 2 * unit + 1))
    cache.start_unit()
    cache.get([0])

    cache.start_unit()
    cache.put([4, 5], states(4, 5))

    assert found(cache, 0, 1, 2, 3, 4, 5) == [0, 1, None, None, 4, 5]


def test_a_unit_does_not_evict_what_it_uses():
    # A unit that needs more than fits would otherwise never find anything.
    cache = AnswerCache(16)
    cache.put([0, 1, 2, 3], states(0, 1, 2, 3))
    cache.start_unit()
    cache.get([2])

    cache.put([8, 9], states(8, 9))

    assert found(cache, 0, 1, 2, 3, 8, 9) == [0, 1, 2, 3, None, None]


def test_never_more_than_the_capacity():
    cache = AnswerCache(10)
    cache.put([0, 1, 2], states(0, 1, 2))
    assert found(cache, 0, 1, 2) == [None, None, None]

    cache.put([0, 1], states(0, 1))
    assert found(cache, 0, 1) == [0, 1]


def test_nothing_is_cached_without_capacity_or_key():
    for cache, key in ((AnswerCache(0), 3), (AnswerCache(100), -1)):
        cache.put([key], states(1))
        assert found(cache, key) == [None]
