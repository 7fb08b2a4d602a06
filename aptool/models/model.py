"""Model folders: config.json, tokenizer.json, model.safetensors, and a folder training/.

The layout is the layout of the Hugging Face hub. Loading a model executes no code of its folder. A model with
mean pooling over a pretrained network is a folder of sentence-transformers, too.

Safetensors files of aptool have a checksum in the header; those of other programs are read without it.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aptool.config import Recipe, recipe_from_dict
from aptool.documents import check_document, read_json
from aptool.environment import __version__
from aptool.errors import InputError
from aptool.files import local_copy
from aptool.models.build import Ranker, build_ranker, component
from aptool.models.device import to_device
from aptool.models.encoders import EncoderSpec
from aptool.models.hub import CONFIG, MODULES, ST_CONFIG, WEIGHTS, find_folder, is_trained, trained_config
from aptool.outputs import delete, output_folder
from aptool.paths import PathOrUrl, location
from aptool.text.tokenizer import TextTokenizer

TOKENIZER = "tokenizer.json"

# Files of every model.
FILES = (CONFIG, TOKENIZER, WEIGHTS, "training/history.jsonl")

# Files of sentence-transformers in a model with mean pooling over a pretrained network.
_OPTIONS = "sentence_bert_config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_POOLING = "1_Pooling"
_SENTENCE_FILES = (MODULES, ST_CONFIG, _OPTIONS, _TOKENIZER_CONFIG, f"{_POOLING}/{CONFIG}")

# Names of the modules of sentence-transformers in all versions of the library.
_LIBRARY = "sentence_transformers.models."

# Metadata in the header of a safetensors file, and the checksum in them.
_METADATA, _CHECKSUM = "__metadata__", "sha256"

# Prefix of the names of a network's weights.
_NETWORK = "encoder.network."

# Version of the layout.
FORMAT = 2


class LoadedModel(NamedTuple):
    """A trained system, ready to score."""

    ranker: Ranker  # in evaluation mode
    tokenizer: TextTokenizer
    recipe: Recipe
    config: dict[str, Any]  # ``config.json``
    fingerprint: str  # hash of configuration, tokenizer and weights


def save_model(
    folder: PathOrUrl,
    ranker: Ranker,
    tokenizer: TextTokenizer,
    recipe: Recipe,
    training: dict[str, Any],
    history: list[dict[str, Any]],
) -> None:
    """Write a model folder atomically; an existing model is replaced.

    ``training`` is a section of ``config.json`` (``schemas/model.schema.json``); ``history`` has an entry per
    epoch.
    """
    spec = ranker.encoder.spec
    config = {
        "model_type": "aptool",
        "format": FORMAT,
        "recipe": recipe.to_dict(),
        "vocabulary": len(tokenizer),
        "dim": spec.dim,
        "versions": {"aptool": __version__, "python": platform.python_version(), "torch": version("torch")},
        "training": training,
    }
    check_document("model", config, location(folder) / CONFIG)
    document = config if spec.network is None else {**spec.network, "aptool": config}
    with output_folder(folder, CONFIG) as into:
        (into / CONFIG).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        tokenizer.save(into / TOKENIZER)
        weights = {_name_in_file(name): weight for name, weight in ranker.state_dict().items()}
        write_tensors(into / WEIGHTS, weights, {"format": "pt"})
        if spec.network is not None:
            _write_sentence_files(into, recipe, tokenizer, spec)
        (into / "training").mkdir()
        lines = "".join(json.dumps(entry) + "\n" for entry in history)
        (into / "training" / "history.jsonl").write_text(lines, encoding="utf-8")


def remove_model(folder: PathOrUrl) -> None:
    """Remove a model folder, except files that aptool did not write."""
    path = location(folder)
    if not is_trained(path):
        return
    delete([path / name for name in (*FILES, *_SENTENCE_FILES)])
    if isinstance(path, Path):
        for subfolder in (path / "training", path / _POOLING, path):
            with suppress(OSError):  # missing, or not empty
                subfolder.rmdir()


def opened_folder(folder: PathOrUrl) -> AbstractContextManager[Path]:
    """Open a local copy of a model folder or of a model on the hub, which exists while the block runs."""
    return local_copy(find_folder(folder))


def load_model(folder: PathOrUrl, device: torch.device | str = "cpu") -> LoadedModel:
    """Load a model from a folder, or by its name on the Hugging Face hub."""
    # The initial weights of a training do not depend on the weights of its start, which are replaced.
    with opened_folder(folder) as path, torch.random.fork_rng(devices=[]):
        return _load(path, device)


def _load(path: Path, device: torch.device | str) -> LoadedModel:
    config = read_config(path / CONFIG)
    recipe = recipe_from_dict(config["recipe"], where=str(path / CONFIG))
    encoder_class, _ = component(recipe, "encoder")
    tokenizer = encoder_class.Tokenizer.load(path / TOKENIZER)
    if len(tokenizer) != config["vocabulary"]:
        expected = f"{config['vocabulary']} {tokenizer.unit}, as {CONFIG} says"
        raise InputError(path / TOKENIZER, value=len(tokenizer), expected=expected)
    spec = EncoderSpec(config["vocabulary"], config["dim"], config.get("network"))
    ranker = build_ranker(recipe, *spec)
    tokenizer.identify_words = ranker.features is not None
    weights, _ = read_tensors(path / WEIGHTS)
    _check_shapes(path / WEIGHTS, weights, ranker)
    check_finite(weights, path / WEIGHTS)
    ranker.load_state_dict({name: weights[_name_in_file(name)] for name in ranker.state_dict()})
    to_device(ranker.eval(), device)
    return LoadedModel(ranker, tokenizer, recipe, config, model_fingerprint(path))


def model_recipe(folder: PathOrUrl) -> Recipe:
    """Return the recipe of a model, without reading its weights."""
    with opened_folder(folder) as path:
        return recipe_from_dict(read_config(path / CONFIG)["recipe"], where=f"{folder}/{CONFIG}")


def model_fingerprint(folder: PathOrUrl) -> str:
    """Hash the files that determine the scores of a model."""
    digest = hashlib.sha256()
    with opened_folder(folder) as path:
        for name in (CONFIG, TOKENIZER, WEIGHTS):
            with (path / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def read_config(path: Path) -> dict[str, Any]:
    """Read the configuration of a model; see `trained_config`."""
    if not path.is_file():
        raise InputError(path, problem="file not found", expected="the configuration of a model")
    config = trained_config(read_json(path))
    if config is None:
        problem, expected = "a model of another library", "a model that aptool trained"
        raise InputError(path, problem=problem, expected=expected)
    check_document("model", config, path)
    return config


def _name_in_file(name: str) -> str:
    """Return the name of a weight in a model's file: that of ``transformers`` for those of a network."""
    return name.removeprefix(_NETWORK)


