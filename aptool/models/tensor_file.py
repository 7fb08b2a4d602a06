"""Safetensors files with a checksum in the header.

Files of other programs have no checksum and are read without verification.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aptool.errors import InputError

_CHECKSUM = "sha256"
_METADATA = "__metadata__"  # key in the header


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors and metadata; equal contents give equal bytes."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, path, {**metadata, _CHECKSUM: _checksum(plain, metadata)})
    _sort_metadata(path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a file."""
    if not path.is_file():
        raise InputError(path, problem="file not found", expected="the weights of a model")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(path, problem=str(error), expected="a safetensors file") from error
    checksum = metadata.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(tensors, metadata):
        raise InputError(path, problem="changed since it was written", expected="the values of its checksum")
    return tensors, metadata


def check_finite(tensors: Mapping[str, Tensor], source: object) -> None:
    """Raise if a weight of ``source`` is NaN or infinite."""
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.numel()):
            continue
        # Both extrema are NaN if a number is. This is 20 times as fast as ``isfinite`` of each number.
        values = tensor if tensor.element_size() > 1 else tensor.float()
        if not all(bool(value.isfinite()) for value in torch.aminmax(values)):
            problem = "NaN or infinite"
            raise InputError(source, position=f"weight {name!r}", problem=problem, expected="finite weights")


def _sort_metadata(path: Path) -> None:
    """Sort the metadata in the header; the library writes them in random order."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header[_METADATA] = dict(sorted(header[_METADATA].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= size
        file.seek(8)
        file.write(text.ljust(size))


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
