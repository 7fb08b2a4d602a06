"""The training checkpoint: one file, replaced atomically, deleted when the model is saved.

``MODEL.training/state.safetensors`` has the weights, the best weights, and the states of optimizers and
random generators as tensors, and the history as JSON in its header. The key in the header is a hash of
everything that decides the result: training resumes only with an equal key.
"""

import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aptool.config import Recipe
from aptool.documents import read_json
from aptool.errors import InputError, one_line
from aptool.formats.atomic import atomic_file, remove_leftovers, remove_matching
from aptool.formats.collection import CollectionFiles
from aptool.formats.inputs import stat
from aptool.formats.location import Location, PathOrUrl, is_remote, location, output_location
from aptool.formats.object_folder import local_copy
from aptool.models.build import code_of, encoder_type
from aptool.models.hub import CONFIG
from aptool.models.tensor_file import read_tensors, write_tensors
from aptool.training.state import EpochState, TrainingState
from aptool.training.texts import sources, teacher_fingerprint

STATE = "state.safetensors"
VECTORS = "vectors"  # cache of learned vectors
LEARNED_VECTORS = re.compile(
    r"learned-[0-9a-f]{16}\.safetensors|\.learned-[0-9a-f]{16}\.safetensors\.[a-z0-9_]{8}\.part"
)


def training_key(collection: CollectionFiles, recipe: Recipe, seed: int, device: str) -> str:
    """Hash all inputs that decide the result, except the number of threads and processes."""
    inputs = {
        "code": code_of(recipe),
        "recipe": recipe.to_dict(),
        "collection": collection.fingerprint,
        **inputs_of(collection, recipe),
        "splits": ["train", "dev"],
        "seed": seed,
        "device": device,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def inputs_of(collection: CollectionFiles, recipe: Recipe) -> dict[str, Any]:
    """Identify the files that a recipe names: vectors, start model, teacher and further collections."""
    start = None
    if recipe.start.model:
        from aptool.models.start import start_fingerprint

        start = start_fingerprint(recipe.start.model)
    return {
        "vectors": source_identity(encoder_type(recipe).source(recipe)),
        "start": start,
        "teacher": teacher_fingerprint(recipe),
        "mixture": [source.fingerprint for source in sources(collection, recipe)[1:]],
    }


def training_folder(output: PathOrUrl) -> Location:
    """Return the folder of a model's training checkpoint."""
    return location(f"{output_location(output)}.training")


def save_state(folder: Location, key: str, state: TrainingState) -> None:
    """Replace the checkpoint atomically."""
    tensors = {f"weights/{name}": weight for name, weight in state.weights.items()}
    # The weights of the best epoch are stored once.
    if any(not torch.equal(state.weights[name], weight) for name, weight in state.best_weights.items()):
        tensors |= {f"best/{name}": weight for name, weight in state.best_weights.items()}
    optimizers = [
        _flatten(optimizer, f"optimizers/{i}", tensors) for i, optimizer in enumerate(state.optimizers)
    ]
    within = state.within._asdict() if state.within is not None else None
    metadata = {
        "key": key,
        "history": json.dumps(state.history),
        "best_epoch": str(state.best_epoch),
        "optimizers": json.dumps(optimizers),
        "within": json.dumps(_flatten(within, "within", tensors)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / STATE) as temporary:
        write_tensors(temporary, tensors, metadata)


def load_state(folder: Location, key: str) -> TrainingState | None:
    """Read the checkpoint in a folder; return None if it does not exist or has another key."""
    path = folder / STATE
    if not path.is_file():
        return None
    try:
        with local_copy(path) as file:
            tensors, metadata = read_tensors(file, checked=True)
        if metadata["key"] != key:
            return None
        history, best_epoch = json.loads(metadata["history"]), int(metadata["best_epoch"])
        weights = _under("weights/", tensors)
        best = _under("best/", tensors) or {name: weight.clone() for name, weight in weights.items()}
        optimizers = [_restore(optimizer, tensors) for optimizer in json.loads(metadata["optimizers"])]
        epoch_state = _restore(json.loads(metadata["within"]), tensors)
        within = EpochState(**epoch_state) if epoch_state is not None else None
    except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"damaged ({one_line(str(error))})"
        expected = f"a training checkpoint; remove {folder} to train from the beginning"
        raise InputError(path, problem=problem, expected=expected) from error
    return TrainingState(history, best_epoch, weights, best, optimizers, within)


def clean_up(output: PathOrUrl) -> None:
    """Remove temporary files that a killed training left."""
    remove_leftovers(output)
    remove_leftovers(training_folder(output) / STATE)


def remove_state(output: PathOrUrl) -> None:
    """Remove the checkpoint, and its folder if it has no other files."""
    folder = training_folder(output)
    clean_up(output)
    (folder / STATE).unlink(missing_ok=True)
    remove_matching(folder / VECTORS, LEARNED_VECTORS)
    with contextlib.suppress(OSError):  # missing, or not empty
        folder.rmdir()


def trained_key(output: PathOrUrl) -> str | None:
    """Return the training key of the model in a folder, or None."""
    try:
        return str(read_json(location(output) / CONFIG)["training"]["key"])
    except (InputError, KeyError, TypeError):
        return None


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Convert a state to JSON; each tensor moves to ``tensors``, and its name replaces it."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        # A list of pairs, as the keys of an optimizer's state are numbers, and those of JSON are strings.
        return {"dict": [[key, _flatten(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_flatten(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]}
    return {"value": value}


def _restore(value: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """Invert ``_flatten``; a tuple becomes a list."""
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "dict" in value:
        return {key: _restore(item, tensors) for key, item in value["dict"]}
    if "list" in value:
        return [_restore(item, tensors) for item in value["list"]]
    return value["value"]


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def source_identity(source: str) -> list[Any] | None:
    """Return names, sizes and versions of the files of initial weights, or None."""
    if is_remote(source) and not source.startswith("hf:"):
        status = stat(source)
        return [[source, status.size, status.version]]
    path = Path(source)
    # A model has files in its folder and in the folders of its modules.
    files = sorted([*path.glob("*"), *path.glob("*/*")]) if path.is_dir() else [path]
    return [
        [file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()
    ] or None
