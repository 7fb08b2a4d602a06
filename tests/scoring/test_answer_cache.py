"""The cache of encoded answers, which is bounded."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from aptool.scoring.kernels import EncodedAnswers, Workspace
from aptool.scoring.ranker_scorer import UNCACHED, AnswerCache

# By key, the number of rows of an encoded answer; -1 has no key.
batches_of_answers = st.lists(
    st.dictionaries(st.integers(UNCACHED, 12), st.integers(1, 3), min_size=1, max_size=4), max_size=6
)


@given(batches=batches_of_answers, capacity=st.sampled_from([0, 40, 1000]))
def test_answers_are_cached_by_key_in_batches_that_fit(batches, capacity):
    cache, expected, used = AnswerCache(capacity), {}, 0
    for number, sizes in enumerate(batches):
        rows = 100 * number + torch.arange(sum(sizes.values()), dtype=torch.float32)[:, None]
        cache.put(np.array([*sizes]), rows, np.array([*sizes.values()]))
        if used + rows.nbytes <= capacity and max(sizes) > UNCACHED:
            used += rows.nbytes
            expected |= dict(zip(sizes, rows.flatten().split([*sizes.values()]), strict=True))
    expected.pop(UNCACHED, None)

    keys = np.arange(UNCACHED, 100)
    found, *index = cache.get(keys)

    assert {
        key: found[batch][start : start + count].flatten().tolist()
        for key, batch, start, count in zip(keys.tolist(), *(part.tolist() for part in index), strict=True)
        if batch >= 0
    } == {key: rows.tolist() for key, rows in expected.items()}


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
