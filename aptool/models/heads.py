"""Heads: the columns of a pair to its score, ``head.type`` of a recipe.

The columns are what the pooling gives (as a rule one, the similarity of the pair's vectors), then the pair
features of the recipe.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aptool.options import bounded


class Head(nn.Module, ABC):
    """The interface of every head."""

    @dataclass(frozen=True)
    class Options:
        """No options."""

    def __init__(self, columns: int, features: int, options: Any) -> None:
        super().__init__()

    @classmethod
    def joins_vectors(cls, options: Any) -> bool:
        """Whether it reads the two vectors of a pair beside their similarity."""
        return False

    @abstractmethod
    def forward(self, columns: Tensor) -> Tensor:
        """(n,) scores of pairs from their (n, C) columns."""


class NoHead(Head):
    """The score is the pooling's only column."""

    def forward(self, columns: Tensor) -> Tensor:
        """See ``Head.forward``."""
        return columns[:, 0]


class LinearHead(Head):
    """w · x + b, a logistic regression with the loss ``logistic``; it starts as the mean of the pooling's."""

    def __init__(self, columns: int, features: int, options: Any) -> None:
        super().__init__(columns, features, options)
        self.linear = nn.Linear(columns + features, 1)
        nn.init.zeros_(self.linear.bias)
        with torch.no_grad():
            self.linear.weight[:, :columns] = 1 / columns
            self.linear.weight[:, columns:] = 0

    def forward(self, columns: Tensor) -> Tensor:
        """See ``Head.forward``."""
        scores: Tensor = self.linear(columns)
        return scores[:, 0]


class HiddenHead(Head):
    """A hidden layer with tanh, then w · h + b (Severyn and Moschitti 2015, section 3.3)."""

    @dataclass(frozen=True)
    class Options:
        """Options of a ``hidden`` head.

        Attributes:
            size: Units of the hidden layer; 0 is as many as there are columns.
            vectors: Read the vectors r_q and r_a of a pair beside their similarity.
            dropout: Dropout probability of the hidden layer.
        """

        size: int = bounded(0, below=1 << 20)
        vectors: bool = False
        dropout: float = bounded(0.0, below=1)

    def __init__(self, columns: int, features: int, options: Options) -> None:
        super().__init__(columns, features, options)
        inputs = columns + features
        self.hidden = nn.Linear(inputs, options.size or inputs)
        self.dropout = nn.Dropout(options.dropout)
        self.output = nn.Linear(options.size or inputs, 1)

    @classmethod
    def joins_vectors(cls, options: Any) -> bool:
        """See ``Head.joins_vectors``."""
        return bool(options.vectors)

    def forward(self, columns: Tensor) -> Tensor:
        """See ``Head.forward``."""
        scores: Tensor = self.output(self.dropout(self.hidden(columns).tanh()))
        return scores[:, 0]


# ``head.type`` of a recipe.
HEADS: dict[str, type[Head]] = {"none": NoHead, "linear": LinearHead, "hidden": HiddenHead}
