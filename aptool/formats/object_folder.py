"""Folders on an object store: the files first, then the file that marks the folder as complete.

A model is replaced in one step: files have names with a hash of their content, and one PUT of the
configuration, which lists them under ``objects``, switches to the new model. Files of a collection keep their
names for other programs; while a collection is replaced, it has no manifest.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from aptool.documents import read_json
from aptool.errors import AptoolError, InputError, error_with
from aptool.formats.location import Location, ObjectPath
from aptool.formats.stores import store_of

# The entry of the marking file with the names of the other files: {name: name on the store}.
OBJECTS = "objects"

_ADDRESSED = re.compile(r".+-[0-9a-f]{16}(\.\w+)?")


def check_object_folder(folder: ObjectPath, mark: str) -> None:
    """Raise unless a folder on a store is new or has the file ``mark``, so that it may be replaced."""
    store, key = store_of(folder)
    store.check_writable(key)
    names = store.names(key)
    if names and mark not in names:
        raise InputError(folder, problem=f"no {mark} in it", expected="a folder to replace, or a new path")


@contextmanager
def published(folder: ObjectPath, mark: str, *, by_content: bool) -> Iterator[Path]:
    """Yield a temporary local folder, which is uploaded if the block succeeds; the PUT of ``mark`` commits.

    ``by_content`` names the other files by their content; ``mark`` is JSON then.
    """
    with tempfile.TemporaryDirectory(prefix="aptool-") as name:
        temporary = Path(name)
        yield temporary
        files = {
            str(file.relative_to(temporary)): file
            for file in sorted(temporary.rglob("*"))
            if file.is_file() and file != temporary / mark
        }
        store, key = store_of(folder)
        if not by_content:
            store.delete([f"{key}/{mark}"])
            for relative, file in files.items():
                store.upload(f"{key}/{relative}", file)
            store.upload(f"{key}/{mark}", temporary / mark)
            return
        before = _objects(folder / mark)
        names = {relative: _addressed(relative, file) for relative, file in files.items()}
        existing = set(store.names(key))
        for relative, file in files.items():
            if names[relative] not in existing:
                store.upload(f"{key}/{names[relative]}", file)
        document = read_json(temporary / mark)
        (temporary / mark).write_text(_dumped({**document, OBJECTS: names}), encoding="utf-8")
        store.upload(f"{key}/{mark}", temporary / mark)
        stale = set(before.values()) - set(names.values())
        store.delete([f"{key}/{old}" for old in sorted(stale) if _ADDRESSED.fullmatch(old)])


def remove_published(folder: ObjectPath, mark: str) -> None:
    """Remove the files that ``published`` wrote by content, ``mark`` first."""
    names = _objects(folder / mark).values()
    store, key = store_of(folder)
    store.delete([f"{key}/{mark}"])
    store.delete([f"{key}/{name}" for name in names if _ADDRESSED.fullmatch(name)])


@contextmanager
def fetched(folder: Location, mark: str, names: tuple[str, ...]) -> Iterator[Path]:
    """Some files of a folder as a local folder: itself, or a temporary copy; missing files are left out."""
    objects = _objects(folder / mark)
    if isinstance(folder, Path) and not objects:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="aptool-") as created:
        temporary = Path(created)
        try:
            _fetch(folder, mark, names, objects, temporary)
            yield temporary
        except AptoolError as error:  # may name a temporary file
            raise error_with(error.exit_code, str(error).replace(created, str(folder))) from error


def located(folder: Location, mark: str, name: str) -> Location:
    """The location of a file of a folder; see ``published``."""
    return folder / _objects(folder / mark).get(name, name)


def _fetch(
    folder: Location, mark: str, names: tuple[str, ...], objects: dict[str, str], temporary: Path
) -> None:
    try:
        document = (folder / mark).read_bytes()
    except FileNotFoundError:
        return
    if objects:
        # The original document, so that its bytes do not depend on the storage.
        plain = json.loads(document)
        del plain[OBJECTS]
        document = _dumped(plain).encode()
    (temporary / mark).write_bytes(document)
    for relative in names:
        if relative == mark:
            continue
        target = temporary / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy_to(folder / objects.get(relative, relative), target)
        except FileNotFoundError:
            target.unlink(missing_ok=True)


def copy_to(source: Location, target: Path) -> None:
    """Copy a file to this machine; raise FileNotFoundError if it is missing."""
    with source.open("rb") as opened, target.open("wb") as file:
        shutil.copyfileobj(opened, file, 8 << 20)


@contextmanager
def local_copy(path: Location) -> Iterator[Path]:
    """A local file: itself, or a temporary copy."""
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="aptool-") as name:
        temporary = Path(name) / path.name
        copy_to(path, temporary)
        yield temporary


def _objects(mark: Location) -> dict[str, str]:
    """The names of a folder's files on the store; empty if files have their own names."""
    try:
        document: Any = json.loads(mark.read_bytes())
        objects = document.get(OBJECTS, {})
        names = {str(name): str(path) for name, path in objects.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    if any(PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts for path in names.values()):
        raise InputError(mark, place=OBJECTS, value=names, expected="names of files in the same folder")
    return names


def _addressed(relative: str, file: Path) -> str:
    """The name of a file with a hash of its content: ``model-0123456789abcdef.safetensors``."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()[:16]
    path = PurePosixPath(relative)
    return str(path.with_name(f"{path.stem}-{digest}{path.suffix}"))


def _dumped(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
