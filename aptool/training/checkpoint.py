"""The state of a training, and its checkpoint: one file, replaced atomically, deleted with the saved model.

``MODEL.training/state.safetensors`` has the weights, the best weights, and the states of optimizers and
random generators as tensors, and the history as JSON in its header. The key in the header is a hash of
everything that decides the result: training resumes only with an equal key.
"""

import contextlib
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from aptool.config import Recipe
from aptool.data.collection import Collection
from aptool.documents import read_json
from aptool.errors import InputError, one_line
from aptool.files import local_copy, stat
from aptool.models.build import code_of
from aptool.models.device import seed_generators
from aptool.models.hub import CONFIG, trained_config
from aptool.models.model import read_tensors, write_tensors
from aptool.outputs import output_file, remove_tree
from aptool.paths import Location, PathOrUrl, is_remote, location, output_location
from aptool.training.process_group import ProcessGroup

# Seconds between two questions to the cluster whether a machine is about to be taken away.
NOTICE_SECONDS = 5.0

STATE = "state.safetensors"
VECTORS = "vectors"  # folder of the cache of learned vectors


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
        now = time.monotonic()
        is_due = self._is_terminated or 0 < self._seconds <= now - self._start
        # Process 0 decides when all processes ask the cluster.
        is_due, asks = group.broadcast((is_due, now - self._last_poll >= NOTICE_SECONDS))
        if asks and self._is_preempted is not None:
            self._last_poll = now
            return self._is_preempted() or is_due
        return is_due

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

    def store(tensor: Tensor) -> dict[str, str]:
        name = f"{len(tensors)}"
        tensors[name] = tensor
        return {"tensor": name}

    within = state.within._asdict() if state.within is not None else None
    metadata = {
        "key": key,
        "history": json.dumps(state.history),
        "best_epoch": str(state.best_epoch),
        "optimizers": json.dumps(state.optimizers, default=store),
        "within": json.dumps(within, default=store),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with output_file(folder / STATE) as temporary:
        write_tensors(temporary, tensors, metadata)


def load_state(folder: Location) -> TrainingState | None:
    """Read the state of the checkpoint in a folder; return None if there is none."""
    if not (folder / STATE).is_file():
        return None
    with _readable(folder) as file:
        tensors, metadata = read_tensors(file)

        def restored(entry: dict[str, Any]) -> Any:
            return tensors[entry["tensor"]] if entry.keys() == {"tensor"} else entry

        optimizers = json.loads(metadata["optimizers"], object_hook=restored)
        for optimizer in optimizers:  # JSON has no numbers as keys
            optimizer["state"] = {int(number): entry for number, entry in optimizer["state"].items()}
        epoch_state = json.loads(metadata["within"], object_hook=restored)
        weights = _under("weights/", tensors)
        return TrainingState(
            history=json.loads(metadata["history"]),
            best_epoch=int(metadata["best_epoch"]),
            weights=weights,
            best_weights=_under("best/", tensors) or weights,
            optimizers=optimizers,
            within=EpochState(**epoch_state) if epoch_state is not None else None,
        )


def stored_key(folder: Location) -> str | None:
    """Read the key of the checkpoint in a folder, without its tensors; return None if there is none."""
    if not (folder / STATE).is_file():
        return None
    with _readable(folder) as path, safe_open(path, framework="pt") as file:
        return str(file.metadata()["key"])


@contextlib.contextmanager
def _readable(folder: Location) -> Iterator[Path]:
    """Yield a local copy of a checkpoint; an error inside the block means that it is damaged."""
    path = folder / STATE
    try:
        with local_copy(path) as file:
            yield file
    except (InputError, SafetensorError, ValueError, LookupError, TypeError, AttributeError) as error:
        problem = f"damaged ({one_line(str(error))})"
        expected = f"a training checkpoint; remove {folder} to train from the beginning"
        raise InputError(path, problem=problem, expected=expected) from error


def remove_state(output: PathOrUrl) -> None:
    """Remove the checkpoint, and its folder if it has no other files."""
    folder = training_folder(output)
    (folder / STATE).unlink(missing_ok=True)
    remove_tree(folder / VECTORS)
    with contextlib.suppress(OSError):  # missing, or not empty
        folder.rmdir()


def trained_key(output: PathOrUrl) -> str | None:
    """Return the training key of the model in a folder, or None."""
    try:
        config = trained_config(read_json(location(output) / CONFIG))
        return None if config is None else str(config["training"]["key"])
    except (InputError, KeyError, TypeError):
        return None


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
