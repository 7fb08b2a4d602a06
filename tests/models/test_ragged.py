"""Sequences of different lengths in one tensor."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from aptool.models.ragged import Ragged, similar_lengths

WORDS = Ragged.join([torch.tensor([5, 6, 7]), torch.tensor([8]), torch.tensor([9, 9])])


def listed(ragged):
    return [part.tolist() for part in ragged.values.split(ragged.lengths.tolist())]


def test_sequences_are_padded_on_the_right():
    values, mask = WORDS.padded()

    assert values.tolist() == [[5, 6, 7], [8, 0, 0], [9, 9, 0]]
    assert mask.tolist() == [[True, True, True], [True, False, False], [True, True, False]]


def test_positions_count_within_each_sequence():
    position, length = WORDS.positions()

    assert position.tolist() == [0, 1, 2, 0, 0, 1]
    assert length.tolist() == [3, 3, 3, 1, 2, 2]


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=8), st.data())
def test_selection_equals_indexing(sequences, data):
    ragged = Ragged.join([torch.tensor(sequence) for sequence in sequences])
    chosen = data.draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=8))

    assert listed(ragged.select(torch.tensor(chosen))) == [sequences[i] for i in chosen]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40))
def test_texts_padded_together_have_similar_lengths(lengths):
    sequences = Ragged.of_sizes(torch.zeros(sum(lengths)), np.array(lengths))

    groups = similar_lengths(sequences)

    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
    for group in groups:
        sizes = sequences.sizes[group]
        assert sizes.max() <= 1.5 * sizes.min()
