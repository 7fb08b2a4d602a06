"""The checkpoint of a training: one file, replaced atomically with each state, until the model is saved.

``MODEL.training/state.safetensors`` holds the weights, the best weights, the optimizers' state and, within an
epoch, the states of the generators as tensors, and the history as JSON in the same file's header, so one
rename replaces all of it. The key in the header is a hash of everything that decides the result: training
resumes only from a checkpoint of the same training.
"""

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.config import Recipe
from aptool.documents import read_json
from aptool.errors import InputError, one_line
from aptool.formats.atomic import atomic_file, remove_leftovers, remove_matching
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.object_folder import local_copy
from aptool.formats.storage import stat
from aptool.formats.urls import is_remote
from aptool.models.build import encoder_type
from aptool.models.model import CONFIG
from aptool.models.start import start_fingerprint
from aptool.models.tensor_file import read_tensors, write_tensors
from aptool.training.negatives import teacher_fingerprint
from aptool.training.process_group import ProcessGroup
from aptool.training.texts import fingerprints
from aptool.version import __version__

STATE = "state.safetensors"
VECTORS = "vectors"  # learned vectors, so that they are learned once
LEARNED_VECTORS = re.compile(
    r"learned-[0-9a-f]{16}\.safetensors|\.learned-[0-9a-f]{16}\.safetensors\.[a-z0-9_]{8}\.part"
)


class EpochState(NamedTuple):
    """The state within an epoch, after some of its updates.

    Attributes:
        pairs: number of (question, positive answer) pairs that were trained on.
        updates: number of updates.
        losses: sum of the pairs' losses, and the number of nonzero ones.
        train_seconds: duration so far.
        mining_seconds: of which mining took.
        sampling: the state of the generator of negatives.
        sampled: (n, 2 + k) question, positive and mined negatives of the next pairs, perhaps none.
        dropout: the states of torch's generators of each process: of the CPU and, on a GPU, of that too.
    """

    pairs: int
    updates: int
    losses: tuple[float, float]
    train_seconds: float
    mining_seconds: float
    sampling: Mapping[str, Any]
    sampled: Tensor
    dropout: list[list[Tensor]]


class TrainingState(NamedTuple):
    """The state after an epoch, or within the next one.

    Attributes:
        history: one entry a complete epoch.
        best_epoch: the epoch with the best dev figure, 0 before the first; with ``average_epochs``, the last.
        weights: the current state dict.
        best_weights: the state dict of the best epoch, or the average of the last epochs so far.
        optimizers: the state dict of each optimizer.
        within: the state within the epoch after the last of ``history``; None before its first update.
    """

    history: list[dict[str, Any]]
    best_epoch: int
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]
    within: EpochState | None = None


