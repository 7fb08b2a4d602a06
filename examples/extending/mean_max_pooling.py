"""A new pooling: the mean and the maximum of the states, concatenated to a vector of 2 c features.

A pooling reduces the states of two texts to a score. An `IndependentPooling` pools each text alone; the score
is the similarity of the two vectors. It can score files without a kernel; a kernel in
`aptool.scoring.kernels.KERNELS` would make it faster.

    import mean_max_pooling
    aptool.train(data, preset="examples/extending/mean-max.toml")

    aptool --plugin examples/extending/mean_max_pooling.py train --preset examples/extending/mean-max.toml
"""

import torch
from torch import Tensor

from aptool.models.build import POOLINGS
from aptool.models.pooling import IndependentPooling, segment_max
from aptool.models.ragged import Ragged


class MeanMaxPooling(IndependentPooling):
    """r = [mean of the states, tanh of their maximum]."""

    def represent(self, states: Ragged) -> Tensor:
        """(n, 2 c) vectors of n texts, from their states, values (N, c)."""
        mean = torch.segment_reduce(states.values, "mean", lengths=states.lengths, axis=0, unsafe=True)
        return torch.cat([mean, segment_max(states.values, states).tanh()], dim=1)


POOLINGS["mean-max"] = MeanMaxPooling
