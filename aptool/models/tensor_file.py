"""Files of tensors that aptool writes: safetensors with a checksum of every value in the header.

A changed bit of a file in the format of safetensors is another number, not an error. Files of other programs
have no checksum and are read as they are.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aptool.errors import InputError

_CHECKSUM = "sha256"
_DIGEST = re.compile("[0-9a-f]{64}")
_FACTS = "__metadata__"  # the library's name of them


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """Writes tensors and ``facts``, texts by name, to a temporary file; see ``formats.atomic``."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    whole = {**facts, _CHECKSUM: _checksum(plain.items(), facts)}
    save_file(plain, path, whole)
    _order_facts(path)


def read_tensors(path: Path, *, checked: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the facts of a file; copies, so that the file may be replaced.

    Args:
        path: the file.
        checked: whether it must have a checksum, as all that aptool alone writes has.
    """
    try:
        with safe_open(path, framework="pt") as file:
            facts = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(path, problem=str(error), expected="a safetensors file") from error
    written = facts.pop(_CHECKSUM, None)
    # A fact of that form is a checksum whose own name was damaged.
    checked = checked or written is not None or any(map(_DIGEST.fullmatch, facts.values()))
    if checked and written != _checksum(tensors.items(), facts):
        raise InputError(path, problem="changed since it was written", expected="the values of its checksum")
    return tensors, facts


def _order_facts(path: Path) -> None:
    """Sorts the facts of the header, which the library writes in any order: equal files for equal tensors."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header[_FACTS] = dict(sorted(header[_FACTS].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= size
        file.seek(8)
        file.write(text.ljust(size))


def _checksum(tensors: Iterable[tuple[str, Tensor]], facts: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(facts.items())).encode())
    for name, tensor in sorted(tensors):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
