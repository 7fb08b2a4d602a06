"""Load the folder of any model, of aptool or of another library, as a ranker."""

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from aptool.formats.location import PathOrUrl
from aptool.models.checkpoints.colbert import read_colbert
from aptool.models.checkpoints.cross_encoder import read_cross_encoder
from aptool.models.checkpoints.files import Kind, find_folder, kind_of, read_layout
from aptool.models.checkpoints.parts import checkpoint_name
from aptool.models.checkpoints.sentence import read_sentence
from aptool.models.checkpoints.static import read_static
from aptool.models.device import to_device
from aptool.models.model import LoadedModel, load_model
from aptool.version import __version__

_READERS = {
    "sentence-transformers": read_sentence,
    "cross-encoder": read_cross_encoder,
    "colbert": read_colbert,
    "static": read_static,
}


# Files that decide the scores of a checkpoint, by the ends of their names.
_DECISIVE = (".json", ".txt", ".safetensors", ".metadata", ".model")


def load_any(name: PathOrUrl, device: torch.device | str = "cpu", kind: Kind | str = "auto") -> LoadedModel:
    """Reads a model of aptool or of another library.

    Args:
        name: a folder, an object store's URL of a model of aptool, or a name on the Hugging Face hub.
        device: device for the network.
        kind: what it is, where a folder could be several things; ``auto`` finds out.
    """
    folder = find_folder(name)
    if not isinstance(folder, Path):
        return load_model(folder, device)  # on an object store there are only models of aptool
    layout = read_layout(folder)
    found = kind_of(layout, kind)
    if found == "aptool":
        return load_model(folder, device)
    checkpoint = _READERS[found](layout)
    to_device(checkpoint.ranker.requires_grad_(False).eval(), device)
    config: dict[str, Any] = {
        "model_type": found,
        "recipe": checkpoint.recipe.to_dict(),
        "vocabulary": len(checkpoint.tokenizer),
        "versions": {"aptool": __version__, "torch": version("torch")},
    }
    return LoadedModel(
        checkpoint.ranker, checkpoint.tokenizer, checkpoint.recipe, config, _fingerprint(folder, found)
    )


def _fingerprint(folder: Path, kind: str) -> str:
    """Hash of the kind and of all files that can decide a score."""
    digest = hashlib.sha256(f"{__version__}\0{kind}\0{checkpoint_name(folder)}".encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name.endswith(_DECISIVE):
            digest.update(str(path.relative_to(folder)).encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
