"""Folders of models: a path, a URL of an object store, or a model on the Hugging Face hub."""

import re
from pathlib import Path
from typing import Any

from aptool.documents import read_json
from aptool.environment import require
from aptool.errors import AptoolError, InputError, first_line
from aptool.paths import Location, PathOrUrl, location

CONFIG = "config.json"
MODULES = "modules.json"
WEIGHTS = "model.safetensors"
ST_CONFIG = "config_sentence_transformers.json"

# ``ORG/NAME`` or ``ORG/NAME@REVISION``.
_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([^@\s]+))?")

# Files of a model to download: no code and no pickles.
_FILES = ("*.json", "*.jsonl", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.metadata")
_OPENVINO = ("openvino/*.xml", "openvino/*.bin")


def find_folder(name: PathOrUrl) -> Location:
    """Return the folder of a model; a model on the hub is downloaded first."""
    match = _on_hub(name)
    if match is not None:
        return _downloaded(match[1], match[2])
    folder = location(name)
    if folder.is_dir():
        if isinstance(folder, Path):
            _check_is_model(folder)
        return folder
    if folder.exists():
        raise InputError(str(name), problem="a file", expected="the folder of a model")
    raise AptoolError(
        f"{name}: folder not found; expected a model "
        f"(`aptool train COLLECTION --output {name}` trains one), or a name on the Hugging Face hub"
    )


def is_trained(folder: Location) -> bool:
    """Whether aptool trained the model in a folder; a model on an object store always is one of these."""
    if not isinstance(folder, Path) or not (folder / CONFIG).is_file():
        return not isinstance(folder, Path)
    return trained_config(read_json(folder / CONFIG, "the configuration of a model")) is not None


def trained_config(document: Any) -> dict[str, Any] | None:
    """Return the configuration of a model of aptool from the content of config.json; None for another.

    The file of a model over a pretrained network is that of ``transformers`` with an entry ``aptool``; the
    other entries are then returned as ``network``.
    """
    if not isinstance(document, dict):
        return None
    own = document.get("aptool")
    if isinstance(own, dict):
        network = {name: value for name, value in document.items() if name != "aptool"}
        return {**own, "network": network}
    return document if document.get("model_type") == "aptool" else None


def model_name(folder: Path) -> str:
    """Return the name of a model: of its folder, or of the model on the hub if it is a copy."""
    path = folder.absolute()
    for part in path.parts:
        if part.startswith("models--"):
            return part.split("--")[-1]
    return path.resolve().name or "model"


def _check_is_model(folder: Path) -> None:
    """Raise if a folder has neither a description nor weights of a model; name the models in it."""
    if any((folder / name).is_file() for name in (CONFIG, MODULES, ST_CONFIG, WEIGHTS)):
        return
    inside = sorted({path.parent.name for name in (CONFIG, MODULES) for path in folder.glob(f"*/{name}")})
    problem = f"{len(inside)} models here: {', '.join(inside)}" if inside else "no model here"
    raise InputError(folder, problem=problem, expected="the folder of one model")


def pinned_name(name: PathOrUrl) -> str:
    """Return a name that means the same model on every node: its folder, or its name with the commit."""
    folder, match = find_folder(name), _on_hub(name)
    return str(folder) if match is None else f"{match[1]}@{folder.name}"  # of a local copy: the commit


def _downloaded(name: str, revision: str | None) -> Path:
    """Download the files of a model; return the folder of the copy."""
    hub = require("huggingface_hub", purpose="a model on the hub", extra="hub")
    try:
        copy = hub.snapshot_download(name, revision=revision, allow_patterns=[*_FILES, *_OPENVINO])
    except Exception as error:  # connection, server or cache
        raise InputError(name, problem=first_line(error), expected="a model on the hub") from error
    return Path(copy)


def _on_hub(name: PathOrUrl) -> re.Match[str] | None:
    """Match the name of a model on the hub; None for a path or the URL of an object store."""
    owner = str(name).partition("/")[0]
    # ``models`` is the folder that ``aptool train`` writes to.
    is_path = owner in ("", ".", "..", "~", "models") or Path(owner).exists()
    return None if is_path else _NAME.fullmatch(str(name))
