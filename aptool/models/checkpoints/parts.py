"""Parts that several layouts share: activations, Dense layers, and a network with the forms of its texts."""

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
    checked_shape,
    fill,
    positive_integer,
    transformer_options,
)
from aptool.models.initialization import EncoderSpec
from aptool.models.pooling import ACTIVATIONS, Dense, DenseOptions
from aptool.models.pretrained import open_network
from aptool.models.ranker import Ranker
from aptool.models.transformer import TransformerEncoder
from aptool.text.subwords import SubwordTokenizer


class Checkpoint(NamedTuple):
    """A checkpoint of another library, as a ranker.

    Attributes:
        ranker: the ranker, on the CPU.
        tokenizer: the tokenizer of its texts.
        recipe: what it is and the limits of its texts; it was not trained by this recipe.
    """

    ranker: Ranker
    tokenizer: SubwordTokenizer
    recipe: Recipe


class OpenedEncoder(NamedTuple):
    """The network of a checkpoint.

    Attributes:
        encoder: computes the states.
        words: its tokenizer, of ``transformers``.
        tokenizer: the same, of aptool.
        max_tokens: the longest text that it takes.
        options: the options of its module.
    """

    encoder: TransformerEncoder
    words: Any
    tokenizer: SubwordTokenizer
    max_tokens: int
    options: dict[str, Any]


def open_encoder(layout: Layout) -> OpenedEncoder:
    """The network of a checkpoint, without a head."""
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
    """Checks that a folder has weights that can be read without running code."""
    if not any(folder.glob("*.safetensors")):
        wanted = "weights in safetensors files; pickled ones are not read"
        raise InputError(folder / WEIGHTS, problem="file not found", expected=wanted)


def recipe_of(layout: Layout, encoder: str, pooling: str, question_tokens: int, answer_tokens: int) -> Recipe:
    """What a checkpoint is, in the words of a recipe; its name is that of the folder."""
    text = TextOptions(max_question_tokens=question_tokens, max_answer_tokens=answer_tokens)
    return Recipe(checkpoint_name(layout.folder), {"type": encoder}, {"type": pooling}, text=text)


def checkpoint_name(folder: Path) -> str:
    """The name of a checkpoint: that of its folder, or of the model on the hub that it is a copy of."""
    path = folder.absolute()
    for part in path.parts:
        if part.startswith("models--"):
            return part.split("--")[-1]
    return path.resolve().name or "model"


def activation_of(path: Path, name: object) -> str:
    """The name of an activation function from that of torch's class."""
    found = str(name).rpartition(".")[2].lower()
    if found not in ACTIVATIONS or not str(name).startswith("torch."):
        wanted = f"torch's class for one of {', '.join(ACTIVATIONS)}"
        raise InputError(path, place="activation_function", value=name, expected=wanted)
    return found


def read_dense(module: Module, inputs: int) -> Dense:
    """A Dense layer with its weights.

    Args:
        module: the module.
        inputs: features of what it is applied to.
    """
    path, weights = module.folder / CONFIG, module.folder / WEIGHTS
    config = module.config
    if positive_integer(path, config, "in_features", 0) != inputs:
        expected = f"{inputs}, the features of what it is applied to"
        raise InputError(path, place="in_features", value=config.get("in_features"), expected=expected)
    outputs = positive_integer(path, config, "out_features", 0)
    activation = activation_of(path, config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    bias, residual = config.get("bias", True), config.get("use_residual", False)
    checked_shape(weights, "linear.weight", [outputs, inputs])
    layer = Dense(DenseOptions(inputs, outputs, bool(bias), activation, bool(residual)))
    fill(layer, weights)
    return layer


def stacked(layers: list[Dense]) -> nn.Module | None:
    """Layers, one after another."""
    return nn.Sequential(*layers) if layers else None
