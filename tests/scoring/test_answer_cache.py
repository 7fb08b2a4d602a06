"""The cache of encoded answers, which is bounded."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

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
