"""Weights of checkpoints: tensors of safetensors files, and Dense layers."""

from pathlib import Path

from safetensors import safe_open
from torch import Tensor, nn

from aptool.errors import InputError
from aptool.models.checkpoints.files import CONFIG, WEIGHTS, Module, positive_integer
from aptool.models.checkpoints.keys import UnsupportedError
from aptool.models.pooling import ACTIVATIONS, Dense
from aptool.models.tensor_file import read_header


def shapes(path: Path) -> dict[str, list[int]]:
    """Return the shape of each tensor of a safetensors file."""
    header = read_header(path, "weights in a safetensors file; pickled ones are not read")
    return {name: shape for name, (shape, _) in header.items()}


def read_tensor(path: Path, name: str, shape: list[int] | None = None) -> Tensor:
    """Read a tensor of a safetensors file, of a given shape; floating-point values as fp32."""
    in_file = shapes(path)
    if name not in in_file:
        raise InputError(path, position=name, problem="missing", expected="the weights of the checkpoint")
    if shape is not None and in_file[name] != shape:
        raise InputError(path, position=name, value=in_file[name], expected=f"shape {shape}, as in {CONFIG}")
    with safe_open(path, framework="pt") as file:
        tensor: Tensor = file.get_tensor(name)
    return tensor.float() if tensor.is_floating_point() else tensor


def load_weights(module: nn.Module, path: Path) -> None:
    """Load the weights of a module from a safetensors file, by name."""
    weights = module.state_dict()
    module.load_state_dict({name: read_tensor(path, name, [*weights[name].shape]) for name in weights})


def activation_of(path: Path, name: object) -> str:
    """Return the name of an activation function, given the name of torch's class."""
    activation = str(name).rpartition(".")[2].lower()
    if activation not in ACTIVATIONS or not str(name).startswith("torch."):
        expected = f"torch's class for one of {', '.join(ACTIVATIONS)}"
        raise InputError(path, position="activation_function", value=name, expected=expected)
    return activation


def check_features(module: Module, name: str, default: str) -> None:
    """Raise unless a module replaces the features of a name; ``default``: the name where it has none."""
    source = module.config.get("module_input_name") or default
    target = module.config.get("module_output_name") or source
    for key, value in (("module_input_name", source), ("module_output_name", target)):
        if value != name:
            raise UnsupportedError(module.folder / CONFIG, position=key, value=value, expected=name)


def read_dense(module: Module, inputs: int, features: str = "sentence_embedding") -> Dense:
    """Read a Dense layer with ``inputs`` input features, of embeddings or of ``token_embeddings``."""
    path, weights = module.folder / CONFIG, module.folder / WEIGHTS
    config = module.config
    check_features(module, features, features)
    if positive_integer(path, config, "in_features", 0) != inputs:
        expected = f"{inputs}, the features of its input"
        raise InputError(path, position="in_features", value=config.get("in_features"), expected=expected)
    outputs = positive_integer(path, config, "out_features", 0)
    activation = activation_of(path, config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    read_tensor(weights, "linear.weight", [outputs, inputs])  # checks the size before allocation
    layer = Dense(
        inputs,
        outputs,
        bias=bool(config.get("bias", True)),
        activation=activation,
        residual=bool(config.get("use_residual", False)),
    )
    load_weights(layer, weights)
    return layer


def projection_of(layers: list[Dense]) -> nn.Module | None:
    """Chain layers to a projection; None without layers."""
    if len(layers) == 1:
        return layers[0]
    return nn.Sequential(*layers) if layers else None
