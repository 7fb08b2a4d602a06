"""Folders of models: from a path, a URL or a name on the Hugging Face hub to a folder within limits."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aptool.errors import AptoolError, InputError, UsageError, first_line
from aptool.formats.location import Location, PathOrUrl, is_object_url, location
from aptool.version import require

CONFIG = "config.json"

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# pathlib writes hf:// as hf:/.
_URL = re.compile(rf"hf://?({_NAME.pattern})(?:@([^@\s]+))?")

# Files of a model to download: no code and no pickles.
_FILES = (
    *("*.json", "*.jsonl", "*.safetensors", "*.txt", "*.model", "*.jinja"),
    *("artifact.metadata", "README.md"),
)

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


def is_url(name: object) -> bool:
    """Whether a name is a URL on the hub."""
    return str(name).startswith("hf:/")


def find_folder(name: PathOrUrl) -> Location:
    """Return the folder of a model; a model on the hub is downloaded first."""
    url = _hub_url(name)
    if url is not None:
        return _downloaded(url)
    folder = location(name)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise InputError(str(name), problem="a file", expected="the folder of a model")
    raise AptoolError(
        f"{name}: folder not found; expected a model "
        f"(`aptool train COLLECTION --output {name}` trains one), or a name on the Hugging Face hub"
    )


def pinned_name(name: PathOrUrl) -> str:
    """Return a name that means the same model on every node: its folder, or its URL with the commit."""
    folder, url = find_folder(name), _hub_url(name)
    if url is None:
        return str(folder)
    match = _URL.fullmatch(url)
    assert match is not None, "find_folder downloaded it"
    return f"hf://{match[1]}@{folder.name}"  # the name of the local copy is the commit


def _downloaded(url: str) -> Path:
    """Download the files of ``hf://ORG/NAME[@REVISION]``; return the folder of the copy."""
    match = _URL.fullmatch(url)
    if match is None:
        expected = "hf://ORG/NAME or hf://ORG/NAME@REVISION"
        raise InputError(url, problem="a URL of another form", expected=expected)
    hub = _library()
    try:
        copy = hub.snapshot_download(match[1], revision=match[2], allow_patterns=list(_FILES))
    except Exception as error:  # connection, server or cache
        expected = "a model on the hub"
        raise InputError(f"hf://{match[1]}", problem=first_line(error), expected=expected) from error
    return Path(copy)


def upload(folder: Path, files: Sequence[str], name: str, *, private: bool, message: str) -> str:
    """Upload files of a model folder to the repository ``ORG/NAME``; return the URL of the commit.

    A missing repository is created, as a private one if ``private``.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r}: expected ORG/NAME, the name of a model on the hub")
    api = _library().HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name, folder_path=str(folder), allow_patterns=list(files), commit_message=message
        )
    except Exception as error:  # missing token, permission or connection
        raise AptoolError(f"hf://{name}: {first_line(error)}") from error
    return str(commit.commit_url)


def _hub_url(name: PathOrUrl) -> str | None:
    """Return the URL of a model on the hub; None for a path or the URL of an object store."""
    if is_url(name):
        return str(name)
    if is_object_url(name):
        return None
    owner, _, model = str(name).partition("/")
    # ``models`` is the folder that ``aptool train`` writes to.
    is_path = owner in ("", ".", "..", "~", "models") or Path(owner).exists()
    return None if is_path or not model or "/" in model else f"hf://{name}"


def _library() -> Any:
    return require("huggingface_hub", purpose="a model on the hub", extra="hub")


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
