"""Models on the Hugging Face hub: download of ``hf://ORG/NAME``, and upload."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aptool.errors import AptoolError, InputError, UsageError, first_line
from aptool.text.tokenizer import require

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# pathlib turns // into one slash.
_URL = re.compile(rf"hf://?({_NAME.pattern})(?:@([^@\s]+))?")


def is_url(name: object) -> bool:
    """Whether a name is ``hf://...``, or ``hf:/...``, as pathlib writes it."""
    return str(name).startswith("hf:/")


def local_folder(folder: str | Path, files: Sequence[str]) -> Path:
    """Return a folder, or the local copy of ``hf://ORG/NAME[@REVISION]`` with the named files."""
    if not is_url(folder):
        return Path(folder)
    match = _URL.fullmatch(str(folder))
    if match is None:
        expected = "hf://ORG/NAME or hf://ORG/NAME@REVISION"
        raise InputError(str(folder), problem="a URL of another form", expected=expected)
    hub = _library()
    try:
        copy = hub.snapshot_download(match[1], revision=match[2], allow_patterns=list(files))
    except Exception as error:  # of the network, of the server, of the cache
        expected = "a model on the hub"
        raise InputError(f"hf://{match[1]}", problem=first_line(error), expected=expected) from error
    return Path(copy)


def pinned(url: str, copy: Path) -> str:
    """Return ``hf://ORG/NAME@COMMIT``, given a local copy; its folder's name is the commit."""
    match = _URL.fullmatch(url)
    assert match is not None, "local_folder made the copy from it"
    return f"hf://{match[1]}@{copy.name}"


def upload(folder: Path, files: Sequence[str], name: str, *, private: bool, message: str) -> str:
    """Upload files of a model folder to the repository ``ORG/NAME``; return the commit's URL.

    A missing repository is created, private if ``private``.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r}: expected ORG/NAME, the name of a model on the hub")
    api = _library().HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name, folder_path=str(folder), allow_patterns=list(files), commit_message=message
        )
    except Exception as error:  # no token, no right, no network
        raise AptoolError(f"hf://{name}: {first_line(error)}") from error
    return str(commit.commit_url)


def _library() -> Any:
    return require("huggingface_hub", purpose="a model on the hub", extra="hub")
