"""Parts that several layouts share: the network, Dense layers and activations."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from aptool.config import Recipe, TextOptions
from aptool.errors import InputError
from aptool.models.backbone import Backbone, BackboneOptions
from aptool.models.checkpoints.files import (
    CONFIG,
    WEIGHTS,
    Layout,
    Module,
    check_shape,
    fill,
    positive_integer,
    transformer_options,
)
from aptool.models.initialization import EncoderSpec
from aptool.models.pooling import ACTIVATIONS, Dense
from aptool.models.pretrained import open_network
from aptool.models.ranker import Ranker
from aptool.models.transformer import TransformerEncoder
from aptool.text.subwords import SubwordTokenizer


class Checkpoint(NamedTuple):
    """A checkpoint of another library as a ranker, on the CPU."""

    ranker: Ranker
    tokenizer: SubwordTokenizer
    recipe: Recipe  # the components and the maximum lengths of texts


class OpenedEncoder(NamedTuple):
    """The network of a checkpoint."""

    encoder: TransformerEncoder
    words: Any  # the tokenizer, of ``transformers``
    tokenizer: SubwordTokenizer  # the same tokenizer
    max_tokens: int  # maximum length of a text
    options: dict[str, Any]  # options of the module


def open_encoder(layout: Layout) -> OpenedEncoder:
    """Open the network of a checkpoint, without a head."""
    folder = layout.transformer
    require_safetensors(folder)
    opened = open_network(str(folder))
    options = transformer_options(layout)
    path = folder / "sentence_bert_config.json"
    longest = positive_integer(path, options, "max_seq_length", opened.max_tokens)
    backbone = Backbone(opened.network, BackboneOptions(tune="none"))
    tokenizer = SubwordTokenizer(opened.tokenizer.backend_tokenizer)
    least = tokenizer.prefix_length + tokenizer.suffix_length + 1
    if longest < least:
        expected = f"at least {least}, special tokens included"
        raise InputError(path, place="max_seq_length", value=longest, expected=expected)
    spec = EncoderSpec(len(tokenizer), backbone.size, {})
    return OpenedEncoder(
        TransformerEncoder(spec, BackboneOptions(tune="none"), backbone),
        opened.tokenizer,
        tokenizer,
        min(longest, opened.max_tokens),
        options,
    )


def require_safetensors(folder: Path) -> None:
    """Raise unless a folder has weights that can be read without running code."""
    if not any(folder.glob("*.safetensors")):
        expected = "weights in safetensors files; pickled ones are not read"
        raise InputError(folder / WEIGHTS, problem="file not found", expected=expected)


def recipe_of(layout: Layout, encoder: str, pooling: str, question_tokens: int, answer_tokens: int) -> Recipe:
    """Describe a checkpoint as a recipe."""
    text = TextOptions(max_question_tokens=question_tokens, max_answer_tokens=answer_tokens)
    return Recipe(checkpoint_name(layout.folder), {"type": encoder}, {"type": pooling}, text=text)


def checkpoint_name(folder: Path) -> str:
    """Return the name of a checkpoint's folder, or of the model on the hub that it is a copy of."""
    path = folder.absolute()
    for part in path.parts:
        if part.startswith("models--"):
            return part.split("--")[-1]
    return path.resolve().name or "model"


def activation_of(path: Path, name: object) -> str:
    """Return the name of an activation function, given the name of torch's class."""
    activation = str(name).rpartition(".")[2].lower()
    if activation not in ACTIVATIONS or not str(name).startswith("torch."):
        expected = f"torch's class for one of {', '.join(ACTIVATIONS)}"
        raise InputError(path, place="activation_function", value=name, expected=expected)
    return activation


def read_dense(module: Module, inputs: int) -> Dense:
    """Read a Dense layer with ``inputs`` input features, and its weights."""
    path, weights = module.folder / CONFIG, module.folder / WEIGHTS
    config = module.config
    if positive_integer(path, config, "in_features", 0) != inputs:
        expected = f"{inputs}, the features of what it is applied to"
        raise InputError(path, place="in_features", value=config.get("in_features"), expected=expected)
    outputs = positive_integer(path, config, "out_features", 0)
    activation = activation_of(path, config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    check_shape(weights, "linear.weight", [outputs, inputs])  # before memory is allocated
    layer = Dense(
        inputs,
        outputs,
        bias=bool(config.get("bias", True)),
        activation=activation,
        residual=bool(config.get("use_residual", False)),
    )
    fill(layer, weights)
    return layer


def stacked(layers: list[Dense]) -> nn.Module | None:
    """Chain layers; None without a layer."""
    return nn.Sequential(*layers) if layers else None
