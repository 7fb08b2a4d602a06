"""The joint LSTM: a stacked biLSTM reads the question and then the answer (Wang and Nyberg 2015)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from aptool.models.pooling import Pooling
from aptool.models.ragged import Ragged
from aptool.options import bounded


class JointPooling(Pooling):
    """The score of a pair is a linear function of the mean state of both texts, read as one.

    The encoder gives word vectors; a learned vector stands between question and answer.
    """

    @dataclass(frozen=True)
    class Options:
        """Options of ``joint`` pooling.

        Attributes:
            hidden: Hidden size of each direction and layer.
            layers: Stacked bidirectional layers.
        """

        hidden: int = bounded(100, least=1, below=1 << 14)
        layers: int = bounded(2, least=1, below=17)

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.between = nn.Parameter(torch.zeros(size))
        self.lstm = nn.LSTM(
            size, options.hidden, num_layers=options.layers, batch_first=True, bidirectional=True
        )
        self.output = nn.Linear(2 * options.hidden, 1)

    @classmethod
    def max_weights(cls, size: int, options: Any) -> int:
        """See ``Pooling.max_weights``."""
        of_layer = 8 * options.hidden * (max(size, 2 * options.hidden) + options.hidden + 2)
        return int(size + options.layers * of_layer + 2 * options.hidden + 1)

    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        """See ``Pooling.score_pairs``."""
        joined = self._joined(questions, answers)
        dense, _ = joined.padded()  # (n, T, d)
        lengths = torch.from_numpy(joined.sizes)
        packed = pack_padded_sequence(dense, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)  # (n, T, 2 H), padded with 0
        mean = states.sum(1) / joined.lengths[:, None]
        scores: Tensor = self.output(mean)
        return scores[:, 0]

    def _joined(self, questions: Ragged, answers: Ragged) -> Ragged:
        """The states of each question, the vector between, the states of its answer."""
        n = len(questions.sizes)
        between = Ragged.of_sizes(self.between.expand(n, -1), np.ones(n, dtype=np.int64))
        parts = Ragged.concatenate([questions, between, answers])
        in_turn = parts.select(np.arange(3 * n).reshape(3, n).T.ravel())
        return Ragged.of_sizes(in_turn.values, questions.sizes + 1 + answers.sizes)
