"""The state of a training, and its checkpoint: one file, replaced atomically, deleted with the saved model.

``MODEL.training/state.safetensors`` has the weights, the best weights, and the states of optimizers and
random generators as tensors, and the history as JSON in its header. The key in the header is a hash of
everything that decides the result: training resumes only with an equal key.
"""

import contextlib
import hashlib
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from aptool.config import Recipe
from aptool.data.collection import Collection
from aptool.documents import read_json
from aptool.errors import InputError, one_line
from aptool.files import local_copy, stat
from aptool.models.build import code_of
from aptool.models.device import seed_generators
from aptool.models.hub import CONFIG, trained_config
from aptool.models.tensor_file import read_tensors, write_tensors
from aptool.outputs import output_file
from aptool.paths import Location, PathOrUrl, is_remote, location, names, output_location
from aptool.training.process_group import ProcessGroup

# Seconds between two questions to the cluster whether a machine is about to be taken away.
NOTICE_SECONDS = 5.0

STATE = "state.safetensors"
VECTORS = "vectors"  # cache of learned vectors
LEARNED_VECTORS = re.compile(
    r"learned-[0-9a-f]{16}\.safetensors|\.learned-[0-9a-f]{16}\.safetensors\.[a-z0-9_]{8}\.part"
)


class EpochState(NamedTuple):
    """The state within an epoch, after some of its updates."""

    pairs: int  # pairs trained on
    updates: int
    losses: tuple[float, float]  # sum of the pairs' losses, and the number of nonzero losses
    train_seconds: float
    mining_seconds: float  # part of train_seconds
    sampling: Mapping[str, Any]  # state of the generator of negatives
    sampled: Tensor  # (n, 2 + k) question, positive and mined negatives of the next pairs
    dropout: list[list[Tensor]]  # per process: the states of torch's generators, CPU then GPU


class TrainingState(NamedTuple):
    """The state after an epoch, or within an epoch."""

    history: list[dict[str, Any]]  # one entry per complete epoch
    best_epoch: int  # 0 before the first epoch; with ``average_epochs``, the last epoch
    weights: dict[str, Tensor]
    best_weights: dict[str, Tensor]  # of the best epoch, or the average of the last epochs so far
    optimizers: list[dict[str, Any]]  # state dicts
    within: EpochState | None = None  # state within the epoch after ``history``; None before its first update


class _Requests(NamedTuple):
    """The requests of process 0 after an update."""

    checkpoint: bool  # save a checkpoint
    poll: bool  # ask the cluster for a notice of preemption, which all processes do together


class CheckpointTimer:
    """When a checkpoint within an epoch is due: after an interval, on SIGTERM and on a notice of preemption.

    All processes call ``is_due`` after the same updates. An interval of 0 minutes is never.
    """

    def __init__(self, minutes: float, is_preempted: Callable[[], bool] | None = None) -> None:
        self._seconds = 60 * minutes
        self._is_preempted = is_preempted
        self._last_poll = time.monotonic()
        self._is_terminated = False
        self.restart()

    def is_due(self, group: ProcessGroup) -> bool:
        """Whether a checkpoint is due, the same in all processes."""
        requests: _Requests = group.broadcast(self._requests())
        if requests.poll and self._is_preempted is not None:
            self._last_poll = time.monotonic()
            return self._is_preempted() or requests.checkpoint
        return requests.checkpoint

    def _requests(self) -> _Requests:
        now = time.monotonic()
        checkpoint = self._is_terminated or 0 < self._seconds <= now - self._start
        return _Requests(checkpoint, poll=now - self._last_poll >= NOTICE_SECONDS)

    def restart(self) -> None:
        """Start the next interval."""
        self._start = time.monotonic()

    @contextlib.contextmanager
    def deferring_termination(self) -> Iterator[None]:
        """Defer a first SIGTERM until ``terminate`` or the end of the block; a second one acts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._handler = signal.getsignal(signal.SIGTERM)

        def defer(number: int, frame: FrameType | None) -> None:
            self._is_terminated = True
            signal.signal(signal.SIGTERM, self._handler)

        signal.signal(signal.SIGTERM, defer)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, self._handler)
            self.terminate()

    def terminate(self) -> None:
        """Act on a deferred SIGTERM, as the process would have without ``deferring_termination``."""
        if self._is_terminated:
            self._is_terminated = False
            signal.raise_signal(signal.SIGTERM)


def seed_dropout(device: torch.device, *entropy: int) -> None:
    """Seed dropout from (seed, epoch, rank) only, so that a resumed epoch repeats it."""
    seed_generators(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1), device)


def dropout_states(group: ProcessGroup, device: torch.device) -> list[list[Tensor]]:
    """Return the states of torch's generators in each process."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return group.gather(states)


def restore_dropout(states: list[Tensor], device: torch.device) -> None:
    """Set torch's generators in this process."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)


def training_key(collection: Collection, recipe: Recipe, seed: int, device: str) -> str:
    """Hash all inputs that decide the result, except the number of threads and processes."""
    inputs = {
        "code": code_of(recipe),
        "recipe": recipe.to_dict(),
        "collection": collection.fingerprint,
        **inputs_of(recipe),
        "splits": ["train", "dev"],
        "seed": seed,
        "device": device,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]


def inputs_of(recipe: Recipe) -> dict[str, Any]:
    """Identify the files that a recipe names: vectors and start model."""
    start = None
    if recipe.start.model:
        from aptool.models.model import model_fingerprint

        start = model_fingerprint(recipe.start.model)
    return {
        "vectors": source_identity(str(recipe.encoder.get("name", recipe.vectors.source))),
        "start": start,
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
    with output_file(folder / STATE) as temporary:
        write_tensors(temporary, tensors, metadata)


def load_state(folder: Location) -> tuple[str, TrainingState] | None:
    """Read the key and the state of the checkpoint in a folder; return None if there is none."""
    path = folder / STATE
    if not path.is_file():
        return None
    try:
        with local_copy(path) as file:
            tensors, metadata = read_tensors(file, checked=True)
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
    return metadata["key"], TrainingState(history, best_epoch, weights, best, optimizers, within)


def remove_state(output: PathOrUrl) -> None:
    """Remove the checkpoint, and its folder if it has no other files."""
    folder = training_folder(output)
    (folder / STATE).unlink(missing_ok=True)
    for name in names(folder / VECTORS):
        if LEARNED_VECTORS.fullmatch(name):
            (folder / VECTORS / name).unlink(missing_ok=True)
    for emptied in (folder / VECTORS, folder):
        with contextlib.suppress(OSError):  # missing, or not empty
            emptied.rmdir()


def trained_key(output: PathOrUrl) -> str | None:
    """Return the training key of the model in a folder, or None."""
    try:
        config = trained_config(read_json(location(output) / CONFIG))
        return None if config is None else str(config["training"]["key"])
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
    if is_remote(source):
        status = stat(source)
        return [[source, status.size, status.version]]
    path = Path(source)
    # A model has files in its folder and in the folders of its modules.
    files = sorted([*path.glob("*"), *path.glob("*/*")]) if path.is_dir() else [path]
    return [
        [file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()
    ] or None
