"""Checkpoints of other libraries as rankers: encoders, cross-encoders, language models, ColBERT, model2vec.

No code of a checkpoint runs. ``files`` and ``network`` have the parts that several types share, ``keys`` the
settings that are implemented; the other modules read checkpoints of one type each.
"""

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from aptool.documents import read_json
from aptool.errors import UsageError
from aptool.formats.location import PathOrUrl
from aptool.models.device import to_device
from aptool.models.hub import CONFIG, find_folder
from aptool.models.model import LoadedModel, ScoreTokens, load_model
from aptool.models.tensor_file import check_finite
from aptool.version import __version__

if TYPE_CHECKING:
    from aptool.models.checkpoints.files import Checkpoint, Kind, Layout

__all__ = ["ScoreTokens", "checkpoint_fingerprint", "load_any", "read_checkpoint"]

# Suffixes of files that determine the scores of a checkpoint.
_HASHED = (".json", ".jinja", ".txt", ".safetensors", ".metadata", ".model")


def load_any(
    name: PathOrUrl, device: torch.device | str = "cpu", kind: str = "auto", tokens: ScoreTokens | None = None
) -> LoadedModel:
    """Load a model of aptool or of another library.

    ``name`` is a folder, a URL of a model of aptool on an object store, or a name on the Hugging Face hub.
    """
    if tokens is not None and kind != "causal-lm":
        raise UsageError(f"true token {tokens.true!r}: requires the kind causal-lm, not {kind}")
    folder = find_folder(name)
    if not isinstance(folder, Path):
        return load_model(folder, device)
    if kind in ("auto", "aptool") and _is_aptool(folder):
        return load_model(folder, device)
    # Imported here, because models of aptool do not need these modules.
    from aptool.models.checkpoints.files import kind_of, read_layout

    layout = read_layout(folder)
    model_type = kind_of(layout, kind)
    checkpoint = read_checkpoint(layout, model_type, tokens)
    check_finite(checkpoint.ranker.state_dict(), folder)
    to_device(checkpoint.ranker.requires_grad_(False).eval(), device)
    config: dict[str, Any] = {
        "model_type": model_type,
        "recipe": checkpoint.recipe.to_dict(),
        "vocabulary": len(checkpoint.tokenizer),
        "versions": {"aptool": __version__, "torch": version("torch")},
    }
    return LoadedModel(
        checkpoint.ranker,
        checkpoint.tokenizer,
        checkpoint.recipe,
        config,
        checkpoint_fingerprint(folder, model_type, tokens),
    )


def _is_aptool(folder: Path) -> bool:
    """Whether the configuration of a folder is that of a model of aptool."""
    config: Any = read_json(folder / CONFIG, "a model of aptool") if (folder / CONFIG).is_file() else None
    return isinstance(config, dict) and config.get("model_type") == "aptool"


def read_checkpoint(layout: "Layout", kind: "Kind", tokens: ScoreTokens | None = None) -> "Checkpoint":
    """Read a checkpoint of a kind; ``tokens`` as in ``read_causal_lm``."""
    if kind == "causal-lm":
        from aptool.models.checkpoints.cross_encoder import read_causal_lm

        return read_causal_lm(layout, tokens)
    from aptool.models.checkpoints.colbert import read_colbert
    from aptool.models.checkpoints.cross_encoder import read_cross_encoder
    from aptool.models.checkpoints.sentence import read_sentence, read_static

    readers = {
        "sentence-transformers": read_sentence,
        "cross-encoder": read_cross_encoder,
        "colbert": read_colbert,
        "static": read_static,
    }
    return readers[kind](layout)


def checkpoint_fingerprint(
    folder: Path, kind: str = "auto", tokens: ScoreTokens | None = None, suffixes: tuple[str, ...] = _HASHED
) -> str:
    """Hash the kind, the tokens of the score and all files whose names have one of the suffixes."""
    named = "" if tokens is None else "".join(f"\0{token!r}" for token in tokens)
    from aptool.models.checkpoints.files import checkpoint_name

    digest = hashlib.sha256(f"{__version__}\0{kind}\0{checkpoint_name(folder)}{named}".encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name.endswith(suffixes):
            digest.update(str(path.relative_to(folder)).encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
