"""Training from a checkpoint of another library: its system as a recipe, its tokenizer and its weights."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from aptool.config import Recipe, apply_overrides, load_recipe, recipe_from_dict
from aptool.errors import InputError
from aptool.models.checkpoints.colbert import read_colbert
from aptool.models.checkpoints.cross_encoder import read_cross_encoder
from aptool.models.checkpoints.files import Checkpoint, Kind, Layout, kind_of, read_layout
from aptool.models.checkpoints.sentence import Normalize, SentencePooling, read_sentence
from aptool.models.head import HeadPooling
from aptool.models.hub import find_folder
from aptool.models.initialization import EncoderSpec, Initialization
from aptool.models.matching import MaxSimPooling
from aptool.models.pooling import Dense
from aptool.models.similarity import Cosine, Dot, Similarity
from aptool.models.transformer import TransformerEncoder, backbone_of

_READERS = {
    "sentence-transformers": (read_sentence, "mean-minilm"),
    "cross-encoder": (read_cross_encoder, "cross-minilm"),
    "colbert": (read_colbert, "maxsim-minilm"),
}
_EXPECTED = "a sentence encoder, a ColBERT or a cross-encoder, to start from"

# Poolings of sentence-transformers that recipes have.
_POOLINGS = {"mean": "mean", "cls": "first"}

# Sections of a recipe that describe the checkpoint.
_SAME = ("encoder", "pooling", "similarity", "head")
_TUNING = ("tune", "last", "checkpointing", "precision")


class _System(NamedTuple):
    """A checkpoint as a system that a recipe describes."""

    checkpoint: Checkpoint
    sections: dict[str, Any]  # of a recipe
    preset: str  # by default for the other sections


def find_checkpoint(start: str) -> Layout | None:
    """Return the files of a checkpoint of another library; None for a model of aptool."""
    folder = find_folder(start)
    if not isinstance(folder, Path):
        return None
    layout = read_layout(folder)
    model_type = layout.config.get("model_type")
    is_other = layout.modules is not None or bool(layout.st_config) or model_type not in (None, "aptool")
    return layout if is_other else None


def checkpoint_recipe(layout: Layout, preset: str | None, overrides: Any) -> Recipe:
    """Return the recipe to train a checkpoint: its system, and the training of a preset."""
    system = _read(layout)
    table = load_recipe(preset if preset is not None else system.preset).to_dict()
    if preset is not None:
        for section in ("encoder", "pooling"):
            kind = system.sections[section]["type"]
            if table[section]["type"] != kind and not {table[section]["type"], kind} <= {"cross", "head"}:
                expected = f"{kind}, as in {layout.folder} to start from"
                position, value = f"{section}.type", table[section]["type"]
                raise InputError(preset, position=position, value=value, expected=expected)
    elif system.sections["pooling"].get("reduce") == "sum":
        table["training"]["temperature"] = 1.0  # of a sum over tokens, not of a mean
    tuning = {name: table["encoder"][name] for name in _TUNING if name in table["encoder"]}
    table |= system.sections
    table["encoder"] = {**tuning, **table["encoder"]}
    return recipe_from_dict(apply_overrides(table, overrides), where=table["preset"])


def check_checkpoint(layout: Layout, recipe: Recipe) -> None:
    """Raise unless a recipe describes the system of a checkpoint."""
    sections, now = _read(layout).sections, recipe.to_dict()
    for section in _SAME:
        for name in sorted(now[section].keys() | sections[section].keys()):
            if section == "encoder" and name in _TUNING and sections["pooling"]["type"] != "head":
                continue
            value, required = now[section].get(name), sections[section].get(name)
            if value != required:
                expected = f"{required!r}, as in {layout.folder} to start from"
                raise InputError(recipe.preset, position=f"{section}.{name}", value=value, expected=expected)
    for name, most in sections["text"].items():
        value = getattr(recipe.text, name)
        if value > most:
            expected = f"at most {most}, as in {layout.folder} to start from"
            raise InputError(recipe.preset, position=f"text.{name}", value=value, expected=expected)


def initial_checkpoint(layout: Layout, recipe: Recipe) -> Initialization:
    """Return the system of a checkpoint before training."""
    ranker, tokenizer, _ = _read(layout).checkpoint
    if isinstance(ranker.pooling, HeadPooling):
        spec = ranker.encoder.spec
    else:
        assert isinstance(ranker.encoder, TransformerEncoder)
        network, pair = ranker.encoder.backbone.network, tokenizer.special_tokens()
        backbone = backbone_of(network, tokenizer, pair, forms=tokenizer.saved_forms())
        spec = EncoderSpec(len(tokenizer), ranker.encoder.size, backbone)

    def load_weights(target: nn.Module) -> int:
        target.load_state_dict({**target.state_dict(), **ranker.state_dict()})
        return len(tokenizer)

    return Initialization(tokenizer, recipe, spec, load_weights)


def _read(layout: Layout) -> _System:
    """Read a checkpoint and describe its system as sections of a recipe."""
    kind: Kind = kind_of(layout)
    if kind not in _READERS:
        raise InputError(layout.folder, problem=f"a model of kind {kind}", expected=_EXPECTED)
    read, preset = _READERS[kind]
    checkpoint = read(layout)
    pooling: Any = checkpoint.ranker.pooling
    similarity = "cosine"
    text = asdict(checkpoint.recipe.text)
    limits = {name: text[name] for name in ("max_question_tokens", "max_answer_tokens")}
    encoder = {"type": checkpoint.recipe.encoder["type"], "name": str(layout.transformer)}
    if isinstance(pooling, HeadPooling):
        table: dict[str, Any] = {"type": "head", "activation": pooling.activation}
        network = pooling.classifier.network
        if (network.config.pad_token_id or 0) >= network.get_input_embeddings().weight.shape[0]:
            raise InputError(layout.folder, problem="no padding token", expected="a tokenizer with one")
    elif isinstance(pooling, MaxSimPooling):
        table = {"type": "maxsim", "reduce": "sum" if pooling.sums else "mean"}
    elif isinstance(pooling, SentencePooling):
        layers = [layer for layer in pooling.layers if not isinstance(layer, Normalize)]
        is_unit = len(layers) < len(pooling.layers)
        modes = "+".join(pooling.modes)
        names: dict[type[Similarity], str] = {Cosine: "cosine", Dot: "cosine" if is_unit else "dot"}
        if modes not in _POOLINGS or layers or type(pooling.similarity) not in names:
            problem = f"pooling {modes}, {len(layers)} layers, {type(pooling.similarity).__name__}"
            expected = "mean or cls, without Dense and LayerNorm, by cosine or inner product"
            raise InputError(layout.folder, problem=problem, expected=expected)
        similarity = names[type(pooling.similarity)]
        table = {"type": _POOLINGS[modes]}
    else:
        problem = "a causal network with a chat template"
        raise InputError(layout.folder, problem=problem, expected=_EXPECTED)
    dim = _projected(layout, checkpoint.ranker.projection)
    if dim:
        table["dim"] = dim
    sections = {
        "encoder": encoder,
        "pooling": table,
        "similarity": {"type": similarity},
        "head": {"type": "none"},
    }
    recipe = load_recipe(preset).to_dict()
    sections["text"] = {**recipe["text"], **limits}
    return _System(checkpoint, sections, preset)


def _projected(layout: Layout, projection: nn.Module | None) -> int:
    """Return the features after the projection of states; 0 without one."""
    if projection is None:
        return 0
    if (
        not isinstance(projection, Dense)
        or projection.linear.bias is not None
        or projection.activation != "identity"
        or projection.adds_input
    ):
        expected = "one Dense layer without bias and activation"
        raise InputError(layout.folder, problem="another projection of the states", expected=expected)
    return projection.outputs
