"""Files of a checkpoint: its folder, or its name on the hub; JSON and small weights, read with limits."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from aptool.documents import read_json
from aptool.errors import AptoolError, InputError
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.urls import is_object_url
from aptool.models import hub

# Files of a checkpoint that are fetched from the hub: no code and no pickles.
_WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "artifact.metadata")

EXPECTED = "a file of the checkpoint, in JSON"

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def find_folder(name: PathOrUrl) -> Location:
    """The folder of a model: as given, or where the hub's files of that name are kept on this machine.

    Raises:
        AptoolError: there is no such folder, and it is no name on the hub or cannot be fetched.
    """
    if is_object_url(name):
        return location(name)
    url = _hub_url(name)
    if url is not None:
        return hub.local_folder(url, _WANTED)
    text = str(name)
    if Path(text).is_dir():
        return Path(text)
    if Path(text).exists():
        raise InputError(text, problem="a file", expected="the folder of a model")
    raise AptoolError(
        f"{text}: folder not found; expected a model "
        f"(`aptool train COLLECTION --output {text}` trains one), or a name on the Hugging Face hub"
    )


def pinned_name(name: PathOrUrl) -> str:
    """What every node of a cluster calls a model: its folder, or its URL on the hub at this machine's commit.

    Raises:
        AptoolError: as ``find_folder``.
    """
    folder, url = find_folder(name), _hub_url(name)
    return str(folder) if url is None else hub.pinned(url, Path(str(folder)))


def _hub_url(name: PathOrUrl) -> str | None:
    text = str(name)
    if hub.is_url(text):
        return text
    return f"hf://{text}" if is_hub_name(text) and not Path(text).is_dir() else None


def is_hub_name(name: str) -> bool:
    """Whether a name can be one of the hub, ``OWNER/NAME``, and is no path in a folder that exists.

    ``models`` is no owner, but the folder that ``aptool train`` writes to.
    """
    owner, slash, rest = name.partition("/")
    is_pair = bool(slash and rest and "/" not in rest)
    return is_pair and owner not in ("", ".", "..", "~", "models") and not Path(owner).exists()


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        InputError: it is missing or damaged, or holds something else.
    """
    found = read_json(path, EXPECTED)
    if not isinstance(found, dict):
        raise InputError(path, value=found, expected="a JSON object")
    return found


def optional_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no such file."""
    return read_object(path) if path.is_file() else {}


def shapes(path: Path) -> dict[str, list[int]]:
    """The shape of each tensor in a safetensors file, from its header.

    Raises:
        InputError: it is missing or damaged.
    """
    if not path.is_file():
        wanted = "weights in a safetensors file; pickled ones are not read"
        raise InputError(path, problem="file not found", expected=wanted)
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(path, problem=str(error), expected="a safetensors file") from error


def read_tensor(path: Path, name: str) -> Tensor:
    """A tensor of a safetensors file.

    Raises:
        InputError: it is missing, or not of finite numbers.
    """
    if name not in shapes(path):
        raise InputError(path, place=name, problem="missing", expected="the weights of the checkpoint")
    with safe_open(path, framework="pt") as file:
        tensor: Tensor = file.get_tensor(name)
    if tensor.is_floating_point():
        tensor = tensor.float()
        if not torch.isfinite(tensor).all():
            raise InputError(path, place=name, problem="NaN or infinite", expected="finite weights")
    return tensor


def fill(module: nn.Module, path: Path) -> None:
    """Loads all weights of a module from a safetensors file, by their names.

    Raises:
        InputError: one is missing, of another shape, or not finite.
    """
    found = shapes(path)
    for name, weight in module.state_dict().items():
        if name not in found:
            raise InputError(path, place=name, problem="missing", expected="the weights of the checkpoint")
        if found[name] != list(weight.shape):
            expected = f"shape {list(weight.shape)}, as its {CONFIG} says"
            raise InputError(path, place=name, value=found[name], expected=expected)
    module.load_state_dict({name: read_tensor(path, name) for name in module.state_dict()})


def checked_shape(path: Path, name: str, expected: list[int]) -> None:
    """Compares the shape of a tensor with what a configuration says, before a module is built for it.

    Raises:
        InputError: it is missing or of another shape.
    """
    found = shapes(path).get(name)
    if found != expected:
        wanted = f"shape {expected}, as its {CONFIG} says"
        raise InputError(path, place=name, value=found, expected=wanted)
