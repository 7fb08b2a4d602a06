"""Two new poolings with parameters: m learned codes attend to a text, which gives m vectors.

`polyencoder` (Humeau et al., 2020) weights the m vectors of the question for each answer; `multi-vector`
(ME-BERT, Luan et al., 2021) takes the best of the m vectors of the answer. Both give one vector per text of a
pair, so they are a `VectorPooling`: the score is the similarity of the two vectors.

    import code_poolings
    aptool.train(data, preset="examples/extending/polyencoder.toml")
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from aptool.models.build import POOLINGS
from aptool.models.pooling import StateOptions, VectorPooling, segment_max, segment_mean
from aptool.models.ragged import Ragged
from aptool.options import bounded


class CodePooling(VectorPooling):
    """The codes, and the m vectors of a text."""

    @dataclass(frozen=True)
    class Options(StateOptions):
        """Options of both poolings.

        Attributes:
            codes: Number m of codes.
        """

        codes: int = bounded(16, least=1, below=1025)

    def __init__(self, size: int, options: Options) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(options.codes, size) / size**0.5)  # (m, c)

    def code_vectors(self, states: Ragged) -> Tensor:
        """(n, m, c) means of the states of n texts, weighted by softmax over t of x_i · h_t for code x_i."""
        logits = states.values @ self.codes.T  # (N, m)
        weights = (logits - states.spread(segment_max(logits, states))).exp()
        sums = torch.segment_reduce(weights, "sum", lengths=states.lengths, axis=0, unsafe=True)
        weights = weights / states.spread(sums)
        dense, weights = states.padded()[0], states.with_values(weights).padded()[0]  # (n, T, c), (n, T, m)
        return weights.transpose(1, 2) @ dense


class PolyEncoderPooling(CodePooling):
    """r_a is the mean, and r_q = Σ_i softmax_i(r_a · y_i) y_i with the vectors y of the question."""

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, c) r_q and (n, c) r_a of n pairs."""
        Y, r_a = self.code_vectors(questions), segment_mean(answers)  # (n, m, c), (n, c)
        shares = (Y @ r_a[:, :, None])[:, :, 0].softmax(1)  # (n, m)
        return (shares[:, None] @ Y)[:, 0], r_a


class MultiVectorPooling(CodePooling):
    """r_q is the mean, and r_a the most similar vector of the answer."""

    def forward(self, questions: Ragged, answers: Ragged) -> tuple[Tensor, Tensor]:
        """(n, c) r_q and (n, c) r_a of n pairs."""
        r_q, Z = segment_mean(questions), self.code_vectors(answers)  # (n, c), (n, m, c)
        similarities = self.similarity(r_q[:, None].expand_as(Z), Z)  # (n, m)
        best = similarities.argmax(1)
        return r_q, Z[torch.arange(len(Z), device=Z.device), best]


POOLINGS["polyencoder"] = PolyEncoderPooling
POOLINGS["multi-vector"] = MultiVectorPooling
