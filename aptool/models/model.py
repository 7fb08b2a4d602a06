"""Model folders: config.json, tokenizer.json, model.safetensors, a model card, and a folder training/.

The layout is the layout of the Hugging Face hub. Loading a model executes no code of its folder.
"""

import contextlib
import hashlib
import json
import platform
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from aptool.config import Recipe, recipe_from_dict
from aptool.data.schemas import check_document
from aptool.documents import read_json, yaml_text
from aptool.errors import AptoolError, InputError
from aptool.files import local_copy
from aptool.models.build import build_ranker, encoder_type, set_tokenizer
from aptool.models.device import to_device
from aptool.models.hub import CONFIG, WEIGHTS, find_folder, is_trained, trained_config
from aptool.models.initialization import EncoderSpec
from aptool.models.ranker import Ranker
from aptool.models.sentence_files import FILES as SENTENCE_FILES
from aptool.models.sentence_files import POOLING, write_sentence_files
from aptool.models.tensor_file import check_finite, read_header, read_tensors, write_tensors
from aptool.outputs import delete, output_folder
from aptool.paths import PathOrUrl, location
from aptool.text.tokenizer import TextTokenizer
from aptool.version import __version__

TOKENIZER = "tokenizer.json"

# Files that ``save_model`` writes, and those that only some models have, too.
FILES = (CONFIG, TOKENIZER, WEIGHTS, "README.md", "training/history.jsonl")
_ALL_FILES = (*FILES, *SENTENCE_FILES)

# Types of weights, as named by safetensors.
WEIGHT_TYPES = ("F64", "F32", "F16", "BF16")

# Prefix of the names of a network's weights.
_NETWORK = "encoder.backbone.network."

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
    with new_model_folder(folder) as into:
        (into / CONFIG).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        tokenizer.save(into / TOKENIZER)
        weights = {_name_in_file(name): weight for name, weight in ranker.state_dict().items()}
        write_tensors(into / WEIGHTS, weights, {"format": "pt"})
        if spec.network is not None:
            write_sentence_files(into, recipe, tokenizer, spec.network, spec.dim)
        (into / "README.md").write_text(model_card(config), encoding="utf-8")
        (into / "training").mkdir()
        lines = "".join(json.dumps(entry) + "\n" for entry in history)
        (into / "training" / "history.jsonl").write_text(lines, encoding="utf-8")


def new_model_folder(folder: PathOrUrl) -> AbstractContextManager[Path]:
    """Open a temporary folder, which becomes the model folder if the block succeeds."""
    return output_folder(folder, CONFIG)


def opened_folder(folder: PathOrUrl) -> AbstractContextManager[Path]:
    """Open a local copy of a model folder or ``hf://ORG/NAME``, which exists while the block runs."""
    return local_copy(find_folder(folder))


def has_model(folder: PathOrUrl) -> bool:
    """Whether a folder is a model folder."""
    return (location(folder) / CONFIG).is_file()


def remove_model(folder: PathOrUrl) -> None:
    """Remove a model folder, except files that aptool did not write."""
    path = location(folder)
    if not (has_model(path) and is_trained(path)):
        return
    delete([path / name for name in _ALL_FILES])
    if isinstance(path, Path):
        for subfolder in (path / "training", path / POOLING, path):
            with contextlib.suppress(OSError):  # missing, or not empty
                subfolder.rmdir()


def load_model(folder: PathOrUrl, device: torch.device | str = "cpu") -> LoadedModel:
    """Load a model from a folder, or from ``hf://ORG/NAME`` on the Hugging Face hub."""
    # The initial weights of a training do not depend on the weights of its start, which are replaced.
    with opened_folder(folder) as path, torch.random.fork_rng(devices=[]):
        return _load(path, device)


