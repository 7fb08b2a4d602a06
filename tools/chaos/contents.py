"""Contents of a folder of outputs, for comparisons: without durations, and with stored answers one by one."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from aptool.formats.outputs import MANIFEST

STORE = "encoded.json"  # in the folder of an answer store
_DURATIONS = {"seconds", "train_seconds", "score_seconds", "pairs_per_second"}


def names(folder: Path) -> set[str]:
    """All paths in a folder and its subfolders; the parts of an answer store are one name."""
    return {
        str((path.parent / "parts" if _is_part(path) else path).relative_to(folder))
        for path in folder.rglob("*")
    }


def hashes(folder: Path) -> dict[str, str]:
    """Hashes of all files in a folder and its subfolders, and of each stored answer."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            name = str(path.relative_to(folder))
            found |= _answers(path, name) if _is_part(path) else {name: _digest(_comparable(path))}
    return found


def _is_part(path: Path) -> bool:
    is_final = not path.name.startswith(".") and path.suffix == ".safetensors"
    return is_final and (path.parent / STORE).exists()


def _answers(path: Path, name: str) -> dict[str, str]:
    """A hash of the rows of each answer of a part, by its key."""
    part = load_file(path)
    ends = np.cumsum(part["counts"]).astype(np.int64)
    rows = np.split(part["rows"], ends[:-1])
    folder = name.rpartition("/")[0]
    return {
        f"{folder}/{key.tobytes().hex()}": _digest(answer.tobytes())
        for key, answer in zip(part["keys"], rows, strict=True)
    }


def _comparable(path: Path) -> bytes:
    """The bytes of a file; those of JSON without durations."""
    data = path.read_bytes()
    if path.suffix not in (".json", ".jsonl"):
        return data
    try:
        lines = data.splitlines() if path.suffix == ".jsonl" else [data]
        return "\n".join(json.dumps(_timeless(json.loads(line))) for line in lines).encode()
    except ValueError:
        return data


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(entry) for name, entry in value.items() if name not in _DURATIONS}
    return [_timeless(entry) for entry in value] if isinstance(value, list) else value


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