def _check_shapes(path: Path, weights: dict[str, Tensor], ranker: Ranker) -> None:
    """Raise unless a file has the weights of a network."""
    shapes = {_name_in_file(name): list(weight.shape) for name, weight in ranker.state_dict().items()}
    for name in sorted(shapes.keys() | weights.keys()):
        if name not in weights or name not in shapes:
            problem = "missing" if name in shapes else "unknown"
            expected = f"the weights that {CONFIG} describes"
            raise InputError(path, position=name, problem=problem, expected=expected)
        shape = list(weights[name].shape)
        if shape != shapes[name]:
            expected = f"shape {shapes[name]}, as {CONFIG} says"
            raise InputError(path, position=name, value=shape, expected=expected)


def _write_sentence_files(folder: Path, recipe: Recipe, tokenizer: TextTokenizer, spec: EncoderSpec) -> None:
    """Write the files of sentence-transformers, if it can compute the scores of a model."""
    similarity = recipe.similarity["type"]
    is_mean = recipe.pooling["type"] == "mean" and not recipe.pooling.get("dim")
    if not is_mean or similarity not in ("cosine", "dot") or recipe.head["type"] != "none":
        return
    assert spec.network is not None
    longest = max(recipe.text.max_question_tokens, recipe.text.max_answer_tokens)
    kinds = {"": "Transformer", _POOLING: "Pooling"}
    if similarity == "cosine":
        kinds["2_Normalize"] = "Normalize"
    (folder / _POOLING).mkdir()
    files: dict[str, Any] = {
        MODULES: [
            {"idx": number, "name": str(number), "path": path, "type": f"{_LIBRARY}{kind}"}
            for number, (path, kind) in enumerate(kinds.items())
        ],
        f"{_POOLING}/{CONFIG}": {"word_embedding_dimension": spec.dim, "pooling_mode_mean_tokens": True},
        ST_CONFIG: {"similarity_fn_name": similarity},
        _OPTIONS: {"max_seq_length": longest, "do_lower_case": False},
        _TOKENIZER_CONFIG: {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": longest,
            "pad_token": tokenizer._tokenizer.id_to_token(spec.network.get("pad_token_id") or 0),
            "model_input_names": ["input_ids", "attention_mask"],
        },
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata; equal contents give equal bytes."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, path, {**metadata, _CHECKSUM: _checksum(plain, metadata)})
    _sort_metadata(path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a file."""
    if not path.is_file():
        raise InputError(path, problem="file not found", expected="the weights of a model")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(path, problem=str(error), expected="a safetensors file") from error
    checksum = metadata.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(tensors, metadata):
        raise InputError(path, problem="changed since it was written", expected="the values of its checksum")
    return tensors, metadata


def check_finite(tensors: Mapping[str, Tensor], source: object) -> None:
    """Raise if a weight of ``source`` is NaN or infinite."""
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.numel()):
            continue
        # Both extrema are NaN if a number is. This is 20 times as fast as ``isfinite`` of each number.
        values = tensor if tensor.element_size() > 1 else tensor.float()
        if not all(bool(value.isfinite()) for value in torch.aminmax(values)):
            problem = "NaN or infinite"
            raise InputError(source, position=f"weight {name!r}", problem=problem, expected="finite weights")


def _sort_metadata(path: Path) -> None:
    """Sort the metadata in the header; the library writes them in random order."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header[_METADATA] = dict(sorted(header[_METADATA].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= size
        file.seek(8)
        file.write(text.ljust(size))


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
