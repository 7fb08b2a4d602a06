"""Linear layers between states and pooling, or after it: fewer numbers a state, as ColBERT keeps them."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

Activation = Literal["identity", "tanh", "relu", "gelu", "sigmoid", "silu"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)


@dataclass(frozen=True)
class DenseOptions:
    """A linear layer.

    Attributes:
        inputs: features of its input.
        outputs: features of its output.
        bias: whether it has a bias.
        activation: the function of its output.
        residual: whether its input is added to its output, through a matrix of its own if their sizes differ.
    """

    inputs: int
    outputs: int
    bias: bool = False
    activation: str = "identity"
    residual: bool = False


class Dense(nn.Module):
    """y = f(W x + b), with the weights' names of sentence-transformers."""

    def __init__(self, options: DenseOptions) -> None:
        super().__init__()
        self.outputs = options.outputs
        self.activation = options.activation
        self.adds_input = options.residual
        self.linear = nn.Linear(options.inputs, options.outputs, bias=options.bias)
        self.residual: nn.Module = nn.Identity()
        if options.residual and options.inputs != options.outputs:
            self.residual = nn.Linear(options.inputs, options.outputs, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """(N, outputs) of (N, inputs)."""
        found = apply_activation(self.activation, self.linear(states))
        return found + self.residual(states) if self.adds_input else found


def apply_activation(name: str, values: Tensor) -> Tensor:
    """The activation function of that name, of each value."""
    if name == "identity":
        return values
    found: Tensor = getattr(nn.functional if name in ("gelu", "silu") else torch, name)(values)
    return found


def fresh_projection(size: int, dim: int) -> Dense:
    """A projection of states of c features to ``dim`` before training: the first rows of a random rotation.

    Orthonormal rows keep the inner products of states as well as so few random directions can, so that
    training starts close to the scores without a projection.
    """
    layer = Dense(DenseOptions(size, dim))
    nn.init.orthogonal_(layer.linear.weight)
    return layer
