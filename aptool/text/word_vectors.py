"""Words with their vectors, wherever they come from."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class WordVectors:
    """Words with their vectors.

    Attributes:
        words: each once.
        matrix: (words, d) float32, finite.
        source: the file, folder or name that they came from.
    """

    words: list[str]
    matrix: np.ndarray
    source: str
