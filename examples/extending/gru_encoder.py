"""A new encoder: a GRU over word embeddings (Cho et al., 2014).

An encoder turns token ids into one state per token. A `WordEncoder` provides the vocabulary and the word
vectors; a subclass adds the network, its options and its number of weights. That number is checked before
memory is allocated for a model folder of unknown origin.

    import gru_encoder
    aptool.train(data, preset="examples/extending/gru.toml")

    aptool --plugin examples/extending/gru_encoder.py train --preset examples/extending/gru.toml
"""

from dataclasses import dataclass

from torch import nn

from aptool.config import WIDEST, bounded
from aptool.models.build import ENCODERS
from aptool.models.encoders import EncoderSpec, WordEncoder
from aptool.models.ragged import Ragged


class GruEncoder(WordEncoder):
    """A GRU that reads a text from left to right."""

    @dataclass(frozen=True)
    class Options:
        """Options of a ``gru`` encoder.

        Attributes:
            hidden: Hidden size c: features of a state.
        """

        hidden: int = bounded(200, least=1, below=WIDEST + 1)

    def __init__(self, spec: EncoderSpec, options: Options) -> None:
        super().__init__(spec)
        self.size = options.hidden
        self.gru = nn.GRU(spec.dim, options.hidden, batch_first=True)

    def forward(self, tokens: Ragged) -> Ragged:
        """States (N, c) of N tokens; padding follows a text and does not change its states."""
        ids, _ = tokens.padded()  # (n, T)
        states, _ = self.gru(self.embedding(ids))  # (n, T, c)
        return tokens.with_values(states.flatten(0, 1)[tokens.slots(ids.shape[1])])


ENCODERS["gru"] = GruEncoder
