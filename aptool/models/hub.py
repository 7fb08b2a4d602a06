"""Folders of models: from a path, a URL or a name on the Hugging Face hub to a folder within limits."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from aptool.errors import AptoolError, InputError, first_line
from aptool.formats.location import Location, PathOrUrl, is_object_url, location
from aptool.version import require

CONFIG = "config.json"
MODULES = "modules.json"
WEIGHTS = "model.safetensors"
ST_CONFIG = "config_sentence_transformers.json"

# pathlib writes hf:// as hf:/.
_URL = re.compile(r"hf://?([\w.-]+/[\w.-]+)(?:@([^@\s]+))?")

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

# Bytes of all files with a limit, which are hashed: 15 checkpoints of a training with Gemma's tokenizer.
_LARGEST_TOTAL = 512 << 20

# Files and folders of a model, and folders within each other.
_MOST_ENTRIES = 1 << 14
_MOST_LEVELS = 16

# A larger file of which the disk holds less than a sixteenth is sparse.
_SPARSE_BYTES = 64 << 20
_SPARSE_FACTOR = 16
_BLOCK = 512

_ONE_MODEL = "the folder of one model"


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
        if isinstance(folder, Path):
            _check_is_model(folder)
        return folder
    if folder.exists():
        raise InputError(str(name), problem="a file", expected="the folder of a model")
    raise AptoolError(
        f"{name}: folder not found; expected a model "
        f"(`aptool train COLLECTION --output {name}` trains one), or a name on the Hugging Face hub"
    )


def _check_is_model(folder: Path) -> None:
    """Raise if a folder has neither a description nor weights of a model; name the models in it."""
    if any((folder / name).is_file() for name in (CONFIG, MODULES, ST_CONFIG, WEIGHTS)):
        return
    inside = sorted({path.parent.name for name in (CONFIG, MODULES) for path in folder.glob(f"*/{name}")})
    problem = f"{len(inside)} models here: {', '.join(inside)}" if inside else "no model here"
    raise InputError(folder, problem=problem, expected="the folder of one model")


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
    hub = require("huggingface_hub", purpose="a model on the hub", extra="hub")
    try:
        copy = hub.snapshot_download(match[1], revision=match[2], allow_patterns=list(_FILES))
    except Exception as error:  # connection, server or cache
        expected = "a model on the hub"
        raise InputError(f"hf://{match[1]}", problem=first_line(error), expected=expected) from error
    return Path(copy)


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


def check_model_files(folder: Path) -> None:
    """Raise if a model folder has too many files, or a file that is too long or has too many entries."""
    headers = total = 0
    documents = []
    for path in sorted(_files_in(folder)):
        largest = _LARGEST.get(path.name, _LARGEST.get(path.suffix))
        if largest is None:
            _check_not_sparse(path)
            headers += _header_size(path) if path.suffix == ".safetensors" else 0
            if headers > _LARGEST_HEADERS:
                problem = f"a header of {headers:,} bytes"
                raise InputError(path, problem=problem, expected=f"at most {_LARGEST_HEADERS:,}")
            continue
        size = path.stat().st_size
        if size > largest:
            raise InputError(path, problem=f"{size:,} bytes", expected=f"at most {largest:,} in a model")
        total += size
        if total > _LARGEST_TOTAL:
            problem = f"more than {_LARGEST_TOTAL:,} bytes of JSON and text"
            raise InputError(folder, problem=problem, expected=_ONE_MODEL)
        if path.suffix == ".json" and path.name != "tokenizer.json":
            documents.append(path)
    for path in documents:
        _check_brackets(path)


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders; raise if there are too many."""
    count, pending = 0, [(folder, 1)]
    while pending:
        current, level = pending.pop()
        if level > _MOST_LEVELS:
            problem = f"folders in {_MOST_LEVELS} folders"
            raise InputError(current, problem=problem, expected=_ONE_MODEL)
        try:
            listing = os.scandir(current)
        except PermissionError:  # of a subfolder that no model needs
            continue
        with listing:
            for entry in listing:
                count += 1
                if count > _MOST_ENTRIES:
                    problem = f"more than {_MOST_ENTRIES:,} files and folders"
                    raise InputError(folder, problem=problem, expected=_ONE_MODEL)
                if entry.is_dir(follow_symlinks=False):
                    pending.append((Path(entry.path), level + 1))
                elif entry.is_file():
                    yield Path(entry.path)


def _header_size(path: Path) -> int:
    """The size of the header of a safetensors file."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(8), "little")


def _check_not_sparse(path: Path) -> None:
    """Raise if the disk holds little of a large file."""
    status = path.stat()
    if status.st_size <= max(_SPARSE_BYTES, status.st_blocks * _BLOCK * _SPARSE_FACTOR):
        return
    with path.open("rb") as file:
        # Some file systems count no blocks; all of them know where a hole begins.
        has_hole = _first_hole(file.fileno()) < status.st_size
    if has_hole:
        problem = f"a sparse file of {status.st_size:,} bytes"
        raise InputError(path, problem=problem, expected="the weights of a model")


def _first_hole(descriptor: int) -> int:
    return os.lseek(descriptor, 0, os.SEEK_HOLE)


def _check_brackets(path: Path) -> None:
    content = path.read_bytes()
    brackets = content.count(b"[") + content.count(b"{")
    if brackets > _MOST_BRACKETS:
        problem = f"{brackets:,} lists and objects"
        raise InputError(path, problem=problem, expected=f"at most {_MOST_BRACKETS:,} in a model")
