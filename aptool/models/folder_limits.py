"""Limits of the files of a model folder, which are checked before a library reads them whole."""

import os
from pathlib import Path

from aptool.errors import InputError

# Bytes of a file by its name or suffix. The largest in use are Gemma's: tokenizer.json of 33 MB,
# tokenizer_config.json of 1.2 MB with 6,400 tokens. transformers reads long lists of tokens slowly.
_LARGEST = {
    "tokenizer.json": 48 << 20,
    "tokenizer_config.json": 4 << 20,
    "special_tokens_map.json": 1 << 18,
    "added_tokens.json": 1 << 20,
    **dict.fromkeys((".json", ".txt", ".model"), 32 << 20),
    ".jinja": 1 << 20,
}

# Lists and objects in a JSON file other than tokenizer.json, which `text.tokenizer_file` checks.
_MOST_BRACKETS = 1 << 15

# Bytes of the headers of all safetensors files: about 150,000 tensors.
_LARGEST_HEADERS = 8 << 20

# A larger file of which the disk holds less than a sixteenth is sparse.
_SPARSE_BYTES = 64 << 20
_SPARSE_FACTOR = 16
_BLOCK = 512


def check_model_files(folder: Path) -> None:
    """Raise if a file of a model folder is too long to be read, or has too many entries."""
    headers = 0
    for path in sorted([*folder.glob("*"), *folder.glob("*/*")]):
        if not path.is_file():
            continue
        if path.suffix == ".safetensors":
            headers += _header_size(path)
            if headers > _LARGEST_HEADERS:
                problem = f"a header of {headers:,} bytes"
                raise InputError(path, problem=problem, expected=f"at most {_LARGEST_HEADERS:,}")
            continue
        largest = _LARGEST.get(path.name, _LARGEST.get(path.suffix))
        size = path.stat().st_size
        if largest is not None and size > largest:
            raise InputError(path, problem=f"{size:,} bytes", expected=f"at most {largest:,} in a model")
        if path.suffix == ".json" and path.name != "tokenizer.json":
            _check_brackets(path)


def _header_size(path: Path) -> int:
    """The size of the header of a safetensors file; raise if the file is sparse."""
    status = path.stat()
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        is_small = status.st_blocks * _BLOCK * _SPARSE_FACTOR < status.st_size
        # Some file systems count no blocks; all of them know where a hole begins.
        if is_small and status.st_size > _SPARSE_BYTES and _first_hole(file.fileno()) < status.st_size:
            problem = f"a sparse file of {status.st_size:,} bytes"
            raise InputError(path, problem=problem, expected="the weights of a model")
    return size


def _first_hole(descriptor: int) -> int:
    return os.lseek(descriptor, 0, os.SEEK_HOLE)


def _check_brackets(path: Path) -> None:
    content = path.read_bytes()
    brackets = content.count(b"[") + content.count(b"{")
    if brackets > _MOST_BRACKETS:
        problem = f"{brackets:,} lists and objects"
        raise InputError(path, problem=problem, expected=f"at most {_MOST_BRACKETS:,} in a model")
