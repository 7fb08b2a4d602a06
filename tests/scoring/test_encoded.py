"""The store of encoded answers: bounded, the least recently looked at leaves first."""

import torch

from aptool.scoring.encoded import StateStore


def states(*values):
    """One state of four bytes for each value."""
    return [torch.tensor([value], dtype=torch.float32) for value in values]


def found(store, *numbers):
    return [None if kept is None else kept.item() for kept in store.get(numbers)]


def test_what_was_put_is_found_under_its_number():
    store = StateStore(100)

    store.put([7, 3], states(0.7, 0.3))

    assert found(store, 3, 5, 7) == [torch.tensor(0.3).item(), None, torch.tensor(0.7).item()]
    assert (store.hits, store.misses) == (2, 1)


def test_the_batch_not_looked_at_for_longest_leaves_first():
    store = StateStore(16)  # room for four states
    for unit in range(2):
        store.begin()
        store.put([2 * unit, 2 * unit + 1], states(2 * unit, 2 * unit + 1))
    store.begin()
    store.get([0])

    store.begin()
    store.put([4, 5], states(4, 5))

    assert found(store, 0, 1, 2, 3, 4, 5) == [0, 1, None, None, 4, 5]


def test_what_this_unit_looked_at_is_not_pushed_out_by_what_it_encodes():
    # A unit that needs more than there is room for would else never find anything.
    store = StateStore(16)
    store.put([0, 1, 2, 3], states(0, 1, 2, 3))
    store.begin()
    store.get([2])

    store.put([8, 9], states(8, 9))

    assert found(store, 0, 1, 2, 3, 8, 9) == [0, 1, 2, 3, None, None]


def test_never_more_than_the_capacity():
    store = StateStore(10)
    store.put([0, 1, 2], states(0, 1, 2))
    assert found(store, 0, 1, 2) == [None, None, None]

    store.put([0, 1], states(0, 1))
    assert found(store, 0, 1) == [0, 1]


def test_no_capacity_and_no_name_keep_nothing():
    for store, number in ((StateStore(0), 3), (StateStore(100), -1)):
        store.put([number], states(1))
        assert found(store, number) == [None]