def training_key(
    collection: CollectionFiles, recipe: Recipe, seed: int, splits: tuple[str, str], device: str
) -> str:
    """A hash of everything that decides the result, except the number of threads and processes."""
    facts = {
        "aptool": __version__,
        "torch": version("torch"),
        "recipe": recipe.to_dict(),
        "collection": collection.fingerprint,
        **inputs_of(collection, recipe),
        "splits": splits,
        "seed": seed,
        "device": device,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def inputs_of(collection: CollectionFiles, recipe: Recipe) -> dict[str, Any]:
    """Return the identity of the files that a recipe names: vectors, start model, teacher, collections."""
    return {
        "vectors": source_identity(encoder_type(recipe).source(recipe)),
        "start": start_fingerprint(recipe),
        "teacher": teacher_fingerprint(recipe),
        "mixture": fingerprints(collection, recipe),
    }


def training_folder(output: PathOrUrl) -> Location:
    """The folder of a training's checkpoint until its model is saved."""
    return location(f"{location(output)}.training")


def save_state(folder: Location, key: str, state: TrainingState) -> None:
    """Replaces the checkpoint; it is on disk when this returns."""
    tensors: dict[str, Tensor] = {}
    for name, weight in state.weights.items():
        tensors[f"weights/{name}"] = weight
    # If this epoch is the best one, its weights are stored once.
    if any(not torch.equal(state.weights[name], weight) for name, weight in state.best_weights.items()):
        for name, weight in state.best_weights.items():
            tensors[f"best/{name}"] = weight
    optimizers = [
        _flatten(optimizer, f"optimizers/{i}", tensors) for i, optimizer in enumerate(state.optimizers)
    ]
    within = state.within._asdict() if state.within is not None else None
    facts = {
        "key": key,
        "history": json.dumps(state.history),
        "best_epoch": str(state.best_epoch),
        "optimizers": json.dumps(optimizers),
        "within": json.dumps(_flatten(within, "within", tensors)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / STATE) as temporary:
        write_tensors(temporary, tensors, facts)


def load_state(folder: Location, key: str) -> TrainingState | None:
    """The checkpoint in a folder; None if there is none, or one of another training."""
    path = folder / STATE
    if not path.is_file():
        return None
    try:
        with local_copy(path) as here:
            tensors, facts = read_tensors(here, checked=True)
        if facts["key"] != key:
            return None
        history, best_epoch = json.loads(facts["history"]), int(facts["best_epoch"])
        weights = _under("weights/", tensors)
        best = _under("best/", tensors) or {name: weight.clone() for name, weight in weights.items()}
        optimizers = [_restore(optimizer, tensors) for optimizer in json.loads(facts["optimizers"])]
        found = _restore(json.loads(facts["within"]), tensors)
        within = EpochState(**found) if found is not None else None
    except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"damaged ({one_line(str(error))})"
        expected = f"a training checkpoint; remove {folder} to train from the beginning"
        raise InputError(path, problem=problem, expected=expected) from error
    return TrainingState(history, best_epoch, weights, best, optimizers, within)


def clean_up(output: PathOrUrl) -> None:
    """Removes the temporary files of a training of this model that was killed while writing."""
    remove_leftovers(output)
    remove_leftovers(training_folder(output) / STATE)


def remove_state(output: PathOrUrl) -> None:
    """Removes the checkpoint of a training; other files in its folder stay."""
    folder = training_folder(output)
    clean_up(output)
    (folder / STATE).unlink(missing_ok=True)
    remove_matching(folder / VECTORS, LEARNED_VECTORS)
    with contextlib.suppress(OSError):  # missing, or not empty
        folder.rmdir()


def trained_key(output: PathOrUrl) -> str | None:
    """The key of the model in a folder; None if there is no model or it has no key."""
    try:
        return str(read_json(location(output) / CONFIG)["training"]["key"])
    except (InputError, KeyError, TypeError):
        return None


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """An optimizer's state as JSON values; its tensors go to ``tensors``, their names replace them."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        # As a list of pairs: the keys of an optimizer's state are numbers, those of a JSON object strings.
        return {"dict": [[key, _flatten(one, f"{name}/{key}", tensors)] for key, one in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_flatten(one, f"{name}/{i}", tensors) for i, one in enumerate(value)]}
    return {"value": value}


def _restore(value: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """Inverts ``_flatten``, except that a tuple becomes a list."""
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "dict" in value:
        return {key: _restore(one, tensors) for key, one in value["dict"]}
    if "list" in value:
        return [_restore(one, tensors) for one in value["list"]]
    return value["value"]


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


def source_identity(source: str) -> list[Any] | None:
    """Names, sizes and versions of the files of initial weights; None if there are no files."""
    if is_remote(source) and not source.startswith("hf:"):
        found = stat(source)
        return [[source, found.size, found.version]]
    path = Path(source)
    # The layouts of models have their files in a folder and in the folders of their modules.
    files = sorted([*path.glob("*"), *path.glob("*/*")]) if path.is_dir() else [path]
    return [
        [file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()
    ] or None


class CheckpointTimer:
    """Says when the next state within an epoch is due.

    Args:
        minutes: between two states; 0 is never.
    """

    def __init__(self, minutes: float) -> None:
        self._seconds = 60 * minutes
        self._since = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether so many minutes have passed since the last state."""
        return 0 < self._seconds <= time.monotonic() - self._since

    def restart(self) -> None:
        """A state has just been saved."""
        self._since = time.monotonic()


def seed_dropout(*facts: int) -> None:
    """Seeds dropout from these numbers only (seed, epoch, rank), so that a resumed epoch repeats it."""
    torch.manual_seed(int(np.random.SeedSequence(facts).generate_state(1, np.uint64)[0] >> 1))


def dropout_states(group: ProcessGroup, device: torch.device) -> list[list[Tensor]]:
    """The states of torch's generators of each process of a group."""
    own = [torch.get_rng_state()]
    if device.type == "cuda":
        own.append(torch.cuda.get_rng_state(device))
    return group.gather(own)


def restore_dropout(states: list[Tensor], device: torch.device) -> None:
    """Sets torch's generators of this process."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