def _load(path: Path, device: torch.device | str) -> LoadedModel:
    config = read_config(path / CONFIG)
    recipe = recipe_from_dict(config["recipe"], where=str(path / CONFIG))
    tokenizer = encoder_type(recipe).Tokenizer.load(path / TOKENIZER)
    set_tokenizer(tokenizer, recipe)
    if len(tokenizer) != config["vocabulary"]:
        expected = f"{config['vocabulary']} {tokenizer.unit}, as {CONFIG} says"
        raise InputError(path / TOKENIZER, value=len(tokenizer), expected=expected)
    spec = EncoderSpec(config["vocabulary"], config["dim"], config.get("network"))
    ranker = build_ranker(recipe, *spec)
    _check_shapes(path / WEIGHTS, read_header(path / WEIGHTS, "the weights of a model"), ranker)
    weights, _ = read_tensors(path / WEIGHTS)
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


def model_card(config: dict[str, Any]) -> str:
    """Return the README of a model folder, in Markdown."""
    recipe, training = config["recipe"], config["training"]
    measures = f"| dev measure (best epoch, {training['best_epoch']}) | value |\n|---|---|\n"
    measures += "\n".join(f"| {name} | {value:.4f} |" for name, value in training["dev"].items())
    if not training["dev"]:
        measures = "Not evaluated on a dev split during training."
    header = yaml_text(_card_header(config))
    parameters = json.dumps({key: recipe[key] for key in recipe if key != "preset"}, indent=2)
    return f"""---
{header}---
# {recipe["preset"]} trained on {training["collection"]}

Ranks candidate answers to a question by {recipe["pooling"]["type"]} pooling over a
{recipe["encoder"]["type"]} encoder. Score pools with `aptool score POOLS --model FOLDER`.

{measures}

Trained with seed {training["seed"]} on collection `{training["collection"]}` (fingerprint
`{training["fingerprint"]}`), aptool {config["versions"]["aptool"]}, torch {config["versions"]["torch"]}.
`training/history.jsonl` has every epoch.

```json
{parameters}
```
"""


def _card_header(config: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a model card; the hub displays the measures in ``model-index``."""
    training = config["training"]
    result = {
        "task": {"type": "text-ranking", "name": "Answer selection"},
        "dataset": {"name": training["collection"], "type": training["collection"], "split": "dev"},
        "metrics": [
            {"type": name.lower(), "name": f"{name} (dev)", "value": round(value, 4)}
            for name, value in training["dev"].items()
        ],
    }
    card: dict[str, Any] = {
        "library_name": "aptool",
        "pipeline_tag": "text-ranking",
        "tags": ["answer-selection", "re-ranking"],
    }
    if training["dev"]:
        card["model-index"] = [{"name": config["recipe"]["preset"], "results": [result]}]
    return card


def read_config(path: Path) -> dict[str, Any]:
    """Read the configuration of a model; see `trained_config`."""
    if not path.is_file():
        raise InputError(path, problem="file not found", expected="the configuration of a model")
    config = trained_config(read_json(path))
    if config is None:
        problem, expected = "a model of another library", "a model that aptool trained"
        raise InputError(path, problem=problem, expected=expected)
    file_format = config.get("format")
    if isinstance(file_format, int) and file_format > FORMAT:
        raise AptoolError(
            f"{path}: written by a later version of aptool (format {file_format}); expected format {FORMAT}"
        )
    check_document("model", config, path)
    return config


def _name_in_file(name: str) -> str:
    """Return the name of a weight in a model's file: that of ``transformers`` for those of a network."""
    return name.removeprefix(_NETWORK)


def _check_shapes(path: Path, header: dict[str, tuple[list[int], str]], ranker: Ranker) -> None:
    """Raise unless a file, given its header, has the weights of a network."""
    shapes = {_name_in_file(name): list(weight.shape) for name, weight in ranker.state_dict().items()}
    for name in sorted(shapes.keys() | header.keys()):
        if name not in header or name not in shapes:
            problem = "missing" if name in shapes else "unknown"
            expected = f"the weights that {CONFIG} describes"
            raise InputError(path, position=name, problem=problem, expected=expected)
        shape, kind = header[name]
        if shape != shapes[name]:
            expected = f"shape {shapes[name]}, as {CONFIG} says"
            raise InputError(path, position=name, value=shape, expected=expected)
        if kind not in WEIGHT_TYPES:
            expected = f"weights of one of the types {', '.join(WEIGHT_TYPES)}"
            raise InputError(path, position=name, value=kind, expected=expected)
