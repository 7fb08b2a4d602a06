"""The plainest encoder: the state of a token is its word vector, for poolings that do the rest themselves."""

from dataclasses import dataclass
from typing import Any

from aptool.models.encoders import WordEncoder
from aptool.models.initialization import EncoderSpec
from aptool.models.ragged import Ragged


class WordVectors(WordEncoder):
    """The word embeddings themselves."""

    @dataclass(frozen=True)
    class Options:
        """No options."""

    @classmethod
    def max_weights(cls, spec: EncoderSpec, options: Any) -> int:
        """See ``Encoder.max_weights``."""
        return spec.vocabulary_size * spec.dim

    @classmethod
    def output_size(cls, spec: EncoderSpec, options: Any) -> int:
        """See ``Encoder.output_size``."""
        return spec.dim

    def __init__(self, words: int, dim: int, options: Options) -> None:
        super().__init__(words, dim)
        self.size = dim

    def forward(self, tokens: Ragged) -> Ragged:
        """See ``Encoder.forward``."""
        return tokens.with_values(self.embedding(tokens.values))
