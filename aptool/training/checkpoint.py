"""The state of a training on disk: beside the model folder until that is whole, one file, never half written.

``MODEL.training/state.safetensors`` holds the weights, the best weights and what the optimizers remember as
tensors, and the history as JSON in the same file's header: one rename replaces all of it. The key in it is a
hash of everything that decides the result, so that no other training ever takes a state up.
"""

import contextlib
import hashlib
import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aptool import __version__
from aptool.config import Recipe
from aptool.errors import InputError
from aptool.formats.atomic import atomic_file
from aptool.formats.collection import Collection
from aptool.models.model import CONFIG
from aptool.models.ranker import encoder_type
from aptool.training.loop import State

STATE = "state.safetensors"
VECTORS = "vectors"  # learned ones, so that they are learned once


def training_key(
    collection: Collection, recipe: Recipe, seed: int, splits: tuple[str, str], device: str
) -> str:
    """A hash of all that decides what training ends in, but for the number of threads and processes."""
    made_of = {
        "aptool": __version__,
        "torch": version("torch"),
        "recipe": recipe.to_dict(),
        "vectors": identity(encoder_type(recipe).source(recipe)),
        "collection": collection.fingerprint,
        "splits": splits,
        "seed": seed,
        "device": device,
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]


def training_folder(output: str | Path) -> Path:
    """Where the state of a training stands until its model folder is whole."""
    return Path(f"{Path(output)}.training")


def save_state(folder: Path, key: str, state: State) -> None:
    """Writes the state down in place of the one before; on disk when this returns.

    Raises:
        InputError: the folder cannot be written to.
    """
    tensors: dict[str, Tensor] = {}
    # The best epoch's weights are mostly those of an earlier one; where they are not they are kept once.
    best_is_now = state.best_epoch == len(state.history)
    for name, weight in state.weights.items():
        tensors[f"weights/{name}"] = weight
    if not best_is_now:
        for name, weight in state.best_weights.items():
            tensors[f"best/{name}"] = weight
    optimizers = [
        _flatten(remembered, f"optimizers/{i}", tensors) for i, remembered in enumerate(state.optimizers)
    ]
    facts = {
        "key": key,
        "history": json.dumps(state.history),
        "best_epoch": str(state.best_epoch),
        "optimizers": json.dumps(optimizers),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / STATE) as temporary:
        save_file({name: one.detach().cpu().contiguous() for name, one in tensors.items()}, temporary, facts)


def load_state(folder: Path, key: str) -> State | None:
    """The state that was left in a folder; None where there is none, or one of another training.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / STATE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata()
            if facts["key"] != key:
                return None
            # Copies, not views of the file, which the next epoch replaces.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        history, best_epoch = json.loads(facts["history"]), int(facts["best_epoch"])
        weights = _under("weights/", tensors)
        best = _under("best/", tensors) or {name: weight.clone() for name, weight in weights.items()}
        optimizers = [_restore(remembered, tensors) for remembered in json.loads(facts["optimizers"])]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        wanted = f"the state of a training; remove {folder} to train from the beginning"
        raise InputError(path, problem=str(error), expected=wanted) from error
    return State(history, best_epoch, weights, best, optimizers)


def remove_leftovers(output: str | Path) -> None:
    """Removes what a training of this model that was killed while it wrote left behind."""
    final = Path(output).resolve()
    for piece in [
        *final.parent.glob(f".{final.name}.*.part"),
        *final.parent.glob(f".{final.name}.*.part.old"),
    ]:
        shutil.rmtree(piece, ignore_errors=True)
    for piece in training_folder(output).glob(".*.part"):
        piece.unlink(missing_ok=True)


def remove_state(output: str | Path) -> None:
    """Removes the state of a training; what else may stand in its folder stays."""
    folder = training_folder(output)
    remove_leftovers(output)
    (folder / STATE).unlink(missing_ok=True)
    shutil.rmtree(folder / VECTORS, ignore_errors=True)
    with contextlib.suppress(OSError):  # not there, or not empty
        folder.rmdir()


def trained_key(output: str | Path) -> str | None:
    """The key of the finished model in a folder, if there is one and it has a key."""
    try:
        config = json.loads((Path(output) / CONFIG).read_text(encoding="utf-8"))
        return str(config["training"]["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _flatten(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Plain JSON of an optimizer's memory; its tensors go to ``tensors`` and their names stand for them."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        # As a list of pairs: the keys of an optimizer's state are numbers, those of a JSON object texts.
        return {"dict": [[key, _flatten(one, f"{name}/{key}", tensors)] for key, one in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_flatten(one, f"{name}/{i}", tensors) for i, one in enumerate(value)]}
    return {"value": value}


def _restore(value: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """What ``_flatten`` was given; a tuple comes back as a list."""
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "dict" in value:
        return {key: _restore(one, tensors) for key, one in value["dict"]}
    if "list" in value:
        return [_restore(one, tensors) for one in value["list"]]
    return value["value"]


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


def identity(source: str) -> list[Any] | None:
    """What tells first weights from others in their place; None where the source is no file or folder."""
    path = Path(source)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [
        [file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()
    ] or None
