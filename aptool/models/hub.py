"""Models on the Hugging Face hub: ``hf://ORG/NAME`` as a model folder, and the way there."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aptool.errors import AptoolError, InputError, UsageError, first_line
from aptool.version import install_command

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# Also with the one slash that pathlib leaves.
_URL = re.compile(rf"hf://?({_NAME.pattern})(?:@([^@\s]+))?")


def is_url(name: object) -> bool:
    """Whether a name is ``hf://...``, or what pathlib makes of it."""
    return str(name).startswith("hf:/")


def local_folder(folder: str | Path, files: Sequence[str]) -> Path:
    """The folder of a model: itself, or of ``hf://ORG/NAME[@REVISION]`` the copy in the hub's own cache.

    Args:
        folder: the folder or the URL.
        files: the files that are fetched; others on the hub are left there.
    """
    if not is_url(folder):
        return Path(folder)
    found = _URL.fullmatch(str(folder))
    if found is None:
        expected = "hf://ORG/NAME or hf://ORG/NAME@REVISION"
        raise InputError(str(folder), problem="a URL of another form", expected=expected)
    hub = _library()
    try:
        copy = hub.snapshot_download(found[1], revision=found[2], allow_patterns=list(files))
    except Exception as error:  # of the network, of the server, of the cache
        expected = "a model on the hub"
        raise InputError(f"hf://{found[1]}", problem=first_line(error), expected=expected) from error
    return Path(copy)


def pinned(url: str, copy: Path) -> str:
    """The URL of a model at the commit of its copy, ``hf://ORG/NAME@COMMIT``: one model wherever it is read.

    Args:
        url: of the model.
        copy: its folder in the hub's cache, which is called after the commit.
    """
    found = _URL.fullmatch(url)
    assert found is not None, "local_folder made the copy from it"
    return f"hf://{found[1]}@{copy.name}"


def upload(folder: Path, files: Sequence[str], name: str, *, private: bool, message: str) -> str:
    """Uploads files of a model folder to the hub.

    Args:
        folder: the model folder.
        files: the files; others stay here.
        name: ``ORG/NAME``; the repository is made if there is none.
        private: whether a new repository is private.
        message: of the commit.

    Returns:
        The address of the commit.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r}: expected ORG/NAME, the name of a model on the hub")
    api = _library().HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=name, folder_path=str(folder), allow_patterns=list(files), commit_message=message
        )
    except Exception as error:  # no token, no right, no network
        raise AptoolError(f"hf://{name}: {first_line(error)}") from error
    return str(done.commit_url)


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise AptoolError(f"models on the hub need huggingface_hub: {install_command('hub')}") from error
    return huggingface_hub
